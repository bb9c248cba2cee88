# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Why npu-smi failed, in words that say what to do. A failure is never "no NPUs"."""

from __future__ import annotations

import re
from typing import Dict, NamedTuple, Optional, Tuple


class SmiError(NamedTuple):
    """A classified failure. code is the DCMI code (negative), null when there is none; text is what npu-smi printed."""

    code: Optional[int]
    meaning: str
    remedy: str
    text: str


_REPORT = "Run `npu-smi info` as root on the host; if it fails there too, restart the host or reinstall the driver."
_STOP = "Stop what holds the device (a container with the same /dev/davinciN mapped, or a process on the host)."
# DCMI codes: hicann/driver dcmi_interface_api.h and return-codes.md; meanings of -8005 and -8020 by the reports
# vllm-ascend issues 2698 and 632.
_CODES: Dict[int, Tuple[str, str]] = {
    -8001: ("a parameter is invalid", _REPORT),
    -8002: ("the operation is not permitted to this user", "Run as root or as a user of the driver's group."),
    -8003: ("a memory operation failed", _REPORT),
    -8004: ("a call of the secure C library failed", _REPORT),
    -8005: (
        "the driver could not be initialised: it is not loaded, the user may not use it, a firmware upgrade waits "
        "for a restart, or another container holds the device",
        "Check `lsmod | grep drv_`, run as root, restart the host after a driver or firmware upgrade, and stop "
        "containers that hold the device.",
    ),
    -8006: ("the device did not answer in time", _REPORT),
    -8007: ("the device id is invalid", _REPORT),
    -8008: ("the device does not exist", "Check /dev/davinci* and `dmesg`: the driver did not bring the chip up."),
    -8009: ("a call into the kernel driver failed", _REPORT),
    -8010: ("sending a message to the device failed", _REPORT),
    -8011: ("receiving a message from the device failed", _REPORT),
    -8012: ("the device is not ready", "Wait until the driver has brought the chips up, then run again."),
    -8013: ("it is not supported in a container", "Run it on the host."),
    -8014: ("a file operation failed", _REPORT),
    -8015: ("the reset of a chip failed", _REPORT),
    -8016: ("the operation was aborted", _REPORT),
    -8017: ("the device is being upgraded", "Wait until the firmware upgrade has ended, restart the host, run again."),
    -8020: ("the device is used by somebody else", _STOP),
    -8022: ("the partition is not right", _REPORT),
    -8023: ("configuration information is missing", _REPORT),
    -8255: ("this chip does not support it", "Use an npu-smi of the same version as the driver."),
}
# An exit status keeps the low eight bits of a code: 187 was reported for -8005.
_BY_STATUS = {code & 0xFF: code for code in sorted(_CODES, reverse=True)}
_CODE = re.compile(r"(?:ret|code|error)\D{0,6}(-8\d{3})")
_DIRECTORY = re.compile(r"is a directory", re.I)
_COMPLAINT = re.compile(r"^\s*\[WARNING\]\s*(The driver package.*?)\s*$", re.M)
_LIBRARY = re.compile(r"error while loading shared libraries: (\S+?):")


def classify(rc: Optional[int], text: str) -> Optional[SmiError]:
    """Say why npu-smi failed, from its exit status (null: it did not start) and all that it printed.

    None when it did not fail: status 0 and some output that is not one of its complaints.
    """
    shown = " / ".join(line.strip() for line in text.splitlines() if line.strip())[:300]
    library = _LIBRARY.search(text)
    if library:
        return SmiError(
            None,
            "the library {0} was not found".format(library.group(1)),
            "Check that driver/lib64/common, driver/lib64/driver and driver/lib64 below the driver's folder are "
            "complete and in the loader's path (ldconfig); reinstall the driver otherwise.",
            shown,
        )
    found = _CODE.search(text)
    if found:
        return _by_code(int(found.group(1)), shown)
    if "There is no NPU card" in text:
        return SmiError(
            None,
            "the driver sees no NPU card",
            "Check that the kernel driver is loaded (`lsmod | grep drv_`) and look at `dmesg`; restart the host.",
            shown,
        )
    if rc == 0:
        if shown:
            return None
        return SmiError(None, "it printed nothing", _REPORT, shown)
    if _DIRECTORY.search(text) or "No such file or directory" in text or "command not found" in text or rc == 127:
        return SmiError(
            None, "the program could not be started", "Reinstall the driver, which brings npu-smi with it.", shown
        )
    if rc in _BY_STATUS:
        return _by_code(_BY_STATUS[rc], shown)
    if rc is None:
        return SmiError(
            None,
            "the program could not be started",
            "Check that the file is an executable for this machine; reinstall the driver otherwise.",
            shown,
        )
    return SmiError(None, "it ended with exit status {0}".format(rc), _REPORT, shown)


def complaint(text: str) -> Optional[str]:
    """The warning about the driver package that `npu-smi info` prints below its table (npu_info_print.c), else None."""
    match = _COMPLAINT.search(text)
    return match.group(1)[:300] if match else None


def _by_code(code: int, text: str) -> SmiError:
    meaning, remedy = _CODES.get(code, ("an error that is not known here", _REPORT))
    return SmiError(code, meaning, remedy, text)
