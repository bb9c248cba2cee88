# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is wrong with the driver and with npu-smi on a host that has NPUs, each with its value and its remedy."""

from __future__ import annotations

import re
from typing import Any, Dict, List, Optional, Sequence

from .npu_evidence import NONE, UNSUPPORTED, Evidence, host_functions, per_function, problem, some
from .npu_smi_query import SmiAnswer

# Huawei's host_sys_init.sh waits 300 to 400 s for the nodes; the first call of npu-smi may then wait 150 s more.
STARTING_S = 600
# What both version.info and npu-smi print; documentation has placeholders in its place.
_VERSION = re.compile(r"[0-9]+\.[0-9]")
VIRTUAL_FUNCTION = "d805"


def driver_problems(evidence: Evidence, family: str) -> List[Dict[str, str]]:
    """What is missing of the driver on a host that has NPUs: the kernel driver, the nodes, the package."""
    if family in (NONE, UNSUPPORTED):
        return []
    problems = []
    if evidence.pci and all(f.passed_through for f in evidence.pci):
        return [
            problem(
                "npu_passthrough",
                "All NPUs are handed to virtual machines (driver {0}): {1}.".format(
                    ", ".join(sorted({f.driver or "" for f in evidence.pci})), per_function(evidence.pci)
                ),
                "Deploy to the virtual machine instead, or give the NPUs back to the host's driver.",
            )
        ]
    if not evidence.davinci:
        bound = sorted({f.driver for f in host_functions(evidence.pci) if f.driver})
        if evidence.pci and not bound:
            problems.append(
                problem(
                    "no_driver",
                    "The NPUs have no kernel driver: {0}; there is no /dev/davinciN node.".format(
                        per_function(evidence.pci)
                    ),
                    "Install the Ascend driver and firmware for this product and restart the host.",
                )
            )
        else:
            problems.append(
                problem(
                    "device_nodes_missing",
                    "There is no /dev/davinciN node{0}{1}{2}.".format(
                        ", though the driver {0} is bound".format(", ".join(bound)) if bound else "",
                        "; this host is a container, which has only the nodes that it was given"
                        if evidence.container
                        else "",
                        _starting(evidence.uptime_s),
                    ),
                    "Start the container with its NPUs (--device /dev/davinciN), or deploy to the real host."
                    if evidence.container
                    else "Wait some minutes after boot; then look at `dmesg`, and reinstall the driver and firmware.",
                )
            )
    if evidence.package_status == "missing":
        problems.append(
            problem(
                "driver_package_missing",
                "The driver package is missing: there is no folder {0}/driver.".format(
                    evidence.install_path or "/usr/local/Ascend"
                ),
                "Install the Ascend driver package for this product, or correct Driver_Install_Path_Param in "
                "/etc/ascend_install.info.",
            )
        )
    elif evidence.install_status not in (None, "complete"):
        problems.append(
            problem(
                "driver_install_incomplete",
                "The installer did not finish: Driver_Install_Status is {0!r} in /etc/ascend_install.info.".format(
                    evidence.install_status
                ),
                "Run the driver's installer again.",
            )
        )
    elif evidence.package_incomplete:
        problems.append(
            problem(
                "driver_install_incomplete",
                "The driver package is only partly there: {0} is missing.".format(evidence.package_incomplete),
                "Run the driver's installer again.",
            )
        )
    return problems


def host_warnings(
    evidence: Evidence, family: str, chips: Sequence[Dict[str, Any]], answer: SmiAnswer, version: Optional[str]
) -> List[Dict[str, str]]:
    """What an operator should know of the hardware though a deployment is possible.

    version is that of the driver package on the disk; the version that npu-smi prints is that of the running driver
    (hicann/driver dcmi_get_driver_version): they differ between an update and the restart of the host.
    """
    if family in (NONE, UNSUPPORTED):
        return []
    warnings = _counts(evidence, chips, answer) + _virtual(evidence, chips)
    loaded = answer.loaded_version
    if _is_version(version) and _is_version(loaded) and (version or "").lower() != (loaded or "").lower():
        warnings.append(
            problem(
                "driver_restart_needed",
                "The driver package on the disk is {0}, the driver that runs is {1}.".format(version, loaded),
                "Restart the host: an updated driver or firmware is in use only then, and programs may fail with -8005 "
                "until it is (MindCluster FAQ).",
            )
        )
    if answer.warning and evidence.install_status in (None, "complete"):
        warnings.append(
            problem(
                "driver_install_unconfirmed",
                "npu-smi prints: {0} (it looks for Driver_Install_Status=complete in /etc/ascend_install.info).".format(
                    answer.warning
                ),
                "Compare /etc/ascend_install.info with that of a good host; run the driver's installer again.",
            )
        )
    return warnings


