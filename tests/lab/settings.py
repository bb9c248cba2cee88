"""Names, paths and the data of the rack (rack.yml, families.yml), read once."""

from __future__ import annotations

import functools
import pathlib
from dataclasses import dataclass, field
from typing import Any

import yaml

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
# What belongs to this checkout: keys, certificates, archives. inventories/lab refers to it.
STATE = ROOT / ".lab"
# What belongs to the machine and survives a fresh checkout: the data of an engine that the rack had to start.
MACHINE_STATE = pathlib.Path("/var/lib/vllm-ascend-lab")
MACHINE_RUN = pathlib.Path("/run/vllm-ascend-lab")
PREFIX = "vllm-lab"
LABEL = "vllm-ascend-lab"
DIGEST_LABEL = "vllm-ascend-lab.digest"
RELEASE = "v0.23.0"


class LabError(Exception):
    """The rack cannot be built, or a part of it does not come up; the message says what to do."""


@dataclass(frozen=True)
class Registry:
    """A container that plays a public registry."""

    name: str
    plays: str
    address: str
    tls: bool
    repository: str

    @property
    def container(self) -> str:
        """The container's name."""
        return f"{PREFIX}-registry-{self.name}"


@dataclass(frozen=True)
class Hub:
    """The container that plays the hubs of models."""

    address: str

    @property
    def container(self) -> str:
        """The container's name."""
        return f"{PREFIX}-hub"


@dataclass(frozen=True)
class Host:
    """A host of the rack, as rack.yml describes it."""

    name: str
    address: str
    family: str
    os: str
    arch: str | None = None
    nodes_after_s: int = 0
    model_cache: bool = False

    @property
    def container(self) -> str:
        """The container's name."""
        return f"{PREFIX}-{self.name}"


@dataclass(frozen=True)
class Rack:
    """All of rack.yml."""

    network: str
    subnet: str
    registries: tuple[Registry, ...]
    hub: Hub
    hosts: tuple[Host, ...]
    unreachable: dict[str, str] = field(default_factory=dict)

    def host(self, name: str) -> Host:
        """The host of that name. Raises LabError with the names that there are."""
        for host in self.hosts:
            if host.name == name:
                return host
        raise LabError(f"the rack has no host {name!r}: {', '.join(h.name for h in self.hosts)}")


@functools.cache
def rack() -> Rack:
    """rack.yml, read once."""
    data = _yaml("rack.yml")
    return Rack(
        network=data["network"]["name"],
        subnet=data["network"]["subnet"],
        registries=tuple(Registry(name=name, **values) for name, values in data["registries"].items()),
        hub=Hub(**data["hub"]),
        hosts=tuple(Host(name=name, **values) for name, values in data["hosts"].items()),
        unreachable=data["unreachable"],
    )


@functools.cache
def families() -> dict[str, Any]:
    """families.yml, read once; an entry with `like` is that entry, and its chips, but for what it changes."""
    data = _yaml("families.yml")
    for name, spec in data["families"].items():
        if "like" in spec:
            base = data["families"][spec["like"]]
            data["families"][name] = {**base, **spec, "chips": {**base["chips"], **spec.get("chips", {})}}
    return data


def _yaml(name: str) -> dict[str, Any]:
    return yaml.safe_load((HERE / name).read_text(encoding="utf-8"))


def say(text: str) -> None:
    """One line of progress."""
    print(f"lab: {text}", flush=True)
