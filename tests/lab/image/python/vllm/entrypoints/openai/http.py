"""The OpenAI-compatible endpoint over the standard library's HTTP server."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
import uuid
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from vllm.entrypoints.llm import words
from vllm.version import __version__

# Seconds per token; a request in flight can be watched when this is long.
STEP_S = float(os.environ.get("LAB_STEP_S", "0.002"))
# LAB_ENGINE_TEXT=none: healthy, but every completion is empty.
EMPTY = os.environ.get("LAB_ENGINE_TEXT") == "none"
DEFAULT_TOKENS = 16


class Endpoint:
    """What all requests share."""

    def __init__(self, names: list[str], root: str, max_model_len: int, api_keys: list[str]) -> None:
        self.names, self.root, self.max_model_len, self.api_keys = names, root, max_model_len, api_keys
        self.healthy = True
        self.running = 0
        self.finished = 0
        self._aborted = threading.Event()
        self._lock = threading.Lock()

    def abort(self) -> None:
        """End what is running."""
        self._aborted.set()

    def generate(self, count: int) -> Any:
        """Tokens one by one, until the count or an abort."""
        with self._lock:
            self.running += 1
        try:
            for token in [] if EMPTY else words(count):
                if self._aborted.wait(STEP_S):
                    return
                yield token
        finally:
            with self._lock:
                self.running -= 1
                self.finished += 1

    @property
    def aborted(self) -> bool:
        """Whether running requests were ended."""
        return self._aborted.is_set()


class Server(ThreadingHTTPServer):
    """Serves on a socket that is bound already."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, listener: socket.socket, endpoint: Endpoint) -> None:
        super().__init__(listener.getsockname()[:2], Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listener
        self.endpoint = endpoint
        self.server_activate()

    def refuse(self) -> None:
        """No new connections; those that are open go on."""
        self.socket.shutdown(socket.SHUT_RDWR)


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    server: Server

    def do_GET(self) -> None:
        endpoint = self.server.endpoint
        path = self.path.partition("?")[0]
        if path in ("/health", "/ping"):
            self._reply(200 if endpoint.healthy else 503, b"", "text/plain")
        elif path == "/version":
            self._json(200, {"version": __version__})
        elif path == "/metrics":
            self._reply(200, _metrics(endpoint).encode(), "text/plain; version=0.0.4; charset=utf-8")
        elif not self._authorised(path):
            self._json(401, {"error": "Unauthorized"})
        elif path == "/v1/models":
            self._json(200, {"object": "list", "data": [_card(endpoint, name) for name in endpoint.names]})
        else:
            self._json(404, {"detail": "Not Found"})

    def do_POST(self) -> None:
        path = self.path.partition("?")[0]
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if not self._authorised(path):
            self._json(401, {"error": "Unauthorized"})
        elif path not in ("/v1/completions", "/v1/chat/completions"):
            self._json(404, {"detail": "Not Found"})
        else:
            try:
                request = json.loads(body)
            except ValueError:
                self._error(400, "BadRequestError", "There was an error parsing the body")
                return
            self._complete(request, path == "/v1/chat/completions")

    def _authorised(self, path: str) -> bool:
        keys = self.server.endpoint.api_keys
        if not keys or not path.startswith("/v1"):
            return True
        scheme, _, key = self.headers.get("Authorization", "").partition(" ")
        return scheme.lower() == "bearer" and key in keys

    def _complete(self, request: dict[str, Any], chat: bool) -> None:
        endpoint = self.server.endpoint
        name = request.get("model") or endpoint.names[0]
        if name not in endpoint.names:
            self._error(404, "NotFoundError", f"The model `{name}` does not exist.", "model")
            return
        if not endpoint.healthy:
            self._error(500, "InternalServerError", "EngineCore encountered an issue.")
            return
        if ("messages" if chat else "prompt") not in request:
            self._error(400, "BadRequestError", f"Field required: {'messages' if chat else 'prompt'}")
            return
        count = request.get("max_completion_tokens") or request.get("max_tokens") or DEFAULT_TOKENS
        kind = "chat.completion" if chat else "text_completion"
        head = {
            "id": f"{'chatcmpl' if chat else 'cmpl'}-{uuid.uuid4().hex}",
            "object": kind,
            "created": int(time.time()),
            "model": name,
        }
        if request.get("stream"):
            self._stream(head, count, chat)
            return
        text = "".join(endpoint.generate(count))
        reason = "abort" if endpoint.aborted else "length"
        content: dict[str, Any] = {"message": {"role": "assistant", "content": text}} if chat else {"text": text}
        usage = {"prompt_tokens": 1, "completion_tokens": count, "total_tokens": count + 1}
        choice = {"index": 0, **content, "logprobs": None, "finish_reason": reason}
        self._json(200, {**head, "choices": [choice], "usage": usage})

    def _stream(self, head: dict[str, Any], count: int, chat: bool) -> None:
        self.close_connection = True
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Connection", "close")
        self.end_headers()
        for token in self.server.endpoint.generate(count):
            content: dict[str, Any] = {"delta": {"content": token}} if chat else {"text": token}
            self._event(json.dumps({**head, "choices": [{"index": 0, **content, "finish_reason": None}]}))
        self._event("[DONE]")

    def _event(self, data: str) -> None:
        self.wfile.write(f"data: {data}\n\n".encode())
        self.wfile.flush()

    def _error(self, code: int, kind: str, message: str, param: str | None = None) -> None:
        self._json(code, {"error": {"message": message, "type": kind, "param": param, "code": code}})

    def _json(self, code: int, value: Any) -> None:
        self._reply(code, json.dumps(value).encode(), "application/json")

    def _reply(self, code: int, body: bytes, kind: str) -> None:
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def version_string(self) -> str:
        return "uvicorn"

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing but the access log."""

    def log_request(self, code: Any = "-", size: Any = "-") -> None:
        status = HTTPStatus(int(code))
        client = ":".join(str(part) for part in self.client_address[:2])
        print(f'INFO:     {client} - "{self.requestline}" {status.value} {status.phrase}', flush=True)


def _card(endpoint: Endpoint, name: str) -> dict[str, Any]:
    return {
        "id": name,
        "object": "model",
        "created": int(time.time()),
        "owned_by": "vllm",
        "root": endpoint.root,
        "parent": None,
        "max_model_len": endpoint.max_model_len,
    }


def _metrics(endpoint: Endpoint) -> str:
    label = f'{{engine="0",model_name="{endpoint.names[0]}"}}'
    gauges = {
        "vllm:num_requests_running": endpoint.running,
        "vllm:num_requests_waiting": 0,
        "vllm:kv_cache_usage_perc": 0.0,
    }
    lines = []
    for name, value in gauges.items():
        lines += [f"# HELP {name} Imitation of vLLM's gauge.", f"# TYPE {name} gauge", f"{name}{label} {value}"]
    total = "vllm:request_success_total"
    lines += [f"# HELP {total} Imitation of vLLM's counter.", f"# TYPE {total} counter"]
    lines.append(f'{total}{label[:-1]},finished_reason="length"}} {endpoint.finished}')
    return "\n".join(lines) + "\n"
