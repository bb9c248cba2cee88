"""The decision: evidence in, family, product and problems out; what is not proven is unknown."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.vllm_ascend.fleet.plugins.module_utils.detection import FAMILY_PROBLEMS, decide, needs_product
from ansible_collections.vllm_ascend.fleet.plugins.module_utils.npu_evidence import RC_FILES, Evidence
from ansible_collections.vllm_ascend.fleet.plugins.module_utils.pci import PciFunction

DRIVER = "devdrv_device_driver"
SOC = Evidence(
    nodes=("davinci0", "davinci_manager", "ascend_manager", "user_config"),
    architecture="aarch64",
    rc_files=RC_FILES,
    package_status="installed",
    install_path="/usr/local/Ascend",
    smi_answers=True,
    smi_generations=("310P",),
    smi_product="Atlas 200I Pro",
)


def pci(device, subsystem="3004", subvendor="19e5", vendor="19e5", driver=DRIVER, address="0000:81:00.0"):
    return PciFunction(address, vendor, device, subvendor, subsystem, driver)


def card(*functions, **changes):
    values: dict[str, Any] = {
        "pci": functions,
        "nodes": tuple(f"davinci{n}" for n in range(len(functions))),
        "package_status": "installed",
        "install_path": "/usr/local/Ascend",
    }
    values.update(changes)
    return Evidence(**values)


def codes(decision):
    return [problem["code"] for problem in decision.problems]


def words(decision):
    return " ".join(problem["message"] + " " + problem["remedy"] for problem in decision.problems)


@pytest.mark.parametrize(
    ("function", "family", "product"),
    [
        (pci("d802"), "atlas_a2", "Atlas 800I A2"),
        (pci("d802", "9999", "beef", vendor="203f"), "atlas_a2", None),
        (pci("d803", "3003"), "atlas_a3", "Atlas 800I A3"),
        (pci("d500", "0110", "0200"), "atlas_300i_duo", "Atlas 300I Duo"),
        (pci("d500", "0110", "20c6", vendor="20c6"), "atlas_300i_duo", "Atlas 300I Duo"),
        (pci("d806", "4004"), "atlas_950dt", "Atlas 350"),
        (pci("d806", "7777"), "atlas_950dt", None),
    ],
)
def test_the_pci_id_alone_decides(function, family, product):
    decision = decide(card(function))
    assert (decision.family, decision.product, decision.problems) == (family, product, [])
    assert decision.evidence[0]["source"] == "pci"
    assert decision.evidence[0]["implies"] == family


@pytest.mark.parametrize("device", ["d100", "d105", "d107", "d801", "d807", "d808"])
def test_unsupported_chips_are_named(device):
    decision = decide(card(pci(device)))
    assert (decision.family, codes(decision)) == ("unsupported", ["unsupported_npu"])
    assert device in words(decision)
    assert "Atlas 300I Duo" in words(decision)


def test_first_generation_910_that_prints_910b():
    assert decide(card(pci("d801"), smi_generations=("910",))).family == "unsupported"


@pytest.mark.parametrize(
    ("named", "family"), [((), "unknown"), (("910B",), "atlas_a2"), (("910_93",), "atlas_a3"), (("310P",), "unknown")]
)
def test_a_virtual_npu_needs_its_name(named, family):
    assert decide(card(pci("d805"), smi_generations=named)).family == family


def test_an_id_with_an_unproven_product_needs_npu_smi():
    assert decide(card(pci("d804"))).family == "unknown"
    assert decide(card(pci("d804"), smi_generations=("910B",))).family == "atlas_a2"


def test_a_newer_npu_is_unknown_with_its_id():
    decision = decide(card(pci("d80f"), smi_generations=("910B",)))
    assert (decision.family, codes(decision)) == ("unknown", ["unknown_npu"])
    assert "d80f" in words(decision)


def test_mixed_generations_list_each_address():
    decision = decide(card(pci("d802"), pci("d500", "0110", "0200", address="0000:01:00.0")))
    assert (decision.family, codes(decision)) == ("unknown", ["mixed_npus"])
    assert "0000:81:00.0" in words(decision)
    assert "0000:01:00.0" in words(decision)


def test_pci_and_npu_smi_that_disagree_are_both_told():
    decision = decide(card(pci("d802"), smi_generations=("910_93",)))
    assert (decision.family, codes(decision)) == ("unknown", ["conflicting_evidence"])
    assert "d802" in words(decision)
    assert "910_93" in words(decision)


@pytest.mark.parametrize(
    "changes",
    [
        {"smi_generations": ("310P", "910B")},
        {"driver_generations": (("310P",),)},
        {"ub_bus": True},
        {"architecture": "aarch64", "rc_files": RC_FILES, "nodes": ("davinci0", "davinci1", "user_config")},
    ],
    ids=["npu-smi names more", "the driver has others", "a UB bus", "a system on chip of its own"],
)
def test_what_is_not_on_the_pci_bus_is_not_overlooked(changes):
    decision = decide(card(pci("d802"), **changes))
    assert (decision.family, codes(decision)) == ("unknown", ["conflicting_evidence"])
    assert "d802" in words(decision)


@pytest.mark.parametrize(
    "changes",
    [
        {"driver_generations": (("910B", "910_93"),)},
        {"architecture": "aarch64", "rc_files": RC_FILES, "nodes": ("davinci0", "user_config")},
        {"package_ub": True},
    ],
    ids=["one of the driver's kinds", "files of a system on chip alone", "a package for several buses"],
)
def test_what_the_pci_bus_accounts_for_is_no_conflict(changes):
    assert (decide(card(pci("d802"), **changes)).family, codes(decide(card(pci("d802"), **changes)))) == (
        "atlas_a2",
        [],
    )


def test_a_driver_for_other_chips_is_a_problem_of_a_known_family():
    decision = decide(card(pci("d802"), package_generations=("910_93",)))
    assert (decision.family, codes(decision)) == ("atlas_a2", ["driver_mismatch"])
    assert decide(card(pci("d802"), package_generations=("910B", "910_93"))).problems == []


@pytest.mark.parametrize(
    ("product", "family"),
    [
        (None, "unknown"), ("Atlas 300I Pro", "unknown"), ("Atlas 200I Pro", "unknown"),
        ("Atlas 300I Duo", "atlas_300i_duo"),
    ],
)  # fmt: skip
def test_a_310p_card_of_another_product(product, family):
    """A 200I Pro in EP mode is a card too: the profile follows the mode, not the product."""
    evidence = card(pci("d500", "0100", "0200"), smi_product=product)
    decision = decide(evidence)
    assert needs_product(evidence)
    assert (decision.family, decision.product) == (family, product)
    if family == "unknown":
        assert "vllm_hardware_family: atlas_300i_duo" in words(decision)
        assert product is None or product in words(decision)


def test_duo_beside_another_310p_card_is_unknown():
    decision = decide(card(pci("d500", "0110", "0200"), pci("d500", "0100", "0200", address="0000:02:00.0")))
    assert (decision.family, codes(decision)) == ("unknown", ["unknown_npu"])


@pytest.mark.parametrize("function", [pci("d802"), pci("d500", "0110", "0200"), pci("d806")])
def test_the_product_is_not_asked_for_without_need(function):
    assert not needs_product(card(function))


# -- without PCI -------------------------------------------------------------------------------------------------------


def test_rc_module():
    decision = decide(SOC)
    assert needs_product(SOC)
    assert (decision.family, decision.product, decision.problems) == ("atlas_200i_pro", "Atlas 200I Pro", [])


@pytest.mark.parametrize("architecture", ["x86_64", None])
def test_rc_needs_a_proven_aarch64(architecture):
    assert decide(SOC._replace(architecture=architecture)).family == "unknown"


@pytest.mark.parametrize(
    "changes",
    [
        {"nodes": ("davinci0", "davinci_manager")},
        {"rc_files": ()},
        {"smi_product": None},
        {"smi_product": "Atlas 200I SoC A1"},
        {"smi_product": None, "board_name": "Atlas 200I SoC A1"},
        {"smi_product": None, "smi_answers": False, "rc_files": RC_FILES[:1]},
        {"smi_product": None, "smi_answers": False, "nodes": ("davinci0", "svm0")},
    ],
)
def test_half_of_the_rc_evidence_is_unknown(changes):
    decision = decide(SOC._replace(**changes))
    assert (decision.family, codes(decision)) == ("unknown", ["unknown_npu"])


@pytest.mark.parametrize(
    "changes",
    [
        {"smi_product": None, "board_name": "Atlas 200I Pro"},
        {"smi_product": None, "smi_answers": False, "smi_generations": ()},
        {"rc_files": RC_FILES[:1]},
        {"smi_product": "Atlas 200I Pro", "board_name": "Atlas 200I SoC A1"},
    ],
)
def test_other_proofs_of_the_200i_pro(changes):
    """DMI; the documented set while npu-smi cannot be asked; npu-smi's product goes before DMI."""
    assert decide(SOC._replace(**changes)).family == "atlas_200i_pro"


