# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The steps that make a planned instance serve, each of which can be done again after it was cut off.

Until the step `adopt` nothing of the running service is touched. What goes wrong is a StepError; undoing is not done
here (transaction.py).
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
from typing import Any, Dict, Iterable, List, Optional

from . import adoption, answers, atomic, instance_state, log_lines, nodes, preflight, snapshot, verification
from .host_control import Host, HostError
from .instance_difference import planned_secrets, unit_digest
from .journal import now

# The secrets of a request on their way to the environment file; 0600, removed when the transaction has ended.
STAGED_ENV = "staged.env"

BEFORE_TOUCHING = ("prepare", "image", "preflight")
SWITCHING = ("adopt", "stop", "verify", "write", "enable", "start", "prove", "commit")
FORWARD = BEFORE_TOUCHING + SWITCHING

# Seconds beside the unit's own limits: for systemd to notice and for the docker client to leave.
SLACK_S = 90.0
# A served port may need a moment after the gate, which asked the container itself.
PROVE_S = 30.0
SKIPPED = "skipped"


class StepError(Exception):
    """A step failed; the message is one sentence, lines are those of a log that say why."""

    def __init__(self, message: str, lines: Iterable[str] = ()) -> None:
        super().__init__(message)
        self.lines = list(lines)


class Steps:
    """The steps for one planned instance. evidence collects what each of them saw."""

    def __init__(self, host: Host, request: Dict[str, Any], journal: Any) -> None:
        self.host = host
        self.request = request
        self.plan: Dict[str, Any] = request["plan"]
        self.name: str = self.plan["name"]
        self.unit = instance_state.unit_name(self.name)
        self.container = instance_state.container_name(self.name)
        self.journal = journal
        self.evidence: Dict[str, Any] = {}

    # -- nothing is touched yet --------------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Folders and files that must be there; the cache folder is made here, before docker could make it."""
        check_staged(self.host, self.name, self.plan)
        if not self.request.get("adopt") and adoption.foreign(self.host, self.name) is not None:
            raise StepError(
                "a container {0} was started by hand: stop it and rename or remove it, or set vllm_adopt_containers "
                "to true".format(self.container)
            )
        missing = []
        for entry in self.plan.get("required_paths") or []:
            path = entry["path"] if isinstance(entry, dict) else entry
            kind = self.host.sysroot.kind(path)
            wanted = entry.get("type") if isinstance(entry, dict) else None
            if kind in ("missing", "link_broken") or (wanted and kind != wanted):
                missing.append("{0} ({1}{2})".format(path, kind, ", must be a " + wanted if wanted else ""))
        model = self.plan.get("model_folder")
        if model and self.host.sysroot.kind(model) != "directory":
            missing.append("{0} (the model folder: {1})".format(model, self.host.sysroot.kind(model)))
        if missing:
            raise StepError("not as required on this host: {0}".format(", ".join(missing)))
        cache = (self.plan.get("model_cache") or {}).get("path")
        if cache and make_folder(self.host.path(cache)):
            self.evidence["cache_folder"] = "{0} made, owner root".format(cache)

    def image(self) -> None:
        """The reference must point to the image that this request was made for."""
        reference, wanted = self.plan["container"]["image"], self.request.get("image_id")
        found = self.host.image_id(reference)
        if found is None:
            raise StepError("image {0} is not on this host; vllm_image fetches it".format(reference))
        if wanted and found != wanted:
            raise StepError("image {0} is now {1}, not {2}: it was moved meanwhile".format(reference, found, wanted))
        self.evidence["image_id"] = found

    def preflight(self) -> Optional[str]:
        """Versions and flags, in a throw-away container without devices, beside the running service."""
        if not self.plan.get("preflight"):
            return SKIPPED
        try:
            verified = self.request.get("verify") != "skip"
            self.evidence["preflight"] = preflight.check(self.host, self.plan, verified=verified)
        except preflight.PreflightError as failure:
            raise StepError(str(failure), failure.lines) from failure
        return None

    # -- from here on the running service is touched -------------------------------------------------------------------

    def adopt(self) -> Optional[str]:
        """Put a container aside that somebody started by hand under our name, when that is allowed."""
        adopted = self.journal.data.get("adopted")
        found = adoption.foreign(self.host, self.name)
        # What a rollback has made again, which died before it ended, is another container than the one of the journal.
        again = adopted is not None and found is not None and self.host.inspect(adopted["id"]) is None
        if adopted is None or again:
            if found is None:
                return SKIPPED
            adopted = adoption.plan(self.host, self.name, found)
            self.journal.note(adopted=adopted)
        self.evidence["adopted"] = adoption.take(self.host, adopted)
        return None

    def stop(self) -> Optional[str]:
        """Stop the old service and see that its container is gone: a chip serves one container at a time."""
        if not stop_service(self.host, self.name, self.stop_s):
            return SKIPPED
        return None

    def verify(self) -> Optional[str]:
        """The verification, at the level that the plan has, in the gap in which the NPUs are free."""
        if self.request.get("verify") == "skip" or not self.plan.get("verification"):
            return SKIPPED
        evidence = verification.verify(self.host, self.plan)
        self.evidence["verification"] = evidence
        if not evidence["ok"]:
            raise StepError(str(evidence["message"]), evidence["lines"])
        return None

    def write(self) -> None:
        """Environment file and unit."""
        env_text = atomic.read_text(self.host.state(self.name, STAGED_ENV)) if planned_secrets(self.plan) else None
        snapshot.install(self.host, self.name, self.plan["unit"]["text"], env_text)

    def enable(self) -> None:
        """Tell systemd about the unit, now and for the next boot."""
        self.host.systemctl("daemon-reload")
        self.host.systemctl("enable", self.unit)

    def start(self) -> None:
        """Start the unit; systemctl waits for the gate, so this returns when the container serves."""
        self._start("start")

    def restart(self) -> None:
        """The same for a unit that is active but does not serve."""
        self._start("restart")

    def _start(self, verb: str) -> None:
        began = time.time()
        # A unit that failed before may be in its start limit or still count as failed.
        with contextlib.suppress(HostError):
            self.host.systemctl("reset-failed", self.unit)
        try:
            self.host.systemctl(verb, self.unit, timeout=self.start_s)
        except HostError as failure:
            raise StepError(*self.why_not_started(str(failure), began)) from failure
        self.evidence["seconds_to_serving"] = round(time.time() - began, 1)

    def prove(self) -> None:
        """Ask the endpoint from outside, as clients do, and see that the right image answers."""
        deadline = time.monotonic() + PROVE_S
        while True:
            proof = snapshot.prove(self.host, self.name, self.plan)
            if proof.serving or time.monotonic() >= deadline:
                break
            time.sleep(0.5)
        self.evidence["endpoint"] = proof._asdict()
        if not proof.serving:
            raise StepError("the endpoint does not serve: {0}".format(proof.detail))
        found = self.host.inspect(self.container) or {}
        running, wanted = found.get("Image"), self.request.get("image_id")
        if wanted and running != wanted:
            raise StepError("the container runs the image {0}, not {1}".format(running, wanted))
        self._check_answers()

    def _check_answers(self) -> None:
        """The golden answer and the decoding, where the plan wants them."""
        wanted = self.plan.get("answers") or {}
        if not any(wanted.values()):
            return
        try:
            self.evidence["answers"] = snapshot.check_answers(self.host, self.name, self.plan, wanted)
        except answers.WrongAnswerError as failure:
            raise StepError(str(failure)) from failure

    def commit(self) -> None:
        """What serves now is the state that later runs compare with and go back to."""
        taken = self.journal.data["snapshot"]
        record = committed_record(self.host, self.request)
        if not _same_state(taken.get("committed"), record):
            snapshot.keep_as_previous(self.host, self.name, taken)
        atomic.write_json(self.host.state(self.name, instance_state.COMMITTED), record)

    # -- limits and reasons --------------------------------------------------------------------------------------------

    @property
    def stop_s(self) -> float:
        """Seconds that stopping may take: the longer of the old plan's and the new one's limit."""
        return stop_limit([self.plan, ((self.journal.data.get("snapshot") or {}).get("committed") or {}).get("plan")])

    @property
    def start_s(self) -> float:
        """Seconds that `systemctl start` may take: nodes, load and what systemd adds (TimeoutStartSec in the unit)."""
        return start_limit(self.plan) + self.stop_s

    def why_not_started(self, said: str, since: float) -> List[Any]:
        """[message, lines] for a unit that did not start, from its own log."""
        lines = log_lines.relevant(self.host.unit_log(self.name, since))
        return ["{0} did not start: {1}".format(self.unit, log_lines.cause(lines) or said), lines or [said]]


