# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the module vllm_instance does: compare, predict or run, and report, one instance after the other."""

from __future__ import annotations

import json
import os
import time
from typing import Any, Dict, List, NamedTuple, Optional

from . import adoption, helper_install, instance_difference, instance_state, log_lines, snapshot, transaction
from .host_control import Host, HostError
from .operations import ABSENT, PRESENT, RESTARTED, STARTED, STOPPED
from .transaction_client import Client, TransactionError, removed_path, request


class ApplyError(Exception):
    """The run failed; result is what the module returns, message the reason with the lines that matter."""

    def __init__(self, message: str, **result: Any) -> None:
        super().__init__(message)
        self.result = result


class Options(NamedTuple):
    """How instances are applied: see the options of the module of the same names."""

    state: str = PRESENT
    adopt: bool = False
    verify: str = "documented"
    lock_timeout: float = 60.0
    image_id: Optional[str] = None
    check: bool = False
    python: str = "/usr/bin/python3"
    who: str = "vllm_instance"


def apply(
    host: Host,
    options: Options,
    instances: Optional[List[Dict[str, Any]]] = None,
    names: Optional[List[str]] = None,
    secrets: Optional[Dict[str, Dict[str, str]]] = None,
) -> Dict[str, Any]:
    """Bring the planned instances (state present) or the named ones (other states) to the state that is asked for.

    Returns {changed, helper, instances, diff, began_at}. ApplyError with the same, and state_now, when one fails; the
    instances after it are left alone.
    """
    check_names([plan.get("name") for plan in instances or []] + list(names or []))
    run = _Run(host, options)
    try:
        if options.state == PRESENT:
            for plan in instances or []:
                run.present(plan, (secrets or {}).get(plan["name"]) or {})
        else:
            for name in run.named(names):
                run.operate(name)
    except (HostError, TransactionError, OSError) as failure:
        now = transaction.state_now(host, run.current)[1]
        lines = getattr(failure, "lines", [])
        text = _message("{0}: {1}".format(run.current, failure), lines, "Now: {0}.".format(now))
        raise ApplyError(text, state_now=now, **run.result()) from failure
    except ApplyError as failure:
        failure.result = dict(run.result(), **failure.result)
        raise
    return run.result()


def check_names(names: List[Any]) -> None:
    """ApplyError that shows every name which no instance can have: names become paths, and one such as ".." would be
    a folder of somebody else."""
    bad = [name for name in names if not isinstance(name, str) or not instance_state.INSTANCE_NAME.match(name)]
    if bad:
        raise ApplyError(
            "no instance can be named {0}: a name has 1 to 31 of a-z, 0-9 and -, and does not begin with - "
            "([a-z0-9][a-z0-9-]{{0,30}})".format(", ".join(json.dumps(name) for name in bad)),
            changed=False,
            helper=None,
            instances=[],
            diff=[],
            began_at=time.time(),
        )


