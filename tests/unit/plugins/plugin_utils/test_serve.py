# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The arguments of vllm serve."""

from __future__ import annotations

import pytest
from ansible_collections.vllm_ascend.fleet.plugins.plugin_utils.plain import Findings
from ansible_collections.vllm_ascend.fleet.plugins.plugin_utils.serve import (
    check_refusals,
    flag_name,
    parse_extra_args,
    serve_args,
)
from ansible_collections.vllm_ascend.fleet.tests.unit.support.facts_builder import shipped_profiles

DUO = shipped_profiles()["atlas_300i_duo"]
COMPILE = '{"cudagraph_mode":"FULL_DECODE_ONLY","cudagraph_capture_sizes":[1,2,4,8]}'
ADDITIONAL = '{"ascend_compilation_config":{"enable_npugraph_ex":false}}'
DEFAULTS = {
    "--dtype": ["--dtype", "float16"],
    "--max-num-seqs": ["--max-num-seqs", "8"],
    "--compilation-config": ["--compilation-config", COMPILE],
    "--additional-config": ["--additional-config", ADDITIONAL],
}


def serve(extra, managed=None):
    findings = Findings()
    arguments = parse_extra_args("extra_args", extra, findings)
    check_refusals("extra_args", arguments, DUO, findings)
    return serve_args("m", DUO["serve_args"], managed or {}, arguments, findings)[3:], findings


def defaults(*without):
    return [word for flag, words in DEFAULTS.items() if flag not in without for word in words]


MERGES = [
    ([], (), []),
    (["--seed", 1], (), ["--seed", "1"]),
    (["--max-num-seqs", "32"], ("--max-num-seqs",), ["--max-num-seqs", "32"]),
    (["--max-num-seqs=32"], ("--max-num-seqs",), ["--max-num-seqs=32"]),
    (["--max_num_seqs", 32], ("--max-num-seqs",), ["--max_num_seqs", "32"]),
    ([{"--max-num-seqs": 32}], ("--max-num-seqs",), ["--max-num-seqs", "32"]),
    ([{"--max-num-seqs": None}], ("--max-num-seqs",), []),
    ([{"--enforce-eager": True, "--seed": 1}], (), ["--enforce-eager", "--seed", "1"]),
    (["-cc", '{"mode": 0}'], ("--compilation-config",), ["-cc", '{"mode":0}']),
    (['--compilation-config={"mode": 0}'], ("--compilation-config",), ['--compilation-config={"mode":0}']),
    ([{"--compilation-config": {"mode": 0}}], ("--compilation-config",), ["--compilation-config", '{"mode":0}']),
    (["--compilation-config.mode", "0"], ("--compilation-config",), ["--compilation-config.mode", "0"]),
    (
        ["--lora-modules", "a=/m/a", "b=/m/b", "--seed", "-1"],
        (),
        ["--lora-modules", "a=/m/a", "b=/m/b", "--seed", "-1"],
    ),
    ([{"--speculative-config": {"名": [1]}}], (), ["--speculative-config", '{"名":[1]}']),
]


@pytest.mark.parametrize(("extra", "replaced", "words"), MERGES)
def test_the_operators_arguments_take_the_place_of_the_profiles(extra, replaced, words):
    argv, findings = serve(extra)
    assert findings.problems == []
    assert argv == defaults(*replaced) + words
    assert len(findings.explain) == len(replaced)


def test_the_plans_own_flags_come_between():
    argv, _findings = serve(["--seed", "1"], {"--port": 8001, "--host": None})
    assert argv == [*defaults(), "--port", "8001", "--seed", "1"]


@pytest.mark.parametrize(
    ("extra", "part"),
    [
        (["seed"], "'seed' follows no flag"),
        (["--seed 1"], "'--seed 1' is no flag"),
        (["--seed=1", "2"], "'2' follows no flag"),
        ([True], "True is no word"),
        ([["--seed"]], "['--seed'] is no word"),
        ([{"seed": 1}], "'seed' is no flag"),
        (["--compilation-config", "{mode: 0}"], "is no JSON"),
        (["--additional-config={"], "is no JSON"),
        (["--seed", "1\n2"], "control character"),
    ],
)
def test_what_is_no_argument_is_named(extra, part):
    problem = serve(extra)[1].problems[0]
    assert problem["code"] == "extra_args_invalid"
    assert part in problem["message"]


@pytest.mark.parametrize(
    ("extra", "part"),
    [
        (["--port", "9000"], "vllm_port"),
        (["--port=9000"], "vllm_port"),
        (["--por", "9000"], "vllm_port"),
        (["--host", "::"], "vllm_bind_address"),
        (["--api-key", "k"], "vllm_api_key"),
        (["--api_key", "k"], "vllm_api_key"),
        (["-tp", "2"], "vllm_tensor_parallel_size"),
        (["--tensor-parallel", "2"], "vllm_tensor_parallel_size"),
        (["--served-model-name", "n"], "vllm_served_model_name"),
        ([{"--model": "m"}], "vllm_model"),
        (["--ssl-certfile", "c"], "TLS"),
        (["-h"], "end at once"),
    ],
)
def test_what_the_plan_gives_is_reserved(extra, part):
    (problem,) = serve(extra)[1].problems
    assert problem["code"] == "extra_args_reserved"
    assert part in problem["remedy"]


@pytest.mark.parametrize("flag", ["--model-impl", "--api-server-count", "--hf-overrides", "--max-model-len"])
def test_neighbours_of_reserved_flags_are_free(flag):
    assert serve([flag, "1"])[1].problems == []


@pytest.mark.parametrize(
    ("extra", "refused"),
    [
        (["--dtype", "bfloat16"], True),
        (["--dtype=bfloat16"], True),
        (["--dtype", "float16"], False),
        (["--enable-expert-parallel"], True),
        ([{"--enable-expert-parallel": False}], False),
        (["--kv-transfer-config", "{}"], True),
    ],
)
def test_what_the_hardware_refuses_is_a_problem(extra, refused):
    codes = [problem["code"] for problem in serve(extra)[1].problems]
    assert codes == (["flag_refused"] if refused else [])


@pytest.mark.parametrize(
    ("word", "name"),
    [
        ("--a_b=1", "--a-b"),
        ("-cc", "--compilation-config"),
        ("--compilation-config.pass_config.x", "--compilation-config"),
        ("-O3", "-O3"),
    ],
)
def test_flag_names(word, name):
    assert flag_name(word) == name
