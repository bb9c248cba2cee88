"""Imitation of the out-of-tree platform."""


class NPUPlatform:
    """What vLLM asks a platform for its name."""

    device_name = "npu"
    device_type = "npu"
    dispatch_key = "PrivateUse1"
    device_control_env_var = "ASCEND_RT_VISIBLE_DEVICES"
