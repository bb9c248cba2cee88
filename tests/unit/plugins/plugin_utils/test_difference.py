# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is to be done on a host, and why."""

from __future__ import annotations

import copy

import pytest
from ansible_collections.vllm_ascend.fleet.plugins.plugin_utils.difference import deployment_difference
from ansible_collections.vllm_ascend.fleet.plugins.plugin_utils.plan import deployment_plan
from ansible_collections.vllm_ascend.fleet.tests.unit.support.facts_builder import (
    build_facts,
    build_observed,
    case_of,
    foreign,
    observed_image,
    observed_instance,
    shipped_profiles,
)

REFERENCE = "quay.io/ascend/vllm-ascend:v0.23.0"


HELPER = {"path": "/usr/local/libexec/vllm-ascend/host.py", "version": "1", "digest": "a" * 64}


def plan_of(**settings):
    return deployment_plan(build_facts(case_of("atlas_a2"), npus=2), settings, shipped_profiles())


PLAN = plan_of(vllm_api_key="k")


def settled(plan=PLAN, **changes):
    """A host where the plan was carried out, but for the changes of its instance."""
    instances = [observed_instance(plan["instances"][0], **changes)]
    return build_observed(instances=instances, images=[observed_image(REFERENCE)], helper=HELPER)


def only(difference):
    (instance,) = difference["instances"]
    return instance["action"], [(r["field"], r["before"], r["after"]) for r in instance["reasons"]]


def test_nothing_to_do():
    difference = deployment_difference(PLAN, settled(), HELPER["digest"])
    assert difference == {
        "changed": False,
        "image": {"action": "none", "reason": "the host has it", "id": "sha256:1"},
        "instances": [{"name": "ascend", "action": "none", "reasons": []}],
        "orphans": [],
        "helper": False,
    }


def test_without_an_observation_everything_is_to_be_done():
    difference = deployment_difference(PLAN, None)
    assert difference["changed"]
    assert (difference["image"]["action"], difference["image"]["reason"]) == ("fetch", "not observed")
    assert only(difference) == ("create", [("unit", None, "not observed")])


def test_a_fresh_host():
    difference = deployment_difference(PLAN, build_observed())
    assert (difference["image"]["action"], difference["image"]["id"]) == ("fetch", None)
    assert only(difference) == ("create", [("unit", None, "vllm-ascend.service")])


def test_a_container_that_is_adopted_is_a_reason():
    action, reasons = only(deployment_difference(PLAN, build_observed(foreign=[foreign("vllm-ascend")])))
    assert action == "create" and reasons[1][0] == "container"


@pytest.mark.parametrize("journal", ["open", "running"])
def test_a_transaction_that_has_not_ended_is_recovered_first(journal):
    observed = settled(journal=journal, unit_digest=None, health="down")
    assert only(deployment_difference(PLAN, observed)) == ("recover", [("journal", journal, "done")])


def test_a_container_without_a_unit_is_created_anew():
    assert only(deployment_difference(PLAN, settled(unit_digest=None)))[0] == "create"


@pytest.mark.parametrize(
    ("settings", "fields"),
    [
        ({"vllm_port": 8001}, ["container.published_ports"]),
        ({"vllm_extra_args": ["--seed", "1"]}, ["serve_args"]),
        ({"vllm_stop_timeout": 90}, ["timeouts.stop_s"]),
        ({"vllm_npus": ["/dev/davinci1"]}, ["container.devices"]),
        ({"vllm_environment": {"A": "1"}}, ["container.environment"]),
        ({"vllm_ascend_version": "v0.22.1rc1"}, ["container.image"]),
    ],
)
def test_a_changed_plan_is_an_update_field_by_field(settings, fields):
    after = plan_of(vllm_api_key="k", **settings)
    action, reasons = only(deployment_difference(after, settled()))
    assert (action, [reason[0] for reason in reasons]) == ("update", fields)
    assert all(before != changed for _field, before, changed in reasons)


def test_a_changed_plan_without_a_committed_one_names_the_hashes():
    observed = settled(plan_hash="0" * 16)
    observed["instances"][0]["plan"] = None
    action, reasons = only(deployment_difference(PLAN, observed))
    assert (action, reasons) == ("update", [("plan", "0" * 16, PLAN["instances"][0]["plan_hash"])])


def test_a_unit_file_changed_by_hand_is_an_update():
    action, reasons = only(deployment_difference(PLAN, settled(unit_digest="f" * 64)))
    assert (action, reasons[0][0], len(reasons)) == ("update", "unit file", 1)


def test_a_moved_tag_is_an_update():
    action, reasons = only(deployment_difference(PLAN, settled(image_id="sha256:0")))
    assert (action, reasons) == ("update", [("image id", "sha256:0", "sha256:1")])


@pytest.mark.parametrize(
    ("wanted", "found", "reason"),
    [
        ({"vllm_api_key": "new"}, {"vllm_api_key": "k"}, ("secret VLLM_API_KEY", "set", "changed")),
        ({"vllm_api_key": "k"}, {}, ("secret VLLM_API_KEY", None, "set")),
        ({}, {"vllm_api_key": "k"}, ("secret VLLM_API_KEY", "set", None)),
    ],
)
def test_a_changed_secret_is_an_update_that_shows_no_value(wanted, found, reason):
    after = plan_of(**wanted)
    action, reasons = only(deployment_difference(after, settled(plan_of(**found))))
    assert action == "update"
    assert [r for r in reasons if r[0].startswith("secret ")] == [reason]


def test_an_environment_file_changed_by_hand_is_an_update():
    secrets = [{"name": "VLLM_API_KEY", "digest": "0" * 64}]
    assert only(deployment_difference(PLAN, settled(secrets=secrets))) == (
        "update",
        [("secret VLLM_API_KEY", "set", "changed")],
    )