def _counts(evidence: Evidence, chips: Sequence[Dict[str, Any]], answer: SmiAnswer) -> List[Dict[str, str]]:
    """Nodes, PCI bus and npu-smi should show the same number of chips; a dead one is missing in some of them."""
    own = host_functions(evidence.pci)
    expected, nodes = sum(function.chips for function in own), len(evidence.davinci)
    if not nodes:
        return []
    warnings = []
    silent = [f for f in own if f.driver is None]
    if expected > nodes and evidence.container:
        message = "The PCI bus shows {0} chips, and there are {1} /dev/davinciN nodes: this host is a container, which "
        warnings.append((message + "has only the nodes that it was given.").format(expected, nodes))
    elif expected > nodes:
        unbound = "; no driver is bound at {0}".format(some(f.address for f in silent)) if silent else ""
        message = "The PCI bus shows {0} chips, but there are only {1} /dev/davinciN nodes ({2}){3}{4}."
        found = some("/dev/" + name for name in evidence.davinci)
        warnings.append(message.format(expected, nodes, found, unbound, _starting(evidence.uptime_s)))
    if answer.status == "ok" and answer.table is not None and answer.table.complete and len(chips) < nodes:
        message = "npu-smi shows {0} chips, but there are {1} /dev/davinciN nodes."
        warnings.append(message.format(len(chips), nodes))
    remedy = "A chip may be dead or not up yet: look at `dmesg` and the BMC. Only nodes that exist are used."
    found_warnings = [problem("chips_missing", message, remedy) for message in warnings]
    if own and nodes > expected:
        found_warnings.append(
            problem(
                "nodes_unexplained",
                "There are {0} /dev/davinciN nodes, and the PCI bus accounts for {1} chips.".format(nodes, expected),
                "Check which of the nodes work (`npu-smi info`), and give instances a list of nodes.",
            )
        )
    return found_warnings


def _virtual(evidence: Evidence, chips: Sequence[Dict[str, Any]]) -> List[Dict[str, str]]:
    """Virtual NPUs are parts of a chip: of this host's chips, or this host is a guest that has one."""
    warnings = []
    split = [f for f in host_functions(evidence.pci) if f.virtual_functions]
    if split:
        message = "Virtual NPUs were made of the chips at {0}: what virtual machines or other containers use of a chip "
        warnings.append((message + "is not free for a service.").format(some(f.address for f in split)))
    parts = [f.address for f in host_functions(evidence.pci) if f.device == VIRTUAL_FUNCTION]
    parts += ["NPU {0} ({1})".format(chip["npu_id"], chip["name"]) for chip in chips if "vir" in (chip["name"] or "")]
    if parts:
        message = "The host has virtual NPUs, each a part of a chip: {0}.".format(some(parts))
        warnings.append(message)
    remedy = "vLLM Ascend is documented for whole chips only; give it whole ones, or try it and watch its memory."
    return [problem("npu_virtual", message, remedy) for message in warnings]


def _is_version(text: Optional[str]) -> bool:
    return _VERSION.match(text or "") is not None


def npu_smi_problems(answer: SmiAnswer, family: str, uptime_s: Optional[int]) -> List[Dict[str, str]]:
    """A missing, failing or hanging npu-smi on a host that should serve; status "skipped" is none by itself."""
    if family in (NONE, UNSUPPORTED):
        return []
    if answer.status == "missing":
        return [_missing(answer)]
    if answer.status == "hung":
        return [
            problem(
                "npu_smi_hung",
                "{0} did not answer within {1} s{2}.".format(answer.path, answer.timeout_s, _starting(uptime_s)),
                "Right after boot wait some minutes. Otherwise a chip may be dead: see `dmesg`, restart the host.",
            )
        ]
    if answer.status == "error" and answer.error is not None:
        error = answer.error
        return [
            problem(
                "npu_smi_error",
                "{0} failed: {1}{2}{3}.".format(
                    answer.path,
                    error.meaning,
                    " ({0})".format(error.code) if error.code is not None else "",
                    "; it printed: {0}".format(error.text) if error.text else "",
                ),
                error.remedy,
            )
        ]
    return []


def _missing(answer: SmiAnswer) -> Dict[str, str]:
    if answer.directories:
        return problem(
            "npu_smi_is_directory",
            "{0} is a directory, not the program: docker makes one when a container is started with `-v` and a "
            "source that does not exist.".format(", ".join(answer.directories)),
            "Remove the empty directory (rmdir) and reinstall the driver, which brings npu-smi with it.",
        )
    if answer.not_executable:
        return problem(
            "npu_smi_missing",
            "{0} is there but not executable.".format(", ".join(answer.not_executable)),
            "Set its mode to 0555 (chmod), or reinstall the driver.",
        )
    return problem(
        "npu_smi_missing",
        "npu-smi is missing: none of {0} exists.".format(", ".join(answer.candidates)),
        "Install the Ascend driver, which brings npu-smi with it.",
    )


def _starting(uptime_s: Optional[int]) -> str:
    """Words for a host that booted so short ago that its driver need not be ready."""
    if uptime_s is None or uptime_s >= STARTING_S:
        return ""
    return "; the host started {0} s ago and the driver may still be starting".format(uptime_s)
