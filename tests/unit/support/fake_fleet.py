"""The world of a fake host: what its docker, systemctl, systemd-run and journalctl answer and do.

The programs are small shell scripts that ask this over a socket, so that a call costs a few milliseconds. The world
keeps the rules that a transaction lives by: a chip serves one container at a time, systemd starts what it has loaded
(daemon-reload), a start waits for the gate, an image reference can move.
"""

from __future__ import annotations

import contextlib
import json
import os
import socketserver
import subprocess
import threading
import time

LABEL = "vllm-ascend.instance"
NAMES = ("docker", "systemctl", "systemd-run", "journalctl")
PROGRAM = r"""#!/bin/bash
if [ "${{0##*/}}" = docker ] && [ -n "$DOCKER_HOST" -o "$DOCKER_CONTEXT" != default ]; then
    echo "Cannot connect to the Docker daemon at $DOCKER_HOST." >&2; exit 1
fi
exec 3<>/dev/tcp/127.0.0.1/{port} || exit 99
IFS= read -r -d '' input
printf '%d\0' $# >&3
printf '%s\0' "${{0##*/}}" "$@" "$input" >&3
IFS= read -r -d '' code <&3; IFS= read -r -d '' out <&3; IFS= read -r -d '' err <&3
printf '%s' "$out"; printf '%s' "$err" >&2
exit "$code"
"""


class FailedError(Exception):
    """A program ends with this code and this text on standard error."""

    def __init__(self, text, code=1):
        super().__init__(text)
        self.code = code


def option(words, name, default=None):
    return words[words.index(name) + 1] if name in words else default


