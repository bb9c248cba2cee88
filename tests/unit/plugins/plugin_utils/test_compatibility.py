"""Release, family, system, machine and driver together."""

from __future__ import annotations

import pytest
from ansible_collections.vllm_ascend.fleet.plugins.plugin_utils.compatibility import (
    Target,
    cann_of,
    check_compatibility,
)
from ansible_collections.vllm_ascend.fleet.plugins.plugin_utils.plain import Findings
from ansible_collections.vllm_ascend.fleet.plugins.plugin_utils.plan import deployment_plan
from ansible_collections.vllm_ascend.fleet.tests.unit.support.facts_builder import (
    build_facts,
    case_of,
    shipped_profiles,
    shipped_rules,
)

RULES = shipped_rules()
SUFFIX = {"atlas_a2": None, "atlas_a3": "a3", "atlas_950dt": "a5", "atlas_300i_duo": "310p", "atlas_200i_pro": "310p"}


def target(tag="v0.23.0", family="atlas_a2", image_os="ubuntu", architecture="aarch64", driver="25.5.1"):
    return Target(tag, family, family, SUFFIX[family], image_os, architecture, driver)


def look(**change):
    findings = Findings()
    check_compatibility(RULES["releases"], target(**change), findings)
    return findings


@pytest.mark.parametrize("family", sorted(SUFFIX))
@pytest.mark.parametrize("driver", ["25.5.1", "26.0.rc1", "26.1.0", None])
def test_the_default_release_with_a_driver_of_its_time_is_not_mentioned(family, driver):
    findings = look(family=family, driver=driver)
    assert findings.problems == findings.warnings == []


@pytest.mark.parametrize(
    ("change", "source"),
    [
        ({"tag": "v0.21.0rc1", "family": "atlas_300i_duo"}, "issue 8186"),
        ({"tag": "v0.21.0rc1", "family": "atlas_200i_pro"}, "issue 8186"),
        ({"tag": "v0.13.0rc2", "family": "atlas_a3"}, "issue 6242"),
        ({"tag": "v0.14.0rc1", "architecture": "x86_64"}, "issue 6370"),
        ({"tag": "v0.14.0rc1", "family": "atlas_950dt"}, "issue 13086"),
        ({"tag": "v0.8.4rc1", "image_os": "openeuler"}, "issue 895"),
    ],
)
def test_an_image_that_is_reported_not_to_start_is_a_problem(change, source):
    (problem,) = [p for p in look(**change).problems if p["code"] == "release_known_bad"]
    assert source in problem["remedy"]
    assert "vllm_accept_problems: [release_known_bad]" in problem["remedy"]


@pytest.mark.parametrize(
    ("change", "source"),
    [
        ({"tag": "v0.17.0rc1", "family": "atlas_300i_duo"}, "issue 7423"),
        ({"tag": "v0.13.0rc2", "image_os": "openeuler"}, "issue 6271"),
        ({"tag": "v0.18.0", "architecture": "x86_64"}, "issue 7993"),
    ],
)
def test_an_image_that_fails_for_some_is_a_warning(change, source):
    findings = look(**change)
    assert findings.problems == []
    (warning,) = findings.warnings
    assert warning["code"] == "release_reported"
    assert source in warning["remedy"]


@pytest.mark.parametrize(
    "change",
    [
        {"tag": "v0.20.2rc1", "family": "atlas_300i_duo"},
        {"tag": "v0.21.0rc1", "family": "atlas_a2"},
        {"tag": "v0.13.0rc2"},
        {"tag": "v0.14.0rc1", "architecture": "aarch64"},
        {"tag": "v0.14.0rc1", "architecture": None},
    ],
)
def test_its_neighbours_are_not_mentioned(change):
    findings = look(**change)
    assert findings.problems == findings.warnings == []


@pytest.mark.parametrize(
    ("tag", "family", "cann"),
    [
        ("v0.23.0", "atlas_a2", "9.1.0"),
        ("v0.22.1rc1", "atlas_a2", "9.0.0"),
        ("v0.22.1rc1", "atlas_300i_duo", "9.1.0-beta.1"),
        ("v0.23.0.post1", "atlas_a2", "9.1.0"),
        ("v0.99.0", "atlas_a2", "9.1.0"),
        ("v0.13.0", "atlas_a3", "8.5.0"),
    ],
)
def test_the_cann_of_an_image(tag, family, cann):
    assert cann_of(RULES["releases"], target(tag, family))[0] == cann


@pytest.mark.parametrize("tag", ["nightly-main", "v0.1.0"])
def test_the_cann_of_what_is_not_listed_is_not_known(tag):
    assert cann_of(RULES["releases"], target(tag)) is None
    assert look(tag=tag, driver="1.0").warnings == []


