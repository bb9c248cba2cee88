"""Sysroot: a replayed host is read inside its folder, and nothing of it is run."""

from __future__ import annotations

import hashlib
import json
import os

import pytest
from ansible_collections.vllm_ascend.fleet.plugins.module_utils import sysroot as sysroot_module
from ansible_collections.vllm_ascend.fleet.plugins.module_utils.sysroot import Sysroot, SysrootError

from tests.unit.support.hostile import DEEP


@pytest.fixture
def root(tmp_path):
    (tmp_path / "etc").mkdir()
    (tmp_path / "opt/driver").mkdir(parents=True)
    (tmp_path / "opt/driver/version.info").write_text("Version=25.5.1\n")
    (tmp_path / "usr").mkdir()
    (tmp_path / "usr/ascend").symlink_to("/opt/driver")
    (tmp_path / "etc/up").symlink_to("../../../../../../opt/driver/version.info")
    (tmp_path / "etc/loop").symlink_to("loop")
    return tmp_path


def test_absolute_links_stay_inside(root):
    sysroot = Sysroot(str(root))
    assert sysroot.read_text("/usr/ascend/version.info") == "Version=25.5.1\n"
    assert sysroot.read_text("/etc/up") == "Version=25.5.1\n"
    assert sysroot.link("/usr/ascend") == "/opt/driver"


def test_kinds(root):
    sysroot = Sysroot(str(root))
    (root / "etc/broken").symlink_to("/nowhere")
    assert [sysroot.kind(p) for p in ("/opt", "/opt/driver/version.info", "/none", "/etc/broken", "/etc/loop")] == [
        "directory", "file", "missing", "link_broken", "link_broken",
    ]  # fmt: skip
    assert Sysroot("/").kind("/dev/null") == "char"


def test_programs_are_read_from_the_records_and_never_run(root):
    trap = root / "usr/local/bin/npu-smi"
    trap.parent.mkdir(parents=True)
    trap.write_text(f"#!/bin/sh\ntouch {root}/ran\n")
    trap.chmod(0o755)
    (root / "recorded").mkdir()
    (root / "recorded/commands.json").write_text(
        json.dumps(
            [
                {"argv": ["npu-smi", "info"], "rc": 0, "stdout": "table", "stderr": "", "timed_out": False},
                {"argv": ["npu-smi", "info", "-m"], "rc": None, "stdout": "", "stderr": "", "timed_out": True},
            ]
        )
    )
    sysroot = Sysroot(str(root))
    assert sysroot.which("npu-smi") == "/usr/local/bin/npu-smi"
    assert sysroot.run(["/usr/local/bin/npu-smi", "info"], 1).stdout == "table"
    assert sysroot.run(["npu-smi", "info", "-m"], 1).timed_out
    assert sysroot.run(["npu-smi", "info", "-l"], 1) is None
    assert not (root / "ran").exists()


@pytest.mark.parametrize(
    ("records", "words"),
    [("{", "not JSON"), ("{}", "a list of records"), ('[{"argv": []}]', "record 0"), ('[{"rc": 0}]', "has no argv")],
)
def test_bad_records_are_named(root, records, words):
    (root / "recorded").mkdir()
    (root / "recorded/commands.json").write_text(records)
    with pytest.raises(SysrootError, match=words):
        Sysroot(str(root))


def test_missing_folder_is_named():
    with pytest.raises(SysrootError, match="/nowhere/host"):
        Sysroot("/nowhere/host")


def chain(root, length, target):
    """Links l0 → l1 → … → the target, that many of them."""
    for number in range(length):
        (root / f"l{number}").symlink_to(f"/l{number + 1}" if number < length - 1 else target)


