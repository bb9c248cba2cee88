# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The ten documented run specifications, and what one change of the host makes of each."""

from __future__ import annotations

import copy
import json
import re

import pytest
from ansible_collections.vllm_ascend.fleet.plugins.plugin_utils.plan import deployment_plan
from ansible_collections.vllm_ascend.fleet.tests.unit.support.facts_builder import (
    CACHE,
    DRIVER,
    add_several_paths,
    build_facts,
    build_observed,
    case_id,
    case_of,
    documented_cases,
    path_entry,
    shipped_profiles,
)

CASES = documented_cases()
SETTINGS = {"vllm_model_cache": CACHE}
NODE = re.compile(r"/dev/davinci\d+$")


def plan_of(facts, observed=None, **settings):
    return deployment_plan(facts, {**SETTINGS, **settings}, shipped_profiles(), observed)


def codes(plan):
    return [problem["code"] for problem in plan["problems"]]


def only_problem(plan):
    assert len(plan["problems"]) == 1, plan["problems"]
    return plan["problems"][0]


def spec_of(plan):
    """The plan's only instance in the form of the documented specifications."""
    (instance,) = plan["instances"]
    container = instance["container"]
    return {
        "image": container["image"],
        "devices": sorted(container["devices"]),
        "mounts": [{"source": m["source"], "target": m["target"]} for m in container["mounts"]],
        "shm_size": container["shm_size"],
        "privileged": container["privileged"],
        "network": container["network"],
        "published_ports": container["published_ports"],
        "serve_args": instance["serve_args"],
    }


def wanted(case):
    return {key: case[key] for key in case if key not in ("family", "image_os", "arch")}


@pytest.mark.parametrize("observed", [None, build_observed()], ids=["not observed", "fresh host"])
@pytest.mark.parametrize("case", CASES, ids=case_id)
def test_plan_equals_the_documentation(case, observed):
    plan = plan_of(build_facts(case), observed)
    assert plan["problems"] == []
    spec = spec_of(plan)
    spec["mounts"].sort(key=lambda mount: mount["target"])
    assert spec == {**wanted(case), "mounts": sorted(case["mounts"], key=lambda mount: mount["target"])}
    assert plan["instances"][0]["container"]["name"] == "vllm-ascend"
    assert plan["instances"][0]["unit"]["name"] == "vllm-ascend.service"


@pytest.mark.parametrize("case", CASES, ids=case_id)
def test_plan_is_json_and_always_the_same(case):
    facts = build_facts(case)
    kept = copy.deepcopy(facts)
    first, second = plan_of(facts), plan_of(facts)
    assert json.dumps(first) == json.dumps(second)
    assert json.loads(json.dumps(first)) == first
    assert facts == kept


def required_paths():
    return [
        pytest.param(case, mount["source"], id=f"{case_id(case)}:{mount['source']}")
        for case in CASES
        for mount in case["mounts"]
        if mount["source"] != CACHE
    ]


@pytest.mark.parametrize(("case", "path"), required_paths())
def test_a_missing_path_is_the_one_problem(case, path):
    facts = build_facts(case)
    facts["paths"][path] = path_entry("missing")
    problem = only_problem(plan_of(facts))
    assert problem["code"] == "path_missing"
    assert path in problem["message"]


@pytest.mark.parametrize(("case", "path"), required_paths())
def test_a_path_of_the_wrong_type_is_the_one_problem(case, path):
    facts = build_facts(case)
    was_folder = facts["paths"][path]["type"] == "directory"
    facts["paths"][path] = path_entry("file" if was_folder else "directory")
    problem = only_problem(plan_of(facts))
    assert problem["code"] == "path_wrong_type"
    assert path in problem["message"]
    if not was_folder:
        assert "docker's -v makes such a directory" in problem["remedy"]
        assert f"rmdir {path}" in problem["remedy"]


