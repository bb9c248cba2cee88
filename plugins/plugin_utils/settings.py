# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The operator's settings: one table of names, types, defaults and per-instance keys, and their validation."""

from __future__ import annotations

import ipaddress
import posixpath
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .plain import ACCEPTABLE, Findings, listed, masked, nearest, plain
from .quoting import QuotingError, refuse_control
from .versions import split_suffix

SETTING_REMEDY = "Correct the value in the inventory; README and the role's argument_specs describe it."
DEFAULT_INSTANCE = "ascend"
INSTANCE_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,30}")
VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_REGISTRY = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]*(:\d+)?(/[a-z0-9]+(?:[._-]+[a-z0-9]+)*)*")
_REPOSITORY = re.compile(r"[a-z0-9]+(?:[._-]+[a-z0-9]+)*(/[a-z0-9]+(?:[._-]+[a-z0-9]+)*)*")
# The grammar of github.com/distribution/reference. A first part is a registry when it has a dot or a port, or is
# localhost; everything after it is in small letters.
REFERENCE = re.compile(
    r"(?:(?:[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+(?::\d+)?|[A-Za-z0-9-]+:\d+|localhost|\[[0-9A-Fa-f:]+\](?::\d+)?)/)?"
    r"[a-z0-9]+(?:(?:\.|__?|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|__?|-+)[a-z0-9]+)*)*"
    r"(?::[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}(?:@sha256:[0-9a-f]{64})?|@sha256:[0-9a-f]{64})"
)
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_NODE = re.compile(r"/dev/davinci\d+")
SHM_SIZE = re.compile(r"[1-9]\d{0,8}[kmg]", re.IGNORECASE)
# Folders of the system: a container that may write there can break the host. In the second list all below them too.
_SYSTEM_FOLDERS = re.compile(r"/(usr|var|bin|sbin|lib[^/]*)")
_SYSTEM_TREES = re.compile(r"/(dev|etc|proc|sys|boot|run)(/.*)?")
# The longest time limit, a day in seconds: beyond it a service that never starts is not noticed.
LONGEST_S = 86_400
GOLDEN_TOKENS = 16
MOST_GOLDEN_TOKENS = 1024
# More digits are no number of anything here, and int() refuses them from 4300 on.
_WHOLE = re.compile(r"\s*-?\d{1,30}\s*", re.ASCII)
_TRUE = {"true", "yes", "on", "1"}
_FALSE = {"false", "no", "off", "0"}


class Invalid(Exception):
    """A value that cannot be used; the message says what is expected."""


@dataclass(frozen=True)
class Setting:
    """One role variable.

    key is its name in an entry of vllm_instances (None: for the whole host only); merge says that an instance's
    dictionary is added to the host's instead of taking its place; secret values are never shown.
    """

    name: str
    type: str
    default: Any = None
    key: str | None = None
    choices: tuple[str, ...] = ()
    minimum: int | None = None
    maximum: int | None = None
    merge: bool = False
    secret: bool = False
    check: Callable[[Any], None] | None = None


def _matches(pattern: re.Pattern[str], expected: str) -> Callable[[Any], None]:
    def check(value: str) -> None:
        if not pattern.fullmatch(value):
            raise Invalid(expected)

    return check


def _version(value: str) -> None:
    suffixed = split_suffix(value)
    if suffixed:
        raise Invalid(f'the release alone, "{suffixed[0]}": the suffix "-{suffixed[1]}" follows from the hardware')
    if re.match(r"\d", value):
        raise Invalid(f'the release as it is tagged, "v{value}"')
    if not _TAG.fullmatch(value):
        raise Invalid('a release such as "v0.23.0"')


def _absolute(value: str) -> None:
    if not value.startswith("/") or value.rstrip("/") == "" or ".." in value.split("/"):
        raise Invalid('an absolute path below "/", without ".."')


def _cache(value: str) -> None:
    _absolute(value)
    path = posixpath.normpath(re.sub("/+", "/", value))
    if path == "/" or _SYSTEM_FOLDERS.fullmatch(path) or _SYSTEM_TREES.fullmatch(path):
        raise Invalid(f"a folder of its own for models: the container writes there, and {path} is the system's")


def _not_a_flag(value: str) -> None:
    if value.startswith("-"):
        raise Invalid('a name that does not start with "-", which vLLM would take for a flag')


def _address(value: str) -> None:
    try:
        ipaddress.ip_address(value)
    except ValueError:
        raise Invalid('an IP address of the host, or "0.0.0.0" for all') from None


