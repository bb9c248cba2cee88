"""npu-smi's output: every sample is read as its text says, and what is not understood becomes null."""

from __future__ import annotations

import json
import pathlib

import pytest
from ansible_collections.vllm_ascend.fleet.plugins.module_utils import npu_smi
from ansible_collections.vllm_ascend.fleet.plugins.module_utils.npu_smi_errors import classify, complaint

DATA = pathlib.Path(__file__).resolve().parents[2] / "data" / "npu-smi"
INDEX = json.loads((DATA / "index.json").read_text(encoding="utf-8"))
TABLES, OUTPUTS, ERRORS = INDEX["tables"], INDEX["outputs"], INDEX["errors"]
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


def test_every_sample_is_in_the_index():
    assert {path.name for path in DATA.glob("*.txt")} == {*TABLES, *OUTPUTS, *ERRORS}


@pytest.mark.parametrize("name", sorted(OUTPUTS))
def test_every_other_output_is_read_as_its_text_says(name):
    parser = OUTPUTS[name]["parser"]
    given = (complaint if parser == "complaint" else getattr(npu_smi, parser))(sample(name))
    assert json.loads(json.dumps(given)) == OUTPUTS[name]["gives"]


@pytest.mark.parametrize("name", sorted(ERRORS))
def test_every_failure_is_classified_and_shows_no_chip(name):
    expected = ERRORS[name]
    error = classify(expected["rc"], sample(name))
    assert error is not None
    assert error.code == expected["code"] and expected["meaning"] in error.meaning
    assert error.text and error.remedy
    assert npu_smi.parse_info(sample(name)).chips == []


def test_every_dcmi_code_has_a_meaning():
    """The codes of hicann/driver dcmi_interface_api.h, by their text and by the exit status that is left of them."""
    lines = (DATA / "dcmi-error-codes.tsv").read_text(encoding="utf-8").splitlines()[1:]
    codes = [int(line.split("\t")[0]) for line in lines]
    assert len(codes) == 21
    for code in codes:
        by_text, by_status = classify(1, f"npu-smi failed. ret is {code}"), classify(code & 0xFF, "")
        assert by_text is not None and by_status is not None
        assert by_text.code == by_status.code == code
        assert "not known here" not in by_text.meaning


def test_the_commands_of_one_chip():
    """-t health, ecc, board and usages of an NPU, one after the other, with the command lines between them."""
    parts = sample("info-t-board-health-ecc-usages-910a-23.0.5.txt").split("/usr/local/bin/npu-smi ")[1:]
    given = {part.split("\n")[0]: npu_smi.parse_chips(part.split("\n", 1)[1]) for part in parts}
    assert given["info -i 0 -c 0 -t health"]["chips"][0]["health_status"] == "OK"
    assert given["info -i 0 -t board"]["chips"][0]["pci_device_id"] == "0xD801"
    assert given["info -i 0 -c 0 -t board"]["chips"] == [
        {
            "chip_id": 0, "chip_type": "Ascend", "chip_name": "xxx", "chip_version": "V1", "board_id": "0x02",
            "pcb_id": None, "bom_id": "1", "vdie_id": "00000000 00000000 00000000 00000000 00000000",
            "ndie_id": "00000000 00000000 00000000 00000000 00000000", "chip_position_id": "0",
            "pcie_bus_info": "0000:61:00.0", "firmware_version": "7.1.0.7.220",
        }
    ]  # fmt: skip
    usages = given["info -i 0 -t usages"]
    assert (usages["npu_id"], usages["chips"][0]["hbm_capacity_mb"], usages["chips"][0]["chip_id"]) == (0, "32768", 0)


def test_sections_of_two_chips():
    text = "NPU ID : 5\nChip Count : 2\n\nHBM Usage Rate(%) : 1\nChip ID : 0\n\nHBM Usage Rate(%) : 2\nChip ID : 1\n"
    assert npu_smi.parse_chips(text)["chips"] == [
        {"hbm_usage_rate": "1", "chip_id": 0},
        {"hbm_usage_rate": "2", "chip_id": 1},
    ]


@pytest.mark.parametrize("text", ["", "NPU ID :0\n", "Chip ID :1\n", "NPU ID : NA\nChip ID : 0\n", "ret is -8255"])
def test_a_remap_that_does_not_tell(text):
    assert npu_smi.parse_remap(text) is None


