# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""HCCL's ports: each instance of several NPUs on the host network has a range of its own, and keeps it."""

from __future__ import annotations

import pytest
from ansible_collections.vllm_ascend.fleet.plugins.plugin_utils.hccl import Busy, Need, base_ports
from ansible_collections.vllm_ascend.fleet.plugins.plugin_utils.plain import Findings
from ansible_collections.vllm_ascend.fleet.plugins.plugin_utils.plan import deployment_plan
from ansible_collections.vllm_ascend.fleet.tests.unit.support.facts_builder import (
    add_several_paths,
    build_facts,
    build_observed,
    case_of,
    observed_instance,
    shipped_profiles,
)

VARIABLE = "HCCL_IF_BASE_PORT"


def base(needs, ports=None, busy=None):
    findings = Findings()
    return base_ports(needs, busy or Busy(), ports or {}, findings), findings.problems


CHOICES = [
    ("the first", [Need("a")], {}, Busy(), {"a": 60000}),
    ("one after the other", [Need("a"), Need("b"), Need("c")], {}, Busy(), {"a": 60000, "b": 60100, "c": 60200}),
    ("kept", [Need("a"), Need("b", kept=60000)], {}, Busy(), {"a": 60100, "b": 60000}),
    ("kept, with a gap", [Need("a", kept=60300), Need("b")], {}, Busy(), {"a": 60300, "b": 60000}),
    ("kept twice: the first has it", [Need("a", kept=60000), Need("b", kept=60000)], {}, Busy(),
     {"a": 60000, "b": 60100}),
    ("the operator's own", [Need("a"), Need("b", given="60000")], {}, Busy(), {"a": 60100, "b": 60000}),
    ("the operator's own before a kept one", [Need("a", kept=60000), Need("b", given="60010")], {}, Busy(),
     {"a": 60100, "b": 60010}),
    ("elsewhere", [Need("a", given="50000"), Need("b")], {}, Busy(), {"a": 50000, "b": 60000}),
    ("over an instance's port", [Need("a")], {60050: "b"}, Busy(), {"a": 60100}),
    ("over a listener", [Need("a")], {}, Busy({60099: "nginx"}), {"a": 60100}),
    ("a listener behind it", [Need("a")], {}, Busy({60100: "nginx"}), {"a": 60000}),
    ("over an instance that is not planned", [Need("a")], {}, Busy(bases=(60000,)), {"a": 60100}),
    ("kept although it listens there", [Need("a", kept=60000)], {}, Busy({60000: "vllm"}), {"a": 60000}),
    ("not kept over an instance's port", [Need("a", kept=60000)], {60010: "b"}, Busy(), {"a": 60100}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("needs", "ports", "busy", "wanted"), [case[1:] for case in CHOICES], ids=[case[0] for case in CHOICES]
)
def test_a_range_of_its_own(needs, ports, busy, wanted):
    assert base(needs, ports, busy) == (wanted, [])


@pytest.mark.parametrize(
    ("needs", "ports", "code", "parts"),
    [
        ([Need("a", given="60000"), Need("b", given="60000")], {}, "hccl_port_conflict", ["instance a", "instance b"]),
        ([Need("a", given="60000"), Need("b", given="60015")], {}, "hccl_port_conflict", ["60015 for instance b"]),
        ([Need("a", given="60000")], {60015: "b"}, "hccl_port_conflict", ["instance b has port 60015"]),
        ([Need("a", given="many")], {}, "setting_invalid", ["'many'", "1024 to 65520"]),
        ([Need("a", given="80")], {}, "setting_invalid", ["'80'"]),
        ([Need("a", given="65521")], {}, "setting_invalid", ["'65521'"]),
        ([Need("a", given="²")], {}, "setting_invalid", ["'²'"]),
        ([Need("a")], {port: "x" for port in range(60000, 65536, 50)}, "hccl_ports_exhausted", ["instance a"]),
    ],
)
def test_ranges_that_cannot_be(needs, ports, code, parts):
    _chosen, problems = base(needs, ports)
    assert [problem["code"] for problem in problems] == [code]
    assert all(part in problems[0]["message"] for part in parts)


def test_values_that_are_far_enough_apart_are_fine():
    assert base([Need("a", given="60000"), Need("b", given="60016")], {60032: "x"})[1] == []


def test_there_is_room_for_many_and_none_is_given_twice():
    chosen, problems = base([Need(f"i{place}") for place in range(60)])
    assert len(set(chosen.values())) == len(chosen) == 56 and max(chosen.values()) == 65500
    assert [problem["code"] for problem in problems] == ["hccl_ports_exhausted"] * 4


# -- in a plan ---------------------------------------------------------------------------------------------------------


def plan_of(entries, observed=None, family="atlas_a2", npus=8, **settings):
    facts = add_several_paths(build_facts(case_of(family), npus=npus))
    wanted = [{"port": 8000 + place, **entry} for place, entry in enumerate(entries)]
    return deployment_plan(facts, {"vllm_instances": wanted, **settings}, shipped_profiles(), observed)


def bases(plan):
    assert plan["problems"] == []
    return {i["name"]: i["container"]["environment"].get(VARIABLE) for i in plan["instances"]}


def test_only_several_npus_on_the_host_network_need_one():
    plan = plan_of([{"name": "a", "npus": 2}, {"name": "b"}, {"name": "c", "npus": 2}])
    assert bases(plan) == {"a": "60000", "b": None, "c": "60100"}
    duo = plan_of([{"name": "a", "npus": 2}, {"name": "b", "npus": 2}], family="atlas_300i_duo")
    assert bases(duo) == {"a": None, "b": None}


def test_one_instance_more_or_less_changes_no_other():
    first = plan_of([{"name": "a", "npus": 2}, {"name": "b", "npus": 2}])
    running = {i["name"]: observed_instance(i, container={"id": i["name"] * 64, "state": "running"})
               for i in first["instances"]}  # fmt: skip
    observed = build_observed(instances=list(running.values()))
    more = plan_of([{"name": "new", "npus": 2, "port": 8009}, {"name": "a", "npus": 2, "port": 8000},
                    {"name": "b", "npus": 2, "port": 8001}], observed)  # fmt: skip
    assert bases(more) == {"a": "60000", "b": "60100", "new": "60200"}
    hashes = {i["name"]: i["plan_hash"] for i in more["instances"]}
    assert all(hashes[name] == entry["plan_hash"] for name, entry in running.items())
    less = plan_of([{"name": "b", "npus": 2, "port": 8001}], build_observed(instances=[running["b"]]))
    assert bases(less) == {"b": "60100"}


def test_the_range_of_an_instance_that_is_not_planned_any_more_is_left_alone():
    old = plan_of([{"name": "old", "npus": 2}])["instances"][0]
    observed = build_observed(instances=[observed_instance(old, ports=[])])
    assert bases(plan_of([{"name": "new", "npus": 2}], observed)) == {"new": "60100"}


def test_an_instance_without_the_variable_has_hccls_own_ports():
    first = plan_of([{"name": "a", "npus": 2}])["instances"][0]
    del first["container"]["environment"][VARIABLE]
    observed = build_observed(instances=[observed_instance(first)])
    entries = [{"name": "b", "npus": 2, "port": 8001}, {"name": "a", "npus": 2, "port": 8000}]
    assert bases(plan_of(entries, observed)) == {"a": "60000", "b": "60100"}


def test_the_operators_own_value_wins_and_equal_ones_are_refused():
    own = {"environment": {VARIABLE: "50000"}}
    assert bases(plan_of([{"name": "a", "npus": 2, **own}])) == {"a": "50000"}
    both = plan_of([{"name": "a", "npus": 2}, {"name": "b", "npus": 2}], vllm_environment={VARIABLE: "50000"})
    assert [problem["code"] for problem in both["problems"]] == ["hccl_port_conflict"]
    one = plan_of([{"name": "a", "npus": 2}, {"name": "b"}], vllm_environment={VARIABLE: "50000"})
    assert one["problems"] == []


def test_a_port_range_of_the_operators_takes_its_place():
    plan = plan_of([{"name": "a", "npus": 2, "environment": {"HCCL_HOST_SOCKET_PORT_RANGE": "auto"}}])
    assert bases(plan) == {"a": None}
