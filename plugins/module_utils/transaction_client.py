# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hand a request to the host helper and wait for its result: the transaction survives whoever asked for it.

It runs in a transient unit. Who finds one running attaches to it: for the same request it waits and takes the result,
for another one it waits for its turn.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
import uuid
from typing import Any, Dict, Iterator, List, Optional

from . import atomic, instance_state, transaction
from .commands import run
from .host_control import COMMAND_S, Host, HostError
from .instance_state import HELPER_PATH, RESULT, STATE_DIR
from .journal import Journal, LockError, locked
from .operations import ABSENT, REQUEST_LOCK, limit
from .steps import STAGED_ENV

UNIT_PREFIX = "vllm-ascend-transaction-"
POLL_S = 0.2
# systemd is asked this seldom whether the transaction still lives; the result is looked for at every poll.
ALIVE_S = 1.0
# A unit that was only just queued counts as inactive.
DEAD_AFTER = 3
# Who has either lock for longer than this is at work on the instance, and cleans up by himself.
CLEAN_S = 10.0
# What makes two requests the same; who asked and when does not.
_IDENTITY = ("state", "instance", "plan", "image_id", "adopt", "verify", "secrets")


class TransactionError(Exception):
    """There is no result: somebody else is at it, it cannot be started, it died, or it takes too long."""

    def __init__(self, message: str, lines: Optional[List[str]] = None) -> None:
        super().__init__(message)
        self.lines = lines or []


def request(state: str, instance: str, engine: str, **more: Any) -> Dict[str, Any]:
    """A request for request.json, with its digest: what identifies it, so that a lost one is found again."""
    made = dict(more, state=state, instance=instance, engine=engine)
    made["digest"] = atomic.digest({key: made.get(key) for key in _IDENTITY})
    return made


