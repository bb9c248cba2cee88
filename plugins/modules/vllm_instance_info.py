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
      - The TCP ports of interest. The process and the container behind a listener are looked for on these ports and on
        those of the instances, and are null on others.
      - When it is not given, they are looked for on every port, which costs more on a host with very many processes.
    type: list
    elements: int
  models:
    description:
      - The models whose files are looked at, as the filter P(vllm_ascend.fleet.model_requests#filter) lists them from
        the settings.
      - Only small files are read, such as C(config.json) and the index of the weights; of weights only the size.
    type: list
    elements: dict
    default: []
    suboptions:
      model:
        description: The id at the hub, or the folder of a local model.
        type: str
        required: true
      source:
        description: Where the model comes from.
        type: str
        choices: [huggingface, modelscope, local]
        default: huggingface
      cache:
        description: The host's folder with the caches of the hubs.
        type: path
        default: /root/.cache
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
      description:
        - The container engine, null when no command line of one was found. C(runtimes), C(security_options),
          C(rootless), C(userns_remap) and C(cgroup_version) (V(1), V(2), null before Docker 20.10) are what
          C(docker info) says.
      type: dict
      sample: {"kind": "docker", "version": "28.3.3", "running": true, "default_runtime": "ascend", "rootless": false}
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
      description:
        - Containers that are not ours and can reach NPUs, or have a name that starts with C(vllm-). Those of Docker in
          every state, and running ones of podman, CRI-O, containerd and iSulad, which are read from the files that
          these engines keep.
        - C(engine) is V(docker), V(podman), V(cri-o), V(containerd) or V(isula). C(devices) are the nodes that were
          mapped by name, C(npu) tells that it can reach an NPU when it runs.
        - C(holds) tells what it holds now. C(nodes) are the NPUs that are known, C(any) is true when it may use others
          too, and C(why) says how. A stopped container holds nothing.
      type: list
      elements: dict
      contains:
        holds:
          description: The NPUs that the container holds.
          type: dict
          sample: {"nodes": ["/dev/davinci3"], "any": false, "why": null}
      sample: [{"container": "train", "engine": "podman", "devices": ["/dev/davinci3"], "npu": true,
                "state": "running", "holds": {"nodes": ["/dev/davinci3"], "any": false, "why": null}}]
    images:
      description: The images of the engine.
      type: list
      elements: dict
      sample: [{"id": "sha256:1f2e", "references": ["quay.io/ascend/vllm-ascend:v0.23.0"], "architecture": "arm64"}]
    models:
      description:
        - What the files of the models tell, in the order of O(models). C(found) says whether the model is on the host,
          C(config) is V(ok), V(missing) or V(invalid). C(weights_mb) is the size of the weights in MiB,
          C(missing_files) are weight files that the index names and that are not there.
      type: list
      elements: dict
      sample: [{"model": "Qwen/Qwen3-8B", "source": "huggingface", "found": true, "config": "ok",
                "model_type": "qwen3", "dtype": "bfloat16", "num_attention_heads": 32, "num_key_value_heads": 8,
                "weights_mb": 15623, "weight_files": 5, "missing_files": []}]
    helper:
      description: The installed host helper, null when there is none.
      type: dict
      sample: {"path": "/usr/local/libexec/vllm-ascend/host.py", "version": "0.1.0", "digest": "9c1f"}
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.vllm_ascend.fleet.plugins.module_utils import model_files
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
            "models": {"type": "list", "elements": "dict", "default": [], "options": model_files.OPTIONS},
        },
        supports_check_mode=True,
    )
    models = tuple(model_files.Request(**model) for model in module.params["models"])
    options = Options(module.params["probe"], module.params["ports"], module.params["timeout"], models)
    try:
        observed = collect(Sysroot(module.params["sysroot"]), options)
    except SysrootError as failure:
        module.fail_json(msg=str(failure))
    module.exit_json(changed=False, observed=observed)


if __name__ == "__main__":
    main()
