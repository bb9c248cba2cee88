# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan of one instance: its container, its command line, its unit, and the argv that prove it."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

from ..module_utils.instance_state import container_name as planned_name
from ..module_utils.instance_state import env_path, unit_name
from .container import CACHE_TARGET, LOG_OPTIONS, MODELS_TARGET, SHELL, check_runs, docker_run, labels, published_port
from .environment import secret_digests
from .plain import Findings
from .profiles import origin_of
from .quoting import QuotingError
from .serve import CONTAINER_PORT, Argument, serve_args
from .settings import GOLDEN_TOKENS
from .unit import TEMPLATE_VERSION, unit_text


@dataclass(frozen=True)
class Engine:
    """The host's programs (null: the usual place), and what its engine must be told."""

    python: str | None
    docker: str | None
    pull: str | None
    runtime: str | None


@dataclass(frozen=True)
class Resources:
    """What an instance gets of the host; rules are the profile with those for several NPUs applied."""

    rules: dict[str, Any]
    npus: list[str]
    devices: list[str]
    mounts: list[dict[str, Any]]
    tensor_parallel_size: int | None


@dataclass(frozen=True)
class Model:
    """folder is that of a local model on the host; path is what vllm serve is given, served what clients ask for."""

    folder: str | None
    path: str
    served: str
    named: bool


def choose_model(instance: dict[str, Any]) -> Model:
    """Where the model is and how it is called: a local folder is mounted at /models/<its name>."""
    name = instance["served_model_name"]
    if instance["model_source"] != "local":
        return Model(None, instance["model"], name or instance["model"], bool(name))
    folder = instance["model"].rstrip("/")
    base = folder.rsplit("/", 1)[-1]
    return Model(folder, f"{MODELS_TARGET}/{base}", name or base, True)


def instance_plan(
    instance: dict[str, Any],
    values: dict[str, Any],
    image: dict[str, Any],
    resources: Resources,
    engine: Engine,
    variables: dict[str, str],
    secrets: dict[str, str],
    arguments: list[Argument],
    findings: Findings,
) -> dict[str, Any] | None:
    """The instance of a plan; None, and a problem, when a value cannot be written into a unit."""
    name, model = instance["name"], choose_model(instance)
    argv = _serve_args(instance, model, resources, arguments, findings)
    container = _container(instance, values, image, model, resources, engine)
    container.update(
        environment=variables,
        env_file=env_path(name) if secrets else None,
        secrets=secret_digests(secrets),
        command=SHELL + argv,
    )
    timeouts = {
        "nodes_s": values["vllm_node_timeout"],
        "start_s": instance["start_timeout"],
        "stop_s": instance["stop_timeout"],
        "shutdown_s": instance["shutdown_timeout"],
    }
    identity = plan_hash(container, argv, timeouts)
    container["labels"] = labels(name, identity)
    bridge = container["network"] == "bridge"
    plan: dict[str, Any] = {
        "name": name,
        "model": instance["model"],
        "model_source": instance["model_source"],
        "served_model_name": model.served,
        "npus": resources.npus,
        "tensor_parallel_size": resources.tensor_parallel_size,
        "endpoint": {
            "address": instance["bind_address"],
            "port": instance["port"],
            "network": container["network"],
            "container_port": CONTAINER_PORT if bridge else instance["port"],
        },
        "container": container,
        "serve_args": argv,
        "plan_hash": identity,
        "timeouts": timeouts,
        "answers": _answers(instance),
        "model_cache": {"path": values["vllm_model_cache"], "target": CACHE_TARGET},
        "model_folder": model.folder,
        "required_paths": sorted(
            ({"path": mount["source"], "type": mount["type"]} for mount in _host_mounts(model, resources)),
            key=lambda entry: str(entry["path"]),
        ),
    }
    try:
        plan["docker_run"] = docker_run(container)
        plan["unit"] = {"name": unit_name(name), "text": unit_text(plan, identity, engine.python, engine.docker)}
        plan.update(check_runs(name, container, identity, values["vllm_verify_level"]))
    except QuotingError as failure:
        findings.problem("value_unwritable", f"instance {name}: {failure}", "Use one line of plain text.")
        return None
    return plan


def _answers(instance: dict[str, Any]) -> dict[str, Any]:
    """What the endpoint must answer when the instance is changed; no part of what the instance is."""
    golden = instance["golden"]
    return {
        "golden": {"max_tokens": GOLDEN_TOKENS, **golden} if golden else None,
        "decode_tokens": instance["decode_tokens"],
    }


def plan_hash(container: dict[str, Any], argv: list[str], timeouts: dict[str, Any]) -> str:
    """16 hex digits that stand for everything that makes an instance what it is (labels, which hold them, apart)."""
    parts = {key: value for key, value in container.items() if key != "labels"}
    content = {"container": parts, "serve_args": argv, "timeouts": timeouts, "template": TEMPLATE_VERSION}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()[:16]


def _serve_args(
    instance: dict[str, Any], model: Model, resources: Resources, arguments: list[Argument], findings: Findings
) -> list[str]:
    rules, port, address = resources.rules, instance["port"], instance["bind_address"]
    bridge = rules["network"] == "bridge"
    managed = {
        "--served-model-name": model.served if model.named else None,
        "--tensor-parallel-size": resources.tensor_parallel_size,
        "--port": None if bridge or port == CONTAINER_PORT else port,
        "--host": None if bridge or address == "0.0.0.0" else address,
        "--shutdown-timeout": instance["shutdown_timeout"],
    }
    if rules["serve_args"]:
        source = origin_of(rules, rules["serve_args_origin"])
        findings.why(f"flags {', '.join(rules['serve_args'])}", f"defaults of {rules['title']}", source)
    return serve_args(model.path, rules["serve_args"], managed, arguments, findings)


def _container(
    instance: dict[str, Any],
    values: dict[str, Any],
    image: dict[str, Any],
    model: Model,
    resources: Resources,
    engine: Engine,
) -> dict[str, Any]:
    rules, port = resources.rules, instance["port"]
    mounts: list[dict[str, Any]] = [
        {key: mount[key] for key in ("source", "target", "read_only")} for mount in _host_mounts(model, resources)
    ]
    mounts.append({"source": values["vllm_model_cache"], "target": CACHE_TARGET, "read_only": False})
    published = [published_port(instance["bind_address"], port, CONTAINER_PORT)] if rules["network"] == "bridge" else []
    return {
        "name": planned_name(instance["name"]),
        "image": image["reference"],
        "pull": engine.pull,
        "devices": resources.devices,
        "mounts": sorted(mounts, key=lambda mount: str(mount["target"])),
        "network": rules["network"],
        "published_ports": published,
        "shm_size": rules["shm_size"],
        "privileged": rules["privileged"],
        "init": True,
        "stop_signal": "SIGINT",
        "log_driver": "json-file",
        "log_options": dict(LOG_OPTIONS),
        "security_options": list(rules.get("security_options") or []),
        "runtime": engine.runtime,
    }


def _host_mounts(model: Model, resources: Resources) -> list[dict[str, Any]]:
    """What must be on the host before the container starts: the family's mounts and a local model."""
    if model.folder is None:
        return resources.mounts
    return [
        *resources.mounts,
        {"source": model.folder, "target": model.path, "read_only": True, "type": "directory"},
    ]
