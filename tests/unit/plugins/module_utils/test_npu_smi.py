"""npu-smi's output: every sample is read as its text says, and what is not understood becomes null."""

from __future__ import annotations

import json
import pathlib

import pytest
from ansible_collections.vllm_ascend.fleet.plugins.module_utils import npu_smi
from ansible_collections.vllm_ascend.fleet.plugins.module_utils.npu_smi_errors import classify

DATA = pathlib.Path(__file__).resolve().parents[2] / "data" / "npu-smi"
TABLES = json.loads((DATA / "index.json").read_text(encoding="utf-8"))["tables"]
COLUMNS = (
    "npu_id", "chip_id", "phy_id", "name", "health", "bus_id", "memory_used_mb", "memory_total_mb", "aicore_percent",
    "power_w", "temperature_c",
)  # fmt: skip


def sample(name):
    return (DATA / name).read_text(encoding="utf-8")


def pids(chip):
    return None if chip["processes"] is None else [process["pid"] for process in chip["processes"]]


@pytest.mark.parametrize("name", sorted(TABLES))
def test_every_table_is_read_as_its_text_says(name):
    expected = TABLES[name]
    table = npu_smi.parse_info(sample(name))
    assert [[chip[column] for column in COLUMNS] + [pids(chip)] for chip in table.chips] == expected["chips"]
    assert (table.tool_version, table.driver_version) == (expected["tool_version"], expected["driver_version"])
    assert (table.layout, table.complete) == (expected["layout"], expected["complete"])
    assert table.processes_shown == expected["processes_shown"]
    assert list(npu_smi.table_generations(table)) == expected["generations"]
    assert all(tuple(chip) == npu_smi.CHIP_FIELDS for chip in table.chips)


def test_every_sample_with_a_table_is_in_the_index():
    with_table = {path.name for path in DATA.glob("*.txt") if "+==" in path.read_text(encoding="utf-8")}
    assert with_table == set(TABLES)


def test_noise_before_and_after_the_table_changes_nothing():
    clean = sample("a3-ascend910-25.2.0-2npu-4chip-mixed-proc.txt")
    noisy = "Hook log: | 9  910B3 | OK |\n" + clean + sample("warn-driver-incomplete-SOURCE-STRING.txt")
    assert npu_smi.parse_info(noisy) == npu_smi.parse_info(clean)


def test_process_names_and_memory():
    table = npu_smi.parse_info(sample("950dt-25.6.rc1.b143-2npu-proc.txt"))
    assert table.chips[0]["processes"] == [{"pid": 305192, "name": "VLLMWorker_DP", "memory_mb": 84315}]
    nameless = sample("950dt-25.6.rc1.b143-2npu-proc.txt").replace("VLLMWorker_DP", " " * 13)
    assert npu_smi.parse_info(nameless).chips[1]["processes"] == [{"pid": 305190, "name": None, "memory_mb": 84295}]


def test_unknown_columns_make_nulls_not_numbers():
    text = sample("910b3-25.2.0-excerpt.txt").replace("AICore(%)  ", "Cube(%) Vec(%)").replace("Temp(C)", "Heat(C)")
    chip = npu_smi.parse_info(text).chips[0]
    assert (chip["name"], chip["power_w"]) == ("910B3", 99.3)
    assert [chip[key] for key in ("temperature_c", "aicore_percent", "memory_used_mb", "memory_total_mb")] == [None] * 4


def test_unknown_layout_has_no_physical_ids():
    text = sample("a3-ascend910-25.2.0-2npu-4chip-mixed-proc.txt").replace("Phy-ID", "Die-No")
    table = npu_smi.parse_info(text)
    assert (table.layout, len(table.chips)) == (None, 4)
    assert {chip["phy_id"] for chip in table.chips} == {None}
    assert npu_smi.table_generations(table) == ()


@pytest.mark.parametrize("text", ["", "There is no NPU card on this server.\n", "+", "+---+", "|", "+---+\n|", "\0"])
def test_no_table_has_no_chips(text):
    table = npu_smi.parse_info(text)
    assert table.chips == []
    assert not table.complete or text == "+---+"


@pytest.mark.parametrize(
    ("name", "layout", "generation"),
    [
        ("910B3", "hbm", "910B"), ("910B2C", "hbm", "910B"), ("910B4-1", None, "910B"), ("Ascend 910B4", None, "910B"),
        ("A2G3", "hbm", "910B"), ("910B", "hbm", "910"), ("910ProB", "hbm", "910"), ("910A", "hbm", "910"),
        ("910PremiumA", "hbm", "910"), ("Ascend910", "phy_id", "910_93"), ("Ascend910", "hbm", None),
        ("910C1", None, "910_93"), ("Ascend910_9392", None, "910_93"), ("310P3", "device", "310P"),
        ("I23", "device", "310P"), ("310B4", "device", "310B"), ("310", "device", "310"), ("Ascend950DT", "npu", "950"),
        ("Ascend950PR", "npu", "950"), ("xxx", "hbm", None), ("", None, None), (None, None, None),
    ],
)  # fmt: skip
def test_generations_by_chip_name(name, layout, generation):
    assert npu_smi.chip_generation(name, layout) == generation


