# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Turn the signals that end a process into an exception, so that what it started goes, too."""

from __future__ import annotations

import contextlib
import signal
from typing import Any, Callable, Iterator

# A person's Ctrl-C, systemd or a shutdown, and a connection that was lost.
SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)


@contextlib.contextmanager
def stopping(failure: Callable[[str], Exception]) -> Iterator[None]:
    """Raise failure("stopped by signal N") in this process when one of SIGNALS comes; afterwards all is as before."""

    def stop(number: int, _frame: Any) -> None:
        raise failure("stopped by signal {0}".format(int(number)))

    before = {}
    for number in SIGNALS:
        # ValueError: outside the main thread, which alone gets signals.
        with contextlib.suppress(ValueError):
            before[number] = signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
