"""Whether a model suits the chips: through the whole plan, and what is asked of the host about it."""

from __future__ import annotations

import pytest
from ansible_collections.vllm_ascend.fleet.plugins.plugin_utils.model_size import model_requests
from ansible_collections.vllm_ascend.fleet.plugins.plugin_utils.plan import deployment_plan
from ansible_collections.vllm_ascend.fleet.tests.unit.support.facts_builder import (
    add_several_paths,
    build_facts,
    build_observed,
    case_of,
    shipped_profiles,
    shipped_rules,
)

RULES = shipped_rules()
FOLDER = "/srv/models/m"


def files(**change):
    """What vllm_instance_info returns of a complete local model of eight billion parameters."""
    entry = {
        "model": FOLDER, "source": "local", "folder": FOLDER, "found": True, "config": "ok",
        "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "dtype": "bfloat16", "quantization": None,
        "quantization_type": None, "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8,
        "num_hidden_layers": 36, "max_position_embeddings": 40960, "weights_mb": 15623, "weight_files": 5,
        "missing_files": [],
    }  # fmt: skip
    return {**entry, **change}


def plan_of(family="atlas_a2", memory_mb=65536, npus=8, model=None, rules=RULES, **settings):
    facts = add_several_paths(build_facts(case_of(family), npus=npus))
    facts["chips"] = [{"device": f"/dev/davinci{n}", "memory_total_mb": memory_mb} for n in range(npus)]
    observed = build_observed()
    if model is not None:
        observed["models"] = [model]
        settings = {"vllm_model": FOLDER, "vllm_model_source": "local", **settings}
    given = {"vllm_model_cache": "/srv/model-cache", **settings}
    return deployment_plan(facts, given, shipped_profiles(), observed, rules)


def codes(plan, part="problems"):
    return [f["code"] for f in plan[part] if f["code"] not in ("endpoint_open", "driver_unlisted")]


@pytest.mark.parametrize(
    ("settings", "code"),
    [
        ({"vllm_model": "Qwen/Qwen3-8B"}, None),
        ({"vllm_model": "Qwen/Qwen3-14B"}, None),
        # 32.8 billion parameters of two bytes are 62562 MiB.
        ({"vllm_model": "Qwen/Qwen3-32B"}, "model_too_large"),
        ({"vllm_model": "Qwen/Qwen3-32B", "vllm_npus": 2}, None),
        ({"vllm_model": "Qwen/Qwen3-32B", "vllm_extra_args": ["--gpu-memory-utilization", "0.99"]}, "model_close"),
        ({"vllm_model": "Qwen/Qwen3-14B", "vllm_extra_args": ["--gpu-memory-utilization", "0.3"]}, "model_too_large"),
        ({"vllm_model": "Qwen/Qwen3-14B", "vllm_extra_args": ["--dtype", "float32"]}, "model_close"),
        ({"vllm_model": "Qwen/Qwen3-32B", "vllm_npus": 2, "vllm_extra_args": ["-pp", "2"]}, None),
        ({"vllm_model": "Qwen/Qwen3-32B", "vllm_npus": 2, "vllm_extra_args": ["-dp", "2"]}, "model_too_large"),
        ({"vllm_model": "Qwen/Qwen3-32B", "vllm_extra_args": ["--cpu-offload-gb", "20"]}, None),
        ({"vllm_model": "Qwen/Qwen3-32B", "vllm_extra_args": ["--load-format", "dummy"]}, None),
        ({"vllm_model": "Qwen/Qwen3-32B", "vllm_model_source": "modelscope"}, "model_too_large"),
        ({"vllm_model": "deepseek-ai/DeepSeek-R1", "vllm_npus": 8}, "model_too_large"),
        ({"vllm_model": "some/unknown-model"}, None),
    ],
)
def test_weights_against_memory(settings, code):
    plan = plan_of(**settings)
    found = codes(plan) + [c for c in codes(plan, "warnings") if c.startswith("model")]
    assert found == ([code] if code else [])


