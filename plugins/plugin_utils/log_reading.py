# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lines of a log as they were printed: without what journal, engine, terminal and vLLM put before them.

Forms that are understood: journalctl (short, iso, with-unit, json), syslog, `docker logs -t`, docker's json-file,
CRI, compose, kernel messages, vLLM 0.7 to 0.32, Ray, uvicorn, torch and CANN.
"""

from __future__ import annotations

import json
import re
from typing import NamedTuple

# A log is cut to this: the first part has the root of a single failure, the last part the newest one.
MAX_CHARS, MAX_LINES, MAX_LINE = 2_500_000, 30_000, 3_000

_CONTROL = re.compile(
    r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]{0,200}(?:\x07|\x1b\\)|\x1b[@-_]|[\x00-\x08\x0b-\x1a]"
)
_BREAK = re.compile(r"\r\n|\n|\r|\x0b|\x0c|\x85|\u2028|\u2029")
_IDENT = r"(?P<ident>[A-Za-z_][\w@.:/\\-]{0,80}?(?=\[\d)|kernel)(?:\[\d+\])?: ?"
_PREFIXES = (
    # Nov 30 17:24:02 host vllm-ascend[123]:
    re.compile(rf"[A-Z][a-z]{{2}} [ \d]\d \d\d:\d\d:\d\d(?:\.\d+)? \S{{1,80}} {_IDENT}"),
    # Mon 2026-11-30 17:24:02 UTC host vllm-ascend.service[123]:
    re.compile(rf"[A-Z][a-z]{{2}} \d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)? \S{{1,12}} (?:\S{{1,80}} )?{_IDENT}"),
    # 2026-11-30T17:24:02+0000 host vllm-ascend[123]:
    re.compile(rf"\d{{4}}-\d\d-\d\dT[\d:.,]{{8,20}}(?:Z|[+-]\d\d:?\d\d) (?!std)\S{{1,80}} {_IDENT}"),
    # 2026-11-30T17:24:02.1Z stderr F
    re.compile(r"\d{4}-\d\d-\d\dT[\d:.,]{8,30}(?:Z|[+-]\d\d:?\d\d)? ?(?:std(?:out|err) [FP] )?"),
    # [  12.345678] host systemd[1]:
    re.compile(rf"\[ {{0,8}}\d+\.\d{{6}}\] \S{{1,80}} {_IDENT}"),
    # [  12.345678] of the kernel
    re.compile(r"\[ {0,8}\d+\.\d{6}\] "),
    # systemd[1]: or vllm-ascend[123]:
    re.compile(r"(?P<ident>[a-z][\w@.-]{1,60})\[\d+\]: ?"),
    # service-1  | of compose
    re.compile(r"[a-z][\w.-]{1,60} {1,20}\| ?"),
)
# (EngineCore pid=123), (Worker_TP0 pid=1, ip=10.0.0.1), [rank0]:
_TAG = re.compile(
    r"\((?P<tag>[A-Za-z][\w.-]{0,60}(?: rank=\d+)? pid=\d+(?:, ip=[\w.:]+)?)\) ?|(?P<rank>\[rank\d+\]): ?"
)
_LEVELS = (
    # INFO 11-30 17:24:02 [core.py:113] and INFO 05-29 20:52:26 worker_base.py:581]
    re.compile(
        r"(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL) +\d\d-\d\d \d\d:\d\d:\d\d(?:[.,]\d+)? "
        r"(?:\[[^\]]{1,120}\]|[\w.-]{1,80}:\d+\]) ?"
    ),
    # INFO:     of uvicorn, and WARNING:root: of logging
    re.compile(r"(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL):(?: +|[\w.]{1,60}:)"),
    # 2025-03-26 11:48:53 - INFO - module -
    re.compile(
        r"\[?\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:[.,]\d+)?\]? ?(?:-|\|) ?(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL)\b *"
        r"(?:-|\|) ?"
    ),
)
# These keep their text: the rest of the line is the message.
_MARKS = (
    # [ERROR] HCCL(123,python):2025-...
    re.compile(r"\[(?P<level>DEBUG|INFO|EVENT|WARNING|ERROR)\] ?[A-Z_]{2,12}\(\d"),
    # [W1130 16:35:03.4 utils.cpp:68] and W1130 16:46:43 4 torch/..
    re.compile(r"\[?(?P<level>[IWEF])\d{3,4} \d\d:\d\d:\d\d\.\d+ "),
    # time="..." level=error msg=
    re.compile(r'time="[^"]{1,60}" level=(?P<level>\w+)'),
)
_QUIET = frozenset({"DEBUG", "INFO", "EVENT", "WARNING", "I", "W", "info", "warning", "debug", "trace"})
_ERROR = frozenset({"ERROR", "CRITICAL", "E", "F", "error", "fatal", "panic"})
# torch_npu warns with the text of an error that CANN returned.
_CANN_ERROR = re.compile(r"\bE[A-Z]\d{4}\b|\bE\d{5}\b")
_PYTHON_WARNING = re.compile(r"\S{1,200}:\d+: \w*Warning: ")

_READY = "Application startup complete"
_STOPS = re.compile(r"\[shutdown\] (?:API server: shutdown triggered|EngineCore: trigger received signal)")
_SYSTEMD_STOPS = re.compile(r"Stopping .{0,200}(?:vllm|docker)", re.IGNORECASE)
# Other units start at any time: only those of a service like this one begin a new start.
_START = re.compile(r"(?:\S+: )?Scheduled restart job|(?:Starting|Stopped) .{0,200}(?:vllm|docker)", re.IGNORECASE)
_BANNER = re.compile(r"█ +version \d|vLLM API server version \d")
# What a group of exceptions has before its lines.
_GROUPED = re.compile(r"^ {2,40}(?:\| ?|\+[-+]+ ?)")
_TRACEBACK = "Traceback (most recent call last):"
_FRAME = re.compile(r' {2,}(?:\+ +)?(?:File "|\[Previous line repeated)| {4,}\S| {0,12}[\^~]+\s*$')
_CHAIN = re.compile(r"During handling of the above exception|The above exception was the direct cause")


class Line(NamedTuple):
    """A line of a log."""

    place: int
    shown: str  # as it stands in the log, without colours and wrappers: for people
    text: str  # without everything before the message: for patterns
    process: str  # what vLLM calls the process, "" when unknown
    source: str  # service, systemd, kernel, engine or "" when unknown
    quiet: bool  # INFO, WARNING and below
    error: bool  # marked as an error
    frame: bool  # a source line of a Python traceback
    raised: bool  # the line that ends a traceback: the exception
    ready: bool
    stops: bool
    starts: bool
    vllm: bool  # printed by vLLM itself


def read(text: str) -> list[Line]:
    """The lines of a text, cleaned; those of a huge text without its middle."""
    if len(text) > MAX_CHARS:
        text = text[: MAX_CHARS // 3] + "\n" + text[-2 * MAX_CHARS // 3 :]
    raw = [piece for piece in _BREAK.split(text) if piece]
    if len(raw) > MAX_LINES:
        raw = raw[: MAX_LINES // 3] + raw[-2 * MAX_LINES // 3 :]
    lines: list[Line] = []
    inside: dict[str, bool] = {}
    banners = 0
    for piece in raw:
        for part in _unwrapped(piece):
            line = _line(len(lines), part, inside)
            if _BANNER.search(line.text):
                banners += 1
                line = line._replace(starts=line.starts or banners > 1)
            lines.append(line)
    return lines


def attempts(lines: list[Line]) -> list[list[Line]]:
    """The lines of each start of the service, the first start first."""
    groups: list[list[Line]] = [[]]
    for line in lines:
        if line.starts and groups[-1]:
            groups.append([])
        groups[-1].append(line)
    return [group for group in groups if group]


def _unwrapped(piece: str) -> list[str]:
    """The message of a line that docker's json-file or journalctl -o json wrote; else the line itself."""
    if piece.startswith("{") and ('"log"' in piece[:12] or '"MESSAGE"' in piece):
        try:
            record = json.loads(piece)
        except ValueError:
            record = None
        if isinstance(record, dict):
            message = record.get("log", record.get("MESSAGE"))
            if isinstance(message, str):
                name = record.get("SYSLOG_IDENTIFIER")
                before = f"{name}[1]: " if isinstance(name, str) and name.isascii() else ""
                return [before + part for part in _BREAK.split(message) if part]
    return [piece]


