"""endpoint: what real HTTP answers, and the lack of one, prove."""

from __future__ import annotations

import socket
import threading
import time

import pytest
from ansible_collections.vllm_ascend.fleet.plugins.module_utils import endpoint

from tests.unit.support.openai_server import LOCAL, MODEL, serving

KEY = "sk-very-secret"


@pytest.fixture
def server():
    with serving() as one:
        yield one


def prove(server, **more):
    options = dict({"model": MODEL, "timeout": 10.0, "completion_timeout": 10.0}, **more)
    return endpoint.prove(LOCAL, server.port, **options)


def free_port():
    with socket.socket() as probe:
        probe.bind((LOCAL, 0))
        return probe.getsockname()[1]


def test_serving_is_health_the_model_and_text(server):
    proof = prove(server)
    assert proof == (endpoint.SERVING, "a completion of Qwen/Qwen3-0.6B returned text", [MODEL], " city")
    assert proof.serving
    method, path, body, _headers = server.behaviour.requests[-1]
    assert (method, path) == ("POST", "/v1/completions")
    assert body == {"model": MODEL, "prompt": "Beijing is a", "max_tokens": 5, "temperature": 0}


def test_without_a_completion_it_ends_after_the_models(server):
    server.behaviour.text = ""
    proof = prove(server, with_completion=False)
    assert (proof.health, proof.served_models, proof.completion) == (endpoint.SERVING, [MODEL], None)
    assert [request[1] for request in server.behaviour.requests] == ["/health", "/v1/models"]


def test_without_a_model_the_first_listed_is_asked(server):
    server.behaviour.models = ["other", MODEL]
    assert prove(server, model=None).serving
    assert server.behaviour.requests[-1][2]["model"] == "other"


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"health": 503}, "/health: HTTP 503"),
        ({"health": 500}, "/health: HTTP 500"),
        ({"models": ["model-two"]}, "lists model-two, not Qwen/Qwen3-0.6B"),
        ({"models": []}, "lists no model"),
        ({"models_body": "<html>a web server</html>"}, "lists no model"),
        ({"models_body": '["a"]'}, "lists no model"),
        ({"text": ""}, "choices[0].text is empty"),
        ({"text": None}, "no choices[0].text"),
        ({"completion_body": {"choices": []}}, "no choices[0].text"),
        ({"completion_body": "not JSON"}, "no choices[0].text"),
        (
            {"completion_status": 404, "completion_body": {"error": {"message": "The model `x` does not exist."}}},
            "/v1/completions: HTTP 404 The model `x` does not exist.",
        ),
        (
            {"completion_status": 500, "completion_body": {"object": "error", "message": "EngineCore died"}},
            "/v1/completions: HTTP 500 EngineCore died",
        ),
        ({"key": "another"}, "/v1/models: HTTP 401: the API key is missing or not the server's"),
        ({"slow": {"/health": 15.0}}, "/health: no answer within 0.5 s"),
        ({"slow": {"/v1/models": 15.0}}, "/v1/models: no answer within 0.5 s"),
        ({"slow": {"/v1/completions": 15.0}}, "/v1/completions: no answer within 0.5 s"),
        ({"drip": ["/v1/models"]}, "/v1/models: no answer within 0.5 s"),
    ],
)
def test_unhealthy(server, changes, words):
    vars(server.behaviour).update(changes)
    limit = 0.5 if {"slow", "drip"} & set(changes) else 10.0
    begin = time.monotonic()
    proof = prove(server, timeout=limit, completion_timeout=limit)
    assert proof.health == endpoint.UNHEALTHY
    assert words in proof.detail
    assert proof.completion == ("" if changes == {"text": ""} else None)
    # The limit holds for a whole request, also against a server that sends a byte now and then.
    assert time.monotonic() - begin < 8.0


def test_what_is_served_is_told_when_the_completion_fails(server):
    server.behaviour.completion_status = 500
    assert prove(server).served_models == [MODEL]


def test_the_api_key_is_sent_and_never_told(server):
    server.behaviour.key = KEY
    assert prove(server, api_key=KEY).serving
    assert "Authorization" not in server.behaviour.requests[0][3], "/health needs no key"
    server.behaviour.completion_status = 400
    server.behaviour.completion_body = "x" * 190 + KEY
    proof = prove(server, api_key=KEY)
    assert proof.health == endpoint.UNHEALTHY
    assert "sk-very" not in proof.detail
    assert "***" in proof.detail


