"""Reports: what a person reads must name host, value and remedy, and must not lose a host."""

from __future__ import annotations

import pytest
from ansible_collections.vllm_ascend.fleet.plugins.plugin_utils.report import (
    deployment_report,
    diagnosis_lines,
    difference_table,
    plan_lines,
    problem_codes,
    problem_table,
)

PROBLEM = {"code": "mount_missing", "message": "/usr/local/dcmi does not exist.", "remedy": "Install the driver."}
INSTANCE = {
    "name": "ascend",
    "docker_run": ["docker", "run", "--name", "vllm-ascend", "image", "bash", "-ic", 'exec "$@"'],
    "serve_args": ["vllm", "serve", "Qwen/Qwen3-0.6B", "--compilation-config", '{"a":[1,2]}'],
    "endpoint": {"port": 8000},
}
PLAN = {
    "family": "atlas_a2",
    "product": None,
    "image": {"reference": "quay.io/ascend/vllm-ascend:v0.23.0"},
    "instances": [INSTANCE],
    "warnings": [],
    "explain": [{"what": "image", "why": "no suffix", "source": "quick start"}],
}
UPDATE = {
    "changed": True,
    "instances": [
        {"name": "ascend", "action": "update", "reasons": [{"field": "image", "before": "v0.22", "after": "v0.23"}]}
    ],
    "image": {"action": "none"},
    "orphans": ["old"],
}
REPORTS = {
    "bad": {"problems": [PROBLEM, {**PROBLEM, "code": "no_driver"}], "plan": {"family": "atlas_a2"}},
    "good": {
        "problems": [],
        "plan": PLAN,
        "difference": UPDATE,
        "address": "192.0.2.1",
        "applied": {"instances": [{"name": "ascend", "action": "update"}]},
    },
    "lost": {},
    "broken": {
        "problems": [],
        "plan": PLAN,
        "difference": UPDATE,
        "failed": {"step": "x", "message": "gate: died\nlog"},
    },
}


def test_all_problems_of_a_host_are_shown_with_their_remedy():
    lines = problem_table(REPORTS)
    assert lines[0].startswith("1 of 4 hosts have problems")
    text = "\n".join(lines)
    assert text.count("remedy: Install the driver.") == 2
    assert "[mount_missing]" in text and "[no_driver]" in text and "/usr/local/dcmi" in text


def test_no_problem_says_so():
    assert problem_table({"good": {"problems": []}}) == ["No host has problems."]


def test_differences_name_reason_and_orphan_and_no_host_is_lost():
    text = "\n".join(difference_table(REPORTS))
    assert "image: v0.22 -> v0.23" in text and "orphan" in text
    assert all(host in text for host in REPORTS)
    assert "no answer from this host" in text


def test_plan_lines_give_commands_that_a_shell_takes():
    lines = plan_lines(REPORTS["good"])
    assert "ascend: docker run: docker run --name vllm-ascend image bash -ic 'exec \"$@\"'" in lines
    assert "ascend: vllm serve: vllm serve Qwen/Qwen3-0.6B --compilation-config '{\"a\":[1,2]}'" in lines
    assert any("image: no suffix (quick start)" in line for line in lines)


def test_summary_has_one_line_a_host_with_endpoint_or_reason():
    rows = {line.split()[0]: line for line in deployment_report(REPORTS)[2:]}
    assert "http://192.0.2.1:8000/v1" in rows["good"] and "update" in rows["good"]
    assert "mount_missing, no_driver" in rows["bad"] and "failed" in rows["bad"]
    assert "gate: died" in rows["broken"] and "log" not in rows["broken"]
    assert "no answer" in rows["lost"]


def test_a_change_without_a_result_is_a_failure():
    rows = deployment_report({"gone": {"problems": [], "plan": PLAN, "difference": UPDATE, "begun": True}})[2:]
    assert "failed" in rows[0] and "connection was lost" in rows[0] and "http" not in rows[0]


def test_codes_are_counted():
    assert problem_codes({"problems": [PROBLEM, PROBLEM, {**PROBLEM, "code": "x"}]}) == "mount_missing x2, x"


@pytest.mark.parametrize(
    ("action", "check", "words"),
    [
        ("none", False, "unchanged"),
        ("update", False, "update"),
        ("update", True, "would update"),
    ],
)
def test_the_result_of_an_instance_is_what_was_or_would_be_done(action, check, words):
    done = {"instances": [{"name": "ascend", "action": action, "changed": action != "none"}]}
    report = {"problems": [], "plan": PLAN, "difference": UPDATE, "begun": True, "applied": done, "check": check}
    (row,) = deployment_report({"host": report})[2:]
    assert f"  {words}  " in row and "http://localhost:8000/v1" in row


def test_what_was_left_out_is_no_failure():
    rows = deployment_report({"left": {"problems": [], "plan": PLAN, "difference": UPDATE}})[2:]
    assert "not applied" in rows[0] and "failed" not in rows[0]


def test_an_instance_that_succeeded_is_shown_beside_one_that_failed():
    plan = {**PLAN, "instances": [{**INSTANCE, "name": "one"}, {**INSTANCE, "name": "two", "endpoint": {"port": 8001}}]}
    done = [{"name": "one", "action": "update", "outcome": "committed"}, {"name": "two", "outcome": "rolled_back"}]
    report = {
        "problems": [],
        "plan": plan,
        "difference": UPDATE,
        "begun": True,
        "applied": {"instances": done},
        "failed": {"step": "x", "message": "two: start: no memory"},
    }
    one, two = deployment_report({"host": report})[2:]
    assert "update" in one and "http://localhost:8000/v1" in one
    assert "failed" in two and "no memory" in two and "http" not in two


def logs(log, kernel=None, error=None):
    unit = {"name": "ascend", "unit": "vllm-ascend.service", "log": log, "error": error}
    return {"instances": [unit], "kernel": kernel}


def test_a_diagnosis_has_cause_evidence_and_remedy():
    text = "\n".join(diagnosis_lines(logs("vllm: error: unrecognized arguments: --max-num-seq-s 8")))
    assert text.startswith("ascend (vllm-ascend.service): ")
    assert "unrecognized arguments: --max-num-seq-s 8" in text
    assert "  [" in text and "    remedy: " in text


def test_the_kernel_adds_what_the_log_does_not_say():
    oom = "2026-11-30T10:00:00+0000 node kernel: Out of memory: Killed process 4711 (VLLM::EngineCor) total-vm:9kB"
    alone = diagnosis_lines(logs("", kernel=oom))
    assert any("4711" in line for line in alone)
    assert diagnosis_lines(logs("", kernel="kernel: eth0: link up")) == [
        "ascend (vllm-ascend.service): no failure in its log"
    ]


def test_a_log_that_could_not_be_read_is_said():
    found = diagnosis_lines(logs(None, error="journalctl is missing"))
    assert found == ["ascend (vllm-ascend.service): its log could not be read: journalctl is missing"]
    assert diagnosis_lines({"instances": [], "kernel": None}) == ["There is no instance on this host."]
