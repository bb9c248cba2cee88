"""docker, systemctl, systemd-run and journalctl of a fake host, by the name that this program is called with.

Their world is one JSON file (FAKE_WORLD): images, containers, units, and what each image does. It keeps the rules that
the transaction lives by: a chip serves one container at a time, systemd starts what it has loaded (daemon-reload), a
start waits for the gate, an image reference can move.
"""

import fcntl
import json
import os
import subprocess
import sys
import time

WORLD = os.environ["FAKE_WORLD"]
LABEL = "vllm-ascend.instance"


def fail(text, code=1):
    sys.stderr.write(text + "\n")
    raise SystemExit(code)


def option(words, name, default=None):
    return words[words.index(name) + 1] if name in words else default


# -- docker ----------------------------------------------------------------------------------------------------------


def image_id(world, reference):
    known = world["images"]
    return reference if reference in known.values() or reference in world["dangling"] else known.get(reference)


def find(world, name):
    for container in world["containers"]:
        if name in (container["Id"], container["Name"].lstrip("/")):
            return container
    return None


def create(world, name, image, labels, devices, **more):
    world["serial"] += 1
    container = {
        "Id": "c%063d" % world["serial"],
        "Name": "/" + name,
        "Image": image_id(world, image),
        "Path": "bash",
        "Args": [],
        "Config": {"Image": image, "Labels": labels, "Env": [], "Cmd": ["bash"], "Entrypoint": None},
        "State": {"Running": True, "Pid": 1},
        "HostConfig": {
            "Devices": [{"PathOnHost": d, "PathInContainer": d, "CgroupPermissions": "rwm"} for d in devices],
            "AutoRemove": False,
            "RestartPolicy": {"Name": "no", "MaximumRetryCount": 0},
            "NetworkMode": "default",
        },
        "NetworkSettings": {"Networks": {"bridge": {"IPAddress": "127.0.0.1"}}},
    }
    container.update(more)
    world["containers"].append(container)
    return container


def holder(world, devices):
    for container in world["containers"]:
        used = {device["PathOnHost"] for device in container["HostConfig"]["Devices"]}
        if container["State"]["Running"] and used & set(devices):
            return container["Name"].lstrip("/")
    return None


def drop(world, container):
    world["containers"].remove(container)


def docker(world, words):
    verb, rest = words[0], words[1:]
    if verb in ("image", "container") and rest[0] == "inspect":
        return inspect(world, verb, rest[1:])
    if verb == "run":
        return docker_run(world, rest)
    if verb == "ps":
        label = option(rest, "--filter")
        for container in world["containers"]:
            ours = container["Config"]["Labels"].get(LABEL)
            running = container["State"]["Running"] or "--all" in rest
            if running and (label is None or label == f"label={LABEL}={ours}"):
                print(container["Id"])
        return 0
    if verb == "tag":
        world["images"][rest[1]] = image_id(world, rest[0])
        return 0
    container = find(world, rest[0] if verb in ("rename", "top") else rest[-1])
    if verb == "exec":
        world["executed"].append(rest)
        return 0
    if container is None:
        return fail("Error response from daemon: No such container: " + rest[-1])
    if verb == "rm":
        drop(world, container)
    elif verb in ("stop", "kill"):
        container["State"].update(Running=False, Pid=0)
        if container["HostConfig"]["AutoRemove"]:
            drop(world, container)
    elif verb == "start":
        container["State"].update(Running=True, Pid=1)
    elif verb == "rename":
        container["Name"] = "/" + rest[1]
    elif verb == "update":
        container["HostConfig"]["RestartPolicy"]["Name"] = option(rest, "--restart")
    elif verb == "top":
        print("PID PPID\n1 0\n" + "\n".join("%d 1" % pid for pid in world["top"]))
    else:
        return fail("fake docker does not know " + " ".join(words), 64)
    return 0


def inspect(world, what, rest):
    name = rest[-1]
    if what == "image":
        found = image_id(world, name)
        found = {"Id": found, "Config": {}} if found else None
    else:
        found = find(world, name)
    if found is None:
        fail(f"Error response from daemon: No such {what}: {name}")
    if "--format" in rest:
        print(found["Id"] if what == "image" else found["Config"]["Labels"].get(LABEL, ""))
    else:
        print(json.dumps([found]))
    return 0


def docker_run(world, rest):
    devices = [rest[n + 1] for n, word in enumerate(rest) if word == "--device"]
    name = option(rest, "--name")
    if find(world, name):
        fail("docker: Error response from daemon: Conflict. The container name is already in use.", 125)
    if "-d" in rest:
        image = next(word for word in rest if image_id(world, word))
        container = create(world, name, image, {}, devices)
        container["HostConfig"]["AutoRemove"] = "--rm" in rest
        return 0
    if world["docker_run"]:
        fail(world["docker_run"], 125)
    image = next(image_id(world, word) for word in rest if image_id(world, word))
    does = world["does"].get(image, {})
    if rest[-2:] == ["npu-smi", "info"]:
        if does.get("npu_smi"):
            fail(does["npu_smi"], 2)
        print("| npu-smi 26.0.rc1 |")
        return 0
    script = sys.stdin.read()
    if "make_arg_parser" in script:
        found = {"vllm": "0.23.0", "flags": does.get("flags", "accepted"), "why": does.get("flags_why", "")}
        print("INFO noise\nvllm-ascend-preflight " + json.dumps(found))
        return 0
    held = holder(world, devices)
    if held:
        fail("RuntimeError: drvErr -8020: device is used by " + held)
    if does.get("verify"):
        fail('Traceback (most recent call last):\n  File "<stdin>", line 4\nAssertionError: ' + does["verify"])
    print('vLLM Ascend environment: OK\nvllm-ascend-evidence {"plugins": ["ascend"], "npus": 1}')
    return 0


