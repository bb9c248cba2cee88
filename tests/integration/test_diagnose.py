"""diagnose.yml on a host whose instances fail in five ways at once."""

from __future__ import annotations

import time

import pytest
from ansible_collections.vllm_ascend.fleet.tests.integration.rack import ROOT, on, playbook, variables

pytestmark = pytest.mark.lab
HOST = "held-1"
INVENTORY = ROOT / "inventories/lab_odd"
IMAGE = "quay.io/ascend/vllm-ascend:v0.23.0"
LIB64 = "/usr/local/Ascend/driver/lib64"
MODELS = "/srv/models-to-break"
# The instance, what breaks it, the code that diagnose.yml must name first, and a word of what it says.
WAYS = {
    "flag": ("flag_unknown", "--max-num-seq-s"),
    "folder": ("mount_missing", f"{MODELS}/folder"),
    "held": ("npu_occupied", "-8020"),
    "model": ("model_folder_incomplete", "config.json"),
    "port": ("port_in_use", "8105"),
}
# Weights without a tensor: the length of the header, and an empty one.
WEIGHTS = r"printf '\002\0\0\0\0\0\0\0{}' > model.safetensors"
INSTANCES = [
    {"name": "flag", "port": 8101},
    {"name": "folder", "port": 8102, "model": f"{MODELS}/folder", "model_source": "local"},
    {"name": "held", "port": 8103},
    {"name": "model", "port": 8104, "model": f"{MODELS}/model", "model_source": "local"},
    {"name": "port", "port": 8105},
]


def play(name, **values):
    return playbook(
        f"playbooks/{name}.yml", "-i", str(INVENTORY), "--limit", HOST, *(variables(**values) if values else [])
    )


def clean():
    on(HOST, "docker rm -f trainer; systemctl stop holds-the-port", check=False)
    assert play("remove", vllm_instance_names=["ascend", *WAYS]).rc == 0
    on(HOST, "rm", "-rf", MODELS)


def unit(name):
    return f"vllm-{name}.service"


def wait_until_failed(names):
    """Wait until each unit has failed to start again: systemd then waits for its next try, or has given up."""
    deadline = time.monotonic() + 60
    waiting = set(names)
    while waiting and time.monotonic() < deadline:
        for name in sorted(waiting):
            show = on(HOST, "systemctl", "show", "--property=SubState,Result", unit(name))
            if "Result=success" not in show and ("auto-restart" in show or "failed" in show):
                waiting.discard(name)
        time.sleep(0.5)
    assert not waiting, on(HOST, "journalctl", "--no-pager", "--lines", "60", "--unit", unit(sorted(waiting)[0]))


@pytest.fixture(scope="module")
def broken():
    """What diagnose.yml prints of the host with every instance broken in its way."""
    clean()
    for name in ("folder", "model"):
        made = f"cd {MODELS}/{name} && echo '{{}}' | tee config.json tokenizer.json"
        on(HOST, f"mkdir -p {MODELS}/{name} && {made} && {WEIGHTS}")
    run = play("site", vllm_instances=INSTANCES, vllm_environment={"LAB_LOAD_S": "0.2"})
    assert run.rc == 0, run.text[-6000:]
    npu = next(i["npus"][0] for i in run.report(HOST)["plan"]["instances"] if i["name"] == "held")
    on(HOST, "systemctl", "stop", *(unit(name) for name in WAYS))
    on(HOST, "sed", "-i", "'s/vllm serve /vllm serve --max-num-seq-s 8 /'", f"/etc/systemd/system/{unit('flag')}")
    on(HOST, "rm", "-rf", f"{MODELS}/folder", f"{MODELS}/model/config.json")
    mount = f"--mount type=bind,source={LIB64},target={LIB64},readonly"
    lock = f"{LIB64}/.simulated-{npu.rsplit('/', 1)[1]} sleep infinity"
    on(HOST, f"docker run -d --name trainer --device {npu} {mount} --entrypoint flock {IMAGE} -x {lock}")
    on(HOST, "systemd-run", "--quiet", "--collect", "--unit=holds-the-port", "python3", "-m", "http.server", "8105")
    on(HOST, "systemctl", "daemon-reload")
    on(HOST, "systemctl", "start", "--no-block", *(unit(name) for name in WAYS))
    wait_until_failed(WAYS)
    shown = playbook("playbooks/diagnose.yml", "-i", str(INVENTORY), "--limit", HOST, results=False)
    yield shown.text
    clean()


@pytest.mark.parametrize("name", WAYS)
def test_each_cause_is_named_first_with_evidence_and_a_remedy(broken, name):
    code, word = WAYS[name]
    part = broken.split(f"{name} (vllm-{name}.service):", 1)[1].split(".service):", 1)[0]
    lines = part.splitlines()[1:]
    assert lines[0].startswith(f"  [{code}] "), part
    assert word in part and f"vllm-{name}[" in part
    assert any(line.startswith("    remedy: ") for line in lines)
    assert "[unknown]" not in part
