# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The keyword arguments of vLLM's LLM(...) that mean what the words of `vllm serve` mean.

The plan's serve arguments (the family's defaults, the plan's own flags, the operator's on top) are the one source of
both. Which flags belong to the server alone is data: roles/npu_host/vars/rules/offline.yml; what a flag takes is in
serve_flags.yml. Read with vLLM 0.23.0, whose parser this follows (vllm/utils/argparse_utils.py).
"""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

from .serve import ALIASES

_FLAG = re.compile(r"--?[A-Za-z]")
# Given to an optional value, these mean that it is not set.
_NOTHING = ("", "None")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)([kmgtKMGT]?)")
_POWERS = "kmgt"


class EngineArguments(NamedTuple):
    """The arguments of LLM(...) by name, and the flags (as written) that were left out: only the server reads them."""

    arguments: dict[str, Any]
    left_out: list[str]


class _Flag(NamedTuple):
    name: str
    keys: list[str]
    values: list[str]


def engine_arguments(serve_args: list[str], serve_flags: dict[str, Any], offline: dict[str, Any]) -> EngineArguments:
    """What LLM(...) must be given to configure the engine as these words of `vllm serve` do.

    serve_args are those of a plan (vllm, serve, the model, flags); serve_flags and offline are those of the rules. A
    flag that the rules do not know is passed on, with the type that its value looks like. ValueError for words that are
    no command of this form, or a value that is none of its flag's.
    """
    if serve_args[:2] != ["vllm", "serve"] or len(serve_args) < 3 or _FLAG.match(serve_args[2]):
        raise ValueError(f"{serve_args[:3]} does not begin with vllm serve and a model")
    kinds = {flag: kind for kind, flags in serve_flags["kinds"].items() for flag in flags}
    server_only = set(offline["server_only"])
    arguments: dict[str, Any] = {"model": serve_args[2]}
    left_out: list[str] = []
    dotted: dict[str, Any] = {}
    for flag in _flags(serve_args[3:], kinds):
        positive = f"--{flag.name[5:]}" if flag.name.startswith("--no-") and flag.name not in kinds else flag.name
        if positive in server_only:
            left_out.append(" ".join([flag.name, *flag.values]))
        elif flag.keys:
            _update(dotted.setdefault(_keyword(flag.name), {}), _nested(flag))
        else:
            arguments[_keyword(positive)] = positive == flag.name and _value(flag, kinds.get(flag.name), offline)
    # vLLM puts the dotted ones together as one more JSON value at the end, where the last wins.
    return EngineArguments({**arguments, **dotted}, left_out)


def _keyword(flag: str) -> str:
    return flag.lstrip("-").replace("-", "_")


def _flags(words: list[str], kinds: dict[str, str]) -> list[_Flag]:
    """The flags under their full names, with the words after each."""
    found: list[_Flag] = []
    for word in words:
        if not _FLAG.match(word):
            if not found:
                raise ValueError(f"{word!r} follows no flag")
            found[-1].values.append(word)
            continue
        name, equals, value = word.partition("=")
        level = re.fullmatch(r"-O(\d?)", name)
        if level:
            values = [level[1]] if level[1] else [value] * bool(equals)
            found.append(_Flag("--optimization-level", [], values))
            continue
        head, *keys = name.split(".")
        found.append(_Flag(_full(ALIASES.get(head, head.replace("_", "-")), kinds), keys, [value] if equals else []))
    return found


def _full(name: str, kinds: dict[str, str]) -> str:
    """The flag that argparse takes the name for: itself, or the only one that begins so."""
    known = [*kinds, *(f"--no-{flag[2:]}" for flag, kind in kinds.items() if kind == "switches")]
    longer = [flag for flag in known if flag.startswith(name)]
    return longer[0] if name not in known and name.startswith("--") and len(longer) == 1 else name


def _value(flag: _Flag, kind: str | None, offline: dict[str, Any]) -> Any:
    values = flag.values
    if not values and kind in (None, "switches", "bare"):
        return True
    if kind in ("lists", "integer_lists"):
        items = [int(value) for value in values] if kind == "integer_lists" else values
        return items[0] if len(items) == 1 and flag.name in offline["one_or_more"] else items
    if len(values) != 1 or kind in ("switches", "bare"):
        raise ValueError(f"{flag.name} has the values {values}")
    text = values[0]
    if text in _NOTHING and kind not in ("switches", "bare", None):
        return None
    if kind == "integers" or flag.name in offline["integers"]:
        return int(text)
    if kind == "sizes":
        return _size(text)
    if kind == "numbers":
        return float(text)
    if kind == "json" or (kind == "json_or_text" and text.lstrip().startswith("{")):
        return json.loads(text)
    return _guess(text) if kind is None else text


def _size(text: str) -> int:
    """A number of vLLM's human_readable_int: 16k are 16000, 16K are 16384; "auto" is -1."""
    text = text.strip()
    if text in ("auto", "-1"):
        return -1
    match = _SIZE.fullmatch(text.lstrip("+"))
    if match is None:
        raise ValueError(f"{text!r} is no size")
    number, unit = match.groups()
    base = 1000 if unit.islower() else 1024
    return int(float(number) * base ** (_POWERS.index(unit.lower()) + 1)) if unit else int(number)


def _guess(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _nested(flag: _Flag) -> dict[str, Any]:
    """--compilation-config.pass_config.enable_sp true as {"pass_config": {"enable_sp": True}}."""
    if len(flag.values) != 1:
        raise ValueError(f"{'.'.join([flag.name, *flag.keys])} has the values {flag.values}")
    text, keys = flag.values[0], list(flag.keys)
    value: Any
    if keys[-1].endswith("+"):
        keys[-1], value = keys[-1][:-1], text.split(",")
    else:
        value = _guess(text)
        if isinstance(value, str) and _SIZE.fullmatch(value):
            value = _size(value)
    for key in reversed(keys):
        value = {key: value}
    return dict(value)


def _update(old: dict[str, Any], new: dict[str, Any]) -> None:
    for key, value in new.items():
        if isinstance(value, dict) and isinstance(old.get(key), dict):
            _update(old[key], value)
        elif isinstance(value, list) and isinstance(old.get(key), list):
            old[key] = old[key] + value
        else:
            old[key] = value
