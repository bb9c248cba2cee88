# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What separates a host from its plan: a pure function of the plan and what was observed."""

from __future__ import annotations

from typing import Any

from ..module_utils.instance_state import container_name as planned_name
from ..module_utils.instance_state import text_digest
from .conflicts import container_name, find_image
from .plain import kind_of, plain

ENABLED = ("enabled", "enabled-runtime")
PLATFORM_ARCHITECTURE = {"linux/amd64": "amd64", "linux/arm64": "arm64"}
NOT_OBSERVED = "not observed"

Reason = dict[str, Any]


def deployment_difference(plan: Any, observed: Any = None, helper_digest: str | None = None) -> dict[str, Any]:
    """{changed, image: {action, reason, id}, instances: [{name, action, reasons}], orphans, helper}.

    changed says that there is something to do. The image's id is that of the host's image of this reference (null:
    none). helper says that the host helper must be installed or replaced; helper_digest is the sha256 of the wanted
    one in hex (null: not known, and then helper is null where the host has one). TypeError is for callers who pass
    something else than data.
    """
    plan, observed = plain(plan), plain(observed)
    if not isinstance(plan, dict):
        raise TypeError(f"the plan must be a dictionary, not of type {kind_of(plan)}")
    if not isinstance(observed, (dict, type(None))):
        raise TypeError(f"observed must be a dictionary or null, not of type {kind_of(observed)}")
    if not isinstance(helper_digest, (str, type(None))):
        raise TypeError(f"helper_digest must be text or null, not of type {kind_of(helper_digest)}")
    image = _image(plan.get("image"), observed)
    known = {entry["name"]: entry for entry in (observed or {}).get("instances") or []}
    planned = plan.get("instances") or []
    instances = [_instance(i, known.get(i["name"]), image["id"], observed) for i in planned]
    actions = [image["action"], *(entry["action"] for entry in instances)]
    # With problems the plan may lack instances that are wanted: nothing is called an orphan then.
    names = {instance["name"] for instance in planned}
    orphans = [] if plan.get("problems") else sorted(set(known) - names)
    helper = _helper(observed, helper_digest) if planned else False
    return {
        "changed": any(action != "none" for action in actions) or bool(helper),
        "image": image,
        "instances": instances,
        "orphans": orphans,
        "helper": helper,
    }


def _helper(observed: dict[str, Any] | None, wanted: str | None) -> bool | None:
    """True when the host's helper is missing or another one; the module that applies the instances installs it."""
    found = (observed or {}).get("helper")
    if not found:
        return True
    return None if wanted is None else found.get("digest") != wanted


def _image(image: dict[str, Any] | None, observed: dict[str, Any] | None) -> dict[str, Any]:
    if image is None:
        return {"action": "none", "reason": "no image is planned", "id": None}
    if observed is None:
        return {"action": "fetch", "reason": NOT_OBSERVED, "id": None}
    found = find_image(image, observed)
    if found is None:
        digest = f" with digest {image['digest']}" if image["digest"] else ""
        return {"action": "fetch", "reason": f"the host has no image {image['reference']}{digest}", "id": None}
    wanted = PLATFORM_ARCHITECTURE.get(image["platform"] or "")
    if wanted and found.get("architecture") not in (None, wanted):
        reason = f"the host's image is for {found['architecture']}, not for {wanted}"
        return {"action": "fetch", "reason": reason, "id": None}
    if image["pull"] == "always" and not image["digest"]:
        return {"action": "refresh", "reason": "vllm_image_pull is always", "id": found.get("id")}
    return {"action": "none", "reason": "the host has it", "id": found.get("id")}


