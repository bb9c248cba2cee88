"""The few functions that vllm-ascend's ascend_config.py asks its utils for, for models without any of that."""

from __future__ import annotations

from typing import Any

from vllm_ascend import _build_info
from vllm_ascend._device_type import AscendDeviceType, check_ascend_device_type

__all__ = ["AscendDeviceType", "check_ascend_device_type"]


def get_ascend_device_type() -> AscendDeviceType:
    """What the image is built for."""
    return AscendDeviceType[_build_info.__device_type__]


def is_310p() -> bool:
    """Whether the image is built for the 310P."""
    return get_ascend_device_type() is AscendDeviceType._310P


def enable_sp(*_arguments: Any, **_options: Any) -> bool:
    """Sequence parallelism: never here."""
    return False


def clear_enable_sp() -> None:
    """Nothing is kept."""


def get_flashcomm2_config_and_validate(*_arguments: Any) -> int:
    """FlashComm2's parallel size: off."""
    return 0


def model_uses_sfa_sparse(*_arguments: Any) -> bool:
    """Sparse attention: not with the test's model."""
    return False


def is_gqa_backend(*_arguments: Any) -> bool:
    """Grouped-query attention: as the test's model has it."""
    return True


def uses_mooncake_connector(*_arguments: Any) -> bool:
    """KV transfer by Mooncake: not installed."""
    return False
