"""Offline inference with the real vLLM on a 310P host, with the flags of its family (tests/lab/real/README.md)."""

from __future__ import annotations

import json

import pytest
from ansible_collections.vllm_ascend.fleet.tests.integration.rack import INVENTORY, on, playbook, variables
from ansible_collections.vllm_ascend.fleet.tests.integration.real_engine import IMAGE, MODEL

pytestmark = pytest.mark.lab
HOST = "duo-ubuntu-1"
# What the documented example gives to LLM(...).
ENGINE = {
    "model": MODEL,
    "dtype": "float16",
    "max_num_seqs": 8,
    "compilation_config": {"cudagraph_mode": "FULL_DECODE_ONLY", "cudagraph_capture_sizes": [1, 2, 4, 8]},
    "additional_config": {"ascend_compilation_config": {"enable_npugraph_ex": False}},
}


def holders():
    """The running containers with the devices of each."""
    ids = on(HOST, "docker", "ps", "--quiet", "--no-trunc").split()
    found = json.loads(on(HOST, "docker", "inspect", *ids)) if ids else []
    return {one["Id"]: [device["PathOnHost"] for device in one["HostConfig"]["Devices"] or []] for one in found}


def test_the_documented_example_with_the_flags_of_the_family(tmp_path):
    before = holders()
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("Hello, my name is\n\nThe future of AI is\n", encoding="utf-8")
    results = tmp_path / "results.jsonl"
    run = playbook(
        "playbooks/offline.yml", "-i", str(INVENTORY), "--limit", HOST,
        *variables(
            vllm_image=IMAGE.format("-310p"),
            vllm_offline_prompts_file=str(prompts),
            vllm_offline_results=str(results),
        ),
    )  # fmt: skip
    assert run.rc == 0, run.text[-6000:]
    lines = [json.loads(line) for line in results.read_text(encoding="utf-8").splitlines()]
    assert [line["prompt"] for line in lines] == ["Hello, my name is", "The future of AI is"]
    assert all(line["text"].strip() and line["output_tokens"] == 32 for line in lines)
    plans = [
        result["ansible_facts"]["__vllm_offline_plan"]
        for _name, _host, result in run.tasks
        if "__vllm_offline_plan" in result.get("ansible_facts", {})
    ]
    assert plans[0]["job"]["engine"] == ENGINE
    # Whoever held an NPU before still does, and the job is gone.
    assert holders() == before
