"""What the files of roles/npu_host/vars/rules hold, in the manner of profile_schema: checks return what is wrong."""

from __future__ import annotations

import re
from typing import Any

from ansible_collections.vllm_ascend.fleet.plugins.plugin_utils import profile_schema as schema
from ansible_collections.vllm_ascend.fleet.plugins.plugin_utils.profiles import FAMILY
from ansible_collections.vllm_ascend.fleet.plugins.plugin_utils.versions import parse_release

_record, _list_of, _one_of, _is, _match = schema._record, schema._list_of, schema._one_of, schema._is, schema._match
TEXT, RELEASE, SCALAR = schema.TEXT, schema._release, schema._scalar
SERIES = _match(re.compile(r"\d+\.\d+"), "two parts of a version")
VERSION = _match(re.compile(r"\d+\.\d+(\.\w+)*([-+.]\w+)*"), "a version")
FLAG = _match(re.compile(r"--[a-z][a-z0-9-]*"), "a flag")
FAMILIES = _list_of(_match(FAMILY, "a family"), filled=True)
COUNT = schema._count
NUMBER = _is((int, float), "a number")
KEY = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
TYPES = ("bool", "int", "number", "text", "list", "map", "any")


def _map_of(pattern: re.Pattern[str], inner: schema.Check) -> schema.Check:
    def check(value: Any, where: str) -> list[str]:
        if not isinstance(value, dict) or not value:
            return [f"{where} is {value!r}, not a dictionary with entries"]
        errors = [f"{where} has the key {key!r}" for key in value if not pattern.fullmatch(str(key))]
        return errors + [error for key, item in value.items() for error in inner(item, f"{where}.{key}")]

    return check


def _anything(_value: Any, _where: str) -> list[str]:
    return []


def option(value: Any, where: str) -> list[str]:
    """The record of a key inside the JSON of a flag."""
    inner = _record(
        {"type": _one_of(*TYPES)},
        {
            "default": _anything,
            "nullable": _is(bool, "true"),
            "filled": _is(bool, "true"),
            "any_case": _is(bool, "true"),
            "values": _list_of(SCALAR, filled=True),
            "minimum": NUMBER,
            "above": NUMBER,
            "maximum": NUMBER,
            "items": option,
            "keys": _map_of(KEY, option),
            "first": RELEASE,
            "last": RELEASE,
            "releases": _list_of(_record({"first": RELEASE}, {"last": RELEASE}), filled=True),
            "instead": TEXT,
        },
    )
    return inner(value, where) + _ranges(value, where)


def _ranges(value: Any, where: str) -> list[str]:
    entries = value.get("releases", [value]) if isinstance(value, dict) else []
    return [
        f"{where}: {entry['first']} comes after {entry['last']}"
        for entry in entries
        if isinstance(entry, dict)
        and {"first", "last"} <= set(entry)
        and (parse_release(entry["first"]) or ()) > (parse_release(entry["last"]) or ())
    ]


