# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The filter diagnosis_lines; what it does is in diagnosis_lines.yml."""

from __future__ import annotations

from ansible.errors import AnsibleFilterError
from ansible_collections.vllm_ascend.fleet.plugins.plugin_utils import plain, report


def diagnosis_lines(logs, facts=None):
    """Why the instances of a host failed, as lines."""
    try:
        return report.diagnosis_lines(plain.plain(logs), plain.plain(facts))
    except plain.WRONG_INPUT as failure:
        message = plain.wrong_input(failure, "what vllm_log_info returned, and the facts", logs=logs, facts=facts)
        raise AnsibleFilterError(f"diagnosis_lines: {message}") from failure


class FilterModule:
    """Registers the filter."""

    def filters(self):
        """The filters of this file by name."""
        return {"diagnosis_lines": diagnosis_lines}
