"""The filter model_requests."""

from __future__ import annotations

import pytest
from ansible.errors import AnsibleFilterError
from ansible_collections.vllm_ascend.fleet.plugins.filter.model_requests import FilterModule

model_requests = FilterModule().filters()["model_requests"]


def test_it_lists_what_the_module_takes():
    assert model_requests({"vllm_model": "a/b", "vllm_model_cache": "/c"}) == [
        {"model": "a/b", "source": "huggingface", "cache": "/c"}
    ]


@pytest.mark.parametrize("settings", [None, [], "text", 1])
def test_what_is_no_dictionary_of_settings_is_refused(settings):
    with pytest.raises(AnsibleFilterError, match=r"model_requests: .*dictionary of role variables"):
        model_requests(settings)
