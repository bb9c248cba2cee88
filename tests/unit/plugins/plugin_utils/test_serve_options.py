"""Keys and values inside the JSON of serve flags."""

from __future__ import annotations

import json

import pytest
from ansible_collections.vllm_ascend.fleet.plugins.plugin_utils.plain import Findings
from ansible_collections.vllm_ascend.fleet.plugins.plugin_utils.serve import parse_extra_args
from ansible_collections.vllm_ascend.fleet.plugins.plugin_utils.serve_options import check_options, check_together
from ansible_collections.vllm_ascend.fleet.plugins.plugin_utils.versions import parse_release
from ansible_collections.vllm_ascend.fleet.tests.unit.support.facts_builder import shipped_rules
from hypothesis import given
from hypothesis import strategies as st

RULES = shipped_rules()["serve_options"]
ADDITIONAL, COMPILATION = "--additional-config", "--compilation-config"


def look(flag, value, tag="v0.23.0"):
    findings = Findings()
    words = [f"{flag}={value}"] if isinstance(value, str) else [{flag: value}]
    arguments = parse_extra_args("extra_args", words, findings)
    check_options("extra_args", arguments, RULES, tag, parse_release(tag), findings)
    return findings


def together(*words, variables=None, static_kernels=True):
    findings = Findings()
    arguments = parse_extra_args("extra_args", list(words), findings)
    check_together("instance a", arguments, variables or {}, static_kernels, findings)
    return [problem["message"] for problem in findings.problems]


FINE = [
    (ADDITIONAL, {}),
    (ADDITIONAL, {"ascend_compilation_config": {"enable_npugraph_ex": False, "fuse_muls_add": 1}}),
    (ADDITIONAL, {"eplb_config": {"expert_map_path": None, "eplb_policy_type": 3}, "refresh": True}),
    (ADDITIONAL, {"weight_prefetch_config": {"enabled": True, "prefetch_ratio": {"attn": {"qkv": 1.0}}}}),
    (ADDITIONAL, {"profiling_chunk_config": {"smooth_factor": 1}, "layer_sharding": ["q_b_proj"]}),
    (COMPILATION, {"mode": 3, "cudagraph_mode": "full_decode_only", "cudagraph_capture_sizes": [1, 2]}),
    (COMPILATION, {"mode": "VLLM_COMPILE", "cudagraph_mode": None, "pass_config": {"enable_sp": "true"}}),
    (COMPILATION, {"cudagraph_num_of_warmups": "2", "inductor_compile_config": {"anything": 1}}),
    (COMPILATION + ".pass_config.enable_sp", "true"),
    (COMPILATION + ".cudagraph_mode", "PIECEWISE"),
    ("--speculative-config", {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 4}),
    ("--kv-transfer-config", {"kv_connector": "X", "kv_role": "kv_both", "kv_connector_extra_config": {"a": 1}}),
]


@pytest.mark.parametrize(("flag", "value"), FINE)
def test_what_is_read_is_not_mentioned(flag, value):
    findings = look(flag, value)
    assert findings.problems == findings.warnings == []


UNKNOWN = [
    (ADDITIONAL, {"ascend_compilation_confg": {}}, "ascend_compilation_confg", "ascend_compilation_config"),
    # The tutorial Qwen3-30B-A3B of vLLM Ascend v0.23.0 has both of these.
    (ADDITIONAL, {"enable_npu_graph_ex": False}, "enable_npu_graph_ex", "enable_npugraph_ex"),
    (ADDITIONAL, {"fuse_norm_quant": False}, "fuse_norm_quant", "ascend_compilation_config.fuse_norm_quant"),
    (
        ADDITIONAL,
        {"ascend_compilation_config": {"enable_npugraph_exx": False}},
        "ascend_compilation_config.enable_npugraph_exx",
        "enable_npugraph_ex",
    ),
    (ADDITIONAL, {"eplb_config": {"dynamic_elpb": True}}, "eplb_config.dynamic_elpb", "dynamic_eplb"),
    (COMPILATION, {"cudagraph_modes": "FULL"}, "cudagraph_modes", "cudagraph_mode"),
    (COMPILATION, {"pass_config": {"enable_spp": True}}, "pass_config.enable_spp", "enable_sp"),
    (COMPILATION + ".cudagraph_mod", "NONE", "cudagraph_mod", "cudagraph_mode"),
    ("--speculative-config", {"num_spec_tokens": 1}, "num_spec_tokens", "num_speculative_tokens"),
]


@pytest.mark.parametrize(("flag", "value", "place", "near"), UNKNOWN)
def test_a_misspelt_key_is_a_problem_that_names_the_likely_one(flag, value, place, near):
    (problem,) = look(flag, value).problems
    assert problem["code"] == "serve_option_unknown"
    assert f'"{place}" is no key' in problem["message"]
    assert f'"{near}"' in problem["message"]
    ignored = "ignores it without a word" in problem["message"]
    assert ignored is (flag == ADDITIONAL)


