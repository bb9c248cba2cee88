# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The filter docker_run; what it does is in docker_run.yml."""

from __future__ import annotations

from ansible.errors import AnsibleFilterError
from ansible_collections.vllm_ascend.fleet.plugins.plugin_utils import container, plain


def docker_run(spec, **overrides):
    """The argv of docker run for a container of a plan."""
    try:
        return container.docker_run(plain.plain(spec), **plain.plain(overrides))
    except plain.WRONG_INPUT as failure:
        expected = "the container of an instance of a plan"
        message = plain.wrong_input(failure, expected, spec=spec)
        raise AnsibleFilterError(f"docker_run: {message}") from failure


class FilterModule:
    """Registers the filter."""

    def filters(self):
        """The filters of this file by name."""
        return {"docker_run": docker_run}
