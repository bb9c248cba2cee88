"""The rack's own secrets, made once a checkout in .lab/: ssh keys, and a private CA with the mirror's certificate."""

from __future__ import annotations

import datetime
import hashlib
import pathlib

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.x509.oid import NameOID

from .settings import STATE, rack

CLIENT_KEY = STATE / "id_ed25519"
HOST_KEY = STATE / "ssh_host_ed25519_key"
KNOWN_HOSTS = STATE / "known_hosts"
CA_CERT = STATE / "ca.pem"
SERVER_CERT = STATE / "registry.pem"
SERVER_KEY = STATE / "registry.key"
VALID_DAYS = 3650


def ensure() -> None:
    """Make what is missing; write known_hosts anew."""
    STATE.mkdir(exist_ok=True)
    for path, comment in ((CLIENT_KEY, "vllm-lab client"), (HOST_KEY, "vllm-lab host")):
        if not path.exists():
            _ssh_key(path, comment)
    if not all(path.exists() for path in (CA_CERT, SERVER_CERT, SERVER_KEY)):
        _certificates()
    public = public_key(HOST_KEY)
    lines = [f"{host.address},{host.name} {public}\n" for host in rack().hosts]
    KNOWN_HOSTS.write_text("".join(lines), encoding="ascii")


def public_key(path: pathlib.Path) -> str:
    """The public half, as one line without its comment."""
    return " ".join(path.with_name(path.name + ".pub").read_text(encoding="ascii").split()[:2])


def fingerprint() -> str:
    """Digest of everything here that a running container depends on."""
    parts = [public_key(CLIENT_KEY), public_key(HOST_KEY), SERVER_CERT.read_text(encoding="ascii")]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _secret(path: pathlib.Path, content: bytes) -> None:
    path.touch(mode=0o600)
    path.write_bytes(content)


def _ssh_key(path: pathlib.Path, comment: str) -> None:
    key = ed25519.Ed25519PrivateKey.generate()
    _secret(
        path,
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
        ),
    )
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    path.with_name(path.name + ".pub").write_text(f"{public.decode()} {comment}\n", encoding="ascii")


def _certificates() -> None:
    now = datetime.datetime.now(datetime.timezone.utc)
    ca_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    ca_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "private CA of the simulated rack")])
    names = [registry.plays for registry in rack().registries if registry.tls]

    def builder(subject: x509.Name, public: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(ca_name)
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=VALID_DAYS))
        )

    ca = (
        builder(ca_name, ca_key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(ca_key, hashes.SHA256())
    )
    server = (
        builder(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0])]), key.public_key())
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name) for name in names]), critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    CA_CERT.write_bytes(ca.public_bytes(serialization.Encoding.PEM))
    SERVER_CERT.write_bytes(server.public_bytes(serialization.Encoding.PEM))
    _secret(
        SERVER_KEY,
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()),
    )
