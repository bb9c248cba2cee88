"""engine: Docker 18.09 to 29 as their command lines print it, stopped engines, other engines."""

from __future__ import annotations

import json

import pytest
from ansible_collections.vllm_ascend.fleet.plugins.module_utils import engine

from tests.unit.support.recorded_hosts import DOCKER, RecordedHost, data, docker_20, docker_records, known, record


def containers(version="20.10.24"):
    return {one["Name"].strip("/"): one for one in json.loads(data(f"docker/inspect-{version}.json"))}


@pytest.mark.parametrize(
    "version, api, architecture",
    [
        ("18.09.9", "1.39", "arm64"),
        ("20.10.24", "1.41", "amd64"),
        ("24.0.7", "1.43", "arm64"),
        ("29.0.2", "1.52", "amd64"),
    ],
)
def test_versions(version, api, architecture):
    found = known(engine.parse_version(data(f"docker/version-{version}.json")))
    assert found["kind"] == "docker"
    assert found["version"].split("+")[0] == found["client_version"].split("+")[0] == version
    assert (found["api_version"], found["architecture"]) == (api, architecture)


def test_podman_behind_the_name_docker():
    text = data("docker/version-podman-4.9.4-shim.json")
    expected = {
        "kind": "podman", "client_version": "4.9.4-rhel", "version": "4.9.4-rhel",
        "api_version": None, "architecture": "arm64",
    }  # fmt: skip
    assert engine.parse_version(text, data("docker/version-podman-4.9.4-shim.stderr")) == expected
    # The message can be switched off (/etc/containers/nodocker).
    assert engine.parse_version(text, "") == expected


def test_podman_behind_docker_s_socket():
    found = known(engine.parse_version(data("docker/version-28.3.3-podman-socket.json")))
    assert (found["kind"], found["client_version"], found["version"]) == ("podman", "28.3.3", "5.5.2")


@pytest.mark.parametrize("text", ["", "[]", "Version: 2.1.2", '{"Version": "1.7.6"}'])
def test_what_is_no_docker(text):
    assert engine.parse_version(text) is None


@pytest.mark.parametrize(
    "version, expected",
    [
        ("18.09.9", {
            "default_runtime": "ascend", "docker_root": "/data/docker", "live_restore": False,
            "http_proxy": "http://xxxxx:xxxxx@proxy.example.com:3128",
            "https_proxy": "http://xxxxx:xxxxx@proxy.example.com:3128",
            "no_proxy": "localhost,127.0.0.1", "containerd_images": False, "runtimes": ["ascend", "runc"],
            "security_options": ["name=seccomp,profile=default"], "rootless": False, "userns_remap": False,
            "cgroup_version": None,
        }),
        ("20.10.24", {
            "default_runtime": "runc", "docker_root": "/var/lib/docker", "live_restore": False,
            "http_proxy": None, "https_proxy": None, "no_proxy": None, "containerd_images": False,
            "runtimes": ["io.containerd.runc.v2", "io.containerd.runtime.v1.linux", "runc"],
            "security_options": ["name=apparmor", "name=seccomp,profile=default", "name=cgroupns"],
            "rootless": False, "userns_remap": False, "cgroup_version": "2",
        }),
        ("24.0.7", {
            "default_runtime": "runc", "docker_root": "/var/lib/docker", "live_restore": True,
            "http_proxy": "http://xxxxx:xxxxx@proxy.example.com:3128",
            "https_proxy": "http://xxxxx:xxxxx@proxy.example.com:3128",
            "no_proxy": "localhost", "containerd_images": False, "runtimes": ["io.containerd.runc.v2", "runc"],
            "security_options": ["name=seccomp,profile=builtin"], "rootless": False, "userns_remap": False,
            "cgroup_version": "1",
        }),
        ("29.0.2", {
            "default_runtime": "runc", "docker_root": "/var/lib/docker", "live_restore": False,
            "http_proxy": None, "https_proxy": None, "no_proxy": None, "containerd_images": True,
            "runtimes": ["io.containerd.runc.v2", "runc"],
            "security_options": ["name=apparmor", "name=seccomp,profile=builtin", "name=cgroupns"],
            "rootless": False, "userns_remap": False, "cgroup_version": "2",
        }),
    ],
)  # fmt: skip
def test_info(version, expected):
    assert engine.parse_info(data(f"docker/info-{version}.json")) == expected


def test_an_empty_info_is_all_null():
    assert set(engine.parse_info("{}").values()) == {None, False}


