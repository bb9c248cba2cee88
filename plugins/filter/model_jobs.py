# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The filter model_jobs; what it does is in model_jobs.yml."""

from __future__ import annotations

from ansible.errors import AnsibleFilterError
from ansible_collections.vllm_ascend.fleet.plugins.plugin_utils import model_fetching, plain


def model_jobs(plan, wanted):
    """What models the instances of a plan need, and how each is got."""
    try:
        return model_fetching.model_jobs(plan, wanted)
    except plain.WRONG_INPUT as failure:
        message = plain.wrong_input(failure, "a plan and the variables vllm_model_* by name", plan=plan, wanted=wanted)
        raise AnsibleFilterError(f"model_jobs: {message}") from failure


class FilterModule:
    """Registers the filter."""

    def filters(self):
        """The filters of this file by name."""
        return {"model_jobs": model_jobs}
