"""The module host_bundle: options in, one archive out, and clean failures."""

from __future__ import annotations

import hashlib
import json
import os
import tarfile

import pytest
import yaml
from ansible.module_utils.testing import patch_module_args
from ansible_collections.vllm_ascend.fleet.plugins.modules import host_bundle
from ansible_collections.vllm_ascend.fleet.tests.unit.support import host_trees


def run(capsys, **arguments):
    with patch_module_args(arguments), pytest.raises(SystemExit) as ended:
        host_bundle.main()
    return ended.value.code, json.loads(capsys.readouterr().out)


@pytest.fixture
def host(tmp_path):
    host_trees.family_host(tmp_path / "host", "atlas_a2").put("etc/looked", f"for northwind, {'x' * 50}", 0o640)
    return str(tmp_path / "host")


def test_an_archive_is_written(capsys, tmp_path, host):
    dest = tmp_path / "bundle.tar.gz"
    dest.write_text("old")
    code, result = run(capsys, dest=str(dest), sysroot=host, paths=["/etc/looked"])
    data = dest.read_bytes()
    assert (code, result["changed"], result["path"]) == (0, True, str(dest))
    assert (result["size"], result["sha256"]) == (len(data), hashlib.sha256(data).hexdigest())
    assert (result["masked"], result["differences"]) == ({}, [])
    assert os.stat(dest).st_mode & 0o777 == 0o600
    with tarfile.open(dest) as archive:
        assert len(archive.getnames()) == result["members"]
        assert archive.getmember("etc/looked").size == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bundle.tar.gz", "host"]


def test_a_link_at_the_place_is_replaced_not_followed(capsys, tmp_path, host):
    (tmp_path / "precious").write_text("precious")
    (tmp_path / "bundle.tar.gz").symlink_to(tmp_path / "precious")
    code, _result = run(capsys, dest=str(tmp_path / "bundle.tar.gz"), sysroot=host)
    assert code == 0
    assert (tmp_path / "precious").read_text() == "precious"
    assert not (tmp_path / "bundle.tar.gz").is_symlink()


def test_check_mode_writes_nothing(capsys, tmp_path, host):
    code, result = run(capsys, dest=str(tmp_path / "bundle.tar.gz"), sysroot=host, _ansible_check_mode=True)
    assert (code, result["changed"]) == (0, True)
    assert result["members"] > 10
    assert [path.name for path in tmp_path.iterdir()] == ["host"]


def test_more_texts_can_be_hidden(capsys, tmp_path, host):
    host_trees.HostTree(host).put("sys/class/dmi/id/board_name", "Atlas of northwind\n")
    dest = tmp_path / "bundle.tar.gz"
    code, result = run(capsys, dest=str(dest), sysroot=host, hide=["northwind"])
    assert (code, result["masked"]) == (0, {"secret": 1})
    with tarfile.open(dest) as archive:
        texts = [archive.extractfile(entry).read() for entry in archive if entry.isreg()]
    assert not [text for text in texts if b"northwind" in text]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"sysroot": "/nowhere/host"}, "/nowhere/host"),
        ({"npu_smi_timeout": 0}, "npu_smi_timeout is 0"),
        ({"dest": "/nowhere/at/all"}, "dest is /nowhere/at/all"),
        ({"dest": "/"}, "dest is /"),
        ({"probe": "all"}, "value of probe must be one of"),
    ],
)
def test_failures_are_clean(capsys, tmp_path, host, arguments, words):
    code, result = run(capsys, **{"dest": str(tmp_path / "b.tar.gz"), "sysroot": host, **arguments})
    assert (code, result["failed"]) == (1, True)
    assert words in result["msg"]
    assert [path.name for path in tmp_path.iterdir()] == ["host"]


def test_documentation_agrees_with_the_arguments_and_the_result(capsys, tmp_path, host):
    documented = yaml.safe_load(host_bundle.DOCUMENTATION)["options"]
    assert set(documented) == set(host_bundle.ARGUMENT_SPEC)
    for name, option in host_bundle.ARGUMENT_SPEC.items():
        keys = {key: value for key, value in option.items() if key not in ("options", "no_log")}
        assert {key: documented[name].get(key) for key in keys} == keys
    _code, result = run(capsys, dest=str(tmp_path / "b.tar.gz"), sysroot=host)
    # Ansible adds the mode and the owner of what is at a path.
    added = {"changed", "invocation", "mode", "owner", "group", "uid", "gid", "state"}
    assert set(yaml.safe_load(host_bundle.RETURN)) == set(result) - added
