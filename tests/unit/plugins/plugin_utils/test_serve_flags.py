"""Flags of vllm serve and their values."""

from __future__ import annotations

import pytest
from ansible_collections.vllm_ascend.fleet.plugins.plugin_utils.plain import Findings
from ansible_collections.vllm_ascend.fleet.plugins.plugin_utils.serve import parse_extra_args
from ansible_collections.vllm_ascend.fleet.plugins.plugin_utils.serve_flags import check_flags
from ansible_collections.vllm_ascend.fleet.plugins.plugin_utils.versions import parse_release
from ansible_collections.vllm_ascend.fleet.tests.unit.support.facts_builder import shipped_rules

RULES = shipped_rules()["serve_flags"]


def look(words, tag="v0.23.0"):
    findings = Findings()
    arguments = parse_extra_args("extra_args", words, findings)
    return check_flags("extra_args", arguments, RULES, tag, parse_release(tag), findings), findings


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["--max-num-seqs", 8, "--max_model_len", "16k", "--gpu-memory-utilization=0.9", "--enforce-eager"],
        ["--no-enable-prefix-caching", "-q", "ascend", "-pp", "2", "-O3", "--seed", "-1"],
        ["--max-model-len", "auto", "--max-num-batched-tokens", "25.6k", "--kv-cache-memory-bytes", "1G"],
        ["--dtype", "half", "--lora-modules", "a=/m/a", "b=/m/b", "--cudagraph-capture-sizes", "1", "2"],
        [{"--enforce-eager": True, "--speculative-config": {"method": "ngram"}, "--max-num-seqs": None}],
        ["--compilation-config.pass_config.enable_sp", "true", "--max-parallel-loading-workers", "None"],
        ["--middleware", "a.b", "--middleware", "c.d", "--hf-overrides", "a.b.C"],
    ],
)
def test_what_vllm_takes_is_not_mentioned(words):
    _arguments, findings = look(words)
    assert findings.problems == findings.warnings == []


@pytest.mark.parametrize(
    ("words", "near"),
    [
        (["--aditional-config", "{}"], '"--additional-config"'),
        (["--max-num-seq-s", "8"], '"--max-num-seqs"'),
        (["--enable-expert-paralel"], '"--enable-expert-parallel"'),
        (["--swap-space", "4"], "has no flag --swap-space"),
        (["--no-max-num-seqs"], "has no flag --no-max-num-seqs"),
        (["-tpp", "2"], "has no flag -tpp"),
        # An ambiguous prefix is refused by argparse.
        (["--max-num", "8"], "--max-num may be --max-num-batched-tokens, --max-num-partial-prefills, --max-num-seqs"),
    ],
)
def test_an_unknown_flag_is_a_problem_that_names_the_likely_one(words, near):
    (problem,) = look(words)[1].problems
    assert problem["code"] == "serve_flag_unknown"
    assert near in problem["message"]


def test_a_unique_prefix_counts_as_the_whole_flag_and_is_a_warning():
    (argument,), findings = look(["--max-num-seq=8"])
    assert (argument.name, argument.words) == ("--max-num-seqs", ["--max-num-seq=8"])
    (warning,) = findings.warnings
    assert warning["code"] == "serve_flag_abbreviated"
    assert "--max-num-seq is taken for --max-num-seqs" in warning["message"]
    assert findings.problems == []


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["--dtype", "fp16"], "--dtype is fp16, and must be one of auto, bfloat16"),
        (["--dtype", "floa16"], 'did you mean "float16"?'),
        (["--kv-cache-dtype=int4"], "--kv-cache-dtype is int4"),
        (["--max-num-seqs", "eight"], "must be a whole number"),
        (["--max-num-seqs", "8.0"], "must be a whole number"),
        (["--max-model-len", "16.5K"], "must be a number, or one such as 16k"),
        (["--gpu-memory-utilization", "90%"], "must be a number"),
        (["--cudagraph-capture-sizes", "1", "x"], "must be whole numbers"),
        (["--enforce-eager", "true"], "takes no value, and has true"),
        (["--enable-prefix-caching=false"], "takes no value"),
        (["--max-num-seqs"], "takes one value, and has none"),
        (["--seed", "1", "2"], "takes one value, and has 2: 1, 2"),
        (["--lora-modules"], "takes at least one value"),
        (["--max-lora-rank", "12"], "must be one of 1, 8, 16"),
        (["--max-num-se", "x"], "--max-num-seqs is x"),
    ],
)
def test_a_value_that_vllm_refuses_is_a_problem(words, part):
    (problem,) = look(words)[1].problems
    assert problem["code"] == "serve_flag_value"
    assert part in problem["message"]


def test_how_to_switch_something_off_is_said():
    (problem,) = look(["--enable-prefix-caching", "false"])[1].problems
    assert "--no-enable-prefix-caching" in problem["remedy"]


@pytest.mark.parametrize("words", [["--port", "x"], ["--por", "1"], ["--api-key", "k"], ["--host", "a", "b"]])
def test_the_plans_own_flags_are_judged_once(words):
    assert [problem["code"] for problem in look(words)[1].problems] == ["extra_args_reserved"]


@pytest.mark.parametrize("tag", ["v0.22.1rc1", "v0.26.0rc1", "nightly-main"])
@pytest.mark.parametrize("words", [["--nope"], ["--dtype", "fp4"]])
def test_of_another_release_everything_is_only_a_warning(tag, words):
    findings = look(words, tag)[1]
    assert findings.problems == []
    assert len(findings.warnings) == 1


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (["--max-num-seqs", "0"], "--max-num-seqs is 0, and must be at least 1"),
        (["--gpu-memory-utilization=1.5"], "--gpu-memory-utilization is 1.5, and must be at most 1"),
        (["--gpu-memory-utilization", "0"], "--gpu-memory-utilization is 0, and must be more than 0"),
        (["--max-model-len", "-2"], "must be a number, or one such as 16k"),
    ],
)
def test_a_number_out_of_its_range_is_a_problem(words, wanted):
    (problem,) = look(words)[1].problems
    assert problem["code"] == "serve_flag_value"
    assert wanted in problem["message"]


@pytest.mark.parametrize("words", [["--max-model-len", "16k"], ["--max-num-seqs", "1"], ["--max-model-len", "-1"]])
def test_a_number_at_the_edge_of_its_range_is_taken(words):
    assert look(words)[1].problems == []
