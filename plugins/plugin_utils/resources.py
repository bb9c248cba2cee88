# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What of the host a container of a family gets: devices, mounts, network, and the rules for several NPUs."""

from __future__ import annotations

from typing import Any

from .allocation import NODE, Nodes
from .plain import Findings, listed
from .profiles import on_host, origin_of

DEVICE_TYPES = ("char", "directory", None)
# A driver that is not there explains every missing node by itself.
NO_NODES_KNOWN = ("no_npu", "no_driver", "device_nodes_missing", "npu_passthrough")
LIST_KEYS = ("devices", "mounts")


def with_overlays(
    profile: dict[str, Any], nodes: Nodes, chosen: list[str], where: str, findings: Findings
) -> dict[str, Any]:
    """The profile with its rules for several NPUs, or for several cards, applied where that many are chosen."""
    result = profile
    for key, applies, what in (
        ("several_npus", len(chosen) > 1, f"{len(chosen)} NPU nodes"),
        ("several_cards", nodes.on_cards(chosen) > 1, f"{nodes.on_cards(chosen)} cards"),
    ):
        overlay = profile.get(key)
        if not overlay or not applies:
            continue
        changes = {k: v for k, v in overlay.items() if k not in ("origin", "serve_args", *LIST_KEYS)}
        changes.update({k: result[k] + overlay[k] for k in LIST_KEYS if k in overlay})
        if "serve_args" in overlay:
            changes["serve_args"] = {**result["serve_args"], **overlay["serve_args"]}
        result = {**result, **changes}
        rules = listed(k for k in overlay if k != "origin")
        findings.why(f"{where}: rules for {what}", f"they change {rules}", origin_of(profile, overlay["origin"]))
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
    mounts = []
    for rule in applying:
        source, target = on_host(rule["source"], driver), rule["target"].rstrip("/")
        if target in replaced or not _mountable(rule, source, rules, facts, findings):
            continue
        mount = {"source": source, "target": target, "read_only": rule.get("read_only", True), "type": rule["type"]}
        mounts.append(mount)
        shown = f"mount {source}" if source == target else f"mount {source} at {target}"
        findings.why(shown, rule["presence"].replace("_", " "), origin_of(rules, rule["origin"]))
    return sorted(mounts, key=lambda mount: str(mount["target"]))


def _mountable(
    rule: dict[str, Any], source: str, rules: dict[str, Any], facts: dict[str, Any], findings: Findings
) -> bool:
    """True when the source is to be mounted; a required one always is, so that the plan shows what it should be."""
    required, origin = rule["presence"] == "required", origin_of(rules, rule["origin"])
    entry = (facts.get("paths") or {}).get(source)
    kind = (entry or {}).get("type")
    if entry is None:
        if required:
            message = f"{source} was not looked at, and {rules['title']} needs it"
            findings.problem("path_unknown", message, "Observe the host again with the paths of its profile.")
        return required
    if kind in ("missing", "link_broken"):
        if required:
            findings.problem(
                "path_missing", _missing(rule, source, entry, rules), _missing_remedy(source, facts, origin)
            )
        else:
            findings.why(f"no mount {source}", "it is mounted only where it is present", origin)
        return required
    if kind != rule["type"]:
        message = f"{source} is a {kind}, but a {rule['type']} is needed by {rules['title']}"
        report = findings.problem if required else findings.warn
        report("path_wrong_type", message, wrong_type_remedy(source, str(kind), rule["type"]))
        return required
    if rule.get("version") and entry.get("version") != rule["version"]:
        why = f"its version is {entry.get('version')}; only version {rule['version']} is mounted"
        findings.why(f"no mount {source}", why, origin)
        return False
    return True


def _missing(rule: dict[str, Any], source: str, entry: dict[str, Any], rules: dict[str, Any]) -> str:
    if entry.get("type") == "link_broken":
        lost = f"{source} is a link to {entry.get('link')}, which does not exist"
        return f"{lost}, and {rules['title']} needs the {rule['type']}"
    return f"{source} does not exist, and {rules['title']} needs the {rule['type']}"


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
