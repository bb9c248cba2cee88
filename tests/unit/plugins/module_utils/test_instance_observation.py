"""instance_observation: a whole host read in one go, recorded ones and one whose endpoints answer."""

from __future__ import annotations

import copy
import json
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from ansible_collections.vllm_ascend.fleet.plugins.module_utils import instance_observation as observation
from ansible_collections.vllm_ascend.fleet.plugins.module_utils import instance_state as state
from ansible_collections.vllm_ascend.fleet.plugins.module_utils.instance_observation import Options

from tests.unit.support import hostile
from tests.unit.support.recorded_hosts import DOCKER, RecordedHost, data, docker_20, record, systemd_records

UNIT = "# vllm_ascend.fleet instance\n# plan 0123456789abcdef\n[Unit]\n"
MODEL = "Qwen/Qwen3-0.6B"
SECRET = "sk-do-not-show"


def plan(**changes):
    made = {
        "name": "ascend",
        "model": MODEL,
        "served_model_name": MODEL,
        "npus": ["/dev/davinci0"],
        "endpoint": {"address": "0.0.0.0", "port": 8000, "network": "bridge", "container_port": 8000},
        "plan_hash": "0123456789abcdef",
    }
    made.update(changes)
    return made


def committed(instance_plan):
    return {
        "plan_hash": "0123456789abcdef",
        "plan": instance_plan,
        "image_id": "sha256:" + "a2" * 32,
        "image_reference": "quay.io/ascend/vllm-ascend:v0.23.0",
        "unit_digest": state.text_digest(UNIT),
        "secrets": [],
    }


def show(active="active", sub="running", restarts=0, result="success"):
    return (
        f"Id=vllm-ascend.service\nLoadState=loaded\nActiveState={active}\nSubState={sub}\nUnitFileState=enabled\n"
        f"FragmentPath=/etc/systemd/system/vllm-ascend.service\nNRestarts={restarts}\nResult={result}\nMainPID=1\n"
    )


def ours(**changes):
    """docker inspect's object of the instance's container."""
    container = copy.deepcopy(json.loads(data("docker/inspect-20.10.24.json"))[0])
    for part, values in changes.items():
        container[part].update(values)
    return container


def deployed(tmp_path, instance_plan=None, containers=None, unit=None):
    """A host with the instance "ascend"."""
    host = RecordedHost(tmp_path).file(DOCKER).file(state.unit_path("ascend"), UNIT)
    host.file(state.env_path("ascend"), f"VLLM_API_KEY={SECRET}\n")
    host.file(state.state_path("ascend", state.COMMITTED), committed(instance_plan or plan()))
    return host.calls(docker_20(containers)).calls(systemd_records(["ascend"], unit or show()))


def test_an_empty_host_has_nothing_and_invents_nothing(tmp_path):
    assert observation.collect(RecordedHost(tmp_path).sysroot()) == {
        "engine": None, "systemd": None, "listeners": [], "instances": [], "foreign": [], "images": [], "models": [],
        "helper": None,
    }  # fmt: skip


