# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One way to read a host: the live one, or a copy of one below a folder (a replay).

In a replay nothing of the folder is run, since it comes from somebody else: what programs printed is read from
recorded/commands.json, and absolute symbolic links are resolved inside the folder. A copy that bundle.py made also has
recorded/metadata.json: how files were on their host (an ordinary file below dev/ was a node), and what was asked of the
host without a file or a program (Sysroot.live).
"""

from __future__ import annotations

import hashlib
import os
import stat
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

from . import documents
from .commands import CommandResult, run

READ_LIMIT = 1 << 20
# As many links as Linux follows in one path (MAXSYMLINKS).
LINK_LIMIT = 40
# A name longer than any file system takes (NAME_MAX is 255): where a chain of links that is too long leads.
NOWHERE = "too-many-symbolic-links" * 12
RECORDS = "/recorded/commands.json"
METADATA = "/recorded/metadata.json"
RECORDS_LIMIT = 64 << 20
SEARCH = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
_KINDS = (
    (stat.S_ISREG, "file"),
    (stat.S_ISDIR, "directory"),
    (stat.S_ISCHR, "char"),
    (stat.S_ISBLK, "block"),
)
# The type bits of each kind; any type that is none of the others stands for "other".
_TYPES = {
    "file": stat.S_IFREG,
    "directory": stat.S_IFDIR,
    "char": stat.S_IFCHR,
    "block": stat.S_IFBLK,
    "other": stat.S_IFSOCK,
}
# The numbers of a record of metadata.json, and below what each must be.
_NUMBERS = {"uid": 1 << 32, "gid": 1 << 32, "size": 1 << 59, "mtime": 1 << 40, "major": 1 << 20, "minor": 1 << 20}

# ValueError: a NUL, or what the file system's encoding cannot hold, in a path that a file of the host names.
_NOT_THERE = (OSError, ValueError)


class SysrootError(Exception):
    """The folder given as sysroot, or a file of its recorded/, cannot be used; the message says why."""


class Trail(NamedTuple):
    """Where a path leads: the host path without a link in it (None: too many links), and the links on the way."""

    end: Optional[str]
    links: List[Tuple[str, str]]


class Sysroot:
    """A host's files and programs, read below root ("/" is the live host)."""

    def __init__(self, root: str = "/") -> None:
        self.root = os.path.abspath(root)
        self.replay = self.root != "/"
        if not os.path.isdir(self.root):
            raise SysrootError(
                "sysroot {0!r} is not a folder on this machine; unpack the host's bundle there".format(root)
            )
        self._records: List[Dict[str, Any]] = self._read_records() if self.replay else []
        metadata = self._read_metadata() if self.replay else {}
        self._paths: Dict[str, Dict[str, Any]] = metadata.get("paths") or {}
        self._live: Dict[str, Any] = metadata.get("live") or {}

    # -- files ---------------------------------------------------------------------------------------------------

    def trail(self, path: str) -> Trail:
        """Follow a host path link by link; an absolute link starts again at the root, ".." ends there."""
        todo = [part for part in path.split("/") if part]
        done: List[str] = []
        links: List[Tuple[str, str]] = []
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
            if len(links) == LINK_LIMIT:
                return Trail(None, links)
            links.append(("/" + "/".join(done + [part]), target))
            if target.startswith("/"):
                done = []
            todo = [p for p in target.split("/") if p] + todo
        return Trail("/" + "/".join(done), links)

    def path(self, path: str) -> str:
        """The real path of a host path, every symbolic link resolved inside the root.

        A loop, or a chain of more than 40 links, leads to a path below the root that cannot exist.
        """
        if self.root == "/":
            return path
        end = self.trail(path).end
        return os.path.join(self.root, NOWHERE if end is None else end[1:])

    def read_bytes(self, path: str, limit: int = READ_LIMIT) -> Optional[bytes]:
        """The first limit bytes of a regular file, else None. Device nodes are never opened."""
        try:
            real = self.path(path)
            if not stat.S_ISREG(os.stat(real).st_mode):
                return None
            with open(real, "rb") as handle:
                return handle.read(limit)
        except _NOT_THERE:
            return None

    def read_text(self, path: str, limit: int = READ_LIMIT) -> Optional[str]:
        """The text of a regular file (at most limit bytes), else None."""
        data = self.read_bytes(path, limit)
        return None if data is None else data.decode("utf-8", "replace")

    def sha256(self, path: str, limit: int) -> Optional[str]:
        """The digest (hex) of a regular file of at most limit bytes, else None; in a replay as it was recorded."""
        status = self.stat(path)
        if status is None or not stat.S_ISREG(status.st_mode) or status.st_size > limit:
            return None
        recorded = self._recorded(path).get("sha256")
        if recorded is not None:
            return str(recorded)
        # Not read_bytes: who records a host keeps what that gives, and a digest needs no content.
        data = Sysroot.read_bytes(self, path, limit + 1)
        return None if data is None or len(data) > limit else hashlib.sha256(data).hexdigest()

    def listdir(self, path: str) -> List[str]:
        """The sorted names in a folder; empty when there is none. Names that are no UTF-8 are left out."""
        try:
            names = os.listdir(self.path(path))
        except _NOT_THERE:
            return []
        return sorted(name for name in names if name == _as_text(name))

    def kind(self, path: str) -> str:
        """file, directory, char, block, other, link_broken or missing; symbolic links are followed."""
        status = self.stat(path)
        if status is None:
            return "link_broken" if self.link(path) is not None else "missing"
        return kind_of(status)

    def stat(self, path: str) -> Optional[os.stat_result]:
        """os.stat of the resolved path, None when there is nothing; in a replay as it was recorded."""
        try:
            status = os.stat(self.path(path))
        except _NOT_THERE:
            return None
        recorded = self._recorded(path)
        return _as_recorded(status, recorded) if recorded else status

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
        """The first file of that name in the folders that may be run (in a replay: that was not recorded as none)."""
        for folder in folders:
            path = "{0}/{1}".format(folder, name)
            if self.kind(path) == "file" and self.executable(path):
                return path
        return None

    def executable(self, path: str) -> bool:
        """True when this process may run the file; in a replay, which runs nothing, what was recorded, else True."""
        if self.replay:
            return self._recorded(path).get("executable") is not False
        return os.access(self.path(path), os.X_OK)

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
                    missing=bool(record.get("missing")),
                    error=record.get("error") or "",
                )
        return None

    @property
    def complete(self) -> bool:
        """False for a replay that was put together by hand: there, what is missing may just not have been copied."""
        return not self.replay or bool(self._live)

    # -- what neither a file nor a program tells -------------------------------------------------------------------

    def live(self, name: str, probe: Callable[[], Any]) -> Any:
        """What probe() finds on the live host; in a replay what was recorded under that name, None when nothing was.

        It must be plain JSON. In a replay probe is never called, and the value comes from a stranger: check its type.
        """
        return self._live.get(name) if self.replay else probe()

    # -- recorded/ -------------------------------------------------------------------------------------------------

    def _recorded(self, path: str) -> Dict[str, Any]:
        if not self._paths:
            return {}
        return self._paths.get(self.trail(path).end or "", {})

    def _read_records(self) -> List[Dict[str, Any]]:
        records = self._read_recorded(RECORDS, [])
        if not isinstance(records, list):
            raise SysrootError("{0} below {1} must hold a list of records".format(RECORDS, self.root))
        for number, record in enumerate(records):
            flaw = _record_flaw(record)
            if flaw:
                raise SysrootError("record {0} of {1} below {2} {3}".format(number, RECORDS, self.root, flaw))
        return records

    def _read_metadata(self) -> Dict[str, Any]:
        metadata = self._read_recorded(METADATA, {})
        parts = [metadata.get(key, {}) for key in ("paths", "live")] if isinstance(metadata, dict) else [None]
        if not all(isinstance(part, dict) for part in parts):
            raise SysrootError("{0} below {1} must hold an object of paths and live".format(METADATA, self.root))
        for path, record in sorted(metadata.get("paths", {}).items()):
            flaw = _metadata_flaw(record)
            if flaw:
                raise SysrootError("{0} in {1} below {2} {3}".format(_quoted(path), METADATA, self.root, flaw))
        return metadata

    def _read_recorded(self, path: str, nothing: Any) -> Any:
        # Not self.read_bytes: these files are no files of the host, so who records a host does not note them.
        data = Sysroot.read_bytes(self, path, RECORDS_LIMIT + 1)
        if data is None:
            return nothing
        if len(data) > RECORDS_LIMIT:
            raise SysrootError("{0} below {1} is larger than {2} MiB".format(path, self.root, RECORDS_LIMIT >> 20))
        try:
            return documents.parse(data.decode("utf-8", "replace"))
        except ValueError as failure:
            raise SysrootError("{0} below {1} is not JSON: {2}".format(path, self.root, failure)) from failure


