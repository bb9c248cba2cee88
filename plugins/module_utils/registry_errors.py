# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What went wrong in a `docker pull` or `docker load`, and what to do about it.

The texts are those of Docker Engine 18.09 to 28 (moby distribution and registry packages, containerd's resolver).
A new one is one entry in a table; the first entry that matches wins.
"""

from __future__ import annotations

import re
from typing import List, NamedTuple, Sequence, Tuple


class Signature(NamedTuple):
    """A kind of error: its code, the texts that show it (regular expressions, any case), and the remedy."""

    code: str
    patterns: Tuple[str, ...]
    remedy: str


class Diagnosis(NamedTuple):
    """The line of an output that matters, its kind, and the remedy."""

    code: str
    error: str
    remedy: str


ENGINE: Tuple[Signature, ...] = (
    Signature(
        "engine_permission",
        (r"permission denied while trying to connect", r"dial unix \S+: connect: permission denied"),
        "run as root (become: true), or as a user who may use the engine's socket",
    ),
    Signature(
        "engine_stopped",
        (r"cannot connect to the docker daemon", r"is the docker daemon running", r"error during connect"),
        "start Docker on the host (systemctl start docker) and see why it stopped: journalctl -u docker",
    ),
)

SPACE = Signature(
    "no_space",
    (r"no space left on device", r"disk quota exceeded"),
    "free space below the engine's storage folder (docker system df; docker image prune), or move it to a larger disk",
)

PULL: Tuple[Signature, ...] = (
    *ENGINE,
    SPACE,
    Signature(
        # vllm-ascend pull request 3870 (FAQ 19): Kylin V10 on arm64; the layers are compressed with zstd.
        "old_engine_layers",
        (r"invalid tar header",),
        "this engine is too old for the image's zstd layers: docker pull and docker save it on a machine with Docker "
        "23 or later and give the file as vllm_image_archive, or update Docker here (vllm-ascend pull request 3870)",
    ),
    Signature(
        "rate_limited",
        (r"toomanyrequests", r"429 too many requests", r"pull rate limit"),
        "wait, log in (vllm_registry_auth), or put another mirror first in vllm_image_registries",
    ),
    Signature(
        "tls_unknown_authority",
        (r"signed by unknown authority", r"certificate is not trusted"),
        "give the registry's CA certificate as vllm_registry_ca",
    ),
    Signature(
        "tls",
        (r"x509:", r"tls: (?!handshake timeout)", r"certificate has expired"),
        "check the registry's certificate (name, dates) and the host's clock; give a private CA as vllm_registry_ca",
    ),
    Signature(
        "plain_http",
        (r"server gave http response to https client",),
        "this registry speaks plain HTTP: list it under insecure-registries in the host's /etc/docker/daemon.json, "
        "or give it a certificate",
    ),
    Signature(
        "proxy",
        (r"proxyconnect", r"proxy authentication required", r"407 "),
        "check vllm_proxy: address, login, and no_proxy for registries inside the site",
    ),
    Signature(
        "unauthorized",
        (
            r"unauthorized",
            r"no basic auth credentials",
            r"authentication required",
            r"requested access to the resource is denied",
            r"pull access denied",
            r"40[13] (unauthorized|forbidden)",
            r"\bdenied:",
        ),
        "give this registry's login in vllm_registry_auth, and check that the repository exists there",
    ),
    Signature(
        "no_platform",
        (r"no matching manifest for", r"no match for platform"),
        "this tag has no image for the host's architecture there: use another release, tag or mirror",
    ),
    Signature(
        "manifest_unknown",
        (
            r"manifest unknown",
            r"name unknown",
            r"repository name not known",
            r"404 not found",
            r"failed to resolve reference .*not found",
            r"(manifest|repository|reference) .*not found",
        ),
        "the tag does not exist in this registry: check vllm_ascend_version and the suffix, or use another mirror",
    ),
    Signature(
        "name_resolution",
        (r"no such host", r"failure in name resolution", r"server misbehaving", r"lookup \S+.*i/o timeout"),
        "the host cannot resolve the registry's name: check its DNS, use a mirror in reach (vllm_image_registries), "
        "vllm_proxy or vllm_image_archive",
    ),
    Signature(
        "unreachable",
        (r"no route to host", r"connection refused", r"network is unreachable", r"connection reset by peer"),
        "the host cannot reach the registry: check network and firewall, use a mirror in reach "
        "(vllm_image_registries), vllm_proxy or vllm_image_archive",
    ),
    Signature(
        "registry_timeout",
        (r"context deadline exceeded", r"client\.timeout", r"request canceled", r"i/o timeout", r"handshake timeout"),
        "the registry did not answer in time: use a nearer mirror (vllm_image_registries), vllm_proxy or "
        "vllm_image_archive",
    ),
    Signature(
        "broken_transfer",
        (r"unexpected eof", r"layer verification failed", r"failed size validation", r"digest mismatch"),
        "the layers arrived damaged: try again or use another mirror",
    ),
)

LOAD: Tuple[Signature, ...] = (
    *ENGINE,
    SPACE,
    Signature(
        "archive_truncated",
        (r"unexpected eof", r"checksum error", r"invalid header", r"invalid checksum", r"data corruption"),
        "the archive is cut short or damaged: copy it again and compare its checksum with the original's",
    ),
    Signature(
        "archive_invalid",
        (
            r"repositories: no such file",
            r"manifest\.json",
            r"invalid archive",
            r"invalid tar header",
            r"unrecognized image format",
            r"unsupported compression",
        ),
        "this is no archive of docker save: make it with `docker save IMAGE | gzip > image.tar.gz`",
    ),
)

UNKNOWN = Signature("unknown", (), "read the engine's journal on the host: journalctl -u docker")


def meaningful_line(text: str) -> str:
    """The line of a program's output that says what went wrong: the last that speaks of an error, else the last one."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    speaking = [
        line for line in lines if re.search(r"error|denied|failed|cannot|invalid|unauthorized|no such", line, re.I)
    ]
    return (speaking or lines or ["no output"])[-1]


def diagnose(text: str, signatures: Sequence[Signature]) -> Diagnosis:
    """Classify what a failed program printed; text without a known signature is code "unknown"."""
    found: List[Signature] = [
        signature for signature in signatures if any(re.search(p, text, re.I) for p in signature.patterns)
    ]
    signature = found[0] if found else UNKNOWN
    lines = [line.strip() for line in text.splitlines()]
    matching = [line for line in lines if any(re.search(p, line, re.I) for p in signature.patterns)]
    return Diagnosis(signature.code, matching[-1] if matching else meaningful_line(text), signature.remedy)
