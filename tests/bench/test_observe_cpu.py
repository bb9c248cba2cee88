"""What observing a host costs it: CPU of the modules as Ansible sends them, against ansible.builtin.setup.

Each module is packed by Ansible itself (the file that a host gets is kept), then run many times in turn; the middle of
the ratios of the rounds counts. `python -m pytest tests/bench -s` prints the numbers.
"""

from __future__ import annotations

import os
import pathlib
import resource
import statistics
import subprocess
import sys

import pytest
from ansible_collections.vllm_ascend.fleet.tests import gallery

ROOT = pathlib.Path(__file__).resolve().parents[2]
ROUNDS = 7
MODULES = {
    "setup": ("ansible.builtin.setup", "gather_subset=all"),
    "npu_facts": ("vllm_ascend.fleet.npu_facts", ""),
    "npu_facts of 16 NPUs": ("vllm_ascend.fleet.npu_facts", "sysroot={tree}"),
    "vllm_instance_info": ("vllm_ascend.fleet.vllm_instance_info", "probe=none"),
}


def packed(folder, module, arguments):
    """The Python file that Ansible sends to a host for one call of a module."""
    folder.mkdir()
    environment = {
        **os.environ,
        "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
        "ANSIBLE_KEEP_REMOTE_FILES": "1",
        "ANSIBLE_PIPELINING": "0",
        "ANSIBLE_REMOTE_TMP": str(folder),
        "ANSIBLE_LOCAL_TEMP": str(folder / "local"),
    }
    words = ["localhost", "-c", "local", "-e", f"ansible_python_interpreter={sys.executable}", "-m", module]
    ansible = str(pathlib.Path(sys.executable).parent / "ansible")
    subprocess.run(
        [ansible, *words, *(["-a", arguments] if arguments else [])], cwd=ROOT, env=environment, check=True,
        capture_output=True,
    )  # fmt: skip
    (found,) = folder.rglob("AnsiballZ_*.py")
    return found


def cpu_s(program):
    """Seconds of CPU, user and system, of one run, with all that it starts."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, str(program)], check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@pytest.fixture(scope="module")
def seconds(tmp_path_factory):
    """{name: [seconds of each round]} of all modules, run in turn."""
    base = tmp_path_factory.mktemp("bench")
    gallery.build(base / "tree", "a2_16_cards_x86")
    programs = {
        name: packed(base / f"run{number}", module, arguments.format(tree=base / "tree"))
        for number, (name, (module, arguments)) in enumerate(MODULES.items())
    }
    rounds = [{name: cpu_s(program) for name, program in programs.items()} for _round in range(ROUNDS)]
    return {name: [one[name] for one in rounds] for name in MODULES}


def ratio(seconds, *names):
    """The middle of the rounds' ratios of these modules together to setup."""
    sums = [sum(seconds[name][place] for name in names) for place in range(ROUNDS)]
    return statistics.median(one / setup for one, setup in zip(sums, seconds["setup"], strict=True))


@pytest.mark.parametrize("name", ["npu_facts", "npu_facts of 16 NPUs"])
def test_npu_facts_costs_at_most_half_of_setup(seconds, name):
    for one, times in seconds.items():
        print(f"{one}: {statistics.median(times):.3f} s CPU, {ratio(seconds, one):.2f} of setup")
    print(f"npu_facts and vllm_instance_info: {ratio(seconds, 'npu_facts', 'vllm_instance_info'):.2f} of setup")
    assert ratio(seconds, name) <= 0.5
