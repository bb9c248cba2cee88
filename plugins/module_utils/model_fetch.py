# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Models on a host: fetched into the cache by a throw-away container, or copied from a folder, and checked.

A fetch is a container of the service's image with the service's cache, environment and network, and no device; a
service that runs goes on beside it. It has a time limit inside, and is removed when this process is stopped or loses
whoever asked; one that a killed run left is removed before the next. What came stays, and the next run goes on there.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import shutil
import subprocess
import time
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple

from . import atomic, documents, instance_state, log_lines, model_check, model_copy, model_files, model_program
from .engine import ENGINE_ENV
from .host_control import Host, HostError
from .model_remedies import problem_of
from .offline_job import reader_gone
from .stopping import stopping
from .verification import container_of

ROLE_MODEL = "model"
FOLDER = instance_state.STATE_DIR + "/.model"
ENV, OUTPUT, SCRIPT = "fetch.env", "output.log", "fetch.py"
POLL_S = 0.2
# Seconds that the container may take beyond the limit of the program in it.
SPARE_S = 90.0
LOG_BYTES = 200000
SHORTEST_SECRET = 4
MISSING, ALWAYS, NEVER = "missing", "always", "never"
COPY, FETCH, NONE = "copy", "fetch", "none"
HOST = "host"


class ModelError(Exception):
    """The model cannot be had; code is that of the problem, log what the container printed."""

    def __init__(self, code: str, message: str, log: str = "") -> None:
        super().__init__(message)
        self.code, self.log = code, log


class Options(NamedTuple):
    """What the operator asks for: fetch is missing, always or never, verify size or checksum."""

    fetch: str = MISSING
    verify: str = model_check.SIZE
    check_mode: bool = False


def get_all(host: Host, jobs: List[Dict[str, Any]], secrets: Dict[str, Any], options: Options) -> List[Dict[str, Any]]:
    """Get and check the models of a plan, one after the other; one that fails does not keep the others back.

    An entry is {model, source, instances, action, changed, ok, problems, folder, files, size_mb, verified, unfinished,
    notes, client, seconds, log}; changed says that something came, or would in check mode
    (planned).
    """
    return [get(host, job, secrets, options) for job in jobs]


def get(host: Host, job: Dict[str, Any], secrets: Dict[str, Any], options: Options) -> Dict[str, Any]:
    """The same for one model."""
    began = time.monotonic()
    wanted = model_files.Request(job["model"], job["source"], job["cache"], job.get("revision") or "main")
    found = _check(host, job, wanted, options)
    action = _action(job, found, options)
    result: Dict[str, Any] = {
        "model": job["model"],
        "source": job["source"],
        "instances": job["instances"],
        "action": action,
        "changed": action != NONE,
        "planned": options.check_mode and action != NONE,
        "problems": [],
        "client": None,
        "log": "",
    }
    try:
        if action == FETCH and not options.check_mode:
            came = Fetch(host, job, secrets.get(job["instances"][0]) or {}).run()
            result["client"] = came["client"]
            found_after = _check(host, job, wanted, options)
            result["changed"] = _print_of(found_after) != _print_of(found)
            found = found_after
        elif action == COPY and not options.check_mode:
            source, target = host.path(job["copy_from"]), host.path(job["model"])
            copied = model_copy.copy(source, target, options.verify == model_check.CHECKSUM)
            result["changed"] = bool(copied["copied"])
            found = _check(host, job, wanted, options)
        if not found["ok"] and not (options.check_mode and (action != NONE or job.get("copy_from"))):
            raise ModelError("model_incomplete", "; ".join(found["flaws"][: model_files.MISSING_LIMIT]))
    except (ModelError, model_copy.CopyError) as failure:
        problem = problem_of(failure.code, str(failure), job)
        result["problems"].append(problem)
        result["log"] = getattr(failure, "log", "")
    except OSError as failure:
        result["problems"].append(problem_of("model_fetch_failed", str(failure), job))
    keys = ("folder", "files", "size_mb", "verified", "unfinished", "notes")
    result.update({key: found[key] for key in keys}, ok=not result["problems"])
    return dict(result, seconds=round(time.monotonic() - began, 1))


