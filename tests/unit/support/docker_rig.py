"""A folder with a fake docker and systemctl, and the scenario that they play."""

from __future__ import annotations

import json
import pathlib
import sys
from typing import Any

FAKE = pathlib.Path(__file__).with_name("fake_docker.py")
CANNOT_CONNECT = "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?"


def sha(number):
    """An image id or digest that is told apart by its number."""
    return f"sha256:{number:064x}"


def image(number, platform="linux/arm64", **more):
    """An image with the id sha(number) and, in a registry, the digest sha(number + 1000)."""
    return dict({"id": sha(number), "digest": sha(number + 1000), "platform": platform}, **more)


class DockerRig:
    """The fake engine of one test: change `scenario` before a run, read `state()` and `calls()` after it."""

    def __init__(self, folder, monkeypatch, settings):
        self.folder = folder / "bin"
        self.folder.mkdir()
        for name in ("docker", "systemctl"):
            program = self.folder / name
            # Without site-packages it starts twice as fast; the tests call it some thousand times.
            program.write_text(f"#!{sys.executable} -IS\n" + FAKE.read_text(encoding="utf-8"), encoding="utf-8")
            program.chmod(0o755)
        self.cli = str(self.folder / "docker")
        self.certs = folder / "certs.d"
        self.drop_in = folder / "docker.service.d" / "vllm-ascend-proxy.conf"
        self.home = folder / "home"
        monkeypatch.setattr(settings, "CERTS", str(self.certs))
        monkeypatch.setattr(settings, "DROP_IN", str(self.drop_in))
        monkeypatch.setenv("PATH", str(self.folder), prepend=":")
        monkeypatch.setenv("DOCKER_CONFIG", str(self.home))
        root = folder / "docker-root"
        root.mkdir()
        self.scenario: dict[str, Any] = {
            "images": {},
            "tags": {},
            "in_use": [],
            "registry": {},
            "archives": {},
            "instances": [],
            "down": "",
            "platform_flag": True,
            "no_such_image": "Error: No such image: {}",
            "systemctl_fails": {},
            "daemon_json": {},
            "drop_in": str(self.drop_in),
            "info": {
                "ServerVersion": "20.10.24+dfsg1",
                "ExperimentalBuild": False,
                "DockerRootDir": str(root),
                "ContainersRunning": 0,
                "LiveRestoreEnabled": False,
                "HttpProxy": "",
                "HttpsProxy": "",
                "NoProxy": "",
            },
        }

    def has(self, number, *tags, platform="linux/arm64", digests=(), in_use=False):
        """The engine has this image, under these tags."""
        self.scenario["images"][sha(number)] = dict(image(number, platform), digests=list(digests))
        self.scenario["tags"].update(dict.fromkeys(tags, sha(number)))
        self.scenario["in_use"] += [sha(number)] if in_use else []

    def offers(self, reference, answer):
        """A registry gives this image for a reference, or fails with this text."""
        self.scenario["registry"][reference] = {"stderr": answer} if isinstance(answer, str) else answer

    def write(self):
        """Put the scenario where the programs read it."""
        (self.folder / "scenario.json").write_text(json.dumps(self.scenario), encoding="utf-8")

    def state(self):
        """The scenario as the programs left it."""
        return json.loads((self.folder / "scenario.json").read_text(encoding="utf-8"))

    def store(self):
        """The tags, and the ids of all images, of the engine."""
        state = self.state()
        return state["tags"], sorted(state["images"])

    def records(self):
        """Every call, with the login that it saw."""
        path = self.folder / "calls.jsonl"
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []

    def calls(self, *words):
        """The arguments of every call that begins with these words; all calls without words."""
        argvs = [" ".join(record["argv"]) for record in self.records()]
        return [argv for argv in argvs if argv.startswith(" ".join(words))]