def test_rc_signs_with_chips_of_another_generation():
    assert codes(decide(SOC._replace(smi_generations=("910B",)))) == ["conflicting_evidence"]


@pytest.mark.parametrize("node", ["pngd", "acodec", "davinci_manager_docker"])
def test_310b_nodes(node):
    decision = decide(SOC._replace(nodes=(*SOC.nodes, node)))
    assert (decision.family, codes(decision)) == ("unsupported", ["unsupported_npu"])
    assert "/dev/" + node in words(decision)


def test_310b_by_name():
    assert decide(SOC._replace(smi_generations=("310B",))).family == "unsupported"


def test_a_node_that_both_may_have_is_no_310b():
    assert decide(SOC._replace(nodes=(*SOC.nodes, "venc", "svm0"))).family == "atlas_200i_pro"


@pytest.mark.parametrize(
    "changes",
    [{"ub_bus": True}, {"package_generations": ("950",)}, {"package_ub": True}, {"smi_generations": ("950",)}],
)
def test_950_on_the_ub_bus(changes):
    evidence = Evidence(nodes=("davinci0",), package_status="installed")._replace(**changes)
    assert (decide(evidence).family, decide(evidence).problems) == ("atlas_950dt", [])


def test_the_driver_s_own_list_shows_a_950():
    evidence = Evidence(nodes=("davinci0",), package_status="installed", driver_generations=(("950",),))
    assert decide(evidence).family == "atlas_950dt"
    other = evidence._replace(ub_bus=True, driver_generations=(("910B", "910_93"),))
    assert codes(decide(other)) == ["conflicting_evidence"]


