"""What the collection gives to vLLM, read by the real vLLM 0.23.0 with vllm-ascend's own AscendConfig behind it."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.vllm_ascend.fleet.plugins.module_utils.offline_job import program_text
from ansible_collections.vllm_ascend.fleet.plugins.plugin_utils.engine_arguments import engine_arguments
from ansible_collections.vllm_ascend.fleet.plugins.plugin_utils.plan import deployment_plan
from ansible_collections.vllm_ascend.fleet.tests.unit.support.facts_builder import (
    build_facts,
    case_id,
    case_of,
    documented_cases,
    shipped_profiles,
    shipped_rules,
)

from tests.lab.real import parser

MODEL = "Qwen/Qwen3-0.6B"
DEVICE_TYPES = {
    "atlas_a2": "A2",
    "atlas_a3": "A3",
    "atlas_300i_duo": "_310P",
    "atlas_200i_pro": "_310P",
    "atlas_950dt": "A5",
}
GRAPHS_310P = {"cudagraph_mode": "FULL_DECODE_ONLY", "cudagraph_capture_sizes": [1, 2, 4, 8]}
ASCEND_310P = {"ascend_compilation_config": {"enable_npugraph_ex": False}}
# What the documented command of each device type means to the engine.
MEANT = {
    "_310P": {
        "model_config.dtype": "torch.float16",
        "scheduler_config.max_num_seqs": 8,
        "compilation_config.cudagraph_mode": "FULL_DECODE_ONLY",
        "compilation_config.cudagraph_capture_sizes": [1, 2, 4, 8],
        "compilation_config.max_cudagraph_capture_size": 8,
        "compilation_config.splitting_ops": [],
    },
    "standard": {
        "model_config.dtype": "torch.bfloat16",
        "scheduler_config.max_num_seqs": 256,
        "compilation_config.cudagraph_mode": "FULL_AND_PIECEWISE",
        "compilation_config.max_cudagraph_capture_size": 256,
    },
}
# LLM() takes more tokens at once than the server, unless it is told.
OFFLINE_DEFAULTS = {
    "compilation_config.compile_ranges_endpoints",
    "scheduler_config.encoder_cache_size",
    "scheduler_config.max_num_batched_tokens",
    "scheduler_config.max_num_encoder_input_tokens",
}
# What a service may be given, and its offline jobs then, too: the family and the extra arguments.
OFFLINE: dict[str, tuple[str, list[Any]]] = {
    "as documented": ("atlas_a2", []),
    "as documented for 310P": ("atlas_300i_duo", []),
    "numbers": (
        "atlas_a2",
        ["--max-model-len", "1k", "--max-num-seqs=16", "--seed", "7", "--gpu-memory-utilization", ".5",
         "--block-size=128", "--max-num-batched-tokens", "4K"],
    ),
    "switches": (
        "atlas_a2",
        ["--no-enable-prefix-caching", "--trust-remote-code", "--enforce-eager", "--no-enable-chunked-prefill"],
    ),
    "few and short": ("atlas_a2", ["--max-num-seqs", "1", "--max-model-len", "512"]),
    "for throughput": ("atlas_a2", ["--performance-mode", "throughput"]),
    "JSON": (
        "atlas_a2",
        [
            {"--compilation-config": {"cudagraph_mode": "FULL_DECODE_ONLY", "cudagraph_capture_sizes": [1, 4]}},
            {"--additional-config": {"ascend_scheduler_config": {}}},
            {"--override-generation-config": {"temperature": 0.5}},
            {"--limit-mm-per-prompt": {"image": 1}},
            {"--structured-outputs-config": {"backend": "xgrammar"}},
            {"--hf-overrides": {"max_position_embeddings": 2048}},
            {"--eplb-config": {"window_size": 100}},
            {"--profiler-config": {"profiler": "torch", "torch_profiler_dir": "/tmp/profile"}},
        ],
    ),
    "parts of JSON": (
        "atlas_300i_duo",
        ["-cc.cudagraph_mode", "FULL_DECODE_ONLY", "-cc.cudagraph_capture_sizes=[2,4]", "--max-num-seq", "4"],
    ),
    "texts": (
        "atlas_a2",
        ["--dtype", "float16", "--load-format", "dummy", "--revision", "main",
         "--tokenizer-mode", "auto", "--generation-config", "vllm", "--quantization", "None",
         "--scheduling-policy", "priority", "--prefix-caching-hash-algo", "sha256_cbor"],
    ),
    "levels and lists": ("atlas_a2", ["-O1", "--cudagraph-capture-sizes", "1", "2", "--ignore-patterns", "*.pt", "a"]),
    "the server's own": (
        "atlas_a2",
        ["--enable-auto-tool-choice", "--tool-call-parser", "hermes", "--disable-log-stats", "--max-log-len", "10",
         "--chat-template-content-format", "string", "--allowed-origins", '["*"]', "--no-disable-fastapi-docs"],
    ),
}  # fmt: skip
# Operator's settings: the family, settings of the role, and what they mean to the engine.
SETTINGS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "another length and name": (
        "atlas_a2",
        {"vllm_extra_args": ["--max-model-len", "2048"], "vllm_served_model_name": "small"},
        {"model_config.max_model_len": 2048, "model_config.served_model_name": "small"},
    ),
    "extra arguments as a mapping": (
        "atlas_a2",
        {"vllm_extra_args": [{"--compilation-config": {"cudagraph_mode": "FULL_DECODE_ONLY"}}]},
        {"compilation_config.cudagraph_mode": "FULL_DECODE_ONLY"},
    ),
    "an operator's value instead of the profile's": (
        "atlas_300i_duo",
        {"vllm_extra_args": ["--max-num-seqs", "4"]},
        {"scheduler_config.max_num_seqs": 4, "model_config.dtype": "torch.float16"},
    ),
    "two chips of a 310P card": (
        "atlas_300i_duo",
        {"vllm_instances": [{"name": "ascend", "npus": 2}]},
        {"parallel_config.tensor_parallel_size": 2, "compilation_config.cudagraph_capture_sizes": [1, 8]},
    ),
}
# Words after the model, and what the real vLLM does with them: the exit code (none: it fails later), and its text.
REFUSED: dict[str, tuple[list[str], int | None, str]] = {
    "misspelt flag": (["--max-num-seq-s", "8"], 2, "unrecognized arguments: --max-num-seq-s 8"),
    "bad dtype": (["--dtype", "fp16"], 2, "argument --dtype: invalid choice: 'fp16'"),
    "JSON without quotes": (["--compilation-config", "{a:1}"], 2, "Invalid JSON: key must be a string"),
    "unknown key": (["--compilation-config", '{"cudagraph_modes":"FULL"}'], 2, "Unexpected keyword argument"),
    "unknown graph mode": (
        ["--compilation-config", '{"cudagraph_mode":"full_decode"}'],
        None,
        "KeyError: 'FULL_DECODE'",
    ),
    "additional config without quotes": (["--additional-config", "{a:1}"], 2, "cannot be converted to"),
    "additional config is a list": (["--additional-config", "[1]"], None, "Input should be a valid dictionary"),
    "unknown key of eplb_config": (["--additional-config", '{"eplb_config":{"nope":1}}'], None, "no attribute 'nope'"),
    "text for a number": (["--additional-config", '{"mega_moe_max_tokens":"x"}'], None, "must be an integer"),
    "no sequences": (["--max-num-seqs", "0"], None, "greater than or equal to 1"),
    "too long": (["--max-model-len", "999999"], None, "User-specified max_model_len (999999) is greater"),
}
# Numbers outside the ranges that the plan knows: the real configuration refuses them too, and takes the nearest inside.
OUTSIDE = {
    "--block-size": ("0", None),
    "--cpu-offload-gb": ("-1", "0"),
    "--gpu-memory-utilization": ("1.5", "1"),
    "--max-model-len": ("-2", None),
    "--max-num-batched-tokens": ("0", None),
    "--max-num-seqs": ("0", "1"),
    "--pipeline-parallel-size": ("0", "1"),
    "--stream-interval": ("0", "1"),
}
# Words that it takes without a word, though they mean nothing or something else.
TAKEN = {
    "prefix of a flag": ["--max-num-seq", "8"],
    "misspelt outer key": ["--additional-config", '{"ascend_compilation_confg":{"enable_npugraph_ex":false}}'],
    "misspelt inner key": ["--additional-config", '{"ascend_compilation_config":{"enable_npugraph_exx":false}}'],
}


def planned(family: str, image_os: str = "ubuntu", **settings: Any) -> list[str]:
    """The words after `vllm serve` in the plan of a documented host."""
    facts = build_facts(case_of(family, image_os), npus=4)
    plan = deployment_plan(facts, settings, shipped_profiles(), None, shipped_rules())
    assert plan["problems"] == []
    (instance,) = plan["instances"]
    assert instance["serve_args"][:2] == ["vllm", "serve"]
    return instance["serve_args"][2:]


def planned_problems(**settings: Any) -> list[str]:
    """The codes of the problems of an A2 host's plan."""
    plan = deployment_plan(build_facts(case_of("atlas_a2")), settings, shipped_profiles(), None, shipped_rules())
    return [problem["code"] for problem in plan["problems"]]


