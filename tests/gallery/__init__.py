"""The gallery: hosts as folders, one healthy one a family and system, and one for each trap that real hosts have set.

`hosts/<name>.yml` says what a host shows of itself and what must come of it; `build` makes the folder, to be replayed
with vllm_sysroot. `python -m tests.gallery DIR` makes them all, with an inventory. README.md describes the format.
"""

from __future__ import annotations

import pathlib
import shutil
import sys
from typing import Any

from tests.unit.support import host_trees

HOSTS = pathlib.Path(__file__).resolve().parent / "hosts"
DATA = HOSTS.parents[1] / "unit" / "data"
# What may stand in a host's file, and how it is given to a tree.
KEYS = (
    "about", "source", "base", "image_os", "architecture", "os_release", "driver", "npu_smi", "pci", "node_table",
    "nodes", "files", "folders", "links", "processes", "commands", "docker", "remove", "settings", "expect",
)  # fmt: skip


class GalleryError(Exception):
    """A host's file says something that cannot be built; the message names file and key."""


def names() -> list[str]:
    """The names of all hosts."""
    return sorted(path.stem for path in HOSTS.glob("*.yml"))


def load(name: str) -> dict[str, Any]:
    """The description of a host, as its file has it."""
    import yaml

    host = yaml.safe_load((HOSTS / (name + ".yml")).read_text(encoding="utf-8"))
    unknown = sorted(set(host) - set(KEYS))
    if unknown:
        raise GalleryError(f"{name}.yml has the unknown keys {', '.join(unknown)}")
    return dict(host)


def build(root: Any, name: str) -> host_trees.HostTree:
    """Make the host's folder below root."""
    return build_host(root, load(name))


def build_host(root: Any, host: dict[str, Any]) -> host_trees.HostTree:
    """Make the folder of a description."""
    tree = _base(root, host)
    for path in host.get("remove") or []:
        tree.remove(path)
    if host.get("os_release"):
        tree.put("etc/os-release", _text({"sample": "host-files/os-release." + host["os_release"] + ".txt"}))
    for function in host.get("pci") or []:
        _pci(tree, dict(function))
    tree.node_table([(str(address), node) for address, node in host.get("node_table") or []])
    tree.nodes(*host.get("nodes") or [])
    for path, content in (host.get("files") or {}).items():
        tree.put(path, _text(content), content.get("mode") if isinstance(content, dict) else None)
    for path in host.get("folders") or []:
        tree.folder(path)
    for path, target in (host.get("links") or {}).items():
        tree.symlink(path, target)
    for pid, process in (host.get("processes") or {}).items():
        for name, content in process.items():
            tree.put(f"proc/{pid}/{name}", _text(content))
    _programs(tree, host)
    return tree


def _base(root: Any, host: dict[str, Any]) -> host_trees.HostTree:
    image_os, base = host.get("image_os", "ubuntu"), dict(host.get("base") or {})
    if base:
        tree = host_trees.family_host(root, base.pop("family"), image_os, **base)
    else:
        tree = host_trees.HostTree(root, image_os)
    if "architecture" in host:
        tree.put("proc/sys/kernel/arch", str(host["architecture"]) + "\n")
    if "driver" in host:
        tree.driver(**host["driver"])
    return tree


def _pci(tree: host_trees.HostTree, function: dict[str, Any]) -> None:
    ids = (function.pop("device"), function.pop("subvendor", "19e5"), function.pop("subdevice", "0000"))
    tree.pci(function.pop("address"), tuple(str(word) for word in ids), **function)  # type: ignore[arg-type]  # because the words are counted above


