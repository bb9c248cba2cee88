# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The action behind the module show: prints lines of text as they are, on the controller."""

from __future__ import annotations

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display


class ActionModule(ActionBase):
    """Prints the lines. A debug task would show commands with escaped quotes, which nobody can copy."""

    TRANSFERS_FILES = False
    _requires_connection = False

    def run(self, tmp=None, task_vars=None):
        """Print the lines; nothing is run on the host."""
        super().run(tmp, task_vars)
        _result, arguments = self.validate_argument_spec(
            {"lines": {"type": "list", "elements": "str", "required": True}}
        )
        Display().display("\n".join(["", *arguments["lines"], ""]))
        return {"changed": False}
