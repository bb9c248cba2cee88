"""Values that no tool should write, and documents with one of them in each of their places."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

# JSON texts: an integer of 5000 digits and half a surrogate pair cannot be written from a value.
VALUES = {
    "null": "null",
    "true": "true",
    "number": "7",
    "negative": "-1",
    "float": "1.5",
    "infinite": "1e999",
    "constant": "NaN",
    "digits": "9" * 5000,
    "text": '"x"',
    "empty": '""',
    "superscript": '"\\u00b2"',
    "digits as text": json.dumps("9" * 5000),
    "surrogate": '"\\ud800"',
    "nul": '"/a\\u0000b"',
    "list": "[]",
    "object": "{}",
    "lists": '[[["x"]], 7, null, {"x": [7]}]',
    "objects": '{"x": {"x": {"x": 7}}, "8000/tcp": [7, null, {"HostPort": 8000, "HostIp": 7}]}',
}
DEEP = "[" * 100_000 + "]" * 100_000
MARK = "HOSTILE-VALUE-GOES-HERE"


def mutations(document: Any) -> Iterator[Any]:
    """The document with MARK in the place of it, and of each of its parts in turn."""
    yield MARK
    keys = document if isinstance(document, dict) else range(len(document)) if isinstance(document, list) else ()
    for key in keys:
        for part in mutations(document[key]):
            changed = copy.copy(document)
            changed[key] = part
            yield changed


def written(document: Any, value: str) -> str:
    """The document as JSON, with that JSON text in the place of MARK."""
    return json.dumps(document).replace(f'"{MARK}"', value)


def assert_plain_json(result: Any) -> None:
    """The result can be written as strict JSON, and read back by this Python as the same."""
    text = json.dumps(result, allow_nan=False)
    assert json.loads(text) == result
    json.dumps(result, ensure_ascii=False).encode("utf-8")
