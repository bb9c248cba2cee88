"""The module vllm_image on a host of the rack: a real engine, a real registry, a real mirror with a private CA.

It uses the host without NPUs, on which nothing serves, with a canonical name of its own, and leaves it as it was.
"""

from __future__ import annotations

import json
import os
import subprocess
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from tests.lab import settings

pytestmark = pytest.mark.lab

HOST = "plain-1"
REPOSITORY = "ascend/vllm-ascend"
TAG = "v0.23.0-310p"
REFERENCE = f"image-test.invalid/{REPOSITORY}:{TAG}"
PLAIN = f"quay.io/{REPOSITORY}:{TAG}"
MIRROR = f"m.daocloud.io/quay.io/{REPOSITORY}:{TAG}"
NOBODY = f"quay.nju.edu.cn/{REPOSITORY}:{TAG}"
# Made for this test: one architecture only, behind no manifest list.
SINGLE = "image-test-single-amd64"
CERTS = "/etc/docker/certs.d"
DROP_IN = "/etc/systemd/system/docker.service.d/vllm-ascend-proxy.conf"
LIST = "application/vnd.docker.distribution.manifest.list.v2+json"
MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"


def ssh(command: str, check: bool = True) -> str:
    """Run a shell command on the host."""
    argv = ["ssh", "-o", "BatchMode=yes", "-o", f"UserKnownHostsFile={settings.STATE / 'known_hosts'}"]
    argv += ["-i", str(settings.STATE / "id_ed25519"), f"root@{settings.rack().host(HOST).address}", command]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0 or not check, done.stderr
    return done.stdout.strip()


def image(*flags: str, **options: Any) -> dict[str, Any]:
    """Run the module on the host by an ansible ad-hoc command; gives its result."""
    arguments = {"reference": REFERENCE, "candidates": [PLAIN], "platform": "linux/arm64", "timeout": 120, **options}
    argv = [str(settings.ROOT / ".venv/bin/ansible"), "-i", "inventories/lab", HOST]
    argv += ["-m", "vllm_ascend.fleet.vllm_image", "-a", json.dumps(arguments), *flags]
    env = {**os.environ, "ANSIBLE_CALLBACK_RESULT_FORMAT": "json", "ANSIBLE_NOCOLOR": "1"}
    done = subprocess.run(argv, capture_output=True, text=True, timeout=300, check=False, cwd=settings.ROOT, env=env)
    assert "=> {" in done.stdout, done.stdout + done.stderr
    head, text = done.stdout.split("=> ", 1)
    return {**json.loads(text), "failed": "FAILED!" in head}


def store() -> list[str]:
    """All names and ids in the host's engine."""
    return sorted(ssh("docker image ls -a --no-trunc --format '{{.Repository}}:{{.Tag}} {{.ID}}'").splitlines())


def names() -> list[str]:
    return [line.split()[0] for line in store()]


def codes(result: dict[str, Any]) -> list[str]:
    return [attempt["code"] for attempt in result["attempts"]]


def registry(method: str, path: str, accept: str = MANIFEST, body: bytes | None = None) -> tuple[bytes, str]:
    """One request to the registry that plays quay.io: the body and the digest of the answer."""
    address = next(r.address for r in settings.rack().registries if r.plays == "quay.io")
    headers = {"Accept": accept, "Content-Type": accept}
    url = f"http://{address}/v2/{REPOSITORY}/manifests/{path}"
    request = urllib.request.Request(url, data=body, method=method, headers=headers)
    with urllib.request.urlopen(request, timeout=30) as answer:
        return answer.read(), answer.headers.get("Docker-Content-Digest", "")


@pytest.fixture(scope="module")
def digest() -> str:
    """The digest of the tag, as its publisher would name it."""
    return registry("GET", TAG, LIST)[1]


