"""Hosts that are odd as real ones are: NPUs held by others, an npu-smi that hangs, nodes with gaps and two instances.

tests/lab/README.md says what is simulated about them. They start from whatever they are in.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import NamedTuple

import pytest
from ansible_collections.vllm_ascend.fleet.tests.integration.rack import (
    ROOT,
    Run,
    on,
    playbook,
    site,
    snapshot,
    variables,
)
from ansible_collections.vllm_ascend.fleet.tests.lab.deploy import complete
from ansible_collections.vllm_ascend.fleet.tests.lab.settings import rack

pytestmark = pytest.mark.lab
INVENTORY = ROOT / "inventories/lab_odd"
HELD, HUNG, SPARSE = "held-1", "hung-1", "sparse-1"
IMAGE = "quay.io/ascend/vllm-ascend:v0.23.0"
NODE = "/dev/davinci"
LIB64 = "/usr/local/Ascend/driver/lib64"
POD = "/srv/pod-worker"
CALLS = "/run/simulated-npu-smi.calls"
# Who holds which NPU of held-1: an idle container, one that the simulated driver knows, one that docker does not know.
HOLDERS = {"/dev/davinci0": "notebook", "/dev/davinci1": "trainer", "/dev/davinci2": "pod-worker"}
SMALL, LARGE = {"name": "small", "port": 8001, "npus": 1}, {"name": "large", "port": 8000, "npus": 2}
THIRD = {"name": "third", "port": 8002, "npus": 1}
# What must not leave a host in a bundle, besides the addresses and the machine's id.
KEY, VALUE = "sk-canary-0f1e2d3c4b5a", "canary-of-a-variable"
THREE = [SMALL, LARGE, {**THIRD, "api_key": KEY, "environment": {"LAB_MARK": VALUE}}]


class Deployed(NamedTuple):
    run: Run
    hanging: list[str]
    hung_untouched: bool


def odd(name, host, *arguments, **values):
    """A playbook on one of the hosts, or on the group "odd", with variables."""
    return playbook(f"playbooks/{name}.yml", "-i", str(INVENTORY), "--limit", host, *arguments, *variables(**values))


def clean():
    """Remove every instance that these tests make from all three hosts; the image stays."""
    assert odd("remove", "odd", vllm_instance_names=["ascend", "small", "large", "third"]).rc == 0


def process(host, instance):
    """The process id of an instance's container: another one after any restart."""
    return on(host, f"docker inspect --format '{{{{.State.Pid}}}}' vllm-{instance}").strip()


def container(host, instance):
    """docker inspect of an instance's container."""
    return json.loads(on(host, f"docker inspect vllm-{instance}"))[0]


def npus(host, instance):
    """The NPU nodes that an instance's container has, by number."""
    paths = [device["PathOnHost"] for device in container(host, instance)["HostConfig"]["Devices"]]
    return sorted((p for p in paths if p[len(NODE) :].isdigit()), key=lambda p: int(p[len(NODE) :]))


def others():
    """The containers of others on held-1, with the processes in them."""
    listing = "docker inspect --format '{{.Name}} {{.Id}} {{.State.Pid}} {{.State.StartedAt}}' notebook trainer"
    return on(HELD, f"{listing}; ctr -n k8s.io task ls")


def remove_others():
    on(HELD, "docker rm -f notebook trainer agent", check=False)
    on(HELD, f"ctr -n k8s.io task rm -f pod-worker; ctr -n k8s.io c rm pod-worker; rm -rf {POD}", check=False)


@pytest.fixture(scope="module")
def neighbours():
    """No instance of ours anywhere, and the other users of held-1, started by hand; they survive all that follows."""
    clean()
    remove_others()
    on(HELD, "docker", "pull", "--quiet", IMAGE)
    on(HELD, f"docker run -d --name notebook --device /dev/davinci0 --entrypoint sleep {IMAGE} infinity")
    mount = f"--mount type=bind,source={LIB64},target={LIB64},readonly"
    lock = f"{LIB64}/.simulated-davinci1 sleep infinity"
    on(HELD, f"docker run -d --name trainer --device /dev/davinci1 {mount} --entrypoint flock {IMAGE} -x {lock}")
    unpacked = f"mkdir -p {POD} && docker export notebook | tar -x -C {POD}"
    run = f"ctr -n k8s.io run --detach --device /dev/davinci2 --rootfs {POD} pod-worker /bin/sleep infinity"
    on(HELD, f"{unpacked} && {run}")
    before = others()
    assert "RUNNING" in before
    yield
    assert others() == before
    remove_others()
    clean()


