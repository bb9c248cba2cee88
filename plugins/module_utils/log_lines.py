# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The few lines of a long log that say why something failed, without the values that must not be seen."""

from __future__ import annotations

import re
from typing import Any, Iterable, List, Optional

MASK = "********"
LIMIT = 16
WIDTH = 300

# Root causes of vLLM come first, prefixed by "(EngineCore pid=..)" or "(Worker ..)"; the last line of such a log only
# says "See root cause above" (vLLM 0.23.0). So the first hits are kept as well as the last.
_FIRST = 6
_MATTERS = re.compile(
    r"(?i)\b(error|exception|fatal|failed|failure|refused|denied|cannot|can't|unable|invalid|unrecognized|not found|"
    r"no such|no available|out of memory|oom|killed|timed? ?out|does not|did not|not usable|gives? up|already in use|"
    r"assert\w*|panic|segmentation|device is used|unexpected)\b|\w(Error|Exception)\b|-80\d\d|^vllm-ascend [\w-]+: "
)
# The colour codes of vLLM's log lines, and what an interactive shell without a terminal says.
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_SHELL = re.compile(r"cannot set terminal process group|no job control in this shell")
_NOISE = re.compile(
    r"(?i)^\S*( ?\(\w+ pid=\d+\))?\s+raise \w|waiting for \S+, \d+ of \d+ s:|cannot set terminal process group|"
    r"no job control in this shell|non-default args|Failed with result|"
    r"^Failed to start |Scheduled restart job|control process exited|force killing remaining processes|"
    r"See root cause above|\bINFO \d\d-\d\d |^\s*\^+\s*$|will not be available"
)


def without_shell_noise(text: str) -> str:
    """The text without what an interactive shell says that has no terminal."""
    return "\n".join(line for line in text.splitlines() if not _SHELL.search(line)).strip()


def relevant(lines: Iterable[str], secrets: Iterable[str] = (), limit: int = LIMIT) -> List[str]:
    """The lines that say what went wrong, in order, each once; the last few lines when none says so.

    secrets: values that are masked wherever they stand.
    """
    clean: List[str] = []
    for line in lines:
        text = _COLOUR.sub("", mask(line, secrets)).rstrip()[:WIDTH]
        if text and text not in clean:
            clean.append(text)
    hits = [line for line in clean if _tells(line)]
    if not hits:
        return [line for line in clean if not _NOISE.search(line)][-5:]
    if len(hits) <= limit:
        return hits
    return hits[:_FIRST] + ["[...]"] + hits[len(hits) - (limit - _FIRST - 1) :]


def cause(lines: List[str]) -> Optional[str]:
    """The one line of relevant() to say first: what the helper gave up on, else the last error; None: no line tells.

    That the main process has ended says nothing: why is in the engine's own lines.
    """
    helper = [line for line in lines if line.startswith("vllm-ascend ") and "has ended" not in line]
    telling = [line for line in lines if _tells(line)]
    errors = [line for line in telling if "error" in line.lower()]
    return next((found[-1].strip() for found in (helper, errors, telling) if found), None)


def _tells(line: str) -> bool:
    """True for a line that says what went wrong."""
    return bool(_MATTERS.search(line)) and not _NOISE.search(line)


def mask(text: str, secrets: Iterable[str]) -> str:
    """The text with every secret value replaced; longer values first, since one may be part of another."""
    for value in sorted(set(secrets), key=len, reverse=True):
        if value:
            text = text.replace(value, MASK)
    return text


def mask_value(value: Any, secrets: Iterable[str]) -> Any:
    """The same for every text inside a value made of dictionaries and lists; their keys stay."""
    known = list(secrets)
    if isinstance(value, str):
        return mask(value, known)
    if isinstance(value, dict):
        return {key: mask_value(part, known) for key, part in value.items()}
    return [mask_value(part, known) for part in value] if isinstance(value, list) else value
