"""The module vllm_offline through main(): what goes in and comes out."""

from __future__ import annotations

import json

import pytest
from ansible.module_utils.testing import patch_module_args
from ansible_collections.vllm_ascend.fleet.plugins.module_utils.host_control import Host
from ansible_collections.vllm_ascend.fleet.plugins.modules import vllm_offline

from tests.unit.support.offline_rig import PROMPTS, SECRET, OfflineRig


@pytest.fixture
def rig(tmp_path, monkeypatch):
    made = OfflineRig(tmp_path)
    monkeypatch.setattr(vllm_offline, "Host", lambda engine: Host(engine, str(made.root)))
    return made


@pytest.fixture
def run(rig, capsys):
    def call(check=False, **options):
        options = {"job": rig.job(), "prompts": rig.text(), "engine_cli": rig.cli, **options}
        with patch_module_args({**options, "_ansible_check_mode": check}), pytest.raises(SystemExit) as end:
            vllm_offline.main()
        return end.value.code, json.loads(capsys.readouterr().out)

    return call


def test_a_result_for_each_prompt(run):
    code, result = run(sampling={"max_tokens": 3}, secrets={"HF_TOKEN": SECRET})
    assert (code, result["changed"], result["missing"], result["empty"]) == (0, True, [], [])
    assert [entry["text"] for entry in result["outputs"]] == ["text of " + prompt for prompt in PROMPTS]
    assert SECRET not in json.dumps(result) and "vllm-offline 1" not in json.dumps(result)


def test_a_prompt_without_a_result_is_named_and_the_others_are_there(rig, run):
    rig.does(answers=2, done=False, rc=1, said="RuntimeError: device is used, ret is -8020")
    code, result = run()
    assert (code, result["failed"], result["missing"]) == (1, True, [2])
    assert "1 has no output (prompt 2)" in result["msg"]
    assert len(result["outputs"]) == 2
    assert "-8020" in result["log"]


def test_check_mode_runs_nothing(rig, run):
    code, result = run(check=True)
    assert (code, result["changed"], rig.runs()) == (0, True, [])


def test_check_mode_says_what_is_in_the_way(rig, run):
    rig.leave({})
    code, result = run(check=True)
    assert (code, "no offline job made" in result["msg"]) == (1, True)


def test_prompts_that_cannot_be_read_are_said(run):
    code, result = run(prompts="what")
    assert (code, "the prompts cannot be read" in result["msg"]) == (1, True)
