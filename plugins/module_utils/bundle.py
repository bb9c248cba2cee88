# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Packs everything that the observation reads of a host into one small archive, with nothing private in it.

A copy of the host comes of it when it is unpacked: with `vllm_sysroot` pointed there, the facts and the plan are those
of the host, and nothing of it is run. The archive holds folders, ordinary files and symbolic links only.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import tarfile
import time
from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple

from . import bundle_documents, helper_main, instance_observation, instance_state, npu_observation
from .bundle_masking import MASKED_HOST, Masker
from .bundle_recorder import Node, Recorder
from .sysroot import METADATA, RECORDS, Sysroot

FORMAT = 1
MANIFEST = "/recorded/manifest.json"
MAX_BYTES = 20 << 20
# As many bytes of files; a host has some hundred kB.
MAX_UNPACKED = 200 << 20
CONNECTION = "connection"
HOST_NAMES = ("/etc/hostname", "/proc/sys/kernel/hostname")
# The times of these files are those of the moment that they are looked at.
_VIRTUAL = ("/proc/", "/sys/", "/dev/")


class BundleError(Exception):
    """The archive cannot be made; the message says why and what to do."""


class Options(NamedTuple):
    """How to observe: as the roles do it. hide: texts that must not be in the archive, beside what is masked anyway."""

    npu: npu_observation.Options = npu_observation.Options()
    instances: instance_observation.Options = instance_observation.Options(probe=instance_observation.PROBE_NONE)
    hide: Sequence[str] = ()


class Bundle(NamedTuple):
    """The archive's bytes, its number of members, what was masked by kind, and the facts that a replay tells otherwise.

    differences are dotted names such as "facts.host.python"; there should be none.
    """

    archive: bytes
    members: int
    masked: Dict[str, int]
    differences: List[str]


class Member(NamedTuple):
    """One member: a folder (both None), a symbolic link, or a file."""

    content: Optional[bytes] = None
    target: Optional[str] = None


def make(recorder: Recorder, options: Options, when: float, scratch: str) -> Bundle:
    """Observe a host through the recorder and pack what was read.

    when: seconds since 1970, the time of all members. scratch: an empty folder, in which the copy is tried out: what a
    replay tells is compared with what the host told. BundleError when the archive would be too large.
    """
    told = observe(recorder, options)
    masker = Masker(host_names(recorder.root), options.hide)
    files = members(recorder, masker)
    counts = dict(masker.counts)
    unpack(files, scratch)
    differences = different(told, masker.document(told), observe(Sysroot(scratch), options), "")
    manifest = {
        "format": FORMAT,
        "collection": "vllm_ascend.fleet",
        "version": helper_main.VERSION,
        "made": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(when)),
        "options": masker.document({"npu": options.npu._asdict(), "instances": _plain(options.instances)}),
        "masked": counts,
        # Null: the name is a common word, or none was found; it is masked nowhere then.
        "host_name": MASKED_HOST if masker.knows_host else None,
        "cut": sorted(path for path, node in recorder.nodes.items() if node.cut),
        "replay_differs": differences,
    }
    files[MANIFEST] = Member(_json(manifest))
    archive = pack(files, int(when))
    return Bundle(archive, len(files), counts, differences)


def observe(sysroot: Sysroot, options: Options) -> Dict[str, Any]:
    """{facts, observed} of a host."""
    return {
        "facts": npu_observation.collect(sysroot, options.npu),
        "observed": instance_observation.collect(sysroot, options.instances),
    }


def host_names(root: str) -> List[str]:
    """The names of a host by its files, and what the kernel says on the live one."""
    sysroot = Sysroot(root)
    names = [(sysroot.read_text(path, 256) or "").strip() for path in HOST_NAMES]
    return [name for name in names + ([] if sysroot.replay else [os.uname().nodename]) if name]


# -- what goes into the archive ----------------------------------------------------------------------------------------


def members(recorder: Recorder, masker: Masker) -> Dict[str, Member]:
    """{path: member} of everything that was noted, masked. The masker counts."""
    for record in recorder.commands:
        bundle_documents.learn(masker, record)
    found: Dict[str, Member] = {}
    # The first round learns: a secret may stand in a file before the place that shows that it is one.
    for _round in range(2):
        masker.forget()
        found, metadata = _files(recorder, masker)
        commands = [bundle_documents.masked_command(masker, record) for record in recorder.commands]
        live = {masker.swept(name): masker.document(value) for name, value in sorted(recorder.live_values.items())}
        found[RECORDS] = Member(_json(commands))
        found[METADATA] = Member(_json({"paths": metadata, "live": live}))
    return found


