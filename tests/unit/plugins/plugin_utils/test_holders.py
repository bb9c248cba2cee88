# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who holds a card: a node that may be busy is not taken unless it is accepted, and the refusal names the holder."""

from __future__ import annotations

import pytest
from ansible_collections.vllm_ascend.fleet.plugins.plugin_utils.plan import deployment_plan
from ansible_collections.vllm_ascend.fleet.tests.unit.support.facts_builder import (
    add_several_paths,
    build_facts,
    build_observed,
    case_of,
    chip,
    foreign,
    observed_instance,
    shipped_profiles,
)

ID = "0123456789abcdef" * 4
FAMILY = "atlas_a2"


def host(npus=4, chips=(), usage=(), family=FAMILY):
    facts = add_several_paths(build_facts(case_of(family), npus=npus))
    return {**facts, "chips": list(chips), "usage": list(usage)}


def plan_of(facts, observed=None, **settings):
    return deployment_plan(facts, settings, shipped_profiles(), observed or build_observed())


def codes(plan, kind="problems"):
    return [entry["code"] for entry in plan[kind]]


def found(plan, code, kind="problems"):
    (entry,) = (entry for entry in plan[kind] if entry["code"] == code)
    return entry


def node(number):
    return f"/dev/davinci{number}"


def use(number, kind="process", name="python", ident=None, pid=42):
    owner = {"kind": kind, "name": name, "id": ident}
    return {"device": None if number is None else node(number), "owner": owner, "pid": pid, "source": "npu-smi info"}


# -- what a refusal names ----------------------------------------------------------------------------------------------

HELD_BY = [
    ("a docker container", {"foreign": [foreign("train", id=ID, devices=[node(0)])]}, [],
     "container train (0123456789ab) holds /dev/davinci0"),
    ("a virtual part of it", {"foreign": [foreign("vm", id=ID, holds={"nodes": [node(0), "/dev/vdavinci100"],
                                                                    "any": False, "why": None})]}, [],
     "container vm (0123456789ab) holds /dev/davinci0"),
    ("another engine", {"foreign": [foreign("job", id=ID, devices=[node(0)], engine="podman")]}, [],
     "podman container job (0123456789ab) holds"),
    ("one without a name", {"foreign": [foreign("", id=ID, devices=[node(0)], engine="containerd")]}, [],
     "containerd container 0123456789ab holds"),
    ("a process", {}, [use(0)], "process python (pid 42) holds /dev/davinci0"),
    ("a process without a name", {}, [use(0, name=None)], "a process (pid 42) holds"),
    ("a container by its process", {}, [use(0, "container", None, ID)], "container 0123456789ab holds"),
    ("that is known by name", {"foreign": [foreign("train", id=ID)]}, [use(0, "container", None, ID)],
     "container train (0123456789ab) holds"),
]  # fmt: skip


@pytest.mark.parametrize(("observed", "usage", "words"), [c[1:] for c in HELD_BY], ids=[c[0] for c in HELD_BY])
def test_a_refusal_names_the_holder(observed, usage, words):
    facts, observed = host(usage=usage), build_observed(**observed)
    assert plan_of(facts, observed)["instances"][0]["npus"] == [node(1)]
    plan = plan_of(facts, observed, vllm_npus=[node(0)])
    assert codes(plan) == ["npu_held"]
    assert words in plan["problems"][0]["message"]


@pytest.mark.parametrize("state", ["exited", "dead", "created"])
def test_a_container_that_does_not_run_holds_nothing(state):
    gone = foreign("train", devices=[node(0)], state=state, holds={"nodes": [node(0)], "any": True, "why": "x"})
    assert plan_of(host(), build_observed(foreign=[gone]))["instances"][0]["npus"] == [node(0)]


@pytest.mark.parametrize("state", ["running", "paused", "restarting", None])
def test_a_container_that_may_run_holds_its_nodes(state):
    held = foreign("train", devices=[node(0)], state=state)
    assert plan_of(host(), build_observed(foreign=[held]))["instances"][0]["npus"] == [node(1)]


