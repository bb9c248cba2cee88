"""A container that somebody started by hand gives way, and comes back when the transaction fails."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time

import pytest
from ansible_collections.vllm_ascend.fleet.plugins.module_utils import adoption

from tests.unit.support.fleet_rig import DEVICE, NEW_IMAGE, OLD, OLD_IMAGE, FleetRig

# A test run in a shell's background inherits an ignored SIGINT.
SERVER = """\
import pathlib, signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)
pathlib.Path(__file__).with_name("ready").touch()
try:
    time.sleep(120)
except KeyboardInterrupt:
    pathlib.Path(__file__).with_name("interrupted").touch()
"""


@pytest.fixture
def rig(tmp_path, monkeypatch):
    made = FleetRig(tmp_path, monkeypatch)
    yield made
    made.close()


def by_hand(rig, **host):
    """A container as the quick start starts it, under the name of ours."""
    return rig.world.create("vllm-ascend", OLD, {}, [DEVICE], **host)


@pytest.fixture
def server(rig, tmp_path):
    """A process of this test that looks like `vllm serve` in the container: (its argv, its folder)."""
    folder = tmp_path / "server"
    folder.mkdir()
    (folder / "vllm").write_text(SERVER, encoding="utf-8")
    argv = [sys.executable, str(folder / "vllm"), "serve", "Qwen/Qwen3-0.6B", "--dtype", "float16"]
    process = subprocess.Popen(argv)
    # As the container's first process does, so that no zombie stands for a living process.
    threading.Thread(target=process.wait, daemon=True).start()
    rig.world.top += [os.getpid(), process.pid]
    deadline = time.monotonic() + 30
    while not (folder / "ready").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    yield argv, folder
    process.kill()


def test_without_permission_it_is_named_and_left_alone(rig):
    container = by_hand(rig)
    result = rig.apply(rig.plan())
    assert (result["ok"], result["outcome"], result["failure"]["step"]) == (False, "refused", "prepare")
    assert "vllm-ascend was started by hand" in result["failure"]["message"]
    assert rig.world.containers == [container]
    assert container["State"]["Running"] is True


def test_it_is_kept_stopped_under_another_name(rig):
    container = by_hand(rig, RestartPolicy={"Name": "always", "MaximumRetryCount": 0})
    plan = rig.plan()
    result = rig.apply(plan, adopt=True)
    assert result["ok"] is True
    assert rig.serves(plan)
    assert container["Name"] == "/vllm-ascend-adopted"
    assert container["State"]["Running"] is False
    # A restart of the engine must not bring it back beside ours.
    assert container["HostConfig"]["RestartPolicy"]["Name"] == "no"
    assert "kept as vllm-ascend-adopted" in result["evidence"]["adopted"]


def test_one_that_was_adopted_earlier_keeps_its_name(rig):
    rig.world.create("vllm-ascend-adopted", OLD, {}, [])["State"].update(Running=False)
    by_hand(rig)
    assert rig.apply(rig.plan(), adopt=True)["ok"] is True
    names = sorted(one["Name"] for one in rig.world.containers)
    assert names == ["/vllm-ascend", "/vllm-ascend-adopted", "/vllm-ascend-adopted-2"]


@pytest.mark.parametrize("step", ["adopt", "stop", "verify", "write", "enable", "start", "prove", "commit"])
def test_a_rollback_starts_it_again_under_its_name(rig, step):
    container = by_hand(rig, RestartPolicy={"Name": "on-failure", "MaximumRetryCount": 3})
    rig.fault(step, "fail", "after")
    result = rig.apply(rig.plan(), adopt=True)
    assert (result["ok"], result["outcome"]) == (False, "rolled_back")
    assert rig.running() == {"vllm-ascend": OLD_IMAGE}
    assert container["HostConfig"]["RestartPolicy"]["Name"] == "on-failure:3"
    assert any("runs again" in note for note in result["evidence"]["rollback"]["notes"])


def test_one_that_was_stopped_stays_stopped_after_a_rollback(rig):
    container = by_hand(rig)
    container["State"].update(Running=False)
    rig.does(NEW_IMAGE, start="Error: broken")
    assert rig.apply(rig.plan(), adopt=True)["outcome"] == "rolled_back"
    assert (container["Name"], container["State"]["Running"]) == ("/vllm-ascend", False)


def test_one_started_with_rm_is_made_again_by_a_rollback(rig):
    """As the quick start starts it: `docker run --rm … bash`, which is gone once it stops."""
    by_hand(rig, AutoRemove=True)
    rig.does(NEW_IMAGE, start="Error: broken")
    result = rig.apply(rig.plan(), adopt=True)
    assert result["outcome"] == "rolled_back"
    assert rig.running() == {"vllm-ascend": OLD_IMAGE}
    again = rig.world.find("vllm-ascend")
    assert again["HostConfig"]["AutoRemove"] is True
    assert again["HostConfig"]["Devices"][0]["PathOnHost"] == DEVICE
    assert "recreate" in rig.journal()["adopted"]
    assert rig.journal()["adopted"]["recreate"] is None


def test_the_server_that_ran_in_its_shell_is_interrupted_and_started_again(rig, server):
    argv, folder = server
    by_hand(rig)
    rig.does(NEW_IMAGE, start="Error: broken")
    assert rig.apply(rig.plan(), adopt=True)["outcome"] == "rolled_back"
    (started,) = [words for words in rig.world.executed if words[0] == "-d"]
    assert started[2:] == ["bash", "-ic", 'exec "$@"', "--", *argv]
    assert (folder / "interrupted").exists()
    # The shell itself ignores SIGTERM: a long wait for it would only be an outage.
    assert rig.calls("docker", "stop")[0][2:4] == ["-t", "2"]


def test_a_container_that_runs_the_server_itself_gets_no_second_one(rig, server):
    _argv, folder = server
    container = by_hand(rig)
    container.update(Path="vllm", Args=["serve", "Qwen/Qwen3-0.6B"])
    rig.does(NEW_IMAGE, start="Error: broken")
    assert rig.apply(rig.plan(), adopt=True)["outcome"] == "rolled_back"
    assert rig.world.executed == []
    assert not (folder / "interrupted").exists()
    assert rig.calls("docker", "stop")[0][2:4] == ["-t", "60"]


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("step", ["adopt", "verify", "start"])
@pytest.mark.parametrize("removed", [False, True])
def test_after_kill_9_the_next_run_knows_what_it_had_adopted(rig, step, when, removed):
    by_hand(rig, AutoRemove=removed)
    rig.fault(step, "kill", when)
    assert rig.killed(lambda: rig.apply(rig.plan(), adopt=True))
    rig.does(NEW_IMAGE, start="Error: broken")
    assert rig.apply(rig.plan(), adopt=True)["ok"] is False
    assert rig.running() == {"vllm-ascend": OLD_IMAGE}


def test_a_container_of_ours_is_nothing_to_adopt(rig):
    rig.apply(rig.plan())
    assert adoption.foreign(rig.host, "ascend") is None
    assert adoption.foreign(rig.host, "other") is None


def test_the_settings_of_docker_inspect_become_a_docker_run():
    inspect = {
        "Id": "abc",
        "Name": "/vllm-ascend",
        "Image": OLD_IMAGE,
        "Config": {
            "OpenStdin": True,
            "Tty": True,
            "Env": ["PATH=/usr/bin", "VLLM_USE_MODELSCOPE=True"],
            "Labels": {"maintainer": "ascend", "rack": "7"},
            "Entrypoint": ["/entry.sh", "-x"],
            "Cmd": ["bash"],
            "WorkingDir": "/workspace",
            "User": "",
        },
        "HostConfig": {
            "Privileged": True,
            "NetworkMode": "host",
            "ShmSize": 1073741824,
            "IpcMode": "private",
            "Runtime": "runc",
            "Devices": [{"PathOnHost": DEVICE, "PathInContainer": DEVICE, "CgroupPermissions": "rwm"}],
            "Binds": ["/usr/local/dcmi:/usr/local/dcmi", "/root/.cache:/root/.cache:ro"],
            "Mounts": [{"Type": "bind", "Source": "/models", "Target": "/models", "ReadOnly": True}],
            "PortBindings": {"8000/tcp": [{"HostIp": "127.0.0.1", "HostPort": "8001"}]},
            "CapAdd": ["SYS_PTRACE"],
            "SecurityOpt": None,
        },
    }
    image = {"Env": ["PATH=/usr/bin"], "Labels": {"maintainer": "ascend"}, "Entrypoint": ["/other.sh"]}
    argv = adoption.recreate_argv(inspect, image)
    assert argv == [
        *("docker", "run", "-d", "--rm", "--name", "vllm-ascend", "--interactive", "--tty", "--privileged"),
        *("--network", "host", "--shm-size", "1073741824", "--device", f"{DEVICE}:{DEVICE}:rwm"),
        *("--volume", "/usr/local/dcmi:/usr/local/dcmi", "--volume", "/root/.cache:/root/.cache:ro"),
        *("--mount", "type=bind,source=/models,target=/models,readonly", "--publish", "127.0.0.1:8001:8000/tcp"),
        *("--cap-add", "SYS_PTRACE", "--label", "rack=7"),
        *("--workdir", "/workspace", "--entrypoint", "/entry.sh", OLD_IMAGE, "-x", "bash"),
    ]
    assert adoption.environment(inspect, image) == ["VLLM_USE_MODELSCOPE=True"]


# -- its secrets -----------------------------------------------------------------------------------------------------

SECRET, TOKEN = "sk-by-hand-1234", "hf-by-hand-1234"


def test_the_environment_of_one_that_is_made_again_goes_by_a_file_for_root_that_is_gone_afterwards(rig):
    by_hand(rig, AutoRemove=True)["Config"]["Env"] = [f"HF_TOKEN={TOKEN}", "VLLM_USE_MODELSCOPE=True"]
    rig.does(NEW_IMAGE, start="Error: broken")
    result = rig.apply(rig.plan(), adopt=True)
    assert result["outcome"] == "rolled_back"
    again = rig.world.find("vllm-ascend")
    assert again["Config"]["Env"] == [f"HF_TOKEN={TOKEN}", "VLLM_USE_MODELSCOPE=True"]
    assert rig.world.env_file_modes == [0o600]
    assert TOKEN not in json.dumps(rig.world.calls) + json.dumps(result) + json.dumps(rig.journal())
    assert [name for name in os.listdir(rig.host.state("ascend")) if name.endswith(".env")] == []


def test_an_engine_that_repeats_the_environment_or_the_key_does_not_tell_it(rig):
    container = by_hand(rig, AutoRemove=True)
    container["Config"].update(Env=[f"HF_TOKEN={TOKEN}"], Cmd=["vllm", "serve", "x", "--api-key", SECRET])
    rig.fault("start", "fail")
    rig.world.refuses_detached = f"Error response from daemon: bad value {TOKEN} {SECRET}"
    result = rig.apply(rig.plan(), adopt=True)
    assert result["outcome"] == "rollback_failed"
    (error,) = result["evidence"]["rollback"]["errors"]
    assert "rollback_adopted: docker run -d: exit 125" in error and "bad value ******** ********" in error
    assert not any(word in json.dumps(result) for word in (TOKEN, SECRET))
    assert not os.path.exists(rig.host.state("ascend", "adopted.env"))


def test_the_key_of_a_server_that_is_started_again_is_not_told(rig, server, monkeypatch):
    argv, _folder = server
    monkeypatch.setattr(adoption, "_server_command", lambda _host, _inspect: [*argv, "--api-key", SECRET])
    by_hand(rig)
    rig.does(NEW_IMAGE, start="Error: broken")
    result = rig.apply(rig.plan(), adopt=True)
    assert [words[-1] for words in rig.world.executed if words[0] == "-d"] == [SECRET]
    (note,) = result["evidence"]["rollback"]["notes"]
    assert note.endswith("--dtype float16 --api-key ********")
    assert SECRET not in json.dumps(result) + json.dumps(rig.journal())


@pytest.mark.parametrize(
    ("words", "seen"),
    [
        (["vllm", "serve", "m", "--api-key", "K", "--port", "1"], "vllm serve m --api-key ******** --port 1"),
        (["vllm", "serve", "m", "--api-key", "K", "L", "--x"], "vllm serve m --api-key ******** ******** --x"),
        (["vllm", "serve", "m", "--api-key=K", "--dtype=half"], "vllm serve m --api-key=******** --dtype=half"),
        (["env", "HF_TOKEN=K", "vllm", "serve"], "env HF_TOKEN=******** vllm serve"),
    ],
)
def test_an_argv_is_shown_without_its_secrets(words, seen):
    assert " ".join(adoption.shown(words)) == seen


def test_a_value_with_a_line_break_comes_back_too(rig, monkeypatch):
    asked = []
    ask = type(rig.host).ask_docker
    monkeypatch.setattr(
        type(rig.host), "ask_docker", lambda *a, **k: asked.append((a[1], k.get("env"))) or ask(*a, **k)
    )
    by_hand(rig, AutoRemove=True)["Config"]["Env"] = ["CERT=one\ntwo", "A=b"]
    rig.fault("start", "fail")
    assert rig.apply(rig.plan(), adopt=True)["outcome"] == "rolled_back"
    ((words, env),) = [one for one in asked if "--env-file" in one[0]]
    assert env == {"CERT": "one\ntwo"}
    assert words[words.index("--env") + 1] == "CERT"


@pytest.mark.parametrize("removed", [False, True])
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("step", ["rollback_adopted", "close"])
def test_after_kill_9_of_its_rollback_it_can_be_adopted_again(rig, step, when, removed):
    by_hand(rig, AutoRemove=removed)
    rig.does(NEW_IMAGE, start="Error: broken")
    rig.fault(step, "kill", when)
    assert rig.killed(lambda: rig.apply(rig.plan(), adopt=True))
    rig.does(NEW_IMAGE)
    plan = rig.plan()
    assert rig.apply(plan, adopt=True)["ok"] is True
    assert rig.serves(plan)
