#!/usr/bin/python
# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module vllm_image."""

from __future__ import annotations

DOCUMENTATION = r"""
module: vllm_image
short_description: Bring a vLLM Ascend image into the host's Docker engine
version_added: "0.1.0"
author: the vllm_ascend.fleet authors (@vllm-ascend-fleet)
description:
  - Makes one image be there under its canonical reference, from registries tried in order, or from an archive.
  - Checks the architecture and, when one is pinned, the digest. Only the canonical reference changes for good. Names
    that a pull had to make are taken away again, and an image that was there before or is in use is never deleted.
  - A registry that fails is recorded with the line that says why and with a remedy. When all fail, the engine's images
    and tags are as they were before. CA files and the proxy stay in place.
  - It works on the engine of the host, as the services do; E(DOCKER_HOST) and E(DOCKER_CONTEXT) do not count.
options:
  reference:
    description: The canonical reference, as the services name it.
    type: str
    required: true
  candidates:
    description:
      - Full references to pull from, in order. Without any it is O(reference).
      - Under V(missing) and V(never) an image that is already there under one of these names is used without a pull.
    type: list
    elements: str
    default: []
  platform:
    description:
      - The platform that the image must have. Without it the architecture is not checked.
      - It is given to C(docker pull) from Docker 20.10 on, or with an engine that has experimental features on.
    type: str
    choices: [linux/amd64, linux/arm64]
  archive:
    description:
      - Path on the host of an archive made by C(docker save), plain or compressed. It is loaded instead of a pull,
        also with O(pull=never).
    type: path
  digest:
    description:
      - The digest that the image must have, V(sha256:…). Images are pulled by it, and the name by digest is kept, since
        it is the engine's only record of it.
      - The image id is taken as well. An archive carries no registry digest, so pin the id there.
    type: str
  pull:
    description:
      - V(missing) pulls when the image is not there, has another architecture or another digest.
      - V(always) looks for a newer image behind the reference at every run. In check mode this counts as no change,
        because the answer is known only after the pull.
      - V(never) asks no registry.
    type: str
    choices: [missing, always, never]
    default: missing
  auth:
    description:
      - Logins by registry, each with C(username) and C(password).
      - They are written to a temporary folder for the time of the pull, never to the host's own Docker settings.
    type: dict
    default: {}
  ca:
    description:
      - CA certificates (PEM text) by registry, written to C(/etc/docker/certs.d/REGISTRY/ca.crt) before a pull.
    type: dict
    default: {}
  proxy:
    description:
      - The proxy of the Docker daemon, which is the one that a pull uses. A value that is left out is not looked at.
      - When the daemon has another one, a drop-in of docker.service is written and Docker restarted, but only before a
        pull, and only when nothing is stopped by it. Otherwise the module fails before it changes anything.
    type: dict
    suboptions:
      http:
        description: Proxy for plain HTTP registries.
        type: str
      https:
        description: Proxy for HTTPS registries.
        type: str
      no_proxy:
        description: Names, domains and networks that are reached without a proxy, separated by commas.
        type: str
  timeout:
    description: Seconds that one pull or load may take.
    type: int
    default: 3600
  engine_cli:
    description: The Docker command line.
    type: path
    default: docker
  min_free_mb:
    description: MiB that must be free below the engine's storage folder before a pull or load. V(0) does not check.
    type: int
    default: 0
extends_documentation_fragment:
  - vllm_ascend.fleet.attributes
seealso:
  - module: vllm_ascend.fleet.vllm_instance_info
"""

