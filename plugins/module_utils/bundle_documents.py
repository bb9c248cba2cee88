# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which file and which output of a host is masked how. JSON is cut down to what the observation reads of it."""

from __future__ import annotations

import json
import re
from typing import Any, Dict, List, Optional, Tuple

from . import documents
from .bundle_masking import Masker, socket_rows
from .instance_state import HELPER_HEAD, HELPER_PATH, LABEL_INSTANCE, LABEL_PLAN, LABEL_ROLE, is_ours
from .listeners import TABLES

# In place of a text of which nothing may be known: nobody could read it on the host either.
UNREADABLE = "(masked: not JSON)\n"
FOREIGN_UNIT = "# masked: this unit is not one of vllm_ascend.fleet\n"

# True: the whole value (masked); a mapping: those keys; "*": any key. A list is cut entry by entry.
_ALL: Any = True
_PORT = {"*": {"HostIp": _ALL, "HostPort": _ALL}}
_CONFIG = {
    "Env": _ALL,
    "Cmd": _ALL,
    "Entrypoint": _ALL,
    "Image": _ALL,
    "Labels": {LABEL_INSTANCE: _ALL, LABEL_PLAN: _ALL, LABEL_ROLE: _ALL},
}
_HOST_CONFIG = dict.fromkeys(
    (
        "NetworkMode", "Privileged", "Devices", "DeviceRequests", "DeviceCgroupRules", "Runtime", "ShmSize", "CapAdd",
        "SecurityOpt", "PidMode", "IpcMode", "UsernsMode", "CgroupnsMode", "RestartPolicy", "AutoRemove", "Init",
    ),
    _ALL,
)  # fmt: skip
_HOST_CONFIG["PortBindings"] = _PORT
_STATE = dict.fromkeys(
    (
        "Status", "Running", "Paused", "Restarting", "OOMKilled", "Dead", "Pid", "ExitCode", "StartedAt", "FinishedAt",
        "RemovalInProgress",
    ),
    _ALL,
)  # fmt: skip
_MOUNT = dict.fromkeys(("Type", "Source", "Destination", "RW", "Driver"), _ALL)
_ADDRESSES = dict.fromkeys(("IPAddress", "GlobalIPv6Address"), _ALL)
_NETWORK: Dict[str, Any] = dict(_ADDRESSES, Ports=_PORT, Networks={"*": _ADDRESSES})
INSPECT = {
    "Id": _ALL,
    "Name": _ALL,
    "Created": _ALL,
    "Image": _ALL,
    "RestartCount": _ALL,
    "State": _STATE,
    "Config": _CONFIG,
    "HostConfig": _HOST_CONFIG,
    "Mounts": _MOUNT,
    "NetworkSettings": _NETWORK,
}
IMAGE = dict.fromkeys(("Id", "RepoTags", "RepoDigests", "Architecture", "Os", "Size", "Created"), _ALL)
IMAGE["Config"] = {"Labels": _ALL}
_VERSIONS = dict.fromkeys(("Version", "ApiVersion", "APIVersion", "Os", "Arch", "OsArch"), _ALL)
VERSION = {"Client": _VERSIONS, "Server": dict(_VERSIONS, Components={"Name": _ALL, "Version": _ALL})}
INFO = dict.fromkeys(
    (
        "ServerVersion", "Driver", "DriverStatus", "DockerRootDir", "DefaultRuntime", "LiveRestoreEnabled",
        "HttpProxy", "HttpsProxy", "NoProxy", "SecurityOptions", "CgroupDriver", "CgroupVersion", "OSType",
        "Architecture", "KernelVersion", "OperatingSystem", "NCPU", "MemTotal", "CDISpecDirs",
    ),
    _ALL,
)  # fmt: skip
INFO.update(Containerd={"Address": _ALL}, Runtimes={"*": {"path": _ALL}})
_RULE = dict.fromkeys(("type", "path", "major", "minor", "allow", "access"), _ALL)
OCI = {
    "ociVersion": _ALL,
    "process": {"args": _ALL, "env": _ALL, "capabilities": {"bounding": _ALL}},
    "mounts": dict.fromkeys(("destination", "type", "source"), _ALL),
    "hooks": {"*": {"path": _ALL}},
    "linux": {"devices": _RULE, "resources": {"devices": _RULE}, "cgroupsPath": _ALL},
    "annotations": dict.fromkeys(
        (
            "io.kubernetes.cri.container-name", "io.kubernetes.container.name", "nerdctl/name",
            "io.kubernetes.cri.sandbox-name", "io.kubernetes.pod.name", "io.kubernetes.cri.image-name",
            "io.kubernetes.cri-o.ImageName", "nerdctl/image-name", "io.kubernetes.cri.container-type",
            "io.kubernetes.cri-o.ContainerType", "io.container.manager",
        ),
        _ALL,
    ),
}  # fmt: skip
# What dockerd and isulad keep of a container.
KEPT_CONFIG = {
    "ID": _ALL,
    "Name": _ALL,
    "Image": _ALL,
    "State": _STATE,
    "Config": _CONFIG,
    "CommonConfig": dict({"Name": _ALL, "Image": _ALL, "id": _ALL, "Id": _ALL}, Config=_CONFIG),
    "MountPoints": {"*": _MOUNT},
    "NetworkSettings": _NETWORK,
}
STORAGE = {"id": _ALL, "names": _ALL, "metadata": _ALL}
DAEMON = {"data-root": _ALL, "graph": _ALL, "default-runtime": _ALL, "runtimes": {"*": {"path": _ALL}}}

