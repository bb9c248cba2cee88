"""The hosts: privileged containers with real systemd, sshd and Docker engine, and a simulated driver."""

from __future__ import annotations

import concurrent.futures
import contextlib
import hashlib
import json
import socket
import time
from typing import Any

import docker
from docker.errors import APIError, NotFound
from docker.models.containers import Container

from . import keys, tree
from .engine import WRAPPER, WRAPPER_NAME, lacks_sys_resource
from .settings import DIGEST_LABEL, HERE, LABEL, Host, LabError, rack, say

HOST_FILES = HERE / "host"
READY_LIMIT_S = 120
POLL_S = 0.5
CACHE = "/root/.cache"
UNIT_FOLDER = "/etc/systemd/system"
SSHD_CONFIG = """\
HostKey /etc/ssh/ssh_host_ed25519_key
PermitRootLogin prohibit-password
PasswordAuthentication no
UseDNS no
MaxStartups 100
"""


def network(client: docker.DockerClient) -> None:
    """The rack's network, made when it is missing. It leads nowhere else (internal)."""
    data = rack()
    if client.networks.list(names=[f"^{data.network}$"]):
        return
    pool = docker.types.IPAMPool(subnet=data.subnet)
    client.networks.create(
        data.network,
        driver="bridge",
        internal=True,
        ipam=docker.types.IPAMConfig(pool_configs=[pool]),
        labels={LABEL: "network"},
        options={"com.docker.network.bridge.name": data.network},
    )


def host_tree(host: Host) -> tree.Tree:
    """Every file that makes the host image this host."""
    files = tree.build(host.family, host.os)

    def add(path: str, content: str, mode: int = 0o644) -> None:
        files[path] = tree.Entry(content, mode)

    add("/root/.ssh/authorized_keys", keys.public_key(keys.CLIENT_KEY) + "\n", 0o600)
    add("/etc/ssh/ssh_host_ed25519_key", keys.HOST_KEY.read_text(encoding="ascii"), 0o600)
    add("/etc/ssh/sshd_config.d/lab.conf", SSHD_CONFIG)
    add("/etc/docker/daemon.json", json.dumps(_daemon_json(), indent=2) + "\n")
    if lacks_sys_resource():
        add(f"{tree.LAB}/{WRAPPER_NAME}", WRAPPER.read_text(encoding="ascii"), 0o755)
    add(f"{tree.LAB}/hardware", (HOST_FILES / "hardware").read_text(encoding="ascii"), 0o755)
    add(f"{tree.LAB}/nodes.conf", tree.nodes(host.family))
    if host.arch:
        add(f"{tree.LAB}/arch", host.arch + "\n")
    for name in ("simulated-hardware.service", "simulated-nodes.service"):
        add(f"{UNIT_FOLDER}/{name}", (HOST_FILES / name).read_text(encoding="ascii"))
    wanted = {"sysinit.target": "simulated-hardware.service"}
    if host.nodes_after_s:
        add(f"{UNIT_FOLDER}/simulated-nodes.timer", _timer(host.nodes_after_s))
        wanted["timers.target"] = "simulated-nodes.timer"
    else:
        wanted["basic.target"] = "simulated-nodes.service"
    for target, unit in wanted.items():
        files[f"{UNIT_FOLDER}/{target}.wants/{unit}"] = tree.Entry(link=f"{UNIT_FOLDER}/{unit}")
    return files


def _daemon_json() -> dict[str, Any]:
    config: dict[str, Any] = {
        "insecure-registries": [registry.plays for registry in rack().registries if not registry.tls]
    }
    if lacks_sys_resource():
        config["runtimes"] = {WRAPPER_NAME: {"path": f"{tree.LAB}/{WRAPPER_NAME}"}}
        config["default-runtime"] = WRAPPER_NAME
    return config


def _timer(seconds: int) -> str:
    return (
        "[Unit]\nDescription=The simulated driver is slow: its device nodes appear this long after each boot\n\n"
        f"[Timer]\nOnStartupSec={seconds}\nAccuracySec=1s\n"
    )


def names() -> dict[str, str]:
    """/etc/hosts of every host: the registries that the rack plays, and the one that nobody answers for."""
    return {**{registry.plays: registry.address for registry in rack().registries}, **rack().unreachable}


def ensure(client: docker.DockerClient, image: str) -> None:
    """Create and start all hosts that are not there as they should be. Does not wait for them."""
    network(client)
    with concurrent.futures.ThreadPoolExecutor(max_workers=4) as pool:
        list(pool.map(lambda host: _ensure(client, image, host), rack().hosts))


