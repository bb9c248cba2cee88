# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The text of an instance's systemd unit."""

from __future__ import annotations

import re
from typing import Any

from ..module_utils.instance_state import HELPER_PATH, UNIT_MARK, unit_name
from .container import docker_run_groups
from .quoting import systemd_command, systemd_lines

# Part of the plan's hash: a new template is a new plan.
TEMPLATE_VERSION = 1
DOCKER = "/usr/bin/docker"
PYTHON = "/usr/bin/python3"
DOCUMENTATION = "https://docs.vllm.ai/projects/ascend/en/latest/"
# Seconds on top of the time limits of the steps inside, so that those speak first.
START_RESERVE_S = 120
STOP_RESERVE_S = 30
RESTART_S = 10

TEMPLATE = """\
{mark}
# plan {plan_hash}; made by the collection vllm_ascend.fleet: local changes show as a difference and are replaced
[Unit]
Description={description}
Documentation={documentation}
Wants=docker.service network-online.target
After=docker.service network-online.target
# It may take many starts until the driver is there: never give up.
StartLimitIntervalSec=0

[Service]
Type=exec
SyslogIdentifier={identifier}
ExecStartPre={pre_start}
ExecStart={start}
ExecStartPost={gate} --main-pid $MAINPID
ExecStop=-{stop}
ExecStopPost=-{post_stop}
TimeoutStartSec={start_limit}
TimeoutStopSec={stop_limit}
# The server ends with 0 when its engine dies, and with 2 after a flag that it does not know.
Restart=always
RestartSec={restart}
RestartPreventExitStatus=2
SuccessExitStatus=130 143

[Install]
WantedBy=multi-user.target
"""


def unit_text(instance: dict[str, Any], plan_hash: str, python: str | None, docker: str | None) -> str:
    """The unit of an instance of a plan (its container, endpoint, timeouts and names are used).

    python and docker are the programs' paths on the host. QuotingError when a value cannot be written in a unit.
    """
    container, timeouts, endpoint = instance["container"], instance["timeouts"], instance["endpoint"]
    docker, helper = docker or DOCKER, [python or PYTHON, HELPER_PATH]
    name = container["name"]
    nodes = [word for device in container["devices"] for word in ("--node", device)]
    pre_start = [*helper, "pre-start", "--instance", instance["name"], "--container", name]
    pre_start += ["--image", container["image"], "--node-timeout", str(timeouts["nodes_s"]), *nodes]
    gate = [*helper, "gate", "--container", name, "--network", endpoint["network"]]
    gate += ["--port", str(endpoint["container_port"]), "--model", instance["served_model_name"]]
    gate += ["--env-file", container["env_file"]] if container["env_file"] else []
    gate += ["--timeout", str(timeouts["start_s"])]
    first, *groups = docker_run_groups(container)
    return TEMPLATE.format(
        mark=UNIT_MARK,
        plan_hash=plan_hash,
        description=_description(f"vLLM {instance['served_model_name']} on port {endpoint['port']}"),
        documentation=DOCUMENTATION,
        identifier=unit_name(instance["name"]).removesuffix(".service"),
        pre_start=systemd_command(pre_start),
        start=systemd_lines([[docker, *first[1:]], *groups]),
        gate=systemd_command(gate),
        stop=systemd_command([docker, "stop", "-t", str(timeouts["stop_s"]), name]),
        post_stop=systemd_command([*helper, "post-stop", "--container", name]),
        start_limit=timeouts["nodes_s"] + timeouts["start_s"] + START_RESERVE_S,
        stop_limit=timeouts["stop_s"] + STOP_RESERVE_S,
        restart=RESTART_S,
    )


def _description(text: str) -> str:
    """A line for people: what has a meaning in a unit file ("%" and a backslash) is doubled or left out."""
    return re.sub(r"[\x00-\x1f\x7f\\]", "", text).replace("%", "%%").strip()
