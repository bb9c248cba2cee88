# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plain values in, findings out: what every part of the plan shares."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any

Finding = dict[str, str]


class Findings:
    """Collects what the parts of a plan find, so that everything against a deployment is said at once."""

    def __init__(self) -> None:
        self.problems: list[Finding] = []
        self.warnings: list[Finding] = []
        self.explain: list[Finding] = []

    def problem(self, code: str, message: str, remedy: str) -> None:
        """A reason not to deploy: what is wrong with which value, and what to do."""
        self._add(self.problems, {"code": code, "message": message, "remedy": remedy})

    def warn(self, code: str, message: str, remedy: str) -> None:
        """Something to know that does not stop the deployment."""
        self._add(self.warnings, {"code": code, "message": message, "remedy": remedy})

    def why(self, what: str, why: str, source: str) -> None:
        """The reason of a decision, with the document or setting that it comes from."""
        self._add(self.explain, {"what": what, "why": why, "source": source})

    @staticmethod
    def _add(entries: list[Finding], entry: Finding) -> None:
        if entry not in entries:
            entries.append(entry)


def plain(value: Any) -> Any:
    """The value made of dict, list, str, int, float, bool and None only.

    Ansible passes tagged strings and lazy containers to filters; a plan must be plain JSON. A value of any other type
    raises TypeError: that is an error of the caller, not of the operator.
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value)
    if isinstance(value, Mapping):
        return {_key(key): plain(value[key]) for key in value}
    if isinstance(value, (bytes, bytearray)):
        raise TypeError("bytes are not a plain value")
    if isinstance(value, Iterable):
        return [plain(item) for item in value]
    raise TypeError(f"a value of type {type(value).__name__} is not a plain value")


def _key(key: Any) -> str:
    return str.__str__(key) if isinstance(key, str) else str(plain(key))


def listed(values: Iterable[Any]) -> str:
    """Values for a sentence: "a, b, c", or "none"."""
    return ", ".join(str(value) for value in values) or "none"


def nearest(word: str, known: Iterable[str]) -> str:
    """A hint ` (did you mean "x"?)` when a known word is near, else nothing."""
    found = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f' (did you mean "{found[0]}"?)' if found else ""
