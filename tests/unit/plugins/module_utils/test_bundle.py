"""bundle: a copy tells what its host told, nothing private is in it, and nothing but files, folders and links."""

from __future__ import annotations

import io
import json
import os
import tarfile

import pytest
from ansible_collections.vllm_ascend.fleet.plugins.module_utils import (
    bundle,
    instance_observation,
    instance_state,
    npu_observation,
)
from ansible_collections.vllm_ascend.fleet.plugins.module_utils.bundle_recorder import Recorder
from ansible_collections.vllm_ascend.fleet.plugins.module_utils.sysroot import Sysroot
from ansible_collections.vllm_ascend.fleet.tests.unit.support import host_trees

from tests.unit.support import canary_host, hostile
from tests.unit.support.canary_host import packed, unpacked
from tests.unit.support.recorded_hosts import DOCKER, RecordedHost, docker_20, systemd_records

PATHS = [
    "/dev/davinci0",
    "/etc/hccn.conf",
    "{driver}/driver/lib64",
    "/usr/local/dcmi",
    "/etc/machine-id",
    "/etc/looked",
    "/var/gone",
]
OPTIONS = bundle.Options(npu_observation.Options(paths=PATHS))


def members(archive):
    with tarfile.open(fileobj=io.BytesIO(archive)) as opened:
        return {entry.name: (entry, opened.extractfile(entry).read() if entry.isreg() else b"") for entry in opened}


class LiveTree(Recorder):
    """Records the folder of a tree as a host that counts as live; its programs print what the tree has recorded."""

    def __init__(self, root):
        super().__init__(str(root))
        self.replay = False

    def run(self, argv, timeout, env=None):
        self.replay = True
        try:
            return super().run(argv, timeout, env)
        finally:
            self.replay = False


# -- the same facts ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("image_os", ["ubuntu", "openeuler"])
@pytest.mark.parametrize("family", host_trees.FAMILIES)
def test_a_copy_tells_the_same_as_the_host(tmp_path, family, image_os):
    host_trees.family_host(tmp_path / "host", family, image_os)
    made = packed(tmp_path / "host", tmp_path / "scratch", OPTIONS)
    copy = unpacked(made.archive, tmp_path / "copy")
    assert bundle.observe(Sysroot(str(copy)), OPTIONS) == bundle.observe(Sysroot(str(tmp_path / "host")), OPTIONS)
    assert made.differences == []
    assert len(made.archive) < 20_000


def test_a_copy_of_a_host_with_an_engine_and_an_instance(tmp_path):
    host = (
        RecordedHost(tmp_path / "host")
        .file(DOCKER)
        .file(instance_state.HELPER_PATH, "# vllm_ascend.fleet host helper 9\n")
    )
    host.file(instance_state.unit_path("ascend"), instance_state.UNIT_MARK + "\n")
    host.calls(docker_20()).calls(systemd_records(["ascend"], "Id=vllm-ascend.service\nActiveState=active\n"))
    made = packed(tmp_path / "host", tmp_path / "scratch", OPTIONS)
    copy = unpacked(made.archive, tmp_path / "copy")
    found = [instance_observation.collect(Sysroot(str(root))) for root in (tmp_path / "host", copy)]
    assert found[0] == found[1]
    assert found[1]["instances"] and found[1]["foreign"] and found[1]["images"] and found[1]["engine"]["running"]
    assert made.differences == []


def test_what_only_a_live_host_tells_is_in_the_copy(tmp_path):
    tree = host_trees.card_host(tmp_path / "host", "atlas_a2")
    tree.put("usr/local/bin/npu-smi", "x", 0o644).put("usr/local/sbin/npu-smi", "x", 0o644)
    tree.put("etc/looked", "x" * 77, 0o640)
    recorder = LiveTree(tmp_path / "host")
    (tmp_path / "scratch").mkdir()
    made = bundle.make(recorder, OPTIONS, 1_700_000_000, str(tmp_path / "scratch"))
    assert made.differences == []
    sysroot = Sysroot(str(unpacked(made.archive, tmp_path / "copy")))
    facts = npu_observation.collect(sysroot, OPTIONS.npu)
    assert facts["host"]["page_size"] == os.sysconf("SC_PAGE_SIZE")
    assert (facts["host"]["selinux"], facts["host"]["container"]) == ("disabled", False)
    assert facts["host"]["python"]
    # Neither program may be run, and ordinary files are no nodes where nothing was put together by hand.
    assert {problem["code"] for problem in facts["problems"]} == {"npu_smi_missing", "device_nodes_missing"}
    assert facts["device_nodes"]["/dev/davinci0"]["type"] == "file"
    record = facts["paths"]["/etc/looked"]
    assert (record["mode"], record["size"], record["executable"]) == ("0640", 77, False)
    assert (tmp_path / "copy/etc/looked").read_bytes() == b""
    assert sysroot.complete and not Sysroot(str(tmp_path / "host")).complete


