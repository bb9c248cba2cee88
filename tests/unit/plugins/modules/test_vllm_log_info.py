"""The module vllm_log_info: the journal of the instances, with their secrets masked."""

from __future__ import annotations

import json

import pytest
from ansible.module_utils.testing import patch_module_args
from ansible_collections.vllm_ascend.fleet.plugins.module_utils import instance_state
from ansible_collections.vllm_ascend.fleet.plugins.modules import vllm_log_info
from ansible_collections.vllm_ascend.fleet.tests.unit.support.host_trees import HostTree

JOURNAL = ["journalctl", "--no-pager", "--output", "short-iso", "--lines"]
UNIT = "# vllm_ascend.fleet instance\n[Service]\n"


def run(capsys, **arguments):
    with patch_module_args(arguments), pytest.raises(SystemExit) as ended:
        vllm_log_info.main()
    return ended.value.code, json.loads(capsys.readouterr().out)


@pytest.fixture
def host(tmp_path):
    tree = HostTree(tmp_path).put(instance_state.unit_path("ascend"), UNIT)
    tree.put(instance_state.env_path("ascend"), "VLLM_API_KEY=sk-12345678\nA=1\n", 0o600)
    tree.record([*JOURNAL, "4000", "--unit", "vllm-ascend.service"], "10:00:01 key sk-12345678 refused\n10:00:02 end\n")
    tree.record([*JOURNAL, "400", "--dmesg"], "10:00:03 kernel: eth0: link up\n")
    return str(tmp_path)


def test_the_log_of_each_instance_is_returned_without_its_secrets(capsys, host):
    code, result = run(capsys, sysroot=host)
    assert (code, result["changed"]) == (0, False)
    (entry,) = result["instances"]
    assert (entry["name"], entry["unit"], entry["error"]) == ("ascend", "vllm-ascend.service", None)
    assert entry["log"] == "10:00:01 key ******** refused\n10:00:02 end\n"
    assert result["kernel"] == "10:00:03 kernel: eth0: link up\n"


def test_a_log_that_was_not_recorded_is_null(capsys, host):
    _code, result = run(capsys, sysroot=host, names=["other"], since=1700000000.5)
    assert [(e["name"], e["log"], e["error"]) for e in result["instances"]] == [
        ("other", None, "journalctl was not recorded")
    ]
    assert result["kernel"] is None


@pytest.mark.parametrize(
    ("record", "error"),
    [
        ({"rc": 1, "stdout": "No journal files were found."}, "No journal files were found."),
        ({"rc": None, "stdout": "", "timed_out": True}, "journalctl gave no answer within 20 s"),
    ],
)
def test_a_journal_that_fails_says_why(capsys, tmp_path, record, error):
    tree = HostTree(tmp_path).put(instance_state.unit_path("ascend"), UNIT)
    argv = [*JOURNAL, "4000", "--unit", "vllm-ascend.service"]
    tree.record(argv, record["stdout"], record["rc"], record.get("timed_out", False))
    _code, result = run(capsys, sysroot=str(tmp_path))
    assert (result["instances"][0]["log"], result["instances"][0]["error"]) == (None, error)


def test_a_wrong_copy_of_a_host_is_refused(capsys, tmp_path):
    code, result = run(capsys, sysroot=str(tmp_path / "nowhere"))
    assert code == 1 and "nowhere" in result["msg"]
