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
VFIO_DRIVER = "vfio-pci"
# "Processing accelerators" (hicann/driver; lspci of A2, A3 and 310P hosts).
ACCELERATOR_CLASS = "1200"
HUAWEI = "19e5"
# Vendors under which the same cards are sold; the driver binds them too (hicann/driver devdrv_adapt.c, devdrv_pci.h).
VENDORS = {HUAWEI: "Huawei", "20c6": "HK", "203f": "KL", "20e9": "CJ"}
# A vendor id that was never written to the card: the driver accepts it for the 310P only (the same table).
BLANK_VENDOR = "ffff"


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


class PciFunction(NamedTuple):
    """One NPU function of the PCI bus; ids are four hexadecimal digits, as lspci -nn prints them, null if unreadable.

    driver is the bound kernel driver. dev_id is the physical id that the driver gave the (first) chip, which is the N
    of /dev/davinciN (hicann/driver devdrv_sysfs.c); null without a driver.
    """

    address: str
    vendor: str
    device: str
    subsystem_vendor: Optional[str]
    subsystem_device: Optional[str]
    driver: Optional[str]
    dev_id: Optional[int] = None

    @property
    def known(self) -> Optional[Device]:
        """The table's entry of the device id, None for an id that is not in it."""
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
        """How many chips, hence /dev/davinciN nodes, stand behind this function."""
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


def read_pci(sysroot: Sysroot) -> List[PciFunction]:
    """All Ascend NPU functions of the host, sorted by address.

    Virtual functions whose physical function is on this host are left out, as the driver does (they carry `physfn`). A
    class 1200 function of a known vendor whose id starts with 0xd is an NPU that is newer than the table: it is listed.
    """
    found = []
    for address in sysroot.listdir(PCI_DEVICES):
        folder = "{0}/{1}".format(PCI_DEVICES, address)
        vendor = _hex(sysroot, folder, "vendor")
        if vendor not in VENDORS and vendor != BLANK_VENDOR:
            continue
        device = _hex(sysroot, folder, "device")
        if not device or not _is_npu(vendor, device, _hex(sysroot, folder, "class")):
            continue
        if sysroot.exists(folder + "/physfn") or sysroot.link(folder + "/physfn"):
            continue
        found.append(
            PciFunction(
                address=address.lower(),
                vendor=vendor,
                device=device,
                subsystem_vendor=_hex(sysroot, folder, "subsystem_vendor"),
                subsystem_device=_hex(sysroot, folder, "subsystem_device"),
                driver=_driver(sysroot, folder),
                dev_id=decimal((sysroot.read_text(folder + "/dev_id", limit=64) or "").strip()),
            )
        )
    return found


def _is_npu(vendor: str, device: str, pci_class: Optional[str]) -> bool:
    known = DEVICES.get(device)
    if vendor == BLANK_VENDOR:
        return device == "d500" and (pci_class or "").startswith(ACCELERATOR_CLASS)
    if known is None:
        return device.startswith("d") and (pci_class or "").startswith(ACCELERATOR_CLASS)
    # A class that could not be read does not speak against a device id that the table knows.
    return pci_class is None or pci_class.startswith(known.classes)


def _hex(sysroot: Sysroot, folder: str, name: str) -> Optional[str]:
    text = (sysroot.read_text("{0}/{1}".format(folder, name), limit=64) or "").strip().lower()
    digits = text[2:] if text.startswith("0x") else text
    return digits.zfill(4) if _HEX.match(digits) else None


def _driver(sysroot: Sysroot, folder: str) -> Optional[str]:
    link = sysroot.link(folder + "/driver")
    return link.rstrip("/").rsplit("/", 1)[-1] if link else None
