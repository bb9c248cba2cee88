# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The operating system of a host, read from files: no program is run."""

from __future__ import annotations

import os
import sys
from typing import Any, Dict, List, Optional

from . import documents
from .documents import decimal
from .sysroot import Sysroot

OS_RELEASE = ("/etc/os-release", "/usr/lib/os-release")
DMI = "/sys/class/dmi/id/"

# Which image system suits a host system: the libraries that the 200I Pro mounts from its host lie and link as in one or
# the other. Only words of os-release decide; Kylin and UOS exist in both kinds, told apart by their like and name.
DEBIAN_IDS = ("debian", "ubuntu")
OPENEULER_IDS = (
    "openeuler", "euleros", "hce", "anolis", "bclinux", "ctyunos", "rhel", "centos", "fedora", "rocky", "almalinux",
)  # fmt: skip
BOTH_KINDS_IDS = ("kylin", "uos")

# Words of the DMI vendor and product → the hypervisor, by systemd-detect-virt's names.
_HYPERVISORS = (
    ("kvm", "kvm"),
    ("qemu", "qemu"),
    ("vmware", "vmware"),
    ("virtualbox", "oracle"),
    ("xen", "xen"),
    ("bochs", "bochs"),
    ("openstack", "kvm"),
    ("amazon ec2", "amazon"),
    ("alibaba cloud ecs", "kvm"),
    ("microsoft corporation virtual machine", "microsoft"),
)
_CONTAINER_WORDS = ("docker", "kubepods", "libpod", "lxc", "containerd")
# Where the root of a container lies on its host: as words of its mount (hicann/driver dcmi_is_in_docker_by_cmd).
_ROOT_WORDS = ("docker", "containers", "containerd", "isulad", "kubelet")
_CPUINFO_BYTES = 8192


def parse_os_release(text: Optional[str]) -> Dict[str, str]:
    """KEY=value lines of os-release(5), quotes and their backslashes removed."""
    values: Dict[str, str] = {}
    for raw in (text or "").splitlines():
        line = raw.strip()
        key, equals, value = line.partition("=")
        if not equals or line.startswith("#"):
            continue
        if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'":
            value = value[1:-1]
        for escaped in ('\\"', "\\$", "\\`", "\\\\"):
            value = value.replace(escaped, escaped[1])
        values[key.strip()] = value
    return values


def image_os(release: Dict[str, str]) -> Optional[str]:
    """ubuntu or openeuler for an os-release, None for a system that is neither as far as is known."""
    own = release.get("ID", "").lower()
    like = release.get("ID_LIKE", "").lower().split()
    name = (release.get("NAME", "") + " " + release.get("PRETTY_NAME", "")).lower()
    if any(word in DEBIAN_IDS for word in [own] + like):
        return "ubuntu"
    if any(word in OPENEULER_IDS for word in [own] + like):
        return "openeuler"
    if own in BOTH_KINDS_IDS:
        if "server" in name:
            return "openeuler"
        if "desktop" in name:
            return "ubuntu"
    return None


def read_host(sysroot: Sysroot) -> Dict[str, Any]:
    """The record `host` of the facts. What a replay did not record is null."""
    release = parse_os_release(next((text for text in (sysroot.read_text(p) for p in OS_RELEASE) if text), None))
    return {
        "os_id": release.get("ID") or None,
        "os_version": release.get("VERSION_ID") or None,
        "os_like": release.get("ID_LIKE", "").split(),
        "image_os": image_os(release),
        "architecture": architecture(sysroot),
        "page_size": page_size(sysroot),
        "kernel": _line(sysroot, "/proc/sys/kernel/osrelease"),
        "virtualization": virtualization(sysroot),
        "container": in_container(sysroot),
        "python": documents.text(sysroot.live("python", lambda: sys.executable)),
        "uptime_s": uptime(sysroot),
        "selinux": selinux(sysroot),
    }


