"""Damaged tables of npu-smi: never a crash, a chip that the whole table does not have, or a value in a wrong field.

Two measures. What loses or repeats text may not change a chip (assert_nothing_invented). What moves text about may put
a value of one chip to another, since nothing in a table tells whose a row is; but each value must be one that the field
has somewhere in the whole table, and each chip one of it (assert_nothing_misplaced). Only the pid and the memory of a
process look alike.
"""

from __future__ import annotations

import json
import pathlib
import re

import pytest
from ansible_collections.vllm_ascend.fleet.plugins.module_utils.npu_smi import parse_info, parse_list, parse_map
from ansible_collections.vllm_ascend.fleet.plugins.module_utils.npu_smi_errors import classify
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.support.hostile import assert_plain_json

DATA = pathlib.Path(__file__).resolve().parents[2] / "data" / "npu-smi"
NAMES = sorted(json.loads((DATA / "index.json").read_text(encoding="utf-8"))["tables"])
TEXTS = {name: (DATA / name).read_text(encoding="utf-8") for name in NAMES}
# What is certain about a chip: a damaged table may lose it, but not change it.
IDENTITY = ("npu_id", "chip_id", "name", "bus_id", "phy_id", "memory_total_mb", "memory_used_mb", "power_w")
VALUES = (
    "health",
    "bus_id",
    "phy_id",
    "memory_total_mb",
    "memory_used_mb",
    "aicore_percent",
    "power_w",
    "temperature_c",
)
BOUNDED = settings(max_examples=300, derandomize=True, deadline=None, database=None)
MANY = settings(max_examples=900, derandomize=True, deadline=None, database=None)
NOISE = (
    "", "...", "[WARNING] noise", "| |", "||||", "+", "\t", "| x | y |", "| x | y | z |", "| 9 | OK | z |",
    "|  |  |  |",
    "DrvMngGetConsoleLogLevel failed. (g_conLogLevel=3)", "\u2502 0 \u2502 910B3 \u2502", "+---+---+", "\u3000",
    "| \uff10 |",
)  # fmt: skip


def assert_nothing_invented(name, damaged):
    whole = {(chip["npu_id"], chip["chip_id"]): chip for chip in parse_info(TEXTS[name]).chips}
    for chip in parse_info(damaged).chips:
        original = whole[(chip["npu_id"], chip["chip_id"])]
        for key in IDENTITY:
            assert chip[key] in (None, original[key]), key
        known = {process["pid"] for process in original["processes"] or []}
        assert {process["pid"] for process in chip["processes"] or []} <= known


def assert_nothing_misplaced(name, damaged):
    whole = parse_info(TEXTS[name]).chips
    known = {(chip["npu_id"], chip["chip_id"], chip["name"]) for chip in whole}
    nameless = {(npu, chip, None) for npu, chip, _name in known}
    processes = [process for chip in whole for process in chip["processes"] or []]
    for chip in parse_info(damaged).chips:
        assert (chip["npu_id"], chip["chip_id"], chip["name"]) in known | nameless
        for key in VALUES:
            assert chip[key] is None or chip[key] in {one[key] for one in whole}, key
        numbers = {one[key] for one in processes for key in ("pid", "memory_mb")}
        for process in chip["processes"] or []:
            assert {process["pid"], process["memory_mb"]} <= {None, *numbers}
            assert process["name"] is None or not process["name"].isdigit()


@pytest.mark.parametrize("name", NAMES)
def test_every_cut_at_the_end_and_at_the_start(name):
    text = TEXTS[name]
    for place in range(0, len(text), 17):
        assert_nothing_invented(name, text[:place])
        assert_nothing_invented(name, text[text.find("\n", place) + 1 :])


def rows_of(text):
    """The numbers of the lines that are rows of the table."""
    return [number for number, line in enumerate(text.splitlines()) if line.lstrip().startswith("|")]


def cells_of(line):
    return line.strip().strip("|").split("|")


def with_lines(lines, changes):
    return "\n".join(line for number, old in enumerate(lines) for line in changes.get(number, [old])) + "\n"


