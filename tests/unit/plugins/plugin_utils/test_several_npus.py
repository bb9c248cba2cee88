# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""More than one card: environment, shared memory, hccn.conf, capture sizes, topology; and several instances at once."""

from __future__ import annotations

import pytest
from ansible_collections.vllm_ascend.fleet.plugins.plugin_utils.plan import deployment_plan
from ansible_collections.vllm_ascend.fleet.plugins.plugin_utils.profiles import profile_paths
from ansible_collections.vllm_ascend.fleet.tests.unit.support.facts_builder import (
    add_several_paths,
    build_facts,
    build_observed,
    case_of,
    chip,
    foreign,
    observed_instance,
    path_entry,
    shipped_profiles,
)

HCCN = "/etc/hccn.conf"
KV = ["--kv-transfer-config", '{"kv_connector":"MooncakeConnectorV1","kv_role":"kv_producer"}']


def host(family="atlas_a2", npus=8):
    facts = add_several_paths(build_facts(case_of(family), npus=npus))
    facts["paths"][HCCN] = path_entry("file", size=200, addresses=8)
    return facts


def plan_of(facts, observed=None, **settings):
    return deployment_plan(facts, settings, shipped_profiles(), observed)


def instance_of(facts, **settings):
    plan = plan_of(facts, **settings)
    assert plan["problems"] == []
    return plan["instances"][0]


def codes(plan, kind="problems"):
    return [entry["code"] for entry in plan[kind]]


def targets(instance):
    return [mount["target"] for mount in instance["container"]["mounts"]]


# -- environment and shared memory -------------------------------------------------------------------------------------

TIMEOUT = "HCCL_CONNECT_TIMEOUT"
RANKS = [
    ("atlas_a2", {}, None, "1g"),
    ("atlas_a2", {"vllm_npus": 2}, "1200", "16g"),
    ("atlas_a2", {"vllm_npus": 2, "vllm_tensor_parallel_size": 1}, None, "16g"),
    ("atlas_a2", {"vllm_npus": 2, "vllm_extra_args": ["-dp", "2"]}, "1200", "16g"),
    ("atlas_a3", {}, None, "1g"),
    ("atlas_a3", {"vllm_npus": 2}, "1200", "1g"),
    ("atlas_a3", {"vllm_npus": 4}, "1200", "16g"),
    ("atlas_300i_duo", {}, None, "1g"),
    ("atlas_300i_duo", {"vllm_npus": 2}, "1200", "1g"),
    ("atlas_300i_duo", {"vllm_npus": 4}, "1200", "10g"),
    ("atlas_950dt", {}, None, "1g"),
    ("atlas_950dt", {"vllm_npus": 8}, "1200", "16g"),
]


@pytest.mark.parametrize(("family", "settings", "timeout", "shm"), RANKS)
def test_time_and_memory_grow_with_the_cards(family, settings, timeout, shm):
    container = instance_of(host(family), **settings)["container"]
    assert (container["environment"].get(TIMEOUT), container["shm_size"]) == (timeout, shm)


def test_the_operators_own_values_win():
    container = instance_of(host(), vllm_npus=2, vllm_shm_size="32g", vllm_environment={TIMEOUT: "60"})["container"]
    assert (container["environment"][TIMEOUT], container["shm_size"]) == ("60", "32g")
    secret = instance_of(host(), vllm_npus=2, vllm_secrets={TIMEOUT: "60"})["container"]
    assert TIMEOUT not in secret["environment"]
    assert instance_of(host(), vllm_shm_size="2g")["container"]["shm_size"] == "2g"


def test_the_reasons_name_their_sources():
    plan = plan_of(host(), vllm_npus=2)
    sources = {e["source"] for e in plan["explain"] if "rules for" in e["what"]}
    assert any("gpustack issue 5014" in s for s in sources) and any("issues 486 and 9447" in s for s in sources)


# -- tensor parallel size counts dies and chips ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("family", "npus", "size"),
    [("atlas_a3", 16, 16), ("atlas_a3", 2, 2), ("atlas_300i_duo", 2, 2), ("atlas_300i_duo", 4, 4), ("atlas_a2", 8, 8)],
)
def test_the_size_is_that_of_dies_and_chips(family, npus, size):
    assert instance_of(host(family, npus=16), vllm_npus=npus)["tensor_parallel_size"] == size


# -- hccn.conf ---------------------------------------------------------------------------------------------------------


