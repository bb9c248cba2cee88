# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ascend NPUs on the PCI bus, as sysfs shows them: no driver and no program is needed."""

from __future__ import annotations

import re
from typing import Dict, List, NamedTuple, Optional, Tuple

from .documents import decimal
from .sysroot import Sysroot

PCI_DEVICES = "/sys/bus/pci/devices"
# Drivers that keep a function for a virtual machine or a program: the host's NPU driver cannot have it.
_PASSTHROUGH = ("pci-stub", "uio_pci_generic", "igb_uio")
# "Processing accelerators" (hicann/driver; lspci of A2, A3 and 310P hosts).
ACCELERATOR_CLASS = "1200"
HUAWEI = "19e5"
# Vendors under which some of the same cards are sold, and which; the driver binds those and no others (hicann/driver
# devdrv_adapt.c g_devdrv_tbl, devdrv_pci.h).
VENDORS = {HUAWEI: "Huawei", "20c6": "HK", "203f": "KL", "20e9": "CJ"}
REBRANDED_DEVICES = ("d500", "d802")
# A vendor id that was never written to the card: the driver accepts it for the 310P only (the same table).
BLANK_VENDOR = "ffff"
# What a 310P shows for moments while its bus is reset (community report). Broadcom's PCIe switches have this id too.
RESETTING = ("1000", "02b2")


class Device(NamedTuple):
    """What a PCI device id says: the chip's name, its possible generations, and the source of that."""

    chip: str
    generations: Tuple[str, ...]
    certain: bool
    source: str
    classes: Tuple[str, ...] = (ACCELERATOR_CLASS,)


# Device ids alone decide the generation; 19e5 is also the vendor of network cards and of Kunpeng's own accelerators.
DEVICES: Dict[str, Device] = {
    "d100": Device("Ascend 310", ("310",), True, "hicann/driver dcmi_common.h"),
    "d105": Device(
        "Ascend 310B", ("310B",), True, "hicann/driver devdrv_pci.h; ascend-deployer parse_card", ("1200", "0604")
    ),
    "d107": Device("Ascend 310B", ("310B",), True, "ascend-deployer 26.0.0 card_map", ("1200", "0604")),
    "d500": Device("Ascend 310P", ("310P",), True, "hicann/driver devdrv_pci.h, dcmi_common.h"),
    "d501": Device("Ascend 310P (2P)", ("310P",), True, "hicann/driver devdrv_pci.h"),
    "d801": Device("Ascend 910 (first generation)", ("910",), True, "hicann/driver ascend_bug_report.sh"),
    "d802": Device("Ascend 910B", ("910B",), True, "hicann/driver specific_func.inc of ascend910B"),
    "d803": Device("Ascend 910_93", ("910_93",), True, "hicann/driver specific_func.inc"),
    # 910B by the constant's name only; no product is named for it anywhere.
    "d804": Device("Ascend 910B (2P)", ("910B",), False, "hicann/driver devdrv_pci.h CLOUD_V2_2P"),
    "d805": Device("virtual NPU of Ascend 910B or 910_93", ("910B", "910_93"), False, "hicann/driver devdrv_pci.h"),
    "d806": Device("Ascend 950", ("950",), True, "hicann/driver devdrv_hardware_version.h"),
    "d807": Device("Ascend910_96", ("910_96",), True, "hicann/driver devdrv_hardware_version.h"),
    "d808": Device("Ascend350", ("350",), True, "hicann/driver devdrv_hardware_version.h"),
}