@pytest.mark.parametrize("length, inside", [(40, True), (41, False), (60, False)])
def test_a_chain_of_links_that_is_too_long_is_a_loop(root, length, inside):
    chain(root, length, "/opt/driver")
    sysroot = Sysroot(str(root))
    assert sysroot.exists("/l0/version.info") is inside
    assert (sysroot.read_text("/l0/version.info") is not None) is inside
    assert sysroot.listdir("/l0") == (["version.info"] if inside else [])
    assert sysroot.kind("/l0") == ("directory" if inside else "link_broken")
    assert sysroot.link("/l0") == "/l1"


@pytest.mark.parametrize("where", ["{outside}", "../../../../../../../..{outside}"])
def test_a_long_chain_of_links_does_not_lead_outside(root, tmp_path_factory, where, monkeypatch):
    outside = tmp_path_factory.mktemp("outside")
    (outside / "secret").write_text("secret")
    (outside / "link").symlink_to("secret")
    # The kernel itself follows what is left of the chain after the first forty.
    chain(root, 41, where.format(outside=outside))
    touched = []

    def noting(name):
        real = getattr(os, name)

        def call(path, *args, **kwargs):
            touched.append(os.path.realpath(os.path.dirname(str(path))))
            return real(path, *args, **kwargs)

        return call

    sysroot = Sysroot(str(root))
    for name in ("stat", "readlink", "listdir"):
        monkeypatch.setattr(os, name, noting(name))
    for path in ("/l0", "/l0/secret", "/l0/link", "/l0/../l0/secret"):
        assert sysroot.read_text(path) is None
        assert (sysroot.stat(path), sysroot.exists(path), sysroot.listdir(path)) == (None, False, [])
        assert sysroot.kind(path) == ("link_broken" if path == "/l0" else "missing")
        assert sysroot.link(path) == ("/l1" if path == "/l0" else None)
        assert sysroot.which(path.rsplit("/", 1)[1], ["/l0"]) is None
        assert os.path.dirname(sysroot.path(path)) == str(root)
    monkeypatch.undo()
    assert not [folder for folder in touched if folder.startswith(str(outside))]


def test_a_loop_of_links_in_the_middle(root):
    sysroot = Sysroot(str(root))
    (root / "etc/a").symlink_to("b")
    (root / "etc/b").symlink_to("a")
    assert [sysroot.kind(path) for path in ("/etc/a", "/etc/a/x", "/..", "/etc/..")] == [
        "link_broken", "missing", "directory", "directory",
    ]  # fmt: skip
    assert (sysroot.link("/etc/a/x"), sysroot.link("/etc/.."), sysroot.link("/")) == (None, None, None)


@pytest.mark.parametrize("live", [False, True])
def test_a_path_that_no_file_can_have_is_missing(root, live):
    sysroot = Sysroot("/" if live else str(root))
    for path in ("/a\0b", "/a\ud800b", "/" + "x" * 300):
        assert (sysroot.kind(path), sysroot.stat(path), sysroot.read_text(path)) == ("missing", None, None)
        assert (sysroot.listdir(path), sysroot.link(path)) == ([], None)
        assert sysroot.which("x", [path]) is None


def test_names_that_are_no_text(root):
    os.symlink(b"/\xff", os.fsencode(str(root)) + b"/etc/link")
    os.symlink(b"/x", os.fsencode(str(root)) + b"/etc/\xff")
    sysroot = Sysroot(str(root))
    assert sysroot.link("/etc/link") == "/\ufffd"
    assert sysroot.listdir("/etc") == ["link", "loop", "up"]


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("rc", "0", "rc '0'; it must be a whole number or null"),
        ("rc", True, "rc True"),
        ("rc", 1.5, "rc 1.5"),
        ("stdout", 7, "stdout 7; it must be a text or null"),
        ("stdout", ["a"], "stdout"),
        ("stderr", {}, "stderr"),
        ("timed_out", "no", "timed_out 'no'; it must be true or false"),
        ("timed_out", 1, "timed_out 1"),
        ("timed_out", None, "timed_out None"),
        ("argv", ["a", 7], "has no argv"),
    ],
)
def test_a_record_of_wrong_types_is_named_by_its_number(root, field, value, words):
    good = {"argv": ["npu-smi", "info"], "rc": None, "stdout": None, "stderr": None}
    (root / "recorded").mkdir()
    path = root / "recorded/commands.json"
    path.write_text(json.dumps([good, dict(good, rc=0, timed_out=False)]))
    Sysroot(str(root))
    path.write_text(json.dumps([good, dict(good, **{field: value})]))
    with pytest.raises(SysrootError, match=r"record 1 of /recorded/commands\.json below") as failure:
        Sysroot(str(root))
    assert words in str(failure.value)


