# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The shipped hardware profiles are in order, and what is not in order is named."""

from __future__ import annotations

import copy

import pytest
from ansible_collections.vllm_ascend.fleet.plugins.plugin_utils.profiles import (
    OVERLAYS,
    merge_profiles,
    on_host,
    profile_errors,
    profile_paths,
)
from ansible_collections.vllm_ascend.fleet.tests.unit.support.facts_builder import PROFILES, shipped_profiles

FAMILIES = ["atlas_200i_pro", "atlas_300i_duo", "atlas_950dt", "atlas_a2", "atlas_a3"]


def test_the_shipped_profiles_are_in_order():
    assert sorted(shipped_profiles()) == FAMILIES
    assert profile_errors(shipped_profiles()) == []


def test_a_family_is_one_file_of_its_name():
    assert sorted(path.stem for path in PROFILES.glob("*.yml")) == FAMILIES
    assert len(list(PROFILES.iterdir())) == len(FAMILIES)


def test_every_origin_is_used():
    for family, profile in shipped_profiles().items():
        used = set(_origins(profile))
        assert set(profile["origins"]) == used, family


def _origins(value):
    if isinstance(value, list):
        for item in value:
            yield from _origins(item)
    elif isinstance(value, dict):
        for key, item in value.items():
            if key == "origin" or key.endswith("_origin"):
                yield item
            yield from _origins(item)


def test_no_profile_mounts_the_whole_ascend_folder():
    for family, profile in shipped_profiles().items():
        parts = [profile, *(profile.get(key, {}) for key in OVERLAYS)]
        targets = [mount["target"] for part in parts for mount in part.get("mounts", [])]
        assert "/usr/local/Ascend" not in targets, family


def refusal(**more):
    return {"flag": "--x", "reason": "it is not there", "origin": "quick_start", **more}


ERRORS = [
    (("shm_size",), "lots", "'lots', not a size"),
    (("network",), "none", "'none', not one of bridge, host"),
    (("privileged",), "yes", "'yes', not true or false"),
    (("default_npus",), 0, "0, not a number of at least 1"),
    (("default_npus",), True, "True, not a number"),
    (("architectures",), ["arm"], "'arm', not one of x86_64, aarch64"),
    (("architectures",), [], "is empty"),
    (("title",), None, "None, not text"),
    (("devices",), None, "None, not a list"),
    (("devices", 0, "presence"), "sometimes", "devices[0].presence is 'sometimes'"),
    (("devices", 0, "origin"), "hearsay", "'hearsay', which origins does not list"),
    (("mounts", 0, "source"), "relative", "'relative', not an absolute path"),
    (("mounts", 0, "source"), "/a/../b", "'/a/../b', not an absolute path"),
    (("mounts", 0, "typ"), "file", 'unknown key "typ" (did you mean "type"?)'),
    (("image", "releases", 0, "first"), "0.23.0", "'0.23.0', not a release"),
    (("image", "known_to"), "newest", "'newest', not a release"),
    (("image", "suffix"), "-a2", "'-a2', not a suffix"),
    (("serve_args",), {"dtype": "float16"}, "'dtype', not a flag"),
    (("several_cards", "network"), "lan", "'lan', not one of"),
    (("refuses",), [{"flag": "--x"}], "refuses[0] has no reason"),
    (("refuses",), [refusal(effect="warned")], "'warned', not one of refused, ignored"),
    (("refuses",), [refusal(json_path=[])], "json_path is empty"),
    (("refuses",), [refusal(json_path="a.b")], "'a.b', not a list"),
    (("refuses",), [refusal(values=[{"a": 1}])], "{'a': 1}, not text, a number, true or false"),
    (("several_ranks", "environment"), {"A B": "1"}, "'A B', not a variable's name"),
    (("several_ranks", "environment"), {"A": 1}, "1, not text"),
    (("several_ranks", "environment"), ["A"], "not a dictionary of variables"),
    (("several_ranks", "max_capture_sizes"), 0, "0, not a number of at least 1"),
    (("several_cards", "shm_size_origin"), "hearsay", "'hearsay', which origins does not list"),
    (("over_roce", "mounts", 0, "code"), "No Code", "'No Code', not a code"),
    (("security_options",), "label=disable", "'label=disable', not a list"),
]


