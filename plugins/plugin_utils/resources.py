# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What of the host a container of a family gets: devices, mounts, network, and the rules for several NPUs."""

from __future__ import annotations

from typing import Any

from .npu_nodes import NODE, Nodes
from .plain import Findings, listed
from .profiles import OVERLAYS, on_host, origin_of

DEVICE_TYPES = ("char", "directory", None)
# A driver that is not there explains every missing node by itself.
NO_NODES_KNOWN = ("no_npu", "no_driver", "device_nodes_missing", "npu_passthrough")
LIST_KEYS = ("devices", "mounts")
MAP_KEYS = ("serve_args", "environment")


def with_overlays(profile: dict[str, Any], applying: dict[str, str], where: str, findings: Findings) -> dict[str, Any]:
    """The profile with its overlays applied: applying names each with the reason, as a sentence says it."""
    result = profile
    for key in (key for key in OVERLAYS if key in applying):
        overlay = profile.get(key)
        if not overlay:
            continue
        named = {k: v for k, v in overlay.items() if k != "origin" and not k.endswith("_origin")}
        changes = {k: v for k, v in named.items() if k not in LIST_KEYS + MAP_KEYS}
        changes.update({k: result[k] + overlay[k] for k in LIST_KEYS if k in overlay})
        changes.update({k: {**result.get(k, {}), **overlay[k]} for k in MAP_KEYS if k in overlay})
        result = {**result, **changes}
        origins: dict[str, list[str]] = {}
        for name, value in named.items():
            shown = f"{name} ({listed(value)})" if name in MAP_KEYS else name
            origins.setdefault(overlay.get(f"{name}_origin", overlay["origin"]), []).append(shown)
        for origin, names in origins.items():
            findings.why(
                f"{where}: rules for {applying[key]}", f"they change {listed(names)}", origin_of(profile, origin)
            )
    return result


def choose_devices(rules: dict[str, Any], facts: dict[str, Any], chosen: list[str], findings: Findings) -> list[str]:
    """The nodes to map: the chosen NPU nodes, then the family's; those it has only "if present" may be missing."""
    present = facts.get("device_nodes") or {}
    devices = list(chosen)
    for rule in rules["devices"]:
        path, source = rule["path"], origin_of(rules, rule["origin"])
        if path in present:
            if _check_node(path, present[path], rules, findings):
                devices.append(path)
                findings.why(f"device {path}", f"{rule['presence'].replace('_', ' ')} on {rules['title']}", source)
        elif rule["presence"] == "required":
            message = f"the device node {path} does not exist, and {rules['title']} needs it"
            remedy = f"Check that the driver is loaded (lsmod, dmesg); it makes the node at boot ({source})."
            findings.problem("device_missing", message, remedy)
            devices.append(path)
        else:
            findings.why(f"no device {path}", "it is mapped only where it is present", source)
    return devices


def check_npu_nodes(facts: dict[str, Any], nodes: Nodes, title: str, findings: Findings) -> None:
    """There must be an NPU node, and a node must be a device."""
    present = facts.get("device_nodes") or {}
    for path in sorted(path for path in present if NODE.fullmatch(path)):
        _check_node(path, present[path], {"title": title}, findings)
    known = {problem["code"] for problem in findings.problems}
    if not nodes.names and not known.intersection(NO_NODES_KNOWN):
        message = f"there is no NPU node /dev/davinci<number>, and {title} needs one"
        findings.problem("device_missing", message, "Check that the driver is loaded (lsmod, dmesg, npu-smi info).")


def _check_node(path: str, entry: dict[str, Any], rules: dict[str, Any], findings: Findings) -> bool:
    kind = entry.get("type")
    if kind in DEVICE_TYPES:
        return True
    message = f"{path} is of type {kind}, not a device node, and {rules['title']} needs it"
    findings.problem("device_wrong_type", message, f"Remove it (rm {path}) and load the driver again.")
    return False


def choose_mounts(
    rules: dict[str, Any], facts: dict[str, Any], system: str | None, findings: Findings
) -> list[dict[str, Any]]:
    """The host files and folders to mount, [{source, target, read_only, type}] by target.

    A required one that is missing or of the wrong type is a problem: docker run would fail, or hand over an empty
    directory in its place.
    """
    driver = (facts.get("driver") or {}).get("install_path")
    applying = [rule for rule in rules["mounts"] if rule.get("image_os") in (None, system)]
    replaced = {target for rule in applying for target in rule.get("replaces", [])}
    # A later rule for the same place takes that of the earlier.
    by_target = {rule["target"].rstrip("/"): rule for rule in applying if rule["target"].rstrip("/") not in replaced}
    mounts = []
    for target, rule in by_target.items():
        source = on_host(rule["source"], driver)
        if not _mountable(rule, source, rules, facts, findings):
            continue
        mount = {"source": source, "target": target, "read_only": rule.get("read_only", True), "type": rule["type"]}
        mounts.append(mount)
        shown = f"mount {source}" if source == target else f"mount {source} at {target}"
        findings.why(shown, rule["presence"].replace("_", " "), origin_of(rules, rule["origin"]))
    return sorted(mounts, key=lambda mount: str(mount["target"]))