def keyword_arguments(words: list[str]) -> dict[str, Any]:
    """The same for LLM(…), as the offline jobs get it."""
    rules = shipped_rules()
    return engine_arguments(["vllm", "serve", *words], rules["serve_flags"], rules["offline"]).arguments


@pytest.fixture(scope="session")
def answers() -> dict[Any, dict[str, Any]]:
    """Everything that the tests ask, in one process of vLLM."""
    questions: dict[Any, dict[str, Any]] = {"flags": {"flags": True}}
    for case in documented_cases():
        words = planned(case["family"], case["image_os"])
        questions["documented", case_id(case)] = {"serve": words, "device_type": DEVICE_TYPES[case["family"]]}
    for name, (family, settings, _meant) in SETTINGS.items():
        questions["settings", name] = {"serve": planned(family, **settings), "device_type": DEVICE_TYPES[family]}
    for family in ("atlas_a2", "atlas_300i_duo"):
        kind = {"device_type": DEVICE_TYPES[family]}
        questions["llm", family] = {"llm": keyword_arguments(planned(family)), **kind}
    for name, (family, extra) in OFFLINE.items():
        words = planned(family, vllm_extra_args=extra, vllm_served_model_name="small")
        kind = {"device_type": DEVICE_TYPES[family]}
        questions["offline served", name] = {"serve": words, **kind}
        questions["offline", name] = {"llm": keyword_arguments(words), "program": program_text(), **kind}
    for name, (words, _code, _text) in REFUSED.items():
        questions["refused", name] = {"serve": [MODEL, *words]}
    for flag, (outside, inside) in OUTSIDE.items():
        questions["outside", flag] = {"serve": [MODEL, flag, outside]}
        if inside is not None:
            questions["inside", flag] = {"serve": [MODEL, flag, inside]}
    for name, words in TAKEN.items():
        questions["taken", name] = {"serve": [MODEL, *words]}
    return dict(zip(questions, parser.ask(list(questions.values())), strict=True))


