# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who gets which device nodes."""

from __future__ import annotations

import pytest
from ansible_collections.vllm_ascend.fleet.plugins.plugin_utils.allocation import Request, allocate
from ansible_collections.vllm_ascend.fleet.plugins.plugin_utils.npu_nodes import (
    Holder,
    by_number,
    host_nodes,
)
from ansible_collections.vllm_ascend.fleet.plugins.plugin_utils.plain import Findings
from hypothesis import given, settings
from hypothesis import strategies as st


def facts(numbers, chips=()):
    nodes = {f"/dev/davinci{n}": {"type": "char"} for n in numbers}
    return {"device_nodes": {**nodes, "/dev/davinci_manager": {"type": "char"}}, "chips": list(chips)}


def names(*numbers):
    return [f"/dev/davinci{n}" for n in numbers]


def run(requests, numbers, per_card=1, held=(), chips=(), accepted=(), doubt=()):
    findings = Findings()
    findings.accepted = frozenset(accepted)
    holders = {name: Holder("container x") for name in names(*held)}
    nodes = host_nodes(facts(numbers, chips), per_card, holders, dict.fromkeys(names(*doubt), "and it is full"))
    return allocate([Request(*request) for request in requests], nodes, findings), findings


def test_nodes_are_enumerated_in_the_order_of_their_numbers():
    assert host_nodes(facts([10, 2, 16, 12]), 1, {}).names == names(2, 10, 12, 16)
    assert by_number(names(10, 9, 100)) == names(9, 10, 100)


ALLOCATIONS = [
    ("one", [("a", 1)], range(4), 1, {"a": [0]}),
    ("gaps", [("a", 2)], [10, 12, 14, 16], 1, {"a": [10, 12]}),
    ("lists first", [("a", 1), ("b", names(0))], range(4), 1, {"a": [1], "b": [0]}),
    ("all takes the rest", [("a", "all"), ("b", 1)], range(4), 1, {"a": [1, 2, 3], "b": [0]}),
    ("whole cards", [("a", 1), ("b", 2)], range(4), 2, {"a": [0], "b": [2, 3]}),
    ("the rest of a used card", [("a", 1), ("b", 1)], range(4), 2, {"a": [0], "b": [1]}),
    ("one and a half cards", [("a", names(0)), ("b", 3)], range(6), 2, {"a": [0], "b": [1, 2, 3]}),
    ("only halves are left", [("a", names(0, 2)), ("b", 2)], range(4), 2, {"a": [0, 2], "b": [1, 3]}),
    ("a card that suffices", [("a", names(0, 1, 2)), ("b", 2)], range(8), 4, {"a": [0, 1, 2], "b": [4, 5]}),
    ("kept", [("a", 1, names(3)), ("b", 1)], range(4), 1, {"a": [3], "b": [0]}),
    ("kept before others choose", [("b", 1), ("a", 1, names(0))], range(4), 1, {"a": [0], "b": [1]}),
    ("not kept when another count is asked for", [("a", 2, names(3))], range(4), 1, {"a": [0, 1]}),
    ("not kept when gone", [("a", 1, names(9))], range(4), 1, {"a": [0]}),
]


@pytest.mark.parametrize(
    ("requests", "numbers", "per_card", "wanted"),
    [case[1:] for case in ALLOCATIONS],
    ids=[case[0] for case in ALLOCATIONS],
)
def test_allocations(requests, numbers, per_card, wanted):
    given_nodes, findings = run(requests, numbers, per_card)
    assert findings.problems == []
    assert given_nodes == {name: names(*wanted_numbers) for name, wanted_numbers in wanted.items()}


def test_a_held_node_breaks_its_card():
    assert run([("a", 2)], range(4), 2, held=[0])[0] == {"a": names(2, 3)}
    assert run([("a", 1)], range(4), 2, held=[0])[0] == {"a": names(1)}


def test_cards_follow_npu_smi_where_it_names_every_node():
    chips = [{"device": f"/dev/davinci{n}", "npu_id": npu} for n, npu in ((0, 7), (1, 8), (2, 7), (3, 8))]
    assert run([("a", 2)], range(4), 2, chips=chips)[0] == {"a": names(0, 2)}
    assert run([("a", 2)], range(4), 2, chips=chips[:3])[0] == {"a": names(0, 1)}


