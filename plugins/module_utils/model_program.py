# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What fetches a model inside the container: the client of the hub that the image has, and a list of what came.

It is given on standard input: `python3 - REQUEST`, a JSON object {source, model, revision, attempts, versions}. Its
last line is MARK and a JSON object: {"ok": true, "client", "revision", "files": [{name, size, sha256, sha1}] or null},
or {"ok": false, "code", "message"}. Where the endpoint, the token and the proxy come from is the clients' business:
they read the environment, as they do in the service.
"""

from __future__ import annotations

import fnmatch
import json
import os
import re
import shutil
import sys
import time

MARK = "vllm-ascend-model "
# Seconds before another attempt; then the longest again.
PAUSES = (1, 2, 5, 10, 30)
MIB = 1 << 20
# Kept free beside what is fetched.
SPARE = 256 * MIB
# Copies of the weights in other forms, which vLLM does not load where there are safetensors.
COPIES = ("original/*", "*.pth", "*.h5", "*.msgpack", "*.ot", "*.onnx", "*.tflite", "pytorch_model*.bin*")
# Names of exceptions (of httpx, requests, urllib3 and the clients) that tell of the way to the hub, not of an answer.
BROKEN_WAY = (
    "ConnectError", "ConnectTimeout", "ReadError", "ReadTimeout", "RemoteProtocolError", "TimeoutException",
    "ConnectionError", "ChunkedEncodingError", "ProtocolError", "IncompleteRead", "Timeout", "ProxyError",
    "OfflineModeIsEnabled", "FileDownloadError", "NetworkError",
)  # fmt: skip


class Refused(Exception):
    """The fetch cannot go on; code is a word for the program that asked."""

    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


def left_out(names):
    """The patterns of files that need not be fetched, given the names of all."""
    whole = any(name.endswith(".safetensors") and "/" not in name for name in names)
    return list(COPIES) if whole else ["original/*"]


def wanted(names, patterns):
    """The names that no pattern leaves out."""
    return [name for name in names if not any(fnmatch.fnmatch(name, pattern) for pattern in patterns)]


def chain(failure):
    """An exception and those that led to it."""
    found = []
    while failure is not None and failure not in found:
        found.append(failure)
        failure = failure.__cause__ or failure.__context__
    return found


def kinds(failure):
    """The names of the classes of an exception and of those that led to it."""
    return {kind.__name__ for one in chain(failure) for kind in type(one).__mro__}


def status_of(failure):
    """The HTTP status that a hub answered with, None when there is none."""
    for one in chain(failure):
        status = getattr(getattr(one, "response", None), "status_code", None)
        if isinstance(status, int):
            return status
    return None


def passes(failure):
    """True for a failure that another attempt may not have."""
    status = status_of(failure)
    if status is not None:
        return status in (408, 429) or status >= 500
    return bool(kinds(failure) & set(BROKEN_WAY)) or "Consistency check failed" in str(failure)


def judged(failure):
    """(code, message) of what went wrong."""
    if isinstance(failure, Refused):
        return failure.code, str(failure)
    names, status = kinds(failure), status_of(failure)
    text = " ".join(str(failure).split())[:600]
    said = "{0}: {1}".format(type(failure).__name__, text)
    if any(getattr(one, "errno", None) == 28 for one in chain(failure)):
        return "model_disk_full", said
    if "GatedRepoError" in names:
        return "model_fetch_denied", said
    if names & {"RepositoryNotFoundError", "RevisionNotFoundError", "NotExistError"} or status == 404:
        return "model_fetch_unknown", said
    if status in (401, 403):
        return "model_fetch_denied", said
    if passes(failure) or "LocalEntryNotFoundError" in names:
        return "model_hub_unreachable", said
    return "model_fetch_failed", said


def again(attempts, work):
    """What work() returns; it is tried that many times where the way to the hub is at fault."""
    for count in range(attempts):
        try:
            return work()
        except Exception as failure:
            # The client says this one of any failure to reach the hub.
            lost = "LocalEntryNotFoundError" in kinds(failure) and status_of(failure) is None
            if not (lost or passes(failure)) or count + 1 == attempts:
                raise
            pause = PAUSES[min(count, len(PAUSES) - 1)]
            text = " ".join(str(failure).split())[:200]
            print("attempt {0} failed, the next in {1} s: {2}".format(count + 1, pause, text), flush=True)
            time.sleep(pause)
    raise Refused("model_fetch_failed", "no attempt was asked for")


def check_room(folder, needed):
    """Refused when what is still to come does not fit on the disk of the cache."""
    os.makedirs(folder, exist_ok=True)
    free = shutil.disk_usage(folder).free
    if needed and needed + SPARE > free:
        text = "{0} MiB are still to come, and {1} MiB are free where the model cache is"
        raise Refused("model_disk_full", text.format(-(-needed // MIB), free // MIB))


def huggingface(request):
    """Fetch from Hugging Face or a mirror of it."""
    try:
        import huggingface_hub
        from huggingface_hub import HfApi, constants, snapshot_download
    except ImportError as failure:
        raise Refused("model_client_missing", "the image has no huggingface_hub: {0}".format(failure)) from failure
    model, revision, attempts = request["model"], request.get("revision"), request["attempts"]
    info = again(attempts, lambda: HfApi().model_info(model, revision=revision, files_metadata=True))
    entries = {entry.rfilename: entry for entry in info.siblings or []}
    patterns = left_out(entries)
    files = [_described(entries[name]) for name in wanted(sorted(entries), patterns)]
    blobs = os.path.join(constants.HF_HUB_CACHE, "models--" + model.replace("/", "--"), "blobs")
    absent = [one for one in files if not os.path.exists(os.path.join(blobs, one["sha256"] or one["sha1"] or "?"))]
    check_room(constants.HF_HUB_CACHE, sum(one["size"] or 0 for one in absent))
    again(attempts, lambda: snapshot_download(model, revision=revision, ignore_patterns=patterns))
    version = getattr(huggingface_hub, "__version__", "")
    return {"client": "huggingface_hub " + version, "revision": info.sha, "files": files}


def _described(entry):
    lfs = getattr(entry, "lfs", None) or {}
    sha256 = lfs.get("sha256") if isinstance(lfs, dict) else getattr(lfs, "sha256", None)
    size = getattr(entry, "size", None)
    return {"name": entry.rfilename, "size": size, "sha256": sha256, "sha1": getattr(entry, "blob_id", None)}


def modelscope(request):
    """Fetch from ModelScope, with a client that vLLM Ascend names as fit."""
    version = _version_of("modelscope")
    low, high = request["versions"]
    if version is None:
        raise Refused("model_client_missing", "the image has no modelscope")
    if not number(low) <= number(version) < number(high):
        raise Refused("model_client_version", "the image has modelscope {0}".format(version))
    from modelscope.hub.api import HubApi
    from modelscope.hub.snapshot_download import snapshot_download

    model, attempts = request["model"], request["attempts"]
    revision = {"revision": request["revision"]} if request.get("revision") else {}
    again(attempts, lambda: snapshot_download(model, ignore_file_pattern=["original/**/*"], **revision))
    try:
        listed = HubApi().get_model_files(model, recursive=True, **revision)
        files = [
            {"name": one["Path"], "size": one.get("Size"), "sha256": one.get("Sha256") or None, "sha1": None}
            for one in listed
            if one.get("Type") != "tree" and not one["Path"].startswith("original/")
        ]
    except Exception as failure:
        # The model is there; only what it is compared with is not.
        print("no list of files: {0}".format(failure), flush=True)
        files = None
    return {"client": "modelscope " + version, "revision": request.get("revision"), "files": files}


def number(version):
    """A version for a comparison: the numbers at its beginning."""
    match = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(int(part) for part in match.group(0).split(".")) if match else ()


def _version_of(name):
    try:
        from importlib import metadata
    except ImportError:
        return None
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def main(text):
    """Do what a request asks, and print the result."""
    request = json.loads(text)
    try:
        fetch = modelscope if request["source"] == "modelscope" else huggingface
        result = dict(fetch(request), ok=True)
    except Exception as failure:
        code, message = judged(failure)
        result = {"ok": False, "code": code, "message": message}
    sys.stderr.flush()
    print("\n" + MARK + json.dumps(result), flush=True)
    return 0 if result["ok"] else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
