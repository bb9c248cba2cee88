# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The filter diagnose; what it does is in diagnose.yml."""

from __future__ import annotations

from ansible.errors import AnsibleFilterError
from ansible_collections.vllm_ascend.fleet.plugins.plugin_utils import diagnosis, plain


def diagnose(text, facts=None):
    """The causes that a log shows, the likeliest first."""
    try:
        return diagnosis.diagnose(plain.plain(text), plain.plain(facts))
    except plain.WRONG_INPUT as failure:
        message = plain.wrong_input(failure, "a log and the facts ascend_npu", text=text, facts=facts)
        raise AnsibleFilterError(f"diagnose: {message}") from failure


class FilterModule:
    """Registers the filter."""

    def filters(self):
        """The filters of this file by name."""
        return {"diagnose": diagnose}