SERVE_OPTIONS = _map_of(
    re.compile(r"--[a-z-]+"),
    _record(
        {
            "origin": TEXT,
            "reader": TEXT,
            "first": RELEASE,
            "last": RELEASE,
            "unknown": _one_of("ignored", "refused"),
            "types": _one_of("as_written", "converted"),
            "keys": _map_of(KEY, option),
        },
        {},
    ),
)
KINDS = ("switches", "bare", "integers", "integer_lists", "sizes", "numbers", "texts", "lists", "json", "json_or_text")
SERVE_FLAGS = _record(
    {
        "origin": TEXT,
        "first": RELEASE,
        "last": RELEASE,
        "kinds": _record({kind: _list_of(FLAG, filled=True) for kind in KINDS}, {}),
        "choices": _map_of(re.compile(r"--[a-z0-9-]+"), _list_of(SCALAR, filled=True)),
        "ranges": _map_of(
            re.compile(r"--[a-z0-9-]+"),
            _record({}, {key: NUMBER for key in ("minimum", "above", "maximum")}),
        ),
    },
    {},
)
RELEASES = _record(
    {
        "origins": _map_of(re.compile(r"[a-z0-9_]+"), TEXT),
        "known_to": RELEASE,
        "matrix": _map_of(
            re.compile(r"v\d+\.\d+\.\d+(rc\d+)?"),
            _record(
                {"vllm": VERSION, "python": SERIES, "cann": VERSION},
                {"cann_310p": VERSION, "torch": VERSION, "torch_npu": VERSION},
            ),
        ),
        "known_bad": _list_of(
            _record(
                {"release": RELEASE, "severity": _one_of("problem", "warning"), "reason": TEXT, "origin": TEXT},
                {
                    "families": FAMILIES,
                    "image_os": _one_of(*schema.IMAGE_SYSTEMS),
                    "architecture": _one_of(*schema.ARCHITECTURES),
                },
            )
        ),
        "drivers": _list_of(
            _record(
                {"cann": SERIES, "works": _list_of(SERIES, filled=True), "origin": TEXT},
                {"families": FAMILIES, "broken": _list_of(SERIES, filled=True)},
            )
        ),
        "driver_limits": _list_of(
            _record(
                {"first": RELEASE, "families": FAMILIES, "older_than": VERSION, "reason": TEXT, "remedy": TEXT,
                 "origin": TEXT},
                {},
            )
        ),
    },
    {},
)  # fmt: skip
MODELS = _record(
    {
        "origins": _map_of(re.compile(r"[a-z0-9_]+"), TEXT),
        "chips": _map_of(
            re.compile(r"[a-z0-9]+"),
            _record(
                {
                    "architectures": _list_of(TEXT, filled=True),
                    "architectures_reason": TEXT,
                    "architectures_origin": TEXT,
                    "quantization_refused": _list_of(TEXT, filled=True),
                    "quantization_origin": TEXT,
                    "longest_unlimited": COUNT,
                    "length_origin": TEXT,
                },
                {},
            ),
        ),
        "presets": _map_of(
            re.compile(r"[A-Za-z0-9-]+/[A-Za-z0-9.-]+"),
            _record(
                {"type": TEXT, "origin": TEXT},
                {"parameters_b": NUMBER, "bits": COUNT, "heads": COUNT, "kv_heads": COUNT, "max_length": COUNT},
            ),
        ),
    },
    {},
)
NAMES = re.compile(r"[a-z][a-z0-9_]*")
OFFLINE = _record(
    {
        "origin": TEXT,
        "first": RELEASE,
        "last": RELEASE,
        "server_only": _list_of(FLAG, filled=True),
        "refused": _map_of(re.compile(r"--[a-z-]+"), TEXT),
        "one_or_more": _list_of(FLAG, filled=True),
        "integers": _list_of(FLAG, filled=True),
        "sampling": _map_of(NAMES, option),
        "sampling_refused": _map_of(NAMES, TEXT),
    },
    {},
)
PARTS = {
    "releases": RELEASES,
    "serve_options": SERVE_OPTIONS,
    "serve_flags": SERVE_FLAGS,
    "models": MODELS,
    "offline": OFFLINE,
}


def rules_errors(rules: dict[str, Any]) -> list[str]:
    """Everything that is wrong with the rules: unknown parts, wrong values, documents that are not listed."""
    errors = [f"there is no schema for {part}" for part in rules if part not in PARTS]
    for part, check in PARTS.items():
        errors += check(rules.get(part), part)
        origins = (rules.get(part) or {}).get("origins")
        if isinstance(origins, dict):
            errors += _origin_errors(rules[part], part, origins)
    return errors


def _origin_errors(value: Any, where: str, origins: dict[str, Any]) -> list[str]:
    if isinstance(value, list):
        return [
            error for number, item in enumerate(value) for error in _origin_errors(item, f"{where}[{number}]", origins)
        ]
    if not isinstance(value, dict):
        return []
    errors = []
    for key, item in value.items():
        if (key == "origin" or str(key).endswith("_origin")) and item not in origins:
            errors.append(f"{where}.{key} is {item!r}, which origins does not list")
        if key != "origins":
            errors += _origin_errors(item, f"{where}.{key}", origins)
    return errors