def test_the_facts_look_at_hccn_conf():
    assert {HCCN, "/lib/route.conf", "/etc/hixlep"} <= set(profile_paths(shipped_profiles()))


@pytest.mark.parametrize("family", ["atlas_a2", "atlas_a3"])
@pytest.mark.parametrize(
    "settings",
    [
        {"vllm_extra_args": KV},
        {"vllm_extra_args": [{KV[0]: {"kv_connector": "x"}}]},
        {"vllm_environment": {"HCCL_INTRA_ROCE_ENABLE": "1"}},
        {"vllm_extra_args": KV, "vllm_npus": 4},
    ],
)
def test_kv_transfer_and_roce_need_hccn_conf(family, settings):
    mounted = targets(instance_of(host(family), **settings))
    assert HCCN in mounted and "/usr/local/Ascend/driver/tools/hccn_tool" in mounted
    for entry in (
        path_entry("missing", size=None),
        path_entry("directory", size=None),
        path_entry("link_broken", size=None, link="/opt/gone"),
        path_entry("file", size=0),
        path_entry("file", size=20, addresses=0),
    ):
        facts = host(family)
        facts["paths"][HCCN] = entry
        plan = plan_of(facts, **settings)
        assert codes(plan) == ["hccn_conf_missing"]
        assert HCCN in plan["problems"][0]["message"] and "answers wrongly" in plan["problems"][0]["message"]
        assert "hccn_tool" in plan["problems"][0]["remedy"] and "issue 7711" in plan["problems"][0]["remedy"]
        accepted = plan_of(facts, vllm_accept_problems=["hccn_conf_missing"], **settings)
        assert (accepted["problems"], codes(accepted, "warnings").count("hccn_conf_missing")) == ([], 1)
        assert (HCCN in targets(accepted["instances"][0])) is (entry["type"] == "file")


def test_kv_transfer_needs_hccn_tool():
    facts = host()
    facts["paths"]["/usr/local/Ascend/driver/tools/hccn_tool"] = path_entry("missing")
    assert codes(plan_of(facts, vllm_extra_args=KV)) == ["path_missing"]


def test_several_cards_have_hccn_conf_where_it_is():
    facts = host()
    assert HCCN in targets(instance_of(facts, vllm_npus=2))
    assert HCCN not in targets(instance_of(facts))
    facts["paths"][HCCN] = path_entry("missing", size=None)
    assert HCCN not in targets(instance_of(facts, vllm_npus=2))


def test_a_file_whose_addresses_are_not_known_is_taken():
    facts = host()
    facts["paths"][HCCN] = path_entry("file", size=20, addresses=None)
    assert HCCN in targets(instance_of(facts, vllm_extra_args=KV))


# -- capture sizes -----------------------------------------------------------------------------------------------------


def sizes(value):
    return [{"--compilation-config": {"cudagraph_mode": "FULL_DECODE_ONLY", "cudagraph_capture_sizes": value}}]


CAPTURES = [
    ({"vllm_npus": 2, "vllm_extra_args": sizes([1, 2, 4])}, True),
    ({"vllm_npus": 4, "vllm_extra_args": sizes([1, 2, 4, 8])}, True),
    ({"vllm_npus": 2, "vllm_extra_args": sizes([16, 32])}, False),
    ({"vllm_npus": 2, "vllm_extra_args": sizes([16, 32, 32])}, False),
    ({"vllm_npus": 1, "vllm_extra_args": sizes([1, 2, 4, 8])}, False),
    ({"vllm_npus": 2, "vllm_tensor_parallel_size": 1, "vllm_extra_args": sizes([1, 2, 4, 8])}, False),
    ({"vllm_npus": 4, "vllm_tensor_parallel_size": 2, "vllm_extra_args": sizes([1, 2, 4, 8])}, True),
    ({"vllm_npus": 2, "vllm_extra_args": ["-cc", '{"cudagraph_capture_sizes":[1,2,4]}']}, True),
    ({"vllm_npus": 2, "vllm_extra_args": ['--compilation-config={"cudagraph_capture_sizes":[1,2,4]}']}, True),
    ({"vllm_npus": 2, "vllm_extra_args": ["--compilation-config.cudagraph_capture_sizes=[1,2,4]"]}, True),
    ({"vllm_npus": 2, "vllm_extra_args": ["--compilation-config.cudagraph_capture_sizes=[1,4]"]}, False),
    ({"vllm_npus": 2, "vllm_extra_args": ["--cudagraph-capture-sizes", "1", "2", "4"]}, True),
    ({"vllm_npus": 2, "vllm_extra_args": ["--enforce-eager", *sizes([1, 2, 4])]}, False),
    ({"vllm_npus": 2, "vllm_extra_args": ["--compilation-config.mode=3"]}, False),
    ({"vllm_npus": 2, "vllm_extra_args": ["--compilation-config", "3"]}, False),
    ({"vllm_npus": 2, "vllm_extra_args": [{"--compilation-config": None}]}, False),
    ({"vllm_npus": 2}, False),
]


