"""answers: an endpoint that answers may still answer wrongly, or stop in the middle."""

from __future__ import annotations

import pytest
from ansible_collections.vllm_ascend.fleet.plugins.module_utils import answers

from tests.unit.support.openai_server import LOCAL, MODEL, serving

KEY = "sk-very-secret"
GOLDEN = {"prompt": "The capital of China is", "answer": "Beijing", "max_tokens": 8}


@pytest.fixture
def server():
    with serving() as one:
        yield one


def check(server, decode_s=10.0, **wanted):
    return answers.check(LOCAL, server.port, MODEL, KEY, wanted, decode_s)


@pytest.mark.parametrize("text", [" Beijing, a city", "Beijing", "\n Beijing"])
def test_the_golden_answer_may_have_blanks_around_it_and_go_on(server, text):
    server.behaviour.text = text
    assert check(server, golden=GOLDEN) == {"golden": text, "decoded": None}
    (_method, path, body, headers) = server.behaviour.requests[-1]
    assert (path, body["prompt"], body["max_tokens"], body["temperature"]) == (
        "/v1/completions", GOLDEN["prompt"], 8, 0,
    )  # fmt: skip
    assert headers["Authorization"] == "Bearer " + KEY


@pytest.mark.parametrize("text", ["!!!!!!!!", " Shanghai", " beijing", " in Beijing"])
def test_another_answer_is_wrong_and_is_quoted_beside_the_wanted_one(server, text):
    server.behaviour.text = text
    with pytest.raises(answers.WrongAnswerError) as caught:
        check(server, golden=GOLDEN)
    assert repr(text.strip()) in str(caught.value) and "'Beijing'" in str(caught.value)


def test_no_text_and_a_refusal_are_said(server):
    server.behaviour.text = " "
    with pytest.raises(answers.WrongAnswerError, match="the golden prompt gave no text"):
        check(server, golden=GOLDEN)
    server.behaviour.completion_status = 400
    server.behaviour.completion_body = {"error": {"message": f"max_tokens is too large, {KEY}"}}
    with pytest.raises(answers.WrongAnswerError, match=r"HTTP 400 max_tokens is too large, \*\*\*"):
        check(server, golden=GOLDEN)


@pytest.mark.parametrize("usage", [{"completion_tokens": 64}, None, {}, {"completion_tokens": "64"}])
def test_decoding_that_goes_on_is_measured(server, usage):
    """A server that does not count its tokens is not refused for that."""
    server.behaviour.usage = usage
    found = check(server, decode_tokens=64)["decoded"]
    assert found["tokens"] == 64 and found["seconds"] >= 0
    body = server.behaviour.requests[-1][2]
    assert (body["max_tokens"], body["min_tokens"], body["ignore_eos"]) == (64, 64, True)


def test_decoding_that_ends_early_or_hangs_is_wrong(server):
    server.behaviour.usage = {"completion_tokens": 9}
    with pytest.raises(answers.WrongAnswerError, match="ended after 9 of 64 tokens"):
        check(server, decode_tokens=64)
    server.behaviour.slow["/v1/completions"] = 3
    with pytest.raises(answers.WrongAnswerError, match=r"decoding 64 tokens failed: no answer within 0\.5 s"):
        check(server, decode_s=0.5, decode_tokens=64)


def test_nothing_wanted_asks_nothing(server):
    assert check(server, golden=None, decode_tokens=None) == {"golden": None, "decoded": None}
    assert server.behaviour.requests == []
