# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The order of vLLM Ascend releases and of program versions."""

from __future__ import annotations

import re
from typing import Any

Release = tuple[int, int, int, float, int]

_RELEASE = re.compile(r"v(\d+)\.(\d+)\.(\d+)(?:rc(\d+))?(?:\.?post(\d+))?")
_SUFFIXED = re.compile(r"(v\d+\.\d+\.\d+(?:rc\d+)?(?:\.?post\d+)?)-(\S+)")
_FINAL = float("inf")


def parse_release(tag: str) -> Release | None:
    """A release as a value that compares in release order, None for anything else (nightlies, branches, dev builds).

    v0.23.0rc1 < v0.23.0 < v0.23.0.post1 (PEP 440 order, which the release tags follow).
    """
    match = _RELEASE.fullmatch(tag)
    if match is None:
        return None
    major, minor, patch, candidate, post = match.groups()
    return int(major), int(minor), int(patch), int(candidate) if candidate else _FINAL, int(post or 0)


def split_suffix(tag: str) -> tuple[str, str] | None:
    """("v0.23.0", "310p-openeuler") of a release with an image suffix, None when there is no suffix."""
    match = _SUFFIXED.fullmatch(tag)
    return (match.group(1), match.group(2)) if match else None


def in_range(release: Release, first: str, last: str | None) -> bool:
    """True when the release lies from first to last; last includes its post releases, None means open."""
    low = parse_release(first)
    if low is None or release < low:
        return False
    high = parse_release(last) if last else None
    return last is None or (high is not None and release[:4] <= high[:4])


def numbers(version: Any) -> tuple[int, ...]:
    """The leading numbers of a program's version: "20.10.24+dfsg1" gives (20, 10, 24); nothing readable gives ()."""
    match = re.match(r"\s*v?(\d+(?:\.\d+)*)", str(version if version is not None else ""))
    return tuple(int(part) for part in match.group(1).split(".")) if match else ()


def older(version: Any, than: tuple[int, ...]) -> bool:
    """True when the version is known and older; an unknown one is not said to be old."""
    found = numbers(version)
    return bool(found) and found < than