def test_a_recorded_host(tmp_path):
    host = deployed(tmp_path).file(state.HELPER_PATH, "# vllm_ascend.fleet host helper 0.1.0\n")
    host.file(
        "proc/net/tcp",
        "head\n 0: 00000000:1F40 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 1199 1 0 100 0 0 10 0\n",
    )
    observed = observation.collect(host.sysroot(), Options(ports=[8000, 8080]))
    assert observed["instances"] == [
        {
            "name": "ascend",
            "unit": "vllm-ascend.service",
            "active_state": "active",
            "sub_state": "running",
            "unit_file_state": "enabled",
            "restarts": 0,
            "result": "success",
            "unit_digest": state.text_digest(UNIT),
            "secrets": [{"name": "VLLM_API_KEY", "digest": state.secret_digest("VLLM_API_KEY", SECRET)}],
            "plan_hash": "0123456789abcdef",
            "plan": plan(),
            "image_id": "sha256:" + "a2" * 32,
            "image_reference": "quay.io/ascend/vllm-ascend:v0.23.0",
            "container": {
                "id": "1a" * 32,
                "image_id": "sha256:" + "a2" * 32,
                "state": "running",
                "started_at": "2026-03-01T10:00:00.5Z",
                "plan_hash": "0123456789abcdef",
            },
            "npus": ["/dev/davinci0"],
            "ports": [8000],
            "health": "unknown",
            "health_detail": "the endpoint was not asked",
            "served_models": None,
            "journal": "none",
            "previous": False,
        }
    ]
    assert observed["systemd"] == {"version": 252}
    assert observed["engine"]["running"] is True
    assert observed["helper"]["version"] == "0.1.0"
    assert {entry["container"] for entry in observed["foreign"]} == {
        "vllm-hand", "train", "k8s-pod", "cpu-job", "smi-exporter",
    }  # fmt: skip
    assert len(observed["images"]) == 3
    assert [(one["port"], one["address"], one["container"][:2]) for one in observed["listeners"]] == [
        (8000, "0.0.0.0", "1a"), (8000, "::", "1a"), (8080, "127.0.0.1", "7a"),
    ]  # fmt: skip
    assert SECRET not in json.dumps(observed)


def test_without_an_engine_the_health_is_unknown(tmp_path):
    host = RecordedHost(tmp_path).file(state.state_path("ascend", state.COMMITTED), committed(plan()))
    instance = observation.collect(host.sysroot())["instances"][0]
    assert (instance["health"], instance["container"], instance["active_state"]) == ("unknown", None, None)
    assert (instance["unit_digest"], instance["secrets"]) == (None, None)
    assert (instance["npus"], instance["ports"]) == (["/dev/davinci0"], [8000])


def test_a_stopped_engine_is_the_reason_for_unknown_health(tmp_path):
    host = RecordedHost(tmp_path).file(DOCKER).file(state.unit_path("ascend"), UNIT)
    host.calls([record(["docker", "version", "--format", "{{json .}}"], timed_out=True)])
    instance = observation.collect(host.live(), Options(timeout=2))["instances"][0]
    assert instance["health"] == "unknown"
    assert "gave no answer within 2 s" in instance["health_detail"]


@pytest.mark.parametrize(
    "unit, containers, health, words",
    [
        (show("inactive", "dead"), [], "down", "no container, unit inactive/dead"),
        (show("failed", "failed", 0, "exit-code"), [], "down", "unit failed/failed"),
        (show(), [], "down", "no container, unit active/running"),
        (show("activating", "start-pre"), [], "loading", "unit activating/start-pre"),
        (show("activating", "auto-restart", 7, "exit-code"), [], "down", "7 automatic restarts, last result exit-code"),
        (show(), [ours(State={"Running": False, "Status": "exited", "Pid": 0})], "down", "container exited"),
        (show(), [ours(State={"Status": "paused", "Paused": True})], "unhealthy", "paused"),
        (
            show(),
            [ours(NetworkSettings={"IPAddress": "", "Networks": {"none": {"IPAddress": ""}}})],
            "unhealthy",
            "no address",
        ),
    ],
)
def test_health_that_needs_no_question(tmp_path, unit, containers, health, words):
    instance = observation.collect(deployed(tmp_path, None, containers, unit).live())["instances"][0]
    assert instance["health"] == health
    assert words in instance["health_detail"]


def test_instances_without_a_unit_are_seen_too(tmp_path):
    left_over = ours(Config={"Labels": {"vllm-ascend.instance": "left", "vllm-ascend.role": "serve"}})
    host = RecordedHost(tmp_path).file(DOCKER).file(state.state_path("cut", state.JOURNAL), {"state": "open"})
    host.file(state.state_path("cut", state.PREVIOUS), {"plan_hash": "0"})
    host.calls(docker_20([left_over])).calls(systemd_records(["cut", "left"], show("inactive", "dead")))
    cut, left = observation.collect(host.sysroot())["instances"]
    assert (cut["name"], cut["journal"], cut["previous"], cut["plan"]) == ("cut", "open", True, None)
    assert (left["name"], left["unit_digest"], left["npus"], left["ports"]) == ("left", None, ["/dev/davinci0"], [8000])
    assert (cut["npus"], cut["ports"]) == ([], [])


