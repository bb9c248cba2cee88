"""commands.run: what a program printed, and a time limit that holds."""

from __future__ import annotations

import sys
import time

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


def test_locale_is_fixed_and_environment_is_added():
    result = run(["sh", "-c", "echo $LC_ALL $MORE"], 5, env={"MORE": "yes"})
    assert result.stdout == "C yes\n"


def test_a_word_that_no_program_can_be_given_is_a_result():
    result = run(["echo", "a\0b"], 5)
    assert (result.rc, result.missing) == (None, False) and "null byte" in result.error
