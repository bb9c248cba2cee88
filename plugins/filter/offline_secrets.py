# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The filter offline_secrets; what it does is in offline_secrets.yml."""

from __future__ import annotations

from ansible.errors import AnsibleFilterError
from ansible_collections.vllm_ascend.fleet.plugins.plugin_utils import offline_plan, plain


def offline_secrets(settings, instance):
    """The secret environment variables of the job of an instance."""
    try:
        return offline_plan.job_secrets(settings, instance)
    except plain.WRONG_INPUT as failure:
        message = plain.wrong_input(
            failure, "the role variables by name, and the name of an instance", settings=settings, instance=instance
        )
        raise AnsibleFilterError(f"offline_secrets: {message}") from failure


class FilterModule:
    """Registers the filter."""

    def filters(self):
        """The filters of this file by name."""
        return {"offline_secrets": offline_secrets}
