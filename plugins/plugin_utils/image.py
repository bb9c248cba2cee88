# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which image a host gets: reference, registries to try, platform, and the refusals."""

from __future__ import annotations

from typing import Any

from .plain import Findings, listed
from .profiles import IMAGE_SYSTEMS, origin_of
from .versions import in_range, parse_release

OFFICIAL_REGISTRY = "quay.io"
OFFICIAL_REPOSITORY = "ascend/vllm-ascend"
PLATFORMS = {"x86_64": "linux/amd64", "aarch64": "linux/arm64"}
MIRRORS = "vLLM Ascend quick start v0.23.0: only the registry prefix is replaced"


def choose_image(
    settings: dict[str, Any], profile: dict[str, Any], host: dict[str, Any], system: str | None, findings: Findings
) -> dict[str, Any] | None:
    """The plan's image: {reference, candidates, platform, archive, digest, pull}; None when none can be named.

    system is the one inside the image (image_system); host is the facts' host part. The reference is the canonical
    name, under which the image is tagged wherever it came from.
    """
    platform = _platform(profile, host.get("architecture"), findings)
    names = _own_image(settings, findings) if settings["vllm_image"] else _official(settings, profile, system, findings)
    if names is None:
        return None
    reference, candidates = names
    image = {
        "reference": reference,
        "candidates": candidates,
        "platform": platform,
        "archive": settings["vllm_image_archive"],
        "digest": settings["vllm_image_digest"],
        "pull": settings["vllm_image_pull"],
    }
    _check_digest(image, findings)
    return image


def image_system(
    settings: dict[str, Any], profile: dict[str, Any], host: dict[str, Any], findings: Findings
) -> str | None:
    """The system inside the image, "ubuntu" or "openeuler"; None (and a problem) when it must be known and is not."""
    wanted, found = settings["vllm_image_os"], host.get("image_os")
    must, title = profile["image"]["follows_host_system"], profile["title"]
    if wanted == "auto":
        if found in IMAGE_SYSTEMS:
            findings.why(f"image system {found}", f"the host runs {_host_system(host)}", "vllm_image_os: auto")
            return str(found)
        message = f"the host's system {_host_system(host)} has no image of its own (there are {listed(IMAGE_SYSTEMS)})"
        if must:
            remedy = f"{title} mounts libraries of the host: set vllm_image_os to the system that the host is like."
            findings.problem("image_os_unknown", message, remedy)
            return None
        findings.warn("image_os_unknown", f"{message}; ubuntu is taken", "Set vllm_image_os to choose.")
        return "ubuntu"
    if must and found in IMAGE_SYSTEMS and found != wanted:
        message = f"vllm_image_os is {wanted}, but the host runs {_host_system(host)} ({found})"
        remedy = f"{title} mounts libraries of the host, so both must be the same: set vllm_image_os to auto."
        findings.problem("image_os_mismatch", message, remedy)
        return None
    findings.why(f"image system {wanted}", "the operator set it", "vllm_image_os")
    return str(wanted)


def _host_system(host: dict[str, Any]) -> str:
    return f"{host.get('os_id') or 'an unknown system'} {host.get('os_version') or ''}".strip()


def _platform(profile: dict[str, Any], architecture: Any, findings: Findings) -> str | None:
    if architecture is None:
        message = "the host's architecture is not known, so that of the image cannot be checked"
        findings.warn("architecture_unknown", message, "Record /proc/sys/kernel/arch with the host's files.")
        return None
    if architecture not in profile["architectures"]:
        message = (
            f"the host's architecture is {architecture}; images for {profile['title']} are for "
            f"{listed(profile['architectures'])}"
        )
        remedy = "Check vllm_hardware_family and the host; there is no image for this combination."
        findings.problem("architecture_unsupported", message, remedy)
    return PLATFORMS.get(architecture)


def _own_image(settings: dict[str, Any], findings: Findings) -> tuple[str, list[str]]:
    reference = settings["vllm_image"]
    findings.warn(
        "image_own",
        f"vllm_image is {reference}: no rule for release, suffix, system or registry is applied to it",
        "Make sure that it was built for this hardware; unset vllm_image for the official images.",
    )
    findings.why(f"image {reference}", "the operator named a whole image", "vllm_image")
    return reference, [reference]


def _official(
    settings: dict[str, Any], profile: dict[str, Any], system: str | None, findings: Findings
) -> tuple[str, list[str]] | None:
    version, rules = settings["vllm_ascend_version"], profile["image"]
    suited = _check_release(version, profile, findings)
    if system is None or not suited:
        return None
    tag = "-".join(part for part in (version, rules["suffix"], rules["system_suffixes"][system]) if part)
    repository, registries = settings["vllm_image_repository"], settings["vllm_image_registries"]
    canonical = OFFICIAL_REGISTRY if repository == OFFICIAL_REPOSITORY else registries[0]
    reference = f"{canonical}/{repository}:{tag}"
    suffix = f'the suffix "-{rules["suffix"]}"' if rules["suffix"] else "no suffix"
    why = f"release {version}, {suffix} for {profile['title']}, system {system}"
    findings.why(f"image {reference}", why, origin_of(profile, rules["origin"]))
    findings.why(f"registries {listed(registries)}", "tried in this order", MIRRORS)
    return reference, list(dict.fromkeys(f"{registry}/{repository}:{tag}" for registry in registries))


def _check_release(version: str, profile: dict[str, Any], findings: Findings) -> bool:
    rules, title = profile["image"], profile["title"]
    release = parse_release(version)
    if release is None:
        message = f"{version} is no release, so nothing is known about its image for {title}"
        findings.warn("release_unknown", message, "The newest known rules apply; a release can be checked before.")
        return True
    ranges = [(entry["first"], entry.get("last")) for entry in rules["releases"]]
    if not any(in_range(release, first, last) for first, last in ranges):
        having = listed(first if first == last else f"{first} to {last}" if last else f"{first} and later"
                        for first, last in ranges)  # fmt: skip
        suffix = f'the suffix "-{rules["suffix"]}"' if rules["suffix"] else "an image"
        findings.problem(
            "image_suffix_not_in_release",
            f"vllm_ascend_version is {version}, which has no image with {suffix} for {title}"
            if rules["suffix"]
            else f"vllm_ascend_version is {version}, which has no image for {title}",
            f"Set vllm_ascend_version to a release that has {suffix}: {having}.",
        )
        return False
    known = parse_release(rules["known_to"])
    if known is not None and release > known:
        message = f"{version} is newer than the newest release known here, {rules['known_to']}"
        findings.warn("release_newer_than_data", message, "The newest known rules apply; check the release notes.")
    return True


def _check_digest(image: dict[str, Any], findings: Findings) -> None:
    digest, reference = image["digest"], image["reference"]
    pinned = reference.partition("@")[2]
    if digest and pinned and digest != pinned:
        message = f"vllm_image_digest is {digest}, but vllm_image names {pinned}"
        findings.problem("image_digest_conflict", message, "Give the digest in one place.")
    if pinned and not digest:
        image["digest"] = pinned
    if image["archive"] and pinned:
        message = f"vllm_image is {reference}: an image loaded from {image['archive']} cannot be given that name"
        remedy = "Name it by its tag, and pin its id (docker image inspect --format '{{.Id}}') as vllm_image_digest."
        findings.problem("image_digest_archive", message, remedy)
