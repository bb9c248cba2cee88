"""The deep verification on the rack: what it finds wrong, what it shows, what it leaves alone."""

from __future__ import annotations

import pytest
from ansible_collections.vllm_ascend.fleet.tests.integration.rack import ROOT, on, playbook, site, variables

pytestmark = pytest.mark.lab
HOST = "a5-openeuler-1"
# The image of Atlas A2, on a 950DT.
OTHER_IMAGE = "quay.io/ascend/vllm-ascend:v0.23.0-openeuler"
DEEP = {"vllm_verify_level": "deep"}


@pytest.fixture(scope="module", autouse=True)
def bare():
    """A host without an instance, before and after these tests."""
    remove = ("playbooks/remove.yml", "-i", str(ROOT / "inventories/lab"), "--limit", HOST)
    playbook(*remove, *variables(vllm_instance_names=["ascend"]))
    yield
    playbook(*remove, *variables(vllm_instance_names=["ascend"]))


@pytest.fixture(scope="module")
def served():
    """The run that makes two NPUs serve, verified deeply before."""
    return site("--limit", HOST, *variables(vllm_npus=2, **DEEP))


def verify(**values):
    return playbook(
        "playbooks/verify.yml", "-i", str(ROOT / "inventories/lab"), "--limit", HOST, *variables(**DEEP, **values)
    )


def test_the_chip_that_fails_and_the_one_that_hangs_are_named_among_all():
    knobs = {"LAB_NPU_FAILS": "0", "LAB_NPU_HANGS": "3"}
    run = verify(vllm_npus=4, vllm_environment=knobs, vllm_verify_timeout=10)
    evidence = run.result(HOST, "vllm_verify")["instances"][0]
    bad = {chip["node"]: chip["why"] for chip in evidence["deep"]["chips"] if not chip["ok"]}
    assert (run.rc, len(evidence["deep"]["chips"]), set(bad)) == (2, 4, {"/dev/davinci0", "/dev/davinci3"})
    assert "507015" in bad["/dev/davinci0"] and "no end within" in bad["/dev/davinci3"]
    assert "npu:0 (/dev/davinci0) fails a small fp16 operation" in evidence["message"]
    assert "  npu:3           /dev/davinci3: FAILED, no end within" in run.text
    assert on(HOST, "docker ps --all --quiet").strip() == ""


def test_a_run_verifies_each_chip_before_it_serves_and_says_so(served):
    assert served.rc == 0, served.text[-3000:]
    evidence = served.result(HOST, "vllm_instance")["instances"][0]["evidence"]["verification"]
    deep = evidence["deep"]
    assert [(chip["node"], chip["ok"]) for chip in deep["chips"]] == [("/dev/davinci0", True), ("/dev/davinci1", True)]
    assert (deep["npus"], deep["build"]["device_type"], deep["cann"]["version"]) == (2, "A5", "9.1.0")
    assert "instance ascend: deep verification passed, in a throw-away container" in served.text


def test_a_service_is_counted_and_its_chips_are_left_alone(served):
    run = verify(vllm_npus=2)
    evidence = run.result(HOST, "vllm_verify")["instances"][0]
    assert (run.rc, evidence["ok"], evidence["where"], evidence["deep"]["npus"]) == (0, True, "running container", 2)
    assert evidence["deep"]["chips"] == [] and "could disturb" in evidence["deep"]["operations"]


def test_an_image_for_other_hardware_is_refused_while_the_service_runs(served):
    started = on(HOST, "docker inspect --format '{{.State.StartedAt}}' vllm-ascend")
    run = site("--limit", HOST, *variables(vllm_npus=2, vllm_image=OTHER_IMAGE, **DEEP))
    result = run.result(HOST, "vllm_instance")
    assert (run.rc, result["failed_step"]) == (2, "preflight")
    assert "built for the device type A2, but this host is Atlas 950DT" in result["msg"]
    assert on(HOST, "docker inspect --format '{{.State.StartedAt}}' vllm-ascend") == started
