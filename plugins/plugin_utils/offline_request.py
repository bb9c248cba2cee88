# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What an offline run is asked for: the prompts and the sampling, with everything that is wrong with them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from ..module_utils.offline_job import HEAD
from .plain import Findings, kind_of, listed, nearest, plain
from .serve_options import known_release
from .versions import parse_release

# The documented example's; whatever else vLLM decides.
SAMPLING = {"temperature": 0.0, "max_tokens": 32}
LONGEST_S = 604_800
# Names in a line of the results that are not the operator's.
RESULT_KEYS = ("index", "prompt", "text", "finish_reason", "prompt_tokens", "output_tokens", "host")
_SHOWN = 60
_KINDS: dict[str, tuple[tuple[type, ...], str]] = {
    "bool": ((bool,), "true or false"),
    "int": ((int,), "a whole number"),
    "number": ((int, float), "a number"),
    "text": ((str,), "text"),
    "list": ((list,), "a list"),
    "map": ((dict,), "a mapping of keys to values"),
}
Say = Callable[[str, str, str], None]


def offline_request(settings: Any, text: str | None, rules: Any) -> dict[str, Any]:
    """{prompts: [{prompt, …}], sampling, problems, warnings} of the variables vllm_offline_*.

    settings are these variables by name, and vllm_image and vllm_ascend_version; text is what is in the file of
    prompts, null where there is no such file. rules are those of the role npu_host. TypeError for something else.
    """
    given, rules = plain(settings), plain(rules)
    for name, value in (("settings", given), ("rules", rules)):
        if not isinstance(value, dict):
            raise TypeError(f"{name} must be a dictionary, not of type {kind_of(value)}")
    findings = Findings()
    prompts = _prompts(given.get("vllm_offline_prompts"), given.get("vllm_offline_prompts_file"), text, findings)
    sampling = _sampling(given, rules["offline"], findings)
    for name, low, high in (("vllm_offline_timeout", 1, LONGEST_S), ("vllm_offline_retries", 0, 10)):
        _whole(name, given.get(name), low, high, findings)
    path = given.get("vllm_offline_results")
    if not isinstance(path, str) or not path.strip() or path.endswith("/"):
        _wrong("vllm_offline_results", path, "the path of a file", findings)
    return {
        "prompts": prompts,
        "sampling": sampling,
        "problems": findings.problems,
        "warnings": findings.warnings,
    }


def _whole(name: str, value: Any, low: int, high: int, findings: Findings) -> None:
    number = int(value) if isinstance(value, str) and value.strip().isdecimal() and len(value) < 20 else value
    if isinstance(number, bool) or not isinstance(number, int) or not low <= number <= high:
        _wrong(name, value, f"a whole number from {low} to {high}", findings)


def _wrong(name: str, value: Any, wanted: str, findings: Findings) -> None:
    message = f"{name} is {_short(value)}; expected is {wanted}"
    findings.problem("offline_setting_invalid", message, "Correct the value; the role vllm_offline describes it.")


def _short(value: Any) -> str:
    shown = json.dumps(value, ensure_ascii=False)
    return shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}…"


# -- prompts -----------------------------------------------------------------------------------------------------------


def _prompts(entries: Any, path: Any, text: str | None, findings: Findings) -> list[dict[str, Any]]:
    if entries and path:
        message = f"prompts are given as a list (vllm_offline_prompts) and as the file {path}"
        findings.problem("offline_prompts_twice", message, "Give one of them.")
    if path and text is None:
        findings.problem(
            "offline_prompts_missing",
            f"the file of prompts {path} is not on the controller",
            "Correct vllm_offline_prompts_file; a relative path is one of the folder that ansible-playbook runs in.",
        )
        return []
    where = "vllm_offline_prompts"
    if path and text is not None:
        where, entries = str(path), _read(str(path), text, findings)
    if entries is not None and not isinstance(entries, list):
        _wrong(where, entries, "a list of prompts", findings)
        return []
    if not entries:
        if not findings.problems:
            message = f"{where} has no prompts"
            findings.problem(
                "offline_prompts_missing", message, "Give vllm_offline_prompts or vllm_offline_prompts_file."
            )
        return []
    found = [_prompt(f"{where}[{number}]", entry, findings) for number, entry in enumerate(entries)]
    return [entry for entry in found if entry is not None]


def _read(path: str, text: str, findings: Findings) -> list[Any]:
    """The entries of a file: one a line, as JSON where the file is called .jsonl or each line begins with a brace."""
    # Only a newline ends a line: splitlines() would cut at other separators inside of a prompt.
    numbered = enumerate(text.lstrip("\ufeff").split("\n"), start=1)
    lines = [(number, line.rstrip("\r")) for number, line in numbered if line.strip()]
    if not (path.endswith((".jsonl", ".ndjson")) or all(line.lstrip().startswith("{") for _number, line in lines)):
        return [line for _number, line in lines]
    entries = []
    for number, line in lines:
        try:
            entries.append(json.loads(line))
        except (ValueError, RecursionError) as failure:
            message = f"line {number} of {path} is no JSON: {failure}"
            findings.problem("offline_prompt_invalid", message, 'Write one {"prompt": "…"} a line.')
    return entries


