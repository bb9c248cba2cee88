# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The offline job of one host: planned as one more instance beside those that run, so that it differs in nothing else.

Image, devices, mounts, environment, checks and allocation are those of the deployment's plan; the words of `vllm serve`
that it gives become the arguments of LLM(...).
"""

from __future__ import annotations

from typing import Any

from ..module_utils.instance_state import LABEL_PLAN, LABEL_ROLE
from ..module_utils.offline_job import ENV, PROGRAM, ROLE_OFFLINE, folder_of
from .container import SHELL, docker_run
from .engine_arguments import engine_arguments
from .environment import secret_values
from .plain import Findings, kind_of, listed, nearest, plain
from .plan import deployment_plan
from .serve import Argument, parse_extra_args
from .settings import DEFAULT_INSTANCE, INSTANCE_NAME, resolve_settings

SUFFIX = "-offline"
LONGEST_NAME = 31
TARGET = "/vllm-offline"
# Seconds between the limit's SIGINT to the program and its SIGKILL.
KILL_AFTER_S = 20
# What an instance has for its endpoint only.
_ENDPOINT = ("api_key", "port", "bind_address", "start_timeout", "stop_timeout", "shutdown_timeout")
_ENDPOINT_SETTINGS = ("vllm_api_key", "vllm_shutdown_timeout")


def offline_plan(facts: Any, settings: Any, profiles: Any, observed: Any, rules: Any, wanted: Any) -> dict[str, Any]:
    """{family, image, job, explain, problems, warnings} of an offline job on a host.

    facts, settings, profiles, observed and rules are those of deployment_plan; wanted are the variables
    vllm_offline_{instance,npus,extra_args,timeout} by name. The job is null with problems, else {name, instance, argv,
    engine, npus, limit_s, image, model, served_model_name, secret_names, model_cache, required_paths}: argv is the
    `docker run` and engine the arguments of LLM(...). TypeError for something else than data.
    """
    given, wanted, rules = plain(settings), plain(wanted), plain(rules)
    for name, value in (("settings", given), ("wanted", wanted), ("rules", rules)):
        if not isinstance(value, dict):
            raise TypeError(f"{name} must be a dictionary, not of type {kind_of(value)}")
    findings = Findings()
    entry = _chosen(given, wanted.get("vllm_offline_instance"), findings)
    if entry is None:
        return _refused(findings)
    base = entry.get("name") or DEFAULT_INSTANCE
    name = job_name(base)
    _check_name(name, given, plain(observed), findings)
    if findings.problems:
        return _refused(findings)
    changed = _settings(given, entry, name, wanted, findings)
    plan = deployment_plan(facts, changed, profiles, observed, rules, beside=True)
    _check_flags(name, changed, wanted, rules["offline"], findings)
    found: dict[str, Any] = {
        "family": plan["family"],
        "image": plan["image"],
        "job": None,
        "explain": plan["explain"] + findings.explain,
        "problems": plan["problems"] + findings.problems,
        "warnings": plan["warnings"] + findings.warnings,
    }
    if plan["instances"] and not found["problems"]:
        found["job"] = _job(plan["instances"][0], base, int(wanted["vllm_offline_timeout"]), rules, found)
    return found


def job_name(instance: str) -> str:
    """The name of an instance's job; its container is called vllm-<name>."""
    return f"{instance[: LONGEST_NAME - len(SUFFIX)]}{SUFFIX}"


def job_secrets(settings: Any, instance: str) -> dict[str, str]:
    """The secret environment variables of the job of an instance, for vllm_offline's no_log option."""
    given = plain(settings)
    entry = _chosen(given, instance, Findings()) or {}
    changed = {**given, **dict.fromkeys(_ENDPOINT_SETTINGS), "vllm_instances": [_plain_entry(entry)]}
    values = resolve_settings(changed, Findings())
    return secret_values(values, values["vllm_instances"][0])


def _refused(findings: Findings) -> dict[str, Any]:
    return {
        "family": None, "image": None, "job": None,
        "explain": findings.explain, "problems": findings.problems, "warnings": findings.warnings,
    }  # fmt: skip


def _chosen(given: dict[str, Any], asked: Any, findings: Findings) -> dict[str, Any] | None:
    """The entry of vllm_instances whose model and engine settings the job takes; None, and a problem, without one."""
    entries = [entry for entry in given.get("vllm_instances") or [] if isinstance(entry, dict)]
    entries = entries or [{"name": DEFAULT_INSTANCE}]
    names = [str(entry.get("name")) for entry in entries]
    if asked in (None, ""):
        if len(entries) > 1:
            message = f"the host has the instances {listed(names)}, and it is not said whose settings the job takes"
            findings.problem("offline_instance_unknown", message, "Name one in vllm_offline_instance.")
            return None
        return entries[0]
    if asked not in names:
        message = f"vllm_offline_instance is {asked}, and the host has {listed(names)}{nearest(str(asked), names)}"
        findings.problem("offline_instance_unknown", message, "Name one of them, or leave it out where there is one.")
        return None
    return entries[names.index(asked)]


