# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read JSON and numbers that somebody else wrote: nothing in them makes the reader fail.

What is not of the expected kind counts as not there. Everything that comes out can be written as JSON again, and read
by any Python: newer ones refuse integers of thousands of digits (sys.set_int_max_str_digits), strict readers NaN.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any, Dict, List, Optional

# Below 2**63, so that every reader of the facts takes it.
DIGITS = 18
DEPTH = 100
_DECIMAL = re.compile(r"[0-9]{1,18}\Z")
_SURROGATE = re.compile("[\ud800-\udfff]")
LAST_PORT = 65535


def parse(text: str) -> Any:
    """The value of a JSON text; numbers that are out of all bounds are null, halves of surrogate pairs become U+FFFD.

    Raises ValueError when it is no JSON, or nested deeper than 100.
    """
    try:
        return _clean(json.loads(text, parse_int=_int, parse_float=_float, parse_constant=lambda _word: None), DEPTH)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def parsed(text: Optional[str]) -> Any:
    """The value of a JSON text, None when it is not one."""
    try:
        return parse(text or "")
    except ValueError:
        return None


def _int(word: str) -> Optional[int]:
    return int(word) if len(word.lstrip("-")) <= DIGITS else None


def _float(word: str) -> Optional[float]:
    value = float(word)
    return value if math.isfinite(value) else None


def _clean(value: Any, depth: int) -> Any:
    if depth < 0:
        raise ValueError("it is nested too deeply")
    if isinstance(value, str):
        return _SURROGATE.sub("\ufffd", value)
    if isinstance(value, list):
        return [_clean(entry, depth - 1) for entry in value]
    if isinstance(value, dict):
        return {_clean(key, depth): _clean(entry, depth - 1) for key, entry in value.items()}
    return value


def mapping(value: Any) -> Dict[str, Any]:
    """value where it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def mappings(value: Any) -> List[Dict[str, Any]]:
    """The objects in value where it is a list, else none."""
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def words(value: Any) -> List[str]:
    """The texts in value where it is a list, else none."""
    return [entry for entry in value if isinstance(entry, str)] if isinstance(value, list) else []


def text(value: Any) -> Optional[str]:
    """value where it is a text that is not empty, else None."""
    return value if isinstance(value, str) and value else None


def boolean(value: Any) -> Optional[bool]:
    """value where it is true or false, else None."""
    return value if isinstance(value, bool) else None


def integer(value: Any) -> Optional[int]:
    """value where it is a whole number (true and false are none), else None."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def decimal(word: Optional[str]) -> Optional[int]:
    """The number that a word of 1 to 18 plain digits stands for, else None."""
    return int(word) if word is not None and _DECIMAL.match(word) else None


def port(value: Any) -> Optional[int]:
    """The TCP port that value is, as a number or as digits, else None."""
    number = decimal(value) if isinstance(value, str) else integer(value)
    return number if number is not None and 0 < number <= LAST_PORT else None
