# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The doctor names the root cause of a log. A new entry of the table is tested by its own sample lines."""

from __future__ import annotations

import itertools
import json
import pathlib
import random
import re
import time

import pytest
import yaml
from ansible_collections.vllm_ascend.fleet.plugins.plugin_utils import diagnosis
from ansible_collections.vllm_ascend.fleet.plugins.plugin_utils.diagnosis import LAYERS, RANKS, diagnose

LOGS = pathlib.Path(__file__).resolve().parents[2] / "data" / "vllm-logs"
INDEX = yaml.safe_load((LOGS / "index.yml").read_text(encoding="utf-8"))
HELD_OUT = yaml.safe_load((LOGS / "held-out.yml").read_text(encoding="utf-8"))
ENTRIES = diagnosis.entries()
CODES = [entry["code"] for entry in ENTRIES]
CAUSES = [entry for entry in ENTRIES if entry["layer"] != "noise"]
NOISE = [line for entry in ENTRIES if entry["layer"] == "noise" for line in entry.get("sample", [])]
FIELDS = {"code", "layer", "rank", "cause", "remedy", "source", "patterns", "all_of", "none_of", "any_level"}
FIELDS |= {"in_shutdown", "consequence_of", "facts", "sample", "not"}
FACTS = {"family", "npu_smi.status", "usage", "driver.status", "host.image_os"}
HOST_LAYERS = set(LAYERS[:3])
# One start of a service up to the point where its weights are loaded, without any failure.
STARTING = (LOGS / "stop-023-SIGTERM-during-engine-start-IGNORED.txt").read_text(encoding="utf-8").split("\n")[2:-3]
STARTING = [line for line in STARTING if "startup complete" not in line]


def codes(text, facts=None):
    return [finding["code"] for finding in diagnose(text, facts)]


def first(text, facts=None):
    return next(iter(codes(text, facts)), None)


