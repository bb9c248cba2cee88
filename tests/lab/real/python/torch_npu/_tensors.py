"""Tensors on the simulated device type `npu`: every operator of theirs runs on the machine's own CPU.

For scripts that try a small operation on each NPU. LAB_NPU_FAILS, numbers with commas: any operation on these NPUs
fails, though they are there and torch.npu.is_available() says so.
"""

from __future__ import annotations

import os
from typing import Any

import torch
from torch.utils._pytree import tree_map

from torch_npu import npu

FAILS = {int(number) for number in os.environ.get("LAB_NPU_FAILS", "").split(",") if number}


class NpuTensor(torch.Tensor):
    """A tensor that says that it is on an NPU, around the one that holds the values."""

    @staticmethod
    def __new__(cls, values: torch.Tensor, device: torch.device) -> NpuTensor:
        """Around `values`."""
        return torch.Tensor._make_wrapper_subclass(
            cls, values.size(), strides=values.stride(), dtype=values.dtype, device=device
        )

    def __init__(self, values: torch.Tensor, device: torch.device) -> None:
        self.values_on_cpu = values

    def __repr__(self) -> str:
        return f"simulated {self.device}: {self.values_on_cpu}"

    @classmethod
    def __torch_dispatch__(cls, operator: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Any operator on such tensors."""
        return _run(operator, *args, **(kwargs or {}))


def _run(operator: Any, *args: Any, **kwargs: Any) -> Any:
    """The operator on the CPU; what comes of it is on the NPU of the first argument that is on one."""
    found: list[torch.device] = []

    def on_cpu(value: Any) -> Any:
        if isinstance(value, NpuTensor):
            found.append(value.device)
            return value.values_on_cpu
        if isinstance(value, torch.device) and value.type == "npu":
            found.append(value)
            return torch.device("cpu")
        return value

    wanted = kwargs.get("device")
    cpu_args, cpu_kwargs = tree_map(on_cpu, (args, kwargs))
    number = (found[0].index if found else None) or 0
    _check(number)
    result = operator(*cpu_args, **cpu_kwargs)
    if wanted is not None and torch.device(wanted).type == "cpu":
        return result
    if operator._schema.is_mutable and args:
        return args[0]

    def on_npu(value: Any) -> Any:
        return NpuTensor(value, torch.device("npu", number)) if isinstance(value, torch.Tensor) else value

    return tree_map(on_npu, result)


def _check(number: int) -> None:
    if number >= npu.device_count():
        raise RuntimeError(f"invalid device ordinal {number}: {npu.device_count()} NPUs are here (simulated)")
    if number in FAILS:
        raise RuntimeError(
            f"npu:{number}: aicore execution is abnormal, error code is 507015 (simulated: LAB_NPU_FAILS)"
        )


def register() -> torch.library.Library:
    """Take all operators of the device type; they are taken as long as the result lives."""
    library = torch.library.Library("_", "IMPL")
    library.fallback(_run, "PrivateUse1")
    return library