def start_limit(plan: Dict[str, Any]) -> float:
    """Seconds that the unit itself allows for a start."""
    limits = plan.get("timeouts") or {}
    return float(limits.get("nodes_s") or 900) + float(limits.get("start_s") or 1800) + 120 + SLACK_S


def stop_limit(plans: Iterable[Optional[Dict[str, Any]]]) -> float:
    """Seconds that stopping may take under any of the plans."""
    longest = 60.0
    for plan in plans:
        limits = (plan or {}).get("timeouts") or {}
        longest = max(longest, float(limits.get("stop_s") or 0))
    return longest + SLACK_S


def stop_service(host: Host, instance: str, timeout: float) -> bool:
    """Stop the unit if there is one, and remove a left-over container of ours; True when there was anything."""
    unit = host.unit(instance)
    acted = False
    if unit.load_state not in (None, "not-found") or unit.active_state not in (None, "inactive", "failed"):
        acted = unit.active_state in snapshot.LIVE_STATES
        host.systemctl("stop", instance_state.unit_name(instance), timeout=timeout)
    container = instance_state.container_name(instance)
    if nodes.owner(host.engine, container):
        acted = nodes.remove_stale(host.engine, container) or acted
    return acted


def check_staged(host: Host, instance: str, plan: Dict[str, Any]) -> None:
    """StepError unless the staged secrets are those that the plan was made with."""
    text = atomic.read_text(host.state(instance, STAGED_ENV))
    staged = instance_state.secret_digests(instance_state.parse_env(text or ""))
    if staged != planned_secrets(plan):
        raise StepError(
            "the secrets given ({0}) are not those of the plan ({1})".format(
                ", ".join(secret["name"] for secret in staged) or "none",
                ", ".join(secret["name"] for secret in planned_secrets(plan)) or "none",
            )
        )


def make_folder(path: str) -> bool:
    """Make a folder (0755) and those above it, as the user that runs this (root on a host); False when it is there."""
    try:
        if stat.S_ISDIR(os.stat(path).st_mode):
            return False
    except FileNotFoundError:
        pass
    try:
        os.makedirs(path, mode=0o755)
    except OSError as failure:
        raise StepError("cannot make the cache folder {0}: {1}".format(path, failure)) from failure
    return True


def committed_record(host: Host, request: Dict[str, Any]) -> Dict[str, Any]:
    """What committed.json holds for a request whose service is proved."""
    plan = request["plan"]
    return {
        "plan_hash": plan["plan_hash"],
        "plan": plan,
        "image_id": request.get("image_id") or host.image_id(plan["container"]["image"]),
        "image_reference": plan["container"]["image"],
        "unit_digest": unit_digest(host, plan["name"]),
        "secrets": planned_secrets(plan),
        "committed_at": now(),
        "helper_version": request.get("helper_version"),
    }


def _same_state(one: Optional[Dict[str, Any]], other: Dict[str, Any]) -> bool:
    keys = ("plan_hash", "image_id", "unit_digest", "secrets")
    return one is not None and all(one.get(key) == other.get(key) for key in keys)
