# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the journal of a host holds of its instances, with their secrets masked, for a diagnosis elsewhere."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Sequence

from . import instance_state, log_lines
from .commands import CommandResult
from .sysroot import Sysroot

# The kernel says what it killed for want of memory, and what the NPU driver reported.
KERNEL_LINES = 400
# A service that prints without end must not fill the controller: of more text than this the beginning is cut.
TEXT_LIMIT = 2 << 20
# A shorter value ("1", "yes") is in every log, and masking it would hide what happened.
SHORTEST_SECRET = 4


def read_logs(
    sysroot: Sysroot,
    names: Optional[Sequence[str]] = None,
    lines: int = 4000,
    since: Optional[float] = None,
    timeout: float = 20.0,
) -> Dict[str, Any]:
    """{instances: [{name, unit, log, error}], kernel: text or null} of those instances (None: all that the host has).

    lines: the last ones of each unit; since: not before that time (seconds of the epoch); timeout: seconds for each
    call of journalctl. A log that could not be read is null, and error says why.
    """
    known = instance_state.instance_names(sysroot)
    return {
        "instances": [_instance(sysroot, name, lines, since, timeout) for name in (known if names is None else names)],
        "kernel": _text(_journal(sysroot, ["--dmesg"], KERNEL_LINES, since, timeout), []),
    }


def _instance(sysroot: Sysroot, name: str, lines: int, since: Optional[float], timeout: float) -> Dict[str, Any]:
    unit = instance_state.unit_name(name)
    result = _journal(sysroot, ["--unit", unit], lines, since, timeout)
    secrets = list((instance_state.read_env(sysroot, name) or {}).values())
    return {"name": name, "unit": unit, "log": _text(result, secrets), "error": _error(result, timeout)}


def _journal(
    sysroot: Sysroot, which: List[str], lines: int, since: Optional[float], timeout: float
) -> Optional[CommandResult]:
    argv = ["journalctl", "--no-pager", "--output", "short-iso", "--lines", str(lines)] + which
    if since is not None:
        argv += ["--since", "@{0}".format(int(since))]
    return sysroot.run(argv, timeout)


def _text(result: Optional[CommandResult], secrets: List[str]) -> Optional[str]:
    if result is None or not result.ok:
        return None
    return log_lines.mask(result.stdout[-TEXT_LIMIT:], [value for value in secrets if len(value) >= SHORTEST_SECRET])


def _error(result: Optional[CommandResult], timeout: float) -> Optional[str]:
    if result is None:
        return "journalctl was not recorded"
    if result.timed_out:
        return "journalctl gave no answer within {0:g} s".format(timeout)
    if result.missing:
        return "journalctl is missing"
    return None if result.ok else (result.text or result.error or "journalctl ended with {0}".format(result.rc))
