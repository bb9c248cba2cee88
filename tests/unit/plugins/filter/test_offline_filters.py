"""The filters of offline runs: what they are called, and what they say to wrong input."""

from __future__ import annotations

import importlib

import pytest
from ansible.errors import AnsibleFilterError

NAMES = {
    "offline_request": ([], None, {}),
    "offline_plan": ({}, [], {}, None, {}, {}),
    "offline_secrets": (3, "x"),
    "offline_prompts": ([], [4]),
    "offline_shares": ([], 1, []),
    "offline_result": ([], {"prompts": []}),
    "offline_problems": ([], {"problems": []}),
    "offline_lines": ([], {"problems": []}, {}),
}


@pytest.mark.parametrize("name", NAMES)
def test_wrong_input_is_said_with_its_types(name):
    module = importlib.import_module(f"ansible_collections.vllm_ascend.fleet.plugins.filter.{name}")
    function = module.FilterModule().filters()[name]
    with pytest.raises(AnsibleFilterError, match=rf"{name}: .*of type"):
        function(*NAMES[name])
