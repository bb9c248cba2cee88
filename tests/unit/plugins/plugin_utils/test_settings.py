# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Settings: defaults, conversions, and a problem with value and place for everything that is wrong."""

from __future__ import annotations

import pytest
from ansible_collections.vllm_ascend.fleet.plugins.plugin_utils.plain import Findings, plain
from ansible_collections.vllm_ascend.fleet.plugins.plugin_utils.settings import (
    INSTANCE_SETTINGS,
    SETTINGS,
    resolve_settings,
)


def resolve(**given):
    findings = Findings()
    return resolve_settings(given, findings), findings


def test_without_settings_there_is_one_default_instance():
    values, findings = resolve()
    assert (findings.problems, findings.warnings) == ([], [])
    (instance,) = values["vllm_instances"]
    assert instance["name"] == "ascend"
    assert set(instance) == {"name", *INSTANCE_SETTINGS}
    assert (instance["model"], instance["port"], instance["npus"]) == ("Qwen/Qwen3-0.6B", 8000, None)


def test_every_default_is_valid_itself():
    defaults = {setting.name: plain(setting.default) for setting in SETTINGS}
    assert resolve(**defaults)[1].problems == []


def test_null_and_the_empty_string_of_older_cores_are_the_default():
    given = {s.name: "" for s in SETTINGS if s.default is None or not isinstance(s.default, str)}
    values, findings = resolve(**given)
    assert findings.problems == []
    assert (values["vllm_port"], values["vllm_api_key"], values["vllm_environment"]) == (8000, None, {})
    assert resolve(**{s.name: None for s in SETTINGS})[0] == resolve()[0]


@pytest.mark.parametrize(
    ("name", "given", "value"),
    [
        ("vllm_port", "8001", 8001),
        ("vllm_npus", " 2 ", 2),
        ("vllm_npus", "all", "all"),
        ("vllm_npus", ["/dev/davinci3"], ["/dev/davinci3"]),
        ("vllm_adopt_containers", "yes", True),
        ("vllm_adopt_containers", "False", False),
        ("vllm_served_model_name", 7, "7"),
        ("vllm_image_registries", ["localhost:5000/quay.io"], ["localhost:5000/quay.io"]),
        *[
            ("vllm_model_cache", path, path)
            for path in ("/var/lib/models", "/usr/local/models", "/home", "/runs", "/etcd")
        ],
        *[
            ("vllm_image", reference, reference)
            for reference in (
                "name:1",
                "team/name:v1_2.x-3",
                "localhost/name:1",
                "Hub.example:5000/team/a__b--c.d:1",
                "[::1]:5000/name:1",
                f"name:1@sha256:{'0' * 64}",
                f"hub.example/name@sha256:{'0' * 64}",
            )
        ],
        ("vllm_start_timeout", 86400, 86400),
    ],
)
def test_values_are_converted(name, given, value):
    values, findings = resolve(**{name: given})
    assert findings.problems == []
    assert values[name] == value


