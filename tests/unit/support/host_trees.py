"""Builds fake host trees: what a host shows of itself, as ordinary files below a folder, to be replayed as a sysroot.

Ordinary files below dev/ stand for device nodes, and recorded/commands.json holds what programs printed. `build(root,
name)` makes one of TREES; HostTree is for cases of one's own. It runs on Python 3.7, like the host code that it serves.
"""

from __future__ import annotations

import json
import pathlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

OS_RELEASE = {
    "ubuntu": 'NAME="Ubuntu"\nID=ubuntu\nID_LIKE=debian\nVERSION_ID="22.04"\nPRETTY_NAME="Ubuntu 22.04.5 LTS"\n',
    "openeuler": 'NAME="openEuler"\nID="openEuler"\nVERSION_ID="24.03"\nPRETTY_NAME="openEuler 24.03 (LTS-SP1)"\n',
}
INSTALL_INFO = (
    "UserName=HwHiAiUser\nUserGroup=HwHiAiUser\nDriver_Install_Type=full\nDriver_Install_Path_Param={path}\n"
    "Driver_Install_For_All=no\nDriver_Install_Status=complete\n"
)
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
        """Take a file away."""
        (self.root / path.lstrip("/")).unlink()
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
            self.folder("sys/bus/pci/drivers/" + driver)
            (self.root / base / "driver").symlink_to("../../drivers/" + driver)
        if dev_id is not None:
            self.put(base + "/dev_id", f"{dev_id}\n")
        if virtual_of:
            (self.root / base / "physfn").symlink_to("../" + virtual_of)
        return self

    def driver(self, path: str = "/usr/local/Ascend", version: str = "25.5.1") -> HostTree:
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


def info_table(family: str, rows: Sequence[Row]) -> str:
    """The table of `npu-smi info` in the layout of a family, all chips healthy and idle."""
    name = CHIP_NAMES[family]
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
    lines = ["| npu-smi 25.5.1    Version: 25.5.1 |", _border("-"), _line(titles), _line(second), _border("=")]
    for npu, chip, second_id, bus in rows:
        if family == "atlas_950dt":
            lines += [_line((str(npu), name, "OK", values[0])), _line(("", "", bus, values[1]))]
        else:
            ids = f"{chip:<6}" if family == "atlas_a2" else f"{chip:<6}{second_id}"
            lines += [_line((f"{npu:<6}{name}", "OK", values[0])), _line((ids, bus, values[1]))]
        lines.append(_border("="))
    return "\n".join([_border("-"), *lines]) + "\n"


def _border(character: str) -> str:
    return "+" + character * 96 + "+"


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(f"{cell:<14}" for cell in cells) + " |"


# -- the trees ---------------------------------------------------------------------------------------------------------


def card_host(root: Any, family: str, image_os: str = "ubuntu", functions: int = 2) -> HostTree:
    """A healthy idle host with cards of a family on the PCI bus (not the 200I Pro)."""
    tree = HostTree(root, image_os).driver()
    rows: list[Row] = []
    for number in range(functions):
        address = f"0000:{0x81 + number:02x}:00.0"
        tree.pci(address, PCI_IDS[family])
        for chip in range(2 if family == "atlas_300i_duo" else 1):
            rows.append(Row(number, chip, len(rows), address.upper()))
    tree.nodes(*[f"davinci{number}" for number in range(len(rows))])
    tree.nodes(*[name for name in CARD_NODES if not (family == "atlas_950dt" and name == "devmm_svm")])
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


def family_host(root: Any, family: str, image_os: str = "ubuntu") -> HostTree:
    """A healthy idle host of any of FAMILIES."""
    if family == "atlas_200i_pro":
        return rc_module_host(root, image_os)
    return card_host(root, family, image_os)


def no_npu(root: Any) -> HostTree:
    """A Kunpeng server without NPUs: Huawei's network card and the processor's own class 1200 accelerator."""
    tree = HostTree(root)
    tree.pci("0000:03:00.0", ("1822", "19e5", "d136"), driver="hinic", pci_class="020000")
    return tree.pci("0000:75:00.0", ("a250", "0000", "0000"), driver="hisi_zip")


def no_driver(root: Any) -> HostTree:
    """NPUs on the bus and nothing installed for them."""
    tree = HostTree(root)
    for number in range(2):
        tree.pci(f"0000:{0x81 + number:02x}:00.0", PCI_IDS["atlas_a2"], driver=None)
    return tree


def half_driver(root: Any) -> HostTree:
    """The kernel driver is bound, but there are no nodes, no package and no npu-smi."""
    tree = HostTree(root)
    for number in range(2):
        tree.pci(f"0000:{0x81 + number:02x}:00.0", PCI_IDS["atlas_a2"])
    return tree


def first_generation(root: Any) -> HostTree:
    """The first Ascend 910, whose npu-smi may print 910B: not supported."""
    tree = HostTree(root).driver().nodes("davinci0", *CARD_NODES)
    tree.pci("0000:c1:00.0", ("d801", "0200", "0100"))
    return tree.npu_smi(info_table("atlas_a2", [Row(0, 0, 0, "0000:C1:00.0")]).replace("910B3", "910B "))


