"""What models a plan needs and how they are fetched, and what came of them as text."""

from __future__ import annotations

import json

import pytest
from ansible_collections.vllm_ascend.fleet.plugins.plugin_utils.model_fetching import model_jobs, model_lines
from ansible_collections.vllm_ascend.fleet.plugins.plugin_utils.plan import deployment_plan
from ansible_collections.vllm_ascend.fleet.tests.unit.support.facts_builder import (
    add_several_paths,
    build_facts,
    build_observed,
    case_of,
    shipped_profiles,
)

WANTED = {
    "vllm_model_copy_from": None, "vllm_model_copy_on": "controller", "vllm_model_fetch": "missing",
    "vllm_model_timeout": 86400, "vllm_model_verify": "size",
}  # fmt: skip


def plan_of(family="atlas_a2", **settings):
    facts = add_several_paths(build_facts(case_of(family), npus=8))
    return deployment_plan(facts, {"vllm_model_cache": "/srv/cache", **settings}, shipped_profiles(), build_observed())


def jobs_of(settings=None, **wanted):
    return model_jobs(plan_of(**(settings or {})), {**WANTED, **wanted})


def instances(*entries):
    return {"vllm_instances": [{"name": f"i{n}", "port": 8000 + n, **entry} for n, entry in enumerate(entries)]}


def options(argv, flag):
    return [argv[place + 1] for place, word in enumerate(argv) if word == flag]


@pytest.mark.parametrize("family", ["atlas_a2", "atlas_950dt", "atlas_200i_pro"])
def test_a_fetch_has_the_service_cache_and_environment_and_no_device(family):
    settings = {"vllm_hf_endpoint": "https://hf-mirror.com", "vllm_hf_token": "hf_secret"}
    settings["vllm_proxy"] = {"https": "http://proxy.example:3128"}
    plan = plan_of(family, **settings)
    found = model_jobs(plan, WANTED)
    assert found["problems"] == []
    (job,) = found["jobs"]
    argv, image = job["argv"], plan["instances"][0]["container"]["image"]
    assert (job["model"], job["source"], job["instances"], job["image"]) == (
        "Qwen/Qwen3-0.6B", "huggingface", ["ascend"], image,
    )  # fmt: skip
    for flag in ("--device", "--publish", "--privileged"):
        assert flag not in argv
    assert options(argv, "--pull") == ["never"]
    assert options(argv, "--mount") == ["type=bind,source=/srv/cache,target=/root/.cache"]
    assert options(argv, "--label") == ["vllm-ascend.role=model"]
    environment = dict(word.split("=", 1) for word in options(argv, "--env"))
    assert environment["HF_HUB_OFFLINE"] == "0"
    assert environment["HF_ENDPOINT"] == "https://hf-mirror.com"
    assert environment["HTTPS_PROXY"] == "http://proxy.example:3128"
    assert "hf_secret" not in " ".join(argv)
    assert options(argv, "--network") == options(plan["instances"][0]["docker_run"], "--network")
    command = argv[argv.index(image) + 1 :]
    assert command[-6:-1] == ["timeout", "--kill-after=20", "86400", "python3", "-"]
    request = json.loads(command[-1])
    assert (request["model"], request["revision"], request["versions"]) == ("Qwen/Qwen3-0.6B", None, ["1.18.1", "1.38"])


def test_what_the_operator_says_of_going_offline_stays():
    (job,) = jobs_of({"vllm_environment": {"HF_HUB_OFFLINE": "1"}})["jobs"]
    assert "HF_HUB_OFFLINE=1" in options(job["argv"], "--env")


def test_each_model_comes_once():
    found = jobs_of(instances({}, {}, {"model": "Qwen/Qwen3-8B"}, {"model_source": "modelscope"}))
    assert [(job["model"], job["source"], job["instances"]) for job in found["jobs"]] == [
        ("Qwen/Qwen3-0.6B", "huggingface", ["i0", "i1"]),
        ("Qwen/Qwen3-8B", "huggingface", ["i2"]),
        ("Qwen/Qwen3-0.6B", "modelscope", ["i3"]),
    ]
    assert len({job["name"] for job in found["jobs"]}) == 3


