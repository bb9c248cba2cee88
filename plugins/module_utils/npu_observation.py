# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads a host's NPU hardware and makes the facts `ascend_npu` of it. Nothing is changed, and no device is opened.

Device nodes are only looked at (stat): opening a /dev/davinciN claims the chip for the opener's namespace
(hicann/driver uda_access.c, uda_occupy_dev).
"""

from __future__ import annotations

import os
import re
import stat
from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple

from . import documents
from .detection import decide, needs_product
from .driver import DAVINCI_CONF, DEFAULT_INSTALL_PATH, INSTALL_INFO, Driver, npu_smi_candidates, read_driver
from .host_os import board_name, read_host
from .npu_evidence import DAVINCI, RC_FILES, Evidence
from .npu_problems import host_warnings, npu_smi_problems
from .npu_smi_query import NpuSmi, SmiAnswer
from .npu_usage import CHIP_TYPES, namespace_usage, process_usage, read_devices
from .pci import scan_pci
from .sysroot import Sysroot

HCCL_ROOTINFO = "/etc/hccl_rootinfo.json"
HCCN_CONF = "/etc/hccn.conf"
_NPU_ADDRESS = re.compile(r"^[ \t]*(?:IPv6)?address_[0-9]+[ \t]*=[ \t]*[^\s#]", re.MULTILINE)
# Nodes beside davinciN that a profile may ask for or that tell products apart (mind-cluster devnode.go, constants.go;
# vLLM Ascend quick start v0.23.0). ummu and uburma are folders of nodes on hosts with a UB bus.
MANAGER_NODES = (
    "davinci_manager", "davinci_manager_docker", "devmm_svm", "hisi_hdc", "dvpp_cmdlist", "ascend_manager",
    "user_config", "svm0", "ts_aisle", "upgrade", "sys", "vdec", "vpc", "venc", "pngd", "log_drv", "acodec", "ai", "ao",
    "vo", "hdmi", "event_sched", "hi_dvpp", "memory_bandwidth", "spi_smbus", "xsmem_dev",
)  # fmt: skip
NODE_FOLDERS = ("ummu", "uburma")
# Most questions for the chip of one node; each may cost the whole time limit, though a hang ends them all.
_REMAP_LIMIT = 16


class Options(NamedTuple):
    """The module's options: paths to stat (may hold {driver}), npu_smi "auto" or "skip", its time limit in seconds."""

    paths: Sequence[str] = ()
    npu_smi: str = "auto"
    npu_smi_timeout: int = 15


def collect(sysroot: Sysroot, options: Options) -> Dict[str, Any]:
    """The facts `ascend_npu` of a host; what cannot be known is null."""
    driver = read_driver(sysroot)
    pci = scan_pci(sysroot)
    nodes = device_nodes(sysroot)
    devices = read_devices(sysroot)
    host = read_host(sysroot)
    smi = NpuSmi(sysroot, driver, options.npu_smi_timeout)
    answer = smi.info(skip=options.npu_smi == "skip")
    evidence = Evidence(
        pci=pci.functions,
        nodes=[path[len("/dev/") :] for path, node in nodes.items() if node["type"] == "char"],
        architecture=host["architecture"],
        rc_files=[path for path in RC_FILES if sysroot.exists(path)],
        ub_bus=sysroot.exists("/sys/bus/ub")
        and (sysroot.exists("/proc/asdrv_ub") or sysroot.exists("/proc/ascend_ub")),
        board_name=board_name(sysroot),
        container=host["container"],
        resetting=pci.resetting,
        driver_generations=[CHIP_TYPES[one.chip_type] for one in devices if one.chip_type in CHIP_TYPES],
        package_generations=driver.generations,
        package_ub=driver.ub,
        package_status=driver.status,
        package_incomplete=driver.incomplete,
        install_path=driver.install_path,
        install_status=driver.install_status,
        smi_answers=answer.status == "ok",
        smi_loads=answer.loads,
        smi_generations=answer.generations,
        uptime_s=host["uptime_s"],
    )
    chips = list(answer.table.chips) if answer.table else []
    if answer.status == "ok" and chips and needs_product(evidence):
        evidence = evidence._replace(smi_product=smi.product(chips[0]["npu_id"]), smi_answers=not smi.hung)
    assign_devices(chips, evidence, _physical_ids(smi, answer, chips), bool(answer.table and answer.table.complete))
    _find_nodes(smi, chips, evidence)
    if smi.hung:
        answer = answer._replace(status="hung")
    decision = decide(evidence)
    return {
        "family": decision.family,
        "product": decision.product,
        "evidence": decision.evidence,
        "problems": decision.problems + npu_smi_problems(answer, decision.family, host["uptime_s"]),
        "warnings": host_warnings(evidence, decision.family, chips, answer, driver.version),
        "chips": chips,
        "device_nodes": nodes,
        "pci": [function.facts() for function in pci.functions],
        "driver": _driver_facts(driver, answer),
        "npu_smi": answer.facts(),
        "usage": process_usage(sysroot, chips) + namespace_usage(sysroot, devices),
        "host": host,
        "paths": stat_paths(sysroot, options.paths, driver),
    }


