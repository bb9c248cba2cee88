# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Instances of a plan: models, endpoints, environment, secrets, commands and the containers that prove them."""

from __future__ import annotations

import hashlib
import json

import pytest
from ansible_collections.vllm_ascend.fleet.plugins.plugin_utils.container import docker_run
from ansible_collections.vllm_ascend.fleet.plugins.plugin_utils.environment import instance_secrets
from ansible_collections.vllm_ascend.fleet.plugins.plugin_utils.plan import deployment_plan
from ansible_collections.vllm_ascend.fleet.tests.unit.support.facts_builder import (
    add_several_paths,
    build_facts,
    case_of,
    path_entry,
    shipped_profiles,
)

SHELL = ["bash", "-ic", 'exec "$@"', "--"]


def plan_of(family="atlas_a2", facts=None, npus=4, **settings):
    facts = facts or build_facts(case_of(family), npus=npus)
    return deployment_plan(facts, settings, shipped_profiles())


def instance_of(*arguments, **settings):
    plan = plan_of(*arguments, **settings)
    assert plan["problems"] == []
    return plan["instances"][0]


def codes(plan, kind="problems"):
    return [entry["code"] for entry in plan[kind]]


# -- docker run --------------------------------------------------------------------------------------------------------


def test_the_command_of_a_documented_instance():
    instance = instance_of("atlas_300i_duo")
    json_one = '{"cudagraph_mode":"FULL_DECODE_ONLY","cudagraph_capture_sizes":[1,2,4,8]}'
    json_two = '{"ascend_compilation_config":{"enable_npugraph_ex":false}}'
    mounts = [
        ("/etc/ascend_install.info", ",readonly"),
        ("/root/.cache", ""),
        ("/usr/local/Ascend/driver/lib64", ",readonly"),
        ("/usr/local/Ascend/driver/version.info", ",readonly"),
        ("/usr/local/bin/npu-smi", ",readonly"),
        ("/usr/local/dcmi", ",readonly"),
    ]
    assert instance["docker_run"] == [
        "docker", "run", "--pull", "never", "--rm", "--init", "--name", "vllm-ascend", "--stop-signal", "SIGINT",
        "--label", "vllm-ascend.instance=ascend",
        "--label", f"vllm-ascend.plan={instance['plan_hash']}",
        "--label", "vllm-ascend.role=serve",
        "--shm-size", "1g",
        "--device", "/dev/davinci0", "--device", "/dev/davinci_manager", "--device", "/dev/devmm_svm",
        "--device", "/dev/hisi_hdc",
        *(word for path, mode in mounts for word in ("--mount", f"type=bind,source={path},target={path}{mode}")),
        "--publish", "8000:8000", "--log-driver", "json-file", "--log-opt", "max-file=2", "--log-opt", "max-size=50m",
        "quay.io/ascend/vllm-ascend:v0.23.0-310p", *SHELL,
        "vllm", "serve", "Qwen/Qwen3-0.6B", "--dtype", "float16", "--max-num-seqs", "8",
        "--compilation-config", json_one, "--additional-config", json_two,
    ]  # fmt: skip


def test_privileged_host_network_and_environment_file_are_rendered():
    run = instance_of("atlas_200i_pro", npus=1, vllm_api_key="k")["docker_run"]
    assert "--privileged" in run and "--network" not in run
    assert run[run.index("--env-file") + 1] == "/etc/vllm-ascend/ascend.env"
    run = instance_of("atlas_950dt", npus=1, vllm_environment={"A": "1 2"})["docker_run"]
    assert run[run.index("--network") + 1] == "host" and "--publish" not in run
    assert run[run.index("--env") + 1] == "A=1 2"


def test_overrides_take_the_place_of_keys_and_must_exist():
    container = instance_of()["container"]
    run = docker_run(container, name="job", published_ports=[], devices=[], command=["true"], interactive=True)
    assert run[-2:] == [container["image"], "true"]
    assert "--interactive" in run and "--publish" not in run and "--device" not in run
    with pytest.raises(ValueError, match="prots"):
        docker_run(container, prots=[])


def words_after(argv, flag):
    return [argv[place + 1] for place, word in enumerate(argv) if word == flag]


