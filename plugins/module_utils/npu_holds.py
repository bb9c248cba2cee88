# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which NPUs a container holds, by what it was given; the same rules for every container engine.

A container gets an NPU by a device node (--device, a bind mount), by a CDI name, by the Ascend Docker Runtime
(ASCEND_VISIBLE_DEVICES), or by access to all devices of the host. Nodes are compared whole: davinci1 is not davinci10.
"""

from __future__ import annotations

import re
from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Sequence, Set, Tuple

VISIBLE_DEVICES = "ASCEND_VISIBLE_DEVICES"
RUNTIME_OPTIONS = "ASCEND_RUNTIME_OPTIONS"

# In these states no process of the container runs, so the driver has given its NPUs back.
GONE_STATES = ("created", "exited", "dead", "removing")
OUR_NAMES = "vllm-"

# The driver's numbers: /dev/davinci<N> below 100, /dev/vdavinci<100 + 16 * N + part> for the parts of davinci<N>
# (hicann/driver uda_pub_def.h, uda_make_udevid). Both are minors of the character device devdrv-cdev.
FIRST_VIRTUAL = 100
PARTS = 16
# The highest number in a range of ASCEND_VISIBLE_DEVICES (mind-cluster, ascend-docker-runtime process.go maxDevice).
LAST_OF_RANGE = 128
DEVICES_FILE = "/proc/devices"
_MAJOR = re.compile(r"^\s*([0-9]{1,4}) (v?)devdrv-cdev\s*$", re.MULTILINE)

# MindCluster's own services: privileged, with the driver's files, and they only read (mind-cluster component/*/build).
_SERVICES = "npu-exporter|ascend-k8sdeviceplugin|ascend-device-plugin|ascend-dra|noded"
_SERVICE = re.compile(r"(?:.*/)?(?:{0})(?:[:@]|\Z)".format(_SERVICES))

_NPU_NODE = re.compile(r"/dev/v?davinci([0-9]{1,9})\Z")
_ANY_NPU_NODE = re.compile(r"/dev/(v?davinci|devmm_svm\Z|hisi_hdc\Z)")
_ASCEND_PATH = re.compile(r"/ascend|/npu-smi\Z|/usr/local/dcmi(/|\Z)", re.IGNORECASE)
# Folders that hold the driver's files, when a container has them at their own place.
_PARENTS = ("/usr", "/usr/local")
_SINGLE = re.compile(r"\+?([0-9]{1,9})\Z")
_RANGE = re.compile(r"([0-9]{1,9})\s*-\s*([0-9]{1,9})\Z")
_NAMED = re.compile(r"(?:Ascend[0-9A-Za-z]*|npu)-([0-9]{1,9})\Z", re.IGNORECASE)
_CDI = re.compile(r"([A-Za-z0-9._-]+/[A-Za-z0-9._-]+)=(.+)\Z")
_CDI_NAME = re.compile(r"(?:(?:Ascend[0-9A-Za-z]*|npu|davinci)-?)?([0-9]{1,9})\Z", re.IGNORECASE)
_CDI_KIND = re.compile(r"(?:.*\.)?(?:ascend|huawei)[A-Za-z0-9-]*\.|.*/(?:ascend|davinci)", re.IGNORECASE)
_RULE = re.compile(r"([abc]) ([0-9]{1,9}|\*):([0-9]{1,9}|\*) ([rwm]{1,3})\Z")
_SHOWN = 60


class Given(NamedTuple):
    """What a container was given.

    devices: host paths, or CDI names. visible, options: the values of
    ASCEND_VISIBLE_DEVICES and ASCEND_RUNTIME_OPTIONS, None where not set. runtime: its name, None where not known.
    hooked: the Ascend Docker Runtime put its hook in. rules: device rules as docker writes them ("c 236:* rwm").
    mounts: (source, target). made: devices are what the runtime made in the end, so the variable adds nothing.
    """

    devices: Sequence[str] = ()
    mounts: Sequence[Tuple[str, str]] = ()
    visible: Optional[str] = None
    options: Optional[str] = None
    runtime: Optional[str] = None
    hooked: bool = False
    privileged: bool = False
    rules: Sequence[str] = ()
    made: bool = False

    @property
    def nodes(self) -> List[str]:
        """The host paths of its devices and of its mounts."""
        return list(self.devices) + [source for source, _target in self.mounts]


class Container(NamedTuple):
    """A container of any engine; ports are the host's."""

    id: Optional[str]
    name: str
    image: Optional[str]
    state: Optional[str]
    engine: str
    given: Given
    ports: Sequence[int] = ()