def _driver_facts(driver: Driver, answer: SmiAnswer) -> Dict[str, Any]:
    facts: Dict[str, Any] = driver.facts()
    facts["loaded_version"] = answer.loaded_version
    if facts["version"] is None and answer.table is not None:
        facts["version"] = answer.table.driver_version
    return facts


# -- chips and their nodes -------------------------------------------------------------------------------------------


def _physical_ids(smi: NpuSmi, answer: SmiAnswer, chips: Sequence[Dict[str, Any]]) -> Dict[Tuple[int, int], int]:
    """Physical ids by `info -m`: asked for the one layout that lacks them while -m has them (950)."""
    if answer.status != "ok" or not chips or answer.table is None or answer.table.layout != "npu":
        return {}
    return smi.physical_ids()


def assign_devices(
    chips: List[Dict[str, Any]], evidence: Evidence, mapped: Dict[Tuple[int, int], int], complete: bool
) -> None:
    """Fill phy_id and device of the chips where something proves them; the N of /dev/davinciN is the physical id.

    Proofs: npu-smi's physical id; the driver's table of the chips behind the chip's own PCI function (in the order of
    the chip ids, as dcmi numbers them); the driver's dev_id of the function, where there is no such table; one chip
    and one node in all. An NPU id or a place in a list is none (vllm-ascend issue 2712: NPU ids 0, 32, 96, 32768 at
    nodes 0, 2, 4, 6).
    """
    by_bus = _ids_by_bus(chips, evidence)
    nodes = evidence.davinci
    for chip in chips:
        if chip["phy_id"] is None:
            key = (chip["npu_id"], chip["chip_id"])
            chip["phy_id"] = mapped.get(key, by_bus.get(key))
        if chip["phy_id"] is None and complete and len(chips) == len(nodes) == 1:
            chip["phy_id"] = int(nodes[0][len("davinci") :])
    _name_devices(chips, nodes)


def _name_devices(chips: Sequence[Dict[str, Any]], nodes: Sequence[str]) -> None:
    ids = [chip["phy_id"] for chip in chips]
    for chip in chips:
        name = "davinci{0}".format(chip["phy_id"])
        if name in nodes and ids.count(chip["phy_id"]) == 1:
            chip["device"] = "/dev/" + name


def _ids_by_bus(chips: Sequence[Dict[str, Any]], evidence: Evidence) -> Dict[Tuple[int, int], int]:
    """Physical ids of the chips that npu-smi shows at the address of a PCI function."""
    found: Dict[Tuple[int, int], int] = {}
    for function in evidence.pci:
        keys = sorted((one["npu_id"], one["chip_id"]) for one in chips if one["bus_id"] == function.address)
        ids = list(function.node_ids)
        if not ids and function.chips == 1 and function.dev_id is not None:
            ids = [function.dev_id]
        if len(keys) == len(ids):
            found.update({key: ids[i] for i, key in enumerate(keys)})
    return found


