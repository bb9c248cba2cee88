# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The filter failure_report; what it does is in failure_report.yml."""

from __future__ import annotations

from ansible.errors import AnsibleFilterError
from ansible_collections.vllm_ascend.fleet.plugins.plugin_utils import failure, plain


def failure_report(result, host, step, logs=None, facts=None):
    """The failure of a task on a host."""
    try:
        return failure.failure_report(plain.plain(result), host, step, plain.plain(logs), plain.plain(facts))
    except plain.WRONG_INPUT as wrong:
        expected = "the result of a task, and what vllm_log_info returned"
        message = plain.wrong_input(wrong, expected, result=result, logs=logs, facts=facts)
        raise AnsibleFilterError(f"failure_report: {message}") from wrong


class FilterModule:
    """Registers the filter."""

    def filters(self):
        """The filters of this file by name."""
        return {"failure_report": failure_report}