@pytest.mark.parametrize(("settings", "too_many"), CAPTURES)
def test_a_310p_takes_two_capture_sizes_with_tensor_parallelism(settings, too_many):
    plan = plan_of(host("atlas_300i_duo"), **settings)
    assert codes(plan) == (["capture_sizes_too_many"] if too_many else [])
    if too_many:
        assert "at most 2" in plan["problems"][0]["message"] and "Qwen3.5-Dense" in plan["problems"][0]["remedy"]
        accepted = plan_of(host("atlas_300i_duo"), vllm_accept_problems=["capture_sizes_too_many"], **settings)
        assert accepted["problems"] == []


def test_other_families_take_more():
    assert codes(plan_of(host(), vllm_npus=2, vllm_extra_args=sizes([1, 2, 4, 8]))) == []


# -- files of a 950 ----------------------------------------------------------------------------------------------------

TOPOLOGY = {"/etc/hccl_rootinfo.json": "file", "/etc/hixlep": "directory", "/lib/route.conf": "file"}


def topology(**changes):
    facts = host("atlas_950dt")
    for path, kind in TOPOLOGY.items():
        facts["paths"][path] = path_entry(kind, version="2.0")
    facts["paths"].update(changes)
    return facts


def test_several_950_npus_get_the_topology_files():
    plan = plan_of(topology(), vllm_npus=8)
    assert plan["problems"] == [] and not {"topology_files_missing", "rootinfo_version"} & set(codes(plan, "warnings"))
    assert set(TOPOLOGY) <= set(targets(plan["instances"][0]))


@pytest.mark.parametrize("path", list(TOPOLOGY))
def test_a_topology_file_that_is_missing_is_a_warning_for_several_npus(path):
    facts = topology(**{path: path_entry("missing")})
    plan = plan_of(facts, vllm_npus=8)
    assert plan["problems"] == [] and path not in targets(plan["instances"][0])
    (warning,) = (w for w in plan["warnings"] if w["code"] == "topology_files_missing")
    assert path in warning["message"] and "pre-check" in warning["remedy"]
    assert "topology_files_missing" not in codes(plan_of(facts), "warnings")


@pytest.mark.parametrize("version", ["1.0", "1.2", None])
def test_a_topology_of_another_version_is_a_warning_and_not_mounted(version):
    facts = topology(**{"/etc/hccl_rootinfo.json": path_entry("file", version=version)})
    plan = plan_of(facts, vllm_npus=8)
    (warning,) = (w for w in plan["warnings"] if w["code"] == "rootinfo_version")
    assert str(version) in warning["message"] and "EI0014" in warning["message"]
    assert "/etc/hccl_rootinfo.json" not in targets(plan["instances"][0])


# -- several instances at once -----------------------------------------------------------------------------------------


def nodes(*numbers):
    return [f"/dev/davinci{number}" for number in numbers]


