"""Models are fetched by a container, copied and checked; docker is played by fake_fetch.py."""

from __future__ import annotations

import json
import threading
import time

import pytest
from ansible_collections.vllm_ascend.fleet.plugins.module_utils import model_fetch

from tests.unit.support.model_rig import CONTAINER, FILES, NAME, NO, SECRET, ModelRig


@pytest.fixture
def rig(tmp_path):
    return ModelRig(tmp_path)


def codes(result):
    return [problem["code"] for problem in result["problems"]]


def test_a_model_is_fetched_once_and_its_list_kept(rig):
    result = rig.get(secrets={"HF_TOKEN": SECRET, "VLLM_API_KEY": "sk-endpoint"})
    assert (result["ok"], result["action"], result["changed"], result["files"]) == (True, "fetch", True, 3)
    assert result["client"] == "huggingface_hub 1.21.0"
    (run,) = rig.runs()
    assert (run["env"], run["mode"]) == (f"HF_TOKEN={SECRET}\n", "0o600")
    assert SECRET not in " ".join(run["argv"])
    assert "What fetches a model inside the container" in run["script"]
    assert rig.left() == [NAME + ".json", NAME + ".lock"]
    again = rig.get()
    assert (again["ok"], again["action"], again["changed"], len(rig.runs())) == (True, "none", False, 1)
    newest = rig.get(fetch="always")
    assert (newest["ok"], newest["action"], newest["changed"], len(rig.runs())) == (True, "fetch", False, 2)


def test_check_mode_and_never_fetch_nothing(rig):
    result = rig.get(check_mode=True)
    assert (result["ok"], result["action"], result["changed"]) == (True, "fetch", True)
    never = rig.get(fetch="never")
    assert (never["ok"], never["action"], codes(never)) == (False, "none", ["model_incomplete"])
    assert (rig.runs(), rig.left()) == ([], [])


def test_a_fetch_that_left_something_out_fails(rig):
    rig.does(makes=rig.model(["config.json", "tokenizer.json"]))
    result = rig.get()
    assert codes(result) == ["model_incomplete"]
    assert "there are no weight files" in result["problems"][0]["message"]


@pytest.mark.parametrize(
    ("scenario", "code", "said"),
    [
        ({"result": dict(NO, code="model_fetch_denied", message=f"no, {SECRET}")}, "model_fetch_denied", "no, *"),
        ({"result": dict(NO, code="other", message="odd")}, "model_fetch_failed", "odd"),
        ({"result": None, "rc": 124}, "model_fetch_timeout", "60 s"),
        ({"result": None, "rc": 125, "said": "docker: Error response from daemon: boom"}, "model_fetch_failed", "boom"),
    ],
)  # fmt: skip
def test_failures_are_named_without_secrets(rig, scenario, code, said):
    rig.does(makes={}, **scenario)
    result = rig.get(secrets={"HF_TOKEN": SECRET})
    assert (result["ok"], codes(result)) == (False, [code])
    assert said in result["problems"][0]["message"]
    assert result["problems"][0]["remedy"]
    assert SECRET not in json.dumps(result)
    assert rig.left() == [NAME + ".lock"]


def test_a_client_of_the_wrong_version_gets_the_commands_for_an_image(rig):
    rig.does(makes={}, result={"ok": False, "code": "model_client_version", "message": "the image has modelscope 1.40"})
    (problem,) = rig.get(changes={"source": "modelscope"})["problems"]
    assert "It must be modelscope>=1.18.1,<1.38." in problem["remedy"]
    for part in ("FROM image\\nRUN pip install", "docker build", "vllm_image: local/vllm-ascend:models"):
        assert part in problem["remedy"]


def test_a_container_that_a_killed_run_left_is_removed_and_one_of_others_is_not(rig):
    container = rig.folder / (CONTAINER + ".container")
    container.write_text(json.dumps({"pid": 2**22 + 1, "labels": {"vllm-ascend.role": "model"}}), encoding="utf-8")
    assert rig.get()["ok"]
    container.write_text(json.dumps({"pid": 2**22 + 1, "labels": {}}), encoding="utf-8")
    result = rig.get(fetch="always")
    assert codes(result) == ["model_fetch_failed"]
    assert "that no fetch made" in result["problems"][0]["message"]
    assert container.exists()


def test_two_runs_do_not_fetch_the_same_model_at_once(rig):
    rig.does(sleep_s=1.5)
    first = threading.Thread(target=rig.get)
    first.start()
    deadline = time.monotonic() + 10
    while not rig.runs() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert codes(rig.get(fetch="always")) == ["model_fetch_busy"]
    first.join()
    assert len(rig.runs()) == 1


def test_a_lost_connection_ends_the_container(rig, monkeypatch):
    rig.does(sleep_s=60)
    monkeypatch.setattr(model_fetch, "reader_gone", lambda: bool(rig.runs()))
    result = rig.get()
    assert codes(result) == ["model_fetch_failed"]
    assert list(rig.folder.glob("*.container")) == []
    assert rig.left() == [NAME + ".lock"]


def test_a_local_folder_is_checked_and_copied(rig):
    source = rig.root / "share/m"
    source.mkdir(parents=True)
    for name, content in FILES.items():
        (source / name).write_text(content, encoding="utf-8")
    local = {"source": "local", "model": "/srv/models/m", "argv": None}
    assert codes(rig.get(changes=local)) == ["model_incomplete"]
    shared = dict(local, copy_from="/share/m", copy_on="host")
    result = rig.get(changes=shared)
    assert (result["ok"], result["action"], result["changed"], result["files"]) == (True, "copy", True, 3)
    again = rig.get(changes=shared)
    assert (again["ok"], again["action"], again["changed"]) == (True, "none", False)
    assert codes(rig.get(changes=dict(shared, model="/srv/models/n", copy_from="/share/n"))) == ["model_copy_missing"]


def test_what_the_host_lacks_of_a_folder_on_the_controller(rig):
    folder = rig.root / "srv/m"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}", encoding="utf-8")
    files = [{"name": "config.json", "size": 2}, {"name": "model.bin", "size": 7}]
    assert model_fetch.lacking(rig.host, {"/srv/m": files}, "size") == {"/srv/m": ["model.bin"]}
    assert model_fetch.lacking(rig.host, {"/srv/m": files}, "checksum") == {"/srv/m": ["model.bin", "config.json"]}