class Surroundings(NamedTuple):
    """What of the host decides: {major: "davinci" or "vdavinci"} of the NPU nodes, the engine's default runtime."""

    majors: Dict[int, str]
    default_runtime: Optional[str] = None


NOT_KNOWN = Surroundings({})


class Holds(NamedTuple):
    """The nodes that a container holds by name; any: it may use others too, why says how."""

    nodes: List[str]
    any: bool
    why: Optional[str]

    def facts(self) -> Dict[str, Any]:
        """{nodes, any, why}."""
        return {"nodes": self.nodes, "any": self.any, "why": self.why}


NOTHING = Holds([], False, None)


def npu_majors(text: Optional[str]) -> Dict[int, str]:
    """{major: "davinci" or "vdavinci"} by the text of /proc/devices (mind-cluster npu-exporter, getNPUMajorID)."""
    return {int(number): virtual + "davinci" for number, virtual in _MAJOR.findall(text or "")}


def npu_nodes(nodes: Iterable[str]) -> List[str]:
    """The NPU nodes (/dev/davinci<N>, /dev/vdavinci<N>) among paths, each once, by number."""
    return _ordered({node for node in nodes if _NPU_NODE.match(node)})


def node_of(major: int, minor: int, majors: Dict[int, str]) -> Optional[str]:
    """The host's NPU node with those numbers, whatever its name in a container; None when it is none."""
    name = majors.get(major)
    if name is None or minor < 0:
        return None
    return "/dev/{0}{1}".format("vdavinci" if minor >= FIRST_VIRTUAL else name, minor)


def visible_nodes(value: str, options: str = "") -> Tuple[List[str], List[str]]:
    """(nodes, words that cannot be read) of a value of ASCEND_VISIBLE_DEVICES, which names physical ids.

    Forms: "0,1", "0-3", "0-2,4", "npu-1", "Ascend910-1", with blanks; "" and "void" are none. options is the value of
    ASCEND_RUNTIME_OPTIONS: with VIRTUAL the numbers are those of vdavinci (mind-cluster, ascend-docker-runtime
    process.go: checkVisibleDevice, addDevice).
    """
    if value.strip() in ("", "void"):
        return [], []
    numbers: Set[int] = set()
    unread = []
    for word in (part.strip() for part in value.split(",")):
        single, span = _SINGLE.match(word) or _NAMED.match(word), _RANGE.match(word)
        if single:
            numbers.add(int(single.group(1)))
        elif span and int(span.group(1)) <= int(span.group(2)) <= LAST_OF_RANGE:
            numbers.update(range(int(span.group(1)), int(span.group(2)) + 1))
        elif word:
            unread.append(word)
    name = "vdavinci" if "VIRTUAL" in options else "davinci"
    return ["/dev/{0}{1}".format(name, number) for number in sorted(numbers)], unread


def cdi_nodes(name: str) -> Optional[Tuple[List[str], bool]]:
    """(nodes, True when it may be more or others) of a CDI name such as "ascend.com/npu=0"; None: no NPU of Ascend.

    The names are physical ids (mind-cluster ascend-common/cdi/spec.go, devnode.go).
    """
    match = _CDI.match(name)
    if not match or not _CDI_KIND.match(match.group(1)):
        return None
    number = _CDI_NAME.match(match.group(2))
    if not number:
        return [], True
    prefix = "vdavinci" if int(number.group(1)) >= FIRST_VIRTUAL else "davinci"
    return ["/dev/{0}{1}".format(prefix, int(number.group(1)))], False


def rule_nodes(rule: str, majors: Dict[int, str]) -> Tuple[List[str], bool]:
    """(nodes, True when it opens every NPU) of a device rule such as "c 236:* rwm".

    A rule that only allows to make nodes (m) opens nothing: every container has `c *:* m`.
    """
    match = _RULE.match(rule)
    if not match or not set(match.group(4)) & set("rw"):
        return [], False
    kind, major, minor = match.group(1), match.group(2), match.group(3)
    if kind == "a" or (kind == "c" and major == "*"):
        return [], True
    if kind != "c" or int(major) not in majors:
        return [], False
    node = None if minor == "*" else node_of(int(major), int(minor), majors)
    return ([node], False) if node else ([], True)


