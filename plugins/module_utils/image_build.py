# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Build an image from the sources of vLLM Ascend, unless one of the same source and arguments is there.

Sources: vLLM Ascend installation guide v0.23.0 (Dockerfiles, build arguments), docker build (a build argument without a
value is taken from the environment; HTTP_PROXY and its kin are known to every Dockerfile and stay out of the image).
"""

from __future__ import annotations

import contextlib
import difflib
import hashlib
import json
import os
import re
import shutil
import signal
import stat
import subprocess
import tempfile
import time
from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Optional, Set, Tuple

from . import engine_settings, log_lines, masking
from .commands import CommandResult, run
from .engine import ENGINE_ENV
from .engine_settings import problem
from .image_engine import Engine, ImageError
from .image_store import space_problem
from .registry_errors import PULL, diagnose

LABEL_BUILD = "vllm-ascend.build"
LABEL_DOCKERFILE = "vllm-ascend.dockerfile"
LABEL_ARGUMENTS = "vllm-ascend.build-arguments"
LABEL_SOURCE = "org.opencontainers.image.source"
LABEL_REVISION = "org.opencontainers.image.revision"
# Part of what identifies a build: another way to build is another image.
BUILDER = "1"
GIT_S = 900.0
ASK_S = 120.0
POLL_S = 0.2
LOG_BYTES = 200000
COMMIT = re.compile(r"[0-9a-f]{40}")
LOGIN = re.compile(r"https?://[^/@\s]+@")
ARG = re.compile(r"^\s*ARG\s+(.+)$", re.IGNORECASE)
PREDEFINED = {"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "FTP_PROXY", "ALL_PROXY"}
PROXY_ARGUMENTS = (("http", "HTTP_PROXY"), ("https", "HTTPS_PROXY"), ("no_proxy", "NO_PROXY"))
GIT_ENV = {"GIT_TERMINAL_PROMPT": "0", "GIT_SSH_COMMAND": "ssh -o BatchMode=yes"}


class BuildError(Exception):
    """The image cannot be built or handed on; problems say why, output is the end of the builder's log."""

    def __init__(self, problems: List[Dict[str, str]], output: str = "", log: Optional[str] = None) -> None:
        super().__init__("\n".join("{message}. {remedy}.".format(**one) for one in problems))
        self.problems, self.output, self.log = problems, output, log


class Request(NamedTuple):
    """The options of the module vllm_build_image."""

    dockerfile: str
    tag: str
    repository: Optional[str]
    version: Optional[str]
    folder: Optional[str]
    arguments: Mapping[str, str]
    proxy: Optional[Mapping[str, Optional[str]]]
    network: Optional[str]
    pull: bool
    force: bool
    push: Optional[str]
    auth: Mapping[str, Mapping[str, str]]
    archive: Optional[str]
    work_folder: str
    min_free_mb: int
    timeout: float
    engine_cli: str
    check_mode: bool = False


class Source(NamedTuple):
    """Where the source comes from: commit is null for a folder that is no checkout, digest stands for its content."""

    commit: Optional[str]
    digest: str


def ensure(request: Request) -> Dict[str, Any]:
    """Build, push and save what is not there yet: {changed, action, image, pushed, saved, log, seconds}.

    BuildError says why not.
    """
    began = time.monotonic()
    engine = Engine(request.engine_cli)
    try:
        info = engine.info()
        source = find_source(request)
        identity = _identity(request, source)
        found = _labelled(request, identity)
        log = None
        built = request.force or found is None
        if built:
            space = space_problem(info, request.min_free_mb)
            if space:
                raise BuildError([space])
            if not request.check_mode:
                log = _build(request, source, identity)
                found = _labelled(request, identity)
                if found is None:
                    text = "{0} is not there after the build".format(request.tag)
                    raise BuildError([problem("build_lost", text, "look at " + log)])
        pushed = _push(request, engine, found)
        saved = _save(request, found)
    except ImageError as failure:
        raise BuildError(failure.problems) from failure
    return {
        "changed": built or pushed or saved,
        "action": "build" if built else "none",
        "image": {
            "id": None if found is None or (built and request.check_mode) else found["Id"],
            "reference": request.tag,
            "commit": source.commit,
            "source": _shown_source(request),
            "dockerfile": request.dockerfile,
            "arguments": dict(request.arguments),
        },
        "pushed": request.push if pushed else None,
        "saved": request.archive if saved else None,
        "log": log,
        "seconds": round(time.monotonic() - began, 1),
    }


