# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The arguments of vllm serve: the profile's defaults, the plan's own, and the operator's on top."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from .plain import Findings, listed, masked
from .profiles import origin_of

CONTAINER_PORT = 8000
# The short names of vLLM 0.23.0.
ALIASES = {
    "-ac": "--attention-config", "-asc": "--api-server-count", "-cc": "--compilation-config",
    "-dcp": "--decode-context-parallel-size", "-dp": "--data-parallel-size", "-dpa": "--data-parallel-address",
    "-dpb": "--data-parallel-backend", "-dpe": "--data-parallel-external-lb", "-dph": "--data-parallel-hybrid-lb",
    "-dpl": "--data-parallel-size-local", "-dpm": "--data-parallel-multi-port-external-lb",
    "-dpn": "--data-parallel-rank", "-dpp": "--data-parallel-rpc-port", "-dpr": "--data-parallel-start-rank",
    "-ep": "--enable-expert-parallel", "-h": "--help", "-n": "--nnodes",
    "-pcp": "--prefill-context-parallel-size", "-pp": "--pipeline-parallel-size", "-q": "--quantization",
    "-r": "--node-rank", "-sc": "--speculative-config", "-tp": "--tensor-parallel-size",
}  # fmt: skip
# Flags whose value vLLM parses as JSON; bad JSON ends it with exit code 2 or 1 (tried with vLLM 0.23.0).
JSON_FLAGS = (
    "--additional-config", "--attention-config", "--compilation-config", "--ec-transfer-config", "--eplb-config",
    "--kernel-config", "--kv-events-config", "--kv-transfer-config", "--limit-mm-per-prompt", "--media-io-kwargs",
    "--mm-processor-kwargs", "--override-generation-config", "--pooler-config", "--profiler-config",
    "--speculative-config", "--structured-outputs-config",
)  # fmt: skip
# Flags that the plan gives itself, or that would take the endpoint from under the readiness check.
RESERVED = {
    "--model": "Set the model as vllm_model (an instance's model).",
    "--port": "Set the port as vllm_port (an instance's port).",
    "--host": "Set the address as vllm_bind_address (an instance's bind_address).",
    "--uds": "The endpoint is a TCP port: vllm_port.",
    "--served-model-name": "Set it as vllm_served_model_name (an instance's served_model_name).",
    "--tensor-parallel-size": "Set it as vllm_tensor_parallel_size (an instance's tensor_parallel_size).",
    "--shutdown-timeout": "Set it as vllm_shutdown_timeout (an instance's shutdown_timeout).",
    "--api-key": "A key in the command line is readable by all: set it as vllm_api_key (an instance's api_key).",
    "--hf-token": "A token in the command line is readable by all: set it as vllm_hf_token.",
    "--ssl-keyfile": "The readiness check speaks HTTP: end TLS in front of the endpoint.",
    "--ssl-certfile": "The readiness check speaks HTTP: end TLS in front of the endpoint.",
    "--root-path": "The readiness check asks /health and /v1: put a path prefix in front of the endpoint.",
    "--headless": "An instance must have an endpoint.",
    "--help": "It would end at once instead of serving.",
}
# Their values are neither shown nor kept.
SECRET_FLAGS = ("--api-key", "--hf-token")
# Text of more characters is not tried as a literal of Python.
LONGEST_LITERAL = 10_000
# argparse takes prefixes that are unique; one this short is not taken for an abbreviation here.
SHORTEST_PREFIX = 5
EXTRA_REMEDY = (
    'Write each word as an entry of its own, "--flag=value" as one entry, or {"--flag": value} with YAML as value.'
)


class Argument(NamedTuple):
    """One flag with the words after it; name is its long form, words are as the operator wrote them."""

    name: str
    words: list[str]
    values: list[str]
    removes: bool = False


