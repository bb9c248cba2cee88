"""The image of the rack's hosts: a Dockerfile where a registry is in reach, else debootstrap and docker import."""

from __future__ import annotations

import contextlib
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from typing import NamedTuple

import docker
import requests
from docker.errors import APIError, BuildError, DockerException, ImageNotFound

from .engine import PATH, need
from .settings import HERE, LABEL, LabError, say

HOST = HERE / "host"
REPOSITORY = f"{LABEL}/host"
BASE_IMAGE = ("debian", "bookworm-slim")
# Without a registry the pull of the base image must fail soon.
PULL_SILENCE_S = 8
DEBOOTSTRAP_LIMIT_S = 900


class Mirror(NamedTuple):
    """Where the machine's own apt gets this distribution from."""

    uri: str
    suite: str
    components: str


def reference() -> str:
    """Name of the host image; the tag is a digest of everything that decides its content."""
    digest = hashlib.sha256()
    for name in ("Dockerfile", "finish", "packages"):
        digest.update((HOST / name).read_bytes())
    return f"{REPOSITORY}:{digest.hexdigest()[:12]}"


def ensure(client: docker.DockerClient) -> str:
    """The host image's name, made when it is not there yet. Raises LabError."""
    name = reference()
    try:
        client.images.get(name)
    except ImageNotFound:
        if _base_image_in_reach(client):
            _build(client, name)
        else:
            _bootstrap(client, name)
        _forget_older(client, name)
    return name


def _forget_older(client: docker.DockerClient, name: str) -> None:
    """Remove the host images of earlier versions that no container uses."""
    for image in client.images.list(name=REPOSITORY):
        for tag in image.tags:
            if tag.startswith(f"{REPOSITORY}:") and tag != name:
                with contextlib.suppress(APIError):
                    client.images.remove(tag)


def _base_image_in_reach(client: docker.DockerClient) -> bool:
    repository, tag = BASE_IMAGE
    try:
        client.images.get(f"{repository}:{tag}")
        return True
    except ImageNotFound:
        pass
    say(f"looking for {repository}:{tag} in a public registry (at most {PULL_SILENCE_S} s without an answer)")
    patience, client.api.timeout = client.api.timeout, PULL_SILENCE_S
    try:
        for line in client.api.pull(repository, tag=tag, stream=True, decode=True):
            if "error" in line:
                say(f"not in reach: {line['error']}")
                return False
    except (DockerException, requests.RequestException, OSError) as error:
        say(f"not in reach: {error}")
        return False
    finally:
        client.api.timeout = patience
    return True


def _build(client: docker.DockerClient, name: str) -> None:
    say(f"building {name} from its Dockerfile")
    try:
        client.images.build(path=str(HOST), tag=name, rm=True, labels={LABEL: "host"})
    except BuildError as error:
        log = "".join(line.get("stream", "") for line in error.build_log)
        raise LabError(f"the host image cannot be built: {error}\n{log[-2000:]}") from error


def _bootstrap(client: docker.DockerClient, name: str) -> None:
    need({"debootstrap": "debootstrap", "tar": "tar"})
    if os.geteuid() != 0:
        raise LabError("no public registry is in reach and debootstrap needs root: run this as root")
    mirror = machine_mirror()
    packages = ",".join((HOST / "packages").read_text(encoding="utf-8").split())
    say(f"making {name} by debootstrap of {mirror.suite} (about a minute)")
    with tempfile.TemporaryDirectory(prefix="vllm-lab-", dir="/var/tmp") as folder:
        root = pathlib.Path(folder) / "root"
        _fast_dpkg(root)
        argv = ["debootstrap", "--variant=minbase", f"--include={packages}", f"--components={mirror.components}"]
        _run([*argv, mirror.suite, str(root), mirror.uri], _proxy())
        (root / "etc/dpkg/dpkg.cfg.d/lab").unlink()
        shutil.copy2(HOST / "finish", root / "tmp/finish")
        _run(["chroot", str(root), "sh", "/tmp/finish"])
        (root / "tmp/finish").unlink()
        say(f"importing {name}")
        repository, tag = name.split(":")
        client.api.import_image_from_data(
            _tar(root), repository=repository, tag=tag, changes=[f"LABEL {LABEL}=host", 'CMD ["/lib/systemd/systemd"]']
        )
    client.images.get(name)


def _fast_dpkg(root: pathlib.Path) -> None:
    """No fsync per file: the tree is thrown away after the import."""
    folder = root / "etc/dpkg/dpkg.cfg.d"
    folder.mkdir(parents=True)
    (folder / "lab").write_text("force-unsafe-io\n", encoding="ascii")


def _tar(root: pathlib.Path) -> Iterator[bytes]:
    process = subprocess.Popen(
        ["tar", "-C", str(root), "--exclude=./dev/*", "--exclude=./proc/*", "--exclude=./sys/*", "-c", "."],
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    while chunk := process.stdout.read(1 << 20):
        yield chunk
    if process.wait():
        raise LabError(f"tar of the host's tree failed with {process.returncode}")


def machine_mirror(etc: pathlib.Path = pathlib.Path("/etc")) -> Mirror:
    """The mirror in this machine's apt configuration that has this machine's own release. Raises LabError."""
    release = (etc / "os-release").read_text(encoding="utf-8")
    values = dict(re.findall(r'^(\w+)="?([^"\n]*)"?$', release, re.MULTILINE))
    codename = values.get("VERSION_CODENAME", "")
    components = "main,universe" if values.get("ID") == "ubuntu" else "main"
    for uri, suites in _sources(etc / "apt"):
        if codename and codename in suites and re.search(r"/(debian|ubuntu|ubuntu-ports)/?$", uri):
            return Mirror(uri, codename, components)
    raise LabError(
        f"no public registry is in reach, and apt's configuration names no Debian or Ubuntu mirror for {codename!r}"
    )


def _sources(apt: pathlib.Path) -> Iterator[tuple[str, list[str]]]:
    """(URI, suites) of each entry, of one-line and deb822 files."""
    for path in [apt / "sources.list", *sorted((apt / "sources.list.d").glob("*"))]:
        if not path.is_file():
            continue
        text = path.read_text(encoding="utf-8", errors="replace")
        for match in re.finditer(r"^deb\s+(?:\[[^\]]*\]\s+)?(\S+)\s+(\S+)", text, re.MULTILINE):
            yield match[1], [match[2]]
        for stanza in re.split(r"\n\s*\n", text):
            fields = dict(re.findall(r"^(URIs|Suites|Types):\s*(.+)$", stanza, re.MULTILINE))
            if "deb" in fields.get("Types", "").split():
                for uri in fields.get("URIs", "").split():
                    yield uri, fields.get("Suites", "").split()


def _proxy() -> dict[str, str]:
    """apt's proxy, for debootstrap's own downloads."""
    if not shutil.which("apt-config"):
        return {}
    argv = ["apt-config", "shell", "PROXY", "Acquire::http::Proxy"]
    shown = subprocess.run(argv, capture_output=True, text=True, timeout=30, check=False).stdout
    match = re.match(r"PROXY='([^']+)'", shown)
    return {"http_proxy": match[1]} if match else {}


def _run(argv: list[str], env: dict[str, str] | None = None) -> None:
    done = subprocess.run(
        argv,
        capture_output=True,
        text=True,
        timeout=DEBOOTSTRAP_LIMIT_S,
        check=False,
        env={**os.environ, "PATH": PATH, "LC_ALL": "C", **(env or {})},
    )
    if done.returncode:
        raise LabError(f"{' '.join(argv)} failed:\n{(done.stdout + done.stderr)[-2000:]}")
