"""oci_bundles: running containers of containerd, podman, CRI-O and iSulad, by the files that these engines keep."""

from __future__ import annotations

import json
import os

import pytest
from ansible_collections.vllm_ascend.fleet.plugins.module_utils import engine, npu_holds, oci_bundles
from ansible_collections.vllm_ascend.fleet.plugins.module_utils import instance_observation as observation

from tests.unit.support import hostile
from tests.unit.support.recorded_hosts import DOCKER, RecordedHost, data, docker_20, record

DEVICES = "Character devices:\n236 devdrv-cdev\n238 davinci_manager\n"
K8S = "run/containerd/io.containerd.runtime.v2.task/k8s.io"
MOBY = "run/containerd/io.containerd.runtime.v2.task/moby"
STATIC = "var/lib/containers/storage/overlay-containers"
RUN = "run/containers/storage/overlay-containers"
ISULAD = "var/lib/isulad/engines/lcr"
POD, OTHER, BY_HAND, ISULA = "a1" * 32, "b2" * 32, "d0" * 32, "c7" * 32
SECRET = "hf_do-not-show"
PRIVILEGED = "it is privileged and made for Ascend, so it can use every NPU"


def spec(name):
    return json.loads(data(f"oci/{name}.json"))


@pytest.fixture
def host(tmp_path):
    return RecordedHost(tmp_path).file("proc/devices", DEVICES)


def task(host, folder, id_, name, pid="4711"):
    """A container of containerd, with its process there."""
    return host.file(f"{folder}/{id_}/config.json", data(f"oci/{name}.json")).file(f"{folder}/{id_}/init.pid", pid)


def podman(host, id_, name, folder=STATIC):
    host.file(f"{folder}/{id_}/userdata/config.json", data(f"oci/{name}.json"))
    return host.file(f"{RUN}/{id_}/userdata/pidfile", "4711\n")


def isulad(host, id_=ISULA, **state):
    config = json.loads(data("oci/isulad-2.1-config.v2.json"))
    config["State"].update(state)
    host.file(f"{ISULAD}/{id_}/config.json", data("oci/isulad-2.1-config.json"))
    return host.file(f"{ISULAD}/{id_}/config.v2.json", config)


def foreign(sysroot):
    """What is observed of the host's containers."""
    return observation.collect(sysroot)["foreign"]


def process(host, pid=4711, id_=None):
    """A process of the host, in the control group of a container."""
    cgroup = f"0::/kubepods/cri-containerd-{id_}.scope\n" if id_ else "0::/user.slice\n"
    return host.file(f"proc/{pid}/cgroup", cgroup)


@pytest.mark.parametrize(
    "name, container, image, nodes, why",
    [
        ("containerd-1.7-k8s-ascend-runtime", "qwen-7d9f-x2x4q/vllm", "quay.io/ascend/vllm-ascend:v0.22.1", [2, 3],
         None),
        ("containerd-1.7-k8s-privileged", "qwen-7d9f-x2x4q/trainer", "swr.example.com/train:1", [], PRIVILEGED),
        ("nerdctl-2.0-renamed-node", "bench", None, [5], None),
        ("ctr-1.6-all-devices-allowed", "a1" * 6, None, [], "its device rule 'c *:* rwm' opens every NPU"),
    ],
)  # fmt: skip
def test_containerd(host, name, container, image, nodes, why):
    task(host, K8S, POD, name)
    (found,) = foreign(host.sysroot())
    assert (found["container"], found["id"], found["engine"], found["image"]) == (container, POD, "containerd", image)
    assert (found["state"], found["npu"]) == ("running", True)
    assert found["holds"] == {"nodes": [f"/dev/davinci{n}" for n in nodes], "any": why is not None, "why": why}
    assert found["devices"] == found["holds"]["nodes"]
    assert found["privileged"] == (why == PRIVILEGED)


@pytest.mark.parametrize("name", ["containerd-1.7-k8s-sandbox", "containerd-1.7-k8s-kube-proxy"])
def test_containers_of_kubernetes_that_hold_nothing(host, name):
    assert foreign(task(host, K8S, POD, name).sysroot()) == []


