# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who gets which device nodes."""

from __future__ import annotations

import pytest
from ansible_collections.vllm_ascend.fleet.plugins.plugin_utils.allocation import (
    Holder,
    Request,
    allocate,
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


def run(requests, numbers, per_card=1, held=(), chips=()):
    findings = Findings()
    nodes = host_nodes(facts(numbers, chips), per_card, {name: Holder("container x") for name in names(*held)})
    return allocate([Request(*request) for request in requests], nodes, findings), findings.problems


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
    given_nodes, problems = run(requests, numbers, per_card)
    assert problems == []
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
        ([("a", 3), ("b", 2)], [], ["npu_shortage"], "/dev/davinci0: instance a"),
        ([("a", 4)], [2], ["npu_shortage"], "/dev/davinci2: container x"),
        ([("a", "all")], [2], ["npu_held"], "holds /dev/davinci2"),
        ([("a", 4), ("b", "all")], [], ["npu_shortage"], "all NPU nodes"),
        ([("a", "all"), ("b", "all")], [], ["npu_shortage"], "instance b"),
        ([("a", names(8, 9))], [], ["npu_unknown", "npu_unknown"], "/dev/davinci8"),
    ],
)
def test_what_cannot_be_had_is_named(requests, held, codes, part):
    _given, problems = run(requests, range(4), held=held)
    assert [problem["code"] for problem in problems] == codes
    assert part in problems[0]["message"]


@settings(max_examples=150, derandomize=True, deadline=None)
@given(
    counts=st.lists(st.integers(1, 6), min_size=1, max_size=5),
    numbers=st.sets(st.integers(0, 40), max_size=16),
    held=st.sets(st.integers(0, 40), max_size=4),
    per_card=st.sampled_from([1, 2]),
)
def test_nodes_are_given_once_free_and_in_full(counts, numbers, held, per_card):
    requests = [(f"i{place}", count) for place, count in enumerate(counts)]
    given_nodes, problems = run(requests, numbers, per_card, held=held)
    chosen = [node for nodes in given_nodes.values() for node in nodes]
    assert len(chosen) == len(set(chosen))
    assert set(chosen) <= set(names(*numbers)) - set(names(*held))
    assert all(len(given_nodes[name]) == count for name, count in requests if name in given_nodes)
    assert len(problems) == len(requests) - len(given_nodes)