@pytest.mark.parametrize(
    "options, rootless, userns_remap",
    [
        (["name=seccomp,profile=builtin", "name=rootless", "name=cgroupns"], True, False),
        (["name=apparmor", "name=userns"], False, True),
        (["name=selinux", "name=rootlesskit"], False, False),
        ([], False, False),
        (None, None, None),
        ("name=rootless", None, None),
    ],
)
def test_security_options(options, rootless, userns_remap):
    found = engine.parse_info(json.dumps({"SecurityOptions": options}))
    assert (found["rootless"], found["userns_remap"]) == (rootless, userns_remap)
    assert found["security_options"] == (options if isinstance(options, list) else None)


@pytest.mark.parametrize(
    "config, root",
    [
        (None, "/var/lib/containerd"),
        ("version = 2\nroot = '/data/containerd'\n[plugins]\n  root = '/x'\n", "/data/containerd"),
        ('version = 2\n[plugins."x"]\n  root = "/x"\n', "/var/lib/containerd"),
    ],
)
def test_the_folder_of_containerd(config, root):
    assert engine.containerd_root(config) == root


def test_images():
    images = engine.parse_images(data("docker/image-inspect-20.10.24.json"))
    assert images[0] == {
        "id": "sha256:" + "a2" * 32,
        "references": ["quay.io/ascend/vllm-ascend:v0.23.0", "quay.nju.edu.cn/ascend/vllm-ascend:v0.23.0"],
        "digests": ["quay.nju.edu.cn/ascend/vllm-ascend@sha256:" + "77" * 32],
        "architecture": "amd64",
        "os": "linux",
        "size_mb": 9216,
        "created": "2026-02-20T03:04:05.678Z",
        "labels": {"org.opencontainers.image.version": "v0.23.0"},
    }
    assert [(image["references"], image["digests"], image["labels"]) for image in images[1:]] == [([], [], {})] * 2


def test_fields_that_newer_engines_leave_out_are_null():
    image = engine.parse_images(data("docker/image-inspect-29.0.2.json"))[0]
    assert (image["created"], image["labels"], image["architecture"]) == (None, {}, "amd64")


def test_a_container_as_an_instance_has_it():
    assert engine.container_summary(containers()["vllm-ascend"]) == {
        "id": "1a" * 32,
        "image_id": "sha256:" + "a2" * 32,
        "state": "running",
        "started_at": "2026-03-01T10:00:00.5Z",
        "plan_hash": "0123456789abcdef",
    }
    assert engine.container_summary(containers()["vllm-ascend-verify"])["started_at"] is None


def test_published_ports():
    assert engine.published(containers()["vllm-ascend"]) == [(8000, "0.0.0.0", 8000), (8000, "::", 8000)]
    assert engine.published(containers("29.0.2")["vllm-ascend"]) == [(8000, "0.0.0.0", 8000), (8000, "::", 8000)]
    assert engine.published(containers()["web"]) == [(8080, "127.0.0.1", 80)]
    stopped = dict(containers()["web"], NetworkSettings={"Ports": {}})
    assert engine.published(stopped) == [(8080, "127.0.0.1", 80)]
    dynamic = {"HostConfig": {"PortBindings": {"80/tcp": [{"HostIp": "", "HostPort": ""}]}}}
    assert engine.published(dynamic) == []


def test_foreign_containers():
    views = {name: engine.foreign(one) for name, one in containers().items()}
    found = {name: entry for name, entry in views.items() if entry is not None}
    assert set(found) == {
        "vllm-hand", "train", "k8s-pod", "cpu-job", "smi-exporter",
    }  # fmt: skip
    assert found["vllm-hand"] == {
        "container": "vllm-hand", "id": "2a" * 32, "image": "quay.io/ascend/vllm-ascend:v0.22.1", "state": "exited",
        "devices": ["/dev/davinci2", "/dev/davinci10"], "privileged": False, "ports": [], "npu": True,
        "ascend_visible_devices": None, "engine": "docker", "holds": {"nodes": [], "any": False, "why": None},
    }  # fmt: skip
    assert (found["train"]["npu"], found["train"]["privileged"], found["train"]["devices"]) == (True, True, [])
    assert (found["k8s-pod"]["npu"], found["k8s-pod"]["ascend_visible_devices"]) == (True, "0-1,3")
    assert found["train"]["holds"]["any"] is True
    assert found["k8s-pod"]["holds"]["nodes"] == ["/dev/davinci0", "/dev/davinci1", "/dev/davinci3"]
    # They are shown, but hold no NPU.
    assert (found["cpu-job"]["npu"], found["cpu-job"]["ascend_visible_devices"]) == (False, "void")
    assert (found["smi-exporter"]["npu"], found["smi-exporter"]["devices"]) == (False, [])


