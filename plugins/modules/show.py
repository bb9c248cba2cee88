#!/usr/bin/python
# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The documentation of the action show."""

from __future__ import annotations

DOCUMENTATION = r"""
module: show
short_description: Print lines of text as they are
version_added: "0.1.0"
author: the vllm_ascend.fleet authors (@vllm-ascend-fleet)
description:
  - Prints text on the controller without quoting, so that a table stays a table and a command can be copied.
  - It is an action that runs on the controller. Nothing is done on the host.
options:
  lines:
    description: The lines.
    type: list
    elements: str
    required: true
extends_documentation_fragment:
  - vllm_ascend.fleet.attributes.info
"""

EXAMPLES = r"""
- name: Show the plan of the host
  vllm_ascend.fleet.show:
    lines: "{{ vllm_report | vllm_ascend.fleet.plan_lines }}"
"""

RETURN = r""" # """
