# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What speaks against a host itself: its hardware, its driver and its system."""

from __future__ import annotations

from typing import Any

from ..module_utils.detection import FAMILY_PROBLEMS
from .plain import Findings, listed
from .profiles import DEFAULT_DRIVER

# Last digits of a mode by which others may not read and write.
OTHERS_BARRED = ("0", "1", "2", "3", "4", "5")
# How an option of docker run --security-opt is given.
PROFILE_OPTION = "vllm_hardware_profiles: {{<family>: {{security_options: [{}]}}}}"
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


def check_host(facts: dict[str, Any], observed: dict[str, Any] | None, findings: Findings) -> None:
    """Warnings about the host that no problem follows from."""
    host = facts.get("host") or {}
    if (host.get("page_size") or 4096) > 4096:
        message = f"the kernel's page size is {host['page_size']} bytes; the image's jemalloc may refuse it"
        remedy = (
            'Watch the first start for "Unsupported system page size"; set LD_PRELOAD empty in vllm_environment then.'
        )
        findings.warn("page_size", message, remedy)
    if host.get("selinux") == "enforcing":
        _check_selinux(((observed or {}).get("engine") or {}).get("security_options"), findings)


def _check_selinux(options: Any, findings: Findings) -> None:
    """An engine without SELinux support starts containers that it does not confine; one with it may deny the mounts."""
    confines = None if options is None else any("selinux" in str(option) for option in options)
    if confines is False:
        why = "SELinux is enforcing, and the engine does not confine containers by it (no selinux-enabled)"
        findings.why("no SELinux label option", why, "docker info, SecurityOptions")
        return
    message = "SELinux is enforcing"
    message += ", and the engine confines containers by it: mounted host files and nodes may be denied" * bool(confines)
    message += "; an engine with SELinux support keeps containers from mounted host files" * (confines is None)
    remedy = "Where access is denied (ausearch -m avc), allow it by policy, or give the containers label=disable: "
    findings.warn("selinux_enforcing", message, remedy + PROFILE_OPTION.format("label=disable"))


def check_node_modes(facts: dict[str, Any], chosen: list[str], findings: Findings) -> None:
    """A warning about nodes that not everybody may open, for images that may not run as root (vllm-ascend 9490)."""
    nodes = facts.get("device_nodes") or {}
    for node in chosen[:1]:
        entry = nodes.get(node) or {}
        mode = str(entry.get("mode") or "")
        if mode[-1:] in OTHERS_BARRED:
            message = (
                f"vllm_image names an image of yours, and {node} is {mode}, of {entry.get('uid')}:{entry.get('gid')}"
            )
            remedy = (
                "The container's user must be root, or that user with an entry in /etc/passwd: without one HCCL fails "
                "with several NPUs."
            )
            findings.warn("npu_node_mode", message, remedy)