@pytest.mark.parametrize("state", oci_bundles.CONTAINERD_STATES)
@pytest.mark.parametrize("runtime", oci_bundles.CONTAINERD_RUNTIMES)
def test_every_place_of_containerd(host, state, runtime):
    task(host, f"{state}/{runtime}/default", POD, "nerdctl-2.0-renamed-node")
    assert [entry["container"] for entry in foreign(host.sysroot())] == ["bench"]


def test_podman_with_the_names_of_its_storage(host):
    podman(host, POD, "podman-4.9-two-nodes").file(f"{STATIC}/containers.json", data("oci/storage-containers.json"))
    (found,) = foreign(host.sysroot())
    assert (found["container"], found["engine"]) == ("chat", "podman")
    assert found["image"] == "quay.io/ascend/vllm-ascend:v0.22.1"
    # The variable changes nothing where the runtime has said which nodes there are.
    assert found["holds"] == {"nodes": ["/dev/davinci1", "/dev/davinci10"], "any": False, "why": None}
    assert found["ascend_visible_devices"] == "all"


@pytest.mark.parametrize("folder", [STATIC, RUN])
def test_podman_s_containers_that_are_removed_when_they_end(host, folder):
    podman(host, POD, "podman-4.9-privileged")
    host.file(f"{folder}/volatile-containers.json", data("oci/storage-containers.json"))
    (found,) = foreign(host.sysroot())
    assert (found["container"], found["privileged"], found["devices"]) == ("chat", True, [])
    assert found["holds"] == {"nodes": [], "any": True, "why": PRIVILEGED}


def test_podman_with_other_folders(host):
    host.file("etc/containers/storage.conf", "[storage]\ngraphroot = \"/data/podman/\"\nrunroot = '/run/podman'\n")
    host.file(f"data/podman/vfs-containers/{POD}/userdata/config.json", spec("podman-4.9-two-nodes"))
    host.file(f"run/podman/vfs-containers/{POD}/userdata/pidfile", "4711")
    assert [entry["container"] for entry in foreign(host.sysroot())] == ["a1" * 6]


def test_a_podman_container_that_was_never_started(host):
    host.file(f"{STATIC}/{POD}/userdata/config.json", spec("podman-4.9-two-nodes")).file(f"{RUN}/{POD}/x")
    assert foreign(host.sysroot()) == []


def test_cri_o(host):
    podman(host, POD, "cri-o-1.30-node", RUN)
    (found,) = foreign(host.sysroot())
    assert (found["container"], found["engine"]) == ("infer-0/infer", "cri-o")
    assert (found["image"], found["holds"]["nodes"]) == ("registry.example.com/infer:3", ["/dev/davinci6"])


def test_isulad(host):
    (found,) = foreign(isulad(host).sysroot())
    assert (found["container"], found["engine"], found["image"]) == ("mindie", "isula", "mindie:2.0")
    assert found["holds"]["nodes"] == ["/dev/davinci7"]
    assert foreign(isulad(host, Running=False).sysroot()) == []


def test_the_environment_is_never_shown(host):
    for number, name in enumerate(["containerd-1.7-k8s-ascend-runtime", "nerdctl-2.0-renamed-node"]):
        task(host, K8S, f"{number}" * 64, name)
    podman(isulad(host), POD, "podman-4.9-two-nodes")
    assert len(foreign(host.sysroot())) == 4
    assert SECRET not in json.dumps(observation.collect(host.sysroot()))


# -- Docker's own --------------------------------------------------------------------------------------------------


def docker_files(host, labels=None):
    """A container of a Docker engine that keeps it running while it is stopped itself (live restore)."""
    config = json.loads(data("oci/docker-20.10-config.v2.json"))
    config["Config"]["Labels"] = labels or {}
    host.file(f"var/lib/docker/containers/{BY_HAND}/config.v2.json", config)
    host.file(f"var/lib/docker/containers/{BY_HAND}/hostconfig.json", data("oci/docker-20.10-hostconfig.json"))
    return task(host, MOBY, BY_HAND, "docker-20.10-privileged")


def test_a_container_that_docker_listed_is_not_listed_twice(host):
    listed = [one["Id"] for one in json.loads(data("docker/inspect-20.10.24.json"))]
    for id_ in listed:
        task(host, MOBY, id_, "docker-20.10-privileged")
    host.file(DOCKER).calls(docker_20())
    ids = [entry["id"] for entry in foreign(host.sysroot())]
    assert len(ids) == len(set(ids)) == 5