# (path, what is kept of the JSON in it).
_JSON_FILES: List[Tuple[str, Any]] = [
    (r"/config\.v2\.json\Z", KEPT_CONFIG),
    (r"/hostconfig\.json\Z", _HOST_CONFIG),
    (r"/(?:volatile-)?containers\.json\Z", STORAGE),
    (r"/(?:docker|isulad)/daemon\.json\Z", DAEMON),
    (r"/hccl_rootinfo\.json\Z", {"version": _ALL, "status": _ALL}),
    (r"\A/var/lib/vllm-ascend/[^/]+/journal\.json\Z", {"state": _ALL}),
    (r"\A/var/lib/vllm-ascend/[^/]+/previous\.json\Z", {}),
]
_BUNDLE_CONFIG = re.compile(r"/(?:io\.containerd\.[^/]+/[^/]+/[^/]+|userdata|engines/[^/]+/[^/]+)/config\.json\Z")
_COMMITTED = re.compile(r"\A/var/lib/vllm-ascend/[^/]+/committed\.json\Z")
_ENV_FILE = re.compile(r"\.env\Z|/environ\Z")
_UNIT_FILE = re.compile(r"\.(?:service|unit)\Z")
# Lines of these files that are kept; the others hold registries, mirrors and logins.
_TOML_FILES = re.compile(r"/(?:config|storage)\.(?:toml|conf)\Z")
_TOML_KEPT = re.compile(r"^\s*(?:\[|(?:root|state|graphroot|runroot|driver|version)\s*=)")
_NO_ADDRESSES = re.compile(r"/(?:osrelease|os-release|version\.info|ascend_install\.info|specific_func\.inc)\Z")
_SERIAL_FILES = re.compile(
    r"/(?:serial-number|serial|machine-id|boot_id|wwid|address|"
    r"(?:product|board|chassis)_(?:serial|uuid|asset_tag)|chassis_asset_tag)\Z"
)
_HOST_FILES = re.compile(r"/(?:etc|kernel)/hostname\Z")


def cut(value: Any, kept: Any) -> Any:
    """A JSON value without what is not kept; what has another form than expected goes whole."""
    if kept is _ALL:
        return value
    if isinstance(value, list):
        return [cut(entry, kept) for entry in value]
    if not isinstance(value, dict):
        return value if value is None else {}
    return {key: cut(entry, kept.get(key, kept.get("*"))) for key, entry in value.items() if key in kept or "*" in kept}