def test_a_model_that_is_too_large_is_refused_with_numbers_and_what_would_do():
    (problem,) = plan_of(vllm_model="Qwen/Qwen3-32B")["problems"]
    assert "62562 MiB" in problem["message"]
    assert "0.92 of 65536 MiB" in problem["message"]
    assert "npus: 2 would do" in problem["remedy"]
    plan = plan_of(vllm_model="Qwen/Qwen3-32B", vllm_accept_problems=["model_too_large"])
    assert plan["problems"] == []


def test_nothing_is_said_where_the_memory_of_a_chip_is_not_known():
    assert codes(plan_of(memory_mb=None, vllm_model="Qwen/Qwen3-32B")) == []


def test_nothing_is_said_without_rules():
    assert codes(plan_of(rules=None, vllm_model="Qwen/Qwen3-32B")) == []


def test_files_go_before_what_is_known_by_name():
    assert codes(plan_of(model=files(weights_mb=70000))) == ["model_too_large"]
    assert codes(plan_of(model=files(weights_mb=None))) == []


@pytest.mark.parametrize(
    ("settings", "sizes"),
    [
        ({"vllm_model": "Qwen/Qwen2.5-7B-Instruct", "vllm_npus": 8}, "1, 2, 4, 28"),
        ({"vllm_model": "Qwen/Qwen2.5-0.5B-Instruct", "vllm_npus": 4}, "1, 2, 14"),
        ({"vllm_model": "Qwen/Qwen3-8B", "vllm_npus": 3}, "1, 2, 4, 8, 16, 32"),
        ({"vllm_model": "Qwen/Qwen3-8B", "vllm_npus": 4}, None),
        ({"vllm_model": "Qwen/Qwen3-30B-A3B", "vllm_npus": 8}, None),
        ({"vllm_model": "Qwen/Qwen3-8B", "vllm_npus": 6, "vllm_extra_args": ["-pp", "3"]}, None),
    ],
)
def test_heads_against_the_tensor_parallel_size(settings, sizes):
    plan = plan_of(**settings)
    assert codes(plan) == (["heads_not_divisible"] if sizes else [])
    for problem in plan["problems"]:
        assert f"one of {sizes}" in problem["remedy"]


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"model_type": "deepseek_v3", "num_key_value_heads": 128, "num_attention_heads": 128}, "model_unsupported"),
        ({"model_type": "kimi_k2"}, "model_unsupported"),
        ({"quantization": "ascend", "quantization_type": "W4A8"}, "model_unsupported"),
        ({"quantization": "ascend", "quantization_type": "W8A8_DYNAMIC"}, None),
        # Weights in bfloat16 are read as float16, the family's default.
        ({"dtype": "bfloat16"}, None),
    ],
)
def test_what_the_310p_does_not_take(change, code):
    assert codes(plan_of("atlas_300i_duo", 44280, 2, files(**change))) == ([code] if code else [])
    assert "model_unsupported" not in codes(plan_of("atlas_a2", 65536, 2, files(**change)))


@pytest.mark.parametrize(
    ("length", "extra", "warned"),
    [(40960, [], False), (262144, [], True), (262144, ["--max-model-len", "16384"], False), (None, [], False)],
)
def test_a_long_model_needs_a_limit_on_the_310p(length, extra, warned):
    plan = plan_of("atlas_300i_duo", 44280, 2, files(max_position_embeddings=length), vllm_extra_args=extra)
    assert codes(plan, "warnings") == (["model_length_unlimited"] if warned else [])
    assert codes(plan) == []


