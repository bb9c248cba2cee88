"""The driver package: where it is, which version, and for which chips it was made."""

from __future__ import annotations

import json
import pathlib

import pytest
from ansible_collections.vllm_ascend.fleet.plugins.module_utils import driver
from ansible_collections.vllm_ascend.fleet.plugins.module_utils.sysroot import Sysroot
from ansible_collections.vllm_ascend.fleet.tests.unit.support.host_trees import HostTree

DATA = pathlib.Path(__file__).resolve().parents[2] / "data" / "host-files"
INDEX = json.loads((DATA / "index.json").read_text(encoding="utf-8"))
SCRIPT = "usr/local/Ascend/driver/script/"


def sample(name):
    return (DATA / name).read_text(encoding="utf-8")


def read(tree):
    return driver.read_driver(Sysroot(str(tree.root)))


@pytest.mark.parametrize("name", sorted(INDEX["install_info"]))
def test_install_info_samples(tmp_path, name):
    expected = INDEX["install_info"][name]
    tree = HostTree(tmp_path).driver().put("etc/ascend_install.info", sample(name))
    found = read(tree)
    assert (found.install_path, found.named_by) == (expected["path"], "/etc/ascend_install.info")
    assert (found.install_status, found.status) == (expected["install_status"], expected["status"])


@pytest.mark.parametrize("name", sorted(INDEX["version_info"]))
def test_version_samples(name):
    assert driver.parse_version(sample(name)) == INDEX["version_info"][name]


def test_a_file_that_names_a_path_is_no_driver(tmp_path):
    """CANN writes ascend_install.info on machines that have no driver."""
    tree = HostTree(tmp_path)
    tree.put("etc/ascend_install.info", sample("ascend_install.info.with-cann-user-install.txt"))
    found = read(tree)
    assert (found.install_path, found.status, found.version) == ("/usr/local/Ascend", "missing", None)


def test_custom_path(tmp_path):
    tree = HostTree(tmp_path).driver(path="/opt/huawei", version="25.3.rc1").npu_smi(None)
    found = read(tree)
    assert found.facts() == {
        "install_path": "/opt/huawei",
        "version": "25.3.rc1",
        "firmware_version": "7.7.0.1.231",
        "npu_smi_path": "/usr/local/bin/npu-smi",
        "package_family": None,
        "status": "installed",
    }


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("lib/davinci.conf", "DAVINCI_HOME_PATH=/opt/huawei\n"),
        ("etc/ld.so.conf.d/ascend_driver_so.conf", "/opt/huawei/driver/lib64/common\n/opt/huawei/driver/lib64\n"),
    ],
)
def test_second_sources_of_the_path(tmp_path, path, text):
    tree = HostTree(tmp_path).driver(path="/opt/huawei").remove("etc/ascend_install.info").put(path, text)
    found = read(tree)
    assert (found.install_path, found.named_by, found.status) == ("/opt/huawei", "/" + path, "installed")


def test_a_stale_name_gives_way_to_the_folder_that_holds_a_driver(tmp_path):
    tree = HostTree(tmp_path).driver()
    tree.put("etc/ascend_install.info", "Driver_Install_Path_Param=/opt/gone\n")
    assert read(tree).install_path == "/usr/local/Ascend"


def test_nothing_installed(tmp_path):
    found = read(HostTree(tmp_path))
    assert found.facts() == {
        "install_path": None,
        "version": None,
        "firmware_version": None,
        "npu_smi_path": None,
        "package_family": None,
        "status": "missing",
    }


def test_incomplete(tmp_path):
    assert read(HostTree(tmp_path).driver().remove("usr/local/Ascend/driver/version.info")).status == "incomplete"
    tree = HostTree(tmp_path).driver()
    tree.put("etc/ascend_install.info", "Driver_Install_Path_Param=/usr/local/Ascend\nDriver_Install_Status=failed\n")
    assert (read(tree).status, read(tree).install_status) == ("incomplete", "failed")


@pytest.mark.parametrize(
    ("files", "generations", "family"),
    [
        ({SCRIPT + "specific_func.inc": '#!/bin/sh\ndevice_bdf="0xd802"\n'}, ("910B",), "atlas_a2"),
        ({SCRIPT + "specific_func.inc": 'device_bdf="0xd803"\n'}, ("910_93",), "atlas_a3"),
        ({SCRIPT + "specific_func.inc": 'device_bdf="0xd802 0xd803"\n'}, ("910B", "910_93"), None),
        ({SCRIPT + "specific_func.inc": 'device_bdf="0xd805"\n'}, (), None),
        ({"usr/local/Ascend/driver/device/ascend_950_x.bin": ""}, ("950",), "atlas_950dt"),
        ({"usr/local/Ascend/driver/device/Ascend310P_aicpu.image": ""}, ("310P",), "ascend_310p"),
        ({"usr/local/Ascend/driver/device/ascend_910_93_x.bin": ""}, ("910_93",), "atlas_a3"),
        ({"usr/local/Ascend/driver/device/readme": ""}, (), None),
    ],
)
def test_package_identity(tmp_path, files, generations, family):
    tree = HostTree(tmp_path).driver()
    for path, text in files.items():
        tree.put(path, text)
    assert (read(tree).generations, read(tree).package_family) == (generations, family)


def test_ub_package(tmp_path):
    tree = HostTree(tmp_path).driver()
    assert not read(tree).ub
    assert read(tree.put(SCRIPT + "feature.conf", "FEATURE_HD_CONNECT_IS_UB=y\n")).ub


def test_npu_smi_in_the_drivers_tools(tmp_path):
    tree = HostTree(tmp_path).driver(path="/opt/huawei").put("opt/huawei/driver/tools/npu-smi", "x", 0o755)
    assert read(tree).npu_smi_path == "/opt/huawei/driver/tools/npu-smi"
    assert driver.library_path("/opt/huawei").split(":")[0] == "/opt/huawei/driver/lib64/common"
