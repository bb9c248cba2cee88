"""Builds fake host trees: what a host shows of itself, as ordinary files below a folder, to be replayed as a sysroot.

Ordinary files below dev/ stand for device nodes, and recorded/commands.json holds what programs printed. family_host
makes a healthy host, HostTree is for cases of one's own; whole odd hosts are described in tests/gallery/hosts. It runs
on Python 3.7, like the host code that it serves.
"""

from __future__ import annotations

import json
import pathlib
import shutil
from collections.abc import Sequence
from typing import Any, NamedTuple

OS_RELEASE = {
    "ubuntu": 'NAME="Ubuntu"\nID=ubuntu\nID_LIKE=debian\nVERSION_ID="22.04"\nPRETTY_NAME="Ubuntu 22.04.5 LTS"\n',
    "openeuler": 'NAME="openEuler"\nID="openEuler"\nVERSION_ID="24.03"\nPRETTY_NAME="openEuler 24.03 (LTS-SP1)"\n',
}
INSTALL_INFO = (
    "UserName=HwHiAiUser\nUserGroup=HwHiAiUser\nDriver_Install_Type=full\nDriver_Install_Path_Param={path}\n"
    "Driver_Install_For_All=no\nDriver_Install_Status=complete\n"
)
# Of the driver and of npu-smi.
VERSION = "25.5.1"
CARD_NODES = ("davinci_manager", "devmm_svm", "hisi_hdc")
# PCI id, subsystem vendor and device of one function of each family.
PCI_IDS = {
    "atlas_a2": ("d802", "19e5", "3004"),
    "atlas_a3": ("d803", "19e5", "3003"),
    "atlas_300i_duo": ("d500", "0200", "0110"),
    "atlas_950dt": ("d806", "19e5", "4004"),
}
CHIP_NAMES = {
    "atlas_a2": "910B3",
    "atlas_a3": "Ascend910",
    "atlas_300i_duo": "310P3",
    "atlas_950dt": "Ascend950DT",
    "atlas_200i_pro": "310P1",
}
FAMILIES = tuple(CHIP_NAMES)
RC_MODULE_FILES = (
    "etc/sys_version.conf", "etc/ld.so.conf.d/mind_so.conf", "etc/hdcBasic.cfg", "etc/slog.conf", "var/dmp_daemon",
    "var/slogd", "usr/lib64/libmmpa.so", "usr/lib64/libcrypto.so.1.1", "usr/lib64/libstackcore.so",
    "usr/lib64/libtensorflow.so",
)  # fmt: skip
RC_MODULE_OS_FILES = {
    "ubuntu": ("usr/lib/aarch64-linux-gnu/libyaml-0.so.2",),
    "openeuler": ("usr/lib64/libyaml-0.so.2.0.9", "usr/lib64/libsemanage.so.2"),
}


