"""Imitation of torch_npu for the simulated rack."""

from torch import npu

__version__ = "2.10.0.post4"
__all__ = ["__version__", "npu"]