def holds(given: Given, host: Surroundings, image: Optional[str] = None) -> Holds:
    """The NPUs that a container with these things, of that image, holds while it runs."""
    nodes, why = set(npu_nodes(given.nodes)), []
    for name in given.devices:
        named, open_ended = cdi_nodes(name) or ([], False)
        nodes.update(named)
        why += ["it has the CDI device {0}".format(_shown(name))] if open_ended else []
    for rule in given.rules:
        named, open_ended = rule_nodes(rule, host.majors)
        nodes.update(named)
        # A privileged container has such a rule anyway.
        open_ended = open_ended and not given.privileged
        why += ["its device rule {0} opens every NPU".format(_shown(rule))] if open_ended else []
    if given.visible is not None and not (nodes and _without_variable(given)):
        named, unread = visible_nodes(given.visible, given.options or "")
        nodes.update(named)
        why += ["its {0} cannot be read: {1}".format(VISIBLE_DEVICES, _shown(given.visible))] if unread else []
    why += _open_access(given, image, bool(nodes) or is_ascend(given, host))
    # Who holds a part of an NPU holds the NPU: it cannot be given away as a whole.
    nodes.update([parent for parent in map(_parent, nodes) if parent])
    return Holds(_ordered(nodes), bool(why), "; ".join(why) or None)


def _open_access(given: Given, image: Optional[str], ascend: bool) -> List[str]:
    """Why a container reaches every NPU; without anything of Ascend in it, having all devices means nothing."""
    why = ["all of /dev was given to it as devices"] if any(map(_is_dev, given.devices)) else []
    if ascend and given.privileged and not _SERVICE.match(image or ""):
        why.append("it is privileged and made for Ascend, so it can use every NPU")
    if ascend and not given.privileged and any(_is_dev(source) for source, _target in given.mounts):
        why.append("all of /dev is mounted in it")
    return why


def is_ascend(given: Given, host: Surroundings) -> bool:
    """True for a container that was made for Ascend NPUs: by its nodes, files, runtime or variable."""
    value = given.visible
    runtime = given.runtime or ""
    # A daemon whose default runtime is ascend uses it for every container; without the variable it adds nothing.
    asked = "ascend" in runtime.lower() and runtime != host.default_runtime and value is None
    return bool(
        asked
        or given.hooked
        or (value is not None and value.strip() not in ("", "void"))
        or any(_ANY_NPU_NODE.match(node) for node in given.nodes)
        or any(_ASCEND_PATH.search(path) for pair in given.mounts for path in pair)
        or any(source == target and source in _PARENTS for source, target in given.mounts)
    )


def foreign_entry(container: Container, host: Surroundings) -> Optional[Dict[str, Any]]:
    """What a container that is not ours has to do with NPUs or with our names; None: nothing.

    {container, id, engine, image, state, devices, privileged, ports, npu, ascend_visible_devices, holds}. devices are
    the NPU nodes that it was given by name; npu: it can reach an NPU when it runs; holds {nodes, any, why}: what it
    holds now (nothing when it is stopped).
    """
    given = container.given
    found = holds(given, host, container.image)
    npu = bool(found.nodes or found.any)
    manager = any(_ANY_NPU_NODE.match(node) for node in given.nodes)
    if not (npu or manager or given.visible is not None or container.name.startswith(OUR_NAMES)):
        return None
    return {
        "container": container.name,
        "id": container.id,
        "engine": container.engine,
        "image": container.image,
        "state": container.state,
        "devices": npu_nodes(given.nodes),
        "privileged": given.privileged,
        "ports": list(container.ports),
        "npu": npu,
        "ascend_visible_devices": given.visible,
        "holds": (NOTHING if container.state in GONE_STATES else found).facts(),
    }


def _without_variable(given: Given) -> bool:
    """True where the variable changes nothing beside the nodes (vllm-ascend issue 6063: mapped 0-7, visible 4,5)."""
    return given.made or (given.runtime is not None and "ascend" not in given.runtime.lower())


def _parent(node: str) -> Optional[str]:
    """The NPU that a virtual one is a part of; None for a whole one."""
    number = int(_NPU_NODE.sub(r"\1", node))
    virtual = node.startswith("/dev/v") and FIRST_VIRTUAL <= number < FIRST_VIRTUAL + FIRST_VIRTUAL * PARTS
    return "/dev/davinci{0}".format((number - FIRST_VIRTUAL) // PARTS) if virtual else None


def _is_dev(path: str) -> bool:
    return path.rstrip("/") == "/dev"


def _ordered(nodes: Iterable[str]) -> List[str]:
    return sorted(nodes, key=lambda node: (int(_NPU_NODE.sub(r"\1", node)), node))


def _shown(value: str) -> str:
    return repr(value if len(value) <= _SHOWN else value[:_SHOWN] + "...")