class HostTree:
    """A host below a folder; every method adds to it and returns it."""

    def __init__(self, root: Any, image_os: str = "ubuntu", architecture: str = "aarch64") -> None:
        self.root = pathlib.Path(str(root))
        self.records: list[dict[str, Any]] = []
        self.put("etc/os-release", OS_RELEASE[image_os])
        self.put("proc/sys/kernel/arch", architecture + "\n")
        self.put("proc/sys/kernel/osrelease", "5.10.0-216.0.0.115.oe2203sp4.aarch64\n")
        self.put("proc/uptime", "86400.51 1000000.0\n")

    def put(self, path: str, text: str = "", mode: int | None = None) -> HostTree:
        """Write a file, with its folders."""
        target = self.root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
        if mode is not None:
            target.chmod(mode)
        return self

    def remove(self, path: str) -> HostTree:
        """Take a file, a link or a folder away."""
        target = self.root / path.lstrip("/")
        if target.is_dir() and not target.is_symlink():
            shutil.rmtree(target)
        else:
            target.unlink()
        return self

    def symlink(self, path: str, target: str) -> HostTree:
        """A symbolic link, with the words that it holds on the host."""
        link = self.root / path.lstrip("/")
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(target)
        return self

    def folder(self, path: str) -> HostTree:
        """Make a folder."""
        (self.root / path.lstrip("/")).mkdir(parents=True, exist_ok=True)
        return self

    def nodes(self, *names: str) -> HostTree:
        """Files that stand for device nodes below /dev."""
        for name in names:
            self.put("dev/" + name)
        return self

    def pci(
        self,
        address: str,
        ids: tuple[str, str, str],
        vendor: str = "19e5",
        driver: str | None = "devdrv_device_driver",
        pci_class: str = "120000",
        dev_id: int | None = None,
        virtual_of: str | None = None,
    ) -> HostTree:
        """A PCI function as sysfs shows it: ids are device, subsystem vendor and subsystem device in hexadecimal."""
        base = "sys/bus/pci/devices/" + address
        values = {"vendor": vendor, "device": ids[0], "subsystem_vendor": ids[1], "subsystem_device": ids[2]}
        values["class"] = pci_class
        for name, value in values.items():
            self.put(f"{base}/{name}", f"0x{value}\n")
        if driver:
            self.folder("sys/bus/pci/drivers/" + driver).symlink(base + "/driver", "../../drivers/" + driver)
        if dev_id is not None:
            self.put(base + "/dev_id", f"{dev_id}\n")
        if virtual_of:
            self.symlink(base + "/physfn", "../" + virtual_of)
        return self

    def node_table(self, rows: Sequence[tuple[str, int]]) -> HostTree:
        """The driver's table of PCI address and N of /dev/davinciN, the same below each of its functions."""
        lines = [f"{address.partition(':')[2]}  {node:<6} {place:<5}" for place, (address, node) in enumerate(rows)]
        for address in sorted({address for address, _node in rows}):
            text = "\n".join(["bdf      udevid add_id", *lines]) + "\n"
            self.put(f"sys/bus/pci/devices/{address}/devdrv_sysfs_bdf_to_devid", text)
        return self

    def driver(self, path: str = "/usr/local/Ascend", version: str = VERSION) -> HostTree:
        """The driver package below path, and the file that names the path."""
        self.put("etc/ascend_install.info", INSTALL_INFO.format(path=path))
        base = path + "/driver/"
        self.put(base + "version.info", f"Version={version}\npackage_version={version}\n")
        self.put(path + "/firmware/version.info", "Version=7.7.0.1.231\n")
        for name in ("lib64/common/libc_sec.so", "lib64/driver/libascend_hal.so", "tools/hccn_tool"):
            self.put(base + name, "x", 0o755)
        self.put("usr/local/dcmi/libdcmi.so", "x")
        return self

    def npu_smi(
        self, table: str | None, rc: int = 0, timed_out: bool = False, places: Sequence[str] = ("bin", "sbin")
    ) -> HostTree:
        """The program as a file, and what `npu-smi info` printed (None: not recorded)."""
        for place in places:
            self.put(f"usr/local/{place}/npu-smi", "#!/bin/sh\ntouch /ran\nexit 1\n", 0o755)
        if table is not None:
            self.record(["npu-smi", "info"], table, rc, timed_out)
        return self

    def record(self, argv: Sequence[str], stdout: str, rc: int = 0, timed_out: bool = False) -> HostTree:
        """What a program printed when it was recorded; the last record of the same words counts."""
        self.records = [record for record in self.records if record["argv"] != list(argv)]
        self.records.append(
            {
                "argv": list(argv),
                "rc": None if timed_out else rc,
                "stdout": stdout,
                "stderr": "",
                "timed_out": timed_out,
            }
        )
        return self.put("recorded/commands.json", json.dumps(self.records, indent=1))

    def product(self, npu_id: int, name: str) -> HostTree:
        """What `npu-smi info -t product` printed."""
        text = f"\tNPU ID                         : {npu_id}\n\tProduct Type                   : {name}\n"
        return self.record(["npu-smi", "info", "-t", "product", "-i", str(npu_id)], text)


# -- npu-smi's table ---------------------------------------------------------------------------------------------------


class Row(NamedTuple):
    """One chip of the table; second is the layout's second id (physical on A3, logical on 310P)."""

    npu_id: int
    chip_id: int
    second: int
    bus_id: str
    health: str = "OK"


