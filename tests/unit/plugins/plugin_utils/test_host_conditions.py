# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Conditions of a host that are known to break a service: each is a problem or a warning with what to do."""

from __future__ import annotations

import copy

import pytest
from ansible_collections.vllm_ascend.fleet.plugins.plugin_utils.plan import deployment_plan
from ansible_collections.vllm_ascend.fleet.tests.unit.support.facts_builder import (
    build_facts,
    build_observed,
    case_of,
    observed_image,
    shipped_profiles,
)

REFERENCE = "quay.io/ascend/vllm-ascend:v0.23.0"


def plan_of(host=None, engine=None, images=(), **settings):
    facts, observed = build_facts(case_of("atlas_a2")), build_observed(images=list(images))
    facts["host"].update(host or {})
    observed["engine"].update(engine or {})
    return deployment_plan(facts, settings, shipped_profiles(), observed)


def codes(plan, kind):
    return [entry["code"] for entry in plan[kind] if entry["code"] != "endpoint_open"]


CONDITIONS = [
    # host, engine, settings, problems, warnings, words of the message or remedy
    ({}, {}, {}, [], [], []),
    # the engine's version
    ({}, {"version": "20.10.9"}, {}, [], ["engine_old", "engine_no_zstd"],
     ["20.10.9", "operation not permitted", "security_options: [seccomp=unconfined]"]),
    ({}, {"version": "20.10.10"}, {}, [], ["engine_no_zstd"], ["20.10.10", "invalid tar header", "vllm_image_archive"]),
    ({}, {"version": "22.99.0"}, {}, [], ["engine_no_zstd"], ["docker save"]),
    ({}, {"version": "23.0.0"}, {}, [], [], []),
    ({}, {"version": "20.10.24"}, {"vllm_image_archive": "/srv/i.tar"}, [], [], []),
    ({}, {"version": None}, {}, [], [], []),
    # its users and control groups
    ({}, {"rootless": True}, {}, ["engine_rootless"], [], ["rootless", "0660"]),
    ({}, {"userns_remap": True}, {}, ["engine_userns_remap"], [], ["userns-remap", "daemon.json"]),
    ({}, {"rootless": None, "userns_remap": None}, {}, [], [], []),
    ({}, {"cgroup_version": "2", "version": "19.03.15"}, {}, ["engine_no_cgroup2"], ["engine_old", "engine_no_zstd"],
     ["19.03.15", "control groups v2"]),
    ({}, {"cgroup_version": "2", "version": "20.10.24"}, {}, [], ["engine_no_zstd"], []),
    ({}, {"cgroup_version": "1", "version": "19.03.15"}, {}, [], ["engine_old", "engine_no_zstd"], []),
    ({}, {"rootless": True, "userns_remap": True, "cgroup_version": "2", "version": "19.03.15"}, {},
     ["engine_no_cgroup2", "engine_rootless", "engine_userns_remap"], ["engine_old", "engine_no_zstd"], []),
    # its runtimes
    ({}, {"default_runtime": "ascend", "runtimes": ["ascend", "runc"]}, {}, [], [], []),
    ({}, {"default_runtime": "ascend", "runtimes": ["ascend"]}, {}, ["runtime_missing"], [], ["no runc", "ascend"]),
    ({}, {"default_runtime": "ascend", "runtimes": None}, {}, [], [], []),
    ({}, {"default_runtime": "runc", "runtimes": ["io.containerd.runc.v2"]}, {}, [], [], []),
    # the system
    ({"page_size": 65536}, {}, {}, [], ["page_size"], ["65536", "jemalloc", "LD_PRELOAD"]),
    ({"selinux": "enforcing"}, {"security_options": ["name=seccomp", "name=selinux"]}, {}, [], ["selinux_enforcing"],
     ["may be denied", "security_options: [label=disable]"]),
    ({"selinux": "enforcing"}, {"security_options": None}, {}, [], ["selinux_enforcing"], ["label=disable"]),
    ({"selinux": "enforcing"}, {"security_options": ["name=seccomp"]}, {}, [], [], []),
    ({"selinux": "permissive"}, {"security_options": ["name=selinux"]}, {}, [], [], []),
    # room
    ({}, {"storage_free_mb": 19_999}, {}, ["disk_too_small"], [], ["19999 MB", "docker image prune"]),
    ({}, {"storage_free_mb": 19_999}, {"vllm_accept_problems": ["disk_too_small"]}, [], ["disk_too_small"], []),
    ({}, {"storage_free_mb": 20_000}, {}, [], ["disk_space_low"], ["20000 MB"]),
    ({}, {"storage_free_mb": 30_000}, {}, [], [], []),
    ({}, {"storage_free_mb": None}, {}, [], [], []),
    ({}, {"storage_free_mb": 100}, {"vllm_image": "hub.example/own:1"}, [],
     ["image_own", "disk_space_low", "npu_node_mode"], []),
]  # fmt: skip


@pytest.mark.parametrize(("host", "engine", "settings", "problems", "warnings", "words"), CONDITIONS)
def test_a_condition_is_named_with_what_to_do(host, engine, settings, problems, warnings, words):
    plan = plan_of(host, engine, **settings)
    assert codes(plan, "problems") == problems
    assert sorted(codes(plan, "warnings")) == sorted(warnings)
    text = " ".join(entry["message"] + " " + entry["remedy"] for entry in plan["problems"] + plan["warnings"])
    assert [word for word in words if word not in text] == []


def test_an_image_that_is_there_needs_neither_room_nor_a_new_engine():
    there = [observed_image(REFERENCE)]
    assert codes(plan_of(engine={"version": "20.10.24", "storage_free_mb": 100}, images=there), "warnings") == []


def test_the_runtime_is_runc_where_ascend_is_the_default():
    container = plan_of(engine={"default_runtime": "ascend"})["instances"][0]["container"]
    assert container["runtime"] == "runc"


def test_a_security_option_is_given_by_the_profile():
    changed = {"atlas_a2": {"security_options": ["seccomp=unconfined", "label=disable"]}}
    run = plan_of(vllm_hardware_profiles=changed)["instances"][0]["docker_run"]
    options = [run[place + 1] for place, word in enumerate(run) if word == "--security-opt"]
    assert options == ["seccomp=unconfined", "label=disable"]
    assert "--security-opt" not in plan_of()["instances"][0]["docker_run"]


@pytest.mark.parametrize(("mode", "warned"), [("0660", True), ("0664", True), ("0666", False), (None, False)])
def test_nodes_that_not_everybody_may_open_matter_to_an_image_of_ones_own(mode, warned):
    facts = build_facts(case_of("atlas_a2"))
    facts["device_nodes"]["/dev/davinci0"]["mode"] = mode
    plan = deployment_plan(facts, {"vllm_image": "hub.example/own:1"}, shipped_profiles())
    assert ("npu_node_mode" in codes(plan, "warnings")) is warned
    if warned:
        (warning,) = (w for w in plan["warnings"] if w["code"] == "npu_node_mode")
        assert f"/dev/davinci0 is {mode}, of 1000:1000" in warning["message"]
    assert "npu_node_mode" not in codes(deployment_plan(facts, {}, shipped_profiles()), "warnings")


def test_warnings_of_the_facts_are_carried_over():
    facts = copy.deepcopy(build_facts(case_of("atlas_a2")))
    warning = {"code": "chips_missing", "message": "7 of 8", "remedy": "look at dmesg"}
    facts["warnings"] = [warning]
    plan = deployment_plan(facts, {}, shipped_profiles())
    assert plan["problems"] == [] and warning in plan["warnings"]
