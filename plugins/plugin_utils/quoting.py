# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One argv, three notations: a shell's words, a systemd command line, and docker's CSV of --mount."""

from __future__ import annotations

import re
import shlex

_SAFE = re.compile(r"[A-Za-z0-9_@+=:,./-]+")
# C0 controls (but the tab) and DEL: none belongs into a command line, and systemd drops lines that hold them.
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
LINE = " \\\n  "


class QuotingError(ValueError):
    """The text cannot be written in that notation; the message says why, with the text."""


def refuse_control(text: str) -> str:
    """The text itself; QuotingError when it holds a newline, another control character, or is not Unicode text."""
    found = _CONTROL.search(text)
    if found:
        raise QuotingError(f"{text!r} holds the control character {found.group()!r}")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as failure:
        raise QuotingError(f"{text!r} is not valid Unicode text") from failure
    return text


def systemd_word(word: str) -> str:
    """One argument of ExecStart=, quoted so that systemd passes exactly it.

    systemd.service(5), COMMAND LINES: backslash escapes and quotes as in C, "%" starts a specifier and "$" a variable
    (in single quotes too), both are doubled; a word ";" would end the command, so it is quoted.
    """
    refuse_control(word)
    if _SAFE.fullmatch(word):
        return word
    inner = word.replace("\\", "\\\\").replace("%", "%%").replace("$", "$$").replace("\t", "\\t")
    if '"' in inner and "'" not in inner:
        return f"'{inner}'"
    return '"' + inner.replace('"', '\\"') + '"'


def systemd_command(argv: list[str]) -> str:
    """An argv as the value of ExecStart=, on one line; QuotingError when a word cannot be written."""
    return " ".join(systemd_word(word) for word in argv)


def systemd_lines(groups: list[list[str]]) -> str:
    """Groups of words as one ExecStart= value, a line a group.

    A continued line that starts with "#" or ";" would be a comment (systemd.syntax(7)): systemd_word quotes both.
    """
    return LINE.join(systemd_command(group) for group in groups)


def shell_command(argv: list[str]) -> str:
    """An argv as a line for a person's shell."""
    return shlex.join(argv)


def csv_fields(fields: list[str]) -> str:
    """Fields as the value of docker's --mount, which Go's encoding/csv reads: quotes around commas and quotes."""
    return ",".join(_csv_field(refuse_control(field)) for field in fields)


def _csv_field(field: str) -> str:
    if "," in field or '"' in field:
        return '"' + field.replace('"', '""') + '"'
    return field
