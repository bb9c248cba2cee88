"""The server's life: bind, load, serve, stop. It reacts to signals as vLLM 0.23.0 was observed to."""

from __future__ import annotations

import json
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from typing import Any

import torch
from vllm_ascend.utils import check_ascend_device_type

from vllm import config
from vllm.entrypoints.openai.http import Endpoint, Server
from vllm.logger import IMITATION, log, name_process, uvicorn
from vllm.version import __version__

BANNER = (
    "",
    "       █     █     █▄   ▄█",
    " ▄▄ ▄█ █     █     █ ▀▄▀ █  version {version}",
    "  █▄█▀ █     █     █     █  model   {model}",
    "   ▀▀  ▀▀▀▀▀ ▀▀▀▀▀ ▀     ▀",
    "",
)
# After EngineCore's death the server answers /health with 503 for a while, then ends with code 0.
DYING_S = 2.0
INTERRUPTED = 128 + signal.SIGINT


def run_server(arguments: Any) -> int:
    """Serve until stopped. The result is the exit code; what fails before raises, and ends with code 1."""
    name_process("APIServer")
    model = arguments.model_tag or arguments.model or "Qwen/Qwen3-0.6B"
    for line in BANNER:
        log("INFO", "api_utils.py:339", line.format(version=__version__, model=model))
    log("INFO", "api_utils.py:273", f"non-default args: {_non_default(arguments)}")
    log("WARNING", "imitation.py:1", IMITATION)
    if os.environ.get("VLLM_USE_MODELSCOPE"):
        log("INFO", "imitation.py:1", f"VLLM_USE_MODELSCOPE={os.environ['VLLM_USE_MODELSCOPE']}")
    listener = _bind(arguments.host or "", arguments.port)
    length = config.max_model_len(model, arguments.max_model_len)
    check_ascend_device_type()
    config.check(arguments, torch.npu.device_count())
    log("INFO", "model.py:611", "Resolved architecture: Qwen3ForCausalLM")
    log("INFO", "model.py:1745", f"Using max model len {length}")
    names = arguments.served_model_name or [model]
    keys = [*(arguments.api_key or []), *filter(None, [os.environ.get("VLLM_API_KEY")])]
    endpoint = Endpoint(names=names, root=model, max_model_len=length, api_keys=keys)
    return _Life(arguments, listener, endpoint).run(model, length)


def _non_default(arguments: Any) -> dict[str, Any]:
    hidden = ("subparser", "pipeline_parallel_size", "shutdown_timeout")
    values = {name: value for name, value in vars(arguments).items() if value not in (None, {}, "auto")}
    if values.get("api_key"):
        values["api_key"] = ["***"]
    return {name: value for name, value in values.items() if name not in hidden}


def _bind(host: str, port: int) -> socket.socket:
    """Bind before any model work, as the real one: another vLLM on the port is no hindrance (SO_REUSEPORT)."""
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    listener.bind((host, port))
    return listener