@pytest.mark.parametrize(("case", "path"), required_paths())
def test_a_path_nobody_looked_at_is_not_assumed(case, path):
    facts = build_facts(case)
    del facts["paths"][path]
    problem = only_problem(plan_of(facts))
    assert problem["code"] == "path_unknown"
    assert path in problem["message"]


@pytest.mark.parametrize(
    ("case", "device"),
    [
        pytest.param(case, device, id=f"{case_id(case)}:{device}")
        for case in CASES
        for device in case["devices"]
        if not NODE.match(device) and (case["family"], device) != ("atlas_950dt", "/dev/devmm_svm")
    ],
)
def test_a_missing_manager_node_is_the_one_problem(case, device):
    facts = build_facts(case)
    del facts["device_nodes"][device]
    problem = only_problem(plan_of(facts))
    assert problem["code"] == "device_missing"
    assert device in problem["message"]


@pytest.mark.parametrize("case", [c for c in CASES if c["family"] == "atlas_950dt"], ids=case_id)
def test_a_950_without_devmm_svm_is_planned_without_it(case):
    facts = build_facts(case)
    del facts["device_nodes"]["/dev/devmm_svm"]
    plan = plan_of(facts)
    assert plan["problems"] == []
    assert spec_of(plan)["devices"] == [d for d in case["devices"] if d != "/dev/devmm_svm"]


def test_a_950_gets_the_optional_nodes_and_the_topology_that_it_has():
    facts = build_facts(case_of("atlas_950dt"))
    facts["device_nodes"]["/dev/ummu"] = {"type": "directory"}
    facts["device_nodes"]["/dev/uburma"] = {"type": "directory"}
    facts["paths"]["/etc/hccl_rootinfo.json"] = path_entry("file", version="2.0")
    spec = spec_of(plan_of(facts))
    assert {"/dev/ummu", "/dev/uburma"} <= set(spec["devices"])
    assert {"source": "/etc/hccl_rootinfo.json", "target": "/etc/hccl_rootinfo.json"} in spec["mounts"]


@pytest.mark.parametrize("version", ["1.0", "1.2", None])
def test_a_topology_of_another_version_is_not_mounted(version):
    facts = build_facts(case_of("atlas_950dt"))
    facts["paths"]["/etc/hccl_rootinfo.json"] = path_entry("file", version=version)
    plan = plan_of(facts)
    assert plan["problems"] == []
    assert "/etc/hccl_rootinfo.json" not in json.dumps(plan["instances"])
    assert any(e["what"] == "no mount /etc/hccl_rootinfo.json" for e in plan["explain"])


@pytest.mark.parametrize("case", CASES, ids=case_id)
def test_no_npu_node_is_a_problem(case):
    facts = build_facts(case, npus=0)
    problem = only_problem(plan_of(facts))
    assert (problem["code"], "/dev/davinci" in problem["message"]) == ("device_missing", True)


@pytest.mark.parametrize("case", CASES, ids=case_id)
def test_renumbered_nodes_are_mapped_as_they_are(case):
    facts = build_facts(case)
    renumbered = {}
    for node, entry in facts["device_nodes"].items():
        number = NODE.match(node) and int(node[len("/dev/davinci") :])
        renumbered[node if number is None else f"/dev/davinci{number + 10}"] = entry
    facts["device_nodes"] = renumbered
    plan = plan_of(facts)
    assert plan["problems"] == []
    expected = [re.sub(r"davinci(\d)$", r"davinci1\1", device) for device in case["devices"]]
    assert spec_of(plan)["devices"] == sorted(expected)


@pytest.mark.parametrize("case", CASES, ids=case_id)
def test_a_custom_driver_path_changes_sources_not_targets(case):
    plan = plan_of(build_facts(case, driver="/opt/ascend"))
    assert plan["problems"] == []
    moved = [
        {"source": m["source"].replace(f"{DRIVER}/driver", "/opt/ascend/driver"), "target": m["target"]}
        for m in case["mounts"]
    ]
    assert sorted(spec_of(plan)["mounts"], key=str) == sorted(moved, key=str)


