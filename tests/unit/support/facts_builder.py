# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Facts and observations for tests of the plan, as npu_facts and vllm_instance_info return them.

The facts of a documented host are built from the documented run specifications, not from the profiles under test.
"""

from __future__ import annotations

import copy
import functools
import json
import pathlib
import re
from typing import Any

import yaml
from ansible_collections.vllm_ascend.fleet.plugins.module_utils.instance_state import text_digest

ROOT = pathlib.Path(__file__).resolve().parents[3]
PROFILES = ROOT / "roles" / "npu_host" / "vars" / "hardware"
RULES = ROOT / "roles" / "npu_host" / "vars" / "rules"
SPECS = ROOT / "tests" / "unit" / "data" / "documented_run_specs.json"
CACHE = "/srv/model-cache"
DRIVER = "/usr/local/Ascend"
# Which of the documented mounts are folders; all others are files.
FOLDERS = ("/usr/local/dcmi", f"{DRIVER}/driver/lib64", f"{DRIVER}/driver")
OTHER_PATHS = ("/etc/hccl_rootinfo.json", "/etc/hixlep", "/lib/route.conf", f"{DRIVER}/driver/tools/hccn_tool")
PRODUCTS = {
    "atlas_a2": "Atlas 800I A2",
    "atlas_a3": "Atlas 800I A3",
    "atlas_300i_duo": "Atlas 300I Duo",
    "atlas_200i_pro": "Atlas 200I Pro",
    "atlas_950dt": None,
}


def shipped_profiles() -> dict[str, Any]:
    """The profiles of the collection by family, as include_vars merges them."""
    return copy.deepcopy(_read_profiles())


@functools.cache
def _read_profiles() -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for path in sorted(PROFILES.glob("*.yml")):
        merged.update(yaml.safe_load(path.read_text()))
    return merged


def shipped_rules() -> dict[str, Any]:
    """What the collection knows of releases, serve options and models, as include_vars merges it."""
    merged: dict[str, Any] = {}
    for path in sorted(RULES.glob("*.yml")):
        merged.update(yaml.safe_load(path.read_text()))
    return merged


def documented_cases() -> list[dict[str, Any]]:
    """The ten documented run specifications, with the model cache of the tests in place."""
    text = SPECS.read_text().replace("${MODEL_CACHE}", CACHE)
    cases: list[dict[str, Any]] = json.loads(text)["cases"]
    return cases


def case_of(family: str, image_os: str = "ubuntu") -> dict[str, Any]:
    """One of them."""
    return next(c for c in documented_cases() if (c["family"], c["image_os"]) == (family, image_os))


def case_id(case: dict[str, Any]) -> str:
    """A name of a case for pytest."""
    return f"{case['family']}-{case['image_os']}"


def build_facts(case: dict[str, Any], npus: int | None = None, driver: str = DRIVER) -> dict[str, Any]:
    """The facts of a healthy idle host where everything exists that the documentation of the case names.

    npus is the number of /dev/davinciN nodes (null: the documented ones), driver the driver's install path.
    """
    nodes = [d for d in case["devices"] if npus is None or not re.search(r"davinci\d+$", d)]
    nodes += [f"/dev/davinci{number}" for number in range(npus or 0)]
    paths = dict.fromkeys(OTHER_PATHS, "missing")
    for mount in case["mounts"]:
        if mount["target"] != "/root/.cache":
            paths[mount["source"]] = "directory" if mount["source"] in FOLDERS else "file"
    moved = {path.replace(f"{DRIVER}/driver", f"{driver}/driver"): kind for path, kind in paths.items()}
    ubuntu = case["image_os"] == "ubuntu"
    return {
        "family": case["family"],
        "product": PRODUCTS[case["family"]],
        "evidence": [{"source": "test", "value": case["family"], "implies": case["family"]}],
        "problems": [],
        "chips": [],
        "device_nodes": {node: _node(number) for number, node in enumerate(nodes)},
        "pci": [],
        "driver": {
            "install_path": driver,
            "version": "25.5.1",
            "firmware_version": None,
            "npu_smi_path": "/usr/local/sbin/npu-smi",
            "package_family": None,
            "status": "installed",
        },
        "npu_smi": {"status": "ok", "path": "/usr/local/bin/npu-smi", "version": "25.5.1"},
        "usage": [],
        "host": {
            "os_id": "ubuntu" if ubuntu else "openEuler",
            "os_version": "22.04" if ubuntu else "22.03",
            "os_like": ["debian"] if ubuntu else [],
            "image_os": case["image_os"],
            "architecture": "aarch64",
            "page_size": 4096,
            "kernel": "5.10.0",
            "virtualization": None,
            "container": None,
            "python": "/usr/bin/python3.9",
            "uptime_s": 86400,
            "selinux": None,
        },
        "paths": {path: path_entry(kind) for path, kind in moved.items()},
    }


def path_entry(kind: str, **more: Any) -> dict[str, Any]:
    """An entry of the facts' paths."""
    return {"type": kind, "mode": "0644", "uid": 0, "gid": 0, "size": 1, "executable": False, **more}


