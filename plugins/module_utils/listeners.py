# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which TCP ports are listened on, by which process, in which container, read from /proc."""

from __future__ import annotations

import binascii
import ipaddress
import os
import re
import struct
import time
from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Set, Tuple

from .documents import LAST_PORT, decimal, integer, mapping, text
from .sysroot import Sysroot

TABLES = ("/proc/net/tcp", "/proc/net/tcp6")
LISTEN = "0A"
# Seconds for finding the processes: on a host with very many of them, the rest of the pids stays unknown.
SCAN_S = 5.0
ANCESTORS = 64
_SOCKET = re.compile(r"socket:\[(\d+)\]\Z")


class Socket(NamedTuple):
    """A listening socket: its port, the address it is bound to, and the inode that a process's descriptor names."""

    port: int
    address: str
    inode: int


def parse_tcp_table(text: str) -> List[Socket]:
    """The listening sockets in the text of /proc/net/tcp or tcp6 (kernel documentation, networking/proc_net_tcp)."""
    found = []
    for line in text.splitlines():
        words = line.split()
        if len(words) < 10 or words[3] != LISTEN:
            continue
        try:
            host, digits = words[1].split(":")
            port, address, inode = int(digits, 16), _address(host), decimal(words[9])
        except (ValueError, struct.error):
            continue
        if inode is not None and 0 < port <= LAST_PORT:
            found.append(Socket(port, address, inode))
    return found


def _address(host: str) -> str:
    """The address in its usual form; the kernel prints 32-bit words as they lie in memory of a little-endian host."""
    try:
        raw = binascii.unhexlify(host)
    except binascii.Error as failure:
        raise ValueError(str(failure)) from failure
    words = struct.unpack("<{0}I".format(len(raw) // 4), raw)
    address = ipaddress.ip_address(struct.pack(">{0}I".format(len(words)), *words))
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped if mapped is not None else address)


def find_pids(inodes: Iterable[int], proc: str = "/proc", seconds: float = SCAN_S) -> Dict[int, int]:
    """{inode: pid} of the processes that hold those sockets (of several, the lowest pid).

    It stops when all are found or after that many seconds; what it may not read, it skips. Processes of another
    network namespace, as those of most containers, hold none of these sockets and cost one look each.
    """
    wanted = {"socket:[{0}]".format(inode): inode for inode in inodes}
    found: Dict[int, int] = {}
    deadline = time.monotonic() + seconds
    network = _link(proc + "/self/ns/net") if wanted else None
    for pid in _pids(proc):
        if not wanted or time.monotonic() > deadline:
            break
        other = _link("{0}/{1}/ns/net".format(proc, pid)) if network else None
        if other not in (None, network):
            continue
        folder = "{0}/{1}/fd".format(proc, pid)
        try:
            descriptors = os.listdir(folder)
        except OSError:
            continue
        for descriptor in descriptors:
            inode = wanted.pop(_link("{0}/{1}".format(folder, descriptor)) or "", None)
            if inode is not None:
                found[inode] = pid
    return found


def _link(path: str) -> Optional[str]:
    try:
        return os.readlink(path)
    except OSError:
        return None


def _pids(proc: str) -> List[int]:
    try:
        return sorted(int(name) for name in os.listdir(proc) if name.isdigit())
    except OSError:
        return []


def process_name(pid: int, proc: str = "/proc") -> Optional[str]:
    """The name of a process (comm), None when it is gone."""
    return _read("{0}/{1}/comm".format(proc, pid))


def parent_pid(pid: int, proc: str = "/proc") -> Optional[int]:
    """The parent of a process, None when it is gone."""
    text = _read("{0}/{1}/stat".format(proc, pid))
    try:
        # The name, in parentheses, may hold blanks and parentheses itself.
        return int(text.rsplit(")", 1)[1].split()[1]) if text else None
    except (ValueError, IndexError):
        return None


def _read(path: str) -> Optional[str]:
    try:
        with open(path, "rb") as handle:
            return handle.read().decode("utf-8", "replace").rstrip("\n")
    except OSError:
        return None


def owning_container(pid: int, containers: Dict[int, str], proc: str = "/proc") -> Optional[str]:
    """The container among {State.Pid: id} in whose process tree pid is, None when in none."""
    current: Optional[int] = pid
    for _step in range(ANCESTORS):
        if not current:
            return None
        if current in containers:
            return containers[current]
        current = parent_pid(current, proc)
    return None


def read_listeners(
    sysroot: Sysroot,
    ports: Optional[Iterable[int]] = None,
    containers: Optional[Dict[int, str]] = None,
    published: Iterable[Tuple[int, str, str]] = (),
    named: Optional[Iterable[int]] = None,
) -> List[Dict[str, Any]]:
    """[{port, address, pid, process, container}], by port, of the sockets that listen on ports (None: on any).

    named: the ports whose processes are looked for (None: all), since that search is what costs.
    containers: {State.Pid: id} of the running ones. published: (host port, address, container id) that the engine
    forwards: they give docker-proxy's sockets their container, and stand for themselves where an engine without
    docker-proxy forwards by firewall rules alone (pid and process are null then). In a replay pid and process are null
    unless they were recorded.
    """
    wanted = None if ports is None else set(ports)
    sockets: List[Socket] = []
    for table in TABLES:
        sockets += parse_tcp_table(sysroot.read_text(table) or "")
    sockets = [one for one in sockets if wanted is None or one.port in wanted]
    names = None if named is None else set(named)
    inodes = [one.inode for one in sockets if one.inode and (names is None or one.port in names)]
    holders = mapping(sysroot.live("holders of sockets", lambda: _holders(inodes, containers or {})))
    forwards = [one for one in published if wanted is None or one[0] in wanted]
    found: List[Dict[str, Any]] = []
    for one in sockets:
        holder = mapping(holders.get(str(one.inode)))
        pid, name = integer(holder.get("pid")), text(holder.get("process"))
        container = text(holder.get("container"))
        if container is None and name in (None, "docker-proxy"):
            container = _forwarded(one, forwards)
        entry = {"port": one.port, "address": one.address, "pid": pid, "process": name, "container": container}
        if entry not in found:
            found.append(entry)
    listened: Set[Tuple[int, str]] = {(one.port, one.address) for one in sockets}
    for port, address, container in forwards:
        if (port, address) not in listened:
            found.append({"port": port, "address": address, "pid": None, "process": None, "container": container})
    return sorted(found, key=lambda entry: (entry["port"], entry["address"], entry["pid"] or 0))


def _holders(inodes: List[int], containers: Dict[int, str]) -> Dict[str, Dict[str, Any]]:
    """{inode: {pid, process, container}} of the sockets whose process was found."""
    return {
        str(inode): {"pid": pid, "process": process_name(pid), "container": owning_container(pid, containers)}
        for inode, pid in find_pids(inodes).items()
    }


def _forwarded(one: Socket, forwards: List[Tuple[int, str, str]]) -> Optional[str]:
    """The container that publishes exactly this port and address."""
    return next((container for port, address, container in forwards if (port, address) == one[:2]), None)