# (device, subsystem vendor, subsystem device) -> product: ascend-deployer 26.0.0 common_info.py card_map. A label only:
# an id that is not listed (a new model, another vendor) does not change the family. d500 0200 0100 is left out on
# purpose: Atlas 300I Pro, 300V and 300V Pro share it (hicann/driver dcmi_product_judge.h).
_A2_TRAINING = "Atlas 800T A2 or 900 A2"
_A3_POD = "Atlas 900 A3"
PRODUCTS: Dict[Tuple[str, str, str], str] = {
    ("d100", "0200", "0100"): "Atlas 300I 3000 or 3010",
    ("d105", "0200", "0100"): "Atlas 200I A2",
    ("d107", "0000", "0000"): "Atlas 200I A2",
    ("d500", "0200", "0110"): "Atlas 300I Duo",
    ("d801", "0200", "0100"): "Atlas 300T 9000",
    ("d802", "0200", "0100"): _A2_TRAINING,
    ("d802", "19e5", "3000"): _A2_TRAINING,
    ("d802", "19e5", "3001"): _A2_TRAINING,
    ("d802", "19e5", "3002"): "Atlas 800I A2",
    ("d802", "19e5", "3003"): _A2_TRAINING,
    ("d802", "19e5", "3004"): "Atlas 800I A2",
    ("d802", "19e5", "3005"): "Atlas 800I A2",
    ("d802", "19e5", "3400"): _A2_TRAINING,
    ("d802", "19e5", "3401"): _A2_TRAINING,
    ("d802", "19e5", "3402"): _A2_TRAINING,
    ("d802", "19e5", "3403"): _A2_TRAINING,
    ("d802", "19e5", "4000"): "Atlas 300I A2",
    ("d802", "19e5", "6000"): "Atlas 300T A2",
    ("d803", "19e5", "0100"): "Atlas 800I A3",
    ("d803", "19e5", "3000"): _A3_POD,
    ("d803", "19e5", "3001"): _A3_POD,
    ("d803", "19e5", "3002"): _A3_POD,
    ("d803", "19e5", "3003"): "Atlas 800I A3",
    ("d806", "19e5", "4003"): "Atlas 350",
    ("d806", "19e5", "4004"): "Atlas 350",
    ("d806", "19e5", "4005"): "Atlas 350",
}

# Two 310P chips behind one PCI function: subsystem device 0x011x (hicann/driver devdrv_get_pdev_davinci_dev_num).
_TWO_CHIPS_DEVICES = ("d500", "d501")
_TWO_CHIPS_SUBSYSTEM = 0x011
_HEX = re.compile(r"[0-9a-f]{1,8}\Z")
# The driver's table of all its chips, one and the same below every function: bus address without domain, the N of
# /dev/davinciN, and the number by which the driver added the chip (hicann/driver devdrv_sysfs_bdf_to_devid_show).
NODE_TABLE = "devdrv_sysfs_bdf_to_devid"
_NODE_ROW = re.compile(r"^\s*([0-9a-f]{2}:[0-9a-f]{2}\.[0-7])\s+([0-9]{1,9})\s+[0-9]+\s*$", re.M)


class PciFunction(NamedTuple):
    """One NPU function of the PCI bus; ids are four hexadecimal digits, as lspci -nn prints them, null if unreadable.

    driver is the bound kernel driver. node_ids are the N of the /dev/davinciN behind it, in order, as the driver's
    table has them. dev_id is the number by which the driver added the (first) chip: the same N, unless the driver
    reorders (hicann/driver devdrv_sysfs.c, uda_dev.c). driver_chips is how many chips the driver found behind it, and
    virtual_functions how many virtual ones were made of it. All of that is empty or null without a driver.
    """

    address: str
    vendor: str
    device: str
    subsystem_vendor: Optional[str]
    subsystem_device: Optional[str]
    driver: Optional[str]
    dev_id: Optional[int] = None
    node_ids: Tuple[int, ...] = ()
    driver_chips: Optional[int] = None
    virtual_functions: int = 0

    @property
    def passed_through(self) -> bool:
        """True when it is handed to a virtual machine (vfio-pci and its variants) or kept from all drivers."""
        return (self.driver or "").endswith("vfio-pci") or self.driver in _PASSTHROUGH

    @property
    def known(self) -> Optional[Device]:
        """The table's entry of the device id, None for an id that is not in it or that this vendor does not sell."""
        if self.vendor != HUAWEI and self.device not in REBRANDED_DEVICES:
            return None
        return DEVICES.get(self.device)

    @property
    def ids(self) -> str:
        """vendor:device and subsystem in one readable word."""
        return "{0}:{1} subsystem {2}:{3}".format(
            self.vendor, self.device, self.subsystem_vendor or "?", self.subsystem_device or "?"
        )

    @property
    def product(self) -> Optional[str]:
        """The product that the whole tuple names, None when it is not in the table."""
        return PRODUCTS.get((self.device, self.subsystem_vendor or "", self.subsystem_device or ""))

    @property
    def chips(self) -> int:
        """How many chips, hence /dev/davinciN nodes, stand behind this function: by the driver, else by its ids."""
        if self.driver_chips:
            return self.driver_chips
        if self.device not in _TWO_CHIPS_DEVICES or not self.subsystem_device:
            return 1
        return 2 if int(self.subsystem_device, 16) >> 4 == _TWO_CHIPS_SUBSYSTEM else 1

    def facts(self) -> Dict[str, Optional[str]]:
        """The record of the facts' list `pci`."""
        return {
            "address": self.address,
            "vendor": self.vendor,
            "device": self.device,
            "subsystem_vendor": self.subsystem_vendor,
            "subsystem_device": self.subsystem_device,
            "driver": self.driver,
        }


