# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The evidence of verifications as lines of text."""

from __future__ import annotations

from typing import Any

from .plain import kind_of, plain

WIDTH = 16
UNKNOWN = "unknown"
PLACES = {"throwaway": ", in a throw-away container", "running container": ", in its running container", None: ""}


def verification_lines(instances: Any, host: str = "") -> list[str]:
    """The lines for what vllm_verify returned as instances; host is named in each instance's first line.

    Of what vllm_instance returned, the instances count that a transaction has verified.
    """
    found = plain(instances)
    if not isinstance(found, list):
        raise TypeError(f"the evidence must be a list of instances, not of type {kind_of(found)}")
    verified = [one for one in map(_verification, found) if one is not None]
    return [line for number, one in enumerate(verified) for line in [""] * bool(number) + _instance(one, host)]


def _verification(entry: dict[str, Any]) -> dict[str, Any] | None:
    if "evidence" not in entry:
        return entry
    evidence = entry["evidence"].get("verification")
    return None if evidence is None else {**evidence, "name": entry["name"]}


def _instance(one: dict[str, Any], host: str) -> list[str]:
    names = ", ".join(part for part in (host, f"instance {one['name']}") if part)
    outcome = "passed" if one["ok"] else "FAILED"
    lines = [f"{names}: {one['level']} verification {outcome}{PLACES[one['where']]}, {one['seconds']} s"]
    if one["message"]:
        lines.append(_line("why", one["message"]))
    lines += _documented(one)
    if one.get("deep"):
        lines += _deep(one["deep"])
    return lines + [_line("output", line) for line in one["lines"]]


def _documented(one: dict[str, Any]) -> list[str]:
    lines, smi, python = [], one["npu_smi"], one["python"]
    if one["where"] is None:
        return []
    said = "not asked, it hung on the host" if smi is None else _ended(smi)
    lines.append(_line("npu-smi info", said))
    if python is None:
        return lines
    said = "vLLM Ascend environment: OK" if python["ok"] else _ended(python)
    lines.append(_line("environment", f"{said}; platform plugin {one['platform_plugin']}"))
    versions = {"python": python.get("python"), **(python.get("versions") or {})}
    known = [f"{name} {version}" for name, version in versions.items() if version]
    return lines + [_line("versions", ", ".join(known))] * bool(known)


def _deep(deep: dict[str, Any]) -> list[str]:
    seen = UNKNOWN if deep["npus"] is None else deep["npus"]
    build, cann, driver = deep["build"] or {}, deep["cann"], deep["driver"]
    soc = build.get("soc_version") or deep["image_soc_version"]
    built = build.get("device_type") or UNKNOWN
    lines = [
        _line("NPUs", f"{seen} seen, {deep['mapped']} mapped"),
        _line("image", f"built for {built}" + f" (SOC_VERSION {soc})" * bool(soc)),
        _line("CANN", f"{cann['version']} ({cann['source']})" if cann else UNKNOWN),
        _line("driver", f"{driver['version']} ({driver['source']})" if driver else f"{UNKNOWN} in the container"),
        _line("operations", deep["operations"]),
    ]
    lines += [_line(f"npu:{chip['npu']}", _chip(chip)) for chip in deep["chips"]]
    return lines + [_line("warning", warning) for warning in deep["warnings"]]


def _chip(chip: dict[str, Any]) -> str:
    node = f"{chip['node']}: " if chip["node"] else ""
    soc = "" if chip["soc"] is None else f", SoC {chip['soc']}"
    return f"{node}computed in {chip['seconds']} s{soc}" if chip["ok"] else f"{node}FAILED, {chip['why']}"


def _ended(result: dict[str, Any]) -> str:
    if result["timed_out"]:
        return "no end within its time"
    return "ended well" if result["ok"] else f"ended with {result['rc']}"


def _line(what: str, text: str) -> str:
    return f"  {what:<{WIDTH}}{text}"