class FakeFleet:
    """The world; tests set its attributes, and read `calls` afterwards."""

    def __init__(self, root, images):
        self.root = root
        self.images = dict(images)
        self.dangling = []
        # What an image does: start, verify, npu_smi (a line of failure), flags, flags_why, serve (empty, down), deep
        # (lines that the deep verification prints), built_for (a device type).
        self.does = {}
        self.containers = []
        self.units = {}
        self.logs = {}
        self.transients = {}
        self.executed = []
        self.calls = []
        # What containers got on standard input.
        self.inputs = []
        # Seconds that a call takes longer, by its first words ("systemctl start").
        self.delays = {}
        # What `docker run` says instead of running anything.
        self.refuses = ""
        self.refuses_detached = ""
        self.top = []
        # The modes of the files that `docker run -d --env-file` got.
        self.env_file_modes = []
        self.lock = threading.RLock()
        self._serial = 0
        self._server = _Server(self)

    def close(self):
        self._server.close()
        for process in self.transients.values():
            with contextlib.suppress(OSError):
                process.kill()
            process.wait()

    def write_programs(self, folder):
        for name in NAMES:
            (folder / name).write_text(PROGRAM.format(port=self._server.port), encoding="utf-8")
            (folder / name).chmod(0o755)

    def answer(self, argv, stdin):
        """(code, standard output, standard error) of a call."""
        with self.lock:
            self.calls.append(argv)
            try:
                out = getattr(self, argv[0].replace("-", "_"))(argv[1:], stdin)
                result = (0, out or "", "")
            except FailedError as failure:
                result = (failure.code, "", f"{failure}\n")
        time.sleep(self.delays.get(" ".join(argv[:2]), 0))
        return result

    # -- docker ----------------------------------------------------------------------------------------------------

    def image_id(self, reference):
        known = reference in self.images.values() or reference in self.dangling
        return reference if known else self.images.get(reference)

    def find(self, name):
        found = [one for one in self.containers if name in (one["Id"], one["Name"].lstrip("/"))]
        return found[0] if found else None

    def create(self, name, image, labels, devices, **host):
        self._serial += 1
        devices = [{"PathOnHost": one, "PathInContainer": one, "CgroupPermissions": "rwm"} for one in devices]
        settings = {
            "Devices": devices,
            "AutoRemove": False,
            "RestartPolicy": {"Name": "no", "MaximumRetryCount": 0},
            "NetworkMode": "default",
        }
        settings.update(host)
        container = {
            "Id": f"c{self._serial:063d}",
            "Name": "/" + name,
            "Image": self.image_id(image),
            "Path": "bash",
            "Args": [],
            "Config": {"Image": image, "Labels": labels, "Env": [], "Cmd": ["bash"], "Entrypoint": None},
            "State": {"Running": True, "Pid": 1},
            "HostConfig": settings,
            "NetworkSettings": {"Networks": {"bridge": {"IPAddress": "127.0.0.1"}}},
        }
        self.containers.append(container)
        return container

    def holder(self, devices):
        for container in self.containers:
            used = {device["PathOnHost"] for device in container["HostConfig"]["Devices"]}
            if container["State"]["Running"] and used & set(devices):
                return container["Name"].lstrip("/")
        return None

    def docker(self, words, stdin):
        verb, rest = words[0], words[1:]
        if verb in ("image", "container") and rest[0] == "inspect":
            return self._inspect(verb, rest[1:])
        if verb == "run":
            return self._run(rest, stdin)
        if verb == "ps":
            return self._ps(rest)
        if verb == "tag":
            self.images[rest[1]] = self.image_id(rest[0])
            return None
        if verb == "exec":
            return self._exec(rest, stdin)
        container = self.find(rest[0] if verb in ("rename", "top") else rest[-1])
        if container is None:
            raise FailedError("Error response from daemon: No such container: " + rest[-1])
        if verb == "rm" or (verb in ("stop", "kill") and container["HostConfig"]["AutoRemove"]):
            self.containers.remove(container)
        elif verb in ("stop", "kill"):
            container["State"].update(Running=False, Pid=0)
        elif verb == "start":
            container["State"].update(Running=True, Pid=1)
        elif verb == "rename":
            container["Name"] = "/" + rest[1]
        elif verb == "update":
            container["HostConfig"]["RestartPolicy"]["Name"] = option(rest, "--restart")
        elif verb == "top":
            return "PID PPID\n1 0\n" + "".join(f"{pid} 1\n" for pid in self.top)
        else:
            raise FailedError("the fake docker does not know " + " ".join(words), 64)
        return None

    def _inspect(self, what, rest):
        name = rest[-1]
        found = self.find(name)
        if what == "image":
            found = {"Id": self.image_id(name), "Config": {}} if self.image_id(name) else None
        if found is None:
            raise FailedError(f"Error response from daemon: No such {what}: {name}")
        if "--format" not in rest:
            return json.dumps([found])
        return (found["Id"] if what == "image" else found["Config"]["Labels"].get(LABEL, "")) + "\n"

    def _ps(self, rest):
        wanted = option(rest, "--filter")
        lines = []
        for container in self.containers:
            label = f"label={LABEL}={container['Config']['Labels'].get(LABEL)}"
            if (container["State"]["Running"] or "--all" in rest) and wanted in (None, label):
                lines.append(container["Id"] + "\n")
        return "".join(lines)

    def _exec(self, rest, stdin):
        self.executed.append(rest)
        if rest[0] == "-d":
            return None
        container = self.find(rest[1])
        return self._command(rest, stdin, container["Image"], None)

    def _run(self, rest, stdin):
        devices = [rest[n + 1] for n, word in enumerate(rest) if word == "--device"]
        name = option(rest, "--name")
        if self.find(name):
            raise FailedError("docker: Error response from daemon: Conflict. The container name is in use.", 125)
        image = next(word for word in rest if self.image_id(word))
        if "-d" in rest and self.refuses_detached:
            raise FailedError(self.refuses_detached, 125)
        if "-d" in rest:
            devices = [device.split(":")[0] for device in devices]
            made = self.create(name, image, {}, devices, AutoRemove="--rm" in rest)
            path = option(rest, "--env-file")
            if path:
                self.env_file_modes.append(os.stat(path).st_mode & 0o777)
                with open(path, encoding="utf-8") as stream:
                    made["Config"]["Env"] = stream.read().splitlines()
            return None
        if self.refuses:
            raise FailedError(self.refuses, 125)
        return self._command(rest, stdin, self.image_id(image), self.holder(devices))

    def _command(self, rest, stdin, image, held):
        does = self.does.get(image, {})
        self.inputs.append(stdin)
        if rest[-2:] == ["npu-smi", "info"]:
            if does.get("npu_smi"):
                raise FailedError(does["npu_smi"], 2)
            return "| npu-smi 26.0.rc1 |\n"
        if "make_arg_parser" in stdin:
            found = {"vllm": "0.23.0", "flags": does.get("flags", "accepted"), "why": does.get("flags_why", "")}
            found["build"] = {"device_type": does.get("built_for", "A2")}
            return "INFO noise\nvllm-ascend-preflight " + json.dumps(found) + "\n"
        if held:
            raise FailedError("RuntimeError: drvErr -8020: device is used by " + held)
        if does.get("verify"):
            trace = 'Traceback (most recent call last):\n  File "<stdin>", line 4\nAssertionError: '
            raise FailedError(trace + does["verify"])
        said = 'vLLM Ascend environment: OK\nvllm-ascend-evidence {"plugins": ["ascend"], "npus": 1}\n'
        return said + "".join(does.get("deep", [])) if "def deep(" in stdin else said

    # -- systemd ---------------------------------------------------------------------------------------------------

    def unit(self, name):
        fresh = {"active": "inactive", "sub": "dead", "enabled": "disabled", "loaded": None}
        return self.units.setdefault(name, fresh)

    def _text(self, name):
        path = self.root / "etc/systemd/system" / name
        return path.read_text(encoding="utf-8") if path.is_file() else None

    def systemctl(self, words, _stdin):
        verb, name = words[0], words[-1]
        if "--property=InvocationID" in words:
            return f"invocation-of-{name}\n"
        if verb == "show":
            unit, there = self.unit(name), self._text(name) is not None
            load = "loaded" if there or unit["active"] != "inactive" else "not-found"
            enabled = unit["enabled"] if there else ""
            return (
                f"Id={name}\nLoadState={load}\nActiveState={unit['active']}\nSubState={unit['sub']}\n"
                f"UnitFileState={enabled}\nNRestarts=0\nResult=success\nMainPID=0\n"
            )
        if verb == "is-active":
            process = self.transients.get(name)
            return "active\n" if process is not None and process.poll() is None else "inactive\n"
        if verb == "daemon-reload":
            for known in set(self.units) | set(os.listdir(str(self.root / "etc/systemd/system"))):
                if known.endswith(".service"):
                    self.unit(known)["loaded"] = self._text(known)
        elif verb in ("enable", "disable"):
            if self._text(name) is None:
                raise FailedError(f"Failed to {verb} unit: Unit file {name} does not exist.")
            self.unit(name)["enabled"] = verb + "d"
        elif verb == "start":
            self._start(name)
        elif verb == "stop":
            self._stop(name)
        elif verb == "restart":
            self._stop(name)
            self._start(name)
        elif verb != "reset-failed":
            raise FailedError("the fake systemctl does not know " + verb, 64)
        return None

    def _stop(self, name):
        container = self.find(name[: -len(".service")])
        if container and container["Config"]["Labels"].get(LABEL):
            self.containers.remove(container)
        self.unit(name).update(active="inactive", sub="dead")

    def _start(self, name):
        """Start what is loaded: its line `# fake {...}` names container, image, devices, model and environment."""
        unit = self.unit(name)
        if unit["loaded"] is None:
            raise FailedError(f"Failed to start {name}: Unit {name} not found.", 5)
        if unit["active"] == "active":
            return
        spec = json.loads(next(line for line in unit["loaded"].splitlines() if line.startswith("# fake "))[7:])
        image, held = self.image_id(spec["image"]), self.holder(spec["devices"])
        reason = self.does.get(image, {}).get("start")
        if image is None:
            reason = f"vllm-ascend pre-start: image {spec['image']} is not on this host"
        elif self.find(spec["container"]):
            reason = f"vllm-ascend pre-start: a container {spec['container']} exists"
        elif held:
            reason = f"RuntimeError: drvErr -8020: device is used by {held}"
        if reason:
            self.logs.setdefault(name, []).extend([reason, "Failed to start " + name])
            unit.update(active="activating", sub="auto-restart")
            raise FailedError(f"Job for {name} failed because the control process exited with error code.")
        container = self.create(spec["container"], spec["image"], {LABEL: spec["instance"]}, spec["devices"])
        container["serves"] = {"model": spec["model"], "key": self._key(spec["env_file"])}
        unit.update(active="active", sub="running")

    def _key(self, env_file):
        if not env_file:
            return None
        lines = (self.root / env_file.lstrip("/")).read_text(encoding="utf-8").splitlines()
        return dict(line.split("=", 1) for line in lines).get("VLLM_API_KEY")

    def systemd_run(self, words, _stdin):
        name = next(word for word in words if word.startswith("--unit="))[len("--unit=") :]
        command = words[next(n for n, word in enumerate(words) if not word.startswith("--")) :]
        old = self.transients.get(name)
        if old is not None and old.poll() is None:
            raise FailedError(f"Failed to start transient service unit: Unit {name} already exists.")
        quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self.transients[name] = subprocess.Popen(command, start_new_session=True, **quiet)

    def journalctl(self, words, _stdin):
        unit = option(words, "--unit") or words[-1].replace("INVOCATION_ID=invocation-of-", "")
        return "".join(line + "\n" for line in self.logs.get(unit, []))


class _Server:
    """Answers the programs."""

    def __init__(self, world):
        class Handler(socketserver.StreamRequestHandler):
            def handle(self):
                count = int(self._next()) + 1
                argv = [self._next() for _ in range(count)]
                for part in world.answer(argv, self._next()):
                    self.wfile.write(str(part).encode("utf-8") + b"\0")

            def _next(self):
                found = b""
                while not found.endswith(b"\0"):
                    byte = self.rfile.read(1)
                    if not byte:
                        raise EOFError("a program ended in the middle of its call")
                    found += byte
                return found[:-1].decode("utf-8")

        class Server(socketserver.ThreadingTCPServer):
            allow_reuse_address = True
            daemon_threads = True

            def handle_error(self, request, client_address):
                """A program that was killed in the middle of its call is what these tests are about."""

        self._server = Server(("127.0.0.1", 0), Handler)
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def close(self):
        self._server.shutdown()
        self._server.server_close()
