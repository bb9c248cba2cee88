# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is built: the family's Dockerfile, the source, the tag and the arguments, from the variables of the role."""

from __future__ import annotations

import re
from typing import Any

from .plain import SECRET_NAME, Findings, listed, masked, nearest
from .profiles import merge_profiles
from .settings import REFERENCE

REMEDY = "Correct the value; `ansible-doc -t role vllm_ascend.fleet.vllm_build_image` describes it."
SYSTEMS = ("ubuntu", "openeuler")
_ARGUMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_REPOSITORY = re.compile(r"(https?|ssh|git|file)://\S+|[\w.-]+@[\w.-]+:\S+|/\S+")
_LOGIN = re.compile(r"https?://[^/@\s]+@")
_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/+-]{0,200}")


def build_request(settings: dict[str, Any], profiles: dict[str, Any], facts: dict[str, Any] | None) -> dict[str, Any]:
    """The request of a build.

    {problems, family, dockerfile, tag, repository, version, folder, arguments, push, archive}.
    settings are the variables of the role vllm_build_image (and vllm_hardware_profiles) by name, profiles the shipped
    ones, facts ansible_facts.ascend_npu of the build host (null: it has no NPU or was not asked). Everything that is
    wrong is in problems {code, message, remedy}.
    """
    findings = Findings()
    known = merge_profiles(profiles, settings.get("vllm_hardware_profiles") or {})
    family = _family(settings, known, facts, findings)
    system = _system(settings, facts, findings)
    dockerfile = settings.get("vllm_build_dockerfile") or _dockerfile(known.get(family or ""), family, system, findings)
    if re.search(r"(^|/)\.\.(/|$)|^/", dockerfile or ""):
        _wrong("vllm_build_dockerfile", dockerfile, "a path inside the source", findings)
    folder = settings.get("vllm_build_folder")
    repository, version = settings.get("vllm_build_repository"), str(settings.get("vllm_build_version") or "")
    if folder:
        if not str(folder).startswith("/"):
            _wrong("vllm_build_folder", folder, "an absolute path on the build host", findings)
    else:
        _check_source(repository, version, findings)
    tag = settings.get("vllm_build_tag") or _tag(version, known.get(family or ""), system)
    for name, value in (("vllm_build_tag", tag), ("vllm_build_push", settings.get("vllm_build_push"))):
        if value is not None and not REFERENCE.fullmatch(str(value)):
            _wrong(name, value, "an image reference with one tag, such as vllm-ascend-dev:v0.23.0-310p", findings)
    archive = settings.get("vllm_build_archive")
    if archive and not str(archive).startswith("/"):
        _wrong("vllm_build_archive", archive, "an absolute path on the build host", findings)
    return {
        "problems": findings.problems,
        "family": family,
        "dockerfile": dockerfile,
        "tag": tag,
        "repository": None if folder else repository,
        "version": None if folder else version,
        "folder": folder,
        "arguments": _arguments(settings.get("vllm_build_arguments"), findings),
        "push": settings.get("vllm_build_push"),
        "archive": archive,
    }


def _family(
    settings: dict[str, Any], known: dict[str, Any], facts: dict[str, Any] | None, findings: Findings
) -> str | None:
    wanted = settings.get("vllm_build_family")
    if wanted:
        if wanted in known:
            return str(wanted)
        _wrong("vllm_build_family", wanted, f"one of {listed(sorted(known))}{nearest(str(wanted), known)}", findings)
        return None
    found = (facts or {}).get("family")
    if found in known:
        return str(found)
    if not settings.get("vllm_build_dockerfile"):
        message = f"the build host's own hardware is {found or 'not known'}, so nothing says what to build for"
        findings.problem("build_family_unknown", message, f"Set vllm_build_family to one of {listed(sorted(known))}.")
    return None


def _system(settings: dict[str, Any], facts: dict[str, Any] | None, findings: Findings) -> str:
    wanted = settings.get("vllm_build_os")
    if wanted in SYSTEMS:
        return str(wanted)
    if wanted:
        _wrong("vllm_build_os", wanted, f"one of {listed(SYSTEMS)}{nearest(str(wanted), SYSTEMS)}", findings)
    return ((facts or {}).get("host") or {}).get("image_os") or "ubuntu"


def _dockerfile(profile: dict[str, Any] | None, family: str | None, system: str, findings: Findings) -> str | None:
    found = ((profile or {}).get("image") or {}).get("dockerfiles") or {}
    if profile is not None and system not in found:
        message = f"the data of {family} names no Dockerfile for {system}"
        findings.problem("build_dockerfile_unknown", message, "Set vllm_build_dockerfile.")
    return found.get(system)


def _tag(version: str, profile: dict[str, Any] | None, system: str) -> str:
    """vllm-ascend-dev:v0.23.0-310p-openeuler, after the source and what it is for."""
    image = (profile or {}).get("image") or {}
    parts = [re.sub(r"[^A-Za-z0-9_.-]+", "-", version).strip("-.") or "latest", image.get("suffix")]
    parts.append((image.get("system_suffixes") or {}).get(system))
    return "vllm-ascend-dev:" + "-".join(part for part in parts if part)[:128]


def _check_source(repository: Any, version: str, findings: Findings) -> None:
    if not isinstance(repository, str) or not _REPOSITORY.fullmatch(repository):
        _wrong("vllm_build_repository", masked(repository), "an address that git can clone", findings)
    elif _LOGIN.match(repository):
        message = "vllm_build_repository holds a login, which would be seen in the processes and kept in the image"
        remedy = "Use an ssh address with a key of the build host, a credential helper of git, or vllm_build_folder."
        findings.problem("build_source_login", message, remedy)
    if not _VERSION.fullmatch(version):
        _wrong("vllm_build_version", version, "a tag, a branch or a commit", findings)


def _arguments(given: Any, findings: Findings) -> dict[str, str]:
    if given in (None, ""):
        return {}
    if not isinstance(given, dict):
        _wrong("vllm_build_arguments", given, "a dictionary", findings)
        return {}
    for name, value in given.items():
        if not isinstance(name, str) or not _ARGUMENT.fullmatch(name):
            _wrong("vllm_build_arguments", name, "names of build arguments", findings)
        elif SECRET_NAME.search(name):
            message = (
                f"vllm_build_arguments: {name} looks like a secret, and a build argument stays readable in the image"
            )
            findings.problem("build_argument_secret", message, "Leave it out; fetch what needs it before the build.")
        elif isinstance(value, (dict, list)) or value is None:
            _wrong(f"vllm_build_arguments.{name}", value, "text or a number", findings)
    return {str(name): "1" if value is True else "0" if value is False else str(value) for name, value in given.items()}


def _wrong(name: str, value: Any, wanted: str, findings: Findings) -> None:
    findings.problem("build_setting_invalid", f"{name} is {masked(value)!r}; expected is {wanted}", REMEDY)
