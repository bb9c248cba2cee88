# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The unit's text, read as systemd reads it."""

from __future__ import annotations

import pytest
from ansible_collections.vllm_ascend.fleet.plugins.plugin_utils.plan import deployment_plan
from ansible_collections.vllm_ascend.fleet.tests.unit.support.facts_builder import (
    build_facts,
    build_observed,
    case_of,
    shipped_profiles,
)
from ansible_collections.vllm_ascend.fleet.tests.unit.support.systemd_syntax import settings as unit_settings
from ansible_collections.vllm_ascend.fleet.tests.unit.support.systemd_syntax import split_command

HELPER = "/usr/local/libexec/vllm-ascend/host.py"


def instance_of(family="atlas_300i_duo", observed=None, facts=None, **settings):
    plan = deployment_plan(facts or build_facts(case_of(family)), settings, shipped_profiles(), observed)
    assert plan["problems"] == []
    return plan["instances"][0]


def service(instance):
    pairs = unit_settings(instance["unit"]["text"])["Service"]
    assert len({key for key, _value in pairs}) == len(pairs)
    return dict(pairs)


def test_the_unit_starts_exactly_the_rendered_command():
    instance = instance_of(
        vllm_api_key="k", vllm_environment={"A": 'a "b" $c %d \\e'}, vllm_extra_args=["--x", "y z;#"]
    )
    argv = split_command(service(instance)["ExecStart"])
    assert argv[0] == "/usr/bin/docker"
    assert argv[1:] == instance["docker_run"][1:]


def test_programs_are_those_of_the_host():
    facts = build_facts(case_of("atlas_a2"))
    observed = build_observed()
    observed["engine"]["cli"] = "/usr/local/bin/docker"
    found = service(instance_of(facts=facts, observed=observed))
    assert split_command(found["ExecStart"])[0] == "/usr/local/bin/docker"
    assert split_command(found["ExecStartPre"])[:2] == ["/usr/bin/python3.9", HELPER]
    facts["host"]["python"] = None
    assert split_command(service(instance_of(facts=facts))["ExecStartPre"])[0] == "/usr/bin/python3"


def test_the_helper_gets_what_it_needs():
    found = service(instance_of(vllm_api_key="k", vllm_node_timeout=10, vllm_start_timeout=20))
    assert split_command(found["ExecStartPre"])[2:] == [
        "pre-start", "--instance", "ascend", "--container", "vllm-ascend",
        "--image", "quay.io/ascend/vllm-ascend:v0.23.0-310p", "--node-timeout", "10",
        "--node", "/dev/davinci0", "--node", "/dev/davinci_manager", "--node", "/dev/devmm_svm",
        "--node", "/dev/hisi_hdc",
    ]  # fmt: skip
    gate = found["ExecStartPost"].removesuffix(" --main-pid $MAINPID")
    assert gate != found["ExecStartPost"]
    assert split_command(gate)[2:] == [
        "gate", "--container", "vllm-ascend", "--network", "bridge", "--port", "8000", "--model", "Qwen/Qwen3-0.6B",
        "--env-file", "/etc/vllm-ascend/ascend.env", "--timeout", "20",
    ]  # fmt: skip
    assert split_command(found["ExecStopPost"].removeprefix("-"))[2:] == ["post-stop", "--container", "vllm-ascend"]


def test_on_the_host_network_the_gate_asks_the_hosts_port():
    gate = split_command(service(instance_of("atlas_950dt", vllm_port=8100))["ExecStartPost"].rpartition(" --main")[0])
    assert gate[gate.index("--network") + 1 :][:3] == ["host", "--port", "8100"]
    assert "--env-file" not in gate


def test_restarts_and_time_limits():
    found = service(instance_of(vllm_node_timeout=900, vllm_start_timeout=1800, vllm_stop_timeout=45))
    assert found["ExecStop"] == "-/usr/bin/docker stop -t 45 vllm-ascend"
    limits = {key: found[key] for key in ("TimeoutStartSec", "TimeoutStopSec", "Restart", "RestartSec")}
    assert limits == {"TimeoutStartSec": "2820", "TimeoutStopSec": "75", "Restart": "always", "RestartSec": "10"}
    assert (found["Type"], found["RestartPreventExitStatus"], found["SuccessExitStatus"]) == ("exec", "2", "130 143")


def test_the_unit_waits_for_docker_but_does_not_bind_to_it():
    sections = unit_settings(instance_of()["unit"]["text"])
    assert ("Wants", "docker.service network-online.target") in sections["Unit"]
    assert ("After", "docker.service network-online.target") in sections["Unit"]
    assert ("StartLimitIntervalSec", "0") in sections["Unit"]
    assert "Requires" not in dict(sections["Unit"])
    assert sections["Install"] == [("WantedBy", "multi-user.target")]


def test_the_unit_is_marked_as_ours_with_its_plan():
    instance = instance_of()
    lines = instance["unit"]["text"].split("\n")
    assert lines[0] == "# vllm_ascend.fleet instance"
    assert lines[1].startswith(f"# plan {instance['plan_hash']};")


def test_secrets_are_not_in_the_unit():
    assert "TOP-SECRET" not in instance_of(vllm_api_key="TOP-SECRET")["unit"]["text"]


@pytest.mark.parametrize("name", ["100% \\", "a\\", "%n", "名 $x"])
def test_a_served_name_does_not_break_the_unit(name):
    instance = instance_of(vllm_served_model_name=name)
    found = service(instance)
    assert split_command(found["ExecStart"])[1:] == instance["docker_run"][1:]
    assert "Documentation" in dict(unit_settings(instance["unit"]["text"])["Unit"])


def test_what_no_unit_can_hold_is_a_problem():
    facts = build_facts(case_of("atlas_a2"))
    plan = deployment_plan(facts, {"vllm_extra_args": ["--x", "\ud800"]}, shipped_profiles())
    assert [problem["code"] for problem in plan["problems"]] == ["value_unwritable"]
    assert plan["instances"] == []
