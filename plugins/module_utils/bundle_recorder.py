# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Notes everything of a host that is read through Sysroot, so that a replay of the notes reads the same."""

from __future__ import annotations

import os
import stat
import threading
from typing import Any, Callable, Dict, List, NamedTuple, Optional

from .commands import CommandResult
from .sysroot import READ_LIMIT, SEARCH, Sysroot, kind_of

# Folders whose names tell about other things of the host: only those that were also looked at are noted.
QUIET_FOLDERS = ("/dev", "/proc", "/etc/systemd/system", "/run/systemd/system", "/root", "/home")


class Node(NamedTuple):
    """What lies at a path without links in it.

    kind: link, or as Sysroot.kind says. target: of a link. status: None where only the name was listed. content: the
    bytes that were read (None: none), the first of more where cut is true. executable, sha256: None where not asked.
    asked: the path, links in it and all, by which it was first looked at.
    """

    kind: str
    target: Optional[str] = None
    status: Optional[os.stat_result] = None
    content: Optional[bytes] = None
    cut: bool = False
    executable: Optional[bool] = None
    sha256: Optional[str] = None
    asked: str = ""


class Recorder(Sysroot):
    """A Sysroot, of a live host or of a replay, that keeps notes: nodes by path, commands, live values by name."""

    def __init__(self, root: str = "/") -> None:
        super().__init__(root)
        self.nodes: Dict[str, Node] = {}
        self.commands: List[Dict[str, Any]] = []
        self.live_values: Dict[str, Any] = {}
        # The endpoints of instances are asked by several threads.
        self._lock = threading.RLock()

    # -- files ---------------------------------------------------------------------------------------------------

    def stat(self, path: str) -> Optional[os.stat_result]:
        """As Sysroot.stat."""
        status = super().stat(path)
        self._note(path, status)
        return status

    def read_bytes(self, path: str, limit: int = READ_LIMIT) -> Optional[bytes]:
        """As Sysroot.read_bytes."""
        data = super().read_bytes(path, limit)
        self._note(path, super().stat(path), data, len(data or b"") == limit)
        return data

    def sha256(self, path: str, limit: int) -> Optional[str]:
        """As Sysroot.sha256; the content is not kept."""
        digest = super().sha256(path, limit)
        self._change(path, sha256=digest)
        return digest

    def executable(self, path: str) -> bool:
        """As Sysroot.executable."""
        found = super().executable(path)
        self._change(path, executable=found)
        return found

    def listdir(self, path: str) -> List[str]:
        """As Sysroot.listdir."""
        names = super().listdir(path)
        self._note(path, super().stat(path))
        end = self.trail(path).end
        if end is not None and end not in QUIET_FOLDERS:
            for name in names:
                self._note_name("{0}/{1}".format(end.rstrip("/"), name))
        return names

    def link(self, path: str) -> Optional[str]:
        """As Sysroot.link."""
        target = super().link(path)
        parent, name = os.path.split(path.rstrip("/"))
        end = self.trail(parent or "/").end if target is not None else None
        if end is not None:
            self._note(parent or "/", super().stat(parent or "/"))
            self._note_name("{0}/{1}".format(end.rstrip("/"), name))
        return target

    def which(self, name: str, folders: Any = SEARCH) -> Optional[str]:
        """As Sysroot.which."""
        return super().which(name, folders)

    # -- programs and live values ----------------------------------------------------------------------------------

    def run(self, argv: List[str], timeout: float, env: Optional[Dict[str, str]] = None) -> Optional[CommandResult]:
        """As Sysroot.run."""
        result = super().run(argv, timeout, env)
        if result is not None:
            record: Dict[str, Any] = {
                "argv": [os.path.basename(argv[0])] + list(argv[1:]),
                "rc": result.rc,
                "stdout": result.stdout,
                "stderr": result.stderr,
                "timed_out": result.timed_out,
            }
            record.update(
                {"missing": True} if result.missing else {}, **({"error": result.error} if result.error else {})
            )
            with self._lock:
                if record["argv"] not in [known["argv"] for known in self.commands]:
                    self.commands.append(record)
        return result

    def live(self, name: str, probe: Callable[[], Any]) -> Any:
        """As Sysroot.live."""
        value = super().live(name, probe)
        if value is not None:
            with self._lock:
                self.live_values.setdefault(name, value)
        return value

    # -- notes ---------------------------------------------------------------------------------------------------

    def _note(
        self, path: str, status: Optional[os.stat_result], content: Optional[bytes] = None, cut: bool = False
    ) -> None:
        """Note the links on the way to a path, the folders, and what lies there."""
        end, links = self.trail(path)
        with self._lock:
            for link, target in links:
                self._put(link, Node("link", target))
            if end is None or status is None:
                return
            known = self.nodes.get(end)
            node = known if known is not None and known.kind != "link" else Node(kind_of(status))
            node = node._replace(kind=kind_of(status), status=status, asked=node.asked or path)
            if content is not None and len(content) >= len(node.content or b""):
                node = node._replace(content=content, cut=cut)
            self._put(end, node)

    def _note_name(self, path: str) -> None:
        """Note what lies at a path whose folder has no link in it, without following it."""
        try:
            status = os.lstat(os.path.join(self.root, path[1:]))
        except (OSError, ValueError):
            return
        with self._lock:
            if stat.S_ISLNK(status.st_mode):
                # Not os.readlink's error: the link may be gone by now.
                target = Sysroot.link(self, path)
                if target is not None:
                    self._put(path, Node("link", target))
            elif path not in self.nodes:
                kind = kind_of(status)
                self._put(path, Node(kind if kind == "directory" else "file"))

    def _change(self, path: str, **changes: Any) -> None:
        end = self.trail(path).end
        with self._lock:
            if end in self.nodes:
                self.nodes[end] = self.nodes[end]._replace(**changes)

    def _put(self, path: str, node: Node) -> None:
        parts = path.split("/")[1:-1]
        for number in range(len(parts)):
            self.nodes.setdefault("/" + "/".join(parts[: number + 1]), Node("directory"))
        self.nodes[path] = node
