# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a person reads at the end of a phase: tables and lists as lines of text.

A report is one dictionary a host: {problems, warnings, plan, difference, applied, failed}; each may be missing or null
(a host that could not be reached has none of them).
"""

from __future__ import annotations

import shlex
import textwrap
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from .diagnosis import UNKNOWN, diagnose

WIDTH = 110
# A person reads the first causes; the filter diagnose has all.
MOST_CAUSES, MOST_LINES = 3, 4
NOTHING = "-"
# Outcomes of a transaction after which the instance is as planned.
SETTLED = ("committed", "unchanged")


def table(header: list[str], rows: Iterable[list[str]]) -> list[str]:
    """Aligned columns under a header, one line a row; trailing blanks are cut."""
    body = [[str(cell) for cell in row] for row in rows]
    widths = [max(len(row[i]) for row in [header, *body]) for i in range(len(header))]
    lines = [header, ["-" * width for width in widths], *body]
    return ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]


def problem_table(reports: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Every problem of every host with its value and remedy, host by host; one line says so when there is none."""
    lines: list[str] = []
    for host in sorted(reports):
        for problem in _problems(reports[host]):
            lines += _wrapped(f"{host}  [{problem['code']}] ", problem["message"])
            lines += _wrapped("    remedy: ", problem["remedy"])
    count = sum(1 for host in reports if _problems(reports[host]))
    head = (
        f"{count} of {len(reports)} hosts have problems and are left untouched:" if count else "No host has problems."
    )
    return [head, *lines]


