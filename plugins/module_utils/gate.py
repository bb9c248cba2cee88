# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The readiness gate of a unit (ExecStartPost=): the unit counts as started once its own container serves.

It asks the container itself, never whoever holds the host's port: a gate on the host's port was answered by another
instance and called a dead unit active (tried with vLLM 0.23.0). Readiness is never read from log text.
"""

from __future__ import annotations

import contextlib
import ipaddress
import json
import os
import signal
import time
from typing import Any, Callable, Dict, List, NamedTuple, Optional

from . import atomic, endpoint, listeners
from .commands import run
from .engine import ENGINE_ENV
from .instance_state import API_KEY, parse_env
from .sysroot import Sysroot

POLL_S = 0.5
DOCKER_S = 30.0
# Between lines that say what is waited for, so that a long load does not fill the journal.
SAY_S = 60.0
# A first completion may compile graphs; it is asked again until the gate's own time is over.
COMPLETION_S = 120.0
# vLLM 0.23.0 swallows one SIGTERM while its engine loads; a second one ends it in 0.2 s (exit code 130).
SECOND_TERM_S = 0.5
# An engine that answers, but with no text, at temperature 0 gives no other answer later.
EMPTY_ANSWERS = 5
FORCE_STOP_S = 5


class GateError(Exception):
    """The gate gives up; the message is one line that says why."""


class StoppedError(GateError):
    """The unit was stopped while it loaded, and the container with it: nothing went wrong."""


class _TermError(BaseException):
    """SIGTERM arrived. Not an Exception, so that no broad handler swallows it."""


class Target(NamedTuple):
    """Whom the gate asks: port is the container's own on a bridge, the host's on the host network."""

    engine: str
    container: str
    network: str
    port: int
    model: Optional[str] = None
    env_file: Optional[str] = None


def wait(target: Target, timeout: float, main_pid: int = 0, say: Callable[[str], None] = print) -> endpoint.Proof:
    """Wait at most timeout seconds until the container serves, and give the proof.

    main_pid: the unit's main process, whose end ends the wait at once (0: not watched). GateError says why it gave up.
    SIGTERM (a stop while loading) stops the container, which the swallowed signal of the docker client does not.
    """
    before = signal.signal(signal.SIGTERM, _on_term)
    try:
        return _wait(target, timeout, main_pid, say)
    except _TermError:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        stop_loading(target.engine, target.container)
        raise StoppedError("stopped while {0} was loading".format(target.container)) from None
    finally:
        signal.signal(signal.SIGTERM, before)


def _wait(target: Target, timeout: float, main_pid: int, say: Callable[[str], None]) -> endpoint.Proof:
    began = time.monotonic()
    said_at = -SAY_S
    key = api_key(target.env_file)
    empty = 0
    while True:
        left = timeout - (time.monotonic() - began)
        proof = ask(target, key, max(min(left, COMPLETION_S), 1.0))
        if proof.serving:
            return proof
        if main_pid and not alive(main_pid):
            raise GateError(
                "the main process {0} of {1} has ended; why is in the lines before this one".format(
                    main_pid, target.container
                )
            )
        if target.model and proof.served_models and target.model not in proof.served_models:
            raise GateError("{0} serves another model: {1}".format(target.container, proof.detail))
        empty = empty + 1 if proof.completion == "" else 0
        if empty >= EMPTY_ANSWERS:
            raise GateError("{0} answers without text: {1}".format(target.container, proof.detail))
        waited = time.monotonic() - began
        if waited >= timeout:
            raise GateError(
                "{0} does not serve after {1:.0f} s (vllm_start_timeout): {2}".format(
                    target.container, waited, proof.detail
                )
            )
        if waited - said_at >= SAY_S:
            say("waiting for {0}, {1:.0f} of {2:.0f} s: {3}".format(target.container, waited, timeout, proof.detail))
            said_at = waited
        time.sleep(POLL_S)


def ask(target: Target, key: Optional[str], completion_timeout: float = COMPLETION_S) -> endpoint.Proof:
    """One question to the container: is it there, does it listen itself, does it serve the model."""
    inspect = inspect_container(target.engine, target.container)
    if inspect is None or not (inspect.get("State") or {}).get("Running"):
        return endpoint.Proof(endpoint.LOADING, "the container does not run yet")
    if target.network == "host":
        address = own_listener(inspect, target.port)
        if address is None:
            return endpoint.Proof(endpoint.LOADING, "no process of the container listens on {0}".format(target.port))
    else:
        address = endpoint.container_address(inspect)
        if address is None:
            return endpoint.Proof(endpoint.LOADING, "the container has no address yet")
    return endpoint.prove(address, target.port, target.model, key, starting=True, completion_timeout=completion_timeout)


def own_listener(inspect: Dict[str, Any], port: int) -> Optional[str]:
    """The address on which a process of the container itself listens (host network); None: none does.

    Two vLLM 0.23.0 servers can listen on one port there (SO_REUSEPORT), so somebody else's listener on it is no answer
    either: it would get half of the requests (GateError). One on another address of the host is nobody's concern.
    """
    pid = (inspect.get("State") or {}).get("Pid") or 0
    identity = str(inspect.get("Id"))
    found = listeners.read_listeners(Sysroot("/"), [port], {int(pid): identity} if pid else {})
    own = [one["address"] for one in found if one["container"] == identity]
    ours = own or planned_addresses(inspect)
    others = [
        one
        for one in found
        if one["container"] != identity
        and one["pid"] is not None
        and any(overlap(one["address"], address) for address in ours)
    ]
    if others:
        raise GateError(
            "port {0} of the host network is also held by process {1} ({2}), which is not of this container".format(
                port, others[0]["pid"], others[0]["process"]
            )
        )
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(own[0], own[0]) if own else None


def planned_addresses(inspect: Dict[str, Any]) -> List[str]:
    """The address that the container's command will listen on: that of `--host`, by default every one (vLLM 0.23.0).

    Empty when it names no address.
    """
    words = [str(word) for word in (inspect.get("Config") or {}).get("Cmd") or []]
    given = "0.0.0.0"
    for number, word in enumerate(words):
        if word == "--host" and number + 1 < len(words):
            given = words[number + 1]
        elif word.startswith("--host="):
            given = word[len("--host=") :]
    given = {"localhost": "127.0.0.1"}.get(given, given.strip("[]"))
    try:
        return [str(ipaddress.ip_address(given))]
    except ValueError:
        return []


def overlap(one: str, other: str) -> bool:
    """True when two listeners on one port would meet: the same address, or one is a wildcard that covers the other.

    0.0.0.0 covers the addresses of IPv4, :: those of both families.
    """
    pair = [ipaddress.ip_address(address) for address in (one, other)]
    wide = [address for address in pair if address.is_unspecified]
    return (
        pair[0] == pair[1]
        or any(address.version == 6 for address in wide)
        or (bool(wide) and pair[0].version == pair[1].version)
    )


def inspect_container(engine: str, name: str) -> Optional[Dict[str, Any]]:
    """What the engine knows about a container, None when there is no such one or no answer."""
    result = run([engine, "container", "inspect", name], DOCKER_S, env=ENGINE_ENV)
    if not result.ok:
        return None
    with contextlib.suppress(ValueError, IndexError):
        found = json.loads(result.stdout)[0]
        return found if isinstance(found, dict) else None
    return None


def api_key(env_file: Optional[str]) -> Optional[str]:
    """The API key in an environment file, None when there is none."""
    return parse_env(atomic.read_text(env_file) or "").get(API_KEY) if env_file else None


def alive(pid: int) -> bool:
    """True while a process exists and is no zombie."""
    try:
        with open("/proc/{0}/stat".format(pid), "rb") as stat:
            return stat.read().rsplit(b")", 1)[-1].split()[0] not in (b"Z", b"X")
    except (OSError, IndexError):
        with contextlib.suppress(OSError):
            os.kill(pid, 0)
            return True
        return False


def stop_loading(engine: str, container: str) -> None:
    """End a container whose engine still loads: a second SIGTERM, and SIGKILL some seconds later."""
    time.sleep(SECOND_TERM_S)
    run([engine, "kill", "--signal", "TERM", container], DOCKER_S, env=ENGINE_ENV)
    run([engine, "stop", "-t", str(FORCE_STOP_S), container], DOCKER_S, env=ENGINE_ENV)


def _on_term(_number: int, _frame: Any) -> None:
    raise _TermError()
