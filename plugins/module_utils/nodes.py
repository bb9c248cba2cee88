# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Wait for the device nodes of an instance, and see that its unit can start: what ExecStartPre= and ExecStopPost= do.

At boot the driver may take 300 to 400 s until it has made its nodes and set their modes, so the wait is part of the
unit and bounded; the nodes are only looked at, never opened.
"""

from __future__ import annotations

import os
import stat
import time
from typing import Callable, List, Optional

from .commands import CommandResult, run
from .engine import ENGINE_ENV
from .instance_state import LABEL_INSTANCE

DOCKER_S = 60.0
POLL_S = 1.0


class NodeError(Exception):
    """The instance cannot start; the message is one line that says why and what to do."""


def node_fault(path: str) -> Optional[str]:
    """What is wrong with a device node: None when it is a character device or a folder of them, else a few words.

    /dev/ummu and /dev/uburma of a 950 are folders of nodes (Ascend mind-cluster devnode.go).
    """
    try:
        mode = os.stat(path).st_mode
        if stat.S_ISCHR(mode):
            return None
        if not stat.S_ISDIR(mode):
            return "not a character device"
        inside = [os.stat(os.path.join(path, name)).st_mode for name in os.listdir(path)]
    except OSError:
        return "missing"
    return None if any(stat.S_ISCHR(mode) for mode in inside) else "a folder without a character device"


def wait_for_nodes(
    nodes: List[str],
    timeout: float,
    fault: Callable[[str], Optional[str]] = node_fault,
    poll: float = POLL_S,
    say: Callable[[str], None] = print,
) -> float:
    """Wait at most timeout seconds until every node is a character device; the seconds that it took.

    NodeError names each node that is still wrong.
    """
    began = time.monotonic()
    said = False
    while True:
        faults = ["{0} ({1})".format(node, text) for node in nodes for text in [fault(node)] if text]
        waited = time.monotonic() - began
        if not faults:
            return waited
        if waited >= timeout:
            raise NodeError(
                "device nodes not usable after {0:.0f} s: {1}; look at `npu-smi info` and `dmesg`, or give the driver "
                "longer with vllm_node_timeout".format(waited, ", ".join(faults))
            )
        if not said:
            say("waiting up to {0:.0f} s for {1}".format(timeout, ", ".join(faults)))
            said = True
        time.sleep(min(poll, max(timeout - waited, 0.01)))


def require_image(engine: str, image: str) -> str:
    """The id of an image that the engine has. NodeError when it has none: a unit never pulls."""
    result = docker(engine, "image", "inspect", "--format", "{{.Id}}", image)
    if result.ok:
        return result.stdout.strip()
    if "no such image" in result.stderr.lower():
        raise NodeError(
            "image {0} is not on this host and a unit never pulls; fetch it with the playbook (vllm_image) or "
            "`docker pull`".format(image)
        )
    raise NodeError("cannot ask {0} for the image {1}: {2}".format(engine, image, _why(result)))


def owner(engine: str, container: str) -> Optional[str]:
    """The instance that a container is labelled with ("": it has no label), None when there is no such container."""
    label = '{{{{index .Config.Labels "{0}"}}}}'.format(LABEL_INSTANCE)
    result = docker(engine, "container", "inspect", "--format", label, container)
    if result.ok:
        return result.stdout.strip().replace("<no value>", "")
    if "no such container" in result.stderr.lower():
        return None
    raise NodeError("cannot ask {0} for the container {1}: {2}".format(engine, container, _why(result)))


def remove_stale(engine: str, container: str, instance: Optional[str] = None) -> bool:
    """Remove a left-over container of ours; True when there was one. NodeError when the name is somebody else's."""
    found = owner(engine, container)
    if found is None:
        return False
    if not found or (instance is not None and found != instance):
        raise NodeError(
            "a container {0} exists that is {1}: it is left alone; stop and rename or remove it, or let "
            "vllm_adopt_containers take its place".format(
                container, "of the instance {0}".format(found) if found else "not made by vllm_ascend.fleet"
            )
        )
    result = docker(engine, "rm", "--force", container)
    gone = "no such container" in result.stderr.lower() or "already in progress" in result.stderr.lower()
    if not result.ok and not gone:
        raise NodeError("cannot remove the stale container {0}: {1}".format(container, _why(result)))
    return True


def docker(engine: str, *words: str) -> CommandResult:
    """Call the engine of this host, wherever the environment of a login may point; never raises."""
    return run([engine] + list(words), DOCKER_S, env=ENGINE_ENV)


def _why(result: CommandResult) -> str:
    if result.missing:
        return "the program is missing"
    if result.timed_out:
        return "no answer within {0:.0f} s".format(DOCKER_S)
    return " ".join((result.stderr or result.error or result.stdout).split())[-300:] or "exit {0}".format(result.rc)
