# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The filters inside a real Ansible: templated variables in, the same as the pure functions out."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys

import pytest
import yaml
from ansible.errors import AnsibleFilterError
from ansible_collections.vllm_ascend.fleet.plugins.filter import (
    deployment_difference,
    deployment_plan,
    docker_run,
    hardware_paths,
    instance_secrets,
    shell_command,
)
from ansible_collections.vllm_ascend.fleet.plugins.module_utils import helper_install
from ansible_collections.vllm_ascend.fleet.plugins.module_utils.host_control import Host
from ansible_collections.vllm_ascend.fleet.plugins.plugin_utils import difference, plain, plan, profiles
from ansible_collections.vllm_ascend.fleet.tests.unit.support.facts_builder import (
    PROFILES,
    ROOT,
    build_facts,
    build_observed,
    case_of,
    shipped_profiles,
)

MODULES = [deployment_difference, deployment_plan, docker_run, hardware_paths, instance_secrets, shell_command]
SETTINGS = {"vllm_api_key": "k", "vllm_instances": [{"name": "ascend", "port": 8001, "extra_args": [{"--seed": 1}]}]}
PLAY = """
- hosts: localhost
  gather_facts: false
  vars:
    facts: "{{ lookup('ansible.builtin.file', folder ~ '/facts.json') | from_json }}"
    observed: "{{ lookup('ansible.builtin.file', folder ~ '/observed.json') | from_json }}"
    port: 8001
    settings:
      vllm_api_key: "{{ 'k' }}"
      vllm_image: "{{ none }}"
      vllm_instances:
        - name: ascend
          port: "{{ port }}"
          extra_args: [{--seed: 1}]
    plan: "{{ facts | vllm_ascend.fleet.deployment_plan(settings, shipped, observed) }}"
    results:
      plan: "{{ plan }}"
      difference: "{{ plan | vllm_ascend.fleet.deployment_difference(observed) }}"
      settled_helper: >-
        {{ (plan | vllm_ascend.fleet.deployment_difference(
              observed | combine({'helper': {'path': '/h', 'version': '1', 'digest': digest}}))).helper }}
      run: "{{ plan.instances[0].container | vllm_ascend.fleet.docker_run(name='job', published_ports=[]) }}"
      shell: "{{ plan.instances[0].serve_args | vllm_ascend.fleet.shell_command }}"
      paths: "{{ shipped | vllm_ascend.fleet.hardware_paths({}, settings) }}"
      secrets: "{{ settings | vllm_ascend.fleet.instance_secrets }}"
  tasks:
    - ansible.builtin.include_vars:
        dir: "{{ profiles_folder }}"
        name: shipped
    - ansible.builtin.copy:
        content: "{{ results | to_json }}"
        dest: "{{ folder }}/results.json"
        mode: "0600"
"""


def installed_digest(folder):
    """The digest of the helper as the module puts it on a host."""
    return helper_install.install(Host(root=str(folder)), check=True)["digest"]


def test_the_filters_inside_ansible(tmp_path):
    facts, observed = build_facts(case_of("atlas_300i_duo")), build_observed()
    (tmp_path / "facts.json").write_text(json.dumps(facts))
    (tmp_path / "observed.json").write_text(json.dumps(observed))
    (tmp_path / "play.yml").write_text(PLAY)
    done = subprocess.run(
        [
            str(pathlib.Path(sys.executable).parent / "ansible-playbook"), str(tmp_path / "play.yml"),
            "-i", "localhost,", "-c", "local",
            "-e", json.dumps({"folder": str(tmp_path), "profiles_folder": str(PROFILES)}),
            "-e", json.dumps({"digest": installed_digest(tmp_path)}),
            "-e", f"ansible_python_interpreter={sys.executable}",
        ],
        cwd=ROOT, capture_output=True, text=True, timeout=120, check=False,
        env={**os.environ, "ANSIBLE_COLLECTIONS_PATH": str(ROOT / ".ansible" / "collections")},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    results = json.loads((tmp_path / "results.json").read_text())
    expected = plan.deployment_plan(facts, SETTINGS, shipped_profiles(), observed)
    assert expected["problems"] == []
    assert results["plan"] == expected
    digest = deployment_difference.own_helper_digest()
    assert results["difference"] == difference.deployment_difference(expected, observed, digest)
    assert results["settled_helper"] is False
    assert "job" in results["run"] and "--publish" not in results["run"]
    assert results["shell"].startswith("vllm serve Qwen/Qwen3-0.6B --dtype float16")
    assert results["paths"] == profiles.profile_paths(shipped_profiles(), {}, SETTINGS)
    assert results["secrets"] == {"ascend": {"VLLM_API_KEY": "k"}}


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__.rpartition(".")[2])
def test_a_filter_has_its_documentation(module):
    name = module.__name__.rpartition(".")[2]
    assert list(module.FilterModule().filters()) == [name]
    documentation = yaml.safe_load(pathlib.Path(module.__file__).with_suffix(".yml").read_text())
    assert documentation["DOCUMENTATION"]["name"] == name
    assert documentation["RETURN"]["_value"]["description"]