@pytest.mark.parametrize("family", ["atlas_a2", "atlas_200i_pro", "atlas_950dt"])
def test_the_verification_has_exactly_the_services_devices_and_mounts(family):
    instance = instance_of(family, npus=1, vllm_api_key="k")
    service = instance["docker_run"]
    for argv, command in (
        (instance["verification"]["npu_smi"], ["npu-smi", "info"]),
        (instance["verification"]["python"], ["python3", "-"]),
    ):
        assert argv[-6:] == SHELL + command
        assert words_after(argv, "--device") == words_after(service, "--device")
        assert words_after(argv, "--mount") == words_after(service, "--mount")
        assert ("--privileged" in argv) == ("--privileged" in service)
        assert words_after(argv, "--network") == ["none"]
        assert words_after(argv, "--name") == ["vllm-ascend-verify"]
        assert "vllm-ascend.role=verify" in argv and "--interactive" in argv
        assert "--publish" not in argv and "--env-file" not in argv
    preflight = instance["preflight"]
    assert words_after(preflight, "--mount") == words_after(service, "--mount")
    assert "--device" not in preflight and "--privileged" not in preflight
    assert preflight[-6:] == [*SHELL, "python3", "-"]


# -- endpoints ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("address", "published"),
    [("0.0.0.0", "8100:8000"), ("127.0.0.1", "127.0.0.1:8100:8000"), ("::1", "[::1]:8100:8000")],
)
def test_on_the_bridge_the_port_is_published_and_vllm_keeps_its_own(address, published):
    instance = instance_of(vllm_port=8100, vllm_bind_address=address)
    assert instance["container"]["published_ports"] == [published]
    assert instance["serve_args"] == ["vllm", "serve", "Qwen/Qwen3-0.6B"]
    assert instance["endpoint"] == {"address": address, "port": 8100, "network": "bridge", "container_port": 8000}


def test_on_the_host_network_vllm_gets_port_and_address():
    instance = instance_of("atlas_950dt", vllm_port=8100, vllm_bind_address="10.0.0.5")
    assert instance["serve_args"][3:] == ["--port", "8100", "--host", "10.0.0.5"]
    assert instance["endpoint"]["container_port"] == 8100
    assert instance_of("atlas_950dt")["serve_args"] == ["vllm", "serve", "Qwen/Qwen3-0.6B"]


@pytest.mark.parametrize(
    ("settings", "warned"),
    [
        ({}, True),
        ({"vllm_api_key": "k"}, False),
        ({"vllm_secrets": {"VLLM_API_KEY": "k"}}, False),
        ({"vllm_bind_address": "127.0.0.1"}, False),
        ({"vllm_bind_address": "10.0.0.5"}, True),
    ],
)
def test_an_open_endpoint_is_a_warning(settings, warned):
    assert ("endpoint_open" in codes(plan_of(**settings), "warnings")) is warned


# -- models ------------------------------------------------------------------------------------------------------------


def test_a_local_model_is_mounted_read_only_and_served_under_its_name():
    instance = instance_of(vllm_model="/srv/models/qwen, 3/", vllm_model_source="local")
    assert instance["serve_args"] == ["vllm", "serve", "/models/qwen, 3", "--served-model-name", "qwen, 3"]
    mount = {"source": "/srv/models/qwen, 3", "target": "/models/qwen, 3", "read_only": True}
    assert mount in instance["container"]["mounts"]
    assert (instance["model_folder"], instance["served_model_name"]) == ("/srv/models/qwen, 3", "qwen, 3")
    assert 'type=bind,"source=/srv/models/qwen, 3","target=/models/qwen, 3",readonly' in instance["docker_run"]
    required = {entry["path"]: entry["type"] for entry in instance["required_paths"]}
    assert required == {
        "/srv/models/qwen, 3": "directory",
        "/usr/local/dcmi": "directory",
        "/usr/local/bin/npu-smi": "file",
        "/usr/local/Ascend/driver/lib64": "directory",
        "/usr/local/Ascend/driver/version.info": "file",
        "/etc/ascend_install.info": "file",
    }


def test_a_local_model_that_is_not_there_is_a_problem_where_it_was_looked_for():
    facts = build_facts(case_of("atlas_a2"))
    settings = {"vllm_model": "/srv/m", "vllm_model_source": "local"}
    assert codes(plan_of(facts=facts, **settings)) == []
    facts["paths"]["/srv/m"] = path_entry("missing")
    assert codes(plan_of(facts=facts, **settings)) == ["model_folder_missing"]
    facts["paths"]["/srv/m"] = path_entry("file")
    assert codes(plan_of(facts=facts, **settings)) == ["path_wrong_type"]