RELEASES = [
    ("atlas_a2", "v0.7.3", "v0.7.3"),
    ("atlas_a2", "v0.26.0rc1", "v0.26.0rc1"),
    ("atlas_a2", "v0.7.2", None),
    ("atlas_a3", "v0.10.0rc1", "v0.10.0rc1-a3"),
    ("atlas_a3", "v0.9.2rc1", None),
    ("atlas_a3", "v0.13.0", "v0.13.0-a3"),
    ("atlas_300i_duo", "v0.9.2rc1", "v0.9.2rc1-310p"),
    ("atlas_300i_duo", "v0.9.1", None),
    ("atlas_300i_duo", "v0.13.0", None),
    ("atlas_300i_duo", "v0.14.0rc1", "v0.14.0rc1-310p"),
    ("atlas_200i_pro", "v0.13.0", None),
    ("atlas_200i_pro", "v0.23.0rc1", "v0.23.0rc1-310p"),
    ("atlas_950dt", "v0.23.0rc1", None),
    ("atlas_950dt", "v0.23.0.post1", "v0.23.0.post1-a5"),
    ("atlas_950dt", "v0.24.0rc1", None),
    ("atlas_950dt", "v0.25.1rc1", None),
    ("atlas_950dt", "v0.26.0rc1", "v0.26.0rc1-a5"),
    ("atlas_950dt", "v0.26.0", "v0.26.0-a5"),
    ("atlas_950dt", "nightly-main", "nightly-main-a5"),
]


@pytest.mark.parametrize("image_os", ["ubuntu", "openeuler"])
@pytest.mark.parametrize(("family", "release", "tag"), RELEASES)
def test_a_release_gives_its_tag_or_a_refusal(family, release, tag, image_os):
    plan = plan_of(build_facts(case_of(family, image_os)), vllm_ascend_version=release)
    if tag is None:
        problem = only_problem(plan)
        assert problem["code"] == "image_suffix_not_in_release"
        assert release in problem["message"]
        assert "Set vllm_ascend_version" in problem["remedy"]
        assert plan["instances"] == []
    else:
        assert plan["problems"] == []
        suffix = "-openeuler" if image_os == "openeuler" else ""
        assert plan["image"]["reference"] == f"quay.io/ascend/vllm-ascend:{tag}{suffix}"


def test_the_refusal_lists_the_releases_that_have_the_suffix():
    plan = plan_of(build_facts(case_of("atlas_950dt")), vllm_ascend_version="v0.24.0rc1")
    remedy = only_problem(plan)["remedy"]
    assert '"-a5"' in remedy
    assert "v0.23.0, v0.26.0rc1 and later" in remedy


@pytest.mark.parametrize(
    ("release", "code"),
    [("v0.27.0", "release_newer_than_data"), ("main", "release_unknown"), ("v0.24.0.dev1", "release_unknown")],
)
def test_a_release_beyond_the_data_is_a_warning(release, code):
    plan = plan_of(build_facts(case_of("atlas_a2")), vllm_ascend_version=release)
    assert plan["problems"] == []
    assert code in [warning["code"] for warning in plan["warnings"]]


@pytest.mark.parametrize("family", ["atlas_a2", "atlas_a3"])
def test_several_cards_get_the_host_network_and_hccn_tool(family):
    facts = add_several_paths(build_facts(case_of(family), npus=8))
    plan = plan_of(facts, vllm_npus=4, vllm_port=8100)
    assert plan["problems"] == []
    spec = spec_of(plan)
    assert (spec["network"], spec["published_ports"]) == ("host", [])
    assert f"{DRIVER}/driver/tools/hccn_tool" in [mount["target"] for mount in spec["mounts"]]
    assert spec["serve_args"][3:] == ["--tensor-parallel-size", "4", "--port", "8100"]


