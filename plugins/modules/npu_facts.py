#!/usr/bin/python
# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read the Ascend NPUs, the driver and the operating system of a host."""

from __future__ import annotations

DOCUMENTATION = r"""
module: npu_facts
short_description: Read the Ascend NPUs, the driver and the operating system of a host
version_added: "0.1.0"
author:
  - the vllm_ascend.fleet authors (@vllm-ascend-fleet)
description:
  - Finds out which hardware family a host belongs to, from its PCI bus, its device nodes and its driver package, and
    returns it with all evidence, all problems and the state of each chip as the fact RV(ansible_facts.ascend_npu).
  - The family needs neither the driver nor C(npu-smi). What cannot be known is V(null), and what contradicts itself is
    the family V(unknown) with both facts beside it.
  - C(npu-smi info) is called at most once, with a time limit that also holds when it blocks inside the driver. The
    product of an Ascend 310P that nothing else tells, and the physical ids of an Ascend 950, cost one call more each;
    the nodes of chips that are ill or in use, where neither the driver nor the table tells them, one a node. After one
    call that ran out of time it is not called again.
  - Device nodes are looked at, never opened, since that would claim the chip.
options:
  sysroot:
    description:
      - Read a copy of a host below this folder instead of the host itself (a replay). Nothing below it is run; what
        programs printed is read from C(recorded/commands.json) there, and ordinary files below C(dev/) stand for nodes.
    type: str
    default: /
  paths:
    description:
      - Paths of the host to look at, beside those that the module needs itself.
      - C({driver}) stands for the driver's install path (C(/usr/local/Ascend) where none is known).
    type: list
    elements: str
    default: []
  npu_smi:
    description:
      - Whether C(npu-smi) is asked. With V(skip) the states of the chips are not known, and the family of an Atlas 200I
        Pro is told by its device nodes and files alone.
    type: str
    choices: [auto, skip]
    default: auto
  npu_smi_timeout:
    description: Seconds that one call of C(npu-smi) may take.
    type: int
    default: 15
extends_documentation_fragment:
  - vllm_ascend.fleet.attributes.info
  - vllm_ascend.fleet.attributes.facts
attributes:
  facts:
    support: full
"""

EXAMPLES = r"""
- name: Read the NPUs of a host
  vllm_ascend.fleet.npu_facts:

- name: Show the family and everything that speaks against a deployment
  ansible.builtin.debug:
    msg: "{{ npu.family }}: {{ npu.problems | map(attribute='message') | join(' ') }}"
  vars:
    npu: "{{ ansible_facts['ascend_npu'] }}"

- name: Read them without asking npu-smi, and look at two paths
  vllm_ascend.fleet.npu_facts:
    npu_smi: skip
    paths:
      - "{driver}/driver/lib64"
      - /usr/local/dcmi

- name: Read the copy of a host that was unpacked on the controller
  vllm_ascend.fleet.npu_facts:
    sysroot: /srv/replay/node7
  delegate_to: localhost
"""

