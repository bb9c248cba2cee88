"""What lies beside vLLM's packages: the platform plugin and torch_npu, with the distributions that announce them."""

from __future__ import annotations

import hashlib
import pathlib
import shutil

from .. import tree
from ..settings import HERE as LAB
from . import packages, sources

PYTHON = pathlib.Path(__file__).resolve().parent / "python"
IMITATION = LAB / "image" / "python"
# The imitation's: what decides about devices and mounts is the same in both kinds of image.
SHARED = {
    "torch_npu/_simulated_driver.py": IMITATION / "torch" / "_simulated_driver.py",
    "vllm_ascend/_device_type.py": IMITATION / "vllm_ascend" / "utils.py",
}
# The versions that the official images have; the entry points by group.
DISTRIBUTIONS = {
    "vllm_ascend": (sources.RELEASE, "[vllm.platform_plugins]\nascend = vllm_ascend:register\n"),
    "torch_npu": ("2.10.0.post4", "[torch.backends]\ntorch_npu = torch_npu:_autoload\n"),
}


def files(device_type: str) -> tree.Tree:
    """The files by path relative to a folder of Python packages, for an image of that device type (A2, _310P, …)."""
    found = {
        str(path.relative_to(PYTHON)): path.read_text(encoding="utf-8")
        for path in sorted(PYTHON.rglob("*.py"))
        if "__pycache__" not in path.parts
    }
    found |= {name: path.read_text(encoding="utf-8") for name, path in SHARED.items()}
    found |= {f"vllm_ascend/{name}": text for name, text in sources.ensure().items()}
    found["vllm_ascend/_build_info.py"] = f'__device_type__ = "{device_type}"\n'
    for name, (version, entry_points) in DISTRIBUTIONS.items():
        info = f"{name}-{version}.dist-info"
        found[f"{info}/METADATA"] = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        found[f"{info}/entry_points.txt"] = entry_points
    return {name: tree.Entry(text) for name, text in found.items()}


def folder(device_type: str) -> pathlib.Path:
    """A folder for PYTHONPATH with these files, written when it is not there yet."""
    wanted = files(device_type)
    digest = hashlib.sha256(repr(sorted(wanted.items())).encode()).hexdigest()[:12]
    target = packages.FOLDER / f"plugin-{device_type}-{digest}"
    with packages.alone():
        if not target.exists():
            for old in packages.FOLDER.glob(f"plugin-{device_type}-*"):
                shutil.rmtree(old)
            tree.write(wanted, target.with_suffix(".part"))
            target.with_suffix(".part").rename(target)
    return target