# -- the source ----------------------------------------------------------------------------------------------------


def find_source(request: Request) -> Source:
    """The commit that the repository's branch or tag is at, or the digest of the folder. BuildError."""
    if request.folder:
        if not os.path.isdir(request.folder):
            text = "the folder {0} is not on the build host".format(request.folder)
            raise BuildError([problem("build_source_missing", text, "copy the sources there, or use a repository")])
        _check_dockerfile(request, request.folder)
        head = run(["git", "-C", request.folder, "rev-parse", "HEAD"], ASK_S, env=GIT_ENV)
        commit = head.stdout.strip() if head.ok and COMMIT.fullmatch(head.stdout.strip()) else None
        return Source(commit, folder_digest(request.folder))
    if LOGIN.match(str(request.repository)):
        text = "the repository's address holds a login, which would be kept in the image"
        raise BuildError([problem("build_source_login", text, "use a key or a credential helper of git, or a folder")])
    commit = _remote_commit(str(request.repository), str(request.version))
    return Source(commit, commit)


def _remote_commit(repository: str, version: str) -> str:
    if COMMIT.fullmatch(version):
        return version
    result = run(["git", "ls-remote", "--", repository], ASK_S, env=GIT_ENV)
    if result.missing:
        text = "git is not on the build host"
        raise BuildError([problem("git_missing", text, "install git there, or give the sources as vllm_build_folder")])
    if not result.ok:
        why = "no answer within {0:.0f} s".format(ASK_S) if result.timed_out else _last(result)
        remedy = "check the address and the network; vllm_build_repository can name a mirror"
        raise BuildError([problem("build_source_unreachable", "{0}: {1}".format(repository, why), remedy)], result.text)
    rows = [line.split("\t", 1) for line in result.stdout.splitlines() if "\t" in line]
    heads = {name: commit for commit, name in rows}
    # A tag that is an object of its own is peeled: "^{}" names its commit.
    for name in ("refs/tags/{0}^{{}}", "refs/tags/{0}", "refs/heads/{0}", "{0}"):
        if name.format(version) in heads:
            return heads[name.format(version)]
    names = {re.sub(r"^refs/(tags|heads)/|\^\{\}$", "", name) for name in heads}
    near = difflib.get_close_matches(version, sorted(names), 3)
    text = "{0} has no branch or tag {1}".format(repository, version)
    remedy = "set vllm_build_version to one that it has" + (", such as " + ", ".join(near) if near else "")
    raise BuildError([problem("build_version_missing", text, remedy)])


def folder_digest(folder: str) -> str:
    """A digest of the names, kinds, modes and contents below a folder; .git is left out."""
    whole = hashlib.sha256()
    for path, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if name != ".git")
        for name in sorted(files) + [name for name in folders if os.path.islink(os.path.join(path, name))]:
            full = os.path.join(path, name)
            state = os.lstat(full)
            kind, content = b"f", b""
            if stat.S_ISLNK(state.st_mode):
                kind, content = b"l", os.readlink(full).encode("utf-8", "surrogateescape")
            elif stat.S_ISREG(state.st_mode):
                content = _file_digest(full)
            executable = b"x" if kind == b"f" and state.st_mode & 0o111 else b"-"
            relative = os.path.relpath(full, folder).encode("utf-8", "surrogateescape")
            whole.update(b"\0".join([relative, kind, executable, content]) + b"\n")
    return whole.hexdigest()


def _file_digest(path: str) -> bytes:
    found = hashlib.sha256()
    with open(path, "rb") as stream:
        for piece in iter(lambda: stream.read(1 << 20), b""):
            found.update(piece)
    return found.digest()


