# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The filter shell_command; what it does is in shell_command.yml."""

from __future__ import annotations

from ansible.errors import AnsibleFilterError
from ansible_collections.vllm_ascend.fleet.plugins.plugin_utils import plain, quoting


def shell_command(argv):
    """An argv as a line for a person's shell."""
    try:
        words = plain.plain(argv)
        if not isinstance(words, list):
            raise TypeError("an argv must be a list of words")
        return quoting.shell_command([str(word) for word in words])
    except plain.WRONG_INPUT as failure:
        expected = "a list of words"
        message = plain.wrong_input(failure, expected, argv=argv)
        raise AnsibleFilterError(f"shell_command: {message}") from failure


class FilterModule:
    """Registers the filter."""

    def filters(self):
        """The filters of this file by name."""
        return {"shell_command": shell_command}
