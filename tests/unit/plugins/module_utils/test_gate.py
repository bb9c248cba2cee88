"""The readiness gate, asking a real HTTP server as a container on the loopback address."""

from __future__ import annotations

import contextlib
import http.server
import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

import pytest
from ansible_collections.vllm_ascend.fleet.plugins.module_utils import gate, helper_install

MODEL = "Qwen/Qwen3-0.6B"
KEY = "sk-gate"
# A docker whose container is whatever the file inspect.json says, and that writes down how it is called.
DOCKER = """#!/bin/sh
folder=$(dirname "$0")
echo "$*" >> "$folder/calls"
[ -z "$DOCKER_HOST" ] && [ "$DOCKER_CONTEXT" = default ] || exit 1
case "$1" in
container) [ -f "$folder/inspect.json" ] && cat "$folder/inspect.json" || exit 1 ;;
esac
"""


class Server:
    """An OpenAI-compatible endpoint whose answers a test changes while it runs."""

    def __init__(self):
        self.health, self.model, self.text, self.key = 200, MODEL, " city", None
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def log_message(self, *_args):
                pass

            def do_GET(self):
                if self.path == "/health":
                    return self._send(outer.health, {})
                return self._send(200, {"data": [{"id": outer.model}]})

            def do_POST(self):
                self.rfile.read(int(self.headers["Content-Length"]))
                return self._send(200, {"choices": [{"text": outer.text}]})

            def _send(self, status, body):
                if outer.key and self.path != "/health" and self.headers.get("Authorization") != f"Bearer {outer.key}":
                    status = 401
                data = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self.http.server_port
        threading.Thread(target=self.http.serve_forever, args=(0.02,), daemon=True).start()

    def close(self):
        self.http.shutdown()
        self.http.server_close()


@pytest.fixture
def server():
    made = Server()
    yield made
    made.close()


