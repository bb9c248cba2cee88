# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files that are either whole or as they were: written aside, flushed to the disk and renamed."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from typing import Any, Optional


def write(path: str, content: bytes, mode: int = 0o600) -> None:
    """Put content at path in one step; whoever is killed at any moment leaves the old file or the new one.

    It is on the disk when this returns. OSError when it cannot be done.
    """
    folder, name = os.path.split(path)
    handle, aside = tempfile.mkstemp(prefix="." + name + ".", suffix=".tmp", dir=folder)
    try:
        with os.fdopen(handle, "wb") as stream:
            os.fchmod(stream.fileno(), mode)
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        os.rename(aside, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(aside)
        raise
    sync_folder(folder)


def write_text(path: str, text: str, mode: int = 0o600) -> None:
    """The same for text, encoded as UTF-8; bytes that read_text found to be none go back as they were."""
    write(path, text.encode("utf-8", "surrogateescape"), mode)


def write_json(path: str, value: Any, mode: int = 0o600) -> None:
    """The same for a value, as readable JSON."""
    write_text(path, json.dumps(value, indent=1, sort_keys=True) + "\n", mode)


def read_text(path: str) -> Optional[str]:
    """The text of a file, None when there is none."""
    try:
        with open(path, "rb") as stream:
            return stream.read().decode("utf-8", "surrogateescape")
    except (FileNotFoundError, NotADirectoryError):
        return None


def read_json(path: str) -> Any:
    """The value in a JSON file; None when there is no file, or when what is there is no JSON."""
    text = read_text(path)
    if text is None:
        return None
    try:
        return json.loads(text)
    except ValueError:
        return None


def remove(path: str) -> bool:
    """Remove a file; True when there was one."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        return False
    sync_folder(os.path.dirname(path))
    return True


def sync_folder(folder: str) -> None:
    """Make a rename or a removal in the folder last; file systems that cannot do it are left alone."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def digest(value: Any) -> str:
    """The sha256 (hex) of a value as canonical JSON."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, separators=(",", ":")).encode("utf-8")).hexdigest()