def _programs(tree: host_trees.HostTree, host: dict[str, Any]) -> None:
    """npu-smi, Docker and every other program that was recorded."""
    smi = host.get("npu_smi")
    if smi:
        text = None if smi.get("not_recorded") else _text(smi)
        tree.npu_smi(text, smi.get("rc", 0), smi.get("timed_out", False), smi.get("places", ("bin", "sbin")))
    if host.get("docker"):
        _docker(tree, host["docker"])
    for record in host.get("commands") or []:
        argv = record["argv"].split() if isinstance(record["argv"], str) else record["argv"]
        tree.record(argv, _text(record), record.get("rc", 0), record.get("timed_out", False))


def _docker(tree: host_trees.HostTree, docker: dict[str, Any]) -> None:
    """A Docker engine of one of the recorded versions, with the given containers (as docker inspect prints them)."""
    import json

    from tests.unit.support import recorded_hosts

    version = docker["version"]
    info = {**json.loads(recorded_hosts.data(f"docker/info-{version}.json")), **docker.get("info", {})}
    containers = [_container(number, container) for number, container in enumerate(docker.get("containers") or [])]
    tree.put("usr/bin/docker", "x", 0o755)
    for record in recorded_hosts.docker_records(
        recorded_hosts.data(f"docker/version-{version}.json"), json.dumps(info), containers, docker.get("images") or []
    ):
        tree.record(record["argv"], record["stdout"], record["rc"])


def _container(number: int, changes: dict[str, Any]) -> dict[str, Any]:
    """A running container; changes are merged into docker inspect's object, two levels deep."""
    container: dict[str, Any] = {
        "Id": f"{number + 1:x}" * 64,
        "Name": f"/c{number}",
        "Created": "2026-01-01T00:00:00Z",
        "Image": "sha256:" + "a" * 64,
        "State": {"Status": "running", "Running": True, "Pid": 4000 + number},
        "Config": {"Image": "example/image:1", "Env": [], "Labels": {}, "Cmd": []},
        "HostConfig": {"Privileged": False, "NetworkMode": "bridge", "Devices": [], "DeviceRequests": None},
        "NetworkSettings": {"Ports": {}, "Networks": {}},
        "Mounts": [],
    }
    for key, value in changes.items():
        container[key] = {**container[key], **value} if isinstance(container.get(key), dict) else value
    return container


def _text(content: Any) -> str:
    """The text of a file or an output: a text, or one of sample (a file of tests/unit/data), text, table and json."""
    if not isinstance(content, dict):
        return str(content)
    if "sample" in content:
        return (DATA / content["sample"]).read_text(encoding="utf-8")
    if "table" in content:
        rows = [host_trees.Row(*row) for row in content["rows"]]
        table = host_trees.info_table(
            content["table"], rows, content.get("name"), content.get("version"), content.get("processes")
        )
        return table + content.get("after", "")
    if "json" in content:
        import json

        return json.dumps(content["json"])
    return str(content.get("text", ""))


def write_inventory(folder: Any, chosen: list[str]) -> pathlib.Path:
    """The inventory of built hosts below folder, each with its settings."""
    import yaml

    root = pathlib.Path(str(folder)).resolve()
    hosts = {
        name: {"vllm_sysroot": str(root / "hosts" / name), **(load(name).get("settings") or {})} for name in chosen
    }
    group = {"vars": {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}, "hosts": hosts}
    path = root / "inventory.yml"
    path.write_text(yaml.safe_dump({"all": group}), encoding="utf-8")
    return path


def main(arguments: list[str]) -> int:
    """Build the hosts of the gallery (all, or those named after the folder) and their inventory."""
    if not arguments or arguments[0].startswith("-"):
        print("usage: python -m tests.gallery DIR [HOST …]")
        return 2
    folder = pathlib.Path(arguments[0])
    chosen = arguments[1:] or names()
    unknown = [name for name in chosen if name not in names()]
    if unknown:
        print(f"no such hosts: {', '.join(unknown)}")
        return 2
    for name in chosen:
        shutil.rmtree(folder / "hosts" / name, ignore_errors=True)
        build(folder / "hosts" / name, name)
    print(f"{len(chosen)} hosts in {write_inventory(folder, chosen)}")
    return 0
