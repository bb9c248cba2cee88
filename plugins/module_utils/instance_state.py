# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where an instance's files are on a host, how they are named and digested, and how they are read.

One place for those names: whoever writes them (the transaction) and whoever reads them (the observation) imports it.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import re
import stat
from typing import Any, Dict, List, Optional

from . import documents
from .sysroot import Sysroot

STATE_DIR = "/var/lib/vllm-ascend"
ENV_DIR = "/etc/vllm-ascend"
UNIT_DIR = "/etc/systemd/system"
HELPER_PATH = "/usr/local/libexec/vllm-ascend/host.py"

UNIT_PREFIX = "vllm-"
UNIT_SUFFIX = ".service"
# A unit file of ours carries this line; a unit vllm-*.service without it is somebody else's.
UNIT_MARK = "# vllm_ascend.fleet instance"
# The helper's file carries this line near its top (also before the archive when it is a zip application).
HELPER_MARK = "# vllm_ascend.fleet host helper "
HELPER_HEAD = 4096
# The largest of these files, the helper, has some hundred kB: what is larger than this is none of them.
READ_LIMIT = 4 << 20

LABEL_INSTANCE = "vllm-ascend.instance"
LABEL_PLAN = "vllm-ascend.plan"
LABEL_ROLE = "vllm-ascend.role"
ROLE_SERVE = "serve"
ROLE_VERIFY = "verify"

LOCK = "lock"
JOURNAL = "journal.json"
COMMITTED = "committed.json"
PREVIOUS = "previous.json"
PREVIOUS_UNIT = "previous.unit"
PREVIOUS_ENV = "previous.env"
REQUEST = "request.json"
RESULT = "result.json"

JOURNAL_NONE = "none"
JOURNAL_OPEN = "open"
JOURNAL_RUNNING = "running"
# The value of the journal's key "state" once its transaction has ended (committed, or undone and proved).
JOURNAL_DONE = "done"

API_KEY = "VLLM_API_KEY"

INSTANCE_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,30}\Z")
_UNIT_FILE = re.compile(r"vllm-([a-z0-9][a-z0-9-]{0,30})\.service\Z")


# -- names ---------------------------------------------------------------------------------------------------------


def unit_name(instance: str) -> str:
    """The systemd unit of an instance: vllm-<instance>.service."""
    return UNIT_PREFIX + instance + UNIT_SUFFIX


def container_name(instance: str) -> str:
    """The container of an instance: vllm-<instance>."""
    return UNIT_PREFIX + instance


def unit_path(instance: str) -> str:
    """The unit file of an instance."""
    return "{0}/{1}".format(UNIT_DIR, unit_name(instance))


def env_path(instance: str) -> str:
    """The environment file (0600) that holds an instance's secrets."""
    return "{0}/{1}.env".format(ENV_DIR, instance)


def state_path(instance: str, name: str = "") -> str:
    """The state folder of an instance, or a file in it (LOCK, JOURNAL, COMMITTED, PREVIOUS, ...)."""
    folder = "{0}/{1}".format(STATE_DIR, instance)
    return "{0}/{1}".format(folder, name) if name else folder


# -- digests -------------------------------------------------------------------------------------------------------


def bytes_digest(data: bytes) -> str:
    """The sha256 of data, in hex."""
    return hashlib.sha256(data).hexdigest()


def text_digest(text: str) -> str:
    """The sha256 of the UTF-8 bytes of text, in hex: what a file with exactly this text has as its digest."""
    return bytes_digest(text.encode("utf-8"))


def secret_digest(name: str, value: str) -> str:
    """The sha256 of "<name>=<value>", in hex: stands for a secret where the value must not be."""
    return text_digest("{0}={1}".format(name, value))


def read_bytes(sysroot: Sysroot, path: str) -> Optional[bytes]:
    """The bytes of a regular file, None when it cannot be read or has more than 4 MiB."""
    status = sysroot.stat(path)
    if status is None or not stat.S_ISREG(status.st_mode) or status.st_size > READ_LIMIT:
        return None
    data = sysroot.read_bytes(path, READ_LIMIT + 1)
    return data if data is not None and len(data) <= READ_LIMIT else None


def file_digest(sysroot: Sysroot, path: str) -> Optional[str]:
    """The sha256 of a file's bytes, in hex; None when it cannot be read or has more than 4 MiB."""
    return sysroot.sha256(path, READ_LIMIT)


# -- the environment file ------------------------------------------------------------------------------------------