@pytest.mark.parametrize(
    "node, devices",
    [
        ("/dev/davinci1", ["/dev/davinci1"]),
        ("/dev/davinci10", ["/dev/davinci10"]),
        ("/dev/vdavinci100", ["/dev/vdavinci100"]),
        ("/dev/davinci_manager", []),
        ("/dev/davinci1/x", []),
        ("/dev/nvidia0", []),
    ],
)
def test_nodes_are_matched_whole(node, devices):
    assert engine.npu_devices({"HostConfig": {"Devices": [{"PathOnHost": node}]}}) == devices
    assert engine.npu_devices({"Mounts": [{"Source": node, "Destination": node}]}) == devices


def test_ours_is_known_by_its_label_not_by_its_name():
    ours = containers()["vllm-ascend"]
    assert engine.foreign(ours) is None
    ours["Config"]["Labels"] = None
    assert known(engine.foreign(ours))["devices"] == ["/dev/davinci0"]


# -- reading -------------------------------------------------------------------------------------------------------


@pytest.fixture
def host(tmp_path):
    return RecordedHost(tmp_path).file(DOCKER)


def read_engine(sysroot, timeout=20.0):
    """The engine's part of a reading that found one."""
    return known(engine.read(sysroot, timeout).engine)


def test_six_calls_and_no_more(host):
    live = host.calls(docker_20()).live()
    reading = engine.read(live)
    assert [argv[1] for argv in live.called] == ["version", "info", "ps", "inspect", "image", "image"]
    assert {argv[0] for argv in live.called} == {DOCKER}
    assert len(reading.containers) == 9
    assert len(reading.images) == 3
    assert reading.engine is not None
    # The folder /var/lib/docker is that of the machine that runs the tests: there or not.
    reading.engine.pop("storage_free_mb")
    assert reading.engine == {
        "kind": "docker", "cli": DOCKER, "client_version": "20.10.24+dfsg1", "version": "20.10.24+dfsg1",
        "api_version": "1.41", "default_runtime": "runc", "architecture": "amd64", "storage_root": "/var/lib/docker",
        "live_restore": False, "running": True, "error": None, "http_proxy": None, "https_proxy": None,
        "no_proxy": None, "runtimes": ["io.containerd.runc.v2", "io.containerd.runtime.v1.linux", "runc"],
        "security_options": ["name=apparmor", "name=seccomp,profile=default", "name=cgroupns"],
        "rootless": False, "userns_remap": False, "cgroup_version": "2",
    }  # fmt: skip


def test_a_host_without_containers_and_images_needs_four(host):
    version, info = data("docker/version-24.0.7.json"), data("docker/info-24.0.7.json")
    live = host.calls(docker_records(version, info, [], [])).live()
    assert engine.read(live)[1:] == ([], [])
    assert [argv[1] for argv in live.called] == ["version", "info", "ps", "image"]


def test_free_space_is_of_this_host_only(host, tmp_path):
    assert known(engine.free_mb(str(tmp_path))) > 0
    assert engine.free_mb(str(tmp_path / "none")) is None
    assert read_engine(host.calls(docker_20()).sysroot())["storage_free_mb"] is None


def test_images_kept_by_containerd_count_there(host):
    version, info = data("docker/version-29.0.2.json"), data("docker/info-29.0.2.json")
    host.calls(docker_records(version, info, [], [])).file("etc/containerd/config.toml", 'root = "/data/containerd"\n')
    assert read_engine(host.sysroot())["storage_root"] == "/data/containerd"


def test_a_stopped_engine_is_not_asked_again(host):
    out, err = (data("docker/version-28.2.2-engine-stopped." + kind) for kind in ("json", "stderr"))
    live = host.calls([record(["docker", *engine.VERSION_ARGS], out, err, 1)]).live()
    found = read_engine(live)
    assert (found["kind"], found["client_version"], found["version"]) == ("docker", "28.2.2", None)
    assert found["running"] is False
    assert "Cannot connect to the Docker daemon at unix:///var/run/docker.sock" in found["error"]
    assert len(live.called) == 1


@pytest.mark.parametrize("place", range(6))
def test_no_call_after_one_without_an_answer(host, place):
    records = docker_20()
    records[place] = record(records[place]["argv"], timed_out=True)
    live = host.calls(records).live()
    found = read_engine(live, timeout=3)
    assert len(live.called) == place + 1
    assert found["kind"] == "docker"
    assert found["running"] is False
    assert found["error"].endswith("gave no answer within 3 s")


