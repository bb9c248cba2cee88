"""The rules that the collection ships: their form, and that they agree with the profiles and with each other."""

from __future__ import annotations

import copy

import pytest
from ansible_collections.vllm_ascend.fleet.plugins.plugin_utils import serve
from ansible_collections.vllm_ascend.fleet.plugins.plugin_utils.plain import Findings
from ansible_collections.vllm_ascend.fleet.plugins.plugin_utils.serve_flags import check_flags
from ansible_collections.vllm_ascend.fleet.plugins.plugin_utils.serve_options import check_options
from ansible_collections.vllm_ascend.fleet.plugins.plugin_utils.versions import numbers, parse_release
from ansible_collections.vllm_ascend.fleet.tests.unit.support.facts_builder import (
    RULES,
    shipped_profiles,
    shipped_rules,
)
from ansible_collections.vllm_ascend.fleet.tests.unit.support.rules_schema import PARTS, rules_errors

R = shipped_rules()
PROFILES = shipped_profiles()


def test_the_shipped_rules_are_in_order():
    assert rules_errors(R) == []
    assert {path.stem for path in RULES.glob("*.yml")} == set(PARTS)


@pytest.mark.parametrize(
    ("path", "value", "part"),
    [
        (["releases", "known_bad", 0, "severity"], "bad", "not one of problem, warning"),
        (["releases", "known_bad", 0, "origin"], "nowhere", "which origins does not list"),
        (["releases", "matrix", "v0.23.0", "cann"], 9.1, "not a version"),
        (["releases", "drivers", 0, "works"], [], "is empty"),
        (["serve_options", "--compilation-config", "keys", "mode", "typ"], "int", 'unknown key "typ"'),
        (["serve_options", "--additional-config", "types"], "maybe", "not one of as_written, converted"),
        (["serve_flags", "kinds", "integers", 0], "seed", "not a flag"),
        (["models", "presets", "Qwen/Qwen3-8B", "heads"], 0, "not a number of at least 1"),
    ],
)
def test_a_mistake_in_the_rules_is_found(path, value, part):
    rules = copy.deepcopy(R)
    place = rules
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    assert any(part in error for error in rules_errors(rules))


def test_a_flag_takes_one_kind_of_value():
    flags = [flag for kind in R["serve_flags"]["kinds"].values() for flag in kind]
    assert len(flags) == len(set(flags))
    assert set(R["serve_flags"]["choices"]) <= set(flags)
    numeric = [flag for kind in ("integers", "sizes", "numbers") for flag in R["serve_flags"]["kinds"][kind]]
    assert set(R["serve_flags"]["ranges"]) <= set(numeric)
    assert set(R["serve_options"]) <= set(R["serve_flags"]["kinds"]["json"] + R["serve_flags"]["kinds"]["json_or_text"])
    assert set(serve.JSON_FLAGS) <= set(R["serve_flags"]["kinds"]["json"] + R["serve_flags"]["kinds"]["json_or_text"])
    assert set(serve.ALIASES.values()) - {"--help"} <= set(flags)
    assert set(serve.RESERVED) - {"--help", "--model"} <= set(flags) | {"--model"}


@pytest.mark.parametrize("family", sorted(PROFILES))
def test_profiles_name_only_flags_and_keys_that_are_known(family):
    profile, findings = PROFILES[family], Findings()
    overlays = [profile[key] for key in profile if isinstance(profile[key], dict) and "serve_args" in profile[key]]
    given = [flags for part in [profile, *overlays] for flags in [part["serve_args"]] if flags]
    arguments = [argument for flags in given for argument in serve.parse_extra_args("w", [flags], findings)]
    release = parse_release("v0.23.0")
    check_flags("w", arguments, R["serve_flags"], "v0.23.0", release, findings)
    check_options("w", arguments, R["serve_options"], "v0.23.0", release, findings)
    assert findings.problems == findings.warnings == []
    flags = {flag for kind in R["serve_flags"]["kinds"].values() for flag in kind}
    assert {rule["flag"] for rule in profile.get("refuses", [])} <= flags


def test_families_and_releases_exist():
    matrix, data = R["releases"]["matrix"], R["releases"]
    known = [entry for part in ("known_bad", "drivers", "driver_limits") for entry in data[part]]
    assert {family for entry in known for family in entry.get("families", [])} <= set(PROFILES)
    assert {profile["image"]["known_to"] for profile in PROFILES.values()} == {data["known_to"]}
    assert data["known_to"] in matrix
    assert {str(entry["vllm"]) for tag, entry in matrix.items() if tag in ("v0.23.0rc1", "v0.23.0")} == {"0.23.0"}
    canns = {numbers(entry[key])[:2] for entry in matrix.values() for key in ("cann", "cann_310p") if key in entry}
    assert {numbers(entry["cann"]) for entry in data["drivers"]} <= canns


def test_every_key_is_read_by_a_release_or_says_when_it_went():
    def walk(keys):
        for name, record in keys.items():
            yield name, record
            yield from walk(record.get("keys", {}))

    rules = R["serve_options"]["--additional-config"]
    first = parse_release(rules["first"])
    for name, record in walk(rules["keys"]):
        if "last" in record and parse_release(record["last"]) < first:
            assert "default" not in record, f"{name} is stale and needs no default"


def test_presets_could_be_served():
    for model, preset in R["models"]["presets"].items():
        assert preset.get("heads", 1) % preset.get("kv_heads", 1) == 0, model
