"""The images with the real vLLM: the imitation's base, vLLM's packages, and the plugin with what a variant has.

The packages' layer is large (1.2 GB, 373 MB compressed) and is kept in .lab/; the others are made anew each time.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import pathlib
import subprocess
import zlib
from typing import Any

import docker

from .. import images, tree
from ..settings import LabError, say
from . import packages, plugin

DESCRIBED = "real vLLM 0.23.0, simulated worker: nothing is computed"
CHUNK = 1 << 20
# Programs that come with the packages, by the module of each one's main().
PROGRAMS = {"hf": "huggingface_hub.cli.hf"}


def tags(client: docker.DockerClient, host_image: str) -> list[images.Tag]:
    """The tags with the real vLLM, of the variants that images.yml names. Raises LabError."""
    data = images.data()
    real = data["real"]
    common = images.base(client, host_image)
    heavy = packages_layer()
    found = []
    for suffix in real["variants"]:
        variant, system = data["variants"][suffix], data["systems"][""]
        light = images.layer(tree.pack(files(variant, system)))
        found.append(
            images.Tag(
                f"{data['release']}{suffix}{real['suffix']}",
                {
                    arch: images.image(arch, variant, (common, heavy, light), real["environment"], DESCRIBED)
                    for arch in real["architectures"]
                },
            )
        )
    return found


def files(variant: dict[str, Any], system: dict[str, Any]) -> tree.Tree:
    """What lies above the packages, for a variant and a system of images.yml."""
    found = images.own_files(variant, system)
    for name, entry in plugin.files(variant["device_type"]).items():
        found[f"{images.SITE_PACKAGES}/{name}"] = entry
    found |= images.folder(images.IMAGE / "common", "")
    for name, module in PROGRAMS.items():
        text = f"#!/usr/bin/python3\nimport sys\n\nfrom {module} import main\n\nif __name__ == '__main__':\n"
        found[f"/usr/local/bin/{name}"] = tree.Entry(text + "    sys.exit(main())\n", 0o755)
    return found


def packages_layer() -> images.Layer:
    """vLLM's packages as a layer, packed when it is not kept yet. Raises LabError."""
    folder = packages.ensure()
    kept = images.ARCHIVES / f"real-{folder.name}.tar.gz"
    digests = kept.with_suffix(".json")
    if not digests.exists():
        say("packing vLLM's packages into a layer (about 20 seconds)")
        images.ARCHIVES.mkdir(parents=True, exist_ok=True)
        for old in images.ARCHIVES.glob("real-*"):
            old.unlink()
        values = _pack(packages.site_packages(folder), kept)
        digests.write_text(json.dumps(values), encoding="ascii")
    values = json.loads(digests.read_text(encoding="ascii"))
    with kept.open("rb") as file:
        # Mapped, not read: it is only needed when a registry lacks it.
        content = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    return images.Layer(content, values["digest"], values["diff_id"])  # type: ignore[arg-type]  # because JSON values are untyped


def _pack(folder: pathlib.Path, target: pathlib.Path) -> dict[str, str]:
    """Write the folder as a compressed archive, the same bytes for the same files; the digests of a layer."""
    argv = ["tar", "--create", "--format=gnu", "--sort=name", "--mtime=@0", "--owner=0", "--group=0", "--numeric-owner"]
    argv += ["--exclude=./_virtualenv.*", "--exclude=./__pycache__"]
    # Names and hard links, but not what symbolic links lead to.
    argv += [f"--transform=flags=rh;s,^\\.,{images.SITE_PACKAGES[1:]},"]
    whole, compressed = hashlib.sha256(), hashlib.sha256()
    compress = zlib.compressobj(1, wbits=31)
    with subprocess.Popen([*argv, "-C", str(folder), "."], stdout=subprocess.PIPE) as process, target.open("wb") as out:
        assert process.stdout is not None
        while chunk := process.stdout.read(CHUNK):
            whole.update(chunk)
            piece = compress.compress(chunk)
            compressed.update(piece)
            out.write(piece)
        piece = compress.flush()
        compressed.update(piece)
        out.write(piece)
    if process.returncode:
        raise LabError(f"tar of {folder} failed with {process.returncode}")
    return {"digest": f"sha256:{compressed.hexdigest()}", "diff_id": f"sha256:{whole.hexdigest()}"}
