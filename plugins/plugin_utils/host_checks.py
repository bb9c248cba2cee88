# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What speaks against a host itself: its hardware, container engine and systemd."""

from __future__ import annotations

from typing import Any

from ..module_utils.detection import FAMILY_PROBLEMS
from .plain import Findings, listed
from .profiles import DEFAULT_DRIVER
from .versions import older

DOCKER_MINIMUM = (18, 9)
DOCKER_PULL_OPTION = (20, 10)
DOCKER_CLONE3 = (20, 10, 10)
SYSTEMD_MINIMUM = (243,)
NO_FAMILY = {
    "none": ("hardware_none", "no Ascend NPU was found on the host"),
    "unsupported": ("hardware_unsupported", "the host's Ascend NPU is not supported"),
    "unknown": ("hardware_unknown", "the host's Ascend hardware could not be identified"),
}


def choose_family(
    facts: dict[str, Any], settings: dict[str, Any], profiles: dict[str, Any], findings: Findings
) -> tuple[str, dict[str, Any] | None]:
    """The family and its profile, None (and a problem) when none applies; the facts' problems are carried over.

    vllm_hardware_family wins over what was detected, and both are said. A profile that is null is not in order, which
    was said before.
    """
    override, found = settings["vllm_hardware_family"], facts.get("family") or "unknown"
    _carry_over(facts, bool(override), findings)
    if override:
        evidence = _evidence(facts)
        findings.why(
            f"family {override}", f"the operator set it; detected was {found} ({evidence})", "vllm_hardware_family"
        )
        if override != found:
            message = f"vllm_hardware_family is {override}, but detected was {found} ({evidence})"
            findings.warn("family_overridden", message, "Unset vllm_hardware_family once the detection is right.")
        if override not in profiles:
            message = f"vllm_hardware_family is {override}, which has no profile; there are {listed(sorted(profiles))}"
            findings.problem("family_unknown", message, "Correct it, or add a profile in vllm_hardware_profiles.")
        return override, profiles.get(override)
    if found in NO_FAMILY:
        code, message = NO_FAMILY[found]
        if not any(p["code"] in FAMILY_PROBLEMS for p in findings.problems):
            remedy = (
                "Install the NPU and its driver, leave the host out, or set vllm_hardware_family if you know better."
            )
            findings.problem(code, f"{message} ({_evidence(facts)})", remedy)
        return str(found), None
    if found not in profiles:
        message = f"the family {found} was detected, which has no profile; there are {listed(sorted(profiles))}"
        findings.problem("family_unknown", message, "Add a profile in vllm_hardware_profiles.")
        return str(found), None
    findings.why(f"family {found}", _evidence(facts), "observation of the host")
    return str(found), profiles[found]


def _carry_over(facts: dict[str, Any], overridden: bool, findings: Findings) -> None:
    for entry in facts.get("problems") or []:
        answered = overridden and entry["code"] in FAMILY_PROBLEMS
        report = findings.warn if answered else findings.problem
        report(entry["code"], entry["message"], entry["remedy"])
    for entry in facts.get("warnings") or []:
        findings.warn(entry["code"], entry["message"], entry["remedy"])


def _evidence(facts: dict[str, Any]) -> str:
    entries = [f"{entry.get('source')}: {entry.get('value')}" for entry in facts.get("evidence") or []]
    return "; ".join(entries) or "no evidence"


def check_driver(facts: dict[str, Any], findings: Findings) -> None:
    """What is not known about the driver; what is wrong with it, the facts' own problems say."""
    driver = facts.get("driver") or {}
    if driver.get("install_path") is None:
        message = f"nothing names the folder of the Ascend driver; {DEFAULT_DRIVER} is taken"
        findings.warn("driver_unknown", message, "Check Driver_Install_Path_Param in /etc/ascend_install.info.")
    elif driver["install_path"].rstrip("/") != DEFAULT_DRIVER:
        why = "the driver's files are mounted from there, onto the documented places inside the container"
        findings.why(f"driver folder {driver['install_path']}", why, "/etc/ascend_install.info on the host")
    if driver.get("version") is None:
        message = "the version of the Ascend driver is not known"
        findings.warn("driver_version_unknown", message, "Check that version.info of the driver is there.")


