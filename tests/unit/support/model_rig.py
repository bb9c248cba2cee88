"""A host with a fake docker for fetches of models, and jobs that fit it."""

from __future__ import annotations

import json
import os
import pathlib
import sys

from ansible_collections.vllm_ascend.fleet.plugins.module_utils import model_fetch
from ansible_collections.vllm_ascend.fleet.plugins.module_utils.host_control import Host
from ansible_collections.vllm_ascend.fleet.plugins.module_utils.model_fetch import Options

FAKE = pathlib.Path(__file__).with_name("fake_fetch.py")
NAME, CONTAINER = "0123456789ab", "vllm-model-0123456789ab"
SECRET = "hf_a-very-secret-token"
REVISION = "c" * 40
FILES = {"config.json": "{}", "tokenizer.json": "{}", "model.bin": "weights"}
NO = {"ok": False}
CAME = {"ok": True, "client": "huggingface_hub 1.21.0", "revision": REVISION, "files": None}


class ModelRig:
    """One host below a folder, whose docker does what `does` says."""

    def __init__(self, folder):
        self.folder, self.root = folder / "bin", folder / "root"
        for path in (self.folder, self.root / "var/lib"):
            path.mkdir(parents=True)
        program = self.folder / "docker"
        text = FAKE.read_text(encoding="utf-8")
        program.write_text(f"#!{sys.executable} -IS\n" + text, encoding="utf-8")
        program.chmod(0o755)
        self.cli = str(program)
        self.host = Host(self.cli, str(self.root))
        self.does()

    def does(self, **scenario):
        """What a run does from now on."""
        scenario.setdefault("result", CAME)
        scenario.setdefault("makes", self.model())
        text = json.dumps(dict(scenario, root=str(self.root)))
        (self.folder / "scenario.json").write_text(text, encoding="utf-8")

    def model(self, names=FILES):
        """The files of the model in the cache, by their paths."""
        base = self.root / "srv/cache/huggingface/hub/models--org--m"
        files = {str(base / "snapshots" / REVISION / name): FILES[name] for name in names}
        return dict(files, **{str(base / "refs/main"): REVISION})

    def job(self, **changes):
        """A job as the plan has it."""
        env = f"{model_fetch.FOLDER}/{NAME}/{model_fetch.ENV}"
        labels = ["--label", "vllm-ascend.role=model"]
        argv = ["docker", "run", "--rm", "--name", CONTAINER, *labels, "--env-file", env, "image", "true"]
        job = {"name": NAME, "model": "org/m", "source": "huggingface", "cache": "/srv/cache", "revision": None}
        return {**job, "instances": ["a"], "image": "image", "argv": argv, "limit_s": 60, "copy_from": None, **changes}

    def get(self, *, secrets=None, changes=None, **options):
        """What get() returns for a job."""
        return model_fetch.get(self.host, self.job(**(changes or {})), {"a": secrets or {}}, Options(**options))

    def runs(self):
        """What each run was given."""
        path = self.folder / "runs.json"
        return json.loads(path.read_text(encoding="utf-8")) if path.exists() else []

    def left(self):
        """What is in the folder of fetches."""
        folder = self.root / model_fetch.FOLDER.lstrip("/")
        return sorted(os.listdir(str(folder))) if folder.exists() else []
