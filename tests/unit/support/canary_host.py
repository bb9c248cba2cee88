"""A host with private things in every place that is read, to see that none of them leaves it in a bundle."""

from __future__ import annotations

import json
import pathlib
import tarfile

from ansible_collections.vllm_ascend.fleet.plugins.module_utils import bundle, instance_state
from ansible_collections.vllm_ascend.fleet.plugins.module_utils.bundle_recorder import Recorder

from tests.unit.support import host_trees, recorded_hosts

API_KEY = "sk-canary-0f1e2d3c4b5a"
HUB_TOKEN = "hf_CanaryAbCdEfGhIjKlMnOp"
PASSWORD = "canary-Passw0rd!"
ODD_PASSWORD = 'canary "quoted" \\ väljä'
SSH_KEY = "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktCANARY\n-----END OPENSSH PRIVATE KEY-----"
PUBLIC_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAICANARYCANARYCANARY ops@northwind"
HOST_NAME = "canary-node7"
DOMAIN = "rack.northwind.corp"
SERIAL = "2102CANARY00017"
MAC = "3c:fa:43:0b:7e:91"
LISTENING, PEER, CONTAINER = "10.77.3.21", "10.77.9.199", "172.30.5.4"
IPV6 = "fd12:3456:789a:1::77"
CUSTOMER = "Project Zephyr"
VARIABLE = "canary-value-of-a-variable"
# As /proc/net/tcp writes the addresses.
HEX = ("15034D0A", "C7094D0A")
CANARIES = (
    API_KEY, HUB_TOKEN, PASSWORD, ODD_PASSWORD, "b3BlbnNzaC1rZXktCANARY", "AAAAC3NzaC1lZDI1NTE5AAAAICANARY", HOST_NAME,
    DOMAIN, SERIAL, MAC, MAC.replace(":", ""), LISTENING, PEER, CONTAINER, IPV6, CUSTOMER, VARIABLE, *HEX,
    instance_state.secret_digest("VLLM_API_KEY", API_KEY), instance_state.secret_digest("HF_TOKEN", HUB_TOKEN),
    "9a" * 32, "operator-login",
)  # fmt: skip
TCP = (
    "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
    "   0: {0}:1F41 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1199 1 0 100 0 0 10 0\n"
    "   1: 00000000:0016 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1200 1 0 100 0 0 10 0\n"
    "   2: {0}:0016 {1}:C3D4 01 00000000:00000000 00:00000000 00000000     0        0 1201 1 0 100 0 0 10 0\n"
).format(*HEX)
UNIT = (
    f"{instance_state.UNIT_MARK}\n# plan 0123456789abcdef; made by the collection\n[Service]\n"
    f'Environment=CANARY={VARIABLE} "OTHER={PASSWORD}"\n'
    f"ExecStart=/usr/bin/docker run --env CANARY={VARIABLE} \\\n  --env 'OTHER={PASSWORD} {VARIABLE}' image \\\n"
    f"  vllm serve m --api-key \\\n  {API_KEY} --port 8001\n"
)


def build(root: pathlib.Path) -> host_trees.HostTree:
    """An A2 host with an instance "ascend" and containers of others, and canaries everywhere."""
    tree = host_trees.card_host(root, "atlas_a2")
    tree.put("etc/hostname", f"{HOST_NAME}.{DOMAIN}\n").put("proc/sys/kernel/hostname", HOST_NAME + "\n")
    tree.put("etc/machine-id", SERIAL + "\n")
    tree.put("proc/net/tcp", TCP)
    tree.put("etc/hccn.conf", f"address_0={LISTENING}\nnetmask_0=255.255.255.0\nmac_0={MAC}\n{IPV6}\n")
    rootinfo = {"version": "2.0", "server_id": SERIAL, "rank_list": [{"device_ip": PEER}], "host": HOST_NAME}
    tree.put("etc/hccl_rootinfo.json", json.dumps(rootinfo))
    daemon = {"data-root": "/var/lib/docker", "registry-mirrors": [f"http://operator-login:{PASSWORD}@{PEER}:5000"]}
    tree.put("etc/docker/daemon.json", json.dumps(daemon))
    tree.put("etc/containerd/config.toml", f'root = "/var/lib/containerd"\n[x]\npassword = "{PASSWORD}"\n')
    _npu_smi(tree)
    _instance(tree)
    _docker(tree)
    _other_engines(tree)
    return tree


def _npu_smi(tree: host_trees.HostTree) -> None:
    table = next(record["stdout"] for record in tree.records if record["argv"] == ["npu-smi", "info"])
    table += f"\tSerial Number                  : {SERIAL}\n\tMAC address : {MAC}\n\tip: {LISTENING}\n{HOST_NAME}\n"
    tree.record(["npu-smi", "info"], table)


