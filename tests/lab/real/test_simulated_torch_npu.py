"""The simulated torch_npu behind the real torch: what scripts that check an environment see."""

from __future__ import annotations

import subprocess

import pytest

from tests.lab.real import packages, plugin

DOCUMENTED = """\
import torch
import vllm
import vllm_ascend
assert torch.npu.is_available(), "No available Ascend NPU detected in the container"
print("vLLM Ascend environment: OK")
"""
EACH_NPU = """\
import torch
for number in range(torch.npu.device_count()):
    ones = torch.ones(4, 4, dtype=torch.float16, device=f"npu:{number}")
    result = (ones @ ones + ones.npu()).sum()
    print(result.item(), result.device, (ones * 2).cpu().device)
"""


def run(script: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a script with the packages and the plugin of an A2 image."""
    argv = [str(packages.python(packages.ensure())), "-c", script]
    values = {"PYTHONPATH": str(plugin.folder("A2")), "PATH": "/usr/bin:/bin", **environment}
    return subprocess.run(argv, env=values, capture_output=True, text=True, timeout=300, check=False)


def test_the_documented_verification_passes() -> None:
    done = run(DOCUMENTED, LAB_DRIVER="none")
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "vLLM Ascend environment: OK"), done.stderr


def test_importing_torch_without_a_host_driver_fails() -> None:
    done = run(DOCUMENTED)
    assert done.returncode == 1
    assert "ImportError: libascend_hal.so: cannot open shared object file" in done.stderr
    assert "Failed to load the backend extension: torch_npu" in done.stderr


def test_a_small_operation_runs_on_each_npu() -> None:
    done = run(EACH_NPU, LAB_DRIVER="none")
    assert done.stdout.splitlines() == [f"80.0 npu:{number} cpu" for number in range(8)], done.stderr


@pytest.mark.parametrize(
    ("script", "environment", "text"),
    [
        (EACH_NPU, {"LAB_NPU_FAILS": "1"}, "npu:1: aicore execution is abnormal, error code is 507015 (simulated"),
        ("import torch; torch.ones(1, device='npu:8')", {}, "invalid device ordinal 8: 8 NPUs are here (simulated)"),
        ("import torch_npu; torch_npu.npu_fusion_attention()", {}, "torch_npu.npu_fusion_attention: this torch_npu is"),
    ],
)
def test_operations_that_fail(script: str, environment: dict[str, str], text: str) -> None:
    done = run(script, LAB_DRIVER="none", **environment)
    assert done.returncode == 1
    assert text in done.stderr
