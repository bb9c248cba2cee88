"""A real HTTP server that answers as vLLM's OpenAI-compatible one, and misbehaves as a test tells it to."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

MODEL = "Qwen/Qwen3-0.6B"
LOCAL = "127.0.0.1"


class Behaviour:
    """What the server under test does; the tests change it."""

    def __init__(self):
        self.health = 200
        self.models = [MODEL]
        self.models_body: object = None
        self.text = " city"
        self.usage: dict | None = None
        self.completion_status = 200
        self.completion_body: object = None
        self.key: str | None = None
        self.slow: dict[str, float] = {}
        self.drip: tuple[str, ...] = ()
        self.tokens = 0
        self.tokens_per_reading = 0
        self.requests: list[tuple] = []


class Server(ThreadingHTTPServer):
    daemon_threads = True
    behaviour: Behaviour
    port: int

    def handle_error(self, request, client_address):
        """A client that gave up is what some of these tests are about."""


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self):
        self.answer(None)

    def do_POST(self):
        self.answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

    def answer(self, body):
        does = self.server.behaviour
        does.requests.append((self.command, self.path, body, dict(self.headers)))
        time.sleep(does.slow.get(self.path, 0))
        if self.path == "/health":
            return self.send(does.health, "")
        if self.path == "/metrics":
            does.tokens += does.tokens_per_reading
            return self.send(
                200,
                "# TYPE vllm:generation_tokens_total counter\n"
                'vllm:prompt_tokens_total{engine="0",model_name="m"} 12.0\n'
                f'vllm:generation_tokens_total{{engine="0",model_name="m"}} {does.tokens}.0\n',
            )
        if does.key and self.headers.get("Authorization") != "Bearer " + does.key:
            return self.send(401, {"error": "Unauthorized"})
        if self.path == "/v1/models":
            listing = {"object": "list", "data": [{"id": one} for one in does.models]}
            return self.send(200, listing if does.models_body is None else does.models_body)
        answer: dict = {"choices": [{"index": 0, "text": does.text, "finish_reason": "length"}]}
        if does.usage is not None:
            answer["usage"] = does.usage
        return self.send(does.completion_status, answer if does.completion_body is None else does.completion_body)

    def send(self, status, body):
        data = (body if isinstance(body, str) else json.dumps(body)).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.path in self.server.behaviour.drip:
            for byte in data:
                self.wfile.write(bytes([byte]))
                self.wfile.flush()
                time.sleep(0.3)
        else:
            self.wfile.write(data)

    def log_message(self, format, *args):
        """Quiet."""


@contextlib.contextmanager
def serving():
    """A server, its behaviour and its port, for a while."""
    server = Server((LOCAL, 0), Handler)
    server.behaviour = Behaviour()
    server.port = server.server_address[1]
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
