# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The filter failure_message; what it does is in failure_message.yml."""

from __future__ import annotations

from ansible.errors import AnsibleFilterError
from ansible_collections.vllm_ascend.fleet.plugins.plugin_utils import failure, plain


def failure_message(report):
    """Why a host ended as failed."""
    try:
        return failure.failure_message(plain.plain(report))
    except plain.WRONG_INPUT as wrong:
        message = plain.wrong_input(wrong, "a dictionary", report=report)
        raise AnsibleFilterError(f"failure_message: {message}") from wrong


class FilterModule:
    """Registers the filter."""

    def filters(self):
        """The filters of this file by name."""
        return {"failure_message": failure_message}