@pytest.mark.parametrize("records", [DEEP, '[{"argv": ["a"], "more": ' + DEEP + "}]"])
def test_records_that_are_nested_too_deeply(root, records):
    (root / "recorded").mkdir()
    (root / "recorded/commands.json").write_text(records)
    with pytest.raises(SysrootError, match="is not JSON: it is nested too deeply"):
        Sysroot(str(root))


# -- recorded/metadata.json --------------------------------------------------------------------------------------------


def described(root, **metadata):
    """A sysroot whose recorded/metadata.json says that."""
    (root / "recorded").mkdir(exist_ok=True)
    (root / "recorded/metadata.json").write_text(json.dumps(metadata))
    return Sysroot(str(root))


def test_files_are_as_they_were_recorded(root):
    for name in ("node", "socket"):
        (root / name).write_text("")
    node = {"type": "char", "mode": "0660", "uid": 7, "gid": 8, "major": 236, "minor": 9}
    version = {"mode": "4755", "size": 1 << 40, "mtime": 5, "sha256": "ab", "executable": False}
    sysroot = described(
        root, paths={"/node": node, "/socket": {"type": "other"}, "/opt/driver/version.info": version, "/gone": node}
    )
    assert [sysroot.kind(path) for path in ("/node", "/socket", "/opt", "/gone")] == [
        "char", "other", "directory", "missing",
    ]  # fmt: skip
    status = sysroot.stat("/node")
    assert (status.st_uid, status.st_gid, status.st_mode & 0o7777) == (7, 8, 0o660)
    assert (os.major(status.st_rdev), os.minor(status.st_rdev)) == (236, 9)
    # By the path without links.
    status = sysroot.stat("/usr/ascend/version.info")
    assert (status.st_size, status.st_mtime, status.st_mode & 0o7777) == (1 << 40, 5, 0o4755)
    assert sysroot.sha256("/usr/ascend/version.info", 1 << 41) == "ab"
    assert sysroot.sha256("/usr/ascend/version.info", 1 << 20) is None
    assert sysroot.which("version.info", ["/usr/ascend"]) is None
    assert sysroot.which("version.info", ["/opt/driver"]) is None
    assert sysroot.read_text("/usr/ascend/version.info") == "Version=25.5.1\n"


def test_what_is_no_ordinary_file_here_is_never_opened_whatever_was_recorded(root):
    os.mkfifo(str(root / "pipe"))
    sysroot = described(root, paths={"/pipe": {"type": "file", "size": 5}})
    assert (sysroot.kind("/pipe"), sysroot.read_text("/pipe"), sysroot.sha256("/pipe", 10)) == ("file", None, None)
    os.remove(str(root / "recorded/metadata.json"))
    os.mkfifo(str(root / "recorded/metadata.json"))
    assert Sysroot(str(root)).kind("/pipe") == "other"


def test_a_digest_that_was_not_recorded_is_that_of_the_file(root):
    sysroot = Sysroot(str(root))
    digest = hashlib.sha256(b"Version=25.5.1\n").hexdigest()
    assert sysroot.sha256("/usr/ascend/version.info", 15) == digest
    assert sysroot.sha256("/usr/ascend/version.info", 14) is None
    assert (sysroot.sha256("/usr/ascend", 99), sysroot.sha256("/none", 99)) == (None, None)