@pytest.mark.parametrize(
    ("change", "code", "part"),
    [
        ({"config": "missing"}, "model_incomplete", "has no config.json"),
        ({"config": "invalid"}, "model_incomplete", "that is no JSON"),
        (
            {"missing_files": ["model-00002-of-00005.safetensors"]},
            "model_incomplete",
            "lacks 1 of 5 weight files: model-",
        ),
        ({"weight_files": 0, "weights_mb": None}, None, "has no weight files"),
        ({"missing_files": None}, None, None),
    ],
)
def test_a_local_model_that_is_not_whole(change, code, part):
    plan = plan_of(model=files(**change))
    assert codes(plan) == ([code] if code else [])
    told = [f["message"] for f in plan["problems"] + plan["warnings"] if f["code"].startswith("model_")]
    assert len(told) == (1 if part else 0)
    assert all(part in message and FOLDER in message for message in told)


def test_a_part_of_a_download_in_a_hub_s_cache_is_no_problem():
    part = files(model="Qwen/Qwen3-8B", source="huggingface", missing_files=["model-00002-of-00005.safetensors"])
    plan = plan_of(model=part, vllm_model="Qwen/Qwen3-8B", vllm_model_source="huggingface")
    assert codes(plan) == []


@pytest.mark.parametrize(
    ("settings", "requests"),
    [
        ({}, [("Qwen/Qwen3-0.6B", "huggingface", "/root/.cache")]),
        ({"vllm_model": None, "vllm_model_cache": ""}, [("Qwen/Qwen3-0.6B", "huggingface", "/root/.cache")]),
        (
            {"vllm_model": "/m", "vllm_model_source": "local", "vllm_model_cache": "/c"},
            [("/m", "local", "/c")],
        ),
        (
            {
                "vllm_model": "a/b",
                "vllm_instances": [{"name": "x"}, {"name": "y", "model": "c/d"}, {"name": "z", "model": "a/b"}, 7],
            },
            [("a/b", "huggingface", "/root/.cache"), ("c/d", "huggingface", "/root/.cache")],
        ),
        ({"vllm_model": ["no"]}, []),
        ({"vllm_model_source": "hugginface"}, []),
    ],
)
def test_the_models_to_look_for(settings, requests):
    assert [(r["model"], r["source"], r["cache"]) for r in model_requests(settings)] == requests


@pytest.mark.parametrize(
    ("change", "part", "code"),
    [
        ({"broken_files": ["a.safetensors"]}, "problems", "model_incomplete"),
        ({"tokenizer": False}, "warnings", "model_no_tokenizer"),
        ({"broken_files": [], "tokenizer": True}, "problems", None),
        ({"broken_files": None, "tokenizer": None}, "problems", None),
    ],
)
def test_a_local_model_that_is_cut_or_has_no_vocabulary(change, part, code):
    plan = plan_of(model=files(**change))
    assert codes(plan, part) == ([code] if code else [])


@pytest.mark.parametrize(
    ("change", "environment", "warned"),
    [
        ({"found": False}, {"HF_HUB_OFFLINE": "1"}, True),
        ({"found": False}, {"TRANSFORMERS_OFFLINE": "yes"}, True),
        ({"found": False}, {"HF_HUB_OFFLINE": "0"}, False),
        ({"found": False}, {}, False),
        ({}, {"HF_HUB_OFFLINE": "1"}, False),
        ({"missing_files": ["a.safetensors"]}, {"HF_HUB_OFFLINE": "1"}, True),
    ],
)
def test_a_hub_model_that_may_not_be_fetched_and_is_not_there(change, environment, warned):
    entry = files(model="Qwen/Qwen3-8B", source="huggingface", **change)
    settings = {"vllm_model": "Qwen/Qwen3-8B", "vllm_model_source": "huggingface", "vllm_environment": environment}
    plan = plan_of(model=entry, **settings)
    assert codes(plan) == []
    assert codes(plan, "warnings") == (["model_not_cached"] if warned else [])


def test_nothing_is_said_of_a_cache_that_nobody_looked_at():
    plan = plan_of(vllm_model="Qwen/Qwen3-8B", vllm_environment={"HF_HUB_OFFLINE": "1"})
    assert codes(plan, "warnings") == []
