"""Imitation of torch.npu: available when everything documented for the host's family is in the container."""

from __future__ import annotations

import os
import sys

from torch import _simulated_driver as _driver


def is_available() -> bool:
    """False, with one line a missing item on standard error, unless the container has all that is documented."""
    problems = _driver.missing(_driver.load())
    if not problems and not _driver.OWNER_MARK.exists():
        try:
            for descriptor in _driver.claim(_driver.npus(), exclusive=False):
                os.close(descriptor)
        except OSError as error:
            problems = [str(error)]
    for problem in problems:
        print(f"[ERROR] (imitation of torch.npu) {problem}", file=sys.stderr)
    return not problems


def device_count() -> int:
    """How many NPUs are mapped."""
    return len(_driver.npus())


def get_soc_version() -> int:
    """Number of the SoC, as the host's driver says."""
    return _driver.load().soc_version


def get_device_name(device: int = 0) -> str:
    """A name that says that it is simulated."""
    return f"simulated {_driver.load().family} NPU {device}"


def set_device(device: int) -> None:
    """Choose an NPU: nothing to do."""


def synchronize(device: int | None = None) -> None:
    """Wait for an NPU: nothing runs there."""