# -- systemctl -------------------------------------------------------------------------------------------------------


def unit_of(world, name):
    fresh = {"active": "inactive", "sub": "dead", "enabled": "disabled", "loaded": None}
    return world["units"].setdefault(name, fresh)


def unit_file(world, name):
    return os.path.join(world["root"], "etc/systemd/system", name)


def text_of(world, name):
    try:
        with open(unit_file(world, name)) as handle:
            return handle.read()
    except OSError:
        return None


def stop(world, name):
    unit = unit_of(world, name)
    container = find(world, name[: -len(".service")])
    if container and container["Config"]["Labels"].get(LABEL):
        drop(world, container)
    unit.update(active="inactive", sub="dead")


def start(world, name):
    """Start a unit as its text says: the line `# fake {...}` names container, image, device, port and environment."""
    unit = unit_of(world, name)
    if unit["loaded"] is None:
        fail(f"Failed to start {name}: Unit {name} not found.", 5)
    if unit["active"] == "active":
        return 0
    spec = json.loads(next(line for line in unit["loaded"].splitlines() if line.startswith("# fake "))[7:])
    log = world["logs"].setdefault(name, [])

    def give_up(text):
        log.extend([text, "Failed to start " + name])
        unit.update(active="activating", sub="auto-restart")
        fail(f"Job for {name} failed because the control process exited with error code.")

    image = image_id(world, spec["image"])
    if image is None:
        give_up("vllm-ascend pre-start: image {} is not on this host".format(spec["image"]))
    if find(world, spec["container"]):
        give_up("vllm-ascend pre-start: a container {} exists".format(spec["container"]))
    held = holder(world, spec["devices"])
    if held:
        give_up("RuntimeError: drvErr -8020: device is used by " + held)
    does = world["does"].get(image, {})
    if does.get("start"):
        give_up(does["start"])
    container = create(world, spec["container"], spec["image"], {LABEL: spec["instance"]}, spec["devices"])
    key = None
    if spec["env_file"]:
        with open(os.path.join(world["root"], spec["env_file"].lstrip("/"))) as handle:
            key = dict(line.rstrip("\n").split("=", 1) for line in handle).get("VLLM_API_KEY")
    container["serves"] = {"model": spec["model"], "key": key}
    unit.update(active="active", sub="running")
    return 0


def systemctl(world, words):
    verb, name = words[0], words[-1]
    if verb == "show":
        unit = unit_of(world, name)
        there = text_of(world, name) is not None
        load = "loaded" if there or unit["active"] != "inactive" else "not-found"
        print("Id={}\nLoadState={}\nActiveState={}\nSubState={}".format(name, load, unit["active"], unit["sub"]))
        print("UnitFileState={}\nNRestarts=0\nResult=success\nMainPID=0".format(unit["enabled"] if there else ""))
    elif verb == "is-active":
        pid = world["transients"].get(name)
        alive = pid is not None and os.path.exists("/proc/%d" % pid)
        print("active" if alive else "inactive")
        return 0 if alive else 3
    elif verb == "daemon-reload":
        for known in list(world["units"]) + os.listdir(os.path.join(world["root"], "etc/systemd/system")):
            if known.endswith(".service"):
                unit_of(world, known)["loaded"] = text_of(world, known)
    elif verb in ("enable", "disable"):
        if text_of(world, name) is None:
            fail(f"Failed to {verb} unit: Unit file {name} does not exist.")
        unit_of(world, name)["enabled"] = verb + "d"
    elif verb == "start":
        start(world, name)
    elif verb == "stop":
        stop(world, name)
    elif verb == "restart":
        stop(world, name)
        start(world, name)
    elif verb != "reset-failed":
        fail("fake systemctl does not know " + verb, 64)
    return 0


def systemd_run(world, words):
    name = next(word for word in words if word.startswith("--unit="))[len("--unit=") :]
    command = words[next(n for n, word in enumerate(words) if not word.startswith("--")) :]
    old = world["transients"].get(name)
    if old is not None and os.path.exists("/proc/%d" % old):
        fail(f"Failed to start transient service unit: Unit {name} already exists.")
    # Two forks, so that nobody has to wait for it: a process that has ended is gone.
    shell = 'import os, subprocess, sys\nprint(subprocess.Popen(sys.argv[1:], start_new_session=True, close_fds=True,'
    shell += ' stdin=subprocess.DEVNULL, stdout=open(os.devnull, "w"), stderr=subprocess.STDOUT).pid)'
    done = subprocess.run([sys.executable, "-c", shell, *command], stdout=subprocess.PIPE, check=True)
    world["transients"][name] = int(done.stdout)
    return 0


def journalctl(world, words):
    print("\n".join(world["logs"].get(option(words, "--unit"), [])))
    return 0


def main():
    program, words = os.path.basename(sys.argv[0]), sys.argv[1:]
    with open(WORLD, "r+") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        world = json.load(handle)
        world["calls"].append([program, *words])
        delay = world["delays"].get(" ".join([program, *words[:1]]))
        try:
            return globals()[program.replace("-", "_")](world, words)
        finally:
            handle.seek(0)
            handle.truncate()
            json.dump(world, handle)
            handle.flush()
            fcntl.flock(handle, fcntl.LOCK_UN)
            if delay:
                time.sleep(delay)


if __name__ == "__main__":
    sys.exit(main())