def test_a_bundle_of_a_copy_is_the_same_again(tmp_path):
    canary_host.build(tmp_path / "host")
    first = unpacked(packed(tmp_path / "host", tmp_path / "s1", OPTIONS).archive, tmp_path / "first")
    second = unpacked(packed(first, tmp_path / "s2", OPTIONS).archive, tmp_path / "second")
    assert bundle.observe(Sysroot(str(first)), OPTIONS) == bundle.observe(Sysroot(str(second)), OPTIONS)


def test_a_node_keeps_its_numbers_mode_and_owner(tmp_path):
    tree = host_trees.card_host(tmp_path / "host", "atlas_a2")
    record = {"type": "char", "mode": "0660", "uid": 1000, "gid": 1001, "major": 236, "minor": 0}
    tree.put("recorded/metadata.json", json.dumps({"paths": {"/dev/davinci0": record}}))
    made = packed(tmp_path / "host", tmp_path / "scratch", OPTIONS)
    archived = members(made.archive)["dev/davinci0"][0]
    assert archived.isreg() and archived.size == 0
    facts = npu_observation.collect(Sysroot(str(unpacked(made.archive, tmp_path / "copy"))), OPTIONS.npu)
    assert facts["device_nodes"]["/dev/davinci0"] == record


# -- nothing private ---------------------------------------------------------------------------------------------------


def everything(archive):
    """All bytes of an archive: names, targets of links, contents; and texts in JSON without their escapes."""
    parts = []
    for entry, content in members(archive).values():
        parts += [entry.name.encode(), entry.linkname.encode(), entry.uname.encode(), entry.gname.encode(), content]
        if entry.name.endswith(".json"):
            parts.append(json.dumps(json.loads(content.decode("utf-8")), ensure_ascii=False).encode("utf-8"))
            parts += [value.encode("utf-8") for value in texts(json.loads(content.decode("utf-8")))]
    return b"\n".join(parts)


def texts(value):
    if isinstance(value, str):
        return [value]
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else []
    return [text for entry in inside for text in texts(entry)]


def test_no_canary_leaves_the_host(tmp_path):
    canary_host.build(tmp_path / "host")
    before = everything_below(tmp_path / "host")
    options = OPTIONS._replace(hide=[canary_host.CUSTOMER])
    made = packed(tmp_path / "host", tmp_path / "scratch", options)
    text = everything(made.archive).lower()
    planted = [canary for canary in canary_host.CANARIES if canary.encode("utf-8").lower() in before]
    assert len(planted) > 15
    assert [canary for canary in canary_host.CANARIES if canary.encode("utf-8").lower() in text] == []
    assert all(made.masked[kind] for kind in ("serial", "mac", "ipv4", "environment", "login", "secret", "digest"))
    assert made.masked["connection"] == 1
    assert made.differences == []


def everything_below(root):
    files = [path for path in root.rglob("*") if path.is_file()]
    return b"\n".join(path.read_bytes() for path in files).lower() + canary_host.ODD_PASSWORD.lower().encode("utf-8")


def test_what_was_equal_stays_equal(tmp_path):
    canary_host.build(tmp_path / "host")
    made = packed(tmp_path / "host", tmp_path / "scratch", OPTIONS)
    observed = instance_observation.collect(Sysroot(str(unpacked(made.archive, tmp_path / "copy"))))
    instance = next(entry for entry in observed["instances"] if entry["name"] == "ascend")
    listener = next(entry for entry in observed["listeners"] if entry["port"] == 8001)
    assert listener["address"] == instance["plan"]["endpoint"]["address"] != canary_host.LISTENING
    assert next(e for e in observed["listeners"] if e["port"] == 22)["address"] == "0.0.0.0"
    planned = {entry["name"]: entry["digest"] for entry in instance["plan"]["container"]["secrets"]}
    on_host = {entry["name"]: entry["digest"] for entry in instance["secrets"]}
    assert planned["VLLM_API_KEY"] == on_host["VLLM_API_KEY"]
    assert set(planned["CHANGED"][:50]) == {"0"}
    assert instance["plan_hash"] == instance["plan"]["plan_hash"] == instance["container"]["plan_hash"]
    assert instance["unit_digest"] != instance_state.text_digest(canary_host.UNIT)
    assert instance["plan"]["container"]["environment"]["HCCL_IF_IP"] == listener["address"]
    holders = {entry["container"]: entry["holds"]["nodes"] for entry in observed["foreign"]}
    assert holders["train"] == ["/dev/davinci1"], "of containerd, by its node"


def test_a_foreign_unit_and_files_that_are_only_looked_at_are_not_stored(tmp_path):
    canary_host.build(tmp_path / "host")
    made = packed(tmp_path / "host", tmp_path / "scratch", OPTIONS)
    found = members(made.archive)
    assert b"not one of vllm_ascend.fleet" in found["etc/systemd/system/vllm-other.service"][1]
    assert found["usr/local/bin/npu-smi"][1] == b""
    assert "etc/hostname" not in found
    assert found["usr/local/libexec/vllm-ascend/host.py"][1].count(b"\n") == 2


