#!/usr/bin/python
# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module vllm_instance."""

from __future__ import annotations

DOCUMENTATION = r"""
module: vllm_instance
short_description: Make planned vLLM instances serve, each in one transaction
version_added: "0.1.0"
author: the vllm_ascend.fleet authors (@vllm-ascend-fleet)
description:
  - Brings instances of a plan to serve their models, or starts, stops, restarts or removes instances by name.
  - An instance is changed in one transaction. It runs on the host, under a lock and with a journal, so that it survives
    a lost connection, and the next run attaches to it, finishes it or undoes it. The transaction checks the image and
    the flags beside the running service, stops it, verifies the devices, writes unit and
    environment file, starts the unit, waits until it serves, and proves it with a completion.
  - When any of that fails, the previous unit, environment, image and state come back and are proved, and the error says
    which step failed, which lines matter and what is there now.
  - Instances are taken one after the other. The first that fails ends the run, and those after it are left alone.
  - It also installs the host helper C(/usr/local/libexec/vllm-ascend/host.py), which the units use.
options:
  instances:
    description:
      - Instances of a plan, as P(vllm_ascend.fleet.deployment_plan#filter) returns them. Needed for O(state=present).
      - The key C(image_id) of an instance takes precedence over O(image_id).
    type: list
    elements: dict
  image_id:
    description:
      - The id that the image of the instances must have. It is checked before anything stops, and committed with the
        plan.
      - Without it, the id that the reference has now.
    type: str
  secrets:
    description:
      - Secret environment variables by instance, each a dictionary of names and values. They are written to the
        instance's environment file, which only root can read, and nowhere else.
      - They must be the values that the plan was made with.
    type: dict
    default: {}
  state:
    description:
      - V(present) makes the instances be and serve as O(instances) says.
      - V(started), V(stopped) and V(restarted) act on exactly the units of O(names), and wait until they serve or are
        gone.
      - V(absent) removes unit, environment file, container and state of O(names). Images, caches and models stay.
    type: str
    choices: [present, started, stopped, restarted, absent]
    default: present
  names:
    description:
      - The instances for the states other than V(present). Without it, every instance of the host that this collection
        made. It is required with O(state=absent).
    type: list
    elements: str
  adopt:
    description:
      - Take the place of a container of an instance's name that somebody started by hand. It is stopped and kept under
        the name C(vllm-<instance>-adopted). When the transaction fails, it is started again.
      - When it was started with C(--rm), stopping removes it, and a rollback makes it again from its settings.
    type: bool
    default: false
  verify:
    description:
      - V(documented) verifies the devices in a throw-away container before the service starts, at the level that the
        plan of the instance has (C(documented) or C(deep)).
    type: str
    choices: [documented, skip]
    default: documented
  lock_timeout:
    description:
      - Seconds to wait while another transaction is at the same instance. One for the same request is attached to and
        waited for to its end.
    type: int
    default: 60
  engine_cli:
    description: The command of the container engine.
    type: path
    default: docker
extends_documentation_fragment:
  - vllm_ascend.fleet.attributes
seealso:
  - module: vllm_ascend.fleet.vllm_image
  - module: vllm_ascend.fleet.vllm_instance_info
  - module: vllm_ascend.fleet.vllm_verify
"""

EXAMPLES = r"""
- name: Make the planned instances serve
  vllm_ascend.fleet.vllm_instance:
    instances: "{{ vllm_plan.instances }}"
    image_id: "{{ __vllm_image.image.id }}"
    secrets:
      ascend:
        VLLM_API_KEY: "{{ vllm_api_key }}"

- name: Restart one instance and wait until it serves
  vllm_ascend.fleet.vllm_instance:
    state: restarted
    names: [ascend]

- name: Remove an instance
  vllm_ascend.fleet.vllm_instance:
    state: absent
    names: [ascend]
"""

RETURN = r"""
instances:
  description: What was done, or would be done in check mode, one entry an instance.
  returned: always
  type: list
  elements: dict
  contains:
    name:
      description: The instance.
      type: str
    changed:
      description: Whether anything was changed.
      type: bool
    action:
      description: What was needed. One of V(none), V(create), V(update), V(recover), V(start), V(repair), or the
        O(state).
      type: str
    outcome:
      description: V(committed), V(unchanged), V(refused) (nothing was touched), V(rolled_back), V(rollback_failed) or
        V(failed). Null when nothing was run.
      type: str
    attached:
      description: Whether the transaction had been started by an earlier run, for the same request.
      type: bool
    reasons:
      description: What differed, as C(field), C(before) and C(after).
      type: list
      elements: dict
    steps:
      description: The steps of the transaction, as C(step), C(seconds) and C(result).
      type: list
      elements: dict
    evidence:
      description: What the steps saw, such as C(preflight), C(verification), C(endpoint) and C(rollback).
      type: dict
    endpoint:
      description: Where it serves, as C(address), C(port) and C(model).
      type: dict
    state:
      description: What it is now. One of V(serving), V(unhealthy), V(stopped), V(absent) and V(unknown).
      type: str
    state_now:
      description: The same in a sentence.
      type: str
helper:
  description: The host helper, as C(path), C(version), C(digest), C(before) (its digest before) and C(changed). Null
    when it was not needed.
  returned: always
  type: dict
began_at:
  description: When the module began, in seconds of the epoch by the host's own clock.
  returned: always
  type: float
failed_step:
  description: The step that failed.
  returned: when a transaction failed
  type: str
state_now:
  description: What the instance that failed is now, in a sentence.
  returned: when an instance failed
  type: str
"""

import os
import sys

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.vllm_ascend.fleet.plugins.module_utils.host_control import Host
from ansible_collections.vllm_ascend.fleet.plugins.module_utils.instance_apply import ApplyError, Options, apply

ARGUMENTS = {
    "instances": {"type": "list", "elements": "dict"},
    "image_id": {"type": "str"},
    "secrets": {"type": "dict", "default": {}, "no_log": True},
    "state": {
        "type": "str",
        "choices": ["present", "started", "stopped", "restarted", "absent"],
        "default": "present",
    },
    "names": {"type": "list", "elements": "str"},
    "adopt": {"type": "bool", "default": False},
    "verify": {"type": "str", "choices": ["documented", "skip"], "default": "documented"},
    "lock_timeout": {"type": "int", "default": 60},
    "engine_cli": {"type": "path", "default": "docker"},
}


def asker(ssh_connection: str) -> str:
    """Who asks, for those who find the instance busy; ssh_connection is the value of SSH_CONNECTION, by sshd(8)."""
    words = ssh_connection.split()
    return "vllm_instance from {0}".format(words[0]) if words else "vllm_instance on this host"


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec=ARGUMENTS,
        supports_check_mode=True,
        required_if=[("state", "present", ["instances"]), ("state", "absent", ["names"])],
    )
    params = module.params
    options = Options(
        **{key: params[key] for key in ("state", "adopt", "verify", "lock_timeout", "image_id")},
        check=module.check_mode,
        python=sys.executable or "/usr/bin/python3",
        who=asker(os.environ.get("SSH_CONNECTION", "")),
    )
    try:
        result = apply(Host(params["engine_cli"]), options, params["instances"], params["names"], params["secrets"])
    except ApplyError as failure:
        module.fail_json(msg=str(failure), **failure.result)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
