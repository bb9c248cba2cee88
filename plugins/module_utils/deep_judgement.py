# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the deep verification saw against what the plan expects. A failure is proved; the unknown is a warning."""

from __future__ import annotations

import re
from typing import Any, Dict, List, Optional, Tuple

from . import log_lines

# What torch.npu.get_soc_version() is for each device type (vLLM Ascend v0.23.0, vllm_ascend/utils.py,
# check_ascend_device_type).
SOC_RANGES = ((200, 205, "_310P"), (220, 225, "A2"), (250, 255, "A3"), (260, 260, "A5"))
# Releases before __device_type__ kept the SOC_VERSION of the build (the same, setup.py, gen_build_info).
BUILD_SOCS = (("310p", "_310P"), ("910b", "A2"), ("910_93", "A3"), ("910c", "A3"), ("950", "A5"))

KNOWN_TYPES = tuple(name for _low, _high, name in SOC_RANGES)

IN_USE = "none: a service uses the chips, and an operation could disturb it or find no memory"
EACH = "a small fp16 operation on each chip"


class Judgement:
    """failures and warnings are sentences; chips is what is known of each."""

    def __init__(self) -> None:
        self.failures: List[str] = []
        self.warnings: List[str] = []
        self.chips: List[Dict[str, Any]] = []


def judge(seen: Dict[str, Any], expect: Dict[str, Any], versions: Dict[str, Any], operated: bool) -> Dict[str, Any]:
    """The evidence of a deep verification: what was seen, with failures and warnings.

    seen is deep_script.parse(), expect the plan's verification.expect, versions those of the image's packages;
    operated: an operation was to run on each chip.
    """
    found = Judgement()
    facts = seen["facts"] or {}
    if seen["facts"] is None:
        found.failures.append("the deep verification gave no answer, so nothing is known of chips and image")
    else:
        _count(facts.get("npus"), expect, found)
        _build(facts, expect, found)
        _cann(facts, expect, found)
        _driver(facts, expect, found)
        _versions(versions, expect, found)
        if operated:
            _chips(seen["chips"], facts, expect, found)
    return {
        "npus": facts.get("npus"),
        "mapped": len(expect.get("npus") or []),
        "operations": EACH if operated else IN_USE,
        "chips": found.chips,
        "build": facts.get("build"),
        "cann": facts.get("cann"),
        "driver": facts.get("driver"),
        "image_soc_version": facts.get("image_soc_version"),
        "failures": found.failures,
        "warnings": found.warnings,
    }


def built_for(build: Optional[Dict[str, Any]]) -> Optional[str]:
    """The device type (A2, A3, _310P, A5, or a newer name) that an image is built for; None: it does not say."""
    if not build:
        return None
    if build.get("device_type"):
        return str(build["device_type"])
    soc = str(build.get("soc_version") or "").lower()
    return next((name for part, name in BUILD_SOCS if part in soc), None)


def chip_type(soc: Optional[int]) -> Optional[str]:
    """The device type of a number of the SoC, None for one that is not known here."""
    return next((name for low, high, name in SOC_RANGES if soc is not None and low <= soc <= high), None)


def _count(seen: Optional[int], expect: Dict[str, Any], found: Judgement) -> None:
    nodes = expect.get("npus") or []
    wanted = expect.get("count")
    if seen is None:
        found.warnings.append("torch.npu.device_count() could not be asked, so the chips are not counted")
    elif wanted is None:
        found.warnings.append(
            "{0} NPUs are seen; how many should be is not known, since ASCEND_RT_VISIBLE_DEVICES is set".format(seen)
        )
    elif seen < wanted or (seen > wanted and expect.get("exact")):
        found.failures.append(
            "torch.npu.device_count() is {0}, but {1} NPU nodes are mapped ({2})".format(seen, wanted, ", ".join(nodes))
        )
    elif seen > wanted:
        found.warnings.append(
            "{0} NPUs are seen and {1} planned: a privileged container sees all of its host".format(seen, wanted)
        )


def wrong_image(build: Optional[Dict[str, Any]], expect: Dict[str, Any]) -> Optional[str]:
    """A sentence when an image is built for another device type than the plan expects; None: right, or not known.

    A device type of a later release is no proof: it may be another name for the same.
    """
    built, wanted = built_for(build), expect.get("device_type")
    if built not in KNOWN_TYPES or wanted is None or built == wanted:
        return None
    return "the image is built for the device type {0}, but this host is {1} ({2}), which needs {3}".format(
        built, expect.get("title"), expect.get("family"), wanted
    )


def _build(facts: Dict[str, Any], expect: Dict[str, Any], found: Judgement) -> None:
    build = facts.get("build") or {}
    wrong = wrong_image(build, expect)
    if built_for(build) is None:
        why = build.get("why") or "it names neither a device type nor a SOC version"
        found.warnings.append("what the image is built for is not known ({0})".format(why))
    elif wrong:
        found.failures.append(wrong)
    elif built_for(build) not in (*KNOWN_TYPES, expect.get("device_type")):
        found.warnings.append("the image is built for {0}, which is not known here".format(built_for(build)))


def _cann(facts: Dict[str, Any], expect: Dict[str, Any], found: Judgement) -> None:
    cann, wanted = _version(facts.get("cann")), expect.get("cann")
    if cann is None:
        found.warnings.append("the version of CANN in the image is not known")
    elif wanted is not None and cann.lower() != str(wanted).lower():
        found.warnings.append(
            "CANN in the image is {0}; {1} is known to have {2}".format(cann, expect.get("release"), wanted)
        )


