"""Whether a model on the host is whole."""

from __future__ import annotations

import hashlib
import json
import os

import pytest
from ansible_collections.vllm_ascend.fleet.plugins.module_utils.model_check import check
from ansible_collections.vllm_ascend.fleet.plugins.module_utils.model_files import Request
from ansible_collections.vllm_ascend.fleet.plugins.module_utils.sysroot import Sysroot

REVISION = "c" * 40
NAMES = ["model-1.safetensors", "model-2.safetensors"]


def safetensors(size=64):
    text = json.dumps({"a": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}).encode()
    return len(text).to_bytes(8, "little") + text + bytes(size)


def git(content):
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


class Cache:
    """A cache with one model of two shards, as huggingface_hub leaves it."""

    def __init__(self, root):
        index = json.dumps({"weight_map": {str(number): name for number, name in enumerate(NAMES)}}).encode()
        self.contents = {name: safetensors() + b"" for name in NAMES}
        self.contents[NAMES[1]] = safetensors(65)
        self.contents.update({
            "config.json": b'{"model_type": "qwen3"}', "tokenizer.json": b"{}", "model.safetensors.index.json": index,
        })  # fmt: skip
        self.base = root / "huggingface" / "hub" / "models--org--m"
        self.folder, self.blobs = self.base / "snapshots" / REVISION, self.base / "blobs"
        for path in (self.folder, self.blobs, self.base / "refs"):
            path.mkdir(parents=True)
        (self.base / "refs" / "main").write_text(REVISION, encoding="ascii")
        self.files = []
        for name, content in self.contents.items():
            sha256 = hashlib.sha256(content).hexdigest() if name in NAMES else None
            blob = sha256 or git(content)
            (self.blobs / blob).write_bytes(content)
            os.symlink("../../blobs/" + blob, str(self.folder / name))
            self.files.append({"name": name, "size": len(content), "sha256": sha256, "sha1": git(content)})
        self.cache = str(root)

    def check(self, manifest=True, verify="size"):
        known = {"revision": REVISION, "files": self.files} if manifest else None
        return check(Sysroot("/"), Request("org/m", "huggingface", self.cache), known, verify)

    def blob(self, name):
        return (self.folder / name).resolve()


@pytest.fixture
def cache(tmp_path):
    return Cache(tmp_path)


@pytest.mark.parametrize("manifest", [True, False])
def test_a_whole_model(cache, manifest):
    found = cache.check(manifest)
    assert (found["ok"], found["flaws"], found["files"], found["verified"]) == (True, [], 5, 0)
    assert found["folder"] == str(cache.folder)
    assert cache.check(manifest, "checksum")["verified"] == 5


def test_what_is_missing_is_named(cache):
    for name in (NAMES[0], "tokenizer.json", "config.json"):
        (cache.folder / name).unlink()
    found = cache.check()
    assert not found["ok"]
    wanted = {"config.json is missing", NAMES[0] + " is missing", "tokenizer.json is missing"}
    assert set(found["flaws"]) == wanted
    assert found["notes"] == ["there is no vocabulary of a tokenizer"]


def test_a_shard_that_the_hub_has_not_either(cache):
    (cache.folder / NAMES[0]).unlink()
    cache.files = [one for one in cache.files if one["name"] != NAMES[0]]
    assert cache.check()["flaws"] == [NAMES[0] + " is missing, and the hub has none"]


def test_a_file_that_was_cut(cache):
    with open(cache.blob(NAMES[1]), "r+b") as stream:
        stream.truncate(80)
    with open(cache.blob("tokenizer.json"), "wb"):
        pass
    flaws = cache.check()["flaws"]
    assert any(flaw.startswith(NAMES[1] + " has 80 bytes where its header says") for flaw in flaws)
    assert "tokenizer.json has 0 bytes, and the hub's has 2" in flaws


def test_changed_content_of_the_same_size_shows_by_checksums_only(cache):
    content = bytearray(cache.contents[NAMES[0]])
    content[-1] ^= 1
    cache.blob(NAMES[0]).write_bytes(bytes(content))
    cache.blob("tokenizer.json").write_bytes(b"[]")
    assert cache.check()["ok"]
    for manifest in (True, False):
        found = cache.check(manifest, "checksum")
        assert found["flaws"] == [
            NAMES[0] + " has another checksum than the hub", "tokenizer.json has another checksum than the hub",
        ]  # fmt: skip


def test_a_list_of_another_revision_says_nothing(cache):
    cache.files[0]["size"] = 1
    known = {"revision": "d" * 40, "files": cache.files}
    assert check(Sysroot("/"), Request("org/m", "huggingface", cache.cache), known)["ok"]


def test_names_of_a_list_that_lead_elsewhere_are_not_looked_at(cache):
    for name in ("../../../secret", "/etc/passwd", "", 3):
        cache.files.append({"name": name, "size": 1, "sha256": "e" * 64})
    assert cache.check(verify="checksum")["ok"]


def test_what_downloads_left(cache):
    (cache.blobs / "abc.12345678.incomplete").touch()
    found = cache.check()
    assert (found["ok"], found["unfinished"]) == (True, [str(cache.blobs / "abc.12345678.incomplete")])


def test_nothing_there(tmp_path):
    found = check(Sysroot("/"), Request("org/m", "huggingface", str(tmp_path)))
    assert (found["ok"], found["folder"], found["flaws"]) == (False, None, ["it is not there"])


@pytest.mark.parametrize(("revision", "found"), [("main", True), ("v2", False), (REVISION, True), ("../main", False)])
def test_the_revision_that_is_asked_for(cache, revision, found):
    request = Request("org/m", "huggingface", cache.cache, revision)
    assert (check(Sysroot("/"), request)["folder"] is not None) is found
