# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who holds which device node of a host besides the planned instances."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from ..module_utils.instance_state import container_name as planned_name
from .conflicts import GONE_STATES, container_name, is_running, orphan_remedy, same_id
from .npu_nodes import Holder, is_unhealthy, node_names
from .plain import Findings

# Memory of an NPU is never unused: an idle A3 shows 5 % (vllm-ascend issues). Above this share something lies there.
BUSY_SHARE = 0.3
SHOWN_ID = 12

Held = Iterator[tuple[str, Holder]]


class Own(NamedTuple):
    """What is ours: ids of containers, nodes on which planned instances run, names of planned containers."""

    ids: list[str]
    nodes: set[str]
    names: set[str]


def node_holders(
    facts: dict[str, Any], observed: dict[str, Any] | None, planned: list[str], host_memory: bool = False
) -> dict[str, Holder]:
    """Who else holds a node, or may hold it, by node.

    These are instances that are not planned any more, containers that are not ours, processes outside of any planned
    instance, and whatever fills a chip's memory while npu-smi names no processes. What may use any NPU holds all of
    them. planned are the names of the planned instances; a container under the name of one, which somebody else made,
    is reported, or replaced, as a whole (check_foreign), so its nodes count as free here. host_memory says that the
    chips use the host's memory, which others fill.
    """
    own = _own(observed, planned)
    names, unproven = node_names(facts), _unproven(facts)
    known = [entry for entry in (observed or {}).get("instances") or [] if entry["name"] not in planned]
    foreign = [
        entry for entry in (observed or {}).get("foreign") or []
        if container_name(entry) not in own.names and entry.get("state") not in GONE_STATES
    ]  # fmt: skip
    held: dict[str, Holder] = {}
    for part in (
        _orphans(known),
        _containers(foreign),
        _users(facts, own, foreign, known, unproven),
        () if host_memory else _full_memory(facts, own, unproven),
        _anywhere(foreign, names),
    ):
        for node, holder in part:
            held.setdefault(node, holder)
    return held


def instance_holders(observed: dict[str, Any] | None, planned: list[str]) -> dict[str, Holder]:
    """The running instances of ours that are not among the planned ones, by the nodes that they keep."""
    return {
        node: Holder(f"the running instance {entry['name']}", instance=entry["name"])
        for entry in (observed or {}).get("instances") or []
        if entry["name"] not in planned and is_running(entry)
        for node in entry.get("npus") or []
    }


def _own(observed: dict[str, Any] | None, planned: list[str]) -> Own:
    names = {planned_name(name) for name in planned}
    instances = [e for e in (observed or {}).get("instances") or [] if e["name"] in planned and is_running(e)]
    foreign = [entry for entry in (observed or {}).get("foreign") or [] if container_name(entry) in names]
    ids = [str(entry["container"].get("id")) for entry in instances if entry.get("container")]
    nodes = {node for entry in instances for node in entry.get("npus") or []}
    nodes |= {node for entry in foreign for node in _mapped(entry)}
    return Own(ids + [str(entry.get("id")) for entry in foreign], nodes, names)


def _unproven(facts: dict[str, Any]) -> list[str]:
    """The nodes of which no chip is known: one without a node may be any of them (vllm-ascend issue 2712)."""
    proven = {chip.get("device") for chip in facts.get("chips") or []}
    return [node for node in node_names(facts) if node not in proven]


def _mapped(entry: dict[str, Any]) -> list[str]:
    holds = entry.get("holds")
    return list((holds.get("nodes") if holds else entry.get("devices")) or [])


def _orphans(known: list[dict[str, Any]]) -> Held:
    for entry in known:
        if is_running(entry):
            name = f"the running instance {entry['name']}, which is not planned any more,"
            for node in entry.get("npus") or []:
                yield node, Holder(name, orphan_remedy(entry["name"]), orphan=True)


def _containers(foreign: list[dict[str, Any]]) -> Held:
    for entry in foreign:
        for node in _mapped(entry):
            yield node, Holder(container_words(entry))


def _anywhere(foreign: list[dict[str, Any]], names: list[str]) -> Held:
    """Containers of which it cannot be told which NPUs they use."""
    for entry in foreign:
        holds = entry.get("holds") or {}
        if holds.get("any"):
            holder = Holder(container_words(entry), why=str(holds.get("why") or "it may use any NPU"))
            yield from ((node, holder) for node in names)


def container_words(entry: dict[str, Any]) -> str:
    """A container as a sentence names it: engine where it is not docker, name, short id."""
    engine = entry.get("engine")
    before = f"{engine} " if engine not in (None, "docker") else ""
    name, ident = container_name(entry), str(entry.get("id") or "")[:SHOWN_ID]
    return f"{before}container {name} ({ident})" if name and ident else f"{before}container {name or ident}"


