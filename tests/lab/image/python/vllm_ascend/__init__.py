"""Imitation of vllm-ascend for the simulated rack."""


def register() -> str:
    """Entry point of the group vllm.platform_plugins."""
    return "vllm_ascend.platform.NPUPlatform"
