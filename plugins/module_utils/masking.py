# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Logins in the addresses of proxies: found and masked in one place."""

from __future__ import annotations

import re
from typing import Optional

# As Docker masks them since 20.10.
DOCKER_MARK = "xxxxx:xxxxx@"
# Greedy on purpose: a password with an unescaped @ or / must not be shown either. The scheme may be missing.
_LOGIN = re.compile(r"^((?:[A-Za-z][A-Za-z0-9+.-]*:)?//|)(.*)@", re.DOTALL)


def login_of(url: str) -> Optional[str]:
    """The login (user:password) in a proxy's address, None when there is none."""
    match = _LOGIN.match(url)
    return match.group(2) if match else None


def masked(url: str, mark: str = "") -> str:
    """A proxy's address with mark in the place of its login: http://proxy:3128."""
    match = _LOGIN.match(url)
    return match.group(1) + mark + url[match.end() :] if match else url
