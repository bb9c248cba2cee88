# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The filter offline_request; what it does is in offline_request.yml."""

from __future__ import annotations

from ansible.errors import AnsibleFilterError
from ansible_collections.vllm_ascend.fleet.plugins.plugin_utils import offline_request as asked
from ansible_collections.vllm_ascend.fleet.plugins.plugin_utils import plain


def offline_request(settings, text, rules):
    """The prompts and the sampling of an offline run, and what is wrong with them."""
    try:
        return asked.offline_request(settings, text, rules)
    except plain.WRONG_INPUT as failure:
        message = plain.wrong_input(
            failure,
            "the variables vllm_offline_*, the text of a file and the rules",
            settings=settings,
            text=text,
            rules=rules,
        )
        raise AnsibleFilterError(f"offline_request: {message}") from failure


class FilterModule:
    """Registers the filter."""

    def filters(self):
        """The filters of this file by name."""
        return {"offline_request": offline_request}
