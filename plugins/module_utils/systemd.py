# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What systemd says about itself and about the units of the instances: two calls of systemctl."""

from __future__ import annotations

import re
from typing import Any, Dict, List, NamedTuple, Optional

from .documents import decimal
from .sysroot import Sysroot

TIMEOUT_S = 20.0
VERSION_ARGV = ["systemctl", "--version"]
# A recorded host holds the call with exactly these properties.
PROPERTIES = (
    "Id",
    "LoadState",
    "ActiveState",
    "SubState",
    "UnitFileState",
    "FragmentPath",
    "NRestarts",
    "Result",
    "MainPID",
)


class Unit(NamedTuple):
    """A unit's state in systemd's own words; None is what this systemd does not say.

    restarts counts the automatic ones since it was last started by hand; main_pid is None when nothing runs.
    """

    name: str
    load_state: Optional[str] = None
    active_state: Optional[str] = None
    sub_state: Optional[str] = None
    unit_file_state: Optional[str] = None
    fragment_path: Optional[str] = None
    restarts: Optional[int] = None
    result: Optional[str] = None
    main_pid: Optional[int] = None


def parse_version(text: str) -> Optional[int]:
    """The version in what `systemctl --version` prints ("systemd 252 (252.39-1~deb12u1)"), None when there is none."""
    match = re.match(r"systemd ([0-9]{1,9})\b", text)
    return int(match.group(1)) if match else None


def show_argv(units: List[str]) -> List[str]:
    """The one call that asks for the state of those units; a unit that does not exist is no error there."""
    return ["systemctl", "show", "--no-pager", "--property=" + ",".join(PROPERTIES)] + list(units)


def parse_show(text: str) -> Dict[str, Unit]:
    """{name: Unit} of what `systemctl show` prints: Property=value lines, an empty line between two units."""
    units = {}
    for block in re.split(r"\n[ \t]*\n", text.replace("\r\n", "\n").strip()):
        values = dict(line.split("=", 1) for line in block.split("\n") if "=" in line)
        name = values.get("Id")
        if not name:
            continue
        units[name] = Unit(
            name,
            load_state=values.get("LoadState") or None,
            active_state=values.get("ActiveState") or None,
            sub_state=values.get("SubState") or None,
            unit_file_state=values.get("UnitFileState") or None,
            fragment_path=values.get("FragmentPath") or None,
            restarts=decimal(values.get("NRestarts")),
            result=values.get("Result") or None,
            main_pid=decimal(values.get("MainPID")) or None,
        )
    return units


def read_version(sysroot: Sysroot, timeout: float = TIMEOUT_S) -> Optional[Dict[str, Any]]:
    """{version: 252}, or None when the host has no systemd or it did not answer in time."""
    result = sysroot.run(VERSION_ARGV, timeout)
    version = parse_version(result.stdout) if result is not None and result.ok else None
    return None if version is None else {"version": version}


def read_units(sysroot: Sysroot, units: List[str], timeout: float = TIMEOUT_S) -> Dict[str, Unit]:
    """{name: Unit} of those units; no call when there are none, and nothing when systemctl fails."""
    if not units:
        return {}
    result = sysroot.run(show_argv(units), timeout)
    return parse_show(result.stdout) if result is not None and result.ok else {}