def _find_nodes(smi: NpuSmi, chips: List[Dict[str, Any]], evidence: Evidence) -> None:
    """Ask npu-smi for the chip behind each node, while a chip that is ill or in use has no proven node."""
    given = {chip["device"] for chip in chips}
    for name in [name for name in evidence.davinci if "/dev/" + name not in given][:_REMAP_LIMIT]:
        if not any(c["phy_id"] is None and (c["processes"] or c["health"] not in ("OK", None)) for c in chips):
            break
        number = int(name[len("davinci") :])
        answer = smi.remapped(number)
        if answer is None:
            break
        for chip in chips:
            if chip["phy_id"] is None and (chip["npu_id"], chip["chip_id"]) == answer:
                chip["phy_id"] = number
    _name_devices(chips, evidence.davinci)


def device_nodes(sysroot: Sysroot) -> Dict[str, Dict[str, Any]]:
    """Every node that is there, NPUs first and by number. In a replay an ordinary file stands for a node."""
    names = sysroot.listdir("/dev")
    numbered = sorted((int(match.group(1)), match.group(0)) for match in map(DAVINCI.match, names) if match)
    wanted = [name for _number, name in numbered] + [name for name in MANAGER_NODES if name in names]
    for folder in NODE_FOLDERS:
        if folder in names:
            wanted += [folder] + ["{0}/{1}".format(folder, name) for name in sysroot.listdir("/dev/" + folder)]
    found = {}
    for name in wanted:
        path = "/dev/" + name
        status = sysroot.stat(path)
        if status is not None:
            kind = _node_kind(sysroot, path)
            real = kind == "char" and stat.S_ISCHR(status.st_mode)
            found[path] = {
                "type": kind,
                "major": os.major(status.st_rdev) if real else None,
                "minor": os.minor(status.st_rdev) if real else None,
                "mode": _mode(status),
                "uid": status.st_uid,
                "gid": status.st_gid,
            }
    return found


def _node_kind(sysroot: Sysroot, path: str) -> str:
    kind = sysroot.kind(path)
    return "char" if not sysroot.complete and kind == "file" and path.startswith("/dev/") else kind


# -- paths -------------------------------------------------------------------------------------------------------------


def stat_paths(sysroot: Sysroot, paths: Iterable[str], driver: Driver) -> Dict[str, Dict[str, Any]]:
    """What lies at each path, by the resolved path: {driver} is the driver's install path, else the documented one."""
    install_path = driver.install_path or DEFAULT_INSTALL_PATH
    own = [INSTALL_INFO, DAVINCI_CONF, HCCL_ROOTINFO] + npu_smi_candidates(install_path) + list(RC_FILES)
    wanted = {path.replace("{driver}", install_path) for path in paths} | set(own)
    return {path: _stat_path(sysroot, path) for path in sorted(wanted)}


def _stat_path(sysroot: Sysroot, path: str) -> Dict[str, Any]:
    status = sysroot.stat(path)
    kind = _node_kind(sysroot, path)
    record: Dict[str, Any] = {
        "type": kind,
        "mode": _mode(status) if status else None,
        "uid": status.st_uid if status else None,
        "gid": status.st_gid if status else None,
        "size": status.st_size if status and kind == "file" else None,
        "executable": bool(status.st_mode & 0o111) if status else None,
    }
    link = sysroot.link(path)
    if link is not None:
        record["link"] = link
    if path == HCCL_ROOTINFO:
        record["version"] = _rootinfo_version(sysroot.read_text(path))
    if path == HCCN_CONF and kind == "file":
        # How many NPUs have an address of their own (lines address_0=… that hccn_tool writes); null: not readable.
        text = sysroot.read_text(path)
        record["addresses"] = None if text is None else len(_NPU_ADDRESS.findall(text))
    return record


def _rootinfo_version(text: Optional[str]) -> Optional[str]:
    """The format's version ("2.0" on the 950): a file of another version makes every multi-card start fail (EI0014)."""
    version = documents.mapping(documents.parsed(text)).get("version")
    return str(version) if isinstance(version, (str, int, float)) else None


def _mode(status: os.stat_result) -> str:
    return "{0:04o}".format(stat.S_IMODE(status.st_mode))
