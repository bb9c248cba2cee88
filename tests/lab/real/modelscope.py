"""ModelScope's client, which is in no image of the rack: a test adds it to one, as an operator would."""

from __future__ import annotations

import pathlib
import subprocess
import sys
import tempfile

from ..settings import LabError
from . import packages

# The newest within the range that vLLM Ascend names. What it needs is in the real vLLM's image.
VERSION = "1.37.1"
SHA256 = "7f7af2dd37339188cbd3c18a858b1297b8a75222b9a0fbf176c7df8189cac39a"
LIMIT_S = 300


def wheel() -> pathlib.Path:
    """The wheel's file, fetched from the package registry once. Raises LabError."""
    path = packages.FOLDER / f"modelscope-{VERSION}-py3-none-any.whl"
    with packages.alone():
        if not path.exists():
            _fetch(path)
    return path


def _fetch(path: pathlib.Path) -> None:
    argv = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes", "--dest"]
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        wanted = pathlib.Path(folder) / "wanted.txt"
        wanted.write_text(f"modelscope=={VERSION} --hash=sha256:{SHA256}\n", encoding="ascii")
        argv += [folder, "--requirement", str(wanted)]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=LIMIT_S, check=False)
        if done.returncode:
            raise LabError(f"modelscope {VERSION} cannot be fetched: {done.stderr[-2000:]}")
        (pathlib.Path(folder) / path.name).rename(path)
