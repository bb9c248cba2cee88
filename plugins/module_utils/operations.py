# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the host does with a request, under the lock: a transaction for `present`, an operation for the other states."""

from __future__ import annotations

import os
from typing import Any, Dict, List, Optional

from . import atomic, instance_state, snapshot
from .host_control import Host
from .journal import Journal, locked
from .steps import PROVE_S, STAGED_ENV, StepError, Steps, check_staged, start_limit, stop_limit, stop_service
from .transaction import COMMITTED, FAILED, UNCHANGED, Rollback, Runner, Transaction, clean, finish, finishable, result

PRESENT = "present"
STARTED = "started"
STOPPED = "stopped"
RESTARTED = "restarted"
ABSENT = "absent"
LOCK_S = 10.0
# Held by whoever asks, while the request is written and run; the transaction itself holds the other lock.
REQUEST_LOCK = "request.lock"
# What stays of a removed instance's state folder until the module has read the result.
LAST_FILES = (instance_state.LOCK, REQUEST_LOCK, instance_state.JOURNAL, instance_state.RESULT, instance_state.REQUEST)


class RequestError(Exception):
    """There is no request to run, or it is none."""


def transact(instance: str, root: str = "/", lock_timeout: float = LOCK_S) -> Dict[str, Any]:
    """Run the request in the instance's state folder, write result.json and give the result.

    RequestError when there is no request or it is another instance's, LockError when another transaction has the lock.
    """
    if not instance_state.INSTANCE_NAME.match(instance):
        raise RequestError("{0!r} is no name of an instance".format(instance))
    path = Host(root=root).state(instance, instance_state.REQUEST)
    with locked(Host(root=root).state(instance, instance_state.LOCK), "a transaction of " + instance, lock_timeout):
        request = atomic.read_json(path)
        if not isinstance(request, dict) or not request.get("state"):
            raise RequestError("{0} holds no request".format(path))
        if {request.get("instance"), (request.get("plan") or {}).get("name", instance)} != {instance}:
            raise RequestError("{0} holds the request of another instance".format(path))
        host = Host(request.get("engine") or "docker", root)
        left = Journal.left_open(host.state(instance, instance_state.JOURNAL))
        done = _present(host, request, left) if request["state"] == PRESENT else _operate(host, instance, request, left)
        atomic.write_json(host.state(instance, instance_state.RESULT), done)
    return done


def _present(host: Host, request: Dict[str, Any], left: Optional[Dict[str, Any]]) -> Dict[str, Any]:
    if left and finishable(host, left):
        # The secrets of this request are staged already; ending the old transaction must leave them.
        done = finish(host, left, keep=(STAGED_ENV,))
        same = left["request"].get("digest") == request.get("digest")
        if same and done["ok"]:
            clean(host, request["plan"]["name"])
        if same or not done["ok"]:
            return _as_answer(done, request)
        left = None
    return Transaction(host, request, left).run()


def _operate(host: Host, instance: str, request: Dict[str, Any], left: Optional[Dict[str, Any]]) -> Dict[str, Any]:
    """Settle what a dead transaction left, then do what is asked for."""
    recovered = _recover(host, request["state"], left) if left else None
    if recovered and not recovered["ok"]:
        return _as_answer(recovered, request)
    return Operation(host, instance, request, recovered, was_open=left is not None).run()


def _as_answer(done: Dict[str, Any], request: Dict[str, Any]) -> Dict[str, Any]:
    """The result of an older transaction, for who has asked now."""
    return dict(done, run_id=request.get("run_id"), request_digest=request.get("digest"))


def _recover(host: Host, wanted: str, left: Dict[str, Any]) -> Optional[Dict[str, Any]]:
    """Finish or undo a dead transaction; its result, None when it had not touched anything."""
    was = left.get("snapshot")
    if was is None or not left.get("touched"):
        return None
    start = wanted in (STARTED, RESTARTED)
    if finishable(host, left):
        return finish(host, left, start)
    name = left["request"]["plan"]["name"]
    if not snapshot.existed(was) and start and _has_secrets(host, left):
        # Nothing was there before: only going on can give the service that is asked for.
        return Transaction(host, left["request"], left).run()
    journal = Journal(host.state(name, instance_state.JOURNAL), left)
    done = Rollback(host, journal, start=start).run({})
    return dict(done, ok=journal.data["state"] == instance_state.JOURNAL_DONE)