@contextlib.contextmanager
def _checkout(request: Request, source: Source) -> Iterator[str]:
    """The folder with the sources: the operator's own, or a clone that goes afterwards."""
    if request.folder:
        yield request.folder
        return
    os.makedirs(request.work_folder, mode=0o700, exist_ok=True)
    folder = tempfile.mkdtemp(prefix="source-", dir=request.work_folder)
    try:
        wanted = str(source.commit) if COMMIT.fullmatch(str(request.version)) else str(request.version)
        for argv in (
            ["git", "init", "--quiet", folder],
            ["git", "-C", folder, "fetch", "--quiet", "--depth", "1", "--", str(request.repository), wanted],
            ["git", "-C", folder, "checkout", "--quiet", "FETCH_HEAD"],
        ):
            result = run(argv, GIT_S, env=GIT_ENV)
            if not result.ok:
                why = "no end within {0:.0f} s".format(GIT_S) if result.timed_out else _last(result)
                text = "{0} at {1} cannot be fetched: {2}".format(_shown_source(request), request.version, why)
                remedy = "check the network; vllm_build_repository can name a mirror"
                raise BuildError([problem("build_source_unreachable", text, remedy)], result.text)
        head = run(["git", "-C", folder, "rev-parse", "HEAD"], ASK_S).stdout.strip()
        if head != source.commit:
            text = "{0} moved to {1} while it was fetched".format(request.version, head)
            raise BuildError([problem("build_source_moved", text, "run again")])
        _check_dockerfile(request, folder)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _check_dockerfile(request: Request, folder: str) -> None:
    """BuildError when the source lacks the Dockerfile, or that knows not all arguments; with what there is."""
    path = os.path.join(folder, request.dockerfile)
    if not os.path.isfile(path):
        there = sorted(name for name in os.listdir(folder) if name.startswith("Dockerfile"))
        text = "the source has no {0}".format(request.dockerfile)
        remedy = "it has {0}: take another version, or set vllm_build_dockerfile".format(", ".join(there) or "none")
        raise BuildError([problem("build_dockerfile_missing", text, remedy)])
    with open(path, encoding="utf-8", errors="replace") as stream:
        known = declared_arguments(stream.read())
    problems = []
    for name in sorted(set(request.arguments) - known - PREDEFINED):
        near = difflib.get_close_matches(name, sorted(known), 1)
        text = "{0} declares no build argument {1}".format(request.dockerfile, name)
        meant = "write {0}, or leave it out".format(near[0]) if near else "leave it out"
        remedy = "{0}; it has {1}".format(meant, ", ".join(sorted(known)))
        problems.append(problem("build_argument_unknown", text, remedy))
    if problems:
        raise BuildError(problems)


def declared_arguments(dockerfile: str) -> Set[str]:
    """The names of all ARG instructions."""
    joined = re.sub(r"\\[ \t]*\n", " ", dockerfile)
    found: Set[str] = set()
    for line in joined.splitlines():
        match = ARG.match(line)
        if match:
            found |= set(re.findall(r"(?:^|\s)([A-Za-z_]\w*)(?==|\s|$)", match.group(1)))
    return found


# -- the build -----------------------------------------------------------------------------------------------------


def _identity(request: Request, source: Source) -> str:
    """What makes two builds the same: the source, the Dockerfile and the arguments."""
    parts = [BUILDER, source.digest, request.dockerfile, sorted(request.arguments.items())]
    return "sha256:" + hashlib.sha256(json.dumps(parts).encode("utf-8")).hexdigest()


def _labelled(request: Request, identity: str) -> Optional[Dict[str, Any]]:
    """The image of the tag when it is of this build, else None."""
    result = run([request.engine_cli, "image", "inspect", request.tag], ASK_S, env=ENGINE_ENV)
    if not result.ok:
        return None
    found = json.loads(result.stdout)[0]
    labels = (found.get("Config") or {}).get("Labels") or {}
    return found if labels.get(LABEL_BUILD) == identity else None


def _labels(request: Request, source: Source, identity: str) -> Dict[str, str]:
    found = {
        LABEL_BUILD: identity,
        LABEL_DOCKERFILE: request.dockerfile,
        LABEL_ARGUMENTS: json.dumps(dict(request.arguments), sort_keys=True),
        LABEL_SOURCE: _shown_source(request),
    }
    if source.commit:
        found[LABEL_REVISION] = source.commit
    return found


def build_argv(request: Request, source: Source, identity: str, folder: str) -> Tuple[List[str], Dict[str, str]]:
    """(argv, environment) of docker build; a proxy's address, which may hold a login, is in the environment alone."""
    argv = [request.engine_cli, "build", "--file", os.path.join(folder, request.dockerfile), "--tag", request.tag]
    for name, value in sorted(_labels(request, source, identity).items()):
        argv += ["--label", "{0}={1}".format(name, value)]
    for name, value in sorted(request.arguments.items()):
        argv += ["--build-arg", "{0}={1}".format(name, value)]
    environment = {}
    for key, name in PROXY_ARGUMENTS:
        address = (request.proxy or {}).get(key)
        if address:
            argv += ["--build-arg", name]
            environment[name] = address
    argv += ["--network", request.network] if request.network else []
    argv += ["--pull"] if request.pull else []
    return argv + [folder], environment


