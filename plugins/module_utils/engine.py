# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read the container engine through its command line: itself, its containers and its images.

Six calls at most, and none after one that got no answer. The parsers are pure functions over what Docker 18.09 to 29
print; a field that a version lacks is null.
"""

from __future__ import annotations

import os
import re
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from . import npu_holds
from .commands import CommandResult
from .documents import boolean, integer, mapping, mappings, parsed, port, text, words
from .instance_state import INSTANCE_NAME, LABEL_INSTANCE, LABEL_PLAN
from .masking import DOCKER_MARK, masked
from .sysroot import Sysroot

TIMEOUT_S = 20.0
MIB = 1 << 20

# The units run docker with no environment of a login: what points a shell's docker elsewhere must not count here.
ENGINE_ENV = {"DOCKER_HOST": "", "DOCKER_CONTEXT": "default", "DOCKER_TLS": "", "DOCKER_TLS_VERIFY": ""}

JSON_FORMAT = ["--format", "{{json .}}"]
# A recorded host holds exactly these calls.
VERSION_ARGS = ["version"] + JSON_FORMAT
INFO_ARGS = ["info"] + JSON_FORMAT
PS_ARGS = ["ps", "-a", "-q", "--no-trunc"]
INSPECT_ARGS = ["inspect"]
IMAGE_LS_ARGS = ["image", "ls", "-q", "--no-trunc"]
IMAGE_INSPECT_ARGS = ["image", "inspect"]

DOCKER = "docker"
PODMAN = "podman"
ISULA = "isula"
OTHER = "other"
CLIS = (DOCKER, PODMAN, ISULA)

CONTAINERD_SOCKET = "/run/containerd/containerd.sock"
CONTAINERD_CONFIG = "/etc/containerd/config.toml"
CONTAINERD_ROOT = "/var/lib/containerd"


class Reading(NamedTuple):
    """What was read: the engine as observed (None: no command line found), docker inspect's objects, the images."""

    engine: Optional[Dict[str, Any]]
    containers: List[Dict[str, Any]]
    images: List[Dict[str, Any]]


# -- parsers -------------------------------------------------------------------------------------------------------


def parse_version(stdout: str, stderr: str = "") -> Optional[Dict[str, Any]]:
    """{kind, client_version, version, api_version, architecture} of `docker version --format '{{json .}}'`.

    None when that is not JSON (not a Docker command line at all). version is null when the engine did not answer.
    A `docker` that is podman (podman-docker), or that talks to podman's socket, is kind podman.
    """
    data = mapping(parsed(stdout))
    if not isinstance(data.get("Client"), dict):
        return None
    client = data["Client"]
    server = mapping(data.get("Server"))
    parts = [text(part.get("Name")) or "" for part in mappings(server.get("Components"))]
    # OsArch and APIVersion (so spelt) are podman's; Docker has Os, Arch and ApiVersion.
    shim = "OsArch" in client or "APIVersion" in client or "using podman" in stderr
    podman = shim or any("podman" in part.lower() for part in parts)
    platform = (text(client.get("OsArch")) or "").rpartition("/")[2] if podman else ""
    own = text(client.get("Version"))
    return {
        "kind": PODMAN if podman else DOCKER,
        "client_version": own,
        "version": text(server.get("Version")) or (own if shim else None),
        "api_version": text(server.get("ApiVersion")) or text(server.get("APIVersion")),
        "architecture": text(server.get("Arch")) or platform or None,
    }


def parse_info(stdout: str) -> Dict[str, Any]:
    """What `docker info --format '{{json .}}'` says, as far as it is used here.

    {default_runtime, runtimes, docker_root, live_restore, security_options, rootless, userns_remap, cgroup_version,
    http_proxy, https_proxy, no_proxy, containerd_images}. The last: true when images are kept by containerd (the
    default of new installations from Docker 29 on), outside docker_root. cgroup_version is "1" or "2", null before
    20.10. Passwords in proxies are masked (old engines print them).
    """
    data = mapping(parsed(stdout))
    rows = data.get("DriverStatus")
    pairs = [words(row) for row in rows] if isinstance(rows, list) else []
    driver = {pair[0]: pair[1] for pair in pairs if len(pair) == 2}
    options = words(data["SecurityOptions"]) if isinstance(data.get("SecurityOptions"), list) else None
    runtimes = data.get("Runtimes")
    address = mapping(data.get("Containerd")).get("Address") or CONTAINERD_SOCKET
    return {
        "default_runtime": text(data.get("DefaultRuntime")),
        "runtimes": sorted(runtimes) if isinstance(runtimes, dict) else None,
        "docker_root": text(data.get("DockerRootDir")),
        "live_restore": boolean(data.get("LiveRestoreEnabled")),
        "security_options": options,
        "rootless": _has_option(options, "rootless"),
        "userns_remap": _has_option(options, "userns"),
        "cgroup_version": text(data.get("CgroupVersion")),
        "http_proxy": _masked(data.get("HttpProxy")),
        "https_proxy": _masked(data.get("HttpsProxy")),
        "no_proxy": text(data.get("NoProxy")),
        "containerd_images": driver.get("driver-type", "").startswith("io.containerd.snapshotter")
        and address == CONTAINERD_SOCKET,
    }


