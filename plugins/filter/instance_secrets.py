# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The filter instance_secrets; what it does is in instance_secrets.yml."""

from __future__ import annotations

from ansible.errors import AnsibleFilterError
from ansible_collections.vllm_ascend.fleet.plugins.plugin_utils import environment, plain


def instance_secrets(settings):
    """The secret environment variables of each instance."""
    try:
        return environment.instance_secrets(settings)
    except plain.WRONG_INPUT as failure:
        expected = "the role variables by name"
        message = plain.wrong_input(failure, expected, settings=settings)
        raise AnsibleFilterError(f"instance_secrets: {message}") from failure


class FilterModule:
    """Registers the filter."""

    def filters(self):
        """The filters of this file by name."""
        return {"instance_secrets": instance_secrets}