class _Run:
    def __init__(self, host: Host, options: Options) -> None:
        self.host = host
        self.options = options
        self.client = Client(host, options.python, options.lock_timeout, options.who)
        self.helper: Optional[Dict[str, Any]] = None
        self.instances: List[Dict[str, Any]] = []
        self.diff: List[Dict[str, str]] = []
        self.current = ""
        self.began_at = time.time()

    def result(self) -> Dict[str, Any]:
        changed = any(one["changed"] for one in self.instances) or bool(self.helper and self.helper["changed"])
        return {
            "changed": changed,
            "helper": self.helper,
            "instances": self.instances,
            "diff": self.diff,
            "began_at": self.began_at,
        }

    # -- present -----------------------------------------------------------------------------------------------------

    def present(self, plan: Dict[str, Any], secrets: Dict[str, str]) -> None:
        name = self.current = plan["name"]
        given = instance_state.secret_digests(secrets)
        planned = instance_difference.planned_secrets(plan)
        if given != planned:
            raise ApplyError(
                "{0}: the option secrets has {1}, the plan was made with {2}: give the same values to both".format(
                    name, _names(given), _names(planned)
                )
            )
        bad = sorted(key for key, value in secrets.items() if "\n" in value or "\r" in value or "\0" in value)
        if bad:
            raise ApplyError("{0}: no line break can be in the value of {1}".format(name, ", ".join(bad)))
        self._helper()
        image_id = plan.get("image_id") or self.options.image_id or self._image_id(plan)
        wanted = request(
            PRESENT,
            name,
            self.host.engine,
            plan={key: value for key, value in plan.items() if key != "image_id"},
            image_id=image_id,
            adopt=self.options.adopt,
            verify=self.options.verify,
            secrets=planned,
            helper_version=helper_install.helper_main.VERSION,
        )
        found = instance_difference.compare(self.host, wanted)
        if not self.options.adopt and adoption.foreign(self.host, name) is not None:
            raise ApplyError(
                "{0}: a container {1} was started by hand: stop it and rename or remove it, or set "
                "vllm_adopt_containers to true".format(name, instance_state.container_name(name))
            )
        self.diff += difference_texts(self.host, wanted, found)
        if found["action"] == instance_difference.NONE and not self.options.check:
            self.client.tidy(name)
        if found["action"] == instance_difference.NONE or self.options.check:
            changed = found["action"] != instance_difference.NONE
            self._report(name, changed, found["action"], plan, reasons=found["reasons"])
            return
        env_text = "".join("{0}={1}\n".format(key, secrets[key]) for key in sorted(secrets)) if secrets else None
        values = list(secrets.values()) + list(self.host.environment(name).values())
        self._settle(self.client.run(wanted, env_text), plan, values, found["reasons"])

    def _image_id(self, plan: Dict[str, Any]) -> Optional[str]:
        """The id that the reference has now; unknown is fine in check mode, where it may only be fetched later."""
        reference = plan["container"]["image"]
        found = self.host.image_id(reference)
        if found is None and not self.options.check:
            text = "{0}: image {1} is not on this host; vllm_image fetches it"
            raise ApplyError(text.format(plan["name"], reference))
        return found

    def _helper(self) -> None:
        """Install the helper where it is another one; units in use are not disturbed."""
        if self.helper is None:
            self.helper = helper = helper_install.install(self.host, self.options.check)
            if helper["changed"]:
                before, after = ("sha256 {0}\n".format(helper[key]) for key in ("before", "digest"))
                self.diff.append(_diff(helper["path"], before if helper["before"] else "", after))

    # -- the other states ----------------------------------------------------------------------------------------------

    def named(self, names: Optional[List[str]]) -> List[str]:
        known = instance_state.instance_names(self.host.sysroot)
        if names is None:
            return known
        paths = [instance_state.unit_path(name) for name in names]
        theirs = [path for path in paths if self.host.sysroot.exists(path) and not self._ours(path)]
        if theirs:
            raise ApplyError("not made by vllm_ascend.fleet, so left alone: {0}".format(", ".join(theirs)))
        unknown = sorted(set(names) - set(known))
        if unknown and self.options.state != ABSENT:
            raise ApplyError(
                "there is no instance {0} on this host; instances here: {1}".format(
                    ", ".join(unknown), ", ".join(known) or "none"
                )
            )
        return sorted(set(names), key=names.index)

    def _ours(self, unit_path: str) -> bool:
        return instance_state.is_ours(self.host.sysroot.read_text(unit_path))

    def operate(self, name: str) -> None:
        state = self.options.state
        self.current = name
        committed = instance_state.read_committed(self.host.sysroot, name) or {}
        plan = committed.get("plan")
        before = self._now(name)
        after = {STARTED: "active", RESTARTED: "active", STOPPED: "inactive", ABSENT: "absent"}[state]
        changed = self._would_change(name, state, before, plan)
        if changed:
            self._helper()
            self.diff.append(_diff(instance_state.unit_name(name), before, after))
        if not changed and not self.options.check:
            self.client.tidy(name)
        if not changed or self.options.check:
            self._report(name, changed, state if changed else instance_difference.NONE, plan)
            return
        values = list(self.host.environment(name).values())
        done = self.client.run(request(state, name, self.host.engine))
        if state == ABSENT and done["ok"]:
            # At least the state folder was there: the helper cannot tell, its own request is in it.
            done["changed"] = True
        self._settle(done, plan, values, [])

    def _now(self, name: str) -> str:
        if not os.path.exists(self.host.path(instance_state.unit_path(name))):
            return "absent"
        return str(self.host.unit(name).active_state)

    def _would_change(self, name: str, state: str, before: str, plan: Optional[Dict[str, Any]]) -> bool:
        sysroot = self.host.sysroot
        if state == ABSENT:
            files = (
                instance_state.unit_path(name),
                instance_state.env_path(name),
                instance_state.state_path(name),
                removed_path(name),
            )
            return any(sysroot.exists(path) for path in files) or self._container(name)
        if state == RESTARTED or instance_state.journal_state(sysroot, name) == instance_state.JOURNAL_OPEN:
            return True
        if state == STOPPED:
            return before in snapshot.LIVE_STATES or self._container(name)
        return before != "active" or (plan is not None and not snapshot.prove(self.host, name, plan).serving)

    def _container(self, name: str) -> bool:
        found = self.host.inspect(instance_state.container_name(name))
        return ((((found or {}).get("Config") or {}).get("Labels") or {}).get(instance_state.LABEL_INSTANCE)) == name

    # -- what comes out ------------------------------------------------------------------------------------------------

    def _settle(
        self, done: Dict[str, Any], plan: Optional[Dict[str, Any]], secrets: List[str], reasons: List[Dict[str, Any]]
    ) -> None:
        """Take the helper's result; ApplyError when the request failed."""
        for key in ("failure", "evidence"):
            done[key] = log_lines.mask_value(done[key], secrets)
        self._report(done["instance"], done["changed"], done["action"], plan, done, reasons)
        if not done["ok"]:
            failure = done.get("failure") or {}
            raise ApplyError(
                _message(
                    "{0}: {1}: {2}".format(done["instance"], failure.get("step"), failure.get("message")),
                    failure.get("lines") or [],
                    _aftermath(done),
                ),
                failed_step=failure.get("step"),
                state_now=done["state_now"],
            )

    def _report(
        self,
        name: str,
        changed: bool,
        action: str,
        plan: Optional[Dict[str, Any]],
        done: Optional[Dict[str, Any]] = None,
        reasons: Optional[List[Dict[str, Any]]] = None,
    ) -> None:
        state, text = (done["state"], done["state_now"]) if done else transaction.state_now(self.host, name)
        self.instances.append(
            {
                "name": name,
                "changed": changed,
                "action": action,
                "outcome": (done or {}).get("outcome"),
                "attached": bool((done or {}).get("attached")),
                "reasons": reasons or [],
                "steps": (done or {}).get("steps") or [],
                "evidence": (done or {}).get("evidence") or {},
                "endpoint": _endpoint(plan),
                "state": state,
                "state_now": text,
            }
        )


