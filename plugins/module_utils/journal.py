# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The journal of an instance's transaction, and the lock that lets only one run at a time.

Every step is written down, and on the disk, before it acts: whoever finds an open journal knows how far the dead
transaction can have come, and what it had found before.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import time
from typing import Any, Dict, Iterator, List, Optional

from . import atomic
from .instance_state import JOURNAL_DONE, JOURNAL_OPEN

LOCK_POLL_S = 0.1


class LockError(Exception):
    """The lock is somebody else's; the message says whose, and since when."""


@contextlib.contextmanager
def locked(path: str, who: str, timeout: float) -> Iterator[None]:
    """Hold the lock at path; who is noted in it. LockError after timeout seconds, naming the holder.

    The kernel frees the lock when its holder dies, so a note of a dead holder is never in the way. The file may have
    been removed with its folder while one waited: then the lock is taken again on the new one, and it is a
    FileNotFoundError when there is no new folder.
    """
    deadline = time.monotonic() + timeout
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if _take(descriptor) and _same(descriptor, path):
                break
        except BaseException:
            os.close(descriptor)
            raise
        note = os.pread(descriptor, 4096, 0).decode("utf-8", "replace")
        os.close(descriptor)
        if time.monotonic() >= deadline:
            raise LockError("{0} is held by {1}".format(path, holder(note)))
        time.sleep(LOCK_POLL_S)
    try:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps({"who": who, "pid": os.getpid(), "since": now()}).encode("utf-8"), 0)
        yield
    finally:
        os.close(descriptor)


def _take(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as failure:
        if failure.errno in (errno.EWOULDBLOCK, errno.EACCES):
            return False
        raise
    return True


def _same(descriptor: int, path: str) -> bool:
    try:
        there = os.stat(path)
    except OSError:
        return False
    here = os.fstat(descriptor)
    return (there.st_dev, there.st_ino) == (here.st_dev, here.st_ino)


def holder(note: str) -> str:
    """A lock's note as words: who, which process, since when."""
    try:
        said = json.loads(note)
        return "{0}, process {1}, since {2}".format(said["who"], said["pid"], said["since"])
    except (ValueError, KeyError, TypeError):
        return "somebody who left no note"


def now() -> str:
    """The time in UTC, as ISO 8601 with seconds."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


class Journal:
    """One transaction, on disk. data is what the file holds: state (open, done), outcome, steps, snapshot, request.

    strict: a write that fails is an OSError, since what is not written down must not be done. Undoing must go on
    without it (strict is False then): the journal is kept in memory, and problem says why it is not on the disk.
    """

    def __init__(self, path: str, data: Dict[str, Any], strict: bool = True) -> None:
        self.path = path
        self.data = data
        self.strict = strict
        self.problem: Optional[str] = None

    @classmethod
    def left_open(cls, path: str) -> Optional[Dict[str, Any]]:
        """What a dead transaction left, None when the last one ended properly. {} for a journal that is no JSON."""
        if atomic.read_text(path) is None:
            return None
        found = atomic.read_json(path)
        if not isinstance(found, dict):
            return {}
        return None if found.get("state") == JOURNAL_DONE else found

    @classmethod
    def begin(cls, path: str, request: Dict[str, Any], **more: Any) -> Journal:
        """A new open journal; whatever was there is replaced (what matters of it is in more)."""
        data: Dict[str, Any] = {
            "state": JOURNAL_OPEN,
            "outcome": None,
            "request": request,
            "pid": os.getpid(),
            "started_at": now(),
            "steps": [],
            "failure": None,
        }
        data.update(more)
        journal = cls(path, data)
        journal.save()
        return journal

    def save(self) -> None:
        """Write all of it down; it is on the disk when this returns, unless there is a problem."""
        try:
            atomic.write_json(self.path, self.data)
        except OSError as failure:
            self.problem = "the journal {0} cannot be written: {1}".format(self.path, failure)
            if self.strict:
                raise
        else:
            self.problem = None

    def note(self, **values: Any) -> None:
        """Set some of its values and write it down."""
        self.data.update(values)
        self.save()

    def start(self, step: str) -> None:
        """A step is about to act."""
        self.data["steps"].append({"step": step, "result": "started", "at": now(), "seconds": None})
        self.save()

    def end(self, result: str, seconds: float) -> None:
        """The step has ended: done, skipped or failed."""
        self.data["steps"][-1].update(result=result, seconds=round(seconds, 2))
        self.save()

    def close(self, outcome: str) -> None:
        """The transaction has ended: nothing is left to finish or to undo."""
        self.note(state=JOURNAL_DONE, outcome=outcome, ended_at=now())

    @property
    def steps(self) -> List[Dict[str, Any]]:
        """[{step, seconds, result}] so far."""
        return [{key: step[key] for key in ("step", "seconds", "result")} for step in self.data["steps"]]


def reached(left: Dict[str, Any], step: str, result: str = "done") -> bool:
    """True when a journal says that a step came to that result."""
    return any(one.get("step") == step and one.get("result") == result for one in left.get("steps") or [])
