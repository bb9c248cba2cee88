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
from .npu_problems import npu_smi_problems
from .npu_smi_query import NpuSmi, SmiAnswer
from .pci import read_pci
from .sysroot import Sysroot

HCCL_ROOTINFO = "/etc/hccl_rootinfo.json"
NAMESPACE_NODES = "/proc/uda/namespace_node"
# Nodes beside davinciN that a profile may ask for or that tell products apart (mind-cluster devnode.go, constants.go;
# vLLM Ascend quick start v0.23.0). ummu and uburma are folders of nodes on hosts with a UB bus.
MANAGER_NODES = (
    "davinci_manager", "davinci_manager_docker", "devmm_svm", "hisi_hdc", "dvpp_cmdlist", "ascend_manager",
    "user_config", "svm0", "ts_aisle", "upgrade", "sys", "vdec", "vpc", "venc", "pngd", "log_drv", "acodec", "ai", "ao",
    "vo", "hdmi", "event_sched", "hi_dvpp", "memory_bandwidth", "spi_smbus", "xsmem_dev",
)  # fmt: skip
NODE_FOLDERS = ("ummu", "uburma")
_NAMESPACE = re.compile(r"^ns_id ([0-9]{1,18}) identify \S+ root_tgid ([0-9]{1,18}) dev_num [0-9]+\b")
# Mount namespaces below this number are containers that hold chips for themselves (hicann/driver UDA_NS_NUM).
_FIRST_ADMIN_NAMESPACE = 128
_CONTAINER_ID = re.compile(r"\b([0-9a-f]{64})\b")


class Options(NamedTuple):
    """The module's options: paths to stat (may hold {driver}), npu_smi "auto" or "skip", its time limit in seconds."""

    paths: Sequence[str] = ()
    npu_smi: str = "auto"
    npu_smi_timeout: int = 15


def collect(sysroot: Sysroot, options: Options) -> Dict[str, Any]:
    """The facts `ascend_npu` of a host; what cannot be known is null."""
    driver = read_driver(sysroot)
    pci = read_pci(sysroot)
    nodes = device_nodes(sysroot)
    host = read_host(sysroot)
    smi = NpuSmi(sysroot, driver, options.npu_smi_timeout)
    answer = smi.info(skip=options.npu_smi == "skip")
    evidence = Evidence(
        pci=pci,
        nodes=[path[len("/dev/") :] for path, node in nodes.items() if node["type"] == "char"],
        architecture=host["architecture"],
        rc_files=[path for path in RC_FILES if sysroot.exists(path)],
        ub_bus=sysroot.exists("/sys/bus/ub")
        and (sysroot.exists("/proc/asdrv_ub") or sysroot.exists("/proc/ascend_ub")),
        board_name=board_name(sysroot),
        package_generations=driver.generations,
        package_ub=driver.ub,
        package_status=driver.status,
        install_path=driver.install_path,
        install_status=driver.install_status,
        smi_answers=answer.status == "ok",
        smi_generations=answer.generations,
        uptime_s=host["uptime_s"],
    )
    chips = list(answer.table.chips) if answer.table else []
    if answer.status == "ok" and chips and needs_product(evidence):
        evidence = evidence._replace(smi_product=smi.product(chips[0]["npu_id"]), smi_answers=not smi.hung)
    assign_devices(chips, evidence, _physical_ids(smi, answer, chips), bool(answer.table and answer.table.complete))
    if smi.hung:
        answer = answer._replace(status="hung")
    decision = decide(evidence)
    return {
        "family": decision.family,
        "product": decision.product,
        "evidence": decision.evidence,
        "problems": decision.problems + npu_smi_problems(answer, decision.family, host["uptime_s"]),
        "chips": chips,
        "device_nodes": nodes,
        "pci": [function.facts() for function in pci],
        "driver": _driver_facts(driver, answer),
        "npu_smi": answer.facts(),
        "usage": _process_usage(chips) + namespace_usage(sysroot),
        "host": host,
        "paths": stat_paths(sysroot, options.paths, driver),
    }


