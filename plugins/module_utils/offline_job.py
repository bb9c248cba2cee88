# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An offline job on a host: a container that holds NPUs for a limited time, and whose results are files.

The job's folder below the state folder, of root alone, holds the program, the request with the prompts, the secrets'
file and the results; it is mounted into the container and removed at the end. Success is what the results say: vLLM's
log has lines of errors at a good end, too ("Engine core proc EngineCore died unexpectedly, shutting down client").

The NPUs come back in any case: the container's own time limit ends it, this module removes it when it ends itself or
loses whoever asked, and a container that a killed run left is removed before the next job. A lock tells such a one from
a job that runs.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple

from . import instance_state, log_lines, nodes, offline_program
from .atomic import write_text
from .engine import ENGINE_ENV
from .host_control import Host, HostError, explain
from .stopping import stopping
from .verification import container_of

ROLE_OFFLINE = "offline"
FOLDERS = ".offline"
PROGRAM, ENV, OUTPUT = "job.py", "job.env", "output.log"
# The first line of the prompts' text: Ansible must not take them for data of its own.
HEAD = "vllm-offline 1"
POLL_S = 0.2
# Seconds that the container may take beyond the limit of the program in it: to be made, and to be gone.
SPARE_S = 90.0
# Seconds for the engine to end after the last result; then its container is removed, which is no failure.
LEAVE_S = 60.0
# Seconds for another run's module to notice that its container is gone.
REPLACE_S = 30.0
LOG_BYTES = 200000
# What `timeout` ends with: after the first signal, and after the second, which looks like any other SIGKILL.
KILLED = 128 + signal.SIGKILL
LIMIT_CODES = (124, KILLED)
SHORTEST_SECRET = 4


class JobError(Exception):
    """The job could not run; the message says why, log is what its container printed."""

    def __init__(self, message: str, log: str = "") -> None:
        super().__init__(message)
        self.log = log


class Prompt(NamedTuple):
    """A prompt with its place in the whole list."""

    number: int
    text: str


def parse_prompts(text: str) -> List[Prompt]:
    """The prompts of a text: HEAD, then lines of JSON [index, prompt]. JobError when it is something else."""
    lines = text.split("\n")
    try:
        if not lines or lines[0] != HEAD:
            raise ValueError("it does not begin with {0!r}".format(HEAD))
        prompts = [Prompt(int(number), str(prompt)) for number, prompt in map(json.loads, filter(None, lines[1:]))]
    except (TypeError, ValueError) as failure:
        raise JobError("the prompts cannot be read: {0}".format(failure)) from failure
    if not prompts:
        raise JobError("there are no prompts")
    return prompts


def container_words(argv: List[str], name: str) -> Tuple[str, str]:
    """(container, folder on the host) of the `docker run` of a job. JobError when it is none of a job of that name."""
    folder = folder_of(name)
    container = container_of(argv)
    if argv[:2] != ["docker", "run"] or not container or not any("source={0},".format(folder) in word for word in argv):
        raise JobError("the command is no `docker run` of the job {0}".format(name))
    return container, folder


def folder_of(name: str) -> str:
    """The folder of a job on the host, by its name. No instance has such a one."""
    return "{0}/{1}/{2}".format(instance_state.STATE_DIR, FOLDERS, name)


