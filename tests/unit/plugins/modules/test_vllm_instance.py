"""The module vllm_instance through main(): what goes in and comes out."""

from __future__ import annotations

import json

import pytest
from ansible.module_utils.testing import patch_module_args
from ansible_collections.vllm_ascend.fleet.plugins.module_utils.host_control import Host
from ansible_collections.vllm_ascend.fleet.plugins.modules import vllm_instance

from tests.unit.support.fleet_rig import KEY, NAME, NEW_IMAGE, FleetRig


@pytest.fixture
def rig(tmp_path, monkeypatch):
    made = FleetRig(tmp_path, monkeypatch)
    monkeypatch.setattr(vllm_instance, "Host", lambda engine: Host(engine, str(made.root)))
    yield made
    made.close()


@pytest.fixture
def run(rig, capsys):
    """Run the module; gives its exit code and what it printed."""

    def call(check=False, **options):
        with patch_module_args({**options, "_ansible_check_mode": check}), pytest.raises(SystemExit) as end:
            vllm_instance.main()
        return end.value.code, json.loads(capsys.readouterr().out)

    return call


def test_an_instance_comes_and_goes(rig, run):
    plan, secrets = rig.plan(), {NAME: {"VLLM_API_KEY": KEY}}
    code, result = run(instances=[plan], secrets=secrets, check=True)
    assert (code, result["changed"], rig.running()) == (0, True, {})
    code, result = run(instances=[plan], secrets=secrets)
    assert (code, result["changed"], result["instances"][0]["state"]) == (0, True, "serving")
    assert rig.serves(plan)
    code, result = run(instances=[plan], secrets=secrets)
    assert (code, result["changed"]) == (0, False)
    code, result = run(state="absent", names=[NAME])
    assert (code, result["changed"], rig.leftovers()) == (0, True, [])


def test_a_failure_is_the_module_s_and_shows_no_secret(rig, run):
    rig.does(NEW_IMAGE, start=f"Error: {KEY} is no key")
    code, result = run(instances=[rig.plan()], secrets={NAME: {"VLLM_API_KEY": KEY}})
    assert (code, result["failed"], result["failed_step"]) == (1, True, "start")
    assert "is no key" in result["msg"]
    assert result["state_now"] == "there is no vllm-ascend.service"
    invocation = result.pop("invocation")
    assert KEY not in json.dumps(invocation) + json.dumps(result)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, "state is present but all of the following are missing: instances"),
        ({"state": "absent"}, "state is absent but all of the following are missing: names"),
        ({"state": "paused"}, "value of state must be one of"),
        ({"instances": [], "instance": []}, "Unsupported parameters"),
        ({"instances": [], "verify": "maybe"}, "value of verify must be one of"),
    ],
)
def test_wrong_options_are_named(run, options, text):
    code, result = run(**options)
    assert code == 1
    assert text in result["msg"]


@pytest.mark.parametrize(
    ("connection", "who"),
    [
        ("10.0.0.1 50022 10.0.0.2 22", "vllm_instance from 10.0.0.1"),
        ("", "vllm_instance on this host"),
        (" ", "vllm_instance on this host"),
        (None, "vllm_instance on this host"),
    ],
)
def test_who_asks_is_in_the_request(rig, run, monkeypatch, connection, who):
    monkeypatch.delenv("SSH_CONNECTION", raising=False)
    if connection is not None:
        monkeypatch.setenv("SSH_CONNECTION", connection)
    assert run(instances=[rig.plan()], secrets={NAME: {"VLLM_API_KEY": KEY}})[0] == 0
    with open(rig.host.state(NAME, "request.json"), encoding="utf-8") as stream:
        assert json.load(stream)["who"] == who
