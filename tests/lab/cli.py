"""`python -m tests.lab COMMAND`: builds and tears down the simulated rack."""

from __future__ import annotations

import argparse
import concurrent.futures
import os
import pathlib
import shutil
import sys
import time
from collections.abc import Callable

import docker

from . import engine, hosts, hub, images, keys, registry, rootfs
from .real import cache
from .real import image as real_image
from .settings import LABEL, STATE, LabError, rack, say


def up(_arguments: argparse.Namespace) -> int:
    """Build what is missing and start everything; a second `up` changes nothing."""
    started = time.monotonic()
    engine.need({"ssh": "openssh-client"})
    client = engine.ensure()
    keys.ensure()
    host_image = rootfs.ensure(client)
    # The hosts boot while the engine images are made.
    hosts.ensure(client, host_image)
    with concurrent.futures.ThreadPoolExecutor(max_workers=1) as pool:
        pushed = pool.submit(_images, client, host_image)
        hosts.wait_ready(client)
        pushed.result()
    say(f"the rack is up after {time.monotonic() - started:.0f} s; all NPUs in it are simulated")
    for name, value in engine.environment().items():
        say(f"its Docker engine: export {name}={value}")
    return 0


def _images(client: docker.DockerClient, host_image: str) -> None:
    registry.ensure(client, host_image)
    registry.push([*images.tags(client, host_image), *real_image.tags(client, host_image)])
    hosts.fill_caches(client, cache.archive())
    hub.ensure(client, host_image)


def down(_arguments: argparse.Namespace) -> int:
    """Remove hosts, registries, their volumes and the network. Images stay: the next `up` is a warm one."""
    client = engine.connect()
    if client is None:
        say("no Docker engine runs: nothing to remove")
        return 0
    hosts.remove(client)
    for volume in client.volumes.list(filters={"label": LABEL}):
        volume.remove(force=True)
    return 0


def clean(arguments: argparse.Namespace) -> int:
    """`down`, then remove the images and .lab/, and stop the Docker engine that the rack started."""
    if engine.left_over() and os.geteuid() == 0:
        # Only the engine can let go of what one that was killed had mounted.
        engine.start()
    down(arguments)
    client = engine.connect()
    if client is not None:
        for image in client.images.list(filters={"label": LABEL}):
            client.images.remove(image.id, force=True)
    if engine.stop():
        say("stopped the Docker engine that the rack had started")
        engine.wipe()
    shutil.rmtree(STATE, ignore_errors=True)
    return 0


def status(_arguments: argparse.Namespace) -> int:
    """A table of the rack; 1 when a part of it does not run."""
    client = engine.connect()
    if client is None:
        print("no Docker engine runs")
        return 1
    rows = [("name", "address", "plays", "container", "sshd")]
    for server in rack().registries:
        rows.append(
            (server.container, server.address, f"{server.plays} (registry)", _state(client, server.container), "")
        )
    rows.append((rack().hub.container, rack().hub.address, "models (hub)", _state(client, rack().hub.container), ""))
    for host in rack().hosts:
        family = f"{host.family}, {host.os}" + (f", {host.arch}" if host.arch else "")
        answers = "answers" if hosts.ssh_answers(host.address) else "silent"
        rows.append((host.name, host.address, family, _state(client, host.container), answers))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    for name, value in engine.environment().items():
        print(f"Docker engine: export {name}={value}")
    return 0 if all(row[3] == "running" and row[4] != "silent" for row in rows[1:]) else 1


def _state(client: docker.DockerClient, name: str) -> str:
    container = hosts.find(client, name)
    return container.status if container is not None else "missing"


def reboot(arguments: argparse.Namespace) -> int:
    """Power-cycle a host and wait for its sshd and Docker engine (not for slow device nodes)."""
    hosts.reboot(engine.require(), arguments.name)
    return 0


def execute(arguments: argparse.Namespace) -> int:
    """Run a command in a host, without ssh; its exit code is the result."""
    container = hosts.get(engine.require(), arguments.name)
    words = arguments.command[1:] if arguments.command[:1] == ["--"] else arguments.command
    code, output = container.exec_run(words)
    sys.stdout.buffer.write(output)
    return int(code)


def move_tag(arguments: argparse.Namespace) -> int:
    """Let a tag name another image in both registries (`up` puts it back)."""
    registry.copy_tag(arguments.source, arguments.target)
    return 0


def save(arguments: argparse.Namespace) -> int:
    """Write a `docker load` archive of a tag."""
    client = engine.require()
    for tag in images.tags(client, rootfs.ensure(client)):
        if tag.name == arguments.tag:
            reference = arguments.reference or f"quay.io/ascend/vllm-ascend:{tag.name}"
            arguments.file.write_bytes(images.archive({reference: tag.images[arguments.arch]}))
            return 0
    raise LabError(f"no tag {arguments.tag!r}: {', '.join(images.tag_names())}")


def main(argv: list[str] | None = None) -> int:
    """Run a command; a LabError is printed and gives 1."""
    parser = argparse.ArgumentParser(prog="python -m tests.lab", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, function: Callable[[argparse.Namespace], int]) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=(function.__doc__ or "").splitlines()[0])
        added.set_defaults(function=function)
        return added

    for name, function in (("up", up), ("down", down), ("clean", clean), ("status", status)):
        command(name, function)
    command("reboot", reboot).add_argument("name")
    runner = command("exec", execute)
    runner.add_argument("name")
    runner.add_argument("command", nargs=argparse.REMAINDER)
    mover = command("move-tag", move_tag)
    mover.add_argument("source")
    mover.add_argument("target")
    saver = command("save", save)
    saver.add_argument("tag")
    saver.add_argument("file", type=pathlib.Path)
    saver.add_argument("--arch", default="amd64", choices=["amd64", "arm64"])
    saver.add_argument("--reference", help="name in the archive (default: quay.io/ascend/vllm-ascend:TAG)")
    arguments = parser.parse_args(argv)
    try:
        return arguments.function(arguments)
    except LabError as error:
        print(f"lab: {error}", file=sys.stderr)
        return 1
