"""The module npu_facts: options in, facts out, and a clean failure for a sysroot that cannot be used."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
import yaml
from ansible.module_utils.testing import patch_module_args
from ansible_collections.vllm_ascend.fleet.plugins.modules import npu_facts
from ansible_collections.vllm_ascend.fleet.tests.unit.support import host_trees


def run(capsys, **arguments):
    with patch_module_args(arguments), pytest.raises(SystemExit) as ended:
        npu_facts.main()
    return ended.value.code, json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("check_mode", [False, True])
def test_facts(capsys, tmp_path, check_mode):
    host_trees.family_host(tmp_path, "atlas_300i_duo", "openeuler")
    code, result = run(
        capsys,
        sysroot=str(tmp_path),
        paths=["{driver}/driver/lib64", "/usr/local/dcmi"],
        _ansible_check_mode=check_mode,
    )
    facts = result["ansible_facts"]["ascend_npu"]
    assert (code, result["changed"]) == (0, False)
    assert (facts["family"], facts["problems"], facts["npu_smi"]["status"]) == ("atlas_300i_duo", [], "ok")
    assert facts["paths"]["/usr/local/Ascend/driver/lib64"]["type"] == "directory"


def test_skip(capsys, tmp_path):
    host_trees.family_host(tmp_path, "atlas_a3")
    _code, result = run(capsys, sysroot=str(tmp_path), npu_smi="skip")
    assert result["ansible_facts"]["ascend_npu"]["npu_smi"]["status"] == "skipped"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"sysroot": "/nowhere/host"}, "/nowhere/host"),
        ({"npu_smi_timeout": 0}, "npu_smi_timeout is 0"),
        ({"npu_smi": "always"}, "value of npu_smi must be one of"),
        ({"npu_smi_path": "x"}, "Unsupported parameters"),
    ],
)
def test_failures_are_clean(capsys, arguments, words):
    code, result = run(capsys, **arguments)
    assert code == 1
    assert result["failed"]
    assert words in result["msg"]


def test_broken_records_are_a_clean_failure(capsys, tmp_path):
    host_trees.HostTree(tmp_path).put("recorded/commands.json", "{")
    code, result = run(capsys, sysroot=str(tmp_path))
    assert (code, result["failed"]) == (1, True)
    assert "recorded/commands.json" in result["msg"]


def test_documentation_agrees_with_the_arguments_and_the_facts(capsys, tmp_path):
    documentation = yaml.safe_load(npu_facts.DOCUMENTATION)
    for name, option in npu_facts.ARGUMENT_SPEC.items():
        documented = documentation["options"][name]
        assert {key: documented.get(key) for key in option} == option
    assert set(documentation["options"]) == set(npu_facts.ARGUMENT_SPEC)
    host_trees.family_host(tmp_path, "atlas_a2")
    _code, result = run(capsys, sysroot=str(tmp_path))
    returned = yaml.safe_load(npu_facts.RETURN)["ansible_facts"]["contains"]["ascend_npu"]["contains"]
    facts = result["ansible_facts"]["ascend_npu"]
    assert set(returned) == set(facts)
    for name in ("driver", "npu_smi", "host"):
        assert set(returned[name]["sample"]) == set(facts[name]), name
    for name in ("chips", "pci"):
        assert set(returned[name]["sample"][0]) == set(facts[name][0]), name
    assert set(returned["device_nodes"]["sample"]["/dev/davinci0"]) == set(facts["device_nodes"]["/dev/davinci0"])


def test_it_runs_as_a_program(tmp_path):
    host_trees.family_host(tmp_path, "atlas_200i_pro")
    arguments = json.dumps({"ANSIBLE_MODULE_ARGS": {"sysroot": str(tmp_path)}})
    name = npu_facts.__name__
    name = npu_facts.__name__
    program = f"import runpy, sys; sys.path[:0] = {sys.path!r}; runpy.run_module({name!r}, run_name='__main__')"
    done = subprocess.run(
        [sys.executable, "-c", program], input=arguments, capture_output=True, text=True, check=False, timeout=60
    )
    assert json.loads(done.stdout)["ansible_facts"]["ascend_npu"]["family"] == "atlas_200i_pro", done.stderr
