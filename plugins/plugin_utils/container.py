# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The container of an instance, and the one renderer of docker run."""

from __future__ import annotations

from typing import Any

from ..module_utils.instance_state import LABEL_INSTANCE, LABEL_PLAN, LABEL_ROLE, ROLE_SERVE, ROLE_VERIFY
from .npu_nodes import by_number
from .plain import kind_of
from .quoting import csv_fields

# A service gets the environment of the documented interactive shell: on 310P images ~/.bashrc sets LD_LIBRARY_PATH and
# jemalloc, and only an interactive bash reads it. The shell then becomes the program.
SHELL = ["bash", "-ic", 'exec "$@"', "--"]
LOG_OPTIONS = {"max-file": "2", "max-size": "50m"}
CACHE_TARGET = "/root/.cache"
MODELS_TARGET = "/models"
SHAPE: dict[type, tuple[str, ...]] = {
    str: ("name", "image", "network", "shm_size", "env_file", "log_driver", "runtime", "stop_signal", "pull"),
    list: ("devices", "mounts", "published_ports", "security_options", "command"),
    dict: ("labels", "environment", "log_options"),
}
NPU_SMI = ["npu-smi", "info"]
PYTHON = ["python3", "-"]
VISIBLE_DEVICES = "ASCEND_RT_VISIBLE_DEVICES"


def labels(instance: str, plan_hash: str, role: str = ROLE_SERVE) -> dict[str, str]:
    """The labels by which a container is known as the instance's."""
    return {LABEL_INSTANCE: instance, LABEL_PLAN: plan_hash, LABEL_ROLE: role}


def published_port(address: str, port: int, container_port: int) -> str:
    """The value of --publish: the address is left out where it is all addresses, as in the documented command."""
    if address == "0.0.0.0":
        return f"{port}:{container_port}"
    return f"[{address}]:{port}:{container_port}" if ":" in address else f"{address}:{port}:{container_port}"


def docker_run(container: dict[str, Any], **overrides: Any) -> list[str]:
    """The argv of docker run for a container of a plan, as groups would read on lines, flattened.

    Overrides take the place of keys of the container. "interactive" keeps standard input open; a null "pull" leaves
    --pull out (engines before 20.10 do not know it).
    """
    return [word for group in docker_run_groups(container, **overrides) for word in group]


def docker_run_groups(container: dict[str, Any], **overrides: Any) -> list[list[str]]:
    """docker_run's words in groups that belong together: an option with its value, the image, the command."""
    for name, value in (("container", container), ("set of overrides", overrides)):
        if not isinstance(value, dict):
            raise TypeError(f"a {name} must be a dictionary, not of type {kind_of(value)}")
    spec = {**container, **overrides}
    for kind, keys in SHAPE.items():
        for key in (key for key in keys if not isinstance(spec.get(key), (kind, type(None)))):
            raise TypeError(f"{key} of a container must be a {kind.__name__}, not of type {kind_of(spec[key])}")
    unknown = sorted(set(overrides) - set(container) - {"interactive"})
    if unknown:
        raise ValueError(f"a container has no {', '.join(unknown)}")
    groups: list[list[str]] = [["docker", "run"]]
    if spec.get("pull"):
        groups.append(["--pull", spec["pull"]])
    groups += [["--rm"]] + [["--init"]] * bool(spec.get("init")) + [["--interactive"]] * bool(spec.get("interactive"))
    groups.append(["--name", spec["name"]])
    groups += [["--privileged"]] * bool(spec.get("privileged"))
    if spec.get("runtime"):
        groups.append(["--runtime", spec["runtime"]])
    if spec.get("stop_signal"):
        groups.append(["--stop-signal", spec["stop_signal"]])
    groups += [["--label", f"{key}={value}"] for key, value in sorted((spec.get("labels") or {}).items())]
    if spec["network"] != "bridge":
        groups.append(["--network", spec["network"]])
    groups.append(["--shm-size", spec["shm_size"]])
    groups += [["--security-opt", option] for option in spec.get("security_options") or []]
    groups += [["--device", device] for device in spec["devices"]]
    groups += [["--mount", mount_value(mount)] for mount in spec["mounts"]]
    groups += [["--publish", port] for port in spec.get("published_ports") or []]
    groups += [["--env", f"{name}={value}"] for name, value in sorted((spec.get("environment") or {}).items())]
    if spec.get("env_file"):
        groups.append(["--env-file", spec["env_file"]])
    if spec.get("log_driver"):
        groups.append(["--log-driver", spec["log_driver"]])
        groups += [["--log-opt", f"{key}={value}"] for key, value in sorted((spec.get("log_options") or {}).items())]
    return [*groups, [spec["image"]], list(spec["command"])]


def mount_value(mount: dict[str, Any]) -> str:
    """The value of --mount for a bind mount. Unlike -v, a missing source is an error, not a new directory."""
    fields = ["type=bind", f"source={mount['source']}", f"target={mount['target']}"]
    return csv_fields(fields + ["readonly"] * bool(mount["read_only"]))


def expected_npus(instance: dict[str, Any]) -> dict[str, Any]:
    """{npus, count, exact} for a verification: what torch must see inside the container of a planned instance.

    count is null where the operator limits what is visible; a privileged container may see more than is mapped.
    """
    nodes, container = by_number(instance["npus"]), instance["container"]
    limited = VISIBLE_DEVICES in container["environment"]
    return {"npus": nodes, "count": None if limited else len(nodes), "exact": not container["privileged"]}


def check_runs(instance: str, container: dict[str, Any], plan_hash: str, level: str = "documented") -> dict[str, Any]:
    """{verification: {level, npu_smi, python}, preflight}: the argv of the throw-away containers that prove a plan.

    The verification has exactly the service's devices and mounts; the preflight has no device, so that it can run
    beside the old service (a chip serves one container at a time). None has ports, a network or secrets.
    """
    common: dict[str, Any] = {
        "name": f"vllm-{instance}-verify",
        "network": "none",
        "published_ports": [],
        "env_file": None,
        "labels": labels(instance, plan_hash, ROLE_VERIFY),
        "interactive": True,
    }
    return {
        "verification": {
            "level": level,
            "npu_smi": docker_run(container, **common, command=SHELL + NPU_SMI),
            "python": docker_run(container, **common, command=SHELL + PYTHON),
        },
        "preflight": docker_run(container, **common, devices=[], privileged=False, command=SHELL + PYTHON),
    }
