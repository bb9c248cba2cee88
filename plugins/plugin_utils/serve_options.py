# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The keys inside the JSON of serve flags, looked up in roles/npu_host/vars/rules/serve_options.yml.

vLLM Ascend swallows keys of --additional-config that it does not know, at any depth (vllm_ascend/ascend_config.py), so
nothing but this notices a misspelt one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from .plain import Findings, kind_of, listed, masked, nearest
from .serve import Argument, json_values
from .versions import Release, in_range, parse_release

ADDITIONAL, COMPILATION = "--additional-config", "--compilation-config"
_TYPES: dict[str, tuple[type, ...]] = {
    "bool": (bool,),
    "int": (int,),
    "number": (int, float),
    "text": (str,),
    "list": (list,),
    "map": (dict,),
}
_WANTED = {
    "bool": "true or false",
    "int": "a whole number",
    "number": "a number",
    "text": "text",
    "list": "a list",
    "map": "a mapping of keys to values",
}
# What pydantic takes for true and false in a text.
_SWITCHES = {"true", "t", "yes", "y", "on", "1", "false", "f", "no", "n", "off", "0"}
_ON = {"true", "1"}


@dataclass(frozen=True)
class _Look:
    """One JSON value under its rules; strict: the release is one that the rules were read from."""

    where: str
    flag: str
    rules: dict[str, Any]
    release: Release | None
    tag: str
    strict: bool
    findings: Findings

    def say(self, code: str, message: str, remedy: str) -> None:
        """A problem where the rules are those of the release, else a warning."""
        report = self.findings.problem if self.strict else self.findings.warn
        report(code, f"{self.where}: {message}", remedy)


def known_release(rules: dict[str, Any], release: Release | None) -> bool:
    """True when the rules were read from that release's sources."""
    return release is not None and in_range(release, rules["first"], rules.get("last"))


def check_options(
    where: str, arguments: list[Argument], rules: dict[str, Any], tag: str, release: Release | None, findings: Findings
) -> None:
    """A problem for every key, type and value in the JSON of the arguments that the release does not read.

    rules are serve_options of the rules, by flag; tag is how messages call the release. Where the release is not among
    those that the rules were read from, the newest known rules apply and everything is only a warning.
    """
    for argument in arguments:
        flag_rules = rules.get(argument.name)
        if flag_rules is None or argument.removes:
            continue
        strict = known_release(flag_rules, release)
        judged = release if strict else parse_release(flag_rules["last"])
        look = _Look(f"{where}: {argument.name}", argument.name, flag_rules, judged, tag, strict, findings)
        for value in json_values(argument):
            _check_map(look, "", value, flag_rules["keys"])


def _check_map(look: _Look, path: str, value: Any, keys: dict[str, Any]) -> None:
    if not isinstance(value, dict):
        _wrong_type(look, path, value, "map")
        return
    for key, item in value.items():
        place = f"{path}.{key}" if path else key
        record = keys.get(key)
        if record is None:
            _unknown(look, place, key, keys)
        elif look.release is not None and not _read_by(record, look.release):
            _other_release(look, place, record)
        else:
            _check_value(look, place, item, record)


def _check_value(look: _Look, place: str, value: Any, record: dict[str, Any]) -> None:
    kind = record["type"]
    if value is None and (record.get("nullable") or kind == "any"):
        return
    plain = _converted(value, kind) if look.rules["types"] == "converted" else value
    if kind != "any" and not _is_of(plain, kind):
        _wrong_type(look, place, value, kind)
    elif kind == "map" and record.get("keys"):
        _check_map(look, place, value, record["keys"])
    elif kind == "list":
        if record.get("filled") and not value:
            look.say("serve_option_value", f"{place} is an empty list", "Give at least one value, or leave it out.")
        for number, item in enumerate(value if record.get("items") else []):
            _check_value(look, f"{place}[{number}]", item, record["items"])
    else:
        _check_limits(look, place, plain, record)


def _is_of(value: Any, kind: str) -> bool:
    if kind == "bool" and value in (0, 1):
        # 0 and 1 act as false and true.
        return isinstance(value, int)
    return isinstance(value, _TYPES[kind]) and (kind == "bool" or not isinstance(value, bool))


def _converted(value: Any, kind: str) -> Any:
    """The value as pydantic reads it: text that is a number, true or false becomes one."""
    if kind == "int" and isinstance(value, float) and value.is_integer():
        return int(value)
    if not isinstance(value, str):
        return value
    text = value.strip().lower()
    if kind == "bool" and text in _SWITCHES:
        return text in {"true", "t", "yes", "y", "on", "1"}
    if kind == "int" and re.fullmatch(r"[+-]?\d{1,30}", text):
        return int(text)
    if kind == "number" and re.fullmatch(r"[+-]?\d{1,30}(\.\d+)?(e[+-]?\d{1,3})?", text):
        return float(text)
    return value