@pytest.mark.parametrize(
    ("model", "source", "code"),
    [
        ("models/qwen", "local", "model_path_invalid"),
        ("/", "local", "model_path_invalid"),
        ("/srv/../etc", "local", "model_path_invalid"),
        ("/srv/m", "huggingface", "model_id_invalid"),
        ("--port", "huggingface", "model_id_invalid"),
        ("two words", "modelscope", "model_id_invalid"),
    ],
)
def test_a_model_must_fit_its_source(model, source, code):
    plan = plan_of(vllm_model=model, vllm_model_source=source)
    assert codes(plan) == [code]
    assert repr(model) in plan["problems"][0]["message"]


def test_modelscope_sets_its_variable_and_names_its_token():
    instance = instance_of(vllm_model_source="modelscope", vllm_hf_token="t", vllm_hf_endpoint="https://hub.example")
    assert instance["container"]["environment"] == {"VLLM_USE_MODELSCOPE": "True"}
    assert [secret["name"] for secret in instance["container"]["secrets"]] == ["MODELSCOPE_API_TOKEN"]


def test_a_mirror_and_a_proxy_are_open_variables():
    proxy = {"http": "http://proxy:3128", "https": "http://proxy:3128", "no_proxy": "hub.example"}
    instance = instance_of(vllm_hf_endpoint="https://hub.example", vllm_proxy=proxy)
    assert instance["container"]["environment"] == {
        "HF_ENDPOINT": "https://hub.example",
        "HTTP_PROXY": "http://proxy:3128",
        "HTTPS_PROXY": "http://proxy:3128",
        "NO_PROXY": "hub.example,localhost,127.0.0.1",
    }
    local = instance_of(vllm_model="/srv/m", vllm_model_source="local", vllm_proxy=proxy)
    assert local["container"]["environment"] == {}


# -- secrets -----------------------------------------------------------------------------------------------------------


def test_secret_values_never_enter_the_plan():
    settings = {
        "vllm_api_key": "KEY-VALUE",
        "vllm_hf_token": "TOKEN-VALUE",
        "vllm_secrets": {"OWN": "OWN-VALUE"},
        "vllm_proxy": {"https": "http://user:PROXY-VALUE@proxy:3128"},
    }
    plan = plan_of(**settings)
    text = json.dumps(plan)
    assert plan["problems"] == [] and "-VALUE" not in text
    container = plan["instances"][0]["container"]
    assert container["env_file"] == "/etc/vllm-ascend/ascend.env"
    assert [s["name"] for s in container["secrets"]] == ["HF_TOKEN", "HTTPS_PROXY", "OWN", "VLLM_API_KEY"]
    assert container["secrets"][3]["digest"] == hashlib.sha256(b"VLLM_API_KEY=KEY-VALUE").hexdigest()
    assert instance_secrets(settings) == {
        "ascend": {
            "HTTPS_PROXY": "http://user:PROXY-VALUE@proxy:3128",
            "HF_TOKEN": "TOKEN-VALUE",
            "VLLM_API_KEY": "KEY-VALUE",
            "OWN": "OWN-VALUE",
        }
    }


ADDRESSES = [
    "http://user:SHOWN@proxy:3128",
    "http://user:SH/SHOWN@proxy:3128",
    "http://user:SH@SHOWN@proxy:3128",
    "user:SHOWN@proxy:3128",
    "SHOWN@proxy:3128",
    "socks5://SHOWN@proxy",
]


@pytest.mark.parametrize("address", ADDRESSES)
def test_an_address_with_a_login_is_a_secret(address):
    settings = {"vllm_proxy": {"http": address, "https": "http://open:3128"}}
    plan = plan_of(**settings)
    container = plan["instances"][0]["container"]
    assert plan["problems"] == [] and "SHOWN" not in json.dumps(plan)
    assert [secret["name"] for secret in container["secrets"]] == ["HTTP_PROXY"]
    assert container["environment"]["HTTPS_PROXY"] == "http://open:3128"
    assert instance_secrets(settings) == {"ascend": {"HTTP_PROXY": address}}


def test_a_mirror_with_a_login_is_a_secret():
    settings = {"vllm_hf_endpoint": "https://user:SH/SHOWN@hub.example"}
    plan = plan_of(**settings)
    assert plan["problems"] == [] and "SHOWN" not in json.dumps(plan)
    assert [secret["name"] for secret in plan["instances"][0]["container"]["secrets"]] == ["HF_ENDPOINT"]
    assert instance_secrets(settings) == {"ascend": {"HF_ENDPOINT": "https://user:SH/SHOWN@hub.example"}}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("https_proxy", address) for address in ADDRESSES),
        ("INDEX", "https://user:SH/SHOWN@hub.example/simple"),
        ("DATABASE", "user:SHOWN@db:5432"),
        ("OPTIONS", "--index=https://user:SHOWN@hub.example"),
        ("VLLM_API_KEY", "SHOWN"),
    ],
)
def test_an_open_variable_must_not_be_a_secret(name, value):
    plan = plan_of(vllm_environment={name: value, "A": "1"})
    assert codes(plan) == ["secret_in_environment"] and name in plan["problems"][0]["message"]
    assert "SHOWN" not in json.dumps(plan)
    assert plan["instances"][0]["container"]["environment"] == {"A": "1"}


