"""The main job on the rack: what a run says, does and leaves alone. It starts from whatever the rack is in."""

from __future__ import annotations

import json
import re
import time

import pytest
from ansible_collections.vllm_ascend.fleet.tests.integration.rack import (
    BAD,
    ROOT,
    on,
    playbook,
    site,
    snapshot,
    variables,
)

# Another group has a2-ubuntu-1 meanwhile.
pytestmark = pytest.mark.lab
HOSTS = "all:!a2-ubuntu-1"
GOOD = ("a3-openeuler-1", "duo-ubuntu-1", "pro-openeuler-1", "a5-openeuler-1")
HOST = "a3-openeuler-1"


@pytest.fixture(scope="module", autouse=True)
def serving():
    """The documented deployment everywhere, before and after these tests."""
    site("--limit", HOSTS)
    yield
    site("--limit", HOSTS)


def test_second_run_changes_nothing_with_at_most_four_modules_a_host():
    run = site("-vvv", "--limit", HOSTS, results=False)
    recap = dict(re.findall(r"^(\S+)\s+: ok=\d+\s+changed=(\d+)", run.text, re.MULTILINE))
    assert {host: recap[host] for host in GOOD} == {host: "0" for host in GOOD}
    modules = len(re.findall(r"Using module file", run.text))
    hosts = len(GOOD) + len(BAD)
    assert 0 < modules + hosts <= 4 * hosts, "modules, and the raw check of Python on each host"


def test_bad_hosts_are_named_with_reasons_and_left_untouched():
    before = {host: snapshot(host) for host in BAD}
    run = site("--limit", HOSTS)
    assert run.rc == 2
    assert {host for host, numbers in run.stats.items() if numbers["failures"]} == set(BAD)
    report = {host: run.result(host, "set_fact")["ansible_facts"]["vllm_report"] for host in BAD}
    codes = {host: {problem["code"] for problem in report[host]["problems"]} for host in BAD}
    assert codes["plain-1"] == {"no_npu"}
    assert {"no_driver", "npu_smi_missing", "device_missing", "path_missing"} <= codes["half-1"]
    assert all(problem["message"] and problem["remedy"] for host in BAD for problem in report[host]["problems"])
    assert "/usr/local/Ascend/driver/lib64" in run.text
    assert {host: snapshot(host) for host in BAD} == before


def test_all_or_nothing_holds_every_host_back():
    changed = variables(vllm_all_or_nothing=True, vllm_environment={"LAB_MARK": "held"})
    run = site(*changed, "--limit", f"{HOST},plain-1")
    assert run.rc == 2 and run.stats[HOST]["changed"] == 0
    assert "held_back" in run.text


def test_check_predicts_exactly_what_the_run_changes():
    changed = [
        "--limit",
        HOST,
        *variables(vllm_extra_args=["--max-model-len", "2048"], vllm_environment={"LAB_MARK": "1"}),
    ]
    before = snapshot(HOST)
    predicted = site("--check", "--diff", *changed)
    assert snapshot(HOST) == before, "a check changed the host"
    done = site("--diff", *changed)
    module = "vllm_instance"
    assert predicted.rc == done.rc == 0
    assert predicted.result(HOST, module)["changed"] is done.result(HOST, module)["changed"] is True
    assert predicted.result(HOST, module)["diff"] == done.result(HOST, module)["diff"]
    assert "--max-model-len" in json.dumps(done.result(HOST, module)["diff"])
    assert "--max-model-len 2048" in on(HOST, "docker top vllm-ascend -eo pid,args")
    again = site(*changed)
    assert again.stats[HOST]["changed"] == 0


def test_a_bad_flag_is_refused_before_the_service_stops():
    before = on(HOST, "docker inspect --format '{{.Id}}' vllm-ascend")
    started = time.monotonic()
    # The plan names it; accepted there, the image's own parser is the next to refuse it.
    assert "[serve_flag_unknown]" in site("--limit", HOST, *variables(vllm_extra_args=["--max-num-seq-s", "8"])).text
    bad = variables(vllm_extra_args=["--max-num-seq-s", "8"], vllm_accept_problems=["serve_flag_unknown"])
    run = site("--limit", HOST, *bad)
    assert run.rc == 2 and "unrecognized arguments: --max-num-seq-s" in run.text
    assert on(HOST, "docker inspect --format '{{.Id}}' vllm-ascend") == before, "the service was stopped"
    assert time.monotonic() - started < 90, "a bad flag must not cost the start time-out"


@pytest.mark.parametrize(
    ("image", "words"),
    [("v0.23.0-a3-lab-broken", "RuntimeError"), ("v0.23.0-a3-lab-garbage", "choices[0].text is empty")],
    ids=["fails to start", "answers nothing"],
)
def test_a_bad_image_is_rolled_back_to_the_serving_service(image, words):
    before = on(HOST, "systemctl cat vllm-ascend")
    run = site("--limit", HOST, *variables(vllm_image=f"quay.io/ascend/vllm-ascend:{image}"))
    assert run.rc == 2
    result = run.result(HOST, "vllm_instance")
    assert result["failed"] and words.lower() in result["msg"].lower(), result["msg"]
    assert result["instances"][0]["outcome"] == "rolled_back"
    assert on(HOST, "systemctl cat vllm-ascend") == before
    assert on(HOST, "systemctl is-active vllm-ascend").strip() == "active"
    assert json.loads(on(HOST, "curl -sf localhost:8000/v1/models"))["data"]


