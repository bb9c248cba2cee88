"""The operating system of a host, from files; what a replay did not record is null."""

from __future__ import annotations

import json
import os
import pathlib
import sys

import pytest
from ansible_collections.vllm_ascend.fleet.plugins.module_utils import host_os
from ansible_collections.vllm_ascend.fleet.plugins.module_utils.sysroot import Sysroot
from ansible_collections.vllm_ascend.fleet.tests.unit.support.host_trees import HostTree

DATA = pathlib.Path(__file__).resolve().parents[2] / "data" / "host-files"
RELEASES = json.loads((DATA / "index.json").read_text(encoding="utf-8"))["os_release"]


def read(tree):
    return host_os.read_host(Sysroot(str(tree.root)))


@pytest.mark.parametrize("name", sorted(RELEASES))
def test_os_release_samples(tmp_path, name):
    expected = RELEASES[name]
    host = read(HostTree(tmp_path).put("etc/os-release", (DATA / name).read_text(encoding="utf-8")))
    assert (host["os_id"], host["os_version"]) == (expected["id"], expected["version"])
    assert host["image_os"] == expected["image_os"]


@pytest.mark.parametrize(
    ("release", "image_os"),
    [
        ("ID=ubuntu\n", "ubuntu"),
        ("ID=debian\n", "ubuntu"),
        ('ID=linuxmint\nID_LIKE="ubuntu debian"\n', "ubuntu"),
        ('ID=kylin\nNAME="Kylin"\nID_LIKE=debian\n', "ubuntu"),
        ('ID=uos\nNAME="UnionTech OS Desktop 20 Pro"\n', "ubuntu"),
        ('ID=kylin\nNAME="Kylin"\n', None),
        ('ID="ctyunos"\nNAME="CTyunOS"\n', "openeuler"),
        ('ID="hce"\nNAME="Huawei Cloud EulerOS"\n', "openeuler"),
        ('ID="rocky"\nID_LIKE="rhel centos fedora"\n', "openeuler"),
        ('ID="other"\nID_LIKE="openEuler"\n', "openeuler"),
        ("ID=arch\n", None),
        ("", None),
    ],
)
def test_image_os(release, image_os):
    assert host_os.image_os(host_os.parse_os_release(release)) == image_os


def test_os_release_quoting():
    values = host_os.parse_os_release('# NAME=no\nNAME="A \\"b\\" \\$c"\nID=\'x y\'\n\nBROKEN\nEMPTY=\n')
    assert values == {"NAME": 'A "b" $c', "ID": "x y", "EMPTY": ""}


ROOT = "overlay / overlay rw,relatime,lowerdir={0}/1/fs 0 0\nproc /proc proc rw 0 0\n"


@pytest.mark.parametrize(
    ("files", "container"),
    [
        ({"proc/1/cgroup": "0::/init.scope\n"}, False),
        ({"proc/1/cgroup": "12:pids:/docker/ab\n"}, True),
        ({"proc/1/cgroup": "0::/\n"}, None),
        ({"proc/1/cgroup": "0::/\n", "proc/1/mounts": ROOT.format("/var/lib/containerd/io.containerd")}, True),
        ({"proc/1/cgroup": "0::/\n", "proc/1/mounts": ROOT.format("/var/lib/docker/overlay2")}, True),
        (
            {"proc/1/cgroup": "0::/\n", "proc/1/mounts": "/dev/sda2 / ext4 rw 0 0\n/x /var/lib/docker ext4 rw 0 0\n"},
            None,
        ),
        ({"proc/1/cgroup": "0::/init.scope\n", "proc/1/mounts": "/dev/sda2 / ext4 rw 0 0\n"}, False),
        ({".dockerenv": ""}, True),
        ({"run/.containerenv": ""}, True),
        ({}, None),
    ],
)
def test_a_host_that_is_a_container(tmp_path, files, container):
    """A container with a cgroup namespace of its own shows "/" alone, which is no proof that there is none."""
    tree = HostTree(tmp_path)
    for path, text in files.items():
        tree.put(path, text)
    assert read(tree)["container"] is container


def test_second_place_of_os_release(tmp_path):
    tree = HostTree(tmp_path).remove("etc/os-release").put("usr/lib/os-release", "ID=ubuntu\n")
    assert read(tree)["os_id"] == "ubuntu"


def test_replay_gives_only_what_is_recorded(tmp_path):
    assert host_os.read_host(Sysroot(str(tmp_path))) == {
        "os_id": None, "os_version": None, "os_like": [], "image_os": None, "architecture": None, "page_size": None,
        "kernel": None, "virtualization": None, "container": None, "python": None, "uptime_s": None, "selinux": None,
    }  # fmt: skip


def test_replay_reads_its_own_files(tmp_path):
    tree = HostTree(tmp_path, architecture="aarch64").record(["getconf", "PAGESIZE"], "65536\n")
    tree.put("sys/fs/selinux/enforce", "1").put("proc/1/cgroup", "0::/init.scope\n").put("proc/uptime", "12.9 5.0\n")
    host = read(tree)
    assert (host["architecture"], host["page_size"], host["uptime_s"]) == ("aarch64", 65536, 12)
    assert (host["selinux"], host["container"]) == ("enforcing", False)
    assert host["kernel"] == "5.10.0-216.0.0.115.oe2203sp4.aarch64"


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"sys/class/dmi/id/sys_vendor": "Huawei\n", "sys/class/dmi/id/product_name": "Atlas 800I A2\n"}, "none"),
        ({"sys/class/dmi/id/sys_vendor": "QEMU\n", "sys/class/dmi/id/product_name": "KVM Virtual Machine\n"}, "kvm"),
        ({"sys/class/dmi/id/sys_vendor": "OpenStack Foundation\n"}, "kvm"),
        ({"sys/class/dmi/id/product_name": "VMware7,1\n"}, "vmware"),
        ({"sys/hypervisor/type": "xen\n"}, "xen"),
        ({"proc/device-tree/hypervisor/compatible": "linux,kvm\0"}, "kvm"),
        ({"proc/cpuinfo": "flags\t\t: fpu hypervisor sse\n"}, "other"),
        ({"proc/cpuinfo": "flags\t\t: fpu sse\n"}, "none"),
        ({}, None),
    ],
)
def test_virtualization(tmp_path, files, expected):
    tree = HostTree(tmp_path)
    for path, text in files.items():
        tree.put(path, text)
    assert read(tree)["virtualization"] == expected


@pytest.mark.parametrize(
    ("path", "text", "expected"),
    [
        (".dockerenv", "", True),
        ("run/.containerenv", "", True),
        ("proc/1/cgroup", "0::/kubepods/besteffort/pod1\n", True),
        ("proc/1/cgroup", "0::/init.scope\n", False),
    ],
)
def test_container(tmp_path, path, text, expected):
    assert read(HostTree(tmp_path).put(path, text))["container"] is expected


def test_live_host():
    host = host_os.read_host(Sysroot("/"))
    assert (host["architecture"], host["python"]) == (os.uname().machine, sys.executable)
    assert host["page_size"] == os.sysconf("SC_PAGE_SIZE")
    assert host["uptime_s"] > 0
    assert host["container"] in (True, False)
