# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What separates an instance on its host from its plan, seen by the host itself.

The module predicts with it and the transaction decides with it, so check mode says what a run does.
"""

from __future__ import annotations

import os
from typing import Any, Dict, List

from . import adoption, instance_state, snapshot
from .host_control import Host, HostError

NONE = "none"
CREATE = "create"
UPDATE = "update"
RECOVER = "recover"
START = "start"
REPAIR = "repair"


def compare(host: Host, request: Dict[str, Any]) -> Dict[str, Any]:
    """{action, reasons: [{field, before, after}]} for the planned instance of a request {plan, image_id, ...}.

    action is none, create (no unit), recover (a dead transaction's journal), update (something differs), start (as
    planned, but not active or not enabled) or repair (active, but it does not serve). HostError for a unit file of the
    same name that is somebody else's.
    """
    plan = request["plan"]
    name = plan["name"]
    if instance_state.journal_state(host.sysroot, name) == instance_state.JOURNAL_OPEN:
        return _action(RECOVER, [_reason("journal", "open", "done")])
    return compare_state(host, request)


def compare_state(host: Host, request: Dict[str, Any]) -> Dict[str, Any]:
    """The same without the journal: what the transaction uses, whose own journal is open."""
    plan = request["plan"]
    name = plan["name"]
    unit_file = instance_state.unit_path(name)
    if not os.path.exists(host.path(unit_file)):
        reasons = [_reason("unit", None, plan["unit"]["name"])]
        if adoption.foreign(host, name) is not None:
            reasons.append(_reason("container", "started by hand", "adopted"))
        return _action(CREATE, reasons)
    if not instance_state.is_ours(host.sysroot.read_text(unit_file)):
        raise HostError(
            "{0} exists and was not made by vllm_ascend.fleet; move it away or give the instance another name".format(
                unit_file
            )
        )
    reasons = differences(host, request)
    if reasons:
        return _action(UPDATE, reasons)
    unit = host.unit(name)
    if unit.active_state != "active" or unit.unit_file_state not in snapshot.ENABLED_STATES:
        return _action(
            START,
            [
                _reason(field, before, after)
                for field, before, after in (
                    ("active", unit.active_state, "active"),
                    ("enabled", unit.unit_file_state, "enabled"),
                )
                if before != after
            ],
        )
    proof = snapshot.prove(host, name, plan)
    if not proof.serving:
        return _action(REPAIR, [_reason("health", "{0}: {1}".format(proof.health, proof.detail), "serving")])
    return _action(NONE, [])


def differences(host: Host, request: Dict[str, Any]) -> List[Dict[str, Any]]:
    """The reasons for an update: [{field, before, after}]."""
    plan, image_id = request["plan"], request["image_id"]
    name = plan["name"]
    committed = instance_state.read_committed(host.sysroot, name) or {}
    found = host.inspect(instance_state.container_name(name))
    running = found.get("Image") if found and (found.get("State") or {}).get("Running") else None
    secrets = instance_state.secret_digests(host.environment(name))
    pairs = [
        ("plan", committed.get("plan_hash"), plan["plan_hash"]),
        ("image", committed.get("image_id"), image_id),
        ("unit", unit_digest(host, name), instance_state.text_digest(plan["unit"]["text"])),
    ]
    if running is not None and committed.get("image_id") == image_id:
        pairs.append(("running image", running, image_id))
    reasons = [_reason(field, before, after) for field, before, after in pairs if before != after]
    if secrets != planned_secrets(plan):
        reasons.append(_reason("secrets", _names(secrets), _names(planned_secrets(plan))))
    return reasons


def unit_digest(host: Host, instance: str) -> Any:
    """The digest of an instance's unit file, None when there is none."""
    return instance_state.file_digest(host.sysroot, instance_state.unit_path(instance))


def planned_secrets(plan: Dict[str, Any]) -> List[Dict[str, str]]:
    """[{name, digest}] of a plan's secrets, by name."""
    secrets = (plan.get("container") or {}).get("secrets") or []
    return sorted(({"name": s["name"], "digest": s["digest"]} for s in secrets), key=lambda secret: secret["name"])


def _names(secrets: List[Dict[str, str]]) -> List[str]:
    """Names with the start of their digests: enough to see a change, nothing of the value."""
    return ["{0} ({1})".format(secret["name"], secret["digest"][:8]) for secret in secrets]


def _action(action: str, reasons: List[Dict[str, Any]]) -> Dict[str, Any]:
    return {"action": action, "reasons": reasons}


def _reason(field: str, before: Any, after: Any) -> Dict[str, Any]:
    return {"field": field, "before": before, "after": after}
