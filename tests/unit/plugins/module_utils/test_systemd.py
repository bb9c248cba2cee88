"""systemd: versions and units as systemctl prints them."""

from __future__ import annotations

import pytest
from ansible_collections.vllm_ascend.fleet.plugins.module_utils import systemd

from tests.unit.support.recorded_hosts import RecordedHost, data, record


@pytest.mark.parametrize("version", [243, 252, 255])
def test_version(version):
    assert systemd.parse_version(data(f"systemd/version-{version}.txt")) == version


def test_what_is_no_version():
    assert systemd.parse_version("System has not been booted with systemd as init system (PID 1).") is None


def test_show():
    units = systemd.parse_show(data("systemd/show-252.txt"))
    assert units["vllm-ascend.service"] == systemd.Unit(
        "vllm-ascend.service",
        load_state="loaded",
        active_state="active",
        sub_state="running",
        unit_file_state="enabled",
        fragment_path="/etc/systemd/system/vllm-ascend.service",
        restarts=0,
        result="success",
        main_pid=4050,
    )
    second = units["vllm-second.service"]
    assert (second.sub_state, second.restarts, second.result, second.main_pid) == ("auto-restart", 7, "exit-code", None)
    gone = units["vllm-gone.service"]
    assert (gone.load_state, gone.unit_file_state, gone.fragment_path) == ("not-found", None, None)


def test_the_order_of_the_properties_does_not_matter():
    unit = systemd.parse_show(data("systemd/show-243.txt"))["vllm-ascend.service"]
    assert (unit.active_state, unit.sub_state, unit.restarts, unit.main_pid) == ("activating", "start-post", 2, 4050)


def test_nothing_printed():
    assert systemd.parse_show("") == {}


def test_one_call_for_all_units_and_none_for_no_units(tmp_path):
    host = RecordedHost(tmp_path)
    argv = systemd.show_argv(["vllm-ascend.service", "vllm-second.service"])
    host.calls([record(argv, data("systemd/show-252.txt")), record(systemd.VERSION_ARGV, timed_out=True)])
    live = host.live()
    assert systemd.read_units(live, []) == {}
    assert live.called == []
    assert set(systemd.read_units(live, ["vllm-ascend.service", "vllm-second.service"])) > {"vllm-second.service"}
    assert len(live.called) == 1
    assert systemd.read_version(live) is None
