"""Sysroot: a replayed host is read inside its folder, and nothing of it is run."""

from __future__ import annotations

import json
import os

import pytest
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
