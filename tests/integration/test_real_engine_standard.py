"""The real vLLM behind the unit of an A2 host: what it serves, and what brings it back."""

from __future__ import annotations

import pytest
from ansible_collections.vllm_ascend.fleet.tests.integration.rack import ROOT, on, playbook, site, variables
from ansible_collections.vllm_ascend.fleet.tests.integration.real_engine import MODEL, UNIT, Engine

pytestmark = pytest.mark.lab
HOST = "a2-ubuntu-1"
STOP_S = 8
ENGINE = Engine(HOST, vllm_stop_timeout=STOP_S, vllm_environment={"LAB_STEP_S": "0.05"})


@pytest.fixture(scope="module")
def run():
    """The deployment; afterwards the host serves what the other tests of its group expect."""
    yield ENGINE.site()
    site("--limit", HOST)


@pytest.fixture
def serving(run):
    """The engine serves."""
    ENGINE.wait()


def test_every_endpoint_answers(run):
    assert run.rc == 0, run.text[-4000:]
    assert ENGINE.ask("/health") == ""
    assert [model["id"] for model in ENGINE.ask("/v1/models")["data"]] == [MODEL]
    assert ENGINE.complete().strip()
    chat = ENGINE.ask("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 5})
    assert chat["choices"][0]["message"]["content"].strip()
    done = [line for line in ENGINE.ask("/metrics").splitlines() if line.startswith("vllm:request_success_total{")]
    assert sum(float(line.rsplit(" ", 1)[1]) for line in done) >= 2, done


def test_a_second_instance_on_its_port_is_refused_before_anything_starts(serving):
    """Two servers of vLLM 0.23.0 on one port of the host network both start; nothing but the plan would tell."""
    before = (ENGINE.container(), on(HOST, "ls", "/etc/systemd/system"))
    second = variables(vllm_instances=[{"name": "second", "port": 8000}])
    refused = playbook("playbooks/site.yml", "-i", str(ROOT / "inventories/lab"), "--limit", HOST, *second)
    assert refused.rc == 2
    assert refused.codes(HOST) == {"port_taken"}
    assert "vllm-ascend" in refused.text
    assert (ENGINE.container(), on(HOST, "ls", "/etc/systemd/system")) == before


def test_a_killed_engine_core_comes_back(serving):
    """The API server then ends with exit code 0, as a server does that was stopped."""
    before = ENGINE.container()
    cursor = ENGINE.cursor()
    on(HOST, "kill", "-KILL", ENGINE.core())
    ENGINE.wait_for_line("returned text", cursor)
    ENGINE.wait()
    assert ENGINE.complete().strip()
    assert ENGINE.container() != before
    assert int(ENGINE.show("NRestarts")[0]) >= 1


def test_a_restart_of_the_container_engine_does_not_end_the_service(serving):
    cursor = ENGINE.cursor()
    on(HOST, "systemctl", "restart", "docker")
    ENGINE.wait_for_line("returned text", cursor)
    ENGINE.wait()
    assert ENGINE.complete().strip()


def test_a_stop_with_an_open_stream_ends_within_its_limit(serving):
    stream = ENGINE.stream()
    on(HOST, "systemctl", "stop", UNIT)
    assert stream.ended(5)
    assert ENGINE.show("ActiveState")[0] in ("inactive", "failed")
    assert ENGINE.container() == ""


def test_it_serves_again_after_a_reboot(run):
    """The unit is enabled, and a stop lasts until the next boot."""
    ENGINE.reboot()
    ENGINE.wait()
    assert ENGINE.complete().strip()


def test_an_idle_engine_ends_well_at_a_stop(serving):
    cursor = ENGINE.cursor()
    on(HOST, "systemctl", "stop", UNIT)
    assert ENGINE.show("ActiveState", "Result", "ExecMainStatus") == ["inactive", "success", "0"]
    assert ENGINE.container() == ""
    assert "Application shutdown complete." in ENGINE.journal(cursor)
