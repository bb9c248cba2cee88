"""Copies of models from folder to folder."""

from __future__ import annotations

import os
import types

import pytest
from ansible_collections.vllm_ascend.fleet.plugins.module_utils import model_copy


@pytest.fixture
def source(tmp_path):
    folder = tmp_path / "source"
    (folder / "sub").mkdir(parents=True)
    (folder / ".git").mkdir()
    for name in ("config.json", "b.safetensors", "a.safetensors", "m.index.json", "sub/x.txt", ".git/HEAD"):
        (folder / name).write_text(name, encoding="ascii")
    (tmp_path / "blob").write_text("tokenizer", encoding="ascii")
    os.symlink("../blob", str(folder / "tokenizer.json"))
    return folder


ORDER = ["m.index.json", "a.safetensors", "b.safetensors", "sub/x.txt", "tokenizer.json", "config.json"]


def test_a_copy_in_its_order_without_links(source, tmp_path):
    target = tmp_path / "target"
    assert model_copy.copy(str(source), str(target)) == {"copied": ORDER, "kept": 0}
    assert (target / "tokenizer.json").read_text(encoding="ascii") == "tokenizer"
    assert not (target / "tokenizer.json").is_symlink()
    assert model_copy.copy(str(source), str(target)) == {"copied": [], "kept": 6}


def test_a_copy_goes_on_where_it_was_stopped(source, tmp_path, monkeypatch):
    target = tmp_path / "target"
    whole = model_copy.shutil.copyfileobj

    def fails(reader, writer, length):
        if reader.name.endswith("b.safetensors"):
            writer.write(b"half")
            raise OSError("the share is gone")
        whole(reader, writer, length)

    monkeypatch.setattr(model_copy.shutil, "copyfileobj", fails)
    with pytest.raises(model_copy.CopyError, match=r"b\.safetensors cannot be copied: the share is gone") as caught:
        model_copy.copy(str(source), str(target))
    assert caught.value.code == "model_copy_failed"
    assert sorted(os.listdir(str(target))) == ["a.safetensors", "m.index.json"]
    monkeypatch.setattr(model_copy.shutil, "copyfileobj", whole)
    assert model_copy.copy(str(source), str(target))["kept"] == 2


def test_other_content_of_the_same_size_is_copied_by_checksum_only(source, tmp_path):
    target = tmp_path / "target"
    model_copy.copy(str(source), str(target))
    (target / "a.safetensors").write_text("A.safetensors", encoding="ascii")
    assert model_copy.copy(str(source), str(target))["copied"] == []
    assert model_copy.copy(str(source), str(target), checksum=True)["copied"] == ["a.safetensors"]


@pytest.mark.parametrize("empty", [True, False])
def test_a_source_that_is_not_there(tmp_path, empty):
    folder = tmp_path / "none"
    if empty:
        folder.mkdir()
    with pytest.raises(model_copy.CopyError) as caught:
        model_copy.copy(str(folder), str(tmp_path / "target"))
    assert caught.value.code == "model_copy_missing"
    assert str(folder) in str(caught.value)


def test_a_disk_that_is_too_small(source, tmp_path, monkeypatch):
    monkeypatch.setattr(model_copy.shutil, "disk_usage", lambda _folder: types.SimpleNamespace(free=1 << 20))
    with pytest.raises(model_copy.CopyError) as caught:
        model_copy.copy(str(source), str(tmp_path / "target"))
    assert caught.value.code == "model_disk_full"
    assert not (tmp_path / "target").exists()
