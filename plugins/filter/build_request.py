# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The filter build_request; what it does is in build_request.yml."""

from __future__ import annotations

from ansible.errors import AnsibleFilterError
from ansible_collections.vllm_ascend.fleet.plugins.plugin_utils import build_request as requests
from ansible_collections.vllm_ascend.fleet.plugins.plugin_utils import plain


def build_request(settings, profiles, facts=None):
    """What is built, from the role's variables."""
    try:
        return requests.build_request(plain.plain(settings), plain.plain(profiles), plain.plain(facts))
    except plain.WRONG_INPUT as wrong:
        expected = "the role variables by name, and the hardware profiles"
        message = plain.wrong_input(wrong, expected, settings=settings, profiles=profiles, facts=facts)
        raise AnsibleFilterError(f"build_request: {message}") from wrong


class FilterModule:
    """Registers the filter."""

    def filters(self):
        """The filters of this file by name."""
        return {"build_request": build_request}
