"""What the integration tests share: playbooks against the rack, with their results as data."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
from typing import Any, NamedTuple

from ansible_collections.vllm_ascend.fleet.tests.lab.settings import rack

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(sys.executable).parent
INVENTORY = ROOT / "inventories/lab"
BAD = ("half-1", "plain-1")
TIMEOUT_S = 420


class Run(NamedTuple):
    """A finished playbook: exit code, all text, and the results of tasks by host (only with results=True)."""

    rc: int
    text: str
    stats: dict[str, dict[str, int]]
    tasks: list[tuple[str, str, dict[str, Any]]]

    def result(self, host: str, module: str) -> dict[str, Any]:
        """The last result of a module on a host that was not skipped."""
        found = [
            result
            for name, on, result in self.tasks
            if on == host and result.get("action", "").endswith(module) and not result.get("skipped")
        ]
        assert found, f"{module} did not run on {host}:\n{self.text[-3000:]}"
        return found[-1]

    def report(self, host: str) -> dict[str, Any]:
        """What the run knows of a host at its end: problems, plan, difference, what was applied."""
        return self.result(host, "set_fact")["ansible_facts"]["vllm_report"]

    def codes(self, host: str) -> set[str]:
        """The codes of a host's problems."""
        return {problem["code"] for problem in self.report(host)["problems"]}


def playbook(
    name: str, *arguments: str, cwd: pathlib.Path = ROOT, results: bool = True, collections: pathlib.Path | None = None
) -> Run:
    """Run ansible-playbook; the JSON callback gives the results after whatever else was printed."""
    environment = {**os.environ, "ANSIBLE_NOCOLOR": "1", "ANSIBLE_DEPRECATION_WARNINGS": "0"}
    environment["ANSIBLE_COLLECTIONS_PATH"] = str(collections or ROOT / ".ansible/collections")
    if results:
        environment["ANSIBLE_STDOUT_CALLBACK"] = "ansible.posix.json"
        # The JSON callback and community.docker come with the ansible bundle.
        environment["ANSIBLE_COLLECTIONS_PATH"] += f":{BIN.parent}/lib/python3.{sys.version_info[1]}/site-packages"
    argv = [str(BIN / "ansible-playbook"), name, *arguments]
    done = subprocess.run(
        argv, cwd=cwd, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    text = done.stdout + done.stderr
    if not results:
        return Run(done.returncode, text, {}, [])
    start = done.stdout.find('{\n    "custom_stats"')
    assert start >= 0, text[-4000:]
    data = json.loads(done.stdout[start:])
    tasks = [
        (task["task"]["name"], host, result)
        for play in data["plays"]
        for task in play["tasks"]
        for host, result in task["hosts"].items()
    ]
    return Run(done.returncode, text, data["stats"], tasks)


def site(*arguments: str, inventory: pathlib.Path = INVENTORY, **options: Any) -> Run:
    """Run site.yml against the rack."""
    return playbook("playbooks/site.yml", "-i", str(inventory), *arguments, **options)


def on(host: str, *argv: str, check: bool = True, stdin: str | None = None) -> str:
    """Run a command line in the shell of a host of the rack, over ssh; its standard output."""
    lab = ROOT / ".lab"
    command = ["ssh", "-i", str(lab / "id_ed25519"), "-o", f"UserKnownHostsFile={lab / 'known_hosts'}"]
    command += ["-o", "IdentitiesOnly=yes", f"root@{rack().host(host).address}", "--", *argv]
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=180, check=False)
    assert not check or done.returncode == 0, f"{argv} on {host}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def variables(**values: Any) -> list[str]:
    """Variables for a playbook's command line."""
    return ["-e", json.dumps(values)]


def snapshot(host: str) -> str:
    """Everything on a host that a run might change, as text."""
    listing = on(
        host,
        "find /etc /usr/local /var/lib/vllm-ascend -xdev -type f -printf '%p %s %T@\\n' 2>/dev/null | sort",
        check=False,
    )
    engine = (
        "docker ps -a --no-trunc --format '{{.ID}} {{.Names}}'; "
        "docker image ls --no-trunc --format '{{.ID}} {{.Tag}}' | sort"
    )
    return listing + on(host, engine)
