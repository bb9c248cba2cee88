# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether release, family, image system, machine and driver go together: roles/npu_host/vars/rules/releases.yml."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .plain import Findings, listed
from .versions import numbers, older, parse_release

# The images of the 310P hold a CANN of their own in some releases.
SUFFIX_310P = "310p"


@dataclass(frozen=True)
class Target:
    """What is deployed where; null is not known. suffix is that of the family's images."""

    tag: str
    family: str
    title: str
    suffix: str | None
    image_os: str | None
    architecture: str | None
    driver: str | None


def check_compatibility(rules: dict[str, Any], target: Target, findings: Findings) -> None:
    """A problem for a pair that is known not to work, a warning for a driver that is not listed or limits something.

    rules are releases of the rules.
    """
    _check_release(rules, target, findings)
    if target.driver is not None:
        _check_driver(rules, target, findings)
        _check_limits(rules, target, findings)


def cann_of(rules: dict[str, Any], target: Target) -> tuple[str, str] | None:
    """The CANN in the target's image and the release that it is known from.

    A release that is not listed has that of the newest listed one before it; None for what is no release.
    """
    release = parse_release(target.tag)
    known = [(parse_release(tag), tag) for tag in rules["matrix"]]
    before = [(order, tag) for order, tag in known if order is not None and release is not None and order <= release]
    if not before:
        return None
    tag = max(before)[1]
    entry = rules["matrix"][tag]
    cann = entry.get("cann_310p") if target.suffix == SUFFIX_310P else None
    return str(cann or entry["cann"]), tag


def _check_release(rules: dict[str, Any], target: Target, findings: Findings) -> None:
    for bad in rules["known_bad"]:
        parts = (("image_os", target.image_os), ("architecture", target.architecture))
        if bad["release"] != target.tag or target.family not in bad.get("families", [target.family]):
            continue
        if any(key in bad and bad[key] != value for key, value in parts):
            continue
        message = f"{target.tag} on {target.title}: {bad['reason']}"
        remedy = f"Choose another release ({rules['origins'][bad['origin']]})."
        report = findings.problem if bad["severity"] == "problem" else findings.warn
        report("release_known_bad" if bad["severity"] == "problem" else "release_reported", message, remedy)


def _check_driver(rules: dict[str, Any], target: Target, findings: Findings) -> None:
    found = cann_of(rules, target)
    if found is None or not numbers(target.driver):
        return
    cann, _tag = found
    fitting = _fitting(rules, target.family, cann)
    what = f"driver {target.driver} with CANN {cann}, which {target.tag} has for {target.title}"
    series = numbers(target.driver)[:2]
    if any(series == numbers(works) for entry in fitting for works in entry["works"]):
        return
    for entry in fitting:
        if any(series == numbers(broken) for broken in entry.get("broken", [])):
            remedy = "Update driver and firmware, or choose a release with an older CANN"
            remedy += f" ({rules['origins'][entry['origin']]})."
            findings.problem("driver_known_bad", f"{what}, is listed as not compatible", remedy)
            return
    if not fitting:
        message = f"{what}: no list of drivers for it is known here"
    else:
        listing = sorted((works for entry in fitting for works in entry["works"]), key=numbers)
        old = " (it is older than all of them)" if series < numbers(listing[0]) else ""
        message = f"{what}, is not listed as compatible; listed are {listed(listing)}{old}"
    sources = "; ".join(rules["origins"][entry["origin"]] for entry in fitting) or "release notes of CANN"
    findings.warn("driver_unlisted", message, f"It may work all the same; look it up ({sources}).")


def _fitting(rules: dict[str, Any], family: str, cann: str) -> list[dict[str, Any]]:
    """The lists of drivers for a CANN: those that name the family, else those that name none."""
    entries = [entry for entry in rules["drivers"] if numbers(cann)[:2] == numbers(entry["cann"])]
    named = [entry for entry in entries if family in entry.get("families", [])]
    return named or [entry for entry in entries if "families" not in entry]


def known_drivers(rules: dict[str, Any], family: str) -> list[dict[str, Any]]:
    """[{cann, works, broken, source}] for a family, of every CANN that is known; what an image holds is seen later."""
    canns = list(dict.fromkeys(entry["cann"] for entry in rules["drivers"]))
    return [
        {
            "cann": cann,
            "works": list(entry["works"]),
            "broken": list(entry.get("broken", [])),
            "source": rules["origins"][entry["origin"]],
        }
        for cann in canns
        for entry in _fitting(rules, family, cann)
    ]


def known_contents(rules: dict[str, Any], tag: str, suffix: str | None) -> dict[str, Any]:
    """{release, cann, versions} of a release's official images; empty for one that is not listed."""
    entry = rules["matrix"].get(tag)
    if entry is None:
        return {}
    own = entry.get("cann_310p") if suffix == SUFFIX_310P else None
    packages = {name: str(entry[name]) for name in ("vllm", "torch", "torch_npu") if name in entry}
    return {"release": tag, "cann": str(own or entry["cann"]), "versions": packages}


def _check_limits(rules: dict[str, Any], target: Target, findings: Findings) -> None:
    release = parse_release(target.tag)
    for limit in rules["driver_limits"]:
        first = parse_release(limit["first"])
        if release is None or first is None or release < first or target.family not in limit["families"]:
            continue
        if older(target.driver, numbers(limit["older_than"])):
            message = f"driver {target.driver} on {target.title}: {limit['reason']}"
            remedy = f"{limit['remedy'].rstrip('.')} ({rules['origins'][limit['origin']]})."
            findings.warn("driver_limits_graphs", message, remedy)
