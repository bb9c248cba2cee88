# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Prove that an OpenAI-compatible endpoint serves a model: /health, /v1/models and a real completion.

The same functions serve the observation, the readiness gate of a unit and the transaction. Every request has a time
limit that holds for the whole of it (connecting, sending, and reading to the last byte), and no proxy of the
environment is ever asked.
"""

from __future__ import annotations

import errno
import http.client
import io
import json
import socket
import time
from typing import Any, Dict, List, NamedTuple, Optional, Tuple, cast

from .documents import mapping, parse, text

SERVING = "serving"
LOADING = "loading"
UNHEALTHY = "unhealthy"
DOWN = "down"
UNKNOWN = "unknown"

# The request of the vLLM Ascend quick start v0.23.0: its answer must have a choices[0].text that is not empty.
PROMPT = "Beijing is a"
MAX_TOKENS = 5

TIMEOUT_S = 10.0
COMPLETION_TIMEOUT_S = 60.0
# Pause between the two readings of /metrics that tell a busy engine from a stuck one.
BUSY_PAUSE_S = 2.0
BODY_LIMIT = 1 << 20
QUOTE_LIMIT = 200
TOKEN_COUNTERS = ("vllm:generation_tokens_total", "vllm:prompt_tokens_total")

REFUSED = "refused"
UNREACHABLE = "unreachable"
CLOSED = "closed"
TIMED_OUT = "timeout"
NOT_HTTP = "not_http"
BAD_REQUEST = "bad_request"


class Reply(NamedTuple):
    """One answer: the HTTP status (None when none came), the body, and what went wrong instead (None: nothing).

    failure is refused, unreachable, closed (the peer hung up), timeout, not_http or bad_request; error is its text.
    """

    status: Optional[int]
    body: str
    failure: Optional[str] = None
    error: str = ""

    @property
    def ok(self) -> bool:
        """True for a complete answer with status 200."""
        return self.status == 200 and self.failure is None


class Proof(NamedTuple):
    """What an endpoint was proved to be.

    health is serving, loading, unhealthy or down; detail says why in one line (never an API key); served_models are
    the ids of /v1/models (None: not learnt); completion is the text that came back ("": an empty one; None: not asked,
    or none came).
    """

    health: str
    detail: str
    served_models: Optional[List[str]] = None
    completion: Optional[str] = None

    @property
    def serving(self) -> bool:
        """True when the endpoint serves."""
        return self.health == SERVING


# -- one request ---------------------------------------------------------------------------------------------------


class _Reader(io.RawIOBase):
    """The receiving half of a socket, with what is left of the request's time as its time-out."""

    def __init__(self, owner: _TimedSocket) -> None:
        super().__init__()
        self._owner = owner

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return self._owner.limited().recv_into(buffer)


class _TimedSocket:
    """As much of a socket as http.client uses; a server that sends a byte now and then cannot outlast the deadline."""

    def __init__(self, sock: socket.socket, deadline: float) -> None:
        self._sock = sock
        self._deadline = deadline

    def limited(self) -> socket.socket:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise socket.timeout("timed out")
        self._sock.settimeout(left)
        return self._sock

    def sendall(self, data: bytes) -> None:
        self.limited().sendall(data)

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(_Reader(self))

    def close(self) -> None:
        """http.client closes early, while the answer is still read: request() closes the real one."""


