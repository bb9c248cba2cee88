"""The transaction on a fake host: it commits, or what was there before is back, wherever it fails or dies."""

from __future__ import annotations

import errno
import json
import os

import pytest
from ansible_collections.vllm_ascend.fleet.plugins.module_utils import atomic, operations
from ansible_collections.vllm_ascend.fleet.plugins.module_utils.journal import LockError
from ansible_collections.vllm_ascend.fleet.plugins.module_utils.steps import FORWARD

from tests.unit.support.fleet_rig import DEVICE, KEY, NAME, NEW, NEW_IMAGE, OLD, OLD_IMAGE, FleetRig

STEPS = ("snapshot", *FORWARD)
# Before `adopt` nothing of the running service is touched.
UNTOUCHED = ("snapshot", "prepare", "image", "preflight")
OTHER_KEY = "sk-another"


@pytest.fixture
def rig(tmp_path, monkeypatch):
    made = FleetRig(tmp_path, monkeypatch)
    yield made
    made.close()


def steps_of(result):
    return {step["step"]: step["result"] for step in result["steps"]}


# -- it works --------------------------------------------------------------------------------------------------------


def test_a_first_instance_serves_and_is_committed(rig):
    plan = rig.plan()
    result = rig.apply(plan)
    assert (result["ok"], result["changed"], result["action"]) == (True, True, "create")
    assert (result["outcome"], result["state"]) == ("committed", "serving")
    assert rig.serves(plan)
    assert list(steps_of(result)) == list(STEPS)
    assert {step for step, how in steps_of(result).items() if how == "skipped"} == {"adopt", "stop"}
    assert result["evidence"]["verification"]["ok"] is True
    assert result["evidence"]["preflight"]["flags"] == "accepted"
    assert result["evidence"]["endpoint"]["completion"] == " city"
    record = rig.committed()
    assert (record["plan"], record["image_id"], record["image_reference"]) == (plan, NEW_IMAGE, NEW)
    assert record["secrets"] == plan["container"]["secrets"]
    assert os.path.isdir(rig.host.path("/root/.cache"))


def test_secrets_are_only_in_files_for_root_and_only_where_needed(rig):
    rig.apply(rig.plan())
    holding = []
    for folder, _, names in os.walk(str(rig.root)):
        for name in names:
            path = os.path.join(folder, name)
            with open(path, "rb") as handle:
                if KEY.encode() in handle.read():
                    holding.append((path[len(str(rig.root)) :], oct(os.stat(path).st_mode & 0o777)))
    assert holding == [("/etc/vllm-ascend/ascend.env", "0o600")]
    assert KEY not in json.dumps(rig.world.calls)
    assert oct(os.stat(rig.host.state(NAME)).st_mode & 0o777) == "0o700"


def test_an_update_replaces_the_service_and_keeps_the_state_before(rig):
    old = rig.install_old()
    plan = rig.plan(secrets={"VLLM_API_KEY": OTHER_KEY})
    result = rig.apply(plan, {"VLLM_API_KEY": OTHER_KEY})
    assert (result["ok"], result["action"]) == (True, "update")
    assert rig.serves(plan)
    with open(rig.host.state(NAME, "previous.json")) as handle:
        assert json.load(handle)["plan"] == old
    with open(rig.host.state(NAME, "previous.unit")) as handle:
        assert handle.read() == old["unit"]["text"]
    with open(rig.host.state(NAME, "previous.env")) as handle:
        assert handle.read() == f"VLLM_API_KEY={KEY}\n"


def test_the_checks_without_a_device_run_beside_the_old_service_and_the_device_check_in_the_gap(rig):
    rig.install_old()
    rig.apply(rig.plan())
    calls = [" ".join(call) for call in rig.world.calls]

    def first(text):
        return next(number for number, call in enumerate(calls) if text in call)

    stop = first("systemctl stop vllm-ascend.service")
    preflight, npu_smi, start = first("run --rm"), first("npu-smi info"), first("systemctl start")
    assert preflight < stop < npu_smi < start
    assert DEVICE not in calls[preflight]
    assert DEVICE in calls[npu_smi]