def test_in_a_replay_no_probe_is_called(root):
    sysroot = described(root, live={"page size": 65536})
    assert sysroot.live("page size", lambda: pytest.fail("called")) == 65536
    assert sysroot.live("machine", lambda: pytest.fail("called")) is None
    assert sysroot.complete
    assert not described(root).complete
    assert Sysroot("/").live("x", lambda: 7) == 7


@pytest.mark.parametrize(
    ("metadata", "words"),
    [
        ([], "an object of paths and live"),
        ({"paths": []}, "an object of paths and live"),
        ({"live": 7}, "an object of paths and live"),
        ({"paths": {"/a": 7}}, "'/a' in /recorded/metadata.json"),
        ({"paths": {"/a": {"type": "link"}}}, "the type 'link'; it must be one of block, char, directory, file, other"),
        ({"paths": {"/a": {"type": ["file"]}}}, "the type"),
        ({"paths": {"/a": {"mode": 420}}}, "the mode 420; it must be up to four octal digits"),
        ({"paths": {"/a": {"mode": "0999"}}}, "the mode '0999'"),
        ({"paths": {"/a": {"mode": ""}}}, "the mode ''"),
        ({"paths": {"/a": {"mode": "17777"}}}, "the mode"),
        ({"paths": {"/a": {"uid": -1}}}, "the uid -1; it must be a whole number"),
        ({"paths": {"/a": {"gid": "0"}}}, "the gid '0'"),
        ({"paths": {"/a": {"size": True}}}, "the size True"),
        ({"paths": {"/a": {"size": 10**30}}}, "the size"),
        ({"paths": {"/a": {"major": 1 << 20}}}, "the major"),
        ({"paths": {"/a": {"minor": None}}}, "the minor None"),
        ({"paths": {"/a": {"mtime": 1.5}}}, "the mtime 1.5"),
        ({"paths": {"/a": {"sha256": 7}}}, "the sha256 7; it must be a text"),
        ({"paths": {"/a": {"executable": 1}}}, "the executable 1; it must be true or false"),
    ],
)
def test_metadata_that_cannot_be_used_is_named(root, metadata, words):
    (root / "recorded").mkdir()
    (root / "recorded/metadata.json").write_text(json.dumps(metadata))
    with pytest.raises(SysrootError, match=r"/recorded/metadata\.json") as failure:
        Sysroot(str(root))
    assert words in str(failure.value)


@pytest.mark.parametrize("text", ["{", DEEP, '{"live": ' + DEEP + "}"])
@pytest.mark.parametrize("name", ["metadata.json", "commands.json"])
def test_recorded_files_that_are_no_json(root, name, text):
    (root / "recorded").mkdir()
    (root / "recorded" / name).write_text(text)
    with pytest.raises(SysrootError, match="is not JSON"):
        Sysroot(str(root))


@pytest.mark.parametrize("name", ["metadata.json", "commands.json"])
def test_recorded_files_that_are_too_large_are_not_parsed(root, name, monkeypatch):
    monkeypatch.setattr(sysroot_module, "RECORDS_LIMIT", 1 << 20)
    (root / "recorded").mkdir()
    with open(str(root / "recorded" / name), "wb") as stream:
        stream.truncate(1 << 30)
    with pytest.raises(SysrootError, match="is larger than 1 MiB"):
        Sysroot(str(root))


def test_recorded_files_are_not_read_outside(root, tmp_path_factory):
    outside = tmp_path_factory.mktemp("outside")
    (outside / "commands.json").write_text("{")
    (root / "recorded").symlink_to(outside)
    assert Sysroot(str(root)).run(["docker"], 1) is None


def test_a_program_that_was_missing_is_missing_again(root):
    (root / "recorded").mkdir()
    record = {"argv": ["systemctl"], "rc": None, "missing": True, "error": "No such file"}
    (root / "recorded/commands.json").write_text(json.dumps([record]))
    result = Sysroot(str(root)).run(["systemctl"], 1)
    assert (result.rc, result.missing, result.error, result.timed_out) == (None, True, "No such file", False)