@pytest.mark.parametrize(
    ("tag", "family", "driver", "code"),
    [
        # CANN 9.1.0 release notes: HDK 25.0.X is not compatible, with CANN 9.0 and 8.5 it is.
        ("v0.23.0", "atlas_a2", "25.0.rc1.1", "driver_known_bad"),
        ("v0.22.1rc1", "atlas_a2", "25.0.rc1.1", None),
        ("v0.18.0", "atlas_a2", "25.0.rc1.1", None),
        ("v0.22.1rc1", "atlas_300i_duo", "25.0.rc1.1", "driver_known_bad"),
        ("v0.23.0", "atlas_300i_duo", "24.1.rc2", "driver_unlisted"),
        ("v0.23.0", "atlas_a2", "31.2.0", "driver_unlisted"),
        ("v0.23.0", "atlas_950dt", "25.6.rc1.b143", None),
        ("v0.23.0", "atlas_a2", "25.6.rc1", "driver_unlisted"),
        ("v0.10.0rc1", "atlas_a2", "24.1.rc3", None),
        ("v0.12.0rc1", "atlas_a2", "25.2.0", "driver_unlisted"),
        ("v0.23.0", "atlas_a2", "unreadable", None),
    ],
)
def test_drivers(tag, family, driver, code):
    findings = look(tag=tag, family=family, driver=driver)
    found = [*findings.problems, *(w for w in findings.warnings if w["code"] != "driver_limits_graphs")]
    assert [finding["code"] for finding in found] == ([code] if code else [])
    assert [p["code"] for p in findings.problems] == (["driver_known_bad"] if code == "driver_known_bad" else [])
    for finding in found:
        assert driver in finding["message"]


def test_a_driver_older_than_all_that_are_listed_is_called_so():
    (warning,) = look(family="atlas_300i_duo", driver="23.0.7").warnings
    assert "it is older than all of them" in warning["message"]


@pytest.mark.parametrize(
    ("tag", "family", "driver", "limited"),
    [
        ("v0.23.0", "atlas_a2", "25.5.0", True),
        ("v0.23.0", "atlas_a3", "25.3.rc1", True),
        ("v0.23.0", "atlas_a2", "25.5.1", False),
        ("v0.20.2rc1", "atlas_a2", "25.5.0", False),
        ("v0.23.0", "atlas_300i_duo", "25.5.0", False),
    ],
)
def test_a_driver_with_few_streams_is_a_warning(tag, family, driver, limited):
    codes = [warning["code"] for warning in look(tag=tag, family=family, driver=driver).warnings]
    assert codes == (["driver_limits_graphs"] if limited else [])


def plan_of(family, driver="25.5.1", rules=RULES, **settings):
    facts = build_facts(case_of(family))
    facts["driver"].update(version=driver)
    given = {"vllm_model_cache": "/srv/model-cache", **settings}
    return deployment_plan(facts, given, shipped_profiles(), None, rules)


def test_a_known_bad_release_stops_the_plan_unless_it_is_accepted():
    (problem,) = plan_of("atlas_300i_duo", vllm_ascend_version="v0.21.0rc1")["problems"]
    assert problem["code"] == "release_known_bad"
    accepted = {"vllm_ascend_version": "v0.21.0rc1", "vllm_accept_problems": ["release_known_bad"]}
    plan = plan_of("atlas_300i_duo", **accepted)
    assert plan["problems"] == []
    assert "release_known_bad" in [warning["code"] for warning in plan["warnings"]]


def test_the_driver_that_runs_counts_before_the_one_on_the_disk():
    facts = build_facts(case_of("atlas_a2"))
    facts["driver"].update(version="25.5.1", loaded_version="25.0.rc1")
    plan = deployment_plan(facts, {"vllm_model_cache": "/srv/model-cache"}, shipped_profiles(), None, RULES)
    assert [problem["code"] for problem in plan["problems"]] == ["driver_known_bad"]


def test_an_own_image_and_a_plan_without_rules_are_not_compared():
    own = plan_of("atlas_300i_duo", driver="25.0.rc1", vllm_image="quay.io/ascend/vllm-ascend:v0.21.0rc1-310p")
    bare = plan_of("atlas_300i_duo", driver="25.0.rc1", rules=None, vllm_ascend_version="v0.21.0rc1")
    assert own["problems"] == bare["problems"] == []


def test_a_release_newer_than_the_data_takes_the_newest_rules():
    plan = plan_of("atlas_a2", driver="25.0.rc1", vllm_ascend_version="v0.99.0")
    assert "release_newer_than_data" in [warning["code"] for warning in plan["warnings"]]
    assert [problem["code"] for problem in plan["problems"]] == ["driver_known_bad"]
