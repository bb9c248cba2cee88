# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Take the place of a container that somebody started by hand under the name of ours, in a way that can be undone.

It is stopped and renamed, never removed. The quick start's commands use `docker run --rm`: such a container is removed
by the engine when it stops, so its settings are kept, and undoing makes it again from them. In the quick start the
main process is a shell in which somebody ran `vllm serve`: undoing starts that command again too.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from typing import Any, Dict, List, Optional

from . import atomic, log_lines
from .host_control import COMMAND_S, Host, HostError, explain
from .instance_state import LABEL_INSTANCE, container_name

SUFFIX = "-adopted"
# For a server to end after its signal; a shell as the main process ignores SIGTERM, so it only costs time.
STOP_S = 60
SHELL_STOP_S = 2
SHELLS = ("bash", "sh", "zsh")
EXEC_S = 30.0
# The environment of a container that is made again, for the moment in which the engine reads it (0600).
ADOPTED_ENV = "adopted.env"
# Shorter values, such as numbers and "true", are no secrets, and masking them would garble every message.
SECRET_LENGTH = 8
_KEY_OPTION = "--api-key"
_SERVER_WORDS = ("serve", "vllm.entrypoints.openai.api_server")


def foreign(host: Host, instance: str) -> Optional[Dict[str, Any]]:
    """The container that has an instance's container name and is not ours (docker inspect), None when there is none."""
    found = host.inspect(container_name(instance))
    if found is None or ((found.get("Config") or {}).get("Labels") or {}).get(LABEL_INSTANCE):
        return None
    return found


def plan(host: Host, instance: str, inspect: Dict[str, Any]) -> Dict[str, Any]:
    """What has to be known to undo the adoption, before anything is done; it goes into the journal first."""
    settings = inspect.get("HostConfig") or {}
    image = _image_defaults(host, inspect)
    running = bool((inspect.get("State") or {}).get("Running"))
    removed = bool(settings.get("AutoRemove"))
    return {
        "id": inspect["Id"],
        "name": container_name(instance),
        "kept_as": _free_name(host, container_name(instance) + SUFFIX),
        "running": running,
        "restart": _restart_policy(settings),
        "auto_remove": removed,
        "recreate": recreate_argv(inspect, image) if removed else None,
        "environment": environment(inspect, image) if removed else None,
        "shell": _runs_shell(inspect),
        "server": _server_command(host, inspect) if running else None,
    }


def take(host: Host, adopted: Dict[str, Any], timeout: int = STOP_S) -> str:
    """Stop the container and put it aside; what was done, in a sentence. Doing it twice is harmless."""
    identity = adopted["id"]
    found = host.inspect(identity)
    if found is None:
        return "{0} is gone already".format(adopted["name"])
    if adopted["restart"] != "no":
        host.docker("update", "--restart", "no", identity)
    if (found.get("State") or {}).get("Running"):
        if adopted["server"]:
            _interrupt(host, identity, adopted["server"], timeout)
        grace = SHELL_STOP_S if adopted["shell"] else timeout
        host.docker("stop", "-t", str(grace), identity, timeout=grace + 60.0)
    if adopted["auto_remove"]:
        return "{0} was started with --rm, so stopping removed it; its settings are kept".format(adopted["name"])
    if host.inspect(adopted["kept_as"]) is None:
        host.docker("rename", identity, adopted["kept_as"])
    return "{0} is stopped and kept as {1}".format(adopted["name"], adopted["kept_as"])


def forget(adopted: Dict[str, Any]) -> None:
    """Drop what was only kept to undo the adoption: arguments and environment, which may hold secrets."""
    adopted.update(recreate=None, environment=None, server=None)


