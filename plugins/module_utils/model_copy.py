# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Copy a model from one folder of the host to another (a share that is mounted there): what is there already stays.

A file is written beside its place and renamed, so that whoever reads the folder finds it whole or not at all.
config.json comes last: a folder that was not copied to its end is known by that.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
from typing import Any, Dict, List, NamedTuple

from .atomic import sync_folder

MIB = 1 << 20
CHUNK = 4 * MIB
# Kept free beside what is copied, in bytes.
SPARE = 256 * MIB
PART = ".vllm-ascend-part"
LAST = "config.json"


class CopyError(Exception):
    """The copy cannot be made; code is that of the problem."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class File(NamedTuple):
    """A file of a model: its name below the folder, and its size in bytes."""

    name: str
    size: int


def files_of(folder: str) -> List[File]:
    """The files of a model's folder in the order in which they are copied. CopyError when there is no such folder."""
    if not os.path.isdir(folder):
        raise CopyError("model_copy_missing", "the folder {0} is not there".format(folder))
    found = []
    for inside, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if name not in (".git", ".cache"))
        for name in names:
            path = os.path.join(inside, name)
            if not name.endswith(PART) and os.path.isfile(path):
                found.append(File(os.path.relpath(path, folder), os.stat(path).st_size))
    if not found:
        raise CopyError("model_copy_missing", "the folder {0} is empty".format(folder))
    return ordered(found)


def ordered(files: List[File]) -> List[File]:
    """Indexes first, config.json last: what is missing in between can be told."""
    return sorted(files, key=lambda one: (one.name == LAST, not one.name.endswith(".index.json"), one.name))


def wanting(files: List[File], target: str) -> List[File]:
    """Those of the files that the target folder lacks, or has with another size."""
    return [one for one in files if _size(os.path.join(target, one.name)) != one.size]


def check_room(files: List[File], target: str) -> None:
    """CopyError when the files do not fit on the disk of the target."""
    folder = target
    while not os.path.isdir(folder) and folder != "/":
        folder = os.path.dirname(folder)
    needed, free = sum(one.size for one in files), shutil.disk_usage(folder).free
    if needed and needed + SPARE > free:
        text = "{0} MiB are to be copied to {1}, and {2} MiB are free there"
        raise CopyError("model_disk_full", text.format(-(-needed // MIB), target, free // MIB))


def copy(source: str, target: str, checksum: bool = False) -> Dict[str, Any]:
    """Copy what the target lacks: {copied: [names], kept: how many were there}. CopyError.

    Files of the same size are taken for the same, with checksum only where their content is the same too.
    """
    files = files_of(source)
    lacking = wanting(files, target)
    if checksum:
        same = [one for one in files if one not in lacking]
        other = [
            one for one in same if digest(os.path.join(source, one.name)) != digest(os.path.join(target, one.name))
        ]
        lacking = ordered(lacking + other)
    check_room(lacking, target)
    for one in lacking:
        try:
            _copy(os.path.join(source, one.name), os.path.join(target, one.name))
        except OSError as failure:
            raise CopyError("model_copy_failed", "{0} cannot be copied: {1}".format(one.name, failure)) from failure
    return {"copied": [one.name for one in lacking], "kept": len(files) - len(lacking)}


def digest(path: str) -> str:
    """The sha256 (hex) of a file; empty when it cannot be read."""
    known = hashlib.sha256()
    try:
        with open(path, "rb") as stream:
            for chunk in iter(lambda: stream.read(CHUNK), b""):
                known.update(chunk)
    except OSError:
        return ""
    return known.hexdigest()


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return -1


def _copy(source: str, target: str) -> None:
    folder = os.path.dirname(target)
    os.makedirs(folder, mode=0o755, exist_ok=True)
    part = target + PART
    try:
        with open(source, "rb") as reader, open(part, "wb") as writer:
            os.fchmod(writer.fileno(), 0o644)
            shutil.copyfileobj(reader, writer, CHUNK)
            writer.flush()
            os.fsync(writer.fileno())
        os.rename(part, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(part)
        raise
    sync_folder(folder)
