# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which device nodes each instance gets."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from .npu_nodes import Holder, Nodes, by_number, number
from .plain import Findings, listed

BAD_HEALTH = ("Alarm", "Critical")
HEALTH_REMEDY = "Look at npu-smi info and the host's log, and reset or repair the chip, or choose another."
HELD_REMEDY = "Stop the holder, or choose other nodes."


@dataclass(frozen=True)
class Request:
    """What an instance asks for: npus is a count, a list of nodes or "all"; current are the nodes that it was given.

    running says that its container is there, so that it holds these nodes itself.
    """

    name: str
    npus: Any
    current: list[str] = field(default_factory=list)
    running: bool = False

    def owns(self, node: str) -> bool:
        """True when the instance itself holds the node."""
        return self.running and node in self.current

    @property
    def asked(self) -> str:
        """What is asked for, as a sentence names it."""
        return listed(self.npus) if isinstance(self.npus, list) else f"{self.npus} NPU nodes"


def allocate(requests: list[Request], nodes: Nodes, findings: Findings) -> dict[str, list[str]]:
    """The nodes of each instance by name; an instance that cannot have what it asks for is left out, with a problem.

    Explicit lists come first, then counts in the order of the inventory, "all" takes what is left. An instance keeps
    the nodes that it runs on where it can; whole cards are preferred, and a rest goes to a card already in use. Nodes
    that somebody else may hold, or of chips that are not well, are taken last and only where the operator accepts it.
    """
    given: dict[str, list[str]] = {}
    taken: dict[str, str] = {}

    def give(request: Request, chosen: list[str]) -> None:
        given[request.name] = by_number(chosen)
        taken.update(dict.fromkeys(chosen, request.name))

    lists = [request for request in requests if isinstance(request.npus, list)]
    counts = [request for request in requests if isinstance(request.npus, int)]
    for request in lists:
        if _check_list(request, nodes, taken, findings):
            give(request, request.npus)
    for request in counts:
        free = [node for tier in _tiers(request, nodes, taken, findings, keeping=True)[:2] for node in tier]
        if request.npus == len(request.current) and set(request.current) <= set(free):
            judge(request, request.current, nodes, findings)
            give(request, request.current)
    for request in (request for request in counts if request.name not in given):
        tiers = _tiers(request, nodes, taken, findings)
        if request.npus > sum(map(len, tiers)):
            _short(request, nodes, taken, tiers, findings)
        else:
            chosen = _choose(request.npus, tiers, nodes)
            judge(request, chosen, nodes, findings)
            give(request, chosen)
    for request in (request for request in requests if request.npus == "all"):
        rest = [node for node in nodes.names if node not in taken]
        if not rest:
            _short(request, nodes, taken, [], findings)
        elif judge(request, rest, nodes, findings):
            give(request, rest)
    return given


def judge(request: Request, chosen: list[str], nodes: Nodes, findings: Findings) -> bool:
    """Say what speaks against nodes that an instance is to get; False when it must not get them.

    What the instance runs on it keeps, with a warning.
    """
    others = [node for node in chosen if not request.owns(node)]
    good = _judge_held(request, others, nodes, findings)
    for node in chosen:
        if node in nodes.health and request.owns(node):
            message = f"instance {request.name} runs on {node}, whose chip has health {nodes.health[node]}"
            findings.warn("npu_health", message, HEALTH_REMEDY)
        if node in nodes.held and request.owns(node):
            message = f"instance {request.name} runs on {node}, and {nodes.held[node].holds([node])}"
            findings.warn("npu_shared", message, "A chip serves one container at a time: stop the other one.")
    for node in (node for node in others if node in nodes.health):
        message = f"instance {request.name} gets {node}, whose chip has health {nodes.health[node]}"
        # A count gets such a chip only where the operator accepts it; who names the node wants it.
        if nodes.health[node] in BAD_HEALTH or isinstance(request.npus, int):
            findings.problem("npu_unhealthy", message, HEALTH_REMEDY)
            good = good and findings.accepts("npu_unhealthy")
        else:
            findings.warn("npu_health", message, HEALTH_REMEDY)
    for node in (node for node in others if node in nodes.doubt):
        message = f"instance {request.name} gets {node}, {nodes.doubt[node]}"
        findings.warn("npu_memory_in_use", message, "Look for what left it there (npu-smi info); restart the chip.")
    return good