def _ensure(client: docker.DockerClient, image: str, host: Host) -> None:
    archive = tree.pack(host_tree(host))
    parts = [client.images.get(image).id, json.dumps(names()), rack().subnet, host.address]
    digest = hashlib.sha256("\n".join(parts).encode() + archive).hexdigest()[:16]
    container = find(client, host.container)
    if container is not None and container.labels.get(DIGEST_LABEL) != digest:
        container.remove(force=True, v=True)
        container = None
    if container is None:
        container = _create(client, image, host, digest)
        container.put_archive("/", archive)
    if container.status != "running":
        container.start()


def _create(client: docker.DockerClient, image: str, host: Host, digest: str) -> Container:
    api = client.api
    config = api.create_host_config(
        privileged=True,
        cgroupns="private",
        restart_policy={"Name": "always"},
        extra_hosts=names(),
        network_mode=rack().network,
        tmpfs={"/run": "exec,mode=755", "/run/lock": "", "/tmp": "exec,mode=1777"},
    )
    endpoint = api.create_endpoint_config(ipv4_address=host.address)
    created = api.create_container(
        image,
        command=["/lib/systemd/systemd"],
        name=host.container,
        hostname=host.name,
        stop_signal="SIGRTMIN+3",
        volumes=["/var/lib/docker"],
        labels={LABEL: "host", DIGEST_LABEL: digest},
        environment={"container": "docker"},
        host_config=config,
        networking_config=api.create_networking_config({rack().network: endpoint}),
    )
    return client.containers.get(created["Id"])


def fill_caches(client: docker.DockerClient, archive: bytes) -> None:
    """Put the model into /root/.cache of the hosts that shall have it, where it is not yet."""
    for host in (host for host in rack().hosts if host.model_cache):
        container = get(client, host.name)
        if not _exec(container, "test", "-d", f"{CACHE}/huggingface"):
            _exec(container, "mkdir", "-p", CACHE)
            container.put_archive(CACHE, archive)


def find(client: docker.DockerClient, name: str) -> Container | None:
    """The container of that name, or None."""
    with contextlib.suppress(NotFound):
        return client.containers.get(name)
    return None


def get(client: docker.DockerClient, name: str) -> Container:
    """The container of the host of that name. Raises LabError."""
    container = find(client, rack().host(name).container)
    if container is None:
        raise LabError(f"{name} is not there; `python -m tests.lab up` makes it")
    return container


def wait_ready(client: docker.DockerClient, limit_s: float = READY_LIMIT_S) -> None:
    """Wait until sshd and the Docker engine of every host answer, and its device nodes are there. Raises LabError."""
    with concurrent.futures.ThreadPoolExecutor(max_workers=len(rack().hosts)) as pool:
        failures = [text for text in pool.map(lambda host: _wait_one(client, host, limit_s), rack().hosts) if text]
    if failures:
        raise LabError("these hosts do not come up:\n" + "\n".join(failures))


def _wait_one(client: docker.DockerClient, host: Host, limit_s: float) -> str | None:
    deadline = time.monotonic() + limit_s
    state = "its container does not run"
    hurried = False
    while time.monotonic() < deadline:
        container = find(client, host.container)
        if container is not None and container.status == "running":
            if not ssh_answers(host.address):
                state = f"no sshd answers on {host.address}"
            elif host.nodes_after_s and not hurried:
                # `up` does not sit out the slow driver; every later boot does.
                hurried = _exec(container, "systemctl", "start", "simulated-nodes.service")
                state = "systemd does not make its device nodes"
                continue
            elif _exec(container, "docker", "version", "--format", "{{.Server.Version}}"):
                return None
            else:
                state = "its Docker engine does not answer"
        time.sleep(POLL_S)
    return f"  {host.name}: {state} after {limit_s:.0f} s"


def ssh_answers(address: str) -> bool:
    """Whether an sshd greets there."""
    try:
        with socket.create_connection((address, 22), timeout=2) as connection:
            connection.settimeout(2)
            return connection.recv(4) == b"SSH-"
    except OSError:
        return False


def _exec(container: Container, *argv: str) -> bool:
    try:
        return container.exec_run(list(argv)).exit_code == 0
    except APIError:
        return False


def reboot(client: docker.DockerClient, name: str) -> None:
    """Restart a host as a power cycle does, and wait until its sshd and engine answer. Raises LabError."""
    host = rack().host(name)
    get(client, name).restart(timeout=30)
    slow = Host(host.name, host.address, host.family, host.os)
    failure = _wait_one(client, slow, READY_LIMIT_S)
    if failure:
        raise LabError(failure.strip())


def remove(client: docker.DockerClient) -> None:
    """Remove all containers of the rack with their volumes, then its network."""
    containers = client.containers.list(all=True, filters={"label": LABEL})
    with concurrent.futures.ThreadPoolExecutor(max_workers=4) as pool:
        list(pool.map(lambda container: container.remove(force=True, v=True), containers))
    for found in client.networks.list(filters={"label": LABEL}):
        found.remove()
    say(f"removed {len(containers)} containers and the network")