def _line(place: int, piece: str, inside: dict[str, bool]) -> Line:
    if len(piece) > MAX_LINE:
        piece = f"{piece[: MAX_LINE - 1000]} ... {piece[-1000:]}"
    shown = text = _CONTROL.sub("", piece).rstrip()
    source = ""
    for prefix in _PREFIXES:
        found = prefix.match(text)
        if found:
            source = _source(found.groupdict().get("ident"))
            text = text[found.end() :]
            if source == "kernel":
                text = _PREFIXES[5].sub("", text, count=1)
            break
    process = ""
    for _ in range(3):
        tag = _TAG.match(text)
        if not tag:
            break
        process = tag["tag"] or process or tag["rank"]
        text = text[tag.end() :]
    text = _GROUPED.sub("", text)
    level, vllm = "", bool(process)
    for form in _LEVELS:
        found = form.match(text)
        if found:
            level, text = found["level"], text[found.end() :]
            vllm = True
            break
    else:
        for mark in _MARKS:
            found = mark.match(text)
            if found:
                level = found["level"]
                break
    quiet = level in _QUIET or (not level and bool(_PYTHON_WARNING.match(text)))
    if quiet and level in ("W", "WARNING") and _CANN_ERROR.search(text):
        quiet = False
    frame = raised = False
    if _TRACEBACK in text:
        inside[process] = frame = True
    elif inside.get(process):
        if not text or _FRAME.match(text) or _CHAIN.match(text):
            frame = True
        elif not quiet:
            raised, inside[process] = True, False
    return Line(
        place=place,
        shown=shown,
        text=text,
        process=process,
        source=source,
        quiet=quiet,
        error=level in _ERROR,
        frame=frame,
        raised=raised,
        ready=_READY in text,
        stops=bool(_STOPS.search(text)) or (source == "systemd" and bool(_SYSTEMD_STOPS.match(text))),
        starts=source in ("systemd", "") and bool(_START.match(text)) and not vllm,
        vllm=vllm,
    )


def _source(ident: str | None) -> str:
    if ident is None:
        return ""
    name = ident.rsplit("/", 1)[-1]
    if name.startswith("systemd"):
        return "systemd"
    if name == "kernel":
        return "kernel"
    return "engine" if name in ("dockerd", "containerd") else "service"
