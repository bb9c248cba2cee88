"""The outer Docker engine: the one that runs, else one that the rack starts, and stops again by its process id."""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator

import docker
from docker.errors import DockerException

from .settings import HERE, MACHINE_RUN, MACHINE_STATE, LabError, say

SOCKET = MACHINE_RUN / "docker.sock"
PID_FILE = MACHINE_RUN / "docker.pid"
LOG = MACHINE_RUN / "dockerd.log"
WRAPPER = HERE / "host" / "runtime-without-sys-resource"
WRAPPER_NAME = "without-sys-resource"
CAP_SYS_RESOURCE = 24
# Program that an engine of our own needs → Debian package that has it.
ENGINE_PROGRAMS = {"dockerd": "docker.io", "iptables": "iptables"}
PATH = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
START_LIMIT_S = 60
STOP_LIMIT_S = 60
# systemd in each host takes some; 128 is the kernel's default.
INOTIFY_INSTANCES = 1024


def lacks_sys_resource(status: str = "/proc/self/status") -> bool:
    """Whether this machine's capability bounding set is without CAP_SYS_RESOURCE."""
    for line in pathlib.Path(status).read_text(encoding="ascii").splitlines():
        if line.startswith("CapBnd:"):
            return not int(line.split()[1], 16) >> CAP_SYS_RESOURCE & 1
    return False


def connect() -> docker.DockerClient | None:
    """The running engine: DOCKER_HOST or the default socket, else the one that the rack started; None without any."""
    for base_url in (None, f"unix://{SOCKET}"):
        if base_url and not SOCKET.exists():
            continue
        with contextlib.suppress(DockerException):
            client = docker.DockerClient(base_url, timeout=600) if base_url else docker.from_env(timeout=600)
            # A local socket needs no proxies, and looking for them reads the environment, which threads may not.
            client.api.trust_env = False
            client.ping()
            return client
    return None


def left_over() -> bool:
    """Whether an engine of the rack once ran here, does not run now, and left its data behind."""
    return (MACHINE_STATE / "docker").exists() and connect() is None


def require() -> docker.DockerClient:
    """The running engine, or LabError."""
    client = connect()
    if client is None:
        raise LabError("no Docker engine runs; `make lab` (python -m tests.lab up) starts one")
    return client


def ensure() -> docker.DockerClient:
    """The running engine; as root one is installed and started where there is none. Raises LabError."""
    client = connect()
    if client is None:
        _install_and_start()
        client = connect()
        if client is None:
            raise LabError(f"dockerd was started but does not answer on {SOCKET}; see {LOG}")
    if lacks_sys_resource() and WRAPPER_NAME not in client.info().get("Runtimes", {}):
        raise LabError(
            "this machine lacks CAP_SYS_RESOURCE and its Docker engine has no runtime that copes with it; add to "
            f'/etc/docker/daemon.json: {{"runtimes": {{"{WRAPPER_NAME}": {{"path": "{WRAPPER}"}}}}, '
            f'"default-runtime": "{WRAPPER_NAME}"}} and restart the engine, or stop it: the rack then starts its own'
        )
    return client


def environment() -> dict[str, str]:
    """What the docker command line needs to reach the engine that the rack uses."""
    return {"DOCKER_HOST": f"unix://{SOCKET}"} if _our_pid() else {}


def need(programs: dict[str, str]) -> None:
    """Install the Debian packages (program → package) of programs that are missing. Raises LabError."""
    packages = sorted({package for name, package in programs.items() if not shutil.which(name, path=PATH)})
    if not packages:
        return
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        raise LabError(f"missing on this machine (install them, or run this as root on Debian or Ubuntu): {packages}")
    say(f"installing {', '.join(packages)}")
    # The packages start no service of their own: the rack starts its own dockerd, and stops it.
    with _no_service_starts():
        for argv in (
            ["apt-get", "update", "-qq"],
            ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *packages],
        ):
            done = subprocess.run(
                argv,
                env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
                capture_output=True,
                text=True,
                timeout=900,
            )
            if done.returncode and argv[1] == "install":
                raise LabError(f"{' '.join(argv)} failed: {done.stderr.strip() or done.stdout.strip()}")


