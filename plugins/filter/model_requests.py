# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The filter model_requests; what it does is in model_requests.yml."""

from __future__ import annotations

from ansible.errors import AnsibleFilterError
from ansible_collections.vllm_ascend.fleet.plugins.plugin_utils import model_size, plain


def model_requests(settings):
    """The models of the settings as vllm_instance_info looks for them."""
    try:
        return model_size.model_requests(settings)
    except plain.WRONG_INPUT as failure:
        message = plain.wrong_input(failure, "the role variables by name", settings=settings)
        raise AnsibleFilterError(f"model_requests: {message}") from failure


class FilterModule:
    """Registers the filter."""

    def filters(self):
        """The filters of this file by name."""
        return {"model_requests": model_requests}