def _check_name(name: str, given: dict[str, Any], observed: Any, findings: Findings) -> None:
    entries = [*(given.get("vllm_instances") or []), *((observed or {}).get("instances") or [])]
    taken = {entry.get("name") for entry in entries if isinstance(entry, dict)}
    if not INSTANCE_NAME.fullmatch(name) or name in taken:
        message = f"the job would be called {name}, " + (
            "as an instance is" if name in taken else "which is no name of an instance"
        )
        findings.problem("offline_name_taken", message, "Call the instance otherwise.")


def _plain_entry(entry: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in entry.items() if key not in _ENDPOINT}


def _settings(
    given: dict[str, Any], entry: dict[str, Any], name: str, wanted: dict[str, Any], findings: Findings
) -> dict[str, Any]:
    """The settings of a host whose only instance is the job."""
    job = {**_plain_entry(entry), "name": name}
    changed = {**given, **dict.fromkeys(_ENDPOINT_SETTINGS), "vllm_port": None, "vllm_bind_address": None}
    npus = wanted.get("vllm_offline_npus")
    if npus not in (None, ""):
        # As many ranks as nodes then, whatever the service has.
        job.update(npus=npus, tensor_parallel_size=None)
        changed["vllm_tensor_parallel_size"] = None
    else:
        listed_nodes = entry.get("npus") or given.get("vllm_npus")
        if isinstance(listed_nodes, list):
            # These are the service's own; the job wants as many others.
            job["npus"] = len(listed_nodes)
            why = f"as many NPU nodes as the instance has in its list ({listed(listed_nodes)})"
            findings.why(f"job {name}: npus {len(listed_nodes)}", why, "vllm_npus")
    more = wanted.get("vllm_offline_extra_args") or []
    own = entry.get("extra_args")
    own = given.get("vllm_extra_args") if own in (None, "") else own
    if not isinstance(more, list):
        remedy = "Write a list in the form of vllm_extra_args."
        findings.problem("offline_setting_invalid", f"vllm_offline_extra_args is {more!r}; expected is a list", remedy)
        more = []
    if isinstance(own or [], list):
        job["extra_args"] = [*(own or []), *more]
    return {**changed, "vllm_instances": [job]}


def _check_flags(
    name: str, changed: dict[str, Any], wanted: dict[str, Any], rules: dict[str, Any], findings: Findings
) -> None:
    """Problems for flags that one LLM(...) cannot follow, warnings for server flags that were asked for the job."""
    extra = changed["vllm_instances"][0].get("extra_args")
    for argument in _arguments(extra):
        reason = rules["refused"].get(argument.name)
        if reason and not argument.removes and argument.values != ["1"]:
            message = f"job {name}: {' '.join(argument.words)}: {reason}"
            remedy = "Leave it out of the instance's extra arguments, or run the prompts through the service."
            findings.problem("offline_flag_refused", message, remedy)
    for argument in _arguments(wanted.get("vllm_offline_extra_args")):
        if argument.name in rules["server_only"]:
            message = f"vllm_offline_extra_args: {' '.join(argument.words)} is for a server, and a job is none"
            findings.warn("offline_flag_left_out", message, "Leave it out.")


def _arguments(extra: Any) -> list[Argument]:
    return parse_extra_args("", extra, Findings()) if isinstance(extra, list) else []


def _job(
    plan: dict[str, Any], instance: str, limit_s: int, rules: dict[str, Any], found: dict[str, Any]
) -> dict[str, Any] | None:
    name, container = plan["name"], plan["container"]
    folder = folder_of(name)
    try:
        engine = engine_arguments(plan["serve_args"], rules["serve_flags"], rules["offline"])
    except ValueError as failure:
        message = f"job {name}: the arguments of the service cannot be given to LLM(...): {failure}"
        remedy = "Correct the extra arguments."
        found["problems"].append({"code": "offline_arguments_invalid", "message": message, "remedy": remedy})
        return None
    for flag in engine.left_out:
        found["explain"].append({
            "what": f"job {name}: without {flag}",
            "why": "only the server reads it",
            "source": rules["offline"]["origin"],
        })  # fmt: skip
    run = docker_run(
        container,
        published_ports=[],
        labels={LABEL_ROLE: ROLE_OFFLINE, LABEL_PLAN: plan["plan_hash"]},
        env_file=f"{folder}/{ENV}" if container["env_file"] else None,
        mounts=[*container["mounts"], {"source": folder, "target": TARGET, "read_only": False}],
        command=[*SHELL, *_limited(limit_s), "python3", f"{TARGET}/{PROGRAM}", TARGET],
    )
    return {
        "name": name,
        "instance": instance,
        "model": plan["model"],
        "served_model_name": plan["served_model_name"],
        "image": container["image"],
        "npus": plan["npus"],
        "argv": run,
        "engine": engine.arguments,
        "limit_s": limit_s,
        "secret_names": [secret["name"] for secret in container["secrets"]],
        "model_cache": plan["model_cache"],
        "required_paths": plan["required_paths"],
    }


def _limited(limit_s: int) -> list[str]:
    """Ends what follows after that many seconds, even when nobody is left outside who would."""
    return ["timeout", "--signal=INT", f"--kill-after={KILL_AFTER_S}", str(limit_s)]
