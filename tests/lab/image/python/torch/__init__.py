"""Imitation of torch with the Ascend backend loaded, for the simulated rack: it computes nothing.

Importing it looks for the host driver's library as the real backend does (torch autoloads torch_npu).
"""

from torch import npu
from torch._simulated_driver import load as _load

__version__ = "2.10.0"
__all__ = ["__version__", "npu"]

_load()
