# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Running containers of podman, CRI-O, containerd (nerdctl, ctr, Kubernetes) and iSulad, read from their files.

No program is run, so nothing can hang, and a copy of the files reads as the host does. Each engine keeps the OCI
configuration (opencontainers/runtime-spec config.md) that the runtime started the container from, after the changes
of a runtime such as Ascend's (mind-cluster, ascend-docker-runtime process.go modifySpecFile):

containerd  <state>/io.containerd.runtime.v2.task/<namespace>/<id>/{config.json,init.pid}, namespace moby is Docker's
            (containerd docs/historical/design/lifecycle.md, runtime/v2/README.md; v1.linux before 1.4)
podman      <graphroot>/<driver>-containers/<id>/userdata/config.json, <runroot>/.../userdata/pidfile, names in
            <graphroot>/<driver>-containers/{containers,volatile-containers}.json (containers/storage containers.go)
CRI-O       as podman, with config.json beside the pidfile too (cri-o internal/oci/container.go)
iSulad      /var/lib/isulad/engines/<runtime>/<id>/{config.json,config.v2.json,hostconfig.json}
            (openEuler iSulad documentation, "Storage Description")
"""

from __future__ import annotations

import re
from typing import Any, Dict, Iterable, Iterator, List, NamedTuple, Optional, Set, Tuple

from . import engine, npu_holds
from .documents import decimal, integer, mapping, mappings, parsed, text, words
from .sysroot import Sysroot

MOST_BUNDLES = 512
PID_FILE_LIMIT = 64

CONTAINERD_STATES = (
    "/run/containerd",
    # Docker that starts a containerd of its own (18.09, snap and static packages).
    "/run/docker/containerd/daemon",
    "/run/k3s/containerd",
    "/run/k0s/containerd",
    "/var/snap/microk8s/common/run/containerd",
)
CONTAINERD_RUNTIMES = ("io.containerd.runtime.v2.task", "io.containerd.runtime.v1.linux")
DOCKER_NAMESPACE = "moby"
DOCKER_CONFIG = "/etc/docker/daemon.json"
DOCKER_ROOT = "/var/lib/docker"
STORAGE_CONFIGS = ("/etc/containers/storage.conf", "/usr/share/containers/storage.conf")
GRAPH_ROOT = "/var/lib/containers/storage"
RUN_ROOT = "/run/containers/storage"
ISULAD_CONFIG = "/etc/isulad/daemon.json"
ISULAD_ROOT = "/var/lib/isulad"

CONTAINERD = "containerd"
CRIO = "cri-o"
# Annotations with the name of a container and of its pod (containerd pkg/cri/annotations, cri-o and podman
# pkg/annotations, nerdctl pkg/labels), and with its image.
NAMES = ("io.kubernetes.cri.container-name", "io.kubernetes.container.name", "nerdctl/name")
PODS = ("io.kubernetes.cri.sandbox-name", "io.kubernetes.pod.name")
IMAGES = ("io.kubernetes.cri.image-name", "io.kubernetes.cri-o.ImageName", "nerdctl/image-name")
KINDS = ("io.kubernetes.cri.container-type", "io.kubernetes.cri-o.ContainerType")
MANAGER = "io.container.manager"

_ID = re.compile(r"[0-9a-f]{64}")
_SYS_ADMIN = "CAP_SYS_ADMIN"


class Bundle(NamedTuple):
    """A container's files: its engine, the path of config.json, and its first process (None: not known)."""

    id: str
    kind: str
    config: str
    pid: Optional[int]
    named: Optional[Dict[str, Any]] = None


def read(sysroot: Sysroot, listed: Iterable[str], majors: Dict[int, str]) -> List[npu_holds.Container]:
    """The running containers that nobody listed yet; listed: ids that Docker told. At most 512 bundles are read.

    Containers of instances of this collection, pod sandboxes, and files that are no OCI configuration are left out.
    """
    known: Set[str] = set(listed)
    found: List[npu_holds.Container] = []
    for number, bundle in enumerate(_bundles(sysroot, known)):
        if number >= MOST_BUNDLES:
            break
        known.add(bundle.id)
        container = _container(sysroot, bundle, majors)
        if container is not None:
            found.append(container)
    return found


def is_alive(sysroot: Sysroot, pid: int, container: str) -> bool:
    """True when a container's process lives: it is there, and no other container's (numbers are used again).

    In a replay what was recorded, else true: the files are of a moment in which it ran.
    """
    name = "container {0} runs".format(container)
    return sysroot.live(name, lambda: _is_process(sysroot, pid, container)) is not False


def _is_process(sysroot: Sysroot, pid: int, container: str) -> bool:
    if not sysroot.exists("/proc/{0}".format(pid)):
        return False
    owners = set(_ID.findall(sysroot.read_text("/proc/{0}/cgroup".format(pid)) or ""))
    return not owners or container in owners


