"""The documented verification and the checks beside the running service."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from ansible_collections.vllm_ascend.fleet.plugins.module_utils import preflight, verification

from tests.unit.support.fleet_rig import DEVICE, NEW, NEW_IMAGE, FleetRig

# The check of the quick start, line by line.
DOCUMENTED = """\
import torch
import vllm
import vllm_ascend
assert torch.npu.is_available(), "No available Ascend NPU detected in the container"
print("vLLM Ascend environment: OK")
"""
VLLM = "__version__ = '0.23.0'"
TORCH = """\
__version__ = "2.10.0"
class npu:
    @staticmethod
    def is_available():
        return {available}
    @staticmethod
    def device_count():
        return 2
"""


@pytest.fixture
def rig(tmp_path, monkeypatch):
    made = FleetRig(tmp_path, monkeypatch)
    yield made
    made.close()


@pytest.fixture
def packages(tmp_path):
    """A folder of packages that look like those of an image; returns (folder, run a script with them)."""
    folder = tmp_path / "site"
    folder.mkdir()

    def run(script, files):
        for name, text in files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            for parent in path.parents:
                if parent == folder:
                    break
                (parent / "__init__.py").touch()
            path.write_text(text, encoding="utf-8")
        return subprocess.run(
            [sys.executable, "-S", "-"],
            input=script,
            capture_output=True,
            text=True,
            env={"PYTHONPATH": str(folder)},
            timeout=60,
            check=False,
        )

    return run


# -- the script ------------------------------------------------------------------------------------------------------


def test_the_script_begins_with_the_documented_one():
    assert verification.SCRIPT.startswith(DOCUMENTED)


def test_the_script_prints_the_line_and_then_evidence(packages):
    torch = TORCH.format(available=True)
    done = packages(verification.SCRIPT, {"torch.py": torch, "vllm.py": VLLM, "vllm_ascend.py": ""})
    lines = done.stdout.splitlines()
    assert (done.returncode, lines[0]) == (0, "vLLM Ascend environment: OK")
    evidence = json.loads(lines[1][len(verification.EVIDENCE) :])
    assert evidence["npus"] == 2
    assert evidence["versions"]["vllm"] == "0.23.0"
    assert evidence["platform"] is None


@pytest.mark.parametrize(
    ("files", "text"),
    [
        (
            {"torch.py": TORCH.format(available=False), "vllm.py": "", "vllm_ascend.py": ""},
            "No available Ascend NPU detected",
        ),
        ({"torch.py": TORCH.format(available=True), "vllm.py": ""}, "No module named 'vllm_ascend'"),
        ({"torch.py": "raise OSError('libascend_hal.so: cannot open')"}, "libascend_hal.so"),
    ],
)
def test_the_script_does_not_print_the_line_when_the_environment_is_not_right(packages, files, text):
    done = packages(verification.SCRIPT, files)
    assert done.returncode != 0
    assert verification.OK_LINE not in done.stdout
    assert text in done.stderr


# -- how it is judged --------------------------------------------------------------------------------------------------


def test_a_throw_away_container_with_the_line_passes(rig):
    evidence = verification.verify(rig.host, rig.plan())
    assert (evidence["ok"], evidence["where"], evidence["message"]) == (True, "throwaway", None)
    assert evidence["platform_plugin"] == "installed"
    assert evidence["npu_smi"]["ok"] is True


def test_an_npu_smi_that_hung_on_the_host_is_not_called_again(rig):
    plan = rig.plan()
    plan["verification"]["npu_smi"] = None
    # It would fail if it were called.
    rig.does(NEW_IMAGE, npu_smi="npu-smi was called")
    evidence = verification.verify(rig.host, plan)
    assert (evidence["ok"], evidence["npu_smi"], evidence["python"]["ok"]) == (True, None, True)


@pytest.mark.parametrize(
    ("what", "text"),
    [
        ({"verify": "No available Ascend NPU detected in the container"}, "AssertionError: No available Ascend NPU"),
        ({"npu_smi": "bash: npu-smi: command not found"}, "npu-smi info fails in the container"),
    ],
)
def test_a_failure_has_the_line_that_says_why(rig, what, text):
    rig.does(NEW_IMAGE, **what)
    evidence = verification.verify(rig.host, rig.plan())
    assert evidence["ok"] is False
    assert text in evidence["message"]
    assert evidence["lines"]


@pytest.mark.parametrize(
    ("stdout", "ok"),
    [
        ("vLLM Ascend environment: OK\n", True),
        ("INFO x\nvLLM Ascend environment: OK\nsegmentation fault at exit\n", True),
        ("the check prints vLLM Ascend environment: OK when it passes\n", False),
        ("Platform plugin ascend is activated\n", False),
        ("", False),
    ],
)
def test_only_the_line_counts(rig, monkeypatch, stdout, ok):
    def planned(argv, timeout, stdin=None):
        code = 0 if stdin is None else 139
        return verification.CommandResult(argv, code, "" if stdin is None else stdout, "")

    monkeypatch.setattr(rig.host, "planned", planned)
    evidence = verification.verify(rig.host, rig.plan())
    assert evidence["ok"] is ok
    assert evidence["platform_plugin"] == ("activated" if "activated" in stdout else "unknown")


def test_a_container_that_a_killed_run_left_is_not_in_the_way(rig):
    rig.world.create("vllm-ascend-verify", NEW, {"vllm-ascend.instance": "ascend"}, [])
    assert verification.verify(rig.host, rig.plan())["ok"] is True


def test_a_running_instance_is_verified_inside_its_container(rig):
    plan = rig.plan()
    rig.apply(plan)
    rig.forget_calls()
    (evidence,) = verification.verify_all(rig.host, [plan])
    assert (evidence["name"], evidence["ok"], evidence["where"]) == ("ascend", True, "running container")
    assert rig.calls("docker", "run") == []
    executed = rig.calls("docker", "exec")
    assert executed[0][3:] == ["vllm-ascend", "bash", "-ic", 'exec "$@"', "--", "npu-smi", "info"]
    assert executed[1][-2:] == ["python3", "-"]


def test_an_npu_that_somebody_else_holds_is_said(rig):
    rig.world.create("training", NEW, {}, [DEVICE])
    (evidence,) = verification.verify_all(rig.host, [rig.plan()])
    assert evidence["ok"] is False
    assert "training" in evidence["message"]
    assert rig.calls("docker", "run") == []


# -- the checks without a device ---------------------------------------------------------------------------------------

CLI_ARGS = "vllm/entrypoints/openai/cli_args.py"
ARGPARSE = """\
import argparse
class FlexibleArgumentParser(argparse.ArgumentParser):
    pass
