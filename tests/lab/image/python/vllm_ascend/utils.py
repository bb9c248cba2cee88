"""Which device the image is built for, and which one the driver says is here."""

from __future__ import annotations

import enum

import torch

from vllm_ascend import _build_info


class AscendDeviceType(enum.Enum):
    """Device types of the build information."""

    A2 = 0
    A3 = 1
    _310P = 2
    A5 = 3


def check_ascend_device_type() -> None:
    """Raises AssertionError when the image is for another device, RuntimeError for an unknown SoC."""
    soc_version = torch.npu.get_soc_version()
    ranges = ((200, 205, "_310P"), (220, 225, "A2"), (250, 255, "A3"), (260, 260, "A5"))
    names = [name for first, last, name in ranges if first <= soc_version <= last]
    if not names:
        raise RuntimeError(f"Can not support soc_version: {soc_version}.")
    current, installed = AscendDeviceType[names[0]], AscendDeviceType[_build_info.__device_type__]
    assert current == installed, (
        f"Current device type: {current} does not match the installed version's device type: "
        f"{installed}, please check your installation package."
    )