@contextlib.contextmanager
def _no_service_starts() -> Iterator[None]:
    """Debian's own switch (policy-rc.d, exit 101) against services started by an installation."""
    policy = pathlib.Path("/usr/sbin/policy-rc.d")
    if policy.exists():
        yield
        return
    policy.write_text("#!/bin/sh\nexit 101\n", encoding="ascii")
    policy.chmod(0o755)
    try:
        yield
    finally:
        policy.unlink()


def _install_and_start() -> None:
    if os.geteuid() != 0:
        raise LabError(
            "no Docker engine answers and this is not root. Start one that you may use (DOCKER_HOST or "
            "/var/run/docker.sock), or run this as root, which installs and starts one"
        )
    need(ENGINE_PROGRAMS)
    start()


def start() -> None:
    """Start dockerd with its own data, socket, process-id file and log. Raises LabError."""
    MACHINE_RUN.mkdir(parents=True, exist_ok=True)
    MACHINE_STATE.mkdir(parents=True, exist_ok=True)
    _raise_inotify_limit()
    if _our_pid() is None:
        # Left behind by one that was killed; dockerd does not start while that number is any process.
        PID_FILE.unlink(missing_ok=True)
    argv = [
        "dockerd",
        f"--host=unix://{SOCKET}",
        f"--pidfile={PID_FILE}",
        f"--data-root={MACHINE_STATE / 'docker'}",
        f"--exec-root={MACHINE_RUN / 'exec'}",
        "--log-level=warn",
    ]
    if lacks_sys_resource():
        argv += [f"--add-runtime={WRAPPER_NAME}={_stable_wrapper()}", f"--default-runtime={WRAPPER_NAME}"]
    say(f"starting dockerd (log: {LOG})")
    with LOG.open("ab") as log:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            cwd="/",
            env={**os.environ, "PATH": PATH},
        )
    deadline = time.monotonic() + START_LIMIT_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            break
        if SOCKET.exists() and connect() is not None:
            return
        time.sleep(0.2)
    tail = LOG.read_text(encoding="utf-8", errors="replace").splitlines()[-5:]
    raise LabError("dockerd does not start; its log ends with:\n" + "\n".join(tail))


def _stable_wrapper() -> pathlib.Path:
    """The wrapper copied to where it outlives this checkout: running containers refer to it."""
    target = MACHINE_STATE / WRAPPER.name
    shutil.copy2(WRAPPER, target)
    return target


def _raise_inotify_limit() -> None:
    limit = pathlib.Path("/proc/sys/fs/inotify/max_user_instances")
    if int(limit.read_text(encoding="ascii")) < INOTIFY_INSTANCES:
        limit.write_text(str(INOTIFY_INSTANCES), encoding="ascii")


def _our_pid() -> int | None:
    """Process id of the dockerd that the rack started, while it is one."""
    try:
        pid = int(PID_FILE.read_text(encoding="ascii"))
        status = pathlib.Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    except (OSError, ValueError):
        return None
    # A killed one whose parent does not care stays as a zombie.
    ours = re.search(r"^Name:\s+dockerd$", status, re.MULTILINE) and not re.search(
        r"^State:\s+[ZX]", status, re.MULTILINE
    )
    return pid if ours else None


def stop() -> bool:
    """Stop the dockerd that the rack started, by its process id; False when there is none. Raises LabError."""
    pid = _our_pid()
    if pid is None:
        return False
    os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + STOP_LIMIT_S
    while _our_pid() == pid:
        if time.monotonic() > deadline:
            raise LabError(f"dockerd (process {pid}) does not end within {STOP_LIMIT_S} s of SIGTERM; see {LOG}")
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
        time.sleep(0.2)
    return True


def wipe() -> None:
    """Remove the data of the engine that the rack had started; it must not run any more."""
    mounts = [line.split()[4] for line in pathlib.Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()]
    for folder in (MACHINE_STATE, MACHINE_RUN):
        # One that was killed leaves mounts behind; the innermost go first.
        for mount in sorted((path for path in mounts if path.startswith(f"{folder}/")), key=len, reverse=True):
            subprocess.run(["umount", mount], capture_output=True, timeout=60, check=False)
        shutil.rmtree(folder, ignore_errors=True)
