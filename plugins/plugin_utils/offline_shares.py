# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who computes which prompts of an offline run, and what came of it.

A report of a host is {problems, offline, attempts}, an attempt {indexes, outputs, message, log, seconds, lost}, one a
round, lost where no answer came. Nothing here is random: the same reports give the same shares.
"""

from __future__ import annotations

import json
import shlex
import textwrap
from collections.abc import Mapping
from typing import Any

from ..module_utils.offline_job import shown_indexes
from .diagnosis import diagnose
from .plain import kind_of, plain
from .report import cause_lines, problem_codes, table

WIDTH = 110


def shares(prompts: int, reports: Any, order: Any) -> dict[str, list[int]]:
    """The indexes of prompts that each host computes next; hosts that have nothing to do are left out.

    order are the hosts in the order of the play, reports theirs by name. In the first round every host without problems
    gets a run of neighbours. Later what is still missing goes to hosts whose last share was complete, else, when none
    has been, to those that answered; one that did not is tried again where there is no other.
    """
    found, hosts = _reports(reports), plain(order)
    able = [host for host in hosts if not found.get(host, {}).get("problems", ["no answer"])]
    begun = any(found[host].get("attempts") for host in able)
    done = _done(found)
    missing = [index for index in range(prompts) if index not in done]
    if begun:
        reached = [host for host in able if not _last(found[host]).get("lost")]
        good = [host for host in reached if not _last(found[host]).get("message")]
        able = good or reached or able
    return _cut(missing, able)


def _cut(indexes: list[int], hosts: list[str]) -> dict[str, list[int]]:
    """Runs of neighbours whose lengths differ by one at most, the longer ones first."""
    if not hosts:
        return {}
    least, more = divmod(len(indexes), len(hosts))
    cut: dict[str, list[int]] = {}
    start = 0
    for number, host in enumerate(hosts):
        end = start + least + (number < more)
        if end > start:
            cut[host] = indexes[start:end]
        start = end
    return cut


def _last(report: Mapping[str, Any]) -> Mapping[str, Any]:
    attempts = report.get("attempts") or [{}]
    return attempts[-1] or {}


def _reports(reports: Any) -> dict[str, dict[str, Any]]:
    found = plain(reports)
    if not isinstance(found, dict) or not all(isinstance(report, dict) for report in found.values()):
        raise TypeError(f"the reports must be a dictionary of dictionaries by host, not of type {kind_of(found)}")
    return dict(found)


def _done(reports: Mapping[str, Mapping[str, Any]]) -> dict[int, tuple[str, dict[str, Any]]]:
    """{index: (host, result)} of every prompt that has a text."""
    return {
        result["index"]: (host, result)
        for host in sorted(reports)
        for attempt in reports[host].get("attempts") or []
        for result in attempt.get("outputs") or []
    }


def offline_result(request: Any, reports: Any, facts: Any = None) -> dict[str, Any]:
    """{complete, outputs, missing, text, lines, message} of an offline run.

    text are the results that there are as lines of JSON in the order of the prompts: index, what the prompt's entry
    had, text, finish_reason, prompt_tokens, output_tokens, host. lines are for a person: a table of hosts, then why a
    share failed. message names the prompts without a text, null when there are none. facts by host help the diagnosis.
    """
    prompts, found, known = plain(request)["prompts"], _reports(reports), plain(facts) or {}
    done = _done(found)
    missing = [index for index in range(len(prompts)) if index not in done]
    text = "".join(_line(index, prompts[index], *done[index]) + "\n" for index in sorted(done))
    lines = [f"{len(done)} of {len(prompts)} prompts have an output.", *table(*_rows(found))]
    for host in sorted(found):
        lines += _causes(host, found[host], known.get(host))
    message = None
    if missing:
        count = len(missing)
        message = f"{count} of {len(prompts)} prompts {'has' if count == 1 else 'have'} no output: "
        message += shown_indexes(missing)
    return {
        "complete": not missing,
        "outputs": len(done),
        "missing": missing,
        "text": text,
        "lines": lines,
        "message": message,
    }


def _line(index: int, prompt: dict[str, Any], host: str, result: dict[str, Any]) -> str:
    return json.dumps({"index": index, **prompt, **result, "host": host}, ensure_ascii=False)


def _rows(reports: Mapping[str, Mapping[str, Any]]) -> tuple[list[str], list[list[str]]]:
    rows = []
    for host in sorted(reports):
        report = reports[host]
        codes = problem_codes(report) or ("" if report.get("problems") == [] else "no answer from this host")
        for attempt in report.get("attempts") or []:
            indexes, outputs = attempt.get("indexes") or [], attempt.get("outputs") or []
            state = "failed" if attempt.get("message") else "done"
            why = str(attempt.get("message") or f"{attempt.get('seconds')} s")
            rows.append([host, shown_indexes(indexes), str(len(outputs)), state, _short(why)])
        if not report.get("attempts"):
            rows.append([host, "-", "-", "left out" if codes else "not needed", _short(codes)])
    return ["host", "share", "outputs", "result", "time or reason"], rows


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= WIDTH else f"{line[: WIDTH - 3]}..."


def _causes(host: str, report: Mapping[str, Any], facts: Any) -> list[str]:
    """Why the shares of a host failed, the likeliest cause of each."""
    lines: list[str] = []
    for attempt in report.get("attempts") or []:
        if not attempt.get("message"):
            continue
        lines.append(f"{host}: {attempt['message']}")
        for entry in diagnose(attempt.get("log") or "", facts)[:1]:
            lines += cause_lines(entry)
    return lines


def request_problems(request: Any, reports: Any) -> list[dict[str, str]]:
    """What is wrong with the whole run: the request's problems, no host that can work, hosts with different models."""
    found = _reports(reports)
    problems = list(plain(request)["problems"])
    able = {host: report for host, report in found.items() if report.get("problems") == []}
    models: dict[str, list[str]] = {}
    for host in sorted(able):
        models.setdefault(str(((able[host].get("offline") or {}).get("job") or {}).get("model")), []).append(host)
    if len(models) > 1:
        named = "; ".join(f"{model} on {', '.join(hosts)}" for model, hosts in models.items())
        problems.append({
            "code": "offline_models_differ",
            "message": f"one list of prompts would be shared by hosts with different models: {named}",
            "remedy": "Set vllm_model, or choose hosts of one model with --limit.",
        })  # fmt: skip
    if not able:
        problems.append({
            "code": "offline_no_host",
            "message": "no host can run a part of the prompts",
            "remedy": "Mend the hosts' problems, which are listed, or choose other hosts with --limit.",
        })  # fmt: skip
    return problems