def give_back(host: Host, adopted: Dict[str, Any], env_file: str) -> str:
    """Undo take(): the container has its name again and runs if it ran; what was done, in a sentence.

    env_file is where its environment may lie for a moment.
    """
    name, found = adopted["name"], host.inspect(adopted["id"])
    if found is None and host.inspect(name) is None and adopted["recreate"]:
        _recreate(host, adopted, env_file)
        found = host.inspect(name)
    if found is None:
        found = host.inspect(name)
        if found is None:
            return "{0} is gone and cannot be made again".format(name)
    identity = found["Id"]
    if str(found.get("Name", "")).lstrip("/") != name:
        host.docker("rename", identity, name)
    if adopted["restart"] != "no":
        host.docker("update", "--restart", adopted["restart"], identity)
    if not adopted["running"]:
        return "{0} is back, stopped as it was".format(name)
    host.docker("start", identity)
    if adopted["server"]:
        # `bash -ic` as in the units: the image's environment is set by the interactive shell's start-up file.
        wrapped = ["bash", "-ic", 'exec "$@"', "--"] + list(adopted["server"])
        result = host.ask_docker(["exec", "-d", identity] + wrapped, EXEC_S)
        how = "and" if result.ok else "but not"
        return "{0} runs again, {1} its command {2}".format(name, how, " ".join(shown(adopted["server"])))
    return "{0} runs again".format(name)


def _recreate(host: Host, adopted: Dict[str, Any], env_file: str) -> None:
    """Run the argv that makes the container again; its environment goes by a file, never into a list of processes."""
    argv, given = list(adopted["recreate"])[1:], adopted.get("environment") or []
    # A line break ends a value in such a file: that one is taken from the environment of the client.
    broken = dict(entry.split("=", 1) for entry in given if "\n" in entry)
    words = [word for name in sorted(broken) for word in ("--env", name)]
    atomic.write_text(env_file, "".join(entry + "\n" for entry in given if "\n" not in entry), 0o600)
    try:
        result = host.ask_docker(argv[:2] + ["--env-file", env_file] + words + argv[2:], env=broken)
    finally:
        atomic.remove(env_file)
    if not result.ok:
        hidden = secret_values(argv, given)
        text = log_lines.mask(explain(result, COMMAND_S), hidden)
        raise HostError(text, [log_lines.mask(line, hidden) for line in result.text.splitlines()])


def shown(words: List[str]) -> List[str]:
    """An argv for the eyes of everybody: the values of --api-key and of every NAME=VALUE are masked."""
    found, key = [], False
    for word in words:
        name, equals, _value = word.partition("=")
        if word.startswith("-"):
            # --api-key takes several values (vLLM 0.23.0).
            key = word == _KEY_OPTION
            masked = name == _KEY_OPTION and bool(equals)
        else:
            masked = key or bool(equals)
        if masked:
            word = "{0}={1}".format(name, log_lines.MASK) if equals and not key else log_lines.MASK
        found.append(word)
    return found


def secret_values(words: List[str], given: List[str]) -> List[str]:
    """What must not be seen of an argv and an environment."""
    masked = enumerate(shown(words))
    hidden = [words[at].partition("=")[2] if "=" in seen else words[at] for at, seen in masked if words[at] != seen]
    return [value for value in hidden + [one.partition("=")[2] for one in given] if len(value) >= SECRET_LENGTH]


def environment(inspect: Dict[str, Any], image: Dict[str, Any]) -> List[str]:
    """The environment of a container (NAME=VALUE), less what its image sets anyway."""
    return [value for value in (inspect.get("Config") or {}).get("Env") or [] if value not in (image.get("Env") or [])]