@pytest.mark.parametrize(("key", "field"), [("plan_hash", "running plan"), ("image_id", "running image")])
def test_a_container_of_another_plan_or_image_is_an_update(key, field):
    observed = settled()
    observed["instances"][0]["container"][key] = "other"
    action, reasons = only(deployment_difference(PLAN, observed))
    assert (action, [reason[0] for reason in reasons]) == ("update", [field])


@pytest.mark.parametrize(
    ("changes", "reasons"),
    [
        ({"active_state": "inactive", "health": "down", "container": None}, [("active", "inactive", "active")]),
        ({"active_state": "failed", "health": "down"}, [("active", "failed", "active")]),
        ({"active_state": "activating", "health": "loading"}, [("active", "activating", "active")]),
        ({"unit_file_state": "disabled"}, [("enabled", "disabled", "enabled")]),
        (
            {"active_state": "inactive", "unit_file_state": "disabled"},
            [("active", "inactive", "active"), ("enabled", "disabled", "enabled")],
        ),
    ],
)
def test_a_stopped_or_disabled_service_is_started(changes, reasons):
    assert only(deployment_difference(PLAN, settled(**changes))) == ("start", reasons)


@pytest.mark.parametrize("health", ["unhealthy", "down", "loading"])
def test_an_active_service_that_does_not_answer_is_repaired(health):
    observed = settled(health=health, health_detail="/health: HTTP 503")
    assert only(deployment_difference(PLAN, observed)) == (
        "repair",
        [("health", f"{health}: /health: HTTP 503", "serving")],
    )


def test_an_endpoint_that_was_not_asked_is_no_fault():
    assert not deployment_difference(PLAN, settled(health="unknown"))["changed"]


@pytest.mark.parametrize(
    ("settings", "image", "action", "part"),
    [
        ({"vllm_image_pull": "always"}, {}, "refresh", "always"),
        ({}, {"architecture": "amd64"}, "fetch", "amd64"),
        ({}, {"references": ["quay.io/ascend/vllm-ascend:v0.22.1rc1"]}, "fetch", "no image"),
        ({"vllm_image_digest": "sha256:" + "a" * 64}, {}, "fetch", "sha256:" + "a" * 64),
        ({"vllm_image_digest": "sha256:" + "a" * 64}, {"digests": ["m.io/x@sha256:" + "a" * 64]}, "none", "has it"),
    ],
)
def test_the_image(settings, image, action, part):
    plan = plan_of(**settings)
    observed = build_observed(images=[observed_image(REFERENCE, **image)])
    found = deployment_difference(plan, observed)["image"]
    assert found["action"] == action
    assert part in found["reason"]


def test_an_image_to_refresh_is_something_to_do():
    plan = plan_of(vllm_api_key="k", vllm_image_pull="always")
    difference = deployment_difference(plan, settled(plan))
    assert (difference["changed"], only(difference)) == (True, ("none", []))


def test_an_instance_that_nobody_wants_is_an_orphan_and_no_change():
    observed = settled()
    observed["instances"].append({**copy.deepcopy(observed["instances"][0]), "name": "old"})
    difference = deployment_difference(PLAN, observed)
    assert (difference["orphans"], difference["changed"]) == (["old"], False)


def test_a_plan_with_problems_makes_no_orphans():
    plan = {**PLAN, "problems": [{"code": "x", "message": "x", "remedy": "x"}], "instances": [], "image": None}
    difference = deployment_difference(plan, settled())
    assert (difference["orphans"], difference["changed"], difference["instances"]) == ([], False, [])


@pytest.mark.parametrize(
    ("helper", "wanted", "expected"),
    [
        (HELPER, "a" * 64, False),
        (HELPER, "b" * 64, True),
        (None, "a" * 64, True),
        (None, None, True),
        # Nobody said which helper is wanted.
        (HELPER, None, None),
    ],
)
def test_a_missing_or_another_helper_is_a_difference_of_its_own(helper, wanted, expected):
    difference = deployment_difference(PLAN, {**settled(), "helper": helper}, wanted)
    assert (difference["helper"], difference["changed"]) == (expected, bool(expected))
    assert only(difference) == ("none", [])


def test_the_helper_without_an_observation_and_without_instances():
    assert deployment_difference(PLAN, None, "a" * 64)["helper"] is True
    empty = {**PLAN, "instances": []}
    assert deployment_difference(empty, {**settled(), "helper": None}, "a" * 64)["helper"] is False


def test_an_image_of_an_archive_is_known_by_its_id():
    plan = plan_of(vllm_image_archive="/srv/i.tar", vllm_image_digest="sha256:" + "a" * 64)
    there = observed_image(REFERENCE, "sha256:" + "a" * 64)
    assert deployment_difference(plan, build_observed(images=[there]))["image"]["action"] == "none"
    other = observed_image(REFERENCE, "sha256:" + "b" * 64)
    assert deployment_difference(plan, build_observed(images=[other]))["image"]["action"] == "fetch"


def test_an_own_image_with_tag_and_digest_is_found_on_the_host():
    digest = "sha256:" + "a" * 64
    plan = plan_of(vllm_image=f"hub.example/own:1@{digest}")
    there = observed_image("hub.example/own:1", digests=[f"hub.example/own@{digest}"])
    assert deployment_difference(plan, build_observed(images=[there]))["image"]["action"] == "none"


@pytest.mark.parametrize("arguments", [(None, None), ([], {}), ({}, []), ({}, {}, 5)])
def test_only_a_callers_error_is_raised(arguments):
    with pytest.raises(TypeError):
        deployment_difference(*arguments)
