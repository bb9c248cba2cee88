# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What was found on a host about its NPUs, and how that is told to a person. No decision is made here."""

from __future__ import annotations

import re
from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Sequence, Set, Tuple

from .pci import PciFunction

FAMILIES = {"910B": "atlas_a2", "910_93": "atlas_a3", "950": "atlas_950dt"}
DUO, RC_MODULE, UB = "atlas_300i_duo", "atlas_200i_pro", "atlas_950dt"
UNKNOWN, UNSUPPORTED, NONE = "unknown", "unsupported", "none"

# A 310P that is its own host (RC mode) has these nodes and files; cards (EP mode) have none of them in the package
# lists seen. /etc/hdcBasic.cfg and /etc/sys_version.conf prove nothing: the packages of cards install them too
# (hicann/driver driver.xml).
RC_NODES = ("ascend_manager", "user_config", "svm0")
RC_FILES = ("/etc/ld.so.conf.d/mind_so.conf", "/var/dmp_daemon", "/usr/lib64/libmmpa.so")
# Nodes that only a 310B has (mind-cluster devnode.go); venc is left out, since the Atlas 200I SoC A1 may have it.
NODES_310B = ("pngd", "acodec", "davinci_manager_docker")
# A node's number; one of more digits than any host has NPUs is some other file.
DAVINCI = re.compile(r"davinci([0-9]{1,9})\Z")


class Evidence(NamedTuple):
    """What was found on a host.

    nodes are names below /dev of what is really a device node. rc_files are those of RC_FILES that exist. ub_bus: the
    UB bus and its driver are there. driver_generations: for each chip of the driver's own list the generations that
    its type may be. package_*: what the driver package was made for. smi_*: what npu-smi said; smi_answers is False
    when it could not be asked, so that its silence means nothing. smi_loads: it shows chips, or hangs in the driver.
    resetting: PCI addresses that show the id of a 310P whose bus is being reset.
    """

    pci: Sequence[PciFunction] = ()
    nodes: Sequence[str] = ()
    architecture: Optional[str] = None
    rc_files: Sequence[str] = ()
    ub_bus: bool = False
    board_name: Optional[str] = None
    container: Optional[bool] = None
    resetting: Sequence[str] = ()
    driver_generations: Sequence[Tuple[str, ...]] = ()
    package_generations: Tuple[str, ...] = ()
    package_ub: bool = False
    package_status: str = "missing"
    package_incomplete: Optional[str] = None
    install_path: Optional[str] = None
    install_status: Optional[str] = None
    smi_answers: bool = False
    smi_loads: bool = False
    smi_generations: Tuple[str, ...] = ()
    smi_product: Optional[str] = None
    uptime_s: Optional[int] = None

    @property
    def davinci(self) -> List[str]:
        """The /dev/davinciN nodes."""
        return [name for name in self.nodes if DAVINCI.match(name)]


def problem(code: str, message: str, remedy: str) -> Dict[str, str]:
    """One problem: a stable code, what is wrong with its value, and what to do."""
    return {"code": code, "message": message, "remedy": remedy}


def host_functions(pci: Sequence[PciFunction]) -> List[PciFunction]:
    """The functions that this host may use: those that are not handed to a virtual machine (all, if all are)."""
    own = [f for f in pci if not f.passed_through]
    return own or list(pci)


def generation_of(function: PciFunction, smi_generations: Sequence[str]) -> Optional[str]:
    """The generation of one function; an id that stands for several needs npu-smi's word. None: not told."""
    known = function.known
    if known is None:
        return None
    if known.certain:
        return known.generations[0]
    named = [g for g in known.generations if g in smi_generations]
    return named[0] if len(named) == 1 else None


def on_ub_bus(evidence: Evidence) -> bool:
    """True when something else than npu-smi shows NPUs on the UB bus: only the Ascend 950 is on it."""
    return evidence.ub_bus or evidence.package_ub or evidence.package_generations == ("950",)


def driver_says(evidence: Evidence) -> Set[str]:
    """The generations that the driver's own list of chips allows; empty when it was not read."""
    return {generation for generations in evidence.driver_generations for generation in generations}


def is_duo(function: PciFunction) -> bool:
    """True for the Atlas 300I Duo by its PCI ids (hicann/driver host_sys_init.sh; ascend-deployer card_map)."""
    return function.device == "d500" and function.subsystem_device == "0110"