@pytest.fixture(scope="module")
def deployed(neighbours):
    """The run of site.yml over all three hosts, and what is seen of hung-1 right after it."""
    on(HUNG, "rm", "-f", CALLS)
    before = snapshot(HUNG)
    run = site(inventory=INVENTORY)
    # The run has ended; what it left behind is a process still.
    running = [on(HUNG, f"cat /proc/{left}/comm", check=False).strip() for left in left_behind()]
    return Deployed(run, running, snapshot(HUNG) == before)


# -- NPUs that others hold ---------------------------------------------------------------------------------------------


def test_held_nodes_are_refused_by_name_and_nothing_changes(neighbours):
    before = snapshot(HELD)
    run = odd("site", HELD, vllm_npus=list(HOLDERS))
    assert run.rc == 2 and run.codes(HELD) == {"npu_held"}
    said = [problem["message"] for problem in run.report(HELD)["problems"]]
    for node, holder in HOLDERS.items():
        assert any(node in text and holder in text for text in said), said
    assert "vllm_accept_problems: [npu_held]" in " ".join(run.text.split())
    assert snapshot(HELD) == before


def test_a_privileged_container_may_hold_any_npu(neighbours):
    mount = "--mount type=bind,source=/usr/local/Ascend/driver,target=/usr/local/Ascend/driver,readonly"
    on(HELD, f"docker run -d --name agent --privileged {mount} --entrypoint sleep {IMAGE} infinity")
    try:
        refused = odd("plan", HELD)
        accepted = odd("plan", HELD, vllm_accept_problems=["npu_held"])
    finally:
        on(HELD, "docker rm -f agent")
    assert refused.rc == 2 and refused.codes(HELD) <= {"npu_held", "npu_shortage"}
    assert any("agent" in problem["message"] for problem in refused.report(HELD)["problems"])
    assert accepted.rc == 0
    plan = accepted.report(HELD)["plan"]
    assert any(w["code"] == "npu_held" and "agent" in w["message"] for w in plan["warnings"])
    (instance,) = plan["instances"]
    assert not set(instance["npus"]) & set(HOLDERS), "NPUs of a known holder are the last choice"


def test_a_free_npu_is_taken_beside_held_ones_and_kept(deployed):
    run = deployed.run
    assert run.stats[HELD]["failures"] == 0, run.text[-3000:]
    assert npus(HELD, "ascend") == ["/dev/davinci3"]
    assert complete(rack().host(HELD).address).strip()
    before = process(HELD, "ascend")
    again = odd("site", HELD)
    assert (again.rc, again.stats[HELD]["changed"]) == (0, 0)
    assert process(HELD, "ascend") == before


def test_a_held_npu_is_taken_when_forced(deployed):
    run = odd("site", HELD, vllm_npus=["/dev/davinci0"], vllm_accept_problems=["npu_held"])
    assert run.rc == 0, run.text[-3000:]
    warnings = run.report(HELD)["plan"]["warnings"]
    assert any(w["code"] == "npu_held" and "notebook" in w["message"] for w in warnings)
    assert npus(HELD, "ascend") == ["/dev/davinci0"]


def test_when_the_driver_refuses_a_forced_npu_the_service_before_is_back(deployed):
    before = on(HELD, "systemctl cat vllm-ascend")
    run = odd("site", HELD, vllm_npus=["/dev/davinci1"], vllm_accept_problems=["npu_held"])
    assert run.rc == 2
    result = run.result(HELD, "vllm_instance")
    assert "-8020" in result["msg"] and result["instances"][0]["outcome"] == "rolled_back"
    # What ends the host says what failed, where, why, what to do, and what is there now.
    told = run.result(HELD, "fail")["msg"]
    assert "on held-1, in: Make the instances serve (verify)" in told
    assert "[npu_occupied]" in told and "remedy: Find the owner" in told
    assert "The previous state is back. Now: vllm-ascend.service is active" in told
    assert on(HELD, "systemctl cat vllm-ascend") == before
    assert complete(rack().host(HELD).address).strip()


