"""What an offline run is asked for: prompts, sampling, and everything that is wrong with them."""

from __future__ import annotations

import json

import pytest
from ansible_collections.vllm_ascend.fleet.plugins.module_utils.offline_job import parse_prompts
from ansible_collections.vllm_ascend.fleet.plugins.plugin_utils.offline_request import offline_request, prompts_text

from tests.unit.support.facts_builder import shipped_rules

RULES = shipped_rules()
DEFAULTS = {
    "vllm_ascend_version": "v0.23.0",
    "vllm_offline_prompts": ["Hello"],
    "vllm_offline_results": "results.jsonl",
    "vllm_offline_retries": 1,
    "vllm_offline_timeout": 3600,
}


def ask(text=None, **changes):
    return offline_request({**DEFAULTS, **changes}, text, RULES)


def from_file(text, path="/x/prompts.txt"):
    return ask(text, vllm_offline_prompts=[], vllm_offline_prompts_file=path)


def codes(found):
    return [problem["code"] for problem in found["problems"]]


def test_the_documented_sampling_is_the_default():
    found = ask()
    assert found == {
        "prompts": [{"prompt": "Hello"}],
        "sampling": {"temperature": 0.0, "max_tokens": 32},
        "problems": [],
        "warnings": [],
    }


@pytest.mark.parametrize(
    ("text", "path", "prompts"),
    [
        ("one\n\n  two \r\n", "p.txt", ["one", "  two "]),
        ("\ufeffone\n{two}\n", "p.txt", ["one", "{two}"]),
        ("with\u2028separator\x0band more\n", "p.txt", ["with\u2028separator\x0band more"]),
        ('{"prompt": "a\\nb"}\n\n{"prompt": "c"}\n', "p.txt", ["a\nb", "c"]),
        ('{"prompt": "你好 {{ x }}"}\n', "p.jsonl", ["你好 {{ x }}"]),
    ],
)
def test_a_file_has_a_prompt_a_line(text, path, prompts):
    found = from_file(text, path)
    assert found["problems"] == []
    assert [entry["prompt"] for entry in found["prompts"]] == prompts


def test_other_keys_of_a_prompt_are_kept():
    found = from_file('{"prompt": "a", "id": 7}\n')
    assert found["prompts"] == [{"prompt": "a", "id": 7}]