@pytest.mark.parametrize(("place", "value", "part"), ERRORS)
def test_an_error_is_named_with_place_and_value(place, value, part):
    profile = shipped_profiles()["atlas_a2"]
    _put(profile, place, value)
    errors = profile_errors({"atlas_a2": profile})
    assert errors and all(error.startswith("atlas_a2") for error in errors)
    assert part in " ".join(errors)


def test_a_refusal_may_name_a_key_inside_of_json():
    profile = shipped_profiles()["atlas_a2"]
    inside = refusal(json_path=["a", "b"], values=[True, "on", 1], effect="ignored", remedy="Leave it out.")
    profile["refuses"] = [refusal(), inside]
    assert profile_errors({"atlas_a2": profile}) == []


def test_all_errors_are_found_at_once():
    profile = shipped_profiles()["atlas_a2"]
    _put(profile, ("shm_size",), "lots")
    _put(profile, ("network",), "none")
    del profile["title"], profile["image"]["known_to"]
    assert len(profile_errors({"atlas_a2": profile})) == 4


@pytest.mark.parametrize("profiles", [None, [], {"atlas_x": None}, {"Atlas X": {}}])
def test_what_is_no_profile_is_an_error(profiles):
    assert profile_errors(profiles)


def _put(value, place, new):
    *path, last = place
    for key in path:
        value = value[key]
    value[last] = new


def test_overrides_merge_dictionaries_and_replace_lists():
    shipped = shipped_profiles()
    kept = copy.deepcopy(shipped)
    changed = {"atlas_a2": {"image": {"suffix": "x"}, "devices": []}, "own": {"title": "Own"}}
    merged = merge_profiles(shipped, changed)
    assert shipped == kept
    assert merged["atlas_a2"]["image"] == {**kept["atlas_a2"]["image"], "suffix": "x"}
    assert merged["atlas_a2"]["devices"] == []
    assert (merged["own"], merged["atlas_a3"]) == ({"title": "Own"}, kept["atlas_a3"])


def test_paths_are_all_mount_sources_with_the_driver_in_place():
    paths = profile_paths(shipped_profiles())
    assert paths == sorted(set(paths))
    assert {"{driver}/driver/lib64", "{driver}/driver", "{driver}/driver/tools/hccn_tool", "/usr/local/dcmi"} <= set(
        paths
    )
    assert {"/etc/hccl_rootinfo.json", "/usr/lib64/libyaml-0.so.2.0.9", "/lib/route.conf"} <= set(paths)


def test_paths_of_the_operator_are_added():
    extra = {"atlas_a2": {"mounts": [{"source": "/opt/own/"}]}, "broken": None}
    settings = {
        "vllm_model_cache": "/srv/cache/",
        "vllm_model": "Qwen/x",
        "vllm_instances": [{"name": "a", "model": "/srv/m"}],
    }
    paths = profile_paths(shipped_profiles(), extra, settings)
    assert {"/opt/own", "/srv/cache", "/srv/m"} <= set(paths)
    assert "Qwen/x" not in paths


@pytest.mark.parametrize(
    ("path", "driver", "result"),
    [
        ("{driver}/driver/lib64/", None, "/usr/local/Ascend/driver/lib64"),
        ("{driver}/driver", "/opt/a/", "/opt/a/driver"),
        ("/usr/local/dcmi", "/opt/a", "/usr/local/dcmi"),
    ],
)
def test_a_path_on_the_host(path, driver, result):
    assert on_host(path, driver) == result
