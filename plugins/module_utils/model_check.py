# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a model on the host is whole: what it needs, the sizes, and on request the checksums of its files.

Digests come from the hub: the list that came with the fetch, and the names of Hugging Face's blobs, which are the
sha256 of large files and the sha1 that git has of small ones (huggingface_hub, "Understand caching").
"""

from __future__ import annotations

import hashlib
import os
import re
from typing import Any, Dict, List, Optional, Tuple

from . import documents, model_files
from .sysroot import Sysroot

SIZE, CHECKSUM = "size", "checksum"
CHUNK = 1 << 20
_SHA256 = re.compile(r"[0-9a-f]{64}")
_SHA1 = re.compile(r"[0-9a-f]{40}")
# Where a client keeps what it has of a file that is not whole yet: ModelScope's folder beside its models.
_MODELSCOPE_TEMPORARY = "._____temp"
_SAFE = re.compile(r"(?!/)(?!.*(?:^|/)\.\.(?:/|$))[^\x00-\x1f]{1,500}")


def check(
    sysroot: Sysroot, wanted: model_files.Request, manifest: Optional[Dict[str, Any]] = None, verify: str = SIZE
) -> Dict[str, Any]:
    """{folder, ok, flaws, notes, unfinished, files, size_mb, verified} of a model.

    flaws are sentences, each about one file or what is missing; notes are what need not be wrong. unfinished are files
    of a download that ended early, as paths. manifest is what a fetch returned, for the same revision only. verified is
    how many files were compared with a checksum.
    """
    facts = model_files.read_model(sysroot, wanted)
    folder = facts["folder"]
    found: Dict[str, Any] = {
        "folder": folder,
        "ok": False,
        "flaws": [],
        "notes": [],
        "unfinished": unfinished(sysroot, wanted),
        "files": 0,
        "size_mb": 0,
        "verified": 0,
    }
    flaws: List[str] = found["flaws"]
    if folder is None:
        flaws.append("it is not there")
        return found
    if facts["config"] in ("missing", "invalid"):
        flaws.append("config.json is {0}".format("missing" if facts["config"] == "missing" else "no JSON"))
    listed = _listed(manifest, folder)
    known = {entry["name"] for entry in listed}
    for name in facts["missing_files"] or []:
        flaws.append("{0} is missing{1}".format(name, ", and the hub has none" if known and name not in known else ""))
    if facts["weight_files"] == 0:
        flaws.append("there are no weight files")
    real = sysroot.path(folder)
    for name in facts["broken_files"] or []:
        flaw = model_files.weight_flaw(os.path.join(real, name))
        flaws.append("{0} {1}".format(name, flaw or "is not as long as it says"))
    if facts["tokenizer"] is False:
        found["notes"].append("there is no vocabulary of a tokenizer")
    flaws += [flaw for entry in listed for flaw in [_size_flaw(real, entry)] if flaw and flaw not in flaws]
    files = _files(real)
    found.update(files=len(files), size_mb=-(-sum(size for _name, size in files) // model_files.MIB))
    if verify == CHECKSUM:
        for name, digest in _digests(real, files, listed):
            found["verified"] += 1
            if not matches(os.path.join(real, name), digest):
                flaws.append("{0} has another checksum than the hub".format(name))
    found["ok"] = not flaws
    return found


def unfinished(sysroot: Sysroot, wanted: model_files.Request) -> List[str]:
    """The files of downloads of this model that are not whole, as paths on the host."""
    cache = wanted.cache.rstrip("/")
    if wanted.source == model_files.HUGGINGFACE:
        folder = "{0}/huggingface/hub/models--{1}/blobs".format(cache, wanted.model.replace("/", "--"))
        return ["{0}/{1}".format(folder, name) for name in sysroot.listdir(folder) if name.endswith(".incomplete")]
    if wanted.source != model_files.MODELSCOPE:
        return []
    found = []
    for part in ("hub/models", "models", "hub"):
        folder = "{0}/modelscope/{1}/{2}/{3}".format(cache, part, _MODELSCOPE_TEMPORARY, wanted.model)
        found += ["{0}/{1}".format(folder, name) for name in sysroot.listdir(folder)]
    return found


def matches(path: str, digest: str) -> bool:
    """Whether a file has a digest: sha256, or the sha1 that git has of its content."""
    try:
        known = hashlib.sha256() if len(digest) == 64 else hashlib.sha1(b"blob %d\0" % os.stat(path).st_size)
        with open(path, "rb") as stream:
            for chunk in iter(lambda: stream.read(CHUNK), b""):
                known.update(chunk)
    except OSError:
        return False
    return known.hexdigest() == digest


def _listed(manifest: Optional[Dict[str, Any]], folder: str) -> List[Dict[str, Any]]:
    """The files of a manifest that is about this folder."""
    manifest = documents.mapping(manifest)
    revision = documents.text(manifest.get("revision"))
    if revision and _SHA1.fullmatch(revision) and revision != os.path.basename(folder):
        return []
    entries = documents.mappings(manifest.get("files"))
    return [entry for entry in entries if _SAFE.fullmatch(documents.text(entry.get("name")) or "/")]


def _size_flaw(real: str, entry: Dict[str, Any]) -> Optional[str]:
    try:
        size = os.stat(os.path.join(real, entry["name"])).st_size
    except OSError:
        return "{0} is missing".format(entry["name"])
    wanted = documents.integer(entry.get("size"))
    if wanted is None or wanted == size:
        return None
    return "{0} has {1} bytes, and the hub's has {2}".format(entry["name"], size, wanted)


def _files(real: str) -> List[Tuple[str, int]]:
    """(name below the folder, size) of every file; links that lead nowhere are left out."""
    found = []
    for folder, folders, names in os.walk(real):
        folders.sort()
        for name in sorted(names):
            path = os.path.join(folder, name)
            try:
                found.append((os.path.relpath(path, real), os.stat(path).st_size))
            except OSError:
                continue
    return found


def _digests(real: str, files: List[Tuple[str, int]], listed: List[Dict[str, Any]]) -> List[Tuple[str, str]]:
    """(name, digest) of every file that the hub gives a digest of."""
    known = {entry["name"]: entry.get("sha256") or entry.get("sha1") for entry in listed}
    found = []
    for name, _size in files:
        path = os.path.join(real, name)
        blob = os.path.basename(os.readlink(path)) if os.path.islink(path) else ""
        digest = str(known.get(name) or blob)
        if _SHA256.fullmatch(digest) or _SHA1.fullmatch(digest):
            found.append((name, digest))
    return found
