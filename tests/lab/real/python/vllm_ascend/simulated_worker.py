"""The worker in place of vllm-ascend's: it claims the simulated NPUs, loads nothing, and answers with a fixed sentence.

Knobs by environment, as those of the rack's imitation: LAB_LOAD_S seconds of loading (0), LAB_STEP_S seconds a step
(0.002), LAB_ENGINE_FAIL=start it fails after loading, LAB_ENGINE_TEXT=none every completion is empty.
"""

from __future__ import annotations

import os
import time
from typing import Any

import torch
from torch_npu import _simulated_driver as driver
from vllm.distributed.parallel_state import ensure_model_parallel_initialized, init_distributed_environment
from vllm.logger import init_logger
from vllm.tokenizers import cached_tokenizer_from_config
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheSpec
from vllm.v1.outputs import EMPTY_MODEL_RUNNER_OUTPUT, ModelRunnerOutput
from vllm.v1.worker.worker_base import CompilationTimes, WorkerBase

from vllm_ascend.utils import check_ascend_device_type

logger = init_logger("vllm.simulated_npu.worker")

LOAD_S = float(os.environ.get("LAB_LOAD_S", "0"))
STEP_S = float(os.environ.get("LAB_STEP_S", "0.002"))
FAILS = os.environ.get("LAB_ENGINE_FAIL") == "start"
EMPTY = os.environ.get("LAB_ENGINE_TEXT") == "none"
SENTENCE = " simulated: no model computed this."
# Then the end-of-sequence token, for requests without max_tokens.
LONGEST_ANSWER = 200
KV_CACHE_BYTES = 256 << 20

# vLLM's clean-up calls it on every platform but the CPU's, and torch knows no accelerator here.
torch.accelerator.empty_cache = lambda: None


class SimulatedWorker(WorkerBase):
    """One rank."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        check_ascend_device_type()
        self.prompt_tokens: dict[str, int] = {}
        self.claimed: list[int] = []
        self.words: list[int] = []
        self.end: int | None = None

    def init_device(self) -> None:
        """Claim the NPUs. Raises RuntimeError when the container lacks what is documented, OSError when one is held."""
        self.device = torch.device("cpu")
        if self.local_rank >= torch.npu.device_count():
            raise RuntimeError(f"invalid device ordinal {self.local_rank}: {torch.npu.device_count()} NPUs are here")
        # One for all ranks: the locks are the container's.
        if self.local_rank == 0:
            if not torch.npu.is_available():
                raise RuntimeError("No available Ascend NPU: init_device failed")
            if os.environ.get("LAB_DRIVER") != "none":
                self.claimed = driver.claim(driver.npus(), exclusive=True)
                driver.OWNER_MARK.touch()
        if self.parallel_config.world_size > 1:
            init_distributed_environment(
                self.parallel_config.world_size, self.rank, self.distributed_init_method, self.local_rank, "gloo"
            )
            ensure_model_parallel_initialized(
                self.parallel_config.tensor_parallel_size, self.parallel_config.pipeline_parallel_size
            )

    def load_model(self, *, load_dummy_weights: bool = False) -> None:
        """Wait as long as the knob says; the weights are not read."""
        time.sleep(LOAD_S)
        if FAILS:
            raise RuntimeError("SIMULATED: this image is made to fail while it loads (LAB_ENGINE_FAIL=start)")
        logger.warning("SIMULATED: no weights are loaded, %d NPUs claimed, nothing is computed", len(self.claimed))
        if not self.model_config.skip_tokenizer_init:
            tokenizer = cached_tokenizer_from_config(self.model_config)
            self.words = tokenizer.encode(SENTENCE, add_special_tokens=False)
            self.end = tokenizer.eos_token_id

    def get_supported_tasks(self) -> tuple[str, ...]:
        """Text in, text out."""
        return ("generate",)

    def get_kv_cache_spec(self) -> dict[str, KVCacheSpec]:
        """As a plain transformer of the model's shape has it; the scheduler counts blocks by it."""
        model = self.model_config
        spec = FullAttentionSpec(
            block_size=self.cache_config.block_size,
            num_kv_heads=model.get_num_kv_heads(self.parallel_config),
            head_size=model.get_head_size(),
            dtype=model.dtype,
        )
        layers = range(model.get_num_layers(self.parallel_config))
        return {f"model.layers.{layer}.self_attn.attn": spec for layer in layers}

    def determine_available_memory(self) -> int:
        """Bytes for a KV cache that is never allocated."""
        return KV_CACHE_BYTES

    def update_max_model_len(self, max_model_len: int) -> None:
        """When the engine fits the length to the memory."""
        self.model_config.max_model_len = max_model_len

    def initialize_from_config(self, kv_cache_config: KVCacheConfig) -> None:
        """Nothing is allocated."""

    def compile_or_warm_up_model(self) -> CompilationTimes:
        """Nothing is compiled or captured."""
        return CompilationTimes(0.0, 0.0)

    def execute_model(self, scheduler_output: SchedulerOutput) -> ModelRunnerOutput:
        """One token for each request whose prompt is through."""
        for identity in scheduler_output.finished_req_ids:
            self.prompt_tokens.pop(identity, None)
        computed = {request.req_id: request.num_computed_tokens for request in scheduler_output.scheduled_new_reqs}
        for request in scheduler_output.scheduled_new_reqs:
            self.prompt_tokens[request.req_id] = len(request.prompt_token_ids or [])
        running = scheduler_output.scheduled_cached_reqs
        computed.update(zip(running.req_ids, running.num_computed_tokens, strict=True))
        if not computed:
            return EMPTY_MODEL_RUNNER_OUTPUT
        time.sleep(STEP_S)
        tokens = []
        for identity, before in computed.items():
            position = before + scheduler_output.num_scheduled_tokens[identity] - self.prompt_tokens.get(identity, 0)
            tokens.append([self._token(position)] if position >= 0 else [])
        identities = list(computed)
        return ModelRunnerOutput(
            req_ids=identities,
            req_id_to_index={identity: index for index, identity in enumerate(identities)},
            sampled_token_ids=tokens,
        )

    def _token(self, position: int) -> int:
        if self.end is not None and (EMPTY or position >= LONGEST_ANSWER):
            return self.end
        if not self.words:
            return position % self.vocab_size
        return self.words[position % len(self.words)]

    def sample_tokens(self, grammar_output: Any) -> None:
        """Done in execute_model."""

    def take_draft_token_ids(self) -> None:
        """No speculation."""

    def execute_dummy_batch(self) -> None:
        """Nothing to warm."""

    def reset_encoder_cache(self) -> None:
        """There is none."""

    def profile(self, is_start: bool = True, profile_prefix: str | None = None) -> None:
        """Nothing to profile."""

    def shutdown(self) -> None:
        """Let go of the NPUs."""
        if self.claimed:
            driver.OWNER_MARK.unlink(missing_ok=True)
        for descriptor in self.claimed:
            os.close(descriptor)
        self.claimed = []
