# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ports of HCCL, Ascend's collective communication: instances on the host network need ranges of their own.

A second instance with the same ports fails with "Failed to bind the IP port" (vllm-ascend issue 405).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

from .conflicts import is_running
from .plain import Findings

BASE_PORT = "HCCL_IF_BASE_PORT"
# It takes the place of the base port (CANN 8.5 reference of environment variables).
PORT_RANGE = "HCCL_HOST_SOCKET_PORT_RANGE"
# HCCL takes 16 ports from the base on; it may be 1024 to 65520, and is 60000 by itself (the same reference).
DEFAULT_BASE, PORTS, LOWEST, HIGHEST = 60000, 16, 1024, 65520
STEP = 100
SOURCE = "vllm-ascend issue 405"


@dataclass(frozen=True)
class Need:
    """An instance that needs a range: given is the operator's value, kept the base of its committed plan."""

    name: str
    given: str | None = None
    kept: int | None = None


@dataclass(frozen=True)
class Busy:
    """What a range must not hold: ports with who has them, and bases of instances that are not planned any more."""

    ports: dict[int, str] = field(default_factory=dict)
    bases: tuple[int, ...] = ()


def base_ports(needs: list[Need], busy: Busy, instance_ports: dict[int, str], findings: Findings) -> dict[str, int]:
    """The base port of each instance by name; what cannot be is a problem.

    The operator's values come first, then those that the instances have already, so that one more instance changes no
    other; the rest gets the first free range from 60000 on. instance_ports are the endpoints' ports by instance.
    """
    chosen: dict[str, int] = {}
    for need in (need for need in needs if need.given is not None):
        base = _number(need, findings)
        if base is not None:
            chosen[need.name] = base
    _check_given(chosen, instance_ports, findings)
    for need in needs:
        if need.given is None and need.kept is not None and _is_free(need.kept, PORTS, chosen.values(), instance_ports):
            chosen[need.name] = need.kept
    blocked = {**busy.ports, **instance_ports}
    for need in (need for need in needs if need.given is None and need.name not in chosen):
        taken = [*chosen.values(), *busy.bases]
        free = (b for b in range(DEFAULT_BASE, HIGHEST + 1, STEP) if _is_free(b, STEP, taken, blocked))
        base = next(free, None)
        if base is None:
            message = (
                f"instance {need.name} needs {STEP} ports for HCCL, and no range from {DEFAULT_BASE} to 65535 is free"
            )
            remedy = f"Give it a range of its own as {BASE_PORT} in its environment, or stop what listens there."
            findings.problem("hccl_ports_exhausted", message, remedy)
        else:
            chosen[need.name] = base
    return chosen


def _number(need: Need, findings: Findings) -> int | None:
    text = str(need.given).strip()
    if text.isascii() and text.isdigit() and len(text) < 6 and LOWEST <= int(text) <= HIGHEST:
        return int(text)
    message = f"{BASE_PORT} of instance {need.name} is {need.given!r}; expected is a port from {LOWEST} to {HIGHEST}"
    findings.problem("setting_invalid", message, "Correct it in the instance's environment, or leave it out.")
    return None


def _check_given(chosen: dict[str, int], instance_ports: dict[int, str], findings: Findings) -> None:
    remedy = f"Leave {BASE_PORT} out, then each instance gets a range of its own; or keep {PORTS} ports free after it."
    for one, other in combinations(chosen, 2):
        if abs(chosen[one] - chosen[other]) < PORTS:
            message = f"{BASE_PORT} is {chosen[one]} for instance {one} and {chosen[other]} for instance {other}"
            findings.problem("hccl_port_conflict", message, remedy)
    for name, base in chosen.items():
        for port in (port for port in instance_ports if base <= port < base + PORTS):
            message = f"{BASE_PORT} of instance {name} is {base}, and instance {instance_ports[port]} has port {port}"
            findings.problem("hccl_port_conflict", message, remedy)


def _is_free(base: int, length: int, bases: Iterable[int], ports: Iterable[int]) -> bool:
    """True when none of the ports, and no range of another base, lies in the length ports from base on."""
    in_way = any(other < base + length and base < other + PORTS for other in bases)
    return not in_way and not any(base <= port < base + length for port in ports)


def kept_base(entry: dict[str, Any] | None) -> int | None:
    """The base port with which an observed instance was deployed; HCCL's own where its plan names none."""
    plan = _mapping((entry or {}).get("plan"))
    container = _mapping(plan.get("container"))
    nodes = plan.get("npus")
    if container.get("network") != "host" or not isinstance(nodes, list) or len(nodes) < 2:
        return None
    text = str(_mapping(container.get("environment")).get(BASE_PORT, DEFAULT_BASE))
    return int(text) if text.isascii() and text.isdigit() and len(text) < 6 else None


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def busy_ports(observed: dict[str, Any] | None, planned: list[str]) -> Busy:
    """What others listen on, and the ranges of running instances that are not planned any more."""
    listeners = (observed or {}).get("listeners") or []
    others = [e for e in (observed or {}).get("instances") or [] if e["name"] not in planned and is_running(e)]
    bases = [base for base in map(kept_base, others) if base is not None]
    ports = {e["port"]: str(e.get("process")) for e in listeners if isinstance(e.get("port"), int)}
    return Busy(ports, tuple(bases))
