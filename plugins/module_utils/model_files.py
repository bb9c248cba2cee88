# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the files of a model on the host tell: its shape, its type, the size of its weights, and what is missing.

A model is a local folder, or an entry in the cache of a hub: hub/models--<org>--<name>/{refs,snapshots} of Hugging Face
(huggingface_hub, "Understand caching"), hub/models/<org>/<name> of ModelScope, which writes a "." in a name as "___".
Only small files are read; of weights only the size.
"""

from __future__ import annotations

import json
import os
import re
from typing import Any, Dict, List, NamedTuple, Optional

from . import documents
from .sysroot import Sysroot

HUGGINGFACE, MODELSCOPE, LOCAL = "huggingface", "modelscope", "local"
SOURCES = (HUGGINGFACE, MODELSCOPE, LOCAL)
# The argument spec of a Request, for the modules that take some.
OPTIONS: Dict[str, Dict[str, Any]] = {
    "model": {"type": "str", "required": True},
    "source": {"type": "str", "choices": list(SOURCES), "default": HUGGINGFACE},
    "cache": {"type": "path", "default": "/root/.cache"},
}
CONFIG = "config.json"
# A description of a large model's layers has some megabytes.
JSON_LIMIT = 32 << 20
MIB = 1 << 20
# A file of Git LFS that was not fetched is a text of some 130 bytes (git-lfs, docs/spec.md).
POINTER_LIMIT = 1024
POINTER = "version https://git-lfs.github.com/spec/"
# No more of these names: a folder is somebody else's, and a plan shows them.
MISSING_LIMIT = 20
_HUB_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)?")
# The part of a model of several kinds that is the language model (config.json of Qwen-VL, Kimi, InternVL).
_TEXT_PARTS = ("text_config", "llm_config", "language_config", "thinker_config")
_WEIGHTS = (".safetensors", ".bin", ".pt")
# Files beside the weights that vLLM does not load: copies in another form, optimizers.
_NOT_WEIGHTS = re.compile(r"consolidated.*|training_args\.bin|optimizer.*|scheduler.*|.*tokenizer.*")
# One of these has the words of a tokenizer (transformers, the vocabulary files of its tokenizers; mistral_common).
_TOKENIZER = re.compile(
    r"tokenizer\.json|vocab\.(json|txt)|tekken\.json|spiece\.model|.*tokenizer.*\.model|.*tiktoken.*"
)
# The longest header of a safetensors file (safetensors, MAX_HEADER_SIZE), and the number in front of it.
HEADER_LIMIT = 100_000_000
HEADER_NUMBER = 8
# ModelSlim, the quantiser of Ascend, writes this file (vllm_ascend/quantization/modelslim_config.py).
_MODELSLIM = re.compile(r"quant_model_description.*\.json")
_MODELSLIM_TYPE = re.compile(r'"model_quant_type"\s*:\s*"([A-Za-z0-9_]{1,40})"')


class Request(NamedTuple):
    """A model to look for: its id or folder, where it comes from, the host's cache folder of hubs, and the revision."""

    model: str
    source: str
    cache: str
    revision: str = "main"


def read_models(sysroot: Sysroot, requests: List[Request]) -> List[Dict[str, Any]]:
    """What is known of each model, see read_model."""
    return [read_model(sysroot, entry) for entry in requests]


