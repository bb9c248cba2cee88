"""The imitated vllm-ascend images, put together layer by layer: no build, one shared base, any architecture label.

An image is three layers (base carved out of the host image, the imitation's Python packages, what the variant has of
its own) and a configuration. It goes to the rack's registries (registry.py), or into a `docker load` archive.
"""

from __future__ import annotations

import functools
import gzip
import hashlib
import io
import json
import pathlib
import tarfile
import zlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import docker
import yaml

from . import tree
from .settings import HERE, LABEL, STATE, LabError, say

IMAGE = HERE / "image"
ARCHIVES = STATE / "images"
SITE_PACKAGES = "/usr/lib/python3/dist-packages"
CREATED = "2026-01-01T00:00:00Z"
CARVE_LIMIT_S = 120
IMITATION = "imitation of vllm-ascend: no model, no NPU"


class Layer(NamedTuple):
    """A layer: its compressed bytes, their digest, and the digest of the uncompressed archive."""

    data: bytes
    digest: str
    diff_id: str

    @classmethod
    def of(cls, compressed: bytes) -> Layer:
        """The layer of an archive compressed by gzip."""
        return cls(compressed, digest(compressed), digest(zlib.decompress(compressed, wbits=31)))


class Image(NamedTuple):
    """An image for one architecture."""

    config: bytes
    layers: tuple[Layer, ...]


class Tag(NamedTuple):
    """One tag: its image for each architecture."""

    name: str
    images: dict[str, Image]


def digest(data: bytes) -> str:
    """sha256:<hex>."""
    return "sha256:" + hashlib.sha256(data).hexdigest()


@functools.cache
def data() -> dict[str, Any]:
    """images.yml, read once."""
    return yaml.safe_load((HERE / "images.yml").read_text(encoding="utf-8"))


def tags(client: docker.DockerClient, host_image: str) -> list[Tag]:
    """All tags of the rack."""
    common = base(client, host_image)
    packages = layer(tree.pack(_packages()))
    return [
        Tag(
            name,
            {
                arch: image(arch, variant, (common, packages, own), faults, IMITATION)
                for arch in data()["architectures"]
            },
        )
        for name, variant, own, faults in _variants()
    ]


def tag_names() -> list[str]:
    """Names of all tags."""
    return [name for name, _variant, _own, _faults in _variants()]


def _variants() -> Iterator[tuple[str, dict[str, Any], Layer, dict[str, str]]]:
    for suffix, variant in data()["variants"].items():
        for os_suffix, system in data()["systems"].items():
            own = layer(tree.pack(own_files(variant, system)))
            faults = {"": {}, **data()["faults"]} if not os_suffix else {"": {}}
            for fault, environment in faults.items():
                yield f"{data()['release']}{suffix}{os_suffix}{fault}", variant, own, environment


def image(
    arch: str, variant: dict[str, Any], layers: tuple[Layer, ...], added: dict[str, str], described: str
) -> Image:
    """The image of a variant (an entry of images.yml) from its layers, with more environment and a description."""
    kind = data()["kinds"][variant["kind"]]
    environment = {**data()["environment"], **kind["environment"], "SOC_VERSION": variant["soc"], **added}
    config = {
        "architecture": arch,
        "os": "linux",
        "created": CREATED,
        "config": {
            "Env": [f"{name}={value}" for name, value in environment.items()],
            "Entrypoint": kind["entrypoint"],
            "Cmd": ["/bin/bash"],
            "WorkingDir": "/workspace",
            "Labels": {LABEL: described},
        },
        "rootfs": {"type": "layers", "diff_ids": [part.diff_id for part in layers]},
        "history": [{"created": CREATED, "created_by": f"layer {index}"} for index in range(len(layers))],
    }
    return Image(json.dumps(config, sort_keys=True).encode(), layers)


def layer(archive: bytes) -> Layer:
    """The layer of an archive that is not compressed."""
    return Layer.of(gzip.compress(archive, compresslevel=1, mtime=0))


