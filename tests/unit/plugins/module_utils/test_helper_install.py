"""The host helper as one file: what is in it, that it runs alone, and how it is installed."""

from __future__ import annotations

import io
import os
import pathlib
import subprocess
import sys
import zipfile

import pytest
from ansible_collections.vllm_ascend.fleet.plugins.module_utils import helper_install, helper_main, instance_state
from ansible_collections.vllm_ascend.fleet.plugins.module_utils.host_control import Host

ROOT = pathlib.Path(__file__).resolve().parents[4]


@pytest.fixture
def host(tmp_path):
    return Host("docker", str(tmp_path))


def installed(host):
    return pathlib.Path(host.path(instance_state.HELPER_PATH))


def test_the_same_sources_give_the_same_bytes():
    assert helper_install.build() == helper_install.build()
    assert helper_install.build(lambda name: f"# {name}\n") != helper_install.build()


def test_the_digest_does_not_depend_on_the_python_that_builds_it():
    """Nothing of this machine or process is in it: no times, no absolute path."""
    content = helper_install.build()
    assert str(ROOT).encode() not in content
    archive = zipfile.ZipFile(io.BytesIO(content))
    assert {entry.date_time for entry in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}
    assert {entry.compress_type for entry in archive.infolist()} == {zipfile.ZIP_STORED}
    assert archive.namelist() == sorted(archive.namelist())


def test_it_holds_every_module_that_it_imports_and_nothing_of_ansible():
    archive = zipfile.ZipFile(io.BytesIO(helper_install.build()))
    names = {name.rsplit("/", 1)[-1][: -len(".py")] for name in archive.namelist()}
    for name in archive.namelist():
        text = archive.read(name).decode("utf-8")
        assert "ansible_collections" not in text
        assert "import ansible" not in text
        assert helper_install.imports(text) <= names, name
    assert {"gate", "nodes", "transaction", "endpoint", "instance_state", "commands"} <= names
    assert "helper_install" not in names


def test_the_closure_follows_both_ways_to_import():
    sources = {"a": "from .b import x\nfrom . import c, d\nimport os\nfrom os import path\n", "b": "", "c": "", "d": ""}
    sources["c"] = "def late():\n    from .e import y\n"
    sources["e"] = ""
    sources["unused"] = ""
    assert sorted(helper_install.closure("a", sources.__getitem__)) == ["a", "b", "c", "d", "e"]


def test_it_runs_alone_under_any_name(tmp_path):
    path = tmp_path / "anything"
    path.write_bytes(helper_install.build())
    done = subprocess.run(
        [sys.executable, "-IS", str(path), "--version"],
        stdout=subprocess.PIPE,
        text=True,
        cwd="/",
        timeout=60,
        check=True,
    )
    assert done.stdout == f"vllm_ascend.fleet host helper {helper_main.VERSION}\n"


@pytest.mark.parametrize(
    ("argv", "code", "text"),
    [
        ([], 2, "name a verb"),
        (["pre-start", "--instance", "a"], 2, "--container"),
        (["transact", "--instance", "nope", "--root", "{root}"], 1, "vllm-ascend transact: FileNotFoundError"),
        (
            ["pre-start", "--instance", "a", "--container", "b", "--image", "c", "--engine", "/nowhere/docker"],
            1,
            "vllm-ascend pre-start: cannot ask /nowhere/docker for the container b: the program is missing\n",
        ),
    ],
)
def test_every_failure_is_one_clear_line(tmp_path, argv, code, text):
    path = tmp_path / "host.py"
    path.write_bytes(helper_install.build())
    done = subprocess.run(
        [sys.executable, str(path), *(word.format(root=tmp_path) for word in argv)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == code
    assert text in done.stderr
    assert "Traceback" not in done.stderr


def test_it_is_installed_once_and_found_by_the_observation(host):
    assert helper_install.install(host, check=True)["changed"] is True
    assert not installed(host).exists()
    first = helper_install.install(host)
    assert (first["changed"], first["before"]) == (True, None)
    assert oct(installed(host).stat().st_mode & 0o777) == "0o755"
    found = instance_state.read_helper(host.sysroot)
    assert found == {"path": first["path"], "version": helper_main.VERSION, "digest": first["digest"]}
    assert helper_install.install(host)["changed"] is False


@pytest.mark.parametrize("change", ["content", "mode"])
def test_another_file_or_mode_is_replaced(host, change):
    good = helper_install.install(host)
    if change == "content":
        installed(host).write_text("old", encoding="utf-8")
    else:
        installed(host).chmod(0o700)
    again = helper_install.install(host)
    assert (again["changed"], again["digest"]) == (True, good["digest"])
    assert oct(installed(host).stat().st_mode & 0o777) == "0o755"


def test_a_program_that_runs_from_the_old_file_keeps_it(host):
    helper_install.install(host)
    with installed(host).open("rb") as running:
        installed(host).write_bytes(b"old")
        inode = os.fstat(running.fileno()).st_ino
        helper_install.install(host)
        assert running.read() == b"old"
        assert installed(host).stat().st_ino != inode
    assert sorted(os.listdir(str(installed(host).parent))) == ["host.py"]


def test_its_version_is_the_collection_s():
    galaxy = (ROOT / "galaxy.yml").read_text(encoding="utf-8")
    assert f"version: {helper_main.VERSION}\n" in galaxy
