# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What goes into a notation comes out of it: systemd's, a shell's, and docker's --mount."""

from __future__ import annotations

import csv
import shlex
import subprocess

import pytest
from ansible_collections.vllm_ascend.fleet.plugins.plugin_utils.container import mount_value
from ansible_collections.vllm_ascend.fleet.plugins.plugin_utils.quoting import (
    QuotingError,
    csv_fields,
    shell_command,
    systemd_command,
    systemd_lines,
    systemd_word,
)
from ansible_collections.vllm_ascend.fleet.tests.unit.support.systemd_syntax import logical_lines, split_command
from hypothesis import example, given, settings
from hypothesis import strategies as st

# Every printable character and the tab; letters that mean something are made likely.
SPECIAL = st.sampled_from([*"\\\"'%$;#{}[]()<>|&*?!~`,= \t", "$$", "%%", "%n", "${HOME}", "\\n", "\\x41", "é", "名"])
TEXT = st.lists(SPECIAL | st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), max_size=12).map("".join)
WORDS = st.lists(TEXT, min_size=1, max_size=6)
bounded = settings(max_examples=400, derandomize=True, deadline=None)


@bounded
@given(WORDS)
@example(["", ";", "#", "a;b", " ", "\t", "\\", '"', "'", "'\"", "%", "$", "\\\\", "a'b\"c\\d%e$f"])
def test_systemd_gets_exactly_these_words(words):
    assert split_command(systemd_command(words)) == words


@bounded
@given(st.lists(WORDS, min_size=1, max_size=4))
@example([["a"], ["#"], [";"], ["b"]])
def test_continued_lines_hold_the_same_words(groups):
    (line,) = logical_lines("ExecStart=" + systemd_lines(groups))
    assert split_command(line.removeprefix("ExecStart=")) == [word for group in groups for word in group]


@bounded
@given(WORDS)
def test_a_shell_gets_exactly_these_words(words):
    assert shlex.split(shell_command(words)) == words


def test_a_real_shell_agrees():
    words = ["printf", "%s\\n", "a b", "$HOME", "`id`", "it's", '"', "\\", "*", "~", "名"]
    done = subprocess.run(["sh", "-c", shell_command(words)], capture_output=True, text=True, timeout=10, check=True)
    assert done.stdout.splitlines() == words[2:]


@bounded
@given(st.lists(TEXT.filter(bool), min_size=1, max_size=4))
@example(["source=/a,b", 'target=/c"d'])
def test_docker_gets_exactly_these_fields(fields):
    assert next(csv.reader([csv_fields(fields)], strict=True)) == fields


@bounded
@given(source=TEXT, target=TEXT, read_only=st.booleans())
def test_a_mount_keeps_its_parts(source, target, read_only):
    value = mount_value({"source": "/" + source, "target": "/" + target, "read_only": read_only})
    fields = next(csv.reader([value], strict=True))
    assert fields == ["type=bind", f"source=/{source}", f"target=/{target}"] + ["readonly"] * read_only


def test_simple_words_and_paths_stay_readable():
    assert systemd_word("--max-num-seqs") == "--max-num-seqs"
    assert systemd_word('{"a":[1,2]}') == """'{"a":[1,2]}'"""
    assert systemd_word('exec "$@"') == """'exec "$$@"'"""
    assert mount_value({"source": "/a", "target": "/b", "read_only": False}) == "type=bind,source=/a,target=/b"


@pytest.mark.parametrize("word", ["a\nb", "\n", "a\x00b", "\r", "\x1b[0m", "\x7f", "\ud800"])
def test_newlines_and_controls_are_refused_with_the_word(word):
    for quote in (systemd_word, lambda text: csv_fields([text])):
        with pytest.raises(QuotingError) as failure:
            quote(word)
        assert repr(word) in str(failure.value)
