"""Simulated torch.npu: what the container has of the documented devices and mounts decides; nothing is computed."""

from __future__ import annotations

import os
import sys
from typing import Any

from torch_npu import _simulated_driver as _driver

# Numbers of the SoCs, by the image's device type, for checks without a host driver.
_SOC_VERSIONS = {"A2": 223, "A3": 253, "_310P": 202, "A5": 260}
_NO_HOST = os.environ.get("LAB_DRIVER") == "none"
_current = 0


def is_available() -> bool:
    """False, with one line a missing item on standard error, unless the container has all that is documented."""
    problems = [] if _NO_HOST else _driver.missing(_driver.load())
    if not problems and not _driver.OWNER_MARK.exists():
        try:
            for descriptor in _driver.claim(_driver.npus(), exclusive=False):
                os.close(descriptor)
        except OSError as error:
            problems = [str(error)]
    for problem in problems:
        print(f"[ERROR] (simulated torch.npu) {problem}", file=sys.stderr)
    return not problems


def device_count() -> int:
    """How many NPUs are mapped."""
    return 8 if _NO_HOST else len(_driver.npus())


def get_soc_version() -> int:
    """Number of the SoC, as the host's driver says."""
    if _NO_HOST:
        from vllm_ascend import _build_info

        return _SOC_VERSIONS[_build_info.__device_type__]
    return _driver.load().soc_version


def get_device_name(device: Any = None) -> str:
    """A name that says that it is simulated."""
    family = "without a driver" if _NO_HOST else _driver.load().family
    return f"simulated NPU {family}"


def current_device() -> int:
    """Index of the chosen NPU."""
    return _current


def set_device(device: Any) -> None:
    """Choose an NPU by index or torch.device."""
    global _current
    _current = getattr(device, "index", device) or 0


def manual_seed_all(seed: int) -> None:
    """Nothing to seed."""


def synchronize(device: Any = None) -> None:
    """Nothing runs."""


def empty_cache() -> None:
    """Nothing is allocated."""


def is_initialized() -> bool:
    """There is nothing to set up."""
    return True


def _is_in_bad_fork() -> bool:
    return False