def test_docker_s_containers_are_seen_while_docker_does_not_answer(host):
    docker_files(host).file(DOCKER).calls([record(["docker", *engine.VERSION_ARGS], timed_out=True)])
    observed = observation.collect(host.sysroot())
    assert observed["engine"]["running"] is False
    (found,) = observed["foreign"]
    assert (found["container"], found["engine"], found["state"]) == ("by-hand", "docker", "running")
    assert (found["ports"], found["holds"]["nodes"]) == ([8001], ["/dev/davinci4"])


def test_docker_s_own_files_may_lie_elsewhere(host):
    host.file("etc/docker/daemon.json", {"data-root": "/data/docker/"})
    docker_files(host)
    # They are not found there, so the runtime's file tells.
    assert [entry["container"] for entry in foreign(host.sysroot())] == ["d0" * 6]
    os.rename(host.root / "var/lib/docker", host.root / "data-docker")
    (host.root / "data").mkdir()
    os.rename(host.root / "data-docker", host.root / "data/docker")
    assert [entry["container"] for entry in foreign(host.sysroot())] == ["by-hand"]


def test_our_own_are_not_foreign_even_then(host):
    docker_files(host, {"vllm-ascend.instance": "ascend", "vllm-ascend.role": "serve"})
    assert foreign(host.sysroot()) == []


# -- what lives ----------------------------------------------------------------------------------------------------


def test_a_dead_process_holds_nothing(host):
    task(host, K8S, POD, "nerdctl-2.0-renamed-node")
    podman(isulad(host), OTHER, "podman-4.9-two-nodes")
    assert foreign(host.live()) == []
    process(process(host, 4711, None), 19232, ISULA)
    assert {entry["engine"] for entry in foreign(host.live())} == {"containerd", "podman", "isula"}


@pytest.mark.parametrize("owner, seen", [(POD, 1), (OTHER, 0), (None, 1)])
def test_a_number_that_another_container_s_process_has_now(host, owner, seen):
    process(task(host, K8S, POD, "nerdctl-2.0-renamed-node"), 4711, owner)
    assert len(foreign(host.live())) == seen


@pytest.mark.parametrize("pid", ["", "0", "x", "-1", "9" * 5000])
def test_a_task_without_a_number_counts(host, pid):
    task(host, K8S, POD, "nerdctl-2.0-renamed-node", pid)
    assert len(foreign(host.live())) == 1


# -- bounds and hostile files --------------------------------------------------------------------------------------


def test_at_most_512_are_read(host, monkeypatch):
    monkeypatch.setattr(oci_bundles, "MOST_BUNDLES", 3)
    for number in range(5):
        task(host, K8S, f"{number}" * 64, "nerdctl-2.0-renamed-node")
    assert [entry["id"][0] for entry in foreign(host.sysroot())] == ["0", "1", "2"]


def test_what_is_listed_twice_is_read_once(host):
    task(host, K8S, POD, "nerdctl-2.0-renamed-node")
    task(host, "run/k3s/containerd/io.containerd.runtime.v2.task/k8s.io", POD, "nerdctl-2.0-renamed-node")
    assert len(foreign(host.sysroot())) == 1


@pytest.mark.parametrize("content", ["", "[]", "null", "{", '"x"', hostile.DEEP, "{}", " " * (1 << 20) + "{}"])
def test_files_that_are_no_configuration(host, content):
    host.file(f"{K8S}/{POD}/config.json", content)
    host.file(f"{ISULAD}/{ISULA}/config.v2.json", content).file(f"{STATIC}/containers.json", content)
    podman(host, OTHER, "podman-4.9-two-nodes")
    assert [entry["id"] for entry in foreign(host.sysroot())] == [OTHER]


def test_links_in_a_circle_and_other_kinds_of_files(host):
    folder = host.root / K8S / POD
    folder.mkdir(parents=True)
    (folder / "config.json").symlink_to("config.json")
    (folder / "init.pid").symlink_to("/proc/self/../../../run/containerd")
    (host.root / "run/k3s").symlink_to("k3s")
    (host.root / MOBY).parent.mkdir(parents=True, exist_ok=True)
    (host.root / MOBY).symlink_to("moby")
    os.mkfifo(host.root / K8S / "fifo")
    for sysroot in (host.sysroot(), host.live()):
        assert foreign(sysroot) == []


