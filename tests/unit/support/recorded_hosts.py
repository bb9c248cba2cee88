"""Folders that look like a host with an engine and instances: files, and what docker and systemctl printed there."""

from __future__ import annotations

import json
import pathlib
from typing import Any, TypeVar

from ansible_collections.vllm_ascend.fleet.plugins.module_utils import engine, instance_state, systemd
from ansible_collections.vllm_ascend.fleet.plugins.module_utils.sysroot import Sysroot

DATA = pathlib.Path(__file__).resolve().parents[1] / "data"
DOCKER = "/usr/bin/docker"
Known = TypeVar("Known")


def known(value: Known | None) -> Known:
    """The value, which must be known (not None)."""
    assert value is not None
    return value


def data(name: str) -> str:
    """The text of a data file."""
    return (DATA / name).read_text(encoding="utf-8")


def record(argv: list[str], stdout: str = "", stderr: str = "", rc: int | None = 0, timed_out: bool = False) -> dict:
    """One entry of recorded/commands.json."""
    return {"argv": argv, "rc": None if timed_out else rc, "stdout": stdout, "stderr": stderr, "timed_out": timed_out}


def docker_records(
    version: str, info: str, containers: list[dict[str, Any]], images: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """The six calls of a Docker engine that runs; version and info are texts."""
    ids = [container["Id"] for container in containers]
    image_ids = [image["Id"] for image in images]
    return [
        record(["docker", *engine.VERSION_ARGS], version),
        record(["docker", *engine.INFO_ARGS], info),
        record(["docker", *engine.PS_ARGS], "".join(one + "\n" for one in ids)),
        record(["docker", *engine.INSPECT_ARGS, *ids], json.dumps(containers)),
        # Docker prints an image once for each of its names.
        record(["docker", *engine.IMAGE_LS_ARGS], "".join((one + "\n") * 2 for one in image_ids)),
        record(["docker", *engine.IMAGE_INSPECT_ARGS, *image_ids], json.dumps(images)),
    ]


def docker_20(containers: list[dict[str, Any]] | None = None) -> list[dict[str, Any]]:
    """The calls of the Docker 20.10.24 in the data files, with other containers when they are given."""
    return docker_records(
        data("docker/version-20.10.24.json"),
        data("docker/info-20.10.24.json"),
        json.loads(data("docker/inspect-20.10.24.json")) if containers is None else containers,
        json.loads(data("docker/image-inspect-20.10.24.json")),
    )


def systemd_records(names: list[str], show: str) -> list[dict[str, Any]]:
    """The two calls of systemd 252 for the units of those instances."""
    return [
        record(systemd.VERSION_ARGV, data("systemd/version-252.txt")),
        record(systemd.show_argv([instance_state.unit_name(name) for name in sorted(names)]), show),
    ]


class RecordedHost:
    """Builds such a folder."""

    def __init__(self, root: pathlib.Path) -> None:
        self.root = root
        self.records: list[dict[str, Any]] = []

    def file(self, path: str, content: Any = "") -> RecordedHost:
        """A file with that text (anything else is written as JSON)."""
        target = self.root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
        return self

    def calls(self, records: list[dict[str, Any]]) -> RecordedHost:
        """More recorded calls."""
        self.records += records
        return self.file("recorded/commands.json", self.records)

    def sysroot(self) -> Sysroot:
        """The folder as a replay."""
        return Sysroot(str(self.root))

    def live(self) -> LiveHost:
        """The folder as a host that counts as live: endpoints are asked, processes are looked for."""
        return LiveHost(self.sysroot())


class LiveHost(Sysroot):
    """Files and outputs of a replay, with replay False; it notes the calls."""

    def __init__(self, inner: Sysroot) -> None:
        super().__init__("/")
        self.inner = inner
        self.called: list[list[str]] = []
        self.environments: list[dict[str, str] | None] = []

    def path(self, path: str) -> str:
        return self.inner.path(path)

    def which(self, name: str, folders: Any = None) -> str | None:
        return self.inner.which(name)

    def run(self, argv: list[str], timeout: float, env: dict[str, str] | None = None) -> Any:
        self.called.append(argv)
        self.environments.append(env)
        return self.inner.run(argv, timeout, env)