def _has_option(options: Optional[List[str]], name: str) -> Optional[bool]:
    """True when `name=<name>` is among docker's security options ("name=seccomp,profile=default"), None: not known."""
    return None if options is None else any(option.split(",")[0] == "name=" + name for option in options)


def parse_inspect(stdout: str) -> List[Dict[str, Any]]:
    """The objects that `docker inspect` prints; [] for anything else. One that vanished meanwhile is not among them."""
    return mappings(parsed(stdout))


def parse_images(stdout: str) -> List[Dict[str, Any]]:
    """[{id, references, digests, architecture, os, size_mb (MiB), created, labels}] of `docker image inspect`."""
    return [
        {
            "id": text(entry.get("Id")),
            "references": _named(entry.get("RepoTags")),
            "digests": _named(entry.get("RepoDigests")),
            "architecture": text(entry.get("Architecture")),
            "os": text(entry.get("Os")),
            "size_mb": _mib(entry.get("Size")),
            "created": text(entry.get("Created")),
            "labels": labels(entry),
        }
        for entry in parse_inspect(stdout)
    ]


def parse_ids(stdout: str) -> List[str]:
    """The ids that a listing with -q prints, each once (an image with two names is printed twice)."""
    return list(dict.fromkeys(stdout.split()))


def _mib(size: Any) -> Optional[int]:
    number = integer(size)
    return None if number is None else number // MIB


def _named(references: Any) -> List[str]:
    return sorted(reference for reference in words(references) if "<none>" not in reference)


def _masked(proxy: Any) -> Optional[str]:
    return masked(proxy, DOCKER_MARK) if text(proxy) else None


# -- views of one container ----------------------------------------------------------------------------------------


def labels(inspect: Dict[str, Any]) -> Dict[str, str]:
    """The labels of a container or an image."""
    found = mapping(mapping(inspect.get("Config")).get("Labels"))
    return {key: value for key, value in found.items() if isinstance(value, str)}


def instance(inspect: Dict[str, Any]) -> Optional[str]:
    """The instance that a container belongs to, None when it is not ours (a label that is no such name is none)."""
    found = labels(inspect).get(LABEL_INSTANCE, "")
    return found if INSTANCE_NAME.match(found) else None


def on_host_network(inspect: Dict[str, Any]) -> bool:
    """True for a container that has the host's network."""
    return mapping(inspect.get("HostConfig")).get("NetworkMode") == "host"


def status(inspect: Dict[str, Any]) -> Optional[str]:
    """created, running, paused, restarting, removing, exited or dead."""
    return text(mapping(inspect.get("State")).get("Status"))


def running_pid(inspect: Dict[str, Any]) -> Optional[int]:
    """The host's process id of a running container's first process, None when it does not run."""
    state = mapping(inspect.get("State"))
    return integer(state.get("Pid")) or None if state.get("Running") is True else None


def name(inspect: Dict[str, Any]) -> str:
    """The name of a container, without the slash that docker puts before it."""
    return (text(inspect.get("Name")) or "").lstrip("/")


def environment(inspect: Dict[str, Any]) -> Dict[str, str]:
    """The environment of a container; it holds secrets: never return it whole."""
    entries = words(mapping(inspect.get("Config")).get("Env"))
    return {key: value for key, equals, value in (entry.partition("=") for entry in entries) if equals}


