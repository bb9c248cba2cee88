"""instance_state: names, digests, environment files, journals."""

from __future__ import annotations

import fcntl
import hashlib
import os

import pytest
from ansible_collections.vllm_ascend.fleet.plugins.module_utils import instance_state as state

from tests.unit.support.hostile import DEEP
from tests.unit.support.recorded_hosts import RecordedHost, known

UNIT = "# vllm_ascend.fleet instance\n# plan 0123\n[Unit]\n"


@pytest.fixture
def host(tmp_path):
    return RecordedHost(tmp_path)


def test_names():
    assert state.unit_name("ascend") == "vllm-ascend.service"
    assert state.container_name("ascend") == "vllm-ascend"
    assert state.unit_path("ascend") == "/etc/systemd/system/vllm-ascend.service"
    assert state.env_path("ascend") == "/etc/vllm-ascend/ascend.env"
    assert state.state_path("ascend") == "/var/lib/vllm-ascend/ascend"
    assert state.state_path("ascend", state.COMMITTED) == "/var/lib/vllm-ascend/ascend/committed.json"


@pytest.mark.parametrize(
    "text, values",
    [
        ("", {}),
        ("VLLM_API_KEY=sk-1\n", {"VLLM_API_KEY": "sk-1"}),
        ("A=x=y\nB='q' \\n\"\n", {"A": "x=y", "B": "'q' \\n\""}),
        ("A= padded \n", {"A": " padded "}),
        ("A=\n", {"A": ""}),
        ("# A=1\n  # B=2\n\n   C=3\n", {"C": "3"}),
        ("FROM_THE_CALLER\nA=1\n", {"A": "1"}),
        ("A=1\r\nB=2\r\n", {"A": "1", "B": "2"}),
        ("A=form\x0cfeed\x85\n", {"A": "form\x0cfeed\x85"}),
        ("\ufeffA=1", {"A": "1"}),
        ("A=1\nA=2\n", {"A": "2"}),
        ("=x\n", {}),
    ],
)
def test_parse_env(text, values):
    assert state.parse_env(text) == values


def test_digests(host):
    expected = hashlib.sha256("HF_TOKEN=schlüssel".encode()).hexdigest()
    assert state.secret_digest("HF_TOKEN", "schlüssel") == expected
    assert state.secret_digests({"HF_TOKEN": "schlüssel", "A": "1"}) == [
        {"name": "A", "digest": state.secret_digest("A", "1")},
        {"name": "HF_TOKEN", "digest": expected},
    ]
    sysroot = host.file("etc/vllm-ascend/a.env", "HF_TOKEN=schlüssel\n").sysroot()
    assert state.secret_digests(known(state.read_env(sysroot, "a")))[0]["digest"] == expected
    assert state.file_digest(sysroot, state.env_path("a")) == state.text_digest("HF_TOKEN=schlüssel\n")
    assert state.file_digest(sysroot, "/etc/none") is None
    assert state.file_digest(sysroot, "/etc/vllm-ascend") is None
    assert state.read_env(sysroot, "b") is None


def test_a_secret_that_is_no_utf_8_has_a_digest(host, tmp_path):
    host.file("etc/vllm-ascend/a.env")
    (tmp_path / "etc/vllm-ascend/a.env").write_bytes(b"K=\xff\n")
    secrets = known(state.read_env(host.sysroot(), "a"))
    assert state.secret_digests(secrets)[0]["digest"] == hashlib.sha256(b"K=\xff").hexdigest()


@pytest.mark.parametrize("text", ["", "{", "[]", "null"])
def test_a_state_that_is_no_object_is_none(host, text):
    assert state.read_committed(host.file(state.state_path("a", state.COMMITTED), text).sysroot(), "a") is None


def test_committed_and_previous(host):
    host.file(state.state_path("a", state.COMMITTED), {"plan_hash": "1"})
    host.file(state.state_path("a", state.PREVIOUS), {"plan_hash": "0"})
    assert state.read_committed(host.sysroot(), "a") == {"plan_hash": "1"}
    assert state.read_previous(host.sysroot(), "a") == {"plan_hash": "0"}
    assert state.read_previous(host.sysroot(), "b") is None


