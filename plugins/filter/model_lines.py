# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The filter model_lines; what it does is in model_lines.yml."""

from __future__ import annotations

from ansible.errors import AnsibleFilterError
from ansible_collections.vllm_ascend.fleet.plugins.plugin_utils import model_fetching, plain


def model_lines(models, host=""):
    """What came of each model, as lines of text."""
    try:
        return model_fetching.model_lines(models, host)
    except plain.WRONG_INPUT as failure:
        message = plain.wrong_input(failure, "what vllm_model returned", models=models)
        raise AnsibleFilterError(f"model_lines: {message}") from failure


class FilterModule:
    """Registers the filter."""

    def filters(self):
        """The filters of this file by name."""
        return {"model_lines": model_lines}