def test_a_second_identical_request_changes_nothing_and_stops_nothing(rig):
    plan = rig.plan()
    rig.apply(plan)
    rig.forget_calls()
    result = rig.apply(plan)
    assert (result["ok"], result["changed"], result["action"], result["outcome"]) == (True, False, "none", "unchanged")
    assert rig.serves(plan)
    for verb in ("stop", "start", "restart", "daemon-reload"):
        assert rig.calls("systemctl", verb) == []


def test_a_stopped_instance_is_only_started(rig):
    plan = rig.plan()
    rig.apply(plan)
    rig.operate("stopped")
    result = rig.apply(plan)
    assert (result["ok"], result["action"]) == (True, "start")
    assert list(steps_of(result)) == ["snapshot", "image", "enable", "start", "prove", "commit"]
    assert rig.serves(plan)


def test_an_active_instance_that_does_not_serve_is_restarted(rig):
    plan = rig.plan()
    rig.apply(plan)
    del rig.world.containers[0]["serves"]
    result = rig.apply(plan)
    assert (result["ok"], result["action"]) == (True, "repair")
    assert "restart" in steps_of(result)
    assert rig.serves(plan)


def test_a_start_that_fails_leaves_the_unit_as_planned_and_says_so(rig):
    plan = rig.plan()
    rig.apply(plan)
    rig.operate("stopped")
    rig.does(NEW_IMAGE, start="ValueError: no memory")
    result = rig.apply(plan)
    assert (result["ok"], result["outcome"], result["failure"]["step"]) == (False, "failed", "start")
    assert "no memory" in result["failure"]["message"]
    assert rig.journal()["state"] == "done"
    assert rig.host.unit(NAME).unit_file_state == "enabled"


def test_a_moved_tag_is_an_update(rig):
    plan = rig.plan()
    rig.apply(plan)
    rig.world.images[NEW] = "sha256:" + "3" * 64
    result = rig.apply(plan)
    assert (result["ok"], result["action"]) == (True, "update")
    assert rig.running() == {"vllm-ascend": "sha256:" + "3" * 64}


# -- it fails: what was there before is back -------------------------------------------------------------------------


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("step", STEPS)
def test_after_a_failure_at_any_step_the_old_service_is_back_and_proved(rig, step, when):
    old = rig.install_old()
    plan = rig.plan(secrets={"VLLM_API_KEY": OTHER_KEY})
    rig.fault(step, "fail", when)
    result = rig.apply(plan, {"VLLM_API_KEY": OTHER_KEY})
    assert (result["ok"], result["failure"]["step"]) == (False, step)
    assert result["outcome"] == ("refused" if step in UNTOUCHED else "rolled_back")
    assert result["state"] == "serving"
    assert rig.serves(old)
    assert rig.journal()["state"] == "done"
    if step in UNTOUCHED:
        assert rig.calls("systemctl", "stop") == []
    assert rig.committed()["plan"] == old


@pytest.mark.parametrize("step", STEPS)
def test_after_a_failed_first_installation_nothing_is_left_but_the_caches(rig, step):
    rig.fault(step, "fail", "after")
    result = rig.apply(rig.plan())
    assert (result["ok"], result["failure"]["step"], result["state"]) == (False, step, "absent")
    assert rig.leftovers() == []
    assert rig.journal()["state"] == "done"
    assert os.path.isdir(rig.host.path("/root/.cache")) is (step != "snapshot")
    assert rig.apply(rig.plan())["ok"] is True


@pytest.mark.parametrize(
    ("what", "step", "text"),
    [
        ({"start": "(EngineCore pid=1) RuntimeError: not enough memory"}, "start", "not enough memory"),
        ({"verify": "No available Ascend NPU detected in the container"}, "verify", "No available Ascend NPU"),
        ({"npu_smi": "dcmi module initialize failed. ret is -8005"}, "verify", "-8005"),
        ({"serve": "empty"}, "prove", "choices[0].text is empty"),
        ({"serve": "down"}, "prove", "503"),
        (
            {"flags": "refused", "flags_why": "usage: x\nvllm serve: error: unrecognized arguments: --max-num-seq-s 8"},
            "preflight",
            "unrecognized arguments: --max-num-seq-s 8",
        ),
    ],
)
def test_an_image_that_fails_is_rolled_back_with_the_line_that_matters(rig, what, step, text):
    old = rig.install_old()
    rig.does(NEW_IMAGE, **what)
    result = rig.apply(rig.plan())
    assert (result["ok"], result["failure"]["step"]) == (False, step)
    assert text in result["failure"]["message"]
    assert rig.serves(old)


