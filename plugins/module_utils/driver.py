# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The Ascend driver package as it lies on the disk: where, which version, and for which chips it was made."""

from __future__ import annotations

import re
from typing import Dict, List, NamedTuple, Optional, Set, Tuple

from .pci import DEVICES
from .sysroot import Sysroot

DEFAULT_INSTALL_PATH = "/usr/local/Ascend"
INSTALL_INFO = "/etc/ascend_install.info"
DAVINCI_CONF = "/lib/davinci.conf"
LD_CONF = "/etc/ld.so.conf.d/ascend_driver_so.conf"
NPU_SMI = ("/usr/local/bin/npu-smi", "/usr/local/sbin/npu-smi")

# Firmware images in <install path>/driver/device (hicann/driver res_drv_mini_v2.c, res_drv_cloud_v2.c, driver.xml).
_IMAGES = (
    (re.compile(r"^ascend_910b_", re.I), "910B"),
    (re.compile(r"^ascend_910_93_", re.I), "910_93"),
    (re.compile(r"^ascend_950_", re.I), "950"),
    (re.compile(r"^ascend310p.*\.image$", re.I), "310P"),
)
_DEVICE_BDF = re.compile(r"^\s*device_bdf\s*=\s*[\"']?(.*?)[\"']?\s*$", re.M)
# What the facts call the package of a generation; one 310P package serves cards and modules alike.
_PACKAGE_FAMILIES = {"910B": "atlas_a2", "910_93": "atlas_a3", "950": "atlas_950dt", "310P": "ascend_310p"}


class Driver(NamedTuple):
    """The driver package.

    install_path is the folder that holds driver/ (null when nothing names or holds one), status is "installed",
    "incomplete" (parts are missing, or the installer says that it did not finish) or "missing". generations are the
    chip generations that the package was made for (empty: not known), ub says that it drives NPUs on the UB bus.
    incomplete is a folder that no package lacks and that is not there.
    """

    install_path: Optional[str]
    named_by: Optional[str]
    version: Optional[str]
    firmware_version: Optional[str]
    npu_smi_path: Optional[str]
    status: str
    install_status: Optional[str]
    generations: Tuple[str, ...]
    ub: bool
    incomplete: Optional[str] = None

    @property
    def package_family(self) -> Optional[str]:
        """The family that the package was made for, null when it is not known or there are several."""
        return _PACKAGE_FAMILIES.get(self.generations[0]) if len(self.generations) == 1 else None

    def facts(self) -> Dict[str, Optional[str]]:
        """The record `driver` of the facts."""
        return {
            "install_path": self.install_path,
            "version": self.version,
            "firmware_version": self.firmware_version,
            "npu_smi_path": self.npu_smi_path,
            "package_family": self.package_family,
            "status": self.status,
        }


def parse_assignments(text: Optional[str]) -> Dict[str, str]:
    """KEY=value lines, keys in lower case (set_env.sh reads them so), quotes around values removed; the first wins."""
    values: Dict[str, str] = {}
    for line in (text or "").splitlines():
        key, equals, value = line.partition("=")
        key = key.strip().lower()
        if equals and key and not key.startswith("#"):
            values.setdefault(key, value.strip().strip("\"'"))
    return values


def parse_version(text: Optional[str]) -> Optional[str]:
    """The `Version` of a version.info of driver or firmware (hicann/driver args_parse.sh), else its package_version."""
    values = parse_assignments(text)
    return values.get("version") or values.get("package_version") or None


def package_generations(specific_func: Optional[str], device_files: List[str]) -> Tuple[str, ...]:
    """The chip generations that a package is for, by its device_bdf ids (specific_func.inc) and its firmware images."""
    found: Set[str] = set()
    for match in _DEVICE_BDF.finditer(specific_func or ""):
        for word in re.findall(r"d[0-9a-f]{3}", match.group(1).lower()):
            known = DEVICES.get(word)
            if known and known.certain:
                found.update(known.generations)
    for name in device_files:
        found.update(generation for pattern, generation in _IMAGES if pattern.search(name))
    return tuple(sorted(found))


def npu_smi_candidates(install_path: Optional[str]) -> List[str]:
    """Where npu-smi may be: both folders of the installer (driver_atlas.xml), then the driver's tools (HAMI)."""
    return list(NPU_SMI) + ["{0}/driver/tools/npu-smi".format(install_path or DEFAULT_INSTALL_PATH)]


def library_path(install_path: Optional[str]) -> str:
    """LD_LIBRARY_PATH for npu-smi: without lib64/common it does not find libc_sec.so (Project-HAMi/HAMi issue 615)."""
    base = "{0}/driver/lib64".format(install_path or DEFAULT_INSTALL_PATH)
    return ":".join((base + "/common", base + "/driver", base))


def read_driver(sysroot: Sysroot) -> Driver:
    """Read the driver package of a host. ascend_install.info alone proves nothing: CANN writes it too."""
    info = parse_assignments(sysroot.read_text(INSTALL_INFO))
    install_path, named_by = _install_path(sysroot, info)
    base = "{0}/driver".format(install_path or DEFAULT_INSTALL_PATH)
    firmware_base = info.get("firmware_install_path_param") or install_path or DEFAULT_INSTALL_PATH
    install_status = info.get("driver_install_status") or None
    has_folder = sysroot.kind(base) == "directory"
    has_parts = sysroot.kind(base + "/lib64") == "directory" and sysroot.kind(base + "/version.info") == "file"
    if not has_folder:
        status = "missing"
    elif has_parts and install_status in (None, "complete"):
        status = "installed"
    else:
        status = "incomplete"
    feature = parse_assignments(sysroot.read_text(base + "/script/feature.conf"))
    return Driver(
        install_path=install_path,
        named_by=named_by,
        version=parse_version(sysroot.read_text(base + "/version.info")),
        firmware_version=parse_version(sysroot.read_text(firmware_base.rstrip("/") + "/firmware/version.info")),
        npu_smi_path=sysroot.which("npu-smi", [path.rsplit("/", 1)[0] for path in npu_smi_candidates(install_path)]),
        status=status,
        install_status=install_status,
        generations=package_generations(
            sysroot.read_text(base + "/script/specific_func.inc"), sysroot.listdir(base + "/device")
        ),
        ub=feature.get("feature_hd_connect_is_ub") == "y",
        incomplete=base + "/lib64" if has_folder and sysroot.kind(base + "/lib64") != "directory" else None,
    )


def _install_path(sysroot: Sysroot, info: Dict[str, str]) -> Tuple[Optional[str], Optional[str]]:
    """The first named folder that holds a driver, else the first that is named, else the default if it holds one."""
    named = [
        (info.get("driver_install_path_param"), INSTALL_INFO),
        (parse_assignments(sysroot.read_text(DAVINCI_CONF)).get("davinci_home_path"), DAVINCI_CONF),
        (_from_ld_conf(sysroot.read_text(LD_CONF)), LD_CONF),
    ]
    absolute = [(path.rstrip("/"), source) for path, source in named if path and path.startswith("/") and path != "/"]
    for path, source in absolute + [(DEFAULT_INSTALL_PATH, "the default folder")]:
        if sysroot.kind(path + "/driver") == "directory":
            return path, source
    return absolute[0] if absolute else (None, None)


def _from_ld_conf(text: Optional[str]) -> Optional[str]:
    match = re.search(r"^\s*(/\S*?)/driver/lib64", text or "", re.M)
    return match.group(1) if match else None
