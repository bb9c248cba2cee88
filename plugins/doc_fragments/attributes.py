# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What every module of the collection says about check mode, diff mode, idempotence and platforms."""

from __future__ import annotations


class ModuleDocFragment:
    """Documentation fragments: DOCUMENTATION for modules that change a host, INFO for those that only read it."""

    DOCUMENTATION = r"""
options: {}
attributes:
  check_mode:
    description: Can run in C(check_mode) and says what it would change without changing it.
    support: full
  diff_mode:
    description: Returns what it changed, or would change, in diff mode.
    support: full
  idempotent:
    description: When run twice in a row, the second run changes nothing.
    support: full
  platform:
    description: The operating systems that a managed host may run.
    platforms: linux
    support: full
"""

    INFO = r"""
options: {}
attributes:
  check_mode:
    description: Can run in C(check_mode); it never changes anything.
    support: full
  diff_mode:
    description: It changes nothing, so there is nothing to show in diff mode.
    support: N/A
  idempotent:
    description: It changes nothing.
    support: full
  platform:
    description: The operating systems that a managed host may run.
    platforms: linux
    support: full
"""

    FACTS = r"""
options: {}
attributes:
  facts:
    description: Returns C(ansible_facts) that are merged into the host's facts.
    support: full
"""