class Client:
    """Runs requests on this host, by python (the interpreter that the transient unit uses)."""

    def __init__(self, host: Host, python: str, lock_timeout: float, who: str) -> None:
        self.host = host
        self.python = python
        self.lock_timeout = lock_timeout
        self.who = who

    def run(self, wanted: Dict[str, Any], env_text: Optional[str] = None) -> Dict[str, Any]:
        """The result of a request (transaction.result); env_text is the environment file that it needs.

        TransactionError when there is none. The result has `attached` true when somebody else had asked for the same.
        After `absent` the state folder is gone too.
        """
        done = self._run(wanted, env_text)
        if wanted["state"] == ABSENT and done["ok"]:
            self._remove_state(wanted["instance"], done.get("run_id"))
        return done

    def tidy(self, name: str) -> None:
        """Remove the secrets of a transaction that was killed between its end and its own cleaning."""
        if not transaction.left_over(self.host, name):
            return
        with contextlib.suppress(LockError, FileNotFoundError), self._both_locks(name):
            if not self._alive(name) and Journal.left_open(self.host.state(name, instance_state.JOURNAL)) is None:
                transaction.clean(self.host, name)

    def _remove_state(self, name: str, run_id: Optional[str]) -> None:
        """Remove the state folder of an instance that is gone, unless somebody has asked for something since."""
        folder, aside = self.host.state(name), self.host.path(removed_path(name))
        with contextlib.suppress(LockError, FileNotFoundError), self._both_locks(name):
            last = atomic.read_json(self.host.state(name, instance_state.REQUEST))
            if isinstance(last, dict) and last.get("run_id") == run_id:
                shutil.rmtree(aside, ignore_errors=True)
                # In one step, so that nobody takes a lock in a folder that is half gone.
                os.rename(folder, aside)
        shutil.rmtree(aside, ignore_errors=True)
        with contextlib.suppress(OSError):
            # Only when it is empty.
            os.rmdir(self.host.path(STATE_DIR))

    @contextlib.contextmanager
    def _both_locks(self, name: str) -> Iterator[None]:
        """Neither a request nor a transaction can begin. LockError when one is at it."""
        paths = [self.host.state(name, lock) for lock in (REQUEST_LOCK, instance_state.LOCK)]
        with locked(paths[0], self.who, CLEAN_S), locked(paths[1], self.who, CLEAN_S):
            yield

    def _run(self, wanted: Dict[str, Any], env_text: Optional[str]) -> Dict[str, Any]:
        name = wanted["instance"]
        lock = self.host.state(name, REQUEST_LOCK)
        deadline = time.monotonic() + self.lock_timeout
        while True:
            make_state_folder(self.host, name)
            running = self._running(name)
            if running is not None and running.get("digest") == wanted["digest"]:
                return dict(self._follow(running), attached=True)
            busy = (
                None
                if running is None
                else "a transaction ({0}, asked for by {1}) runs in {2}".format(
                    running.get("state"), running.get("who"), unit_of(name)
                )
            )
            if busy is None:
                try:
                    with locked(lock, self.who, POLL_S):
                        if self._running(name) is None:
                            return self._start(wanted, env_text)
                except LockError as failure:
                    busy = str(failure)
                except FileNotFoundError:
                    busy = "another run has just removed {0}".format(self.host.state(name))
            if time.monotonic() >= deadline:
                raise TransactionError(
                    "busy for more than {0:.0f} s (vllm_lock_timeout): {1}".format(
                        self.lock_timeout, busy or "others take their turn"
                    )
                )
            time.sleep(POLL_S)

    def _start(self, wanted: Dict[str, Any], env_text: Optional[str]) -> Dict[str, Any]:
        name = wanted["instance"]
        made = dict(wanted, run_id=uuid.uuid4().hex, who=self.who)
        staged = self.host.state(name, STAGED_ENV)
        if env_text is not None:
            atomic.write_text(staged, env_text, 0o600)
        elif wanted["state"] == "present":
            atomic.remove(staged)
        atomic.write_json(self.host.state(name, instance_state.REQUEST), made)
        argv = ["systemd-run", "--unit={0}".format(unit_of(name)), "--collect", "--no-block", "--quiet"]
        argv += ["--description=vllm_ascend.fleet: {0} {1}".format(wanted["state"], name)]
        argv += [self.python, self.host.path(HELPER_PATH), "transact", "--instance", name]
        argv += [] if self.host.root == "/" else ["--root", self.host.root]
        try:
            self.host.command(argv)
        except HostError as failure:
            raise TransactionError("the transaction cannot be started: {0}".format(failure)) from failure
        return self._follow(made)

    def _follow(self, made: Dict[str, Any]) -> Dict[str, Any]:
        """Wait for the result of a request that runs."""
        name = made["instance"]
        committed = instance_state.read_committed(self.host.sysroot, name)
        began = time.monotonic()
        longest = limit(made, committed)
        asked, dead = began, 0
        while True:
            found = atomic.read_json(self.host.state(name, RESULT))
            if isinstance(found, dict) and found.get("run_id") == made.get("run_id"):
                return found
            if made.get("state") == ABSENT and not os.path.isdir(self.host.state(name)):
                return _gone(made)
            if dead >= DEAD_AFTER:
                raise TransactionError(self._obituary(name), self._log(name))
            now = time.monotonic()
            if now - began > longest:
                raise TransactionError(
                    "the transaction has no result after {0:.0f} s; it still runs in {1}: "
                    "look at `journalctl -u {1}`".format(longest, unit_of(name))
                )
            if now - asked >= (ALIVE_S if dead == 0 else POLL_S):
                asked = now
                dead = 0 if self._alive(name) else dead + 1
            time.sleep(POLL_S)

    def _running(self, name: str) -> Optional[Dict[str, Any]]:
        """The request of the transaction that runs now, None when none does."""
        if not self._alive(name):
            return None
        found = atomic.read_json(self.host.state(name, instance_state.REQUEST))
        return found if isinstance(found, dict) else {"instance": name}

    def _alive(self, name: str) -> bool:
        result = run(["systemctl", "is-active", unit_of(name)], COMMAND_S)
        return result.stdout.strip() in ("active", "activating", "deactivating", "reloading")

    def _obituary(self, name: str) -> str:
        journal = atomic.read_json(self.host.state(name, instance_state.JOURNAL))
        steps = journal.get("steps") or [] if isinstance(journal, dict) else []
        where = "in the step {0}".format(steps[-1]["step"]) if steps else "before its first step"
        return "the transaction ended without a result {0}; the next run finishes or undoes it".format(where)

    def _log(self, name: str) -> List[str]:
        argv = ["journalctl", "--unit", unit_of(name), "--output", "cat", "--no-pager", "--lines", "20"]
        return run(argv, COMMAND_S).stdout.splitlines()


def unit_of(instance: str) -> str:
    """The transient unit of an instance's transaction."""
    return "{0}{1}.service".format(UNIT_PREFIX, instance)


def removed_path(instance: str) -> str:
    """Where the state folder of a removed instance is for the moment of its removal; no instance has such a name."""
    return "{0}/.{1}.removed".format(STATE_DIR, instance)


def _gone(made: Dict[str, Any]) -> Dict[str, Any]:
    """The result of a removal that another run has followed to its end."""
    return {
        "instance": made["instance"],
        "ok": True,
        "changed": True,
        "action": ABSENT,
        "outcome": transaction.COMMITTED,
        "steps": [],
        "evidence": {},
        "failure": None,
        "state": "absent",
        "state_now": "there is no {0}".format(instance_state.unit_name(made["instance"])),
        "run_id": made.get("run_id"),
    }


def make_state_folder(host: Host, instance: str) -> None:
    """The state folder, readable by root only."""
    os.makedirs(host.path(STATE_DIR), mode=0o700, exist_ok=True)
    os.makedirs(host.state(instance), mode=0o700, exist_ok=True)