def test_two_instances_and_a_stop_of_one_leaves_the_other_alone():
    two = [{"name": "ascend", "port": 8000}, {"name": "second", "port": 8001, "npus": 2, "api_key": "only-for-tests"}]
    done = site("--limit", HOST, *variables(vllm_instances=two))
    assert done.rc == 0, done.text[-3000:]
    assert "only-for-tests" not in done.text
    secrets = on(
        HOST,
        "stat -c '%a %U' /etc/vllm-ascend/second.env; systemctl cat vllm-second;"
        " docker inspect vllm-second --format '{{.HostConfig.Devices}}'",
    )
    assert secrets.startswith("600 root") and "only-for-tests" not in secrets
    assert "--tensor-parallel-size 2" in secrets and "/dev/davinci0 " not in secrets
    assert on(HOST, "curl -s -o /dev/null -w '%{http_code}' localhost:8001/v1/models") == "401"
    pid = on(HOST, "docker inspect --format '{{.State.Pid}}' vllm-ascend")
    playbook(
        "playbooks/stop.yml",
        "-i",
        str(ROOT / "inventories/lab"),
        "--limit",
        HOST,
        *variables(vllm_instance_names=["second"]),
    )
    assert on(HOST, "systemctl is-active vllm-second", check=False).strip() == "inactive"
    assert on(HOST, "docker inspect --format '{{.State.Pid}}' vllm-ascend") == pid
    assert "Application shutdown complete" in on(HOST, "journalctl -u vllm-second -o cat")
    playbook("playbooks/start.yml", "-i", str(ROOT / "inventories/lab"), "--limit", HOST)
    assert on(HOST, "systemctl is-active vllm-second").strip() == "active"
    removed = playbook(
        "playbooks/remove.yml",
        "-i",
        str(ROOT / "inventories/lab"),
        "--limit",
        HOST,
        *variables(vllm_instance_names=["second"]),
    )
    assert removed.rc == 0
    assert on(HOST, "ls /etc/systemd/system/vllm-second.service /etc/vllm-ascend/second.env", check=False) == ""
    assert on(HOST, "docker inspect --format '{{.State.Pid}}' vllm-ascend") == pid
    assert on(HOST, "ls -d /root/.cache")


def test_the_service_comes_back_and_leaves_no_orphan():
    """The docker client is killed with -9, then the engine core (after which vLLM ends with exit code 0)."""
    for kill in (
        "systemctl kill --signal=KILL --kill-who=main vllm-ascend",
        "pkill -9 VLLM::EngineCor",
    ):
        before = on(HOST, "docker inspect --format '{{.Id}}' vllm-ascend").strip()
        on(HOST, kill, check=False)
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            now = on(HOST, "docker inspect --format '{{.Id}}' vllm-ascend", check=False).strip()
            if now and now != before and on(HOST, "systemctl is-active vllm-ascend", check=False).strip() == "active":
                break
            time.sleep(1)
        assert now and now != before, kill
        assert on(HOST, "docker ps --quiet --filter label=vllm-ascend.instance=ascend").count("\n") == 1
        assert json.loads(on(HOST, "curl -sf localhost:8000/v1/models"))["data"]


def test_local_model_folder_is_mounted_read_only():
    on(HOST, "mkdir -p /srv/models/tiny && echo '{}' > /srv/models/tiny/config.json")
    local = variables(vllm_model="/srv/models/tiny", vllm_model_source="local")
    run = site("--limit", HOST, *local)
    assert run.rc == 0, run.text[-3000:]
    mounts = json.loads(on(HOST, "docker inspect vllm-ascend"))[0]["Mounts"]
    assert [m["RW"] for m in mounts if m["Destination"] == "/models/tiny"] == [False]
    assert json.loads(on(HOST, "curl -sf localhost:8000/v1/models"))["data"][0]["id"] == "tiny"
    missing = site("--limit", HOST, *variables(vllm_model="/srv/models/none", vllm_model_source="local"))
    assert missing.rc == 2 and "/srv/models/none" in missing.text


def test_hand_started_container_is_named_and_adopted_on_request():
    playbook(
        "playbooks/remove.yml",
        "-i",
        str(ROOT / "inventories/lab"),
        "--limit",
        HOST,
        *variables(vllm_instance_names=["ascend"]),
    )
    on(HOST, "docker run -d --init --name vllm-ascend quay.io/ascend/vllm-ascend:v0.23.0-a3-openeuler sleep 3600")
    try:
        refused = site("--limit", HOST)
        assert refused.rc == 2 and "vllm-ascend" in refused.text and "vllm_adopt_containers" in refused.text
        assert on(HOST, "docker inspect --format '{{.State.Status}}' vllm-ascend").strip() == "running"
        adopted = site("--limit", HOST, *variables(vllm_adopt_containers=True))
        assert adopted.rc == 0, adopted.text[-3000:]
        assert on(HOST, "systemctl is-active vllm-ascend").strip() == "active"
        assert on(HOST, "docker inspect --format '{{.State.Status}}' vllm-ascend-adopted").strip() == "exited"
    finally:
        on(HOST, "docker rm -f vllm-ascend-adopted", check=False)


def test_verification_on_its_own():
    run = playbook("playbooks/verify.yml", "-i", str(ROOT / "inventories/lab"), "--limit", f"{HOSTS}:!bad")
    assert run.rc == 0, run.text[-3000:]
    for host in GOOD:
        evidence = run.result(host, "vllm_verify")["instances"][0]
        assert evidence["ok"] and evidence["where"] == "running container"
