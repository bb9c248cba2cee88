# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Faults on purpose, for tests only: what happens when the helper dies, fails or stalls at a given step.

A fault is a JSON file that only root can have put there (FAULT_PATH); no file, no fault:
`{"step": "start", "when": "before", "action": "kill"}`. when: before or after (default before); action: kill (as
kill -9 does), fail (the step fails) or sleep (seconds); instance: only for that one; once: false lets it act each time,
otherwise the file is removed before it acts.

Beside the steps of the journal there are two more points: `close`, at which the journal is closed, and `clean`, at
which the secrets go that were needed until then.
"""

from __future__ import annotations

import json
import os
import signal
import stat
import time

from . import atomic

FAULT_PATH = "/run/vllm-ascend-fault"


class FaultError(Exception):
    """A step failed because a test asked for it."""


def check(step: str, when: str, instance: str, path: str = FAULT_PATH) -> None:
    """Act on the fault that is asked for at this point, if any. FaultError for the action `fail`."""
    try:
        status = os.lstat(path)
    except OSError:
        return
    if not stat.S_ISREG(status.st_mode) or status.st_uid not in (0, os.geteuid()):
        return
    fault = atomic.read_json(path)
    if not isinstance(fault, dict) or fault.get("step") != step or fault.get("when", "before") != when:
        return
    if fault.get("instance") not in (None, instance):
        return
    if fault.get("once", True):
        os.unlink(path)
    action = fault.get("action")
    if action == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif action == "fail":
        raise FaultError("fault injected {0} the step {1!r}: {2}".format(when, step, json.dumps(fault, sort_keys=True)))
    elif action == "sleep":
        time.sleep(float(fault.get("seconds", 1)))