def text_of(name):
    return (LOGS / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("entry", ENTRIES, ids=CODES)
def test_an_entry_is_in_order(entry):
    assert set(entry) <= FIELDS
    assert re.fullmatch(r"[a-z][a-z0-9_]{2,40}", entry["code"])
    assert entry["layer"] in LAYERS
    assert entry.get("rank", "cause") in RANKS
    assert entry["source"].strip()
    assert entry["patterns"]
    lists = ("patterns", "all_of", "none_of", "consequence_of", "sample", "not")
    assert all(isinstance(item, str) and item for name in lists for item in entry.get(name, []))
    for pattern in [*entry["patterns"], *entry.get("all_of", []), *entry.get("none_of", [])]:
        assert not re.compile(pattern, re.IGNORECASE | re.MULTILINE).search(""), pattern
    assert set(entry.get("consequence_of", [])) <= set(CODES) - {entry["code"]}
    for fact in entry.get("facts", []):
        assert set(fact) == {"when", "say"}
        assert set(fact["when"]) <= FACTS
        assert fact["say"].endswith(".")


@pytest.mark.parametrize("entry", CAUSES, ids=[entry["code"] for entry in CAUSES])
def test_a_cause_is_said_in_whole_sentences_and_has_a_remedy_and_a_sample(entry):
    assert re.match(r"[A-Z{-]|(?:npu-smi|systemd|vLLM|torch_npu) ", entry["cause"])
    assert entry["cause"].endswith(".")
    assert entry["remedy"].endswith(".")
    assert len(entry["remedy"]) > 25
    assert entry["sample"]
    for name, otherwise in re.findall(r"\{(\w+)(\|[^{}]*)?\}", entry["cause"] + entry["remedy"]):
        naming = [name in re.compile(pattern).groupindex for pattern in entry["patterns"]]
        assert all(naming) or (any(naming) and otherwise), name


def test_codes_are_unique_and_every_layer_has_entries():
    assert len(CODES) == len(set(CODES))
    assert {entry["layer"] for entry in ENTRIES} == set(LAYERS)
    assert diagnosis.UNKNOWN not in CODES


@pytest.mark.parametrize(
    ("field", "value"), [("layer", "cooling"), ("rank", "certain"), ("colour", "red"), ("patterns", None)]
)
def test_an_entry_that_is_not_in_order_is_refused(field, value):
    entry = {**CAUSES[0], field: value}
    with pytest.raises((ValueError, TypeError)):
        diagnosis.signature_of(entry)


def samples(name):
    return [pytest.param(entry["code"], line, id=entry["code"]) for entry in CAUSES for line in entry.get(name, [])]


@pytest.mark.parametrize(("code", "line"), samples("sample"))
def test_a_sample_is_diagnosed_as_its_entry_first(code, line):
    found = diagnose(line)
    assert found[0]["code"] == code, [finding["code"] for finding in found]
    assert found[0]["evidence"]
    assert "{" not in re.sub(r"\{[^\w{}]|\{\"|\{\d", "", found[0]["cause"])


@pytest.mark.parametrize(("code", "line"), samples("not"))
def test_a_counterexample_is_not_diagnosed_as_the_entry(code, line):
    assert code not in codes(line)


@pytest.mark.parametrize("line", NOISE)
def test_noise_is_never_a_cause(line):
    assert codes(line) == []
    assert codes("\n".join([*STARTING, line, line])) == []
    cause = "(EngineCore pid=9) ValueError: No available memory for the cache blocks."
    assert codes(f"{line}\n{cause}\n{line}") == ["no_kv_memory"]


@pytest.mark.parametrize("name", sorted(INDEX))
def test_real_logs(name):
    assert first(text_of(name)) == INDEX[name]


def test_every_real_log_is_in_the_index():
    assert sorted(path.name for path in LOGS.glob("*.txt")) == sorted(INDEX)


HELD = [pytest.param(case["code"], case["text"], id=f"{case['code']}-{n}") for n, case in enumerate(HELD_OUT)]


@pytest.mark.parametrize(("code", "text"), HELD)
def test_failures_that_are_no_sample(code, text):
    assert text not in [line for entry in ENTRIES for line in entry.get("sample", [])]
    assert first(text) == code


def layer(code):
    return next(entry["layer"] for entry in ENTRIES if entry["code"] == code)


def in_journal(lines, unit="vllm-ascend"):
    """As journalctl shows them; what already has such a prefix stays."""
    own = re.compile(r"[A-Z][a-z]{2} \d\d \d\d:\d\d:\d\d ")
    return [line if own.match(line) else f"Nov 30 17:24:02 node-7 {unit}[4711]: {line}" for line in lines]


def coloured(lines):
    return [f"\x1b[0;36m{line}\x1b[0;0m" for line in lines]


def json_file(lines):
    return [json.dumps({"log": f"{line}\n", "stream": "stderr", "time": "2026-11-30T17:24:02.1Z"}) for line in lines]


WRAPPINGS = {
    "plain": lambda lines: lines,
    "journal": in_journal,
    "colours": coloured,
    "crlf": lambda lines: [f"{line}\r" for line in lines],
    "docker logs -t": lambda lines: [f"2026-11-30T17:24:02.123456789Z {line}" for line in lines],
    "json-file": json_file,
    "compose": lambda lines: [f"vllm-server-1  | {line}" for line in lines],
    "cri": lambda lines: [f"2026-11-30T17:24:02.123456789Z stderr F {line}" for line in lines],
    "short-iso": lambda lines: [f"2026-11-30T17:24:02+0000 node-7 vllm-ascend[9]: {line}" for line in lines],
}


@pytest.mark.parametrize("wrapping", sorted(WRAPPINGS))
def test_what_stands_before_a_line_does_not_matter(wrapping):
    """Every held-out failure of the service itself, in every form that its log may have."""
    wrong = {}
    for case in HELD_OUT:
        lines = case["text"].split("\n")
        if not any(re.match(r"[A-Z][a-z]{2} \d\d \d\d:|kernel", line) for line in lines):
            found = first("\n".join(WRAPPINGS[wrapping](lines)))
            if found != case["code"]:
                wrong[case["text"][:60]] = (case["code"], found)
    assert wrong == {}


def test_a_cause_is_found_in_two_thousand_lines_of_a_normal_start():
    again = [line for line in STARTING if "version 0.23.0" not in line]
    noise = [*STARTING, *itertools.islice(itertools.cycle(again), 2_000 - len(STARTING))]
    after = [
        "(APIServer pid=1) RuntimeError: Engine core initialization failed. See root cause above.",
        "(APIServer pid=1) WARNING 11-30 17:24:02 [utils.py:607] [shutdown] Process manager: force killing remaining"
        " processes count=1",
        "systemd[1]: vllm-ascend.service: Main process exited, code=exited, status=1/FAILURE",
        "systemd[1]: vllm-ascend.service: Failed with result 'exit-code'.",
    ]
    wrong = {}
    for number, case in enumerate(HELD_OUT):
        if layer(case["code"]) in HOST_LAYERS:
            continue
        place = random.Random(number).randrange(1_000, 1_990)
        lines = [*noise[:place], *case["text"].split("\n"), *noise[place:], *after]
        if first("\n".join(lines)) != case["code"]:
            wrong[case["text"][:60]] = (case["code"], codes("\n".join(lines)))
    assert wrong == {}


def test_engine_failures_before_a_start_that_went_well_are_not_its_cause():
    refused = "docker: Error response from daemon: pull access denied for a/b: denied."
    out_of_memory = "(EngineCore pid=9) ERROR 11-30 17:24:02 [core.py:1] NPU out of memory. Tried to allocate 2.00 GiB"
    assert codes("\n".join([refused, *STARTING, out_of_memory])) == ["npu_out_of_memory"]


def test_lines_of_processes_that_are_mixed():
    """Four workers print their tracebacks at once; the one that ran out of memory first is the cause."""
    tracebacks = []
    for rank in range(4):
        tag = f"(Worker_TP{rank} pid={100 + rank}) ERROR 11-30 17:24:02 [multiproc_executor.py:888] "
        error = (
            "RuntimeError: NPU out of memory. Tried to allocate 3.47 GiB (NPU 2; 60.97 GiB total capacity)"
            if rank == 2
            else "RuntimeError: [PID: 9] Get_Socket_Timeout(EI0006): Getting socket times out. Reason: x"
        )
        frames = ['  File "/x/worker.py", line 1, in load', '    raise ValueError("No available memory for the cache")']
        tracebacks.append([tag + line for line in ["Traceback (most recent call last):", *frames * 3, error]])
    mixed = [line for lines in zip(*tracebacks, strict=True) for line in lines]
    assert codes("\n".join([*STARTING, *mixed])) == ["npu_out_of_memory"]


def restarts(*failures):
    lines = []
    for number, failure in enumerate(failures):
        lines += in_journal([*STARTING, *failure.split("\n")])
        lines += [
            "Nov 30 17:25:00 node-7 systemd[1]: vllm-ascend.service: Main process exited, code=exited,"
            " status=1/FAILURE",
            "Nov 30 17:25:00 node-7 systemd[1]: vllm-ascend.service: Failed with result 'exit-code'.",
            "Nov 30 17:25:10 node-7 systemd[1]: vllm-ascend.service: Scheduled restart job, restart counter is at"
            f" {number + 1}.",
            "Nov 30 17:25:10 node-7 systemd[1]: Starting vLLM Qwen/Qwen3-0.6B on port 8000...",
        ]
    return lines


PORT = "(APIServer pid=1) OSError: [Errno 98] Address already in use"
MEMORY = "(EngineCore pid=9) ValueError: No available memory for the cache blocks."


def test_of_several_starts_the_last_that_failed_is_explained():
    assert codes("\n".join(restarts(PORT, PORT, MEMORY))) == ["no_kv_memory"]
    assert codes("\n".join(restarts(*[MEMORY] * 20, PORT))) == ["port_in_use"]


def test_a_start_that_goes_on_does_not_hide_why_the_one_before_failed():
    assert codes("\n".join([*restarts(PORT), *in_journal(STARTING)])) == ["port_in_use"]


def test_that_systemd_gave_up_is_no_cause_when_an_earlier_start_has_one():
    gave_up = [
        "Nov 30 17:26:00 node-7 systemd[1]: vllm-ascend.service: Start request repeated too quickly.",
        "Nov 30 17:26:00 node-7 systemd[1]: Failed to start vLLM Qwen/Qwen3-0.6B on port 8000.",
    ]
    assert codes("\n".join([*restarts(MEMORY), *gave_up])) == ["no_kv_memory"]
    assert codes("\n".join(gave_up)) == ["start_limit"]


def test_errors_before_the_server_was_ready_did_not_end_it():
    ready = "(APIServer pid=1) INFO:     Application startup complete."
    retried = "'[Errno -2] Name or service not known' thrown while requesting HEAD https://hub.invalid/x"
    killed = "kernel: Memory cgroup out of memory: Killed process 9 (VLLM::EngineCor) total-vm:1kB"
    assert codes("\n".join([*STARTING, retried, ready])) == []
    assert codes("\n".join([*STARTING, retried, ready, killed])) == ["host_out_of_memory"]


def test_what_a_stop_by_systemd_prints_is_no_failure():
    lines = [
        "systemd[1]: Stopping vLLM Qwen/Qwen3-0.6B on port 8000...",
        "vllm-ascend[9]: (APIServer pid=1) ERROR 11-30 17:23:17 [async_llm.py:704] EngineDeadError: EngineCore",
        "systemd[1]: vllm-ascend.service: Main process exited, code=exited, status=137/n/a",
    ]
    assert codes("\n".join([*in_journal(STARTING), *lines])) == []
    assert codes("\n".join(lines[2:])) == ["container_killed"]


def test_a_group_of_exceptions_is_read():
    text = """  + Exception Group Traceback (most recent call last):
  |   File "x", line 1
  | ExceptionGroup: unhandled errors in a TaskGroup (1 sub-exception)
  +-+---------------- 1 ----------------
    | Traceback (most recent call last):
    |   File "y", line 2
    | ValueError: No available memory for the cache blocks
    +------------------------------------"""
    assert codes(text) == ["no_kv_memory"]


CHAIN = """Traceback (most recent call last):
  File "/x/a.py", line 1, in load
    raise FlangeError("the flange is bent")
FlangeError: the flange is bent

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "/x/b.py", line 2, in main
    raise RuntimeError("No available memory for the cache blocks") from None
RuntimeError: could not load"""


def test_of_chained_exceptions_the_one_raised_first_is_shown():
    (found,) = diagnose(
        "\n".join(f"(EngineCore pid=9) ERROR 11-30 17:24:02 [core.py:1] {x}" for x in CHAIN.split("\n"))
    )
    assert found["code"] == "unknown"
    assert "FlangeError: the flange is bent" in found["evidence"][0]
    assert "RuntimeError: could not load" in found["evidence"][-1]


def test_the_root_of_an_unknown_failure_is_not_the_line_that_refers_to_it():
    (found,) = diagnose(text_of("fail-023-worker-init-raises.txt"))
    assert found["code"] == "unknown"
    assert found["evidence"][0].endswith("RuntimeError: npu_stub: told to fail in init_device")
    assert not any("See root cause above" in line for line in found["evidence"])
    assert found["source"] == ""


def test_a_log_without_its_root_says_so():
    (found,) = diagnose("(APIServer pid=1) RuntimeError: Engine core initialization failed. See root cause above.")
    assert found["code"] == "unknown"
    assert "are not in it" in found["cause"]
    assert "journalctl" in found["remedy"]


def test_an_unknown_failure_goes_before_a_symptom_that_follows_it():
    died = "(APIServer pid=1) ERROR 11-30 17:24:02 [core_client.py:1] Engine core proc EngineCore died unexpectedly"
    assert codes(f"{CHAIN}\n{died}") == ["unknown", "engine_core_died"]
    assert codes(died) == ["engine_core_died"]


@pytest.mark.parametrize("text", ["", " \n\t\n", "hello", "\n".join(STARTING), "INFO:     Started server process [1]"])
def test_nothing_is_said_of_a_log_without_failure(text):
    assert diagnose(text) == []


def test_what_clients_wrote_is_no_cause():
    prompt = "INFO 11-30 17:24:02 [logger.py:40] Received request cmpl-1: prompt: 'docker: no space left on device'"
    assert codes("\n".join([*STARTING, prompt])) == []


SECRETS = {
    "hf_aBcDeFgHiJkLmNoP": "huggingface_hub.errors.GatedRepoError: 401 Client Error, token hf_aBcDeFgHiJkLmNoP",
    "s3cr3t-key": "vllm: error: unrecognized arguments: --api-key s3cr3t-key --foo",
    "hunter22": "docker: Error response from daemon: Get http://u:hunter22@r.test/v2/: unauthorized: no",
    "tok.en.123": "ValueError: header Authorization: Bearer tok.en.123 was odd",
    "pa55word": "RuntimeError: the api_key='pa55word' is odd",
}


@pytest.mark.parametrize("secret", sorted(SECRETS))
def test_secrets_are_masked(secret):
    found = diagnose(SECRETS[secret])
    assert found
    assert secret not in json.dumps(found)
    assert "***" in json.dumps(found)


def test_facts_add_what_they_explain():
    text = "dcmi module initialize failed. ret is -8005"
    (plain,) = diagnose(text)
    (hung,) = diagnose(text, {"npu_smi": {"status": "hung"}, "usage": []})
    (used,) = diagnose(text, {"npu_smi": None, "usage": [{"device": "/dev/davinci0"}]})
    assert hung["cause"] == f"{plain['cause']} npu-smi did not answer on the host."
    assert used["cause"].endswith("name who uses NPUs there (usage).")
    assert diagnose(text, {}) == [plain]


def test_a_cause_names_what_the_log_names():
    (found,) = diagnose("docker: Error response from daemon: Bind for 0.0.0.0:8077 failed: port is already allocated.")
    assert "8077" in found["cause"]
    (found,) = diagnose("(APIServer pid=1) OSError: [Errno 98] Address already in use")
    assert found["cause"] == "The port of the service is already taken."


@pytest.mark.parametrize(("text", "facts"), [(None, None), (3, None), (b"x", None), (["x"], None), ("x", ["y"])])
def test_what_is_no_log_is_refused(text, facts):
    with pytest.raises(TypeError):
        diagnose(text, facts)


SIZE = 1_000_000


def flood(piece):
    return (piece * (SIZE // len(piece) + 1))[:SIZE]


def odd_errors():
    rnd = random.Random(7)
    letters = "abcdefghijklmnopqrstuvwxyz ABC:/.'\"[](){}=-_0123456789"
    return "\n".join("ERROR: " + "".join(rnd.choices(letters, k=90)) for _ in range(SIZE // 100))


def words_of_all_entries():
    rnd = random.Random(7)
    named = sorted({word for s in diagnosis.shipped() for pattern in s.patterns for word in diagnosis.words(pattern)})
    return "\n".join(" ".join(rnd.sample(named, 5)) + f" {number}" for number in range(SIZE // 90))


FLOODS = {
    "blanks": lambda: flood(" "),
    "empty lines": lambda: flood("\n"),
    "one line": lambda: flood("a"),
    "a failure over and over": lambda: flood(text_of("fail-023-worker-init-raises.txt")),
    "quiet lines": lambda: flood("(APIServer pid=1) INFO 11-30 17:09:00 [core.py:1195] something odd\n"),
    "errors of any kind": odd_errors,
    "words of all entries": words_of_all_entries,
    "processes": lambda: "\n".join(f"(W pid={n}) ERROR 11-30 17:09:00 [a.py:1] failed {n}" for n in range(SIZE // 60)),
    "json": lambda: flood('{"log":"' + "x" * 100 + '\\n","stream":"stderr"}\n'),
    "quotes": lambda: flood("error: argument --x: invalid choice: '"),
    "escapes": lambda: flood("\x1b["),
    "brackets": lambda: flood("[[((\n"),
    "tracebacks": lambda: flood('Traceback (most recent call last):\n  File "x", line 1\n    foo\n'),
}


def cpu_s(work):
    """Seconds of CPU of the quicker of two runs."""
    times = []
    for _round in range(2):
        began = time.process_time()
        work()
        times.append(time.process_time() - began)
    return min(times)


@pytest.mark.parametrize("kind", sorted(FLOODS))
def test_the_time_grows_with_the_length_and_no_faster(kind):
    """Four times the log costs about four times as much; 16 times is what a square would cost."""
    text = FLOODS[kind]()
    assert cpu_s(lambda: diagnose(text)) < 9 * cpu_s(lambda: diagnose(text[: SIZE // 4]))


def test_no_pattern_runs_away():
    """Every pattern on lines that are long and almost what it looks for, against one that is known to be slow."""
    bait = ["a" * 3000, " " * 3000, "error code is " * 214, "'" * 3000, "[ERROR] " * 375, "a.b-c/d_e=" * 300]
    bait += ["error: argument --a: invalid choice: x" * 79, "x\n  " * 750, "{" * 3000, "0" * 3000, "/a" * 1500]

    def seconds(pattern):
        compiled = re.compile(pattern, re.IGNORECASE | re.MULTILINE)
        return cpu_s(lambda: [compiled.search(line) for line in bait])

    limit = seconds(r"(\S+) never")
    patterns = {pattern for s in diagnosis.shipped() for pattern in [*s.patterns, *s.all_of, *s.none_of]}
    assert [pattern for pattern in sorted(patterns) if seconds(pattern) > 0.8 * limit] == []


def test_the_words_that_a_pattern_needs_are_in_all_that_it_matches():
    """Else the quick look for these words would hide matches."""
    for entry in ENTRIES:
        for pattern, line in itertools.product(entry["patterns"], entry.get("sample", [])):
            found = re.search(pattern, line, re.IGNORECASE | re.MULTILINE)
            needed = diagnosis.words(pattern)
            assert not found or not needed or any(word in found[0].lower() for word in needed), pattern


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("abc", {"abc"}),
        ("abcd?e", {"abc"}),
        ("abc?e", set()),
        ("a(?:bc|de)fgh", {"fgh"}),
        ("(?:one|three) \\d+", {"one", "three"}),
        ("(?:one|two.o)x?", {"one", "two"}),
        ("(?:maybe)?sure", {"sure"}),
        ("(?!not)yes", {"yes"}),
        ("(?<=before)after", {"after"}),
        ("[ab]\\.so[\\]x]+", {".so"}),
        ("one|two", {"one", "two"}),
        ("one|.", set()),
        ("one|no", set()),
        ("x{0,3}abz{2}", {"abz"}),
        ("(?P<name>\\w+) failed", {" failed"}),
    ],
)
def test_the_words_that_a_pattern_needs(pattern, words):
    assert diagnosis.words(pattern) == words


def test_a_root_in_the_middle_of_a_very_long_log_is_found():
    quiet = "(APIServer pid=1) INFO 11-30 17:09:00 [core.py:1195] {} is something odd"
    lines = [quiet.format(number) for number in range(24_000)]
    lines[11_000] = MEMORY
    assert codes("\n".join(lines)) == ["no_kv_memory"]