class Operation(Runner):
    """started, stopped, restarted or absent for one instance.

    recovered: the result of what had to be settled first. was_open: a journal was open; closing it is a change.
    """

    def __init__(
        self,
        host: Host,
        instance: str,
        request: Dict[str, Any],
        recovered: Optional[Dict[str, Any]] = None,
        was_open: bool = False,
    ) -> None:
        super().__init__(host, instance, Journal.begin(host.state(instance, instance_state.JOURNAL), request))
        self.wanted = str(request["state"])
        self.recovered = recovered
        committed = instance_state.read_committed(host.sysroot, instance) or {}
        self.plan: Dict[str, Any] = committed.get("plan") or {}
        self.evidence: Dict[str, Any] = {"recovered": recovered} if recovered else {}
        self.changed = was_open

    def run(self) -> Dict[str, Any]:
        """Do it; the result has the same shape as a transaction's."""
        outcome = COMMITTED
        try:
            getattr(self, "_" + self.wanted)()
        except StepError as failure:
            steps = self.journal.steps
            step = steps[-1]["step"] if steps else self.wanted
            self.fail(step, failure)
            outcome = FAILED
        if outcome == COMMITTED and not self.changed:
            outcome = UNCHANGED
        self.end(outcome)
        return result(self.host, self.journal, self.wanted, self.evidence, self.changed)

    # -- the states --------------------------------------------------------------------------------------------------

    def _started(self) -> None:
        self._require_unit()
        if self.host.unit(self.instance).active_state != "active":
            self.changed = True
            self.step("start", self._steps().start)
        if self.plan:
            self.step("prove", self._steps().prove)

    def _restarted(self) -> None:
        self._require_unit()
        self.changed = True
        self.step("restart", self._steps().restart)
        if self.plan:
            self.step("prove", self._steps().prove)

    def _stopped(self) -> None:
        self._require_unit()
        self.step("stop", self._stop)

    def _absent(self) -> None:
        path = instance_state.unit_path(self.instance)
        if self.host.sysroot.exists(path) and not instance_state.is_ours(self.host.sysroot.read_text(path)):
            raise StepError("{0} was not made by vllm_ascend.fleet: it is left alone".format(path))
        self.step("stop", self._stop)
        self.step("remove", self._remove)

    # -- their steps -------------------------------------------------------------------------------------------------

    def _require_unit(self) -> None:
        if os.path.exists(self.host.path(instance_state.unit_path(self.instance))):
            return
        known = ", ".join(instance_state.instance_names(self.host.sysroot)) or "none"
        raise StepError(
            "there is no instance {0} on this host (instances here: {1})".format(self.instance, known)
            + ("; an unfinished transaction was undone" if self.recovered else "")
        )

    def _steps(self) -> Steps:
        plan = self.plan or {"name": self.instance}
        steps = Steps(self.host, {"plan": plan, "image_id": None}, self.journal)
        steps.evidence = self.evidence
        return steps

    def _stop(self) -> Optional[str]:
        acted = stop_service(self.host, self.instance, stop_limit([self.plan]))
        self.changed = self.changed or acted
        return None if acted else "skipped"

    def _remove(self) -> Optional[str]:
        """Unit, environment file, containers of this instance and its state; images, caches and models stay."""
        unit_file = self.host.path(instance_state.unit_path(self.instance))
        acted = os.path.exists(unit_file) or os.path.exists(self.host.path(instance_state.env_path(self.instance)))
        if os.path.exists(unit_file):
            self.host.systemctl("disable", instance_state.unit_name(self.instance))
        snapshot.install(self.host, self.instance, None, None)
        if acted:
            self.host.systemctl("daemon-reload")
        for container in self._containers():
            self.host.docker("rm", "--force", container)
            acted = True
        for name in sorted(os.listdir(self.host.state(self.instance))):
            if name not in LAST_FILES:
                acted = atomic.remove(self.host.state(self.instance, name)) or acted
        self.changed = self.changed or acted
        return None if acted else "skipped"

    def _containers(self) -> List[str]:
        label = "label={0}={1}".format(instance_state.LABEL_INSTANCE, self.instance)
        found = self.host.docker("ps", "--all", "--quiet", "--no-trunc", "--filter", label)
        return found.stdout.split()


def _has_secrets(host: Host, left: Dict[str, Any]) -> bool:
    try:
        check_staged(host, left["request"]["plan"]["name"], left["request"]["plan"])
    except StepError:
        return False
    return True


def limit(request: Dict[str, Any], committed: Optional[Dict[str, Any]]) -> float:
    """Seconds after which whoever waits for this request may give up: every step at its own limit, there and back."""
    plans = [request.get("plan"), (committed or {}).get("plan")]
    start = max(start_limit(plan or {}) for plan in plans)
    return 2 * (start + stop_limit(plans) + PROVE_S) + 1800.0
