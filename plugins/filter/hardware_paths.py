# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The filter hardware_paths; what it does is in hardware_paths.yml."""

from __future__ import annotations

from ansible.errors import AnsibleFilterError
from ansible_collections.vllm_ascend.fleet.plugins.plugin_utils import plain, profiles


def hardware_paths(shipped, overrides=None, settings=None):
    """The host paths that a deployment may mount."""
    try:
        return profiles.profile_paths(shipped, overrides, settings)
    except plain.WRONG_INPUT as failure:
        expected = "the shipped profiles by family"
        message = plain.wrong_input(failure, expected, shipped=shipped, overrides=overrides, settings=settings)
        raise AnsibleFilterError(f"hardware_paths: {message}") from failure


class FilterModule:
    """Registers the filter."""

    def filters(self):
        """The filters of this file by name."""
        return {"hardware_paths": hardware_paths}
