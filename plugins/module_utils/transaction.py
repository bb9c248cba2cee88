# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One transaction of one instance: it ends with the new service proved, or with the old one back and proved.

It runs on the host in a unit of its own, under the instance's lock. A transaction that died leaves its journal open;
the next one keeps that journal's snapshot as what it goes back to, because what it finds itself is half a state.
"""

from __future__ import annotations

import contextlib
import os
import time
from typing import Any, Callable, Dict, Iterable, List, Optional

from . import adoption, atomic, faults, instance_difference, instance_state, snapshot
from .host_control import Host, HostError
from .journal import Journal, now, reached
from .nodes import NodeError
from .steps import FORWARD, PROVE_S, STAGED_ENV, StepError, Steps, start_limit, stop_limit, stop_service

COMMITTED = "committed"
UNCHANGED = "unchanged"
REFUSED = "refused"
ROLLED_BACK = "rolled_back"
ROLLBACK_FAILED = "rollback_failed"
FAILED = "failed"

# Steps that change something of the running service, and those after which it may be stopped.
TOUCHING = ("adopt", "stop", "enable", "start", "restart")
STOPPING = ("stop", "start", "restart")
ROLLBACK = (
    "rollback_stop",
    "rollback_restore",
    "rollback_image",
    "rollback_adopted",
    "rollback_start",
    "rollback_prove",
)


class Runner:
    """Runs steps: each is in the journal before it acts, and a test can have it fail or die there."""

    def __init__(self, host: Host, instance: str, journal: Journal) -> None:
        self.host = host
        self.instance = instance
        self.journal = journal

    def step(self, name: str, act: Callable[[], Optional[str]]) -> None:
        """Do one step. StepError when it fails, whatever the reason; also when the journal cannot be written."""
        began = time.monotonic()
        fault_file = self.host.path(faults.FAULT_PATH)
        try:
            self.journal.start(name)
            faults.check(name, "before", self.instance, fault_file)
            result = act() or "done"
            faults.check(name, "after", self.instance, fault_file)
            self.journal.end(result, time.monotonic() - began)
        except Exception as failure:
            unwritten = self.journal.problem if self.journal.strict and isinstance(failure, OSError) else None
            with contextlib.suppress(OSError):
                self.journal.end("failed", time.monotonic() - began)
            if isinstance(failure, StepError):
                raise
            expected = isinstance(failure, (HostError, NodeError, faults.FaultError))
            text = str(failure) if expected else "{0}: {1}".format(type(failure).__name__, failure)
            raise StepError(unwritten or text, getattr(failure, "lines", [])) from failure

    def note(self, **values: Any) -> None:
        """Note values in the journal. StepError when it cannot be written."""
        try:
            self.journal.note(**values)
        except OSError as failure:
            raise StepError(self.journal.problem or str(failure)) from failure

    def fail(self, step: str, failure: StepError) -> None:
        """Note what failed; from here on the journal is kept in memory when it cannot be written."""
        self.journal.strict = False
        self.journal.note(failure={"step": step, "message": str(failure), "lines": failure.lines})

    def end(self, outcome: str, keep: Iterable[str] = ()) -> None:
        """The transaction has ended. First the journal is closed, then go the secrets that were needed until then.

        keep names files of the state folder that somebody else needs.
        When the journal cannot be closed they stay: the next run finds it open, and needs them.
        """
        journal, fault_file = self.journal, self.host.path(faults.FAULT_PATH)
        journal.strict = False
        try:
            faults.check("close", "before", self.instance, fault_file)
            if journal.data.get("adopted"):
                adoption.forget(journal.data["adopted"])
            journal.close(outcome)
            faults.check("close", "after", self.instance, fault_file)
            if journal.problem is None:
                faults.check("clean", "before", self.instance, fault_file)
                clean(self.host, self.instance, keep)
                faults.check("clean", "after", self.instance, fault_file)
        except (OSError, faults.FaultError) as failure:
            journal.data["outcome"] = outcome
            journal.problem = str(failure)


class Transaction(Runner):
    """The transaction of a request {plan, image_id, adopt, verify, ...}."""

    def __init__(self, host: Host, request: Dict[str, Any], left: Optional[Dict[str, Any]] = None) -> None:
        plan = request["plan"]
        name = plan["name"]
        kept = left if left and left.get("snapshot") and left.get("touched") else {}
        self.recovers = left is not None
        self.action = instance_difference.RECOVER if kept else ""
        journal = Journal.begin(
            host.state(name, instance_state.JOURNAL),
            request,
            touched=bool(kept),
            stopped=bool(kept.get("stopped")),
            direction="forward",
            snapshot=kept.get("snapshot"),
            adopted=kept.get("adopted"),
        )
        super().__init__(host, name, journal)
        self.steps = Steps(host, request, journal)

    def run(self) -> Dict[str, Any]:
        """Bring the instance to its plan; the result (see result()). It does not raise for what a host can do wrong."""
        step = "snapshot"
        try:
            self.step("snapshot", self._snapshot)
            names = self._choose()
            for step in names:
                if step in TOUCHING:
                    self.note(touched=True, stopped=self.journal.data["stopped"] or step in STOPPING)
                self.step(step, getattr(self.steps, step))
        except StepError as failure:
            self.fail(step, failure)
            if self.action in (instance_difference.START, instance_difference.REPAIR):
                return self._give_up()
            return Rollback(self.host, self.journal, self._named_action()).run(self.steps.evidence)
        self.end(COMMITTED if names else UNCHANGED)
        changed = bool(names) or self.recovers
        return result(self.host, self.journal, self._named_action(), self.steps.evidence, changed)

    def _snapshot(self) -> Optional[str]:
        if self.journal.data["snapshot"] is not None:
            return "kept"
        self.journal.note(snapshot=snapshot.capture(self.host, self.instance))
        return None

    def _choose(self) -> List[str]:
        """The steps that this request needs on this host now."""
        if self.action:
            return list(FORWARD)
        self.action = instance_difference.compare_state(self.host, self.journal.data["request"])["action"]
        if self.action == instance_difference.NONE:
            return []
        if self.action == instance_difference.START:
            return ["image", "enable", "start", "prove", "commit"]
        if self.action == instance_difference.REPAIR:
            return ["image", "restart", "prove", "commit"]
        return list(FORWARD)

    def _named_action(self) -> str:
        return instance_difference.RECOVER if self.recovers else self.action

    def _give_up(self) -> Dict[str, Any]:
        """The unit was as planned and still is: there is nothing to go back to, and systemd keeps trying."""
        self.end(FAILED)
        return result(self.host, self.journal, self._named_action(), self.steps.evidence, changed=True)


class Rollback(Runner):
    """Undo what an open journal has done: the service of its snapshot is back and proved, or nothing is left."""

    def __init__(self, host: Host, journal: Journal, action: str = "recover", start: bool = True) -> None:
        super().__init__(host, journal.data["request"]["plan"]["name"], journal)
        self.action = action
        self.was: Dict[str, Any] = journal.data.get("snapshot") or {}
        self.wants_start = start and bool(self.was.get("active"))
        self.notes: List[str] = []

    def run(self, evidence: Dict[str, Any]) -> Dict[str, Any]:
        """Undo, step by step; a step that fails does not keep the later ones from being tried, nor does the journal."""
        self.journal.strict = False
        touched = self.journal.data.get("touched")
        self.journal.note(direction="rollback")
        errors = []
        for name in ROLLBACK if touched else ("rollback_image",):
            try:
                self.step(name, getattr(self, "_" + name[len("rollback_") :]))
            except StepError as failure:
                errors.append("{0}: {1}".format(name, failure))
        evidence = dict(evidence, rollback={"notes": self.notes, "errors": errors})
        if errors:
            self.journal.note(outcome=ROLLBACK_FAILED)
        else:
            self.end(ROLLED_BACK if touched else REFUSED)
        return result(self.host, self.journal, self.action, evidence, changed=bool(touched))

    def _old_plan(self) -> Dict[str, Any]:
        return ((self.was.get("committed") or {}).get("plan")) or {}

    def _stop(self) -> Optional[str]:
        plan = self.journal.data["request"]["plan"]
        if self._still_serves():
            return "kept"
        stop_service(self.host, self.instance, stop_limit([plan, self._old_plan()]))
        return None

    def _still_serves(self) -> bool:
        """True when the transaction died before it stopped the old service: no reason to stop it now."""
        if not self.wants_start or self.journal.data.get("stopped"):
            return False
        return self.host.unit(self.instance).active_state == "active"

    def _restore(self) -> None:
        snapshot.restore(self.host, self.instance, self.was)

    def _image(self) -> Optional[str]:
        done = snapshot.retag(self.host, self.was)
        if done:
            self.notes.append(done)
        return None if done else "skipped"

    def _adopted(self) -> Optional[str]:
        adopted = self.journal.data.get("adopted")
        if not adopted:
            return "skipped"
        env_file = self.host.state(self.instance, adoption.ADOPTED_ENV)
        self.notes.append(adoption.give_back(self.host, adopted, env_file))
        return None

    def _start(self) -> Optional[str]:
        if not self.wants_start:
            return "skipped"
        unit = instance_state.unit_name(self.instance)
        if self.was.get("serving"):
            self.host.systemctl("start", unit, timeout=start_limit(self._old_plan()))
        else:
            # It was on its way up, or failing, when it was found: that is what it is again.
            self.host.systemctl("start", "--no-block", unit)
            self.notes.append("{0} did not serve before; it is started again as it was".format(unit))
        return None

    def _prove(self) -> Optional[str]:
        if not self.wants_start or not self.was.get("serving"):
            return "skipped"
        # What did not start is asked once, what did start may need a moment.
        started = reached(self.journal.data, "rollback_start")
        deadline = time.monotonic() + (PROVE_S if started else 0.0)
        while True:
            proof = snapshot.prove(self.host, self.instance, self._old_plan())
            if proof.serving:
                return None
            if time.monotonic() >= deadline:
                raise StepError("the previous service does not serve: {0}".format(proof.detail))
            time.sleep(0.5)


def result(host: Host, journal: Journal, action: str, evidence: Dict[str, Any], changed: bool) -> Dict[str, Any]:
    """What result.json holds and the module returns.

    {instance, ok, changed, action, outcome, steps, evidence, failure, state, state_now, request_digest, run_id}.
    """
    request = journal.data["request"]
    name = request.get("plan", {}).get("name") or request["instance"]
    state, text = state_now(host, name)
    outcome = journal.data.get("outcome")
    if journal.problem:
        evidence = dict(evidence, journal="{0}; the next run looks at it again".format(journal.problem))
    return {
        "instance": name,
        "ok": outcome in (COMMITTED, UNCHANGED),
        "changed": changed,
        "action": action,
        "outcome": outcome,
        "steps": journal.steps,
        "evidence": evidence,
        "failure": journal.data.get("failure"),
        "state": state,
        "state_now": text,
        "request_digest": request.get("digest"),
        "run_id": request.get("run_id"),
        "ended_at": now(),
    }


def state_now(host: Host, instance: str) -> List[str]:
    """[state, sentence]: what the instance is at this moment. state: serving, unhealthy, stopped, absent or unknown."""
    try:
        unit_name = instance_state.unit_name(instance)
        if not os.path.exists(host.path(instance_state.unit_path(instance))):
            return ["absent", "there is no {0}".format(unit_name)]
        unit = host.unit(instance)
        committed = instance_state.read_committed(host.sysroot, instance)
        active = "{0} is {1} ({2})".format(unit_name, unit.active_state, unit.sub_state)
        if unit.active_state != "active":
            return ["stopped" if unit.active_state == "inactive" else "unhealthy", active]
        if not committed:
            return ["unknown", active + ", nothing is committed"]
        proof = snapshot.prove(host, instance, committed["plan"], with_completion=False)
        plan, image = committed["plan_hash"], committed["image_id"]
        text = "{0}, plan {1}, image {2}: {3}".format(active, plan, image, proof.detail)
        return ["serving" if proof.serving else "unhealthy", text]
    except HostError as failure:
        return ["unknown", str(failure)]


def finishable(host: Host, left: Dict[str, Any]) -> bool:
    """True when a dead transaction had proved its new service and that still serves: only the commit was missing."""
    plan = (left.get("request") or {}).get("plan")
    if not plan or left.get("direction") != "forward" or not reached(left, "prove") or not left.get("snapshot"):
        return False
    name = plan["name"]
    if instance_difference.unit_digest(host, name) != instance_state.text_digest(plan["unit"]["text"]):
        return False
    if host.unit(name).active_state != "active":
        return False
    # The same unit may serve another image or with other secrets: then it is the old one that an undo has brought back.
    running = (host.inspect(instance_state.container_name(name)) or {}).get("Image")
    if running != (left["request"].get("image_id") or running):
        return False
    if instance_state.secret_digests(host.environment(name)) != instance_difference.planned_secrets(plan):
        return False
    return snapshot.prove(host, name, plan).serving


def finish(host: Host, left: Dict[str, Any], start: bool = True, keep: Iterable[str] = ()) -> Dict[str, Any]:
    """Make up for the commit that was missing, and close the journal; the result.

    When even that fails, the service from before comes back (start False: its files, not the service), and the result
    says why.
    """
    request = left["request"]
    name = request["plan"]["name"]
    journal = Journal(host.state(name, instance_state.JOURNAL), dict(left, failure=None))
    runner = Runner(host, name, journal)
    try:
        runner.step("commit", Steps(host, request, journal).commit)
    except StepError as failure:
        runner.fail("commit", failure)
        return Rollback(host, journal, instance_difference.RECOVER, start).run({})
    runner.end(COMMITTED, keep)
    return result(host, journal, instance_difference.RECOVER, {}, changed=True)


def left_over(host: Host, instance: str) -> List[str]:
    """Files of secrets in the state folder: none, unless a transaction is open, or died at its very end."""
    names = (STAGED_ENV, snapshot.SNAPSHOT_ENV, adoption.ADOPTED_ENV)
    return [path for path in (host.state(instance, name) for name in names) if os.path.exists(path)]


def clean(host: Host, instance: str, keep: Iterable[str] = ()) -> None:
    """Remove the secrets that were only needed to finish or to undo; the journal must not be open any more."""
    for path in left_over(host, instance):
        if os.path.basename(path) not in keep:
            atomic.remove(path)
