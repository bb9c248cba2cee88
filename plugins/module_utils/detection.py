# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which hardware family a host belongs to: a pure decision over evidence that somebody else has read.

The order is that of trust: PCI device ids; device nodes with the signs of a system on chip (RC mode) or of the UB bus;
the driver package. npu-smi only corroborates, and names the product where nothing else can. It fails closed: what is
not proven is "unknown", with all facts beside it.
"""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Set

from .npu_evidence import (
    DUO,
    FAMILIES,
    NODES_310B,
    NONE,
    RC_FILES,
    RC_MODULE,
    UB,
    UNKNOWN,
    UNSUPPORTED,
    Evidence,
    board_product,
    driver_says,
    generation_of,
    has_rc_signs,
    host_functions,
    is_duo,
    is_duo_product,
    list_evidence,
    on_ub_bus,
    per_function,
    problem,
    some,
)
from .npu_problems import driver_problems
from .pci import PciFunction

OVERRIDE = "vllm_hardware_family"

# Problems about the family itself: an operator who sets the family has answered them.
FAMILY_PROBLEMS = ("unknown_npu", "unsupported_npu", "mixed_npus", "conflicting_evidence", "driver_mismatch", "no_npu")

# The set that the vLLM Ascend quick start v0.23.0 maps for the Atlas 200I Pro, and for no other product.
RC_MODULE_NODES = ("ascend_manager", "user_config")
SUPPORTED = (
    "Supported: Atlas A2 (910B), Atlas A3 (910_93), Atlas 300I Duo, Atlas 200I Pro (RC mode), Atlas 950DT. A host that "
    "you know to fit a family can be told so with {0}.".format(OVERRIDE)
)


class Decision(NamedTuple):
    """The family, the product (null: not named by anything), the evidence by weight and the problems."""

    family: str
    product: Optional[str]
    evidence: List[Dict[str, Any]]
    problems: List[Dict[str, str]]


class _Verdict(NamedTuple):
    family: str
    product: Optional[str] = None
    problems: Sequence[Dict[str, str]] = ()


def needs_product(evidence: Evidence) -> bool:
    """True when only the product that npu-smi knows can decide: a 310P that is not told apart by its PCI ids."""
    functions = host_functions(evidence.pci)
    if functions:
        return any(f.known and f.known.generations == ("310P",) and not is_duo(f) for f in functions)
    return bool(evidence.davinci) and has_rc_signs(evidence)


def decide(evidence: Evidence) -> Decision:
    """Decide the family of a host, and list what speaks against deploying to it."""
    if evidence.pci:
        verdict = _by_pci(evidence)
    elif evidence.davinci:
        verdict = _by_nodes(evidence)
    else:
        verdict = _without_npus(evidence)
    problems = list(verdict.problems) + driver_problems(evidence, verdict.family)
    return Decision(verdict.family, verdict.product, list_evidence(evidence), problems)


# -- NPUs on the PCI bus ---------------------------------------------------------------------------------------------


def _by_pci(evidence: Evidence) -> _Verdict:
    """The device ids decide. Whatever shows NPUs that are not on the PCI bus makes the host a mixed one."""
    functions = host_functions(evidence.pci)
    unlisted = [f for f in functions if f.known is None]
    if unlisted:
        return _unknown(
            "NPUs that this version does not know are on the PCI bus: {0}.".format(per_function(unlisted)),
            "Use a newer version of the collection, or set {0} if you know the family.".format(OVERRIDE),
        )
    generations = {generation_of(f, evidence.smi_generations) for f in functions}
    if None in generations:
        return _unknown(
            "The PCI ids {0} stand for more than one chip, and npu-smi does not name it.".format(
                per_function([f for f in functions if not (f.known and f.known.certain)])
            ),
            "Make `npu-smi info` work on the host, or set {0}.".format(OVERRIDE),
        )
    if len(generations) > 1:
        return _Verdict(
            UNKNOWN,
            None,
            [
                problem(
                    "mixed_npus",
                    "NPUs of different generations are in one host: {0}.".format(per_function(functions)),
                    "One instance can't use both: remove the others, hand them to a virtual machine (vfio-pci), "
                    "or set {0} and name the instance's npus.".format(OVERRIDE),
                )
            ],
        )
    generation = next(iter(generations)) or ""
    if set(evidence.smi_generations) - {generation}:
        return _conflict(
            "the PCI bus shows {0}".format(per_function(functions)),
            "npu-smi names chips of generation {0}".format(", ".join(evidence.smi_generations)),
        )
    if any(generation not in allowed for allowed in evidence.driver_generations if allowed):
        return _conflict(
            "the PCI bus shows {0}".format(per_function(functions)),
            "the driver has chips of generation {0}".format(", ".join(sorted(driver_says(evidence)))),
        )
    if evidence.ub_bus and generation != "950":
        return _conflict(
            "the PCI bus shows {0}".format(per_function(functions)),
            "the host has a UB bus with its NPU driver, which only an Ascend 950 is on",
        )
    if has_rc_signs(evidence) and len(evidence.davinci) > sum(f.chips for f in functions):
        return _conflict(
            "the PCI bus shows {0}, which account for fewer nodes than there are".format(per_function(functions)),
            "there are the nodes and files of a system on chip with an NPU of its own",
        )
    problems = _mismatch(evidence, generation, functions)
    product = _common_product(functions)
    if generation == "310P":
        verdict = _card_310p(functions, evidence)
    elif generation in FAMILIES:
        verdict = _Verdict(FAMILIES[generation], product)
    else:
        chip = functions[0].known.chip if functions[0].known else functions[0].ids
        return _unsupported(
            "{0} (PCI id {1}) is not supported by vLLM Ascend.".format(chip, functions[0].device), product
        )
    return verdict._replace(problems=list(verdict.problems) + problems)


def _card_310p(functions: Sequence[PciFunction], evidence: Evidence) -> _Verdict:
    """A 310P behind PCI is a card (EP mode), whatever its product is called: the 200I Pro profile is for RC mode."""
    others = [f for f in functions if not is_duo(f)]
    if not others:
        return _Verdict(DUO, "Atlas 300I Duo")
    product = evidence.smi_product
    if is_duo_product(product) and len({f.ids for f in functions}) == 1:
        return _Verdict(DUO, product)
    named = "npu-smi calls it {0}".format(product) if product else "npu-smi names no product"
    return _unknown(
        "Ascend 310P cards that are no Atlas 300I Duo: {0}; {1}. Their images and flags are not documented.".format(
            per_function(others), named
        ),
        "Cards of the 310P (Atlas 300I Pro, 300V, 300V Pro, or a 200I Pro in EP mode) take the card profile: set "
        "{0}: {1} on this host if you want to try it.".format(OVERRIDE, DUO),
        product,
    )


def _common_product(functions: Sequence[PciFunction]) -> Optional[str]:
    products = {f.product for f in functions}
    return products.pop() if len(products) == 1 else None


def _mismatch(evidence: Evidence, generation: str, functions: Sequence[PciFunction]) -> List[Dict[str, str]]:
    made_for = evidence.package_generations
    if not made_for or generation in made_for:
        return []
    return [
        problem(
            "driver_mismatch",
            "The driver package below {0} was made for generation {1}, but the PCI bus shows {2}.".format(
                evidence.install_path, ", ".join(made_for), per_function(functions)
            ),
            "Install the driver and firmware of this product.",
        )
    ]


# -- NPUs without PCI: UB bus and systems on chip ----------------------------------------------------------------------


def _by_nodes(evidence: Evidence) -> _Verdict:
    named = set(evidence.smi_generations)
    types = driver_says(evidence)
    if on_ub_bus(evidence) or named == {"950"} or types == {"950"}:
        if (named | types) - {"950"}:
            return _conflict(
                "the UB bus, the driver package, its chips or npu-smi show an Ascend 950",
                "npu-smi and the driver name chips of generation {0}".format(", ".join(sorted(named | types))),
            )
        return _Verdict(UB, None)
    marks = [name for name in NODES_310B if name in evidence.nodes]
    if marks or named == {"310B"}:
        return _unsupported(
            "This is an Ascend 310B (Atlas 200I A2 class), by {0}; vLLM Ascend does not support it.".format(
                ", ".join("/dev/" + name for name in marks) or "its name in npu-smi"
            )
        )
    if has_rc_signs(evidence):
        return _rc_module(evidence, named)
    return _unknown(
        "There are NPU device nodes ({0}) but no NPU on the PCI bus, no UB bus, and not the nodes and files of a "
        "system on chip{1}.".format(some("/dev/" + name for name in evidence.davinci), _smi_words(named)),
        "If this is a container or a virtual machine that hides the PCI bus, run against the real host, or set "
        "{0}{1}.".format(OVERRIDE, _suggested(named)),
    )


def _rc_module(evidence: Evidence, named: Set[str]) -> _Verdict:
    """A 310P that is its own host: only its product says whether it is the Atlas 200I Pro."""
    types = driver_says(evidence)
    if types - {"310P"}:
        return _conflict(
            "nodes and files are those of a system on chip with an Ascend 310P",
            "the driver has chips of generation {0}".format(", ".join(sorted(types))),
        )
    if named - {"310P"}:
        return _conflict(
            "nodes and files are those of a system on chip with an Ascend 310P",
            "npu-smi names chips of generation {0}".format(", ".join(sorted(named))),
        )
    product = evidence.smi_product or board_product(evidence.board_name)
    if "200i pro" in (product or "").lower():
        return _Verdict(RC_MODULE, product)
    if product:
        return _unknown(
            "The system on chip is a {0}, not an Atlas 200I Pro; which devices and files it needs is not "
            "documented.".format(product),
            "Set {0}: {1} if you know that the profile fits.".format(OVERRIDE, RC_MODULE),
            product,
        )
    documented = all(name in evidence.nodes for name in RC_MODULE_NODES) and set(evidence.rc_files) == set(RC_FILES)
    if documented and not evidence.smi_answers:
        return _Verdict(RC_MODULE, None)
    return _unknown(
        "Nodes and files are those of a system on chip (RC mode), but neither DMI nor npu-smi names its product.",
        "If it is an Atlas 200I Pro set {0}: {1}.".format(OVERRIDE, RC_MODULE),
    )


# -- no NPUs in sight ------------------------------------------------------------------------------------------------


def _without_npus(evidence: Evidence) -> _Verdict:
    """None, unless anything hints at NPUs that are only out of sight: then the host is not known."""
    made_for = evidence.package_generations
    if evidence.ub_bus and (evidence.package_ub or made_for == ("950",)):
        return _Verdict(UB, None)
    if evidence.architecture == "aarch64" and len(evidence.rc_files) > 1:
        if "200i pro" in (board_product(evidence.board_name) or "").lower():
            return _Verdict(RC_MODULE, evidence.board_name)
        return _unknown(
            "The files of a system on chip with an NPU are here ({0}), but there is no /dev/davinciN node.".format(
                ", ".join(evidence.rc_files)
            ),
            "Wait until the driver has created the nodes (some minutes after boot), or reinstall the driver.",
        )
    if evidence.resetting:
        return _unknown(
            "A PCI device shows the id 1000:02b2 at {0}, as an Ascend 310P does while its bus is reset; there is no "
            "other NPU and no /dev/davinciN node.".format(", ".join(evidence.resetting)),
            "Wait some minutes and run again; if it stays so, look at `dmesg` and restart the host.",
        )
    if evidence.smi_loads or evidence.driver_generations:
        shown = (
            "its driver lists chips" if evidence.driver_generations else "npu-smi shows chips or hangs in the driver"
        )
        return _unknown(
            "There is no NPU on the PCI bus and no /dev/davinciN node, but {0}{1}.".format(
                shown, _smi_words(set(evidence.smi_generations))
            ),
            "If this is a container or a copy without /sys and /dev, read the host itself; else look at `dmesg`.",
        )
    package = ""
    if evidence.package_status != "missing":
        package = " A driver package is installed below {0}{1}.".format(
            evidence.install_path, " (made for {0})".format(", ".join(made_for)) if made_for else ""
        )
    return _Verdict(
        NONE,
        None,
        [
            problem(
                "no_npu",
                "There is no Ascend NPU on this host: none on the PCI bus, no /dev/davinciN node.{0}".format(package),
                "Leave the host out of the inventory; if it has NPUs, check that they show in `lspci -d 19e5:`.",
            )
        ],
    )


# -- words -----------------------------------------------------------------------------------------------------------


def _unknown(message: str, remedy: str, product: Optional[str] = None) -> _Verdict:
    return _Verdict(UNKNOWN, product, [problem("unknown_npu", message, remedy)])


def _unsupported(message: str, product: Optional[str] = None) -> _Verdict:
    return _Verdict(UNSUPPORTED, product, [problem("unsupported_npu", message, SUPPORTED)])


def _conflict(first: str, second: str) -> _Verdict:
    return _Verdict(
        UNKNOWN,
        None,
        [
            problem(
                "conflicting_evidence",
                "The sources contradict each other: {0}, but {1}.".format(first, second),
                "Check the hardware and the driver; set {0} if you know the family.".format(OVERRIDE),
            )
        ],
    )


def _suggested(named: Set[str]) -> str:
    """`: atlas_a2`, where the names of npu-smi leave one family."""
    families = [FAMILIES.get(generation) for generation in named]
    return ": {0}".format(families[0]) if len(families) == 1 and families[0] else ""


def _smi_words(named: Set[str]) -> str:
    return " (npu-smi names {0})".format(", ".join(sorted(named))) if named else ""
