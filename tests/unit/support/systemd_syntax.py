# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads unit files and command lines as systemd does, as its manual describes it: the other side of a round trip.

systemd.syntax(7): continued lines, comments, quotes and C escapes. systemd.service(5), COMMAND LINES: "%%" is a percent
sign, "$$" a dollar sign; a specifier or a variable that is not doubled raises here, since nothing of ours uses one.
"""

from __future__ import annotations

import re

ESCAPES = {
    "a": "\a",
    "b": "\b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "v": "\v",
    "\\": "\\",
    '"': '"',
    "'": "'",
    "s": " ",
}


def logical_lines(text: str) -> list[str]:
    """The lines of a unit file: a backslash at the end continues (as a blank), comments are left out, between too."""
    lines: list[str] = []
    pending = ""
    for line in text.split("\n"):
        if line.lstrip().startswith(("#", ";")):
            continue
        pending += line
        if pending.endswith("\\"):
            pending = pending[:-1] + " "
            continue
        lines.append(pending)
        pending = ""
    return [line for line in lines if line.strip()]


def settings(text: str) -> dict[str, list[tuple[str, str]]]:
    """The (key, value) pairs of a unit file by section."""
    sections: dict[str, list[tuple[str, str]]] = {}
    section = ""
    for line in logical_lines(text):
        if line.startswith("["):
            section = line.strip()[1:-1]
            sections[section] = []
        else:
            key, _equals, value = line.partition("=")
            sections[section].append((key.strip(), value.strip()))
    return sections


def split_command(value: str) -> list[str]:
    """The argv of an ExecStart= value."""
    return [_expanded(word) for word in _words(value)]


def _words(value: str) -> list[str]:
    words: list[str] = []
    word: str | None = None
    quote = ""
    place = 0
    while place < len(value):
        char = value[place]
        place += 1
        if char == "\\":
            escape = value[place]
            place += 1
            word = (word or "") + ESCAPES[escape]
        elif quote:
            if char == quote:
                quote = ""
            else:
                word = (word or "") + char
        elif char in "\"'" and word is None:
            quote, word = char, ""
        elif char in " \t\n\r":
            if word is not None:
                words.append(word)
            word = None
        else:
            if char in "\"'":
                raise ValueError(f"a quote inside the word {word!r}")
            if char == ";" and word is None and (place == len(value) or value[place] in " \t"):
                raise ValueError("the command ends at a lone semicolon")
            word = (word or "") + char
    if quote:
        raise ValueError("a quote is not closed")
    return words if word is None else [*words, word]


def _expanded(word: str) -> str:
    rest = word.replace("%%", "").replace("$$", "")
    if re.search(r"%.|\$[A-Za-z_{]", rest):
        raise ValueError(f"{word!r} would be expanded")
    return word.replace("%%", "%").replace("$$", "$")