def _check_limits(look: _Look, place: str, value: Any, record: dict[str, Any]) -> None:
    choices = record.get("values")
    if choices is not None:
        upper = record.get("any_case")
        known = [str(choice).upper() if upper else choice for choice in choices]
        if (str(value).upper() if upper else value) not in known:
            near = nearest(str(value).upper() if upper else str(value), [str(choice) for choice in known])
            _wrong_value(look, place, value, f"one of {listed(choices)}", near)
        return
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return
    wanted = outside(value, record)
    if wanted:
        _wrong_value(look, place, value, wanted)


def outside(value: float, record: dict[str, Any]) -> str | None:
    """What a number would have to be by a record's minimum, above and maximum; None when it is that."""
    low, above, high = (record.get(key) for key in ("minimum", "above", "maximum"))
    if low is not None and value < low:
        return f"at least {low}"
    if above is not None and value <= above:
        return f"more than {above}"
    return f"at most {high}" if high is not None and value > high else None


def _wrong_value(look: _Look, place: str, value: Any, wanted: str, near: str = "") -> None:
    message = f"{place} is {json.dumps(masked(value), ensure_ascii=False)}, and must be {wanted}{near}"
    look.say("serve_option_value", message, f"Correct the value ({look.rules['origin']}).")


def _wrong_type(look: _Look, place: str, value: Any, kind: str) -> None:
    name = place or "the value"
    shown = json.dumps(masked(value), ensure_ascii=False)
    message = f"{name} is {shown}, of type {kind_of(value)}; expected is {_WANTED[kind]}"
    if kind == "bool" and isinstance(value, str):
        message += f" (the text counts as {'true' if value else 'false'})"
    remedy = f"Correct the type ({look.rules['origin']}); YAML as a dictionary keeps types: {{{look.flag}: …}}."
    look.say("serve_option_type", message, remedy)


def _unknown(look: _Look, place: str, key: str, keys: dict[str, Any]) -> None:
    elsewhere = [path for path, last in _paths(look.rules["keys"]) if last == key]
    hint = f' (it belongs in "{elsewhere[0]}")' if elsewhere else nearest(key, keys)
    if not hint:
        hint = nearest(key, [last for _path, last in _paths(look.rules["keys"])])
    outcome = "ignores it without a word" if look.rules["unknown"] == "ignored" else "refuses to start with it"
    message = f'"{place}" is no key that {look.rules["reader"]} {look.tag} knows{hint}; it {outcome}'
    look.say("serve_option_unknown", message, "Correct the key, or leave it out.")


def _paths(keys: dict[str, Any], above: str = "") -> Iterator[tuple[str, str]]:
    """Every key with its whole path, those that some release reads."""
    for key, record in keys.items():
        path = f"{above}.{key}" if above else key
        yield path, key
        yield from _paths(record.get("keys") or {}, path)


def _ranges(record: dict[str, Any]) -> list[tuple[str, str | None]]:
    given = record.get("releases") or [record]
    return [(entry.get("first") or "v0.0.0", entry.get("last")) for entry in given]


def _read_by(record: dict[str, Any], release: Release) -> bool:
    return any(in_range(release, first, last) for first, last in _ranges(record))


def _other_release(look: _Look, place: str, record: dict[str, Any]) -> None:
    """A key that the release does not read any more is a warning, one that it does not read yet is unknown to it."""
    assert look.release is not None
    ranges = _ranges(record)
    past = [last for first, last in ranges if (start := parse_release(first)) is None or start < look.release]
    instead = f" Use {record['instead']} instead." if record.get("instead") else ""
    if past:
        message = f'{look.where}: "{place}" was last read by {past[-1]}; {look.tag} ignores it'
        look.findings.warn("serve_option_stale", message, f"Leave it out.{instead}")
    else:
        message = f'"{place}" is read from {ranges[0][0]} on, not by {look.tag}'
        look.say("serve_option_unknown", message, f"Leave it out, or deploy a newer release.{instead}")


def settings_of(arguments: list[Argument], flag: str) -> dict[str, Any]:
    """The mapping that a flag's arguments make together; vLLM lets the last flag win, and merges dotted ones."""
    merged: dict[str, Any] = {}
    for argument in arguments:
        if argument.name == flag and not argument.removes:
            for value in json_values(argument):
                if isinstance(value, dict):
                    merged = {**merged, **value} if "." in argument.words[0].split("=", 1)[0] else value
    return merged


def has_flag(arguments: list[Argument], name: str) -> bool:
    """True when a switch is given."""
    return any(argument.name == name and not argument.removes for argument in arguments)


def last_value(arguments: list[Argument], name: str) -> str | None:
    """The value of a flag that counts, None when it is not given."""
    values = [a.values[-1] for a in arguments if a.name == name and not a.removes and a.values]
    return values[-1] if values else None