WRONG_TYPES = [
    (ADDITIONAL, {"ascend_compilation_config": {"enable_npugraph_ex": "false"}}, "the text counts as true"),
    (ADDITIONAL, {"ascend_compilation_config": [1]}, "expected is a mapping"),
    (ADDITIONAL, {"ascend_compilation_config": None}, "of type null; expected is a mapping"),
    (ADDITIONAL, {"mega_moe_max_tokens": "65536"}, "expected is a whole number"),
    (ADDITIONAL, {"mega_moe_max_tokens": True}, "expected is a whole number"),
    (ADDITIONAL, {"enable_cpu_binding": 2}, "expected is true or false"),
    (ADDITIONAL, "[1]", "the value is [1], of type list"),
    (COMPILATION, {"cudagraph_capture_sizes": 8}, "expected is a list"),
    (COMPILATION, {"cudagraph_capture_sizes": [1, "x"]}, 'cudagraph_capture_sizes[1] is "x"'),
    (COMPILATION, {"cudagraph_num_of_warmups": "two"}, "expected is a whole number"),
    (COMPILATION, {"cudagraph_copy_inputs": "maybe"}, "expected is true or false"),
]


@pytest.mark.parametrize(("flag", "value", "part"), WRONG_TYPES)
def test_a_wrong_type_is_a_problem_with_the_value_and_what_is_expected(flag, value, part):
    (problem,) = look(flag, value).problems
    assert problem["code"] == "serve_option_type"
    assert part in problem["message"]


WRONG_VALUES = [
    (COMPILATION, {"cudagraph_mode": "FULL_DECODE"}, 'did you mean "FULL_DECODE_ONLY"?'),
    (COMPILATION, {"mode": 4}, "must be one of 0, 1, 2, 3, NONE"),
    (COMPILATION, {"cudagraph_capture_sizes": [0]}, "must be at least 1"),
    (COMPILATION, {"cudagraph_capture_sizes": []}, "is an empty list"),
    (ADDITIONAL, {"profiling_chunk_config": {"smooth_factor": 0}}, "must be more than 0"),
    (ADDITIONAL, {"profiling_chunk_config": {"smooth_factor": 1.5}}, "must be at most 1"),
    (ADDITIONAL, {"profiling_chunk_config": {"max_fit_chunk": 5}}, "must be at least 6"),
    (ADDITIONAL, {"eplb_config": {"eplb_policy_type": 4}}, "one of 0, 1, 2, 3"),
    (ADDITIONAL, {"eplb_config": {"eplb_heat_collection_stage": "prefil"}}, 'did you mean "prefill"?'),
    (ADDITIONAL, {"weight_nz_mode": 3}, "one of 0, 1, 2"),
]


@pytest.mark.parametrize(("flag", "value", "part"), WRONG_VALUES)
def test_a_value_out_of_its_range_is_a_problem(flag, value, part):
    (problem,) = look(flag, value).problems
    assert problem["code"] == "serve_option_value"
    assert part in problem["message"]


@pytest.mark.parametrize(
    ("key", "tag", "last", "instead"),
    [
        ("ascend_scheduler_config", "v0.23.0", "v0.11.0", "--enable-chunked-prefill"),
        ("torchair_graph_config", "v0.23.0", "v0.11.0", "cudagraph_mode"),
        ("enable_npugraph_ex", "v0.23.0", "v0.13.0rc3", "ascend_compilation_config.enable_npugraph_ex"),
        ("layer_sharding", "v0.24.0rc1", "v0.23.0", ""),
        ("enable_sparse_c8", "v0.23.0", "v0.22.1rc1", "enable_sparse_sfa_c8"),
    ],
)
def test_a_key_of_an_older_release_is_a_warning_that_says_where_it_went(key, tag, last, instead):
    findings = look(ADDITIONAL, {key: {}}, tag)
    (warning,) = findings.warnings
    assert findings.problems == []
    assert warning["code"] == "serve_option_stale"
    assert f"was last read by {last}; {tag} ignores it" in warning["message"]
    assert instead in warning["remedy"]


@pytest.mark.parametrize(
    ("key", "tag", "known"),
    [
        ("scheduler_config", "v0.23.0", False),
        ("scheduler_config", "v0.25.1rc1", True),
        ("mega_moe_max_tokens", "v0.22.1rc1", False),
        ("mega_moe_max_tokens", "v0.23.0.post1", True),
        ("enable_sparse_li_c8", "v0.24.0rc1", None),
        ("enable_sparse_li_c8", "v0.26.0rc1", True),
    ],
)
def test_keys_follow_the_release(key, tag, known):
    value = {"mega_moe_max_tokens": 1, "scheduler_config": {}, "enable_sparse_li_c8": True}[key]
    findings = look(ADDITIONAL, {key: value}, tag)
    assert [p["code"] for p in findings.problems] == (["serve_option_unknown"] if known is False else [])
    assert [w["code"] for w in findings.warnings] == (["serve_option_stale"] if known is None else [])


