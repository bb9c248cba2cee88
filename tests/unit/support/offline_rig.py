"""A host with a fake docker for offline jobs, and jobs that fit it."""

from __future__ import annotations

import json
import pathlib
import sys

from ansible_collections.vllm_ascend.fleet.plugins.module_utils.host_control import Host
from ansible_collections.vllm_ascend.fleet.plugins.module_utils.offline_job import HEAD, Job, Prompt, folder_of

FAKE = pathlib.Path(__file__).with_name("fake_offline.py")
NAME, CONTAINER = "ascend-offline", "vllm-ascend-offline"
PROMPTS = ["Hello", "你好", "three\nlines\nof it"]
SECRET = "hf_a-very-secret-token"


class OfflineRig:
    """One host: its files below `root`, its docker in `folder`; change what a run does with `does`."""

    def __init__(self, folder):
        self.folder, self.root = folder / "bin", folder / "root"
        self.folder.mkdir()
        self.root.mkdir()
        program = self.folder / "docker"
        program.write_text(f"#!{sys.executable} -IS\n" + FAKE.read_text(encoding="utf-8"), encoding="utf-8")
        program.chmod(0o755)
        self.cli = str(program)
        self.host = Host(self.cli, str(self.root))
        self.does()

    def does(self, **scenario):
        """What a run does from now on."""
        scenario["root"] = str(self.root)
        (self.folder / "scenario.json").write_text(json.dumps(scenario), encoding="utf-8")

    def job(self, **changes):
        """A job as the plan has it."""
        mount = f"type=bind,source={folder_of(NAME)},target=/vllm-offline"
        labels = ["--label", "vllm-ascend.role=offline"]
        argv = ["docker", "run", "--rm", "--name", CONTAINER, *labels, "--mount", mount, "image", "true"]
        job = {"name": NAME, "argv": argv, "engine": {"model": "m"}, "limit_s": 60, "model_cache": {"path": "/cache"}}
        return {**job, "required_paths": [], "npus": [], **changes}

    def start(self, secrets=None, replace=False, **changes):
        """The job, ready to run."""
        return Job(self.host, self.job(**changes), {"max_tokens": 3}, secrets or {}, replace)

    def prompts(self, texts=PROMPTS):
        """Prompts as the module gets them."""
        return [Prompt(index, text) for index, text in enumerate(texts)]

    def text(self, texts=PROMPTS):
        """The same as text."""
        return "\n".join([HEAD, *(json.dumps([index, text]) for index, text in enumerate(texts)), ""])

    def leave(self, labels):
        """A container that is there already."""
        entry = {"pid": 2**22 + 1, "labels": labels}
        (self.folder / f"{CONTAINER}.container").write_text(json.dumps(entry), encoding="utf-8")

    def containers(self):
        """The containers that are there."""
        return [path.stem for path in self.folder.glob("*.container")]

    def runs(self):
        """What each run was given."""
        path = self.folder / "runs.json"
        return json.loads(path.read_text(encoding="utf-8")) if path.exists() else []

    def left(self):
        """What is left of the jobs on the host."""
        folder = pathlib.Path(self.host.path(folder_of(NAME)))
        return folder.exists()