def _registries(value: list[Any]) -> None:
    if not value:
        raise Invalid("at least one registry prefix")
    for prefix in value:
        if not isinstance(prefix, str) or not _REGISTRY.fullmatch(prefix):
            raise Invalid('prefixes such as "quay.io" or "mirror.example:5000/quay.io", without scheme or last slash')


def _npus(value: Any) -> None:
    if isinstance(value, (bool, float)) or (isinstance(value, int) and value < 1):
        raise Invalid('a count of at least 1, a list of device nodes, or "all"')
    if isinstance(value, str) and value != "all":
        raise Invalid('a count, a list of device nodes such as ["/dev/davinci0"], or "all"')
    if isinstance(value, dict):
        raise Invalid('a count, a list of device nodes, or "all"')
    if isinstance(value, list):
        wrong = [node for node in value if not isinstance(node, str) or not _NODE.fullmatch(node)]
        if wrong or not value:
            raise Invalid(f'device nodes such as "/dev/davinci0" (an NPU ID is no node number), not {listed(wrong)}')
        if len(set(value)) != len(value):
            raise Invalid("each device node once")


def _api_key(value: str) -> None:
    if re.search(r"\s", value):
        raise Invalid("a key without blanks or newlines")


def _variables(value: dict[str, Any]) -> None:
    for name, content in value.items():
        if not VARIABLE_NAME.fullmatch(name):
            raise Invalid(f'names of environment variables; "{name}" is none')
        if isinstance(content, bool) or not isinstance(content, (str, int, float)):
            raise Invalid(f'text as the value of "{name}": put it in quotes')
        try:
            refuse_control(str(content))
        except QuotingError:
            raise Invalid(f'one line as the value of "{name}"') from None


def _golden(value: dict[str, Any]) -> None:
    unknown = sorted(set(value) - {"prompt", "answer", "max_tokens"})
    if unknown:
        raise Invalid(f"the keys prompt, answer, max_tokens, not {listed(unknown)}")
    for key in ("prompt", "answer"):
        if not isinstance(value.get(key), str) or not value[key].strip():
            raise Invalid(f'a dictionary with text as "{key}"')
    tokens = value.get("max_tokens", GOLDEN_TOKENS)
    if isinstance(tokens, bool) or not isinstance(tokens, int) or not 1 <= tokens <= MOST_GOLDEN_TOKENS:
        raise Invalid(f'a whole number from 1 to {MOST_GOLDEN_TOKENS} as "max_tokens"')


def _acceptable(value: list[Any]) -> None:
    wrong = [code for code in value if code not in tuple(ACCEPTABLE)]
    if wrong:
        hint = nearest(str(wrong[0]), ACCEPTABLE)
        raise Invalid(f"codes of problems that may be accepted ({listed(ACCEPTABLE)}), not {listed(wrong)}{hint}")


def _proxy(value: dict[str, Any]) -> None:
    unknown = sorted(set(value) - {"http", "https", "no_proxy"})
    if unknown:
        raise Invalid(f"the keys http, https, no_proxy, not {listed(unknown)}")
    for key, content in value.items():
        if content is not None and (not isinstance(content, str) or re.search(r"\s", content)):
            raise Invalid(f'an address without blanks as "{key}"')


