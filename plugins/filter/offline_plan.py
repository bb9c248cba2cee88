# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The filter offline_plan; what it does is in offline_plan.yml."""

from __future__ import annotations

from ansible.errors import AnsibleFilterError
from ansible_collections.vllm_ascend.fleet.plugins.plugin_utils import offline_plan as planned
from ansible_collections.vllm_ascend.fleet.plugins.plugin_utils import plain


def offline_plan(facts, settings, profiles, observed, rules, wanted):
    """The offline job of a host."""
    try:
        return planned.offline_plan(facts, settings, profiles, observed, rules, wanted)
    except plain.WRONG_INPUT as failure:
        message = plain.wrong_input(
            failure,
            "what deployment_plan takes, and the variables vllm_offline_*",
            facts=facts,
            settings=settings,
            wanted=wanted,
        )
        raise AnsibleFilterError(f"offline_plan: {message}") from failure


class FilterModule:
    """Registers the filter."""

    def filters(self):
        """The filters of this file by name."""
        return {"offline_plan": offline_plan}
