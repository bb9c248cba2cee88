"""The real vLLM behind the unit of a 310P host, with the flags of its family: start, load, serve, stop, failures."""

from __future__ import annotations

import json

import pytest
from ansible_collections.vllm_ascend.fleet.tests.integration.rack import on, site
from ansible_collections.vllm_ascend.fleet.tests.integration.real_engine import MODEL, UNIT, Engine

pytestmark = pytest.mark.lab
HOST = "duo-ubuntu-1"
ENGINE = Engine(HOST, "-310p", vllm_stop_timeout=12, vllm_shutdown_timeout=10, vllm_environment={"LAB_STEP_S": "0.02"})
UNIT_FILE = f"/etc/systemd/system/{UNIT}.service"
FLAGS = {
    "'dtype': 'float16'",
    "'max_num_seqs': 8",
    "CUDAGraphMode.FULL_DECODE_ONLY",
    "[1, 2, 4, 8]",
    "'enable_npugraph_ex': False",
}


@pytest.fixture(scope="module")
def run():
    """The deployment; afterwards the host serves what the other tests of its group expect."""
    yield ENGINE.site()
    site("--limit", HOST)


def test_the_flags_of_the_plan_reach_the_engine(run):
    assert run.rc == 0, run.text[-4000:]
    (instance,) = run.report(HOST)["plan"]["instances"]
    process = json.loads(on(HOST, "docker", "inspect", "vllm-ascend"))[0]
    assert process["Config"]["Cmd"][-len(instance["serve_args"]) :] == instance["serve_args"]
    printed = ENGINE.journal()
    (line,) = [line for line in printed.splitlines() if "non-default args" in line][-1:]
    assert {flag for flag in FLAGS if flag in line} == FLAGS, line
    assert "Platform plugin ascend is activated" in printed
    assert "SIMULATED: this platform plugin computes nothing" in printed
    assert "Application startup complete." in printed
    assert f"a completion of {MODEL} returned text" in printed


def test_a_killed_container_comes_back(run):
    before = ENGINE.container()
    cursor = ENGINE.cursor()
    on(HOST, "docker", "kill", "vllm-ascend")
    ENGINE.wait_for_line("returned text", cursor)
    ENGINE.wait()
    assert ENGINE.complete()
    assert ENGINE.container() != before


def test_an_open_stream_is_finished_with_a_shutdown_timeout(run):
    stream = ENGINE.stream()
    on(HOST, "systemctl", "stop", UNIT)
    assert stream.ended(5)
    assert stream.failure is None and stream.complete
    assert ENGINE.show("ActiveState", "Result", "ExecMainStatus") == ["inactive", "success", "0"]
    assert ENGINE.container() == ""


def test_a_stop_while_the_engine_loads_ends_within_its_limit(run):
    """vLLM ends at no signal while it loads; after the time limit the container is killed and the unit is not hung."""
    on(HOST, "sed", "-i", "'s/  --init /  --init --env LAB_LOAD_S=300 /'", UNIT_FILE)
    on(HOST, "systemctl", "daemon-reload")
    cursor = ENGINE.cursor()
    on(HOST, "systemctl", "start", "--no-block", UNIT)
    ENGINE.wait_for_line("Initializing a V1 LLM engine", cursor)
    assert ENGINE.show("ActiveState") == ["activating"]
    on(HOST, "systemctl", "stop", UNIT)
    assert ENGINE.show("ActiveState")[0] in ("inactive", "failed")
    assert ENGINE.container() == ""
    assert "returned text" not in ENGINE.journal(cursor)