def _instance(
    plan: dict[str, Any], found: dict[str, Any] | None, image_id: str | None, observed: dict[str, Any] | None
) -> dict[str, Any]:
    """The action for one instance; the first that applies of recover, create, update, start, repair, none."""
    name = plan["name"]
    if observed is None:
        return _action(name, "create", [_reason("unit", None, NOT_OBSERVED)])
    if found is not None and found.get("journal") not in (None, "none"):
        # A transaction of a lost run is undone or finished; one that still runs is joined.
        return _action(name, "recover", [_reason("journal", found["journal"], "done")])
    if found is None or found.get("unit_digest") is None:
        reasons = [_reason("unit", None, plan["unit"]["name"])]
        if any(container_name(entry) == planned_name(name) for entry in observed.get("foreign") or []):
            reasons.append(_reason("container", "started by hand", "adopted"))
        return _action(name, "create", reasons)
    changes = _changes(plan, found, image_id)
    if changes:
        return _action(name, "update", changes)
    stopped = [
        _reason(field, found.get(key), wanted)
        for field, key, wanted, good in (
            ("active", "active_state", "active", ("active",)),
            ("enabled", "unit_file_state", "enabled", ENABLED),
        )
        if found.get(key) not in good
    ]
    if stopped:
        return _action(name, "start", stopped)
    # "unknown" was not asked (a replay, or no probe): that is no evidence of a fault.
    if found.get("health") not in ("serving", "unknown"):
        detail = f": {found['health_detail']}" if found.get("health_detail") else ""
        return _action(name, "repair", [_reason("health", f"{found.get('health')}{detail}", "serving")])
    return _action(name, "none", [])


def _changes(plan: dict[str, Any], found: dict[str, Any], image_id: str | None) -> list[Reason]:
    """Why an instance must be updated, field by field as far as its committed plan tells."""
    reasons: list[Reason] = []
    if found.get("plan_hash") != plan["plan_hash"]:
        reasons += _plan_changes(found.get("plan") or {}, plan)
        if not reasons:
            reasons.append(_reason("plan", found.get("plan_hash"), plan["plan_hash"]))
    digest = text_digest(plan["unit"]["text"])
    if found["unit_digest"] != digest and not reasons:
        reasons.append(_reason("unit file", found["unit_digest"][:16], digest[:16]))
    reasons += _secret_changes(plan["container"]["secrets"], found.get("secrets") or [])
    committed = found.get("image_id")
    if image_id is not None and committed != image_id:
        reasons.append(_reason("image id", committed, image_id))
    container = found.get("container") or {}
    running = container if container.get("state") == "running" else {}
    if not reasons and running:
        if running.get("plan_hash") not in (None, plan["plan_hash"]):
            reasons.append(_reason("running plan", running["plan_hash"], plan["plan_hash"]))
        if running.get("image_id") not in (None, committed):
            reasons.append(_reason("running image", running["image_id"], committed))
    return reasons


def _plan_changes(before: dict[str, Any], after: dict[str, Any]) -> list[Reason]:
    """What differs between the committed plan and the new one, of that which the plan's hash stands for."""
    if not before:
        return []
    reasons: list[Reason] = []
    for part in ("container", "timeouts"):
        old, new = before.get(part) or {}, after.get(part) or {}
        # Labels hold the hash itself, secrets are compared with the host's file, the command repeats serve_args.
        for key in sorted((set(old) | set(new)) - {"labels", "secrets", "command"}):
            if old.get(key) != new.get(key):
                reasons.append(_reason(f"{part}.{key}", old.get(key), new.get(key)))
    if before.get("serve_args") != after.get("serve_args"):
        reasons.append(_reason("serve_args", before.get("serve_args"), after.get("serve_args")))
    return reasons


def _secret_changes(wanted: list[dict[str, str]], found: list[dict[str, str]]) -> list[Reason]:
    """Names only: even a digest would let a short secret be guessed."""
    new = {secret["name"]: secret["digest"] for secret in wanted}
    old = {secret["name"]: secret["digest"] for secret in found}
    reasons = []
    for name in sorted(set(new) | set(old)):
        if new.get(name) != old.get(name):
            after = None if name not in new else "changed" if name in old else "set"
            reasons.append(_reason(f"secret {name}", "set" if name in old else None, after))
    return reasons


def _action(name: str, action: str, reasons: list[Reason]) -> dict[str, Any]:
    return {"name": name, "action": action, "reasons": reasons}


def _reason(field: str, before: Any, after: Any) -> Reason:
    return {"field": field, "before": before, "after": after}
