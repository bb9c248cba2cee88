"""Who computes which prompts, and what came of it."""

from __future__ import annotations

import json

import pytest
from ansible_collections.vllm_ascend.fleet.plugins.plugin_utils.offline_shares import (
    offline_lines,
    offline_result,
    request_problems,
    shares,
)

HOSTS = ["b", "a", "c"]
PROBLEM = {"code": "npu_shortage", "message": "none is free", "remedy": "Free one."}
FINE = {"problems": [], "attempts": []}


def report(*attempts, model="m", **more):
    job = {
        "model": model,
        "npus": ["/dev/davinci0"],
        "image": "i",
        "argv": ["docker", "run"],
        "engine": {"model": model},
    }
    return {"problems": [], "offline": {"job": job, "warnings": []}, "attempts": list(attempts), **more}


def attempt(indexes, done=None, message=None, **more):
    done = indexes if done is None else done
    outputs = [{"index": index, "text": f"t{index}", "finish_reason": "stop"} for index in done]
    return {
        "indexes": indexes,
        "outputs": outputs,
        "message": message,
        "log": "",
        "seconds": 1.5,
        "lost": False,
        **more,
    }


def request(count=4, **more):
    return {"prompts": [{"prompt": f"p{index}"} for index in range(count)], "problems": [], "warnings": [], **more}


@pytest.mark.parametrize(
    ("count", "reports", "wanted"),
    [
        (7, {"a": FINE, "b": FINE, "c": FINE}, {"b": [0, 1, 2], "a": [3, 4], "c": [5, 6]}),
        (2, {"a": FINE, "b": FINE, "c": FINE}, {"b": [0], "a": [1]}),
        (4, {"a": FINE, "b": {"problems": [PROBLEM]}, "c": {}}, {"a": [0, 1, 2, 3]}),
        (4, {"b": {"problems": [PROBLEM]}}, {}),
        (0, {"a": FINE}, {}),
    ],
)
def test_the_first_shares_are_runs_of_neighbours_in_the_order_of_the_hosts(count, reports, wanted):
    assert shares(count, reports, HOSTS) == wanted


def test_what_failed_goes_to_hosts_that_did_their_share():
    reports = {"b": report(attempt([0, 1], [1], "failed")), "a": report(attempt([2])), "c": report(attempt([3]))}
    assert shares(4, reports, HOSTS) == {"a": [0]}
    reports["b"] = report(attempt([0, 1], [], "failed"))
    assert shares(4, reports, HOSTS) == {"a": [0], "c": [1]}


def test_without_such_a_host_it_is_tried_again_where_it_was():
    reports = {"a": report(attempt([0, 1], [1], "failed")), "b": report(attempt([2], [], "gone", lost=True))}
    assert shares(3, reports, HOSTS) == {"a": [0, 2]}
    assert shares(3, {"b": reports["b"]}, HOSTS) == {"b": [0, 1, 2]}


def test_when_all_is_there_nobody_has_to_do_more():
    assert shares(2, {"a": report(attempt([0, 1]))}, HOSTS) == {}


def test_results_come_in_the_order_of_the_prompts():
    reports = {"b": report(attempt([2, 3])), "a": report(attempt([0, 1], [1], "x"), attempt([0]))}
    found = offline_result({**request(), "prompts": [{"prompt": f"p{i}", "id": i * 10} for i in range(4)]}, reports)
    lines = [json.loads(line) for line in found["text"].splitlines()]
    assert [(line["index"], line["prompt"], line["text"], line["id"], line["host"]) for line in lines] == [
        (0, "p0", "t0", 0, "a"), (1, "p1", "t1", 10, "a"), (2, "p2", "t2", 20, "b"), (3, "p3", "t3", 30, "b"),
    ]  # fmt: skip
    assert (found["complete"], found["message"], found["missing"]) == (True, None, [])


def test_what_is_missing_is_named_and_what_is_there_is_kept():
    log = "RuntimeError: dcmi model initialized failed, because the device is used. ret is -8020"
    reports = {"a": report(attempt([0, 1], [], "its program ended with 1", log=log)), "b": report(attempt([2, 3]))}
    found = offline_result(request(), reports)
    assert (found["complete"], found["missing"], found["outputs"]) == (False, [0, 1], 2)
    assert found["message"] == "2 of 4 prompts have no output: prompts 0-1"
    text = "\n".join(found["lines"])
    assert "2 of 4 prompts have an output." in text
    assert "a: its program ended with 1" in text
    # The doctor's word on the log.
    assert "-8020" in text and "remedy:" in text
    assert len(found["text"].splitlines()) == 2


def test_hosts_that_took_no_part_are_in_the_table():
    reports = {"a": report(attempt([0])), "b": {"problems": [PROBLEM]}, "c": {}, "d": report()}
    text = "\n".join(offline_result(request(1), reports)["lines"])
    assert "npu_shortage" in text and "no answer from this host" in text and "not needed" in text


def test_the_shares_are_shown_before_they_run():
    reports = {"a": report(fetch=True), "b": {"problems": [PROBLEM]}}
    lines = offline_lines(reports, request(), {"a": [0, 1, 2, 3]})
    text = "\n".join(lines)
    assert "b  [npu_shortage] none is free" in text and "remedy: Free one." in text
    assert "prompts 0-3  /dev/davinci0  i (fetched first)" in text
    assert "docker run" not in text


def test_check_mode_shows_the_commands():
    lines = offline_lines({"a": report()}, request(), {"a": [0]}, True)
    assert "a: docker run" in lines and "a: LLM(model='m')" in lines
    assert lines[-1] == "Check mode: nothing is run."


def test_warnings_of_many_hosts_are_said_once():
    warning = {"code": "image_own", "message": "x", "remedy": "y"}
    reports = {host: report() for host in "ab"}
    for host in "ab":
        reports[host]["offline"]["warnings"] = [warning]
    assert "warning for a, b  [image_own] x" in offline_lines(reports, request(), {})


def test_a_run_that_cannot_begin_says_all_reasons():
    wrong = request(problems=[{"code": "offline_prompt_invalid", "message": "m", "remedy": "r"}])
    reports = {"a": {"problems": [PROBLEM]}}
    assert [entry["code"] for entry in request_problems(wrong, reports)] == [
        "offline_prompt_invalid",
        "offline_no_host",
    ]
    text = "\n".join(offline_lines(reports, wrong, {}))
    assert text.startswith("Nothing is run:") and "offline_no_host" in text and "a  [npu_shortage]" in text


def test_hosts_with_different_models_share_no_list():
    reports = {"a": report(model="one"), "b": report(model="two"), "c": {"problems": [PROBLEM]}}
    (problem,) = request_problems(request(), reports)
    assert (problem["code"], "one on a; two on b" in problem["message"]) == ("offline_models_differ", True)
    assert request_problems(request(), {"a": report(), "b": report()}) == []


def test_only_reports_are_taken():
    with pytest.raises(TypeError):
        shares(1, ["a"], HOSTS)
