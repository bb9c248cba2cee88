"""NPUs on the PCI bus: the device id decides, other devices of the vendor are left out."""

from __future__ import annotations

import json
import pathlib
import re

import pytest
from ansible_collections.vllm_ascend.fleet.plugins.module_utils.pci import DEVICES, PRODUCTS, read_pci, scan_pci
from ansible_collections.vllm_ascend.fleet.plugins.module_utils.sysroot import Sysroot
from ansible_collections.vllm_ascend.fleet.tests import gallery
from ansible_collections.vllm_ascend.fleet.tests.unit.support.host_trees import HostTree

DATA = pathlib.Path(__file__).resolve().parents[2] / "data" / "host-files"
LSPCI = json.loads((DATA / "index.json").read_text(encoding="utf-8"))["lspci"]


def read(tree):
    return read_pci(Sysroot(str(tree.root)))


@pytest.mark.parametrize("name", sorted(LSPCI))
def test_lspci_samples(tmp_path, name):
    """The functions of a listing, put into a tree, are found; those that are no NPU are not."""
    tree = HostTree(tmp_path)
    for number, line in enumerate((DATA / name).read_text(encoding="utf-8").splitlines()):
        device = re.search(r"\b(d[0-9a-f]{3})\b", line)
        pci_class = "120000" if "Processing accelerators" in line else "060400"
        address = f"0000:{number:02x}:00.0"
        tree.pci(address, (device.group(1) if device else "a121", "19e5", "3002"), pci_class=pci_class)
    found = [function.device for function in read(tree)]
    assert {device: found.count(device) for device in found} == LSPCI[name]


def test_a_function_is_read_whole(tmp_path):
    tree = HostTree(tmp_path).pci("0000:C1:00.0", ("d802", "19e5", "3004"), dev_id=5)
    (function,) = read(tree)
    assert function.facts() == {
        "address": "0000:c1:00.0",
        "vendor": "19e5",
        "device": "d802",
        "subsystem_vendor": "19e5",
        "subsystem_device": "3004",
        "driver": "devdrv_device_driver",
    }
    assert (function.dev_id, function.product, function.chips) == (5, "Atlas 800I A2", 1)


def test_other_huawei_devices_are_no_npus(tmp_path):
    assert read(gallery.build(tmp_path, "no_npu")) == []


def test_virtual_functions_are_left_out(tmp_path):
    (function,) = read(gallery.build(tmp_path, "virtual_functions"))
    assert (function.device, function.virtual_functions) == ("d802", 1)


@pytest.mark.parametrize(
    ("vendor", "device", "pci_class", "found"),
    [
        ("20c6", "d802", "120000", 1), ("203f", "d500", "120000", 1), ("20e9", "d802", "120000", 1),
        ("ffff", "d500", "120000", 1), ("ffff", "d802", "120000", 0), ("10de", "d802", "120000", 0),
        ("19e5", "d802", "020000", 0), ("19e5", "d105", "060400", 1), ("19e5", "d80f", "120000", 1),
        ("19e5", "a250", "120000", 0),
    ],
)  # fmt: skip
def test_vendor_device_and_class(tmp_path, vendor, device, pci_class, found):
    tree = HostTree(tmp_path).pci("0000:01:00.0", (device, "19e5", "0100"), vendor=vendor, pci_class=pci_class)
    assert len(read(tree)) == found


@pytest.mark.parametrize(
    ("device", "subsystem", "chips"),
    [("d500", "0110", 2), ("d500", "0111", 2), ("d500", "0100", 1), ("d501", "0110", 2), ("d802", "0110", 1)],
)
def test_chips_behind_one_function(tmp_path, device, subsystem, chips):
    (function,) = read(HostTree(tmp_path).pci("0000:01:00.0", (device, "0200", subsystem)))
    assert function.chips == chips


@pytest.mark.parametrize(("vendor", "known"), [("19e5", True), ("20c6", False), ("203f", False), ("20e9", False)])
def test_other_vendors_sell_two_devices_only(tmp_path, vendor, known):
    (function,) = read(HostTree(tmp_path).pci("0000:01:00.0", ("d803", "19e5", "3003"), vendor=vendor))
    assert (function.known is not None) is known


@pytest.mark.parametrize(
    ("driver", "passed"),
    [
        ("vfio-pci", True),
        ("hisi-acc-vfio-pci", True),
        ("pci-stub", True),
        ("devdrv_device_driver", False),
        (None, False),
    ],
)
def test_functions_that_the_host_cannot_have(tmp_path, driver, passed):
    (function,) = read(HostTree(tmp_path).pci("0000:01:00.0", ("d802", "19e5", "3004"), driver=driver))
    assert function.passed_through is passed


@pytest.mark.parametrize(("text", "chips"), [("2\n", 2), ("1\n", 1), ("-22\n", 1), ("", 1)])
def test_the_driver_knows_how_many_chips_it_found(tmp_path, text, chips):
    tree = HostTree(tmp_path).pci("0000:01:00.0", ("d500", "1bd4", "0001"))
    (function,) = read(tree.put("sys/bus/pci/devices/0000:01:00.0/davinci_dev_num", text))
    assert function.chips == chips


def test_the_driver_s_table_of_nodes(tmp_path):
    tree = HostTree(tmp_path)
    for address in ("0000:01:00.0", "0000:02:00.0"):
        tree.pci(address, ("d500", "0200", "0110"))
    tree.node_table([("0000:01:00.0", 3), ("0000:02:00.0", 0), ("0000:01:00.0", 2), ("0000:02:00.0", 1)])
    assert [function.node_ids for function in read(tree)] == [(2, 3), (0, 1)]


def test_one_bus_in_two_domains_names_no_nodes(tmp_path):
    """The rows of the driver's table have no domain."""
    tree = HostTree(tmp_path)
    for address in ("0000:01:00.0", "0001:01:00.0", "0001:02:00.0"):
        tree.pci(address, ("d802", "19e5", "3004"))
    tree.node_table([("0000:01:00.0", 0), ("0001:01:00.0", 1), ("0001:02:00.0", 2)])
    assert [function.node_ids for function in read(tree)] == [(), (), (2,)]


def test_a_table_of_another_form_is_not_used(tmp_path):
    tree = HostTree(tmp_path).pci("0000:01:00.0", ("d802", "19e5", "3004"))
    tree.put("sys/bus/pci/devices/0000:01:00.0/devdrv_sysfs_bdf_to_devid", "bdf      other\n01:00.0  7     9\n")
    assert read(tree)[0].node_ids == ()


@pytest.mark.parametrize(("pci_class", "found"), [("120000", ["0000:01:00.0"]), ("058000", [])])
def test_a_310p_whose_bus_is_reset(tmp_path, pci_class, found):
    tree = HostTree(tmp_path).pci("0000:01:00.0", ("02b2", "1000", "0000"), vendor="1000", pci_class=pci_class)
    assert scan_pci(Sysroot(str(tmp_path))).resetting == found
    assert read(tree) == []


def test_unreadable_ids_are_null(tmp_path):
    tree = HostTree(tmp_path).pci("0000:01:00.0", ("d802", "19e5", "3004"), driver=None)
    tree.put("sys/bus/pci/devices/0000:01:00.0/subsystem_device", "junk\n")
    (function,) = read(tree)
    assert (function.subsystem_device, function.driver, function.dev_id, function.product) == (None, None, None, None)


def test_tables_agree():
    assert {device for device, _vendor, _subsystem in PRODUCTS} <= set(DEVICES)
    assert all(entry.source for entry in DEVICES.values())
