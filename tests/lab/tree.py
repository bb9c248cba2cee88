"""The files that make a host look like one of a family: the driver, npu-smi, the PCI bus, /etc/os-release."""

from __future__ import annotations

import io
import pathlib
import tarfile
from typing import Any, NamedTuple

from . import npu_smi
from .settings import families

DRIVER = "/usr/local/Ascend/driver"
LAB = "/usr/local/lib/vllm-lab"
NULL_DEVICE = "1:3"
# Folders that are not 0755 on a Debian host; a tar entry sets the mode of a folder that exists already.
MODES = {"root": 0o700, "root/.ssh": 0o700}


class Entry(NamedTuple):
    """A file of the tree; `link` instead of `content` for a symbolic link."""

    content: str = ""
    mode: int = 0o644
    link: str | None = None


Tree = dict[str, Entry]


def build(family: str, os_name: str) -> Tree:
    """All simulated files of a host, by absolute path; device nodes are not among them (see nodes)."""
    data = families()
    spec = data["families"][family]
    tree: Tree = {"/etc/os-release": Entry(data["os_release"][os_name])}
    if spec.get("card"):
        tree.update(_card(spec, data))
    for path in [*spec.get("files", []), *spec.get(f"files_{os_name}", [])]:
        tree[path] = _placeholder(path)
    for path in spec.get("daemons", []):
        tree[path] = Entry(
            "#!/bin/sh\n# Simulated daemon of the 200I Pro's driver: does nothing.\nexec sleep infinity\n", 0o755
        )
    for path, content in spec.get("contents", {}).items():
        tree[path] = Entry(content)
    buses = [address for function in spec.get("pci", []) for address in _addresses(function)]
    if "chips" in spec:
        hal = "driver/libascend_hal.so" if spec.get("card") else "libascend_hal.so"
        tree[f"{DRIVER}/lib64/{hal}"] = Entry(
            f"simulated libascend_hal.so: no code\nsoc_version={spec['soc_version']}\n"
            f"family={spec.get('like', family)}\n",
            0o755,
        )
        if not spec.get("card"):
            tree["/etc/ascend_install.info"] = Entry(data["ascend_install_info"])
            tree[f"{DRIVER}/version.info"] = Entry(data["version_info"])
        for number in npu_smi.numbers(spec):
            tree[f"{DRIVER}/lib64/.simulated-davinci{number}"] = Entry(mode=0o644)
        program = npu_smi.hanging(family) if spec.get("npu_smi_hangs") else npu_smi.script(family, spec, buses)
        for path in spec.get("npu_smi", data["card_npu_smi"]):
            tree[path] = Entry(program, 0o555)
    tree.update(_pci(spec))
    return tree


def _card(spec: dict[str, Any], data: dict[str, Any]) -> Tree:
    tree = {path: _placeholder(path) for path in data["card_files"]}
    tree["/etc/ascend_install.info"] = Entry(data["ascend_install_info"])
    tree[f"{DRIVER}/version.info"] = Entry(data["version_info"])
    tree[f"{DRIVER}/script/specific_func.inc"] = Entry(f'device_bdf="{spec["identity"]}"\n')
    tree["/etc/ld.so.conf.d/ascend_driver_so.conf"] = Entry(f"{DRIVER}/lib64/common\n{DRIVER}/lib64/driver\n")
    return tree


def _placeholder(path: str) -> Entry:
    # ld.so reads these on the host: a comment is all that may stand in them.
    return Entry(f"# simulated {path}\n", 0o755 if path.endswith(("_tool", ".so")) else 0o644)


def _addresses(function: dict[str, Any]) -> list[str]:
    domain, bus, rest = function["first"].split(":")
    return [f"{domain}:{int(bus, 16) + index:02x}:{rest}" for index in range(function["count"])]


def _pci(spec: dict[str, Any]) -> Tree:
    """The folder that a host binds over /sys/bus/pci at boot."""
    tree: Tree = {f"{LAB}/pci/devices/.keep": Entry()}
    first = 0
    for function in spec.get("pci", []):
        driver = function.get("driver", "devdrv_device_driver")
        if driver:
            tree[f"{LAB}/pci/drivers/{driver}/.keep"] = Entry()
        for index, address in enumerate(_addresses(function)):
            folder = f"{LAB}/pci/devices/{address}"
            subvendor, subdevice = function["subsystem"]
            values = {
                "vendor": "0x19e5",
                "device": function["device"],
                "subsystem_vendor": subvendor,
                "subsystem_device": subdevice,
                "class": function.get("class", "0x120000"),
            }
            for name, value in values.items():
                tree[f"{folder}/{name}"] = Entry(value + "\n")
            if driver:
                tree[f"{folder}/driver"] = Entry(link=f"../../drivers/{driver}")
            if driver == "devdrv_device_driver":
                # The number of the function's (first) chip.
                number = npu_smi.numbers(spec)[first + index * function.get("chips", 1)]
                tree[f"{folder}/dev_id"] = Entry(f"{number}\n")
        first += function["count"] * function.get("chips", 1)
    return tree


def nodes(family: str) -> str:
    """tmpfiles.d lines that make the family's device nodes: null devices, owned as the driver's scripts leave them."""
    spec = families()["families"][family]
    numbers = npu_smi.numbers(spec) if "chips" in spec else []
    names = [f"davinci{number}" for number in numbers] + spec.get("nodes", [])
    lines = []
    for folder, members in spec.get("node_folders", {}).items():
        lines.append(f"d /dev/{folder} 0755 root root - -")
        names += [f"{folder}/{member}" for member in members]
    lines += [f"c /dev/{name} 0660 HwHiAiUser HwHiAiUser - {NULL_DEVICE}" for name in names]
    return "".join(line + "\n" for line in lines)


def write(tree: Tree, folder: pathlib.Path) -> None:
    """The tree as files below a folder."""
    for path, entry in tree.items():
        target = folder / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        if entry.link:
            target.symlink_to(entry.link)
        else:
            target.write_text(entry.content, encoding="utf-8")
            target.chmod(entry.mode)


def pack(tree: Tree) -> bytes:
    """The tree as a tar archive with its parent folders, the same bytes for the same tree."""
    buffer = io.BytesIO()
    done: set[str] = set()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path in sorted(tree):
            entry = tree[path]
            name = path.lstrip("/")
            for parent in reversed(pathlib.PurePosixPath(name).parents):
                folder = str(parent)
                if folder not in {".", *done}:
                    done.add(folder)
                    info = tarfile.TarInfo(folder)
                    info.type, info.mode = tarfile.DIRTYPE, MODES.get(folder, 0o755)
                    archive.addfile(info)
            info = tarfile.TarInfo(name)
            info.mode = entry.mode
            if entry.link:
                info.type, info.linkname = tarfile.SYMTYPE, entry.link
                archive.addfile(info)
            else:
                content = entry.content.encode()
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()