def read_model(sysroot: Sysroot, wanted: Request) -> Dict[str, Any]:
    """The facts of one model; null is what its files do not tell.

    found is true when its folder is there, config is "ok", "missing" or "invalid" (null when there is no folder).
    weights_mb is what the weights take as they lie there, in MiB. missing_files are weight files that the index names
    and that are not there, or are pointers of Git LFS; null when it cannot be known, as in a replay without weights.
    broken_files are safetensors files that are shorter or longer than their header says. tokenizer says whether there
    is a vocabulary.
    """
    folder = _folder(sysroot, wanted)
    facts: Dict[str, Any] = {
        "model": wanted.model,
        "source": wanted.source,
        "folder": folder,
        "found": folder is not None,
        "config": None,
        "architectures": None,
        "model_type": None,
        "dtype": None,
        "quantization": None,
        "quantization_type": None,
        "hidden_size": None,
        "num_attention_heads": None,
        "num_key_value_heads": None,
        "num_hidden_layers": None,
        "max_position_embeddings": None,
        "weights_mb": None,
        "weight_files": None,
        "missing_files": None,
        "broken_files": None,
        "tokenizer": None,
    }
    if folder is None:
        return facts
    names = sysroot.listdir(folder)
    text = sysroot.read_text("{0}/{1}".format(folder, CONFIG), JSON_LIMIT)
    config = _parse(text)
    if text is not None:
        facts["config"] = "ok" if config is not None else "invalid"
    else:
        # vLLM loads Mistral's own form too, which has params.json instead.
        facts["config"] = None if "params.json" in names else "missing"
    facts.update(_shape(config or {}))
    facts.update(_quantization(sysroot, folder, names, config or {}))
    facts.update(_weights(sysroot, folder, names))
    facts["broken_files"] = _broken(sysroot, folder, names)
    facts["tokenizer"] = any(_TOKENIZER.fullmatch(name) for name in names) if sysroot.complete else None
    return facts


def _folder(sysroot: Sysroot, wanted: Request) -> Optional[str]:
    """The folder that holds the model's files, None when it is not there."""
    if wanted.source == LOCAL:
        places = [wanted.model.rstrip("/")] if wanted.model.startswith("/") else []
    elif not _HUB_ID.fullmatch(wanted.model):
        places = []
    elif wanted.source == MODELSCOPE:
        name = wanted.model.replace(".", "___")
        base = wanted.cache.rstrip("/") + "/modelscope"
        # Its releases had three homes for a model (modelscope/hub/utils/caching.py).
        places = [base + part + name for part in ("/hub/models/", "/models/", "/hub/")]
    else:
        places = _snapshots(sysroot, wanted)
    return next((place for place in places if place and sysroot.kind(place) == "directory"), None)


def _snapshots(sysroot: Sysroot, wanted: Request) -> List[str]:
    name = "models--" + wanted.model.replace("/", "--")
    base = "{0}/huggingface/hub/{1}".format(wanted.cache.rstrip("/"), name)
    if not re.fullmatch(r"[\w.-]+(/[\w.-]+)*", wanted.revision) or ".." in wanted.revision.split("/"):
        return []
    revision = (sysroot.read_text("{0}/refs/{1}".format(base, wanted.revision), 256) or wanted.revision).strip()
    return [base + "/snapshots/" + revision] if re.fullmatch(r"[0-9a-zA-Z]{1,64}", revision) else []


def _parse(text: Optional[str]) -> Optional[Dict[str, Any]]:
    value = documents.parsed(text)
    return value if isinstance(value, dict) else None


def _shape(config: Dict[str, Any]) -> Dict[str, Any]:
    parts = [config] + [config[key] for key in _TEXT_PARTS if isinstance(config.get(key), dict)]
    # A thinker (Qwen-Omni) has a language model inside of it.
    parts += [part["text_config"] for part in parts[1:] if isinstance(part.get("text_config"), dict)]

    def number(key: str) -> Optional[int]:
        found = [documents.integer(part.get(key)) for part in parts]
        return next((value for value in found if value is not None and value > 0), None)

    def words(key: str) -> Optional[str]:
        return next((part[key] for part in parts if isinstance(part.get(key), str)), None)

    inner = next((part for part in parts if documents.integer(part.get("num_attention_heads"))), config)
    architectures = config.get("architectures")
    heads = number("num_attention_heads")
    return {
        "architectures": documents.words(architectures) if isinstance(architectures, list) else None,
        "model_type": inner.get("model_type") if isinstance(inner.get("model_type"), str) else words("model_type"),
        "dtype": words("dtype") or words("torch_dtype"),
        "hidden_size": number("hidden_size"),
        "num_attention_heads": heads,
        # Without it every attention head has its own (transformers, PretrainedConfig of Llama and its kin).
        "num_key_value_heads": number("num_key_value_heads") or heads,
        "num_hidden_layers": number("num_hidden_layers"),
        "max_position_embeddings": number("max_position_embeddings"),
    }


