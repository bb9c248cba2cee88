"""The module vllm_model through main(): what goes in and comes out."""

from __future__ import annotations

import json

import pytest
from ansible.module_utils.testing import patch_module_args
from ansible_collections.vllm_ascend.fleet.plugins.module_utils.host_control import Host
from ansible_collections.vllm_ascend.fleet.plugins.modules import vllm_model

from tests.unit.support.model_rig import FILES, SECRET, ModelRig


@pytest.fixture
def rig(tmp_path, monkeypatch):
    made = ModelRig(tmp_path)
    monkeypatch.setattr(vllm_model, "Host", lambda engine: Host(engine, str(made.root)))
    return made


@pytest.fixture
def run(rig, capsys):
    def call(check=False, **options):
        options = {"engine_cli": rig.cli, **options}
        with patch_module_args({**options, "_ansible_check_mode": check}), pytest.raises(SystemExit) as end:
            vllm_model.main()
        return end.value.code, json.loads(capsys.readouterr().out)

    return call


def test_models_come_and_a_second_run_changes_nothing(rig, run):
    code, result = run(jobs=[rig.job()], secrets={"a": {"HF_TOKEN": SECRET}})
    assert (code, result["changed"], [one["ok"] for one in result["models"]]) == (0, True, [True])
    assert SECRET not in json.dumps(result)
    assert run(jobs=[rig.job()])[1]["changed"] is False


def test_one_model_that_fails_does_not_keep_the_others_back(rig, run):
    local = rig.job(source="local", model="/srv/none", argv=None)
    code, result = run(jobs=[local, rig.job()])
    assert (code, result["failed"], result["changed"]) == (1, True, True)
    assert [one["ok"] for one in result["models"]] == [False, True]
    assert result["msg"].startswith("/srv/none: it is not there. ")


def test_check_mode_says_what_would_come(rig, run):
    code, result = run(check=True, jobs=[rig.job()])
    assert (code, result["changed"], rig.runs()) == (0, True, [])


def test_files_of_a_folder_and_what_a_host_lacks_of_them(rig, run, tmp_path):
    source = tmp_path / "model"
    source.mkdir()
    for name, content in FILES.items():
        (source / name).write_text(content, encoding="utf-8")
    files = run(read=str(source))[1]["files"]
    assert [one["name"] for one in files] == ["model.bin", "tokenizer.json", "config.json"]
    code, result = run(offered={"/srv/m": files})
    assert (code, result["changed"]) == (0, False)
    assert result["wanted"] == {"/srv/m": ["model.bin", "tokenizer.json", "config.json"]}
    code, result = run(read=str(tmp_path / "none"))
    assert (code, [one["code"] for one in result["problems"]]) == (1, ["model_copy_missing"])