@pytest.mark.parametrize(
    ("requests", "held", "codes", "part"),
    [
        ([("a", names(9))], [], ["npu_unknown"], "/dev/davinci9"),
        ([("a", names(0)), ("b", names(0))], [], ["npu_taken_twice"], "the instances a and b"),
        ([("a", names(1))], [1], ["npu_held"], "container x"),
        ([("a", 5)], [], ["npu_shortage"], "5 NPU nodes, and 4 of 4 are free"),
        ([("a", 5)], [2], ["npu_shortage"], "/dev/davinci2: container x"),
        ([("a", 3), ("b", 2)], [], ["npu_shortage"], "/dev/davinci0: instance a"),
        ([("a", 4)], [2], ["npu_held", "npu_shortage"], "container x holds /dev/davinci2"),
        ([("a", "all")], [2], ["npu_held"], "holds /dev/davinci2"),
        ([("a", names(1, 2))], [1, 2], ["npu_held"], "container x holds /dev/davinci1, /dev/davinci2"),
        ([("a", 4), ("b", "all")], [], ["npu_shortage"], "all NPU nodes"),
        ([("a", "all"), ("b", "all")], [], ["npu_shortage"], "instance b"),
        ([("a", names(8, 9))], [], ["npu_unknown", "npu_unknown"], "/dev/davinci8"),
        ([("a", names(1, 9)), ("b", names(3)), ("c", names(3))], [1],
         ["npu_unknown", "npu_held", "npu_taken_twice"], "/dev/davinci9"),
    ],
)  # fmt: skip
def test_what_cannot_be_had_is_named(requests, held, codes, part):
    _given, findings = run(requests, range(4), held=held)
    assert [problem["code"] for problem in findings.problems] == codes
    assert part in findings.problems[0]["message"]


# -- health, holders and doubt -----------------------------------------------------------------------------------------


def unwell(number, health, npu=None):
    return {"device": f"/dev/davinci{number}", "npu_id": npu, "health": health}


BOTH = ("npu_held", "npu_unhealthy")
JUDGED = [
    # chips that are not well
    ("a count passes over an alarm", [("a", 2)], {0: "Alarm"}, (), (), {"a": [1, 2]}, [], []),
    ("a count passes over a warning", [("a", 1)], {0: "Warning", 1: "UNKNOWN"}, (), (), {"a": [2]}, [], []),
    ("too few are well", [("a", 4)], {0: "Alarm"}, (), (), {}, ["npu_unhealthy", "npu_shortage"], []),
    ("accepted, last", [("a", 4)], {0: "Alarm"}, (), BOTH, {"a": [0, 1, 2, 3]}, [], ["npu_unhealthy"]),
    ("accepted, not needed", [("a", 3)], {0: "Alarm"}, (), BOTH, {"a": [1, 2, 3]}, [], []),
    ("a list with an alarm", [("a", names(0))], {0: "Alarm"}, (), (), {}, ["npu_unhealthy"], []),
    ("a list with a critical one", [("a", names(0))], {0: "Critical"}, (), (), {}, ["npu_unhealthy"], []),
    ("accepted in a list", [("a", names(0))], {0: "Alarm"}, (), BOTH, {"a": [0]}, [], ["npu_unhealthy"]),
    ("a list with a warning", [("a", names(0))], {0: "Warning"}, (), (), {"a": [0]}, [], ["npu_health"]),
    ("all with an alarm", [("a", "all")], {3: "Alarm"}, (), (), {}, ["npu_unhealthy"], []),
    ("all with a warning", [("a", "all")], {3: "Warning"}, (), (), {"a": [0, 1, 2, 3]}, [], ["npu_health"]),
    ("kept while it runs", [("a", 1, names(0), True)], {0: "Alarm"}, (), (), {"a": [0]}, [], ["npu_health"]),
    ("given up when stopped", [("a", 1, names(0), False)], {0: "Alarm"}, (), (), {"a": [1]}, [], []),
    ("grows away from it", [("a", 2, names(0), True)], {0: "Alarm"}, (), (), {"a": [1, 2]}, [], []),
    # nodes that somebody holds
    ("held nodes last", [("a", 3)], {}, [0, 1], ["npu_held"], {"a": [0, 2, 3]}, [], ["npu_held"]),
    ("held, not needed", [("a", 2)], {}, [0, 1], ["npu_held"], {"a": [2, 3]}, [], []),
    ("held in a list", [("a", names(0))], {}, [0], ["npu_held"], {"a": [0]}, [], ["npu_held"]),
    ("held of all", [("a", "all")], {}, [0], ["npu_held"], {"a": [0, 1, 2, 3]}, [], ["npu_held"]),
    ("held and it runs there", [("a", 1, names(0), True)], {}, [0], (), {"a": [0]}, [], ["npu_shared"]),
    ("held, a list, it runs there", [("a", names(0), names(0), True)], {}, [0], (), {"a": [0]}, [], ["npu_shared"]),
    ("held, and stopped", [("a", 1, names(0), False)], {}, [0], (), {"a": [1]}, [], []),
    ("one runs, the other asks", [("b", 4), ("a", 1, names(0), True)], {}, [0, 1], (), {"a": [0]},
     ["npu_shortage"], ["npu_shared"]),
    # both: only what is accepted is taken
    ("held and unwell", [("a", 3)], {1: "Alarm"}, [0], ["npu_unhealthy"], {"a": [1, 2, 3]}, [], ["npu_unhealthy"]),
    ("one is not accepted", [("a", 4)], {1: "Alarm"}, [0], ["npu_unhealthy"], {}, ["npu_held", "npu_shortage"], []),
]  # fmt: skip