def offline_lines(reports: Any, request: Any, given: Any, check: bool = False) -> list[str]:
    """What is to be said before a run: problems and warnings, who computes what, and with check the commands.

    given are the shares of the first round.
    """
    found, plans = _reports(reports), plain(given)
    wrong = request_problems(request, found)
    lines = ["Nothing is run:"] * bool(wrong)
    lines += [line for entry in wrong for line in _entry("", entry)]
    for host in sorted(found):
        for entry in found[host].get("problems") or []:
            lines += _entry(f"{host}  ", entry)
    warnings: dict[str, tuple[dict[str, str], list[str]]] = {}
    for host in sorted(found):
        for entry in (found[host].get("offline") or {}).get("warnings") or []:
            warnings.setdefault(json.dumps(entry), (entry, []))[1].append(host)
    for entry, hosts in warnings.values():
        lines += _entry(f"warning for {', '.join(hosts)}  ", entry)
    for entry in plain(request).get("warnings") or []:
        lines += _entry("warning  ", entry)
    if wrong:
        return lines
    rows = [[host, *_share(plans.get(host), found[host])] for host in sorted(found)]
    lines += table(["host", "share", "NPUs", "image"], rows)
    for host in sorted(plans) if check else []:
        job = found[host]["offline"]["job"]
        arguments = ", ".join(f"{name}={value!r}" for name, value in job["engine"].items())
        lines += [f"{host}: {shlex.join(job['argv'])}", f"{host}: LLM({arguments})"]
    return lines + ["Check mode: nothing is run."] * check


def _share(indexes: list[int] | None, report: Mapping[str, Any]) -> list[str]:
    job = (report.get("offline") or {}).get("job")
    if job is None:
        return ["left out", "-", "-"]
    fetched = " (fetched first)" if report.get("fetch") else ""
    return [shown_indexes(indexes) if indexes else "not needed", ", ".join(job["npus"]), job["image"] + fetched]


def _entry(before: str, entry: Mapping[str, str]) -> list[str]:
    text = f"{before}[{entry['code']}] {entry['message']}"
    first = textwrap.wrap(text, WIDTH, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)
    remedy = f"remedy: {entry['remedy']}"
    return first + textwrap.wrap(remedy, WIDTH, initial_indent="    ", subsequent_indent="      ")
