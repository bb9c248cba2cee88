"""The offline job of a host: one more instance beside those that run."""

from __future__ import annotations

import json

import pytest
from ansible_collections.vllm_ascend.fleet.plugins.plugin_utils.offline_plan import job_secrets, offline_plan
from ansible_collections.vllm_ascend.fleet.plugins.plugin_utils.plan import deployment_plan

from tests.unit.support.facts_builder import (
    add_several_paths,
    build_facts,
    build_observed,
    case_id,
    case_of,
    documented_cases,
    shipped_profiles,
    shipped_rules,
)

NODES = [f"/dev/davinci{number}" for number in range(4)]
SECRET = "hf_a-very-secret-token"
TWO = [{"name": "small", "port": 8001, "npus": 1}, {"name": "large", "npus": 2, "model": "Qwen/Qwen3-8B"}]


def running(name, npus, port=8000):
    """An instance that serves, as vllm_instance_info tells it."""
    return {
        "name": name, "unit": f"vllm-{name}.service", "active_state": "active", "npus": npus, "ports": [port],
        "container": {"id": name * 20, "state": "running"}, "journal": "none", "plan": None,
    }  # fmt: skip


def ask(settings=None, wanted=None, instances=(), foreign=(), family="atlas_a2", npus=4, image_os="ubuntu"):
    observed = build_observed(instances=list(instances), foreign=list(foreign))
    wanted = {"vllm_offline_timeout": 600, **(wanted or {})}
    facts = add_several_paths(build_facts(case_of(family, image_os), npus=npus))
    return offline_plan(facts, settings or {}, shipped_profiles(), observed, shipped_rules(), wanted)


def codes(found):
    return {problem["code"] for problem in found["problems"]}


@pytest.mark.parametrize("case", documented_cases(), ids=case_id)
def test_a_job_has_the_container_of_the_service_but_its_endpoint(case):
    """docker run differs by the name, the labels, the ports, one folder, and the program only."""
    found = ask(family=case["family"], npus=None, image_os=case["image_os"])
    assert found["problems"] == []
    facts = add_several_paths(build_facts(case))
    service = deployment_plan(facts, {}, shipped_profiles(), build_observed(), shipped_rules())["instances"][0]
    job, run = found["job"], service["docker_run"]
    folder = "type=bind,source=/var/lib/vllm-ascend/.offline/ascend-offline,target=/vllm-offline"
    image = run.index(service["container"]["image"])
    dropped = {"--publish", "8000:8000", "vllm-ascend.instance=ascend", "--name", "vllm-ascend"}
    kept = [word for word in run[:image] if word not in dropped and not word.startswith("vllm-ascend.")]
    words = iter(job["argv"])
    assert all(word in words for word in kept if word != "--label"), job["argv"]
    assert set(job["argv"]) - set(run) == {
        "vllm-ascend-offline", "vllm-ascend.role=offline", folder, "timeout", "--signal=INT", "--kill-after=20", "600",
        "python3", "/vllm-offline/job.py", "/vllm-offline",
        *[word for word in job["argv"] if word.startswith("vllm-ascend.plan=")],
    }  # fmt: skip
    assert "--publish" not in job["argv"]
    assert not any(word.startswith("vllm-ascend.instance=") for word in job["argv"])
    assert job["npus"] == service["npus"]


@pytest.mark.parametrize(
    ("family", "engine"),
    [
        ("atlas_a2", {"model": "Qwen/Qwen3-0.6B"}),
        (
            "atlas_300i_duo",
            {
                "model": "Qwen/Qwen3-0.6B",
                "dtype": "float16",
                "max_num_seqs": 8,
                "compilation_config": {
                    "cudagraph_mode": "FULL_DECODE_ONLY",
                    "cudagraph_capture_sizes": [1, 2, 4, 8],
                },
                "additional_config": {"ascend_compilation_config": {"enable_npugraph_ex": False}},
            },
        ),
    ],
)
def test_the_engine_of_the_documented_example(family, engine):
    assert ask(family=family, npus=2)["job"]["engine"] == engine


def test_it_takes_free_nodes_beside_the_services():
    found = ask(instances=[running("ascend", NODES[:2])])
    assert (found["problems"], found["job"]["npus"]) == ([], [NODES[2]])


@pytest.mark.parametrize("accepted", [[], ["npu_held"]])
@pytest.mark.parametrize("npus", [None, "all", [NODES[1]], 4])
def test_the_nodes_of_a_service_are_never_taken_and_it_is_named(npus, accepted):
    settings = {"vllm_accept_problems": accepted}
    found = ask(settings, {"vllm_offline_npus": npus}, [running("one", NODES[:2]), running("two", NODES[2:])])
    assert codes(found) <= {"npu_serving", "npu_shortage"} and found["problems"]
    assert found["job"] is None
    assert any("the running instance one holds" in problem["message"] for problem in found["problems"])


def test_nodes_that_somebody_else_holds_are_not_taken():
    foreign = {"container": "other", "id": "f" * 64, "state": "running", "devices": [NODES[0]], "ports": []}
    found = ask({"vllm_npus": 1}, foreign=[foreign], npus=2)
    assert (found["problems"], found["job"]["npus"]) == ([], [NODES[1]])


def test_a_service_that_does_not_run_keeps_nothing():
    stopped = {**running("ascend", NODES[:4]), "active_state": "inactive", "container": None}
    assert ask(instances=[stopped])["job"]["npus"] == [NODES[0]]


def test_the_container_of_an_earlier_job_holds_nothing():
    stale = {"container": "vllm-ascend-offline", "id": "a" * 64, "state": "running", "devices": NODES[:1], "ports": []}
    found = ask(foreign=[stale], npus=1)
    assert (found["problems"], found["job"]["npus"]) == ([], [NODES[0]])


