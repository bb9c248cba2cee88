"""What docker printed when a pull or load failed gets a kind, the line that matters and a remedy."""

from __future__ import annotations

import json
import pathlib

import pytest
from ansible_collections.vllm_ascend.fleet.plugins.module_utils.registry_errors import (
    LOAD,
    PULL,
    SPACE,
    diagnose,
    meaningful_line,
)

DATA = pathlib.Path(__file__).resolve().parents[2] / "data" / "docker-pull" / "errors.json"
CASES = json.loads(DATA.read_text(encoding="utf-8"))


@pytest.mark.parametrize("case", CASES, ids=["{code}-{from}".format(**case) for case in CASES])
def test_pull_errors(case):
    found = diagnose(case["text"], PULL)
    assert (found.code, found.error) == (case["code"], case.get("line", case["text"].split("\n")[-1]))
    assert len(found.remedy) > 20


def test_every_kind_of_pull_error_has_a_case():
    assert {signature.code for signature in PULL} | {"unknown"} == {case["code"] for case in CASES}


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("Error processing tar file(exit status 1): unexpected EOF", "archive_truncated"),
        ("open /var/lib/docker/tmp/docker-import-1/repositories: no such file or directory", "archive_invalid"),
        ("archive/tar: invalid tar header", "archive_invalid"),
        ("write /blob: no space left on device", SPACE.code),
    ],
)
def test_load_errors(text, code):
    assert diagnose(text, LOAD).code == code


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("Error: one\nSee 'docker pull --help'.\n", "Error: one"),
        ("a\n\n  b  \n", "b"),
        ("Error: first\nError: last\nmore\n", "Error: last"),
    ],
)
def test_the_line_that_matters(text, line):
    assert meaningful_line(text) == line


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("tls_unknown_authority", "vllm_registry_ca"),
        ("unauthorized", "vllm_registry_auth"),
        ("old_engine_layers", "docker save"),
        ("no_space", "docker system df"),
        ("proxy", "vllm_proxy"),
    ],
)
def test_remedies_name_the_way_out(code, words):
    assert words in next(signature.remedy for signature in PULL if signature.code == code)
