# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The filter verification_lines; what it does is in verification_lines.yml."""

from __future__ import annotations

from ansible_collections.vllm_ascend.fleet.plugins.plugin_utils.verification_report import verification_lines


class FilterModule:
    """Registers the filter."""

    def filters(self):
        """The filters of this file by name."""
        return {"verification_lines": verification_lines}