def _build(request: Request, source: Source, identity: str) -> str:
    """Build, and give the path of the log."""
    os.makedirs(request.work_folder, mode=0o700, exist_ok=True)
    log = os.path.join(request.work_folder, re.sub(r"[^A-Za-z0-9_.-]+", "_", request.tag) + ".log")
    with _checkout(request, source) as folder:
        argv, environment = build_argv(request, source, identity, folder)
        rc = _logged(argv, log, request.timeout, dict(environment, **ENGINE_ENV))
    if rc != 0:
        with open(log, "rb") as stream:
            stream.seek(max(os.path.getsize(log) - LOG_BYTES, 0))
            output = stream.read().decode("utf-8", "replace")
        logins = [masking.login_of(str(value)) for value in environment.values()]
        output = log_lines.mask(output, [login for login in logins if login])
        lines = log_lines.relevant(output.splitlines()) or output.splitlines()[-5:]
        why = "no end within {0:.0f} s".format(request.timeout) if rc is None else "it ended with {0}".format(rc)
        text = "docker build of {0} failed, {1}; the log is {2} on the build host:\n  {3}\n".format(
            request.tag, why, log, "\n  ".join(lines)
        )
        raise BuildError(
            [problem("build_failed", text, "Mend that and run again: what was built so far is cached")], output, log
        )
    return log


def _logged(argv: List[str], log: str, timeout: float, environment: Dict[str, str]) -> Optional[int]:
    """The exit code of a program whose output goes to a file of root, None when it took too long."""
    with open(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as stream:
        child = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            env=dict(os.environ, LC_ALL="C", **environment),
            start_new_session=True,
        )
        deadline = time.monotonic() + timeout
        while child.poll() is None:
            if time.monotonic() >= deadline:
                with contextlib.suppress(OSError):
                    os.killpg(child.pid, signal.SIGKILL)
                child.wait()
                return None
            time.sleep(POLL_S)
    return child.returncode


# -- handing it on -------------------------------------------------------------------------------------------------


def _push(request: Request, engine: Engine, found: Optional[Dict[str, Any]]) -> bool:
    """Push the image under the reference for others, unless this image is known to be there. True when it was."""
    if not request.push:
        return False
    repository = request.push.rsplit(":", 1)[0]
    tags = (found or {}).get("RepoTags") or []
    digests = (found or {}).get("RepoDigests") or []
    if request.push in tags and any(digest.startswith(repository + "@") for digest in digests):
        return False
    if request.check_mode or found is None:
        return True
    tagged = engine.tag(found["Id"], request.push)
    if not tagged.ok:
        raise BuildError([problem("build_push_failed", _last(tagged), "correct vllm_build_push")])
    login = engine_settings.auth_for(request.auth, request.push)
    with engine_settings.login_folder(engine_settings.registry_of(request.push), login) as environment:
        argv = [request.engine_cli, "push", request.push]
        result = run(argv, request.timeout, env=dict(environment, **ENGINE_ENV))
    if not result.ok:
        known = diagnose(result.text, PULL)
        text = "{0} cannot be pushed: {1}".format(request.push, known.error)
        raise BuildError([problem("build_push_failed", text, known.remedy)], result.text)
    return True


def _save(request: Request, found: Optional[Dict[str, Any]]) -> bool:
    """Write the archive unless it is of this image already; True when it was, or would be."""
    if not request.archive:
        return False
    note = request.archive + ".image"
    wanted = None if found is None else "{0} {1}\n".format(found["Id"], request.tag)
    if os.path.isfile(request.archive) and wanted and engine_settings.read_file(note) == wanted:
        return False
    if request.check_mode or wanted is None:
        return True
    os.makedirs(os.path.dirname(request.archive), exist_ok=True)
    part = request.archive + ".part"
    result = run([request.engine_cli, "save", "--output", part, request.tag], request.timeout, env=ENGINE_ENV)
    if not result.ok:
        with contextlib.suppress(OSError):
            os.unlink(part)
        text = "{0} cannot be written: {1}".format(request.archive, _last(result))
        raise BuildError([problem("build_archive_failed", text, "check the space and the folder")], result.text)
    os.chmod(part, 0o600)
    os.rename(part, request.archive)
    engine_settings.write_file(note, wanted, 0o600)
    return True


def _shown_source(request: Request) -> str:
    return str(request.repository or request.folder)


def _last(result: CommandResult) -> str:
    lines = [line.strip() for line in result.text.splitlines() if line.strip()]
    return lines[-1] if lines else result.error or "it ended with {0}".format(result.rc)