def given(spec: Dict[str, Any], majors: Dict[int, str]) -> npu_holds.Given:
    """What an OCI configuration gives to a container.

    Nodes are told by their numbers, since the path is that in the container, which may be another. A privileged
    container has all nodes of the host in its list: that says nothing.
    """
    linux = mapping(spec.get("linux"))
    process = mapping(spec.get("process"))
    rules = device_rules(mappings(mapping(linux.get("resources")).get("devices")))
    capable = _SYS_ADMIN in words(mapping(process.get("capabilities")).get("bounding"))
    privileged = capable and any(npu_holds.rule_nodes(rule, {})[1] for rule in rules)
    devices = [] if privileged else [_node(device, majors) for device in mappings(linux.get("devices"))]
    variables = dict(entry.split("=", 1) for entry in words(process.get("env")) if "=" in entry)
    mounts = [mount for mount in mappings(spec.get("mounts")) if (text(mount.get("source")) or "").startswith("/")]
    return npu_holds.Given(
        devices=devices,
        mounts=[(mount["source"], text(mount.get("destination")) or "") for mount in mounts],
        visible=variables.get(npu_holds.VISIBLE_DEVICES),
        options=variables.get(npu_holds.RUNTIME_OPTIONS),
        hooked=any("ascend-docker" in path for path in _hook_paths(spec)),
        privileged=privileged,
        rules=rules,
        made=True,
    )


def device_rules(entries: List[Dict[str, Any]]) -> List[str]:
    """What the device list of an OCI configuration allows in the end, as docker writes rules ("c 236:* rwm")."""
    allowed: List[str] = []
    for entry in entries:
        major, minor = (_number(entry.get(key)) for key in ("major", "minor"))
        kind = entry.get("type") if entry.get("type") in ("b", "c") else "a"
        if entry.get("allow") is True:
            kind = "c" if kind == "a" and major != "*" else str(kind)
            allowed.append("{0} {1}:{2} {3}".format(kind, major, minor, text(entry.get("access")) or "rwm"))
        elif kind == "a" and major == "*":
            allowed = []
    return allowed


def _number(value: Any) -> str:
    number = integer(value)
    return "*" if number is None or number < 0 else str(number)


def _node(device: Dict[str, Any], majors: Dict[int, str]) -> str:
    major, minor = integer(device.get("major")), integer(device.get("minor"))
    node = None if major is None or minor is None else npu_holds.node_of(major, minor, majors)
    return node or text(device.get("path")) or ""


def _hook_paths(spec: Dict[str, Any]) -> List[str]:
    return [text(hook.get("path")) or "" for hooks in mapping(spec.get("hooks")).values() for hook in mappings(hooks)]


# -- one container ---------------------------------------------------------------------------------------------------


def _container(sysroot: Sysroot, bundle: Bundle, majors: Dict[int, str]) -> Optional[npu_holds.Container]:
    if bundle.pid is not None and not is_alive(sysroot, bundle.pid, bundle.id):
        return None
    if bundle.kind == engine.DOCKER:
        inspect = _docker_inspect(sysroot, bundle.id)
        if inspect is not None:
            return None if engine.instance(inspect) is not None else engine.container(inspect)
    spec = mapping(parsed(sysroot.read_text(bundle.config)))
    if not spec:
        return None
    annotations = mapping(spec.get("annotations"))
    if _first(annotations, KINDS) == "sandbox":
        return None
    manager = annotations.get(MANAGER)
    pod, name, named = _first(annotations, PODS), _first(annotations, NAMES), bundle.named or {}
    return npu_holds.Container(
        id=bundle.id,
        name=_joined(pod, name) or text(named.get("name")) or bundle.id[:12],
        image=_first(annotations, IMAGES) or text(named.get("image")),
        state="running",
        engine=CRIO if manager == CRIO else bundle.kind,
        given=given(spec, majors),
    )


def _first(annotations: Dict[str, Any], keys: Iterable[str]) -> Optional[str]:
    return next((value for value in (text(annotations.get(key)) for key in keys) if value), None)


def _joined(pod: Optional[str], name: Optional[str]) -> Optional[str]:
    return "{0}/{1}".format(pod, name) if pod and name else name


def _docker_inspect(sysroot: Sysroot, id_: str) -> Optional[Dict[str, Any]]:
    """A container as docker inspect shows it, by the files that dockerd keeps of it; None when they are not there."""
    folder = "{0}/containers/{1}".format(_configured(sysroot, DOCKER_CONFIG, ("data-root", "graph"), DOCKER_ROOT), id_)
    config = mapping(parsed(sysroot.read_text(folder + "/config.v2.json")))
    settings = mapping(parsed(sysroot.read_text(folder + "/hostconfig.json")))
    if not config or not settings:
        return None
    mounts = mappings(list(mapping(config.get("MountPoints")).values()))
    paused = mapping(config.get("State")).get("Paused") is True
    return {
        "Id": id_,
        "Name": config.get("Name"),
        "Image": config.get("Image"),
        "State": {"Status": "paused" if paused else "running"},
        "Config": config.get("Config"),
        "HostConfig": settings,
        "Mounts": mounts,
        "NetworkSettings": config.get("NetworkSettings"),
    }