def _files(recorder: Recorder, masker: Masker) -> Tuple[Dict[str, Member], Dict[str, Any]]:
    found: Dict[str, Member] = {}
    metadata: Dict[str, Any] = {}
    connections = 0
    for path, node in sorted(recorder.nodes.items()):
        name = masker.swept(path)
        if path == "/":
            continue
        if node.kind == "link":
            found[name] = Member(target=masker.swept(node.target or ""))
            continue
        # Rules are for the path that was asked for: /proc/net/tcp is /proc/<pid>/net/tcp.
        asked = node.asked or path
        content, dropped = bundle_documents.masked_file(masker, asked, node.content or b"")
        connections += dropped
        found[name] = Member() if node.kind == "directory" else Member(content)
        record = _metadata(path, node)
        if node.sha256 is not None and asked != instance_state.HELPER_PATH and content != (node.content or b""):
            record["sha256"] = masker.digest(node.sha256)
        if record:
            metadata[name] = record
    masker.counts[CONNECTION] = connections
    return found, metadata


def _metadata(path: str, node: Node) -> Dict[str, Any]:
    """What the archive's member itself does not tell of a file."""
    record: Dict[str, Any] = {}
    status = node.status
    if status is not None:
        mode = "{0:04o}".format(status.st_mode & 0o7777)
        record = {"type": node.kind, "mode": mode, "uid": status.st_uid, "gid": status.st_gid}
        if node.kind == "file":
            record["size"] = status.st_size
            if not path.startswith(_VIRTUAL):
                record["mtime"] = max(int(status.st_mtime), 0)
        if node.kind in ("char", "block") and status.st_rdev:
            record.update(major=os.major(status.st_rdev), minor=os.minor(status.st_rdev))
    if node.executable is not None:
        record["executable"] = node.executable
    if node.sha256 is not None:
        record["sha256"] = node.sha256
    return record


def _json(value: Any) -> bytes:
    return (json.dumps(value, indent=1, sort_keys=True) + "\n").encode("ascii")


def _plain(options: NamedTuple) -> Dict[str, Any]:
    """An options tuple as JSON, tuples in it too."""
    return {
        name: [dict(entry._asdict()) if hasattr(entry, "_asdict") else entry for entry in value]
        if isinstance(value, (tuple, list))
        else value
        for name, value in options._asdict().items()
    }


# -- the archive -------------------------------------------------------------------------------------------------------


def pack(files: Dict[str, Member], when: int) -> bytes:
    """A .tar.gz of the members, the same bytes for the same members: sorted, of root, of one time.

    BundleError when there is too much of it.
    """
    size = sum(len(member.content or b"") for member in files.values())
    if size > MAX_UNPACKED:
        raise _too_large(files, "{0} MiB of files".format(size >> 20))
    packed = io.BytesIO()
    compressed = gzip.GzipFile(filename="", fileobj=packed, mode="wb", mtime=when)
    with compressed, tarfile.open(fileobj=compressed, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for path, member in sorted(files.items()):
            entry = tarfile.TarInfo(path.lstrip("/"))
            entry.mtime = when
            if member.target is not None:
                entry.type, entry.linkname, entry.mode = tarfile.SYMTYPE, member.target, 0o777
            elif member.content is None:
                entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            else:
                entry.size = len(member.content)
            archive.addfile(entry, io.BytesIO(member.content or b""))
    archive_bytes = packed.getvalue()
    if len(archive_bytes) > MAX_BYTES:
        raise _too_large(files, "{0} MiB".format(len(archive_bytes) >> 20))
    return archive_bytes


def unpack(files: Dict[str, Member], folder: str) -> None:
    """Write the members below a folder, as tar would."""
    for path, member in sorted(files.items()):
        target = os.path.join(folder, path.lstrip("/"))
        os.makedirs(os.path.dirname(target), exist_ok=True)
        if member.target is not None:
            os.symlink(member.target, target)
        elif member.content is None:
            os.makedirs(target, exist_ok=True)
        else:
            with open(target, "wb") as stream:
                stream.write(member.content)


def _too_large(files: Dict[str, Member], size: str) -> BundleError:
    largest = sorted(files, key=lambda path: -len(files[path].content or b""))[:3]
    return BundleError(
        "the bundle would have {0}; the largest files are {1}. Attach what a report needs of the host by hand".format(
            size, ", ".join("{0} ({1} KiB)".format(path, len(files[path].content or b"") >> 10) for path in largest)
        )
    )


# -- trying it out -----------------------------------------------------------------------------------------------------


def different(told: Any, masked: Any, replayed: Any, where: str) -> List[str]:
    """The dotted names of the values that a replay tells otherwise than the host, masked values apart."""
    if replayed in (told, masked):
        return []
    below: Iterable[Any] = ()
    if all(isinstance(value, dict) for value in (told, masked, replayed)) and set(told) == set(replayed):
        below = list(told)
    elif all(isinstance(value, list) for value in (told, masked, replayed)) and len(told) == len(replayed):
        below = range(len(told))
    found = [
        name
        for key in below
        if isinstance(key, int) or key in masked
        for name in different(told[key], masked[key], replayed[key], "{0}.{1}".format(where, key).lstrip("."))
    ]
    return found if below else [where]


def summary(masked: Dict[str, int]) -> Dict[str, int]:
    """What was masked, without the kinds that did not occur."""
    return {kind: count for kind, count in sorted(masked.items()) if count}
