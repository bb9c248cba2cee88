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
        ["--allowed-media-domains", "a.example", "b.example", "--seed", "-1"],
        (),
        ["--allowed-media-domains", "a.example", "b.example", "--seed", "-1"],
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
        (["-ep"], True),
        ([{"--enable-expert-parallel": False}], False),
        (["--kv-transfer-config", "{}"], True),
        (["--quantization", "fp8"], True),
        (["-q", "compressed-tensors"], True),
        (["--quantization=awq"], True),
        (["--quantization", "ascend"], False),
        (["--cpu-offload-gb", "4"], True),
        (["--cpu-offload-gb", "0.0"], False),
        (["--mamba-ssm-cache-dtype", "float32"], True),
        (["--mamba-ssm-cache-dtype", "float16"], False),
        (["--enable-lora"], True),
        (["--lora-modules", "a=/m/a"], True),
    ],
)
def test_what_the_hardware_refuses_is_a_problem(extra, refused):
    findings = serve(extra)[1]
    assert [problem["code"] for problem in findings.problems] == (["flag_refused"] if refused else [])
    assert findings.warnings == []


def graphs(**options):
    return [{"--additional-config": {"ascend_compilation_config": options}}]


@pytest.mark.parametrize(
    ("extra", "code", "part"),
    [
        (["--dtype", "auto"], "flag_untested", "no bfloat16"),
        (graphs(enable_npugraph_ex=True), "flag_ignored", "ascend_compilation_config.enable_npugraph_ex"),
        (graphs(enable_static_kernel=True), "flag_ignored", "enable_static_kernel"),
        (graphs(enable_npugraph_ex=False), None, ""),
        ([{"--additional-config": {}}], None, ""),
        ([{"-cc": {"cudagraph_mode": "PIECEWISE"}}], "flag_untested", "FULL_DECODE_ONLY"),
        (["--compilation-config.cudagraph_mode", "FULL"], "flag_untested", "FULL_DECODE_ONLY"),
        ([{"-cc": {"cudagraph_mode": "full_decode_only"}}], None, ""),
        ([{"-cc": {"cudagraph_mode": "NONE"}}], None, ""),
        ([{"-cc": {"cudagraph_capture_sizes": [1]}}], None, ""),
    ],
)
def test_what_the_hardware_ignores_or_nobody_tried_is_a_warning(extra, code, part):
    findings = serve(extra)[1]
    assert findings.problems == []
    assert [warning["code"] for warning in findings.warnings] == ([code] if code else [])
    assert all(part in warning["message"] + warning["remedy"] for warning in findings.warnings)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("{'mode': 0}", "written as Python writes it"),
        ('{"a": True}', "no JSON (Expecting value: line 1 column 7"),
        ("{'mode': true}", "single quotes"),
        ("{mode: 0}", "its quotes are missing, a shell or YAML took them"),
        ("{ascend_compilation_config:{enable_npugraph_ex:false}}", "its quotes are missing"),
        ('{\\"mode\\": 0}', "its quotes are escaped"),
        ('{"cudagraph_capture_sizes":[1,2', "a bracket is not closed"),
        ('{"mode": 0}}', "Extra data: line 1 column 12"),
    ],
)
def test_json_that_is_none_says_where_and_what_became_of_it(text, part):
    (problem,) = serve([f"--additional-config={text}"])[1].problems
    assert problem["code"] == "extra_args_invalid"
    assert part in problem["message"]
    assert "column" in problem["message"]


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