def info_table(
    family: str,
    rows: Sequence[Row],
    name: str | None = None,
    version: str | None = None,
    processes: Sequence[tuple[int, int, int, str, int]] | None = None,
) -> str:
    """The table of `npu-smi info` in the layout of a family, all chips of that name and driver.

    processes are NPU id, chip id, pid, name and MB; without any (None) there is no table of processes.
    """
    name, version = name or CHIP_NAMES[family], version or VERSION
    titles: tuple[str, ...]
    second: tuple[str, ...]
    if family in ("atlas_300i_duo", "atlas_200i_pro"):
        titles = ("NPU     Name", "Health", "Power(W)     Temp(C)           Hugepages-Usage(page)")
        second = ("Chip    Device", "Bus-Id", "AICore(%)    Memory-Usage(MB)")
        values = ("NA           45                0     / 0", "0            1500  / 44280")
    else:
        titles = ("NPU   Name", "Health", "Power(W)    Temp(C)           Hugepages-Usage(page)")
        second = ("Chip", "Bus-Id", "AICore(%)   Memory-Usage(MB)  HBM-Usage(MB)")
        values = ("95.0        40                0    / 0", "0           0    / 0          3400 / 65536")
    if family == "atlas_a3":
        second = ("Chip  Phy-ID", *second[1:])
    if family == "atlas_950dt":
        titles = ("NPU ID", "Name", titles[1], titles[2])
        second = ("", "", "Bus-Id", "NPU Util(%)           Memory-Usage(MB)         HBM-Usage(MB)")
    lines = [f"| npu-smi {version}    Version: {version} |", _border("-"), _line(titles), _line(second), _border("=")]
    for npu, chip, second_id, bus, health in rows:
        if family == "atlas_950dt":
            lines += [_line((str(npu), name, health, values[0])), _line(("", "", bus, values[1]))]
        else:
            ids = f"{chip:<6}" if family == "atlas_a2" else f"{chip:<6}{second_id}"
            lines += [_line((f"{npu:<6}{name}", health, values[0])), _line((ids, bus, values[1]))]
        lines.append(_border("="))
    if processes is not None:
        lines += [_line(("NPU     Chip", "Process id", "Process name", "Process memory(MB)")), _border("=")]
        for npu in sorted({row.npu_id for row in rows}):
            own = [process for process in processes if process[0] == npu]
            lines += [_line((f"{npu:<8}{chip}", str(pid), name, str(mb))) for _npu, chip, pid, name, mb in own]
            lines += [] if own else [f"| No running processes found in NPU {npu:<30} |"]
            lines.append(_border("="))
    return "\n".join([_border("-"), *lines]) + "\n"


def _border(character: str) -> str:
    return "+" + character * 96 + "+"


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(f"{cell:<14}" for cell in cells) + " |"


# -- the trees ---------------------------------------------------------------------------------------------------------


def card_host(
    root: Any, family: str, image_os: str = "ubuntu", functions: int = 2, driver_path: str = "/usr/local/Ascend"
) -> HostTree:
    """A healthy idle host with cards of a family on the PCI bus (not the 200I Pro)."""
    tree = HostTree(root, image_os).driver(driver_path)
    rows: list[Row] = []
    for number in range(functions):
        address = f"0000:{0x81 + number:02x}:00.0"
        tree.pci(address, PCI_IDS[family])
        for chip in range(2 if family == "atlas_300i_duo" else 1):
            rows.append(Row(number, chip, len(rows), address.upper()))
    tree.nodes(*[f"davinci{number}" for number in range(len(rows))])
    tree.nodes(*[name for name in CARD_NODES if not (family == "atlas_950dt" and name == "devmm_svm")])
    tree.node_table([(row.bus_id.lower(), number) for number, row in enumerate(rows)])
    if family == "atlas_a3":
        rows = [Row(number // 2, number % 2, number, row.bus_id) for number, row in enumerate(rows)]
    return tree.npu_smi(info_table(family, rows))


def rc_module_host(root: Any, image_os: str = "ubuntu", product: str | None = "Atlas 200I Pro") -> HostTree:
    """A 310P that is its own host (RC mode): no PCI, its own nodes and files, npu-smi in sbin."""
    tree = HostTree(root, image_os).driver()
    tree.nodes("davinci0", "davinci_manager", "ascend_manager", "user_config")
    for path in RC_MODULE_FILES + RC_MODULE_OS_FILES[image_os]:
        tree.put(path, "x")
    tree.npu_smi(info_table("atlas_200i_pro", [Row(0, 0, 0, "NA")]), places=["sbin"])
    return tree.product(0, product) if product else tree


def family_host(root: Any, family: str, image_os: str = "ubuntu", **details: Any) -> HostTree:
    """A healthy idle host of any of FAMILIES; details are those of rc_module_host or card_host."""
    if family == "atlas_200i_pro":
        return rc_module_host(root, image_os, **details)
    return card_host(root, family, image_os, **details)