# -- where they are --------------------------------------------------------------------------------------------------


def _bundles(sysroot: Sysroot, known: Set[str]) -> Iterator[Bundle]:
    """The bundles of all engines; known grows while it runs, and what is in it is passed over."""
    for source in (_containerd, _podman, _isulad):
        for bundle in source(sysroot, known):
            if bundle.id not in known:
                yield bundle


def _containerd(sysroot: Sysroot, known: Set[str]) -> Iterator[Bundle]:
    for tasks in ("{0}/{1}".format(state, name) for state in CONTAINERD_STATES for name in CONTAINERD_RUNTIMES):
        for namespace in sysroot.listdir(tasks):
            kind = engine.DOCKER if namespace == DOCKER_NAMESPACE else CONTAINERD
            for id_ in sysroot.listdir("{0}/{1}".format(tasks, namespace)):
                folder = "{0}/{1}/{2}".format(tasks, namespace, id_)
                # The folder goes when the task ends, so one without a number (kata) runs.
                if id_ not in known:
                    yield Bundle(id_, kind, folder + "/config.json", _pid(sysroot, folder + "/init.pid"))


def _podman(sysroot: Sysroot, known: Set[str]) -> Iterator[Bundle]:
    settings = next((text_ for text_ in map(sysroot.read_text, STORAGE_CONFIGS) if text_ is not None), "")
    graph, run = _toml(settings, "graphroot", GRAPH_ROOT), _toml(settings, "runroot", RUN_ROOT)
    for driver in sysroot.listdir(run):
        if not driver.endswith("-containers"):
            continue
        named: Optional[Dict[str, Dict[str, Any]]] = None
        for id_ in sysroot.listdir("{0}/{1}".format(run, driver)):
            folders = ["{0}/{1}/{2}/userdata".format(root, driver, id_) for root in (run, graph)]
            pid = None if id_ in known else _pid(sysroot, folders[0] + "/pidfile")
            configs = [path for path in (folder + "/config.json" for folder in folders) if sysroot.exists(path)]
            if pid is None or not configs:
                continue
            named = _storage_names(sysroot, graph, run, driver) if named is None else named
            yield Bundle(id_, engine.PODMAN, configs[0], pid, named.get(id_))


def _storage_names(sysroot: Sysroot, graph: str, run: str, driver: str) -> Dict[str, Dict[str, Any]]:
    """{id: {name, image}} of the containers that podman and CRI-O keep in their storage."""
    found = {}
    for root, name in ((graph, "containers"), (graph, "volatile-containers"), (run, "volatile-containers")):
        for entry in mappings(parsed(sysroot.read_text("{0}/{1}/{2}.json".format(root, driver, name)))):
            metadata = mapping(parsed(text(entry.get("metadata"))))
            names = words(entry.get("names"))
            found[str(entry.get("id"))] = {"name": names[0] if names else None, "image": metadata.get("image-name")}
    return found


def _isulad(sysroot: Sysroot, known: Set[str]) -> Iterator[Bundle]:
    engines = _configured(sysroot, ISULAD_CONFIG, ("graph",), ISULAD_ROOT) + "/engines"
    for folder, id_ in _pairs(sysroot, engines):
        config = mapping(parsed(sysroot.read_text(folder + "/config.v2.json"))) if id_ not in known else {}
        state, common = mapping(config.get("State")), mapping(config.get("CommonConfig"))
        if state.get("Running") is True:
            named = {"name": (text(common.get("Name")) or "").lstrip("/"), "image": common.get("Image")}
            yield Bundle(id_, engine.ISULA, folder + "/config.json", integer(state.get("Pid")), named)


def _pairs(sysroot: Sysroot, folder: str) -> Iterator[Tuple[str, str]]:
    for outer in sysroot.listdir(folder):
        for inner in sysroot.listdir("{0}/{1}".format(folder, outer)):
            yield "{0}/{1}/{2}".format(folder, outer, inner), inner


def _pid(sysroot: Sysroot, path: str) -> Optional[int]:
    return decimal((sysroot.read_text(path, PID_FILE_LIMIT) or "").strip()) or None


def _configured(sysroot: Sysroot, path: str, keys: Iterable[str], default: str) -> str:
    """A folder that an engine's daemon.json names under one of the keys, else the default."""
    settings = mapping(parsed(sysroot.read_text(path)))
    return next((value for value in (text(settings.get(key)) for key in keys) if value), default).rstrip("/")


def _toml(settings: str, key: str, default: str) -> str:
    match = re.search(r"""^\s*{0}\s*=\s*["']([^"'\n]+)["']""".format(key), settings, re.MULTILINE)
    return match.group(1).rstrip("/") if match else default