@pytest.mark.parametrize(
    ("changes", "code", "part"),
    [
        ({"vllm_offline_prompts": []}, "offline_prompts_missing", "vllm_offline_prompts has no prompts"),
        ({"vllm_offline_prompts": [], "vllm_offline_prompts_file": "/x"}, "offline_prompts_missing", "prompts /x"),
        ({"vllm_offline_prompts": "Hello"}, "offline_setting_invalid", "expected is a list of prompts"),
        ({"vllm_offline_prompts": ["a", 3]}, "offline_prompt_invalid", "vllm_offline_prompts[1] is of type int"),
        ({"vllm_offline_prompts": ["a", "  "]}, "offline_prompt_invalid", "vllm_offline_prompts[1] is an empty prompt"),
        ({"vllm_offline_prompts": ["\udcff"]}, "offline_prompt_invalid", "[0] holds bytes that are no UTF-8"),
        ({"vllm_offline_prompts": [{"promt": "a"}]}, "offline_prompt_invalid", "has the keys promt"),
        ({"vllm_offline_prompts": [{"prompt": "a", "text": 1}]}, "offline_prompt_invalid", "has text, which the"),
        ({"vllm_offline_timeout": 0}, "offline_setting_invalid", "vllm_offline_timeout is 0"),
        ({"vllm_offline_timeout": "soon"}, "offline_setting_invalid", 'vllm_offline_timeout is "soon"'),
        ({"vllm_offline_retries": -1}, "offline_setting_invalid", "vllm_offline_retries is -1"),
        ({"vllm_offline_results": ""}, "offline_setting_invalid", "vllm_offline_results"),
        ({"vllm_offline_results": "/tmp/"}, "offline_setting_invalid", "expected is the path of a file"),
        ({"vllm_offline_sampling": []}, "offline_setting_invalid", "a dictionary of names of SamplingParams"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_with_its_value(changes, code, part):
    found = ask(**changes)
    assert codes(found) == [code]
    assert part in found["problems"][0]["message"]
    assert found["problems"][0]["remedy"]


@pytest.mark.parametrize(
    ("sampling", "code", "part"),
    [
        ({"temprature": 0}, "offline_sampling_unknown", 'has no temprature (did you mean "temperature"?)'),
        ({"max_token": 5}, "offline_sampling_unknown", 'did you mean "max_tokens"?'),
        ({"temperature": -1}, "offline_sampling_invalid", "temperature is -1, and must be at least 0"),
        ({"temperature": "0"}, "offline_sampling_invalid", "of type str; expected is a number"),
        ({"max_tokens": 0}, "offline_sampling_invalid", "max_tokens is 0, and must be at least 1"),
        ({"max_tokens": True}, "offline_sampling_invalid", "max_tokens is true, of type bool"),
        ({"top_p": 0}, "offline_sampling_invalid", "top_p is 0, and must be more than 0 and at most 1"),
        ({"n": 2}, "offline_sampling_invalid", "n is 2"),
        ({"stop": [""]}, "offline_sampling_invalid", "stop is"),
        ({"stop": 3}, "offline_sampling_invalid", "stop is 3"),
        ({"stop_token_ids": [1, "x"]}, "offline_sampling_invalid", "stop_token_ids[1] is"),
        ({"allowed_token_ids": []}, "offline_sampling_invalid", "allowed_token_ids is an empty list"),
        ({"min_tokens": 40}, "offline_sampling_invalid", "min_tokens 40 is more than max_tokens 32"),
        ({"logprobs": 1}, "offline_sampling_invalid", "the results hold no log probabilities"),
        ({"ignore_eos": 1}, "offline_sampling_invalid", "expected is true or false"),
    ],
)
def test_sampling_is_checked_before_anything_runs(sampling, code, part):
    found = ask(vllm_offline_sampling=sampling)
    assert codes(found) == [code]
    assert part in found["problems"][0]["message"]


def test_sampling_that_is_right_is_taken():
    given = {"temperature": 0.7, "top_p": 0.9, "top_k": -1, "seed": None, "stop": ["\n"], "max_tokens": None}
    given |= {"min_p": 0, "repetition_penalty": 1.1, "bad_words": ["x"], "structured_outputs": {"regex": "a+"}}
    found = ask(vllm_offline_sampling=given)
    assert (found["problems"], found["sampling"]) == ([], given)


@pytest.mark.parametrize("change", [{"vllm_ascend_version": "v0.99.0"}, {"vllm_image": "my/own:build"}])
def test_of_another_release_a_name_is_only_doubted(change):
    found = ask(vllm_offline_sampling={"of_tomorrow": 1}, **change)
    assert codes(found) == []
    assert [warning["code"] for warning in found["warnings"]] == ["offline_sampling_unknown"]


def test_everything_is_said_at_once():
    found = offline_request(
        {**DEFAULTS, "vllm_offline_prompts": ["", 1], "vllm_offline_sampling": {"a": 1}, "vllm_offline_timeout": None},
        None,
        RULES,
    )
    assert len(found["problems"]) == 4


def test_a_list_and_a_file_are_one_too_many():
    assert codes(ask("a\n", vllm_offline_prompts_file="/x")) == ["offline_prompts_twice"]


def test_a_line_that_is_no_json_is_named():
    found = from_file('{"prompt": "a"}\n{"prompt": \n', "p.jsonl")
    assert "line 2 of p.jsonl is no JSON" in found["problems"][0]["message"]


def test_prompts_reach_the_module_as_they_are():
    prompts = ["a\nb", "\u2028", '"', "{{ x }}", "[1]", "你好"]
    text = prompts_text([{"prompt": prompt} for prompt in prompts], [0, 1, 3, 5])
    assert parse_prompts(text) == [(0, "a\nb"), (1, "\u2028"), (3, "{{ x }}"), (5, "你好")]
    # It must be no data to a template, which would change its type.
    with pytest.raises(ValueError, match=r"."):
        json.loads(text)