def a3(ill=(), held=(), npus=16):
    facts = host("atlas_a3", npus=npus)
    facts["chips"] = [
        chip(n, npu_id=n // 2, chip_id=n % 2, health="Alarm" if n in ill else "OK") for n in range(npus)
    ]  # fmt: skip
    return facts, build_observed(foreign=[foreign("train", devices=nodes(*held))] if held else [])


def test_lists_counts_and_all_share_an_a3_with_one_ill_die_and_one_held_card():
    facts, observed = a3(ill=[5], held=[2, 3])
    entries = [
        {"name": "big", "npus": 6},
        {"name": "fixed", "npus": nodes(0, 1), "port": 8001},
        {"name": "odd", "npus": 3, "port": 8002},
    ]
    plan = plan_of(facts, observed, vllm_instances=entries)
    assert plan["problems"] == []
    given = {i["name"]: i["npus"] for i in plan["instances"]}
    # Whole cards: not card 1 (held), nor card 2 (one die is ill); the odd die comes from the broken card.
    assert given == {"fixed": nodes(0, 1), "big": nodes(6, 7, 8, 9, 10, 11), "odd": nodes(4, 12, 13)}
    environment = {i["name"]: i["container"]["environment"] for i in plan["instances"]}
    assert environment["big"]["HCCL_IF_BASE_PORT"] == "60000" and environment["odd"]["HCCL_IF_BASE_PORT"] == "60100"
    assert "HCCL_IF_BASE_PORT" not in environment["fixed"]
    assert "card_split" in codes(plan, "warnings")
    rest = [*entries, {"name": "rest", "npus": "all", "port": 8003}]
    plan = plan_of(facts, observed, vllm_instances=rest)
    assert codes(plan) == ["npu_held", "npu_unhealthy"]
    assert "container train" in plan["problems"][0]["message"] and "/dev/davinci5" in plan["problems"][1]["message"]
    forced = plan_of(facts, observed, vllm_instances=rest, vllm_accept_problems=["npu_held", "npu_unhealthy"])
    assert forced["problems"] == []
    assert forced["instances"][3]["npus"] == nodes(2, 3, 5, 14, 15)


def test_all_problems_of_all_instances_are_said_at_once():
    facts, observed = a3(ill=[4], held=[2, 3])
    entries = [
        {"name": "a", "npus": nodes(2, 99)},
        {"name": "b", "npus": nodes(4, 5), "port": 8001},
        {"name": "c", "npus": 20, "port": 8001},
        {"name": "d", "npus": 1, "port": 8003},
    ]
    assert set(codes(plan_of(facts, observed, vllm_instances=entries))) == {
        "npu_unknown", "npu_held", "npu_unhealthy", "npu_shortage", "port_duplicate", "npus_too_few",
    }  # fmt: skip


@pytest.mark.parametrize("family", ["atlas_a2", "atlas_a3", "atlas_950dt"])
def test_instances_stay_when_one_comes_or_goes(family):
    facts = host(family, npus=16)
    entries = [{"name": f"i{n}", "npus": n, "port": 8000 + n} for n in (2, 4, 3)]

    def run(wanted, running):
        plan = plan_of(facts, build_observed(instances=running), vllm_instances=wanted)
        assert plan["problems"] == []
        return {i["name"]: i for i in plan["instances"]}

    def observe(plans):
        return [observed_instance(i, container={"id": i["name"] * 32, "state": "running"}) for i in plans.values()]

    first = run(entries, [])
    new = {"name": "new", "npus": 2, "port": 8010}
    for wanted in (entries, [new, *entries], [*entries[:1], new, *entries[1:]], entries[::-1]):
        again = run(wanted, observe(first))
        assert {name: again[name]["plan_hash"] for name in first} == {n: i["plan_hash"] for n, i in first.items()}
    kept = {name: plan for name, plan in first.items() if name != "i4"}
    less = run([entries[0], entries[2]], observe(kept))
    assert {name: less[name]["plan_hash"] for name in kept} == {n: i["plan_hash"] for n, i in kept.items()}


def test_sparse_nodes_are_given_as_they_are():
    # vllm-ascend issue 8519: an 800I A2 with these four.
    facts = host(npus=0)
    facts["device_nodes"].update({node: {"type": "char", "mode": "0660"} for node in nodes(10, 12, 14, 16)})
    entries = [{"name": "a", "npus": 2}, {"name": "b", "npus": nodes(14), "port": 8001}, {"name": "c", "port": 8002}]
    plan = plan_of(facts, vllm_instances=entries)
    assert plan["problems"] == []
    assert [i["npus"] for i in plan["instances"]] == [nodes(10, 12), nodes(14), nodes(16)]
    assert codes(plan_of(facts, vllm_npus=nodes(11))) == ["npu_unknown"]
    assert plan_of(facts, vllm_npus="all")["instances"][0]["tensor_parallel_size"] == 4


def test_both_chips_of_a_duo_come_first():
    facts = host("atlas_300i_duo", npus=8)
    entries = [{"name": "one"}, {"name": "two", "npus": 2, "port": 8001}, {"name": "four", "npus": 4, "port": 8002}]
    plan = plan_of(facts, vllm_instances=entries)
    assert plan["problems"] == []
    assert [i["npus"] for i in plan["instances"]] == [nodes(0), nodes(2, 3), nodes(4, 5, 6, 7)]
    assert [i["container"]["network"] for i in plan["instances"]] == ["bridge"] * 3
