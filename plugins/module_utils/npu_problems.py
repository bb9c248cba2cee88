# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is wrong with the driver and with npu-smi on a host that has NPUs, each with its value and its remedy."""

from __future__ import annotations

from typing import Dict, List, Optional

from .npu_evidence import NONE, UNSUPPORTED, Evidence, host_functions, per_function, problem
from .npu_smi_query import SmiAnswer
from .pci import VFIO_DRIVER

# Huawei's host_sys_init.sh waits 300 to 400 s for the nodes; the first call of npu-smi may then wait 150 s more.
STARTING_S = 600


def driver_problems(evidence: Evidence, family: str) -> List[Dict[str, str]]:
    """What is missing of the driver on a host that has NPUs: the kernel driver, the nodes, the package."""
    if family in (NONE, UNSUPPORTED):
        return []
    problems = []
    if evidence.pci and all(f.driver == VFIO_DRIVER for f in evidence.pci):
        return [
            problem(
                "npu_passthrough",
                "All NPUs are handed to virtual machines (driver vfio-pci): {0}.".format(per_function(evidence.pci)),
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
                    "There is no /dev/davinciN node{0}{1}.".format(
                        ", though the driver {0} is bound".format(", ".join(bound)) if bound else "",
                        _starting(evidence.uptime_s),
                    ),
                    "Wait some minutes after boot; then look at `dmesg`, and reinstall the driver and firmware.",
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
    return problems


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