class PciScan(NamedTuple):
    """The NPU functions by address, and the addresses that show the id of a 310P whose bus is being reset."""

    functions: List[PciFunction]
    resetting: List[str]


def read_pci(sysroot: Sysroot) -> List[PciFunction]:
    """All Ascend NPU functions of the host, sorted by address; see scan_pci."""
    return scan_pci(sysroot).functions


def scan_pci(sysroot: Sysroot) -> PciScan:
    """Look at every function of the PCI bus.

    Virtual functions whose physical function is on this host are left out, as the driver does (they carry `physfn`). A
    class 1200 function of a known vendor whose id starts with 0xd is an NPU that is newer than the table: it is listed.
    """
    found: List[PciFunction] = []
    virtual: List[str] = []
    resetting: List[str] = []
    for address in sysroot.listdir(PCI_DEVICES):
        folder = "{0}/{1}".format(PCI_DEVICES, address)
        vendor = _hex(sysroot, folder, "vendor")
        if vendor not in VENDORS and vendor not in (BLANK_VENDOR, RESETTING[0]):
            continue
        device = _hex(sysroot, folder, "device")
        if (vendor, device) == RESETTING:
            if (_hex(sysroot, folder, "class") or "").startswith(ACCELERATOR_CLASS):
                resetting.append(address.lower())
            continue
        if not device or not _is_npu(vendor, device, _hex(sysroot, folder, "class")):
            continue
        physical = sysroot.link(folder + "/physfn")
        if physical or sysroot.exists(folder + "/physfn"):
            virtual.append((physical or "").rstrip("/").rsplit("/", 1)[-1].lower())
            continue
        found.append(
            PciFunction(
                address=address.lower(),
                vendor=vendor,
                device=device,
                subsystem_vendor=_hex(sysroot, folder, "subsystem_vendor"),
                subsystem_device=_hex(sysroot, folder, "subsystem_device"),
                driver=_driver(sysroot, folder),
                dev_id=decimal(_word(sysroot, folder, "dev_id")),
                driver_chips=decimal(_word(sysroot, folder, "davinci_dev_num")),
            )
        )
    nodes = _node_table(sysroot, [function.address for function in found])
    return PciScan(
        [
            function._replace(
                node_ids=nodes.get(function.address, ()), virtual_functions=virtual.count(function.address)
            )
            for function in found
        ],
        resetting,
    )


def _node_table(sysroot: Sysroot, addresses: List[str]) -> Dict[str, Tuple[int, ...]]:
    """Address → the N of its nodes; one whose bus exists in another domain too is left out: rows have no domain."""
    buses = [address.partition(":")[2] for address in addresses]
    for address in addresses:
        text = sysroot.read_text("{0}/{1}/{2}".format(PCI_DEVICES, address, NODE_TABLE))
        rows = _NODE_ROW.findall((text or "").lower())
        if rows and "udevid" in (text or "").splitlines()[0]:
            return {
                one: tuple(sorted(int(node) for row, node in rows if row == buses[i]))
                for i, one in enumerate(addresses)
                if buses.count(buses[i]) == 1
            }
    return {}


def _is_npu(vendor: str, device: str, pci_class: Optional[str]) -> bool:
    known = DEVICES.get(device)
    if vendor == BLANK_VENDOR:
        return device == "d500" and (pci_class or "").startswith(ACCELERATOR_CLASS)
    if known is None or (vendor != HUAWEI and device not in REBRANDED_DEVICES):
        return device.startswith("d") and (pci_class or "").startswith(ACCELERATOR_CLASS)
    # A class that could not be read does not speak against a device id that the table knows.
    return pci_class is None or pci_class.startswith(known.classes)


def _word(sysroot: Sysroot, folder: str, name: str) -> str:
    return (sysroot.read_text("{0}/{1}".format(folder, name), limit=64) or "").strip()


def _hex(sysroot: Sysroot, folder: str, name: str) -> Optional[str]:
    text = _word(sysroot, folder, name).lower()
    digits = text[2:] if text.startswith("0x") else text
    return digits.zfill(4) if _HEX.match(digits) else None


def _driver(sysroot: Sysroot, folder: str) -> Optional[str]:
    link = sysroot.link(folder + "/driver")
    return link.rstrip("/").rsplit("/", 1)[-1] if link else None
