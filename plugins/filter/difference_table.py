# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The filter difference_table; what it does is in difference_table.yml."""

from __future__ import annotations

from ansible_collections.vllm_ascend.fleet.plugins.plugin_utils.report import difference_table


class FilterModule:
    """Registers the filter."""

    def filters(self):
        """The filters of this file by name."""
        return {"difference_table": difference_table}