@pytest.mark.parametrize("name", NAMES)
def test_each_line_lost_repeated_or_cut(name):
    lines = TEXTS[name].splitlines()
    for number, line in enumerate(lines):
        for changed in (
            [],
            [line] * 2,
            [line[: len(line) // 2]],
            [line[len(line) // 2 :]],
            [line[:-1]],
            [line, *NOISE],
        ):
            assert_nothing_invented(name, with_lines(lines, {number: changed}))


@pytest.mark.parametrize("name", NAMES)
def test_each_pair_of_rows_merged_or_swapped(name):
    lines = TEXTS[name].splitlines()
    for number in range(len(lines) - 1):
        merged = {number: [lines[number] + lines[number + 1]], number + 1: []}
        assert_nothing_invented(name, with_lines(lines, merged))
        swapped = {number: [lines[number + 1]], number + 1: [lines[number]]}
        assert_nothing_misplaced(name, with_lines(lines, swapped))


@pytest.mark.parametrize("name", NAMES)
def test_each_column_lost_repeated_or_swapped_in_each_row(name):
    lines = TEXTS[name].splitlines()
    for number in rows_of(TEXTS[name]):
        cells = cells_of(lines[number])
        for place in range(len(cells)):
            others = [
                cells[:place] + cells[place + 1 :],
                cells[: place + 1] + cells[place:],
                [*cells[: place + 1], "", *cells[place + 1 :]],
                [*cells[:place], "****", *cells[place + 1 :]],
                [*cells[:place], "", *cells[place + 1 :]],
                cells[place + 1 :] + cells[: place + 1],
            ]
            for changed in others:
                line = "|" + "|".join(changed) + "|"
                assert_nothing_misplaced(name, with_lines(lines, {number: [line]}))


@pytest.mark.parametrize("name", NAMES)
def test_each_column_lost_or_swapped_in_all_rows(name):
    """A version that has a column less, or in another place, in the header and in the rows."""
    lines = TEXTS[name].splitlines()
    for first in range(4):
        for second in range(4):
            changes = {}
            for number in rows_of(TEXTS[name]):
                cells = cells_of(lines[number])
                if max(first, second) < len(cells):
                    cells[first], cells[second] = cells[second], cells[first]
                    if first == second:
                        del cells[first]
                changes[number] = ["|" + "|".join(cells) + "|"]
            assert_nothing_misplaced(name, with_lines(lines, changes))


@pytest.mark.parametrize("name", NAMES)
def test_each_word_lost_repeated_or_masked_in_each_row(name):
    """Words inside a cell: a value that was cut away, a title that is new."""
    lines = TEXTS[name].splitlines()
    for number in rows_of(TEXTS[name]):
        words = lines[number].split(" ")
        places = [place for place, word in enumerate(words) if word not in ("", "|")]
        for place in places:
            for changed in ([], [words[place]] * 2, ["****"], ["-"], ["NA"], ["\u03a9"]):
                line = " ".join(words[:place] + changed + words[place + 1 :])
                assert_nothing_misplaced(name, with_lines(lines, {number: [line]}))


@MANY
@given(st.sampled_from(NAMES), st.data())
def test_lines_lost_repeated_or_mixed_with_noise(name, data):
    kept = []
    for line in TEXTS[name].splitlines():
        kept += [line] * data.draw(st.sampled_from([1, 1, 1, 1, 1, 0, 2]))
        if data.draw(st.integers(0, 15)) == 0:
            kept.append(data.draw(st.sampled_from(NOISE)))
    assert_nothing_misplaced(name, "\n".join(kept))


@MANY
@given(st.sampled_from(NAMES), st.data())
def test_several_rows_and_cells_changed_at_once(name, data):
    lines = TEXTS[name].splitlines()
    rows = rows_of(TEXTS[name])
    changes = {}
    for number in data.draw(st.lists(st.sampled_from(rows), min_size=1, max_size=5, unique=True)):
        cells = cells_of(lines[number])
        kind = data.draw(
            st.sampled_from(["lose", "repeat", "swap", "mask", "empty", "widen", "narrow", "merge", "noise"])
        )
        place = data.draw(st.integers(0, len(cells) - 1))
        other = data.draw(st.integers(0, len(cells) - 1))
        if kind == "lose":
            del cells[place]
        elif kind == "repeat":
            cells.insert(place, cells[place])
        elif kind == "swap":
            cells[place], cells[other] = cells[other], cells[place]
        elif kind == "mask":
            cells[place] = "*" * len(cells[place])
        elif kind == "empty":
            cells[place] = ""
        elif kind == "widen":
            cells[place] = "   " + cells[place].replace(" ", "   ") + "\t"
        elif kind == "narrow":
            cells[place] = " ".join(cells[place].split())
        changes[number] = ["|" + "|".join(cells) + "|"]
        if kind == "merge" and number + 1 < len(lines):
            changes[number] = [lines[number] + lines[number + 1]]
            changes[number + 1] = []
        elif kind == "noise":
            changes[number] = [lines[number], data.draw(st.sampled_from(NOISE))]
    assert_nothing_misplaced(name, with_lines(lines, changes))


@BOUNDED
@given(st.sampled_from(NAMES), st.data())
def test_blanks_and_line_ends_change_nothing(name, data):
    blank = data.draw(st.sampled_from(["  ", "   ", " \t"]))
    end = data.draw(st.sampled_from(["\n", "\r\n", " \n"]))
    damaged = end.join(
        blank[: data.draw(st.integers(0, 3))] + line.replace("  ", "  " + blank) for line in TEXTS[name].splitlines()
    )
    assert parse_info(damaged).chips == parse_info(TEXTS[name]).chips


@BOUNDED
@given(st.sampled_from(NAMES), st.data())
def test_any_characters_lost_or_put_in_never_crash(name, data):
    text = TEXTS[name]
    for _round in range(data.draw(st.integers(1, 12))):
        place = data.draw(st.integers(0, len(text)))
        text = text[:place] + data.draw(st.text(max_size=6)) + text[place + data.draw(st.integers(0, 6)) :]
    table = parse_info(text)
    assert len({(chip["npu_id"], chip["chip_id"]) for chip in table.chips}) == len(table.chips)
    assert len(table.chips) <= TEXTS[name].count("\n")


@BOUNDED
@given(st.text(max_size=300), st.one_of(st.none(), st.integers(-255, 255)))
def test_any_text_is_survived(text, rc):
    assert parse_info(text).chips == []
    parse_map(text)
    parse_list(text)
    error = classify(rc, text)
    assert rc == 0 or error is not None


@pytest.mark.parametrize("digits", ["9" * 5000, "\u00b2"], ids=["endless", "superscript"])
@pytest.mark.parametrize("name", NAMES)
def test_an_absurd_number_in_every_place(name, digits):
    for match in re.finditer(r"(?<=[ /])[0-9]+(?=[ /])", TEXTS[name]):
        damaged = TEXTS[name][: match.start()] + digits + TEXTS[name][match.end() :]
        assert_nothing_invented(name, damaged)
        assert_plain_json(parse_info(damaged)._asdict())


@pytest.mark.parametrize("name", NAMES)
def test_a_table_with_an_id_that_is_not_understood_is_not_complete(name):
    whole = parse_info(TEXTS[name])
    for match in re.finditer(r"^\| *[0-9]+", TEXTS[name], re.M):
        table = parse_info(TEXTS[name][: match.end()] + "0" * 5000 + TEXTS[name][match.end() :])
        assert len(table.chips) == len(whole.chips) or not table.complete


@pytest.mark.parametrize("name", ["950-info-m-doc.txt", "950-info-l-doc.txt"])
def test_an_absurd_number_in_every_place_of_the_lists(name):
    text = (DATA / name).read_text(encoding="utf-8")
    for match in re.finditer(r"[0-9]+", text):
        damaged = text[: match.start()] + "9" * 5000 + text[match.end() :]
        assert_plain_json(parse_map(damaged))
        assert_plain_json(parse_list(damaged))
