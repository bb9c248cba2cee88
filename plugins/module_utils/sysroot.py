# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One way to read a host: the live one, or a copy of one below a folder (a replay).

In a replay nothing of the folder is run, since it comes from somebody else: what programs printed is read from
recorded/commands.json, and absolute symbolic links are resolved inside the folder.
"""

from __future__ import annotations

import os
import stat
from typing import Any, Dict, List, Optional

from . import documents
from .commands import CommandResult, run

READ_LIMIT = 1 << 20
# As many links as Linux follows in one path (MAXSYMLINKS).
LINK_LIMIT = 40
# A name longer than any file system takes (NAME_MAX is 255): where a chain of links that is too long leads.
NOWHERE = "too-many-symbolic-links" * 12
RECORDS = "/recorded/commands.json"
SEARCH = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
_KINDS = (
    (stat.S_ISREG, "file"),
    (stat.S_ISDIR, "directory"),
    (stat.S_ISCHR, "char"),
    (stat.S_ISBLK, "block"),
)


# ValueError: a NUL, or what the file system's encoding cannot hold, in a path that a file of the host names.
_NOT_THERE = (OSError, ValueError)


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
        """The real path of a host path, every symbolic link resolved inside the root.

        A loop, or a chain of more than 40 links, leads to a path below the root that cannot exist.
        """
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
            try:
                target = os.readlink(here)
            except _NOT_THERE:
                done.append(part)
                continue
            links += 1
            if links > LINK_LIMIT:
                return os.path.join(self.root, NOWHERE)
            if target.startswith("/"):
                done = []
            todo = [p for p in target.split("/") if p] + todo
        return os.path.join(self.root, *done)

    def read_text(self, path: str, limit: int = READ_LIMIT) -> Optional[str]:
        """The text of a regular file (at most limit bytes), else None. Device nodes are never opened."""
        real = self.path(path)
        try:
            if not stat.S_ISREG(os.stat(real).st_mode):
                return None
            with open(real, "rb") as handle:
                return handle.read(limit).decode("utf-8", "replace")
        except _NOT_THERE:
            return None

    def listdir(self, path: str) -> List[str]:
        """The sorted names in a folder; empty when there is none. Names that are no UTF-8 are left out."""
        try:
            names = os.listdir(self.path(path))
        except _NOT_THERE:
            return []
        return sorted(name for name in names if name == _as_text(name))

    def kind(self, path: str) -> str:
        """file, directory, char, block, other, link_broken or missing; symbolic links are followed."""
        try:
            mode = os.stat(self.path(path)).st_mode
        except _NOT_THERE:
            return "link_broken" if self.link(path) is not None else "missing"
        return next((name for test, name in _KINDS if test(mode)), "other")

    def stat(self, path: str) -> Optional[os.stat_result]:
        """os.stat of the resolved path, None when there is nothing."""
        try:
            return os.stat(self.path(path))
        except _NOT_THERE:
            return None

    def link(self, path: str) -> Optional[str]:
        """What a symbolic link says, None when the path is none."""
        parent, name = os.path.split(path.rstrip("/"))
        if name in ("", ".", ".."):
            return None
        try:
            return _as_text(os.readlink(os.path.join(self.path(parent or "/"), name)))
        except _NOT_THERE:
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
            records = documents.parse(text)
        except ValueError as failure:
            raise SysrootError("{0} below {1} is not JSON: {2}".format(RECORDS, self.root, failure)) from failure
        if not isinstance(records, list):
            raise SysrootError("{0} below {1} must hold a list of records".format(RECORDS, self.root))
        for number, record in enumerate(records):
            flaw = _record_flaw(record)
            if flaw:
                raise SysrootError("record {0} of {1} below {2} {3}".format(number, RECORDS, self.root, flaw))
        return records


def _record_flaw(record: Any) -> Optional[str]:
    """Why a record cannot be used, None when it can."""
    argv = record.get("argv") if isinstance(record, dict) else None
    if not (isinstance(argv, list) and argv and all(isinstance(word, str) for word in argv)):
        return "has no argv (a list of words)"
    if record.get("rc") is not None and documents.integer(record["rc"]) is None:
        return "has the rc {0}; it must be a whole number or null".format(_quoted(record["rc"]))
    for key in ("stdout", "stderr"):
        if not isinstance(record.get(key), (str, type(None))):
            return "has the {0} {1}; it must be a text or null".format(key, _quoted(record[key]))
    if not isinstance(record.get("timed_out", False), bool):
        return "has the timed_out {0}; it must be true or false".format(_quoted(record["timed_out"]))
    return None


def _quoted(value: Any) -> str:
    return repr(value)[:80]


def _as_text(name: str) -> str:
    """A name of a file with U+FFFD for what is no UTF-8 in it."""
    return os.fsencode(name).decode("utf-8", "replace")
