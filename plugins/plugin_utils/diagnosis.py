# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Why a service failed, read from its log: the root cause, not the last line.

What is known stands in signatures/*.yml, one block an entry; how a log is read stands here:

- Lines lose what the engine, the journal and vLLM put before them (log_reading), and repeated starts are told apart:
  the last start that failed is the one to explain.
- Lines that say nothing about a cause are left out: noise of the table, source lines of Python tracebacks, INFO and
  WARNING lines (but for entries with any_level), what came before a server that became ready, what a stop prints.
- Of the entries that match, a cause goes before something general, and that before a symptom; of equals the first in
  time, since what fails later usually fails because of it. A consequence is never an answer.
"""

from __future__ import annotations

import bisect
import functools
import itertools
import pathlib
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import yaml

from . import plain
from .log_reading import Line, attempts, read

FOLDER = pathlib.Path(__file__).resolve().parent / "signatures"
LAYERS = (
    "container engine",
    "systemd and host",
    "image and entrypoint",
    "driver and CANN",
    "HCCL",
    "torch_npu",
    "vllm options",
    "vllm models and hub",
    "vllm engine",
    "vllm_ascend",
    "noise",
)
# How near to the root an entry is. A consequence says that something failed, never why; noise says nothing.
RANKS = ("noise", "consequence", "symptom", "general", "cause")
_CONSEQUENCE, _SYMPTOM = RANKS.index("consequence"), RANKS.index("symptom")
# Fallen away once vLLM itself has spoken: then the container was started after all.
_BEFORE_VLLM = frozenset(LAYERS[:3])
UNKNOWN = "unknown"
MAX_EVIDENCE, MAX_FINDINGS, MAX_WIDTH, MAX_ATTEMPTS = 4, 5, 400, 60
# What is searched of one start; a log is never longer in practice, but must not cost more than a second.
_HEAD, _TAIL = 250_000, 150_000
_MAX_MATCHES, _MAX_PLACES = 100, 500
# Lines before and after a word that a pattern over several lines may reach.
_SPAN = 4
# A shorter word is in most lines.
_SHORTEST = 3

_TOKEN = re.compile(
    r"\b(hf_|sk-|ms-|ghp_|gho_|glpat-)[\w-]{8,}|\b(Bearer|Basic)\s+[\w.~+/=-]{6,}"
    r"|((?:api[-_]?keys?|hf_token|token|password|passwd|secret|access[-_]?key)['\"]?\s{0,3}[:=]\s{0,3}\[?['\"]?)"
    r"(?!none\b|null\b|true\b|false\b)[^\s'\",;)\]}]{4,}",
    re.IGNORECASE,
)
_OPENING = re.compile(r"\?(?:P<\w+>|[:=!]|<[=!]|[aiLmsux-]+:)")
_REPEAT = re.compile(r"(?:[?*+]|\{\d*,?\d*\})[?+]?")
_OTHER = re.compile(r"[^\x00-\x7f]")
_CLASS = re.compile(r"\[\^?\]?(?:[^\]\\]|\\.)*\]")
_GROUP = re.compile(r"\{(\w+)(?:\|([^{}]*))?\}")
_EXCEPTION = re.compile(
    r"[A-Za-z_][\w.]{0,120}(?:Error|Exception|Exit|Interrupt|Timeout|Failure|NotFound|Warning)\b(?::.*)?$"
)
# An exception of another name: only where a traceback has just ended.
_ANY_EXCEPTION = re.compile(r"[A-Za-z_][\w.]{0,120}(?::.*)?$")
_TELLING = re.compile(
    r"^[\w.]{0,80}(?:Error|Exception): |^\W{0,3}(?:\S{1,60}: )?(?:fatal|panic|error)\b|"
    r"\berror(?: response)?:|\bfailed\b|core dumped|\bcannot\b",
    re.I,
)
_EXITED = re.compile(r"(?:main|control) process exited|exited with code [1-9]", re.I)


class Signature(NamedTuple):
    """An entry of the table; patterns are regular expressions over cleaned lines, in any case, "^" and "$" at lines."""

    code: str
    layer: str
    rank: int
    cause: str
    remedy: str
    source: str
    patterns: tuple[str, ...]
    all_of: tuple[str, ...]
    none_of: tuple[str, ...]
    any_level: bool
    in_shutdown: bool
    consequence_of: tuple[str, ...]
    facts: tuple[tuple[dict[str, list[Any]], str], ...]


class _Hit(NamedTuple):
    signature: Signature
    first: int  # index of the line
    groups: dict[str, str]
    lines: list[int]


class _Text:
    """Lines of one start as one text, those of a process together, so that a pattern may span lines."""

    def __init__(self, lines: Iterable[Line]) -> None:
        # What repeats itself (retries, floods) is searched once.
        single: dict[tuple[str, str], Line] = {}
        for line in lines:
            single.setdefault((line.process, line.text), line)
        ordered = _bounded(sorted(single.values(), key=lambda line: (line.process, line.place)))
        self._indexes = [line.place for line in ordered]
        self._text = "\n".join(line.text for line in ordered)
        # Lower case must not change a length: some letters of other scripts become two.
        self._lower = _OTHER.sub(" ", self._text).lower()
        self._starts = [0]
        for line in ordered:
            self._starts.append(self._starts[-1] + len(line.text) + 1)
        self._with: dict[str, list[int]] = {}

    def has(self, pattern: str) -> bool:
        """True when the pattern matches somewhere."""
        return next(self.find(pattern), None) is not None

    def find(self, pattern: str) -> Iterator[tuple[int, list[int], dict[str, str]]]:
        """Each match: the index of its first line, those of all its lines, its named groups."""
        for match in itertools.islice(self._matches(pattern, _MAX_PLACES), _MAX_MATCHES):
            first = bisect.bisect_right(self._starts, match.start()) - 1
            last = bisect.bisect_right(self._starts, max(match.start(), match.end() - 1)) - 1
            groups = {name: value.strip() for name, value in match.groupdict().items() if value and value.strip()}
            yield self._indexes[first], self._indexes[first : last + 1], groups

    def lines(self, pattern: str) -> Iterator[str]:
        """The text of every line that a match begins in."""
        for match in self._matches(pattern, sys.maxsize):
            first = bisect.bisect_right(self._starts, match.start()) - 1
            yield self._text[self._starts[first] : self._starts[first + 1] - 1]

    def _matches(self, pattern: str, places: int) -> Iterator[re.Match[str]]:
        """The matches; only near words that the pattern needs, which is what makes a large table cheap."""
        if not self._indexes:
            return
        needed = words(pattern)
        if not needed:
            yield from _compiled(pattern).finditer(self._text)
            return
        around = _SPAN if "\\n" in pattern else 0
        for number in sorted({number for word in needed for number in self._lines_with(word)[:places]}):
            start = self._starts[max(0, number - around)]
            end = self._starts[min(number + around + 1, len(self._indexes))] - 1
            yield from _compiled(pattern).finditer(self._text, start, end)

    def _lines_with(self, word: str) -> list[int]:
        if word not in self._with:
            found: list[int] = []
            place = self._lower.find(word)
            while place >= 0:
                number = bisect.bisect_right(self._starts, place) - 1
                found.append(number)
                place = self._lower.find(word, self._starts[number + 1])
            self._with[word] = found
        return self._with[word]


def diagnose(
    text: str, facts: Mapping[str, Any] | None = None, signatures: Sequence[Signature] | None = None
) -> list[dict[str, Any]]:
    """The causes that a log shows: [{code, cause, evidence, remedy, source}], the likeliest first.

    text is what the unit, the container or a command printed. facts (`ansible_facts.ascend_npu`) add what they
    explain to a cause; null: nothing is added. signatures: null for those of the collection.
    A log without any failure gives []; a failure that no entry explains gives the code "unknown", whose evidence are
    the lines that matter. Logins, API keys and tokens are masked in all that is returned.
    TypeError when text is not a text or facts are not a dictionary.
    """
    if not isinstance(text, str):
        raise TypeError(f"a log is a text, not {plain.kind_of(text)}")
    if facts is not None and not isinstance(facts, Mapping):
        raise TypeError(f"facts are a dictionary, not {plain.kind_of(facts)}")
    table = shipped() if signatures is None else signatures
    lines = read(text)
    fallback: list[dict[str, Any]] = []
    for attempt in list(reversed(attempts(lines)))[:MAX_ATTEMPTS]:
        found, sure = _explain(attempt, lines, facts or {}, table)
        if sure:
            return found
        fallback = fallback or found
    return fallback


def _explain(
    attempt: list[Line], lines: list[Line], facts: Mapping[str, Any], table: Sequence[Signature]
) -> tuple[list[dict[str, Any]], bool]:
    """The findings of one start, and whether they say why (not only that) it failed."""
    telling = _telling(attempt)
    noise: set[str] = set()
    after: set[str] = set()
    for level in (False, True):
        text = _Text(line for line, quiet, _stopping in telling if quiet == level)
        for signature in table:
            if signature.rank <= _CONSEQUENCE:
                said = (after if signature.rank else noise).update
                said(word for pattern in signature.patterns for word in text.lines(pattern))
    kept = [(line, quiet, stopping) for line, quiet, stopping in telling if line.text not in noise]
    texts: dict[tuple[bool, bool], _Text] = {}

    def text_for(any_level: bool, in_shutdown: bool) -> _Text:
        key = (any_level, in_shutdown)
        if key not in texts:
            texts[key] = _Text(
                line for line, quiet, stopping in kept if (any_level or not quiet) and (in_shutdown or not stopping)
            )
        return texts[key]

    whole = _Text(line for line in attempt if not line.quiet)
    began = next((line.place for line in attempt if line.vllm), None)
    hits = []
    for signature in table:
        if signature.rank > _CONSEQUENCE:
            hit = _match(signature, text_for(signature.any_level, signature.in_shutdown), whole)
            obsolete = hit and began is not None and hit.first < began and signature.layer in _BEFORE_VLLM
            if hit and not obsolete:
                hits.append(hit)
    codes = {hit.signature.code for hit in hits}
    hits = [hit for hit in hits if not codes.intersection(hit.signature.consequence_of)]
    hits.sort(key=lambda hit: (-hit.signature.rank, hit.first, LAYERS.index(hit.signature.layer)))
    if hits and hits[0].signature.rank > _SYMPTOM:
        # Something general after the cause is what the cause led to.
        top = hits[0]
        hits = [
            hit
            for hit in hits
            if hit.signature.rank == top.signature.rank or (hit.signature.rank > _SYMPTOM and hit.first < top.first)
        ]
        return [_finding(hit, lines, facts) for hit in _distinct(hits)], True
    errors = [line for line, quiet, stopping in kept if not quiet and not stopping]
    unknown = _unknown(errors, after, lines)
    symptoms = [_finding(hit, lines, facts) for hit in _distinct(hits)]
    if unknown and not (hits and (hits[0].first <= unknown[0] or not unknown[2])):
        return [unknown[1], *symptoms], unknown[2]
    return symptoms, False


def _telling(attempt: list[Line]) -> list[tuple[Line, bool, bool]]:
    """(line, quiet, stopping) of the lines that may tell a cause: no source lines, nothing before the server was ready.

    quiet: an INFO or WARNING line; stopping: printed after the server was asked to stop.
    """
    ready = next((line.place for line in attempt if line.ready), -1)
    told, stopping = [], False
    for line in attempt:
        stopping = stopping or line.stops
        if line.place > ready and not line.frame and line.text:
            told.append((line, line.quiet, stopping and line.source in ("", "service", "systemd")))
    return told


def _match(signature: Signature, text: _Text, whole: _Text) -> _Hit | None:
    """The first match in time of any pattern, with the lines of all matches; None when there is none."""
    found = [match for pattern in signature.patterns for match in text.find(pattern)]
    if not found:
        return None
    if not all(whole.has(pattern) for pattern in signature.all_of):
        return None
    if any(whole.has(pattern) for pattern in signature.none_of):
        return None
    # Of matches in the same line the one that names most.
    found.sort(key=lambda match: (match[0], -len(match[2])))
    first, lines, groups = found[0]
    for _, more, other in found[1:]:
        lines = lines + more
        groups = {**other, **groups}
    return _Hit(signature, first, groups, lines)


def _distinct(hits: list[_Hit]) -> list[_Hit]:
    """One hit a code; several entries may share a code."""
    seen: set[str] = set()
    kept = []
    for hit in hits:
        if hit.signature.code not in seen:
            seen.add(hit.signature.code)
            kept.append(hit)
    return kept[:MAX_FINDINGS]


def _finding(hit: _Hit, lines: list[Line], facts: Mapping[str, Any]) -> dict[str, Any]:
    signature = hit.signature
    cause = " ".join([signature.cause, *(say for when, say in signature.facts if _holds(when, facts))])
    return {
        "code": signature.code,
        "cause": _filled(cause, hit.groups),
        "evidence": _evidence(hit.lines, lines),
        "remedy": _filled(signature.remedy, hit.groups),
        "source": signature.source,
    }


def _holds(when: Mapping[str, list[Any]], facts: Mapping[str, Any]) -> bool:
    """True when every fact, named by a dotted path, has one of the values; "any": it is there and not empty."""
    for path, values in when.items():
        value: Any = facts
        for key in path.split("."):
            value = value.get(key) if isinstance(value, Mapping) else None
        if value not in values and not ("any" in values and value):
            return False
    return True


def _filled(text: str, groups: Mapping[str, str]) -> str:
    """The text with {name} or {name|what to say without it} replaced by what the pattern found."""
    full = _GROUP.sub(lambda part: groups.get(part[1]) or part[2] or "", text)
    return _masked(" ".join(full.split()).replace(" .", ".").replace(" ,", ","))


def _evidence(indexes: Iterable[int], lines: list[Line]) -> list[str]:
    shown: list[str] = []
    for index in indexes:
        line = _masked(lines[index].shown)[:MAX_WIDTH]
        if line and line not in shown:
            shown.append(line)
        if len(shown) == MAX_EVIDENCE:
            break
    return shown


def _masked(text: str) -> str:
    """The text without logins, API keys and tokens."""

    def hidden(found: re.Match[str]) -> str:
        return f"{found.group(1) or found.group(3) or (found.group(2) or '') + ' '}{plain.HIDDEN}"

    return _TOKEN.sub(hidden, plain.masked(text))


def _unknown(errors: list[Line], after: set[str], lines: list[Line]) -> tuple[int, dict[str, Any], bool] | None:
    """The finding for a failure that nothing explains: its first line, itself, and whether a root is in the log.

    None when the lines show no failure.
    """
    ended = [line.place for line in errors if _EXITED.search(line.text)]
    raised = [line for line in errors if line.raised and _EXCEPTION.match(line.text)]
    raised = raised or [line for line in errors if line.raised and _ANY_EXCEPTION.match(line.text)]
    roots = [line.place for line in raised if line.text not in after]
    if not roots:
        roots = [line.place for line in errors if line.error and line.text not in after and line.place not in ended]
    if not roots:
        roots = [
            line.place
            for line in errors
            if _TELLING.search(line.text) and line.text not in after and line.place not in ended
        ]
    if roots:
        shown = [roots[0], *roots[-2:], *ended[-1:]]
        remedy = (
            "Look for the first of these lines in the public issues of vLLM Ascend and vLLM, and keep the whole log."
        )
        return roots[0], _said(shown, lines, "The service failed for a reason that is not known here.", remedy), True
    rest = sorted({line.place for line in errors if line.text in after} | set(ended))
    if rest:
        cause = "The log shows that something failed, but no known cause: the lines that say why are not in it."
        remedy = (
            "Get the lines before these: journalctl -u UNIT, or docker logs CONTAINER, without a limit of lines; the "
            "driver's own log is below /root/ascend/log in the container."
        )
        return rest[0], _said([rest[0], *rest[-2:]], lines, cause, remedy), False
    return None


def _said(indexes: list[int], lines: list[Line], cause: str, remedy: str) -> dict[str, Any]:
    return {
        "code": UNKNOWN,
        "cause": cause,
        "evidence": _evidence(indexes, lines),
        "remedy": remedy,
        "source": "",
    }


def _bounded(lines: list[Line]) -> list[Line]:
    """The lines, without the middle when there are too many of them."""
    if sum(len(line.text) for line in lines) <= _HEAD + _TAIL:
        return lines
    head, tail, size = [], [], 0
    for line in lines:
        size += len(line.text)
        if size > _HEAD:
            break
        head.append(line)
    size = 0
    for line in reversed(lines[len(head) :]):
        size += len(line.text)
        if size > _TAIL:
            break
        tail.append(line)
    return head + tail[::-1]


@functools.lru_cache(maxsize=4096)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE | re.MULTILINE)


@functools.lru_cache(maxsize=4096)
def words(pattern: str) -> frozenset[str]:
    """Words in lower case of which every match of the pattern contains one; none when that is not plain to see."""
    needed, _place = _needed(pattern, 0)
    return needed


def _needed(pattern: str, place: int) -> tuple[frozenset[str], int]:
    """The words that an alternation needs, and where it ends (after its bracket, or at the end)."""
    branches: list[frozenset[str]] = []
    parts: list[frozenset[str]] = []
    run = ""

    def close(kept: str) -> None:
        if kept.isascii() and kept:
            parts.append(frozenset([kept.lower()]))

    while place < len(pattern) and pattern[place] != ")":
        char, group = pattern[place], None
        place += 1
        if char == "|":
            close(run)
            branches, parts, run = [*branches, _rarest(parts)], [], ""
            continue
        if char == "(":
            opening = _OPENING.match(pattern, place)
            group, place = _needed(pattern, opening.end() if opening else place)
            if opening and opening[0][1] in "=!<" and opening[0][:3] != "?P<":
                group = frozenset()
        elif char == "[":
            place = _CLASS.match(pattern, place - 1).end()  # type: ignore[union-attr]  # because it matches at "["
            char = ""
        elif char == "\\":
            char, place = ("" if pattern[place].isalnum() else pattern[place]), place + 1
        elif char in ".^$":
            char = ""
        repeat = _REPEAT.match(pattern, place)
        if group is None and char and not repeat:
            run += char
            continue
        optional = repeat and (repeat[0][0] in "?*" or repeat[0].startswith(("{0", "{,")))
        if group is None and char and not optional:
            close(run + char)
        else:
            close(run)
        run = ""
        if group and not optional:
            parts.append(group)
        place = repeat.end() if repeat else place
    close(run)
    branches.append(_rarest(parts))
    return (frozenset().union(*branches) if all(branches) else frozenset()), place + 1


def _rarest(parts: list[frozenset[str]]) -> frozenset[str]:
    """Of the words that a match needs those that are likely to be in the fewest lines: the longest."""
    known = [part for part in parts if part and min(map(len, part)) >= _SHORTEST]
    return max(known, key=lambda part: (min(map(len, part)), -len(part)), default=frozenset())


def signature_of(entry: Mapping[str, Any]) -> Signature:
    """An entry of a file as a Signature. ValueError or LookupError when it is not in order."""
    known = {"code", "layer", "rank", "cause", "remedy", "source", "patterns", "all_of", "none_of", "any_level"}
    known |= {"in_shutdown", "consequence_of", "facts", "sample", "not"}
    strange = sorted(set(entry) - known)
    if strange:
        raise ValueError(f"an entry has no {plain.listed(strange)}")
    rank = RANKS.index(entry.get("rank", "noise" if entry["layer"] == "noise" else "cause"))
    LAYERS.index(entry["layer"])
    quiet = rank <= _CONSEQUENCE
    return Signature(
        code=entry["code"],
        layer=entry["layer"],
        rank=rank,
        cause=entry.get("cause", "") if quiet else entry["cause"],
        remedy=entry.get("remedy", "") if quiet else entry["remedy"],
        source=entry["source"],
        patterns=tuple(entry["patterns"]),
        all_of=tuple(entry.get("all_of", ())),
        none_of=tuple(entry.get("none_of", ())),
        any_level=bool(entry.get("any_level", False)),
        in_shutdown=bool(entry.get("in_shutdown", False)),
        consequence_of=tuple(entry.get("consequence_of", ())),
        facts=tuple((dict(fact["when"]), fact["say"]) for fact in entry.get("facts", ())),
    )


def entries(folder: pathlib.Path = FOLDER) -> list[dict[str, Any]]:
    """The entries of all files of a folder, as they stand there."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    found: list[dict[str, Any]] = []
    for path in sorted(folder.glob("*.yml")):
        found += yaml.load(path.read_text(encoding="utf-8"), Loader=loader) or []
    return found


@functools.lru_cache(maxsize=1)
def shipped() -> tuple[Signature, ...]:
    """The collection's signatures, read once a process."""
    return tuple(signature_of(entry) for entry in entries())