def parse_env(text: str) -> Dict[str, str]:
    """Names and values of a `docker run --env-file` file.

    Docker knows no quotes and no escapes there: a value is everything after the first "=" of its line, blanks and
    quotes included. Lines that are empty, start with "#" or have no "=" (take it from the caller) give nothing.
    """
    values: Dict[str, str] = {}
    for line in text.lstrip("\ufeff").split("\n"):
        line = (line[:-1] if line.endswith("\r") else line).lstrip()
        name, equals, value = line.partition("=")
        if equals and name and not line.startswith("#"):
            values[name] = value
    return values


def read_env(sysroot: Sysroot, instance: str) -> Optional[Dict[str, str]]:
    """The secrets of an instance's environment file; None when there is none or it cannot be read."""
    data = read_bytes(sysroot, env_path(instance))
    return None if data is None else parse_env(data.decode("utf-8", "surrogateescape"))


def secret_digests(secrets: Dict[str, str]) -> List[Dict[str, str]]:
    """[{name, digest}] of secrets, by name; the values stay here."""
    return [
        {
            "name": name,
            "digest": bytes_digest("{0}={1}".format(name, secrets[name]).encode("utf-8", "surrogateescape")),
        }
        for name in sorted(secrets)
    ]


# -- the state folder ----------------------------------------------------------------------------------------------


def read_json(sysroot: Sysroot, path: str) -> Optional[Dict[str, Any]]:
    """The JSON object in a file; None when there is none, or it is not one."""
    data = read_bytes(sysroot, path)
    try:
        value = documents.parse(data.decode("utf-8")) if data is not None else None
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def read_committed(sysroot: Sysroot, instance: str) -> Optional[Dict[str, Any]]:
    """The state that the last good transaction left: plan_hash, plan, image_id, image_reference, unit_digest, ..."""
    return read_json(sysroot, state_path(instance, COMMITTED))


def read_previous(sysroot: Sysroot, instance: str) -> Optional[Dict[str, Any]]:
    """The committed state before that one: what a rollback returns to."""
    return read_json(sysroot, state_path(instance, PREVIOUS))


def journal_state(sysroot: Sysroot, instance: str) -> str:
    """none, open (a transaction was cut off) or running (one holds the lock now; in a replay: held it then).

    A journal that cannot be read as JSON is open: it was cut off while it was written. The test takes the lock, shared
    and only for an instant, so whoever wants it exclusively must try more than once.
    """
    lock = state_path(instance, LOCK)
    if sysroot.live("locked " + lock, lambda: _locked(sysroot.path(lock))) is True:
        return JOURNAL_RUNNING
    path = state_path(instance, JOURNAL)
    if not sysroot.exists(path):
        return JOURNAL_NONE
    journal = read_json(sysroot, path)
    return JOURNAL_NONE if journal is not None and journal.get("state") == JOURNAL_DONE else JOURNAL_OPEN


def _locked(path: str) -> bool:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as failure:
        return failure.errno in (errno.EWOULDBLOCK, errno.EACCES)
    finally:
        os.close(descriptor)
    return False


def is_ours(unit_text: Optional[str]) -> bool:
    """True for the text of a unit file that this collection wrote."""
    return unit_text is not None and UNIT_MARK in (line.rstrip() for line in unit_text.split("\n"))


def instance_names(sysroot: Sysroot) -> List[str]:
    """Every instance of this host, by name: those with a unit of ours, a committed state or an open journal."""
    names = set()
    for entry in sysroot.listdir(UNIT_DIR):
        match = _UNIT_FILE.match(entry)
        if match and is_ours(sysroot.read_text("{0}/{1}".format(UNIT_DIR, entry))):
            names.add(match.group(1))
    for entry in sysroot.listdir(STATE_DIR):
        if INSTANCE_NAME.match(entry) and (
            sysroot.exists(state_path(entry, COMMITTED)) or journal_state(sysroot, entry) != JOURNAL_NONE
        ):
            names.add(entry)
    return sorted(names)


def read_helper(sysroot: Sysroot) -> Optional[Dict[str, Any]]:
    """{path, version, digest} of the installed host helper, None when absent; version: null when its file says none."""
    digest = file_digest(sysroot, HELPER_PATH)
    if digest is None:
        return None
    head = sysroot.read_bytes(HELPER_PATH, HELPER_HEAD) or b""
    version = re.search(re.escape(HELPER_MARK.encode()) + rb"([0-9A-Za-z.+-]+)", head)
    return {
        "path": HELPER_PATH,
        "version": version.group(1).decode("ascii") if version else None,
        "digest": digest,
    }