@pytest.fixture
def engine(tmp_path, monkeypatch):
    """The folder of the fake docker, whose container runs on the loopback address."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "docker").write_text(DOCKER, encoding="utf-8")
    (folder / "docker").chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=":")
    monkeypatch.setattr(gate, "POLL_S", 0.05)
    inspect(folder)
    return folder


def inspect(folder, network="default", pid=None, running=True):
    container = {
        "Id": "c" * 64,
        "State": {"Running": running, "Pid": os.getpid() if pid is None else pid},
        "HostConfig": {"NetworkMode": network},
        "NetworkSettings": {"Networks": {"bridge": {"IPAddress": "127.0.0.1"}}},
    }
    (folder / "inspect.json").write_text(json.dumps([container]), encoding="utf-8")


def target(server, network="bridge", model=MODEL, env_file=None):
    return gate.Target("docker", "vllm-ascend", network, server.port, model, env_file)


def quiet(_text):
    pass


def test_a_container_that_serves_opens_the_gate_with_a_completion(server, engine):
    proof = gate.wait(target(server), 10, os.getpid(), say=quiet)
    assert (proof.serving, proof.completion) == (True, " city")


def test_it_opens_once_the_engine_is_up_and_says_what_it_waits_for(server, engine):
    server.health, said = 503, []
    threading.Timer(0.4, setattr, (server, "health", 200)).start()
    began = time.monotonic()
    assert gate.wait(target(server), 20, os.getpid(), say=said.append).serving
    assert time.monotonic() - began > 0.3
    assert len(said) == 1
    assert "503" in said[0]


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"health": 503}, "503"),
        ({"key": KEY}, "the API key is missing or not the server's"),
    ],
)
def test_it_gives_up_at_its_limit_with_the_last_reason(server, engine, change, text):
    for name, value in change.items():
        setattr(server, name, value)
    began = time.monotonic()
    with pytest.raises(gate.GateError) as caught:
        gate.wait(target(server), 0.5, os.getpid(), say=quiet)
    assert time.monotonic() - began < 5
    assert text in str(caught.value)
    assert "vllm-ascend does not serve" in str(caught.value)


def test_it_gives_up_soon_on_an_engine_that_answers_without_text(server, engine):
    server.text = ""
    began = time.monotonic()
    with pytest.raises(gate.GateError, match=r"answers without text: .*choices\[0\].text is empty"):
        gate.wait(target(server), 600, os.getpid(), say=quiet)
    assert time.monotonic() - began < 60


def test_it_gives_up_at_once_when_the_main_process_is_gone(server, engine):
    server.health = 503
    process = subprocess.Popen(["sleep", "0.5"])
    # As systemd does, so that no zombie stands for a living process.
    threading.Thread(target=process.wait).start()
    began = time.monotonic()
    with pytest.raises(gate.GateError, match=f"main process {process.pid}"):
        gate.wait(target(server), 60, process.pid, say=quiet)
    assert time.monotonic() - began < 10


def test_a_zombie_is_not_alive():
    process = subprocess.Popen(["true"])
    time.sleep(0.3)
    assert gate.alive(process.pid) is False
    assert gate.alive(os.getpid()) is True
    process.wait()


def test_another_model_is_not_waited_for(server, engine):
    server.model = "other/model"
    began = time.monotonic()
    with pytest.raises(gate.GateError, match="serves another model"):
        gate.wait(target(server), 60, os.getpid(), say=quiet)
    assert time.monotonic() - began < 10


def test_the_key_is_read_from_the_environment_file(server, engine, tmp_path):
    server.key = KEY
    (tmp_path / "ascend.env").write_text(f"HF_TOKEN=x\nVLLM_API_KEY={KEY}\n", encoding="utf-8")
    assert gate.wait(target(server, env_file=str(tmp_path / "ascend.env")), 10, 0, say=quiet).serving


@pytest.mark.parametrize("state", ["missing", "stopped", "no address"])
def test_a_container_that_does_not_run_yet_is_waited_for(server, engine, state):
    if state == "missing":
        (engine / "inspect.json").unlink()
    else:
        inspect(engine, running=state != "stopped")
        if state == "no address":
            text = (engine / "inspect.json").read_text(encoding="utf-8")
            (engine / "inspect.json").write_text(text.replace("127.0.0.1", ""), encoding="utf-8")
    threading.Timer(0.4, inspect, (engine,)).start()
    assert gate.wait(target(server), 20, 0, say=quiet).serving


# -- the host network ------------------------------------------------------------------------------------------------


def test_on_the_host_network_the_listener_must_be_of_the_container(server, engine):
    """This process listens, and it is the container's main process."""
    inspect(engine, network="host")
    assert gate.wait(target(server, "host"), 10, 0, say=quiet).serving


def test_on_the_host_network_somebody_else_s_listener_is_named_at_once(server, engine):
    """Two servers of vLLM 0.23.0 can listen on one port: half of the requests would go to the other."""
    process = subprocess.Popen(["sleep", "60"])
    try:
        inspect(engine, network="host", pid=process.pid)
        with pytest.raises(gate.GateError) as caught:
            gate.wait(target(server, "host"), 60, 0, say=quiet)
    finally:
        process.kill()
        process.wait()
    assert f"port {server.port}" in str(caught.value)
    assert str(os.getpid()) in str(caught.value)


@pytest.mark.parametrize(
    ("ours", "theirs", "conflict"),
    [
        ("127.0.0.1", "127.0.0.2", False),
        ("127.0.0.1", "127.0.0.1", True),
        ("127.0.0.1", "0.0.0.0", True),
        ("0.0.0.0", "127.0.0.2", True),
        ("127.0.0.1", "::", True),
        ("::", "10.0.0.1", True),
        ("127.0.0.1", "::1", False),
        ("0.0.0.0", "::1", False),
        ("::", "::1", True),
    ],
)
@pytest.mark.parametrize("listening", [True, False])
def test_only_a_listener_whose_address_meets_ours_is_a_conflict(monkeypatch, ours, theirs, conflict, listening):
    """Before it listens, the container's address is the one of its command."""
    own = {"port": 8000, "address": ours, "pid": 7, "process": "vllm", "container": "c"}
    other = {"port": 8000, "address": theirs, "pid": 9, "process": "nginx", "container": None}
    found = [own, other] if listening else [other]
    monkeypatch.setattr(gate.listeners, "read_listeners", lambda *_args: found)
    container = {"Id": "c", "State": {"Pid": 7}, "Config": {"Cmd": ["vllm", "serve", "m", "--host", ours]}}
    if conflict:
        with pytest.raises(gate.GateError, match=r"port 8000 .* process 9 \(nginx\)"):
            gate.own_listener(container, 8000)
    else:
        address = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(ours, ours)
        assert gate.own_listener(container, 8000) == (address if listening else None)


