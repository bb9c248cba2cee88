# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which device nodes each instance gets."""

from __future__ import annotations

import json
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
class Holder:
    """Who else holds a node, as a sentence names it, and how it gives the node back (null: by being stopped).

    orphan says that it is an instance of ours which is not planned any more.
    """

    name: str
    remedy: str | None = None
    orphan: bool = False

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Nodes:
    """The device nodes of a host in the order of their numbers, the card of each, and who else holds one."""

    names: list[str]
    card: dict[str, Any]
    held: dict[str, Holder]

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


def host_nodes(facts: dict[str, Any], per_card: int, held: dict[str, Holder]) -> Nodes:
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


def check_swaps(
    names: list[str], given: dict[str, list[str]], running: dict[str, list[str]], findings: Findings
) -> None:
    """A problem for each node that an instance gets while another planned one, which comes later, still runs on it.

    The instances of a host are applied one after the other in the order of the names: what an earlier one gives up is
    free in time. running are the nodes by instance that its container holds now.
    """
    for place, name in enumerate(names):
        for later in names[place + 1 :]:
            for node in by_number(set(given.get(name, [])) & set(running.get(later, []))):
                if later != name and node not in running.get(name, []):
                    message = f"instance {name} gets {node}, which the instance {later} runs on until its turn comes"
                    named = json.dumps({"vllm_instance_names": [later]})
                    findings.problem("npu_swapped", message, f"Stop {later} first: playbook stop.yml -e '{named}'.")


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
            remedy = nodes.held[node].remedy or "Stop the holder, or choose other nodes."
            findings.problem("npu_held", message, remedy)
        else:
            continue
        good = False
    return good


def _check_all(
    request: Request, rest: list[str], nodes: Nodes, taken: dict[str, str], findings: Findings
) -> bool:  # fmt: skip
    for node in (node for node in rest if node in nodes.held):
        message = f"instance {request.name} asks for all nodes, but {nodes.held[node]} holds {node}"
        remedy = nodes.held[node].remedy or "Stop the holder, or give the instance a count or a list of nodes."
        findings.problem("npu_held", message, remedy)
    if not rest and nodes.names:
        _short(request, nodes, taken, [], findings)
    return bool(rest) and not any(node in nodes.held for node in rest)


def _short(request: Request, nodes: Nodes, taken: dict[str, str], free: list[str], findings: Findings) -> None:
    for node, holder in nodes.held.items():
        if holder.orphan and holder.remedy:
            message = f"{holder} holds {node}, and instance {request.name} is short of nodes"
            findings.problem("npu_held", message, holder.remedy)
    users = [f"{node}: instance {name}" for node, name in taken.items()]
    users += [f"{node}: {holder}" for node, holder in nodes.held.items()]
    findings.problem(
        "npu_shortage",
        f"instance {request.name} asks for {request.npus} NPU nodes, and {len(free)} of {len(nodes.names)} are free "
        f"(in use: {listed(users)})",
        "Ask for fewer, move an instance to another host, or stop the holder.",
    )
