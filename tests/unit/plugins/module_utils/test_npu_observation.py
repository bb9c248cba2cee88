"""Whole hosts, replayed from trees: family, chips with their nodes, users, paths, and every problem."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import time

import pytest
from ansible_collections.vllm_ascend.fleet.plugins.module_utils import (
    commands,
    npu_observation,
    npu_smi_query,
    npu_usage,
)
from ansible_collections.vllm_ascend.fleet.plugins.module_utils.driver import read_driver
from ansible_collections.vllm_ascend.fleet.plugins.module_utils.npu_observation import Options, collect
from ansible_collections.vllm_ascend.fleet.plugins.module_utils.sysroot import Sysroot
from ansible_collections.vllm_ascend.fleet.tests import gallery
from ansible_collections.vllm_ascend.fleet.tests.unit.support import host_trees

from tests.unit.support.hostile import DEEP, assert_plain_json

DATA = pathlib.Path(__file__).resolve().parents[2] / "data"
SAMPLES = DATA / "npu-smi"
LISTINGS = json.loads((DATA / "host-files/index.json").read_text(encoding="utf-8"))["dev_listing"]
NAMESPACES = (DATA / "host-files/uda-namespace_node.host-and-two-containers.txt").read_text(encoding="utf-8")
DEVICES = (DATA / "host-files/uda-udevice.a2-shared-and-split.txt").read_text(encoding="utf-8")
KEYS = {
    "family", "product", "evidence", "problems", "warnings", "chips", "device_nodes", "pci", "driver", "npu_smi",
    "usage", "host", "paths",
}  # fmt: skip
FAMILY_OS = [(family, image_os) for family in host_trees.FAMILIES for image_os in ("ubuntu", "openeuler")]


def facts(tree, **options):
    return collect(Sysroot(str(tree.root)), Options(**options))


def codes(found):
    return [problem["code"] for problem in found["problems"]]


def messages(found):
    return " ".join(problem["message"] for problem in found["problems"])


@pytest.mark.parametrize(("family", "image_os"), FAMILY_OS)
def test_healthy_hosts(tmp_path, family, image_os):
    found = facts(host_trees.family_host(tmp_path, family, image_os))
    assert set(found) == KEYS
    assert (found["family"], found["host"]["image_os"]) == (family, image_os)
    assert found["problems"] == found["warnings"] == []
    assert found["npu_smi"] == {
        "status": "ok",
        "path": "/usr/local/sbin/npu-smi" if family == "atlas_200i_pro" else "/usr/local/bin/npu-smi",
        "version": "25.5.1",
        "error_code": None,
        "error_text": None,
    }
    nodes = [path for path in found["device_nodes"] if path[len("/dev/davinci") :].isdigit()]
    assert len(found["chips"]) == len(nodes)
    assert found["driver"]["status"] == "installed"
    assert json.loads(json.dumps(found)) == found


@pytest.mark.parametrize("name", sorted(LISTINGS))
def test_device_listings(tmp_path, name):
    expected = LISTINGS[name]
    tree = host_trees.HostTree(tmp_path).driver().nodes(*expected["nodes"])
    found = facts(tree)
    assert found["family"] == expected["family"]
    assert set(found["device_nodes"]) == {"/dev/" + node for node in expected["nodes"]}


@pytest.mark.parametrize("sample", ["910b3-25.2.0-excerpt.txt", "910b4-24.1.1-2npu-32g-busy-excerpt.txt"])
def test_real_tables_on_a_host(tmp_path, sample):
    tree = host_trees.card_host(tmp_path, "atlas_a2").npu_smi((SAMPLES / sample).read_text(encoding="utf-8"))
    found = facts(tree)
    assert (found["family"], found["problems"], len(found["chips"])) == ("atlas_a2", [], 2)


# -- chips and nodes ---------------------------------------------------------------------------------------------------


def test_physical_ids_of_the_table_give_the_node(tmp_path):
    found = facts(host_trees.card_host(tmp_path, "atlas_a3", functions=4))
    assert [chip["device"] for chip in found["chips"]] == [f"/dev/davinci{n}" for n in range(4)]


def test_the_drivers_id_gives_the_node_and_the_npu_id_does_not(tmp_path):
    found = facts(gallery.build(tmp_path, "sparse_nodes"))
    assert [(chip["npu_id"], chip["device"]) for chip in found["chips"]] == [
        (0, "/dev/davinci0"), (32, "/dev/davinci4"), (96, "/dev/davinci8"),
    ]  # fmt: skip
    assert [chip["phy_id"] for chip in found["chips"]] == [0, 4, 8]


def test_the_driver_s_table_gives_the_node_and_without_it_nothing_does(tmp_path):
    found = facts(host_trees.card_host(tmp_path, "atlas_a2"))
    assert [(chip["phy_id"], chip["device"]) for chip in found["chips"]] == [(0, "/dev/davinci0"), (1, "/dev/davinci1")]
    for table in tmp_path.rglob("devdrv_sysfs_bdf_to_devid"):
        table.unlink()
    found = facts(host_trees.HostTree(tmp_path))
    assert [(chip["phy_id"], chip["device"]) for chip in found["chips"]] == [(None, None), (None, None)]


def test_both_chips_of_a_duo_are_told_by_the_driver_s_table(tmp_path):
    tree = host_trees.card_host(tmp_path, "atlas_300i_duo", functions=2)
    tree.node_table([("0000:81:00.0", 3), ("0000:81:00.0", 1), ("0000:82:00.0", 0), ("0000:82:00.0", 2)])
    assert [(chip["npu_id"], chip["chip_id"], chip["device"]) for chip in facts(tree)["chips"]] == [
        (0, 0, "/dev/davinci1"), (0, 1, "/dev/davinci3"), (1, 0, "/dev/davinci0"), (1, 1, "/dev/davinci2"),
    ]  # fmt: skip


def test_the_driver_s_table_goes_before_its_number_of_the_chip(tmp_path):
    found = facts(gallery.build(tmp_path, "reordered_nodes"))
    assert [(chip["health"], chip["device"]) for chip in found["chips"]] == [
        ("Alarm", "/dev/davinci1"), ("OK", "/dev/davinci0"),
    ]  # fmt: skip


def test_a_table_with_fewer_chips_than_the_driver_has_behind_a_function_proves_none_of_them(tmp_path):
    tree = host_trees.card_host(tmp_path, "atlas_300i_duo", functions=1)
    tree.npu_smi(host_trees.info_table("atlas_300i_duo", [host_trees.Row(0, 1, 1, "0000:81:00.0")]))
    assert [chip["device"] for chip in facts(tree)["chips"]] == [None]


def test_one_chip_and_one_node_belong_together(tmp_path):
    found = facts(host_trees.rc_module_host(tmp_path))
    assert [chip["device"] for chip in found["chips"]] == ["/dev/davinci0"]


def test_a_table_that_was_cut_does_not_prove_that_there_is_one_chip(tmp_path):
    tree = host_trees.card_host(tmp_path, "atlas_a2", functions=1)
    tree.remove("sys/bus/pci/devices/0000:81:00.0/devdrv_sysfs_bdf_to_devid")
    whole = tree.records[0]["stdout"]
    tree.npu_smi(whole[: whole.rstrip("\n").rfind("\n") + 1])
    found = facts(tree)
    assert [chip["device"] for chip in found["chips"]] == [None]


def test_a_physical_id_without_a_node_gives_no_device(tmp_path):
    tree = host_trees.card_host(tmp_path, "atlas_a3", functions=2).remove("dev/davinci1")
    found = facts(tree)
    assert [(chip["phy_id"], chip["device"]) for chip in found["chips"]] == [(0, "/dev/davinci0"), (1, None)]


def test_950_physical_ids_come_from_the_map(tmp_path):
    found = facts(gallery.build(tmp_path, "ub_950"))
    assert [chip["device"] for chip in found["chips"]] == ["/dev/davinci0", "/dev/davinci1"]


def test_nodes_are_sorted_by_number_and_others_are_not_mistaken(tmp_path):
    tree = host_trees.HostTree(tmp_path).nodes("davinci10", "davinci2", "vdavinci100", "davinci_manager", "tty", "null")
    tree.nodes("ummu/ummu0")
    found = facts(tree)
    assert list(found["device_nodes"]) == [
        "/dev/davinci2", "/dev/davinci10", "/dev/davinci_manager", "/dev/ummu", "/dev/ummu/ummu0",
    ]  # fmt: skip
    assert found["device_nodes"]["/dev/davinci2"]["type"] == "char"
    assert found["device_nodes"]["/dev/davinci2"]["major"] is None
    assert found["device_nodes"]["/dev/ummu"]["type"] == "directory"


# -- npu-smi -----------------------------------------------------------------------------------------------------------


def test_skipped_is_no_problem(tmp_path):
    for family in host_trees.FAMILIES:
        tree = host_trees.family_host(tmp_path / family, family)
        found = facts(tree, npu_smi="skip")
        assert (found["family"], found["problems"], found["chips"]) == (family, [], [])
        assert found["npu_smi"]["status"] == "skipped"


def test_a_program_without_a_record_is_skipped(tmp_path):
    tree = host_trees.card_host(tmp_path, "atlas_a2").remove("recorded/commands.json")
    found = facts(tree)
    assert (found["npu_smi"]["status"], found["problems"]) == ("skipped", [])


def test_missing(tmp_path):
    tree = host_trees.card_host(tmp_path, "atlas_a2").remove("usr/local/bin/npu-smi").remove("usr/local/sbin/npu-smi")
    found = facts(tree)
    assert (found["family"], codes(found)) == ("atlas_a2", ["npu_smi_missing"])
    assert found["npu_smi"]["status"] == "missing"
    assert "/usr/local/bin/npu-smi" in messages(found)


def test_a_directory_in_the_programs_place(tmp_path):
    tree = host_trees.card_host(tmp_path, "atlas_a2").remove("usr/local/bin/npu-smi").remove("usr/local/sbin/npu-smi")
    found = facts(tree.folder("usr/local/bin/npu-smi"))
    assert codes(found) == ["npu_smi_is_directory"]
    assert "/usr/local/bin/npu-smi is a directory" in messages(found)
    assert found["paths"]["/usr/local/bin/npu-smi"]["type"] == "directory"


@pytest.mark.parametrize("family", host_trees.FAMILIES)
@pytest.mark.parametrize(("uptime", "starting"), [("90.0", True), ("7200.0", False)])
def test_hung(tmp_path, family, uptime, starting):
    tree = host_trees.family_host(tmp_path, family).npu_smi("", timed_out=True, places=[])
    tree.put("proc/uptime", uptime + " 1.0\n")
    found = facts(tree, npu_smi_timeout=7)
    assert (found["family"], codes(found), found["npu_smi"]["status"]) == (family, ["npu_smi_hung"], "hung")
    assert "7 s" in messages(found)
    assert ("may still be starting" in messages(found)) is starting


@pytest.mark.parametrize(
    ("rc", "text", "code", "word"),
    [
        (187, (SAMPLES / "err-8005-dcmi-init-failed.txt").read_text(encoding="utf-8"), -8005, "initialised"),
        (1, (SAMPLES / "err-8020-device-is-used.txt").read_text(encoding="utf-8"), -8020, "somebody else"),
        (127, (SAMPLES / "err-libc_sec-missing.txt").read_text(encoding="utf-8"), None, "libc_sec.so"),
        (0, (SAMPLES / "err-no-npu-card-SOURCE-STRING.txt").read_text(encoding="utf-8"), None, "no NPU card"),
        (0, "a new kind of output\n", None, "no table"),
    ],
)
def test_errors(tmp_path, rc, text, code, word):
    found = facts(host_trees.card_host(tmp_path, "atlas_a2").npu_smi(text, rc=rc))
    assert (found["family"], codes(found)) == ("atlas_a2", ["npu_smi_error"])
    assert (found["npu_smi"]["status"], found["npu_smi"]["error_code"]) == ("error", code)
    assert found["npu_smi"]["error_text"]
    assert word in messages(found)


def test_a_product_question_that_hangs_ends_all_questions(tmp_path):
    tree = gallery.build(tmp_path, "ep_310p_300i_pro")
    tree.record(["npu-smi", "info", "-t", "product", "-i", "4"], "", timed_out=True)
    found = facts(tree)
    assert (found["family"], found["npu_smi"]["status"]) == ("unknown", "hung")
    assert codes(found) == ["unknown_npu", "npu_smi_hung"]


def test_every_npu_smi_call_is_counted(tmp_path, monkeypatch):
    asked = []
    original = Sysroot.run

    def counting(self, argv, timeout, env=None):
        asked.append((argv[1:], (env or {}).get("LD_LIBRARY_PATH", "")))
        return original(self, argv, timeout, env)

    monkeypatch.setattr(Sysroot, "run", counting)
    expected = {"atlas_200i_pro": 2, "atlas_950dt": 2}
    for family in host_trees.FAMILIES:
        del asked[:]
        facts(host_trees.family_host(tmp_path / family, family))
        questions = [words for words, _libraries in asked if words[:1] == ["info"]]
        assert len(questions) == expected.get(family, 1), family
        assert questions[0] == ["info"]
        assert "/usr/local/Ascend/driver/lib64/common" in asked[-1][1]


@pytest.mark.parametrize("limit", [1, 2])
def test_a_live_npu_smi_that_cannot_be_killed_costs_its_limit_and_is_called_once(tmp_path, monkeypatch, limit):
    """A whole observation of a 310P that needs a second question, with a program that hangs and takes no SIGKILL."""
    tree = gallery.build(tmp_path, "ep_310p_300i_pro").remove("recorded/commands.json")
    program = tmp_path / "usr/local/bin/npu-smi"
    program.write_text(f'#!/bin/sh\necho $$ "$@" >> {tmp_path}/calls\nsleep 60\n')
    sysroot = Sysroot(str(tree.root))
    run_live = Sysroot("/").run
    monkeypatch.setattr(sysroot, "run", lambda argv, *rest, **more: run_live([str(tmp_path) + argv[0]], *rest, **more))
    monkeypatch.setattr(commands.os, "killpg", lambda group, number: None)
    start = time.monotonic()
    found = collect(sysroot, Options(npu_smi_timeout=limit))
    took = time.monotonic() - start
    monkeypatch.undo()
    (call,) = (tmp_path / "calls").read_text().splitlines()
    os.killpg(int(call.split()[0]), signal.SIGKILL)
    assert found["npu_smi"]["status"] == "hung"
    assert (found["family"], codes(found)) == ("unknown", ["unknown_npu", "npu_smi_hung"])
    assert limit <= took < limit + 10, "the program sleeps a minute"


def test_nothing_of_a_replay_is_run(tmp_path):
    trap = tmp_path / "ran"
    tree = host_trees.card_host(tmp_path, "atlas_a2")
    for place in ("bin", "sbin"):
        tree.put(f"usr/local/{place}/npu-smi", f"#!/bin/sh\ntouch {trap}\n", 0o755)
    facts(tree)
    assert not trap.exists()


def test_live_npu_smi_is_run_with_the_drivers_libraries(tmp_path):
    """The program is really started here, with its own libraries first; the rest is read from a tree."""
    tree = host_trees.card_host(tmp_path, "atlas_a2").remove("recorded/commands.json")
    tree.put("usr/local/bin/npu-smi", '#!/bin/sh\necho "$@ $LD_LIBRARY_PATH"\nexit 187\n', 0o755)
    driver = read_driver(Sysroot(str(tmp_path)))._replace(npu_smi_path=str(tmp_path / "usr/local/bin/npu-smi"))
    answer = npu_smi_query.NpuSmi(Sysroot("/"), driver, 5).info()
    assert answer.error is not None
    assert (answer.status, answer.error.code) == ("error", -8005)
    assert answer.error.text.startswith(
        "info /usr/local/Ascend/driver/lib64/common:/usr/local/Ascend/driver/lib64/driver"
    )


# -- users -------------------------------------------------------------------------------------------------------------


def test_processes_of_the_table_are_users(tmp_path):
    table = (SAMPLES / "a3-ascend910-25.2.0-2npu-4chip-mixed-proc.txt").read_text(encoding="utf-8")
    found = facts(host_trees.card_host(tmp_path, "atlas_a3", functions=4).npu_smi(table))
    assert found["usage"] == [
        {
            "device": "/dev/davinci3",
            "owner": {"kind": "process", "name": "python", "id": 990711},
            "pid": 990711,
            "source": "npu-smi info: NPU 1 chip 1",
        }
    ]


def test_a_process_in_a_container_is_its_container(tmp_path):
    table = (SAMPLES / "a3-ascend910-25.2.0-2npu-4chip-mixed-proc.txt").read_text(encoding="utf-8")
    tree = host_trees.card_host(tmp_path, "atlas_a3", functions=4).npu_smi(table)
    container = "cd" * 32
    (entry,) = facts(tree.put("proc/990711/cgroup", f"0::/kubepods/pod1/cri-containerd-{container}.scope\n"))["usage"]
    assert entry["owner"] == {"kind": "container", "name": None, "id": container}
    assert (entry["device"], entry["pid"]) == ("/dev/davinci3", 990711)


def test_the_drivers_namespaces_are_users(tmp_path):
    container = "ab" * 32
    tree = host_trees.HostTree(tmp_path)
    tree.put("proc/uda/namespace_node", NAMESPACES)
    tree.put("proc/2679/cgroup", f"0::/system.slice/docker-{container}.scope\n").put("proc/30/comm", "bash\n")
    usage = facts(tree)["usage"]
    assert [(entry["device"], entry["owner"]["kind"], entry["owner"]["id"], entry["pid"]) for entry in usage] == [
        ("/dev/davinci3", "container", container, 2679),
        ("/dev/davinci6", "container", container, 2679),
        ("/dev/davinci7", "process", 30, 30),
    ]
    assert usage[2]["owner"]["name"] == "bash"
    assert {entry["source"] for entry in usage} == {"/proc/uda/namespace_node"}


def test_the_drivers_list_of_chips(tmp_path):
    """Chips that a container has or shares; a part of a chip (vdavinci) is not one of them."""
    assert npu_usage.parse_devices(DEVICES) == [
        (0, "cloud_v2", []), (1, "cloud_v2", [0]), (2, "cloud_v2", [1, 3]), (3, "cloud_v2", []),
    ]  # fmt: skip
    found = facts(host_trees.HostTree(tmp_path).put("proc/uda/udevice", DEVICES))
    assert [(entry["device"], entry["owner"], entry["pid"]) for entry in found["usage"]] == [
        ("/dev/davinci1", {"kind": "container", "name": None, "id": None}, None),
        ("/dev/davinci2", {"kind": "container", "name": None, "id": None}, None),
        ("/dev/davinci2", {"kind": "container", "name": None, "id": None}, None),
    ]
    assert {"source": "driver's chips", "value": "4 x 910B or 910_93", "implies": None} in found["evidence"]


def test_the_drivers_two_tables_say_a_holder_once(tmp_path):
    tree = host_trees.HostTree(tmp_path).put("proc/uda/namespace_node", NAMESPACES)
    tree.put("proc/uda/udevice", DEVICES.replace("ns id 0", "ns id 128").replace(": 1 3", ": 1"))
    assert [(entry["device"], entry["pid"], entry["source"]) for entry in facts(tree)["usage"]] == [
        ("/dev/davinci3", 2679, "/proc/uda/namespace_node"),
        ("/dev/davinci6", 2679, "/proc/uda/namespace_node"),
        ("/dev/davinci7", 30, "/proc/uda/namespace_node"),
        ("/dev/davinci2", 30, "/proc/uda/udevice"),
    ]


@pytest.mark.parametrize("text", ["", "ns_id x identify 0 root_tgid 1 dev_num 1\n0 0\n", "0 0\n", "udevid 1\n"])
def test_driver_tables_that_are_not_understood_name_nobody(tmp_path, text):
    tree = host_trees.HostTree(tmp_path).put("proc/uda/namespace_node", text).put("proc/uda/udevice", text)
    assert facts(tree)["usage"] == []


@pytest.mark.parametrize("health", ["Alarm", "OK"])
def test_the_chip_of_each_node_is_asked_for_only_while_one_that_is_ill_has_none(tmp_path, health):
    tree = host_trees.card_host(tmp_path, "atlas_a2", functions=3)
    for table in tmp_path.rglob("devdrv_sysfs_bdf_to_devid"):
        table.unlink()
    rows = [host_trees.Row(n, 0, n, f"0000:8{n + 1}:00.0", health if n == 1 else "OK") for n in range(3)]
    tree.npu_smi(host_trees.info_table("atlas_a2", rows))
    for node, npu_id in ((0, 2), (1, 1), (2, 0)):
        text = f"\tChip Physical ID :{node}\n\tNPU ID :{npu_id}\n\tChip ID :0\n"
        tree.record(["npu-smi", "info", "-t", "phyid-remap", "-p", str(node)], text)
    devices = [chip["device"] for chip in facts(tree)["chips"]]
    assert devices == ([None, "/dev/davinci1", "/dev/davinci0"] if health == "Alarm" else [None] * 3)


# -- paths -------------------------------------------------------------------------------------------------------------


def test_paths(tmp_path):
    tree = host_trees.HostTree(tmp_path).driver(path="/opt/huawei").nodes("davinci_manager")
    tree.put("etc/hccl_rootinfo.json", '{"version": "1.2", "rank_list": []}', 0o640)
    (tmp_path / "usr/lib64").mkdir(parents=True)
    (tmp_path / "usr/lib64/libyaml.so").symlink_to("/opt/huawei/driver/version.info")
    (tmp_path / "usr/lib64/broken.so").symlink_to("nowhere")
    wanted = ["{driver}/driver/lib64", "/usr/lib64/libyaml.so", "/usr/lib64/broken.so", "/dev/davinci_manager", "/none"]
    paths = facts(tree, paths=wanted)["paths"]
    assert paths["/opt/huawei/driver/lib64"]["type"] == "directory"
    assert paths["/usr/lib64/libyaml.so"]["type"] == "file"
    assert paths["/usr/lib64/libyaml.so"]["link"] == "/opt/huawei/driver/version.info"
    assert paths["/usr/lib64/broken.so"]["type"] == "link_broken"
    assert paths["/dev/davinci_manager"]["type"] == "char"
    assert paths["/none"] == {
        "type": "missing", "mode": None, "uid": None, "gid": None, "size": None, "executable": None,
    }  # fmt: skip
    record = paths["/etc/hccl_rootinfo.json"]
    assert (record["version"], record["mode"], record["executable"]) == ("1.2", "0640", False)
    assert record["size"] == 35


@pytest.mark.parametrize("text", ["", "{", "[]", '{"rank_list": []}'])
def test_rootinfo_without_a_version(tmp_path, text):
    tree = host_trees.HostTree(tmp_path).put("etc/hccl_rootinfo.json", text)
    assert facts(tree)["paths"]["/etc/hccl_rootinfo.json"]["version"] is None


def test_without_a_driver_the_documented_folder_is_meant(tmp_path):
    paths = facts(host_trees.HostTree(tmp_path), paths=["{driver}/driver/version.info"])["paths"]
    assert paths["/usr/local/Ascend/driver/version.info"]["type"] == "missing"


def test_live_files_are_no_nodes(monkeypatch, tmp_path):
    """On a live host an ordinary file in a node's place keeps its type and counts for nothing."""
    tree = host_trees.card_host(tmp_path, "atlas_a2", functions=1)
    sysroot = Sysroot(str(tree.root))
    monkeypatch.setattr(sysroot, "replay", False)
    monkeypatch.setattr(sysroot, "path", lambda path: str(tmp_path) + path)
    monkeypatch.setattr(sysroot, "run", lambda argv, timeout, env=None: None)
    found = collect(sysroot, Options(npu_smi="skip"))
    assert found["device_nodes"]["/dev/davinci0"]["type"] == "file"
    assert codes(found) == ["device_nodes_missing"]


