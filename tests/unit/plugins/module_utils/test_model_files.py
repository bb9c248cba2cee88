"""What the files of a model tell."""

from __future__ import annotations

import json

import pytest
from ansible_collections.vllm_ascend.fleet.plugins.module_utils.model_files import (
    Request,
    read_model,
    read_models,
    weight_flaw,
)
from ansible_collections.vllm_ascend.fleet.plugins.module_utils.sysroot import Sysroot

from tests.unit.support.recorded_hosts import RecordedHost

MIB = 1 << 20
FOLDER = "/srv/models/m"
QWEN3 = {
    "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "torch_dtype": "bfloat16", "hidden_size": 4096,
    "num_attention_heads": 32, "num_key_value_heads": 8, "num_hidden_layers": 36, "max_position_embeddings": 40960,
}  # fmt: skip


class Folder:
    """A model's folder on a host below tmp_path."""

    def __init__(self, tmp_path, folder=FOLDER):
        self.host, self.folder = RecordedHost(tmp_path), folder
        (tmp_path / folder.lstrip("/")).mkdir(parents=True, exist_ok=True)

    def put(self, name, content):
        self.host.file(f"{self.folder}/{name}", content if isinstance(content, str) else json.dumps(content))
        return self

    def weights(self, *names, size=3 * MIB):
        for name in names:
            path = self.host.root / self.folder.lstrip("/") / name
            path.write_bytes(b"")
            with open(path, "r+b") as handle:
                handle.truncate(size)
        return self

    def index(self, *names, total=None):
        document = {"weight_map": {f"layer.{number}": name for number, name in enumerate(names)}}
        if total is not None:
            document["metadata"] = {"total_size": total}
        return self.put("model.safetensors.index.json", document)

    def read(self, model=FOLDER, source="local", cache="/root/.cache"):
        return read_model(Sysroot(str(self.host.root)), Request(model, source, cache))


def test_a_whole_local_model(tmp_path):
    folder = Folder(tmp_path).put("config.json", QWEN3).weights("a-1.safetensors", "a-2.safetensors", "tokenizer.bin")
    facts = folder.index("a-1.safetensors", "a-2.safetensors").read()
    assert facts == {
        "model": FOLDER, "source": "local", "folder": FOLDER, "found": True, "config": "ok",
        "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "dtype": "bfloat16", "quantization": None,
        "quantization_type": None, "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8,
        "num_hidden_layers": 36, "max_position_embeddings": 40960, "weights_mb": 6, "weight_files": 2,
        "missing_files": [], "broken_files": None, "tokenizer": None,
    }  # fmt: skip


def test_a_model_that_is_not_there_invents_nothing(tmp_path):
    facts = Folder(tmp_path, "/srv").read("/srv/none")
    assert facts["found"] is False
    assert {value for key, value in facts.items() if key not in ("model", "source", "found")} == {None}


@pytest.mark.parametrize(
    ("content", "state"),
    [(None, "missing"), ("{", "invalid"), ("[1]", "invalid"), ("[" * 5000, "invalid"), ("{}", "ok")],
)
def test_the_state_of_config_json(tmp_path, content, state):
    folder = Folder(tmp_path)
    if content is not None:
        folder.put("config.json", content)
    assert folder.read()["config"] == state


def test_a_model_in_the_form_of_mistral_needs_no_config_json(tmp_path):
    assert Folder(tmp_path).put("params.json", {}).read()["config"] is None


@pytest.mark.parametrize("part", ["text_config", "llm_config", "language_config"])
def test_the_language_model_inside_of_another(tmp_path, part):
    config = {"model_type": "qwen3_vl", "architectures": ["Qwen3VL"], part: {**QWEN3, "model_type": "kimi_k2"}}
    facts = Folder(tmp_path).put("config.json", config).read()
    assert (facts["model_type"], facts["num_attention_heads"], facts["dtype"]) == ("kimi_k2", 32, "bfloat16")


def test_heads_of_one_number(tmp_path):
    config = {"num_attention_heads": 12, "num_key_value_heads": None, "dtype": "float16"}
    facts = Folder(tmp_path).put("config.json", config).read()
    assert (facts["num_attention_heads"], facts["num_key_value_heads"], facts["dtype"]) == (12, 12, "float16")


def test_values_of_other_types_are_not_taken(tmp_path):
    config = {
        "num_attention_heads": "32",
        "hidden_size": True,
        "architectures": "x",
        "torch_dtype": 16,
        "model_type": [],
    }
    facts = Folder(tmp_path).put("config.json", config).read()
    keys = ("num_attention_heads", "hidden_size", "architectures", "dtype", "model_type")
    assert [facts[key] for key in keys] == [None] * 5


def test_missing_and_unfetched_weights_are_named(tmp_path):
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"
    folder = Folder(tmp_path).put("config.json", QWEN3).weights("a.safetensors").put("b.safetensors", pointer)
    facts = folder.index("a.safetensors", "b.safetensors", "c.safetensors", "../../etc/passwd").read()
    assert facts["missing_files"] == ["b.safetensors", "c.safetensors"]
    assert (facts["weight_files"], facts["weights_mb"]) == (3, None)


def test_the_index_knows_the_size_of_what_is_missing(tmp_path):
    folder = Folder(tmp_path).weights("a.safetensors").index("a.safetensors", "b.safetensors", total=9 * MIB + 1)
    facts = folder.read()
    assert (facts["weights_mb"], facts["missing_files"]) == (10, ["b.safetensors"])


def test_in_a_replay_without_weights_it_is_not_known_what_is_missing(tmp_path):
    facts = Folder(tmp_path).index("a.safetensors", "b.safetensors", total=9 * MIB).read()
    assert (facts["weights_mb"], facts["missing_files"]) == (9, None)