class Job:
    """One job of a plan ({name, argv, engine, limit_s, model_cache, required_paths, npus}) on a host."""

    def __init__(
        self,
        host: Host,
        job: Dict[str, Any],
        sampling: Dict[str, Any],
        secrets: Dict[str, str],
        replace: bool = False,
    ) -> None:
        self.host, self.job, self.sampling, self.secrets, self.replace = host, job, sampling, secrets, replace
        self.name = str(job["name"])
        if not instance_state.INSTANCE_NAME.match(self.name):
            raise JobError("{0!r} is no name of a job".format(self.name))
        self.container, folder = container_words(job["argv"], self.name)
        self.folder = host.path(folder)

    def check(self) -> None:
        """What must be there: folders and files, the device nodes, a free name. JobError says what is not."""
        missing = [
            entry["path"]
            for entry in self.job.get("required_paths") or []
            if not os.path.exists(self.host.path(entry["path"]))
        ]
        if missing:
            raise JobError("not on the host: {0}".format(", ".join(missing)))
        faults = [
            "{0} ({1})".format(node, fault)
            for node in self.job.get("npus") or []
            for fault in [nodes.node_fault(self.host.path(node))]
            if fault
        ]
        if faults:
            raise JobError("device nodes not usable: {0}".format(", ".join(faults)))
        self._stale()

    def _stale(self) -> bool:
        """True when a container of an earlier job is there. JobError when the name is somebody else's."""
        try:
            found = self.host.inspect(self.container)
        except HostError as failure:
            raise JobError(str(failure)) from failure
        if found is None:
            return False
        labels = (found.get("Config") or {}).get("Labels") or {}
        if labels.get(instance_state.LABEL_ROLE) != ROLE_OFFLINE:
            raise JobError(
                "a container {0} is on the host that no offline job made: rename or remove it".format(self.container)
            )
        return True

    def run(self, prompts: List[Prompt]) -> Dict[str, Any]:
        """Run the job to its end: {outputs, done, rc, ended, log, removed_stale, seconds}. JobError."""
        began = time.monotonic()
        for folder in (self.host.path(instance_state.STATE_DIR), os.path.dirname(self.folder)):
            os.makedirs(folder, mode=0o700, exist_ok=True)
        with self._lock():
            self.check()
            stale = self._stale()
            if stale:
                self._remove()
            self._write(prompts)
            try:
                rc, ended = self._follow()
                found = self._found()
                found.update(rc=rc, ended=ended, log="" if rc == 0 and found["done"] else self._log())
            finally:
                # It is gone already, but for an end that was not its own; what it left must not hang on this.
                self.host.ask_docker(["rm", "--force", self.container])
                shutil.rmtree(self.folder, ignore_errors=True)
        return dict(found, removed_stale=stale, seconds=round(time.monotonic() - began, 1))

    @contextlib.contextmanager
    def _lock(self) -> Iterator[None]:
        """Hold the lock of the job, which goes with this process. JobError when another job of this name runs."""
        with open(self.folder + ".lock", "w", encoding="utf-8") as stream:
            free = _locked(stream)
            if not free and self.replace and self._stale():
                self._remove()
                deadline = time.monotonic() + REPLACE_S
                while not free and time.monotonic() < deadline:
                    time.sleep(POLL_S)
                    free = _locked(stream)
            if not free:
                raise JobError(
                    "another run of the offline job {0} is at this host: wait for it, or end it with "
                    "vllm_offline_replace, or `docker rm --force {1}`".format(self.name, self.container)
                )
            yield

    def _write(self, prompts: List[Prompt]) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        os.mkdir(self.folder, 0o700)
        cache = (self.job.get("model_cache") or {}).get("path")
        if cache:
            # Before docker would refuse to mount it.
            os.makedirs(self.host.path(cache), exist_ok=True)
        request = {
            "engine": self.job["engine"],
            "sampling": self.sampling,
            "prompts": [{"index": prompt.number, "prompt": prompt.text} for prompt in prompts],
        }
        self._put(offline_program.REQUEST, json.dumps(request))
        self._put(PROGRAM, program_text())
        lines = "".join("{0}={1}\n".format(name, self.secrets[name]) for name in sorted(self.secrets))
        self._put(ENV, lines)

    def _put(self, name: str, text: str) -> None:
        write_text(os.path.join(self.folder, name), text, 0o600)

    def _follow(self) -> Tuple[Optional[int], str]:
        """(exit code or None, how it ended: "exit", "time", "left" or "alone") of the container's client."""
        argv = [self.host.engine] + list(self.job["argv"][1:])
        limit = float(self.job["limit_s"]) + SPARE_S
        with open(os.path.join(self.folder, OUTPUT), "wb") as output:
            try:
                child = subprocess.Popen(
                    argv,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env=dict(os.environ, LC_ALL="C", **ENGINE_ENV),
                    start_new_session=True,
                )
            except OSError as failure:
                raise JobError("{0} cannot be started: {1}".format(self.host.engine, failure)) from failure
            began, ended = time.monotonic(), "exit"
            with stopping(JobError):
                try:
                    ended = self._wait(child, limit)
                finally:
                    if child.poll() is None:
                        self.host.ask_docker(["rm", "--force", self.container])
                        child.kill()
                    child.wait()
        if child.returncode in LIMIT_CODES and time.monotonic() - began >= float(self.job["limit_s"]):
            ended = "time"
        return (child.returncode if ended == "exit" else None), ended

    def _wait(self, child: Any, limit: float) -> str:
        began = time.monotonic()
        done_at = None
        while child.poll() is None:
            now = time.monotonic()
            if now - began > limit:
                return "time"
            if reader_gone():
                return "alone"
            if done_at is None and self._done():
                done_at = now
            if done_at is not None and now - done_at > LEAVE_S:
                return "left"
            time.sleep(POLL_S)
        return "exit"

    def _done(self) -> bool:
        try:
            with open(os.path.join(self.folder, offline_program.RESULTS), "rb") as stream:
                stream.seek(0, os.SEEK_END)
                stream.seek(max(stream.tell() - 64, 0))
                return b'{"done": true}' in stream.read()
        except OSError:
            return False

    def _found(self) -> Dict[str, Any]:
        """{outputs: [result], done} of the results' file; a last line that was cut is left out."""
        outputs, done = [], False
        try:
            with open(os.path.join(self.folder, offline_program.RESULTS), encoding="utf-8", errors="replace") as stream:
                for line in stream:
                    try:
                        entry = json.loads(line)
                    except ValueError:
                        continue
                    if isinstance(entry, dict) and "index" in entry:
                        outputs.append(entry)
                    done = done or (isinstance(entry, dict) and entry.get("done") is True)
        except OSError:
            pass
        return {"outputs": outputs, "done": done}

    def _log(self) -> str:
        try:
            with open(os.path.join(self.folder, OUTPUT), "rb") as stream:
                stream.seek(0, os.SEEK_END)
                stream.seek(max(stream.tell() - LOG_BYTES, 0))
                text = stream.read().decode("utf-8", "replace")
        except OSError:
            return ""
        secrets = [value for value in self.secrets.values() if len(value) >= SHORTEST_SECRET]
        return log_lines.mask(log_lines.without_shell_noise(text), secrets)

    def _remove(self) -> None:
        result = self.host.ask_docker(["rm", "--force", self.container])
        if result.ok or "no such container" in result.text.lower() or "already in progress" in result.text.lower():
            return
        raise JobError("the container {0} cannot be removed: {1}".format(self.container, explain(result, 60.0)))


