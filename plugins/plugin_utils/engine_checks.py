# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What speaks against a host's container engine and systemd, and what the engine must be told."""

from __future__ import annotations

from typing import Any

from .host_checks import PROFILE_OPTION
from .plain import Findings, listed
from .versions import older

DOCKER_MINIMUM = (18, 9)
DOCKER_PULL_OPTION = (20, 10)
# Docker's seccomp profile lets clone3 of a newer glibc fail so that it falls back (moby release notes 20.10.10).
DOCKER_CLONE3 = (20, 10, 10)
# The first that knows control groups v2 (moby release notes 20.10).
DOCKER_CGROUP2 = (20, 10)
SYSTEMD_MINIMUM = (243,)
ASCEND_RUNTIME, PLAIN_RUNTIME = "ascend", "runc"
INSTALL = "Install Docker Engine 18.09 or newer, enable and start it (systemctl enable --now docker)."


def check_engine(observed: dict[str, Any] | None, live: bool, findings: Findings) -> None:
    """Docker Engine 18.09 or newer must run, and systemd 243 or newer must be there.

    What was not recorded is a problem on a live host only: a replay has no engine to be asked.
    """
    if observed is None:
        return
    engine, systemd = observed.get("engine"), observed.get("systemd")
    if engine is None:
        if live:
            findings.problem("engine_missing", "no container engine was found on the host", INSTALL)
    elif engine.get("kind") != "docker":
        message = f"the container engine is {engine.get('kind')} {engine.get('version') or ''}".rstrip()
        findings.problem("engine_unsupported", message + "; only Docker is supported", INSTALL)
    elif engine.get("running") is False or (live and not engine.get("running")):
        message = f"Docker does not answer: {engine.get('error') or 'no reason given'}"
        findings.problem("engine_stopped", message, "Start it (systemctl enable --now docker) and read its journal.")
    else:
        _check_version(engine, findings)
        _check_users(engine, findings)
    if systemd is None or systemd.get("version") is None:
        if live:
            message = "systemd was not found on the host"
            findings.problem("systemd_missing", message, "Services are systemd units: use a host with systemd 243+.")
    elif older(systemd["version"], SYSTEMD_MINIMUM):
        message = f"systemd is version {systemd['version']}; 243 is the oldest supported"
        findings.problem("systemd_too_old", message, "Update the host's system.")


def _check_version(engine: dict[str, Any], findings: Findings) -> None:
    version = engine.get("version")
    if older(version, DOCKER_MINIMUM):
        message = f"Docker is version {version}; 18.09 is the oldest supported"
        findings.problem("engine_too_old", message, INSTALL)
        return
    if older(version, DOCKER_CLONE3):
        message = f"Docker {version} is older than 20.10.10: new images may end with 'operation not permitted'"
        remedy = "Update Docker when programs fail so, or give the containers another seccomp profile: "
        findings.warn("engine_old", message, remedy + PROFILE_OPTION.format("seccomp=unconfined"))
    if str(engine.get("cgroup_version")) == "2" and older(version, DOCKER_CGROUP2):
        message = f"Docker is version {version}, and the host uses control groups v2, which 20.10 is the first to know"
        findings.problem("engine_no_cgroup2", message, "Update Docker to 20.10 or newer.")


def _check_users(engine: dict[str, Any], findings: Findings) -> None:
    """Engines whose containers' root is not the host's: the driver's nodes are 0660, of HwHiAiUser or root.

    Mode and owner: hicann/driver host_sys_init.sh; a user that is neither cannot see them (vllm-ascend issue 9490).
    """
    for key, code, words, remedy in (
        ("rootless", "engine_rootless", "Docker runs rootless", "Use the system's Docker Engine, which runs as root."),
        ("userns_remap", "engine_userns_remap", "Docker maps the containers' users (userns-remap)",
         "Take userns-remap out of /etc/docker/daemon.json and restart Docker."),
    ):  # fmt: skip
        if engine.get(key) is True:
            message = f"{words}: root in a container may not open the NPU nodes, whose mode is 0660"
            findings.problem(code, message, remedy)


def engine_pull_option(observed: dict[str, Any] | None) -> str | None:
    """ "never" as the value of docker run --pull, None for an engine that does not know the option."""
    engine = (observed or {}).get("engine") or {}
    return None if older(engine.get("version"), DOCKER_PULL_OPTION) else "never"


def engine_runtime(observed: dict[str, Any] | None, findings: Findings) -> str | None:
    """The runtime to name: runc where the Ascend runtime is the default, which would add devices and mounts itself."""
    engine = (observed or {}).get("engine") or {}
    if engine.get("default_runtime") != ASCEND_RUNTIME:
        return None
    known = engine.get("runtimes")
    if known and PLAIN_RUNTIME not in known:
        message = f"the engine's default runtime is ascend, and it has no runc beside it; there are {listed(known)}"
        remedy = "Install runc and let /etc/docker/daemon.json name no runtime of that name, then restart Docker."
        findings.problem("runtime_missing", message, remedy)
    why = "the engine's default runtime is ascend, and two ways of mapping NPUs exclude each other"
    findings.why("runtime runc", why, "Project-HAMi/ascend-device-plugin issue 23")
    return PLAIN_RUNTIME
