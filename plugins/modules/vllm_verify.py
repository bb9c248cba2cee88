#!/usr/bin/python
# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module vllm_verify."""

from __future__ import annotations

DOCUMENTATION = r"""
module: vllm_verify
short_description: Verify the vLLM Ascend container environment of planned instances
version_added: "0.1.0"
author: the vllm_ascend.fleet authors (@vllm-ascend-fleet)
description:
  - >-
    Runs C(npu-smi info) and the Python check of the vLLM Ascend quick start with exactly the devices and mounts of the
    planned service. It is passed when C(npu-smi info) ends well and the check prints C(vLLM Ascend environment: OK).
  - >-
    Where the plan asks for the level C(deep) (the setting C(vllm_verify_level)), the verification goes on: torch must
    see as many NPUs as are mapped, each of them must compute a small fp16 product within a time limit of its own, and
    the image's build information, its CANN and the driver must fit the hardware. What is proved to be wrong fails,
    what cannot be found out is a warning.
  - An instance that runs is verified inside its container, since an NPU serves one container at a time. Otherwise a
    throw-away container is used, which needs the image on the host. In a container that serves no operation runs on a
    chip, since it could disturb the service or find no memory.
  - Nothing stays of it. In check mode it runs as well.
options:
  instances:
    description: Instances of a plan, as P(vllm_ascend.fleet.deployment_plan#filter) returns them.
    type: list
    elements: dict
    required: true
  timeout:
    description:
      - Seconds that the Python check of an instance may take. C(npu-smi info) has 180 seconds at most.
      - An operation on a chip has two fifths of it, and at most 240 seconds.
    type: int
    default: 600
  engine_cli:
    description: The command of the container engine.
    type: path
    default: docker
extends_documentation_fragment:
  - vllm_ascend.fleet.attributes.info
seealso:
  - module: vllm_ascend.fleet.vllm_instance
"""

EXAMPLES = r"""
- name: Verify the planned instances
  vllm_ascend.fleet.vllm_verify:
    instances: "{{ vllm_plan.instances }}"
"""

RETURN = r"""
instances:
  description: The evidence, one entry an instance.
  returned: always
  type: list
  elements: dict
  contains:
    name:
      description: The instance.
      type: str
    ok:
      description: Whether the verification passed.
      type: bool
    level:
      description: V(documented) or V(deep), as the plan asks for.
      type: str
    where:
      description: V(throwaway) or V(running container). Null when an NPU was held by somebody else.
      type: str
    npu_smi:
      description: How C(npu-smi info) ended.
      type: dict
    python:
      description: How the check ended, with the versions, plugins and the number of NPUs that it saw.
      type: dict
    platform_plugin:
      description: Whether vLLM activated the platform plugin C(ascend). One of V(activated), V(installed), V(missing)
        and V(unknown).
      type: str
    deep:
      description:
        - What the deep verification saw. C(npus) and C(mapped) are counts, C(operations) says whether chips had to
          compute, C(chips) has for each C(npu) (its number in the container) C(node), C(ok), C(why), C(seconds), C(soc)
          and C(lines), C(build) is what the image is built for, C(cann) and C(driver) are versions with the files that
          say so, C(failures) and C(warnings) are sentences.
        - Null at the level V(documented), and when the documented verification did not pass.
      type: dict
    message:
      description: Why it did not pass.
      type: str
    lines:
      description: The lines of the output that say why.
      type: list
      elements: str
    output:
      description: The end of what a verification that did not pass printed, without secrets. Null when it passed.
      type: str
    seconds:
      description: How long it took.
      type: float
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.vllm_ascend.fleet.plugins.module_utils.host_control import Host, HostError
from ansible_collections.vllm_ascend.fleet.plugins.module_utils.verification import verify_all

ARGUMENTS = {
    "instances": {"type": "list", "elements": "dict", "required": True},
    "timeout": {"type": "int", "default": 600},
    "engine_cli": {"type": "path", "default": "docker"},
}


def main() -> None:
    """Run the module."""
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    try:
        found = verify_all(Host(module.params["engine_cli"]), module.params["instances"], module.params["timeout"])
    except HostError as failure:
        module.fail_json(msg=str(failure), instances=[])
    failed = [one for one in found if not one["ok"]]
    if failed:
        lines = ["{0}: {1}".format(one["name"], one["message"]) for one in failed]
        lines += ["  " + line for one in failed for line in one["lines"]]
        module.fail_json(msg="\n".join(lines), instances=found)
    module.exit_json(changed=False, instances=found)


if __name__ == "__main__":
    main()
