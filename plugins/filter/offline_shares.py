# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The filter offline_shares; what it does is in offline_shares.yml."""

from __future__ import annotations

from ansible.errors import AnsibleFilterError
from ansible_collections.vllm_ascend.fleet.plugins.plugin_utils import offline_shares as sharing
from ansible_collections.vllm_ascend.fleet.plugins.plugin_utils import plain


def offline_shares(reports, prompts, order):
    """Which prompts each host computes next."""
    try:
        return sharing.shares(prompts, reports, order)
    except plain.WRONG_INPUT as failure:
        message = plain.wrong_input(
            failure,
            "the reports of hosts, a number of prompts, and the hosts in order",
            reports=reports,
            prompts=prompts,
            order=order,
        )
        raise AnsibleFilterError(f"offline_shares: {message}") from failure


class FilterModule:
    """Registers the filter."""

    def filters(self):
        """The filters of this file by name."""
        return {"offline_shares": offline_shares}
