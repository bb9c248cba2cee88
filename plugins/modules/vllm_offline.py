#!/usr/bin/python
# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module vllm_offline."""

from __future__ import annotations

DOCUMENTATION = r"""
module: vllm_offline
short_description: Run prompts through vLLM's offline API on NPUs that are free
version_added: "0.3.0"
author: the vllm_ascend.fleet authors (@vllm-ascend-fleet)
description:
  - Runs the job of P(vllm_ascend.fleet.offline_plan#filter) in a container of its own, with the devices, mounts and
    engine settings of the service, and returns a text for each prompt.
  - Prompts and secrets go into files that only root can read, in a folder of the job that is removed at the end.
  - It is judged by its results, not by its log or exit code. A prompt without a text is a failure that names it.
  - The container has a time limit inside. It is removed when this module is stopped or nobody listens to it any more,
    and one that a killed run left is removed before the next job. A job that still runs is left alone, unless
    O(replace=true).
options:
  job:
    description: The key C(job) of what P(vllm_ascend.fleet.offline_plan#filter) returned.
    type: dict
    required: true
  prompts:
    description: Text of P(vllm_ascend.fleet.offline_prompts#filter). It is neither logged nor returned.
    type: str
    required: true
  sampling:
    description: Arguments of C(SamplingParams).
    type: dict
    default: {}
  secrets:
    description: Secret environment variables of the container.
    type: dict
    default: {}
  replace:
    description:
      - End a job of another run that is still at this host, instead of failing. Such a one may be left for a while when
        a controller was lost.
    type: bool
    default: false
  engine_cli:
    description: The command of the container engine.
    type: path
    default: docker
attributes:
  check_mode:
    description: Checks the folders, device nodes and the name of the container, and runs nothing.
    support: full
  diff_mode:
    description: It leaves nothing on the host, so there is nothing to show.
    support: N/A
  idempotent:
    description: Each run computes anew.
    support: none
  platform:
    description: The operating systems that a managed host may run.
    platforms: linux
    support: full
seealso:
  - plugin: vllm_ascend.fleet.offline_plan
    plugin_type: filter
"""

EXAMPLES = r"""
- name: Run the prompts of this host
  vllm_ascend.fleet.vllm_offline:
    job: "{{ vllm_report.offline.job }}"
    prompts: "{{ request.prompts | vllm_ascend.fleet.offline_prompts([0, 1]) }}"
    sampling: {temperature: 0.0, max_tokens: 32}
"""

RETURN = r"""
outputs:
  description: One entry for each prompt that has a text, in the order of the prompts.
  returned: always
  type: list
  elements: dict
  contains:
    index:
      description: The place of the prompt in the whole list, from 0.
      type: int
    text:
      description: The text that the model generated.
      type: str
    finish_reason:
      description: Why it ended, V(length) or V(stop).
      type: str
    prompt_tokens:
      description: The number of tokens of the prompt. Null when vLLM does not tell.
      type: int
    output_tokens:
      description: The number of tokens generated. Null when vLLM does not tell.
      type: int
missing:
  description: The indexes of the prompts without any output.
  returned: always
  type: list
  elements: int
empty:
  description: The indexes of the prompts whose output is empty.
  returned: always
  type: list
  elements: int
removed_stale:
  description: Whether a container that a killed run left was removed before.
  returned: when the job ran
  type: bool
log:
  description: The end of what the container printed, when it did not end well.
  returned: when the job ran
  type: str
seconds:
  description: How long it took.
  returned: when the job ran
  type: float
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.vllm_ascend.fleet.plugins.module_utils.host_control import Host
from ansible_collections.vllm_ascend.fleet.plugins.module_utils.offline_job import Job, JobError, judge, parse_prompts

ARGUMENTS = {
    "job": {"type": "dict", "required": True},
    # Not in the host's syslog, nor in what is returned.
    "prompts": {"type": "str", "required": True, "no_log": True},
    "sampling": {"type": "dict", "default": {}},
    "secrets": {"type": "dict", "default": {}, "no_log": True},
    "replace": {"type": "bool", "default": False},
    "engine_cli": {"type": "path", "default": "docker"},
}


def main() -> None:
    """Run the module."""
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    options, prompts = module.params, []
    try:
        prompts = parse_prompts(options["prompts"])
        host = Host(options["engine_cli"])
        job = Job(host, options["job"], options["sampling"], options["secrets"], options["replace"])
        if module.check_mode:
            job.check()
            module.exit_json(changed=True, outputs=[], missing=[], empty=[])
        found = job.run(prompts)
    except JobError as failure:
        missing = [prompt.number for prompt in prompts]
        module.fail_json(msg=str(failure), outputs=[], missing=missing, empty=[], log=failure.log)
    judged = judge(prompts, found)
    message = judged.pop("message")
    judged.update({key: found[key] for key in ("removed_stale", "log", "seconds")})
    if message:
        module.fail_json(msg=message, changed=True, **judged)
    module.exit_json(changed=True, **judged)


if __name__ == "__main__":
    main()
