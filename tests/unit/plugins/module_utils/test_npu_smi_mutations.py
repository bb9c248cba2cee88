"""Damaged tables of npu-smi: never a crash, and never a chip that the whole table does not have."""

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
BOUNDED = settings(max_examples=150, derandomize=True, deadline=None, database=None)


def assert_nothing_invented(name, damaged):
    whole = {(chip["npu_id"], chip["chip_id"]): chip for chip in parse_info(TEXTS[name]).chips}
    for chip in parse_info(damaged).chips:
        original = whole[(chip["npu_id"], chip["chip_id"])]
        for key in IDENTITY:
            assert chip[key] in (None, original[key]), key
        known = {process["pid"] for process in original["processes"] or []}
        assert {process["pid"] for process in chip["processes"] or []} <= known


@pytest.mark.parametrize("name", NAMES)
def test_every_cut_at_the_end_and_at_the_start(name):
    text = TEXTS[name]
    for place in range(0, len(text), 17):
        assert_nothing_invented(name, text[:place])
        assert_nothing_invented(name, text[text.find("\n", place) + 1 :])


@BOUNDED
@given(st.sampled_from(NAMES), st.data())
def test_lines_lost_repeated_or_mixed_with_noise(name, data):
    lines = TEXTS[name].splitlines()
    kept = []
    for line in lines:
        kept += [line] * data.draw(st.sampled_from([1, 1, 1, 1, 1, 0, 2]))
        if data.draw(st.integers(0, 15)) == 0:
            kept.append(
                data.draw(st.sampled_from(["", "...", "[WARNING] noise", "| |", "||||", "+", "\t", "| x | y |"]))
            )
    assert_nothing_invented(name, "\n".join(kept))


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
