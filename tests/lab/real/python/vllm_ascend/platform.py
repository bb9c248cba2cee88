"""The platform plugin: vllm-ascend's decisions about the configuration that matter here, and a worker of our own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import torch
from vllm.logger import init_logger
from vllm.platforms.interface import Platform, PlatformEnum

from vllm_ascend.ascend_config import init_ascend_config
from vllm_ascend.utils import AscendDeviceType, get_ascend_device_type, is_310p

if TYPE_CHECKING:
    from vllm.config import VllmConfig

logger = init_logger("vllm.simulated_npu.platform")

NOTICE = "SIMULATED: this platform plugin computes nothing; vLLM in front of it is the real one"
BLOCK_SIZE = 128
LARGEST_CAPTURE_SIZE = 512


class NPUPlatform(Platform):
    """Real to vLLM in its names; without kernels, attention or communication."""

    _enum = PlatformEnum.OOT
    device_name = "npu"
    device_type = "npu"
    dispatch_key = "PrivateUse1"
    dist_backend = "gloo"
    simple_compile_backend = "eager"
    ray_device_key = "NPU"
    device_control_env_var = "ASCEND_RT_VISIBLE_DEVICES"
    supported_quantization: ClassVar[list[str]] = ["ascend", "compressed-tensors", "fp8"]

    @classmethod
    def import_kernels(cls) -> None:
        """There are none."""

    @classmethod
    def pre_register_and_update(cls, parser: Any = None) -> None:
        """`--quantization ascend` is a choice, as with vllm-ascend."""
        action = parser._option_string_actions.get("--quantization") if parser is not None else None
        if action is not None and action.choices and "ascend" not in action.choices:
            action.choices.append("ascend")

    @classmethod
    def apply_config_platform_defaults(cls, vllm_config: VllmConfig) -> None:
        """The largest graph is one of max_num_seqs requests, unless the operator said which are captured."""
        compilation = vllm_config.compilation_config
        wanted = compilation.max_cudagraph_capture_size, compilation.cudagraph_capture_sizes
        if wanted == (None, None) and vllm_config.scheduler_config is not None:
            most = vllm_config.scheduler_config.max_num_seqs
            compilation.max_cudagraph_capture_size = min(most, LARGEST_CAPTURE_SIZE)

    @classmethod
    def check_and_update_config(cls, vllm_config: VllmConfig) -> None:
        """Run vllm-ascend's own AscendConfig, then set what its platform sets. Raises what AscendConfig raises."""
        if vllm_config.model_config is None:
            return
        logger.warning(NOTICE)
        if is_310p() and vllm_config.model_config.dtype == torch.bfloat16:
            logger.warning("SIMULATED: the 310P has no bfloat16; the real engine would fail later")
        ascend = init_ascend_config(vllm_config).ascend_compilation_config
        vllm_config.additional_config.setdefault("ascend_compilation_config", {}).update(vars(ascend))
        _set_graph_mode(vllm_config)
        parallel, cache = vllm_config.parallel_config, vllm_config.cache_config
        if parallel.worker_cls == "auto":
            parallel.worker_cls = "vllm_ascend.simulated_worker.SimulatedWorker"
        if not cache.user_specified_block_size:
            cache.block_size = BLOCK_SIZE
        if get_ascend_device_type() is not AscendDeviceType._310P:
            vllm_config.compilation_config.custom_ops = ["all"]
        # The worker answers at once; there is nothing to overlap.
        vllm_config.scheduler_config.async_scheduling = False

    @classmethod
    def update_block_size_for_backend(cls, vllm_config: VllmConfig) -> None:
        """Chosen in check_and_update_config."""

    @classmethod
    def check_if_supports_dtype(cls, dtype: torch.dtype) -> None:
        """Any: nothing is computed."""

    @classmethod
    def get_device_name(cls, device_id: int = 0) -> str:
        """A name that says that it is simulated."""
        return torch.npu.get_device_name(device_id)

    @classmethod
    def set_device(cls, device: torch.device) -> None:
        """Choose an NPU."""
        torch.npu.set_device(device)

    @classmethod
    def manual_seed_all(cls, seed: int) -> None:
        """Nothing to seed."""

    @classmethod
    def inference_mode(cls) -> Any:
        """As vllm-ascend."""
        return torch.inference_mode()

    @classmethod
    def is_pin_memory_available(cls) -> bool:
        """There is no device to copy to."""
        return False

    @classmethod
    def get_attn_backend_cls(cls, *_arguments: Any, **_options: Any) -> str:
        """Only named, never run."""
        return "vllm.v1.attention.backends.cpu_attn.CPUAttentionBackend"

    @classmethod
    def support_static_graph_mode(cls) -> bool:
        """As vllm-ascend."""
        return True

    @classmethod
    def support_hybrid_kv_cache(cls) -> bool:
        """As vllm-ascend."""
        return True


def _set_graph_mode(vllm_config: VllmConfig) -> None:
    # vllm.config asks for the platform while it is imported.
    from vllm.config import CompilationMode
    from vllm.config.compilation import CUDAGraphMode

    compilation = vllm_config.compilation_config
    if vllm_config.model_config.enforce_eager:
        compilation.mode = CompilationMode.NONE
    compilation.cudagraph_num_of_warmups = 1
    vllm_config._set_cudagraph_sizes()
    compilation.use_inductor = False
    mode = compilation.cudagraph_mode
    graphs = mode is not None and mode != CUDAGraphMode.NONE
    if not graphs:
        compilation.mode = CompilationMode.NONE
    elif mode.requires_piecewise_compilation():
        parallel = vllm_config.parallel_config
        compilation.set_splitting_ops_for_v1(
            all2all_backend=parallel.all2all_backend, data_parallel_size=parallel.data_parallel_size
        )
    else:
        compilation.splitting_ops = []
    if not graphs or mode.requires_piecewise_compilation():
        switched_off = {"enable_npugraph_ex": False, "enable_static_kernel": False}
        vllm_config.additional_config["ascend_compilation_config"].update(switched_off)