@pytest.mark.parametrize(("answer", "ok"), [("city", True), ("Beijing", False)])
def test_a_golden_answer_decides_whether_the_new_service_stays(rig, answer, ok):
    """The service answers " city" to everything: healthy, and not what a golden answer may want."""
    old = rig.install_old()
    new = rig.plan(answers={"golden": {"prompt": "Beijing is a", "answer": answer, "max_tokens": 5}})
    result = rig.apply(new)
    assert result["ok"] is ok
    if ok:
        assert result["evidence"]["answers"]["golden"] == " city"
        assert rig.serves(new)
    else:
        assert result["failure"]["step"] == "prove"
        assert "'city', and must begin with 'Beijing'" in result["failure"]["message"]
        assert rig.serves(old)


def test_a_moved_tag_goes_back_to_the_image_of_before(rig):
    plan = rig.plan()
    rig.apply(plan)
    moved = "sha256:" + "3" * 64
    rig.world.images[NEW] = moved
    rig.world.dangling.append(NEW_IMAGE)
    rig.does(moved, start="Error: broken")
    result = rig.apply(plan)
    assert (result["ok"], result["outcome"]) == (False, "rolled_back")
    assert rig.world.images[NEW] == NEW_IMAGE
    assert rig.serves(plan)


def test_a_tag_that_moved_while_the_request_waited_stops_nothing(rig):
    old = rig.install_old()
    result = rig.apply(rig.plan(), image_id="sha256:" + "9" * 64)
    assert (result["failure"]["step"], result["outcome"]) == ("image", "refused")
    assert NEW_IMAGE in result["failure"]["message"]
    assert rig.serves(old)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"required_paths": ["/usr/local/dcmi"]}, "/usr/local/dcmi (missing)"),
        ({"model_folder": "/models/nope"}, "/models/nope (the model folder: missing)"),
    ],
)
def test_what_is_missing_on_the_host_is_named_before_anything_stops(rig, change, text):
    old = rig.install_old()
    result = rig.apply(rig.plan(**change))
    assert (result["failure"]["step"], result["outcome"]) == ("prepare", "refused")
    assert text in result["failure"]["message"]
    assert rig.serves(old)


def test_an_engine_that_refuses_the_container_stops_nothing(rig):
    old = rig.install_old()
    rig.world.refuses = "docker: Error response from daemon: invalid mount config."
    result = rig.apply(rig.plan())
    assert (result["failure"]["step"], result["outcome"]) == ("preflight", "refused")
    assert "invalid mount config" in result["failure"]["message"]
    assert rig.serves(old)


def test_secrets_that_are_not_the_plan_s_stop_nothing(rig):
    old = rig.install_old()
    result = rig.apply(rig.plan(), {"VLLM_API_KEY": "something else"})
    assert (result["failure"]["step"], result["outcome"]) == ("prepare", "refused")
    assert rig.serves(old)


def test_a_disabled_stopped_instance_is_disabled_and_stopped_after_a_rollback(rig):
    rig.install_old()
    rig.operate("stopped")
    rig.host.systemctl("disable", "vllm-ascend.service")
    rig.does(NEW_IMAGE, start="Error: broken")
    assert rig.apply(rig.plan())["outcome"] == "rolled_back"
    unit = rig.host.unit(NAME)
    assert (unit.active_state, unit.unit_file_state) == ("inactive", "disabled")
    assert rig.running() == {}


def test_a_rollback_that_fails_says_so_and_the_next_run_goes_back_further(rig):
    old = rig.install_old()
    rig.does(NEW_IMAGE, start="Error: broken")
    rig.fault("rollback_start", "fail")
    result = rig.apply(rig.plan())
    assert (result["ok"], result["outcome"]) == (False, "rollback_failed")
    assert "rollback_start" in result["evidence"]["rollback"]["errors"][0]
    assert rig.journal()["state"] == "open"
    result = rig.operate("started")
    assert result["ok"] is True
    assert rig.serves(old)