def masked_file(masker: Masker, path: str, content: bytes) -> Tuple[bytes, int]:
    """What is stored of a file, and how many rows of connections were left out of it."""
    text = content.decode("utf-8", "surrogateescape")
    dropped = 0
    if path == HELPER_PATH:
        # Its version stands there; the rest is the collection's own code.
        text = "".join(line for line in text[:HELPER_HEAD].splitlines(True)[:9] if line.startswith("#"))
    elif path in TABLES:
        text, dropped = socket_rows(text, masker.ip)
    else:
        text = _masked_text(masker, path, text)
    return text.encode("utf-8", "surrogateescape"), dropped


def _masked_text(masker: Masker, path: str, text: str) -> str:
    if _ENV_FILE.search(path):
        return masker.env_file(text.replace("\0", "\n"))
    if _COMMITTED.search(path):
        return _json(masker, text, _ALL, committed=True)
    for pattern, kept in _JSON_FILES:
        if re.search(pattern, path):
            return _json(masker, text, kept)
    if path.endswith(".json"):
        value = documents.mapping(documents.parsed(text))
        return _json(masker, text, OCI if _BUNDLE_CONFIG.search(path) or "ociVersion" in value else _ALL)
    if _UNIT_FILE.search(path):
        return _unit(masker, text)
    if _SERIAL_FILES.search(path):
        return masker.serial(text.strip("\0\n ")) + "\n"
    if _HOST_FILES.search(path):
        masker.learn_host(text)
    if _TOML_FILES.search(path):
        text = "".join(line for line in text.splitlines(True) if _TOML_KEPT.match(line))
    if path.endswith("/cmdline"):
        return "\0".join(masker.words(text.split("\0")))
    return masker.text(text, addresses=not _NO_ADDRESSES.search(path))


def _json(masker: Masker, text: str, kept: Any, committed: bool = False) -> str:
    try:
        value = cut(documents.parse(text), kept)
    except ValueError:
        return UNREADABLE
    masked = masker.plan(value) if committed and isinstance(value, dict) else masker.document(value)
    return json.dumps(masked, indent=1) + "\n"


def _unit(masker: Masker, text: str) -> str:
    """A unit of ours with the values of its variables masked; of another one, nothing."""
    if not is_ours(text):
        return FOREIGN_UNIT
    lines = []
    for line in text.split("\n"):
        name, equals, value = line.partition("=")
        if name.strip() in ("Environment", "PassEnvironment") and equals:
            line = (
                name
                + "="
                + re.sub(r"=(\"[^\"]*\"|[^\s\"]+)", lambda match: "=" + _quoted(masker, match.group(1)), value)
            )
        lines.append(line)
    return masker.text("\n".join(lines))


def _quoted(masker: Masker, value: str) -> str:
    return '"{0}"'.format(masker.secret(value.strip('"')))


def masked_command(masker: Masker, record: Dict[str, Any]) -> Dict[str, Any]:
    """What is stored of a program's run."""
    kept = _output(record["argv"])
    stdout = record["stdout"]
    found = dict(record, argv=masker.words(record["argv"]))
    if kept is None:
        found["stdout"] = masker.text(stdout)
    elif stdout.strip():
        found["stdout"] = _json(masker, stdout, kept)
    for key in ("stderr", "error"):
        if record.get(key):
            found[key] = masker.text(record[key])
    return found


def _output(argv: List[str]) -> Optional[Any]:
    """What is kept of the JSON that a program prints, None where it prints a text."""
    words = [word for word in argv[1:] if not word.startswith("-")][:2]
    if argv[0] not in ("docker", "podman", "isula", "nerdctl", "crictl") or not words:
        return None
    if words[0] in ("version", "info") and "--format" in argv:
        return {"version": VERSION, "info": INFO}[words[0]]
    if words == ["image", "inspect"]:
        return IMAGE
    return INSPECT if words[0] in ("inspect", "container") else None


def learn(masker: Masker, record: Dict[str, Any]) -> None:
    """Host names that a program's output tells: the engine's name for the host, the hosts of proxies."""
    if record["argv"][:2] == ["docker", "info"]:
        info = documents.mapping(documents.parsed(record["stdout"]))
        masker.learn_host(documents.text(info.get("Name")) or "")
        for key in ("HttpProxy", "HttpsProxy"):
            address = (documents.text(info.get(key)) or "").rpartition("@")[2].rpartition("//")[2]
            masker.learn_host(re.split(r"[:/]", address)[0], short=False)
