"""What vllm_instance does on a fake host: it predicts what it does, hands it to the helper, attaches and reports."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import pathlib
import signal
import sys
import threading
import time

import pytest
from ansible_collections.vllm_ascend.fleet.plugins.module_utils import atomic, instance_state, log_lines
from ansible_collections.vllm_ascend.fleet.plugins.module_utils.instance_apply import ApplyError, Options, apply
from ansible_collections.vllm_ascend.fleet.plugins.module_utils.transaction_client import Client

from tests.unit.support.fleet_rig import DEVICE, KEY, NAME, NEW, NEW_IMAGE, OLD, OLD_IMAGE, FleetRig

SECRETS = {NAME: {"VLLM_API_KEY": KEY}}
OTHER = {NAME: {"VLLM_API_KEY": "sk-another"}}


@pytest.fixture
def rig(tmp_path, monkeypatch):
    made = FleetRig(tmp_path, monkeypatch)
    yield made
    made.close()


def run(rig, *plans, **more):
    secrets = more.pop("secrets", {plan["name"]: {"VLLM_API_KEY": KEY} for plan in plans})
    names = more.pop("names", None)
    options = Options(**dict({"python": sys.executable, "who": "a test"}, **more))
    return apply(rig.host, options, list(plans) or None, names, secrets)


def fails(rig, *plans, **more):
    with pytest.raises(ApplyError) as caught:
        run(rig, *plans, **more)
    return str(caught.value), caught.value.result


def fingerprint(rig):
    """Every file below the root with its content, and the world."""
    found = {}
    for folder, _, names in os.walk(str(rig.root)):
        for name in names:
            path = pathlib.Path(folder, name)
            found[str(path)] = hashlib.sha256(path.read_bytes()).hexdigest()
    world = {key: getattr(rig.world, key) for key in ("images", "containers", "units")}
    return found, json.dumps(world, sort_keys=True)


# -- present ---------------------------------------------------------------------------------------------------------


def test_the_first_run_makes_it_serve_and_the_second_changes_and_stops_nothing(rig):
    plan = rig.plan()
    first = run(rig, plan)
    (one,) = first["instances"]
    assert (first["changed"], one["changed"], one["action"], one["state"]) == (True, True, "create", "serving")
    assert one["endpoint"] == {"address": "127.0.0.1", "port": rig.port, "model": "Qwen/Qwen3-0.6B"}
    assert first["helper"]["changed"] is True
    assert rig.serves(plan)
    rig.forget_calls()
    second = run(rig, plan)
    (one,) = second["instances"]
    assert (second["changed"], one["changed"], one["action"], second["diff"]) == (False, False, "none", [])
    assert second["helper"]["changed"] is False
    assert rig.calls("systemd-run") == []
    assert {call[1] for call in rig.calls("systemctl")} == {"show"}


def test_it_runs_in_a_transient_unit_of_its_own(rig):
    run(rig, rig.plan())
    (call,) = rig.calls("systemd-run")
    assert "--unit=vllm-ascend-transaction-ascend.service" in call
    assert {"--collect", "--no-block"} <= set(call)
    helper = str(rig.root) + instance_state.HELPER_PATH
    assert call[-7:] == [sys.executable, helper, "transact", "--instance", NAME, "--root", str(rig.root)]


def test_no_secret_leaves_the_host(rig):
    assert KEY not in json.dumps(run(rig, rig.plan(OLD)))
    rig.does(NEW_IMAGE, start=f"Error: the key {KEY} and the key sk-another are refused")
    message, result = fails(rig, rig.plan(secrets=OTHER[NAME]), secrets=OTHER)
    assert f"the key {log_lines.MASK} and the key {log_lines.MASK} are refused" in message
    for secret in (KEY, "sk-another"):
        assert secret not in json.dumps(result) + message
    assert not os.path.exists(rig.host.state(NAME, "staged.env"))


@pytest.mark.parametrize(
    "scenario", ["create", "update", "secrets", "start", "repair", "none", "moved", "recover", "adopt"]
)
def test_check_mode_changes_nothing_and_predicts_what_the_run_does(rig, scenario):
    plan, more = rig.plan(), {}
    if scenario == "adopt":
        rig.world.create("vllm-ascend", OLD, {}, [DEVICE])
        more["adopt"] = True
    elif scenario != "create":
        run(rig, rig.plan(OLD) if scenario == "update" else plan)
    if scenario == "secrets":
        plan, more["secrets"] = rig.plan(secrets=OTHER[NAME]), OTHER
    elif scenario == "start":
        rig.operate("stopped")
    elif scenario == "repair":
        del rig.world.containers[0]["serves"]
    elif scenario == "moved":
        rig.world.images[NEW] = "sha256:" + "3" * 64
    elif scenario == "recover":
        rig.fault("start", "kill")
        assert rig.killed(lambda: rig.apply(rig.plan(OLD)))
    before = fingerprint(rig)
    predicted = run(rig, plan, check=True, **more)
    assert fingerprint(rig) == before
    done = run(rig, plan, **more)
    for result in (predicted, done):
        assert result["changed"] is (scenario != "none")
    (guess,), (fact,) = predicted["instances"], done["instances"]
    assert guess["action"] == {"update": "update", "secrets": "update", "moved": "update", "adopt": "create"}.get(
        scenario, scenario
    )
    for key in ("name", "changed", "action", "reasons", "endpoint"):
        assert guess[key] == fact[key]
    assert predicted["diff"] == done["diff"]
    assert predicted["helper"] == done["helper"]
    assert rig.serves(plan)


def test_the_diff_shows_unit_settings_and_masked_secrets(rig):
    run(rig, rig.plan(OLD))
    result = run(
        rig,
        rig.plan(secrets=dict(OTHER[NAME], HF_TOKEN="hf-1")),
        check=True,
        secrets={NAME: dict(OTHER[NAME], HF_TOKEN="hf-1")},
    )
    diff = {entry["after_header"]: (entry["before"], entry["after"]) for entry in result["diff"]}
    before, after = diff["/etc/systemd/system/vllm-ascend.service"]
    assert OLD in before and NEW in after
    before, after = diff["settings of ascend"]
    assert json.loads(before)["image_id"] == OLD_IMAGE
    assert json.loads(after)["container"]["image"] == NEW
    assert diff["/etc/vllm-ascend/ascend.env"] == (
        f"VLLM_API_KEY={log_lines.MASK} (another value)\n",
        f"HF_TOKEN={log_lines.MASK}\nVLLM_API_KEY={log_lines.MASK}\n",
    )


def test_a_failure_says_what_failed_why_and_what_is_there_now(rig):
    run(rig, rig.plan(OLD))
    rig.does(NEW_IMAGE, start="(EngineCore pid=9) RuntimeError: no memory for the cache")
    message, result = fails(rig, rig.plan())
    first, second, last = message.splitlines()
    assert first.startswith("ascend: start: vllm-ascend.service did not start: ")
    assert "no memory for the cache" in first
    assert second.strip() == "(EngineCore pid=9) RuntimeError: no memory for the cache"
    assert last.startswith("The previous state is back. Now: vllm-ascend.service is active (running)")
    assert (result["failed_step"], result["changed"]) == ("start", True)
    assert result["instances"][0]["outcome"] == "rolled_back"
    assert OLD_IMAGE in result["state_now"]


def test_the_first_that_fails_ends_the_run(rig):
    first = rig.plan(name="a")
    second = rig.plan(name="b", npus=["/dev/davinci1"])
    rig.does(NEW_IMAGE, verify="broken")
    message, result = fails(rig, first, second)
    assert message.startswith("a: verify: ")
    assert [one["name"] for one in result["instances"]] == ["a"]
    assert not os.path.exists(rig.host.state("b"))


@pytest.mark.parametrize("check", [False, True])
@pytest.mark.parametrize(
    ("secrets", "text"),
    [
        ({}, "ascend: the option secrets has none, the plan was made with VLLM_API_KEY"),
        ({NAME: {"VLLM_API_KEY": "x"}}, "the plan was made with VLLM_API_KEY"),
        ({NAME: {"VLLM_API_KEY": KEY, "MORE": "x"}}, "has MORE, VLLM_API_KEY"),
    ],
)
def test_secrets_that_are_not_the_plan_s_are_refused(rig, check, secrets, text):
    message, result = fails(rig, rig.plan(), secrets=secrets, check=check)
    assert text in message
    assert result["changed"] is False


def test_a_secret_with_a_line_break_is_refused(rig):
    bad = {"VLLM_API_KEY": "a\nb"}
    message, _result = fails(rig, rig.plan(secrets=bad), secrets={NAME: bad})
    assert "no line break can be in the value of VLLM_API_KEY" in message
    assert "a\nb" not in message


def test_an_image_that_is_not_there_is_named_but_may_still_come_in_check_mode(rig):
    plan = rig.plan("quay.io/ascend/vllm-ascend:none")
    message, _result = fails(rig, plan)
    assert "quay.io/ascend/vllm-ascend:none is not on this host" in message
    assert run(rig, plan, check=True)["changed"] is True


def test_the_image_of_the_option_and_of_the_instance_must_be_the_one_that_runs(rig):
    message, _result = fails(rig, rig.plan(), image_id="sha256:" + "9" * 64)
    assert message.startswith("ascend: image: ")
    assert run(rig, dict(rig.plan(), image_id=NEW_IMAGE), image_id="sha256:" + "9" * 64)["changed"] is True


@pytest.mark.parametrize("check", [False, True])
def test_a_container_by_hand_and_a_unit_of_somebody_else_are_refused(rig, check):
    rig.world.create("vllm-ascend", OLD, {}, [DEVICE])
    assert "vllm-ascend was started by hand" in fails(rig, rig.plan(), check=check)[0]
    unit = pathlib.Path(rig.host.path(instance_state.unit_path("b")))
    unit.write_text("[Service]\nExecStart=/bin/true\n", encoding="utf-8")
    message, _result = fails(rig, rig.plan(name="b"), check=check)
    assert "/etc/systemd/system/vllm-b.service exists and was not made by" in message
    assert "/bin/true" in unit.read_text(encoding="utf-8")


# -- lost, busy, dead ------------------------------------------------------------------------------------------------


def lost(rig, plan):
    """Ask for a plan from a process that is killed as soon as the transaction starts the unit."""
    pid = os.fork()
    if pid == 0:
        run(rig, plan)
        os._exit(0)
    deadline = time.monotonic() + 30
    while not rig.calls("systemctl", "start") and time.monotonic() < deadline:
        time.sleep(0.05)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def test_a_lost_run_goes_on_and_the_next_one_attaches_to_it(rig):
    plan = rig.plan()
    rig.world.delays["systemctl start"] = 2
    lost(rig, plan)
    result = run(rig, plan)
    assert result["instances"][0]["attached"] is True
    assert (result["changed"], result["instances"][0]["outcome"]) == (True, "committed")
    assert rig.serves(plan)
    assert len(rig.calls("systemctl", "start")) == 1
    assert run(rig, plan)["changed"] is False


def test_another_request_waits_for_its_turn(rig):
    rig.world.delays["systemctl start"] = 1.5
    lost(rig, rig.plan(OLD))
    plan = rig.plan()
    result = run(rig, plan, lock_timeout=30)
    assert (result["instances"][0]["attached"], result["instances"][0]["action"]) == (False, "update")
    assert rig.serves(plan)
    assert rig.committed()["plan"] == plan


def test_another_request_does_not_wait_for_ever_and_says_who_is_at_it(rig):
    rig.world.delays["systemctl start"] = 3
    lost(rig, rig.plan(OLD))
    message, result = fails(rig, rig.plan(), lock_timeout=0.3)
    assert "busy for more than 0 s" in message
    assert "asked for by a test" in message
    assert result["changed"] is False
    threading.Event().wait(0.1)
    assert run(rig, rig.plan(), lock_timeout=30)["instances"][0]["outcome"] == "committed"


@pytest.mark.parametrize("step", ["preflight", "stop", "start", "commit"])
def test_a_helper_that_dies_is_said_and_the_next_run_recovers(rig, step):
    old, plan = rig.plan(OLD), rig.plan()
    run(rig, old)
    rig.fault(step, "kill")
    message, result = fails(rig, plan)
    assert f"ended without a result in the step {step}; the next run finishes or undoes it" in message
    assert "Now: " in message
    again = run(rig, plan)
    assert (again["instances"][0]["action"], again["instances"][0]["outcome"]) == ("recover", "committed")
    assert rig.serves(plan)
    assert "state_now" in result


# -- the other states -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "first", "second"),
    [("stopped", True, False), ("started", False, False), ("restarted", True, True), ("absent", True, False)],
)
def test_states_change_once_and_check_mode_knows(rig, state, first, second):
    run(rig, rig.plan())
    for expected in (first, second):
        before = fingerprint(rig)
        predicted = run(rig, state=state, names=[NAME], check=True)
        assert fingerprint(rig) == before
        done = run(rig, state=state, names=[NAME])
        assert [predicted["changed"], done["changed"]] == [expected, expected]
        assert predicted["diff"] == done["diff"]


def test_without_names_every_instance_of_ours_is_meant(rig):
    plans = [rig.plan(name="a", npus=["/dev/davinci0"]), rig.plan(name="b", npus=["/dev/davinci1"])]
    run(rig, *plans)
    pathlib.Path(rig.host.path("/etc/systemd/system/vllm-theirs.service")).write_text("[Service]\n", encoding="utf-8")
    result = run(rig, state="stopped")
    assert [one["name"] for one in result["instances"]] == ["a", "b"]
    assert rig.running() == {}


def test_one_instance_is_stopped_and_the_other_is_not_touched(rig):
    plans = [rig.plan(name="a", npus=["/dev/davinci0"]), rig.plan(name="b", npus=["/dev/davinci1"])]
    run(rig, *plans)
    kept = rig.world.find("vllm-b")["Id"]
    run(rig, state="stopped", names=["a"])
    assert [c["Id"] for c in rig.world.containers] == [kept]


@pytest.mark.parametrize("state", ["started", "stopped", "restarted"])
def test_a_name_that_is_not_there_is_refused_with_those_that_are(rig, state):
    run(rig, rig.plan())
    message, _result = fails(rig, state=state, names=["nope", NAME])
    assert message == "there is no instance nope on this host; instances here: ascend"
    assert rig.running() == {"vllm-ascend": NEW_IMAGE}


def test_removing_leaves_nothing_and_what_is_not_there_is_no_change(rig):
    run(rig, rig.plan())
    result = run(rig, state="absent", names=[NAME, "never-was"])
    assert [one["changed"] for one in result["instances"]] == [True, False]
    assert rig.leftovers() == []
    assert not os.path.exists(rig.host.state(NAME))
    assert os.path.isdir(rig.host.path("/root/.cache"))


def test_started_recovers_what_a_dead_transaction_left(rig):
    old = rig.plan(OLD)
    run(rig, old)
    rig.fault("start", "kill")
    fails(rig, rig.plan())
    result = run(rig, state="started", names=[NAME])
    assert (result["changed"], result["instances"][0]["state"]) == (True, "serving")
    assert rig.serves(old)


# -- names -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("check", [False, True])
@pytest.mark.parametrize("state", ["absent", "started", "stopped", "restarted", "present"])
@pytest.mark.parametrize("bad", ["", "..", ".", "a/../..", "Ascend", "-a", "a" * 32, "a\n"])
def test_what_is_no_name_of_an_instance_is_refused_before_anything_else(rig, bad, state, check):
    rig.install_old()
    before = fingerprint(rig)
    if state == "present":
        message, result = fails(rig, rig.plan(OLD), dict(rig.plan(OLD), name=bad), check=check)
    else:
        message, result = fails(rig, state=state, names=[NAME, bad, "_"], check=check)
        assert f'{json.dumps(bad)}, "_"' in message
    assert "no instance can be named" in message and "[a-z0-9][a-z0-9-]{0,30}" in message
    assert result["changed"] is False
    assert rig.calls("systemctl") == rig.calls("systemd-run") == []
    assert fingerprint(rig) == before


@pytest.mark.parametrize("check", [False, True])
def test_the_unit_of_somebody_else_is_not_removed(rig, check):
    unit = pathlib.Path(rig.host.path(instance_state.unit_path("theirs")))
    unit.write_text("[Service]\nExecStart=/bin/true\n", encoding="utf-8")
    message, _result = fails(rig, state="absent", names=["theirs"], check=check)
    assert "not made by vllm_ascend.fleet, so left alone: /etc/systemd/system/vllm-theirs.service" in message
    assert unit.exists()


# -- absent beside other transactions ---------------------------------------------------------------------------------


@pytest.mark.parametrize("step", ["preflight", "start"])
def test_removing_settles_an_open_transaction_and_is_a_change(rig, step):
    by_hand = rig.world.create("vllm-ascend", OLD, {}, [DEVICE])
    rig.fault(step, "kill")
    fails(rig, rig.plan(), adopt=True)
    before = fingerprint(rig)
    assert run(rig, state="absent", names=[NAME], check=True)["changed"] is True
    assert fingerprint(rig) == before
    assert run(rig, state="absent", names=[NAME])["changed"] is True
    assert (by_hand["Name"], by_hand["State"]["Running"]) == ("/vllm-ascend", True)
    assert not os.path.exists(rig.host.path(instance_state.STATE_DIR))
    assert run(rig, state="absent", names=[NAME])["changed"] is False


def test_removing_waits_for_a_transaction_that_runs_and_removes_nothing_before(rig):
    rig.world.delays["systemctl start"] = 2
    plan = rig.plan()
    lost(rig, plan)
    message, result = fails(rig, state="absent", names=[NAME], lock_timeout=0.3)
    assert "a transaction (present, asked for by a test) runs" in message
    assert result["changed"] is False
    assert rig.journal()["state"] == "open"
    assert run(rig, state="absent", names=[NAME], lock_timeout=30)["changed"] is True
    assert rig.leftovers() == []
    assert not os.path.exists(rig.host.state(NAME))


def test_an_empty_state_folder_is_removed_and_is_a_change(rig):
    os.makedirs(rig.host.state(NAME))
    assert run(rig, state="absent", names=[NAME], check=True)["changed"] is True
    assert run(rig, state="absent", names=[NAME])["changed"] is True
    assert not os.path.exists(rig.host.path(instance_state.STATE_DIR))


def test_a_removal_that_fails_leaves_the_state_folder(rig):
    run(rig, rig.plan())
    rig.fault("remove", "fail")
    fails(rig, state="absent", names=[NAME])
    assert rig.committed() is not None
    assert run(rig, state="absent", names=[NAME])["changed"] is True


def test_a_state_folder_that_somebody_uses_meanwhile_stays(rig):
    run(rig, rig.plan())
    client = Client(rig.host, sys.executable, 1, "a test")
    client._remove_state(NAME, "another run")
    assert rig.committed() is not None


def test_two_that_remove_the_same_instance_both_succeed(rig):
    run(rig, rig.plan())
    rig.world.delays["systemctl disable"] = 1
    pid = os.fork()
    if pid == 0:
        with contextlib.suppress(BaseException):
            os._exit(0 if run(rig, state="absent", names=[NAME])["changed"] else 2)
        os._exit(1)
    while not rig.calls("systemctl", "disable"):
        time.sleep(0.02)
    assert run(rig, state="absent", names=[NAME])["changed"] is True
    assert os.waitpid(pid, 0)[1] == 0
    assert not os.path.exists(rig.host.state(NAME))


# -- what a dead end left ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["present", "started"])
def test_secrets_that_a_closed_transaction_left_go_with_the_next_run(rig, state):
    run(rig, rig.plan(OLD))
    rig.fault("clean", "kill")
    fails(rig, rig.plan())
    assert os.path.exists(rig.host.state(NAME, "snapshot.env"))
    before = fingerprint(rig)
    more = {"state": state, "names": [NAME]} if state == "started" else {}
    plans = [] if more else [rig.plan()]
    assert run(rig, *plans, check=True, **more)["changed"] is False
    assert fingerprint(rig) == before
    rig.forget_calls()
    assert run(rig, *plans, **more)["changed"] is False
    assert rig.calls("systemd-run") == []
    assert not os.path.exists(rig.host.state(NAME, "snapshot.env"))
    assert not os.path.exists(rig.host.state(NAME, "staged.env"))


def test_a_disk_that_takes_no_request_is_said_without_a_traceback(rig, monkeypatch):
    def full(*_args):
        raise OSError(28, "No space left on device")

    run(rig, rig.plan(OLD))
    monkeypatch.setattr(atomic, "write_json", full)
    message, _result = fails(rig, rig.plan())
    assert message.startswith("ascend: [Errno 28] No space left on device")
    assert rig.running() == {"vllm-ascend": OLD_IMAGE}


# -- the helper -------------------------------------------------------------------------------------------------------


def test_another_helper_is_replaced_while_everything_is_in_order(rig):
    plan = rig.plan()
    run(rig, plan)
    path = pathlib.Path(rig.host.path(instance_state.HELPER_PATH))
    right = path.read_bytes()
    path.write_bytes(b"#!/usr/bin/env python3\n# vllm_ascend.fleet host helper 0.0.1\n")
    before = fingerprint(rig)
    rig.forget_calls()
    predicted = run(rig, plan, check=True)
    assert fingerprint(rig) == before
    done = run(rig, plan)
    assert path.read_bytes() == right
    for result in (predicted, done):
        assert (result["changed"], result["helper"]["changed"]) == (True, True)
        assert [(one["changed"], one["action"]) for one in result["instances"]] == [(False, "none")]
        (diff,) = result["diff"]
        assert diff["after_header"] == instance_state.HELPER_PATH
        assert result["helper"]["before"] in diff["before"] and result["helper"]["digest"] in diff["after"]
    assert {call[1] for call in rig.calls("systemctl")} == {"show"}
    assert rig.serves(plan)
    assert run(rig, plan)["changed"] is False