def test_a_key_that_no_header_can_hold_is_not_quoted(server):
    proof = prove(server, api_key="sk-line\nbreak")
    assert proof.health == endpoint.UNHEALTHY
    assert "sk-line" not in proof.detail
    assert "API key" in proof.detail


def test_a_key_with_any_letters_is_sent_as_utf_8(server):
    server.behaviour.key = "schlüssel-密".encode().decode("latin-1")
    assert prove(server, api_key="schlüssel-密").serving


@pytest.mark.parametrize("starting, health", [(False, endpoint.DOWN), (True, endpoint.LOADING)])
def test_refused(starting, health):
    proof = endpoint.prove(LOCAL, free_port(), MODEL, starting=starting, timeout=10.0)
    assert proof.health == health
    assert "refused" in proof.detail
    assert proof.served_models is None


def answer_once(action):
    """A listener that does action with its first connection; gives its port."""
    listener = socket.socket()
    listener.bind((LOCAL, 0))
    listener.listen(1)

    def work():
        connection, _peer = listener.accept()
        with connection:
            action(connection)
        listener.close()

    threading.Thread(target=work, daemon=True).start()
    return listener.getsockname()[1]


@pytest.mark.parametrize("starting, health", [(False, endpoint.DOWN), (True, endpoint.LOADING)])
def test_a_connection_closed_without_an_answer_is_docker_proxy_before_the_server_listens(starting, health):
    port = answer_once(lambda connection: connection.recv(4096))
    assert endpoint.prove(LOCAL, port, MODEL, starting=starting, timeout=10.0).health == health


def test_something_that_speaks_no_http_is_unhealthy():
    def speak(connection):
        connection.recv(4096)
        connection.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")

    proof = endpoint.prove(LOCAL, answer_once(speak), MODEL, timeout=10.0)
    assert proof.health == endpoint.UNHEALTHY
    assert "BadStatusLine" in proof.detail


def test_an_accepted_connection_that_hangs_is_unhealthy_also_while_starting():
    port = answer_once(lambda connection: time.sleep(5.0))
    proof = endpoint.prove(LOCAL, port, MODEL, starting=True, timeout=0.2)
    assert (proof.health, proof.detail) == (endpoint.UNHEALTHY, "/health: no answer within 0.2 s")


@pytest.mark.parametrize(
    "per_reading, accept_busy, health",
    [(3, True, endpoint.SERVING), (0, True, endpoint.UNHEALTHY), (3, False, endpoint.UNHEALTHY)],
)
def test_a_busy_engine_is_told_from_a_stuck_one(server, monkeypatch, per_reading, accept_busy, health):
    monkeypatch.setattr(endpoint, "BUSY_PAUSE_S", 0.01)
    server.behaviour.slow = {"/v1/completions": 15.0}
    server.behaviour.tokens_per_reading = per_reading
    proof = prove(server, completion_timeout=0.2, accept_busy=accept_busy)
    assert (proof.health, proof.completion) == (health, None)


def test_no_proxy_of_the_environment_is_asked(server, monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.setenv("no_proxy", "")
    assert prove(server).serving


@pytest.mark.parametrize(
    "inspect, bind, address",
    [
        ({"HostConfig": {"NetworkMode": "host"}}, None, "127.0.0.1"),
        ({"HostConfig": {"NetworkMode": "host"}}, "0.0.0.0", "127.0.0.1"),
        ({"HostConfig": {"NetworkMode": "host"}}, "192.0.2.7", "192.0.2.7"),
        ({"HostConfig": {"NetworkMode": "host"}}, "::", "::1"),
        ({"NetworkSettings": {"IPAddress": "172.17.0.2", "Networks": {}}}, "192.0.2.7", "172.17.0.2"),
        ({"NetworkSettings": {"Networks": {"bridge": {"IPAddress": "172.17.0.3"}}}}, None, "172.17.0.3"),
        (
            {"NetworkSettings": {"Networks": {"six": {"IPAddress": "", "GlobalIPv6Address": "fd00::2"}}}},
            None,
            "fd00::2",
        ),
        ({"NetworkSettings": {"IPAddress": "", "Networks": {"none": {"IPAddress": ""}}}}, None, None),
        ({}, None, None),
    ],
)
def test_container_address(inspect, bind, address):
    assert endpoint.container_address(inspect, bind) == address