def test_a_real_node_has_its_numbers():
    record = npu_observation.stat_paths(Sysroot("/"), ["/dev/null"], read_driver(Sysroot("/")))["/dev/null"]
    assert (record["type"], record["mode"]) == ("char", "{:04o}".format(os.stat("/dev/null").st_mode & 0o7777))


# -- hostile hosts -----------------------------------------------------------------------------------------------------

TEXTS = {
    "empty": b"",
    "nul": b"/a\0b",
    "digits": b"9" * 5000,
    "superscript": "\u00b2".encode(),
    "infinite": b"inf",
    "no UTF-8": b"0x\xff\xfe",
    "assigned": b"Driver_Install_Path_Param=/a\0b\nversion=" + b"9" * 5000,
    "deep": DEEP.encode(),
}


@pytest.mark.parametrize("content", TEXTS.values(), ids=TEXTS)
@pytest.mark.parametrize("family", ["atlas_a2", "atlas_950dt", "atlas_200i_pro"])
def test_hostile_files(tmp_path, family, content):
    tree = host_trees.family_host(tmp_path, family)
    tree.put("proc/uda/namespace_node", "ns_id 3 identify 0xffff root_tgid 1 dev_num 1\n0 0\n")
    for path in (
        "etc/hccl_rootinfo.json",
        "proc/1/cgroup",
        "proc/1/comm",
        "sys/class/dmi/id/board_name",
        "proc/uptime",
    ):
        tree.put(path, "{}")
    for path in [path for path in tmp_path.rglob("*") if path.is_file() and "recorded" not in path.parts]:
        before = path.read_bytes()
        path.write_bytes(content)
        assert_plain_json(facts(tree, paths=["{driver}/x", "/a\0b"]))
        path.unlink()
        path.symlink_to(path.name)
        assert_plain_json(facts(tree))
        path.unlink()
        path.mkdir()
        assert_plain_json(facts(tree))
        path.rmdir()
        path.write_bytes(before)