@pytest.mark.parametrize(
    ("words", "addresses"),
    [
        ([], ["0.0.0.0"]),
        (["--host=10.0.0.1"], ["10.0.0.1"]),
        (["--host", "localhost"], ["127.0.0.1"]),
        (["--host", "[::]"], ["::"]),
        (["--host", "npu-7.rack"], []),
    ],
)
def test_the_address_that_a_command_will_listen_on(words, addresses):
    assert gate.planned_addresses({"Config": {"Cmd": ["vllm", "serve", "m", *words]}}) == addresses


def test_a_docker_that_points_elsewhere_is_not_asked(server, engine, monkeypatch):
    monkeypatch.setenv("DOCKER_HOST", "tcp://elsewhere:2375")
    monkeypatch.setenv("DOCKER_CONTEXT", "elsewhere")
    assert gate.wait(target(server), 10, os.getpid(), say=quiet).serving


def test_on_the_host_network_nobody_listening_is_waited_for(engine):
    inspect(engine, network="host")
    closed = Server()
    closed.close()
    with pytest.raises(gate.GateError, match="no process of the container listens"):
        gate.wait(target(closed, "host"), 0.3, 0, say=quiet)


# -- the program -----------------------------------------------------------------------------------------------------


@pytest.fixture
def helper(tmp_path):
    path = tmp_path / "host.py"
    path.write_bytes(helper_install.build())
    return str(path)


def run_gate(helper, server, *more):
    argv = [sys.executable, helper, "gate", "--container", "vllm-ascend", "--network", "bridge"]
    argv += ["--port", str(server.port), "--model", MODEL, *more]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True)


def test_the_helper_s_gate_ends_with_0_and_says_how_long_it_took(helper, server, engine):
    process = run_gate(helper, server, "--timeout", "20", "--main-pid", str(os.getpid()))
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")
    assert "vllm-ascend serves after" in out


def test_the_helper_s_gate_ends_with_1_and_one_line(helper, server, engine):
    server.health = 503
    process = run_gate(helper, server, "--timeout", "1")
    _out, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert err.count("\n") == 1
    assert err.startswith("vllm-ascend gate: vllm-ascend does not serve after")


def test_a_stop_while_loading_stops_the_container(helper, server, engine):
    """One SIGTERM is swallowed by an engine that loads, and the docker client has sent that one already."""
    server.health = 503
    process = run_gate(helper, server, "--timeout", "60")
    calls = pathlib.Path(str(engine / "calls"))
    deadline = time.monotonic() + 30
    while not calls.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=60)
    # 0, since any other code would make the stopped unit a failed one.
    assert (process.returncode, err) == (0, "")
    assert "stopped while vllm-ascend was loading" in out
    acted = [line for line in calls.read_text(encoding="utf-8").splitlines() if not line.startswith("container")]
    assert acted == ["kill --signal TERM vllm-ascend", "stop -t 5 vllm-ascend"]


def test_a_second_signal_does_not_interrupt_the_stop(helper, server, engine):
    server.health = 503
    process = run_gate(helper, server, "--timeout", "60")
    calls = pathlib.Path(str(engine / "calls"))
    deadline = time.monotonic() + 30
    while not calls.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    time.sleep(0.2)
    with contextlib.suppress(OSError):
        process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert "stop -t 5 vllm-ascend" in calls.read_text(encoding="utf-8")