def add_several_paths(facts: dict[str, Any]) -> dict[str, Any]:
    """The same host with what instances of several NPUs mount."""
    facts = copy.deepcopy(facts)
    facts["paths"][f"{DRIVER}/driver/tools/hccn_tool"] = path_entry("file")
    facts["paths"][f"{DRIVER}/driver"] = path_entry("directory")
    return facts


def build_observed(**changes: Any) -> dict[str, Any]:
    """A live host with Docker and systemd where nothing was deployed yet."""
    observed = {
        "engine": {
            "kind": "docker",
            "cli": "/usr/bin/docker",
            "client_version": "24.0.7",
            "version": "24.0.7",
            "api_version": "1.43",
            "default_runtime": "runc",
            "architecture": "arm64",
            "storage_root": "/var/lib/docker",
            "storage_free_mb": 500_000,
            "live_restore": False,
            "running": True,
            "error": None,
            "http_proxy": None,
            "https_proxy": None,
            "no_proxy": None,
            "security_options": ["name=seccomp,profile=builtin"],
            "cgroup_version": "1",
            "rootless": False,
            "userns_remap": False,
            "runtimes": ["runc"],
        },
        "systemd": {"version": 252},
        "listeners": [],
        "instances": [],
        "foreign": [],
        "images": [],
        "helper": None,
    }
    return {**observed, **changes}


def foreign(container: str, **changes: Any) -> dict[str, Any]:
    """A container of somebody else; it holds the devices that it has, unless changes say otherwise."""
    entry = {
        "container": container,
        "engine": "docker",
        "id": container.encode().hex().ljust(64, "0")[:64],
        "image": "other:1",
        "state": "running",
        "devices": [],
        "privileged": False,
        "ports": [],
        "npu": True,
        "ascend_visible_devices": None,
        "holds": {"nodes": list(changes.get("devices", [])), "any": False, "why": None},
    }
    return {**entry, **changes}


def chip(number: int | None, **changes: Any) -> dict[str, Any]:
    """A chip of npu-smi's table at /dev/davinci<number> (null: its node is not proven), healthy and idle."""
    entry = {
        "device": None if number is None else f"/dev/davinci{number}",
        "phy_id": number,
        "npu_id": number,
        "chip_id": 0,
        "name": "910B3",
        "health": "OK",
        "bus_id": None,
        "memory_total_mb": 65536,
        "memory_used_mb": 3378,
        "aicore_percent": 0,
        "power_w": 90.0,
        "temperature_c": 40,
        "processes": [],
    }
    return {**entry, **changes}


def observed_instance(plan: dict[str, Any], image_id: str = "sha256:1", **changes: Any) -> dict[str, Any]:
    """The observation of an instance that was deployed from this instance of a plan and serves."""
    entry = {
        "name": plan["name"],
        "unit": plan["unit"]["name"],
        "active_state": "active",
        "sub_state": "running",
        "unit_file_state": "enabled",
        "restarts": 0,
        "result": "success",
        "unit_digest": text_digest(plan["unit"]["text"]),
        "secrets": plan["container"]["secrets"] or None,
        "plan_hash": plan["plan_hash"],
        "plan": copy.deepcopy(plan),
        "image_id": image_id,
        "image_reference": plan["container"]["image"],
        "container": {
            "id": "c0ffee" * 10 + "0000",
            "image_id": image_id,
            "state": "running",
            "started_at": None,
            "plan_hash": plan["plan_hash"],
        },
        "npus": plan["npus"],
        "ports": [plan["endpoint"]["port"]],
        "health": "serving",
        "health_detail": None,
        "served_models": [plan["served_model_name"]],
        "journal": "none",
        "previous": False,
    }
    return {**entry, **changes}


def observed_image(reference: str, image_id: str = "sha256:1", **changes: Any) -> dict[str, Any]:
    """An image in the host's store."""
    entry = {
        "id": image_id,
        "references": [reference],
        "digests": [],
        "architecture": "arm64",
        "os": "linux",
        "size_mb": 100,
        "created": None,
        "labels": {},
    }
    return {**entry, **changes}


def _node(minor: int) -> dict[str, Any]:
    return {"type": "char", "major": 235, "minor": minor, "mode": "0660", "uid": 1000, "gid": 1000}
