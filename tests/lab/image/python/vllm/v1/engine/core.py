"""The child process that stands for EngineCore: claims the NPUs, loads for a while, then waits to be stopped."""

from __future__ import annotations

import json
import os
import signal
import sys
import time

import torch
from torch import _simulated_driver as driver

from vllm import platforms
from vllm.logger import log, name_process
from vllm.version import __version__

# Seconds of loading; what LAB_ENGINE_FAIL=start waits before it fails is the same.
LOAD_S = float(os.environ.get("LAB_LOAD_S", "2"))


def main() -> None:
    """argv: the descriptor on which to say that the engine is ready, and the arguments as JSON."""
    ready, arguments = int(sys.argv[1]), json.loads(sys.argv[2])
    with open("/proc/self/comm", "w", encoding="ascii") as name:
        name.write("VLLM::EngineCor")
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    platforms.resolve()
    name_process("EngineCore")
    log(
        "INFO",
        "core.py:113",
        f"Initializing a V1 LLM engine (v{__version__}) with config: model='{arguments['model']}', "
        f"dtype={arguments['dtype']}, max_seq_len={arguments['max_model_len']}, "
        f"tensor_parallel_size={arguments['tensor_parallel_size']}",
    )
    if not torch.npu.is_available():
        raise RuntimeError("No available Ascend NPU: init_device failed")
    claimed = driver.claim(driver.npus(), exclusive=True)
    driver.OWNER_MARK.touch()
    time.sleep(LOAD_S)
    if os.environ.get("LAB_ENGINE_FAIL") == "start":
        raise RuntimeError("imitation: this image is made to fail in init_device (LAB_ENGINE_FAIL=start)")
    log("INFO", "worker.py:17", f"imitation: no weights are loaded; {len(claimed)} NPUs claimed")
    log("INFO", "kv_cache_utils.py:1744", "GPU KV cache size: 524,288 tokens")
    log("INFO", "core.py:313", f"init engine (profile, create kv cache, warmup model) took {LOAD_S:.2f} s")
    signal.signal(signal.SIGTERM, _stop)
    os.write(ready, b"ready")
    os.close(ready)
    while True:
        signal.pause()


def _stop(_number: int, _frame: object) -> None:
    log("INFO", "core.py:1178", "[shutdown] EngineCore: trigger received signal=SIGTERM")
    log("INFO", "core.py:1297", "[shutdown] EngineCore: start mode=abort timeout=0s")
    log("INFO", "core.py:1328", "[shutdown] EngineCore: request processing complete; starting resource teardown")
    log("INFO", "core.py:1191", "[shutdown] EngineCore: exiting busy loop")
    driver.OWNER_MARK.unlink(missing_ok=True)
    os._exit(0)


if __name__ == "__main__":
    main()
