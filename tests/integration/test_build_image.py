"""build_image.yml by a real docker build on a host, from a git repository in the shape of vLLM Ascend's."""

from __future__ import annotations

import base64
import json
import pathlib
import subprocess

import pytest
from ansible_collections.vllm_ascend.fleet.tests.integration.rack import INVENTORY, on, playbook, site, variables

pytestmark = pytest.mark.lab
HOST = "a3-openeuler-1"
SOURCE = pathlib.Path(__file__).parent / "data/vllm-ascend-like"
REPOSITORY = "/srv/vllm-ascend-like"
TAG = "vllm-ascend-dev:v0.23.0-a3-openeuler"
# The rack's registry takes what is pushed.
PUSHED = "quay.io/site/vllm-ascend-dev:1"
ARCHIVE = "/srv/images/vllm-ascend-dev.tar"
GIT = "git -c user.name=lab -c user.email=lab@lab.test"
WANTED = {
    "vllm_build_host": HOST,
    "vllm_build_repository": f"file://{REPOSITORY}",
    "vllm_build_arguments": {"SOC_VERSION": "ascend910_9391", "COMPILE_CUSTOM_KERNELS": 0},
    "vllm_build_min_free_mb": 100,
    "vllm_build_push": PUSHED,
    "vllm_build_archive": ARCHIVE,
}


def build(*arguments, **settings):
    return playbook("playbooks/build_image.yml", "-i", str(INVENTORY), *arguments, *variables(**{**WANTED, **settings}))


def image(name=TAG):
    return json.loads(on(HOST, "docker", "image", "inspect", name))[0]


@pytest.fixture(scope="module")
def commit():
    """The commit of the repository on the host, tagged v0.23.0; afterwards the documented deployment serves again."""
    site("--limit", HOST)
    packed = subprocess.run(["tar", "-C", SOURCE, "-cf", "-", "."], check=True, capture_output=True).stdout
    unpack = f"rm -rf {REPOSITORY} && mkdir -p {REPOSITORY} && base64 -d | tar -C {REPOSITORY} -xf -"
    on(HOST, unpack, stdin=base64.b64encode(packed).decode("ascii"))
    on(HOST, f"cd {REPOSITORY} && git init --quiet && git add --all && {GIT} commit --quiet --message x")
    on(HOST, f"cd {REPOSITORY} && {GIT} tag -a v0.23.0 -m release")
    yield on(HOST, "git", "-C", REPOSITORY, "rev-parse", "HEAD").strip()
    site("--limit", HOST)
    on(HOST, f"docker image rm -f {TAG} {PUSHED}; rm -rf {REPOSITORY} /srv/images", check=False)


@pytest.fixture(scope="module")
def built(commit):
    """The first run."""
    return build()


def test_it_is_built_for_the_host_s_own_hardware_and_recorded(built, commit):
    assert built.rc == 0, built.text[-4000:]
    result = built.result(HOST, "vllm_build_image")
    assert (result["changed"], result["image"]["dockerfile"]) == (True, "Dockerfile.a3.openEuler")
    labels = image()["Config"]["Labels"]
    assert labels["org.opencontainers.image.revision"] == commit
    assert json.loads(labels["vllm-ascend.build-arguments"])["SOC_VERSION"] == "ascend910_9391"
    said = on(HOST, f"docker run --rm --entrypoint cat {TAG} /vllm-workspace/built")
    assert said.split() == ["vllm=v0.23.0", "commit=", "soc=ascend910_9391", "kernels=0"]
    assert on(HOST, f"docker image rm {PUSHED} > /dev/null; docker pull --quiet {PUSHED}").strip() == PUSHED
    assert image(PUSHED)["Id"] == image()["Id"]
    assert on(HOST, f"tar -xOf {ARCHIVE} manifest.json | grep -c {TAG}").strip() == "1"


def test_nothing_is_built_again_until_something_changes(built):
    assert build().stats[HOST]["changed"] == 0
    changed = build("--check", vllm_build_arguments={"SOC_VERSION": "ascend910_9392"})
    assert changed.stats[HOST]["changed"] == 1 and f"{TAG} would be built" in changed.text


def test_it_is_used_by_its_name(built):
    run = site("--limit", HOST, *variables(vllm_image=TAG))
    assert run.rc == 0, run.text[-4000:]
    assert json.loads(on(HOST, "docker", "inspect", "vllm-ascend"))[0]["Image"] == image()["Id"]
    plan = run.report(HOST)["plan"]
    assert plan["image"]["reference"] == TAG


def test_what_cannot_be_built_is_said_with_the_cause(built):
    before = image()["Id"]
    wrong = build(vllm_build_version="v0.23", vllm_build_family="atlas_a4", vllm_build_tag="Mine")
    assert wrong.rc == 2
    told = wrong.result(HOST, "fail")["msg"]
    assert "atlas_a4" in told and "'Mine'" in told
    missing = build(vllm_build_version="v0.23")
    assert "has no branch or tag v0.23" in missing.text and "v0.23.0" in missing.text
    on(HOST, f"cd {REPOSITORY} && sed -i 's/setup.py/absent.py/' Dockerfile.a3.openEuler && git checkout -qb broken")
    on(HOST, f"cd {REPOSITORY} && {GIT} commit --quiet --all --message broken")
    failed = build(vllm_build_version="broken", vllm_build_tag=TAG)
    assert failed.rc == 2
    assert "docker build" in failed.text and "/var/cache/vllm-ascend/build/" in failed.text
    assert image()["Id"] == before