@pytest.mark.parametrize("value", ["https://hub.example/a", "me@hub.example", "proxy:3128", "a: b @ c"])
def test_an_address_without_a_login_is_no_secret(value):
    assert instance_of(vllm_environment={"A": value})["container"]["environment"] == {"A": value}


@pytest.mark.parametrize(
    "extra",
    [
        ["--api-key=SHOWN"],
        ["--api-key", "SHOWN"],
        ["--api-key", "SHOWN", "SHOWN-TOO"],
        ["--api-key=SHOWN", "SHOWN-TOO"],
        ["--api-key SHOWN"],
        ["--api-key", "-SHOWN"],
        ["--api_key", "SHOWN"],
        ["--api-k=SHOWN"],
        ["--api-key.x=SHOWN"],
        [{"--api-key": "SHOWN"}],
        [{"--api-key": ["SHOWN"]}],
        [{"--api-key=SHOWN": None}],
        ["--hf-token", "SHOWN"],
        [["--api-key", "SHOWN"]],
    ],
    ids=repr,
)
def test_a_key_in_the_extra_arguments_is_refused_and_dropped(extra):
    plan = plan_of(vllm_extra_args=["--seed", "1", *extra, "--enforce-eager"])
    assert plan["problems"] and "SHOWN" not in json.dumps(plan)
    words = plan["instances"][0]["serve_args"]
    assert words[3:] == ["--seed", "1", "--enforce-eager"]


def test_a_key_in_the_extra_arguments_has_a_place_of_its_own():
    (problem,) = plan_of(vllm_extra_args=["--api-key", "k"])["problems"]
    assert problem["code"] == "extra_args_reserved" and "vllm_api_key" in problem["remedy"]


def test_the_digests_of_a_plan_are_those_of_the_secrets():
    settings = {
        "vllm_api_key": "k",
        "vllm_instances": [{"name": "a", "secrets": {"B": 1}}, {"name": "b", "port": 8001}],
    }
    plan = plan_of(**settings)
    for instance in plan["instances"]:
        values = instance_secrets(settings)[instance["name"]]
        assert instance["container"]["secrets"] == [
            {"name": n, "digest": hashlib.sha256(f"{n}={values[n]}".encode()).hexdigest()} for n in sorted(values)
        ]


def test_without_secrets_there_is_no_environment_file():
    assert instance_of()["container"]["env_file"] is None
    assert instance_secrets({}) == {"ascend": {}}


def test_an_invalid_secret_is_a_problem_that_does_not_show_it():
    plan = plan_of(vllm_api_key="SHOWN VALUE", vllm_secrets={"A": "SHOWN\nVALUE"})
    assert codes(plan) == ["setting_invalid", "setting_invalid"]
    assert "SHOWN" not in json.dumps(plan)


@pytest.mark.parametrize(
    ("settings", "problem", "warning"),
    [
        ({"vllm_environment": {"VLLM_API_KEY": "k"}}, "secret_in_environment", None),
        ({"vllm_environment": {"MY_TOKEN": "k"}}, None, "secret_in_environment"),
        ({"vllm_environment": {"ASCEND_RT_VISIBLE_DEVICES": "3"}}, None, "environment_delicate"),
        *[
            ({"vllm_environment": {name: "/x"}}, None, "environment_delicate")
            for name in ("LD_LIBRARY_PATH", "LD_PRELOAD", "LD_AUDIT", "PATH", "HOME")
        ],
        ({"vllm_environment": {"A": "1"}, "vllm_secrets": {"A": "2"}}, "environment_duplicate", None),
        ({"vllm_api_key": "a", "vllm_secrets": {"VLLM_API_KEY": "b"}}, "environment_duplicate", None),
    ],
)
def test_delicate_variables(settings, problem, warning):
    plan = plan_of(**settings)
    assert codes(plan) == ([problem] if problem else [])
    assert warning is None or warning in codes(plan, "warnings")


# -- several instances -------------------------------------------------------------------------------------------------