def test_the_serving_container_is_not_the_verification_s():
    serving, verifying = json.loads(data("docker/inspect-20.10.24.json"))[:2]
    old = dict(serving, Id="old", Created="2026-01-01T00:00:00Z", State={"Status": "exited", "Running": False})
    assert observation.find_container([verifying], "ascend") is None
    assert observation.find_container([serving], "other") is None
    newer = dict(old, Id="new", Created="2026-02-01")
    assert observation.find_container([old, newer], "ascend") is newer
    assert observation.find_container([old, verifying, serving], "ascend") is serving


@pytest.mark.parametrize(
    "changes, instance_plan, port",
    [
        ({}, None, 8000),
        ({}, {"endpoint": {"port": 9000, "container_port": 8123}}, 8123),
        ({"HostConfig": {"NetworkMode": "host"}}, {"endpoint": {"port": 9000, "container_port": None}}, 9000),
        ({"HostConfig": {"NetworkMode": "host"}}, None, 8000),
        ({"HostConfig": {"NetworkMode": "host"}, "Config": {"Cmd": ["vllm", "--port", "8001"]}}, None, 8001),
        ({"HostConfig": {"NetworkMode": "host"}, "Config": {"Cmd": ["vllm", "--port=8002"]}}, None, 8002),
        ({"HostConfig": {"NetworkMode": "host"}, "Config": {"Cmd": ["vllm", "--port"]}}, None, 8000),
        ({"NetworkSettings": {"Ports": {"8005/tcp": [{"HostIp": "", "HostPort": "80"}]}}}, None, 8005),
    ],
)
def test_the_port_of_the_container_itself(changes, instance_plan, port):
    assert observation.serving_port(ours(**changes), instance_plan) == port


# -- endpoints that answer -----------------------------------------------------------------------------------------


class Server(ThreadingHTTPServer):
    text = " city"
    # Requests that are answered; those after them get 503.
    sick_after = 99

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked: list[str] = []


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self):
        self.server.asked.append(self.path)
        self.send({"data": [{"id": MODEL}]} if self.path == "/v1/models" else None)

    def do_POST(self):
        self.server.asked.append(self.path)
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send({"choices": [{"text": self.server.text}]})

    def send(self, answer):
        allowed = self.path == "/health" or self.headers.get("Authorization") == "Bearer " + SECRET
        data = b"" if answer is None else json.dumps(answer).encode()
        sick = len(self.server.asked) > self.server.sick_after
        self.send_response(503 if sick else 200 if allowed else 401)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format, *args):
        """Quiet."""


