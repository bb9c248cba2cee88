"""Parts of the rack's builder that need no engine."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess

import pytest

from tests.lab import engine, rootfs, tree
from tests.lab.settings import LabError, families, rack

CAPABILITIES = ["CAP_CHOWN", "CAP_SYS_RESOURCE", "CAP_KILL"]
DEB822 = """\
Types: deb
# a comment
URIs: http://mirror.example/debian
Suites: bookworm bookworm-updates
Components: main

Types: deb
URIs: http://mirror.example/debian-security
Suites: bookworm-security
Components: main
"""


@pytest.fixture
def wrapper(tmp_path: pathlib.Path) -> dict[str, str]:
    """Environment in which `runc` prints its arguments."""
    runc = tmp_path / "bin" / "runc"
    runc.parent.mkdir()
    runc.write_text('#!/bin/sh\necho "runc $*"\n', encoding="ascii")
    runc.chmod(0o755)
    return {**os.environ, "PATH": f"{runc.parent}:{os.environ['PATH']}"}


def write_process(path: pathlib.Path, capabilities: list[str], argument: str = "x") -> None:
    """A process as containerd writes it: JSON without blanks."""
    sets = {name: capabilities for name in ("bounding", "effective", "permitted")}
    path.write_text(
        json.dumps({"process": {"args": [argument], "capabilities": sets}}, separators=(",", ":")), encoding="utf-8"
    )


@pytest.mark.parametrize(
    ("capabilities", "left"),
    [
        (CAPABILITIES, ["CAP_CHOWN", "CAP_KILL"]),
        (["CAP_SYS_RESOURCE", "CAP_KILL"], ["CAP_KILL"]),
        (["CAP_KILL", "CAP_SYS_RESOURCE"], ["CAP_KILL"]),
        (["CAP_SYS_RESOURCE"], []),
        (["CAP_KILL"], ["CAP_KILL"]),
    ],
)
@pytest.mark.parametrize("form", ["create --bundle {0} name", "create --bundle={0} name", "run -b {0} name"])
def test_wrapper_takes_the_capability_out_of_a_bundle(
    form: str, capabilities: list[str], left: list[str], wrapper: dict[str, str], tmp_path: pathlib.Path
) -> None:
    said = 'literal "CAP_SYS_RESOURCE",'
    write_process(tmp_path / "config.json", capabilities, said)
    argv = ["--root", "/r", *form.format(tmp_path).split()]
    done = subprocess.run([engine.WRAPPER, *argv], env=wrapper, capture_output=True, text=True, check=True)
    process = json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))["process"]
    assert process["capabilities"]["bounding"] == process["capabilities"]["effective"] == left
    assert process["args"] == [said]
    assert done.stdout == f"runc {' '.join(argv)}\n"


def test_wrapper_takes_it_out_of_an_exec_and_of_nothing_else(wrapper: dict[str, str], tmp_path: pathlib.Path) -> None:
    for verb, left in (("exec", ["CAP_CHOWN", "CAP_KILL"]), ("state", CAPABILITIES)):
        write_process(tmp_path / "process.json", CAPABILITIES)
        subprocess.run(
            [engine.WRAPPER, verb, "--process", tmp_path / "process.json", "name"],
            env=wrapper,
            capture_output=True,
            check=True,
        )
        process = json.loads((tmp_path / "process.json").read_text(encoding="utf-8"))["process"]
        assert process["capabilities"]["permitted"] == left


@pytest.mark.parametrize(("bits", "lacks"), [("000001fffeffffff", True), ("000001ffffffffff", False)])
def test_missing_capability_is_read_from_the_bounding_set(bits: str, lacks: bool, tmp_path: pathlib.Path) -> None:
    (tmp_path / "status").write_text(f"Name:\tx\nCapEff:\t0000000000000000\nCapBnd:\t{bits}\n", encoding="ascii")
    assert engine.lacks_sys_resource(str(tmp_path / "status")) is lacks


@pytest.mark.parametrize(
    ("os_release", "name", "text", "expected"),
    [
        ("ID=debian\nVERSION_CODENAME=bookworm\n", "sources.list.d/debian.sources", DEB822,
         rootfs.Mirror("http://mirror.example/debian", "bookworm", "main")),
        ("ID=ubuntu\nVERSION_CODENAME=jammy\n", "sources.list",
         "# x\ndeb [arch=amd64 signed-by=/k] http://a.example/ubuntu jammy main universe\n",
         rootfs.Mirror("http://a.example/ubuntu", "jammy", "main,universe")),
    ],
)  # fmt: skip
def test_mirror_comes_from_the_machines_apt(
    os_release: str, name: str, text: str, expected: rootfs.Mirror, tmp_path: pathlib.Path
) -> None:
    (tmp_path / "apt/sources.list.d").mkdir(parents=True)
    (tmp_path / "os-release").write_text(os_release, encoding="utf-8")
    (tmp_path / "apt" / name).write_text(text, encoding="utf-8")
    assert rootfs.machine_mirror(tmp_path) == expected


def test_a_machine_without_a_mirror_is_told_so(tmp_path: pathlib.Path) -> None:
    (tmp_path / "os-release").write_text("ID=fedora\n", encoding="utf-8")
    with pytest.raises(LabError, match="no Debian or Ubuntu mirror"):
        rootfs.machine_mirror(tmp_path)


@pytest.mark.parametrize("family", families()["families"])
def test_a_tree_packs_to_the_same_bytes_and_through_no_linked_folder(family: str) -> None:
    built = tree.build(family, "openeuler")
    assert tree.pack(built) == tree.pack(dict(reversed(list(built.items()))))
    linked = ("/bin/", "/sbin/", "/lib/", "/lib64/", "/var/run/", "/var/lock/")
    assert not [path for path in built if path.startswith(linked)]


def test_a_sparse_host_names_each_chip_the_same_everywhere_and_never_by_its_place() -> None:
    """The number of its node is in the nodes, in the driver's files and beside its PCI address, whose order differs."""
    built = tree.build("sparse_a2", "ubuntu")
    made = {line.split()[1] for line in tree.nodes("sparse_a2").splitlines() if "/dev/davinci1" in line}
    locks = {path.rpartition("-")[2] for path in built if "/.simulated-davinci" in path}
    folder = f"{tree.LAB}/pci/devices/0000:c"
    numbers = [built[f"{folder}{place}:00.0/dev_id"].content.strip() for place in (1, 2, 3, 4)]
    assert numbers == ["14", "16", "10", "12"]
    assert made == {f"/dev/davinci{number}" for number in numbers} == {f"/dev/{lock}" for lock in locks}


def test_the_rack_has_every_family_both_systems_and_two_bad_hosts() -> None:
    hosts = rack().hosts
    shown = {host.family for host in hosts}
    assert shown == set(families()["families"])
    assert {host.os for host in hosts if "chips" in families()["families"][host.family]} == {"ubuntu", "openeuler"}
    assert len({host.address for host in hosts}) == len(hosts)
