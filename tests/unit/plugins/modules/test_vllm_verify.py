"""The module vllm_verify through main(): what goes in and comes out."""

from __future__ import annotations

import json

import pytest
from ansible.module_utils.testing import patch_module_args
from ansible_collections.vllm_ascend.fleet.plugins.module_utils.host_control import Host
from ansible_collections.vllm_ascend.fleet.plugins.modules import vllm_verify

from tests.unit.support.fleet_rig import NEW_IMAGE, FleetRig


@pytest.fixture
def rig(tmp_path, monkeypatch):
    made = FleetRig(tmp_path, monkeypatch)
    monkeypatch.setattr(vllm_verify, "Host", lambda engine: Host(engine, str(made.root)))
    yield made
    made.close()


@pytest.fixture
def run(rig, capsys):
    def call(check=False, **options):
        with patch_module_args({**options, "_ansible_check_mode": check}), pytest.raises(SystemExit) as end:
            vllm_verify.main()
        return end.value.code, json.loads(capsys.readouterr().out)

    return call


@pytest.mark.parametrize("check", [False, True])
def test_the_evidence_of_every_instance_comes_back(rig, run, check):
    plans = [rig.plan(name="a", npus=["/dev/davinci0"]), rig.plan(name="b", npus=["/dev/davinci1"])]
    code, result = run(instances=plans, check=check)
    assert (code, result["changed"]) == (0, False)
    assert [(one["name"], one["ok"], one["where"]) for one in result["instances"]] == [
        ("a", True, "throwaway"),
        ("b", True, "throwaway"),
    ]
    assert rig.world.containers == []


def test_a_failure_names_instance_and_line(rig, run):
    rig.does(NEW_IMAGE, verify="No available Ascend NPU detected in the container")
    code, result = run(instances=[rig.plan()])
    assert (code, result["failed"]) == (1, True)
    assert result["msg"].startswith("ascend: the verification script did not print")
    assert "No available Ascend NPU detected" in result["msg"]
    assert result["instances"][0]["ok"] is False


def test_an_engine_that_does_not_answer_is_said(rig, run):
    code, result = run(instances=[rig.plan()], engine_cli="/nowhere/docker")
    assert code == 1
    assert "/nowhere/docker" in result["msg"]
