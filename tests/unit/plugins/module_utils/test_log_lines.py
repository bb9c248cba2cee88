"""The lines that matter, from logs as vLLM 0.23.0, Docker and systemd print them."""

from __future__ import annotations

import pytest
from ansible_collections.vllm_ascend.fleet.plugins.module_utils import commands, host_control
from ansible_collections.vllm_ascend.fleet.plugins.module_utils.log_lines import MASK, cause, mask, mask_value, relevant

NOISE = [
    "bash: cannot set terminal process group (-1): Inappropriate ioctl for device",
    "bash: no job control in this shell",
    "INFO 11-30 17:24:02 [__init__.py:44] Available plugins for group vllm.platform_plugins:",
    "INFO 11-30 17:24:04 [importing.py:81] Triton not installed or not compatible; certain GPU-related functions "
    "will not be available.",
    "(APIServer pid=8) INFO 11-30 17:24:05 [api_utils.py:273] non-default args: {'model_tag': '/models/error'}",
    "vllm-ascend.service: Failed with result 'exit-code'.",
    "Failed to start vllm-ascend.service - vLLM Qwen/Qwen3-0.6B on port 8000.",
    "vllm-ascend.service: Scheduled restart job, restart counter is at 1.",
]


@pytest.mark.parametrize(
    "line",
    [
        "vllm serve: error: unrecognized arguments: --max-num-seq-s 8",
        "vllm serve: error: argument --dtype: invalid choice: 'fp16' (choose from 'auto', 'bfloat16', 'float16')",
        "KeyError: 'FULL_DECODE'",
        "(EngineCore pid=9) ValueError: No available memory for the cache blocks.",
        "OSError: [Errno 98] Address already in use",
        "docker: Error response from daemon: invalid mount config for type 'bind': bind source path is not there.",
        "drvErr: -8020, device is used by another container",
        "AssertionError: No available Ascend NPU detected in the container",
        "vllm-ascend pre-start: device nodes not usable after 120 s: /dev/davinci0 (missing)",
    ],
)
def test_the_line_that_says_why_is_the_only_one_left(line):
    assert relevant([*NOISE[:4], line, *NOISE[4:]]) == [line]


def test_without_such_a_line_the_last_ones_are_shown():
    assert relevant([*(f"step {number}" for number in range(9)), *NOISE]) == [
        *("step 4", "step 5", "step 6", "step 7", "step 8"),
    ]


def test_a_root_cause_at_the_start_survives_a_long_log():
    lines = ["(EngineCore pid=9) RuntimeError: the cause"] + [f"Error: consequence {n}" for n in range(100)]
    found = relevant(lines)
    assert found[0] == lines[0]
    assert found[-1] == lines[-1]
    assert len(found) == 16


def test_colours_go_and_secrets_are_masked():
    line = "\x1b[31mERROR\x1b[0m the key sk-12 and sk-1 are wrong"
    assert relevant([line], ["sk-1", "sk-12"]) == [f"ERROR the key {MASK} and {MASK} are wrong"]


def test_empty_secrets_mask_nothing():
    assert mask("plain text", [""]) == "plain text"


def test_values_are_masked_inside_and_keys_are_not():
    value = {"key": ["a key", {"deep": "key"}], "number": 3, "none": None}
    assert mask_value(value, ["key"]) == {"key": [f"a {MASK}", {"deep": MASK}], "number": 3, "none": None}


GATE = "vllm-ascend gate: vllm-ascend answers without text: /v1/completions: choices[0].text is empty"
ENDED = "vllm-ascend gate: the main process 4279 of vllm-ascend has ended; why is in the lines before this one"
ERROR = "(EngineCore pid=8) RuntimeError: no memory"


@pytest.mark.parametrize(
    ("lines", "first"),
    [
        ([ERROR, GATE], GATE),
        ([GATE, "(APIServer pid=8) ERROR later"], GATE),
        (["(EngineCore pid=8)     raise RuntimeError(", ERROR, ENDED], ERROR),
        ([ENDED], ENDED),
        ([], None),
    ],
)
def test_the_cause_is_what_the_helper_gave_up_on_else_the_engines_error(lines, first):
    assert cause(relevant(lines)) == first


def test_progress_and_information_are_no_cause():
    assert relevant(
        [
            "waiting for vllm-ascend, 0 of 90 s: /health: Connection refused",
            "(APIServer pid=8) INFO 11-30 19:33:04 [core_client.py:652] [shutdown] MPClient: start timeout=0s",
            "(APIServer pid=7)     raise RuntimeError(",
            ERROR,
        ]
    ) == [ERROR]


def test_what_a_shell_without_a_terminal_says_does_not_hide_the_failure():
    said = "\n".join(NOISE[:2]) + "\n"
    failed = commands.CommandResult(
        ["docker", "run", "image"], 187, "dcmi module initialize failed. ret is -8005\n", said
    )
    assert host_control.explain(failed, 60) == (
        "docker run image: exit 187: dcmi module initialize failed. ret is -8005"
    )
    assert host_control.explain(failed._replace(stderr=said + "no\n"), 60) == "docker run image: exit 187: no"
