# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What an instance is on its host now, kept so that a transaction can be undone, and put back."""

from __future__ import annotations

import contextlib
import os
import stat
from typing import Any, Dict, List, Optional

from . import answers, atomic, endpoint, instance_state
from .host_control import Host

# The environment file as it was (0600): its values are secret, so they are not in the journal.
SNAPSHOT_ENV = "snapshot.env"
UNIT_MODE = 0o644
ENV_MODE = 0o600
LIVE_STATES = ("active", "activating", "reloading", "deactivating")
ENABLED_STATES = ("enabled", "enabled-runtime")


def capture(host: Host, instance: str) -> Dict[str, Any]:
    """The instance as it is: unit text, whether it was enabled, active and serving, image, committed state.

    The environment file is copied beside the journal.
    """
    unit = host.unit(instance)
    committed = instance_state.read_committed(host.sysroot, instance)
    found = host.inspect(instance_state.container_name(instance))
    ours = found is not None and ((found.get("Config") or {}).get("Labels") or {}).get(instance_state.LABEL_INSTANCE)
    env_text = atomic.read_text(host.path(instance_state.env_path(instance)))
    if env_text is None:
        atomic.remove(host.state(instance, SNAPSHOT_ENV))
    else:
        atomic.write_text(host.state(instance, SNAPSHOT_ENV), env_text, ENV_MODE)
    taken: Dict[str, Any] = {
        "unit": atomic.read_text(host.path(instance_state.unit_path(instance))),
        "has_env": env_text is not None,
        "enabled": unit.unit_file_state in ENABLED_STATES,
        "active": unit.active_state in LIVE_STATES,
        "serving": False,
        "image_id": (committed or {}).get("image_id"),
        "image_reference": (committed or {}).get("image_reference"),
        "committed": committed,
    }
    if found is not None and ours:
        taken["image_id"] = taken["image_id"] or found.get("Image")
        taken["image_reference"] = taken["image_reference"] or (found.get("Config") or {}).get("Image")
    if unit.active_state == "active" and committed:
        taken["serving"] = prove(host, instance, committed["plan"], with_completion=False).serving
    return taken


def existed(snapshot: Dict[str, Any]) -> bool:
    """True when there was an instance before: a unit to go back to."""
    return snapshot.get("unit") is not None


def prove(host: Host, instance: str, plan: Dict[str, Any], with_completion: bool = True) -> endpoint.Proof:
    """Ask the endpoint of a planned instance from outside, as its clients do."""
    end = plan["endpoint"]
    return endpoint.prove(
        endpoint.outside_address(end["address"]),
        int(end["port"]),
        plan.get("served_model_name"),
        host.environment(instance).get(instance_state.API_KEY),
        with_completion=with_completion,
        accept_busy=True,
    )


def check_answers(host: Host, instance: str, plan: Dict[str, Any], wanted: Dict[str, Any]) -> Dict[str, Any]:
    """Ask the endpoint for what the plan's answers want. answers.WrongAnswerError says what is not so."""
    end = plan["endpoint"]
    key = host.environment(instance).get(instance_state.API_KEY)
    return answers.check(
        endpoint.outside_address(end["address"]), int(end["port"]), plan["served_model_name"], key, wanted
    )


def install(host: Host, instance: str, unit: Optional[str], env_text: Optional[str]) -> None:
    """Put the environment file and the unit in their places; None removes one. systemd is not told yet."""
    folder = host.path(instance_state.ENV_DIR)
    env_file = host.path(instance_state.env_path(instance))
    if env_text is None:
        if os.path.isdir(folder):
            atomic.remove(env_file)
            with contextlib.suppress(OSError):
                # Only when it is empty.
                os.rmdir(folder)
    else:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        _put(env_file, env_text, ENV_MODE)
    unit_file = host.path(instance_state.unit_path(instance))
    if unit is None:
        atomic.remove(unit_file)
    else:
        _put(unit_file, unit, UNIT_MODE)


def _put(path: str, text: str, mode: int) -> None:
    """Write a file unless it is just so already: undoing must not fail on a full disk for what was never changed."""
    if atomic.read_text(path) == text and stat.S_IMODE(os.stat(path).st_mode) == mode:
        return
    atomic.write_text(path, text, mode)


def restore(host: Host, instance: str, snapshot: Dict[str, Any]) -> None:
    """Put the files of the snapshot back, tell systemd, and have the unit enabled or not as it was.

    The committed state too, which a transaction that failed after its step `commit` had replaced.
    """
    env_text = atomic.read_text(host.state(instance, SNAPSHOT_ENV)) if snapshot.get("has_env") else None
    unit = instance_state.unit_name(instance)
    there = os.path.exists(host.path(instance_state.unit_path(instance)))
    if not existed(snapshot) and there:
        host.systemctl("disable", unit)
    install(host, instance, snapshot.get("unit"), env_text)
    host.systemctl("daemon-reload")
    record = host.state(instance, instance_state.COMMITTED)
    if snapshot.get("committed") is None:
        atomic.remove(record)
    elif atomic.read_json(record) != snapshot["committed"]:
        atomic.write_json(record, snapshot["committed"])
    if existed(snapshot):
        host.systemctl("enable" if snapshot.get("enabled") else "disable", unit)


def retag(host: Host, snapshot: Dict[str, Any]) -> Optional[str]:
    """Let the image reference point to the image of before when it moved; what was done, None: there was no need."""
    reference, wanted = snapshot.get("image_reference"), snapshot.get("image_id")
    if not reference or not wanted or host.image_id(reference) == wanted:
        return None
    if host.image(wanted) is None:
        return "{0} points to another image than before, and the one before ({1}) is gone".format(reference, wanted)
    host.docker("tag", wanted, reference)
    text = "{0} points to {1} again".format(reference, wanted)
    others = _others_with(host, snapshot, reference)
    return text + ("; also used by {0}".format(", ".join(others)) if others else "")


def _others_with(host: Host, snapshot: Dict[str, Any], reference: str) -> List[str]:
    own = (snapshot.get("committed") or {}).get("plan") or {}
    names = []
    for name in instance_state.instance_names(host.sysroot):
        committed = instance_state.read_committed(host.sysroot, name) or {}
        if name != own.get("name") and committed.get("image_reference") == reference:
            names.append(name)
    return names


def keep_as_previous(host: Host, instance: str, snapshot: Dict[str, Any]) -> None:
    """Make the snapshot the state that a later rollback returns to. Nothing before: no such state."""
    names = (instance_state.PREVIOUS, instance_state.PREVIOUS_UNIT, instance_state.PREVIOUS_ENV)
    record, unit_file, env_file = (host.state(instance, name) for name in names)
    env_text = atomic.read_text(host.state(instance, SNAPSHOT_ENV)) if snapshot.get("has_env") else None
    if not existed(snapshot) or not snapshot.get("committed"):
        for path in (record, unit_file, env_file):
            atomic.remove(path)
        return
    atomic.write_text(unit_file, snapshot["unit"], ENV_MODE)
    if env_text is None:
        atomic.remove(env_file)
    else:
        atomic.write_text(env_file, env_text, ENV_MODE)
    atomic.write_json(record, snapshot["committed"])
