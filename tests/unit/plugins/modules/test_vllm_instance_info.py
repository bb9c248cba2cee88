"""vllm_instance_info: the module through its main()."""

from __future__ import annotations

import json
import pathlib
import re

import pytest
import yaml
from ansible.module_utils.testing import patch_module_args
from ansible_collections.vllm_ascend.fleet.plugins.module_utils import instance_state
from ansible_collections.vllm_ascend.fleet.plugins.modules import vllm_instance_info

from tests.unit.support.recorded_hosts import DOCKER, RecordedHost, docker_20, record, systemd_records

CONTRACT = {"engine", "systemd", "listeners", "instances", "foreign", "images", "models", "helper"}


@pytest.fixture
def run(capsys):
    def call(**args):
        with patch_module_args(args), pytest.raises(SystemExit):
            vllm_instance_info.main()
        return json.loads(capsys.readouterr().out)

    return call


@pytest.fixture
def host(tmp_path):
    unit = "Id=vllm-ascend.service\nActiveState=active\nSubState=running\n"
    host = RecordedHost(tmp_path).file(DOCKER).file(instance_state.env_path("ascend"), "VLLM_API_KEY=sk-hidden\n")
    host.file(instance_state.unit_path("ascend"), instance_state.UNIT_MARK + "\n")
    return host.calls(docker_20()).calls(systemd_records(["ascend"], unit))


@pytest.mark.parametrize("check", [False, True])
def test_a_replay_is_read_and_nothing_is_changed(run, host, check):
    before = {path: path.stat().st_mtime_ns for path in host.root.rglob("*")}
    result = run(sysroot=str(host.root), _ansible_check_mode=check)
    assert result["changed"] is False
    assert set(result["observed"]) == CONTRACT
    assert [entry["name"] for entry in result["observed"]["instances"]] == ["ascend"]
    assert result["observed"]["engine"]["kind"] == "docker"
    assert "sk-hidden" not in json.dumps(result)
    assert {path: path.stat().st_mtime_ns for path in host.root.rglob("*")} == before


def test_nothing_of_a_replay_is_run(run, host):
    trap = host.root / "usr/bin/docker"
    trap.write_text(f"#!/bin/sh\ntouch {host.root}/ran\n")
    trap.chmod(0o755)
    host.calls([record(["systemctl", "status"], "not asked")])
    assert run(sysroot=str(host.root))["observed"]["engine"]["cli"] == "/usr/bin/docker"
    assert not (host.root / "ran").exists()


@pytest.mark.parametrize("options", [{}, {"ports": [8080]}, {"ports": []}])
def test_listeners_of_every_port_whatever_ports_are_of_interest(run, host, options):
    listeners = run(sysroot=str(host.root), **options)["observed"]["listeners"]
    assert {one["port"] for one in listeners} == {8000, 8080}


@pytest.mark.parametrize(
    "args, message",
    [
        ({"sysroot": "/nowhere/at/all"}, "sysroot '/nowhere/at/all' is not a folder on this machine"),
        ({"probe": "deep"}, "value of probe must be one of: completion, health, none, got: deep"),
        ({"ports": ["http"]}, "ports"),
    ],
)
def test_what_it_refuses(run, args, message):
    result = run(**args)
    assert result["failed"] is True
    assert message in result["msg"]


def test_records_that_are_no_json(run, host):
    host.file("recorded/commands.json", "{")
    result = run(sysroot=str(host.root))
    assert result["failed"] is True
    assert f"/recorded/commands.json below {host.root} is not JSON" in result["msg"]


def test_the_documentation_names_what_is_returned_and_accepted(run, host):
    returned = yaml.safe_load(vllm_instance_info.RETURN)["observed"]["contains"]
    assert set(returned) == CONTRACT == set(run(sysroot=str(host.root))["observed"])
    options = yaml.safe_load(vllm_instance_info.DOCUMENTATION)["options"]
    source = pathlib.Path(vllm_instance_info.__file__).read_text()
    assert set(re.findall(r'^            "(\w+)": \{"type"', source, re.MULTILINE)) == set(options)
