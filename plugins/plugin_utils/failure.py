# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a failed task means: what failed, on which host, at which step, the likeliest causes, and what is there now."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .diagnosis import UNKNOWN, diagnose
from .report import MOST_CAUSES, cause_lines, problem_codes

# Steps of a transaction whose failure is told by the log of the unit itself.
BY_THE_UNIT = ("start", "restart", "prove")
# Outcomes of a transaction that ended as it should.
SETTLED = ("committed", "unchanged", None)
TEXTS = ("msg", "module_stderr", "module_stdout", "stderr", "stdout", "output", "log")


def failure_report(
    result: Mapping[str, Any], host: str, step: str, logs: Mapping[str, Any] | None = None, facts: Any = None
) -> dict[str, Any]:
    """The failure {host, step, message, causes} of a task's result (ansible_failed_result) on a host.

    step is the task's name; logs are what vllm_log_info returned of the instances since the task began, null when they
    were not read; facts are ansible_facts.ascend_npu. message is ready to read: the task's own first, then the causes
    and remedies.
    """
    own = str(result.get("msg") or "").strip() or "no message"
    where = f"{step} ({result['failed_step']})" if result.get("failed_step") else step
    causes = _causes(result, logs, facts)
    lines = [own, f"on {host}, in: {where}"]
    for cause in causes:
        lines += cause_lines(cause)
    lines += [f"The log of {one['unit']} could not be read: {one['error']}" for one in _unread(logs)]
    return {"host": host, "step": where, "message": "\n".join(lines), "causes": causes}


def failed_instances(result: Mapping[str, Any]) -> list[str]:
    """The names of the instances whose logs may tell why: those that did not end as they should."""
    return [
        str(one["name"])
        for one in result.get("instances") or []
        if isinstance(one, Mapping) and one.get("name") and one.get("outcome") not in SETTLED
    ]


def failure_message(report: Mapping[str, Any]) -> str:
    """Why a host ended as failed: its failure, else its first problem in full and the codes of all."""
    failed = report.get("failed") or {}
    if failed:
        return str(failed.get("message") or "no message")
    problems = list(report.get("problems") or [])
    if not problems:
        return ""
    first = problems[0]
    text = f"[{first['code']}] {first['message'].rstrip('.')}. Remedy: {first['remedy']}"
    return text if len(problems) == 1 else f"{text} All problems: {problem_codes(report)}."


def _causes(result: Mapping[str, Any], logs: Mapping[str, Any] | None, facts: Any) -> list[dict[str, Any]]:
    """The likeliest causes: first of the log where the unit failed, else of the task; unknown only where both are."""
    printed = [one.get("output") for one in result.get("instances") or [] if isinstance(one, Mapping)]
    texts = [str(text) for text in [*printed, *(result.get(key) for key in TEXTS)] if text]
    said = diagnose("\n".join(texts), facts)
    read = [
        entry for one in (logs or {}).get("instances") or [] if one.get("log") for entry in diagnose(one["log"], facts)
    ]
    kernel = diagnose(str((logs or {}).get("kernel") or ""), facts)
    first, second = (read, said) if result.get("failed_step") in BY_THE_UNIT else (said, read)
    known = [entry for entry in [*first, *second, *kernel] if entry["code"] != UNKNOWN]
    unknown = [entry for entry in [*first, *second] if entry["code"] == UNKNOWN]
    unique = list({entry["code"]: entry for entry in reversed(known)}.values())[::-1]
    return unique[:MOST_CAUSES] or unknown[:1]


def _unread(logs: Mapping[str, Any] | None) -> list[Mapping[str, Any]]:
    return [one for one in (logs or {}).get("instances") or [] if one.get("log") is None and one.get("error")]