def test_map_of_two_layouts():
    assert npu_smi.parse_map(sample("950-info-m-doc.txt")) == [
        {"npu_id": 0, "slot_id": 0, "chip_id": 0, "logic_id": None, "phy_id": 0, "name": "xxx"}
    ]
    rows = npu_smi.parse_map(sample("info-m-910c-dual-die-RECONSTRUCTED.txt"))
    assert [(row["npu_id"], row["chip_id"], row["logic_id"], row["phy_id"], row["name"]) for row in rows] == [
        (0, 0, 0, None, "Ascend 910C"),
        (0, 1, 1, None, "Ascend 910C"),
        (1, 0, 2, None, "Ascend 910C"),
        (1, 1, 3, None, "Ascend 910C"),
    ]


def test_map_leaves_out_management_processors_and_absent_cards():
    text = "\tNPU ID    Chip ID    Chip Logic ID    Chip Name\n\t1    0    1    Ascend 910B4\n\t1    1    -    Mcu\n"
    assert len(npu_smi.parse_map(text + "\t2    0    -    3559\n\t-1    0    3    Ascend 910B4\n")) == 1
    assert npu_smi.parse_map("There is no NPU card on this server.") == []


def test_list():
    assert npu_smi.parse_list(sample("950-info-l-doc.txt")) == {
        "total": 1,
        "npus": [{"npu_id": 0, "product_name": "A5 PCIe Card", "chip_count": None}],
    }
    text = "Card Count : 2\n\nNPU ID : 2944\nProduct Name : IT21PD2G10\nChip Count : 2\n\nNPU ID : 8\nChip Count : 2\n"
    assert npu_smi.parse_list(text)["npus"] == [
        {"npu_id": 2944, "product_name": "IT21PD2G10", "chip_count": 2},
        {"npu_id": 8, "product_name": None, "chip_count": 2},
    ]


def test_board():
    board = npu_smi.parse_board(sample("950-info-t-board-doc.txt"))
    assert (board["pci_device_id"], board["main_board_id"], board["class_id"]) == ("0xD806", "0x68(1P)", None)
    assert (board["pcie_bus_info"], board["subsystem_device_id"]) == ("0000:F1:00.0", "0x4004")


@pytest.mark.parametrize(
    ("text", "product"),
    [
        ("\tNPU ID                         : 0\n\tProduct Type                   : Atlas 200I Pro\n", "Atlas 200I Pro"),
        ("Product Type : NA\n", None),
        ("Product Type : [not support]\n", None),
        ("dcmi get product type failed. ret is -8255\n", None),
        ("", None),
    ],
)
def test_product(text, product):
    assert npu_smi.parse_product(text) == product


@pytest.mark.parametrize(
    ("rc", "text", "code", "meaning", "remedy"),
    [
        (187, sample("err-8005-dcmi-init-failed.txt"), -8005, "could not be initialised", "restart"),
        (187, "", -8005, "could not be initialised", "restart"),
        (1, sample("err-8020-device-is-used.txt"), -8020, "used by somebody else", "container"),
        (0, sample("err-8020-device-is-used.txt"), -8020, "used by somebody else", "container"),
        (1, "dcmi get device info failed. ret is -8008", -8008, "does not exist", "/dev/davinci"),
        (1, "dcmi module initialize failed. ret is -8012", -8012, "not ready", "Wait"),
        (1, "This command failed. ret is -8013", -8013, "in a container", "on the host"),
        (1, "failed. ret is -8017", -8017, "being upgraded", "upgrade"),
        (1, "failed. ret is -8999", -8999, "not known here", "restart the host"),
        (127, sample("err-libc_sec-missing.txt"), None, "libc_sec.so was not found", "lib64/common"),
        (127, sample("err-no-such-file.txt"), None, "could not be started", "Reinstall"),
        (127, "", None, "could not be started", "Reinstall"),
        (126, "bash: /usr/local/bin/npu-smi: Is a directory", None, "could not be started", "Reinstall"),
        (None, "[Errno 8] Exec format error", None, "could not be started", "executable for this machine"),
        (0, sample("err-no-npu-card-SOURCE-STRING.txt"), None, "no NPU card", "dmesg"),
        (0, "", None, "printed nothing", "as root"),
        (3, "odd", None, "exit status 3", "as root"),
    ],
)
def test_errors_are_named(rc, text, code, meaning, remedy):
    error = classify(rc, text)
    assert error is not None
    assert error.code == code
    assert meaning in error.meaning
    assert remedy in error.remedy
    assert error.text in text.replace("\n", " / ")


@pytest.mark.parametrize("name", sorted(TABLES))
def test_a_table_is_no_error(name):
    assert classify(0, sample(name) + sample("warn-driver-incomplete-SOURCE-STRING.txt")) is None