def _packages() -> tree.Tree:
    files = folder(IMAGE / "python", SITE_PACKAGES)
    files.update(folder(IMAGE / "common", ""))
    for name, version in data()["distributions"].items():
        info = f"{SITE_PACKAGES}/{name}-{version}.dist-info"
        files[f"{info}/METADATA"] = tree.Entry(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    entry_points = f"{SITE_PACKAGES}/vllm_ascend-{data()['distributions']['vllm_ascend']}.dist-info/entry_points.txt"
    files[entry_points] = tree.Entry("[vllm.platform_plugins]\nascend = vllm_ascend:register\n")
    return files


def own_files(variant: dict[str, Any], system: dict[str, Any]) -> tree.Tree:
    """What only one variant on one system has: the shape of its environment, its system, its build information."""
    files = folder(IMAGE / variant["kind"], "")
    files["/etc/os-release"] = tree.Entry(system["os_release"])
    files[f"{SITE_PACKAGES}/vllm_ascend/_build_info.py"] = tree.Entry(f'__device_type__ = "{variant["device_type"]}"\n')
    return files


def folder(source: pathlib.Path, target: str) -> tree.Tree:
    """The files of a folder below another path."""
    return {
        f"{target}/{path.relative_to(source)}": tree.Entry(
            path.read_text(encoding="utf-8"), path.stat().st_mode & 0o777
        )
        for path in sorted(source.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }


def base(client: docker.DockerClient, host_image: str) -> Layer:
    """The base layer, kept in .lab/ as long as the host image is the same."""
    key = hashlib.sha256((client.images.get(host_image).id or "").encode() + (IMAGE / "carve.py").read_bytes())
    kept = ARCHIVES / f"base-{key.hexdigest()[:16]}.tar.gz"
    if not kept.exists():
        say("carving the engine images' base out of the host image")
        ARCHIVES.mkdir(parents=True, exist_ok=True)
        for old in ARCHIVES.glob("base-*.tar.gz"):
            old.unlink()
        temporary = kept.with_suffix(".part")
        temporary.write_bytes(gzip.compress(_carve(client, host_image), compresslevel=1, mtime=0))
        temporary.rename(kept)
    return Layer.of(kept.read_bytes())


def _carve(client: docker.DockerClient, host_image: str) -> bytes:
    code = (IMAGE / "carve.py").read_text(encoding="utf-8")
    container = client.containers.create(
        host_image, ["python3", "-c", code], labels={LABEL: "carve"}, network_mode="none"
    )
    try:
        container.start()
        if container.wait(timeout=CARVE_LIMIT_S)["StatusCode"]:
            raise LabError("the engine images' base cannot be carved: " + container.logs().decode()[-2000:])
        chunks, _stat = container.get_archive("/carved.tar")
        with tarfile.open(fileobj=io.BytesIO(b"".join(chunks))) as outer:
            inner = outer.extractfile("carved.tar")
            assert inner is not None
            return inner.read()
    finally:
        container.remove(force=True)


def archive(named: dict[str, Image]) -> bytes:
    """What `docker save` writes for images by reference: for `docker load`, and for hosts without a registry."""
    manifest = []
    contents: dict[str, bytes] = {}
    for reference, one in named.items():
        config = digest(one.config).removeprefix("sha256:") + ".json"
        contents[config] = one.config
        layers = {f"{part.diff_id.removeprefix('sha256:')}/layer.tar": part for part in one.layers}
        for name, part in layers.items():
            if name not in contents:
                contents[name] = zlib.decompress(part.data, wbits=31)
        manifest.append({"Config": config, "RepoTags": [reference], "Layers": list(layers)})
    contents["manifest.json"] = json.dumps(manifest).encode()
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as target:
        for name, content in contents.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            target.addfile(info, io.BytesIO(content))
    return buffer.getvalue()