SETTINGS: tuple[Setting, ...] = (
    Setting("vllm_ascend_version", "str", "v0.23.0", check=_version),
    Setting(
        "vllm_image",
        "str",
        check=_matches(
            REFERENCE,
            'an image reference such as "registry/name:tag", as text with one tag, the name in small letters',
        ),
    ),
    Setting("vllm_image_os", "str", "auto", choices=("auto", "ubuntu", "openeuler")),
    Setting(
        "vllm_image_registries", "list", ("quay.io", "m.daocloud.io/quay.io", "quay.nju.edu.cn"), check=_registries
    ),
    Setting(
        "vllm_image_repository", "str", "ascend/vllm-ascend", check=_matches(_REPOSITORY, "a repository, no registry")
    ),
    Setting("vllm_image_archive", "path", check=_absolute),
    Setting("vllm_image_digest", "str", check=_matches(_DIGEST, '"sha256:" and 64 hexadecimal digits')),
    Setting("vllm_image_pull", "str", "missing", choices=("missing", "always", "never")),
    Setting("vllm_model", "str", "Qwen/Qwen3-0.6B", key="model"),
    Setting(
        "vllm_model_source", "str", "huggingface", key="model_source", choices=("huggingface", "modelscope", "local")
    ),
    Setting("vllm_model_cache", "path", "/root/.cache", check=_cache),
    Setting("vllm_served_model_name", "str", key="served_model_name", check=_not_a_flag),
    Setting("vllm_hf_endpoint", "str", check=_matches(re.compile(r"https?://\S+"), "an http or https address")),
    Setting("vllm_hf_token", "str", secret=True, check=_api_key),
    Setting("vllm_instances", "list"),
    Setting("vllm_npus", "raw", key="npus", check=_npus),
    Setting("vllm_tensor_parallel_size", "int", key="tensor_parallel_size", minimum=1),
    Setting("vllm_shm_size", "str", key="shm_size", check=_matches(SHM_SIZE, 'a size such as "16g"')),
    Setting("vllm_port", "int", 8000, key="port", minimum=1, maximum=65535),
    Setting("vllm_bind_address", "str", "0.0.0.0", key="bind_address", check=_address),
    Setting("vllm_api_key", "str", key="api_key", secret=True, check=_api_key),
    Setting("vllm_extra_args", "list", (), key="extra_args"),
    Setting("vllm_environment", "dict", {}, key="environment", merge=True, check=_variables),
    Setting("vllm_secrets", "dict", {}, key="secrets", merge=True, secret=True, check=_variables),
    Setting("vllm_proxy", "dict", secret=True, check=_proxy),
    Setting("vllm_hardware_family", "str", check=_matches(re.compile(r"[a-z][a-z0-9_]*"), "a family's name")),
    Setting("vllm_hardware_profiles", "dict", {}),
    Setting("vllm_accept_problems", "list", (), check=_acceptable),
    Setting("vllm_adopt_containers", "bool", False),
    Setting("vllm_node_timeout", "int", 900, minimum=0, maximum=LONGEST_S),
    Setting("vllm_start_timeout", "int", 1800, key="start_timeout", minimum=1, maximum=LONGEST_S),
    Setting("vllm_stop_timeout", "int", 60, key="stop_timeout", minimum=1, maximum=LONGEST_S),
    Setting("vllm_shutdown_timeout", "int", key="shutdown_timeout", minimum=0, maximum=LONGEST_S),
    Setting("vllm_verify_level", "str", "documented", choices=("documented", "deep")),
    Setting("vllm_golden", "dict", key="golden", check=_golden),
    Setting("vllm_decode_tokens", "int", key="decode_tokens", minimum=1, maximum=4096),
    Setting("vllm_sysroot", "path"),
)
INSTANCE_SETTINGS = {setting.key: setting for setting in SETTINGS if setting.key}


def resolve_settings(given: dict[str, Any], findings: Findings) -> dict[str, Any]:
    """Every setting of the table with its value: the operator's where it is valid, else the default and a problem.

    The value of vllm_instances is a list of dictionaries with every per-instance key (and "name"), never null.
    """
    values = {s.name: _value(s, given.get(s.name), s.name, findings) for s in SETTINGS}
    findings.accepted = frozenset(values["vllm_accept_problems"])
    known = [s.name for s in SETTINGS]
    for name in sorted(set(given) - set(known)):
        findings.warn("setting_unknown", f'"{name}" is no setting of the plan{nearest(name, known)}', SETTING_REMEDY)
    entries = values["vllm_instances"]
    if entries is not None and not entries:
        _invalid("vllm_instances", [], "at least one instance, or null for the default one", findings)
    names = entries or [{"name": DEFAULT_INSTANCE}]
    values["vllm_instances"] = [_instance(number, entry, values, findings) for number, entry in enumerate(names)]
    _check_together(values, findings)
    return values


def _value(setting: Setting, given: Any, where: str, findings: Findings) -> Any:
    # Before ansible-core 2.19 a template of a null variable gives an empty string.
    default = plain(setting.default)
    if given is None or (given == "" and not isinstance(setting.default, str)):
        return default
    try:
        value = _convert(setting, given)
        if setting.check and value is not None:
            setting.check(value)
    except Invalid as failure:
        shown = "a secret value" if setting.secret else given
        _invalid(where, shown, str(failure), findings)
        return default
    return value


