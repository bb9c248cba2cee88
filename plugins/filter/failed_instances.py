# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The filter failed_instances; what it does is in failed_instances.yml."""

from __future__ import annotations

from ansible.errors import AnsibleFilterError
from ansible_collections.vllm_ascend.fleet.plugins.plugin_utils import failure, plain


def failed_instances(result):
    """The names of the instances that a task did not leave as it should."""
    try:
        return failure.failed_instances(plain.plain(result))
    except plain.WRONG_INPUT as wrong:
        message = plain.wrong_input(wrong, "a dictionary", result=result)
        raise AnsibleFilterError(f"failed_instances: {message}") from wrong


class FilterModule:
    """Registers the filter."""

    def filters(self):
        """The filters of this file by name."""
        return {"failed_instances": failed_instances}
