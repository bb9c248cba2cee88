"""npu_holds: which NPUs a container holds, by everything that it can be given."""

from __future__ import annotations

import json

import pytest
from ansible_collections.vllm_ascend.fleet.plugins.module_utils import engine, npu_holds

from tests.unit.support import hostile
from tests.unit.support.recorded_hosts import data, known

DEVICES = "Character devices:\n  1 mem\n235 davinci_manager\n236 devdrv-cdev\n238 vdevdrv-cdev2\n\nBlock devices:\n"
MAJORS = npu_holds.npu_majors(DEVICES)
VISIBLE = json.loads(data("docker/visible-devices.json"))
HOLDS = json.loads(data("docker/holds.json"))


def paths(numbers):
    """Node paths of the data files' short form: 3 is /dev/davinci3, "v100" /dev/vdavinci100."""
    return [f"/dev/vdavinci{one[1:]}" if isinstance(one, str) else f"/dev/davinci{one}" for one in numbers]


def test_the_majors_of_npu_nodes():
    assert MAJORS == {236: "davinci"}
    assert npu_holds.npu_majors("511 vdevdrv-cdev\n 510 devdrv-cdev\n") == {511: "vdavinci", 510: "davinci"}
    assert npu_holds.npu_majors(None) == {}


@pytest.mark.parametrize("case", VISIBLE, ids=lambda case: f"{case['value']}|{case.get('options', '')}")
def test_every_form_of_ascend_visible_devices(case):
    nodes, unread = npu_holds.visible_nodes(case["value"], case.get("options", ""))
    assert nodes == paths(case["nodes"])
    assert unread == case.get("unread", [])


@pytest.mark.parametrize("case", VISIBLE, ids=lambda case: f"{case['value']}|{case.get('options', '')}")
def test_a_value_that_cannot_be_read_may_mean_any_npu(case):
    given = npu_holds.Given(visible=case["value"], options=case.get("options"))
    found = npu_holds.holds(given, npu_holds.NOT_KNOWN)
    assert set(paths(case["nodes"])) <= set(found.nodes)
    assert found.any == ("unread" in case)
    assert ("cannot be read" in (found.why or "")) == ("unread" in case)


@pytest.mark.parametrize("case", HOLDS, ids=lambda case: case["about"])
def test_what_a_container_holds(case):
    host = npu_holds.Surroundings(MAJORS, case.get("default_runtime", "runc"))
    found = npu_holds.holds(engine.given(case["inspect"]), host, case.get("image"))
    assert found.facts() == {"nodes": paths(case["nodes"]), "any": case["any"], "why": case["why"]}


@pytest.mark.parametrize(
    "state, holding",
    [
        ("running", True), ("paused", True), ("restarting", True), (None, True),
        ("exited", False), ("created", False), ("dead", False), ("removing", False),
    ],
)  # fmt: skip
def test_only_what_runs_holds(state, holding):
    container = npu_holds.Container(
        "1a" * 32, "train", "i:1", state, "docker", npu_holds.Given(devices=["/dev/davinci3"], privileged=True)
    )
    entry = known(npu_holds.foreign_entry(container, npu_holds.NOT_KNOWN))
    assert (entry["state"], entry["npu"], entry["devices"]) == (state, True, ["/dev/davinci3"])
    assert entry["holds"]["nodes"] == (["/dev/davinci3"] if holding else [])
    assert entry["holds"]["any"] is holding
    assert (entry["holds"]["why"] is not None) is holding


def test_nodes_are_listed_by_number():
    nodes = ["/dev/davinci10", "/dev/vdavinci100", "/dev/davinci2", "/dev/davinci2", "/dev/davinci_manager"]
    assert npu_holds.npu_nodes(nodes) == ["/dev/davinci2", "/dev/davinci10", "/dev/vdavinci100"]


@pytest.mark.parametrize(
    "numbers, node",
    [
        ((236, 0), "/dev/davinci0"), ((236, 99), "/dev/davinci99"), ((236, 100), "/dev/vdavinci100"),
        ((237, 0), None), ((236, -1), None),
    ],
)  # fmt: skip
def test_a_node_by_its_numbers(numbers, node):
    assert npu_holds.node_of(*numbers, MAJORS) == node


@pytest.mark.parametrize("major", [{}, {235: "davinci"}])
def test_a_rule_for_a_major_that_is_not_known_says_nothing(major):
    given = npu_holds.Given(rules=["c 236:* rwm"])
    assert npu_holds.holds(given, npu_holds.Surroundings(major)) == npu_holds.NOTHING


@pytest.mark.parametrize(
    "name, found",
    [
        ("ascend.com/npu=0", ([0], False)),
        ("ascend.com/npu=10", ([10], False)),
        ("huawei.com/Ascend910=Ascend910-3", ([3], False)),
        ("huawei.com/npu=davinci4", ([4], False)),
        ("ascend.com/npu=116", (["v116"], False)),
        ("ascend.com/npu=all", ([], True)),
        ("ascend.com/npu=0-vir02", ([], True)),
        ("nvidia.com/gpu=0", None),
        ("intel.com/npu=0", None),
        ("notascend.org/gpu=0", None),
        ("/dev/davinci0", None),
        ("a=b", None),
    ],
)
def test_cdi_names(name, found):
    assert npu_holds.cdi_nodes(name) == (found if found is None else (paths(found[0]), found[1]))


def test_a_long_value_is_cut_in_the_reason():
    found = npu_holds.holds(npu_holds.Given(visible="x" * 5000), npu_holds.NOT_KNOWN)
    assert found.any
    assert len(known(found.why)) < 150


@pytest.mark.parametrize("value", hostile.VALUES.values(), ids=hostile.VALUES)
def test_hostile_values_in_what_a_container_was_given(value):
    inspect = {
        "HostConfig": {
            "Privileged": True, "Runtime": "ascend", "DeviceCgroupRules": ["c 236:* rwm"],
            "Devices": [{"PathOnHost": "/dev/davinci1"}], "DeviceRequests": [{"DeviceIDs": ["ascend.com/npu=2"]}],
        },
        "Mounts": [{"Source": "/dev/davinci3", "Destination": "/dev/davinci3"}],
        "Config": {"Env": ["ASCEND_VISIBLE_DEVICES=4", "ASCEND_RUNTIME_OPTIONS=VIRTUAL"], "Labels": {}},
        "State": {"Status": "running"},
        "Name": "/vllm-x",
    }  # fmt: skip
    for document in hostile.mutations(inspect):
        for changed in engine.parse_inspect("[" + hostile.written(document, value) + "]"):
            hostile.assert_plain_json(engine.foreign(changed, npu_holds.Surroundings(MAJORS, "runc")))
