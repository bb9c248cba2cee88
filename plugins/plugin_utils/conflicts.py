# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a host holds already that a deployment would run into: names, ports, and the room for images."""

from __future__ import annotations

import ipaddress
import json
from typing import Any

from ..module_utils.instance_state import container_name as planned_name
from .plain import Findings
from .versions import older

# Official images unpack to 15-20 GB, and the download lies beside them meanwhile: below the first it cannot be done.
IMAGE_LEAST_MB, IMAGE_SPACE_MB = 20_000, 30_000
# The first Docker that unpacks layers packed with zstd (moby release notes 23.0).
DOCKER_ZSTD = (23, 0)
GONE_STATES = ("exited", "dead", "created")
# States of a unit whose container is there, or comes back by itself.
UP_STATES = ("active", "activating", "reloading")


def check_image_store(
    image: dict[str, Any], observed: dict[str, Any] | None, official: bool, findings: Findings
) -> None:
    """An image that may not be pulled must be there, and one that is to come needs room, and an engine that unpacks it.

    official says that it is not one of the operator's own, whose size nobody knows here.
    """
    engine = (observed or {}).get("engine")
    if observed is None or not engine or not engine.get("running") or find_image(image, observed) is not None:
        return
    if image["pull"] == "never" and not image["archive"]:
        message = f"vllm_image_pull is never, and the host has no image {image['reference']}"
        findings.problem("image_missing", message, "Load it on the host, set vllm_image_archive, or allow the pull.")
        return
    if older(engine.get("version"), DOCKER_ZSTD) and not image["archive"]:
        message = (
            f"Docker {engine['version']} is older than 23.0: a pull may end with 'archive/tar: invalid tar header'"
        )
        remedy = "Update Docker; or pull elsewhere, save with docker save, and set vllm_image_archive."
        findings.warn("engine_no_zstd", message, remedy)
    free = engine.get("storage_free_mb")
    if free is not None and free < IMAGE_SPACE_MB:
        message = f"{free} MB are free in {engine.get('storage_root') or 'the image store'}; an image takes up to 20 GB"
        remedy = "Make room (docker image prune), or use a larger disk."
        if official and free < IMAGE_LEAST_MB:
            findings.problem("disk_too_small", message, remedy)
        else:
            findings.warn("disk_space_low", message, remedy)


def find_image(image: dict[str, Any], observed: dict[str, Any]) -> dict[str, Any] | None:
    """The host's image of that reference and digest, None when there is none."""
    for entry in observed.get("images") or []:
        # An image of an archive has no registry digest; it is pinned by its id.
        digests = [str(digest).rpartition("@")[2] for digest in entry.get("digests") or []] + [entry.get("id")]
        names = {image["reference"], image["reference"].partition("@")[0]} - {""}
        named = bool(names.intersection((entry.get("references") or []) + (entry.get("digests") or [])))
        if named and (not image["digest"] or image["digest"] in digests):
            return dict(entry)
    return None


def is_running(entry: dict[str, Any]) -> bool:
    """True when an observed instance has a container that can hold its nodes, or is about to."""
    container = entry.get("container") or {}
    return (bool(container) and container.get("state") not in GONE_STATES) or entry.get("active_state") in UP_STATES


def orphan_remedy(name: str) -> str:
    """What to do about an instance of ours that is not planned any more and is in the way."""
    named = json.dumps({"vllm_instance_names": [name]})
    return f"Remove it (playbook remove.yml -e '{named}'), keep it in vllm_instances under its name, or give others."


def check_foreign(observed: dict[str, Any] | None, containers: list[str], adopt: bool, findings: Findings) -> set[str]:
    """A problem for each container of others under one of our names; returns the names that are to be adopted."""
    adopted: set[str] = set()
    for entry in (observed or {}).get("foreign") or []:
        name = container_name(entry)
        if name in containers:
            state = f"container {name} ({entry.get('state')}, image {entry.get('image')}) is on the host, not made here"
            if adopt:
                adopted.add(name)
                findings.warn("container_adopted", f"{state}; it is replaced", "It comes back when the new one fails.")
            else:
                remedy = f"Remove it (docker rm -f {name}), or set vllm_adopt_containers to replace it safely."
                findings.problem("container_foreign", state, remedy)
    return adopted


def check_ports(
    instances: list[dict[str, Any]], observed: dict[str, Any] | None, adopted: set[str], findings: Findings
) -> None:
    """A problem for each port that somebody else listens on; each instance has name, port and bind_address.

    Two vLLM 0.23 servers on one port of the host network both start, so this must be known before.
    """
    if observed is None:
        return
    known = {entry["name"]: entry for entry in observed.get("instances") or []}
    foreign = observed.get("foreign") or []
    planned = {instance["name"] for instance in instances}
    named = {planned_name(name) for name in planned}
    for instance in instances:
        port, holder = instance["port"], None
        remedy = "Stop the holder, or give the instance another port."
        for entry in foreign:
            name = container_name(entry)
            if port in (entry.get("ports") or []) and entry.get("state") not in GONE_STATES and name not in named:
                holder = f"container {name}"
        for other in known.values():
            if other["name"] != instance["name"] and other.get("container") and port in (other.get("ports") or []):
                holder = f"the instance {other['name']}"
                remedy = orphan_remedy(other["name"]) if other["name"] not in planned else remedy
        for listener in [] if holder else observed.get("listeners") or []:
            if listener.get("port") != port or not _overlap(instance["bind_address"], listener.get("address")):
                continue
            if not _expected(listener, known.get(instance["name"]), foreign, adopted | named):
                shown = listener.get("process") or "a process"
                holder = f"{shown} (pid {listener.get('pid') or 'not known'})"
        if holder:
            message = f"port {port} of instance {instance['name']} is taken by {holder}"
            findings.problem("port_taken", message, remedy)


def _expected(
    listener: dict[str, Any], own: dict[str, Any] | None, foreign: list[dict[str, Any]], names: set[str]
) -> bool:  # fmt: skip
    """True when the listener belongs to the instance itself, or to a container of its name (reported or adopted)."""
    port, holder, proxy = (
        listener["port"],
        str(listener.get("container") or ""),
        listener.get("process") == "docker-proxy",
    )
    if own and own.get("container"):
        if same_id(holder, str(own["container"].get("id") or "")):
            return True
        if proxy and port in (own.get("ports") or []):
            return True
    for entry in foreign:
        if container_name(entry) in names and (
            same_id(holder, str(entry.get("id") or "")) or (proxy and port in (entry.get("ports") or []))
        ):
            return True
    return False


def _overlap(one: str, other: Any) -> bool:
    addresses = [
        ipaddress.ip_address(str(value or "0.0.0.0").strip("[]").replace("*", "0.0.0.0")) for value in (one, other)
    ]
    return any(a.is_unspecified for a in addresses) or addresses[0] == addresses[1]


def container_name(entry: dict[str, Any]) -> str:
    """The name of an observed container, without docker's leading slash."""
    return str(entry.get("container") or "").lstrip("/")


def same_id(one: str, other: str) -> bool:
    """True when two container ids, one of which may be cut short, are the same."""
    return len(one) >= 12 and len(other) >= 12 and (one.startswith(other) or other.startswith(one))
