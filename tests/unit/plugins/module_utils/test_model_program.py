"""What runs in the container of a fetch, with clients that play the hubs'."""

from __future__ import annotations

import errno
import json
import sys
import types

import pytest
from ansible_collections.vllm_ascend.fleet.plugins.module_utils import model_program

SHARDS = ["a.safetensors", "b.safetensors"]
REQUEST = {"source": "huggingface", "model": "org/m", "revision": None, "attempts": 3, "versions": ["1.18.1", "1.38"]}


class Answered(Exception):
    """An HTTP error of a client."""

    def __init__(self, status):
        super().__init__(f"status {status}")
        self.response = types.SimpleNamespace(status_code=status)


class GatedRepoError(Answered):
    """As huggingface_hub has it."""


class RepositoryNotFoundError(Answered):
    """As huggingface_hub has it."""


class LocalEntryNotFoundError(Exception):
    """As huggingface_hub has it."""


class ReadTimeout(Exception):
    """As httpx has it."""


class Hub:
    """huggingface_hub with one model; failures are raised one after the other by the download."""

    def __init__(self, monkeypatch, cache, names, failures=()):
        self.failures, self.patterns, self.calls = list(failures), None, 0
        siblings = [types.SimpleNamespace(rfilename=name, size=3, blob_id="b" * 40, lfs=None) for name in names]
        siblings[0].lfs = types.SimpleNamespace(sha256="a" * 64, size=3)
        info = types.SimpleNamespace(sha="c" * 40, siblings=siblings)
        module = types.ModuleType("huggingface_hub")
        module.__version__ = "1.21.0"
        module.HfApi = lambda: types.SimpleNamespace(model_info=lambda *_words, **_more: info)
        module.constants = types.SimpleNamespace(HF_HUB_CACHE=str(cache))
        module.snapshot_download = self.download
        monkeypatch.setitem(sys.modules, "huggingface_hub", module)
        monkeypatch.setattr(model_program.time, "sleep", lambda _seconds: None)

    def download(self, _model, revision, ignore_patterns):
        self.calls += 1
        self.patterns = ignore_patterns
        if self.failures:
            raise self.failures.pop(0)
        return "/folder"


def outcome(capsys, **changes):
    """(exit code, result) of the program."""
    code = model_program.main(json.dumps(dict(REQUEST, **changes)))
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith(model_program.MARK)
    return code, json.loads(last[len(model_program.MARK) :])


def test_a_model_is_fetched_without_copies_of_its_weights(tmp_path, monkeypatch, capsys):
    hub = Hub(monkeypatch, tmp_path, [*SHARDS, "pytorch_model-1.bin", "original/x.pth", "spk_dict.pt", "config.json"])
    code, result = outcome(capsys)
    assert (code, result["ok"], result["revision"], result["client"]) == (0, True, "c" * 40, "huggingface_hub 1.21.0")
    assert [one["name"] for one in result["files"]] == ["a.safetensors", "b.safetensors", "config.json", "spk_dict.pt"]
    assert result["files"][0] == {"name": "a.safetensors", "size": 3, "sha256": "a" * 64, "sha1": "b" * 40}
    assert "pytorch_model*.bin*" in hub.patterns


def test_weights_of_another_form_are_fetched_where_there_are_no_others(tmp_path, monkeypatch, capsys):
    Hub(monkeypatch, tmp_path, ["pytorch_model.bin", "config.json"])
    assert [one["name"] for one in outcome(capsys)[1]["files"]] == ["config.json", "pytorch_model.bin"]


@pytest.mark.parametrize("failure", [ReadTimeout("slow"), Answered(503), LocalEntryNotFoundError("no way")])
def test_a_way_that_broke_is_tried_again(tmp_path, monkeypatch, capsys, failure):
    hub = Hub(monkeypatch, tmp_path, SHARDS, [failure, failure])
    assert (outcome(capsys)[0], hub.calls) == (0, 3)


@pytest.mark.parametrize(
    ("failure", "code", "calls"),
    [
        (GatedRepoError(403), "model_fetch_denied", 1),
        (Answered(401), "model_fetch_denied", 1),
        (RepositoryNotFoundError(401), "model_fetch_unknown", 1),
        (ReadTimeout("slow"), "model_hub_unreachable", 3),
        (OSError(errno.ENOSPC, "No space left on device"), "model_disk_full", 1),
        (RuntimeError("what?"), "model_fetch_failed", 1),
    ],
)
def test_what_a_failure_is_called(tmp_path, monkeypatch, capsys, failure, code, calls):
    hub = Hub(monkeypatch, tmp_path, SHARDS, [failure] * 3)
    exit_code, result = outcome(capsys)
    assert (exit_code, result["ok"], result["code"], hub.calls) == (1, False, code, calls)
    assert type(failure).__name__ in result["message"]


def test_a_model_that_does_not_fit_is_not_begun(tmp_path, monkeypatch, capsys):
    hub = Hub(monkeypatch, tmp_path, SHARDS)
    monkeypatch.setattr(model_program.shutil, "disk_usage", lambda _folder: types.SimpleNamespace(free=5 << 20))
    assert (outcome(capsys)[1]["code"], hub.calls) == ("model_disk_full", 0)
    # What is there already needs no room.
    blobs = tmp_path / "models--org--m" / "blobs"
    blobs.mkdir(parents=True)
    for name in ("a" * 64, "b" * 40):
        (blobs / name).touch()
    assert outcome(capsys)[0] == 0


def test_an_image_without_the_client(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    assert outcome(capsys)[1]["code"] == "model_client_missing"


@pytest.mark.parametrize(
    ("version", "code"),
    [
        (None, "model_client_missing"),
        ("1.18.0", "model_client_version"),
        ("1.18.1", None),
        ("1.37.1", None),
        ("1.38", "model_client_version"),
        ("1.38.0rc1", "model_client_version"),
    ],
)
def test_the_range_of_modelscope(monkeypatch, capsys, version, code):
    monkeypatch.setattr(model_program, "_version_of", lambda _name: version)
    api, download = types.ModuleType("modelscope.hub.api"), types.ModuleType("modelscope.hub.snapshot_download")
    listed = [{"Path": "config.json", "Size": 2, "Sha256": "d" * 64, "Type": "blob"}, {"Path": "x", "Type": "tree"}]
    api.HubApi = lambda: types.SimpleNamespace(get_model_files=lambda *_words, **_more: listed)
    download.snapshot_download = lambda *_words, **_more: "/folder"
    for name, module in {"modelscope": types.ModuleType("modelscope"), "modelscope.hub.api": api,
                         "modelscope.hub": types.ModuleType("modelscope.hub"),
                         "modelscope.hub.snapshot_download": download}.items():  # fmt: skip
        monkeypatch.setitem(sys.modules, name, module)
    result = outcome(capsys, source="modelscope")[1]
    assert result.get("code") == code
    if code is None:
        assert result["client"] == "modelscope " + version
        assert result["files"] == [{"name": "config.json", "size": 2, "sha256": "d" * 64, "sha1": None}]
