#!/usr/bin/python
# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: vllm_instance_info
short_description: Read the container engine and the vLLM instances of a host
version_added: "0.1.0"
description:
  - Reads in one call what a deployment must know of a host beside its hardware. That is the container engine, systemd,
    the listening TCP ports, every instance of this collection with its unit, container, committed plan and endpoint,
    the containers of others that hold NPUs, the images, and the host helper.
  - An endpoint counts as serving when C(/health) answers, C(/v1/models) lists the model, and a completion returns
    text. It is asked at the address of the container itself, never through a proxy of the environment.
  - It changes nothing, and returns no secret, only digests of them.
  - Where the host forwards a port to the container, that port must answer C(/health) too, as clients come through it.
options:
  sysroot:
    description:
      - Read the host below this folder instead of the live one (a replay). Nothing of the folder is run. What programs
        printed is read from C(recorded/commands.json) in it.
    type: path
    default: /
  probe:
    description:
      - How far endpoints are asked.
      - V(completion) asks for a real completion of five tokens, V(health) ends after C(/v1/models), V(none) asks
        nothing.
    type: str
    choices: [completion, health, none]
    default: completion
  ports:
    description:
      - The TCP ports of interest. Their listeners are returned with the process and the container that own them.
      - When it is not given, every listener is returned, which costs more on a host with very many processes.
    type: list
    elements: int
  timeout:
    description:
      - Seconds that each call of the container engine or of systemd, and each request to an endpoint, may take.
        A completion may take three times as long.
      - After a call of the container engine that gave no answer in time, the engine is not called again.
    type: float
    default: 20
extends_documentation_fragment:
  - vllm_ascend.fleet.attributes.info
author:
  - the vllm_ascend.fleet authors (@vllm-ascend-fleet)
"""

EXAMPLES = r"""
- name: Read everything, with a completion of every instance
  vllm_ascend.fleet.vllm_instance_info:
    ports: [8000, 8001]
  register: instance_info

- name: Show the instances that do not serve
  ansible.builtin.debug:
    msg: "{{ instance_info.observed.instances | rejectattr('health', 'equalto', 'serving') }}"

- name: Read a recorded host on the controller
  vllm_ascend.fleet.vllm_instance_info:
    sysroot: /srv/bundles/rack1-a2
  delegate_to: localhost
"""

RETURN = r"""
observed:
  description: What was read. A value that cannot be known is null.
  returned: success
  type: dict
  contains:
    engine:
      description: The container engine, null when no command line of one was found.
      type: dict
      sample: {"kind": "docker", "cli": "/usr/bin/docker", "version": "28.3.3", "running": true}
    systemd:
      description: The version of systemd, null when it was not found.
      type: dict
      sample: {"version": 252}
    listeners:
      description: The listening TCP sockets, with C(port), C(address), C(pid), C(process) and C(container).
      type: list
      elements: dict
      sample: [{"port": 8000, "address": "0.0.0.0", "pid": 4711, "process": "docker-proxy", "container": "3f4e"}]
    instances:
      description:
        - The instances of this collection, by name. Those with a unit of ours, a committed state, an open journal, or
          a container with our label.
        - C(health) is one of V(serving), V(loading), V(unhealthy), V(down) and V(unknown), C(journal) one of V(none),
          V(open) and V(running).
      type: list
      elements: dict
      sample: [{"name": "ascend", "unit": "vllm-ascend.service", "active_state": "active", "health": "serving"}]
    foreign:
      description: Containers that are not ours and hold NPUs, or have a name that starts with C(vllm-).
      type: list
      elements: dict
      sample: [{"container": "train", "devices": ["/dev/davinci3"], "npu": true, "state": "running"}]
    images:
      description: The images of the engine.
      type: list
      elements: dict
      sample: [{"id": "sha256:1f2e", "references": ["quay.io/ascend/vllm-ascend:v0.23.0"], "architecture": "arm64"}]
    helper:
      description: The installed host helper, null when there is none.
      type: dict
      sample: {"path": "/usr/local/libexec/vllm-ascend/host.py", "version": "0.1.0", "digest": "9c1f"}
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.vllm_ascend.fleet.plugins.module_utils.instance_observation import (
    PROBE_COMPLETION,
    PROBES,
    Options,
    collect,
)
from ansible_collections.vllm_ascend.fleet.plugins.module_utils.sysroot import Sysroot, SysrootError


def main() -> None:
    """Read the host and return what was observed."""
    module = AnsibleModule(
        argument_spec={
            "sysroot": {"type": "path", "default": "/"},
            "probe": {"type": "str", "choices": list(PROBES), "default": PROBE_COMPLETION},
            "ports": {"type": "list", "elements": "int"},
            "timeout": {"type": "float", "default": 20},
        },
        supports_check_mode=True,
    )
    options = Options(module.params["probe"], module.params["ports"], module.params["timeout"])
    try:
        observed = collect(Sysroot(module.params["sysroot"]), options)
    except SysrootError as failure:
        module.fail_json(msg=str(failure))
    module.exit_json(changed=False, observed=observed)


if __name__ == "__main__":
    main()
