# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who uses which chip: the driver's own tables below /proc/uda, and the processes that npu-smi shows.

The driver's tables say it even of an idle container, need no npu-smi, and cost nothing (hicann/driver uda_proc_fs.c);
root alone may read them, and older drivers lack them. Privileged containers are in none of them.
"""

from __future__ import annotations

import re
from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Tuple

from .sysroot import Sysroot

NAMESPACE_NODES = "/proc/uda/namespace_node"
DEVICES = "/proc/uda/udevice"
# Mount namespaces below this number are containers that hold chips for themselves (hicann/driver UDA_NS_NUM).
FIRST_ADMIN_NAMESPACE = 128
# Device ids from here on are parts of a chip, /dev/vdavinciN (hicann/driver uda_pub_def.h UDA_MIA_UDEV_OFFSET).
FIRST_VIRTUAL_DEVICE = 100
_NAMESPACE = re.compile(r"^ns_id ([0-9]{1,18}) identify \S+ root_tgid ([0-9]{1,18}) dev_num [0-9]+\b")
_ROW = re.compile(r"^\s*[0-9]{1,9}\s+([0-9]{1,9})\s*$")
_DEVICE = re.compile(r"^udevid ([0-9]{1,9}) type\(([^)]*)\).* chip_type (\S+)\s*$")
_HOLDER = re.compile(r"^\s+has used by container, ns id ([0-9]{1,18})\s*$")
_SHARERS = re.compile(r"^\s+shared dev used by ns id:((?: [0-9]{1,18})+)\s*$")
_CONTAINER_ID = re.compile(r"(?<![0-9a-f])([0-9a-f]{64})(?![0-9a-f])")
# chip_type by hicann/driver uda_proc_fs_adapt.c: the generations of each; cloud_v2 is the silicon of A2 and A3 alike.
CHIP_TYPES: Dict[str, Tuple[str, ...]] = {
    "mini_v1": ("310",),
    "cloud_v1": ("910",),
    "mini_v2": ("310P",),
    "cloud_v2": ("910B", "910_93"),
    "mini_v3": ("310B",),
    "cloud_v4": ("950",),
    "cloud_v5": ("910_96",),
    "mini_v4": ("350",),
}


class Namespace(NamedTuple):
    """One mount namespace that the driver knows: its number, the process it began with, the N of its /dev/davinciN."""

    number: int
    pid: int
    devices: List[int]


class UdaDevice(NamedTuple):
    """One chip that the driver has: the N of its /dev/davinciN, its type, and the namespaces that hold or share it."""

    number: int
    chip_type: str
    namespaces: List[int]


def parse_namespaces(text: str) -> List[Namespace]:
    """/proc/uda/namespace_node: every namespace with devices; what is not understood is left out."""
    found: List[Namespace] = []
    current: Optional[Namespace] = None
    for line in text.splitlines():
        match, row = _NAMESPACE.match(line), _ROW.match(line)
        if match:
            current = Namespace(int(match.group(1)), int(match.group(2)), [])
            found.append(current)
        elif line.startswith("ns_id"):
            current = None
        elif row and current is not None:
            current.devices.append(int(row.group(1)))
    return found


def parse_devices(text: str) -> List[UdaDevice]:
    """/proc/uda/udevice: the chips of this host; parts of chips, agents and chips of other hosts are left out."""
    found: List[UdaDevice] = []
    current: Optional[UdaDevice] = None
    for line in text.splitlines():
        match, holder, sharers = _DEVICE.match(line), _HOLDER.match(line), _SHARERS.match(line)
        if match:
            words = match.group(2).split()
            own = words[:2] == ["davinci", "entity"] and "remote" not in words
            current = None
            if own and int(match.group(1)) < FIRST_VIRTUAL_DEVICE:
                current = UdaDevice(int(match.group(1)), match.group(3), [])
                found.append(current)
        elif line.startswith("udevid"):
            current = None
        elif current is not None and holder:
            current.namespaces.append(int(holder.group(1)))
        elif current is not None and sharers:
            current.namespaces.extend(int(word) for word in sharers.group(1).split())
    return found


def read_devices(sysroot: Sysroot) -> List[UdaDevice]:
    """The driver's own list of chips; empty where it is missing or may not be read."""
    return parse_devices(sysroot.read_text(DEVICES) or "")


def namespace_usage(sysroot: Sysroot, devices: Iterable[UdaDevice]) -> List[Dict[str, Any]]:
    """The chips that containers hold, also idle ones; a chip that is shared comes once for each of them."""
    namespaces = parse_namespaces(sysroot.read_text(NAMESPACE_NODES) or "")
    held = {n.number: n for n in namespaces if n.number < FIRST_ADMIN_NAMESPACE}
    usage = [
        _entry(number, _owner(sysroot, namespace.pid), namespace.pid, NAMESPACE_NODES)
        for namespace in held.values()
        for number in namespace.devices
    ]
    for device in devices:
        for number in device.namespaces:
            if number < FIRST_ADMIN_NAMESPACE and (number not in held or device.number not in held[number].devices):
                pid = held[number].pid if number in held else None
                owner = {"kind": "container", "name": None, "id": None} if pid is None else _owner(sysroot, pid)
                usage.append(_entry(device.number, owner, pid, DEVICES))
    return usage


def process_usage(sysroot: Sysroot, chips: Iterable[Dict[str, Any]]) -> List[Dict[str, Any]]:
    """The processes of npu-smi's table, by chip; device is null where the chip's node is not proven."""
    return [
        {
            "device": chip["device"],
            "owner": _owner(sysroot, process["pid"], process["name"]),
            "pid": process["pid"],
            "source": "npu-smi info: NPU {0} chip {1}".format(chip["npu_id"], chip["chip_id"]),
        }
        for chip in chips
        for process in chip["processes"] or []
    ]


def _entry(number: int, owner: Dict[str, Any], pid: Optional[int], source: str) -> Dict[str, Any]:
    return {"device": "/dev/davinci{0}".format(number), "owner": owner, "pid": pid, "source": source}


def _owner(sysroot: Sysroot, pid: int, name: Optional[str] = None) -> Dict[str, Any]:
    """The container of a process by its control group (name is not known then), else the process."""
    match = _CONTAINER_ID.search(sysroot.read_text("/proc/{0}/cgroup".format(pid)) or "")
    if match:
        return {"kind": "container", "name": None, "id": match.group(1)}
    name = name or (sysroot.read_text("/proc/{0}/comm".format(pid)) or "").strip()
    return {"kind": "process", "name": name or None, "id": pid}