# -- it dies: the next run finishes or undoes ------------------------------------------------------------------------


FOLLOWING = ("same", "other", "old", "started")
THIRD_KEY = "sk-a-third"
# At the end of every transaction the journal is closed, then its secrets go.
ENDS = [(step, when) for step in ("close", "clean") for when in ("before", "after")]
KILLS = [(step, when) for step in STEPS for when in ("before", "after")] + ENDS


def follow(rig, following, old, new):
    """The next run after one that was killed: (its result, the plans of which one must serve)."""
    if following == "same":
        return rig.apply(new, {"VLLM_API_KEY": OTHER_KEY}), [new]
    if following == "other":
        other = rig.plan(secrets={"VLLM_API_KEY": THIRD_KEY})
        return rig.apply(other, {"VLLM_API_KEY": THIRD_KEY}), [other]
    if following == "old":
        return rig.apply(old), [old]
    return rig.operate("started"), [old, new]


# Every point at which it can die, and after it the next runs by turns: each of them seven times.
@pytest.mark.parametrize(
    ("step", "when", "following"),
    [(step, when, FOLLOWING[(turn + turn // 4) % 4]) for turn, (step, when) in enumerate(KILLS)],
)
def test_after_kill_9_at_any_step_the_next_run_proves_the_old_or_the_new_service(rig, step, when, following):
    old = rig.install_old()
    new = rig.plan(secrets={"VLLM_API_KEY": OTHER_KEY})
    rig.fault(step, "kill", when)
    assert rig.killed(lambda: rig.apply(new, {"VLLM_API_KEY": OTHER_KEY}))
    assert rig.journal()["state"] == ("done" if (step, when) in ENDS[1:] else "open")
    result, wanted = follow(rig, following, old, new)
    assert (result["ok"], result["state"]) == (True, "serving")
    assert any(rig.serves(plan) for plan in wanted)
    assert rig.committed()["plan"] in wanted
    assert rig.journal()["state"] == "done"
    assert secret_files(rig) == []


@pytest.mark.parametrize("following", FOLLOWING)
@pytest.mark.parametrize(("step", "when"), ENDS)
def test_after_kill_9_at_the_end_of_a_rollback_the_old_service_keeps_its_key(rig, step, when, following):
    old = rig.install_old()
    new = rig.plan(secrets={"VLLM_API_KEY": OTHER_KEY})
    rig.does(NEW_IMAGE, start="Error: broken")
    rig.fault(step, "kill", when)
    assert rig.killed(lambda: rig.apply(new, {"VLLM_API_KEY": OTHER_KEY}))
    # The new image stays broken: whatever is asked for, the old service is there in the end, with its key.
    result, wanted = follow(rig, following, old, new)
    assert result["ok"] is (following in ("old", "started"))
    assert old in wanted or not result["ok"]
    assert rig.serves(old)
    assert rig.committed()["plan"] == old
    assert rig.journal()["state"] == "done"
    assert secret_files(rig) == []


def secret_files(rig):
    return [name for name in os.listdir(rig.host.state(NAME)) if name in ("snapshot.env", "staged.env", "adopted.env")]


@pytest.mark.parametrize("step", ["close", "clean"])
def test_an_end_that_fails_is_noted_and_made_up_for_by_the_next_run(rig, step):
    rig.install_old()
    plan = rig.plan()
    rig.fault(step, "fail")
    result = rig.apply(plan)
    assert (result["ok"], result["outcome"]) == (True, "committed")
    assert "the next run looks at it again" in result["evidence"]["journal"]
    assert rig.apply(plan)["ok"] is True
    assert rig.serves(plan)
    assert (rig.journal()["state"], secret_files(rig)) == ("done", [])


def test_a_late_commit_that_fails_brings_the_old_service_back_and_says_why(rig):
    old = rig.install_old()
    plan = rig.plan()
    for following, request_again in (("same", lambda: rig.apply(plan)), ("started", lambda: rig.operate("started"))):
        rig.fault("commit", "kill")
        assert rig.killed(lambda: rig.apply(plan)), following
        rig.fault("commit", "fail")
        result = request_again()
        assert (result["ok"], result["outcome"], result["failure"]["step"]) == (False, "rolled_back", "commit")
        assert result["run_id"] == "test"
        assert rig.serves(old)
        assert (rig.journal()["state"], rig.committed()["plan"], secret_files(rig)) == ("done", old, [])


# -- the journal cannot be written -----------------------------------------------------------------------------------


def break_journal(monkeypatch, broken, number=None):
    """From the first journal for which broken(data) holds, no write of it succeeds; number: only so many fail."""
    write, state = atomic.write_json, {"failed": 0}

    def failing(path, value, *mode):
        hit = path.endswith("/journal.json") and (state["failed"] or broken(value))
        if hit and (number is None or state["failed"] < number):
            state["failed"] += 1
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(path, value, *mode)

    monkeypatch.setattr(atomic, "write_json", failing)
    return state


def at(step, result):
    """True for a journal whose last entry is that step with that result."""
    return lambda data: data["steps"] and (data["steps"][-1]["step"], data["steps"][-1]["result"]) == (step, result)


@pytest.mark.parametrize("number", [None, 1])
@pytest.mark.parametrize("result_now", ["started", "done"])
@pytest.mark.parametrize("step", ["stop", "verify", "write", "enable", "start", "prove", "commit"])
def test_a_journal_that_cannot_be_written_is_a_failed_step_and_the_old_service_is_back(
    rig, monkeypatch, step, result_now, number
):
    old = rig.install_old()
    plan = rig.plan(secrets={"VLLM_API_KEY": OTHER_KEY})
    with monkeypatch.context() as patch:
        state = break_journal(patch, at(step, result_now), number)
        result = rig.apply(plan, {"VLLM_API_KEY": OTHER_KEY})
    assert state["failed"] >= 1
    assert (result["ok"], result["outcome"], result["failure"]["step"]) == (False, "rolled_back", step)
    assert "journal.json cannot be written: [Errno 28] No space left on device" in result["failure"]["message"]
    assert steps_of(result)["rollback_prove"] == "done"
    assert rig.serves(old)
    assert rig.committed()["plan"] == old
    if number is None:
        assert "the next run looks at it again" in result["evidence"]["journal"]
    else:
        assert (rig.journal()["state"], secret_files(rig)) == ("done", [])
    assert rig.operate("started")["ok"] is True
    assert rig.serves(old)
    assert (rig.journal()["state"], secret_files(rig)) == ("done", [])


@pytest.mark.parametrize("note", ["touched", "adopted"])
def test_nothing_is_touched_before_it_is_noted(rig, monkeypatch, note):
    old = rig.install_old()
    if note == "adopted":
        rig.operate("stopped")
        rig.world.create("vllm-ascend", OLD, {}, [DEVICE])
    rig.forget_calls()
    break_journal(monkeypatch, lambda data: data.get(note))
    result = rig.apply(rig.plan(), adopt=True)
    assert result["ok"] is False
    assert "cannot be written" in result["failure"]["message"]
    assert rig.calls("docker", "rename") == rig.calls("docker", "stop") == []
    if note == "touched":
        assert rig.calls("systemctl", "stop") == []
        assert rig.serves(old)


def test_a_service_that_was_brought_back_is_not_committed_as_the_new_one(rig, monkeypatch):
    """The tag moved, so both have the same unit; the journal on the disk has stayed at the proof of the new one."""
    plan = rig.plan()
    rig.apply(plan)
    moved = "sha256:" + "3" * 64
    rig.world.images[NEW] = moved
    rig.world.dangling.append(NEW_IMAGE)
    with monkeypatch.context() as patch:
        break_journal(patch, at("commit", "started"))
        assert rig.apply(plan)["outcome"] == "rolled_back"
    assert rig.operate("started")["ok"] is True
    assert rig.committed()["image_id"] == NEW_IMAGE
    assert rig.running() == {"vllm-ascend": NEW_IMAGE}


# -- which request, which engine -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["", "..", "a/b", "Ascend"])
def test_what_is_no_name_is_refused_by_the_helper_too(rig, name):
    with pytest.raises(operations.RequestError, match="is no name of an instance"):
        operations.transact(name, str(rig.root))


def test_a_request_of_another_instance_is_refused(rig):
    rig.put(dict(rig.request(rig.plan(name="b")), instance=NAME), {"VLLM_API_KEY": KEY})
    with pytest.raises(operations.RequestError, match="the request of another instance"):
        operations.transact(NAME, str(rig.root))


def test_a_docker_that_points_elsewhere_is_never_asked(rig, monkeypatch):
    monkeypatch.setenv("DOCKER_HOST", "tcp://elsewhere:2375")
    monkeypatch.setenv("DOCKER_CONTEXT", "elsewhere")
    by_hand = rig.world.create("vllm-ascend", OLD, {}, [DEVICE], AutoRemove=True)
    rig.does(NEW_IMAGE, start="Error: broken")
    assert rig.apply(rig.plan(), adopt=True)["outcome"] == "rolled_back"
    assert rig.running() == {"vllm-ascend": by_hand["Image"]}
    rig.does(NEW_IMAGE)
    plan = rig.plan()
    assert rig.apply(plan, adopt=True)["ok"] is True
    assert rig.operate("absent")["changed"] is True


@pytest.mark.parametrize("step", FORWARD)
@pytest.mark.parametrize("following", ["same", "started"])
def test_after_kill_9_of_a_first_installation_the_next_run_finishes_it(rig, step, following):
    plan = rig.plan()
    rig.fault(step, "kill", "after")
    assert rig.killed(lambda: rig.apply(plan))
    result = rig.apply(plan) if following == "same" else rig.operate("started")
    if following == "started" and step in UNTOUCHED:
        assert "no instance ascend" in result["failure"]["message"]
        assert rig.leftovers() == []
    else:
        assert result["ok"] is True
        assert rig.serves(plan)


@pytest.mark.parametrize("step", STEPS)
def test_after_kill_9_and_then_a_failure_the_service_from_before_both_is_back(rig, step):
    old = rig.install_old()
    rig.fault(step, "kill", "after")
    assert rig.killed(lambda: rig.apply(rig.plan()))
    # Proved and only not committed: that counts.
    return_to = rig.plan() if step == "commit" else old
    rig.world.images["quay.io/ascend/vllm-ascend:broken"] = "sha256:" + "4" * 64
    rig.does("sha256:" + "4" * 64, start="Error: broken")
    result = rig.apply(rig.plan("quay.io/ascend/vllm-ascend:broken"))
    assert (result["ok"], result["failure"]["step"]) == (False, "start")
    assert rig.serves(return_to)


@pytest.mark.parametrize("step", ["rollback_stop", "rollback_restore", "rollback_image", "rollback_start"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_after_kill_9_within_a_rollback_the_old_service_comes_back(rig, step, when):
    old = rig.install_old()
    rig.does(NEW_IMAGE, start="Error: broken")
    rig.fault(step, "kill", when)
    assert rig.killed(lambda: rig.apply(rig.plan()))
    result = rig.operate("started")
    assert result["ok"] is True
    assert rig.serves(old)


@pytest.mark.parametrize("step", ["stop", "start", "restart", "prove", "remove"])
@pytest.mark.parametrize("state", ["stopped", "restarted", "absent"])
def test_after_kill_9_of_an_operation_the_next_one_ends_it(rig, state, step):
    plan = rig.plan()
    rig.apply(plan)
    rig.fault(step, "kill", "after")
    if not rig.killed(lambda: rig.operate(state)):
        return
    assert rig.operate(state)["ok"] is True
    if state == "absent":
        assert rig.leftovers() == []
    elif state == "stopped":
        assert rig.running() == {}
    else:
        assert rig.serves(plan)


def test_a_journal_that_is_no_json_is_recovered_from(rig):
    plan = rig.plan()
    rig.apply(plan)
    with open(rig.host.state(NAME, "journal.json"), "w") as handle:
        handle.write('{"state": "op')
    result = rig.apply(plan)
    assert (result["ok"], result["action"]) == (True, "recover")
    assert rig.serves(plan)


# -- operations ------------------------------------------------------------------------------------------------------


def test_stopping_and_starting_act_on_one_unit_and_twice_is_once(rig):
    plan = rig.plan()
    rig.apply(plan)
    rig.forget_calls()
    assert [rig.operate("stopped")["changed"] for _ in range(2)] == [True, False]
    assert rig.running() == {}
    assert [rig.operate("started")["changed"] for _ in range(2)] == [True, False]
    assert rig.serves(plan)
    acted = [call for verb in ("start", "stop") for call in rig.calls("systemctl", verb)]
    assert {call[-1] for call in acted} == {"vllm-ascend.service"}


def test_restarting_always_changes_and_proves(rig):
    plan = rig.plan()
    rig.apply(plan)
    assert [rig.operate("restarted")["changed"] for _ in range(2)] == [True, True]
    assert rig.serves(plan)


def test_removing_takes_everything_but_images_caches_and_models(rig):
    rig.apply(rig.plan())
    results = [rig.operate("absent") for _ in range(2)]
    assert [(one["ok"], one["changed"], one["state"]) for one in results] == [
        (True, True, "absent"),
        (True, False, "absent"),
    ]
    assert rig.leftovers() == []
    assert rig.committed() is None
    assert rig.world.images == {OLD: OLD_IMAGE, NEW: NEW_IMAGE}
    assert os.path.isdir(rig.host.path("/root/.cache"))
    assert os.path.isdir(rig.host.path("/models/qwen"))


def test_an_instance_that_is_not_there_is_named_with_those_that_are(rig):
    rig.apply(rig.plan())
    result = rig.operate("started", "nope")
    assert result["ok"] is False
    assert "no instance nope" in result["failure"]["message"]
    assert "ascend" in result["failure"]["message"]


def test_a_stopped_transaction_is_undone_by_stopping_without_starting_anything(rig):
    rig.install_old()
    rig.fault("start", "kill", "before")
    assert rig.killed(lambda: rig.apply(rig.plan()))
    rig.forget_calls()
    result = rig.operate("stopped")
    assert (result["ok"], result["state"]) == (True, "stopped")
    assert rig.calls("systemctl", "start") == []
    assert rig.operate("started")["ok"] is True
    assert rig.running() == {"vllm-ascend": OLD_IMAGE}


@pytest.mark.parametrize("removed", [False, True])
@pytest.mark.parametrize("step", ["snapshot", "preflight", "adopt", "start", "prove", "commit"])
def test_removing_first_settles_what_a_dead_transaction_left(rig, step, removed):
    """A container by hand that had given way is there again, not only set aside."""
    rig.world.create("vllm-ascend", OLD, {}, [DEVICE], AutoRemove=removed)
    rig.fault(step, "kill", "after")
    assert rig.killed(lambda: rig.apply(rig.plan(), adopt=True))
    result = rig.operate("absent")
    assert (result["ok"], result["changed"]) == (True, True)
    # Once it is known that the new service was proved, the one by hand has given way for good.
    assert rig.running() == ({} if step == "commit" else {"vllm-ascend": OLD_IMAGE})
    assert not os.path.exists(rig.host.path("/etc/systemd/system/vllm-ascend.service"))
    assert (rig.committed(), secret_files(rig)) == (None, [])


def test_nothing_is_removed_when_what_a_dead_transaction_left_cannot_be_undone(rig):
    rig.install_old()
    rig.fault("start", "kill")
    assert rig.killed(lambda: rig.apply(rig.plan()))
    rig.fault("rollback_restore", "fail")
    result = rig.operate("absent")
    assert (result["ok"], result["outcome"]) == (False, "rollback_failed")
    assert rig.committed() is not None
    assert rig.journal()["state"] == "open"


# -- one at a time ---------------------------------------------------------------------------------------------------


def test_a_second_transaction_names_who_holds_the_lock(rig):
    plan = rig.plan()
    rig.put(rig.request(plan), {"VLLM_API_KEY": KEY})
    with operations.locked(rig.host.state(NAME, "lock"), "somebody", 1):
        with pytest.raises(LockError) as caught:
            operations.transact(NAME, str(rig.root), lock_timeout=0.3)
        assert "somebody" in str(caught.value)
        assert str(os.getpid()) in str(caught.value)
    assert operations.transact(NAME, str(rig.root))["ok"] is True


def test_a_folder_without_a_request_is_refused(rig):
    os.makedirs(rig.host.state(NAME))
    with pytest.raises(operations.RequestError, match="holds no request"):
        operations.transact(NAME, str(rig.root))