def soc_310b(root: Any) -> HostTree:
    """A 310B that is its own host (Atlas 200I A2): not supported."""
    tree = HostTree(root).driver()
    tree.nodes("davinci0", "davinci_manager", "svm0", "ts_aisle", "upgrade", "vdec", "vpc", "venc", "pngd", "acodec")
    for path in RC_MODULE_FILES[:7]:
        tree.put(path, "x")
    return tree.npu_smi(info_table("atlas_200i_pro", [Row(0, 0, 0, "NA")]).replace("310P1", "310B4"), places=["sbin"])


def mixed(root: Any) -> HostTree:
    """An A2 card and a 300I Duo in one host."""
    tree = card_host(root, "atlas_a2", functions=1)
    return tree.pci("0000:01:00.0", PCI_IDS["atlas_300i_duo"]).nodes("davinci1", "davinci2")


def passed_through(root: Any) -> HostTree:
    """All NPUs are given to virtual machines."""
    tree = HostTree(root)
    return tree.pci("0000:81:00.0", PCI_IDS["atlas_a2"], driver="vfio-pci")


def partly_passed_through(root: Any) -> HostTree:
    """A Duo that the host uses beside an A2 card that a virtual machine has."""
    tree = card_host(root, "atlas_300i_duo", functions=1)
    return tree.pci("0000:c1:00.0", PCI_IDS["atlas_a2"], driver="vfio-pci")


def sparse_nodes(root: Any) -> HostTree:
    """Node numbers with gaps that differ from the NPU ids (vllm-ascend issue 2712); the driver tells its dev_id."""
    tree = HostTree(root).driver().nodes(*CARD_NODES)
    rows: list[Row] = []
    for number, npu_id in enumerate((0, 32, 96)):
        address = f"0000:{1 + number:02x}:00.0"
        tree.pci(address, ("d802", "19e5", "3004"), dev_id=4 * number)
        tree.nodes(f"davinci{4 * number}")
        rows.append(Row(npu_id, 0, number, address.upper()))
    return tree.npu_smi(info_table("atlas_a2", rows))


def rebranded(root: Any) -> HostTree:
    """An A2 card sold under another PCI vendor, with a subsystem that no table has."""
    tree = HostTree(root).driver().nodes("davinci0", *CARD_NODES)
    tree.pci("0000:81:00.0", ("d802", "20c6", "9999"), vendor="20c6")
    return tree.npu_smi(info_table("atlas_a2", [Row(0, 0, 0, "0000:81:00.0")]))


def virtual_functions(root: Any) -> HostTree:
    """An A2 card with a virtual function beside it."""
    tree = card_host(root, "atlas_a2", functions=1)
    return tree.pci("0000:81:00.1", ("d805", "19e5", "3004"), virtual_of="0000:81:00.0")


def ep_310p_unknown(root: Any) -> HostTree:
    """A 310P card whose PCI ids several products share; npu-smi names it."""
    tree = HostTree(root).driver().nodes("davinci0", *CARD_NODES)
    tree.pci("0000:01:00.0", ("d500", "0200", "0100"))
    tree.npu_smi(info_table("atlas_300i_duo", [Row(4, 0, 0, "0000:01:00.0")]))
    return tree.product(4, "Atlas 300I Pro")


def ub_950(root: Any) -> HostTree:
    """950 NPUs on the UB bus: nothing on PCI."""
    tree = HostTree(root).driver().nodes("davinci0", "davinci1", "davinci_manager", "hisi_hdc", "ummu/ummu0")
    tree.folder("sys/bus/ub/devices").put("proc/asdrv_ub/version", "x")
    tree.put("usr/local/Ascend/driver/script/feature.conf", "FEATURE_HD_CONNECT_IS_UB=y\n")
    tree.put("etc/hccl_rootinfo.json", '{"version": "2.0"}')
    tree.npu_smi(info_table("atlas_950dt", [Row(0, 0, 0, "NA"), Row(1, 0, 1, "NA")]))
    lines = ["NPU ID   Slot ID   Chip ID   Chip Phy-ID   Chip Name"]
    lines += [f"{number}        0         0         {number}             Ascend950DT" for number in range(2)]
    return tree.record(["npu-smi", "info", "-m"], "\n".join(lines) + "\n")


TREES: dict[str, Callable[[Any], HostTree]] = {
    "no_npu": no_npu,
    "no_driver": no_driver,
    "half_driver": half_driver,
    "first_generation": first_generation,
    "soc_310b": soc_310b,
    "mixed": mixed,
    "passed_through": passed_through,
    "partly_passed_through": partly_passed_through,
    "sparse_nodes": sparse_nodes,
    "rebranded": rebranded,
    "virtual_functions": virtual_functions,
    "ep_310p_unknown": ep_310p_unknown,
    "ub_950": ub_950,
}


def build(root: Any, name: str) -> HostTree:
    """Make the named tree below root."""
    return TREES[name](root)
