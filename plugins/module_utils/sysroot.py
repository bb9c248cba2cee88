# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One way to read a host: the live one, or a copy of one below a folder (a replay).

In a replay nothing of the folder is run, since it comes from somebody else: what programs printed is read from
recorded/commands.json, and absolute symbolic links are resolved inside the folder.
"""

from __future__ import annotations

import json
import os
import stat
from typing import Any, Dict, List, Optional

from .commands import CommandResult, run

READ_LIMIT = 1 << 20
LINK_LIMIT = 40
RECORDS = "/recorded/commands.json"
SEARCH = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
_KINDS = (
    (stat.S_ISREG, "file"),
    (stat.S_ISDIR, "directory"),
    (stat.S_ISCHR, "char"),
    (stat.S_ISBLK, "block"),
)


class SysrootError(Exception):
    """The folder given as sysroot, or its recorded/commands.json, cannot be used; the message says why."""


class Sysroot:
    """A host's files and programs, read below root ("/" is the live host)."""

    def __init__(self, root: str = "/") -> None:
        self.root = os.path.abspath(root)
        self.replay = self.root != "/"
        if not os.path.isdir(self.root):
            raise SysrootError(
                "sysroot {0!r} is not a folder on this machine; unpack the host's bundle there".format(root)
            )
        self._records = self._read_records() if self.replay else []

    # -- files ---------------------------------------------------------------------------------------------------

    def path(self, path: str) -> str:
        """The real path of a host path, every symbolic link resolved inside the root (a loop: the path itself)."""
        if not self.replay:
            return path
        todo = [part for part in path.split("/") if part]
        done: List[str] = []
        links = 0
        while todo:
            part = todo.pop(0)
            if part == ".":
                continue
            if part == "..":
                done = done[:-1]
                continue
            here = os.path.join(self.root, *(done + [part]))
            if os.path.islink(here) and links < LINK_LIMIT:
                links += 1
                target = os.readlink(here)
                if target.startswith("/"):
                    done = []
                todo = [p for p in target.split("/") if p] + todo
                continue
            done.append(part)
        return os.path.join(self.root, *done)

    def read_text(self, path: str, limit: int = READ_LIMIT) -> Optional[str]:
        """The text of a regular file (at most limit bytes), else None. Device nodes are never opened."""
        real = self.path(path)
        try:
            if not stat.S_ISREG(os.stat(real).st_mode):
                return None
            with open(real, "rb") as handle:
                return handle.read(limit).decode("utf-8", "replace")
        except OSError:
            return None

    def listdir(self, path: str) -> List[str]:
        """The sorted names in a folder; empty when there is none."""
        try:
            return sorted(os.listdir(self.path(path)))
        except OSError:
            return []

    def kind(self, path: str) -> str:
        """file, directory, char, block, other, link_broken or missing; symbolic links are followed."""
        try:
            mode = os.stat(self.path(path)).st_mode
        except OSError:
            return "link_broken" if self.link(path) is not None else "missing"
        return next((name for test, name in _KINDS if test(mode)), "other")

    def stat(self, path: str) -> Optional[os.stat_result]:
        """os.stat of the resolved path, None when there is nothing."""
        try:
            return os.stat(self.path(path))
        except OSError:
            return None

    def link(self, path: str) -> Optional[str]:
        """What a symbolic link says, None when the path is none."""
        parent, name = os.path.split(path.rstrip("/"))
        try:
            return os.readlink(os.path.join(self.path(parent or "/"), name))
        except OSError:
            return None

    def exists(self, path: str) -> bool:
        """True when the path leads to something."""
        return self.stat(path) is not None

    # -- programs ------------------------------------------------------------------------------------------------

    def which(self, name: str, folders: Any = SEARCH) -> Optional[str]:
        """The first regular file of that name in the folders (on a live host it must be executable)."""
        for folder in folders:
            path = "{0}/{1}".format(folder, name)
            if self.kind(path) == "file" and (self.replay or os.access(path, os.X_OK)):
                return path
        return None

    def run(self, argv: List[str], timeout: float, env: Optional[Dict[str, str]] = None) -> Optional[CommandResult]:
        """Run argv on the live host; in a replay give what was recorded for it, None when nothing was."""
        if not self.replay:
            return run(argv, timeout, env=env)
        wanted = [os.path.basename(argv[0])] + list(argv[1:])
        for record in self._records:
            recorded = record["argv"]
            if [os.path.basename(recorded[0])] + recorded[1:] == wanted:
                return CommandResult(
                    list(argv),
                    None if record.get("timed_out") else record.get("rc"),
                    record.get("stdout") or "",
                    record.get("stderr") or "",
                    timed_out=bool(record.get("timed_out")),
                )
        return None

    def _read_records(self) -> List[Dict[str, Any]]:
        text = self.read_text(RECORDS, limit=64 << 20)
        if text is None:
            return []
        try:
            records = json.loads(text)
        except ValueError as failure:
            raise SysrootError("{0} below {1} is not JSON: {2}".format(RECORDS, self.root, failure)) from failure
        if not isinstance(records, list):
            raise SysrootError("{0} below {1} must hold a list of records".format(RECORDS, self.root))
        for number, record in enumerate(records):
            argv = record.get("argv") if isinstance(record, dict) else None
            if not (isinstance(argv, list) and argv and all(isinstance(word, str) for word in argv)):
                raise SysrootError(
                    "record {0} of {1} below {2} has no argv (a list of words)".format(number, RECORDS, self.root)
                )
        return records
