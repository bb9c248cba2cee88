# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The filter diagnose: plain values out, errors of the caller in words."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys

import pytest
import yaml
from ansible.errors import AnsibleFilterError
from ansible_collections.vllm_ascend.fleet.plugins.filter import diagnose
from ansible_collections.vllm_ascend.fleet.plugins.plugin_utils import diagnosis

FILTER = diagnose.FilterModule().filters()["diagnose"]
ROOT = pathlib.Path(__file__).resolve().parents[4]
LOG = "dcmi module initialize failed. ret is -8005"


def test_it_answers_like_the_function():
    facts = {"npu_smi": {"status": "hung"}}
    assert FILTER(LOG) == diagnosis.diagnose(LOG)
    assert FILTER(LOG, facts) == FILTER(LOG, facts=facts) == diagnosis.diagnose(LOG, facts)


PLAY = """
- hosts: localhost
  gather_facts: false
  vars:
    facts: {usage: [{device: /dev/davinci0}], npu_smi: {status: "{{ 'hung' }}"}}
    log: "{{ lookup('ansible.builtin.file', folder ~ '/log.txt') }}"
  tasks:
    - ansible.builtin.copy:
        dest: "{{ folder }}/found.json"
        content: "{{ log | vllm_ascend.fleet.diagnose(facts) | to_json }}"
        mode: "0600"
"""


def test_a_play_finds_the_filter_and_its_table(tmp_path):
    (tmp_path / "log.txt").write_text(LOG)
    (tmp_path / "play.yml").write_text(PLAY)
    done = subprocess.run(
        [
            str(pathlib.Path(sys.executable).parent / "ansible-playbook"), str(tmp_path / "play.yml"),
            "-i", "localhost,", "-c", "local", "-e", json.dumps({"folder": str(tmp_path)}),
            "-e", f"ansible_python_interpreter={sys.executable}",
        ],
        cwd=ROOT, capture_output=True, text=True, timeout=120, check=False,
        env={**os.environ, "ANSIBLE_COLLECTIONS_PATH": str(ROOT / ".ansible" / "collections")},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    facts = {"usage": [{"device": "/dev/davinci0"}], "npu_smi": {"status": "hung"}}
    assert json.loads((tmp_path / "found.json").read_text()) == diagnosis.diagnose(LOG, facts)


@pytest.mark.parametrize(
    ("text", "facts", "words"),
    [
        (3, None, "a log is a text, not int (text is of type int"),
        (None, None, "a log is a text, not null"),
        ({"stdout": "x"}, None, "a log is a text, not dict"),
        (b"x", None, "bytes are not a plain value"),
        ("x", [1], "facts are a dictionary, not list"),
    ],
)
def test_wrong_input_is_an_error_of_the_filter_with_the_types(text, facts, words):
    with pytest.raises(AnsibleFilterError) as caught:
        FILTER(text, facts)
    assert str(caught.value).startswith("diagnose: ")
    assert words in str(caught.value)
    assert "expected is a log and the facts ascend_npu" in str(caught.value)


def test_its_documentation_names_what_it_returns():
    path = pathlib.Path(diagnose.__file__).with_suffix(".yml")
    returned = yaml.safe_load(path.read_text(encoding="utf-8"))["RETURN"]["_value"]["contains"]
    assert set(returned) == set(diagnosis.diagnose(LOG)[0])