def _quantization(sysroot: Sysroot, folder: str, names: List[str], config: Dict[str, Any]) -> Dict[str, Any]:
    slim = [name for name in names if _MODELSLIM.fullmatch(name)]
    if slim:
        text = sysroot.read_text("{0}/{1}".format(folder, slim[0]), JSON_LIMIT) or ""
        match = _MODELSLIM_TYPE.search(text)
        return {"quantization": "ascend", "quantization_type": match.group(1) if match else None}
    inner = documents.mapping(config.get("text_config"))
    found = documents.mapping(config.get("quantization_config") or inner.get("quantization_config"))
    method = found.get("quant_method")
    return {"quantization": method if isinstance(method, str) else None, "quantization_type": None}


def _weights(sysroot: Sysroot, folder: str, names: List[str]) -> Dict[str, Any]:
    """The size of the weights and what is missing of them, by the index where there is one."""
    index_name = next((n for n in names if n.endswith((".safetensors.index.json", ".bin.index.json"))), None)
    index = _parse(sysroot.read_text("{0}/{1}".format(folder, index_name), JSON_LIMIT)) if index_name else None
    listed = documents.mapping((index or {}).get("weight_map")).values()
    wanted = sorted({name for name in listed if isinstance(name, str) and re.fullmatch(r"[\w.-]+", name)})
    if not wanted:
        wanted = _weight_names(names)
    sizes = {name: _size(sysroot, "{0}/{1}".format(folder, name)) for name in wanted}
    missing: Optional[List[str]] = [name for name, size in sizes.items() if size is None]
    if missing and not sysroot.complete and len(missing) == len(sizes):
        # Nobody copies weights: here it says nothing that there are none.
        missing = None
    total = documents.integer(documents.mapping((index or {}).get("metadata")).get("total_size"))
    if not total or total < 0:
        total = None if missing is None or missing else sum(size or 0 for size in sizes.values())
    return {
        "weights_mb": -(-total // MIB) if total else None,
        "weight_files": len(sizes),
        "missing_files": missing[:MISSING_LIMIT] if missing is not None else None,
    }


def _broken(sysroot: Sysroot, folder: str, names: List[str]) -> Optional[List[str]]:
    """Safetensors files that were cut; null in a replay that did not record it, since nobody copies weights."""
    wanted = [name for name in names if name.endswith(".safetensors")]

    def probe() -> List[str]:
        return [name for name in wanted if weight_flaw(sysroot.path("{0}/{1}".format(folder, name)))]

    found = sysroot.live("broken files of " + folder, probe) if wanted else []
    return documents.words(found)[:MISSING_LIMIT] if isinstance(found, list) else None


def weight_flaw(path: str) -> Optional[str]:
    """What is wrong with the length of a safetensors file, by its header; None when it is right, or not to be read.

    Such a file has the length of the header (8 bytes, little endian), the header (JSON), and the tensors, the last of
    which ends where the file does (safetensors, "Format").
    """
    try:
        size = os.stat(path).st_size
        with open(path, "rb") as stream:
            number = stream.read(HEADER_NUMBER)
            length = int.from_bytes(number, "little")
            if len(number) < HEADER_NUMBER or length > min(HEADER_LIMIT, size - HEADER_NUMBER):
                return None if number.startswith(POINTER[:HEADER_NUMBER].encode()) else "ends within its header"
            header = json.loads(stream.read(length).decode("utf-8"))
        ends = [entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"]
        wanted = HEADER_NUMBER + length + max(ends or [0])
    except OSError:
        return None
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return "has a header that cannot be read"
    return None if size == wanted else "has {0} bytes where its header says {1}".format(size, wanted)


def _weight_names(names: List[str]) -> List[str]:
    """The weight files of a folder without an index: those of the first form that there is."""
    for suffix in _WEIGHTS:
        found = [name for name in names if name.endswith(suffix) and not _NOT_WEIGHTS.fullmatch(name)]
        if found:
            return found
    return []


def _size(sysroot: Sysroot, path: str) -> Optional[int]:
    """The size of a weight file in bytes; None when it is not there or only a pointer of Git LFS."""
    if sysroot.kind(path) != "file":
        return None
    status = sysroot.stat(path)
    if status is None:
        return None
    if status.st_size <= POINTER_LIMIT and (sysroot.read_text(path, POINTER_LIMIT) or "").startswith(POINTER):
        return None
    return status.st_size
