# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The filter problem_codes; what it does is in problem_codes.yml."""

from __future__ import annotations

from ansible_collections.vllm_ascend.fleet.plugins.plugin_utils.report import problem_codes


class FilterModule:
    """Registers the filter."""

    def filters(self):
        """The filters of this file by name."""
        return {"problem_codes": problem_codes}