def _driver_facts(driver: Driver, answer: SmiAnswer) -> Dict[str, Any]:
    facts: Dict[str, Any] = driver.facts()
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

    Proofs: npu-smi's physical id; the driver's dev_id of the chip's own PCI function; one chip and one node in all. An
    NPU id or a place in a list is none (vllm-ascend issue 2712: NPU ids 0, 32, 96, 32768 at nodes 0, 2, 4, 6).
    """
    by_bus = {f.address: f.dev_id for f in evidence.pci if f.chips == 1 and f.dev_id is not None}
    nodes = evidence.davinci
    for chip in chips:
        if chip["phy_id"] is None:
            chip["phy_id"] = mapped.get((chip["npu_id"], chip["chip_id"]), by_bus.get(chip["bus_id"] or ""))
        if chip["phy_id"] is None and complete and len(chips) == len(nodes) == 1:
            chip["phy_id"] = int(nodes[0][len("davinci") :])
    ids = [chip["phy_id"] for chip in chips]
    for chip in chips:
        name = "davinci{0}".format(chip["phy_id"])
        if name in nodes and ids.count(chip["phy_id"]) == 1:
            chip["device"] = "/dev/" + name


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
    return "char" if sysroot.replay and kind == "file" and path.startswith("/dev/") else kind


# -- who uses which card -----------------------------------------------------------------------------------------------


def _process_usage(chips: Iterable[Dict[str, Any]]) -> List[Dict[str, Any]]:
    """The processes of npu-smi's table, by chip; device is null where the chip's node is not proven."""
    return [
        {
            "device": chip["device"],
            "owner": {"kind": "process", "name": process["name"], "id": process["pid"]},
            "source": "npu-smi info: NPU {0} chip {1}".format(chip["npu_id"], chip["chip_id"]),
        }
        for chip in chips
        for process in chip["processes"] or []
    ]


def namespace_usage(sysroot: Sysroot) -> List[Dict[str, Any]]:
    """The driver's own table of chips that a container holds, even an idle one (hicann/driver uda_proc_fs.c).

    Readable by root only; empty where it is missing. Privileged containers are not in it.
    """
    usage = []
    owner: Optional[Dict[str, Any]] = None
    for line in (sysroot.read_text(NAMESPACE_NODES) or "").splitlines():
        match = _NAMESPACE.match(line)
        words = line.split()
        if match:
            held = int(match.group(1)) < _FIRST_ADMIN_NAMESPACE
            owner = _namespace_owner(sysroot, int(match.group(2))) if held else None
        elif owner is not None and len(words) == 2 and DAVINCI.match("davinci" + words[1]) and words[0].isdigit():
            usage.append({"device": "/dev/davinci" + words[1], "owner": dict(owner), "source": NAMESPACE_NODES})
    return usage


def _namespace_owner(sysroot: Sysroot, pid: int) -> Dict[str, Any]:
    """The container of a process by its control group, else the process."""
    match = _CONTAINER_ID.search(sysroot.read_text("/proc/{0}/cgroup".format(pid)) or "")
    if match:
        return {"kind": "container", "name": None, "id": match.group(1)}
    name = (sysroot.read_text("/proc/{0}/comm".format(pid)) or "").strip()
    return {"kind": "process", "name": name or None, "id": pid}


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
    return record


def _rootinfo_version(text: Optional[str]) -> Optional[str]:
    """The format's version ("2.0" on the 950): a file of another version makes every multi-card start fail (EI0014)."""
    version = documents.mapping(documents.parsed(text)).get("version")
    return str(version) if isinstance(version, (str, int, float)) else None


def _mode(status: os.stat_result) -> str:
    return "{0:04o}".format(stat.S_IMODE(status.st_mode))