def npu_devices(inspect: Dict[str, Any]) -> List[str]:
    """The NPU nodes (/dev/davinci<N>, virtual ones /dev/vdavinci<N>) that a container was given, by number."""
    return npu_holds.npu_nodes(given(inspect).nodes)


def published(inspect: Dict[str, Any]) -> List[Tuple[int, str, int]]:
    """[(host port, address, container port)] of the TCP ports that a container publishes, or would when started."""
    running = mapping(mapping(inspect.get("NetworkSettings")).get("Ports"))
    found = set()
    for inner, bindings in (running or mapping(mapping(inspect.get("HostConfig")).get("PortBindings"))).items():
        number, _slash, protocol = inner.partition("/")
        inner_port = port(number)
        for binding in mappings(bindings):
            host_port = port(binding.get("HostPort"))
            if protocol in ("", "tcp") and inner_port is not None and host_port is not None:
                found.add((host_port, text(binding.get("HostIp")) or "0.0.0.0", inner_port))
    return sorted(found)


def host_ports(inspect: Dict[str, Any]) -> List[int]:
    """The host's TCP ports that a container publishes, each once."""
    return sorted({host_port for host_port, _address, _inner in published(inspect)})


def container_summary(inspect: Dict[str, Any]) -> Dict[str, Any]:
    """{id, image_id, state, started_at, plan_hash} of an instance's container."""
    started = text(mapping(inspect.get("State")).get("StartedAt"))
    return {
        "id": text(inspect.get("Id")),
        "image_id": text(inspect.get("Image")),
        "state": status(inspect),
        "started_at": None if not started or started.startswith("0001-") else started,
        "plan_hash": labels(inspect).get(LABEL_PLAN),
    }


def given(inspect: Dict[str, Any]) -> npu_holds.Given:
    """What a container was given that can lead to an NPU, by docker inspect's object."""
    settings = mapping(inspect.get("HostConfig"))
    requests = mappings(settings.get("DeviceRequests"))
    mounts = mappings(inspect.get("Mounts"))
    variables = environment(inspect)
    return npu_holds.Given(
        devices=[text(device.get("PathOnHost")) or "" for device in mappings(settings.get("Devices"))]
        + [name for request in requests for name in words(request.get("DeviceIDs"))],
        mounts=[(text(mount.get("Source")) or "", text(mount.get("Destination")) or "") for mount in mounts],
        visible=variables.get(npu_holds.VISIBLE_DEVICES),
        options=variables.get(npu_holds.RUNTIME_OPTIONS),
        runtime=text(settings.get("Runtime")),
        privileged=settings.get("Privileged") is True,
        rules=words(settings.get("DeviceCgroupRules")),
    )


def container(inspect: Dict[str, Any]) -> npu_holds.Container:
    """A container as npu_holds judges it."""
    return npu_holds.Container(
        id=text(inspect.get("Id")),
        name=name(inspect),
        image=text(mapping(inspect.get("Config")).get("Image")) or text(inspect.get("Image")),
        state=status(inspect),
        engine=DOCKER,
        given=given(inspect),
        ports=host_ports(inspect),
    )


def foreign(inspect: Dict[str, Any], host: npu_holds.Surroundings = npu_holds.NOT_KNOWN) -> Optional[Dict[str, Any]]:
    """What a container that is not ours has to do with NPUs or with our names; None: nothing (npu_holds)."""
    return None if instance(inspect) is not None else npu_holds.foreign_entry(container(inspect), host)


# -- reading -------------------------------------------------------------------------------------------------------


def find_cli(sysroot: Sysroot) -> Tuple[Optional[str], Optional[str]]:
    """(kind, path) of the first engine command line: docker, else podman, else isula; (None, None) when there is none.

    A docker that is only another name of podman or isula is theirs.
    """
    for kind in CLIS:
        path = sysroot.which(kind)
        if path is not None:
            target = os.path.basename(sysroot.link(path) or "")
            return next((other for other in (PODMAN, ISULA) if target.startswith(other)), kind), path
    return None, None