class _Life:
    """One server with its engine process; events come from signals and from the threads that watch the engine."""

    def __init__(self, arguments: Any, listener: socket.socket, endpoint: Endpoint) -> None:
        self.arguments, self.listener, self.endpoint = arguments, listener, endpoint
        self.events: queue.SimpleQueue[str] = queue.SimpleQueue()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda received, _frame: self.events.put(signal.Signals(received).name))

    def run(self, model: str, length: int) -> int:
        """Load, serve, stop."""
        reading, writing = os.pipe()
        request = {
            "model": model,
            "dtype": self.arguments.dtype,
            "max_model_len": length,
            "tensor_parallel_size": self.arguments.tensor_parallel_size,
        }
        self.core = subprocess.Popen(
            [sys.executable, "-m", "vllm.v1.engine.core", str(writing), json.dumps(request)], pass_fds=[writing]
        )
        os.close(writing)
        threading.Thread(target=self._watch_start, args=(reading,), daemon=True).start()
        self._wait_loaded()
        return self._serve()

    def _watch_start(self, reading: int) -> None:
        self.events.put("ready" if os.read(reading, 5) == b"ready" else "failed")
        self.core.wait()
        self.events.put("dead")

    def _wait_loaded(self) -> None:
        """While the engine loads, one SIGTERM is swallowed and a SIGINT acts after the load."""
        terminated = 0
        interrupted = False
        while True:
            event = self.events.get()
            if event == "SIGTERM":
                terminated += 1
                if terminated > 1:
                    self._interrupt("terminated")
            elif event == "SIGINT":
                interrupted = True
            elif event == "ready":
                break
            elif event == "failed":
                self.core.wait()
                raise RuntimeError(
                    "Engine core initialization failed. See root cause above. Failed core proc(s): {'EngineCore': 1}"
                )
        if interrupted:
            self._interrupt("")

    def _interrupt(self, text: str) -> None:
        """End as the interrupted start does: a traceback, killed by SIGINT."""
        self.core.kill()
        self.core.wait()
        print(f"Traceback (most recent call last):\nKeyboardInterrupt{': ' if text else ''}{text}", file=sys.stderr)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
        # A process 1 without a handler is not killed by its own signal.
        os._exit(INTERRUPTED)

    def _serve(self) -> int:
        host, port = self.arguments.host or "0.0.0.0", self.arguments.port
        self.server = Server(self.listener, self.endpoint)
        log("INFO", "api_server.py:579", "Supported tasks: ['generate']")
        log("INFO", "api_server.py:583", f"Starting vLLM server on http://{host}:{port}")
        uvicorn(f"Started server process [{os.getpid()}]")
        uvicorn("Waiting for application startup.")
        serving = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        serving.start()
        uvicorn("Application startup complete.")
        event = self.events.get()
        if event == "dead":
            self._die()
        else:
            self._stop()
        self.server.shutdown()
        self.server.server_close()
        uvicorn("Waiting for application shutdown.")
        uvicorn("Application shutdown complete.")
        uvicorn(f"Finished server process [{os.getpid()}]")
        return 0

    def _stop(self) -> None:
        timeout = self.arguments.shutdown_timeout
        mode = "drain" if timeout else "abort"
        log("INFO", "launcher.py:100", "[shutdown] API server: shutdown triggered")
        log("INFO", "launcher.py:116", f"[shutdown] API server: stopping engine client mode={mode} timeout={timeout}s")
        if timeout:
            self.server.refuse()
            deadline = time.monotonic() + timeout
            while self.endpoint.running and time.monotonic() < deadline:
                time.sleep(0.05)
        self.endpoint.abort()
        log("INFO", "core_client.py:652", f"[shutdown] MPClient: start timeout={timeout}s")
        log("INFO", "core_client.py:654", "[shutdown] MPClient: stopping engine manager")
        log("WARNING", "utils.py:607", "[shutdown] Process manager: force killing remaining processes count=1")
        self.core.terminate()
        try:
            self.core.wait(timeout=2)
        except subprocess.TimeoutExpired:
            self.core.kill()
            self.core.wait()
        log("INFO", "core_client.py:656", "[shutdown] MPClient: engine manager stopped")
        log("INFO", "core_client.py:659", "[shutdown] MPClient: complete")
        log("INFO", "launcher.py:125", "[shutdown] API server: engine client stopped")
        log("INFO", "launcher.py:128", "[shutdown] API server: signalling HTTP server shutdown")
        log("INFO", "launcher.py:149", "[shutdown] API server: shutting down FastAPI HTTP server")
        uvicorn("Shutting down")

    def _die(self) -> None:
        self.endpoint.healthy = False
        self.endpoint.abort()
        log(
            "WARNING",
            "core_client.py:699",
            "[shutdown] MPClient: engine core exited unexpectedly; starting cleanup",
        )
        log("ERROR", "async_llm.py:704", "AsyncLLM output_handler failed.")
        log(
            "ERROR",
            "async_llm.py:704",
            "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. "
            "See stack trace (above) for the root cause.",
        )
        time.sleep(DYING_S)
        uvicorn("Shutting down")