@pytest.mark.parametrize("tag", ["v0.30.0", "v0.7.3", "nightly-main"])
@pytest.mark.parametrize("value", [{"nope": 1}, {"refresh": "x"}, {"weight_nz_mode": 9}])
def test_of_a_release_that_the_rules_do_not_cover_everything_is_only_a_warning(tag, value):
    findings = look(ADDITIONAL, value, tag)
    assert findings.problems == []
    assert len(findings.warnings) == 1


def test_the_names_of_secrets_are_not_shown_with_their_values():
    findings = look(COMPILATION, {"cudagraph_mode": {"api_key": "sk-hidden"}})
    assert "sk-hidden" not in json.dumps(findings.problems)


CONFLICTS = [
    ({"ascend_compilation_config": {"enable_static_kernel": True, "enable_npugraph_ex": False}}, [], {}, "needs"),
    ({"eplb_config": {"dynamic_eplb": True}}, [], {}, "DYNAMIC_EPLB"),
    ({"eplb_config": {"expert_map_record_path": "/m.txt"}}, [], {"EXPERT_MAP_RECORD": "true"}, "must end in .json"),
    ({"profiling_chunk_config": {"enabled": True}}, [], {}, "pipeline parallel size above 1"),
    (
        {"profiling_chunk_config": {"enabled": True}, "enable_balance_scheduling": True},
        ["-pp", "2"], {}, "exclude each other",
    ),
    ({"xlite_graph_config": {"enabled": True}}, ["--pipeline-parallel-size", "2"], {}, "pipeline"),
    ({"dump_config": {}, "dump_config_path": "/a.json"}, [], {}, "exclude each other"),
    ({"mix_placement": True, "enable_shared_expert_dp": True}, [], {}, "exclude each other"),
    ({"enable_reduce_sample": True, "finegrained_tp_config": {"lmhead_tensor_parallel_size": 2}}, [], {}, "exclude"),
    ({}, [], {"ASCEND_LAUNCH_BLOCKING": "1"}, "ASCEND_LAUNCH_BLOCKING=1"),
    ({}, ["--enable-sleep-mode"], {"PYTORCH_NPU_ALLOC_CONF": "expandable_segments:True"}, "--enable-sleep-mode"),
]  # fmt: skip


@pytest.mark.parametrize(("additional", "words", "variables", "part"), CONFLICTS)
def test_options_that_exclude_or_need_each_other(additional, words, variables, part):
    (message,) = together({ADDITIONAL: additional}, *words, variables=variables)
    assert part in message


@pytest.mark.parametrize(
    ("words", "variables"),
    [
        ([{ADDITIONAL: {"eplb_config": {"dynamic_eplb": True}}}], {"DYNAMIC_EPLB": "1"}),
        ([{ADDITIONAL: {"profiling_chunk_config": {"enabled": True}}}, "-pp", "2"], {}),
        (["--enforce-eager"], {"ASCEND_LAUNCH_BLOCKING": "1"}),
        ([{COMPILATION: {"cudagraph_mode": "none"}}], {"ASCEND_LAUNCH_BLOCKING": "1"}),
        ([], {"ASCEND_LAUNCH_BLOCKING": "0", "PYTORCH_NPU_ALLOC_CONF": "expandable_segments:True"}),
        # The last of two counts, as argparse has it.
        ([{ADDITIONAL: {"eplb_config": {"dynamic_eplb": True}}}, {ADDITIONAL: {}}], {}),
    ],
)
def test_options_that_go_together(words, variables):
    assert together(*words, variables=variables) == []


def test_static_kernels_are_ignored_where_the_hardware_has_none():
    value = {"ascend_compilation_config": {"enable_static_kernel": True, "enable_npugraph_ex": False}}
    assert together({ADDITIONAL: value}, static_kernels=False) == []


KEYS = st.sampled_from(
    ["ascend_compilation_config", "enable_npugraph_ex", "eplb_config", "cudagraph_mode", "mode", "x"]
)
ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)


@given(st.sampled_from(sorted(RULES)), ANY_JSON)
def test_any_json_is_judged_without_an_error(flag, value):
    findings = look(flag, json.dumps(value))
    together(f"{flag}={json.dumps(value)}")
    assert all(finding["message"] and finding["remedy"] for finding in findings.problems + findings.warnings)
    if not isinstance(value, dict):
        assert [problem["code"] for problem in findings.problems] == ["serve_option_type"]


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, "{'a':" * 2_000])
def test_json_without_end_is_no_error_of_ours(text):
    assert [problem["code"] for problem in look(ADDITIONAL, text).problems] == ["extra_args_invalid"]