def read(sysroot: Sysroot, timeout: float = TIMEOUT_S) -> Reading:
    """Read the engine, its containers and its images; timeout: seconds for each call.

    Engines other than docker are named and not read. An engine that is stopped, or gives no answer in time, is
    running: false with its error's text.
    """
    kind, path = find_cli(sysroot)
    if kind in (PODMAN, ISULA):
        return Reading(_engine(kind, path, {}), [], [])
    result = sysroot.run([path or DOCKER] + VERSION_ARGS, timeout, ENGINE_ENV) if path or sysroot.replay else None
    if result is None:
        return Reading(_engine(DOCKER, path, {}) if path else None, [], [])
    version = parse_version(result.stdout, result.stderr)
    if version is None:
        kind = DOCKER if result.timed_out or result.rc is None else OTHER
        return Reading(_engine(kind, path, {"running": False, "error": _error(result, timeout)}), [], [])
    engine = _engine(version["kind"], path, version)
    if engine["kind"] != DOCKER:
        return Reading(engine, [], [])
    engine["running"] = engine["version"] is not None and not result.timed_out
    if not engine["running"]:
        engine["error"] = _error(result, timeout)
        return Reading(engine, [], [])
    return _Docker(sysroot, path or DOCKER, engine, timeout).read()


def _engine(kind: Optional[str], path: Optional[str], known: Dict[str, Any]) -> Dict[str, Any]:
    keys = (
        "client_version", "version", "api_version", "default_runtime", "architecture", "storage_root",
        "storage_free_mb", "live_restore", "running", "error", "http_proxy", "https_proxy", "no_proxy", "runtimes",
        "security_options", "rootless", "userns_remap", "cgroup_version",
    )  # fmt: skip
    engine: Dict[str, Any] = {"kind": kind, "cli": path}
    engine.update((key, known.get(key)) for key in keys)
    return engine


def _error(result: CommandResult, timeout: float) -> str:
    """Why a call failed, in the tool's own words where it has any."""
    if result.timed_out:
        return "`{0}` gave no answer within {1:g} s".format(" ".join(result.argv[:2]), timeout)
    return result.stderr.strip() or result.error or "`{0}` ended with {1}".format(" ".join(result.argv), result.rc)


class _Docker:
    """The calls after the first, to a Docker engine that runs."""

    def __init__(self, sysroot: Sysroot, cli: str, engine: Dict[str, Any], timeout: float) -> None:
        self.sysroot = sysroot
        self.cli = cli
        self.engine = engine
        self.timeout = timeout

    def read(self) -> Reading:
        info = self._call(INFO_ARGS)
        if info is not None:
            self._take_info(parse_info(info))
        containers = self._objects(PS_ARGS, INSPECT_ARGS)
        images = self._objects(IMAGE_LS_ARGS, IMAGE_INSPECT_ARGS)
        return Reading(self.engine, parse_inspect(containers), parse_images(images))

    def _objects(self, listing: List[str], inspect: List[str]) -> str:
        ids = parse_ids(self._call(listing) or "")
        # One that vanished between the two calls makes the second fail, with the others in its output.
        return (self._call(inspect + ids, partial=True) or "") if ids else ""

    def _call(self, args: List[str], partial: bool = False) -> Optional[str]:
        """The output of a call, None when it failed or was not recorded; after a failure nothing more is asked."""
        if not self.engine["running"]:
            return None
        result = self.sysroot.run([self.cli] + args, self.timeout, ENGINE_ENV)
        if result is None:
            return None
        if result.rc is None or (result.rc != 0 and not (partial and result.stdout.strip())):
            self.engine.update(running=False, error=_error(result, self.timeout))
            return None
        return result.stdout

    def _take_info(self, info: Dict[str, Any]) -> None:
        root = info.pop("docker_root")
        if info.pop("containerd_images"):
            root = containerd_root(self.sysroot.read_text(CONTAINERD_CONFIG))
        self.engine.update(info, storage_root=root)
        if root:
            free = self.sysroot.live("free MiB of " + root, lambda: free_mb(root))
            self.engine["storage_free_mb"] = integer(free)


def containerd_root(config: Optional[str]) -> str:
    """The folder where containerd keeps its images: the top-level key root of its config.toml, else the default."""
    top = re.split(r"^\s*\[", config or "", maxsplit=1, flags=re.MULTILINE)[0]
    match = re.search(r"""^\s*root\s*=\s*["']([^"']+)["']""", top, re.MULTILINE)
    return match.group(1) if match else CONTAINERD_ROOT


def free_mb(path: str) -> Optional[int]:
    """Free MiB for ordinary users of the file system of path, None when it cannot be asked."""
    try:
        state = os.statvfs(path)
    except (OSError, ValueError):
        return None
    return state.f_bavail * state.f_frsize // MIB
