# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The filter deployment_plan; what it does is in deployment_plan.yml."""

from __future__ import annotations

from ansible.errors import AnsibleFilterError
from ansible_collections.vllm_ascend.fleet.plugins.plugin_utils import plain, plan


def deployment_plan(facts, settings, profiles, observed=None, rules=None):
    """The plan of a host."""
    try:
        return plan.deployment_plan(facts, settings, profiles, observed, rules)
    except plain.WRONG_INPUT as failure:
        expected = "facts, settings and profiles as dictionaries, and what vllm_instance_info observed"
        message = plain.wrong_input(
            failure, expected, facts=facts, settings=settings, profiles=profiles, observed=observed, rules=rules
        )
        raise AnsibleFilterError(f"deployment_plan: {message}") from failure


class FilterModule:
    """Registers the filter."""

    def filters(self):
        """The filters of this file by name."""
        return {"deployment_plan": deployment_plan}
