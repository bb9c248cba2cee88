#!/usr/bin/python
# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module vllm_log_info."""

from __future__ import annotations

DOCUMENTATION = r"""
module: vllm_log_info
short_description: Read what the journal holds of the vLLM instances of a host
version_added: "0.2.0"
description:
  - Returns the log of each instance's unit, and the last lines of the kernel, for the filter
    P(vllm_ascend.fleet.diagnose#filter) on the controller. It changes nothing.
  - The values of the instance's environment file are masked in its log.
options:
  names:
    description: The instances. When it is not given, all that this collection made on the host.
    type: list
    elements: str
  lines:
    description: How many of the last lines of a log are read. Of more than 2 MiB of text the beginning is left out.
    type: int
    default: 4000
  since:
    description: Only what was logged from this time on, in seconds of the epoch.
    type: float
  timeout:
    description: Seconds that each call of journalctl may take.
    type: float
    default: 20
  sysroot:
    description:
      - Read the host below this folder instead of the live one (a replay). Nothing of the folder is run.
    type: path
    default: /
extends_documentation_fragment:
  - vllm_ascend.fleet.attributes.info
author:
  - the vllm_ascend.fleet authors (@vllm-ascend-fleet)
seealso:
  - plugin: vllm_ascend.fleet.diagnose
    plugin_type: filter
"""

EXAMPLES = r"""
- name: Read the logs
  vllm_ascend.fleet.vllm_log_info:
    names: [ascend]
  register: logs

- name: Say why it failed
  vllm_ascend.fleet.show:
    lines: "{{ logs.instances[0].log | vllm_ascend.fleet.diagnose | map(attribute='cause') | list }}"
"""

RETURN = r"""
instances:
  description: The instances in the order of their names.
  returned: always
  type: list
  elements: dict
  contains:
    name:
      description: The instance.
      type: str
    unit:
      description: Its systemd unit.
      type: str
    log:
      description: The lines of the journal with their times. Null when they could not be read.
      type: str
    error:
      description: Why they could not be read. Null when they were.
      type: str
kernel:
  description: The last lines of the kernel. Null when they could not be read.
  returned: always
  type: str
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.vllm_ascend.fleet.plugins.module_utils.instance_logs import read_logs
from ansible_collections.vllm_ascend.fleet.plugins.module_utils.sysroot import Sysroot, SysrootError

ARGUMENTS = {
    "names": {"type": "list", "elements": "str"},
    "lines": {"type": "int", "default": 4000},
    "since": {"type": "float"},
    "timeout": {"type": "float", "default": 20},
    "sysroot": {"type": "path", "default": "/"},
}


def main() -> None:
    """Read the logs."""
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    options = module.params
    try:
        found = read_logs(
            Sysroot(options["sysroot"]), options["names"], options["lines"], options["since"], options["timeout"]
        )
    except SysrootError as failure:
        module.fail_json(msg=str(failure))
    module.exit_json(changed=False, **found)


if __name__ == "__main__":
    main()