# -- the archive -------------------------------------------------------------------------------------------------------


def test_the_archive_holds_files_folders_and_links_below_its_root(tmp_path):
    tree = canary_host.build(tmp_path / "host")
    (tree.root / "opt").mkdir()
    (tree.root / "usr/local/Ascend/driver").rename(tree.root / "opt/driver")
    (tree.root / "usr/local/Ascend/driver").symlink_to("/opt/driver")
    made = packed(tmp_path / "host", tmp_path / "scratch", OPTIONS)
    found = members(made.archive)
    for name, (entry, _content) in found.items():
        assert entry.isreg() or entry.isdir() or entry.issym(), name
        assert not name.startswith("/") and ".." not in name.split("/")
        assert (entry.uid, entry.gid, entry.mtime) == (0, 0, 1_700_000_000)
    links = [name for name, (entry, _content) in found.items() if entry.issym()]
    assert "usr/local/Ascend/driver" in links
    assert not [name for name in found for link in links if name.startswith(link + "/")], "nothing through a link"
    assert list(found) == sorted(found)
    manifest = json.loads(found["recorded/manifest.json"][1].decode())
    assert (manifest["format"], manifest["made"], manifest["replay_differs"]) == (1, "2023-11-14T22:13:20Z", [])
    assert manifest["masked"]["ipv4"] > 0
    assert manifest["host_name"] == "masked-host"


def test_the_same_host_gives_the_same_bytes(tmp_path):
    canary_host.build(tmp_path / "host")
    made = [packed(tmp_path / "host", tmp_path / scratch, OPTIONS) for scratch in ("s1", "s2")]
    assert made[0].archive == made[1].archive


def test_files_are_cut_at_the_readers_limit(tmp_path):
    tree = host_trees.card_host(tmp_path / "host", "atlas_a2")
    tree.put("proc/cpuinfo", "processor: 0\nflags : hypervisor\n" + "x" * 100_000)
    made = packed(tmp_path / "host", tmp_path / "scratch", OPTIONS)
    found = members(made.archive)
    assert len(found["proc/cpuinfo"][1]) < 20_000
    assert "/proc/cpuinfo" in json.loads(found["recorded/manifest.json"][1].decode())["cut"]


def test_an_archive_that_is_too_large_is_refused_with_its_largest_files(monkeypatch, tmp_path):
    canary_host.build(tmp_path / "host")
    monkeypatch.setattr(bundle, "MAX_BYTES", 1000)
    with pytest.raises(bundle.BundleError, match="the largest files are /"):
        packed(tmp_path / "host", tmp_path / "scratch", OPTIONS)
    monkeypatch.setattr(bundle, "MAX_UNPACKED", 1000)
    with pytest.raises(bundle.BundleError, match="of files"):
        packed(tmp_path / "host", tmp_path / "again", OPTIONS)


def test_a_copy_that_tells_otherwise_is_named():
    told = {"facts": {"host": {"python": "a", "list": [1, 2]}, "same": 1}}
    assert bundle.different(told, told, told, "") == []
    other = {"facts": {"host": {"python": "b", "list": [1, 3]}, "same": 1}}
    assert bundle.different(told, told, other, "") == ["facts.host.python", "facts.host.list.1"]
    masked = {"facts": {"host": {"python": "b", "list": [1, 2]}, "same": 1}}
    assert bundle.different(told, masked, other, "") == ["facts.host.list.1"]
    assert bundle.different(told, told, {"facts": {}}, "") == ["facts"]


def test_recording_a_host_changes_nothing_of_what_is_read(tmp_path):
    canary_host.build(tmp_path / "host")
    plain = bundle.observe(Sysroot(str(tmp_path / "host")), OPTIONS)
    assert bundle.observe(Recorder(str(tmp_path / "host")), OPTIONS) == plain


@pytest.mark.parametrize("value", hostile.VALUES.values(), ids=hostile.VALUES)
def test_live_values_of_strangers_make_nothing_fail(tmp_path, value):
    host = RecordedHost(tmp_path).file(DOCKER).file(instance_state.unit_path("ascend"), instance_state.UNIT_MARK + "\n")
    host.file("proc/net/tcp", canary_host.TCP).calls(docker_20()).calls(systemd_records(["ascend"], ""))
    names = [
        "page size",
        "python",
        "machine",
        "selinux",
        "container",
        "holders of sockets",
        "free MiB of /var/lib/docker",
    ]
    names += ["locked /var/lib/vllm-ascend/ascend/lock", "endpoint of vllm-ascend.service"]
    live = dict.fromkeys(names, hostile.MARK)
    for document in [{"live": live}, {"live": dict(live, **{"holders of sockets": {"1199": hostile.MARK}})}]:
        host.file("recorded/metadata.json", hostile.written(document, value))
        options = OPTIONS._replace(instances=instance_observation.Options())
        hostile.assert_plain_json(bundle.observe(Sysroot(str(tmp_path)), options))
