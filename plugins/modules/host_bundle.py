#!/usr/bin/python
# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module host_bundle."""

from __future__ import annotations

DOCUMENTATION = r"""
module: host_bundle
short_description: Pack what is read of a host into one archive for a bug report
version_added: "0.2.0"
author: the vllm_ascend.fleet authors (@vllm-ascend-fleet)
description:
  - Observes the host as M(vllm_ascend.fleet.npu_facts) and M(vllm_ascend.fleet.vllm_instance_info) do, and writes what
    was read into a C(.tar.gz). Those are files, and what C(npu-smi), C(docker) and C(systemctl) printed.
  - Where the archive is unpacked, C(vllm_sysroot) gives the same facts and the same plan, and nothing of it is run.
  - Serial numbers, MAC and IP addresses, values of environments, logins, secrets, digests of secrets and the host's
    name are masked, equal ones alike. Connections, contents of files that are only looked at, and fields that nothing
    reads are left out.
  - Names of containers, images and models, and paths, stay. Look through the archive before you give it away.
  - Nothing else on the host is changed.
options:
  dest:
    description: The archive on the host. It is written in one step with the mode 0600; what was there is replaced.
    type: path
    required: true
  sysroot:
    description: Pack the copy of a host below this folder instead of the live host.
    type: path
    default: /
  paths:
    description: Paths to look at, as for M(vllm_ascend.fleet.npu_facts).
    type: list
    elements: str
    default: []
  npu_smi:
    description: Whether C(npu-smi) is asked.
    type: str
    choices: [auto, skip]
    default: auto
  npu_smi_timeout:
    description: Seconds that one call of C(npu-smi) may take.
    type: int
    default: 15
  probe:
    description: How far endpoints are asked, as for M(vllm_ascend.fleet.vllm_instance_info).
    type: str
    choices: [completion, health, none]
    default: none
  ports:
    description: The TCP ports of interest, as for M(vllm_ascend.fleet.vllm_instance_info).
    type: list
    elements: int
  models:
    description: The models to look at, as for M(vllm_ascend.fleet.vllm_instance_info).
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
    description: Seconds that each call of the container engine or of systemd, and each request, may take.
    type: float
    default: 20
  hide:
    description:
      - More texts of six characters or more that must not be in the archive, such as the name of a customer.
    type: list
    elements: str
    default: []
extends_documentation_fragment:
  - vllm_ascend.fleet.attributes
attributes:
  diff_mode:
    support: none
  idempotent:
    description: Every run writes the archive anew, since the host's state and the time are in it.
    support: none
"""

EXAMPLES = r"""
- name: Pack the host
  vllm_ascend.fleet.host_bundle:
    dest: /var/tmp/bundle.tar.gz
    paths: [/etc/hccn.conf, "{driver}/driver/lib64"]

- name: Pack it without the name of the customer
  vllm_ascend.fleet.host_bundle:
    dest: /var/tmp/bundle.tar.gz
    hide: [northwind]
"""

RETURN = r"""
path:
  description: The archive on the host.
  returned: success
  type: str
  sample: /var/tmp/bundle.tar.gz
size:
  description: Its bytes.
  returned: success
  type: int
  sample: 18211
members:
  description: Files, folders and links in it.
  returned: success
  type: int
  sample: 143
masked:
  description: How many values of each kind were masked, and how many connections were left out.
  returned: success
  type: dict
  sample: {ipv4: 3, environment: 12, digest: 2, connection: 81}
sha256:
  description: Its digest in hex.
  returned: success
  type: str
  sample: 3f4e5d6c
differences:
  description: What the copy tells otherwise than the host, by dotted names. It should be empty.
  returned: success
  type: list
  elements: str
  sample: []
"""

import os
import tempfile
import time
from typing import Any, Dict

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.vllm_ascend.fleet.plugins.module_utils import (
    atomic,
    bundle,
    instance_observation,
    instance_state,
    model_files,
    npu_observation,
)
from ansible_collections.vllm_ascend.fleet.plugins.module_utils.bundle_recorder import Recorder
from ansible_collections.vllm_ascend.fleet.plugins.module_utils.sysroot import SysrootError

ARGUMENT_SPEC: Dict[str, Dict[str, Any]] = {
    "dest": {"type": "path", "required": True},
    "sysroot": {"type": "path", "default": "/"},
    "paths": {"type": "list", "elements": "str", "default": []},
    "npu_smi": {"type": "str", "choices": ["auto", "skip"], "default": "auto"},
    "npu_smi_timeout": {"type": "int", "default": 15},
    "probe": {"type": "str", "choices": list(instance_observation.PROBES), "default": instance_observation.PROBE_NONE},
    "ports": {"type": "list", "elements": "int"},
    "models": {"type": "list", "elements": "dict", "default": [], "options": model_files.OPTIONS},
    "timeout": {"type": "float", "default": 20},
    "hide": {"type": "list", "elements": "str", "default": [], "no_log": True},
}


def options(params: Dict[str, Any]) -> bundle.Options:
    """How to observe, by the module's options."""
    models = tuple(model_files.Request(**model) for model in params["models"])
    return bundle.Options(
        npu_observation.Options(params["paths"], params["npu_smi"], params["npu_smi_timeout"]),
        instance_observation.Options(params["probe"], params["ports"], params["timeout"], models),
        params["hide"],
    )


def main() -> None:
    """Run the module."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    dest = module.params["dest"]
    if module.params["npu_smi_timeout"] < 1:
        module.fail_json(msg="npu_smi_timeout is {0}; give at least 1 second".format(module.params["npu_smi_timeout"]))
    if os.path.isdir(dest) or not os.path.isdir(os.path.dirname(dest) or "."):
        module.fail_json(msg="dest is {0}; give a file in a folder that exists".format(dest))
    try:
        with tempfile.TemporaryDirectory(dir=module.tmpdir) as scratch:
            made = bundle.make(Recorder(module.params["sysroot"]), options(module.params), time.time(), scratch)
        if not module.check_mode:
            atomic.write(dest, made.archive)
    except (SysrootError, bundle.BundleError) as failure:
        module.fail_json(msg=str(failure))
    except OSError as failure:
        module.fail_json(msg="the bundle cannot be written: {0}; free space or give another dest".format(failure))
    module.exit_json(
        changed=True,
        path=dest,
        size=len(made.archive),
        members=made.members,
        masked=bundle.summary(made.masked),
        sha256=instance_state.bytes_digest(made.archive),
        differences=made.differences,
    )


if __name__ == "__main__":
    main()
