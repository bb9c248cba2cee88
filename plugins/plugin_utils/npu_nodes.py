# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The device nodes of a host: their order, their cards, and what speaks against giving one to an instance."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from .plain import listed

NODE = re.compile(r"/dev/davinci(\d+)")
GOOD = "OK"


@dataclass(frozen=True)
class Holder:
    """Who else holds a node, as a sentence names it, and how it gives the node back (null: by being stopped).

    why says what makes it likely where it is not certain; orphan that it is an instance of ours which is not planned
    any more; instance is the name of one of ours.
    """

    name: str
    remedy: str | None = None
    orphan: bool = False
    why: str | None = None
    instance: str | None = None

    def __str__(self) -> str:
        return self.name

    def holds(self, nodes: Iterable[str]) -> str:
        """That it has these nodes, as a sentence says it."""
        shown = listed(by_number(nodes))
        return f"{self.name} may hold {shown}: {self.why}" if self.why else f"{self.name} holds {shown}"


@dataclass(frozen=True)
class Nodes:
    """The device nodes of a host in the order of their numbers, the card of each, and what speaks against one.

    held says who else holds a node, health is that of a chip where it is not OK, doubt why a node that nobody seems to
    hold may be in use.
    """

    names: list[str]
    card: dict[str, Any]
    held: dict[str, Holder] = field(default_factory=dict)
    health: dict[str, str] = field(default_factory=dict)
    doubt: dict[str, str] = field(default_factory=dict)

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


def node_names(facts: dict[str, Any]) -> list[str]:
    """The NPU nodes that the host has, by number; never a computed range (vllm-ascend issue 8519: 10, 12, 14, 16)."""
    found = (facts.get("device_nodes") or {}).items()
    return by_number(node for node, entry in found if NODE.fullmatch(node) and entry.get("type") in ("char", None))


def host_nodes(
    facts: dict[str, Any], per_card: int, held: dict[str, Holder], doubt: dict[str, str] | None = None
) -> Nodes:
    """The host's nodes with their cards.

    Cards come from npu-smi's NPU IDs where it named one for every node, else from the numbers: two dies or chips of a
    card have neighbouring numbers, the even one first (A3 and 300I Duo; documented examples show 0 and 1).
    """
    names = node_names(facts)
    chips = {chip.get("device"): chip for chip in facts.get("chips") or []}
    ids = {device: chip.get("npu_id") for device, chip in chips.items()}
    if per_card == 1:
        card: dict[str, Any] = {node: number(node) for node in names}
    elif all(ids.get(node) is not None for node in names):
        card = {node: f"npu {ids[node]}" for node in names}
    else:
        card = {node: number(node) // per_card for node in names}
    health = {node: str(chips[node]["health"]) for node in names if is_unhealthy(chips.get(node) or {})}
    return Nodes(
        names, card, {node: held[node] for node in names if node in held}, health,
        {node: why for node, why in (doubt or {}).items() if node in names and node not in held},
    )  # fmt: skip


def is_unhealthy(chip: dict[str, Any]) -> bool:
    """True when npu-smi says something else than OK of a chip; what it does not say is not held against it."""
    return str(chip.get("health") or GOOD) != GOOD