def _instance(tree: host_trees.HostTree) -> None:
    plan = {
        "name": "ascend",
        "model": "Qwen/Qwen3-0.6B",
        "npus": ["/dev/davinci0"],
        "plan_hash": "0123456789abcdef",
        "endpoint": {"address": LISTENING, "port": 8001, "network": "bridge", "container_port": 8000},
        "container": {
            "environment": {"CANARY": VARIABLE, "HCCL_IF_IP": LISTENING, "PROXY_PASSWORD": PASSWORD},
            "secrets": [
                {"name": "VLLM_API_KEY", "digest": instance_state.secret_digest("VLLM_API_KEY", API_KEY)},
                {"name": "CHANGED", "digest": "9a" * 32},
            ],
        },
        "serve_args": ["--api-key", API_KEY, "--port", "8000"],
        "docker_run": ["docker", "run", "--env", f"CANARY={VARIABLE}", "-e", f"PROXY={PASSWORD}", "image"],
        "unit": {"name": "vllm-ascend.service", "text": UNIT},
        "remark": f"for {CUSTOMER}, {SSH_KEY}, {PUBLIC_KEY}",
    }
    tree.put("etc/systemd/system/vllm-ascend.service", UNIT)
    tree.put("etc/systemd/system/vllm-other.service", f"[Service]\nEnvironment=X={PASSWORD}\n")
    tree.put(
        "etc/vllm-ascend/ascend.env",
        f"VLLM_API_KEY={API_KEY}\nHF_TOKEN={HUB_TOKEN}\nODD={ODD_PASSWORD}\n# {PASSWORD}\n",
    )
    state = {
        "plan_hash": "0123456789abcdef",
        "plan": plan,
        "image_id": "sha256:" + "a2" * 32,
        "image_reference": "quay.io/ascend/vllm-ascend:v0.23.0",
        "unit_digest": instance_state.text_digest(UNIT),
        "secrets": plan["container"]["secrets"],  # type: ignore[index]  # because the plan has instances
    }
    folder = "var/lib/vllm-ascend/ascend/"
    tree.put(folder + "committed.json", json.dumps(state)).put(folder + "previous.json", json.dumps(state))
    tree.put(folder + "journal.json", json.dumps({"state": "done", "request": state}))
    tree.put(
        "usr/local/libexec/vllm-ascend/host.py",
        f"#!/usr/bin/env python3\n# vllm_ascend.fleet host helper 0.1.0\n{PASSWORD}",
    )


def _docker(tree: host_trees.HostTree) -> None:
    containers = json.loads(recorded_hosts.data("docker/inspect-20.10.24.json"))
    for container in containers:
        config = container["Config"]
        config["Env"] = [
            *(config.get("Env") or []),
            f"CANARY={VARIABLE}",
            f"HF_TOKEN={HUB_TOKEN}",
            f"ODD={ODD_PASSWORD}",
        ]
        config["Cmd"] = [*(config.get("Cmd") or []), "--api-key", API_KEY, f"--hf-token={HUB_TOKEN}"]
        config["Labels"] = {**(config.get("Labels") or {}), "owner": CUSTOMER, "login": f"operator-login:{PASSWORD}"}
        config["Hostname"] = HOST_NAME
        container["Args"] = ["--password", PASSWORD]
        container["NetworkSettings"]["IPAddress"] = CONTAINER
        container["NetworkSettings"]["MacAddress"] = MAC
        container["HostConfig"]["ExtraHosts"] = [f"{HOST_NAME}.{DOMAIN}:{PEER}"]
        container["HostConfig"]["Binds"] = [f"/srv/{PASSWORD}:/x"]
    info = json.loads(recorded_hosts.data("docker/info-20.10.24.json"))
    info.update(
        Name=f"{HOST_NAME}.{DOMAIN}",
        HttpProxy=f"http://operator-login:{PASSWORD}@proxy.{DOMAIN}:3128",
        NoProxy=f"localhost,127.0.0.1,{PEER},.{DOMAIN}",
        Labels=[f"serial={SERIAL}"],
    )
    images = json.loads(recorded_hosts.data("docker/image-inspect-20.10.24.json"))
    images[0]["Config"]["Env"] = [f"CANARY={VARIABLE}", f"KEY={SSH_KEY}"]
    images[0]["Author"] = CUSTOMER
    tree.put("usr/bin/docker", "x", 0o755)
    version = recorded_hosts.data("docker/version-20.10.24.json")
    for record in recorded_hosts.docker_records(version, json.dumps(info), containers, images):
        tree.record(record["argv"], record["stdout"])
    units = ["ascend", "other"]
    show = f"Id=vllm-ascend.service\nActiveState=active\nResult={HOST_NAME} {LISTENING} password={PASSWORD}\n"
    for record in recorded_hosts.systemd_records(["ascend"], show) + recorded_hosts.systemd_records(units, show):
        tree.record(record["argv"], record["stdout"])


def _other_engines(tree: host_trees.HostTree) -> None:
    spec = {
        "ociVersion": "1.0.2",
        "hostname": HOST_NAME,
        "process": {
            "args": ["train", "--token", HUB_TOKEN, CUSTOMER],
            "env": ["ASCEND_VISIBLE_DEVICES=1", f"AWS_SECRET_ACCESS_KEY={PASSWORD}", f"CANARY={VARIABLE}"],
        },
        "annotations": {"nerdctl/name": "train", "nerdctl/hostname": HOST_NAME, "nerdctl/networks": f"[{IPV6}]"},
        "linux": {"devices": [{"path": "/dev/davinci1", "type": "c", "major": 236, "minor": 1}]},
    }
    folder = "run/containerd/io.containerd.runtime.v2.task/default/" + "5d" * 32
    tree.put(folder + "/config.json", json.dumps(spec)).put(folder + "/init.pid", "4711")
    tree.put("proc/4711/cgroup", f"0::/system.slice/{HOST_NAME}.scope\n")


def packed(root: pathlib.Path, scratch: pathlib.Path, options: bundle.Options = bundle.Options()) -> bundle.Bundle:  # noqa: B008  because Options is immutable
    """The bundle of the host below root; scratch is made."""
    scratch.mkdir(parents=True)
    return bundle.make(Recorder(str(root)), options, 1_700_000_000, str(scratch))


def unpacked(archive: bytes, folder: pathlib.Path) -> pathlib.Path:
    """The folder, made of the archive."""
    folder.mkdir(parents=True)
    path = folder.with_suffix(".tar.gz")
    path.write_bytes(archive)
    with tarfile.open(path) as opened:
        opened.extractall(str(folder))
    return folder
