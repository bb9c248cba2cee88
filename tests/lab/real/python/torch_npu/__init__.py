"""Simulated torch_npu for the real torch: `torch.npu` and the device type `npu`, without any device behind them.

Importing it raises ImportError without a host driver. LAB_DRIVER=none: nothing is asked of the host, for checks of
flags where there is none.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

# Imported before torch it must not be loaded a second time by it.
_AUTOLOAD = "TORCH_DEVICE_BACKEND_AUTOLOAD"
_wanted = os.environ.get(_AUTOLOAD)
os.environ[_AUTOLOAD] = "0"
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend  # noqa: E402  because autoload must be off

from torch_npu import _simulated_driver, npu  # noqa: E402  because the backend must be set up first

del os.environ[_AUTOLOAD]
if _wanted is not None:
    os.environ[_AUTOLOAD] = _wanted

if os.environ.get("LAB_DRIVER") != "none":
    _simulated_driver.load()
_setup_privateuseone_for_python_backend(rename="npu", backend_module=npu)

from torch_npu import _tensors  # noqa: E402  because it needs torch.npu

# Kept: the operators are taken as long as it lives.
_operators = _tensors.register()

__version__ = "2.10.0.post4"
__all__ = ["__version__", "npu"]


def _autoload() -> None:
    """Entry point of the group torch.backends: what `import torch` runs. All is done by the import."""


def __getattr__(name: str) -> Callable[..., Any]:
    """An operator such as npu_fusion_attention, which others import by name: it can be had, not called."""
    if not name.startswith("npu_"):
        raise AttributeError(f"module 'torch_npu' (simulated) has no attribute {name!r}")

    def operator(*_arguments: Any, **_options: Any) -> Any:
        raise NotImplementedError(f"torch_npu.{name}: this torch_npu is simulated and computes nothing")

    return operator
