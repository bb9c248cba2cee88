"""A process that is stopped cleans up."""

from __future__ import annotations

import os
import signal

import pytest
from ansible_collections.vllm_ascend.fleet.plugins.module_utils.stopping import SIGNALS, stopping


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_becomes_the_given_failure_and_its_handler_comes_back(number):
    before = signal.getsignal(number)
    with pytest.raises(LookupError, match=f"stopped by signal {int(number)}"), stopping(LookupError):
        os.kill(os.getpid(), number)
    assert signal.getsignal(number) == before