@pytest.mark.parametrize(
    "call",
    [
        lambda: deployment_plan.deployment_plan(None, {}, {}),
        lambda: deployment_difference.deployment_difference(None),
        lambda: docker_run.docker_run({"name": "a"}, ports=[]),
        lambda: instance_secrets.instance_secrets(object()),
    ],
)
def test_a_callers_error_is_a_filter_error(call):
    with pytest.raises(AnsibleFilterError):
        call()


PLAN = plan.deployment_plan(build_facts(case_of("atlas_a2")), {}, shipped_profiles(), None)
CONTAINER = PLAN["instances"][0]["container"]
WRONG = [5, 1.5, True, [5], "x", None]


@pytest.mark.parametrize(
    ("call", "argument"),
    [
        (lambda value: deployment_plan.deployment_plan(value, {}, {}), "facts"),
        (lambda value: deployment_plan.deployment_plan({}, value, {}), "settings"),
        (lambda value: deployment_plan.deployment_plan({}, {}, value), "profiles"),
        (lambda value: deployment_difference.deployment_difference(value, {}), "plan"),
        (lambda value: docker_run.docker_run(value), "spec"),
        (lambda value: hardware_paths.hardware_paths(value), "shipped"),
        (lambda value: instance_secrets.instance_secrets(value), "settings"),
    ],
)
@pytest.mark.parametrize("value", WRONG, ids=repr)
def test_a_wrong_type_is_named_with_what_is_expected(call, argument, value):
    with pytest.raises(AnsibleFilterError) as failure:
        call(value)
    assert f"{argument} is of type {plain.kind_of(value)}" in str(failure.value)
    assert "expected is" in str(failure.value)


@pytest.mark.parametrize(
    "call",
    [
        lambda: deployment_difference.deployment_difference({"instances": 5}, {}),
        lambda: deployment_difference.deployment_difference({"instances": [{}]}, {}),
        lambda: deployment_difference.deployment_difference({"image": "x"}, {}),
        lambda: deployment_difference.deployment_difference(PLAN, {"instances": [5]}),
        lambda: deployment_plan.deployment_plan({"problems": [{}]}, {}, {}),
        lambda: docker_run.docker_run({}),
        lambda: docker_run.docker_run({**CONTAINER, "devices": "/dev/davinci0"}),
        lambda: docker_run.docker_run({**CONTAINER, "labels": "a=b"}),
        lambda: docker_run.docker_run({**CONTAINER, "mounts": ["/srv"]}),
        lambda: docker_run.docker_run({**CONTAINER, "name": 5}),
        lambda: shell_command.shell_command("vllm serve"),
        lambda: shell_command.shell_command(None),
        lambda: shell_command.shell_command({"a": 1}),
    ],
)
def test_a_wrong_shape_inside_is_a_filter_error_too(call):
    with pytest.raises(AnsibleFilterError, match="expected is"):
        call()


@pytest.mark.parametrize("value", [*WRONG, [], {}, "", {"atlas_a2": 5}, {"atlas_a2": {"mounts": 5}}], ids=repr)
def test_the_paths_need_no_sound_profiles_of_the_operators(value):
    shipped = hardware_paths.hardware_paths(shipped_profiles())
    found = hardware_paths.hardware_paths(shipped_profiles(), value, {"vllm_instances": value})
    assert "/usr/local/dcmi" in found and set(found) <= set(shipped)
