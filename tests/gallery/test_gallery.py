"""Every host of the gallery is read and planned as its file expects, in this process and by plan.yml."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys

import jmespath
import pytest
from ansible_collections.vllm_ascend.fleet.tests import gallery
from ansible_collections.vllm_ascend.fleet.tests.gallery.replay import replay

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Warnings that the default settings give every host.
EVERYWHERE = {"endpoint_open"}
# Hosts that plan.yml plans in the tests; `make gallery` plans all.
SHOWN = 22
# What a host's file may expect. problems is always there: a host that is not said to be refused must be deployable.
EXPECTATIONS = {"family", "product", "problems", "warnings", "npus", "facts", "plan", "says"}


def codes(entries):
    return sorted({entry["code"] for entry in entries} - EVERYWHERE)


@pytest.mark.parametrize("name", gallery.names())
def test_host(tmp_path, name):
    host = gallery.load(name)
    expect = host["expect"]
    assert set(expect) <= EXPECTATIONS
    gallery.build(tmp_path, name)
    facts, _observed, plan = replay(tmp_path, host.get("settings"))
    findings = [*facts["problems"], *facts["warnings"], *plan["problems"], *plan["warnings"]]
    told = "\n".join(json.dumps(entry, ensure_ascii=False) for entry in findings)
    assert facts["family"] == expect["family"], told
    assert codes(plan["problems"]) == sorted(expect["problems"]), told
    assert codes(plan["warnings"]) == sorted(expect.get("warnings", [])), told
    assert all(finding["message"] and finding["remedy"] for finding in findings)
    if "product" in expect:
        assert facts["product"] == expect["product"]
    if not expect["problems"]:
        assert {i["name"]: i["npus"] for i in plan["instances"]} == expect["npus"]
    for part, document in (("facts", facts), ("plan", plan)):
        for query, value in expect.get(part, {}).items():
            assert jmespath.search(query, document) == value, query
    for words in expect.get("says", []):
        assert words in told


def test_every_host_says_what_it_is_and_where_that_was_seen():
    for name in gallery.names():
        host = gallery.load(name)
        assert host["about"] and host["source"] and "problems" in host["expect"], name


def shown_by_plan_yml():
    """The healthy hosts, and those of the others that show most codes: a host costs plan.yml seconds of CPU.

    What each host is taken for is test_host's; here it is shown that plan.yml brings all of it through.
    """
    found = {}
    for name in gallery.names():
        expect = gallery.load(name)["expect"]
        found[name] = {*expect["problems"], *expect.get("warnings", []), expect["family"]}
    chosen = [name for name in found if name.startswith("atlas_")]
    missing = set().union(*found.values()).difference(*(found[name] for name in chosen))
    while missing and len(chosen) < SHOWN:
        chosen.append(max(found, key=lambda name: len(found[name] & missing)))
        missing -= found[chosen[-1]]
    return chosen


def test_plan_yml_says_the_same(tmp_path):
    names = shown_by_plan_yml()
    assert 20 < len(names) < len(gallery.names())
    run = [sys.executable, "-m", "tests.gallery", str(tmp_path), *names]
    subprocess.run(run, cwd=ROOT, check=True, capture_output=True)
    traps = [path for path in (tmp_path / "hosts").rglob("npu-smi") if path.is_file()]
    assert traps
    for trap in traps:
        trap.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
        trap.chmod(0o755)
    play = subprocess.run(
        [
            str(pathlib.Path(sys.executable).parent / "ansible-playbook"),
            "playbooks/plan.yml",
            "-i",
            str(tmp_path / "inventory.yml"),
            "-e",
            f"vllm_plan_dir={tmp_path}/plans",
        ],
        cwd=ROOT,
        env={**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "ANSIBLE_FORKS": "8"},
        capture_output=True,
        text=True,
    )
    assert play.returncode == 2, play.stdout[-3000:]
    assert not (tmp_path / "ran").exists(), "something below a sysroot was run"
    for name in names:
        expect = gallery.load(name)["expect"]
        document = json.loads((tmp_path / "plans" / f"{name}.json").read_text(encoding="utf-8"))
        assert codes(document["plan"]["problems"]) == sorted(expect["problems"]), name
        assert codes(document["plan"]["warnings"]) == sorted(expect.get("warnings", [])), name
        if not expect["problems"]:
            assert {i["name"]: i["npus"] for i in document["plan"]["instances"]} == expect["npus"], name