def recreate_argv(inspect: Dict[str, Any], image: Dict[str, Any]) -> List[str]:
    """A `docker run -d` argv that makes the container again from `docker inspect`, less what its image sets anyway.

    The environment is not in it: see environment().
    """
    config, host = inspect.get("Config") or {}, inspect.get("HostConfig") or {}
    argv = ["docker", "run", "-d", "--rm", "--name", str(inspect["Name"]).lstrip("/")]
    argv += ["--interactive"] * bool(config.get("OpenStdin")) + ["--tty"] * bool(config.get("Tty"))
    argv += ["--privileged"] * bool(host.get("Privileged")) + ["--init"] * bool(host.get("Init"))
    network = host.get("NetworkMode")
    if network not in (None, "default", "bridge"):
        argv += ["--network", network]
    if host.get("ShmSize"):
        argv += ["--shm-size", str(host["ShmSize"])]
    for key, flag in (("IpcMode", "--ipc"), ("PidMode", "--pid"), ("Runtime", "--runtime")):
        if host.get(key) and host[key] not in ("private", "runc"):
            argv += [flag, host[key]]
    for device in host.get("Devices") or []:
        argv += ["--device", "{PathOnHost}:{PathInContainer}:{CgroupPermissions}".format(**device)]
    for bind in host.get("Binds") or []:
        argv += ["--volume", bind]
    for mount in host.get("Mounts") or []:
        words = ["type={0}".format(mount["Type"]), "source={0}".format(mount.get("Source", ""))]
        words += ["target={0}".format(mount["Target"])] + ["readonly"] * bool(mount.get("ReadOnly"))
        argv += ["--mount", ",".join(words)]
    for port, ends in sorted((host.get("PortBindings") or {}).items()):
        for end in ends or []:
            address = "{0}:".format(end["HostIp"]) if end.get("HostIp") else ""
            argv += ["--publish", "{0}{1}:{2}".format(address, end.get("HostPort", ""), port)]
    for key, flag in (("CapAdd", "--cap-add"), ("SecurityOpt", "--security-opt"), ("ExtraHosts", "--add-host")):
        for value in host.get(key) or []:
            argv += [flag, value]
    for name, value in sorted((config.get("Labels") or {}).items()):
        if (image.get("Labels") or {}).get(name) != value:
            argv += ["--label", "{0}={1}".format(name, value)]
    for key, flag in (("WorkingDir", "--workdir"), ("User", "--user"), ("StopSignal", "--stop-signal")):
        if config.get(key) and config[key] != image.get(key):
            argv += [flag, config[key]]
    entrypoint, command = config.get("Entrypoint") or [], list(config.get("Cmd") or [])
    if entrypoint != (image.get("Entrypoint") or []):
        argv += ["--entrypoint", entrypoint[0] if entrypoint else ""]
        command = list(entrypoint[1:]) + command
    return argv + [str(inspect["Image"])] + command


def _image_defaults(host: Host, inspect: Dict[str, Any]) -> Dict[str, Any]:
    found = host.image(str(inspect["Image"]))
    return (found or {}).get("Config") or {}


def _restart_policy(settings: Dict[str, Any]) -> str:
    policy = settings.get("RestartPolicy") or {}
    name, count = policy.get("Name") or "no", policy.get("MaximumRetryCount") or 0
    return "{0}:{1}".format(name, count) if name == "on-failure" and count else name


def _free_name(host: Host, wanted: str) -> str:
    name, number = wanted, 2
    while host.inspect(name) is not None:
        name = "{0}-{1}".format(wanted, number)
        number += 1
    return name


def _server_command(host: Host, inspect: Dict[str, Any]) -> Optional[List[str]]:
    """The argv of the `vllm serve` that runs in the container beside its main process, None when there is none."""
    if any("vllm" in word for word in _main_words(inspect)):
        return None
    main = int((inspect.get("State") or {}).get("Pid") or 0)
    for pid in _processes(host, inspect["Id"]):
        words = _command_line(pid)
        if pid != main and any("vllm" in word for word in words[:3]) and any(w in words for w in _SERVER_WORDS):
            return words
    return None


def _main_words(inspect: Dict[str, Any]) -> List[str]:
    return [str(inspect.get("Path"))] + list(inspect.get("Args") or [])


def _runs_shell(inspect: Dict[str, Any]) -> bool:
    """True when the main process is an interactive shell, as in the quick start (behind the image's entrypoint)."""
    return os.path.basename(_main_words(inspect)[-1]) in SHELLS


def _processes(host: Host, identity: str) -> List[int]:
    result = host.ask_docker(["top", identity, "-eo", "pid,ppid"], EXEC_S)
    if not result.ok:
        return []
    return sorted(int(line.split()[0]) for line in result.stdout.splitlines()[1:] if line.split()[:1])


def _interrupt(host: Host, identity: str, server: List[str], timeout: float) -> None:
    """End the server in the container as its user would (SIGINT, quick start), and wait until it has gone."""
    pids = [pid for pid in _processes(host, identity) if _command_line(pid) == server]
    for pid in pids:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGINT)
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline and any(_command_line(pid) == server for pid in pids):
        time.sleep(0.2)


def _command_line(pid: int) -> List[str]:
    """The argv of a process of this machine (never below another root: its number is used to send it a signal)."""
    try:
        with open("/proc/{0}/cmdline".format(pid), "rb") as stream:
            return [word.decode("utf-8", "replace") for word in stream.read().split(b"\0")[:-1]]
    except OSError:
        return []
