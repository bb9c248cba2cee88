"""Small matrices for scripts that try an operation on each NPU: plain Python numbers, no device has a part in them.

LAB_NPU_FAILS, numbers with commas: any operation on these NPUs fails, though they are there and
torch.npu.is_available() says so. LAB_NPU_HANGS: it never ends.
"""

from __future__ import annotations

import os
import struct
import time
from typing import NamedTuple

from torch import npu

Rows = list[list[float]]


class DType(NamedTuple):
    """A type of numbers; code is that of the module struct, by which numbers are rounded."""

    name: str
    code: str


float16 = DType("torch.float16", "e")
float32 = DType("torch.float32", "f")
HANG_S = 3600


class Tensor:
    """A matrix that says where it is: "cpu" or "npu:<number>"."""

    def __init__(self, rows: Rows, dtype: DType, device: str) -> None:
        self.dtype, self.device = dtype, device
        self._rows = [[_rounded(value, dtype) for value in row] for row in rows]

    def __repr__(self) -> str:
        return f"simulated {self.device}: {self._rows}"

    def to(self, device: str) -> Tensor:
        """The same on a device. Raises RuntimeError when that is not there or made to fail."""
        place = "npu:0" if device == "npu" else device
        _check(place)
        return Tensor(self._rows, self.dtype, place)

    def npu(self) -> Tensor:
        """The same on NPU 0."""
        return self.to("npu:0")

    def cpu(self) -> Tensor:
        """The same in the machine's memory."""
        _check(self.device)
        return Tensor(self._rows, self.dtype, "cpu")

    def tolist(self) -> Rows:
        """The numbers, row by row."""
        return [list(row) for row in self._rows]

    def __matmul__(self, other: Tensor) -> Tensor:
        if self.device != other.device:
            raise RuntimeError(f"tensors are on different devices, {self.device} and {other.device} (simulated)")
        _check(self.device)
        columns = list(zip(*other._rows, strict=True))
        product = [[sum(a * b for a, b in zip(row, column, strict=True)) for column in columns] for row in self._rows]
        return Tensor(product, self.dtype, self.device)


def tensor(rows: Rows, dtype: DType = float32, device: str = "cpu") -> Tensor:
    """A matrix of these rows."""
    _check(device)
    return Tensor(rows, dtype, device)


def matmul(left: Tensor, right: Tensor) -> Tensor:
    """The product of two matrices."""
    return left @ right


def _rounded(value: float, dtype: DType) -> float:
    return float(struct.unpack(dtype.code, struct.pack(dtype.code, value))[0])


def _numbers(variable: str) -> set[int]:
    return {int(number) for number in os.environ.get(variable, "").split(",") if number}


def _check(device: str) -> None:
    kind, _, text = device.partition(":")
    if kind != "npu":
        return
    number = int(text or 0)
    if number >= npu.device_count():
        raise RuntimeError(f"invalid device ordinal {number}: {npu.device_count()} NPUs are here (simulated)")
    if number in _numbers("LAB_NPU_HANGS"):
        time.sleep(HANG_S)
    if number in _numbers("LAB_NPU_FAILS"):
        raise RuntimeError(
            f"npu:{number}: aicore execution is abnormal, error code is 507015 (simulated: LAB_NPU_FAILS)"
        )
