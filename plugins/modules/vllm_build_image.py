#!/usr/bin/python
# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module vllm_build_image."""

from __future__ import annotations

DOCUMENTATION = r"""
module: vllm_build_image
short_description: Build an image from the sources of vLLM Ascend
version_added: "0.3.0"
author: the vllm_ascend.fleet authors (@vllm-ascend-fleet)
description:
  - Builds one image with C(docker build), from a branch, tag or commit of a git repository or from a folder of the
    host, and tags it. The source's commit, the Dockerfile and the arguments are recorded as labels.
  - Nothing is built when the tag's image is of the same commit (or content of the folder), Dockerfile and arguments.
    That the base image was moved is not looked at; O(force) builds again.
  - Until the build has ended the tag stays with the image of before, which is never deleted.
options:
  dockerfile:
    description: The Dockerfile, as a path inside the source.
    type: str
    required: true
  tag:
    description: The image reference that the result gets.
    type: str
    required: true
  repository:
    description: What C(git) clones, only the commit that is built. An address with a login is refused.
    type: str
  version:
    description: The tag, branch or full commit of O(repository).
    type: str
  folder:
    description: A folder of the host with the sources, instead.
    type: path
  arguments:
    description: Build arguments. One that the Dockerfile does not declare is an error.
    type: dict
    default: {}
  proxy:
    description: Proxies for the steps of the build, not kept in the image.
    type: dict
    suboptions:
      http:
        description: Proxy for HTTP.
        type: str
      https:
        description: Proxy for HTTPS.
        type: str
      no_proxy:
        description: What is reached without a proxy, separated by commas.
        type: str
  network:
    description: The network of the build's steps, as C(docker build --network).
    type: str
  pull:
    description: Ask the registry for a newer base image.
    type: bool
    default: false
  force:
    description: Build although the image is there.
    type: bool
    default: false
  push:
    description: Push the image under this reference.
    type: str
  auth:
    description: Logins by registry, each with C(username) and C(password), for the push.
    type: dict
    default: {}
  archive:
    description: Write the image to this file of the host, as C(docker save) does.
    type: path
  work_folder:
    description: Folder for clones, which go afterwards, and for the logs of builds.
    type: path
    default: /var/cache/vllm-ascend/build
  min_free_mb:
    description: MiB that must be free below the engine's storage folder before a build. V(0) does not check.
    type: int
    default: 0
  timeout:
    description: Seconds that the build, and the push, may take.
    type: int
    default: 14400
  engine_cli:
    description: The Docker command line.
    type: path
    default: docker
extends_documentation_fragment:
  - vllm_ascend.fleet.attributes
seealso:
  - module: vllm_ascend.fleet.vllm_image
"""

EXAMPLES = r"""
- name: Build the image of the Atlas 300I Duo for Ubuntu
  vllm_ascend.fleet.vllm_build_image:
    repository: https://gitcode.com/gh_mirrors/vl/vllm-ascend.git
    version: v0.23.0
    dockerfile: Dockerfile.310p
    tag: vllm-ascend-dev:v0.23.0-310p
    arguments:
      COMPILE_CUSTOM_KERNELS: "1"
"""

RETURN = r"""
action:
  description: What was done, or would be in check mode.
  type: str
  returned: success
  choices: [none, build]
image:
  description: The image.
  type: dict
  returned: success
  contains:
    id:
      description: Its id, null in check mode where it would be built.
      type: str
    reference:
      description: The tag.
      type: str
    commit:
      description: The commit of the source, null for a folder that is no checkout.
      type: str
    source:
      description: The repository or folder.
      type: str
    dockerfile:
      description: The Dockerfile.
      type: str
    arguments:
      description: The build arguments.
      type: dict
pushed:
  description: Where the image was pushed, null when it was not.
  type: str
  returned: success
saved:
  description: The archive that was written, null when none was.
  type: str
  returned: success
log:
  description: The log of the build on the host, null when nothing was built.
  type: str
  returned: always
output:
  description: The end of that log.
  type: str
  returned: failure
problems:
  description: Why it failed, as C(code), C(message) and C(remedy).
  type: list
  elements: dict
  returned: failure
seconds:
  description: How long it took.
  type: float
  returned: success
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.vllm_ascend.fleet.plugins.module_utils.engine_settings import shown_values
from ansible_collections.vllm_ascend.fleet.plugins.module_utils.image_build import BuildError, Request, ensure

ARGUMENTS = {
    "dockerfile": {"type": "str", "required": True},
    "tag": {"type": "str", "required": True},
    "repository": {"type": "str"},
    "version": {"type": "str"},
    "folder": {"type": "path"},
    "arguments": {"type": "dict", "default": {}},
    "proxy": {
        "type": "dict",
        "options": {
            "http": {"type": "str", "no_log": True},
            "https": {"type": "str", "no_log": True},
            "no_proxy": {"type": "str"},
        },
    },
    "network": {"type": "str"},
    "pull": {"type": "bool", "default": False},
    "force": {"type": "bool", "default": False},
    "push": {"type": "str"},
    "auth": {"type": "dict", "default": {}, "no_log": True},
    "archive": {"type": "path"},
    "work_folder": {"type": "path", "default": "/var/cache/vllm-ascend/build"},
    "min_free_mb": {"type": "int", "default": 0},
    "timeout": {"type": "int", "default": 14400},
    "engine_cli": {"type": "path", "default": "docker"},
}


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec=ARGUMENTS,
        supports_check_mode=True,
        required_one_of=[("repository", "folder")],
        mutually_exclusive=[("repository", "folder")],
        required_by={"repository": ("version",)},
    )
    hidden, shown = shown_values(module.params["auth"], module.params["proxy"])
    module.no_log_values = (module.no_log_values - shown) | hidden
    arguments = {str(name): str(value) for name, value in module.params["arguments"].items()}
    try:
        result = ensure(Request(check_mode=module.check_mode, **dict(module.params, arguments=arguments)))
    except BuildError as failure:
        module.fail_json(msg=str(failure), problems=failure.problems, output=failure.output, log=failure.log)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