def _judge_held(request: Request, others: list[str], nodes: Nodes, findings: Findings) -> bool:
    """A problem for each holder; True when none holds a node, or the operator accepts it."""
    asked = "all NPU nodes" if request.npus == "all" else request.asked
    for holder, held in _by_holder(others, nodes).items():
        message = f"instance {request.name} asks for {asked}, and {holder.holds(held)}"
        # What serves is never disturbed, whatever the operator accepts.
        findings.problem("npu_serving" if holder.instance else "npu_held", message, holder.remedy or HELD_REMEDY)
    holders = [nodes.held[node] for node in others if node in nodes.held]
    return not holders or (findings.accepts("npu_held") and not any(holder.instance for holder in holders))


def _by_holder(chosen: Iterable[str], nodes: Nodes) -> dict[Holder, list[str]]:
    found: dict[Holder, list[str]] = {}
    for node in chosen:
        if node in nodes.held:
            found.setdefault(nodes.held[node], []).append(node)
    return found


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


def _tiers(
    request: Request, nodes: Nodes, taken: dict[str, str], findings: Findings, keeping: bool = False
) -> list[list[str]]:
    """The nodes that an instance may be given: first the good ones, then doubtful, unhealthy and held ones.

    Those it runs on are good ones; where they are chosen anew, not kept, their chips must be well.
    """
    tiers: list[list[str]] = [[], [], [], [], []]
    for node in (node for node in nodes.names if node not in taken):
        if request.owns(node) and (keeping or node not in nodes.health):
            tiers[0].append(node)
        elif node in nodes.held and not request.owns(node):
            # What somebody may hold comes before what somebody holds.
            accepted = findings.accepts("npu_held") and not nodes.held[node].instance
            tiers[3 if nodes.held[node].why else 4] += [node] * accepted
        elif node in nodes.health:
            tiers[2] += [node] * findings.accepts("npu_unhealthy")
        else:
            tiers[int(node in nodes.doubt)].append(node)
    return tiers


def _choose(count: int, tiers: list[list[str]], nodes: Nodes) -> list[str]:
    """That many nodes, of a tier only when those before it do not suffice."""
    chosen: list[str] = []
    for tier in tiers:
        missing = count - len(chosen)
        chosen += tier if len(tier) <= missing else pick(missing, tier, nodes)
    return chosen


def _check_list(request: Request, nodes: Nodes, taken: dict[str, str], findings: Findings) -> bool:
    good = True
    for node in request.npus:
        if node not in nodes.names:
            message = f"instance {request.name} asks for {node}, which is not there; the host has {listed(nodes.names)}"
            findings.problem("npu_unknown", message, "Correct the instance's npus; node numbers may have gaps.")
            good = False
        elif node in taken:
            message = f"{node} is given to the instances {taken[node]} and {request.name}"
            findings.problem("npu_taken_twice", message, "A node serves one container at a time: give each its own.")
            good = False
    there = [node for node in request.npus if node in nodes.names and node not in taken]
    return judge(request, there, nodes, findings) and good


def _short(
    request: Request, nodes: Nodes, taken: dict[str, str], tiers: list[list[str]], findings: Findings
) -> None:  # fmt: skip
    """Too few nodes: what could be freed, where that would suffice, and who has what."""
    free = [node for tier in tiers for node in tier]
    barred = [node for node in nodes.names if node not in free and node not in taken]
    if request.npus != "all" and request.npus <= len(free) + len(barred):
        _judge_held(request, barred, nodes, findings)
        unwell = [f"{node} ({nodes.health[node]})" for node in barred if node not in nodes.held]
        if unwell:
            message = f"instance {request.name} asks for {request.asked}; the chips of {listed(unwell)} are not well"
            remedy = "Repair or reset the chips, or name the nodes in the instance's npus."
            findings.problem("npu_unhealthy", message, remedy)
    users = [f"{node}: instance {name}" for node, name in taken.items()]
    users += [f"{node}: {holder}" for node, holder in nodes.held.items() if node in barred]
    users += [f"{node}: health {nodes.health[node]}" for node in barred if node not in nodes.held]
    findings.problem(
        "npu_shortage",
        f"instance {request.name} asks for {request.asked}, and {len(free)} of {len(nodes.names)} are free "
        f"(in use: {listed(users)})",
        "Ask for fewer, move an instance to another host, or stop the holder.",
    )