def difference_texts(host: Host, wanted: Dict[str, Any], found: Dict[str, Any]) -> List[Dict[str, str]]:
    """The diff of one instance: unit, settings, environment file (its values masked) and state, where they differ."""
    if found["action"] == instance_difference.NONE:
        return []
    plan = wanted["plan"]
    name = plan["name"]
    committed = instance_state.read_committed(host.sysroot, name) or {}
    unit_file, env_file = instance_state.unit_path(name), instance_state.env_path(name)
    before_env = instance_state.secret_digests(host.environment(name))
    after_env = instance_difference.planned_secrets(plan)
    pairs = [
        (unit_file, host.sysroot.read_text(unit_file) or "", plan["unit"]["text"]),
        ("settings of {0}".format(name), _settings(committed), _settings(wanted)),
        (env_file, _env_text(before_env, after_env), _env_text(after_env, after_env)),
    ]
    state = host.unit(name).active_state if host.sysroot.exists(unit_file) else "absent"
    pairs.append(("state of {0}".format(plan["unit"]["name"]), "{0}\n".format(state), "active\n"))
    return [_diff(header, before, after) for header, before, after in pairs if before != after]


def _settings(record: Dict[str, Any]) -> str:
    """What a person reads of a plan: image, container and arguments, as JSON."""
    plan = record.get("plan")
    if not plan:
        return ""
    container = {key: value for key, value in plan["container"].items() if key not in ("labels", "secrets", "command")}
    shown = {"image_id": record.get("image_id"), "container": container, "serve_args": plan["serve_args"]}
    shown["timeouts"] = plan.get("timeouts")
    return json.dumps(shown, indent=1, sort_keys=True) + "\n"


def _env_text(secrets: List[Dict[str, str]], final: List[Dict[str, str]]) -> str:
    """An environment file for the eyes of everybody: one that changes its value shows that it does."""
    kept = [secret for secret in secrets if secret in final]
    return "".join(
        "{0}={1}{2}\n".format(secret["name"], log_lines.MASK, "" if secret in kept else " (another value)")
        for secret in secrets
    )


def _diff(header: str, before: str, after: str) -> Dict[str, str]:
    return {"before_header": header, "after_header": header, "before": before, "after": after}


def _endpoint(plan: Optional[Dict[str, Any]]) -> Optional[Dict[str, Any]]:
    if not plan:
        return None
    end = plan["endpoint"]
    return {"address": end["address"], "port": end["port"], "model": plan.get("served_model_name")}


def _message(reason: str, lines: List[str], aftermath: Optional[str]) -> str:
    """The reason first and alone in its line, then the lines that matter, then what is there now."""
    return "\n".join([reason] + ["  " + line for line in lines] + ([aftermath] if aftermath else []))


def _aftermath(done: Dict[str, Any]) -> str:
    rollback = done["evidence"].get("rollback") or {}
    words = {
        transaction.ROLLED_BACK: "The previous state is back.",
        transaction.REFUSED: "Nothing of the service was touched.",
        transaction.ROLLBACK_FAILED: "THE PREVIOUS STATE COULD NOT BE BROUGHT BACK: {0}.".format(
            "; ".join(rollback.get("errors") or [])
        ),
    }.get(done["outcome"], "")
    notes = list(rollback.get("notes") or [])
    if done["evidence"].get("journal"):
        notes.append("{0}.".format(done["evidence"]["journal"]))
    return " ".join([part for part in [words] + notes + ["Now: {0}.".format(done["state_now"])] if part])


def _names(secrets: List[Dict[str, str]]) -> str:
    return ", ".join(secret["name"] for secret in secrets) or "none"