def _locked(stream: Any) -> bool:
    """True when this process has the lock of the file now."""
    try:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as failure:
        if failure.errno not in (errno.EAGAIN, errno.EACCES):
            raise
        return False
    return True


def judge(prompts: List[Prompt], found: Dict[str, Any]) -> Dict[str, Any]:
    """{outputs, empty, missing, message} of what a job left: message is null when each prompt has a text.

    empty and missing are indexes of prompts; outputs are those with a text, in the order of the prompts.
    """
    by_index = {entry["index"]: entry for entry in found["outputs"]}
    indexes = [prompt.number for prompt in prompts]
    empty = [i for i in indexes if i in by_index and not str(by_index[i].get("text") or "").strip()]
    missing = [i for i in indexes if i not in by_index]
    good = [by_index[i] for i in indexes if i in by_index and i not in set(empty)]
    message = None
    parts = ["{0} no output ({1})".format(_have(missing), shown_indexes(missing))] if missing else []
    parts += ["{0} an empty output ({1})".format(_have(empty), shown_indexes(empty))] if empty else []
    if parts:
        message = "of {0} prompts {1}".format(len(prompts), ", ".join(parts))
        if missing:
            message += "; " + _ending(found)
    return {"outputs": good, "empty": empty, "missing": missing, "message": message}


def _have(indexes: List[int]) -> str:
    return "{0} has".format(len(indexes)) if len(indexes) == 1 else "{0} have".format(len(indexes))


def _ending(found: Dict[str, Any]) -> str:
    ended, rc = found["ended"], found["rc"]
    if ended == "time":
        return "its time limit (vllm_offline_timeout) ended it"
    if rc == KILLED:
        return "it was killed"
    if ended == "alone":
        return "whoever asked for it is gone"
    if ended == "left":
        return "the engine did not end"
    return "its program ended with {0}".format(rc)


def shown_indexes(indexes: List[int], most: int = 12) -> str:
    """Indexes for a sentence, neighbours as a range: "prompt 3", "prompts 0-4, 7"."""
    spans: List[List[int]] = []
    for index in sorted(indexes):
        if spans and index == spans[-1][1] + 1:
            spans[-1][1] = index
        else:
            spans.append([index, index])
    words = [str(first) if first == last else "{0}-{1}".format(first, last) for first, last in spans]
    shown = words[:most] + ["..."] * (len(words) > most)
    return ("prompt " if len(indexes) == 1 else "prompts ") + ", ".join(shown)


def program_text() -> str:
    """The source of the program that runs in the container."""
    loader: Any = offline_program.__loader__
    return str(loader.get_source(offline_program.__name__))


def reader_gone() -> bool:
    """True when nobody reads what this process prints: the connection of whoever asked is lost."""
    printed: Any = sys.__stdout__
    try:
        descriptor = printed.fileno()
    except (AttributeError, OSError, ValueError):
        return False
    poll = select.poll()
    poll.register(descriptor, 0)
    return any(event & (select.POLLERR | select.POLLHUP) for _descriptor, event in poll.poll(0))