def is_duo_product(product: Optional[str]) -> bool:
    """True for what `npu-smi info -t product` prints for an Atlas 300I Duo."""
    return (product or "").lower().startswith("atlas 300i duo")


def has_rc_signs(evidence: Evidence) -> bool:
    """A heuristic (no public code detects RC mode): aarch64, one of the nodes and one of the files of RC mode."""
    return (
        evidence.architecture == "aarch64"
        and any(name in evidence.nodes for name in RC_NODES)
        and bool(evidence.rc_files)
    )


def board_product(board_name: Optional[str]) -> Optional[str]:
    """The DMI board name where it is an Atlas product ("Atlas 200I SoC A1"), as ascend-deployer reads it."""
    return board_name if (board_name or "").lower().startswith("atlas") else None


def some(words: Iterable[str], limit: int = 4) -> str:
    """The first words of a list, and how many more there are."""
    listed = list(words)
    return ", ".join(listed[:limit]) + (" and {0} more".format(len(listed) - limit) if len(listed) > limit else "")


def per_function(functions: Sequence[PciFunction]) -> str:
    """ids with the addresses that have them: `19e5:d802 subsystem 19e5:3002 (Ascend 910B) at 0000:81:00.0, …`."""
    by_ids: Dict[str, List[str]] = {}
    for function in functions:
        chip = function.known.chip if function.known else "not known"
        by_ids.setdefault("{0} ({1})".format(function.ids, chip), []).append(function.address)
    return "; ".join("{0} at {1}".format(ids, some(addresses)) for ids, addresses in sorted(by_ids.items()))


def list_evidence(evidence: Evidence) -> List[Dict[str, Any]]:
    """What each source said, in order of weight; implies is the family that the source alone would mean, or null."""
    entries: List[Dict[str, Any]] = []

    def add(source: str, value: Optional[str], implies: Optional[str] = None) -> None:
        if value:
            entries.append({"source": source, "value": value, "implies": implies})

    groups: Dict[Tuple[str, Optional[str]], List[PciFunction]] = {}
    for function in evidence.pci:
        groups.setdefault((function.ids, function.driver), []).append(function)
    for (_ids, driver), functions in sorted(groups.items(), key=lambda item: item[1][0].address):
        first = functions[0]
        generation = generation_of(first, evidence.smi_generations)
        implies = DUO if is_duo(first) else FAMILIES.get(generation or "")
        if first.known and first.known.certain and generation not in FAMILIES and generation != "310P":
            implies = UNSUPPORTED
        vfs = sum(function.virtual_functions for function in functions)
        words = "{0} x {1}, driver {2}".format(len(functions), per_function(functions), driver or "none")
        add("pci", words + (", {0} virtual functions".format(vfs) if vfs else ""), implies)
    nodes = len(evidence.davinci)
    if nodes or evidence.pci:
        chips = sum(f.chips for f in host_functions(evidence.pci))
        expected = ", {0} expected by the PCI bus".format(chips) if evidence.pci else ""
        add("device nodes", "{0} /dev/davinciN{1}".format(nodes, expected))
    add("UB bus", "present" if evidence.ub_bus else None, None if evidence.pci else UB)
    signs = [("/dev/" + name) for name in RC_NODES if name in evidence.nodes] + list(evidence.rc_files)
    add("system on chip", ", ".join(signs), RC_MODULE if has_rc_signs(evidence) and not evidence.pci else None)
    add("310B nodes", ", ".join("/dev/" + name for name in NODES_310B if name in evidence.nodes), UNSUPPORTED)
    types = [" or ".join(generations) for generations in evidence.driver_generations]
    counted = ["{0} x {1}".format(types.count(one), one) for one in sorted(set(types))]
    sure = {FAMILIES.get(one) for one in types}
    add("driver's chips", ", ".join(counted), next(iter(sure)) if len(sure) == 1 else None)
    add("PCI reset", ", ".join(evidence.resetting))
    made_for = evidence.package_generations
    add("driver package", ", ".join(made_for), FAMILIES.get(made_for[0]) if len(made_for) == 1 else None)
    named = evidence.smi_generations
    add("npu-smi chip names", ", ".join(named), FAMILIES.get(named[0]) if len(named) == 1 else None)
    add("npu-smi product", evidence.smi_product, DUO if is_duo_product(evidence.smi_product) else None)
    add("DMI board", board_product(evidence.board_name))
    return entries
