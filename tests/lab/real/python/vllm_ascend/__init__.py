"""Stands for vllm-ascend, with vllm-ascend's own ascend_config.py and envs.py beside it.

vLLM loads it as it loads the real one; only the worker is replaced, by one that computes nothing.
"""


def register() -> str:
    """Entry point of the group vllm.platform_plugins."""
    return "vllm_ascend.platform.NPUPlatform"