def compact(value: Any) -> str:
    """JSON without blanks, in the order of the data: what the documented commands show."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def flag_name(word: str) -> str:
    """The long name of a flag: aliases spelled out, "_" as "-" (vLLM reads it so), without what follows "." or "=".

    "--compilation-config.mode" replaces the whole --compilation-config in vLLM 0.23.0, so it counts as that flag.
    """
    name = word.split("=", 1)[0].split(".", 1)[0]
    return ALIASES.get(name, name.replace("_", "-"))


def default_words(defaults: dict[str, Any]) -> dict[str, list[str]]:
    """The words of each default flag by its name: null or true gives a bare flag, false none, YAML compact JSON."""
    words: dict[str, list[str]] = {}
    for flag, value in defaults.items():
        if value is None or value is True:
            words[flag] = [flag]
        elif isinstance(value, (dict, list)):
            words[flag] = [flag, compact(value)]
        elif value is not False:
            words[flag] = [flag, str(value)]
    return words


def parse_extra_args(where: str, extra: list[Any], findings: Findings) -> list[Argument]:
    """The operator's extra arguments as flags with values; everything wrong with them becomes a problem.

    An entry is a word, "--flag=value", or a dictionary {flag: value} whose value may be YAML; a null value there takes
    a default flag of the profile away.
    """
    arguments: list[Argument] = []
    for entry in extra:
        if isinstance(entry, dict):
            arguments += _from_dict(entry)
        elif isinstance(entry, bool) or not isinstance(entry, (str, int, float)):
            _wrong(where, f"{masked(entry)!r} is no word", findings)
        elif arguments and _is_secret(arguments[-1].name) and not str(entry).startswith("--"):
            # Its value, which may start with one dash.
            continue
        elif _is_flag(str(entry)):
            arguments.append(_from_word(str(entry)))
        elif arguments and "=" not in arguments[-1].words[0]:
            arguments[-1].words.append(str(entry))
            arguments[-1].values.append(str(entry))
        else:
            _wrong(where, f"{masked(entry)!r} follows no flag", findings)
    for argument in arguments:
        _check_argument(where, argument, findings)
    # A plan is shown and stored: a secret is left out of it, not only refused.
    return [argument for argument in arguments if not _is_secret(argument.name)]


def _is_flag(word: str) -> bool:
    return re.match(r"--?[A-Za-z]", word) is not None


def _from_word(word: str) -> Argument:
    first = flag_name(re.split(r"[=\s]", word, maxsplit=1)[0])
    if _is_secret(first):
        return Argument(first, [first], [])
    flag, equals, value = word.partition("=")
    return Argument(flag_name(flag), [word], [value] if equals else [])


def _from_dict(entry: dict[str, Any]) -> list[Argument]:
    arguments = []
    for flag, value in entry.items():
        first = flag_name(re.split(r"[=\s]", flag, maxsplit=1)[0])
        if _is_secret(first):
            arguments.append(Argument(first, [first], []))
            continue
        words = default_words({flag: True if value is None else value}).get(flag, [])
        arguments.append(Argument(flag_name(flag), words, words[1:], removes=value is None or value is False))
    return arguments


def means(name: str, flag: str) -> bool:
    """True for a flag's name, and for what argparse takes for its abbreviation."""
    return name == flag or (len(name) >= SHORTEST_PREFIX and flag.startswith(name))


def _is_secret(name: str) -> bool:
    return any(means(name, flag) for flag in SECRET_FLAGS)


def _check_argument(where: str, argument: Argument, findings: Findings) -> None:
    name = argument.name
    shown = argument.words[0] if argument.words else name
    if not re.fullmatch(r"--?[A-Za-z][A-Za-z0-9-]*", name):
        _wrong(where, f"{shown!r} is no flag (a flag and its value are two entries)", findings)
        return
    for reserved, remedy in RESERVED.items():
        if means(name, reserved):
            findings.problem("extra_args_reserved", f"{where}: {shown} is given by the plan, not by hand", remedy)
            return
    if name in JSON_FLAGS and not argument.removes and "." not in shown.split("=", 1)[0]:
        for value in argument.values:
            flaw = json_flaw(value)
            if flaw:
                _wrong(where, f"the value of {name} is no JSON ({flaw}): {masked(value)}", findings)
    if any(re.search(r"[\x00-\x1f\x7f]", word) for word in argument.words):
        _wrong(where, f"{argument.words!r} holds a newline or another control character", findings)


def _wrong(where: str, message: str, findings: Findings) -> None:
    findings.problem("extra_args_invalid", f"{where}: {message}", EXTRA_REMEDY)


def json_flaw(text: str) -> str | None:
    """What is wrong with text that should be JSON, where, and what probably happened to it; None when it is JSON."""
    try:
        json.loads(text)
    except RecursionError:
        return "it is nested too deeply"
    except ValueError as failure:
        flaw = str(failure)
    else:
        return None
    try:
        written = ast.literal_eval(text) if len(text) <= LONGEST_LITERAL else None
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        written = None
    if isinstance(written, (dict, list)):
        return f"{flaw}; it is written as Python writes it, JSON has double quotes and true, false, null"
    if re.search(r"[{,]\s*'", text):
        return f"{flaw}; it has single quotes where JSON has double ones"
    if re.search(r'[{,]\s*\\"', text):
        return f"{flaw}; its quotes are escaped, as for a shell, which does not read this"
    if re.search(r"[{,]\s*[A-Za-z_]", text):
        return f"{flaw}; its quotes are missing, a shell or YAML took them"
    if text.count("{") > text.count("}") or text.count("[") > text.count("]"):
        return f"{flaw}; a bracket is not closed, the rest may have gone into another word"
    return flaw


