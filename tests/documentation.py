"""The blocks of README and docs, with what the comment above each says of it.

A comment directly above a block of commands says where the tests run it, or why they do not:
  <!-- run: project -->      in a project folder, as the README makes it
  <!-- run: checkout -->     in a checkout
  <!-- run: host -->         in the shell of a host
  <!-- not run: a reason -->
<!-- file: NAME --> above a block makes it a file of the project folder. Other blocks of YAML are settings.
"""

from __future__ import annotations

import pathlib
import re
from typing import NamedTuple

ROOT = pathlib.Path(__file__).resolve().parents[1]
DOCUMENTS = ("README.md", "docs/operations.md", "docs/troubleshooting.md", "docs/hardware.md", "docs/testing.md")
DOCUMENTS += ("docs/architecture.md", "tests/lab/README.md", "tests/lab/real/README.md", "tests/gallery/README.md")
PLACES = ("project", "checkout", "host")
COMMANDS = ("shell", "bash", "sh", "console")
_BLOCK = re.compile(r"(?:^<!-- ([^\n]*?) -->\n)?^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    """A fenced block: its document, the line of its fence, its language, the comment above it, its text."""

    document: str
    line: int
    language: str
    comment: str | None
    text: str

    @property
    def where(self) -> str:
        """For messages."""
        return f"{self.document}:{self.line}"

    @property
    def place(self) -> str | None:
        """Where it is run: project, checkout or host."""
        kind, _, value = (self.comment or "").partition(": ")
        return value if kind == "run" else None

    @property
    def file(self) -> str | None:
        """The name of the file of the project folder that it is."""
        kind, _, value = (self.comment or "").partition(": ")
        return value if kind == "file" else None

    @property
    def reason(self) -> str | None:
        """Why it is not run."""
        kind, _, value = (self.comment or "").partition(": ")
        return value if kind == "not run" else None


def read(text: str, document: str) -> list[Block]:
    """The blocks of a text, in order."""
    return [
        Block(document, text.count("\n", 0, match.start(2)) + 1, match[2], match[1], match[3])
        for match in _BLOCK.finditer(text)
    ]


def blocks() -> list[Block]:
    """The blocks of all documents that there are."""
    found = []
    for name in DOCUMENTS:
        found += read((ROOT / name).read_text(encoding="utf-8"), name)
    return found


def commands(text: str) -> list[str]:
    """The commands of a block of a shell, one a line with its continuations joined; comments go."""
    joined = re.sub(r"\\\n\s*", "", text)
    lines = [re.sub(r"(?:^|\s+)# .*$", "", line).strip() for line in joined.splitlines()]
    return [line for line in lines if line and not line.startswith("#")]
