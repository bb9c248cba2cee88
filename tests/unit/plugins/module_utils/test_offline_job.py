"""Offline jobs on a host: what goes in and comes out, and that the NPUs come back."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pathlib
import signal
import sys
import threading
import time

import pytest
from ansible_collections.vllm_ascend.fleet.plugins.module_utils import offline_job
from ansible_collections.vllm_ascend.fleet.plugins.module_utils.offline_job import (
    HEAD,
    JobError,
    folder_of,
    judge,
    parse_prompts,
    shown_indexes,
)

from tests.unit.support.offline_rig import CONTAINER, NAME, PROMPTS, SECRET, OfflineRig

NOISE = (
    "(EngineCore pid=9) ERROR 05-12 11:36:01 [core_client.py:704] Engine core proc EngineCore died unexpectedly, "
    "shutting down client.\nsys:1: DeprecationWarning: builtin type swigvarlink has no __module__ attribute"
)


@pytest.fixture
def rig(tmp_path):
    return OfflineRig(tmp_path)


def test_a_job_gives_a_result_for_each_prompt_and_leaves_nothing(rig):
    rig.does(said=NOISE)
    found = rig.start().run(rig.prompts())
    judged = judge(rig.prompts(), found)
    assert judged["message"] is None
    assert [(one["index"], one["text"]) for one in judged["outputs"]] == [
        (index, "text of " + prompt) for index, prompt in enumerate(PROMPTS)
    ]
    assert (rig.containers(), rig.left()) == ([], False)


def test_prompts_and_secrets_are_in_files_of_root_only(rig):
    rig.start(secrets={"HF_TOKEN": SECRET}).run(rig.prompts())
    (run,) = rig.runs()
    assert [entry["prompt"] for entry in run["request"]["prompts"]] == PROMPTS
    assert (run["request"]["engine"], run["request"]["sampling"]) == ({"model": "m"}, {"max_tokens": 3})
    assert run["env"] == f"HF_TOKEN={SECRET}\n"
    assert run["folder"] == "0o700"
    assert set(run["modes"].values()) == {"0o600"}
    assert not any(word in " ".join(run["argv"]) for word in (*PROMPTS, SECRET))


@pytest.mark.parametrize("rc", [0, 1, -9])
def test_success_is_what_the_results_say_not_the_exit_code_or_the_log(rig, rc):
    rig.does(said=NOISE, rc=rc)
    assert judge(rig.prompts(), rig.start().run(rig.prompts()))["message"] is None


@pytest.mark.parametrize(
    ("does", "missing", "empty", "parts"),
    [
        ({"answers": 1, "done": False, "rc": 1}, [1, 2], [], ["2 have no output (prompts 1-2)", "ended with 1"]),
        ({"answers": 2, "done": False, "rc": 137}, [2], [], ["1 has no output (prompt 2)", "it was killed"]),
        ({"empty": [0, 2]}, [], [0, 2], ["2 have an empty output (prompts 0, 2)"]),
        ({"answers": 2, "empty": [1], "rc": 0}, [2], [1], ["1 has no output (prompt 2)", "an empty output (prompt 1)"]),
    ],
)
def test_a_prompt_without_text_is_named(rig, does, missing, empty, parts):
    rig.does(**does)
    judged = judge(rig.prompts(), rig.start().run(rig.prompts()))
    assert (judged["missing"], judged["empty"]) == (missing, empty)
    assert all(part in judged["message"] for part in parts), judged["message"]
    assert {one["index"] for one in judged["outputs"]} == {0, 1, 2} - set(missing) - set(empty)


def test_the_log_of_a_failure_comes_back_without_secrets(rig):
    rig.does(answers=0, done=False, rc=1, said=f"RuntimeError: with {SECRET} no NPU")
    found = rig.start(secrets={"HF_TOKEN": SECRET}).run(rig.prompts())
    assert "RuntimeError: with ******** no NPU" in found["log"]


def test_a_container_of_a_killed_run_is_removed_before(rig):
    rig.leave({"vllm-ascend.role": "offline"})
    assert rig.start().run(rig.prompts())["removed_stale"] is True
    assert len(rig.runs()) == 1


@pytest.mark.parametrize("labels", [{}, {"vllm-ascend.role": "serve", "vllm-ascend.instance": NAME}])
def test_a_container_of_somebody_else_is_left_alone(rig, labels):
    rig.leave(labels)
    with pytest.raises(JobError, match="no offline job made"):
        rig.start().run(rig.prompts())
    assert (rig.containers(), rig.runs()) == ([CONTAINER], [])


@contextlib.contextmanager
def locked(rig, seconds=None):
    """The lock of the job, held as another run holds it, to the end or for some seconds."""
    folder = pathlib.Path(rig.host.path(folder_of(NAME)))
    folder.parent.mkdir(parents=True)
    with open(f"{folder}.lock", "w", encoding="utf-8") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        if seconds is not None:
            threading.Timer(seconds, fcntl.flock, (stream, fcntl.LOCK_UN)).start()
        yield


def test_a_job_that_runs_is_left_alone(rig):
    rig.leave({"vllm-ascend.role": "offline"})
    with locked(rig), pytest.raises(JobError, match="another run of the offline job ascend-offline is at this host"):
        rig.start().run(rig.prompts())
    assert (rig.containers(), rig.runs()) == ([CONTAINER], [])


def test_it_is_ended_on_request(rig):
    rig.leave({"vllm-ascend.role": "offline"})
    with locked(rig, 0.3):
        assert judge(rig.prompts(), rig.start(replace=True).run(rig.prompts()))["message"] is None


def test_a_job_that_takes_too_long_ends_with_its_container(rig, monkeypatch):
    monkeypatch.setattr(offline_job, "SPARE_S", 0.5)
    rig.does(answers=1, done=False, sleep_s=60)
    found = rig.start(limit_s=0.1).run(rig.prompts())
    assert "its time limit (vllm_offline_timeout) ended it" in judge(rig.prompts(), found)["message"]
    assert (rig.containers(), rig.left()) == ([], False)


@pytest.mark.parametrize("rc", [124, 137])
def test_the_time_limit_inside_is_told_from_a_kill(rig, rc):
    rig.does(answers=0, done=False, rc=rc)
    judged = judge(rig.prompts(), rig.start(limit_s=0).run(rig.prompts()))
    assert "(prompts 0-2); its time limit (vllm_offline_timeout) ended it" in judged["message"]


def test_an_engine_that_does_not_end_after_its_last_result_is_no_failure(rig, monkeypatch):
    monkeypatch.setattr(offline_job, "LEAVE_S", 0.3)
    rig.does(sleep_s=60)
    assert judge(rig.prompts(), rig.start().run(rig.prompts()))["message"] is None
    assert rig.containers() == []


def test_nobody_who_listens_means_that_the_container_goes(rig, monkeypatch):
    monkeypatch.setattr(offline_job, "reader_gone", lambda: bool(rig.runs()))
    rig.does(answers=0, done=False, sleep_s=60)
    found = rig.start().run(rig.prompts())
    assert "whoever asked for it is gone" in judge(rig.prompts(), found)["message"]
    assert rig.containers() == []


def test_a_lost_reader_is_noticed_at_the_pipe(monkeypatch):
    reading, writing = os.pipe()
    with os.fdopen(writing, "w") as stream:
        monkeypatch.setattr(sys, "__stdout__", stream)
        assert offline_job.reader_gone() is False
        os.close(reading)
        assert offline_job.reader_gone() is True


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_container_too(rig, number):
    rig.does(answers=0, done=False, sleep_s=60)
    pid = os.fork()
    if pid == 0:
        try:
            rig.start().run(rig.prompts())
        except JobError as failure:
            os._exit(7 if "stopped by signal" in str(failure) else 8)
        os._exit(9)
    deadline = time.monotonic() + 20
    while not rig.containers() and time.monotonic() < deadline:
        time.sleep(0.02)
    os.kill(pid, number)
    assert os.WEXITSTATUS(os.waitpid(pid, 0)[1]) == 7
    assert (rig.containers(), rig.left()) == ([], False)


def test_what_must_be_there_is_checked_first(rig):
    with pytest.raises(JobError, match="not on the host: /models/x"):
        rig.start(required_paths=[{"path": "/models/x", "type": "directory"}]).check()
    with pytest.raises(JobError, match=r"device nodes not usable: /dev/davinci7 \(missing\)"):
        rig.start(npus=["/dev/davinci7"]).check()
    assert rig.runs() == []


@pytest.mark.parametrize(
    "change",
    [{"name": "../x"}, {"argv": ["rm", "-rf", "/"]}, {"argv": ["docker", "run", "--rm", "--name", "x", "image"]}],
)
def test_what_is_no_job_is_refused(rig, change):
    with pytest.raises(JobError):
        rig.start(**change)


def test_an_engine_that_is_missing_is_said(tmp_path):
    rig = OfflineRig(tmp_path)
    rig.host.engine = "/nowhere/docker"
    with pytest.raises(JobError, match="/nowhere/docker"):
        rig.start().run(rig.prompts())


@pytest.mark.parametrize("text", ["", "x\n[0, 1]\n", f"{HEAD}\n", f"{HEAD}\n[0]\n", HEAD + "\n{"])
def test_text_that_is_no_list_of_prompts_is_refused(text):
    with pytest.raises(JobError):
        parse_prompts(text)


def test_prompts_come_back_as_they_went_in(rig):
    odd = [*PROMPTS, "{{ x }}", '"quoted"', "\u2028", "#"]
    assert [prompt.text for prompt in parse_prompts(rig.text(odd))] == odd


@pytest.mark.parametrize(
    ("indexes", "shown"),
    [([3], "prompt 3"), ([4, 0, 1, 2], "prompts 0-2, 4"), (list(range(0, 60, 2)), ", 22, ...")],
)
def test_indexes_read_as_ranges(indexes, shown):
    assert shown_indexes(indexes).endswith(shown)


def test_the_program_is_the_source_of_the_module():
    assert "def main(folder):" in offline_job.program_text()
    compile(offline_job.program_text(), "job.py", "exec")