def test_the_remap_of_older_chips_has_another_first_line():
    text = "\tChip Physical ID              :4\n\tChip Logic ID                 :2\n\tNPU ID  :96\n\tChip ID  :0\n"
    assert npu_smi.parse_remap(text) == (96, 0)


def test_a_topology_that_was_cut():
    text = sample("info-t-topo-910b1-hccs.txt")
    cut = npu_smi.parse_topology(text[: text.index("NPU5       HCCS")] + "NPU5       HCCS")
    assert sorted(cut) == [0, 1, 2, 3, 4]
    assert npu_smi.parse_topology("NPU0 X HCCS\n") == {}


def test_a_chip_with_an_empty_name_keeps_its_values():
    text = sample("910b3-25.2.0-excerpt.txt").replace("910B3", " " * 5)
    assert [(chip["name"], chip["health"]) for chip in npu_smi.parse_info(text).chips] == [(None, "OK")] * 2
    text = sample("950dt-25.6.rc1.b143-2npu-proc.txt").replace("Ascend950DT", " " * 11)
    assert [(chip["npu_id"], chip["name"]) for chip in npu_smi.parse_info(text).chips] == [(0, None), (1, None)]


def test_masked_ids_lose_the_chip_and_say_so():
    text = sample("910b3-25.2.0-excerpt.txt").replace("| 0     910B3", "| *     910B3")
    table = npu_smi.parse_info(text)
    assert (len(table.chips), table.complete) == (1, False)
    masked = sample("910b3-25.2.0-excerpt.txt").replace("0000:C1:00.0", "xxxx:xx:xx.x")
    assert len(npu_smi.parse_info(masked).chips) == 2


def test_values_of_another_shape_than_their_columns_are_nulls():
    text = sample("910b3-25.2.0-excerpt.txt").replace(
        "Temp(C)           Hugepages-Usage(page)", "Hugepages-Usage(page) Temp(C)"
    )
    chip = npu_smi.parse_info(text).chips[0]
    assert (chip["name"], chip["temperature_c"], chip["power_w"]) == ("910B3", None, None)


def test_the_process_table_is_read_by_its_header():
    text = sample("950dt-25.6.rc1.b143-2npu-proc.txt")
    head = text.partition("| NPU ID                    | Process id    |")[0]
    swapped = "| NPU ID | Process id in container | Process id | Process name | Process memory(MB) |\n"
    rows = "| 0 | 17 | 305192 | VLLMWorker_DP | 84315 |\n"
    chip = npu_smi.parse_info(head + swapped + rows).chips[0]
    assert chip["processes"] == [{"pid": 305192, "name": "VLLMWorker_DP", "memory_mb": 84315}]


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
        ("A2G3", "hbm", "910B"), ("910B", "hbm", None),
        ("910Bvir10", None, None), ("A2G", None, None), ("910ProB", "hbm", "910"), ("910A", "hbm", "910"),
        ("910PremiumA", "hbm", "910"), ("Ascend910", "phy_id", "910_93"), ("Ascend910", "hbm", None),
        ("910C1", None, "910_93"), ("Ascend910_9392", None, "910_93"), ("310P3", "device", "310P"),
        ("I23", "device", "310P"),
        ("I2", "device", "310P"), ("310Pvir04", "device", "310P"),
        ("310B4", "device", "310B"), ("310", "device", "310"), ("Ascend950DT", "npu", "950"),
        ("Ascend950PR", "npu", "950"), ("xxx", "hbm", None), ("", None, None), (None, None, None),
    ],
)  # fmt: skip
def test_generations_by_chip_name(name, layout, generation):
    assert npu_smi.chip_generation(name, layout) == generation


def test_map_leaves_out_management_processors_and_absent_cards():
    text = "\tNPU ID    Chip ID    Chip Logic ID    Chip Name\n\t1    0    1    Ascend 910B4\n\t1    1    -    Mcu\n"
    assert len(npu_smi.parse_map(text + "\t2    0    -    3559\n\t-1    0    3    Ascend 910B4\n")) == 1
    assert npu_smi.parse_map("There is no NPU card on this server.") == []


def test_list():
    text = "Card Count : 2\n\nNPU ID : 2944\nProduct Name : IT21PD2G10\nChip Count : 2\n\nNPU ID : 8\nChip Count : 2\n"
    assert npu_smi.parse_list(text)["npus"] == [
        {"npu_id": 2944, "product_name": "IT21PD2G10", "chip_count": 2},
        {"npu_id": 8, "product_name": None, "chip_count": 2},
    ]


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
