"""What the tests of the real vLLM share: its image, its endpoint, the state of its unit.

vLLM's front end, engine core and scheduler are real there, the worker is simulated (tests/lab/real/README.md).
"""

from __future__ import annotations

import json
import threading
import time
import urllib.request
from typing import Any

from ansible_collections.vllm_ascend.fleet.tests.integration.rack import Run, on, site, variables
from ansible_collections.vllm_ascend.fleet.tests.lab.settings import rack

IMAGE = "quay.io/ascend/vllm-ascend:v0.23.0{}-lab-real"
MODEL = "Qwen/Qwen3-0.6B"
# Beside other tests two processors start an engine in 20 to 40 seconds.
READY_S = 150
UNIT = "vllm-ascend"
_opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class Engine:
    """The default instance of a host, with the real vLLM in it."""

    def __init__(self, host: str, suffix: str = "", **settings: Any) -> None:
        self.host = host
        self.settings = {"vllm_image": IMAGE.format(suffix), "vllm_start_timeout": READY_S, **settings}

    def site(self, *arguments: str, **settings: Any) -> Run:
        """Run site.yml on the host with the real image."""
        return site("--limit", self.host, *arguments, *variables(**{**self.settings, **settings}))

    def ask(self, path: str, body: dict[str, Any] | None = None, limit_s: float = 30) -> Any:
        """An answer of the endpoint that the host publishes; JSON where it is some."""
        url = f"http://{rack().host(self.host).address}:8000{path}"
        data = None if body is None else json.dumps({"model": MODEL, **body}).encode()
        request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
        with _opener.open(request, timeout=limit_s) as reply:
            text = reply.read().decode()
        return json.loads(text) if text.startswith(("{", "[")) else text

    def complete(self) -> str:
        """The text of a completion."""
        return self.ask("/v1/completions", {"prompt": "Beijing is a", "max_tokens": 5, "temperature": 0})["choices"][0][
            "text"
        ]

    def stream(self) -> Stream:
        """A completion as a stream, with its first piece received."""
        return Stream(rack().host(self.host).address)

    def show(self, *properties: str) -> list[str]:
        """Properties of the unit, as systemctl shows them."""
        argv = ["systemctl", "show", UNIT, *(f"--property={name}" for name in properties)]
        found = dict(line.split("=", 1) for line in on(self.host, *argv).splitlines())
        return [found[name] for name in properties]

    def journal(self, cursor: str | None = None) -> str:
        """What the unit printed, from a cursor on."""
        after = ["--after-cursor", f"'{cursor}'"] if cursor else []
        return on(self.host, "journalctl", "--unit", UNIT, "--no-pager", "--output", "cat", *after)

    def cursor(self) -> str:
        """Where the unit's journal ends now."""
        said = on(self.host, "journalctl", "--unit", UNIT, "--lines", "0", "--show-cursor")
        return said.rsplit("-- cursor: ", 1)[1].strip()

    def container(self) -> str:
        """The id of the instance's container; empty without one."""
        return on(self.host, "docker", "ps", "--all", "--quiet", "--no-trunc", "--filter", "name=^vllm-ascend$").strip()

    def core(self) -> str:
        """The process id of the engine core on the host."""
        return on(self.host, "pgrep", "--full", "VLLM::EngineCore").split()[0]

    def wait(self, wanted: str = "active", limit_s: float = READY_S) -> None:
        """Wait until the unit is in a state. AssertionError when it is not in time."""
        deadline = time.monotonic() + limit_s
        while time.monotonic() < deadline:
            if self.show("ActiveState") == [wanted]:
                return
            time.sleep(1)
        raise AssertionError(f"{UNIT} of {self.host} is not {wanted}:\n{self.journal()[-3000:]}")

    def reboot(self) -> None:
        """Restart the host from within, and wait until it has come up again."""
        started = on(self.host, "systemctl", "show", "--property=UserspaceTimestampMonotonic")
        on(self.host, "systemctl", "reboot", check=False)
        deadline = time.monotonic() + READY_S
        while time.monotonic() < deadline:
            now = on(self.host, "systemctl", "show", "--property=UserspaceTimestampMonotonic", check=False)
            if now and now != started:
                return
            time.sleep(1)
        raise AssertionError(f"{self.host} did not come back")

    def wait_for_line(self, text: str, cursor: str) -> None:
        """Wait until the unit has printed a text after a cursor."""
        deadline = time.monotonic() + READY_S
        while time.monotonic() < deadline:
            if text in self.journal(cursor):
                return
            time.sleep(0.5)
        raise AssertionError(f"{UNIT} of {self.host} did not print {text!r}:\n{self.journal(cursor)[-3000:]}")


class Stream:
    """A client that reads a long completion piece by piece."""

    def __init__(self, address: str) -> None:
        body = {"model": MODEL, "prompt": "Once", "max_tokens": 190, "temperature": 0, "stream": True}
        request = urllib.request.Request(
            f"http://{address}:8000/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        self.reply = _opener.open(request, timeout=120)
        self.lines: list[str] = [self.reply.readline().decode()]
        self.failure: Exception | None = None
        self.thread = threading.Thread(target=self._read, daemon=True)
        self.thread.start()

    def _read(self) -> None:
        try:
            for line in self.reply:
                if line.strip():
                    self.lines.append(line.decode())
        except OSError as failure:
            self.failure = failure

    def ended(self, limit_s: float) -> bool:
        """Whether the server ended the stream, well or not, within a time."""
        self.thread.join(limit_s)
        return not self.thread.is_alive()

    @property
    def complete(self) -> bool:
        """Whether the whole answer came."""
        return any('"finish_reason":"length"' in line.replace(" ", "") for line in self.lines)
