# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a hardware profile holds: SCHEMA checks one, and says what is wrong with it and where.

The meaning of a key stands beside it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from .plain import listed, nearest
from .versions import parse_release

DRIVER = "{driver}"
ARCHITECTURES = ("x86_64", "aarch64")
IMAGE_SYSTEMS = ("ubuntu", "openeuler")
_SIZE = re.compile(r"\d+[bkmg]", re.IGNORECASE)
_SUFFIX = re.compile(r"[a-z0-9][a-z0-9_.-]*")
_DEVICE_TYPE = re.compile(r"[A-Za-z0-9_]+")
_FLAG = re.compile(r"--[a-z][a-z0-9-]*")
_CODE = re.compile(r"[a-z][a-z0-9_]*")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

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


def _scalar(value: Any, where: str) -> list[str]:
    right = isinstance(value, (str, bool, int, float))
    return [] if right else [f"{where} is {value!r}, not text, a number, true or false"]


def _variables(value: Any, where: str) -> list[str]:
    if not isinstance(value, dict):
        return [f"{where} is {value!r}, not a dictionary of variables"]
    errors = [f"{where} has {name!r}, not a variable's name" for name in value if not _VARIABLE.fullmatch(str(name))]
    return errors + [e for name, item in value.items() for e in TEXT(item, f"{where}.{name}")]


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
        "filled": _is(bool, "true or false"),  # an empty one is as good as missing
        # The code to report where it is missing: a required one's problem, or a warning instead of silence.
        "code": _match(_CODE, "a code"),
        "version_code": _match(_CODE, "a code"),  # the same for another version
        "without": TEXT,  # what goes wrong without it
        "remedy": TEXT,
    },
)
# What changes where an overlay applies; see SCHEMA. A key's own origin goes before the overlay's.
OVERLAY = _record(
    {"origin": TEXT},
    {
        "shm_size_origin": TEXT,
        "environment_origin": TEXT,
        "network": _one_of("bridge", "host"),
        "shm_size": _match(_SIZE, "a size such as 1g"),
        "devices": _list_of(DEVICE),
        "mounts": _list_of(MOUNT),
        "serve_args": _flags,
        "max_capture_sizes": _count,  # of a compilation config
        "environment": _variables,  # open variables; the operator's own of the same name win
    },
)
# What the hardware does not take among an instance's extra arguments.
REFUSAL = _record(
    {"flag": _match(_FLAG, "a flag"), "reason": TEXT, "origin": TEXT},
    {
        "values": _list_of(_scalar, filled=True),  # only these values; every value unless said
        "except": _list_of(_scalar, filled=True),  # every value but these
        "json_path": _list_of(TEXT, filled=True),  # the keys from the top of the flag's JSON value to the one meant
        # refused, so a problem, unless said; ignored, or untested by those who wrote the software: a warning
        "effect": _one_of("refused", "ignored", "untested"),
        "remedy": TEXT,  # what to do; to leave it out unless said
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
    {
        "device_type": _match(_DEVICE_TYPE, "a device type such as A2"),  # what the build information of images says
        "dockerfiles": _record({system: TEXT for system in IMAGE_SYSTEMS}, {}),  # in the sources of vLLM Ascend
    },
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
        "host_memory": _is(bool, "true or false"),  # the chips use the host's memory
        "security_options": _list_of(TEXT),  # --security-opt of the container
        "several_npus": OVERLAY,  # more than one node
        "several_cards": OVERLAY,  # nodes of more than one card
        "several_ranks": OVERLAY,  # tensor, pipeline or data parallelism
        "over_roce": OVERLAY,  # the NPUs' own network is used: KV transfer, or HCCL over RoCE
        "refuses": _list_of(REFUSAL),
        "notices": _list_of(_record({"chip": TEXT, "message": TEXT, "remedy": TEXT, "origin": TEXT}, {})),
    },
)
