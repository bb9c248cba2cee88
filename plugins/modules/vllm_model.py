#!/usr/bin/python
# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module vllm_model."""

from __future__ import annotations

DOCUMENTATION = r"""
module: vllm_model
short_description: Bring the models of planned instances to a host, and check that they are whole
version_added: "0.3.0"
author: the vllm_ascend.fleet authors (@vllm-ascend-fleet)
description:
  - Fetches the models of hubs into the host's cache, by the client that the image has, in a container of its own with
    the service's cache, environment and network, and no NPU. Services that run go on.
  - Files that are there stay, and a run that was stopped is gone on with. The container has a time limit inside, and is
    removed when this module is stopped or nobody listens to it any more.
  - Copies the folder of a local model from another folder of the host, such as a mounted share, file by file, each
    beside its place and then renamed.
  - Checks each model, config.json, vocabulary, every file that the index names, lengths of safetensors files, and what
    the hub says of sizes and, with O(verify=checksum), of contents.
options:
  jobs:
    description:
      - The key C(jobs) of what P(vllm_ascend.fleet.model_jobs#filter) returned.
      - Needed unless O(read) or O(offered) is given.
    type: list
    elements: dict
    default: []
  secrets:
    description:
      - Secret environment variables by instance, as P(vllm_ascend.fleet.instance_secrets#filter) returns them. A fetch
        gets those of the first instance that needs the model, but C(VLLM_API_KEY).
    type: dict
    default: {}
  fetch:
    description:
      - V(missing) fetches a model that is not there, or not whole.
      - V(always) asks the hub each time, and fetches what is newer there.
      - V(never) only checks.
    type: str
    choices: [missing, always, never]
    default: missing
  verify:
    description: V(size) compares sizes, V(checksum) reads every file that the hub gives a digest of.
    type: str
    choices: [size, checksum]
    default: size
  read:
    description: Only list the files of this folder. It is for the controller, when a model is copied from there.
    type: path
  offered:
    description: Only say which of these files (C(name) and C(size)) the folders lack that they are listed under,
      provided that there is room for them.
    type: dict
  engine_cli:
    description: The command of the container engine.
    type: path
    default: docker
extends_documentation_fragment:
  - vllm_ascend.fleet.attributes
attributes:
  diff_mode:
    description: Models are large, and nothing of them is shown.
    support: none
seealso:
  - plugin: vllm_ascend.fleet.model_jobs
    plugin_type: filter
"""

EXAMPLES = r"""
- name: Get the models of the planned instances
  vllm_ascend.fleet.vllm_model:
    jobs: "{{ (vllm_plan | vllm_ascend.fleet.model_jobs(wanted)).jobs }}"
    secrets: "{{ settings | vllm_ascend.fleet.instance_secrets }}"
"""

RETURN = r"""
files:
  description: The files of the folder O(read) with C(name) and C(size), in the order of copying.
  returned: with O(read)
  type: list
  elements: dict
wanted:
  description: The names of the files that are to be copied, by folder.
  returned: with O(offered)
  type: dict
models:
  description: One entry for each model.
  returned: with O(jobs)
  type: list
  elements: dict
  contains:
    model:
      description: Its id at the hub, or its folder.
      type: str
    source:
      description: V(huggingface), V(modelscope) or V(local).
      type: str
    instances:
      description: The instances that need it.
      type: list
      elements: str
    action:
      description: V(none), V(fetch) or V(copy), in check mode what would be done.
      type: str
    changed:
      description: Whether anything came.
      type: bool
    planned:
      description: Whether this is check mode, and the action was not taken.
      type: bool
    ok:
      description: Whether it is there and whole.
      type: bool
    problems:
      description: What is wrong, each with C(code), C(message) and C(remedy).
      type: list
      elements: dict
    folder:
      description: Where its files are on the host. Null when it is not there.
      type: str
    files:
      description: How many files it has.
      type: int
    size_mb:
      description: What they take, in MiB.
      type: int
    verified:
      description: How many files were compared with a checksum.
      type: int
    unfinished:
      description: What downloads left that ended early, as paths.
      type: list
      elements: str
    notes:
      description: What may be wrong with it.
      type: list
      elements: str
    client:
      description: The program of the image that fetched it, with its version.
      type: str
    log:
      description: What the container printed when it failed, without secrets.
      type: str
    seconds:
      description: How long it took.
      type: float
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.vllm_ascend.fleet.plugins.module_utils.host_control import Host
from ansible_collections.vllm_ascend.fleet.plugins.module_utils.model_copy import CopyError, files_of
from ansible_collections.vllm_ascend.fleet.plugins.module_utils.model_fetch import Options, get_all, lacking
from ansible_collections.vllm_ascend.fleet.plugins.module_utils.model_remedies import problem_of

ARGUMENTS = {
    "jobs": {"type": "list", "elements": "dict", "default": []},
    "secrets": {"type": "dict", "default": {}, "no_log": True},
    "fetch": {"type": "str", "choices": ["missing", "always", "never"], "default": "missing"},
    "verify": {"type": "str", "choices": ["size", "checksum"], "default": "size"},
    "read": {"type": "path"},
    "offered": {"type": "dict"},
    "engine_cli": {"type": "path", "default": "docker"},
}


def main() -> None:
    """Run the module."""
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    params = module.params
    host = Host(params["engine_cli"])
    try:
        if params["read"]:
            module.exit_json(changed=False, files=[one._asdict() for one in files_of(params["read"])])
        if params["offered"]:
            module.exit_json(changed=False, wanted=lacking(host, params["offered"], params["verify"]))
    except CopyError as failure:
        problem = problem_of(failure.code, str(failure), {"model": "the model's copy", "source": "local"})
        module.fail_json(msg="{message}. {remedy}".format(**problem), problems=[problem])
    options = Options(params["fetch"], params["verify"], module.check_mode)
    models = get_all(host, params["jobs"], params["secrets"], options)
    changed = any(one["changed"] for one in models)
    problems = [problem for one in models for problem in one["problems"]]
    if problems:
        lines = ["{message}. {remedy}".format(**problem) for problem in problems]
        module.fail_json(msg="\n".join(lines), models=models, changed=changed)
    module.exit_json(changed=changed, models=models)


if __name__ == "__main__":
    main()
