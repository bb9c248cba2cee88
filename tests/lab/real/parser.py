"""Asks the real vLLM's parser, for tests: what the engine would be configured to do."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
from typing import Any

from ..settings import LabError
from . import cache, packages, plugin

PROGRAM = pathlib.Path(__file__).resolve().parent / "configure.py"
LIMIT_S = 600
# Names that would change what is asked.
FOREIGN = ("PYTHONPATH", "PYTHONHOME", "VLLM_PLUGINS", "TORCH_DEVICE_BACKEND_AUTOLOAD")


def ask(questions: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """An answer for each question; configure.py says what both are. One call takes 10 s, however many they are.

    The hub's default model is in the cache, and no NPU or host driver is needed. Raises LabError.
    """
    folder = packages.ensure()
    environment = {name: value for name, value in os.environ.items() if name not in FOREIGN}
    environment |= {
        "PYTHONPATH": str(plugin.folder("A2")),
        "HF_HOME": str(cache.ensure() / "huggingface"),
        "HF_HUB_OFFLINE": "1",
        "VLLM_CACHE_ROOT": str(packages.FOLDER / "vllm-cache"),
        "VLLM_NO_USAGE_STATS": "1",
        "LAB_DRIVER": "none",
    }
    argv = [str(packages.python(folder)), str(PROGRAM)]
    asked = json.dumps(questions)
    done = subprocess.run(
        argv, input=asked, env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    if done.returncode:
        raise LabError(f"vLLM's parser cannot be asked: {done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])