@pytest.fixture
def single() -> Iterator[str]:
    """A tag of the plain registry that has amd64 only."""
    manifests = json.loads(registry("GET", TAG, LIST)[0])["manifests"]
    amd64 = next(m["digest"] for m in manifests if m["platform"]["architecture"] == "amd64")
    # Another spelling of the same manifest has a digest of its own, which can be deleted without the original.
    body = registry("GET", amd64)[0] + b"\n"
    made = registry("PUT", SINGLE, body=body)[1]
    yield f"quay.io/{REPOSITORY}:{SINGLE}"
    registry("DELETE", made)


@pytest.fixture(autouse=True)
def clean_host() -> Iterator[None]:
    """The host's engine as it was: no image, certificate, drop-in or container of a test is left."""
    before = store()
    assert ssh(f"ls -d {CERTS} {DROP_IN} 2>/dev/null", check=False) == ""
    yield
    ssh("docker ps -aq --filter name=image-test | xargs -r docker rm -f")
    ssh(f"rm -rf {CERTS} /root/image-test*")
    if ssh(f"ls {DROP_IN} 2>/dev/null", check=False):
        ssh(f"rm {DROP_IN}; rmdir --ignore-fail-on-non-empty $(dirname {DROP_IN})")
        ssh("systemctl daemon-reload; systemctl restart docker")
    for line in set(store()) - set(before):
        name, identifier = line.split()
        ssh(f"docker image rm -f {identifier if '<none>' in name else name}", check=False)
    assert store() == before


@pytest.fixture
def ca() -> dict[str, str]:
    """The mirror's private CA, as vllm_registry_ca has it."""
    return {"m.daocloud.io": (settings.STATE / "ca.pem").read_text(encoding="utf-8")}


def test_plain_registry():
    predicted = image("--check")
    assert predicted["changed"] and predicted["image"]["source"] == PLAIN
    assert REFERENCE not in names()
    done = image()
    assert done["changed"] and done["action"] == "pull"
    assert done["image"]["architecture"] == "arm64" and done["image"]["size_mb"] > 1
    assert ssh("docker image inspect --format '{{.Id}} {{.Architecture}}' " + REFERENCE) == (
        f"{done['image']['id']} arm64"
    )
    assert PLAIN not in names()
    for again in (image("--check"), image()):
        assert not again["changed"] and again["image"]["source"] == "present"
    always = image(pull="always")
    assert not always["changed"] and always["action"] == "pull"


def test_mirror_with_a_private_ca(ca):
    before = store()
    refused = image(candidates=[MIRROR])
    assert refused["failed"] and codes(refused) == ["tls_unknown_authority"] and not refused["changed"]
    assert "vllm_registry_ca" in refused["msg"]
    assert store() == before
    done = image(candidates=[MIRROR], ca=ca)
    assert done["changed"] and done["image"]["source"] == MIRROR
    assert MIRROR not in names() and REFERENCE in names()
    assert ssh(f"stat -c '%a %U' {CERTS}/m.daocloud.io/ca.crt") == "644 root"
    assert ssh(f"cat {CERTS}/m.daocloud.io/ca.crt") == ca["m.daocloud.io"].strip()
    assert not image(candidates=[MIRROR], ca=ca, pull="always")["changed"]


def test_candidates_in_order_and_why_each_failed(ca):
    missing = f"quay.io/{REPOSITORY}:v9.9.9"
    done = image(candidates=[missing, NOBODY, f"127.0.0.1:9/{REPOSITORY}:{TAG}", MIRROR], ca=ca)
    assert done["changed"] and done["image"]["source"] == MIRROR
    assert codes(done)[0] == "manifest_unknown" and codes(done)[2] == "unreachable"
    assert codes(done)[1] in ("unreachable", "registry_timeout")


def test_all_fail_and_the_engine_is_as_before():
    before = store()
    result = image(candidates=[f"quay.io/{REPOSITORY}:v9.9.9", f"quay.io/nobody/nothing:{TAG}"])
    assert result["failed"] and codes(result) == ["manifest_unknown", "manifest_unknown"]
    assert "v9.9.9" in result["msg"] and "nobody/nothing" in result["msg"]
    assert store() == before