RETURN = r"""
ansible_facts:
  description: The facts of the host.
  returned: always
  type: dict
  contains:
    ascend_npu:
      description: The NPUs, the driver and the host; every value that cannot be known is V(null).
      returned: always
      type: dict
      contains:
        family:
          description:
            - V(atlas_a2), V(atlas_a3), V(atlas_300i_duo), V(atlas_200i_pro) or V(atlas_950dt); V(unsupported) for
              chips that vLLM Ascend does not support, V(unknown) where nothing is proven, V(none) without NPUs.
          type: str
          returned: always
          sample: atlas_300i_duo
        product:
          description: The product, where a source names it.
          type: str
          returned: always
          sample: Atlas 300I Duo
        evidence:
          description: What each source said (C(source), C(value), C(implies)), in order of weight.
          type: list
          elements: dict
          returned: always
        problems:
          description: What speaks against a deployment, each with C(code), C(message) and C(remedy).
          type: list
          elements: dict
          returned: always
        warnings:
          description:
            - What to know though a deployment is possible, each with C(code), C(message) and C(remedy). Chips that are
              on the PCI bus and have no node, virtual NPUs, an updated driver that waits for a restart of the host.
          type: list
          elements: dict
          returned: always
          sample:
            - {code: driver_restart_needed,
               message: "The driver package on the disk is 25.3.rc1, the driver that runs is 24.1.rc1.",
               remedy: "Restart the host."}
        chips:
          description:
            - The chips as C(npu-smi info) shows them. C(device) is the chip's node where that is proven; C(processes)
              is a list of C(pid), C(name) and C(memory_mb), or V(null) where nothing was said about the chip's users.
          type: list
          elements: dict
          returned: always
          sample:
            - {device: /dev/davinci0, phy_id: 0, npu_id: 0, chip_id: 0, name: Ascend910, health: OK,
               bus_id: "0000:9d:00.0", memory_total_mb: 65536, memory_used_mb: 3142, aicore_percent: 0, power_w: 164.0,
               temperature_c: 29, processes: []}
        device_nodes:
          description: The NPU device nodes that exist, by path.
          type: dict
          returned: always
          sample: {/dev/davinci0: {type: char, major: 235, minor: 0, mode: "0660", uid: 1000, gid: 1000}}
        pci:
          description: The NPUs on the PCI bus, ids as C(lspci -nn) prints them.
          type: list
          elements: dict
          returned: always
          sample:
            - {address: "0000:01:00.0", vendor: "19e5", device: d500, subsystem_vendor: "0200",
               subsystem_device: "0110", driver: devdrv_device_driver}
        driver:
          description:
            - The driver package. C(package_family) is the family it was made for (V(ascend_310p) for both 310P
              families); C(status) is V(installed), V(incomplete) or V(missing). C(version) is that of the package on
              the disk, C(loaded_version) that of the driver that runs, as C(npu-smi) prints it.
          type: dict
          returned: always
          sample: {install_path: /usr/local/Ascend, version: 25.5.1, loaded_version: 25.5.1,
                   firmware_version: 7.7.0.1.231, npu_smi_path: /usr/local/bin/npu-smi, package_family: atlas_a2,
                   status: installed}
        npu_smi:
          description: How C(npu-smi) answered. C(status) is V(ok), V(missing), V(hung), V(error) or V(skipped).
          type: dict
          returned: always
          sample: {status: error, path: /usr/local/bin/npu-smi, version: null, error_code: -8005,
                   error_text: dcmi module initialize failed. ret is -8005}
        usage:
          description:
            - Who uses which card, by C(npu-smi)'s processes and by the driver's tables below C(/proc/uda) of containers
              that hold chips. C(owner) is a container (C(id) is its full id) or a process (C(id) is its pid), C(pid)
              the process that was seen, or V(null). C(device) is V(null) where the chip's node is not proven.
          type: list
          elements: dict
          returned: always
          sample:
            - {device: /dev/davinci3, owner: {kind: process, name: python, id: 990711}, pid: 990711,
               source: "npu-smi info: NPU 1 chip 1"}
        host:
          description:
            - The operating system. C(image_os) is the kind of image that suits it. C(container) says whether this host
              is itself a container; V(null) where that cannot be told.
          type: dict
          returned: always
          sample: {os_id: openEuler, os_version: "22.03", os_like: [], image_os: openeuler, architecture: aarch64,
                   page_size: 4096, kernel: 5.10.0-216.0.0.115.oe2203sp4.aarch64, virtualization: none,
                   container: false, python: /usr/bin/python3, uptime_s: 86400, selinux: disabled}
        paths:
          description:
            - What lies at each path. C(type) is V(file), V(directory), V(char), V(block), V(other), V(link_broken) or
              V(missing); symbolic links are followed, and C(link) says what they hold.
          type: dict
          returned: always
          sample: {/usr/local/dcmi: {type: directory, mode: "0755", uid: 0, gid: 0, size: null, executable: true}}
"""

from typing import Any, Dict

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.vllm_ascend.fleet.plugins.module_utils.npu_observation import Options, collect
from ansible_collections.vllm_ascend.fleet.plugins.module_utils.sysroot import Sysroot, SysrootError

ARGUMENT_SPEC: Dict[str, Dict[str, Any]] = {
    "sysroot": {"type": "str", "default": "/"},
    "paths": {"type": "list", "elements": "str", "default": []},
    "npu_smi": {"type": "str", "choices": ["auto", "skip"], "default": "auto"},
    "npu_smi_timeout": {"type": "int", "default": 15},
}


def main() -> None:
    """Run the module."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    options = Options(module.params["paths"], module.params["npu_smi"], module.params["npu_smi_timeout"])
    if options.npu_smi_timeout < 1:
        module.fail_json(msg="npu_smi_timeout is {0}; give at least 1 second".format(options.npu_smi_timeout))
    try:
        facts = collect(Sysroot(module.params["sysroot"]), options)
    except SysrootError as failure:
        module.fail_json(msg=str(failure))
    module.exit_json(changed=False, ansible_facts={"ascend_npu": facts})


if __name__ == "__main__":
    main()