def test_a_link_out_of_a_replay_stays_in_it(host, tmp_path_factory):
    outside = tmp_path_factory.mktemp("outside")
    (outside / "config.json").write_text(data("oci/nerdctl-2.0-renamed-node.json"))
    (host.root / K8S).mkdir(parents=True)
    (host.root / K8S / POD).symlink_to(outside)
    assert foreign(host.sysroot()) == []


@pytest.mark.parametrize("value", hostile.VALUES.values(), ids=hostile.VALUES)
def test_hostile_values_in_an_oci_configuration(value):
    for document in hostile.mutations(spec("containerd-1.7-k8s-ascend-runtime")):
        changed = engine.parse_inspect("[" + hostile.written(document, value) + "]")
        for one in changed:
            given = oci_bundles.given(one, {236: "davinci"})
            container = npu_holds.Container(POD, "vllm-x", None, "running", "containerd", given)
            hostile.assert_plain_json(npu_holds.foreign_entry(container, npu_holds.NOT_KNOWN))


@pytest.mark.parametrize("value", hostile.VALUES.values(), ids=hostile.VALUES)
def test_hostile_values_in_the_files_of_engines(host, value):
    podman(host, POD, "podman-4.9-two-nodes")
    for document in hostile.mutations(json.loads(data("oci/storage-containers.json"))):
        host.file(f"{STATIC}/containers.json", hostile.written(document, value))
        (found,) = foreign(host.sysroot())
        hostile.assert_plain_json(found)
        assert found["holds"]["nodes"] == ["/dev/davinci1", "/dev/davinci10"]
    for number, document in enumerate(hostile.mutations(json.loads(data("oci/isulad-2.1-config.v2.json")))):
        isulad(host, f"i{number}").file(f"{ISULAD}/i{number}/config.v2.json", hostile.written(document, value))
    for number, document in enumerate(hostile.mutations(json.loads(data("oci/docker-20.10-config.v2.json")))):
        task(host, MOBY, f"d{number}", "docker-20.10-privileged")
        folder = f"var/lib/docker/containers/d{number}"
        host.file(folder + "/hostconfig.json", data("oci/docker-20.10-hostconfig.json"))
        host.file(folder + "/config.v2.json", hostile.written(document, value))
    observed = foreign(host.sysroot())
    hostile.assert_plain_json(observed)
    # Whatever else its files say, Docker's task runs and has an NPU.
    assert len([entry for entry in observed if entry["engine"] == "docker"]) == number + 1


# -- device rules --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "entries, rules",
    [
        ([], []),
        ([{"allow": True, "access": "rwm"}], ["a *:* rwm"]),
        ([{"allow": True, "type": "a", "major": -1, "minor": -1, "access": "rwm"}], ["a *:* rwm"]),
        ([{"allow": True, "type": "c", "major": 236, "minor": 0, "access": "rw"}], ["c 236:0 rw"]),
        ([{"allow": True, "type": "c", "access": "m"}], ["c *:* m"]),
        ([{"allow": True, "major": 236, "access": "rwm"}], ["c 236:* rwm"]),
        ([{"allow": True, "access": "rwm"}, {"allow": False, "access": "rwm"}], []),
        ([{"allow": False}, {"allow": True, "type": "c", "major": 236, "access": None}], ["c 236:* rwm"]),
        ([{"allow": True, "access": "rwm"}, {"allow": False, "type": "c", "major": 1, "minor": 3}], ["a *:* rwm"]),
        ([{"allow": "yes", "access": "rwm"}, {"allow": 1}], []),
    ],
)
def test_device_rules_in_the_end(entries, rules):
    assert oci_bundles.device_rules(entries) == rules


def test_all_devices_without_the_rights_of_a_privileged_container():
    changed = spec("containerd-1.7-k8s-privileged")
    changed["process"]["capabilities"]["bounding"] = []
    given = oci_bundles.given(changed, {236: "davinci"})
    assert given.privileged is False
    assert npu_holds.holds(given, npu_holds.NOT_KNOWN).any is True