def difference_table(reports: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """One line a host and instance: what would change, or that nothing would."""
    rows = []
    for host in sorted(reports):
        report = reports[host]
        difference = report.get("difference")
        if _problems(report):
            rows.append([host, NOTHING, "left untouched", problem_codes(report)])
        elif not difference:
            rows.append([host, NOTHING, "not observed", _failure(report) or "no answer from this host"])
        else:
            rows += [[host, name, action, why] for name, action, why in _changes(difference)]
    return table(["host", "instance", "action", "why"], rows)


def plan_lines(report: Mapping[str, Any]) -> list[str]:
    """The plan of one host: the decision, its reasons, the difference and the commands, ready to read."""
    plan = report.get("plan") or {}
    lines = [f"family: {plan.get('family')}   product: {plan.get('product') or 'not known'}"]
    image = plan.get("image") or {}
    if image.get("reference"):
        lines.append(f"image: {image['reference']}")
    for item in plan.get("explain") or []:
        lines += _wrapped(f"{item['what']}: ", f"{item['why']} ({item['source']})")
    for title, entries in (("problem", _problems(report)), ("warning", plan.get("warnings") or [])):
        for entry in entries:
            lines += _wrapped(
                f"{title} [{entry['code']}]: ", f"{entry['message'].rstrip('.')}. Remedy: {entry['remedy']}"
            )
    for name, action, why in _changes(report.get("difference") or {}):
        lines.append(f"difference: {name}: {action}" + (f" ({why})" if why else ""))
    for instance in plan.get("instances") or []:
        lines.append(f"{instance['name']}: docker run: {shlex.join(instance['docker_run'])}")
        lines.append(f"{instance['name']}: vllm serve: {shlex.join(instance['serve_args'])}")
    return lines


def deployment_report(reports: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The summary of a run: one line an instance with its endpoint, or the reason why there is none."""
    rows = []
    for host in sorted(reports):
        report = reports[host]
        family = (report.get("plan") or {}).get("family") or NOTHING
        reason = problem_codes(report) or ("" if report.get("plan") else _failure(report) or "no answer from this host")
        if reason:
            rows.append([host, family, NOTHING, "failed", reason])
        else:
            rows += [[host, family, *row] for row in _endpoints(report)]
    return table(["host", "family", "instance", "result", "endpoint or reason"], rows)


def problem_codes(report: Mapping[str, Any]) -> str:
    """The codes of a host's problems, each once with its number, in the order in which they were found."""
    counts = Counter(problem["code"] for problem in _problems(report))
    return ", ".join(code if number == 1 else f"{code} x{number}" for code, number in counts.items())


def diagnosis_lines(logs: Mapping[str, Any], facts: Any = None) -> list[str]:
    """Why each instance of a host failed, the likeliest cause first, from what vllm_log_info returned."""
    kernel = [entry for entry in diagnose(logs.get("kernel") or "", facts) if entry["code"] != UNKNOWN]
    lines: list[str] = []
    for instance in logs.get("instances") or []:
        if instance.get("log") is None:
            found, empty = kernel, f"its log could not be read: {instance.get('error')}"
        else:
            own = diagnose(instance["log"], facts)
            codes = {entry["code"] for entry in own}
            found, empty = own + [e for e in kernel if e["code"] not in codes], "no failure in its log"
        lines.append(f"{instance['name']} ({instance['unit']}): " + ("" if found else empty))
        for entry in found[:MOST_CAUSES]:
            lines += cause_lines(entry)
    return lines or ["There is no instance on this host."]


def cause_lines(entry: Mapping[str, Any]) -> list[str]:
    """A cause of the filter diagnose with its evidence, remedy and source."""
    lines = _wrapped(f"  [{entry['code']}] ", entry["cause"])
    lines += [f"      {line[:WIDTH]}" for line in entry["evidence"][:MOST_LINES]]
    lines += _wrapped("    remedy: ", entry["remedy"])
    return lines + (_wrapped("    source: ", entry["source"]) if entry["source"] else [])


def _problems(report: Mapping[str, Any]) -> list[Mapping[str, str]]:
    return list(report.get("problems") or [])


def _failure(report: Mapping[str, Any]) -> str:
    failed = report.get("failed") or {}
    return str(failed.get("message") or "").strip().split("\n")[0][:WIDTH]


def _wrapped(label: str, text: str) -> list[str]:
    indent = " " * min(len(label), 8)
    return textwrap.wrap(label + " ".join(str(text).split()), WIDTH, subsequent_indent=indent, break_long_words=False)


def _changes(difference: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    changes = []
    image = difference.get("image") or {}
    if image.get("action", "none") != "none":
        changes.append(("image", str(image["action"]), str(image.get("reason") or "")))
    if difference.get("helper"):
        changes.append(("host helper", "install", "it is missing or of another version"))
    for instance in difference.get("instances") or []:
        why = "; ".join(_reason(reason) for reason in instance.get("reasons") or [])
        changes.append((str(instance["name"]), str(instance["action"]), why))
    changes += [
        (str(name), "orphan", "not in the inventory any more; left alone") for name in difference.get("orphans") or []
    ]
    return changes


def _reason(reason: Mapping[str, Any]) -> str:
    return f"{reason['field']}: {_short(reason.get('before'))} -> {_short(reason.get('after'))}"


def _short(value: Any) -> str:
    text = NOTHING if value is None else str(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _endpoints(report: Mapping[str, Any]) -> Iterable[list[str]]:
    applied = {item["name"]: item for item in (report.get("applied") or {}).get("instances") or []}
    actions = {i["name"]: i["action"] for i in (report.get("difference") or {}).get("instances") or []}
    for instance in (report.get("plan") or {}).get("instances") or []:
        name = instance["name"]
        done = applied.get(name) or {}
        endpoint = f"http://{report.get('address') or 'localhost'}:{instance['endpoint']['port']}/v1"
        if report.get("failed") and done.get("action") != "none" and done.get("outcome") not in SETTLED:
            yield [name, "failed", _failure(report)]
        elif done and done.get("action") != "none":
            would = "would " if report.get("check") and done.get("changed") else ""
            yield [name, would + str(done.get("action") or NOTHING), endpoint]
        elif done or actions.get(name) == "none":
            yield [name, "unchanged", endpoint]
        elif report.get("begun"):
            yield [name, "failed", "the connection was lost; run again to finish or undo"]
        else:
            yield [name, "not applied", f"{actions.get(name) or 'nothing'} was left out of this run"]
