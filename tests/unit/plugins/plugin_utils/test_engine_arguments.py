"""The words of `vllm serve` as arguments of LLM(...). The real vLLM compares both in tests/lab/real."""

from __future__ import annotations

import pytest
from ansible_collections.vllm_ascend.fleet.plugins.plugin_utils.engine_arguments import engine_arguments

from tests.unit.support.facts_builder import shipped_rules

RULES = shipped_rules()
# Words after the model, and what they are as arguments.
CASES = {
    "the documented ones of a 310P": (
        ["--dtype", "float16", "--max-num-seqs", "8", "--compilation-config", '{"cudagraph_capture_sizes":[1,2]}',
         "--additional-config", '{"ascend_compilation_config":{"enable_npugraph_ex":false}}'],
        {
            "dtype": "float16",
            "max_num_seqs": 8,
            "compilation_config": {"cudagraph_capture_sizes": [1, 2]},
            "additional_config": {"ascend_compilation_config": {"enable_npugraph_ex": False}},
        },
    ),
    "numbers and sizes": (
        ["--max-model-len", "16k", "--max-num-batched-tokens=4K", "--gpu-memory-utilization", "0.8", "--seed", "3",
         "--kv-cache-memory-bytes", "1.5g"],
        {
            "max_model_len": 16000,
            "max_num_batched_tokens": 4096,
            "gpu_memory_utilization": 0.8,
            "seed": 3,
            "kv_cache_memory_bytes": 1_500_000_000,
        },
    ),
    "a length by itself": (["--max-model-len", "auto"], {"max_model_len": -1}),
    "switches": (
        ["--enforce-eager", "--no-enable-prefix-caching", "--disable-log-stats"],
        {"enforce_eager": True, "enable_prefix_caching": False, "disable_log_stats": True},
    ),
    "short names, and an underscore": (
        ["-tp", "2", "-q", "ascend", "--max_num_seqs", "4"],
        {"tensor_parallel_size": 2, "quantization": "ascend", "max_num_seqs": 4},
    ),
    "levels": (["-O2"], {"optimization_level": 2}),
    "a level after an equals sign": (["-O=1"], {"optimization_level": 1}),
    "a prefix": (["--max-num-seq", "4"], {"max_num_seqs": 4}),
    "the last wins": (["--max-num-seqs", "4", "--max-num-seqs", "6"], {"max_num_seqs": 6}),
    "parts of JSON win, and are put together": (
        ["--compilation-config", '{"mode":1}', "-cc.mode", "3", "-cc.pass_config.enable_sp=true", "-cc.custom_ops+=a,b",
         "-cc.custom_ops+", "c", "-cc.max_cudagraph_capture_size", "1k", "-cc.backend", "eager"],
        {
            "compilation_config": {
                "mode": 3,
                "pass_config": {"enable_sp": True},
                "custom_ops": ["a", "b", "c"],
                "max_cudagraph_capture_size": 1000,
                "backend": "eager",
            }
        },
    ),
    "nothing": (["--quantization", "None", "--tokenizer", ""], {"quantization": None, "tokenizer": None}),
    "lists": (
        ["--cudagraph-capture-sizes", "1", "2", "--ignore-patterns", "*.pt"],
        {"cudagraph_capture_sizes": [1, 2], "ignore_patterns": ["*.pt"]},
    ),
    "names": (["--served-model-name", "small"], {"served_model_name": "small"}),
    "several names": (["--served-model-name", "small", "s"], {"served_model_name": ["small", "s"]}),
    "JSON or a word": (
        ["--hf-overrides", '{"a":1}', "--pt-load-map-location", "cpu"],
        {"hf_overrides": {"a": 1}, "pt_load_map_location": "cpu"},
    ),
    "what the rules do not know": (
        ["--of-tomorrow", "3", "--another", "word", "--bare-one", "--data", '{"a":null}'],
        {"of_tomorrow": 3, "another": "word", "bare_one": True, "data": {"a": None}},
    ),
}  # fmt: skip


def ask(*words):
    return engine_arguments(["vllm", "serve", "m", *words], RULES["serve_flags"], RULES["offline"])


@pytest.mark.parametrize("name", CASES)
def test_words_become_arguments_with_their_types(name):
    words, wanted = CASES[name]
    assert ask(*words) == ({"model": "m", **wanted}, [])


def test_what_only_the_server_reads_is_left_out_and_said():
    found = ask("--port", "8001", "--enable-auto-tool-choice", "--no-disable-fastapi-docs", "--max-num-seqs", "4")
    assert found.arguments == {"model": "m", "max_num_seqs": 4}
    assert found.left_out == ["--port 8001", "--enable-auto-tool-choice", "--no-disable-fastapi-docs"]


@pytest.mark.parametrize(
    "words",
    [
        ["vllm", "serve"],
        ["python", "serve", "m"],
        ["vllm", "serve", "--port", "8000"],
        ["vllm", "serve", "m", "stray"],
        ["vllm", "serve", "m", "--max-num-seqs", "many"],
        ["vllm", "serve", "m", "--max-num-seqs", "1", "2"],
        ["vllm", "serve", "m", "--max-num-seqs"],
        ["vllm", "serve", "m", "--max-model-len", "long"],
        ["vllm", "serve", "m", "--compilation-config", "{a}"],
        ["vllm", "serve", "m", "--enforce-eager", "yes"],
        ["vllm", "serve", "m", "-cc.mode"],
    ],
)
def test_what_is_no_such_command_is_refused(words):
    with pytest.raises(ValueError, match=r"."):
        engine_arguments(words, RULES["serve_flags"], RULES["offline"])