def architecture(sysroot: Sysroot) -> Optional[str]:
    """What the kernel says ("aarch64"): its file (Linux 6.1 and later), else on a live host what uname says."""
    named = _line(sysroot, "/proc/sys/kernel/arch")
    return named or documents.text(sysroot.live("machine", lambda: os.uname().machine))


def page_size(sysroot: Sysroot) -> Optional[int]:
    """Bytes of a memory page (64 KiB on some aarch64 hosts); a replay may also have a recorded `getconf PAGESIZE`."""
    known = documents.integer(sysroot.live("page size", lambda: os.sysconf("SC_PAGE_SIZE")))
    if known is not None or not sysroot.replay:
        return known
    record = sysroot.run(["getconf", "PAGESIZE"], 5)
    return decimal(record.stdout.strip()) if record else None


def uptime(sysroot: Sysroot) -> Optional[int]:
    """Seconds since boot."""
    return decimal((_line(sysroot, "/proc/uptime") or "").split(" ")[0].partition(".")[0])


def selinux(sysroot: Sysroot) -> Optional[str]:
    """enforcing, permissive or disabled (on a live host without its file system); null where a replay has no file."""
    text = _line(sysroot, "/sys/fs/selinux/enforce")
    if text in ("0", "1"):
        return "enforcing" if text == "1" else "permissive"
    return None if text else documents.text(sysroot.live("selinux", lambda: "disabled"))


def virtualization(sysroot: Sysroot) -> Optional[str]:
    """The hypervisor that the host runs under, "none" on a real machine, null when nothing tells."""
    named = _line(sysroot, "/sys/hypervisor/type")
    if named:
        return named.lower()
    words = [_line(sysroot, DMI + name) for name in ("sys_vendor", "product_name")]
    dmi = " ".join(word for word in words if word).lower()
    found = next((hypervisor for word, hypervisor in _HYPERVISORS if word in dmi), None)
    if found:
        return found
    tree = (sysroot.read_text("/proc/device-tree/hypervisor/compatible", limit=256) or "").lower()
    if tree:
        return "kvm" if "kvm" in tree else "xen" if "xen" in tree else "other"
    # x86 processors tell that a hypervisor is there, in the first of many equal blocks.
    flags: List[str] = []
    for line in (sysroot.read_text("/proc/cpuinfo", limit=_CPUINFO_BYTES) or "").splitlines():
        if line.startswith("flags"):
            flags = line.split()
            break
    if "hypervisor" in flags:
        return "other"
    return "none" if dmi or flags else None


def in_container(sysroot: Sysroot) -> Optional[bool]:
    """Whether "the host" is itself a container; null where a replay does not tell."""
    if any(sysroot.exists(path) for path in ("/.dockerenv", "/run/.containerenv", "/run/systemd/container")):
        return True
    groups = sysroot.read_text("/proc/1/cgroup", limit=4096)
    if groups is not None and any(word in groups for word in _CONTAINER_WORDS):
        return True
    mounts = (line.split(" ") for line in (sysroot.read_text("/proc/1/mounts", limit=65536) or "").splitlines())
    root = next((" ".join(words) for words in mounts if words[1:2] == ["/"]), "")
    if any(word in root for word in _ROOT_WORDS):
        return True
    if groups is None:
        return documents.boolean(sysroot.live("container", lambda: False))
    # "/" alone is what a container with a cgroup namespace of its own shows (kubernetes, docker on cgroup v2), and a
    # host whose first process is no systemd.
    return None if groups.strip() == "0::/" else False


def board_name(sysroot: Sysroot) -> Optional[str]:
    """The board's name by DMI ("Atlas 200I SoC A1"); machines without DMI have none."""
    return _line(sysroot, DMI + "board_name")


def _line(sysroot: Sysroot, path: str) -> Optional[str]:
    text = (sysroot.read_text(path, limit=4096) or "").strip("\0 \t\r\n")
    return text.splitlines()[0].strip() if text else None