def request(
    address: str,
    port: int,
    path: str,
    api_key: Optional[str] = None,
    body: Optional[Dict[str, Any]] = None,
    timeout: float = TIMEOUT_S,
) -> Reply:
    """GET path, or POST body as JSON, and give the answer within timeout seconds; never raises.

    At most 1 MiB of the body is read.
    """
    headers: Dict[str, Any] = {"Accept": "*/*", "Connection": "close"}
    data = None
    if body is not None:
        data = json.dumps(body).encode("utf-8")
        headers["Content-Type"] = "application/json"
    if api_key:
        headers["Authorization"] = b"Bearer " + api_key.encode("utf-8", "surrogateescape")
    deadline = time.monotonic() + timeout
    sock = None
    try:
        sock = socket.create_connection((address, port), timeout)
        connection = http.client.HTTPConnection(address, port)
        connection.sock = cast(Any, _TimedSocket(sock, deadline))
        connection.request("POST" if data is not None else "GET", path, body=data, headers=headers)
        response = connection.getresponse()
        return Reply(response.status, response.read(BODY_LIMIT).decode("utf-8", "replace"))
    except (socket.timeout, TimeoutError):
        return Reply(None, "", TIMED_OUT, "no answer within {0:g} s".format(timeout))
    except OSError as failure:
        return Reply(None, "", _kind(failure), str(failure) or type(failure).__name__)
    except http.client.HTTPException as failure:
        return Reply(None, "", NOT_HTTP, "{0}: {1}".format(type(failure).__name__, str(failure)[:QUOTE_LIMIT]))
    except ValueError:
        # The text of this exception quotes the header, and with it the key.
        return Reply(None, "", BAD_REQUEST, "the API key or the address cannot be sent in a request")
    finally:
        if sock is not None:
            sock.close()


def _kind(failure: OSError) -> str:
    if failure.errno == errno.ECONNREFUSED:
        return REFUSED
    return CLOSED if isinstance(failure, ConnectionError) else UNREACHABLE


def health(address: str, port: int, timeout: float = TIMEOUT_S) -> Reply:
    """GET /health: 200 once the engine is up; 503 between the engine's death and the server's exit (vLLM 0.23.0)."""
    return request(address, port, "/health", timeout=timeout)


def models(
    address: str, port: int, api_key: Optional[str] = None, timeout: float = TIMEOUT_S
) -> Tuple[Reply, Optional[List[str]]]:
    """GET /v1/models: the answer and the served ids (None when the answer holds no such list)."""
    reply = request(address, port, "/v1/models", api_key=api_key, timeout=timeout)
    if not reply.ok:
        return reply, None
    try:
        return reply, [str(entry["id"]) for entry in parse(reply.body)["data"]]
    except (ValueError, KeyError, TypeError):
        return reply, None


def completion(
    address: str,
    port: int,
    model: str,
    api_key: Optional[str] = None,
    prompt: str = PROMPT,
    max_tokens: int = MAX_TOKENS,
    timeout: float = COMPLETION_TIMEOUT_S,
) -> Tuple[Reply, Optional[str]]:
    """POST /v1/completions: the answer and choices[0].text (None when there is none; "" is no success either)."""
    body = {"model": model, "prompt": prompt, "max_tokens": max_tokens, "temperature": 0}
    reply = request(address, port, "/v1/completions", api_key=api_key, body=body, timeout=timeout)
    if not reply.ok:
        return reply, None
    try:
        made = parse(reply.body)["choices"][0]["text"]
    except (ValueError, KeyError, IndexError, TypeError):
        return reply, None
    return reply, made if isinstance(made, str) else None


# -- the proof -----------------------------------------------------------------------------------------------------


def prove(
    address: str,
    port: int,
    model: Optional[str] = None,
    api_key: Optional[str] = None,
    with_completion: bool = True,
    starting: bool = False,
    accept_busy: bool = False,
    timeout: float = TIMEOUT_S,
    completion_timeout: float = COMPLETION_TIMEOUT_S,
) -> Proof:
    """Ask the endpoint at address:port and say whether it serves model (None: whatever it lists first).

    It serves when /health answers 200, /v1/models lists the model and, with_completion, a completion has text.
    starting: whoever asks knows that the engine is still on its way up, so "nothing listens" means loading, not down
    (vLLM listens only after the model is loaded). accept_busy: a completion that timed out while the engine went on
    making tokens for others counts as serving (completion stays None): a busy server is not to be restarted. A gate
    leaves it False. Times are seconds for each request. It never raises.
    """
    closed = LOADING if starting else DOWN
    reply = health(address, port, timeout)
    if not reply.ok:
        return _failed("/health", reply, closed, api_key)
    reply, served = models(address, port, api_key, timeout)
    if not reply.ok:
        return _failed("/v1/models", reply, closed, api_key)
    if not served:
        return Proof(UNHEALTHY, "/v1/models lists no model", served)
    if model is not None and model not in served:
        return Proof(UNHEALTHY, "/v1/models lists {0}, not {1}".format(", ".join(served), model), served)
    model = model if model is not None else served[0]
    if not with_completion:
        return Proof(SERVING, "/health answers and /v1/models lists {0}".format(model), served)
    reply, made = completion(address, port, model, api_key, timeout=completion_timeout)
    if made:
        return Proof(SERVING, "a completion of {0} returned text".format(model), served, made)
    if reply.failure == TIMED_OUT and accept_busy and makes_tokens(address, port, timeout):
        return Proof(SERVING, "busy: the completion had {0}, other requests go on".format(reply.error), served)
    if reply.ok:
        what = "choices[0].text is empty" if made == "" else "the answer has no choices[0].text"
        return Proof(UNHEALTHY, "/v1/completions: {0}".format(what), served, made)
    return _failed("/v1/completions", reply, closed, api_key)._replace(served_models=served)