@pytest.mark.parametrize("case", documented_cases(), ids=case_id)
def test_the_plan_of_each_family_means_what_the_documentation_says(
    case: dict[str, Any], answers: dict[Any, dict[str, Any]]
) -> None:
    answer = answers["documented", case_id(case)]
    assert "config" in answer, answer
    config = answer["config"]
    device_type = DEVICE_TYPES[case["family"]]
    meant = MEANT.get(device_type, MEANT["standard"])
    assert {name: config[name] for name in meant} == meant
    # Without a network vLLM puts the snapshot's folder in the place of the hub's name.
    assert f"/models--{MODEL.replace('/', '--')}/snapshots/" in config["model_config.model"]
    assert config["parallel_config.tensor_parallel_size"] == 1
    assert config["additional_config"]["ascend_compilation_config"]["enable_npugraph_ex"] is False


@pytest.mark.parametrize("name", SETTINGS)
def test_settings_reach_the_engine(name: str, answers: dict[Any, dict[str, Any]]) -> None:
    answer = answers["settings", name]
    assert "config" in answer, answer
    meant = SETTINGS[name][2]
    assert {field: answer["config"][field] for field in meant} == meant


def differences(one: dict[str, Any], other: dict[str, Any]) -> set[str]:
    """The names of what two configurations have otherwise."""
    assert "config" in one and "config" in other, (one, other)
    one, other = one["config"], other["config"]
    return {name for name in one.keys() | other.keys() if one.get(name) != other.get(name)}


