"""The rack's hub: a container that plays huggingface.co and www.modelscope.cn for a few tiny models (hub_server.py)."""

from __future__ import annotations

import datetime
import hashlib
import io
import ipaddress
import json
import pathlib
import tarfile
import time
import urllib.error
import urllib.request
from typing import Any

import docker
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from .hosts import find, network
from .real import cache
from .settings import DIGEST_LABEL, HERE, LABEL, STATE, LabError, rack, say

SERVER = HERE / "hub_server.py"
PLACE, MODELS = "/srv/hub", "/srv/hub/models"
CERTIFICATE, KEY = STATE / "hub.pem", STATE / "hub.key"
# What the gated model asks for.
TOKEN = "hf_rack_token_of_the_gated_model"
WHOLE, SHARDS, GATED, LACKING = "Qwen/Qwen3-0.6B", "lab/two-shards", "lab/gated", "lab/missing-shard"
# So large that a client writes a part of it before it is cut off: its pieces have 10 MiB.
PADDING = 12 << 20
START_LIMIT_S = 30
_opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def url() -> str:
    """The hub's address, for HF_ENDPOINT."""
    return f"http://{rack().hub.address}"


def ensure(client: docker.DockerClient, host_image: str) -> None:
    """Start the hub when it does not run as it should. Raises LabError when it does not answer."""
    network(client)
    _certificate(rack().hub.address)
    packed = _pack(_files(cache.model_folder(cache.ensure())))
    parts = [client.images.get(host_image).id or "", rack().hub.address]
    digest = hashlib.sha256("\n".join(parts).encode() + packed).hexdigest()[:16]
    container = find(client, rack().hub.container)
    if container is not None and container.labels.get(DIGEST_LABEL) != digest:
        container.remove(force=True, v=True)
        container = None
    if container is None:
        api = client.api
        created = api.create_container(
            host_image,
            command=["python3", f"{PLACE}/server.py", MODELS, f"{PLACE}/hub.pem", f"{PLACE}/hub.key"],
            name=rack().hub.container,
            hostname="hub",
            labels={LABEL: "hub", DIGEST_LABEL: digest},
            host_config=api.create_host_config(restart_policy={"Name": "always"}, network_mode=rack().network),
            networking_config=api.create_networking_config(
                {rack().network: api.create_endpoint_config(ipv4_address=rack().hub.address)}
            ),
        )
        container = client.containers.get(created["Id"])
        container.put_archive("/", packed)
        say("made the hub with its models")
    if container.status != "running":
        container.start()
    _wait()


def faults(**wanted: Any) -> None:
    """Let the hub do wrong from now on, see hub_server.py; nothing: let it do right."""
    _ask("/_lab/faults", json.dumps(wanted).encode())


def requests() -> list[dict[str, Any]]:
    """What the hub was asked since the last call."""
    return json.loads(_ask("/_lab/requests"))


def _ask(path: str, body: bytes | None = None) -> bytes:
    return _opener.open(url() + path, body, timeout=20).read()


def _wait() -> None:
    deadline = time.monotonic() + START_LIMIT_S
    error: Exception | None = None
    while time.monotonic() < deadline:
        try:
            _ask("/_lab/requests")
            return
        except (urllib.error.URLError, OSError) as refused:
            error = refused
        time.sleep(0.2)
    raise LabError(f"the hub does not answer on {rack().hub.address}: {error}")


def _pack(files: dict[str, bytes]) -> bytes:
    """The files by their paths as a tar archive, the same bytes for the same files."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for path in sorted(files):
            info = tarfile.TarInfo(path.lstrip("/"))
            info.size, info.mode = len(files[path]), 0o600 if path.endswith(".key") else 0o644
            archive.addfile(info, io.BytesIO(files[path]))
    return buffer.getvalue()


def _files(model: pathlib.Path) -> dict[str, bytes]:
    """The server and its models: the plan's default one, one of two shards, a gated one, and one that lacks a shard."""
    small = {path.name: path.read_bytes() for path in sorted(model.iterdir())}
    weights = small.pop("model.safetensors")
    first, second, index = _split(weights)
    names = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
    shards = {**small, names[0]: first, names[1]: second, "model.safetensors.index.json": index(names)}
    lacking = {name: content for name, content in shards.items() if name != names[1]}
    models = {
        WHOLE: {**small, "model.safetensors": weights},
        SHARDS: shards,
        GATED: {**small, "model.safetensors": weights},
        LACKING: lacking,
    }
    files = {f"{PLACE}/server.py": SERVER.read_bytes()}
    files |= {f"{PLACE}/{path.name}": path.read_bytes() for path in (CERTIFICATE, KEY)}
    for name, contents in models.items():
        files |= {f"{MODELS}/{name}/{file}": content for file, content in contents.items()}
    files[f"{MODELS}/{GATED}.json"] = json.dumps({"token": TOKEN}).encode()
    return files


def _split(weights: bytes) -> Any:
    """(first shard, second shard, index of their names): the tensors of a model, and one that only has length."""
    length = int.from_bytes(weights[:8], "little")
    header = json.loads(weights[8 : 8 + length])
    metadata = header.pop("__metadata__")
    data = weights[8 + length :]
    padded = {"lab.padding": {"dtype": "U8", "shape": [PADDING], "data_offsets": [0, PADDING]}}

    def file(entries: dict[str, Any], content: bytes) -> bytes:
        text = json.dumps({"__metadata__": metadata, **entries}).encode()
        return len(text).to_bytes(8, "little") + text + content

    def index(names: tuple[str, str]) -> bytes:
        places = {**dict.fromkeys(header, names[0]), **dict.fromkeys(padded, names[1])}
        total = {"total_size": len(data) + PADDING}
        return json.dumps({"metadata": total, "weight_map": places}).encode()

    return file(header, data), file(padded, bytes(PADDING)), index


def _certificate(address: str) -> None:
    """A certificate for the hub's address, which is its own authority; made once."""
    if CERTIFICATE.exists() and KEY.exists():
        return
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "the rack's hub")])
    now = datetime.datetime.now(datetime.timezone.utc)
    names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(address))])
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    builder = builder.serial_number(x509.random_serial_number()).not_valid_before(now - datetime.timedelta(days=1))
    builder = builder.not_valid_after(now + datetime.timedelta(days=3650)).add_extension(names, critical=False)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    signed = builder.sign(key, hashes.SHA256())
    STATE.mkdir(exist_ok=True)
    KEY.touch(mode=0o600)
    KEY.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    CERTIFICATE.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
