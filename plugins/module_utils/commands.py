# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run a program with a time limit that holds even when the program cannot be killed."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import time
from typing import Dict, List, NamedTuple, Optional

# Seconds that a killed program may take to go. A program in an uninterruptible wait never does.
REAP_S = 0.5
POLL_S = 0.02


class CommandResult(NamedTuple):
    """What a program did.

    rc is the exit code (negative: the signal that ended it), None when the program is missing or ran out of time.
    error says why it could not be started.
    """

    argv: List[str]
    rc: Optional[int]
    stdout: str
    stderr: str
    timed_out: bool = False
    missing: bool = False
    error: str = ""

    @property
    def ok(self) -> bool:
        """True when the program ran and ended with 0."""
        return self.rc == 0

    @property
    def text(self) -> str:
        """Standard output and standard error, one after the other."""
        return "\n".join(part for part in (self.stdout.strip(), self.stderr.strip()) if part)


def run(
    argv: List[str], timeout: float, stdin: Optional[str] = None, env: Optional[Dict[str, str]] = None
) -> CommandResult:
    """Run argv for at most timeout seconds and return what it printed.

    It never raises for a program that is missing, and never waits for one that cannot be killed: npu-smi can sit in an
    uninterruptible wait of 150 s inside the driver, which SIGKILL does not end (hicann/driver uda_access.c,
    uda_wait_all_phy_startup). Output goes to files, so that a child left behind cannot block on a pipe.
    """
    environment = dict(os.environ, LC_ALL="C")
    environment.update(env or {})
    with contextlib.ExitStack() as stack:
        out = stack.enter_context(tempfile.TemporaryFile())
        err = stack.enter_context(tempfile.TemporaryFile())
        source = stack.enter_context(tempfile.TemporaryFile())
        source.write((stdin or "").encode("utf-8"))
        source.seek(0)
        try:
            child = subprocess.Popen(
                argv, stdin=source, stdout=out, stderr=err, env=environment, start_new_session=True
            )
        except FileNotFoundError as failure:
            return CommandResult(argv, None, "", "", missing=True, error=str(failure))
        except (OSError, ValueError) as failure:
            # ValueError: a NUL in a word.
            return CommandResult(argv, None, "", "", error=str(failure))
        timed_out = not _wait(child, timeout)
        if timed_out:
            with contextlib.suppress(OSError):
                os.killpg(child.pid, signal.SIGKILL)
            _wait(child, REAP_S)
            child.returncode = child.returncode if child.returncode is not None else -signal.SIGKILL
        return CommandResult(argv, None if timed_out else child.returncode, _read(out), _read(err), timed_out=timed_out)


def _wait(child: subprocess.Popen, seconds: float) -> bool:
    """True when the child ended within that many seconds; it is polled, never waited for."""
    deadline = time.monotonic() + seconds
    pause = 0.002
    while child.poll() is None:
        left = deadline - time.monotonic()
        if left <= 0:
            return False
        time.sleep(min(pause, left))
        pause = min(pause * 1.5, POLL_S)
    return True


def _read(stream) -> str:
    stream.seek(0)
    return stream.read().decode("utf-8", "replace")