@pytest.mark.parametrize(
    ("requests", "health", "held", "accepted", "wanted", "problems", "warnings"),
    [case[1:] for case in JUDGED],
    ids=[case[0] for case in JUDGED],
)
def test_what_speaks_against_a_node(requests, health, held, accepted, wanted, problems, warnings):
    chips = [unwell(number, word) for number, word in health.items()]
    given_nodes, findings = run(requests, range(4), held=held, chips=chips, accepted=accepted)
    assert given_nodes == {name: names(*numbers) for name, numbers in wanted.items()}
    assert [entry["code"] for entry in findings.problems] == problems
    assert [entry["code"] for entry in findings.warnings] == warnings


@pytest.mark.parametrize(("count", "wanted"), [(1, [2]), (3, [0, 2, 3])])
def test_what_is_held_for_certain_is_taken_after_what_may_be(count, wanted):
    """A privileged container may use any node; two are another's for certain."""
    findings = Findings()
    findings.accepted = frozenset(["npu_held"])
    maybe = Holder("container agent", why="it is privileged")
    holders = {name: maybe for name in names(2, 3)} | {name: Holder("container x") for name in names(0, 1)}
    assert allocate([Request("a", count)], host_nodes(facts(range(4)), 1, holders), findings)["a"] == names(*wanted)


def test_a_refusal_says_how_to_deploy_all_the_same():
    _given, findings = run([("a", names(0, 1))], range(4), held=[0], chips=[unwell(1, "Alarm")])
    held, unhealthy = findings.problems
    assert "vllm_accept_problems: [npu_held]" in held["remedy"]
    assert "health Alarm" in unhealthy["message"] and "[npu_unhealthy]" in unhealthy["remedy"]


def test_what_may_hold_a_node_says_why():
    findings = Findings()
    holder = Holder("container lab (6c6162)", why="it is privileged")
    nodes = host_nodes(facts(range(2)), 1, dict.fromkeys(names(0, 1), holder))
    assert allocate([Request("a", 1)], nodes, findings) == {}
    message = findings.problems[0]["message"]
    assert "container lab (6c6162) may hold /dev/davinci0, /dev/davinci1: it is privileged" in message


def test_doubtful_nodes_are_taken_after_idle_ones_with_a_warning():
    given_nodes, findings = run([("a", 2)], range(4), doubt=[0, 1])
    assert (given_nodes, findings.warnings) == ({"a": names(2, 3)}, [])
    given_nodes, findings = run([("a", 3)], range(4), doubt=[0, 1])
    assert given_nodes == {"a": names(0, 2, 3)}
    assert [w["code"] for w in findings.warnings] == ["npu_memory_in_use"]
    assert "/dev/davinci0, and it is full" in findings.warnings[0]["message"]


def test_health_that_is_not_known_is_not_held_against_a_chip():
    chips = [unwell(0, None), unwell(1, "OK")]
    given_nodes, findings = run([("a", 2)], range(2), chips=chips)
    assert (given_nodes, findings.warnings) == ({"a": names(0, 1)}, [])


@settings(max_examples=150, derandomize=True, deadline=None)
@given(
    counts=st.lists(st.integers(1, 6), min_size=1, max_size=5),
    numbers=st.sets(st.integers(0, 40), max_size=16),
    held=st.sets(st.integers(0, 40), max_size=4),
    ill=st.sets(st.integers(0, 40), max_size=4),
    per_card=st.sampled_from([1, 2]),
)
def test_nodes_are_given_once_free_and_in_full(counts, numbers, held, ill, per_card):
    requests = [(f"i{place}", count) for place, count in enumerate(counts)]
    chips = [unwell(number, "Alarm") for number in ill]
    given_nodes, findings = run(requests, numbers, per_card, held=held, chips=chips)
    chosen = [node for nodes in given_nodes.values() for node in nodes]
    assert len(chosen) == len(set(chosen))
    assert set(chosen) <= set(names(*numbers)) - set(names(*held)) - set(names(*ill))
    assert all(len(given_nodes[name]) == count for name, count in requests if name in given_nodes)
    short = [problem for problem in findings.problems if problem["code"] == "npu_shortage"]
    assert len(short) == len(requests) - len(given_nodes)


@settings(max_examples=150, derandomize=True, deadline=None)
@given(
    counts=st.lists(st.integers(1, 4), min_size=1, max_size=5),
    numbers=st.sets(st.integers(0, 40), min_size=4, max_size=16),
    added=st.integers(1, 4),
    removed=st.integers(0, 4),
    per_card=st.sampled_from([1, 2]),
)
def test_an_instance_more_or_less_changes_no_other(counts, numbers, added, removed, per_card):
    requests = [(f"i{place}", count) for place, count in enumerate(counts)]
    before, _findings = run(requests, numbers, per_card)
    running = [(name, count, before[name], True) for name, count in requests if name in before]
    for changed in (
        running,
        [("new", added), *running],
        [*running, ("new", added)],
        running[:removed] + running[removed + 1 :],
    ):
        after, _findings = run(changed, numbers, per_card)
        assert {name: after[name] for name, *_rest in changed if name in before} == {
            name: before[name] for name, *_rest in changed if name in before
        }
