"""Imitation of the offline API: it claims the NPUs as an engine does, and generates placeholder text."""

from __future__ import annotations

import atexit
import os
import sys
import time
from types import SimpleNamespace
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


class LLM:
    """Checks its arguments as the server does.

    The environment: LAB_LOAD_S seconds of loading (0), LAB_ENGINE_FAIL=start, LAB_ENGINE_TEXT=none (texts are empty) or
    some (that of every second prompt is).
    """

    def __init__(self, model: str, max_model_len: int | None = None, **others: Any) -> None:
        import torch
        from torch import _simulated_driver as driver
        from vllm_ascend.utils import check_ascend_device_type

        from vllm import config, platforms

        platforms.resolve()
        check_ascend_device_type()
        if not torch.npu.is_available():
            raise RuntimeError("Engine core initialization failed. See root cause above.")
        log("WARNING", "imitation.py:1", IMITATION)
        log("INFO", "utils.py:233", f"non-default args: {dict(others, model=model)}")
        known = {name.replace("-", "_") for kind in config.OPTIONS["options"].values() for name in kind}
        unknown = sorted(set(others) - known - {"dtype", "compilation_config", "additional_config"})
        if unknown:
            raise TypeError(f"EngineArgs.__init__() got an unexpected keyword argument '{unknown[0]}'")
        self.max_model_len = config.max_model_len(model, max_model_len)
        driver.claim(driver.npus(), exclusive=True)
        time.sleep(float(os.environ.get("LAB_LOAD_S", "0")))
        if os.environ.get("LAB_ENGINE_FAIL") == "start":
            raise RuntimeError("imitation: this image is made to fail in init_device (LAB_ENGINE_FAIL=start)")
        atexit.register(_leave)

    def generate(
        self, prompts: list[str], sampling_params: SamplingParams | None = None, use_tqdm: bool = True
    ) -> list[Any]:
        """One output a prompt."""
        length = (sampling_params or SamplingParams()).max_tokens
        text = "".join(words(length))
        none = {"none": 1, "some": 2}.get(os.environ.get("LAB_ENGINE_TEXT", ""))
        found = []
        for number, prompt in enumerate(prompts):
            empty = none is not None and number % none == none - 1
            count = 0 if empty else length
            first = SimpleNamespace(
                text="" if empty else text, token_ids=list(range(count)), finish_reason="stop" if empty else "length"
            )
            tokens = list(range(len(prompt.split())))
            found.append(SimpleNamespace(prompt=prompt, prompt_token_ids=tokens, outputs=[first]))
        return found


def _leave() -> None:
    """What the real engine prints at a good end."""
    log("INFO", "core.py:1201", "Shutdown initiated (timeout=0)")
    log("INFO", "core.py:1224", "Shutdown complete")
    log("ERROR", "core_client.py:704", "Engine core proc EngineCore died unexpectedly, shutting down client.")
    print("sys:1: DeprecationWarning: builtin type swigvarlink has no __module__ attribute", file=sys.stderr)
