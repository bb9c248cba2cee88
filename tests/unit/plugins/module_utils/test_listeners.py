"""listeners: the kernel's tables, and the processes and containers behind the sockets."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest
from ansible_collections.vllm_ascend.fleet.plugins.module_utils import listeners
from ansible_collections.vllm_ascend.fleet.plugins.module_utils.sysroot import Sysroot

from tests.unit.support.recorded_hosts import RecordedHost, known

HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
TCP = HEAD + (
    "   0: 00000000:1F40 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1199 1 0 100 0 0 10 0\n"
    "   1: 0100007F:1F41 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1200 1 0 100 0 0 10 0\n"
    "   2: 0100007F:1F42 0100007F:8000 01 00000000:00000000 00:00000000 00000000     0        0 1201 1 0 100 0 0 10 0\n"
    "   3: 0200A8C0:0016 00000000:0000 0A 00000000:00000000 00:00000000 0000000\n"
)
TCP6 = HEAD + (
    "   0: 00000000000000000000000000000000:1F40 00000000000000000000000000000000:0000 0A"
    " 00000000:00000000 00:00000000 00000000     0        0 1300 1 0 100 0 0 10 0\n"
    "   1: 000080FE00000000FF005450AB8967FE:1F43 00000000000000000000000000000000:0000 0A"
    " 00000000:00000000 00:00000000 00000000     0        0 1301 1 0 100 0 0 10 0\n"
    "   2: 0000000000000000FFFF00000100007F:1F44 00000000000000000000000000000000:0000 0A"
    " 00000000:00000000 00:00000000 00000000     0        0 1302 1 0 100 0 0 10 0\n"
)


def test_only_listening_sockets_and_whole_lines():
    assert listeners.parse_tcp_table(TCP) == [(8000, "0.0.0.0", 1199), (8001, "127.0.0.1", 1200)]


def test_ipv6_addresses():
    assert listeners.parse_tcp_table(TCP6) == [
        (8000, "::", 1300), (8003, "fe80::5054:ff:fe67:89ab", 1301), (8004, "127.0.0.1", 1302),
    ]  # fmt: skip


@pytest.mark.parametrize("text", ["", HEAD, HEAD + "   0: zz:1F40 00000000:0000 0A 0 0 0 0 0 12\n"])
def test_nothing_to_read(text):
    assert listeners.parse_tcp_table(text) == []


@pytest.fixture
def listening():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        sock.listen(1)
        yield sock.getsockname()[1]


def test_a_real_socket_has_its_process_and_its_container(listening):
    found = listeners.read_listeners(Sysroot("/"), [listening], {os.getppid(): "abc"})
    assert [(one["port"], one["address"], one["pid"], one["container"]) for one in found] == [
        (listening, "127.0.0.1", os.getpid(), "abc")
    ]
    assert found[0]["process"] == listeners.process_name(os.getpid())


def test_a_process_below_no_container_belongs_to_none(listening):
    assert listeners.read_listeners(Sysroot("/"), [listening], {2**22 + 1: "abc"})[0]["container"] is None


def test_without_sockets_of_interest_no_process_is_looked_at(monkeypatch):
    monkeypatch.setattr(listeners.os, "readlink", lambda path: pytest.fail("looked at " + path))
    with socket.socket() as bound_only:
        bound_only.bind(("127.0.0.1", 0))
        assert listeners.read_listeners(Sysroot("/"), [bound_only.getsockname()[1]]) == []


def test_the_search_stops_when_all_are_found(tmp_path):
    for pid, target in (("7", "socket:[1199]"), ("30", "socket:[1200]"), ("200", "socket:[1200]")):
        folder = tmp_path / pid / "fd"
        folder.mkdir(parents=True)
        (folder / "3").symlink_to(target)
    (tmp_path / "8").mkdir()
    assert listeners.find_pids([1199, 1200], str(tmp_path)) == {1199: 7, 1200: 30}
    assert listeners.find_pids([1199, 1200], str(tmp_path), seconds=-1) == {}
    assert listeners.find_pids([4], str(tmp_path)) == {}


def test_processes_of_other_network_namespaces_are_passed_over(tmp_path):
    for pid, network, inode in (("self", 1, None), ("7", 2, 1199), ("8", 1, 1199), ("9", None, 1200)):
        (tmp_path / pid / "ns").mkdir(parents=True)
        (tmp_path / pid / "fd").mkdir()
        if network:
            (tmp_path / pid / "ns/net").symlink_to(f"net:[{network}]")
        if inode:
            (tmp_path / pid / "fd/3").symlink_to(f"socket:[{inode}]")
    # One whose namespace may not be read is looked at.
    assert listeners.find_pids([1199, 1200], str(tmp_path)) == {1199: 8, 1200: 9}


def test_the_parent_of_a_process_with_a_strange_name(tmp_path):
    (tmp_path / "9").mkdir()
    (tmp_path / "9" / "stat").write_text("9 (a b) c) S 5 9 9 0 -1\n")
    assert listeners.parent_pid(9, str(tmp_path)) == 5
    assert listeners.owning_container(9, {5: "abc"}, str(tmp_path)) == "abc"
    assert listeners.owning_container(9, {6: "abc"}, str(tmp_path)) is None


def test_a_child_s_socket_belongs_to_the_container_of_its_parent(tmp_path):
    script = "import socket,sys\ns=socket.socket()\ns.bind(('127.0.0.1',0))\ns.listen(1)\n"
    script += "print(s.getsockname()[1],flush=True)\nsys.stdin.read()\n"
    child = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        port = int(known(child.stdout).readline())
        assert listeners.read_listeners(Sysroot("/"), [port], {os.getpid(): "abc"})[0] == {
            "port": port, "address": "127.0.0.1", "pid": child.pid,
            "process": listeners.process_name(child.pid), "container": "abc",
        }  # fmt: skip
    finally:
        child.communicate()


@pytest.fixture
def replay(tmp_path):
    return RecordedHost(tmp_path).file("proc/net/tcp", TCP).file("proc/net/tcp6", TCP6).sysroot()


def test_a_replay_knows_no_processes(replay):
    assert listeners.read_listeners(replay, [8000, 8001]) == [
        {"port": 8000, "address": "0.0.0.0", "pid": None, "process": None, "container": None},
        {"port": 8000, "address": "::", "pid": None, "process": None, "container": None},
        {"port": 8001, "address": "127.0.0.1", "pid": None, "process": None, "container": None},
    ]
    assert [one["port"] for one in listeners.read_listeners(replay)] == [8000, 8000, 8001, 8003, 8004]
    assert listeners.read_listeners(replay, []) == []


def test_published_ports_have_their_container_with_and_without_docker_proxy(replay):
    published = [(8000, "0.0.0.0", "abc"), (8001, "0.0.0.0", "def"), (9999, "0.0.0.0", "not of interest")]
    found = listeners.read_listeners(replay, [8000, 8001], published=published)
    assert [(one["port"], one["address"], one["container"]) for one in found] == [
        (8000, "0.0.0.0", "abc"), (8000, "::", None), (8001, "0.0.0.0", "def"), (8001, "127.0.0.1", None),
    ]  # fmt: skip


def test_processes_are_looked_for_on_the_named_ports_only(listening):
    found = [one for one in listeners.read_listeners(Sysroot("/"), named=[]) if one["port"] == listening]
    assert [(one["address"], one["pid"], one["process"]) for one in found] == [("127.0.0.1", None, None)]
    found = [one for one in listeners.read_listeners(Sysroot("/"), named=[listening]) if one["port"] == listening]
    assert [one["pid"] for one in found] == [os.getpid()]
