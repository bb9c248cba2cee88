"""What stands for the Ascend driver in the imitation: looks for what each family's documentation maps and mounts.

The host's simulated libascend_hal.so names its family. The imitation insists on every documented item; the real stack
may do without some of them.
"""

from __future__ import annotations

import fcntl
import os
import pathlib
import re
import stat
from typing import NamedTuple

LIBRARY = "libascend_hal.so"
LIB64 = "/usr/local/Ascend/driver/lib64"
OWNER_MARK = pathlib.Path("/run/simulated-npu-owner")

CARD_NODES = ("davinci_manager", "devmm_svm", "hisi_hdc")
CARD_FILES = (
    "/usr/local/dcmi/libdcmi.so",
    "/usr/local/bin/npu-smi",
    "/usr/local/Ascend/driver/version.info",
    "/etc/ascend_install.info",
)
RC_FILES = (
    "/etc/sys_version.conf",
    "/etc/ld.so.conf.d/mind_so.conf",
    "/etc/hdcBasic.cfg",
    "/etc/slog.conf",
    "/var/dmp_daemon",
    "/var/slogd",
    "/usr/lib64/libmmpa.so",
    "/usr/lib64/libcrypto.so.1.1",
    "/usr/lib64/libstackcore.so",
    "/usr/lib64/libtensorflow.so",
    "/usr/lib64/libyaml-0.so.2",
    "/usr/local/sbin/npu-smi",
)
# 950: devmm_svm as documented, or what a real one has instead.
SVM_INSTEAD = ("ummu", "uburma")


class Driver(NamedTuple):
    """What the simulated library says."""

    family: str
    soc_version: int


def load() -> Driver:
    """The driver, found along LD_LIBRARY_PATH. Raises ImportError like the dynamic linker's message."""
    for entry in os.environ.get("LD_LIBRARY_PATH", "").split(":"):
        if not entry.startswith(LIB64):
            continue
        for path in (pathlib.Path(entry) / LIBRARY, pathlib.Path(entry) / "driver" / LIBRARY):
            if path.is_file():
                values = dict(re.findall(r"^(\w+)=(\S+)$", path.read_text(encoding="utf-8"), re.MULTILINE))
                return Driver(values["family"], int(values["soc_version"]))
    raise ImportError(
        f"{LIBRARY}: cannot open shared object file: No such file or directory "
        f"(imitation: LD_LIBRARY_PATH={os.environ.get('LD_LIBRARY_PATH', '')!r}, host library folder {LIB64})"
    )


def npus() -> list[int]:
    """Numbers of the /dev/davinci<N> that are there."""
    found = (re.fullmatch(r"davinci(\d+)", name) for name in os.listdir("/dev"))
    return sorted(int(match[1]) for match in found if match and _is_node(match[0]))


def _is_node(name: str) -> bool:
    try:
        return stat.S_ISCHR(os.stat(f"/dev/{name}").st_mode)
    except OSError:
        return False


def missing(driver: Driver) -> list[str]:
    """Everything documented for the family that is not here, one text each."""
    rc_mode = driver.family == "atlas_200i_pro"
    nodes = ("davinci_manager", "ascend_manager", "user_config") if rc_mode else CARD_NODES
    texts = [f"/dev/{name} is not mapped" for name in nodes if not _is_node(name) and not _replaced(driver, name)]
    numbers = npus()
    if not numbers:
        texts.append("no /dev/davinci<N> is mapped")
    if driver.family == "atlas_a3":
        texts += [
            f"/dev/davinci{number ^ 1} is not mapped: the other die of davinci{number}'s card"
            for number in numbers
            if number ^ 1 not in numbers
        ]
    files = RC_FILES if rc_mode else CARD_FILES
    if driver.family == "atlas_950dt":
        files = (*files, "/usr/local/Ascend/driver/tools/hccn_tool")
    if rc_mode and _image_os() == "openEuler":
        files = (*files, "/usr/lib64/libsemanage.so.2")
    return texts + [f"{path} is not mounted" for path in files if not os.path.isfile(path)]


def _replaced(driver: Driver, name: str) -> bool:
    return (
        driver.family == "atlas_950dt"
        and name == "devmm_svm"
        and all(os.path.isdir(f"/dev/{folder}") for folder in SVM_INSTEAD)
    )


def _image_os() -> str:
    text = pathlib.Path("/etc/os-release").read_text(encoding="utf-8")
    match = re.search(r'^ID="?(\w+)"?$', text, re.MULTILINE)
    return match[1] if match else ""


def claim(numbers: list[int], exclusive: bool) -> list[int]:
    """Lock files of NPUs, opened and locked: a chip serves one container at a time. Raises OSError (-8020)."""
    descriptors = []
    for number in numbers:
        path = f"{LIB64}/.simulated-davinci{number}"
        if not os.path.exists(path):
            continue
        descriptor = os.open(path, os.O_RDONLY)
        try:
            fcntl.flock(descriptor, (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB)
        except BlockingIOError:
            raise OSError(
                "dcmi model initialized failed, because the device is used. ret is -8020 "
                f"(imitation: /dev/davinci{number} is held by another container)"
            ) from None
        descriptors.append(descriptor)
    return descriptors