def test_a_container_that_vanishes_between_listing_and_inspecting_costs_only_itself(host):
    records = docker_20()
    gone = json.dumps(json.loads(records[3]["stdout"])[1:])
    records[3] = record(records[3]["argv"], gone, "Error: No such object: 1a1a", 1)
    reading = engine.read(host.calls(records).sysroot())
    assert reading.engine is not None
    assert len(reading.containers) == 8
    assert reading.engine["running"] is True
    assert len(reading.images) == 3


def test_a_listing_that_fails_is_told(host):
    records = docker_20()
    records[2] = record(records[2]["argv"], "", "Error response from daemon: boom", 1)
    reading = engine.read(host.calls(records).sysroot())
    assert reading.engine is not None
    assert reading.containers == []
    assert (reading.engine["running"], reading.engine["error"]) == (False, "Error response from daemon: boom")


def test_no_engine_at_all(tmp_path):
    assert engine.read(RecordedHost(tmp_path).sysroot()) == (None, [], [])
    live = RecordedHost(tmp_path).live()
    assert engine.read(live) == (None, [], [])
    assert live.called == []


def test_recorded_calls_without_the_file_have_no_path(tmp_path):
    found = read_engine(RecordedHost(tmp_path).calls(docker_20()).sysroot())
    assert (found["kind"], found["cli"], found["running"]) == ("docker", None, True)


def test_a_file_without_recorded_calls_says_only_that_it_is_there(host):
    found = read_engine(host.sysroot())
    assert (found["kind"], found["cli"], found["running"], found["version"]) == ("docker", DOCKER, None, None)


@pytest.mark.parametrize("name", ["podman", "isula"])
def test_other_engines_are_named_and_not_asked(tmp_path, name):
    live = RecordedHost(tmp_path).file("usr/bin/" + name).live()
    found = read_engine(live)
    assert (found["kind"], found["cli"], found["running"]) == (name, "/usr/bin/" + name, None)
    assert live.called == []


@pytest.mark.parametrize("name", ["podman", "isula"])
def test_docker_as_a_link_to_another_engine(tmp_path, name):
    host = RecordedHost(tmp_path).file("usr/bin/" + name)
    (tmp_path / "usr/bin/docker").symlink_to(name)
    found = read_engine(host.sysroot())
    assert (found["kind"], found["cli"]) == (name, DOCKER)


def test_podman_s_shim_script(host):
    out, err = (data("docker/version-podman-4.9.4-shim." + kind) for kind in ("json", "stderr"))
    live = host.calls([record(["docker", *engine.VERSION_ARGS], out, err)]).live()
    found = read_engine(live)
    assert (found["kind"], found["version"], found["architecture"]) == ("podman", "4.9.4-rhel", "arm64")
    assert len(live.called) == 1


def test_a_docker_that_is_something_else(host):
    found = read_engine(host.calls([record(["docker", *engine.VERSION_ARGS], "", "unknown flag", 1)]).sysroot())
    assert (found["kind"], found["running"], found["error"]) == ("other", False, "unknown flag")


def test_a_login_s_docker_settings_do_not_count(host):
    live = host.calls(docker_20()).live()
    engine.read(live)
    assert live.environments == [engine.ENGINE_ENV] * 6
    assert engine.ENGINE_ENV == {
        "DOCKER_HOST": "", "DOCKER_CONTEXT": "default", "DOCKER_TLS": "", "DOCKER_TLS_VERIFY": "",
    }  # fmt: skip


@pytest.mark.parametrize(
    "proxy, shown",
    [
        ("http://user:pa/ss@w@proxy:3128", "http://xxxxx:xxxxx@proxy:3128"),
        ("http://user:p/w@proxy:3128/", "http://xxxxx:xxxxx@proxy:3128/"),
        ("user:pass@proxy:3128", "xxxxx:xxxxx@proxy:3128"),
        ("//user:pass@proxy", "//xxxxx:xxxxx@proxy"),
        ("http://proxy:3128", "http://proxy:3128"),
        ("", None),
        (7, None),
    ],
)
def test_logins_of_proxies_are_masked(proxy, shown):
    found = engine.parse_info(json.dumps({"HttpProxy": proxy, "HttpsProxy": proxy}))
    assert (found["http_proxy"], found["https_proxy"]) == (shown, shown)


def test_a_label_that_names_no_instance_makes_nothing_ours():
    container = {"Name": "/vllm-x", "Config": {"Labels": {"vllm-ascend.instance": "../../etc"}}}
    assert engine.instance(container) is None
    assert known(engine.foreign(container))["container"] == "vllm-x"