def test_ub_bus_and_other_chips():
    evidence = Evidence(nodes=("davinci0",), package_status="installed", ub_bus=True, smi_generations=("910B",))
    assert codes(decide(evidence)) == ["conflicting_evidence"]


def test_nodes_alone_prove_nothing():
    decision = decide(Evidence(nodes=("davinci0",), package_status="installed", smi_generations=("910B",)))
    assert (decision.family, codes(decision)) == ("unknown", ["unknown_npu"])
    assert "910B" in words(decision)


def test_nothing_at_all():
    decision = decide(Evidence())
    assert (decision.family, codes(decision), decision.evidence) == ("none", ["no_npu"], [])


@pytest.mark.parametrize(
    "changes",
    [{"smi_loads": True}, {"driver_generations": (("310P",),)}, {"resetting": ("0000:01:00.0",)}],
    ids=["npu-smi shows chips or hangs", "the driver lists chips", "a bus is being reset"],
)
def test_npus_that_are_out_of_sight_are_not_none(changes):
    decision = decide(Evidence(**changes))
    assert decision.family == "unknown"
    assert "unknown_npu" in codes(decision)


def test_a_driver_with_other_chips_than_the_system_on_chip():
    assert codes(decide(SOC._replace(driver_generations=(("310B",),)))) == ["conflicting_evidence"]
    assert decide(SOC._replace(driver_generations=(("310P",),))).family == "atlas_200i_pro"


