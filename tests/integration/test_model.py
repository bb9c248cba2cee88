"""Models on the rack: the hubs' real clients, in the real vLLM's image, against the rack's hub (tests/lab/hub.py).

hung-1 starts from whatever it is in; its model cache and the copied folder are removed at the end.
"""

from __future__ import annotations

import io
import os
import pathlib
import shutil
import signal
import subprocess
import tarfile
import time
import zipfile

import pytest
from ansible_collections.vllm_ascend.fleet.tests.integration.rack import BIN, ROOT, on, playbook, variables
from ansible_collections.vllm_ascend.fleet.tests.integration.real_engine import IMAGE
from ansible_collections.vllm_ascend.fleet.tests.lab import engine, hosts, hub, images
from ansible_collections.vllm_ascend.fleet.tests.lab.real import cache, modelscope
from ansible_collections.vllm_ascend.fleet.tests.lab.settings import rack

pytestmark = pytest.mark.lab
INVENTORY = ROOT / "inventories/lab_odd"
HOST = "hung-1"
CACHE, FOLDER, BUILD = "/srv/model-test/cache", "/srv/model-test/folder", "/srv/model-test/build"
LOCAL = {"model": FOLDER, "model_source": "local"}
FORGET = "rm -rf /srv/model-test /var/lib/vllm-ascend/.model"
DERIVED = "local/vllm-ascend:models"
SECOND = "model-00002-of-00002.safetensors"
COMMON = {
    "vllm_image": IMAGE.format(""),
    "vllm_npu_smi_timeout": 2,
    "vllm_accept_problems": ["npu_smi_hung"],
    "vllm_model_cache": CACHE,
    "vllm_hf_endpoint": hub.url(),
}


@pytest.fixture(autouse=True, scope="module")
def clean():
    """Nothing of an earlier run, and nothing left of this one."""
    on(HOST, FORGET)
    hub.faults()
    yield
    hub.faults()
    on(HOST, FORGET)


@pytest.fixture(scope="module")
def derived():
    """An image of one's own with ModelScope's client, built on the host as the remedy says, but without a network."""
    with zipfile.ZipFile(modelscope.wheel()) as archive:
        files = {f"packages/{name}": archive.read(name) for name in archive.namelist() if not name.endswith("/")}
    text = f"FROM {COMMON['vllm_image']}\nCOPY packages {images.SITE_PACKAGES}\n"
    put({**files, "Dockerfile": text.encode()}, BUILD)
    on(HOST, "docker", "build", "--quiet", "--tag", DERIVED, BUILD)
    yield
    on(HOST, "docker", "image", "rm", DERIVED)


def model(*arguments, name="model", instances=None, **values):
    """The playbook on the host, with an instance for each model."""
    entries = [{"name": f"m{n}", "port": 8100 + n, **entry} for n, entry in enumerate(instances or [{}])]
    given = variables(**{**COMMON, "vllm_instances": entries, **values})
    return playbook(f"playbooks/{name}.yml", "-i", str(INVENTORY), "--limit", HOST, *arguments, *given)


def got(run):
    """What the module returned, by model and source."""
    return {(one["model"], one["source"]): one for one in run.result(HOST, "vllm_model")["models"]}


def hugging(run, name):
    """The same of one model of Hugging Face."""
    return got(run)[name, "huggingface"]


def codes(one):
    """The codes of what is wrong with a model."""
    return [problem["code"] for problem in one["problems"]]


def fetched(asked):
    """The files that were sent, of what the hub was asked."""
    return [one["path"].rsplit("/", 1)[-1] for one in asked if one["method"] == "GET" and "/resolve/" in one["path"]]


def test_a_fetch_goes_on_after_a_drop_a_folder_is_copied_and_what_cannot_come_is_named(tmp_path):
    source = tmp_path / "model"
    shutil.copytree(cache.model_folder(cache.ensure()), source)
    hub.faults(cut={SECOND: [11 << 20, 1]})
    hub.requests()
    models = [{"model": hub.SHARDS}, {"model": hub.GATED}, {"model": hub.LACKING}, LOCAL]
    run = model(instances=models, vllm_model_verify="checksum", vllm_model_copy_from=str(source))
    asked = hub.requests()
    assert run.rc == 2
    assert "No host has problems." in run.text
    whole, gated, lacking = (hugging(run, name) for name in (hub.SHARDS, hub.GATED, hub.LACKING))
    assert (whole["ok"], whole["action"], whole["files"], whole["verified"]) == (True, "fetch", 7, 7)
    assert whole["client"].startswith("huggingface_hub ")
    assert [one["Range"] for one in asked if one["path"].endswith(SECOND) and one["Range"]] == [f"bytes={10 << 20}-"]
    assert codes(gated) == ["model_fetch_denied"]
    assert codes(lacking) == ["model_incomplete"]
    assert f"{SECOND} is missing, and the hub has none" in lacking["problems"][0]["message"]
    copied = got(run)[FOLDER, "local"]
    assert (copied["ok"], copied["files"]) == (True, 5)
    assert containers() == ""


