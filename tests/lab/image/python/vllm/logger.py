"""vLLM's log lines: INFO and WARNING on standard output, prefixed with the process as the real ones."""

from __future__ import annotations

import io
import os
import sys
import threading
import time
from typing import TextIO

IMITATION = "imitation of vLLM for the simulated rack: no model is loaded and nothing is computed"


class _Prefixed(io.TextIOBase):
    """Puts a prefix before each line and writes whole lines only."""

    def __init__(self, stream: TextIO, prefix: str) -> None:
        self._stream, self._prefix, self._rest = stream, prefix, ""
        self._lock = threading.RLock()

    def write(self, text: str) -> int:
        with self._lock:
            *lines, self._rest = (self._rest + text).split("\n")
            if lines:
                self._stream.write("".join(f"{self._prefix}{line}\n" for line in lines))
                self._stream.flush()
        return len(text)

    def flush(self) -> None:
        self._stream.flush()


def name_process(name: str) -> None:
    """From here on every line of this process says which one it is."""
    prefix = f"({name} pid={os.getpid()}) "
    sys.stdout = _Prefixed(sys.stdout, prefix)  # type: ignore[assignment]  # because print() only needs write()
    sys.stderr = _Prefixed(sys.stderr, prefix)  # type: ignore[assignment]  # because print() only needs write()


def log(level: str, place: str, text: str) -> None:
    """One line in vLLM's format."""
    print(f"{level} {time.strftime('%m-%d %H:%M:%S')} [{place}] {text}", flush=True)


def uvicorn(text: str) -> None:
    """One line of the HTTP server."""
    print(f"INFO:     {text}", file=sys.stderr, flush=True)