# -- an npu-smi that hangs ---------------------------------------------------------------------------------------------


def left_behind():
    """[process id] that each call of the hanging npu-smi left on the host."""
    return [line.split()[1] for line in on(HUNG, f"cat {CALLS}").splitlines()]


def test_a_hanging_npu_smi_is_asked_once_left_behind_and_named(deployed):
    assert deployed.run.rc == 2 and deployed.run.codes(HUNG) == {"npu_smi_hung"}
    (problem,) = deployed.run.report(HUNG)["problems"]
    assert "/usr/local/bin/npu-smi did not answer within 5 s" in problem["message"] and problem["remedy"]
    assert deployed.hanging == ["sleep"]
    assert deployed.hung_untouched


def test_an_accepted_hanging_npu_smi_is_a_warning_and_not_called_again(deployed):
    calls = len(left_behind())
    run = odd("site", HUNG, vllm_accept_problems=["npu_smi_hung"])
    assert run.rc == 0, run.text[-3000:]
    warnings = run.report(HUNG)["plan"]["warnings"]
    assert [w["code"] for w in warnings if "accepted by vllm_accept_problems" in w["message"]] == ["npu_smi_hung"]
    evidence = run.result(HUNG, "vllm_instance")["instances"][0]["evidence"]["verification"]
    assert (evidence["ok"], evidence["npu_smi"]) == (True, None), "called in the container"
    assert len(left_behind()) == calls + 1, "called again on the host"
    assert complete(rack().host(HUNG).address).strip()


# -- nodes with gaps, several instances --------------------------------------------------------------------------------


def test_two_instances_share_the_nodes_that_are_there(deployed):
    run = deployed.run
    assert run.stats[SPARSE]["failures"] == 0, run.text[-3000:]
    assert npus(SPARSE, "small") == ["/dev/davinci10"]
    assert npus(SPARSE, "large") == ["/dev/davinci12", "/dev/davinci14"]
    small, large = container(SPARSE, "small"), container(SPARSE, "large")
    assert (small["HostConfig"]["NetworkMode"], large["HostConfig"]["NetworkMode"]) == ("default", "host")
    assert "--tensor-parallel-size 2" in " ".join(large["Config"]["Cmd"])
    assert "/usr/local/Ascend/driver/tools/hccn_tool" in {mount["Destination"] for mount in large["Mounts"]}
    for port in (SMALL["port"], LARGE["port"]):
        assert complete(rack().host(SPARSE).address, port).strip()
    again = odd("site", SPARSE)
    assert (again.rc, again.stats[SPARSE]["changed"]) == (0, 0)


@pytest.fixture(scope="module")
def processes(deployed):
    """{instance: process id} on sparse-1, before a third instance is added."""
    return {name: process(SPARSE, name) for name in ("small", "large")}


@pytest.fixture(scope="module")
def added(processes):
    """The run that adds a third instance; it has a secret and a variable."""
    run = odd("site", SPARSE, vllm_instances=THREE)
    assert run.rc == 0, run.text[-3000:]
    return run


def test_a_third_instance_leaves_the_others_alone(added, processes):
    assert npus(SPARSE, "third") == ["/dev/davinci16"]
    assert {name: process(SPARSE, name) for name in processes} == processes


@pytest.fixture(scope="module")
def bundled(added, tmp_path_factory):
    """(folder with the unpacked bundles, plans of the live hosts, plans of the bundles), each of all three hosts."""
    base = tmp_path_factory.mktemp("bundles")
    live = {SPARSE: {"vllm_instances": THREE}}
    here = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    copies = {host: {"vllm_sysroot": str(base / host), **here} for host in (HELD, HUNG, SPARSE)}
    sources = ["-i", str(INVENTORY)]
    for name, hosts in (("live", live), ("copies", copies)):
        (base / f"{name}.yml").write_text(json.dumps({"all": {"hosts": hosts}}))
    sources += ["-i", str(base / "live.yml")]
    run = playbook("playbooks/bundle.yml", *sources, *variables(vllm_bundle_dir=str(base)))
    assert run.rc == 0, run.text[-3000:]
    for host in copies:
        (base / host).mkdir()
        subprocess.run(["tar", "-xzf", base / f"{host}.tar.gz", "-C", base / host], check=True)
    plans = []
    for name, more in (("live", []), ("copies", ["-i", str(base / "copies.yml")])):
        folder = base / f"plans-{name}"
        playbook("playbooks/plan.yml", *sources, *more, *variables(vllm_plan_dir=str(folder)))
        plans.append({host: json.loads((folder / f"{host}.json").read_text()) for host in copies})
    return base, *plans


