"""A model cache with the plan's default model in it, as a hub's client leaves it: for hosts that reach no hub."""

from __future__ import annotations

import hashlib
import io
import pathlib
import shutil
import subprocess
import tarfile

from ..settings import LabError
from . import packages

MODEL_MAKER = pathlib.Path(__file__).resolve().parent / "model.py"
MODEL = "Qwen/Qwen3-0.6B"
# Stands for the commit of the hub's repository.
REVISION = hashlib.sha1(b"made on the simulated rack").hexdigest()
LIMIT_S = 120


def ensure() -> pathlib.Path:
    """The folder that stands for a host's /root/.cache, made when it is not there yet. Raises LabError."""
    own = MODEL_MAKER.read_bytes() + pathlib.Path(__file__).read_bytes()
    digest = hashlib.sha256(own).hexdigest()[:12]
    folder = packages.FOLDER / f"cache-{digest}"
    python = packages.python(packages.ensure())
    with packages.alone():
        if not folder.exists():
            for old in packages.FOLDER.glob("cache-*"):
                shutil.rmtree(old)
            _fill(folder.with_suffix(".part"), python)
            folder.with_suffix(".part").rename(folder)
    return folder


def model_folder(folder: pathlib.Path) -> pathlib.Path:
    """Where the model's files lie in such a cache: also a model of its own, by path."""
    return _repository(folder) / "snapshots" / REVISION


def archive() -> bytes:
    """The same as a tar archive: for put_archive into a host's /root/.cache. Raises LabError."""

    def owned_by_root(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = "root"
        return entry

    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as target:
        target.add(ensure(), ".", filter=owned_by_root)
    return buffer.getvalue()


def _repository(folder: pathlib.Path) -> pathlib.Path:
    return folder / "huggingface" / "hub" / f"models--{MODEL.replace('/', '--')}"


def _fill(folder: pathlib.Path, python: pathlib.Path) -> None:
    (_repository(folder) / "refs").mkdir(parents=True)
    (_repository(folder) / "refs" / "main").write_text(REVISION, encoding="ascii")
    argv = [str(python), str(MODEL_MAKER), str(model_folder(folder))]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    if done.returncode:
        raise LabError(f"the model cannot be made: {done.stderr[-2000:]}")
    blobs = _repository(folder) / "blobs"
    blobs.mkdir()
    for path in sorted(model_folder(folder).iterdir()):
        name = _blob_name(path)
        path.rename(blobs / name)
        path.symlink_to(f"../../blobs/{name}")


def _blob_name(path: pathlib.Path) -> str:
    """As the hub names contents: large files by their sha256, others as git does."""
    content = path.read_bytes()
    if path.suffix == ".safetensors":
        return hashlib.sha256(content).hexdigest()
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