WRONG = [
    ("vllm_ascend_version", "v0.23.0-310p", '"v0.23.0"'),
    ("vllm_ascend_version", "0.23.0", '"v0.23.0"'),
    ("vllm_ascend_version", "a b", "v0.23.0"),
    ("vllm_image", "Not An Image", "image reference"),
    ("vllm_image", "name@sha256:12", "image reference"),
    ("vllm_image_os", "ubunto", 'did you mean "ubuntu"?'),
    ("vllm_image_registries", [], "at least one"),
    ("vllm_image_registries", "quay.io", "a list"),
    ("vllm_image_registries", ["https://quay.io"], "without scheme"),
    ("vllm_image_registries", ["quay.io/"], "last slash"),
    ("vllm_image_repository", "/ascend", "repository"),
    ("vllm_image_digest", "sha256:abc", "64 hexadecimal"),
    ("vllm_image_pull", "sometimes", "missing, always, never"),
    ("vllm_model_source", "hugingface", 'did you mean "huggingface"?'),
    ("vllm_model_cache", "cache", "absolute path"),
    ("vllm_model_cache", "/", "absolute path"),
    ("vllm_model_cache", "/srv/../root", "absolute path"),
    *[
        ("vllm_model_cache", path, "a folder of its own")
        for path in (
            "/dev",
            "/etc/",
            "//etc",
            "/./etc",
            "/usr",
            "/proc",
            "/sys",
            "/boot",
            "/var",
            "/bin",
            "/sbin",
            "/lib",
            "/lib64",
            "/run",
            "/dev/shm",
            "/etc/models",
            "/proc/1/root",
            "/sys/fs",
            "/boot/efi",
            "/run/user/0",
        )
    ],
    ("vllm_hf_endpoint", "hub.example", "http"),
    ("vllm_npus", 0, "at least 1"),
    ("vllm_npus", True, "a count"),
    ("vllm_npus", 1.5, "a count"),
    ("vllm_npus", 1.0, "a count"),
    ("vllm_npus", [1.5], "no node number"),
    ("vllm_tensor_parallel_size", 1.5, "whole number"),
    ("vllm_node_timeout", True, "whole number"),
    ("vllm_start_timeout", 60.0, "whole number"),
    ("vllm_start_timeout", 86401, "at most 86400"),
    ("vllm_stop_timeout", 86401, "at most 86400"),
    ("vllm_node_timeout", 86401, "at most 86400"),
    ("vllm_shutdown_timeout", 86401, "at most 86400"),
    ("vllm_port", "9" * 5000, "whole number"),
    ("vllm_image", 5, "with one tag"),
    ("vllm_image", 1.5, "with one tag"),
    ("vllm_image", "quay.io/ascend/vllm-ascend", "with one tag"),
    ("vllm_image", "quay.io/Ascend/vllm-ascend:v1", "small letters"),
    ("vllm_image", "Ascend/vllm-ascend:v1", "small letters"),
    ("vllm_image", "quay.io/ascend/vllm-ascend:v1:v2", "with one tag"),
    ("vllm_image", "quay.io/ascend//vllm-ascend:v1", "image reference"),
    ("vllm_image", "quay.io/ascend/vllm-ascend:-v1", "image reference"),
    ("vllm_image_archive", "images/vllm.tar", "absolute path"),
    ("vllm_served_model_name", "--port", 'not start with "-"'),
    ("vllm_npus", "some", '"all"'),
    ("vllm_npus", {}, '"all"'),
    ("vllm_npus", [], "device nodes"),
    ("vllm_npus", [0, 1], "no node number"),
    ("vllm_npus", ["davinci0"], "/dev/davinci0"),
    ("vllm_npus", ["/dev/davinci0", "/dev/davinci0"], "once"),
    ("vllm_tensor_parallel_size", 0, "at least 1"),
    ("vllm_port", 0, "at least 1"),
    ("vllm_port", 70000, "at most 65535"),
    ("vllm_port", "http", "whole number"),
    ("vllm_port", 8000.5, "whole number"),
    ("vllm_port", True, "whole number"),
    ("vllm_bind_address", "localhost", "IP address"),
    ("vllm_extra_args", "--seed 1", "a list"),
    ("vllm_environment", ["A=1"], "a dictionary"),
    ("vllm_environment", {"A B": "1"}, "A B"),
    ("vllm_environment", {"A": True}, "quotes"),
    ("vllm_environment", {"A": "1\n2"}, "one line"),
    ("vllm_environment", {"A": None}, "quotes"),
    ("vllm_hardware_family", "Atlas A2", "family"),
    ("vllm_adopt_containers", "perhaps", "true or false"),
    ("vllm_start_timeout", 0, "at least 1"),
    ("vllm_stop_timeout", -1, "at least 1"),
    ("vllm_served_model_name", "a\nb", "one line"),
    ("vllm_served_model_name", "  ", "not empty"),
    ("vllm_model", ["a"], "text"),
    ("vllm_instances", {}, "a list"),
    ("vllm_instances", [], "at least one"),
    ("vllm_golden", {"prompt": "a"}, 'text as "answer"'),
    ("vllm_golden", {"prompt": " ", "answer": "b"}, 'text as "prompt"'),
    ("vllm_golden", {"prompt": "a", "answer": "b", "most": 3}, "prompt, answer, max_tokens, not most"),
    ("vllm_golden", {"prompt": "a", "answer": "b", "max_tokens": 0}, 'from 1 to 1024 as "max_tokens"'),
    ("vllm_golden", ["a"], "a dictionary"),
    ("vllm_decode_tokens", 0, "at least 1"),
]


@pytest.mark.parametrize(("name", "given", "part"), WRONG)
def test_a_wrong_value_is_named_with_what_is_expected(name, given, part):
    values, findings = resolve(**{name: given})
    (problem,) = findings.problems
    assert problem["code"] == "setting_invalid"
    assert problem["message"].startswith(f"{name} is {given!r}; expected is ")
    assert part in problem["message"]
    assert values["vllm_instances"][0]["name"] == "ascend"


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("vllm_api_key", "SHOWN KEY"),
        ("vllm_hf_token", "SHOWN TOKEN"),
        ("vllm_secrets", {"A": "SHOWN\n"}),
        ("vllm_proxy", {"http": "http://u:SHOWN @p"}),
        ("vllm_proxy", {"htp": "SHOWN"}),
    ],
)
def test_a_secret_value_is_not_shown(name, given):
    (problem,) = resolve(**{name: given})[1].problems
    assert name in problem["message"] and "SHOWN" not in problem["message"]


