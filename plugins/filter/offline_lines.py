# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The filter offline_lines; what it does is in offline_lines.yml."""

from __future__ import annotations

from ansible.errors import AnsibleFilterError
from ansible_collections.vllm_ascend.fleet.plugins.plugin_utils import offline_shares as sharing
from ansible_collections.vllm_ascend.fleet.plugins.plugin_utils import plain


def offline_lines(reports, request, shares, check=False):
    """What is to be said before an offline run."""
    try:
        return sharing.offline_lines(reports, request, shares, check)
    except plain.WRONG_INPUT as failure:
        message = plain.wrong_input(
            failure, "the reports of hosts, the request and the shares", reports=reports, request=request, shares=shares
        )
        raise AnsibleFilterError(f"offline_lines: {message}") from failure


class FilterModule:
    """Registers the filter."""

    def filters(self):
        """The filters of this file by name."""
        return {"offline_lines": offline_lines}
