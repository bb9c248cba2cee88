# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How many NPUs have an address in /etc/hccn.conf, which KV transfer needs (vllm-ascend issue 7711)."""

from __future__ import annotations

import pathlib

import pytest
from ansible_collections.vllm_ascend.fleet.plugins.module_utils.npu_observation import Options, collect
from ansible_collections.vllm_ascend.fleet.plugins.module_utils.sysroot import Sysroot
from ansible_collections.vllm_ascend.fleet.tests.unit.support import host_trees

HCCN = "/etc/hccn.conf"
SAMPLE = pathlib.Path(__file__).resolve().parents[2] / "data/host-files/hccn.conf.redacted.txt"


def entry(tree):
    return collect(Sysroot(str(tree.root)), Options(paths=[HCCN]))["paths"][HCCN]


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        (SAMPLE.read_text(encoding="utf-8"), 2),
        ("address_0=192.0.2.10\n", 1),
        (" address_15 = 192.0.2.10", 1),
        ("", 0),
        ("address_0=\nnetmask_0=255.255.0.0\n", 0),
        ("#address_0=192.0.2.10\n", 0),
        ("send_arp_status_0=1\ngateway_0=192.0.2.1\n", 0),
        ("IPv6address_0=2001:db8::1\nIPv6netmask_0=112\n", 1),
        ("address_=192.0.2.10\n", 0),
    ],
)
def test_the_addresses_are_counted(tmp_path, text, addresses):
    assert entry(host_trees.HostTree(tmp_path).put("etc/hccn.conf", text))["addresses"] == addresses


def test_what_is_no_file_has_none(tmp_path):
    assert "addresses" not in entry(host_trees.HostTree(tmp_path))
    assert "addresses" not in entry(host_trees.HostTree(tmp_path).folder("etc/hccn.conf"))
