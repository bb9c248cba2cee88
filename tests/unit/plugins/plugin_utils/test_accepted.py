"""Problems that the operator may accept: a warning that says what is risked, and never anything else."""

from __future__ import annotations

import pytest
from ansible_collections.vllm_ascend.fleet.plugins.plugin_utils.plain import ACCEPTABLE, Findings
from ansible_collections.vllm_ascend.fleet.plugins.plugin_utils.settings import resolve_settings


def settled(accepted):
    findings = Findings()
    resolve_settings({"vllm_accept_problems": accepted}, findings)
    return findings


@pytest.mark.parametrize("code", sorted(ACCEPTABLE))
def test_a_problem_that_may_be_accepted_says_how(code):
    findings = settled([])
    findings.problem(code, "it is so", "Mend it.")
    remedy = f"Mend it. vllm_accept_problems: [{code}] deploys all the same."
    assert findings.problems == [{"code": code, "message": "it is so", "remedy": remedy}]


@pytest.mark.parametrize("code", sorted(ACCEPTABLE))
def test_an_accepted_problem_is_a_warning_that_names_the_risk(code):
    findings = settled([code])
    findings.problem(code, "it is so", "Mend it.")
    assert findings.problems == []
    (warning,) = findings.warnings
    assert warning["code"] == code
    assert warning["message"] == f"it is so (accepted by vllm_accept_problems: {ACCEPTABLE[code]})"


def test_only_the_named_problem_is_accepted():
    findings = settled(["npu_held"])
    findings.problem("npu_unhealthy", "Alarm", "Choose another.")
    assert [problem["code"] for problem in findings.problems] == ["npu_unhealthy"]


def test_what_is_no_judgement_cannot_be_accepted():
    findings = settled(["port_taken", "npu_hold"])
    assert [problem["code"] for problem in findings.problems] == ["setting_invalid"]
    message = findings.problems[0]["message"]
    assert "port_taken, npu_hold" in message and "npu_held" in message
    findings.problem("port_taken", "8000", "Another port.")
    assert findings.problems[-1]["code"] == "port_taken"
