"""The program of an offline job, with a package that stands for vLLM."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from ansible_collections.vllm_ascend.fleet.plugins.module_utils import offline_program
from ansible_collections.vllm_ascend.fleet.plugins.module_utils.offline_job import program_text

VLLM = """\
import json, types

class SamplingParams:
    def __init__(self, temperature=1.0, max_tokens=16, structured_outputs=None):
        self.max_tokens, self.structured_outputs = max_tokens, structured_outputs

class LLM:
    def __init__(self, model, **more):
        from vllm.engine.arg_utils import EngineArgs
        print("LLM", json.dumps([model, more, EngineArgs.get_batch_defaults(1)]))

    def generate(self, prompts, params, use_tqdm=True):
        if "die" in prompts:
            raise RuntimeError("EngineCore died")
        print("generate", len(prompts), use_tqdm, type(params.structured_outputs).__name__)
        ids = list(range(params.max_tokens))
        first = lambda p: types.SimpleNamespace(text=" of " + p, token_ids=ids, finish_reason="length")
        return [types.SimpleNamespace(prompt_token_ids=p.split(), outputs=[first(p)]) for p in prompts]
"""
FILES = {
    "vllm/__init__.py": VLLM,
    "vllm/sampling_params.py": "class StructuredOutputsParams:\n    def __init__(self, regex): self.regex = regex\n",
    "vllm/engine/__init__.py": "",
    "vllm/engine/arg_utils.py": (
        "class EngineArgs:\n    @classmethod\n    def get_batch_defaults(cls, size):\n"
        "        return {'llm': 8192, 'server': 2048}, {'llm': 256, 'server': 256}\n"
    ),
    "vllm/usage/__init__.py": "",
    "vllm/usage/usage_lib.py": "class UsageContext:\n    LLM_CLASS, OPENAI_API_SERVER = 'llm', 'server'\n",
}


@pytest.fixture
def run(tmp_path):
    site, folder = tmp_path / "site", tmp_path / "job"
    folder.mkdir()
    for name, text in FILES.items():
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_text(text, encoding="utf-8")
    (folder / "job.py").write_text(program_text(), encoding="utf-8")

    def call(prompts, engine=None, sampling=None):
        request = {
            "prompts": [{"index": index, "prompt": prompt} for index, prompt in prompts],
            "engine": engine or {"model": "m"},
            "sampling": sampling or {"max_tokens": 3},
        }
        (folder / "request.json").write_text(json.dumps(request), encoding="utf-8")
        argv = [sys.executable, "-S", str(folder / "job.py"), str(folder)]
        environment = {"PYTHONPATH": str(site)}
        done = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=60, check=False)
        results = folder / "results.jsonl"
        text = results.read_text(encoding="utf-8") if results.exists() else ""
        return done, [json.loads(line) for line in text.splitlines()]

    return call


def test_each_prompt_gets_a_line_and_the_last_says_that_all_are_there(run):
    done, lines = run([(4, "a b"), (7, "Ü")])
    assert done.returncode == 0, done.stderr
    counts = {"finish_reason": "length", "output_tokens": 3}
    assert lines == [
        {"index": 4, "text": " of a b", "prompt_tokens": 2, **counts},
        {"index": 7, "text": " of Ü", "prompt_tokens": 1, **counts},
        {"done": True},
    ]


def test_the_engine_gets_its_arguments_and_the_defaults_of_the_server(run):
    done, _lines = run([(0, "a")], engine={"model": "m", "dtype": "float16", "compilation_config": {"x": [1]}})
    said = json.loads(done.stdout.splitlines()[0][len("LLM ") :])
    assert said[:2] == ["m", {"dtype": "float16", "compilation_config": {"x": [1]}}]
    assert [table["llm"] for table in said[2]] == [2048, 256]


def test_what_came_before_a_death_stays(run):
    count = offline_program.CHUNK
    done, lines = run([(index, "x") for index in range(count)] + [(count, "die")])
    assert done.returncode == 1
    assert [line["index"] for line in lines] == list(range(count))


def test_structured_outputs_become_an_object_of_vllm(run):
    done, _lines = run([(0, "a")], sampling={"structured_outputs": {"regex": "x+"}})
    assert "generate 1 False StructuredOutputsParams" in done.stdout


def test_a_vllm_without_these_defaults_is_left_as_it_is(monkeypatch):
    monkeypatch.setitem(sys.modules, "vllm", None)
    assert offline_program.as_the_server() is False


def test_an_engine_that_is_started_by_spawn_may_import_the_program(run, tmp_path):
    names = {"__name__": "__mp_main__"}
    exec(compile(program_text(), "job.py", "exec"), names)
    assert callable(names["main"])
