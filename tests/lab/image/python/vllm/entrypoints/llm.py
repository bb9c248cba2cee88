"""Imitation of the offline API."""

from __future__ import annotations

from typing import Any

from vllm.logger import IMITATION, log

TEXT = "(imitation) no model computed this text , it is here so that a completion is not empty ."
WORDS = TEXT.split()


def words(count: int) -> list[str]:
    """That many tokens of a completion, each with its leading blank."""
    return [f" {WORDS[index % len(WORDS)]}" for index in range(count)]


class SamplingParams:
    """Takes what the real one takes and keeps the length."""

    def __init__(self, max_tokens: int = 16, **_others: Any) -> None:
        self.max_tokens = max_tokens


class _Completion:
    def __init__(self, text: str) -> None:
        self.text = text


class _Output:
    def __init__(self, prompt: str, text: str) -> None:
        self.prompt, self.outputs = prompt, [_Completion(text)]


class LLM:
    """Checks its arguments as the server does and generates placeholder text."""

    def __init__(self, model: str, max_model_len: int | None = None, **_others: Any) -> None:
        import torch
        from vllm_ascend.utils import check_ascend_device_type

        from vllm import config, platforms

        platforms.resolve()
        check_ascend_device_type()
        if not torch.npu.is_available():
            raise RuntimeError("Engine core initialization failed. See root cause above.")
        log("WARNING", "imitation.py:1", IMITATION)
        self.max_model_len = config.max_model_len(model, max_model_len)

    def generate(self, prompts: list[str], sampling_params: SamplingParams | None = None) -> list[_Output]:
        """One output a prompt."""
        count = (sampling_params or SamplingParams()).max_tokens
        return [_Output(prompt, "".join(words(count))) for prompt in prompts]