def _action(job: Dict[str, Any], found: Dict[str, Any], options: Options) -> str:
    if options.fetch == NEVER or (options.fetch == MISSING and found["ok"]):
        return NONE
    if job["source"] != model_files.LOCAL:
        return FETCH
    # What lies on the controller has been copied by other modules before.
    return COPY if job.get("copy_from") and job.get("copy_on") == HOST else NONE


def lacking(host: Host, offered: Dict[str, List[Dict[str, Any]]], verify: str) -> Dict[str, List[str]]:
    """The names of the offered files {folder: [{name, size}]} that the folders lack, in the order of copying.

    With checksum it is all of them: who copies compares the contents. CopyError when there is no room for them.
    """
    found = {}
    for folder, files in offered.items():
        entries = model_copy.ordered([model_copy.File(str(one["name"]), int(one["size"])) for one in files])
        wanted = model_copy.wanting(entries, host.path(folder))
        model_copy.check_room(wanted, host.path(folder))
        chosen = entries if verify == model_check.CHECKSUM else wanted
        found[folder] = [one.name for one in chosen]
    return found


def _check(host: Host, job: Dict[str, Any], wanted: model_files.Request, options: Options) -> Dict[str, Any]:
    manifest = atomic.read_json(host.path(manifest_path(job["name"])))
    return model_check.check(host.sysroot, wanted, manifest, options.verify)


def _print_of(found: Dict[str, Any]) -> Tuple[Any, ...]:
    """What tells whether anything came."""
    return (found["folder"], found["files"], found["size_mb"], tuple(found["flaws"]))


def manifest_path(name: str) -> str:
    """Where the list of a fetched model's files is kept."""
    return "{0}/{1}.json".format(FOLDER, name)


