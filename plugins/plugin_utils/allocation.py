# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which device nodes each instance gets."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from .plain import Findings, listed

NODE = re.compile(r"/dev/davinci(\d+)")


@dataclass(frozen=True)
class Request:
    """What an instance asks for: npus is a count, a list of nodes or "all"; current are the nodes that it runs on."""

    name: str
    npus: Any
    current: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Nodes:
    """The device nodes of a host in the order of their numbers, the card of each, and who else holds one."""

    names: list[str]
    card: dict[str, Any]
    held: dict[str, str]

    def on_cards(self, nodes: Iterable[str]) -> int:
        """On how many cards the nodes are."""
        return len({self.card[node] for node in nodes if node in self.card})


def number(node: str) -> int:
    """The number in the name of a device node."""
    match = NODE.fullmatch(node)
    return int(match.group(1)) if match else -1


def by_number(nodes: Iterable[str]) -> list[str]:
    """Nodes in the order of their numbers: davinci2 before davinci10."""
    return sorted(nodes, key=lambda node: (number(node), node))


def host_nodes(facts: dict[str, Any], per_card: int, held: dict[str, str]) -> Nodes:
    """The NPU nodes that the host has (never a computed range: numbers may have gaps, vllm-ascend issue 8519).

    Cards come from npu-smi's NPU IDs where it named one for every node, else from the numbers: two dies or chips of a
    card have neighbouring numbers, the even one first (A3 and 300I Duo; documented examples show 0 and 1).
    """
    names = by_number(
        node for node, entry in (facts.get("device_nodes") or {}).items()
        if NODE.fullmatch(node) and entry.get("type") in ("char", None)
    )  # fmt: skip
    ids = {chip.get("device"): chip.get("npu_id") for chip in facts.get("chips") or []}
    if per_card == 1:
        card: dict[str, Any] = {node: number(node) for node in names}
    elif all(ids.get(node) is not None for node in names):
        card = {node: f"npu {ids[node]}" for node in names}
    else:
        card = {node: number(node) // per_card for node in names}
    return Nodes(names, card, {node: held[node] for node in names if node in held})


def allocate(requests: list[Request], nodes: Nodes, findings: Findings) -> dict[str, list[str]]:
    """The nodes of each instance by name; an instance that cannot have what it asks for is left out, with a problem.

    Explicit lists come first, then counts in the order of the inventory, "all" takes what is left. An instance keeps
    the nodes that it runs on where it can; whole cards are preferred, and a rest goes to a card already in use.
    """
    given: dict[str, list[str]] = {}
    taken: dict[str, str] = {}

    def give(name: str, chosen: list[str]) -> None:
        given[name] = by_number(chosen)
        taken.update(dict.fromkeys(chosen, name))

    lists = [request for request in requests if isinstance(request.npus, list)]
    counts = [request for request in requests if isinstance(request.npus, int)]
    for request in lists:
        if _check_list(request, nodes, taken, findings):
            give(request.name, request.npus)
    for request in counts:
        if request.npus == len(request.current) and all(n in _free(nodes, taken) for n in request.current):
            give(request.name, request.current)
    for request in (request for request in counts if request.name not in given):
        free = _free(nodes, taken)
        if request.npus > len(free):
            _short(request, nodes, taken, free, findings)
        else:
            give(request.name, pick(request.npus, free, nodes))
    for request in (request for request in requests if request.npus == "all"):
        rest = [node for node in nodes.names if node not in taken]
        if _check_all(request, rest, nodes, taken, findings):
            give(request.name, rest)
    return given


def pick(count: int, free: list[str], nodes: Nodes) -> list[str]:
    """That many of the free nodes: whole cards first, the rest from the card with the fewest that still suffices."""
    size: dict[Any, int] = {}
    for node in nodes.names:
        size[nodes.card[node]] = size.get(nodes.card[node], 0) + 1
    on_card: dict[Any, list[str]] = {}
    for node in free:
        on_card.setdefault(nodes.card[node], []).append(node)
    chosen: list[str] = []
    for card, members in list(on_card.items()):
        if len(members) == size[card] and len(members) <= count - len(chosen):
            chosen += on_card.pop(card)
    while len(chosen) < count:
        missing = count - len(chosen)
        card = min(on_card, key=lambda c: (len(on_card[c]) < missing, len(on_card[c]), number(on_card[c][0])))
        chosen += on_card.pop(card)[:missing]
    return chosen


def _free(nodes: Nodes, taken: dict[str, str]) -> list[str]:
    return [node for node in nodes.names if node not in taken and node not in nodes.held]


def _check_list(request: Request, nodes: Nodes, taken: dict[str, str], findings: Findings) -> bool:
    good = True
    for node in request.npus:
        if node not in nodes.names:
            message = f"instance {request.name} asks for {node}, which is not there; the host has {listed(nodes.names)}"
            findings.problem("npu_unknown", message, "Correct the instance's npus; node numbers may have gaps.")
        elif node in taken:
            message = f"{node} is given to the instances {taken[node]} and {request.name}"
            findings.problem("npu_taken_twice", message, "A node serves one container at a time: give each its own.")
        elif node in nodes.held:
            message = f"instance {request.name} asks for {node}, which {nodes.held[node]} holds"
            findings.problem("npu_held", message, "Stop the holder, or choose other nodes.")
        else:
            continue
        good = False
    return good


def _check_all(
    request: Request, rest: list[str], nodes: Nodes, taken: dict[str, str], findings: Findings
) -> bool:  # fmt: skip
    for node in (node for node in rest if node in nodes.held):
        message = f"instance {request.name} asks for all nodes, but {nodes.held[node]} holds {node}"
        findings.problem("npu_held", message, "Stop the holder, or give the instance a count or a list of nodes.")
    if not rest and nodes.names:
        _short(request, nodes, taken, [], findings)
    return bool(rest) and not any(node in nodes.held for node in rest)


def _short(request: Request, nodes: Nodes, taken: dict[str, str], free: list[str], findings: Findings) -> None:
    users = [f"{node}: instance {name}" for node, name in taken.items()]
    users += [f"{node}: {holder}" for node, holder in nodes.held.items()]
    findings.problem(
        "npu_shortage",
        f"instance {request.name} asks for {request.npus} NPU nodes, and {len(free)} of {len(nodes.names)} are free "
        f"(in use: {listed(users)})",
        "Ask for fewer, move an instance to another host, or stop the holder.",
    )
