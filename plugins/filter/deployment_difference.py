# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The filter deployment_difference; what it does is in deployment_difference.yml."""

from __future__ import annotations

import functools
import pathlib

from ansible.errors import AnsibleFilterError
from ansible_collections.vllm_ascend.fleet.plugins.module_utils import helper_install
from ansible_collections.vllm_ascend.fleet.plugins.module_utils.instance_state import bytes_digest
from ansible_collections.vllm_ascend.fleet.plugins.plugin_utils import difference, plain


@functools.cache
def own_helper_digest():
    """The sha256 of the helper that this collection installs; its bytes are the same on every host.

    The sources are read as files: Ansible's own importer gives the source of a collection's module as bytes.
    """
    folder = pathlib.Path(helper_install.__file__).parent
    return bytes_digest(helper_install.build(lambda name: (folder / f"{name}.py").read_text(encoding="utf-8")))


def deployment_difference(plan, observed=None, helper_digest=None):
    """What separates a host from its plan."""
    try:
        wanted = own_helper_digest() if helper_digest is None else helper_digest
        return difference.deployment_difference(plan, observed, wanted)
    except plain.WRONG_INPUT as failure:
        expected = "a plan of deployment_plan, and what vllm_instance_info observed"
        message = plain.wrong_input(failure, expected, plan=plan, observed=observed, helper_digest=helper_digest)
        raise AnsibleFilterError(f"deployment_difference: {message}") from failure


class FilterModule:
    """Registers the filter."""

    def filters(self):
        """The filters of this file by name."""
        return {"deployment_difference": deployment_difference}