def _users(
    facts: dict[str, Any],
    own: Own,
    foreign: list[dict[str, Any]],
    known: list[dict[str, Any]],
    unproven: list[str],
) -> Held:
    """The processes and containers that npu-smi and the driver name; one whose node is not known holds all unproven."""
    for use in facts.get("usage") or []:
        device, owner = use.get("device"), use.get("owner") or {}
        name, ident = str(owner.get("name") or "").lstrip("/"), str(owner.get("id") or "")
        if owner.get("kind") == "container":
            if name in own.names or any(same_id(ident, one) for one in own.ids):
                continue
            holder = Holder(_container_by_id(name, ident, foreign, known))
        else:
            if device in own.nodes:
                continue
            holder = Holder(_process(owner, use.get("pid")))
        if device:
            yield str(device), holder
        else:
            maybe = Holder(holder.name, why="it uses an NPU whose device node npu-smi does not tell")
            yield from ((node, maybe) for node in unproven if node not in own.nodes)


def _container_by_id(name: str, ident: str, foreign: list[dict[str, Any]], known: list[dict[str, Any]]) -> str:
    for entry in foreign:
        if same_id(ident, str(entry.get("id") or "")):
            return container_words(entry)
    for entry in known:
        if same_id(ident, str((entry.get("container") or {}).get("id") or "")):
            return container_words({"container": planned_name(entry["name"]), "id": ident})
    return container_words({"container": name, "id": ident})


def _process(owner: dict[str, Any], pid: Any) -> str:
    number = pid if pid is not None else owner.get("id")
    words = f"process {owner['name']}" if owner.get("name") else "a process"
    return f"{words} (pid {number})" if number is not None else words


def is_full(chip: dict[str, Any]) -> bool:
    """True when more of a chip's memory is in use than an idle one shows; false where that is not known."""
    total, used = chip.get("memory_total_mb") or 0, chip.get("memory_used_mb") or 0
    return bool(used > BUSY_SHARE * total > 0)


def _full_memory(facts: dict[str, Any], own: Own, unproven: list[str]) -> Held:
    """Chips whose memory is in use while npu-smi gave no table of processes."""
    full = [chip for chip in facts.get("chips") or [] if chip.get("processes") is None and is_full(chip)]
    # As many chips without a node as planned instances run on may be theirs.
    spare = len([node for node in unproven if node in own.nodes])
    for chip in full:
        device = chip.get("device")
        holder = Holder(
            "something that npu-smi does not name", why=f"{in_use(chip)}, and npu-smi lists no processes of it"
        )
        if device:
            yield from [(str(device), holder)] * (device not in own.nodes)
        elif spare:
            spare -= 1
        else:
            yield from ((node, holder) for node in unproven if node not in own.nodes)


def in_use(chip: dict[str, Any]) -> str:
    """The memory in use of a chip, for a sentence."""
    return f"{chip.get('memory_used_mb')} of {chip.get('memory_total_mb')} MB of its memory are in use"


def doubtful_nodes(facts: dict[str, Any], observed: dict[str, Any] | None, planned: list[str]) -> dict[str, str]:
    """Why a node that nobody seems to hold may be in use: its memory is, though npu-smi's process table is empty."""
    own = _own(observed, planned)
    return {
        str(chip["device"]): f"and {in_use(chip)}, though npu-smi lists no process"
        for chip in facts.get("chips") or []
        if chip.get("device") not in (None, *own.nodes) and chip.get("processes") == [] and is_full(chip)
    }


def check_unproven(
    facts: dict[str, Any], observed: dict[str, Any] | None, planned: list[str], host_memory: bool, findings: Findings
) -> None:
    """Warnings about chips that npu-smi tells something of, but not their device node: any instance may get them."""
    ours = _own(observed, planned).nodes & set(_unproven(facts))
    for chip in (chip for chip in facts.get("chips") or [] if not chip.get("device")):
        where = f"NPU {chip.get('npu_id')} chip {chip.get('chip_id')}, whose device node is not known,"
        if is_unhealthy(chip):
            message = f"{where} has health {chip['health']}: an instance may get it"
            findings.warn("npu_health", message, "Repair or reset the chip, or give the instances lists of nodes.")
        if not host_memory and not ours and chip.get("processes") == [] and is_full(chip):
            message = f"{where} is not idle: {in_use(chip)}, though npu-smi lists no process"
            findings.warn("npu_memory_in_use", message, "Look for what left it there (npu-smi info).")