@pytest.mark.parametrize("words", [["--revision", "v1"], ["--revision=v1"]])
def test_the_revision_of_the_service(words):
    (job,) = jobs_of({"vllm_extra_args": words})["jobs"]
    assert job["revision"] == "v1"
    assert json.loads(job["argv"][-1])["revision"] == "v1"


LOCAL = {"vllm_model_source": "local", "vllm_model": "/srv/models/m/"}


def test_a_local_model_is_copied_from_where_it_is_said():
    (job,) = jobs_of(LOCAL)["jobs"]
    assert (job["model"], job["argv"], job["copy_from"]) == ("/srv/models/m", None, None)
    (job,) = jobs_of(LOCAL, vllm_model_copy_from="models/m")["jobs"]
    assert (job["copy_from"], job["copy_on"]) == ("models/m", "controller")
    several = instances({"model": "/srv/a", "model_source": "local"}, {"model": "/srv/b", "model_source": "local"})
    found = jobs_of(several, vllm_model_copy_from={"/srv/b/": "/mnt/b"}, vllm_model_copy_on="host")
    assert [job["copy_from"] for job in found["jobs"]] == [None, "/mnt/b"]
    (problem,) = jobs_of(several, vllm_model_copy_from="/mnt/b")["problems"]
    assert problem["code"] == "model_copy_invalid"


def test_a_copy_mends_what_the_plan_says_of_the_folder():
    plan = plan_of(**LOCAL)
    for code in ("model_folder_missing", "npu_held"):
        plan["problems"].append({"code": code, "message": "m", "remedy": "r"})
    assert [one["code"] for one in model_jobs(plan, WANTED)["problems"]] == ["model_folder_missing", "npu_held"]
    found = model_jobs(plan, {**WANTED, "vllm_model_copy_from": "/mnt/m"})
    assert [one["code"] for one in found["problems"]] == ["npu_held"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("vllm_model_verify", "sum"),
        ("vllm_model_fetch", "sometimes"),
        ("vllm_model_copy_on", "share"),
        ("vllm_model_timeout", 0),
        ("vllm_model_timeout", "soon"),
        ("vllm_model_copy_from", ["/mnt"]),
    ],
)
def test_settings_that_cannot_be(name, value):
    (problem,) = jobs_of(LOCAL, **{name: value})["problems"]
    assert problem["code"] == "model_setting_invalid"
    assert name in problem["message"] and repr(value) in problem["message"]


def test_a_relative_path_on_the_host_is_refused():
    found = jobs_of(LOCAL, vllm_model_copy_from="m", vllm_model_copy_on="host")
    assert "absolute path" in found["problems"][0]["message"]


def test_something_else_than_a_plan():
    with pytest.raises(TypeError, match="plan must be a dictionary"):
        model_jobs([], WANTED)


def entry(**changes):
    return {
        "model": "org/m", "source": "huggingface", "instances": ["a"], "action": "fetch", "changed": True, "ok": True,
        "planned": False,
        "problems": [], "folder": "/cache/m", "files": 3, "size_mb": 10, "verified": 0, "unfinished": [], "notes": [],
        "client": "huggingface_hub 1.21.0", "log": "", "seconds": 2.5, **changes,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, ["h: org/m (huggingface): fetched; 3 files, 10 MiB in /cache/m", "  with huggingface_hub 1.21.0; 2.5 s"]),
        ({"planned": True, "folder": None, "client": None}, ["h: org/m (huggingface): would be fetched; not there"]),
        ({"action": "none", "changed": False, "client": None},
         ["h: org/m (huggingface): there; 3 files, 10 MiB in /cache/m"]),
        ({"changed": False, "client": None}, ["h: org/m (huggingface): up to date; 3 files, 10 MiB in /cache/m"]),
        ({"ok": False, "folder": None, "client": None, "problems": [{"code": "c", "message": "m", "remedy": "r"}]},
         ["h: org/m (huggingface): failed; not there", "  c: m", "    r"]),
        ({"client": None, "unfinished": ["/cache/x"], "notes": ["no vocabulary"], "verified": 3},
         ["h: org/m (huggingface): fetched; 3 files, 10 MiB in /cache/m",
          "  3 files compared with a checksum; 2.5 s", "  no vocabulary",
          "  left by downloads that ended early, may be removed: /cache/x"]),
    ],
)  # fmt: skip
def test_what_came_as_text(changes, said):
    assert model_lines([entry(**changes)], "h") == said
