"""commands.run: what a program printed, and a time limit that holds."""

from __future__ import annotations

import os
import signal
import sys
import time

from ansible_collections.vllm_ascend.fleet.plugins.module_utils import commands
from ansible_collections.vllm_ascend.fleet.plugins.module_utils.commands import run


def test_output_and_exit_code():
    result = run(
        [sys.executable, "-c", "import sys; print(sys.stdin.read()); print('e', file=sys.stderr); sys.exit(3)"],
        20,
        "in",
    )
    assert (result.rc, result.stdout, result.stderr, result.timed_out) == (3, "in\n", "e\n", False)


def test_missing_program_is_a_result():
    result = run(["/nowhere/npu-smi", "info"], 5)
    assert result.missing and result.rc is None and "npu-smi" in result.error


def test_time_limit_kills_the_whole_group_and_keeps_what_was_printed():
    start = time.monotonic()
    result = run(["sh", "-c", "echo begun; sleep 60 & sleep 60"], 0.5)
    assert result.timed_out and result.rc is None and result.stdout == "begun\n"
    assert time.monotonic() - start < 10


def test_a_program_that_sigkill_does_not_end_is_left_behind(monkeypatch, tmp_path):
    """npu-smi can sit in an uninterruptible wait of the driver; here the signal is not sent, which is the same."""
    sent = []
    monkeypatch.setattr(commands.os, "killpg", lambda group, number: sent.append((group, number)))
    start = time.monotonic()
    result = run(["sh", "-c", f"echo $$ > {tmp_path}/pid; echo begun; sleep 60"], 1)
    took = time.monotonic() - start
    group = int((tmp_path / "pid").read_text())
    try:
        assert result.timed_out and result.rc is None and result.stdout == "begun\n"
        assert took < 10, "it sleeps a minute"
        assert sent == [(group, signal.SIGKILL)]
        os.kill(group, 0)
    finally:
        monkeypatch.undo()
        os.killpg(group, signal.SIGKILL)
        os.waitpid(group, 0)


def test_a_child_that_went_to_a_group_of_its_own_does_not_hold_the_call(tmp_path):
    """It keeps the output open, as a daemon does; the call ends all the same and knows what was printed."""
    start = time.monotonic()
    script = "setsid sh -c 'echo $$ > {0}/pid; echo left; sleep 60' & while [ ! -s {0}/pid ]; do sleep 0.01; done"
    result = run(["sh", "-c", script.format(tmp_path) + "; sleep 60"], 1)
    took = time.monotonic() - start
    os.killpg(int((tmp_path / "pid").read_text()), signal.SIGKILL)
    assert result.timed_out and took < 10
    quick = run(["sh", "-c", script.format(tmp_path)], 20)
    os.killpg(int((tmp_path / "pid").read_text()), signal.SIGKILL)
    assert (quick.rc, quick.timed_out) == (0, False)


def test_locale_is_fixed_and_environment_is_added():
    result = run(["sh", "-c", "echo $LC_ALL $MORE"], 5, env={"MORE": "yes"})
    assert result.stdout == "C yes\n"


def test_a_word_that_no_program_can_be_given_is_a_result():
    result = run(["echo", "a\0b"], 5)
    assert (result.rc, result.missing) == (None, False) and "null byte" in result.error
