"""documents: JSON and numbers of others, as far as they can be used."""

from __future__ import annotations

import pytest
from ansible_collections.vllm_ascend.fleet.plugins.module_utils import documents

from tests.unit.support.hostile import DEEP, assert_plain_json


@pytest.mark.parametrize(
    "text, value",
    [
        ('{"a": [1, -2, 1.5, true, null, "x"]}', {"a": [1, -2, 1.5, True, None, "x"]}),
        ("9" * 18, 10**18 - 1),
        ("-" + "9" * 5000, None),
        ("[NaN, -Infinity, 1e999]", [None, None, None]),
        ('{"\\ud800": "a\\udfffb"}', {"\ufffd": "a\ufffdb"}),
        ('"\\ud83d\\ude00"', "\U0001f600"),
        ("[" * 100 + "]" * 100, documents.parse("[" * 100 + "]" * 100)),
    ],
)
def test_parse(text, value):
    found = documents.parse(text)
    assert found == value
    assert_plain_json(found)


@pytest.mark.parametrize("text", ["", "{", "x", DEEP, "[" * 102 + "]" * 102, '{"a":' * 102 + "1" + "}" * 102])
def test_what_cannot_be_parsed(text):
    with pytest.raises(ValueError):
        documents.parse(text)
    assert documents.parsed(text) is None


@pytest.mark.parametrize(
    "word, number",
    [("0", 0), ("007", 7), ("9" * 18, 10**18 - 1), ("9" * 19, None), ("", None), (None, None), ("\u00b2", None),
     ("\u0663", None), ("-1", None), ("1\n", None), ("1_0", None)],
)  # fmt: skip
def test_decimal(word, number):
    assert documents.decimal(word) == number


@pytest.mark.parametrize(
    "value, port",
    [(8000, 8000), ("8000", 8000), (0, None), (65535, 65535), (65536, None), (True, None), ("", None), (8000.0, None),
     (None, None), ([8000], None)],
)  # fmt: skip
def test_port(value, port):
    assert documents.port(value) == port


def test_what_is_of_another_kind_is_not_there():
    assert (documents.mapping([]), documents.mapping({"a": 1})) == ({}, {"a": 1})
    assert (documents.mappings({"a": 1}), documents.mappings([1, {"a": 1}, None])) == ([], [{"a": 1}])
    assert (documents.words("ab"), documents.words(["a", 1, "b"])) == ([], ["a", "b"])
    assert (documents.text(7), documents.text(""), documents.text("a")) == (None, None, "a")
    assert (documents.boolean(1), documents.boolean(False)) == (None, False)
    assert (documents.integer(True), documents.integer(1.0), documents.integer(3)) == (None, None, 3)