def test_weights_without_an_index(tmp_path):
    names = ("model.safetensors", "consolidated.safetensors", "pytorch_model.bin")
    facts = Folder(tmp_path).weights(*names).read()
    assert (facts["weights_mb"], facts["weight_files"], facts["missing_files"]) == (3, 1, [])


def test_a_folder_without_weights(tmp_path):
    facts = Folder(tmp_path).put("config.json", QWEN3).read()
    assert (facts["weights_mb"], facts["weight_files"], facts["missing_files"]) == (None, 0, [])


@pytest.mark.parametrize(
    ("name", "content", "found"),
    [
        ("quant_model_description.json", {"model_quant_type": "W8A8"}, ("ascend", "W8A8")),
        (
            "quant_model_description_w4a8.json",
            '{"model_quant_type" : "W4A8_DYNAMIC", broken',
            ("ascend", "W4A8_DYNAMIC"),
        ),
        ("quant_model_description.json", {}, ("ascend", None)),
        ("other.json", {"model_quant_type": "W8A8"}, ("fp8", None)),
    ],
)
def test_quantization(tmp_path, name, content, found):
    config = {**QWEN3, "quantization_config": {"quant_method": "fp8"}}
    facts = Folder(tmp_path).put("config.json", config).put(name, content).read()
    assert (facts["quantization"], facts["quantization_type"]) == found


def test_the_cache_of_hugging_face(tmp_path):
    base = "/data/cache/huggingface/hub/models--Qwen--Qwen3-8B"
    folder = Folder(tmp_path, f"{base}/blobs").put("abc", QWEN3).weights("def")
    snapshot = tmp_path / f"{base}/snapshots/0123abc".lstrip("/")
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").symlink_to("../../blobs/abc")
    (snapshot / "model.safetensors").symlink_to("../../blobs/def")
    folder.host.file(f"{base}/refs/main", "0123abc\n")
    facts = folder.read("Qwen/Qwen3-8B", "huggingface", "/data/cache/")
    assert facts["folder"] == f"{base}/snapshots/0123abc"
    assert (facts["config"], facts["num_attention_heads"], facts["weights_mb"]) == ("ok", 32, 3)
    assert folder.read("Qwen/Qwen3-4B", "huggingface", "/data/cache")["found"] is False


@pytest.mark.parametrize("home", ["hub/models", "models", "hub"])
def test_the_cache_of_modelscope(tmp_path, home):
    folder = Folder(tmp_path, f"/root/.cache/modelscope/{home}/Qwen/Qwen2___5-7B").put("config.json", QWEN3)
    assert folder.read("Qwen/Qwen2.5-7B", "modelscope")["folder"].endswith(f"/{home}/Qwen/Qwen2___5-7B")


@pytest.mark.parametrize("revision", ["", "../../../../etc", "a\nb", "x" * 300])
def test_a_revision_that_leads_elsewhere_is_not_followed(tmp_path, revision):
    base = "/root/.cache/huggingface/hub/models--a--b"
    folder = Folder(tmp_path, base).put("refs/main", revision)
    assert folder.read("a/b", "huggingface")["found"] is False


@pytest.mark.parametrize("model", ["../../etc", "a/../b", "/abs", "a b", ""])
def test_a_name_that_is_no_hub_id_is_not_looked_for(tmp_path, model):
    folder = Folder(tmp_path, "/root/.cache/modelscope/hub/models").put("etc/config.json", QWEN3)
    assert folder.read(model, "modelscope")["found"] is False


def test_several_models_come_in_their_order(tmp_path):
    root = Sysroot(str(Folder(tmp_path).host.root))
    requests = [Request("b/c", "huggingface", "/c"), Request(FOLDER, "local", "/c")]
    assert [entry["model"] for entry in read_models(root, requests)] == ["b/c", FOLDER]


def safetensors(size=100, header=None):
    """The bytes of such a file with one tensor of that many bytes."""
    text = json.dumps(header or {"a": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}).encode()
    return len(text).to_bytes(8, "little") + text + bytes(size)


@pytest.mark.parametrize(
    ("content", "flaw"),
    [
        (safetensors(), None),
        (safetensors(0, {"__metadata__": {"format": "pt"}}), None),
        (safetensors()[:-1], "bytes where its header says"),
        (safetensors() + b"x", "bytes where its header says"),
        (safetensors()[:40], "ends within its header"),
        (b"", "ends within its header"),
        (bytes(100), "cannot be read"),
        (safetensors(header={"a": 1}), "cannot be read"),
        (b"version https://git-lfs.github.com/spec/v1", None),
    ],
)
def test_a_file_of_weights_that_was_cut_is_known_by_its_header(tmp_path, content, flaw):
    path = tmp_path / "model.safetensors"
    path.write_bytes(content)
    found = weight_flaw(str(path))
    assert (found is None) if flaw is None else flaw in found


def test_a_file_that_is_not_there_has_no_flaw(tmp_path):
    assert weight_flaw(str(tmp_path / "none.safetensors")) is None


def test_what_a_live_folder_tells_of_its_files(tmp_path):
    for name, content in {
        "b.safetensors": safetensors()[:-1],
        "a.safetensors": safetensors(),
        "vocab.json": b"",
    }.items():
        (tmp_path / name).write_bytes(content)
    facts = read_model(Sysroot("/"), Request(str(tmp_path), "local", "/root/.cache"))
    assert (facts["broken_files"], facts["tokenizer"]) == (["b.safetensors"], True)
    (tmp_path / "vocab.json").unlink()
    assert read_model(Sysroot("/"), Request(str(tmp_path), "local", "/root/.cache"))["tokenizer"] is False
