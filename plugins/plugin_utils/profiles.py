# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hardware profiles: the operator's changes to them, and the host paths that they name.

A profile is the rules of one hardware family, roles/npu_host/vars/hardware/<family>.yml.
"""

from __future__ import annotations

import re
from typing import Any

from .plain import kind_of, plain
from .profile_schema import DRIVER, SCHEMA
from .profile_schema import IMAGE_SYSTEMS as IMAGE_SYSTEMS

DEFAULT_DRIVER = "/usr/local/Ascend"
FAMILY = re.compile(r"[a-z][a-z0-9_]*")
# Parts of a profile that change it where they apply.
OVERLAYS = ("several_npus", "several_cards", "several_ranks", "over_roce")


def merge_profiles(shipped: dict[str, Any], overrides: dict[str, Any]) -> dict[str, Any]:
    """Shipped profiles with the operator's on top: dictionaries merge key by key, everything else is replaced."""
    merged = dict(shipped)
    for key, value in overrides.items():
        old = merged.get(key)
        merged[key] = merge_profiles(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return merged


def profile_errors(profiles: Any) -> list[str]:
    """Everything that is wrong with the profiles, each with its place and value; empty when they can be used."""
    if not isinstance(profiles, dict):
        return [f"the hardware profiles are {profiles!r}, not a dictionary by family"]
    errors = []
    for family, profile in profiles.items():
        if not FAMILY.fullmatch(family):
            errors.append(f"{family!r} is no family name (small letters, digits and underscores)")
        errors += SCHEMA(profile, family)
        errors += _origin_errors(profile, family)
    return errors


def _origin_errors(profile: Any, where: str) -> list[str]:
    """Every origin names a document of the profile's own list."""
    origins = profile.get("origins") if isinstance(profile, dict) else None
    if not isinstance(origins, dict):
        return []

    def walk(value: Any, place: str) -> list[str]:
        if isinstance(value, list):
            return [error for number, item in enumerate(value) for error in walk(item, f"{place}[{number}]")]
        if not isinstance(value, dict):
            return []
        errors = []
        for key, item in value.items():
            if (key == "origin" or key.endswith("_origin")) and isinstance(item, str) and item not in origins:
                errors.append(f"{place}.{key} is {item!r}, which origins does not list")
            errors += walk(item, f"{place}.{key}")
        return errors

    return walk(profile, where)


def origin_of(profile: dict[str, Any], name: str) -> str:
    """The document behind a short origin name of the profile."""
    return str(profile["origins"][name])


def on_host(path: str, driver: str | None) -> str:
    """A profile's path on a host whose driver was installed below that folder; without a last slash."""
    return path.replace(DRIVER, (driver or DEFAULT_DRIVER).rstrip("/")).rstrip("/") or "/"


def profile_paths(profiles: Any, overrides: Any = None, settings: Any = None) -> list[str]:
    """The sorted host paths that a deployment may mount, with {driver} in place: what npu_facts must look at.

    They are those of every profile, and the operator's folders where settings are given. Entries that are not in order
    are left out here: deployment_plan names them. TypeError is for shipped profiles that are no dictionary.
    """
    shipped, changed, given = plain(profiles), plain(overrides), plain(settings)
    if not _is_map(shipped):
        raise TypeError(f"the hardware profiles must be a dictionary by family, not of type {kind_of(shipped)}")
    merged = merge_profiles(shipped, changed if _is_map(changed) else {})
    found: set[str] = set()
    for profile in merged.values():
        parts = [profile, *(profile.get(key) for key in OVERLAYS)] if _is_map(profile) else []
        for part in parts:
            mounts = part.get("mounts") if _is_map(part) else None
            entries = mounts if isinstance(mounts, list) else []
            found.update(m["source"] for m in entries if _is_map(m) and isinstance(m.get("source"), str))
    return sorted({path.rstrip("/") for path in found | _folders(given if _is_map(given) else {})} - {""})


def _folders(settings: dict[str, Any]) -> set[str]:
    """The model cache and the folders of local models."""
    entries = [settings.get("vllm_model"), settings.get("vllm_model_cache")]
    instances = settings.get("vllm_instances")
    entries += [entry.get("model") for entry in (instances if isinstance(instances, list) else []) if _is_map(entry)]
    return {entry for entry in entries if isinstance(entry, str) and entry.startswith("/")}


def _is_map(value: Any) -> bool:
    return isinstance(value, dict)
