"""The evidence of verifications as lines."""

from __future__ import annotations

import pytest
from ansible_collections.vllm_ascend.fleet.plugins.plugin_utils.verification_report import verification_lines

ENDED = {"ok": True, "rc": 0, "timed_out": False}
DOCUMENTED = {
    "name": "ascend",
    "ok": True,
    "level": "documented",
    "where": "throwaway",
    "npu_smi": ENDED,
    "python": {**ENDED, "python": "3.12.1", "versions": {"torch": "2.10.0", "vllm": None}},
    "platform_plugin": "activated",
    "deep": None,
    "message": None,
    "lines": [],
    "seconds": 7.3,
}
DEEP = {
    "npus": 2,
    "mapped": 2,
    "operations": "a small fp16 operation on each chip",
    "chips": [
        {"npu": 0, "node": "/dev/davinci4", "ok": True, "why": None, "seconds": 2.1, "soc": 223},
        {"npu": 1, "node": None, "ok": False, "why": "no end within 240 s", "seconds": 240.0, "soc": None},
    ],
    "build": {"device_type": "A2", "soc_version": None},
    "cann": {"version": "9.1.0", "source": "/cann/install.info"},
    "driver": None,
    "image_soc_version": "ascend910b1",
    "failures": ["npu:1 fails"],
    "warnings": ["the version of the host's driver is not known"],
}


def test_the_documented_verification():
    assert verification_lines([DOCUMENTED], "a2-node-01") == [
        "a2-node-01, instance ascend: documented verification passed, in a throw-away container, 7.3 s",
        "  npu-smi info    ended well",
        "  environment     vLLM Ascend environment: OK; platform plugin activated",
        "  versions        python 3.12.1, torch 2.10.0",
    ]


def test_the_deep_one_names_each_chip_and_every_warning():
    found = {**DOCUMENTED, "ok": False, "level": "deep", "deep": DEEP, "message": "npu:1 fails", "lines": ["npu:1: x"]}
    lines = verification_lines([found])
    assert lines[0] == "instance ascend: deep verification FAILED, in a throw-away container, 7.3 s"
    assert lines[1] == "  why             npu:1 fails"
    assert lines[5:] == [
        "  NPUs            2 seen, 2 mapped",
        "  image           built for A2 (SOC_VERSION ascend910b1)",
        "  CANN            9.1.0 (/cann/install.info)",
        "  driver          unknown in the container",
        "  operations      a small fp16 operation on each chip",
        "  npu:0           /dev/davinci4: computed in 2.1 s, SoC 223",
        "  npu:1           FAILED, no end within 240 s",
        "  warning         the version of the host's driver is not known",
        "  output          npu:1: x",
    ]


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"npu_smi": None}, "npu-smi info    not asked, it hung on the host"),
        ({"npu_smi": {"ok": False, "rc": None, "timed_out": True}}, "npu-smi info    no end within its time"),
        ({"python": {"ok": False, "rc": 1, "timed_out": False}}, "environment     ended with 1"),
        ({"deep": {**DEEP, "npus": None, "build": None, "cann": None}}, "NPUs            unknown seen, 2 mapped"),
    ],
)
def test_what_went_otherwise(change, text):
    assert any(text in line for line in verification_lines([{**DOCUMENTED, **change}]))


def test_an_instance_whose_npus_are_held_has_nothing_but_the_reason():
    held = {**DOCUMENTED, "ok": False, "where": None, "npu_smi": None, "python": None, "message": "held by training"}
    assert verification_lines([held]) == [
        "instance ascend: documented verification FAILED, 7.3 s",
        "  why             held by training",
    ]


def test_what_a_transaction_verified_and_what_it_did_not_touch():
    evidence = {key: value for key, value in DOCUMENTED.items() if key != "name"}
    applied = [{"name": "a", "evidence": {"verification": evidence}}, {"name": "b", "evidence": {}}]
    lines = verification_lines(applied)
    assert len([line for line in lines if "instance " in line]) == 1 and lines[0].startswith("instance a:")


def test_something_else_than_evidence_is_refused():
    with pytest.raises(TypeError, match="not of type"):
        verification_lines("evidence")
