# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The filter offline_problems; what it does is in offline_problems.yml."""

from __future__ import annotations

from ansible.errors import AnsibleFilterError
from ansible_collections.vllm_ascend.fleet.plugins.plugin_utils import offline_shares, plain


def offline_problems(reports, request):
    """What is wrong with an offline run as a whole."""
    try:
        return offline_shares.request_problems(request, reports)
    except plain.WRONG_INPUT as failure:
        message = plain.wrong_input(
            failure, "the reports of hosts, and what offline_request returned", reports=reports, request=request
        )
        raise AnsibleFilterError(f"offline_problems: {message}") from failure


class FilterModule:
    """Registers the filter."""

    def filters(self):
        """The filters of this file by name."""
        return {"offline_problems": offline_problems}
