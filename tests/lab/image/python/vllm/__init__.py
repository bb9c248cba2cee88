"""Imitation of vLLM for the simulated rack: its command line, its server's behaviour, no computing at all."""

from vllm.entrypoints.llm import LLM, SamplingParams
from vllm.version import __version__

__all__ = ["LLM", "SamplingParams", "__version__"]