def _convert(setting: Setting, given: Any) -> Any:
    if setting.type in ("int", "raw") and isinstance(given, str) and _WHOLE.fullmatch(given):
        given = int(given)
    if setting.type == "int":
        _check_int(setting, given)
    elif setting.type == "bool":
        text = str(given).lower()
        if text not in _TRUE | _FALSE:
            raise Invalid("true or false")
        return text in _TRUE
    elif setting.type in ("str", "path"):
        if isinstance(given, bool) or not isinstance(given, (str, int, float)):
            raise Invalid("text")
        return _text(setting, str(given))
    elif setting.type == "list" and not isinstance(given, list):
        raise Invalid("a list")
    elif setting.type == "dict" and not isinstance(given, dict):
        raise Invalid("a dictionary")
    return given


def _check_int(setting: Setting, given: Any) -> None:
    if isinstance(given, bool) or not isinstance(given, int):
        raise Invalid("a whole number")
    if setting.minimum is not None and given < setting.minimum:
        raise Invalid(f"a number of at least {setting.minimum}")
    if setting.maximum is not None and given > setting.maximum:
        raise Invalid(f"a number of at most {setting.maximum}")


def _text(setting: Setting, text: str) -> str:
    if setting.choices and text not in setting.choices:
        raise Invalid(f"one of {listed(setting.choices)}{nearest(text, setting.choices)}")
    if not text.strip():
        raise Invalid("text that is not empty")
    try:
        return refuse_control(text)
    except QuotingError:
        raise Invalid("one line of text without control characters") from None


def _instance(number: int, entry: Any, host: dict[str, Any], findings: Findings) -> dict[str, Any]:
    where = f"vllm_instances[{number}]"
    if not isinstance(entry, dict):
        _invalid(where, entry, "a dictionary with a name", findings)
        entry = {}
    name = entry.get("name", "")
    if not isinstance(name, str) or not INSTANCE_NAME.fullmatch(name):
        wanted = "small letters, digits and dashes, at most 31, starting with a letter or digit"
        _invalid(f"{where}.name", name, wanted, findings, code="instance_name_invalid")
    keys = ["name", *INSTANCE_SETTINGS]
    for key in sorted(set(entry) - set(keys)):
        remedy = f"Use one of {listed(keys)}."
        findings.problem("setting_unknown_key", f'{where} has the unknown key "{key}"{nearest(key, keys)}', remedy)
    values: dict[str, Any] = {"name": str(name)}
    for key, setting in INSTANCE_SETTINGS.items():
        own = _value(setting, entry.get(key), f"{where}.{key}", findings)
        if setting.merge:
            values[key] = {**host[setting.name], **own}
        else:
            given = entry.get(key) not in (None, "")
            values[key] = own if given else host[setting.name]
    return values


def _check_together(values: dict[str, Any], findings: Findings) -> None:
    instances = values["vllm_instances"]
    for key, code in (("name", "instance_duplicate"), ("port", "port_duplicate")):
        seen: dict[Any, list[str]] = {}
        for number, instance in enumerate(instances):
            seen.setdefault(instance[key], []).append(f"vllm_instances[{number}] ({instance['name']})")
        for value, places in seen.items():
            if len(places) > 1:
                remedy = f"Give each instance a {key} of its own."
                findings.problem(code, f"the {key} {value} is given to {listed(places)}", remedy)
    for instance in instances:
        _check_instance(instance, findings)
    if values["vllm_image_archive"] and values["vllm_image_pull"] == "always":
        _invalid("vllm_image_pull", "always", '"missing" or "never": the image comes from an archive', findings)


def _check_instance(instance: dict[str, Any], findings: Findings) -> None:
    name, model, source = instance["name"], instance["model"], instance["model_source"]
    if source == "local":
        try:
            _absolute(model)
        except Invalid as failure:
            _invalid(f"{name}: model", model, f"{failure}, for a local model", findings, code="model_path_invalid")
    elif model.startswith(("/", "./", "-")) or re.search(r"\s", model):
        hint = "a model id such as Qwen/Qwen3-0.6B; for a folder on the host set the model source to local"
        _invalid(f"{name}: model", model, hint, findings, code="model_id_invalid")
    drain, stop = instance["shutdown_timeout"], instance["stop_timeout"]
    if drain is not None and drain >= stop:
        wanted = f"less than the stop timeout of {stop} s, after which the container is killed"
        _invalid(f"{name}: shutdown_timeout", drain, wanted, findings)


def _invalid(where: str, value: Any, wanted: str, findings: Findings, code: str = "setting_invalid") -> None:
    findings.problem(code, f"{where} is {masked(value)!r}; expected is {wanted}", SETTING_REMEDY)