def test_one_a3_card_is_two_nodes_and_stays_on_the_bridge():
    plan = plan_of(build_facts(case_of("atlas_a3"), npus=16), vllm_npus=2)
    assert plan["problems"] == []
    spec = spec_of(plan)
    assert (spec["network"], spec["serve_args"][3:]) == ("bridge", ["--tensor-parallel-size", "2"])


def test_several_cards_without_hccn_tool_are_refused():
    problem = only_problem(plan_of(build_facts(case_of("atlas_a2"), npus=2), vllm_npus="all"))
    assert (problem["code"], "hccn_tool" in problem["message"]) == ("path_missing", True)


def test_several_950_npus_get_the_whole_driver_folder_read_only():
    plan = plan_of(add_several_paths(build_facts(case_of("atlas_950dt"), npus=8)), vllm_npus=8)
    assert plan["problems"] == []
    mounts = {mount["target"]: mount for mount in plan["instances"][0]["container"]["mounts"]}
    whole = {"source": f"{DRIVER}/driver", "target": f"{DRIVER}/driver", "read_only": True}
    assert mounts[f"{DRIVER}/driver"] == whole
    assert not [target for target in mounts if target.startswith(f"{DRIVER}/driver/")]
    assert DRIVER not in mounts


def test_several_310p_nodes_get_two_capture_sizes():
    plan = plan_of(build_facts(case_of("atlas_300i_duo"), npus=4), vllm_npus=2)
    args = plan["instances"][0]["serve_args"]
    config = json.loads(args[args.index("--compilation-config") + 1])
    assert config == {"cudagraph_mode": "FULL_DECODE_ONLY", "cudagraph_capture_sizes": [1, 8]}
    assert plan["instances"][0]["container"]["shm_size"] == "1g"
    several = plan_of(build_facts(case_of("atlas_300i_duo"), npus=4), vllm_npus=4)
    assert several["instances"][0]["container"]["shm_size"] == "10g"


@pytest.mark.parametrize(("set_os", "host_os"), [("ubuntu", "openeuler"), ("openeuler", "ubuntu")])
def test_the_200i_pro_needs_the_system_of_its_host(set_os, host_os):
    plan = plan_of(build_facts(case_of("atlas_200i_pro", host_os)), vllm_image_os=set_os)
    problem = next(p for p in plan["problems"] if p["code"] == "image_os_mismatch")
    assert set_os in problem["message"] and host_os in problem["message"]
    other = plan_of(build_facts(case_of("atlas_a2", host_os)), vllm_image_os=set_os)
    assert other["problems"] == []
    assert other["image"]["reference"].endswith("openeuler" if set_os == "openeuler" else "v0.23.0")


def test_an_unknown_host_system_is_a_problem_only_where_it_must_be_known():
    pro, a2 = build_facts(case_of("atlas_200i_pro")), build_facts(case_of("atlas_a2"))
    for facts in (pro, a2):
        facts["host"].update(image_os=None, os_id="kylin", os_version="V10")
    assert "image_os_unknown" in codes(plan_of(pro))
    plan = plan_of(a2)
    assert plan["problems"] == []
    assert plan["image"]["reference"] == "quay.io/ascend/vllm-ascend:v0.23.0"
    assert "kylin V10" in next(w for w in plan["warnings"] if w["code"] == "image_os_unknown")["message"]


@pytest.mark.parametrize(
    ("family", "architecture", "platform", "problem"),
    [
        ("atlas_a2", "x86_64", "linux/amd64", []),
        ("atlas_a2", "aarch64", "linux/arm64", []),
        ("atlas_a2", None, None, []),
        ("atlas_a2", "riscv64", None, ["architecture_unsupported"]),
        ("atlas_200i_pro", "x86_64", "linux/amd64", ["architecture_unsupported"]),
    ],
)
def test_the_platform_follows_the_architecture(family, architecture, platform, problem):
    facts = build_facts(case_of(family))
    facts["host"]["architecture"] = architecture
    plan = plan_of(facts)
    assert (codes(plan), plan["image"]["platform"]) == (problem, platform)