def _driver(facts: Dict[str, Any], expect: Dict[str, Any], found: Judgement) -> None:
    mounted, installed = _version(facts.get("driver")), expect.get("driver_installed")
    driver = expect.get("driver_version") or mounted
    if driver is None:
        found.warnings.append("the version of the host's driver is not known")
        return
    if mounted is not None and installed is not None and mounted != installed:
        found.warnings.append("the driver's files are now of {0}, the plan found {1}".format(mounted, installed))
    cann = _version(facts.get("cann"))
    if cann is None:
        return
    entries = [entry for entry in expect.get("drivers") or [] if _series(entry["cann"]) == _series(cann)]
    series = _series(driver)
    works = [listed for entry in entries for listed in entry["works"]]
    what = "driver {0} with the image's CANN {1}".format(driver, cann)
    if any(series == _series(listed) for listed in works):
        return
    broken = [entry for entry in entries if any(series == _series(listed) for listed in entry.get("broken") or [])]
    if broken:
        text = "{0} is listed as not compatible ({1})".format(what, broken[0]["source"])
        (found.warnings if expect.get("bad_driver_accepted") else found.failures).append(text)
    elif works:
        found.warnings.append("{0} is not listed as compatible; listed are {1}".format(what, ", ".join(works)))
    else:
        found.warnings.append("{0}: no list of drivers for it is known here".format(what))


def _versions(versions: Dict[str, Any], expect: Dict[str, Any], found: Judgement) -> None:
    for name, wanted in sorted((expect.get("versions") or {}).items()):
        have = versions.get(name)
        if have is not None and str(have).split("+")[0] != str(wanted).split("+")[0]:
            found.warnings.append(
                "{0} in the image is {1}; {2} is known to have {3}".format(name, have, expect.get("release"), wanted)
            )


def _chips(chips: Dict[int, Dict[str, Any]], facts: Dict[str, Any], expect: Dict[str, Any], found: Judgement) -> None:
    nodes, count = expect.get("npus") or [], facts.get("npus")
    built = built_for(facts.get("build"))
    broken: Dict[str, List[str]] = {}
    other: Dict[str, List[str]] = {}
    # Inside a container NPUs are counted from 0 in the order of their nodes. Where more are seen nobody can say.
    named = expect.get("count") is not None and (count is None or count == len(nodes))
    for number in range(operations(expect, count)):
        node = nodes[number] if named and number < len(nodes) else None
        name = "npu:{0} ({1})".format(number, node) if node else "npu:{0}".format(number)
        chip = chips.get(number)
        why = _why(chip, facts)
        lines = log_lines.relevant(str((chip or {}).get("output") or "").splitlines()) if why else []
        entry = {key: (chip or {}).get(key) for key in ("seconds", "soc", "timed_out", "rc")}
        found.chips.append(dict(entry, npu=number, node=node, ok=why is None, why=why, lines=lines))
        if why:
            broken.setdefault(why, []).append(name)
            continue
        kind = chip_type(entry["soc"])
        # Where the image is the wrong one for the family, that was said.
        if kind is not None and built in KNOWN_TYPES and kind not in (built, expect.get("device_type")):
            other.setdefault("{0} (SoC {1})".format(kind, entry["soc"]), []).append(name)
    for why, names in broken.items():
        verb = "fails" if len(names) == 1 else "fail"
        found.failures.append("{0} {1} a small fp16 operation: {2}".format(", ".join(names), verb, why))
    for what, names in other.items():
        verb = "is" if len(names) == 1 else "are"
        found.failures.append(
            "{0} {1} of the device type {2}, but the image is built for {3}".format(", ".join(names), verb, what, built)
        )


def operations(expect: Dict[str, Any], seen: Optional[int] = None) -> int:
    """On how many chips an operation runs: those that the plan maps, as far as they are seen."""
    mapped = len(expect.get("npus") or [])
    return mapped if seen is None else min(mapped, seen)


def lines(deep: Dict[str, Any]) -> List[str]:
    """The lines that chips printed about their failures, each with its chip."""
    return ["npu:{0}: {1}".format(chip["npu"], line) for chip in deep["chips"] for line in chip["lines"]]


def _why(chip: Optional[Dict[str, Any]], facts: Dict[str, Any]) -> Optional[str]:
    """Why an operation failed, None when it did not."""
    if chip is None:
        return "no answer within the time of the verification"
    if chip["timed_out"]:
        return "no end within {0:.0f} s".format(facts.get("limit_s") or 0)
    if chip["done"]:
        return "{0} numbers are wrong: {1}".format(chip["wrong"], chip["first_wrong"]) if chip["wrong"] else None
    return _said(str(chip.get("output") or ""), chip.get("rc"))


def _said(output: str, code: Optional[int]) -> str:
    """The line of a traceback that says what happened, else the last one."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if re.match(r"[\w.]*(Error|Exception|Interrupt)\b", line)]
    text = (errors or lines or ["no output"])[-1][: log_lines.WIDTH]
    return text if errors else "it ended with {0}: {1}".format(code, text)


def _version(entry: Optional[Dict[str, Any]]) -> Optional[str]:
    return str(entry["version"]) if entry and entry.get("version") else None


def _series(version: Any) -> Tuple[int, ...]:
    """The first two numbers of a version, by which drivers and CANN are compared."""
    match = re.match(r"\s*(\d+(?:\.\d+)*)", str(version))
    return tuple(int(part) for part in match.group(1).split("."))[:2] if match else ()
