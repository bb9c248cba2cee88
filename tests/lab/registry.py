"""The rack's registries: two real ones over one storage, one plays quay.io, one a mirror with a private CA."""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from typing import Any

import docker

from . import images, keys, tree
from .hosts import find, network
from .settings import DIGEST_LABEL, LABEL, PREFIX, LabError, Registry, rack, say

VOLUME = f"{PREFIX}-registry"
STORAGE = "/var/lib/registry"
CONFIG = "/etc/vllm-lab/registry.yml"
CERTIFICATE, KEY = "/etc/vllm-lab/registry.pem", "/etc/vllm-lab/registry.key"
MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
MANIFEST_LIST = "application/vnd.docker.distribution.manifest.list.v2+json"
CONFIG_TYPE = "application/vnd.docker.container.image.v1+json"
LAYER_TYPE = "application/vnd.docker.image.rootfs.diff.tar.gzip"
START_LIMIT_S = 30
REQUEST_LIMIT_S = 60
PIECE = 1 << 22


def ensure(client: docker.DockerClient, host_image: str) -> None:
    """Start the registries that do not run as they should. Raises LabError when one does not answer."""
    network(client)
    client.volumes.create(VOLUME, labels={LABEL: "registry"})
    for registry in rack().registries:
        _ensure(client, host_image, registry)
    for registry in rack().registries:
        _wait(registry)


def _ensure(client: docker.DockerClient, host_image: str, registry: Registry) -> None:
    files = {CONFIG: tree.Entry(json.dumps(_config(registry)))}
    if registry.tls:
        files[CERTIFICATE] = tree.Entry(keys.SERVER_CERT.read_text(encoding="ascii"))
        files[KEY] = tree.Entry(keys.SERVER_KEY.read_text(encoding="ascii"), 0o600)
    packed = tree.pack(files)
    digest = hashlib.sha256(packed + (client.images.get(host_image).id or "").encode()).hexdigest()[:16]
    container = find(client, registry.container)
    if container is not None and container.labels.get(DIGEST_LABEL) != digest:
        container.remove(force=True, v=True)
        container = None
    if container is None:
        api = client.api
        created = api.create_container(
            host_image,
            command=["docker-registry", "serve", CONFIG],
            name=registry.container,
            hostname=registry.name,
            volumes=[STORAGE],
            labels={LABEL: "registry", DIGEST_LABEL: digest},
            environment={"OTEL_TRACES_EXPORTER": "none"},
            host_config=api.create_host_config(
                binds={VOLUME: {"bind": STORAGE, "mode": "rw"}},
                restart_policy={"Name": "always"},
                network_mode=rack().network,
            ),
            networking_config=api.create_networking_config(
                {rack().network: api.create_endpoint_config(ipv4_address=registry.address)}
            ),
        )
        container = client.containers.get(created["Id"])
        container.put_archive("/", packed)
    if container.status != "running":
        container.start()


def _config(registry: Registry) -> dict[str, Any]:
    http: dict[str, Any] = {"addr": ":443" if registry.tls else ":80"}
    if registry.tls:
        http["tls"] = {"certificate": CERTIFICATE, "key": KEY}
    return {
        "version": "0.1",
        "log": {"level": "warn", "accesslog": {"disabled": True}},
        "storage": {"filesystem": {"rootdirectory": STORAGE}, "delete": {"enabled": True}},
        "http": http,
    }


def _wait(registry: Registry) -> None:
    deadline = time.monotonic() + START_LIMIT_S
    error: Exception | None = None
    while time.monotonic() < deadline:
        try:
            _request(registry, "GET", "/v2/")
            return
        except (urllib.error.URLError, OSError) as refused:
            error = refused
        time.sleep(0.2)
    raise LabError(f"the registry that plays {registry.plays} does not answer on {registry.address}: {error}")


def _request(
    registry: Registry,
    method: str,
    path: str,
    data: bytes | Iterator[bytes] | None = None,
    headers: dict[str, str] | None = None,
) -> Any:
    import ssl

    url = path if path.startswith("http") else f"{'https' if registry.tls else 'http'}://{registry.address}{path}"
    request = urllib.request.Request(url, data=data, method=method, headers=headers or {})
    context = None
    if registry.tls:
        context = ssl.create_default_context(cafile=str(keys.CA_CERT))
        context.check_hostname = False
    handlers: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler({})]
    if context:
        handlers.append(urllib.request.HTTPSHandler(context=context))
    return urllib.request.build_opener(*handlers).open(request, timeout=REQUEST_LIMIT_S)


