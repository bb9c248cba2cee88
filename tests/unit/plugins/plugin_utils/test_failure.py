"""What is said of a host that failed."""

from __future__ import annotations

import pathlib

import pytest
from ansible_collections.vllm_ascend.fleet.plugins.plugin_utils import failure

LOGS = pathlib.Path(__file__).resolve().parents[2] / "data" / "vllm-logs"
STEP = "vllm_ascend.fleet.vllm_serve : Make the instances serve"
# The real chain of messages of an engine that fails to start, with a real cause at its root.
WORKER = (LOGS / "fail-023-worker-init-raises.txt").read_text(encoding="utf-8")
WORKER = WORKER.replace("npu_stub: told to fail in init_device", "NPU out of memory. Tried to allocate 2.00 GiB")
DIED = "ascend: start: vllm-ascend.service did not start: Engine core initialization failed. See root cause above."
AFTER = "The previous state is back. Now: vllm-ascend.service serves m."


def logs(log, error=None, kernel=None):
    return {
        "instances": [{"name": "ascend", "unit": "vllm-ascend.service", "log": log, "error": error}],
        "kernel": kernel,
    }


def report(result, read=None, facts=None):
    return failure.failure_report(result, "a2-node-01", STEP, read, facts)


def test_it_says_what_where_why_what_to_do_and_what_is_there_now():
    made = report({"msg": f"{DIED}\n{AFTER}", "failed_step": "start"}, logs(WORKER))
    lines = made["message"].splitlines()
    assert lines[:3] == [DIED, AFTER, f"on a2-node-01, in: {STEP} (start)"]
    assert made["causes"][0]["code"] != "unknown"
    assert "See root cause above" not in made["causes"][0]["cause"]
    assert any(line.startswith(f"  [{made['causes'][0]['code']}] ") for line in lines)
    assert any(line.startswith("    remedy: ") for line in lines)


def test_the_log_of_the_unit_comes_first_where_the_unit_failed_and_last_where_not():
    pull = "docker: Error response from daemon: Get https://r.test/v2/: x509: certificate signed by unknown authority"
    by_unit = report({"msg": pull, "failed_step": "start"}, logs(WORKER))
    by_task = report({"msg": pull, "failed_step": "image"}, logs(WORKER))
    assert {c["code"] for c in by_unit["causes"]} == {c["code"] for c in by_task["causes"]}
    assert by_unit["causes"][0] != by_task["causes"][0]
    assert "x509" in by_task["causes"][0]["evidence"][0]


def test_a_failure_of_another_module_needs_no_log():
    made = report({"msg": "dcmi module initialize failed. ret is -8005"})
    assert "-8005" in made["message"] and made["causes"][0]["remedy"] in " ".join(made["message"].split())


def test_what_is_not_known_is_unknown_with_its_lines():
    made = report({"msg": "RuntimeError: the flux is odd"})
    assert [cause["code"] for cause in made["causes"]] == ["unknown"]
    assert "the flux is odd" in made["message"]


def test_at_most_three_causes_each_once():
    kernel = "Out of memory: Killed process 12 (VLLM::EngineCor) total-vm:1kB"
    many = "\n".join(
        [WORKER, "dcmi module initialize failed. ret is -8005", "[Errno 98] Address already in use", kernel]
    )
    made = report({"msg": many, "failed_step": "start"}, logs(many, kernel=kernel))
    codes = [cause["code"] for cause in made["causes"]]
    assert len(codes) == len(set(codes)) == 3


def test_a_log_that_could_not_be_read_hides_nothing():
    made = report({"msg": DIED, "failed_step": "start"}, logs(None, "journalctl gave no answer within 20 s"))
    assert made["message"].startswith(DIED)
    assert "vllm-ascend.service could not be read: journalctl gave no answer" in made["message"]
    # What a task gives that was skipped, or whose host was lost meanwhile.
    for nothing in (None, {}, {"skipped": True}, {"unreachable": True, "msg": "lost"}):
        assert report({"msg": DIED}, nothing)["message"].startswith(DIED)


@pytest.mark.parametrize(
    ("instances", "names"),
    [
        ([{"name": "a", "outcome": "committed"}, {"name": "b", "outcome": "rolled_back"}], ["b"]),
        ([{"name": "a", "outcome": "rollback_failed"}, {"name": "b", "outcome": "refused"}], ["a", "b"]),
        ([{"name": "a", "ok": False}], []),
        (None, []),
    ],
)
def test_the_logs_of_those_that_failed_are_read(instances, names):
    assert failure.failed_instances({"instances": instances}) == names


def test_a_host_with_problems_is_told_the_first_in_full_and_all_codes():
    problems = [
        {"code": "no_npu", "message": "There is no Ascend NPU on this host.", "remedy": "Look at lspci."},
        {"code": "path_missing", "message": "x", "remedy": "y"},
        {"code": "path_missing", "message": "z", "remedy": "y"},
    ]
    first = "[no_npu] There is no Ascend NPU on this host. Remedy: Look at lspci."
    assert failure.failure_message({"problems": problems[:1]}) == first
    told = failure.failure_message({"problems": problems})
    assert told == f"{first} All problems: no_npu, path_missing x2."
    assert failure.failure_message({"problems": problems, "failed": {"message": "it broke"}}) == "it broke"
    assert failure.failure_message({}) == ""