def test_wrong_architecture(single):
    before = store()
    refused = image(candidates=[single])
    assert refused["failed"] and codes(refused) == ["wrong_architecture"]
    assert store() == before
    done = image(candidates=[single, PLAIN])
    assert codes(done) == ["wrong_architecture"] and done["image"]["architecture"] == "arm64"
    assert single not in names()
    # The other way round: the present image is for the wrong architecture, and is replaced.
    other = image(candidates=[single], platform="linux/amd64")
    assert other["changed"] and other["image"]["architecture"] == "amd64"


def test_an_image_that_a_container_uses_stays(single):
    ssh(f"docker pull -q {single} && docker create --name image-test {single} && docker image rm {single}", check=False)
    used = ssh("docker inspect --format '{{.Image}}' image-test")
    refused = image(candidates=[single])
    assert codes(refused) == ["wrong_architecture"]
    assert used in ssh("docker image ls -aq --no-trunc")


def test_pinned_digest(digest):
    done = image(digest=digest)
    assert done["changed"] and any(name.endswith(digest) for name in done["image"]["digests"])
    assert not image(digest=digest)["changed"]
    assert not image(digest=digest, pull="never")["changed"]
    before = store()
    other = image(digest="sha256:" + "0" * 64)
    assert other["failed"] and codes(other) == ["manifest_unknown"]
    assert store() == before


def test_archive():
    made = image()
    ssh(f"docker save {REFERENCE} | gzip -1 > /root/image-test.tar.gz && docker image rm {REFERENCE}")
    ssh("head -c 1000000 /root/image-test.tar.gz > /root/image-test-cut.tar.gz")
    before = store()
    for path, word in (("-none", "cannot be read"), ("-cut", "cut short")):
        refused = image(archive=f"/root/image-test{path}.tar.gz")
        assert refused["failed"] and word in refused["msg"] and path in refused["msg"]
    wrong = image(archive="/root/image-test.tar.gz", platform="linux/amd64")
    assert wrong["failed"] and wrong["problems"][0]["code"] == "wrong_architecture"
    assert store() == before
    assert image("--check", archive="/root/image-test.tar.gz")["changed"]
    done = image(archive="/root/image-test.tar.gz", pull="never")
    assert done["action"] == "load" and done["image"]["id"] == made["image"]["id"]
    assert not image(archive="/root/image-test.tar.gz")["changed"]


def test_never():
    refused = image(pull="never")
    assert refused["failed"] and refused["problems"][0]["code"] == "image_missing"


def test_proxy():
    started = ssh("systemctl show docker --property ActiveEnterTimestampMonotonic")
    # The engine reaches quay.io by plain HTTP, through a proxy that nobody runs.
    proxy = {"http": "http://deploy:s3cret@10.83.0.2:9", "no_proxy": "m.daocloud.io"}
    result = image(proxy=proxy)
    assert codes(result) == ["proxy"] and result["changed"] and "s3cret" not in json.dumps(result)
    assert ssh(f"stat -c %a {DROP_IN}") == "600"
    assert ssh('docker info --format \'{{json .}}\' | grep -o \'"HttpProxy":"[^"]*"\'').endswith('@10.83.0.2:9"')
    restarted = ssh("systemctl show docker --property ActiveEnterTimestampMonotonic")
    assert restarted != started
    assert not image(proxy=proxy)["changed"]
    assert ssh("systemctl show docker --property ActiveEnterTimestampMonotonic") == restarted


def test_proxy_under_a_running_container():
    image(platform="linux/amd64")
    ssh(f"docker run -d --name image-test --network none --entrypoint sleep {REFERENCE} 600")
    result = image(proxy={"https": "http://10.83.0.2:9"}, pull="always")
    assert result["failed"] and result["problems"][0]["code"] == "proxy_needs_restart" and not result["changed"]
    assert ssh("docker inspect --format '{{.State.Running}}' image-test") == "true"
    assert ssh(f"test -e {DROP_IN} || echo absent") == "absent"
