"""Offline inference on the rack: shared by two hosts, beside a service, with failures, and with the real vLLM.

hung-1 and sparse-1 run the imitation; then sparse-1 runs the real vLLM (tests/lab/real/README.md). They start from
whatever they are in.
"""

from __future__ import annotations

import json
import time

import pytest
import yaml
from ansible_collections.vllm_ascend.fleet.tests.integration.rack import ROOT, on, playbook, site, variables
from ansible_collections.vllm_ascend.fleet.tests.integration.real_engine import IMAGE as REAL
from ansible_collections.vllm_ascend.fleet.tests.integration.real_engine import MODEL

pytestmark = pytest.mark.lab
INVENTORY = ROOT / "inventories/lab_odd"
HUNG, SPARSE = "hung-1", "sparse-1"
SMALL = {"name": "small", "port": 8001, "npus": 1}
JOB = "vllm-small-offline"
PROMPTS = ["Hello, my name is", "The future of AI is", "one", "two", "three"]
COMMON = {"vllm_instances": [SMALL], "vllm_accept_problems": ["npu_smi_hung"], "vllm_offline_prompts": PROMPTS}
REAL_IMAGE = REAL.format("")


@pytest.fixture(scope="module")
def service():
    """A service on sparse-1, and its process: it must be the same after everything. The real image comes meanwhile."""
    command = ["systemd-run", "--quiet", "--collect", "--unit=fetch-image", "docker", "pull", "--quiet", REAL_IMAGE]
    on(SPARSE, *command, check=False)
    quick = {"vllm_verify": "skip", "vllm_environment": {"LAB_LOAD_S": "0"}}
    run = site("--limit", SPARSE, *variables(**COMMON, **quick), inventory=INVENTORY)
    assert run.rc == 0, run.text[-4000:]
    yield pid()
    removed = ["--limit", SPARSE, *variables(vllm_instance_names=["small"])]
    assert playbook("playbooks/remove.yml", "-i", str(INVENTORY), *removed).rc == 0


def pid():
    """The process of the service's container: another one after any restart."""
    return on(SPARSE, "docker", "inspect", "--format", "'{{.State.Pid}}'", "vllm-small").strip()


def offline(folder, hosts, *arguments, own=None, **values):
    """The playbook on hosts, some with variables of their own; the run, and the results by the name of their file."""
    inventories = ["-i", str(INVENTORY)]
    if own:
        path = folder / "own.yml"
        path.write_text(yaml.safe_dump({"all": {"hosts": own}}), encoding="utf-8")
        inventories += ["-i", str(path)]
    given = variables(**{**COMMON, "vllm_offline_results": str(folder / "results.jsonl"), **values})
    run = playbook("playbooks/offline.yml", *inventories, "--limit", hosts, *arguments, *given)
    files = {path.name: path.read_text(encoding="utf-8") for path in sorted(folder.glob("results*"))}
    return run, {name: [json.loads(line) for line in text.splitlines()] for name, text in files.items()}


def ran(run, host):
    """The results of the module on a host, one a round."""
    return [result for _name, on_host, result in run.tasks if on_host == host and "outputs" in result]


def test_hosts_share_a_list_and_a_failed_share_goes_to_another_host(service, tmp_path):
    on(SPARSE, "docker", "run", "-d", "--label", "vllm-ascend.role=offline", "--name", JOB,
       "--entrypoint", "sleep", "quay.io/ascend/vllm-ascend:v0.23.0", "600")  # fmt: skip
    own = {HUNG: {"vllm_environment": {"LAB_ENGINE_FAIL": "start"}}}
    run, files = offline(tmp_path, f"{HUNG},{SPARSE}", own=own)
    assert run.rc == 0, run.text[-6000:]
    assert list(files) == ["results.jsonl"]
    lines = files["results.jsonl"]
    assert [(line["index"], line["prompt"]) for line in lines] == list(enumerate(PROMPTS))
    assert all(line["text"].strip() and line["host"] == SPARSE for line in lines)
    assert all((line["output_tokens"], line["finish_reason"]) == (32, "length") for line in lines)
    (failed,) = ran(run, HUNG)
    assert failed["missing"] == [0, 1, 2]
    assert "made to fail in init_device" in failed["log"]
    first, second = ran(run, SPARSE)
    assert ([one["index"] for one in first["outputs"]], first["removed_stale"]) == ([3, 4], True)
    assert [one["index"] for one in second["outputs"]] == [0, 1, 2]
    # The name of the host, its prompts, and the line that says why.
    for part in ("hung-1", "prompts 0-2", "made to fail in init_device"):
        assert part in run.text.split("prompts have an output")[1]
    for host in (HUNG, SPARSE):
        assert on(host, "docker", "ps", "--all", "--quiet", "--filter", f"name={JOB}") == ""
        assert on(host, "find", "/var/lib/vllm-ascend/.offline", "-mindepth", "1", "-type", "d") == ""
    assert pid() == service


def test_prompts_without_a_text_are_named_and_the_others_kept(service, tmp_path):
    (tmp_path / "results.jsonl").write_text('{"earlier": true}\n', encoding="utf-8")
    own = {SPARSE: {"vllm_environment": {"LAB_ENGINE_TEXT": "some"}}}
    run, files = offline(tmp_path, SPARSE, own=own, vllm_offline_retries=0)
    assert run.rc == 2
    assert "2 of 5 prompts have no output: prompts 1, 3" in run.text
    assert [line["index"] for line in files["results.jsonl.partial"]] == [0, 2, 4]
    assert files["results.jsonl"] == [{"earlier": True}]


def test_the_real_vllm_on_a_free_npu_beside_a_service(service, tmp_path):
    deadline = time.monotonic() + 120
    while on(SPARSE, "systemctl", "is-active", "fetch-image", check=False).strip() == "active":
        assert time.monotonic() < deadline
        time.sleep(1)
    run, files = offline(tmp_path, SPARSE, vllm_image=REAL_IMAGE, vllm_offline_sampling={"max_tokens": 5})
    assert run.rc == 0, run.text[-6000:]
    assert [line["index"] for line in files["results.jsonl"]] == list(range(len(PROMPTS)))
    assert all(line["text"].strip() and line["output_tokens"] == 5 for line in files["results.jsonl"])
    assert files["results.jsonl"][0]["prompt_tokens"] > 1
    assert run.result(SPARSE, "vllm_offline")["log"] == ""
    assert pid() == service
    assert MODEL in run.text