@pytest.mark.parametrize(
    "given",
    [
        {"vllm_hf_endpoint": "ftp://user:SHOWN@hub.example"},
        {"vllm_hf_endpoint": "user:SHO/SHOWN@hub.example"},
        {"vllm_image": "https://user:SHOWN@hub.example/x:1"},
        {"vllm_image_registries": ["user:SHOWN@hub.example"]},
        {"vllm_extra_args": "--api-key SHOWN"},
        {"vllm_extra_args": {"--api-key": "SHOWN"}},
        {"vllm_instances": {"name": "a", "api_key": "SHOWN"}},
        {"vllm_instances": [["--api-key", "SHOWN"]]},
        {"vllm_environment": ["HTTP_PROXY=http://user:p/SHOWN@proxy"]},
        {"vllm_environment": {"A": True, "MY_TOKEN": "SHOWN"}},
        {"vllm_instances": [{"name": "a", "secrets": {"A": "SHOWN\n"}, "api_key": "SHOWN KEY"}]},
    ],
    ids=repr,
)
def test_a_secret_in_the_wrong_place_is_not_shown_either(given):
    problems = resolve(**given)[1].problems
    assert problems and all("SHOWN" not in problem["message"] for problem in problems)


def test_all_problems_are_found_at_once():
    given = {name: value for name, value, _part in WRONG}
    places = {problem["message"].split(" ", 1)[0] for problem in resolve(**given)[1].problems}
    assert places == set(given)


def test_a_setting_nobody_knows_is_a_warning_with_the_nearest_name():
    warning = resolve(vllm_modle="x")[1].warnings[0]
    assert (warning["code"], 'did you mean "vllm_model"?' in warning["message"]) == ("setting_unknown", True)


@pytest.mark.parametrize(
    ("entry", "code", "part"),
    [
        ({"name": "a", "modle": "x"}, "setting_unknown_key", '"modle" (did you mean "model"?)'),
        ({"name": "a", "port": "x"}, "setting_invalid", "vllm_instances[0].port is 'x'"),
        ({"name": "a", "port": 8000.0}, "setting_invalid", "vllm_instances[0].port is 8000.0"),
        ({"name": "a", "npus": 1.5}, "setting_invalid", "vllm_instances[0].npus is 1.5"),
        ({"name": "a", "npus": True}, "setting_invalid", "vllm_instances[0].npus is True"),
        ({"name": "A"}, "instance_name_invalid", "vllm_instances[0].name is 'A'"),
        ({"name": "-a"}, "instance_name_invalid", "'-a'"),
        ({"name": "a" * 32}, "instance_name_invalid", "at most 31"),
        ({}, "instance_name_invalid", "''"),
        ({"name": 7}, "instance_name_invalid", "7"),
        ("a", "setting_invalid", "vllm_instances[0] is 'a'"),
        ({"name": "a", "stop_timeout": 30, "shutdown_timeout": 30}, "setting_invalid", "stop timeout of 30 s"),
    ],
)
def test_an_instance_that_is_wrong(entry, code, part):
    problem = resolve(vllm_instances=[entry])[1].problems[0]
    assert problem["code"] == code
    assert part in problem["message"]


def test_an_instance_overrides_the_host_and_adds_to_its_dictionaries():
    values, findings = resolve(
        vllm_port=9000,
        vllm_bind_address="127.0.0.1",
        vllm_environment={"A": "1", "B": "1"},
        vllm_instances=[{"name": "a", "port": 9001, "environment": {"B": "2"}, "bind_address": None}],
    )
    assert findings.problems == []
    (instance,) = values["vllm_instances"]
    assert (instance["port"], instance["bind_address"]) == (9001, "127.0.0.1")
    assert instance["environment"] == {"A": "1", "B": "2"}


def test_an_archive_is_not_pulled():
    (problem,) = resolve(vllm_image_archive="/srv/i.tar", vllm_image_pull="always")[1].problems
    assert "archive" in problem["message"]


class Text(str):
    """A tagged string."""


def test_plain_values_are_exactly_plain():
    value = plain({Text("k"): (Text("v"), 1, True, None, 1.5)})
    assert value == {"k": ["v", 1, True, None, 1.5]}
    assert type(next(iter(value))) is str and type(value["k"][0]) is str
    with pytest.raises(TypeError):
        plain(object())
    with pytest.raises(TypeError):
        plain(b"x")