@pytest.fixture
def server():
    serving = Server()
    threading.Thread(target=serving.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    yield serving
    serving.shutdown()
    serving.server_close()


def observe(tmp_path, port, unit=None, **options):
    """Observe the instance whose container is on the host network, at that port of this machine."""
    instance_plan = plan(endpoint={"address": "0.0.0.0", "port": port, "network": "host", "container_port": None})
    host = deployed(tmp_path, instance_plan, [ours(HostConfig={"NetworkMode": "host"})], unit)
    return observation.collect(host.live(), Options(timeout=10.0, ports=[], **options))["instances"][0]


def test_serving_with_the_key_of_the_environment_file(tmp_path, server):
    instance = observe(tmp_path, server.server_address[1])
    assert (instance["health"], instance["served_models"]) == ("serving", [MODEL])
    assert server.asked == ["/health", "/v1/models", "/v1/completions"]
    assert SECRET not in json.dumps(instance)


def test_a_server_that_answers_but_completes_nothing_is_unhealthy(tmp_path, server):
    server.text = ""
    instance = observe(tmp_path, server.server_address[1])
    assert (instance["active_state"], instance["health"]) == ("active", "unhealthy")


@pytest.mark.parametrize(
    "probe, asked, health",
    [("health", ["/health", "/v1/models"], "serving"), ("none", [], "unknown")],
)
def test_how_far_it_asks(tmp_path, server, probe, asked, health):
    server.text = ""
    assert observe(tmp_path, server.server_address[1], probe=probe)["health"] == health
    assert server.asked == asked


@pytest.mark.parametrize(
    "unit, health",
    [(show(), "down"), (show("activating", "start-post"), "loading"), (show("deactivating", "stop"), "down")],
)
def test_a_refused_connection_means_loading_only_while_the_unit_starts(tmp_path, server, unit, health):
    port = server.server_address[1]
    server.shutdown()
    server.server_close()
    assert observe(tmp_path, port, unit)["health"] == health


class TwoPorts:
    """A container on a bridge, at an address of its own that is this machine's loopback."""

    def __init__(self, tmp_path, inner, outer, planned=True, **options):
        ends = {"address": "127.0.0.1", "port": outer, "network": "bridge", "container_port": inner}
        forwarded = {f"{inner}/tcp": [{"HostIp": "", "HostPort": str(outer)}]}
        container = ours(NetworkSettings={"Networks": {"bridge": {"IPAddress": "127.0.0.1"}}, "Ports": forwarded})
        host = deployed(tmp_path, plan(endpoint=ends if planned else 7), [container])
        self.seen = observation.collect(host.live(), Options(timeout=10.0, ports=[], **options))["instances"][0]


@pytest.fixture
def closed():
    """A port on which nothing listens."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        yield sock.getsockname()[1]


@pytest.fixture
def silent():
    """A port that takes connections and never answers."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        sock.listen(5)
        yield sock.getsockname()[1]


@pytest.mark.parametrize("planned", [True, False])
def test_the_host_s_port_is_asked_too(tmp_path, server, planned):
    inner = server.server_address[1]
    seen = TwoPorts(tmp_path, inner, inner, planned).seen
    assert (seen["health"], seen["served_models"]) == ("serving", [MODEL])
    assert server.asked == ["/health", "/v1/models", "/v1/completions", "/health"]


@pytest.mark.parametrize("planned", [True, False])
def test_a_container_whose_host_port_is_dead_is_unhealthy(tmp_path, server, closed, planned):
    seen = TwoPorts(tmp_path, server.server_address[1], closed, planned).seen
    assert (seen["health"], seen["served_models"]) == ("unhealthy", [MODEL])
    assert f"the container serves, but the host's port {closed} does not answer: " in seen["health_detail"]
    assert "refused" in seen["health_detail"]


def test_a_host_port_that_says_nothing_is_not_waited_for(tmp_path, server, silent, monkeypatch):
    monkeypatch.setattr(observation, "HOST_PORT_S", 0.2)
    seen = TwoPorts(tmp_path, server.server_address[1], silent, probe="health").seen
    assert seen["health"] == "unhealthy"
    assert seen["health_detail"].endswith(f"port {silent} does not answer: no answer within 0.2 s")


def test_a_host_port_with_another_answer_than_200(tmp_path, server):
    server.sick_after = 3
    seen = TwoPorts(tmp_path, server.server_address[1], server.server_address[1]).seen
    assert seen["health"] == "unhealthy"
    assert seen["health_detail"].endswith("does not answer: HTTP 503")


def test_the_host_s_network_has_one_side_only():
    assert observation.host_side(ours(HostConfig={"NetworkMode": "host"}), plan()) is None


@pytest.mark.parametrize(
    "bind, address",
    [(None, "127.0.0.1"), ("0.0.0.0", "127.0.0.1"), ("::", "::1"), ("[::]", "::1"), ("10.0.0.5", "10.0.0.5")],
)
def test_where_the_host_reaches_a_published_port(bind, address):
    ends = {"address": bind, "port": 8001, "network": "bridge", "container_port": 8000}
    assert observation.host_side(ours(), plan(endpoint=ends)) == (address, 8001)


def test_listeners_of_every_port_with_the_processes_of_those_of_interest(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(observation, "read_listeners", lambda *args: asked.append(args[1:2] + args[4:]) or [])
    host = deployed(tmp_path, plan(endpoint={"port": 8003, "container_port": 8000}))
    observation.collect(host.sysroot(), Options(ports=[9000]))
    observation.collect(host.sysroot())
    assert asked == [(None, [9000, 8003]), (None, None)]


# -- hostile hosts -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", hostile.VALUES.values(), ids=hostile.VALUES)
def test_hostile_documents(tmp_path, value):
    """A hostile value in every place of what docker inspect printed and of what was committed."""
    host = RecordedHost(tmp_path).file(DOCKER).file(state.HELPER_PATH, "#")
    inspected = json.loads(data("docker/inspect-20.10.24.json"))[:4]
    images = json.loads(data("docker/image-inspect-20.10.24.json"))
    names = []
    for number, document in enumerate(hostile.mutations(committed(plan()))):
        names.append(f"i{number}")
        host.file(state.state_path(names[-1], state.COMMITTED), hostile.written(document, value))
        host.file(state.state_path(names[-1], state.JOURNAL), hostile.written(document, value))
    calls = docker_20([])
    for call, listing, document in ((3, 2, inspected), (5, 4, images)):
        calls[listing]["stdout"] = "x\n"
        calls[call]["argv"] = [*calls[call]["argv"][: 2 if call == 3 else 3], "x"]
        spoilt = [one for part in document for one in hostile.mutations(part)]
        calls[call]["stdout"] = hostile.written(spoilt, value)
    host.calls(calls).calls(systemd_records(names, show()))
    for options in (Options(), Options(probe="none")):
        observed = observation.collect(host.sysroot() if options.probe == "completion" else host.live(), options)
        hostile.assert_plain_json(observed)
        assert len(observed["instances"]) >= len(names)
        assert len(observed["images"]) >= len(images)


@pytest.mark.parametrize("value", hostile.VALUES.values(), ids=hostile.VALUES)
def test_hostile_answers_of_the_engine(tmp_path, value):
    for place, name in ((0, "version"), (1, "info")):
        for document in hostile.mutations(json.loads(data(f"docker/{name}-20.10.24.json"))):
            calls = docker_20()
            calls[place]["stdout"] = hostile.written(document, value)
            host = RecordedHost(tmp_path).file(DOCKER).calls(calls)
            hostile.assert_plain_json(observation.collect(host.sysroot()))


@pytest.mark.parametrize("text", [hostile.DEEP, "9" * 5000, "\u00b2", "[7, null]", "{}"])
def test_hostile_texts(tmp_path, text):
    table = f"head\n 0: 00000000:{text} 00000000:0000 0A 0:0 0:0 0 0 0 {text} 1 0 100 0 0 10 0\n"
    host = deployed(tmp_path, unit=show(restarts=text)).file("proc/net/tcp", table).file(state.env_path("ascend"), text)
    host.file(state.state_path("ascend", state.JOURNAL), text)
    hostile.assert_plain_json(observation.collect(host.sysroot()))
    for number in range(len(host.records)):
        before = host.records[number]["stdout"]
        host.records[number]["stdout"] = text
        hostile.assert_plain_json(observation.collect(host.calls([]).sysroot()))
        host.records[number]["stdout"] = before


@pytest.mark.parametrize("npus", [7, None, "/dev/davinci5", {"a": 1}])
def test_npus_of_a_plan_that_are_no_list_are_those_of_the_container(tmp_path, npus):
    instance = observation.collect(deployed(tmp_path, plan(npus=npus)).sysroot())["instances"][0]
    assert instance["npus"] == ["/dev/davinci0"]
