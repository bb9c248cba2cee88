"""The commands of README and docs, run as a reader types them: in a project folder, in a checkout, on a host.

Only what stands for the reader's own is exchanged: the example addresses, and what waits for a person.
"""

from __future__ import annotations

import os
import subprocess

import pytest
import yaml
from ansible_collections.vllm_ascend.fleet.tests import documentation
from ansible_collections.vllm_ascend.fleet.tests.integration.rack import BIN, ROOT, on

pytestmark = pytest.mark.lab
HOSTS = {"a2-node-01": "a3-openeuler-1", "pro-node-01": "pro-openeuler-1"}
# The README's first endpoint is that of a host that other tests have meanwhile.
ADDRESSES = {"192.0.2.11": "10.83.0.12", "192.0.2.41": "10.83.0.14", "10.83.0.11": "10.83.0.12"}
PERSONAL = {
    "docker exec -it vllm-ascend bash": "docker exec -i vllm-ascend bash -c 'command -v vllm'",
    "journalctl -u vllm-ascend -f": "timeout 3 journalctl -u vllm-ascend -f || test $? = 124",
    "root@10.83.0.12": "root@10.83.0.12 true",
}
# What a rack's owner has set already: no registry but one is there, and simulated hosts need no half hour.
SETTINGS = {
    "ansible_python_interpreter": "/usr/bin/python3",
    "vllm_image_registries": ["quay.io"],
    "vllm_start_timeout": 90,
    "vllm_node_timeout": 120,
    "vllm_stop_timeout": 20,
}
# What a document shows of the answer.
PROMISED = {
    "README.md": [
        "http://10.83.0.12:8000/v1",
        "http://10.83.0.14:8000/v1",
        "docker run: docker run --pull never",
        "Qwen/Qwen3-0.6B",
    ],
    "docs/operations.md": ["active (running)", "results.jsonl"],
    "docs/troubleshooting.md": ["recorded/manifest.json", "family: atlas_a3"],
}
LIMIT_S = 240


def exchanged(text):
    """A text with the rack's addresses, and with an end to what waits for a person."""
    for words in (ADDRESSES, PERSONAL):
        for old, new in words.items():
            text = text.replace(old, new)
    return text


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """An empty project folder with the archive of `make build` in it, as the README begins."""
    folder = tmp_path_factory.mktemp("project")
    build = [BIN / "ansible-galaxy", "collection", "build", "--output-path", folder]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (folder / "group_vars").mkdir()
    (folder / "group_vars/all.yml").write_text(yaml.safe_dump(SETTINGS))
    return folder


def run(block, project):
    """Run a block's commands where its document says; what they print. AssertionError when one fails."""
    script = "set -euo pipefail\n" + "\n".join(documentation.commands(exchanged(block.text))) + "\n"
    if block.place == "host":
        return on(HOSTS["a2-node-01"], "bash", "-s", stdin=script)
    lab = ROOT / ".lab"
    environment = {
        **os.environ,
        "PATH": f"{BIN}:{os.environ['PATH']}",
        "ANSIBLE_NOCOLOR": "1",
        "ANSIBLE_COLLECTIONS_PATH": str(project / "collections"),
        "ANSIBLE_PRIVATE_KEY_FILE": str(lab / "id_ed25519"),
        "ANSIBLE_SSH_COMMON_ARGS": f"-o UserKnownHostsFile={lab / 'known_hosts'} -o IdentitiesOnly=yes",
    }
    done = subprocess.run(
        ["bash", "-s"], cwd=ROOT if block.place == "checkout" else project, env=environment, input=script,
        capture_output=True, text=True, timeout=LIMIT_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{block.where}:\n{script}\n{done.stdout[-4000:]}\n{done.stderr[-2000:]}"
    return done.stdout + done.stderr


@pytest.mark.parametrize("document", documentation.DOCUMENTS)
def test_the_commands_of_a_document_do_what_it_says(document, project):
    printed = ""
    blocks = [block for block in documentation.blocks() if block.document == document]
    # What is asked of a running service comes first in the README, which has the simulated rack before the project.
    for block in sorted(blocks, key=lambda block: block.place == "checkout"):
        if block.file:
            (project / block.file).write_text(exchanged(block.text))
        elif block.place:
            printed += run(block, project)
    assert [words for words in PROMISED.get(document, []) if words not in printed] == []
