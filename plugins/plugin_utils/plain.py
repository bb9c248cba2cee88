# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plain values in, findings out: what every part of the plan shares."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from typing import Any

Finding = dict[str, str]
# What a value of the wrong shape can make of a filter's work.
WRONG_INPUT = (TypeError, ValueError, LookupError, AttributeError)
HIDDEN = "***"
# Problems that an operator may accept by vllm_accept_problems, and what is risked then: judgements about a host, which
# may be wrong. What cannot work, or would harm a service that runs, is not among them.
ACCEPTABLE = {
    "npu_smi_hung": "a dead chip shows only when the service starts",
    "npu_held": "the container may find its NPU in use (-8020)",
    "npu_unhealthy": "the chip may fail under load",
    "release_known_bad": "the image is reported not to start",
    "driver_known_bad": "the driver is reported not to work with the image",
    "model_too_large": "the service may end for want of memory",
    "serve_option_unknown": "vLLM Ascend ignores the key, and vLLM does not start with it",
    "serve_flag_unknown": "vllm serve ends at once if it does not know the flag",
    "disk_too_small": "the pull may fill the disk",
    "hccn_conf_missing": "the service may answer wrongly without any error",
    "capture_sizes_too_many": "the chip may run out of event ids while it captures",
}
SECRET_NAME = re.compile(r"(TOKEN|PASSWORD|PASSWD|SECRET|API[-_]?KEY|ACCESS[-_]?KEY|CREDENTIAL)", re.IGNORECASE)
# A login of an address inside a text: after a scheme, or user:password at its start. Greedy as has_login is.
_LOGIN_IN_TEXT = re.compile(r"(?<=//)\S*@|^[^\s:/@]+:\S*@")
_SECRET_FLAG = re.compile(r"(--?(?:api[-_]k\w*|hf[-_]t\w*)(?:\.\w+)?[=\s]\s*)\S.*", re.DOTALL)


class Findings:
    """Collects what the parts of a plan find, so that everything against a deployment is said at once."""

    def __init__(self) -> None:
        self.problems: list[Finding] = []
        self.warnings: list[Finding] = []
        self.explain: list[Finding] = []
        # Codes that the operator accepts; set once the settings are known.
        self.accepted: frozenset[str] = frozenset()

    def accepts(self, code: str) -> bool:
        """True when the operator accepts that problem: it is a warning then."""
        return code in ACCEPTABLE and code in self.accepted

    def problem(self, code: str, message: str, remedy: str) -> None:
        """A reason not to deploy: what is wrong with which value, and what to do.

        One that the operator accepts becomes a warning; the remedy of one that may be accepted says how.
        """
        if self.accepts(code):
            self.warn(code, f"{message} (accepted by vllm_accept_problems: {ACCEPTABLE[code]})", remedy)
            return
        if code in ACCEPTABLE:
            remedy = f"{remedy} vllm_accept_problems: [{code}] deploys all the same."
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


def has_login(address: str) -> bool:
    """True when the address of a proxy or hub, with or without a scheme, carries a login.

    Greedy on purpose: a password with an unescaped "/" or "@" must not be missed, so any "@" ends a login.
    """
    return "@" in address


def names_login(text: str) -> bool:
    """True when a text that may be anything holds an address with a login (scheme://…@, or user:password@host)."""
    return _LOGIN_IN_TEXT.search(text) is not None


def masked(value: Any) -> Any:
    """The value as a message may show it: without logins, and without what stands under the name of a secret."""
    if isinstance(value, str):
        return _SECRET_FLAG.sub(rf"\1{HIDDEN}", _LOGIN_IN_TEXT.sub(f"{HIDDEN}@", value))
    if isinstance(value, list):
        after_flag = [isinstance(word, str) and _SECRET_FLAG.match(f"{word} x") is not None for word in value]
        return [
            HIDDEN if place and after_flag[place - 1] and "=" not in value[place - 1] else masked(item)
            for place, item in enumerate(value)
        ]
    if isinstance(value, dict):
        return {key: HIDDEN if SECRET_NAME.search(key) and item else masked(item) for key, item in value.items()}
    return value


def kind_of(value: Any) -> str:
    """The type of a value by the name that people use for it in YAML."""
    if value is None:
        return "null"
    names = ((bool, "bool"), (str, "str"), (int, "int"), (float, "float"), (Mapping, "dict"), (list, "list"))
    return next((name for kind, name in names if isinstance(value, kind)), type(value).__name__)


def wrong_input(failure: Exception, expected: str, **given: Any) -> str:
    """The message for a caller who passed something else than expected, with the types of what was given."""
    reason = f"there is no {failure}" if isinstance(failure, LookupError) else str(failure)
    types = ", ".join(f"{name} is of type {kind_of(value)}" for name, value in given.items())
    return f"{reason} ({types}; expected is {expected})"


def listed(values: Iterable[Any]) -> str:
    """Values for a sentence: "a, b, c", or "none"."""
    return ", ".join(str(value) for value in values) or "none"


def nearest(word: str, known: Iterable[str]) -> str:
    """A hint ` (did you mean "x"?)` when a known word is near, else nothing."""
    found = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f' (did you mean "{found[0]}"?)' if found else ""