def test_a_package_without_npus_is_none_and_told():
    decision = decide(
        Evidence(package_status="installed", package_generations=("910B",), install_path="/usr/local/Ascend")
    )
    assert decision.family == "none"
    assert "/usr/local/Ascend" in words(decision)


# -- the driver's state ------------------------------------------------------------------------------------------------


def test_no_driver_keeps_the_family():
    decision = decide(Evidence(pci=(pci("d802", driver=None),)))
    assert (decision.family, codes(decision)) == ("atlas_a2", ["no_driver", "driver_package_missing"])


def test_bound_driver_without_nodes():
    decision = decide(card(pci("d802"), nodes=(), uptime_s=100000))
    assert (decision.family, codes(decision)) == ("atlas_a2", ["device_nodes_missing"])
    assert "still be starting" not in words(decision)
    assert "still be starting" in words(decide(card(pci("d802"), nodes=(), uptime_s=90)))


def test_nodes_without_a_driver_link_are_no_problem():
    """Some kernels of containers hide the link; the nodes prove the driver."""
    assert decide(card(pci("d802", driver=None))).problems == []


def test_a_container_without_nodes_is_told_how_to_get_them():
    decision = decide(card(pci("d802"), nodes=(), container=True))
    assert codes(decision) == ["device_nodes_missing"]
    assert "container" in words(decision) and "--device" in words(decision)


def test_a_package_that_is_only_partly_there():
    decision = decide(
        card(pci("d802"), package_status="incomplete", package_incomplete="/usr/local/Ascend/driver/lib64")
    )
    assert codes(decision) == ["driver_install_incomplete"]
    assert "/usr/local/Ascend/driver/lib64" in words(decision)


def test_unfinished_installation():
    decision = decide(card(pci("d802"), package_status="incomplete", install_status="failed"))
    assert codes(decision) == ["driver_install_incomplete"]
    assert "'failed'" in words(decision)


def test_all_npus_given_to_virtual_machines():
    decision = decide(Evidence(pci=(pci("d802", driver="vfio-pci"),)))
    assert (decision.family, codes(decision)) == ("atlas_a2", ["npu_passthrough"])


@pytest.mark.parametrize("driver", ["hisi-acc-vfio-pci", "pci-stub"])
def test_other_drivers_that_give_an_npu_away(driver):
    decision = decide(Evidence(pci=(pci("d802", driver=driver),)))
    assert codes(decision) == ["npu_passthrough"]
    assert driver in words(decision)


def test_npus_given_away_do_not_count():
    own = pci("d500", "0110", "0200", address="0000:01:00.0")
    decision = decide(card(own, pci("d802", driver="vfio-pci")))
    assert (decision.family, decision.problems) == ("atlas_300i_duo", [])


def test_950_whose_nodes_are_not_there_yet():
    decision = decide(Evidence(ub_bus=True, package_ub=True, package_status="installed", uptime_s=30))
    assert (decision.family, codes(decision)) == ("atlas_950dt", ["device_nodes_missing"])


def test_soc_whose_nodes_are_not_there_yet():
    decision = decide(SOC._replace(nodes=(), smi_answers=False, smi_product=None, smi_generations=()))
    assert decision.family == "unknown"
    assert "device_nodes_missing" in codes(decision)
    named = decide(SOC._replace(nodes=(), board_name="Atlas 200I Pro", smi_product=None))
    assert (named.family, codes(named)) == ("atlas_200i_pro", ["device_nodes_missing"])


def test_unknown_families_always_have_a_problem_that_an_override_answers():
    for evidence in (Evidence(), SOC._replace(smi_product=None), card(pci("d80f")), card(pci("d100"))):
        assert set(codes(decide(evidence))) & set(FAMILY_PROBLEMS)