def push(tags: list[images.Tag]) -> int:
    """Put all tags into the repositories of both registries (they share their storage); the number put anew."""
    writer = next(registry for registry in rack().registries if not registry.tls)
    pushed = 0
    for registry in rack().registries:
        repository = registry.repository
        for tag in tags:
            manifest, parts = _manifests(tag)
            if _head(writer, f"/v2/{repository}/manifests/{tag.name}", MANIFEST_LIST) == images.digest(manifest):
                continue
            for image in tag.images.values():
                for layer in image.layers:
                    _blob(writer, repository, layer.digest, layer.data)
                _blob(writer, repository, images.digest(image.config), image.config)
            for part in parts:
                _put(writer, f"/v2/{repository}/manifests/{images.digest(part)}", part, MANIFEST)
            _put(writer, f"/v2/{repository}/manifests/{tag.name}", manifest, MANIFEST_LIST)
            pushed += 1
    if pushed:
        say(f"pushed {len(tags)} tags to the registries that play {', '.join(r.plays for r in rack().registries)}")
    return pushed


def copy_tag(source: str, target: str) -> None:
    """Let the tag `target` name what `source` names, in both registries: a moved tag."""
    writer = next(registry for registry in rack().registries if not registry.tls)
    for registry in rack().registries:
        base = f"/v2/{registry.repository}/manifests"
        answer = _request(writer, "GET", f"{base}/{source}", headers={"Accept": MANIFEST_LIST})
        _put(writer, f"{base}/{target}", answer.read(), MANIFEST_LIST)


def _manifests(tag: images.Tag) -> tuple[bytes, list[bytes]]:
    """The manifest list, and the manifest of each architecture."""
    parts, entries = [], []
    for arch, image in tag.images.items():
        manifest = {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": _descriptor(CONFIG_TYPE, image.config),
            "layers": [
                {"mediaType": LAYER_TYPE, "size": len(layer.data), "digest": layer.digest} for layer in image.layers
            ],
        }
        part = json.dumps(manifest, sort_keys=True).encode()
        parts.append(part)
        entries.append({**_descriptor(MANIFEST, part), "platform": {"architecture": arch, "os": "linux"}})
    whole = {"schemaVersion": 2, "mediaType": MANIFEST_LIST, "manifests": entries}
    return json.dumps(whole, sort_keys=True).encode(), parts


def _descriptor(media_type: str, content: bytes) -> dict[str, Any]:
    return {"mediaType": media_type, "size": len(content), "digest": images.digest(content)}


def _head(registry: Registry, path: str, accept: str) -> str | None:
    with contextlib.suppress(urllib.error.HTTPError):
        return _request(registry, "HEAD", path, headers={"Accept": accept}).headers["Docker-Content-Digest"]
    return None


def _pieces(content: bytes) -> Iterator[bytes]:
    """The content in parts: a socket's time limit is for one call, however much it sends."""
    for start in range(0, len(content), PIECE):
        yield content[start : start + PIECE]


def _blob(registry: Registry, repository: str, digest: str, content: bytes) -> None:
    if _head(registry, f"/v2/{repository}/blobs/{digest}", "*/*"):
        return
    started = _request(registry, "POST", f"/v2/{repository}/blobs/uploads/", data=b"")
    location = started.headers["Location"]
    separator = "&" if urllib.parse.urlsplit(location).query else "?"
    _put(registry, f"{location}{separator}digest={digest}", content, "application/octet-stream")


def _put(registry: Registry, path: str, content: bytes, media_type: str) -> None:
    headers = {"Content-Type": media_type, "Content-Length": str(len(content))}
    try:
        _request(registry, "PUT", path, data=_pieces(content), headers=headers)
    except urllib.error.HTTPError as error:
        raise LabError(f"{registry.plays} refuses {path}: {error.code} {error.read()[:500]!r}") from error