def test_several_instances_share_a_host():
    plan = plan_of(
        npus=4,
        vllm_environment={"SHARED": "1"},
        vllm_extra_args=["--seed", "1"],
        vllm_instances=[
            {"name": "small", "npus": 1, "environment": {"OWN": 2}},
            {"name": "listed", "port": 8001, "npus": ["/dev/davinci0"], "extra_args": ["--seed", "2"]},
        ],
    )
    assert plan["problems"] == []
    small, listed = plan["instances"]
    assert (small["npus"], listed["npus"]) == (["/dev/davinci1"], ["/dev/davinci0"])
    assert small["container"]["environment"] == {"SHARED": "1", "OWN": "2"}
    assert (small["serve_args"][-1], listed["serve_args"][-1]) == ("1", "2")
    assert [i["container"]["name"] for i in plan["instances"]] == ["vllm-small", "vllm-listed"]
    assert small["plan_hash"] != listed["plan_hash"]


def test_an_instance_of_one_npu_needs_no_hccl_port():
    plan = plan_of("atlas_950dt", npus=2, vllm_instances=[{"name": "a"}, {"name": "b", "port": 8001}])
    assert plan["problems"] == []
    assert [i["container"]["environment"] for i in plan["instances"]] == [{}, {}]


def test_duplicate_names_and_ports_are_named_with_their_places():
    plan = plan_of(vllm_instances=[{"name": "a"}, {"name": "a"}, {"name": "b", "port": 8001}])
    assert codes(plan)[:2] == ["instance_duplicate", "port_duplicate"]
    message = plan["problems"][1]["message"]
    assert "8000" in message and "vllm_instances[0] (a), vllm_instances[1] (a)" in message


# -- parallel sizes ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "size"),
    [
        ({}, None),
        ({"vllm_npus": 1}, None),
        ({"vllm_npus": 4}, 4),
        ({"vllm_npus": "all"}, 4),
        ({"vllm_npus": "2"}, 2),
        ({"vllm_npus": 4, "vllm_tensor_parallel_size": 2}, 2),
        ({"vllm_tensor_parallel_size": 1}, 1),
        ({"vllm_npus": 4, "vllm_extra_args": ["--data-parallel-size", "2"]}, 2),
        ({"vllm_npus": 4, "vllm_extra_args": ["-pp", 2]}, 2),
    ],
)
def test_the_tensor_parallel_size(settings, size):
    facts = add_several_paths(build_facts(case_of("atlas_a2"), npus=4))
    instance = instance_of(facts=facts, **settings)
    assert instance["tensor_parallel_size"] == size
    assert words_after(instance["serve_args"], "--tensor-parallel-size") == ([str(size)] if size else [])


@pytest.mark.parametrize(
    "settings",
    [
        {"vllm_tensor_parallel_size": 2},
        {"vllm_npus": 4, "vllm_tensor_parallel_size": 8},
        {"vllm_npus": 4, "vllm_tensor_parallel_size": 4, "vllm_extra_args": ["--pipeline-parallel-size=2"]},
        {"vllm_npus": 4, "vllm_extra_args": ["--data-parallel-size", "3"]},
    ],
)
def test_a_size_that_the_nodes_do_not_give(settings):
    facts = add_several_paths(build_facts(case_of("atlas_a2"), npus=4))
    assert codes(plan_of(facts=facts, **settings)) == ["parallel_size_mismatch"]


def test_an_a3_die_alone_is_too_little_and_split_cards_are_a_warning():
    assert codes(plan_of("atlas_a3", npus=4, vllm_npus=1)) == ["npus_too_few"]
    facts = add_several_paths(build_facts(case_of("atlas_a3"), npus=4))
    plan = plan_of(facts=facts, vllm_npus=["/dev/davinci1", "/dev/davinci2"])
    assert plan["problems"] == [] and "card_split" in codes(plan, "warnings")


# -- hash --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "settings",
    [
        {"vllm_port": 8001},
        {"vllm_api_key": "k"},
        {"vllm_start_timeout": 60},
        {"vllm_extra_args": ["--seed", "1"]},
        {"vllm_environment": {"A": "1"}},
        {"vllm_ascend_version": "v0.22.1rc1"},
        {"vllm_npus": ["/dev/davinci1"]},
    ],
)
def test_what_makes_an_instance_changes_its_hash(settings):
    assert instance_of(**settings)["plan_hash"] != instance_of()["plan_hash"]


def test_what_does_not_make_an_instance_leaves_its_hash():
    registries = ["mirror.example", "quay.io"]
    assert instance_of(vllm_image_registries=registries)["plan_hash"] == instance_of()["plan_hash"]
    assert len(instance_of()["plan_hash"]) == 16