@pytest.mark.parametrize(
    "journal, expected",
    [
        (None, state.JOURNAL_NONE),
        ({"state": "done"}, state.JOURNAL_NONE),
        ({"state": "open", "steps": []}, state.JOURNAL_OPEN),
        ({}, state.JOURNAL_OPEN),
        ('{"state": "do', state.JOURNAL_OPEN),
        ("", state.JOURNAL_OPEN),
    ],
)
def test_journal(host, journal, expected):
    if journal is not None:
        host.file(state.state_path("a", state.JOURNAL), journal)
    assert state.journal_state(host.sysroot(), "a") == expected


@pytest.mark.parametrize("how", [fcntl.LOCK_EX, fcntl.LOCK_SH])
def test_a_transaction_runs_while_its_lock_is_held(host, tmp_path, how):
    path = state.state_path("a", state.LOCK)
    live = host.file(path).live()
    with open(str(tmp_path) + path) as lock:
        fcntl.flock(lock, how)
        running = how == fcntl.LOCK_EX
        assert state.journal_state(live, "a") == (state.JOURNAL_RUNNING if running else state.JOURNAL_NONE)
        assert state.journal_state(host.sysroot(), "a") == state.JOURNAL_NONE, "a replay knows no locks"
    assert state.journal_state(live, "a") == state.JOURNAL_NONE


def test_the_test_leaves_the_lock_free(host, tmp_path):
    path = state.state_path("a", state.LOCK)
    state.journal_state(host.file(path).live(), "a")
    with open(str(tmp_path) + path) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_instances_of_a_host(host):
    host.file(state.unit_path("unit"), UNIT)
    host.file(state.unit_path("foreign"), "[Unit]\nDescription=not vllm_ascend.fleet instance\n")
    host.file("etc/systemd/system/vllm-Bad_Name.service", UNIT)
    host.file("etc/systemd/system/vllm-x.service.d/a.conf", UNIT)
    host.file("etc/systemd/system/other.service", UNIT)
    host.file(state.state_path("committed", state.COMMITTED), {})
    host.file(state.state_path("cut-off", state.JOURNAL), {"state": "open"})
    host.file(state.state_path("ended", state.JOURNAL), {"state": "done"})
    host.file(state.state_path("empty", state.LOCK))
    assert state.instance_names(host.sysroot()) == ["committed", "cut-off", "unit"]


def test_a_host_without_anything(host):
    assert state.instance_names(host.sysroot()) == []
    assert state.read_helper(host.sysroot()) is None


@pytest.mark.parametrize(
    "content, version",
    [
        ("#!/usr/bin/python3\n# vllm_ascend.fleet host helper 0.1.0\nPK\x03\x04", "0.1.0"),
        ("#!/usr/bin/python3\n# vllm_ascend.fleet host helper 1.2.0-dev0+g1\n", "1.2.0-dev0+g1"),
        ("#!/usr/bin/python3\n", None),
    ],
)
def test_helper(host, content, version):
    helper = state.read_helper(host.file(state.HELPER_PATH, content).sysroot())
    assert helper == {"path": state.HELPER_PATH, "version": version, "digest": state.text_digest(content)}


def test_a_file_that_is_too_large_is_not_read(host, monkeypatch):
    sysroot = (
        host.file(state.HELPER_PATH, "#").file(state.state_path("a", state.COMMITTED), {"plan_hash": "0"}).sysroot()
    )
    assert state.read_helper(sysroot) and state.read_committed(sysroot, "a") == {"plan_hash": "0"}
    for path in (state.HELPER_PATH, state.state_path("a", state.COMMITTED), state.env_path("a"), state.unit_path("a")):
        host.file(path, "# vllm_ascend.fleet host helper 0.1.0\n")
        os.truncate(sysroot.path(path), 6 << 30)
    opened = []
    monkeypatch.setattr("builtins.open", lambda *args, **kwargs: opened.append(args))
    assert (state.read_helper(sysroot), state.read_committed(sysroot, "a"), state.read_env(sysroot, "a")) == (None,) * 3
    assert state.file_digest(sysroot, state.unit_path("a")) is None
    assert opened == []


@pytest.mark.parametrize("size, read", [(4 << 20, True), ((4 << 20) + 1, False)])
def test_the_bound_of_a_file(host, size, read):
    sysroot = host.file("x", "a" * size).sysroot()
    assert (state.read_bytes(sysroot, "/x") is not None) is read


def test_a_committed_state_that_is_nested_too_deeply_is_none(host):
    sysroot = host.file(state.state_path("a", state.COMMITTED), '{"plan": ' + DEEP + "}").sysroot()
    assert state.read_committed(sysroot, "a") is None
