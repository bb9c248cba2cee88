"""What a person checks on a host after a run: the service, the container against the documentation, an answer, a stop.

The openEuler hosts of the rack differ from the Ubuntu ones by /etc/os-release and paths only.
"""

from __future__ import annotations

import json
import pathlib

import pytest

testinfra_hosts = ["ansible://all:!bad"]

ROOT = pathlib.Path(__file__).resolve().parents[2]
SPECS = json.loads((ROOT / "tests/unit/data/documented_run_specs.json").read_text(encoding="utf-8"))["cases"]
GIB = 1 << 30
# The hosts' nodes and mounts that the documentation names "if present" for a real 950DT; see docs/hardware.md.
PRESENT_ON_950 = {"/dev/ummu", "/dev/uburma", "/etc/hccl_rootinfo.json"}
ABSENT_ON_950 = {"/dev/devmm_svm"}


@pytest.fixture
def variables(host):
    return host.ansible.get_variables()


@pytest.fixture
def spec(host, variables):
    """The documented run specification for this host's family and system."""
    family = next(group for group in variables["group_names"] if group.startswith("atlas_"))
    image_os = "openeuler" if "openeuler" in variables["inventory_hostname"] else "ubuntu"
    return next(case for case in SPECS if (case["family"], case["image_os"]) == (family, image_os))


def inspect(host):
    return json.loads(host.check_output("docker inspect vllm-ascend"))[0]


def test_unit_is_enabled_and_active(host):
    service = host.service("vllm-ascend")
    assert service.is_enabled and service.is_running


def test_container_is_the_documented_one(host, spec):
    container = inspect(host)
    config = container["HostConfig"]
    devices = {device["PathOnHost"] for device in config["Devices"]}
    mounts = {(mount["Source"], mount["Destination"]) for mount in container["Mounts"]}
    wanted_devices = set(spec["devices"])
    wanted_mounts = {(m["source"].replace("${MODEL_CACHE}", "/root/.cache"), m["target"]) for m in spec["mounts"]}
    if spec["family"] == "atlas_950dt":
        wanted_devices -= ABSENT_ON_950
        devices -= PRESENT_ON_950
        mounts = {mount for mount in mounts if mount[0] not in PRESENT_ON_950}
    assert container["Config"]["Image"] == spec["image"]
    assert devices == wanted_devices
    assert mounts == wanted_mounts
    assert config["ShmSize"] == int(spec["shm_size"][:-1]) * GIB
    assert config["Privileged"] is spec["privileged"]
    assert config["NetworkMode"] in ({"host"} if spec["network"] == "host" else {"default", "bridge"})
    published = [f"{b['HostPort']}:{port.split('/')[0]}" for port, bs in config["PortBindings"].items() for b in bs]
    assert published == spec["published_ports"]
    assert container["Config"]["Cmd"][4:] == spec["serve_args"]
    assert container["Config"]["StopSignal"] == "SIGINT"


def test_a_completion_is_answered(host):
    body = json.dumps({"model": "Qwen/Qwen3-0.6B", "prompt": "Beijing is a", "max_tokens": 5, "temperature": 0})
    reply = host.check_output(
        "curl --silent --fail --max-time 30 http://localhost:8000/v1/completions -H %s -d %s",
        "Content-Type: application/json",
        body,
    )
    assert json.loads(reply)["choices"][0]["text"].strip()


def test_a_shell_in_the_container_sees_the_npus(host):
    assert host.run("docker exec vllm-ascend bash -ic 'npu-smi info'").rc == 0


def test_logs_are_bounded_and_in_the_journal(host):
    log = inspect(host)["HostConfig"]["LogConfig"]
    assert log["Type"] == "json-file" and log["Config"]["max-size"] and log["Config"]["max-file"]
    assert "Application startup complete" in host.check_output("journalctl --unit vllm-ascend --output cat")


def test_nothing_is_left_of_the_transaction(host):
    assert host.check_output("docker ps --all --quiet --filter label=vllm-ascend.role=verify") == ""
    state = json.loads(host.file("/var/lib/vllm-ascend/ascend/committed.json").content_string)
    assert state["image_id"] == inspect(host)["Image"]
    assert host.file("/var/lib/vllm-ascend/ascend").mode == 0o700


def test_a_stop_is_graceful_and_a_start_waits_until_it_serves(host, variables):
    since = host.check_output("date '+%Y-%m-%d %H:%M:%S'")
    host.check_output("systemctl stop vllm-ascend")
    journal = host.check_output("journalctl --unit vllm-ascend --output cat --since %s", since)
    assert "Application shutdown complete" in journal
    assert host.check_output("docker ps --all --quiet --filter name=^vllm-ascend$") == ""
    host.check_output("systemctl start vllm-ascend")
    assert host.check_output("curl --silent --fail --max-time 30 http://localhost:8000/v1/models")
