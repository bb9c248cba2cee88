"""The platform plugin, found by its entry point and logged as vLLM does."""

from __future__ import annotations

import importlib
import importlib.metadata
import os
from typing import Any

from vllm.logger import log

GROUP = "vllm.platform_plugins"
_platform: Any = None


def resolve() -> Any:
    """The activated platform, or None without a plugin (VLLM_PLUGINS may leave it out)."""
    global _platform
    if _platform is not None:
        return _platform
    plugins = list(importlib.metadata.entry_points(group=GROUP))
    if not plugins:
        return None
    log("INFO", "__init__.py:44", f"Available plugins for group {GROUP}:")
    for plugin in plugins:
        log("INFO", "__init__.py:46", f"- {plugin.name} -> {plugin.value}")
    allowed = os.environ.get("VLLM_PLUGINS")
    if allowed is None:
        log(
            "INFO",
            "__init__.py:49",
            "All plugins in this group will be loaded. Set `VLLM_PLUGINS` to control which plugins to load.",
        )
    for plugin in plugins:
        if allowed is None or plugin.name in allowed.split(","):
            module, _, name = plugin.load()().rpartition(".")
            _platform = getattr(importlib.import_module(module), name)()
            log("INFO", "__init__.py:241", f"Platform plugin {plugin.name} is activated")
    return _platform


def __getattr__(name: str) -> Any:
    if name == "current_platform":
        return resolve()
    raise AttributeError(name)