class Fetch:
    """One fetch of a plan ({name, model, source, cache, revision, argv, limit_s, instances}) on a host."""

    def __init__(self, host: Host, job: Dict[str, Any], secrets: Dict[str, str]) -> None:
        self.host, self.job = host, job
        # The endpoint's key is none of the hub's business.
        self.secrets = {name: value for name, value in secrets.items() if name != instance_state.API_KEY}
        self.folder = host.path("{0}/{1}".format(FOLDER, job["name"]))
        self.container = container_of(job["argv"]) or ""
        if job["argv"][:2] != ["docker", "run"] or not self.container:
            raise ModelError("model_fetch_failed", "the command is no `docker run` of a container with a name")

    def run(self) -> Dict[str, Any]:
        """Fetch the model: {client, revision, files}. ModelError says why not."""
        for folder in (instance_state.STATE_DIR, FOLDER):
            os.makedirs(self.host.path(folder), mode=0o700, exist_ok=True)
        with self._lock():
            self._remove_stale()
            self._write()
            try:
                rc, ended = self._follow()
                found, log = self._result(), self._log()
            finally:
                # It is gone already, but for an end that was not its own.
                self.host.ask_docker(["rm", "--force", self.container])
                shutil.rmtree(self.folder, ignore_errors=True)
        if found.get("ok"):
            manifest = {key: found.get(key) for key in ("client", "revision", "files")}
            atomic.write_json(self.host.path(manifest_path(self.job["name"])), manifest)
            return manifest
        if found:
            code, said = str(found.get("code")), str(found.get("message"))
            raise ModelError(code, log_lines.mask(said, self._hidden()), log)
        if ended == "time" or rc == 124:
            text = "the fetch did not end within {0} s".format(self.job["limit_s"])
            raise ModelError("model_fetch_timeout", text, log)
        if ended == "alone":
            raise ModelError("model_fetch_failed", "whoever asked for it is gone", log)
        lines = log_lines.relevant(log.splitlines())
        said = log_lines.cause(lines) or (lines[-1] if lines else "no output")
        raise ModelError("model_fetch_failed", "the container ended with {0}: {1}".format(rc, said), log)

    @contextlib.contextmanager
    def _lock(self) -> Iterator[None]:
        with open(self.folder + ".lock", "w", encoding="utf-8") as stream:
            try:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as failure:
                if failure.errno not in (errno.EAGAIN, errno.EACCES):
                    raise
                text = "another run fetches it in the container {0}".format(self.container)
                raise ModelError("model_fetch_busy", text) from failure
            yield

    def _remove_stale(self) -> None:
        try:
            found = self.host.inspect(self.container)
        except HostError as failure:
            raise ModelError("model_fetch_failed", str(failure)) from failure
        if found is None:
            return
        labels = (found.get("Config") or {}).get("Labels") or {}
        if labels.get(instance_state.LABEL_ROLE) != ROLE_MODEL:
            text = "a container {0} is on the host that no fetch made: rename or remove it".format(self.container)
            raise ModelError("model_fetch_failed", text)
        self.host.ask_docker(["rm", "--force", self.container])

    def _write(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        os.mkdir(self.folder, 0o700)
        # Before docker would refuse to mount it.
        os.makedirs(self.host.path(self.job["cache"]), exist_ok=True)
        lines = "".join("{0}={1}\n".format(name, self.secrets[name]) for name in sorted(self.secrets))
        atomic.write_text(os.path.join(self.folder, ENV), lines, 0o600)
        atomic.write_text(os.path.join(self.folder, SCRIPT), program_text(), 0o600)

    def _follow(self) -> Tuple[Optional[int], str]:
        """(exit code or None, how it ended: "exit", "time" or "alone") of the container's client."""
        argv = [self.host.engine] + list(self.job["argv"][1:])
        began, ended = time.monotonic(), "exit"
        limit = float(self.job["limit_s"]) + SPARE_S
        with contextlib.ExitStack() as stack:
            output = stack.enter_context(open(os.path.join(self.folder, OUTPUT), "wb"))
            script = stack.enter_context(open(os.path.join(self.folder, SCRIPT), "rb"))
            try:
                child = subprocess.Popen(
                    argv,
                    stdin=script,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env=dict(os.environ, LC_ALL="C", **ENGINE_ENV),
                    start_new_session=True,
                )
            except OSError as failure:
                text = "{0} cannot be started: {1}".format(self.host.engine, failure)
                raise ModelError("model_fetch_failed", text) from failure
            stack.enter_context(stopping(lambda text: ModelError("model_fetch_failed", text)))
            try:
                while ended == "exit" and child.poll() is None:
                    ended = "time" if time.monotonic() - began > limit else "alone" if reader_gone() else "exit"
                    time.sleep(POLL_S)
            finally:
                if child.poll() is None:
                    self.host.ask_docker(["rm", "--force", self.container])
                    child.kill()
                child.wait()
        return (child.returncode if ended == "exit" else None), ended

    def _output(self) -> str:
        try:
            with open(os.path.join(self.folder, OUTPUT), "rb") as stream:
                stream.seek(0, os.SEEK_END)
                stream.seek(max(stream.tell() - LOG_BYTES, 0))
                return stream.read().decode("utf-8", "replace")
        except OSError:
            return ""

    def _result(self) -> Dict[str, Any]:
        """What the program said of its end; empty when it did not come to one."""
        path = os.path.join(self.folder, OUTPUT)
        with contextlib.suppress(OSError), open(path, encoding="utf-8", errors="replace") as stream:
            said = [line for line in stream if line.startswith(model_program.MARK)]
            return documents.mapping(documents.parsed(said[-1][len(model_program.MARK) :])) if said else {}
        return {}

    def _log(self) -> str:
        lines = [line for line in self._output().splitlines() if not line.startswith(model_program.MARK)]
        return log_lines.mask(log_lines.without_shell_noise("\n".join(lines)), self._hidden())

    def _hidden(self) -> List[str]:
        return [value for value in self.secrets.values() if len(value) >= SHORTEST_SECRET]


def program_text() -> str:
    """The source of the program that runs in the container."""
    loader: Any = model_program.__loader__
    return str(loader.get_source(model_program.__name__))


def request_text(model: str, source: str, revision: Optional[str], attempts: int, versions: List[str]) -> str:
    """The request of the program, the last word of its command."""
    request = {"model": model, "source": source, "revision": revision, "attempts": attempts, "versions": versions}
    return json.dumps(request, sort_keys=True)