# -- what cannot be told -----------------------------------------------------------------------------------------------

WHY = "it is privileged and made for Ascend, so it can use every NPU"
ANY = foreign("lab", id=ID, privileged=True, holds={"nodes": [node(3)], "any": True, "why": WHY})


def test_a_container_that_may_use_any_npu_holds_all():
    plan = plan_of(host(), build_observed(foreign=[ANY]))
    assert codes(plan) == ["npu_held", "npu_held", "npu_shortage"]
    sure, maybe = (p["message"] for p in sorted(plan["problems"][:2], key=lambda p: "may" in p["message"]))
    assert "container lab (0123456789ab) holds /dev/davinci3" in sure
    assert f"container lab (0123456789ab) may hold /dev/davinci0, /dev/davinci1, /dev/davinci2: {WHY}" in maybe
    assert "[npu_held] deploys all the same" in plan["problems"][0]["remedy"]


def test_accepted_it_is_a_warning_and_what_it_holds_for_sure_comes_last():
    observed = build_observed(foreign=[{**ANY, "holds": {"nodes": [], "any": True, "why": WHY}}])
    plan = plan_of(host(), observed, vllm_accept_problems=["npu_held"])
    assert (plan["problems"], plan["instances"][0]["npus"]) == ([], [node(0)])
    warning = found(plan, "npu_held", "warnings")["message"]
    assert "container lab" in warning and "accepted by vllm_accept_problems" in warning


def test_our_running_instance_keeps_its_node_beside_it():
    own = observed_instance(plan_of(host(), vllm_npus=[node(2)])["instances"][0])
    plan = plan_of(host(), build_observed(instances=[own], foreign=[ANY]))
    assert (plan["problems"], plan["instances"][0]["npus"]) == ([], [node(2)])
    assert plan["instances"][0]["plan_hash"] == own["plan_hash"]
    assert "container lab" in found(plan, "npu_shared", "warnings")["message"]
    second = [{"name": "ascend"}, {"name": "more", "port": 8001}]
    assert "npu_held" in codes(plan_of(host(), build_observed(instances=[own], foreign=[ANY]), vllm_instances=second))


# -- npu-smi's processes and memory ------------------------------------------------------------------------------------


def test_a_process_whose_node_is_not_known_holds_every_node_without_a_chip():
    facts = host(npus=3, chips=[chip(0), chip(None, processes=[{"pid": 42, "name": "python"}])], usage=[use(None)])
    assert plan_of(facts)["instances"][0]["npus"] == [node(0)]
    plan = plan_of(facts, vllm_npus=2)
    assert "process python (pid 42) may hold /dev/davinci1, /dev/davinci2" in found(plan, "npu_held")["message"]


MEMORY = [
    # processes, used, total, the node that is chosen
    ("idle", [], 3378, 65536, 0),
    ("idle, no table", None, 3378, 65536, 0),
    ("at the limit", None, 30, 100, 0),
    ("full, no table", None, 31, 100, 1),
    ("full, an empty table", [], 31, 100, 1),
    ("not known", None, None, 65536, 0),
    ("no total", None, 50000, None, 0),
]


@pytest.mark.parametrize(("processes", "used", "total", "chosen"), [c[1:] for c in MEMORY], ids=[c[0] for c in MEMORY])
def test_memory_in_use_speaks_against_a_chip(processes, used, total, chosen):
    full = chip(0, processes=processes, memory_used_mb=used, memory_total_mb=total)
    assert plan_of(host(npus=2, chips=[full, chip(1)]))["instances"][0]["npus"] == [node(chosen)]


def test_full_memory_without_a_process_table_is_held_by_something():
    facts = host(npus=1, chips=[chip(0, processes=None, memory_used_mb=50000)])
    problem = found(plan_of(facts), "npu_held")
    assert "something that npu-smi does not name may hold /dev/davinci0: 50000 of 65536 MB" in problem["message"]


