"""What a plan expects a deep verification to see."""

from __future__ import annotations

import pytest
from ansible_collections.vllm_ascend.fleet.plugins.plugin_utils.plan import deployment_plan
from ansible_collections.vllm_ascend.fleet.tests.unit.support.facts_builder import (
    add_several_paths,
    build_facts,
    case_of,
    shipped_profiles,
    shipped_rules,
)

TYPES = {"atlas_a2": "A2", "atlas_a3": "A3", "atlas_300i_duo": "_310P", "atlas_200i_pro": "_310P", "atlas_950dt": "A5"}


def planned(family="atlas_a2", image_os="ubuntu", rules=True, facts=None, **settings):
    facts = facts or build_facts(case_of(family, image_os))
    plan = deployment_plan(facts, settings, shipped_profiles(), None, shipped_rules() if rules else None)
    assert plan["problems"] == []
    return plan["instances"][0]


def expected(*family, **more):
    return planned(*family, **more)["verification"]["expect"]


@pytest.mark.parametrize("family", sorted(TYPES))
def test_each_family_has_its_device_type_count_and_contents(family):
    expect = expected(family)
    nodes = 2 if family == "atlas_a3" else 1
    assert (expect["device_type"], expect["count"], len(expect["npus"])) == (TYPES[family], nodes, nodes)
    assert expect["exact"] is (family != "atlas_200i_pro")
    assert (expect["release"], expect["cann"], expect["versions"]["vllm"]) == ("v0.23.0", "9.1.0", "0.23.0")


def test_310p_images_of_a_release_may_hold_another_cann():
    assert expected("atlas_300i_duo", vllm_ascend_version="v0.22.1rc1")["cann"] == "9.1.0-beta.1"


def test_drivers_are_those_of_the_family():
    works = {family: expected(family)["drivers"][0]["works"] for family in ("atlas_a2", "atlas_950dt")}
    assert "25.6" in works["atlas_950dt"] and "25.6" not in works["atlas_a2"]
    assert expected("atlas_a2")["drivers"][0]["source"].startswith("CANN 9.1.0 release notes")


def test_what_an_own_image_holds_is_not_known():
    expect = expected(vllm_image="registry.example/mine:1")
    assert (expect["release"], expect["cann"], expect["versions"], expect["device_type"]) == (None, None, {}, "A2")
    assert expect["drivers"]


def test_without_rules_only_the_hardware_is_expected():
    expect = expected(rules=False)
    assert (expect["device_type"], expect["drivers"], expect["cann"]) == ("A2", [], None)


def test_nodes_are_in_the_order_of_their_numbers():
    facts = build_facts(case_of("atlas_a2", "ubuntu"))
    node = facts["device_nodes"]["/dev/davinci0"]
    facts = add_several_paths(facts)
    facts["device_nodes"].update({"/dev/davinci10": dict(node), "/dev/davinci9": dict(node)})
    expect = expected(facts=facts, vllm_npus=["/dev/davinci10", "/dev/davinci9"])
    assert expect["npus"] == ["/dev/davinci9", "/dev/davinci10"]


def test_an_operator_who_limits_what_is_visible_is_not_counted_against():
    assert expected(vllm_environment={"ASCEND_RT_VISIBLE_DEVICES": "0"})["count"] is None


def test_an_accepted_driver_does_not_fail_the_verification():
    assert expected(vllm_accept_problems=["driver_known_bad"])["bad_driver_accepted"] is True


def test_the_level_is_in_the_plan_and_changes_nothing_else():
    plain, deep = planned(), planned(vllm_verify_level="deep")
    assert (plain["verification"].pop("level"), deep["verification"].pop("level")) == ("documented", "deep")
    assert plain == deep


def test_a_level_that_does_not_exist_is_a_problem():
    facts = build_facts(case_of("atlas_a2", "ubuntu"))
    (problem,) = deployment_plan(facts, {"vllm_verify_level": "depp"}, shipped_profiles())["problems"]
    assert problem["code"] == "setting_invalid" and '"deep"' in problem["message"].replace("'", '"')
