# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The image commands of the Docker command line, and how image references are written."""

from __future__ import annotations

import re
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Set

from . import documents
from .commands import CommandResult, run
from .engine import ENGINE_ENV
from .engine_settings import problem
from .registry_errors import ENGINE, diagnose

COMMAND_S = 60.0
MIB = 1 << 20
INSTANCE_LABEL = "vllm-ascend.instance"
Problem = Dict[str, str]


class Image(NamedTuple):
    """An image in the engine's store, as `docker image inspect` tells it. size_mb is in MiB."""

    id: str
    platform: str
    tags: List[str]
    digests: List[str]
    size_mb: int

    @property
    def architecture(self) -> str:
        """amd64, arm64, …"""
        return self.platform.split("/")[-1]


class Snapshot(NamedTuple):
    """The engine's images at one moment: the id behind each tag, and every id."""

    tags: Dict[str, str]
    ids: Set[str]


class ImageError(Exception):
    """The image cannot be had.

    problems says why, with remedies; attempts are the failed candidates; changed and diff tell of settings written.
    """

    def __init__(
        self, problems: List[Problem], attempts: Optional[List[Dict[str, str]]] = None, headline: str = ""
    ) -> None:
        lines = ["{message}. {remedy}".format(**dict(p, remedy=_sentence(p["remedy"]))) for p in problems]
        super().__init__("\n".join([headline] + ["- " + line for line in lines]) if headline else "\n".join(lines))
        self.problems = problems
        self.attempts = attempts or []
        self.changed = False
        self.diff: Dict[str, Any] = {}


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + "."


# -- the engine ----------------------------------------------------------------------------------------------------


class Engine:
    """The image commands of a docker command line. Every method raises ImageError when the engine cannot be asked."""

    def __init__(self, cli: str) -> None:
        self.cli = cli

    def inspect(self, name: str) -> Optional[Image]:
        """The image of that name or id, None when there is none."""
        result = self._run(["image", "inspect", name])
        if not result.ok:
            if "no such image" in result.stderr.lower():
                return None
            raise self._failure(result)
        data = (documents.mappings(self._json(result)) or [{}])[0]
        id_ = documents.text(data.get("Id"))
        if id_ is None:
            raise self._failure(result._replace(stderr="its output names no image: " + result.stdout[:200]))
        return Image(
            id_,
            "{0}/{1}".format(
                documents.text(data.get("Os")) or "linux", documents.text(data.get("Architecture")) or "unknown"
            ),
            documents.words(data.get("RepoTags")),
            documents.words(data.get("RepoDigests")),
            (documents.integer(data.get("Size")) or 0) // MIB,
        )

    def info(self) -> Dict[str, Any]:
        """`docker info`; an engine that is stopped is an error, also where the command says 0."""
        result = self._run(["info", "--format", "{{json .}}"])
        data = documents.mapping(self._json(result)) if result.ok else {}
        if not documents.text(data.get("ServerVersion")):
            errors = documents.words(data.get("ServerErrors"))
            raise self._failure(result._replace(stderr="\n".join(errors + [result.stderr])))
        return data

    def snapshot(self) -> Snapshot:
        """All tags and ids at this moment."""
        result = self._run(
            ["image", "ls", "--all", "--no-trunc", "--format", "{{.ID}} {{.Repository}}:{{.Tag}}"], must=True
        )
        rows = [line.split(" ", 1) for line in result.stdout.splitlines() if " " in line]
        return Snapshot({name: id_ for id_, name in rows if "<none>" not in name}, {id_ for id_, _name in rows})

    def running_instances(self) -> List[str]:
        """The names of running containers that are instances of this collection."""
        argv = ["ps", "--filter", "label=" + INSTANCE_LABEL, "--format", "{{.Names}}"]
        return self._run(argv, must=True).stdout.split()

    def pull(self, name: str, platform: Optional[str], timeout: float, env: Dict[str, str]) -> CommandResult:
        """`docker pull`, at most timeout seconds."""
        return self._run(["pull"] + (["--platform", platform] if platform else []) + [name], timeout, env)

    def load(self, archive: str, timeout: float) -> CommandResult:
        """`docker load -i`, at most timeout seconds."""
        return self._run(["load", "-i", archive], timeout)

    def tag(self, source: str, target: str) -> CommandResult:
        """Give an image another name."""
        return self._run(["tag", source, target])

    def remove(self, name: str) -> CommandResult:
        """Take a name away; the image goes with its last name. Never forced: an image in use stays."""
        return self._run(["image", "rm", name])

    def _run(
        self, args: List[str], timeout: float = COMMAND_S, env: Optional[Dict[str, str]] = None, must: bool = False
    ) -> CommandResult:
        # The engine that is observed, and that the units use, is the one that is changed.
        result = run([self.cli] + args, timeout, env=dict(ENGINE_ENV, **(env or {})))
        reachable = result.ok or diagnose(result.stderr, ENGINE).code == "unknown"
        if result.missing or result.error or not reachable or (must and not result.ok):
            raise self._failure(result)
        return result

    def _json(self, result: CommandResult) -> Any:
        try:
            return documents.parse(result.stdout)
        except ValueError:
            raise self._failure(result._replace(stderr="its output is not JSON: " + result.stdout[:200])) from None

    def _failure(self, result: CommandResult) -> ImageError:
        command = " ".join(result.argv[:3])
        if result.missing or result.error:
            message = "the engine's command line {0} cannot be run: {1}".format(self.cli, result.error)
            return ImageError([problem("engine_missing", message, "install Docker on the host, or give engine_cli")])
        if result.timed_out:
            message = "`{0}` gave no answer within {1:.0f} s".format(command, COMMAND_S)
            return ImageError([problem("engine_hung", message, "see what Docker does: journalctl -u docker")])
        found = diagnose(result.stderr or result.stdout, ENGINE)
        code = "engine_error" if found.code == "unknown" else found.code
        return ImageError([problem(code, "`{0}` failed: {1}".format(command, found.error), found.remedy)])


def knows_platform(info: Mapping[str, Any]) -> bool:
    """True when `docker pull --platform` can be used: Docker 20.10 on, before that only with experimental features."""
    numbers = [int(number) for number in re.findall(r"\d+", str(info.get("ServerVersion") or ""))[:2]]
    return numbers >= [20, 10] or bool(info.get("ExperimentalBuild"))


# -- names ---------------------------------------------------------------------------------------------------------


def familiar(reference: str) -> str:
    """A reference as the engine prints it: without docker.io/library/, with a tag."""
    name = re.sub(r"^(index\.)?docker\.io/", "", reference)
    name = re.sub(r"^library/", "", name)
    return name if "@" in name or ":" in name.rsplit("/", 1)[-1] else name + ":latest"


def with_digest(reference: str, digest: Optional[str]) -> str:
    """The name to pull: by digest when one is pinned (the tag plays no part then)."""
    if not digest or "@" in reference:
        return reference
    head, slash, last = reference.rpartition("/")
    return "{0}{1}{2}@{3}".format(head, slash, last.split(":")[0], digest)
