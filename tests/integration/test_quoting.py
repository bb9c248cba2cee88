"""Arguments, variables and mounts go through real systemd and real docker unchanged, however they are spelt."""

from __future__ import annotations

import json
import random
import shlex

import pytest
from ansible_collections.vllm_ascend.fleet.plugins.plugin_utils.container import docker_run
from ansible_collections.vllm_ascend.fleet.plugins.plugin_utils.quoting import systemd_command
from ansible_collections.vllm_ascend.fleet.tests.integration.rack import on

pytestmark = pytest.mark.lab
HOST = "a5-openeuler-1"
IMAGE = "quay.io/ascend/vllm-ascend:v0.23.0-a5-openeuler"
UNIT = "quoting-round-trip"
SIGNS = "%$\\\"'`{}[](),;:=*?~#!&|<>@^+-/ \tazAZ09äß中é"
EDGES = [
    "",
    " ",
    "%n",
    "%%",
    "$HOME",
    "${HOME}",
    "$$",
    "\\",
    "\\n",
    '"',
    "'",
    "'\"",
    ";",
    "#",
    "-",
    "--",
    '{"cudagraph_mode":"FULL_DECODE_ONLY","cudagraph_capture_sizes":[1,2,4,8]}',
    "{'a': \"b\"}",
    "a\tb",
    "~/x",
    "a=b",
]
PRINT = (
    "import json,os,sys;print(json.dumps([sys.argv[1:],{k:v for k,v in os.environ.items() if k.startswith('RT_')}]))"
)


def generated(count):
    """Words from signs that mean something to systemd, docker, a shell or CSV; the same in every run."""
    chance = random.Random(20260101)
    return ["".join(chance.choices(SIGNS, k=chance.randint(1, 24))) for _ in range(count)]


@pytest.fixture(scope="module")
def words():
    return EDGES + generated(300)


@pytest.fixture(scope="module")
def container(words):
    folders = [f"/srv/round trip/{word.replace('/', '_')}" for word in words if word.strip() and ":" not in word][::12]
    mounts = [{"source": folder, "target": f"/mnt/{i}", "read_only": True} for i, folder in enumerate(folders)]
    on(HOST, shlex.join(["mkdir", "-p", *folders]))
    return {
        "name": UNIT,
        "image": IMAGE,
        "devices": [],
        "mounts": mounts,
        "network": "bridge",
        "published_ports": [],
        "shm_size": "64m",
        "privileged": False,
        "environment": {f"RT_{i}": word for i, word in enumerate(words)},
        "env_file": None,
        "secrets": [],
        "init": True,
        "stop_signal": "SIGINT",
        "labels": {},
        "log_driver": "json-file",
        "log_options": {},
        "security_options": [],
        "runtime": None,
        "pull": "never",
        "command": ["bash", "-ic", 'exec "$@"', "--", "python3", "-c", PRINT, *words],
    }


def test_a_unit_passes_every_word_as_it_is(container, words):
    argv = docker_run(container)
    argv[0] = "/usr/bin/docker"
    text = f"[Service]\nType=oneshot\nStandardOutput=truncate:/run/{UNIT}.json\nExecStart={systemd_command(argv)}\n"
    on(HOST, f"cat > /run/systemd/system/{UNIT}.service", stdin=text)
    try:
        on(HOST, f"systemctl daemon-reload && systemctl start {UNIT}")
        arguments, environment = json.loads(on(HOST, f"cat /run/{UNIT}.json").splitlines()[-1])
    finally:
        on(HOST, f"rm -rf /run/systemd/system/{UNIT}.service '/srv/round trip'; systemctl daemon-reload", check=False)
    assert arguments == words
    assert environment == container["environment"]


def test_a_shell_passes_every_word_as_it_is(container, words):
    on(HOST, shlex.join(["mkdir", "-p", *(mount["source"] for mount in container["mounts"])]))
    said = on(HOST, shlex.join(docker_run(container)))
    on(HOST, "rm -rf '/srv/round trip'")
    assert json.loads(said.splitlines()[-1])[0] == words