def test_the_plan_names_models_that_are_not_whole_before_vllm_sees_them():
    on(HOST, f"truncate -s -1 {FOLDER}/model.safetensors")
    missing = {"model": FOLDER + "-none", "model_source": "local"}
    offline = {"model": hub.LACKING, "environment": {"HF_HUB_OFFLINE": "1"}}
    planned = model(name="plan", instances=[LOCAL, missing, offline])
    report = planned.report(HOST)
    found = {problem["code"]: problem["message"] for problem in report["problems"]}
    assert set(found) == {"model_folder_missing", "model_incomplete"}
    assert "model.safetensors" in found["model_incomplete"]
    assert missing["model"] in found["model_folder_missing"]
    warned = [one for one in report["plan"]["warnings"] if one["code"] == "model_not_cached"]
    assert SECOND in warned[0]["message"]


def test_an_interrupted_run_leaves_no_container_and_the_next_goes_on_with_a_token_that_shows_nowhere(derived):
    on(HOST, FORGET)
    hub.faults(slow={SECOND: 1 << 19})
    hub.requests()
    argv = [str(BIN / "ansible-playbook"), "playbooks/model.yml", "-i", str(INVENTORY), "--limit", HOST]
    environment = {**os.environ, "ANSIBLE_COLLECTIONS_PATH": str(ROOT / ".ansible/collections")}
    process = subprocess.Popen(
        [*argv, *variables(**COMMON, vllm_model=hub.SHARDS, vllm_hf_token=hub.TOKEN)], cwd=ROOT, env=environment,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        wait(lambda: SECOND in fetched(hub.requests()))
        assert hub.TOKEN not in on(HOST, "ps", "-eww", "-o", "args")
    finally:
        for number in [process.pid, *descendants(process.pid)]:
            os.kill(number, signal.SIGKILL)
        process.wait()
    wait(lambda: containers() == "", 10)
    hub.faults()
    hub.requests()
    put({"hub.pem": hub.CERTIFICATE.read_bytes()}, CACHE)
    scope = {
        "model_source": "modelscope",
        "environment": {"MODELSCOPE_DOMAIN": rack().hub.address, "REQUESTS_CA_BUNDLE": "/root/.cache/hub.pem"},
    }
    models = [{"model": hub.SHARDS}, {"model": hub.GATED}, {"model": hub.SHARDS, **scope}]
    run = model(instances=models, vllm_hf_token=hub.TOKEN, vllm_image=DERIVED)
    assert run.rc == 0, run.text[-6000:]
    asked = hub.requests()
    assert fetched(one for one in asked if hub.SHARDS in one["path"]) == [SECOND]
    assert all(one["ok"] for one in got(run).values())
    assert got(run)[hub.SHARDS, "modelscope"]["client"].startswith("modelscope 1.3")
    assert f"Bearer {hub.TOKEN}" in {one["Authorization"] for one in asked}
    assert hub.TOKEN not in run.text
    assert on(HOST, f"grep -rls {hub.TOKEN} /etc /srv /var/lib/vllm-ascend /root/.ansible", check=False) == ""


def wait(condition, limit_s=60):
    """Wait until something holds."""
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.3)


def put(files, folder):
    """Write files into a folder of the host."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(f"{folder.lstrip('/')}/{name}")
            info.size, info.mode = len(content), 0o644
            archive.addfile(info, io.BytesIO(content))
    hosts.get(engine.require(), HOST).put_archive("/", buffer.getvalue())


def descendants(process):
    """The processes that a process started, and theirs."""
    listed = pathlib.Path(f"/proc/{process}/task").glob("*/children")
    children = [int(word) for path in listed for word in path.read_text(encoding="ascii").split()]
    return [number for child in children for number in [child, *descendants(child)]]


def containers():
    """The containers of fetches on the host."""
    return on(HOST, "docker", "ps", "--all", "--quiet", "--filter", "label=vllm-ascend.role=model").strip()
