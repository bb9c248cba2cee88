"""plan.yml over copies of hosts: the documented specifications, the files, and that a copy can only be planned."""

from __future__ import annotations

import json

import pytest
import yaml
from ansible_collections.vllm_ascend.fleet.tests import gallery
from ansible_collections.vllm_ascend.fleet.tests.integration.rack import playbook
from ansible_collections.vllm_ascend.fleet.tests.unit.support import facts_builder, host_trees

CASES = facts_builder.documented_cases()
# Of the gallery, all of which tests/gallery plans.
REFUSED = ("no_npu", "no_driver", "half_driver", "first_generation", "soc_310b", "mixed")


def inventory(path, hosts, **variables):
    """An inventory of copies: {name: folder}."""
    group = {
        "vars": {
            "ansible_connection": "local",
            "ansible_python_interpreter": "{{ ansible_playbook_python }}",
            **variables,
        },
        "hosts": {name: {"vllm_sysroot": str(folder)} for name, folder in hosts.items()},
    }
    path.write_text(yaml.safe_dump({"all": group}))
    return str(path)


@pytest.fixture(scope="module")
def planned(tmp_path_factory):
    """{host: document} of the ten documented hosts and of REFUSED, from one run of plan.yml."""
    base = tmp_path_factory.mktemp("replay")
    hosts = {}
    for case in CASES:
        name = f"{case['family']}-{case['image_os']}"
        tree = host_trees.family_host(base / name, case["family"], case["image_os"])
        # A real 950DT has no devmm_svm, but the documentation passes it.
        tree.nodes(*(["devmm_svm"] if case["family"] == "atlas_950dt" else []))
        hosts[name] = base / name
    for name in REFUSED:
        gallery.build(base / name, name)
        hosts[name] = base / name
    trap = base / "atlas_a2-ubuntu/usr/local/bin/npu-smi"
    trap.write_text(f"#!/bin/sh\ntouch {base}/ran\n")
    trap.chmod(0o755)
    target = inventory(base / "hosts.yml", hosts, vllm_model_cache=facts_builder.CACHE)
    run = playbook("playbooks/plan.yml", "-i", target, "-e", f"vllm_plan_dir={base}/plans", results=False)
    assert not (base / "ran").exists(), "something below a sysroot was run"
    return run, {name: json.loads((base / f"plans/{name}.json").read_text()) for name in hosts}


@pytest.mark.parametrize("case", CASES, ids=facts_builder.case_id)
def test_documented_specifications(planned, case):
    document = planned[1][f"{case['family']}-{case['image_os']}"]
    assert document["plan"]["problems"] == []
    assert document["facts"]["family"] == case["family"]
    (instance,) = document["plan"]["instances"]
    container = instance["container"]
    mounts = {(m["source"], m["target"]) for m in case["mounts"]}
    assert {(m["source"], m["target"]) for m in container["mounts"]} == mounts
    assert sorted(container["devices"]) == case["devices"]
    for key in ("image", "shm_size", "privileged", "network", "published_ports"):
        assert container[key] == case[key], key
    assert instance["serve_args"] == case["serve_args"]


@pytest.mark.parametrize("name", REFUSED)
def test_hosts_that_cannot_serve_have_problems_with_remedies(planned, name):
    plan = planned[1][name]["plan"]
    assert plan["problems"]
    assert all(problem["message"] and problem["remedy"] for problem in plan["problems"])
    assert all(f"[{problem['code']}]" in planned[0].text for problem in plan["problems"])


def test_the_run_fails_since_hosts_have_problems_and_shows_commands(planned):
    assert planned[0].rc == 2
    assert "docker run: docker run --pull never" in planned[0].text
    assert """bash -ic 'exec "$@"' --""" in planned[0].text


def test_all_bad_settings_are_named_at_once(tmp_path):
    host_trees.family_host(tmp_path / "tree", "atlas_a2")
    bad = {"vllm_port": "x", "vllm_image_os": "debian", "vllm_instances": [5], "vllm_npus": 1.5}
    target = inventory(tmp_path / "hosts.yml", {"host": tmp_path / "tree"}, vllm_prot=8001, **bad)
    run = playbook("playbooks/plan.yml", "-i", target, "-e", f"vllm_plan_dir={tmp_path}/plans", results=False)
    assert run.rc == 2
    plan = json.loads((tmp_path / "plans/host.json").read_text())["plan"]
    problems = plan["problems"]
    assert [w for w in plan["warnings"] if "vllm_prot" in w["message"] and "vllm_port" in w["message"]]
    assert all(any(name in problem["message"] for problem in problems) for name in bad), problems


@pytest.mark.parametrize("name", ["site", "verify", "start", "stop", "restart", "remove"])
def test_only_plan_takes_a_copy_of_a_host(tmp_path, name):
    host_trees.family_host(tmp_path / "tree", "atlas_a2")
    target = inventory(tmp_path / "hosts.yml", {"host": tmp_path / "tree"})
    run = playbook(f"playbooks/{name}.yml", "-i", target, results=False)
    assert run.rc == 2
    assert "can only be planned" in " ".join(run.text.split())
    assert "changed=0" in run.text
