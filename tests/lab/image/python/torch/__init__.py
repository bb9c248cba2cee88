"""Imitation of torch with the Ascend backend loaded, for the simulated rack: no NPU computes anything.

Importing it looks for the host driver's library as the real backend does (torch autoloads torch_npu).
"""

from torch import npu
from torch._simulated_driver import load as _load
from torch._tensors import Tensor, float16, float32, matmul, tensor

__version__ = "2.10.0"
__all__ = ["Tensor", "__version__", "float16", "float32", "matmul", "npu", "tensor"]

_load()