@pytest.mark.parametrize("host", [HELD, HUNG, SPARSE])
def test_a_bundle_gives_the_facts_and_the_plan_of_the_live_host(bundled, host):
    _base, live, copies = bundled
    for document in (live[host], copies[host]):
        document["facts"]["host"].pop("uptime_s")
    assert copies[host]["facts"] == live[host]["facts"]
    assert copies[host]["plan"] == live[host]["plan"]
    holds = [
        {entry["container"]: entry["holds"] for entry in document["observed"]["foreign"]}
        for document in (live[host], copies[host])
    ]
    assert holds[0] == holds[1] and set(holds[0]) == (set(HOLDERS.values()) if host == HELD else set())


@pytest.mark.parametrize("host", [HELD, HUNG, SPARSE])
def test_a_bundle_is_small_and_has_nothing_private(bundled, host):
    base = bundled[0]
    assert (base / f"{host}.tar.gz").stat().st_size < 200_000
    private = on(host, "cat /etc/machine-id /sys/class/net/*/address; grep -o '10[.]83[.0-9]*' /etc/hccn.conf").split()
    private = {word for word in private if word != "00:00:00:00:00:00"} | {KEY, VALUE, rack().host(host).address}
    for path in (base / host).rglob("*"):
        text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
        assert not [word for word in private if word in text], path


def test_the_stop_of_an_instance_leaves_the_others_alone(added, processes):
    third = process(SPARSE, "third")
    assert odd("stop", SPARSE, vllm_instance_names=["small"]).rc == 0
    assert on(SPARSE, "systemctl is-active vllm-small vllm-large vllm-third", check=False).split() == [
        "inactive",
        "active",
        "active",
    ]
    assert (process(SPARSE, "large"), process(SPARSE, "third")) == (processes["large"], third)
    # A stopped one is a difference; it comes back where it was, and what is removed leaves the rest alone.
    assert odd("remove", SPARSE, vllm_instance_names=["third"]).rc == 0
    back = odd("site", SPARSE)
    assert back.rc == 0 and npus(SPARSE, "small") == ["/dev/davinci10"]
    assert process(SPARSE, "large") == processes["large"]


def test_instances_on_the_host_network_have_hccl_ports_of_their_own(deployed):
    run = odd("plan", SPARSE, vllm_instances=[{**SMALL, "npus": 2}, LARGE])
    assert run.rc == 0, run.text[-3000:]
    plans = run.report(SPARSE)["plan"]["instances"]
    assert [plan["container"]["network"] for plan in plans] == ["host", "host"]
    bases = [int(plan["container"]["environment"].get("HCCL_IF_BASE_PORT", 60000)) for plan in plans]
    assert abs(bases[0] - bases[1]) >= 16


def test_everything_that_is_asked_too_much_is_named_at_once(deployed):
    wrong = [
        {**SMALL, "npus": ["/dev/davinci0"]},
        {**LARGE, "npus": 3, "environment": {"HCCL_INTRA_ROCE_ENABLE": "1"}},
        {**THIRD, "npus": 2, "port": LARGE["port"]},
        {**THIRD, "port": 8003},
    ]
    before = snapshot(SPARSE)
    on(SPARSE, "mv /etc/hccn.conf /etc/hccn.conf.away")
    try:
        run = odd("site", SPARSE, vllm_instances=wrong)
    finally:
        on(SPARSE, "mv /etc/hccn.conf.away /etc/hccn.conf")
    expected = {"npu_unknown", "npu_shortage", "port_duplicate", "instance_duplicate", "hccn_conf_missing"}
    assert run.rc == 2 and run.codes(SPARSE) >= expected, run.codes(SPARSE)
    said = " ".join(problem["message"] for problem in run.report(SPARSE)["problems"])
    assert "/dev/davinci10, /dev/davinci12, /dev/davinci14, /dev/davinci16" in said
    assert snapshot(SPARSE) == before
