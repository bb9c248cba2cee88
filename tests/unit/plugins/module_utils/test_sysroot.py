"""Sysroot: a replayed host is read inside its folder, and nothing of it is run."""

from __future__ import annotations

import json

import pytest
from ansible_collections.vllm_ascend.fleet.plugins.module_utils.sysroot import Sysroot, SysrootError


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
