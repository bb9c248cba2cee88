# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The machine that a transaction works on: its files below a root, its systemd and its container engine.

Every command is an argument list with a time limit. root is "/" on a host; the tests put another one, and their own
programs on PATH.
"""

from __future__ import annotations

import json
import os
from typing import Any, Dict, List, Optional

from . import instance_state, log_lines, systemd
from .commands import CommandResult, run
from .engine import ENGINE_ENV
from .sysroot import Sysroot

COMMAND_S = 60.0
LOG_LINES = 400


class HostError(Exception):
    """A command of the host did not do what it was asked; the message says which and why, lines say more."""

    def __init__(self, message: str, lines: Optional[List[str]] = None) -> None:
        super().__init__(message)
        self.lines = lines or []


class Host:
    """One machine. engine is the container engine's command."""

    def __init__(self, engine: str = "docker", root: str = "/") -> None:
        self.engine = engine
        self.root = root
        self.sysroot = Sysroot(root)

    # -- files -------------------------------------------------------------------------------------------------------

    def path(self, path: str) -> str:
        """Where a host path is for this process."""
        return path if self.root == "/" else self.root.rstrip("/") + path

    def state(self, instance: str, name: str = "") -> str:
        """The state folder of an instance, or a file in it."""
        return self.path(instance_state.state_path(instance, name))

    # -- programs ----------------------------------------------------------------------------------------------------

    def command(self, argv: List[str], timeout: float = COMMAND_S, stdin: Optional[str] = None) -> CommandResult:
        """Run argv and give its result; HostError when it did not end with 0."""
        return _checked(run(argv, timeout, stdin=stdin), timeout)

    def systemctl(self, *words: str, timeout: float = COMMAND_S) -> CommandResult:
        """systemctl; HostError when it failed."""
        return self.command(["systemctl"] + list(words), timeout)

    def docker(self, *words: str, timeout: float = COMMAND_S) -> CommandResult:
        """The container engine; HostError when it failed."""
        return _checked(self.ask_docker(list(words), timeout), timeout)

    def ask_docker(
        self,
        words: List[str],
        timeout: float = COMMAND_S,
        stdin: Optional[str] = None,
        env: Optional[Dict[str, str]] = None,
    ) -> CommandResult:
        """The same; never raises. It is always the engine of this host, wherever a login's environment may point."""
        return run([self.engine] + words, timeout, stdin=stdin, env=dict(env or {}, **ENGINE_ENV))

    def planned(self, argv: List[str], timeout: float, stdin: Optional[str] = None) -> CommandResult:
        """Run an argv of a plan, whose first word stands for the engine; never raises."""
        return self.ask_docker(list(argv[1:]), timeout, stdin)

    # -- what is there -----------------------------------------------------------------------------------------------

    def unit(self, instance: str) -> systemd.Unit:
        """The state of an instance's unit. HostError when systemd does not answer."""
        name = instance_state.unit_name(instance)
        result = self.command(systemd.show_argv([name]), systemd.TIMEOUT_S)
        return systemd.parse_show(result.stdout).get(name) or systemd.Unit(name)

    def inspect(self, container: str) -> Optional[Dict[str, Any]]:
        """What the engine knows about a container, None when there is no such one. HostError when it fails."""
        return self._inspect("container", container)

    def image(self, reference: str) -> Optional[Dict[str, Any]]:
        """What the engine knows about an image, None when it has none. HostError when it fails."""
        return self._inspect("image", reference)

    def image_id(self, reference: str) -> Optional[str]:
        """The id that a reference points to, None when the engine has no such image."""
        found = self.image(reference)
        return str(found["Id"]) if found else None

    def _inspect(self, what: str, name: str) -> Optional[Dict[str, Any]]:
        result = self.ask_docker([what, "inspect", name])
        if not result.ok:
            if result.rc is not None and "no such {0}".format(what) in result.text.lower():
                return None
            raise HostError(explain(result, COMMAND_S))
        found = json.loads(result.stdout)
        return found[0] if found else None

    def unit_log(self, instance: str, since: float) -> List[str]:
        """The last lines of a unit's log since that time (seconds of the epoch); empty when there are none."""
        # The journal takes what a unit printed a moment later than systemctl tells of its end.
        run(["journalctl", "--sync"], COMMAND_S)
        unit = instance_state.unit_name(instance)
        asked = run(["systemctl", "show", "--property=InvocationID", "--value", unit], COMMAND_S)
        invocation = asked.stdout.strip() if asked.ok else ""
        if invocation:
            # What its processes said, and what systemd said of them; not how its predecessor was stopped just before.
            which = ["_SYSTEMD_INVOCATION_ID=" + invocation, "+", "INVOCATION_ID=" + invocation]
        else:
            which = ["--unit", unit]
        argv = ["journalctl", "--since", "@{0}".format(int(since)), "--output", "cat", "--no-pager"]
        result = run(argv + ["--lines", str(LOG_LINES)] + which, COMMAND_S)
        return result.stdout.splitlines() if result.ok else []

    def environment(self, instance: str) -> Dict[str, str]:
        """The secrets of an instance's environment file; empty when there is none."""
        return instance_state.read_env(self.sysroot, instance) or {}


def _checked(result: CommandResult, timeout: float) -> CommandResult:
    if not result.ok:
        raise HostError(explain(result, timeout), result.text.splitlines())
    return result


def explain(result: CommandResult, timeout: float) -> str:
    """One line that says why a command failed."""
    name = " ".join([os.path.basename(result.argv[0])] + result.argv[1:3])
    if result.missing:
        return "{0}: the program {1} is missing".format(name, result.argv[0])
    if result.timed_out:
        return "{0}: no end within {1:.0f} s".format(name, timeout)
    said = next(
        (text for text in map(log_lines.without_shell_noise, (result.stderr, result.error, result.stdout)) if text), ""
    )
    text = " ".join(said.split())
    return "{0}: exit {1}: {2}".format(name, result.rc, text[-400:])
