# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hardware profiles: their schema, the operator's changes to them, and the host paths that they name.

A profile is the rules of one hardware family, roles/npu_host/vars/hardware/<family>.yml. SCHEMA below says what one
holds; docs of a key stand beside it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from .plain import kind_of, listed, nearest, plain
from .versions import parse_release

DRIVER = "{driver}"
DEFAULT_DRIVER = "/usr/local/Ascend"
FAMILY = re.compile(r"[a-z][a-z0-9_]*")
ARCHITECTURES = ("x86_64", "aarch64")
IMAGE_SYSTEMS = ("ubuntu", "openeuler")
_SIZE = re.compile(r"\d+[bkmg]", re.IGNORECASE)
_SUFFIX = re.compile(r"[a-z0-9][a-z0-9_.-]*")
_FLAG = re.compile(r"--[a-z][a-z0-9-]*")

Check = Callable[[Any, str], list[str]]


def _is(kind: type | tuple[type, ...], name: str) -> Check:
    def check(value: Any, where: str) -> list[str]:
        right = isinstance(value, kind) and not (isinstance(value, bool) and kind is not bool)
        return [] if right else [f"{where} is {value!r}, not {name}"]

    return check


def _match(pattern: re.Pattern[str], name: str) -> Check:
    def check(value: Any, where: str) -> list[str]:
        return [] if isinstance(value, str) and pattern.fullmatch(value) else [f"{where} is {value!r}, not {name}"]

    return check


def _one_of(*choices: str) -> Check:
    def check(value: Any, where: str) -> list[str]:
        return [] if value in choices else [f"{where} is {value!r}, not one of {listed(choices)}"]

    return check


def _or_null(inner: Check) -> Check:
    return lambda value, where: [] if value is None else inner(value, where)


def _list_of(inner: Check, filled: bool = False) -> Check:
    def check(value: Any, where: str) -> list[str]:
        if not isinstance(value, list):
            return [f"{where} is {value!r}, not a list"]
        if filled and not value:
            return [f"{where} is empty"]
        return [error for number, item in enumerate(value) for error in inner(item, f"{where}[{number}]")]

    return check


def _release(value: Any, where: str) -> list[str]:
    right = isinstance(value, str) and parse_release(value) is not None
    return [] if right else [f"{where} is {value!r}, not a release such as v0.23.0"]


def _path(value: Any, where: str) -> list[str]:
    right = isinstance(value, str) and value.startswith(("/", DRIVER + "/")) and ".." not in value.split("/")
    return [] if right else [f"{where} is {value!r}, not an absolute path or one below {DRIVER}"]


def _count(value: Any, where: str) -> list[str]:
    right = isinstance(value, int) and not isinstance(value, bool) and value >= 1
    return [] if right else [f"{where} is {value!r}, not a number of at least 1"]


def _flags(value: Any, where: str) -> list[str]:
    if not isinstance(value, dict):
        return [f"{where} is {value!r}, not a dictionary of flags"]
    return [f"{where} has {flag!r}, not a flag such as --dtype" for flag in value if not _FLAG.fullmatch(flag)]


def _record(required: dict[str, Check], optional: dict[str, Check]) -> Check:
    known = {**required, **optional}

    def check(value: Any, where: str) -> list[str]:
        if not isinstance(value, dict):
            return [f"{where} is {value!r}, not a dictionary"]
        errors = [f"{where} has no {key}" for key in required if key not in value]
        errors += [f'{where} has the unknown key "{key}"{nearest(key, known)}' for key in value if key not in known]
        return errors + [e for key in known if key in value for e in known[key](value[key], f"{where}.{key}")]

    return check


TEXT = _is(str, "text")
DEVICE = _record({"path": _path, "presence": _one_of("required", "if_present"), "origin": TEXT}, {})
MOUNT = _record(
    {
        "source": _path,
        "target": _path,
        "type": _one_of("file", "directory"),
        "presence": _one_of("required", "if_present"),
        "origin": TEXT,
    },
    {
        "image_os": _one_of(*IMAGE_SYSTEMS),  # only for that system
        "version": TEXT,  # only when the file's own version is this one
        "read_only": _is(bool, "true or false"),  # true unless said
        "replaces": _list_of(_path),  # targets of other mounts that this one holds
    },
)
# What changes when an instance has more than one node, or nodes of more than one card.
OVERLAY = _record(
    {"origin": TEXT},
    {
        "network": _one_of("bridge", "host"),
        "shm_size": _match(_SIZE, "a size such as 1g"),
        "devices": _list_of(DEVICE),
        "mounts": _list_of(MOUNT),
        "serve_args": _flags,
    },
)
IMAGE = _record(
    {
        "suffix": _or_null(_match(_SUFFIX, "a suffix without the leading dash")),
        "system_suffixes": _record(
            {system: _or_null(_match(_SUFFIX, "a suffix without the leading dash")) for system in IMAGE_SYSTEMS}, {}
        ),
        "follows_host_system": _is(bool, "true or false"),  # host libraries are mounted, so both must be the same
        "releases": _list_of(_record({"first": _release}, {"last": _or_null(_release)}), filled=True),
        "known_to": _release,  # the newest release that this data was checked with
        "origin": TEXT,
    },
    {"known_bad": _list_of(_record({"release": _release, "reason": TEXT, "origin": TEXT}, {}))},
)
SCHEMA = _record(
    {
        "title": TEXT,
        "origins": _is(dict, "a dictionary of documents by short name"),
        "architectures": _list_of(_one_of(*ARCHITECTURES), filled=True),
        "image": IMAGE,
        "default_npus": _count,
        "nodes_per_card": _count,
        "devices": _list_of(DEVICE),
        "mounts": _list_of(MOUNT),
        "network": _one_of("bridge", "host"),
        "shm_size": _match(_SIZE, "a size such as 1g"),
        "privileged": _is(bool, "true or false"),
        "container_origin": TEXT,
        "serve_args": _flags,
        "serve_args_origin": TEXT,
    },
    {
        "min_npus": _count,
        "several_npus": OVERLAY,
        "several_cards": OVERLAY,
        "refuses": _list_of(_record({"flag": _match(_FLAG, "a flag"), "reason": TEXT, "origin": TEXT},
                                    {"values": _list_of(TEXT, filled=True)})),
        "notices": _list_of(_record({"chip": TEXT, "message": TEXT, "remedy": TEXT, "origin": TEXT}, {})),
    },
)  # fmt: skip


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
        parts = [profile, *(profile.get(key) for key in ("several_npus", "several_cards"))] if _is_map(profile) else []
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