def makes_tokens(address: str, port: int, timeout: float = TIMEOUT_S, pause: Optional[float] = None) -> bool:
    """True when the engine's token counters in /metrics rise within a short pause: it works, for somebody else."""
    before = _tokens(request(address, port, "/metrics", timeout=timeout))
    if before is None:
        return False
    time.sleep(BUSY_PAUSE_S if pause is None else pause)
    after = _tokens(request(address, port, "/metrics", timeout=timeout))
    return after is not None and after > before


def _tokens(reply: Reply) -> Optional[float]:
    if not reply.ok:
        return None
    values = []
    for line in reply.body.splitlines():
        if line.startswith(TOKEN_COUNTERS):
            try:
                values.append(float(line.rsplit(" ", 1)[1]))
            except (ValueError, IndexError):
                continue
    return sum(values) if values else None


def failure_of(reply: Reply, api_key: Optional[str] = None) -> str:
    """Why an answer is no good, in one line without the key."""
    if reply.failure is not None:
        return reply.error
    body = reply.body.replace(api_key, "***") if api_key else reply.body
    return "HTTP {0} {1}".format(reply.status, _message(body)).strip()


def _failed(path: str, reply: Reply, closed: str, api_key: Optional[str]) -> Proof:
    state = closed if reply.failure in (REFUSED, UNREACHABLE, CLOSED) else UNHEALTHY
    if reply.failure is not None:
        detail = "{0}: {1}".format(path, failure_of(reply))
    elif reply.status in (401, 403):
        detail = "{0}: HTTP {1}: the API key is missing or not the server's".format(path, reply.status)
    elif path == "/health" and reply.status == 503:
        detail = "/health: HTTP 503: the engine is dead or not ready"
    else:
        detail = "{0}: {1}".format(path, failure_of(reply, api_key))
    return Proof(state, detail)


def _message(body: str) -> str:
    """The message of an OpenAI error body ({"error": {"message": ...}}, older: {"message": ...}), else its start."""
    try:
        answer = parse(body)
        error = answer.get("error", answer)
        message = error.get("message") if isinstance(error, dict) else error
    except (ValueError, AttributeError):
        message = None
    return " ".join((message if isinstance(message, str) else body).split())[:QUOTE_LIMIT]


# -- whom to ask ---------------------------------------------------------------------------------------------------


def container_address(inspect: Dict[str, Any], bind_address: Optional[str] = None) -> Optional[str]:
    """Where the host reaches a running container itself, from one object of `docker inspect`; None: nowhere.

    On the host network that is the address it binds (the loopback when that is every address or unknown); else its
    own address on a bridge. A published host port is no proof: another instance may answer there, and docker-proxy
    accepts connections for a container that does not listen yet.
    """
    if mapping(inspect.get("HostConfig")).get("NetworkMode") == "host":
        return outside_address(bind_address)
    settings = mapping(inspect.get("NetworkSettings"))
    # Docker 29 (API 1.52) no longer has the addresses beside Networks.
    ends = [mapping(end) for end in mapping(settings.get("Networks")).values()] + [settings]
    for key in ("IPAddress", "GlobalIPv6Address"):
        for end in ends:
            found = text(end.get(key))
            if found:
                return found
    return None


def outside_address(bind_address: Optional[str]) -> str:
    """Where the host itself reaches what is bound to that address: the loopback for every address or an unknown one."""
    bare = (bind_address or "").strip("[]")
    return {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}.get(bare, bare)