def check_together(
    where: str, arguments: list[Argument], variables: dict[str, str], static_kernels: bool, findings: Findings
) -> None:
    """A problem for options that exclude or need each other (vllm_ascend/ascend_config.py and platform.py, v0.23.0).

    variables are the open environment variables; static_kernels is false for hardware where the option is ignored.
    """

    def conflict(message: str, remedy: str) -> None:
        findings.problem("serve_option_conflict", f"{where}: {message}", remedy)

    for check in _TOGETHER:
        check(settings_of(arguments, ADDITIONAL), arguments, variables, conflict)
    graph = _sub(settings_of(arguments, ADDITIONAL), "ascend_compilation_config")
    if static_kernels and graph.get("enable_static_kernel") is True and graph.get("enable_npugraph_ex") is False:
        conflict(
            "enable_static_kernel needs enable_npugraph_ex", "Set both to true, or leave enable_static_kernel out."
        )
    mode = settings_of(arguments, COMPILATION).get("cudagraph_mode")
    eager = has_flag(arguments, "--enforce-eager") or (isinstance(mode, str) and mode.upper() == "NONE")
    if variables.get("ASCEND_LAUNCH_BLOCKING", "").strip() == "1" and not eager:
        message = "ASCEND_LAUNCH_BLOCKING=1 in the environment excludes graphs, which are on"
        conflict(message, "Leave the variable out, or add --enforce-eager.")
    pools = "expandable_segments:True" in variables.get("PYTORCH_NPU_ALLOC_CONF", "")
    if pools and has_flag(arguments, "--enable-sleep-mode"):
        message = "--enable-sleep-mode excludes expandable_segments:True in PYTORCH_NPU_ALLOC_CONF"
        conflict(message, "Take one of them out (vllm_ascend/device_allocator/camem.py).")


Conflict = Callable[[str, str], None]
Together = Callable[[dict[str, Any], list[Argument], dict[str, str], Conflict], None]


def _sub(options: dict[str, Any], key: str) -> dict[str, Any]:
    value = options.get(key)
    return value if isinstance(value, dict) else {}


def _eplb(options: dict[str, Any], _args: list[Argument], variables: dict[str, str], conflict: Conflict) -> None:
    eplb = _sub(options, "eplb_config")
    switched = variables.get("DYNAMIC_EPLB", "").lower() in _ON or variables.get("EXPERT_MAP_RECORD", "") == "true"
    if (eplb.get("dynamic_eplb") or eplb.get("expert_map_record_path") is not None) and not switched:
        message = "eplb_config.dynamic_eplb needs DYNAMIC_EPLB or EXPERT_MAP_RECORD set to true in the environment"
        conflict(message, 'Add DYNAMIC_EPLB: "true" to vllm_environment (an instance\'s environment).')
    for key in ("expert_map_path", "expert_map_record_path"):
        if isinstance(eplb.get(key), str) and not eplb[key].endswith(".json"):
            conflict(f"eplb_config.{key} is {eplb[key]}, and must end in .json", "Name a JSON file.")


def _chunks(options: dict[str, Any], args: list[Argument], _variables: dict[str, str], conflict: Conflict) -> None:
    scheduler = _sub(options, "scheduler_config")
    chunks = _sub(scheduler, "profiling_chunk_config") or _sub(options, "profiling_chunk_config")
    if not chunks.get("enabled"):
        return
    size = last_value(args, "--pipeline-parallel-size") or "1"
    if not size.isdigit() or int(size) < 2:
        message = f"profiling_chunk_config needs a pipeline parallel size above 1, and it is {size}"
        conflict(message, "Set --pipeline-parallel-size, or leave profiling_chunk_config out.")
    if options.get("enable_balance_scheduling") or scheduler.get("enable_balance_scheduling"):
        message = "profiling_chunk_config and enable_balance_scheduling exclude each other"
        conflict(message, "Leave one of them out.")


def _xlite(options: dict[str, Any], args: list[Argument], _variables: dict[str, str], conflict: Conflict) -> None:
    size = last_value(args, "--pipeline-parallel-size") or "1"
    if _sub(options, "xlite_graph_config").get("enabled") and size.isdigit() and int(size) > 1:
        conflict(f"xlite_graph_config excludes pipeline parallelism, and its size is {size}", "Leave one of them out.")


def _pairs(options: dict[str, Any], _args: list[Argument], _variables: dict[str, str], conflict: Conflict) -> None:
    if options.get("dump_config_path") is not None and options.get("dump_config") is not None:
        conflict("dump_config_path and dump_config exclude each other", "Leave one of them out.")
    overlap = [k for k in ("enable_shared_expert_dp", "multistream_overlap_shared_expert") if options.get(k)]
    if options.get("mix_placement") and overlap:
        conflict(f"mix_placement and {listed(overlap)} exclude each other", "Leave one of them out.")
    lmhead = _sub(options, "finegrained_tp_config").get("lmhead_tensor_parallel_size")
    if options.get("enable_reduce_sample") and isinstance(lmhead, int) and lmhead > 0:
        message = "enable_reduce_sample and finegrained_tp_config.lmhead_tensor_parallel_size exclude each other"
        conflict(message, "Leave one of them out.")


_TOGETHER: tuple[Together, ...] = (_eplb, _chunks, _xlite, _pairs)