EXAMPLES = r"""
- name: Get the image, from a mirror where quay.io is out of reach
  vllm_ascend.fleet.vllm_image:
    reference: quay.io/ascend/vllm-ascend:v0.23.0-310p
    candidates:
      - quay.io/ascend/vllm-ascend:v0.23.0-310p
      - m.daocloud.io/quay.io/ascend/vllm-ascend:v0.23.0-310p
    platform: linux/arm64

- name: Get it from a registry of the site, with a login and a private CA
  vllm_ascend.fleet.vllm_image:
    reference: quay.io/ascend/vllm-ascend:v0.23.0
    candidates: ["registry.example.com:5000/ascend/vllm-ascend:v0.23.0"]
    auth:
      registry.example.com:5000:
        username: deploy
        password: "{{ registry_password }}"
    ca:
      registry.example.com:5000: "{{ lookup('ansible.builtin.file', 'site-ca.pem') }}"

- name: Load it from an archive on a host without a network
  vllm_ascend.fleet.vllm_image:
    reference: quay.io/ascend/vllm-ascend:v0.23.0-a3
    archive: /srv/images/vllm-ascend-v0.23.0-a3.tar.gz
    platform: linux/arm64
"""

RETURN = r"""
action:
  description: What was done, or would be in check mode.
  type: str
  returned: success
  choices: [none, tag, pull, load]
image:
  description: The image behind the reference.
  type: dict
  returned: success
  contains:
    id:
      description: Its id, null in check mode where it is known only after the pull.
      type: str
    reference:
      description: The canonical reference.
      type: str
    source:
      description: C(present), the candidate that it came from, or the archive's path.
      type: str
    architecture:
      description: V(amd64), V(arm64), …; null where it is not known yet.
      type: str
    digests:
      description: Its names by digest, those seen at the pull included.
      type: list
      elements: str
    size_mb:
      description: Its size in MiB; null where it is not known yet.
      type: int
attempts:
  description: The candidates that failed, in order.
  type: list
  elements: dict
  returned: always
  contains:
    reference:
      description: The candidate.
      type: str
    code:
      description: The kind of error, such as V(unauthorized), V(manifest_unknown) or V(tls_unknown_authority).
      type: str
    error:
      description: The line that says what went wrong.
      type: str
    remedy:
      description: What to do about it.
      type: str
problems:
  description: Why the image could not be had.
  type: list
  elements: dict
  returned: failure
  contains:
    code:
      description: The kind of problem.
      type: str
    message:
      description: What is wrong, with the value.
      type: str
    remedy:
      description: What to do about it.
      type: str
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.vllm_ascend.fleet.plugins.module_utils.engine_settings import shown_values
from ansible_collections.vllm_ascend.fleet.plugins.module_utils.image_store import (
    PLATFORMS,
    ImageError,
    Request,
    ensure,
)

# The addresses of proxies are no_log, since they can carry a login; main shows those that carry none.
ARGUMENTS = {
    "reference": {"type": "str", "required": True},
    "candidates": {"type": "list", "elements": "str", "default": []},
    "platform": {"type": "str", "choices": list(PLATFORMS)},
    "archive": {"type": "path"},
    "digest": {"type": "str"},
    "pull": {"type": "str", "choices": ["missing", "always", "never"], "default": "missing"},
    "auth": {"type": "dict", "default": {}, "no_log": True},
    "ca": {"type": "dict", "default": {}},
    "proxy": {
        "type": "dict",
        "options": {
            "http": {"type": "str", "no_log": True},
            "https": {"type": "str", "no_log": True},
            "no_proxy": {"type": "str"},
        },
    },
    "timeout": {"type": "int", "default": 3600},
    "engine_cli": {"type": "path", "default": "docker"},
    "min_free_mb": {"type": "int", "default": 0},
}


def main() -> None:
    """Run the module."""
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    hidden, shown = shown_values(module.params["auth"], module.params["proxy"])
    module.no_log_values = (module.no_log_values - shown) | hidden
    try:
        result = ensure(Request(check_mode=module.check_mode, **module.params))
    except ImageError as failure:
        module.fail_json(
            msg=str(failure),
            problems=failure.problems,
            attempts=failure.attempts,
            changed=failure.changed,
            diff=failure.diff,
        )
    module.exit_json(**result)


if __name__ == "__main__":
    main()