def test_full_memory_with_an_empty_process_table_is_a_warning():
    facts = host(npus=1, chips=[chip(0, memory_used_mb=50000)])
    plan = plan_of(facts)
    assert plan["problems"] == []
    assert "50000 of 65536 MB" in found(plan, "npu_memory_in_use", "warnings")["message"]


def test_a_chip_that_uses_the_hosts_memory_is_not_judged_by_it():
    full = chip(0, processes=None, memory_used_mb=60000)
    plan = plan_of(host(npus=1, chips=[full], family="atlas_200i_pro"))
    assert plan["problems"] == []
    idle = host(npus=1, chips=[chip(0, memory_used_mb=60000)], family="atlas_200i_pro")
    assert "npu_memory_in_use" not in codes(plan_of(idle), "warnings")


def test_the_memory_of_our_own_instance_is_its_own():
    own = observed_instance(plan_of(host(npus=1))["instances"][0])
    for processes in (None, []):
        full = chip(0, processes=processes, memory_used_mb=60000)
        plan = plan_of(host(npus=1, chips=[full]), build_observed(instances=[own]))
        assert (plan["problems"], plan["instances"][0]["npus"]) == ([], [node(0)])
        assert not {"npu_memory_in_use", "npu_shared"} & set(codes(plan, "warnings"))


def test_full_chips_without_a_node_are_those_of_our_instances_as_far_as_they_go():
    entries = [{"name": "ascend"}, {"name": "more", "port": 8001}]
    own = observed_instance(plan_of(host(npus=2))["instances"][0])
    full = chip(None, processes=None, memory_used_mb=60000)
    one = plan_of(host(npus=2, chips=[full]), build_observed(instances=[own]), vllm_instances=entries)
    assert [instance["npus"] for instance in one["instances"]] == [[node(0)], [node(1)]]
    two = plan_of(host(npus=2, chips=[full, full]), build_observed(instances=[own]), vllm_instances=entries)
    assert "may hold /dev/davinci1" in found(two, "npu_held")["message"]


def test_what_is_known_of_a_chip_without_a_node_is_a_warning():
    ill = chip(None, npu_id=8, chip_id=1, health="Alarm")
    full = chip(None, npu_id=9, memory_used_mb=60000)
    plan = plan_of(host(npus=2, chips=[ill, full]))
    assert plan["problems"] == []
    assert "NPU 8 chip 1" in found(plan, "npu_health", "warnings")["message"]
    assert "NPU 9 chip 0" in found(plan, "npu_memory_in_use", "warnings")["message"]


# -- what is ours ------------------------------------------------------------------------------------------------------


def test_processes_in_our_own_container_hold_nothing():
    own = observed_instance(plan_of(host(npus=2))["instances"][0])
    ours = own["container"]["id"]
    for usage in ([use(0, "container", None, ours)], [use(0)], [use(None, "container", None, ours)]):
        plan = plan_of(host(npus=2, usage=usage), build_observed(instances=[own]))
        assert (plan["problems"], plan["instances"][0]["npus"]) == ([], [node(0)])
        assert "npu_shared" not in codes(plan, "warnings")


def test_a_stopped_instance_does_not_excuse_a_process_on_its_node():
    own = observed_instance(plan_of(host(npus=2))["instances"][0], container=None, active_state="inactive")
    plan = plan_of(host(npus=2, usage=[use(0)]), build_observed(instances=[own]))
    assert plan["instances"][0]["npus"] == [node(1)]


def test_a_container_that_is_adopted_holds_nothing_from_its_successor():
    mine = foreign("vllm-ascend", id=ID, privileged=True, holds={"nodes": [node(0)], "any": True, "why": WHY})
    usage = [use(0, "container", None, ID), use(0)]
    plan = plan_of(host(usage=usage), build_observed(foreign=[mine]), vllm_adopt_containers=True)
    assert (plan["problems"], plan["instances"][0]["npus"]) == ([], [node(0)])