def json_values(argument: Argument) -> Iterator[Any]:
    """What the argument's JSON holds; text that is no JSON is left out, parse_extra_args names it.

    "--compilation-config.pass_config.enable_sp true" gives {"pass_config": {"enable_sp": True}}.
    """
    keys = argument.words[0].split("=", 1)[0].split(".")[1:] if argument.words else []
    for text in argument.values:
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            if not keys:
                continue
            value = text
        for key in reversed(keys):
            value = {key.rstrip("+"): value}
        yield value


def check_refusals(where: str, arguments: list[Argument], profile: dict[str, Any], findings: Findings) -> None:
    """A problem for each argument that the hardware is known to refuse, a warning for one without effect or test."""
    for rule in profile.get("refuses", []):
        for argument in arguments:
            if argument.name != rule["flag"] or argument.removes or not _meant(rule, argument):
                continue
            path = ".".join(rule.get("json_path", []))
            shown = masked(" ".join(argument.words))
            message = f"{where}: {shown} on {profile['title']}: {rule['reason']}"
            remedy = rule.get("remedy") or f"Leave {path or shown} out of the extra arguments."
            remedy = f"{remedy.rstrip('.')} ({origin_of(profile, rule['origin'])})."
            effect = rule.get("effect", "refused")
            report = findings.problem if effect == "refused" else findings.warn
            report(f"flag_{effect}", message, remedy)


def _meant(rule: dict[str, Any], argument: Argument) -> bool:
    """True when the argument has a value that the rule is about."""
    values: list[Any] = list(argument.values)
    if "json_path" in rule:
        values = [found for value in json_values(argument) for found in _at(value, rule["json_path"])]
        if not values:
            return False
    if "values" in rule:
        return any(_same(value, choice) for value in values for choice in rule["values"])
    if "except" in rule:
        return any(not any(_same(value, choice) for choice in rule["except"]) for value in values)
    return True


def _at(value: Any, path: list[str]) -> list[Any]:
    """The value at a path of keys, as a list of one; empty when it is not there."""
    for key in path:
        if not isinstance(value, dict) or key not in value:
            return []
        value = value[key]
    return [value]


def _same(given: Any, choice: Any) -> bool:
    """Whether a value of the command line is the rule's: 0 and 0.0 are, TRUE and true are."""
    if str(given).lower() == str(choice).lower():
        return True
    try:
        return not isinstance(given, bool) and not isinstance(choice, bool) and float(given) == float(choice)
    except (TypeError, ValueError):
        return False


def parallel_ranks(arguments: list[Argument]) -> int:
    """How many times tensor parallel groups are asked for: pipeline times data parallel size of the extra arguments."""
    ranks = 1
    for argument in arguments:
        if argument.name in ("--pipeline-parallel-size", "--data-parallel-size"):
            value = argument.values[-1] if argument.values else ""
            ranks *= int(value) if value.isdigit() and int(value) else 1
    return ranks


def serve_args(
    model: str, defaults: dict[str, Any], managed: dict[str, Any], arguments: list[Argument], findings: Findings
) -> list[str]:
    """The argv of vllm serve: defaults of the profile, then the plan's flags, then the operator's.

    An operator's flag takes the place of the profile's; the operator's come last, where argparse lets the last win.
    """
    overridden = {argument.name for argument in arguments}
    words = default_words(defaults)
    kept = [word for flag, flag_words in words.items() if flag not in overridden for word in flag_words]
    for flag in (flag for flag in words if flag in overridden):
        given = listed(" ".join(a.words) for a in arguments if a.name == flag and not a.removes)
        why = f"the operator's extra arguments take the place of the profile's {' '.join(words[flag])}"
        findings.why(f"flag {flag}: {given}", why, "vllm_extra_args")
    own = [word for flag, value in managed.items() if value is not None for word in (flag, str(value))]
    extra = [word for argument in arguments if not argument.removes for word in _rendered(argument)]
    return ["vllm", "serve", model, *kept, *own, *extra]


def _rendered(argument: Argument) -> list[str]:
    """The words, with JSON values compact."""
    if argument.name not in JSON_FLAGS or "." in argument.words[0].split("=", 1)[0]:
        return argument.words
    flag, equals, value = argument.words[0].partition("=")
    first = [f"{flag}={_compact_text(value)}"] if equals else [flag]
    return first + [_compact_text(word) for word in argument.words[1:]]


def _compact_text(text: str) -> str:
    try:
        return compact(json.loads(text))
    except (ValueError, RecursionError):
        return text