def _mountable(
    rule: dict[str, Any], source: str, rules: dict[str, Any], facts: dict[str, Any], findings: Findings
) -> bool:
    """True when the source is to be mounted; a required one always is, so that the plan shows what it should be.

    One that the operator accepts to be without is not: docker cannot mount what is not there.
    """
    required, origin = rule["presence"] == "required", origin_of(rules, rule["origin"])
    entry = (facts.get("paths") or {}).get(source)
    if entry is None:
        if required:
            message = f"{source} was not looked at, and {rules['title']} needs it"
            findings.problem("path_unknown", message, "Observe the host again with the paths of its profile.")
        return required
    fault = _fault(rule, source, entry)
    if fault is None:
        return _right_version(rule, source, entry, origin, findings)
    code, words = fault
    if required and "code" in rule:
        findings.problem(rule["code"], f"{words}: {rule.get('without', '')}", _remedy(rule, origin))
        return bool(entry.get("type") == rule["type"]) or not findings.accepts(rule["code"])
    if code == "path_wrong_type":
        report = findings.problem if required else findings.warn
        remedy = wrong_type_remedy(source, str(entry.get("type")), rule["type"])
        report(code, f"{words}, but a {rule['type']} is needed by {rules['title']}", remedy)
    elif required:
        message = f"{words}, and {rules['title']} needs the {rule['type']}"
        findings.problem("path_missing", message, _missing_remedy(source, facts, origin))
    elif "code" in rule:
        findings.warn(rule["code"], f"{words}: {rule.get('without', '')}", _remedy(rule, origin))
    else:
        findings.why(f"no mount {source}", "it is mounted only where it is present", origin)
    return required


def _fault(rule: dict[str, Any], source: str, entry: dict[str, Any]) -> tuple[str, str] | None:
    """(code, what is wrong with it in words) of a path that cannot be mounted as it is, None when it can."""
    kind = entry.get("type")
    if kind == "link_broken":
        return "path_missing", f"{source} is a link to {entry.get('link')}, which does not exist"
    if kind == "missing":
        return "path_missing", f"{source} does not exist"
    if kind != rule["type"]:
        return "path_wrong_type", f"{source} is a {kind}"
    if rule.get("filled") and 0 in (entry.get("size"), entry.get("addresses")):
        return "path_missing", f"{source} is empty" if entry.get("size") == 0 else f"{source} holds no address"
    return None


def _remedy(rule: dict[str, Any], origin: str) -> str:
    return f"{rule.get('remedy', 'See the installation guide').rstrip('.')} ({origin})."


def _right_version(
    rule: dict[str, Any], source: str, entry: dict[str, Any], origin: str, findings: Findings
) -> bool:  # fmt: skip
    """True unless only another version of the file is mounted."""
    wanted, found = rule.get("version"), entry.get("version")
    if wanted in (None, found):
        return True
    findings.why(f"no mount {source}", f"its version is {found}; only version {wanted} is mounted", origin)
    if "version_code" in rule:
        message = f"{source} is of version {found}, and only version {wanted} is mounted: {rule.get('without', '')}"
        findings.warn(rule["version_code"], message, _remedy(rule, origin))
    return False


def _missing_remedy(source: str, facts: dict[str, Any], origin: str) -> str:
    found = (facts.get("driver") or {}).get("npu_smi_path")
    if source.endswith("/npu-smi") and found:
        return f"npu-smi is at {found}: reinstall the driver, or link it (ln -s {found} {source}) ({origin})."
    return f"Install or repair the Ascend driver, which brings it; docker must not be left to make it ({origin})."


def wrong_type_remedy(path: str, found: str, wanted: str) -> str:
    """How to get rid of what is in the place of a file or folder."""
    if found == "directory" and wanted == "file":
        return (
            f"docker's -v makes such a directory when its source is missing: remove it (rmdir {path}) and bring the "
            "file back by reinstalling the driver."
        )
    return f"Remove it and bring the {wanted} back by reinstalling the driver."
