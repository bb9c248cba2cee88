# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The filter offline_prompts; what it does is in offline_prompts.yml."""

from __future__ import annotations

from ansible.errors import AnsibleFilterError
from ansible_collections.vllm_ascend.fleet.plugins.plugin_utils import offline_request, plain


def offline_prompts(prompts, indexes):
    """The text of the prompts of one host."""
    try:
        return offline_request.prompts_text(prompts, indexes)
    except plain.WRONG_INPUT as failure:
        message = plain.wrong_input(
            failure, "prompts of offline_request, and indexes", prompts=prompts, indexes=indexes
        )
        raise AnsibleFilterError(f"offline_prompts: {message}") from failure


class FilterModule:
    """Registers the filter."""

    def filters(self):
        """The filters of this file by name."""
        return {"offline_prompts": offline_prompts}
