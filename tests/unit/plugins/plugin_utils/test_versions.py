# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The order of releases and versions."""

from __future__ import annotations

import itertools

import pytest
from ansible_collections.vllm_ascend.fleet.plugins.plugin_utils.versions import (
    in_range,
    numbers,
    older,
    parse_release,
    split_suffix,
)

ORDER = ["v0.9.1", "v0.9.2rc1", "v0.10.0rc1", "v0.13.0rc2", "v0.13.0", "v0.22.1rc1", "v0.23.0rc1", "v0.23.0rc10",
         "v0.23.0", "v0.23.0.post1", "v0.24.0rc1", "v1.0.0"]  # fmt: skip


def test_releases_are_in_order():
    for before, after in itertools.pairwise(ORDER):
        assert parse_release(before) < parse_release(after)


@pytest.mark.parametrize(
    "tag", ["main", "nightly-main", "0.23.0", "v0.23", "v0.24.0.dev1", "v0.23.0-310p", "latest", ""]
)
def test_everything_else_is_no_release(tag):
    assert parse_release(tag) is None


@pytest.mark.parametrize(
    ("release", "first", "last", "inside"),
    [
        ("v0.23.0", "v0.23.0", "v0.23.0", True),
        ("v0.23.0.post1", "v0.23.0", "v0.23.0", True),
        ("v0.23.0rc1", "v0.23.0", None, False),
        ("v0.24.0", "v0.23.0", "v0.23.0", False),
        ("v9.0.0", "v0.23.0", None, True),
    ],
)
def test_ranges(release, first, last, inside):
    assert in_range(parse_release(release), first, last) is inside


def test_a_suffix_is_told_apart():
    assert split_suffix("v0.23.0-310p-openeuler") == ("v0.23.0", "310p-openeuler")
    assert split_suffix("v0.23.0") is None
    assert split_suffix("nightly-main") is None


@pytest.mark.parametrize(
    ("version", "parsed"),
    [("20.10.24+dfsg1", (20, 10, 24)), ("18.06.3-ce", (18, 6, 3)), (252, (252,)), ("dev", ()), (None, ())],
)
def test_numbers(version, parsed):
    assert numbers(version) == parsed


def test_an_unknown_version_is_not_old():
    assert older("18.06.3-ce", (18, 9)) and not older("18.09.0", (18, 9)) and not older(None, (18, 9))