def kind_of(status: os.stat_result) -> str:
    """file, directory, char, block or other."""
    return next((name for test, name in _KINDS if test(status.st_mode)), "other")


def _as_recorded(status: os.stat_result, recorded: Dict[str, Any]) -> os.stat_result:
    """The status of a file with what was recorded of it in its place."""
    mode = int(recorded["mode"], 8) if "mode" in recorded else stat.S_IMODE(status.st_mode)
    kind = _TYPES[recorded["type"]] if "type" in recorded else stat.S_IFMT(status.st_mode)
    uid, gid = recorded.get("uid", status.st_uid), recorded.get("gid", status.st_gid)
    size, mtime = recorded.get("size", status.st_size), recorded.get("mtime", int(status.st_mtime))
    numbers = (kind | mode, status.st_ino, status.st_dev, status.st_nlink, uid, gid, size, mtime, mtime, mtime)
    node = os.makedev(recorded["major"], recorded["minor"]) if "major" in recorded and "minor" in recorded else 0
    return os.stat_result(numbers, {"st_rdev": node})


def _metadata_flaw(record: Any) -> Optional[str]:
    """Why a path's record cannot be used, None when it can."""
    if not isinstance(record, dict):
        return "is no object"
    if record.get("type", "file") not in list(_TYPES):
        return "has the type {0}; it must be one of {1}".format(_quoted(record["type"]), ", ".join(sorted(_TYPES)))
    mode = record.get("mode", "0644")
    if not (isinstance(mode, str) and 0 < len(mode) <= 4 and all(digit in "01234567" for digit in mode)):
        return "has the mode {0}; it must be up to four octal digits".format(_quoted(mode))
    for key, limit in _NUMBERS.items():
        number = documents.integer(record.get(key, 0))
        if number is None or not 0 <= number < limit:
            return "has the {0} {1}; it must be a whole number".format(key, _quoted(record[key]))
    if not isinstance(record.get("sha256", ""), str):
        return "has the sha256 {0}; it must be a text".format(_quoted(record["sha256"]))
    if not isinstance(record.get("executable", True), bool):
        return "has the executable {0}; it must be true or false".format(_quoted(record["executable"]))
    return None


def _record_flaw(record: Any) -> Optional[str]:
    """Why a record cannot be used, None when it can."""
    argv = record.get("argv") if isinstance(record, dict) else None
    if not (isinstance(argv, list) and argv and all(isinstance(word, str) for word in argv)):
        return "has no argv (a list of words)"
    if record.get("rc") is not None and documents.integer(record["rc"]) is None:
        return "has the rc {0}; it must be a whole number or null".format(_quoted(record["rc"]))
    for key in ("stdout", "stderr", "error"):
        if not isinstance(record.get(key), (str, type(None))):
            return "has the {0} {1}; it must be a text or null".format(key, _quoted(record[key]))
    for key in ("timed_out", "missing"):
        if not isinstance(record.get(key, False), bool):
            return "has the {0} {1}; it must be true or false".format(key, _quoted(record[key]))
    return None


def _quoted(value: Any) -> str:
    return repr(value)[:80]


def _as_text(name: str) -> str:
    """A name of a file with U+FFFD for what is no UTF-8 in it."""
    return os.fsencode(name).decode("utf-8", "replace")