@pytest.mark.parametrize(
    "output", ["9" * 5000, "\u00b2", DEEP, "+---+\n| " + "9" * 5000 + " 910B3 | OK | 1 |\n+===+\n"]
)
def test_hostile_outputs(tmp_path, output):
    tree = host_trees.family_host(tmp_path, "atlas_950dt")
    tree.npu_smi(output).record(["npu-smi", "info", "-m"], output).record(["getconf", "PAGESIZE"], output)
    found = facts(tree)
    assert_plain_json(found)
    assert (found["chips"], found["host"]["page_size"]) == ([], None)


@pytest.mark.parametrize(
    "line", ["ns_id {0} identify 0xf root_tgid 1 dev_num 1", "ns_id 3 identify 0xf root_tgid {0} dev_num 1"]
)
def test_absurd_numbers_in_the_driver_s_table(tmp_path, line):
    tree = host_trees.HostTree(tmp_path).put("proc/uda/namespace_node", line.format("9" * 5000) + "\n0 0\n")
    assert facts(tree)["usage"] == []


@pytest.mark.parametrize("uptime, seconds", [("inf 1", None), ("nan", None), ("-1", None), ("12.9 3", 12)])
def test_uptime(tmp_path, uptime, seconds):
    assert facts(host_trees.HostTree(tmp_path).put("proc/uptime", uptime))["host"]["uptime_s"] == seconds