def check_notices(facts: dict[str, Any], profile: dict[str, Any], findings: Findings) -> None:
    """The profile's notices about chips that the host has."""
    names = [str(facts.get("product") or ""), *(str(chip.get("name") or "") for chip in facts.get("chips") or [])]
    for notice in profile.get("notices", []):
        if any(notice["chip"].lower() in name.lower() for name in names):
            findings.warn("hardware_notice", notice["message"], notice["remedy"])


def check_host(facts: dict[str, Any], findings: Findings) -> None:
    """Warnings about the host that no problem follows from."""
    host = facts.get("host") or {}
    if (host.get("page_size") or 4096) > 4096:
        message = f"the kernel's page size is {host['page_size']} bytes; the image's jemalloc may refuse it"
        remedy = (
            'Watch the first start for "Unsupported system page size"; set LD_PRELOAD empty in vllm_environment then.'
        )
        findings.warn("page_size", message, remedy)
    if host.get("selinux") == "enforcing":
        message = "SELinux is enforcing; an engine with SELinux support keeps containers from mounted host files"
        findings.warn("selinux_enforcing", message, "Where mounts are denied, allow them by policy for the container.")


def check_engine(observed: dict[str, Any] | None, live: bool, findings: Findings) -> None:
    """Docker Engine 18.09 or newer must run, and systemd 243 or newer must be there.

    What was not recorded is a problem on a live host only: a replay has no engine to be asked.
    """
    if observed is None:
        return
    engine, systemd = observed.get("engine"), observed.get("systemd")
    install = "Install Docker Engine 18.09 or newer, enable and start it (systemctl enable --now docker)."
    if engine is None:
        if live:
            findings.problem("engine_missing", "no container engine was found on the host", install)
    elif engine.get("kind") != "docker":
        message = f"the container engine is {engine.get('kind')} {engine.get('version') or ''}".rstrip()
        findings.problem("engine_unsupported", message + "; only Docker is supported", install)
    elif engine.get("running") is False or (live and not engine.get("running")):
        message = f"Docker does not answer: {engine.get('error') or 'no reason given'}"
        findings.problem("engine_stopped", message, "Start it (systemctl enable --now docker) and read its journal.")
    elif older(engine.get("version"), DOCKER_MINIMUM):
        message = f"Docker is version {engine['version']}; 18.09 is the oldest supported"
        findings.problem("engine_too_old", message, install)
    elif older(engine.get("version"), DOCKER_CLONE3):
        message = (
            f"Docker {engine['version']} is older than 20.10.10: new images may end with 'operation not permitted'"
        )
        findings.warn("engine_old", message, "Update Docker when the container's programs fail to start threads.")
    if systemd is None or systemd.get("version") is None:
        if live:
            message = "systemd was not found on the host"
            findings.problem("systemd_missing", message, "Services are systemd units: use a host with systemd 243+.")
    elif older(systemd["version"], SYSTEMD_MINIMUM):
        message = f"systemd is version {systemd['version']}; 243 is the oldest supported"
        findings.problem("systemd_too_old", message, "Update the host's system.")


def engine_pull_option(observed: dict[str, Any] | None) -> str | None:
    """ "never" as the value of docker run --pull, None for an engine that does not know the option."""
    engine = (observed or {}).get("engine") or {}
    return None if older(engine.get("version"), DOCKER_PULL_OPTION) else "never"


def engine_runtime(observed: dict[str, Any] | None, findings: Findings) -> str | None:
    """The runtime to name: runc where the Ascend runtime is the default, which would add devices and mounts itself."""
    engine = (observed or {}).get("engine") or {}
    if engine.get("default_runtime") != "ascend":
        return None
    why = "the engine's default runtime is ascend, and two ways of mapping NPUs exclude each other"
    findings.why("runtime runc", why, "Project-HAMi/ascend-device-plugin issue 23")
    return "runc"