"""
PARSER = """\
def make_arg_parser(parser):
    parser.add_argument("model_tag", nargs="?")
    parser.add_argument("--dtype", choices=["auto", "float16"])
    parser.add_argument("--mode", type=str)
    return parser
"""
CRASH = """\
import argparse
class Crash(argparse.Action):
    def __call__(self, *args, **more):
        raise KeyError("FULL_DECODE")
"""


def said(done):
    line = next(line for line in done.stdout.splitlines() if line.startswith(preflight.MARK))
    return json.loads(line[len(preflight.MARK) :])


def image(**changes):
    """The files of an image whose vLLM has a parser; None removes one."""
    found = {"vllm/__init__.py": VLLM, "vllm/utils/argparse_utils.py": ARGPARSE, CLI_ARGS: PARSER}
    found.update(changes)
    return {name: text for name, text in found.items() if text is not None}


@pytest.mark.parametrize(
    ("args", "flags", "why"),
    [
        (["Qwen/Qwen3-0.6B"], "accepted", ""),
        (["Qwen/Qwen3-0.6B", "--dtype", "float16"], "accepted", ""),
        (["m", "--dtype", "fp16"], "refused", "error: argument --dtype: invalid choice: 'fp16'"),
        (["m", "--max-num-seq-s", "8"], "refused", "error: unrecognized arguments: --max-num-seq-s 8"),
        (["m", "--dtype"], "refused", "error: argument --dtype: expected one argument"),
        (["m", "--mode", 'it\'s "quoted" \\ here'], "accepted", ""),
    ],
)
def test_the_image_s_own_parser_judges_the_flags(packages, args, flags, why):
    found = said(packages(preflight.script(["vllm", "serve", *args]), image()))
    assert (found["flags"], found["vllm"]) == (flags, "0.23.0")
    assert why in found.get("why", "")


@pytest.mark.parametrize(
    ("text", "build"),
    [
        ("# Auto-generated file\n__device_type__ = 'A3'\n", {"device_type": "A3"}),
        ('__soc_version__ = "ascend910b1"\n__sleep_mode_enabled__ = True\n', {"soc_version": "ascend910b1"}),
        ("", {}),
        (None, {}),
    ],
)
def test_what_the_image_is_built_for_is_read_without_importing_it(packages, text, build):
    files = {"vllm_ascend/__init__.py": "raise ImportError('libascend_hal.so')", "vllm_ascend/_build_info.py": text}
    assert said(packages(preflight.script(["vllm", "serve", "m"]), image(**files)))["build"] == build


@pytest.mark.parametrize(
    "change",
    [
        {"vllm/__init__.py": "raise ImportError('libascend_hal.so')"},
        {CLI_ARGS: "raise RuntimeError('Failed to infer device type')"},
        {"vllm/utils/argparse_utils.py": None},
    ],
)
def test_what_cannot_be_checked_is_evidence(packages, change):
    found = said(packages(preflight.script(["vllm", "serve", "m", "--nope"]), image(**change)))
    assert found["flags"] == "unchecked"
    assert found["why"]


def test_a_value_that_makes_the_parser_itself_crash_is_a_refusal(packages):
    """vLLM 0.23.0 ends an unknown cudagraph_mode with a KeyError inside its parser."""
    crash = CRASH + PARSER.replace("type=str", "action=Crash")
    args = ["vllm", "serve", "m", "--mode", "x"]
    found = said(packages(preflight.script(args), image(**{CLI_ARGS: crash})))
    assert (found["flags"], found["why"]) == ("refused", "KeyError: 'FULL_DECODE'")


def test_the_refusal_names_the_argument(rig):
    rig.does(NEW_IMAGE, flags="refused", flags_why="usage: vllm serve\nvllm serve: error: argument --dtype: invalid")
    with pytest.raises(preflight.PreflightError, match="error: argument --dtype: invalid"):
        preflight.check(rig.host, rig.plan())


def test_an_engine_that_refuses_the_container_is_a_refusal(rig):
    rig.world.refuses = "docker: Error response from daemon: invalid mount config"
    with pytest.raises(preflight.PreflightError, match="invalid mount config"):
        preflight.check(rig.host, rig.plan())


def test_no_answer_is_evidence(rig, monkeypatch):
    result = verification.CommandResult([], None, "", "", timed_out=True)
    monkeypatch.setattr(rig.host, "planned", lambda argv, timeout, stdin=None: result._replace(argv=argv))
    found = preflight.check(rig.host, rig.plan())
    assert (found["checked"], found["flags"]) == (False, "unchecked")
    assert "no end within 300 s" in found["why"]