def _prompt(where: str, entry: Any, findings: Findings) -> dict[str, Any] | None:
    if isinstance(entry, str):
        entry = {"prompt": entry}
    if not isinstance(entry, dict) or not isinstance(entry.get("prompt"), str):
        has = f"has the keys {listed(entry)}" if isinstance(entry, dict) else f"is of type {kind_of(entry)}"
        remedy = 'Give text, in quotes where YAML would read something else, or {"prompt": "…"}.'
        findings.problem("offline_prompt_invalid", f"{where} {has}, and is no prompt", remedy)
        return None
    if not entry["prompt"].strip():
        findings.problem("offline_prompt_invalid", f"{where} is an empty prompt", "Leave it out; vLLM refuses it.")
        return None
    try:
        entry["prompt"].encode("utf-8")
    except UnicodeEncodeError:
        remedy = "Store the file as UTF-8."
        findings.problem("offline_prompt_invalid", f"{where} holds bytes that are no UTF-8", remedy)
        return None
    taken = sorted(set(entry) & set(RESULT_KEYS[:1] + RESULT_KEYS[2:]))
    if taken:
        message = f"{where} has {listed(taken)}, which the results have of their own"
        findings.problem("offline_prompt_invalid", message, "Call the key otherwise.")
        return None
    return dict(entry)


# -- sampling ----------------------------------------------------------------------------------------------------------


def _sampling(given: dict[str, Any], rules: dict[str, Any], findings: Findings) -> dict[str, Any]:
    asked = given.get("vllm_offline_sampling")
    if asked is None or asked == "":
        asked = {}
    if not isinstance(asked, dict):
        _wrong("vllm_offline_sampling", asked, "a dictionary of names of SamplingParams", findings)
        return dict(SAMPLING)
    image = given.get("vllm_image")
    tag = str(image or given.get("vllm_ascend_version"))
    strict = known_release(rules, None if image else parse_release(tag))

    def say(code: str, message: str, remedy: str) -> None:
        (findings.problem if strict else findings.warn)(code, f"vllm_offline_sampling: {message}", remedy)

    for name, value in asked.items():
        known, refused = rules["sampling"], rules["sampling_refused"]
        if name in refused:
            findings.problem(
                "offline_sampling_invalid", f"vllm_offline_sampling: {name}: {refused[name]}", "Leave it out."
            )
        elif name not in known:
            message = f"SamplingParams of {tag} has no {name}{nearest(name, known)}"
            say("offline_sampling_unknown", message, "Correct the name, or leave it out.")
        else:
            _check(name, value, known[name], say)
    sampling = {**SAMPLING, **asked}
    least, most = sampling.get("min_tokens"), sampling.get("max_tokens")
    if isinstance(least, int) and isinstance(most, int) and least > most:
        say("offline_sampling_invalid", f"min_tokens {least} is more than max_tokens {most}", "Correct one of them.")
    if "stop" in sampling:
        _check_stop(sampling["stop"], say)
    return sampling


def _check(name: str, value: Any, record: dict[str, Any], say: Say) -> None:
    kind = record["type"]
    if kind == "any" or (value is None and record.get("nullable")):
        return
    types, wanted = _KINDS[kind]
    if not isinstance(value, types) or (isinstance(value, bool) and kind != "bool"):
        message = f"{name} is {_short(value)}, of type {kind_of(value)}; expected is {wanted}"
        say("offline_sampling_invalid", message, "Correct the type.")
        return
    low, above, high = record.get("minimum"), record.get("above"), record.get("maximum")
    limits = [f"at least {low}"] * (low is not None) + [f"more than {above}"] * (above is not None)
    limits += [f"at most {high}"] * (high is not None)
    if isinstance(value, (int, float)) and (
        (low is not None and value < low)
        or (above is not None and value <= above)
        or (high is not None and value > high)
    ):
        say("offline_sampling_invalid", f"{name} is {value}, and must be {' and '.join(limits)}", "Correct the value.")
    if isinstance(value, list):
        if record.get("filled") and not value:
            say("offline_sampling_invalid", f"{name} is an empty list", "Leave it out.")
        for number, item in enumerate(value):
            _check(f"{name}[{number}]", item, record.get("items") or {"type": "any"}, say)


def _check_stop(value: Any, say: Say) -> None:
    texts = [value] if isinstance(value, str) else value
    if texts is not None and (
        not isinstance(texts, list) or any(not isinstance(text, str) or not text for text in texts)
    ):
        say("offline_sampling_invalid", f"stop is {_short(value)}; expected is a text, or a list", "Correct the value.")


def prompts_text(prompts: Any, indexes: Any) -> str:
    """The text for vllm_offline's option prompts: those of these indexes. TypeError, IndexError for wrong ones."""
    prompts, indexes = plain(prompts), plain(indexes)
    lines = [json.dumps([index, prompts[index]["prompt"]]) for index in indexes]
    return "\n".join([HEAD, *lines, ""])
