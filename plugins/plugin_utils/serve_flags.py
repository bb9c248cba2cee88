# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The flags of vllm serve, looked up in roles/npu_host/vars/rules/serve_flags.yml.

A flag or value that vLLM's parser refuses ends it with exit code 2, when the old service is already stopped; a unique
prefix of a flag it takes silently (tried with vLLM 0.23.0).
"""

from __future__ import annotations

import re
from typing import Any

from .plain import Findings, listed, masked, nearest
from .serve import RESERVED, Argument, means
from .serve_options import known_release, outside
from .versions import Release

# Kinds whose flags take nothing.
BARE = ("switches", "bare")
_NUMBERS = {
    "integers": (re.compile(r"\s*[+-]?\d{1,30}\s*"), "a whole number"),
    "integer_lists": (re.compile(r"\s*[+-]?\d{1,30}\s*"), "whole numbers"),
    "sizes": (
        re.compile(r"\s*(-1|auto|[+]?\d+|\d+(\.\d+)?[kmgt]|\d+[KMGT])\s*", re.ASCII),
        "a number, or one such as 16k",
    ),
    "numbers": (re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*"), "a number"),
}
_NUMBER = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,3})?\s*", re.ASCII)
_LISTS = ("lists", "integer_lists")
# Given to an optional value, these mean that it is not set.
_NOTHING = ("", "None")


def check_flags(
    where: str, arguments: list[Argument], rules: dict[str, Any], tag: str, release: Release | None, findings: Findings
) -> list[Argument]:
    """The arguments under the full names of their flags; what vLLM's parser refuses is a problem.

    rules are serve_flags of the rules, tag is how messages call the release. Where that is not among those that the
    rules were read from, the newest known apply and everything is only a warning.
    """
    kinds = {flag: kind for kind, flags in rules["kinds"].items() for flag in flags}
    known = {**kinds, **{f"--no-{flag[2:]}": "bare" for flag in rules["kinds"]["switches"]}}
    strict = known_release(rules, release)
    report = findings.problem if strict else findings.warn

    def say(code: str, message: str, remedy: str) -> None:
        report(code, f"{where}: {message}", remedy)

    resolved = []
    for argument in arguments:
        full = argument if _exempt(argument.name) else _resolve(where, argument, known, tag, say, findings)
        if full.name in known and not full.removes and not _exempt(full.name):
            _check_values(full, known[full.name], rules, say)
        resolved.append(full)
    return resolved


def _exempt(name: str) -> bool:
    """True for what parse_extra_args judges (the plan's own flags, words that are no flags), and -O3 and the like."""
    return (
        re.fullmatch(r"--?[A-Za-z][A-Za-z0-9-]*", name) is None
        or re.fullmatch(r"-O\d?", name) is not None
        or any(means(name, flag) for flag in RESERVED)
    )


def _resolve(where: str, argument: Argument, known: dict[str, str], tag: str, say: Any, findings: Findings) -> Argument:
    name = argument.name
    if name in known:
        return argument
    shown = argument.words[0].split("=", 1)[0] if argument.words else name
    longer = sorted(flag for flag in known if flag.startswith(name)) if name.startswith("--") else []
    if len(longer) == 1:
        message = f"{where}: {shown} is taken for {longer[0]}"
        findings.warn("serve_flag_abbreviated", message, f"Write {longer[0]}: another release may take it otherwise.")
        return argument._replace(name=longer[0])
    if longer:
        message = f"{shown} may be {listed(longer[:4])}" + (" and more" if len(longer) > 4 else "")
    else:
        message = f"vllm serve of {tag} has no flag {shown}{nearest(name, known)}: unrecognized arguments"
    say("serve_flag_unknown", message, "Correct the flag, or leave it out.")
    return argument


def _check_values(argument: Argument, kind: str, rules: dict[str, Any], say: Any) -> None:
    name, values = argument.name, argument.values
    flag = argument.words[0].split("=", 1)[0] if argument.words else name
    if "." in flag:
        # A part of a JSON value; serve_options looks at it.
        return
    if kind in BARE:
        if values:
            remedy = f"Leave the value out{'; to switch it off write --no-' + name[2:] if kind == 'switches' else ''}."
            say("serve_flag_value", f"{name} takes no value, and has {listed(masked(values))}", remedy)
        return
    if not values or (kind not in _LISTS and len(values) > 1):
        wanted = "at least one value" if kind in _LISTS else "one value"
        has = f"has {len(values)}: {listed(masked(values))}" if values else "has none"
        say("serve_flag_value", f"{name} takes {wanted}, and {has}", "Give the value as the entry after the flag.")
        return
    choices = rules["choices"].get(name)
    for value in values:
        if choices and value not in [str(choice) for choice in choices] and value not in _NOTHING:
            near = nearest(value, [str(choice) for choice in choices])
            message = f"{name} is {masked(value)}, and must be one of {listed(choices)}{near}"
            say("serve_flag_value", message, "Correct the value.")
        elif kind in _NUMBERS and value not in _NOTHING and not _NUMBERS[kind][0].fullmatch(value):
            say("serve_flag_value", f"{name} is {masked(value)}, and must be {_NUMBERS[kind][1]}", "Correct the value.")
        elif name in rules["ranges"]:
            # A size such as 16k is in every range.
            within = outside(float(value), rules["ranges"][name]) if _NUMBER.fullmatch(value) else None
            if within:
                say("serve_flag_value", f"{name} is {value}, and must be {within}", "Correct the value.")