@pytest.mark.parametrize("family", ["atlas_a2", "atlas_300i_duo"])
def test_llm_has_other_defaults_for_a_batch_only(family: str, answers: dict[Any, dict[str, Any]]) -> None:
    served = answers["documented", case_id(case_of(family))]
    assert differences(served, answers["llm", family]) == OFFLINE_DEFAULTS


@pytest.mark.parametrize("name", OFFLINE)
def test_a_service_and_its_offline_job_configure_the_engine_alike(name: str, answers: dict[Any, Any]) -> None:
    assert differences(answers["offline served", name], answers["offline", name]) == set()


@pytest.mark.parametrize("name", REFUSED)
def test_what_the_real_vllm_refuses(name: str, answers: dict[Any, dict[str, Any]]) -> None:
    _words, code, text = REFUSED[name]
    answer = answers["refused", name]
    assert "config" not in answer
    assert (answer["exit"], text in answer["error"]) == (code, True), answer["error"]


@pytest.mark.parametrize("flag", OUTSIDE)
def test_the_ranges_of_numbers_are_those_of_the_real_vllm(flag: str, answers: dict[Any, dict[str, Any]]) -> None:
    outside, inside = OUTSIDE[flag]
    for value, accepted in ((outside, False), (inside, True)):
        if value is not None:
            problems = planned_problems(vllm_extra_args=[flag, value])
            assert ([] if accepted else ["serve_flag_value"]) == problems
            assert ("config" in answers["inside" if accepted else "outside", flag]) is accepted


@pytest.mark.parametrize("name", TAKEN)
def test_what_the_real_vllm_takes_without_a_word(name: str, answers: dict[Any, dict[str, Any]]) -> None:
    assert "config" in answers["taken", name], answers["taken", name]


def test_the_flags_that_the_plan_knows_are_those_of_the_real_vllm(answers: dict[Any, dict[str, Any]]) -> None:
    known = shipped_rules()["serve_flags"]
    real = answers["flags"]["flags"]
    assert {flag for kind in known["kinds"].values() for flag in kind} == real.keys()
    # A choice that is None cannot be written.
    choices = {flag: set(map(str, values or ())) - {"None"} for flag, values in real.items()}
    assert {flag: choices[flag] for flag in known["choices"]} == {
        flag: set(map(str, values)) for flag, values in known["choices"].items()
    }


def test_what_is_left_out_for_llm_is_what_its_engine_has_no_name_for(answers: dict[Any, dict[str, Any]]) -> None:
    offline, real = shipped_rules()["offline"], answers["flags"]
    names = {flag: flag.removeprefix("--").replace("-", "_") for flag in real["flags"]}
    unnamed = {flag for flag, name in names.items() if name not in real["engine"]}
    # Its stop has a time limit, a job has none.
    assert set(offline["server_only"]) == unnamed - set(offline["refused"]) | {"--shutdown-timeout"}
    assert set(offline["sampling"]) | set(offline["sampling_refused"]) == set(real["sampling"])