def test_a_job_does_not_care_about_the_port_of_the_service():
    found = ask(instances=[running("ascend", [NODES[0]])])
    assert codes(found) == set()
    assert not {"endpoint_open"} & {warning["code"] for warning in found["warnings"]}


def test_a_list_of_the_service_is_as_many_others():
    settings = {"vllm_instances": [{"name": "ascend", "npus": NODES[:2]}]}
    found = ask(settings, instances=[running("ascend", NODES[:2])])
    assert (found["problems"], found["job"]["npus"]) == ([], NODES[2:])
    assert found["job"]["engine"]["tensor_parallel_size"] == 2


def test_other_npus_mean_other_ranks():
    settings = {"vllm_npus": 2, "vllm_tensor_parallel_size": 2}
    assert ask(settings)["job"]["engine"]["tensor_parallel_size"] == 2
    assert "tensor_parallel_size" not in ask(settings, {"vllm_offline_npus": 1})["job"]["engine"]
    assert ask(settings, {"vllm_offline_npus": 4})["job"]["engine"]["tensor_parallel_size"] == 4


def test_the_settings_of_the_named_instance_are_taken():
    found = ask({"vllm_instances": TWO}, {"vllm_offline_instance": "large"})
    job = found["job"]
    assert (job["name"], job["instance"], job["model"], len(job["npus"])) == (
        "large-offline", "large", "Qwen/Qwen3-8B", 2,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("asked", "part"),
    [(None, "it is not said whose settings"), ("smal", 'did you mean "small"?'), ("x", "the host has small, large")],
)
def test_an_instance_that_is_not_clear_is_refused(asked, part):
    found = ask({"vllm_instances": TWO}, {"vllm_offline_instance": asked})
    assert codes(found) == {"offline_instance_unknown"}
    assert part in found["problems"][0]["message"]


def test_a_name_that_an_instance_has_is_refused():
    instances = [{"name": "a"}, {"name": "a-offline", "port": 8001}]
    assert codes(ask({"vllm_instances": instances}, {"vllm_offline_instance": "a"})) == {"offline_name_taken"}
    assert codes(ask(instances=[running("ascend-offline", [NODES[0]])])) == {"offline_name_taken"}


def test_long_names_are_cut():
    name = "a" * 31
    assert ask({"vllm_instances": [{"name": name}]})["job"]["name"] == "a" * 23 + "-offline"


def test_more_arguments_are_for_the_job_and_judged_like_the_others():
    settings = {"vllm_extra_args": ["--max-model-len", "2048"]}
    more = [{"--max-num-batched-tokens": 8192}, "--max-model-len", "1024"]
    engine = ask(settings, {"vllm_offline_extra_args": more})["job"]["engine"]
    assert (engine["max_model_len"], engine["max_num_batched_tokens"]) == (1024, 8192)
    found = ask(settings, {"vllm_offline_extra_args": ["--max-num-seqz", "1"]})
    assert codes(found) == {"serve_flag_unknown"}
    assert 'did you mean "--max-num-seqs"?' in found["problems"][0]["message"]
    assert codes(ask(wanted={"vllm_offline_extra_args": "--max-num-seqs 1"})) == {"offline_setting_invalid"}


def test_flags_of_the_server_are_left_out_and_explained():
    found = ask({"vllm_extra_args": ["--enable-auto-tool-choice", "--tool-call-parser", "hermes"]})
    assert found["job"]["engine"] == {"model": "Qwen/Qwen3-0.6B"}
    assert "job ascend-offline: without --tool-call-parser hermes" in {entry["what"] for entry in found["explain"]}
    asked = ask(wanted={"vllm_offline_extra_args": ["--tool-call-parser", "hermes"]})
    assert "offline_flag_left_out" in {warning["code"] for warning in asked["warnings"]}


@pytest.mark.parametrize("extra", [["--data-parallel-size", "2"], ["-dp=2"], ["--nnodes", "2"], ["--config", "/x.yml"]])
def test_what_one_llm_cannot_follow_is_refused(extra):
    assert "offline_flag_refused" in codes(ask({"vllm_npus": 2, "vllm_extra_args": extra}))
    assert "offline_flag_refused" not in codes(ask({"vllm_extra_args": ["--data-parallel-size", "1"]}))


def test_secrets_are_not_in_the_plan_and_the_key_of_the_endpoint_is_not_used():
    settings = {"vllm_hf_token": SECRET, "vllm_api_key": "sk-key", "vllm_secrets": {"MORE": "more-secret"}}
    found = ask(settings)
    assert SECRET not in json.dumps(found) and "more-secret" not in json.dumps(found)
    assert found["job"]["secret_names"] == ["HF_TOKEN", "MORE"]
    assert "--env-file" in found["job"]["argv"]
    assert "/var/lib/vllm-ascend/.offline/ascend-offline/job.env" in found["job"]["argv"]
    assert job_secrets(settings, "ascend") == {"HF_TOKEN": SECRET, "MORE": "more-secret"}
    assert "--env-file" not in ask()["job"]["argv"]


def test_everything_that_is_wrong_is_said_at_once():
    settings = {"vllm_model": "/no/model", "vllm_extra_args": ["--data-parallel-size", "2", "--max-num-seqz", "1"]}
    found = ask(settings, {"vllm_offline_extra_args": "x", "vllm_offline_npus": 9})
    assert codes(found) >= {
        "model_id_invalid", "serve_flag_unknown", "offline_setting_invalid", "npu_shortage", "offline_flag_refused",
    }  # fmt: skip
    assert found["job"] is None


def test_only_data_is_taken():
    with pytest.raises(TypeError):
        offline_plan({}, [], {}, None, {}, {})
