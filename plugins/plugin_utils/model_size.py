# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a model suits the chips that serve it: memory, heads, architecture, and whether its files are complete.

What its files say (observed.models) goes before what is known by its id (roles/npu_host/vars/rules/models.yml).
Nothing is said about what neither tells.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from .plain import Findings, listed, plain
from .serve import Argument
from .serve_options import has_flag, last_value
from .settings import INSTANCE_SETTINGS, SETTINGS

# What vLLM 0.23.0 takes of a chip's memory by itself (vllm.config.CacheConfig.gpu_memory_utilization; once it was 0.9).
UTILIZATION = 0.92
# Beyond this part of what vLLM may take, little is left for the KV cache.
CLOSE = 0.85
MIB = 1 << 20
# What huggingface_hub reads as "ask no hub" (its constants.py).
OFFLINE = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
TRUE = ("1", "on", "yes", "true")
MOST_CHIPS = 64


@dataclass(frozen=True)
class Shape:
    """What is known of a model; weights_mb in MiB as its weights are loaded, source says where it is known from."""

    model_type: str | None = None
    dtype: str | None = None
    quantization: str | None = None
    quantization_type: str | None = None
    heads: int | None = None
    kv_heads: int | None = None
    max_length: int | None = None
    weights_mb: int | None = None
    source: str = ""


@dataclass(frozen=True)
class Placing:
    """How a model is spread: ranks of tensor and pipeline parallelism, and the smallest memory of its chips in MiB."""

    tensor: int
    pipeline: int
    memory_mb: int | None


def model_requests(settings: Any) -> list[dict[str, str]]:
    """The models of the settings as vllm_instance_info looks for them: [{model, source, cache}], each once.

    settings are the role variables by name. What is not in order is left out here: deployment_plan names it.
    """
    given = plain(settings)
    if not isinstance(given, dict):
        raise TypeError("the settings must be a dictionary of role variables by name")
    defaults = {setting.name: plain(setting.default) for setting in SETTINGS}

    def value(entry: dict[str, Any], key: str) -> Any:
        name = INSTANCE_SETTINGS[key].name
        return entry.get(key) or given.get(name) or defaults[name]

    instances = given.get("vllm_instances")
    entries = [entry for entry in instances if isinstance(entry, dict)] if isinstance(instances, list) else []
    cache = given.get("vllm_model_cache") or defaults["vllm_model_cache"]
    found = []
    for entry in entries or [{}]:
        request = {"model": value(entry, "model"), "source": value(entry, "model_source"), "cache": cache}
        right = all(isinstance(item, str) for item in request.values())
        if right and request["source"] in INSTANCE_SETTINGS["model_source"].choices and request not in found:
            found.append(request)
    return found


def known_shape(rules: dict[str, Any], observed: dict[str, Any] | None, model: str, source: str) -> Shape:
    """What the files of the model on the host tell, and what is known by its id for the rest."""
    files = model_files(observed, model, source) or {}
    preset = rules["presets"].get(model, {}) if source != "local" else {}
    by_id = rules["origins"][preset["origin"]] if preset else ""
    parameters = preset.get("parameters_b")
    guess = math.ceil(parameters * 1e9 * preset.get("bits", 16) / 8 / MIB) if parameters else None
    return Shape(
        model_type=files.get("model_type") or preset.get("type"),
        dtype=files.get("dtype"),
        quantization=files.get("quantization"),
        quantization_type=files.get("quantization_type"),
        heads=files.get("num_attention_heads") or preset.get("heads"),
        kv_heads=files.get("num_key_value_heads") or preset.get("kv_heads"),
        max_length=files.get("max_position_embeddings") or preset.get("max_length"),
        weights_mb=files.get("weights_mb") or guess,
        source="its files" if files.get("config") == "ok" else by_id,
    )


def model_files(observed: dict[str, Any] | None, model: str, source: str) -> dict[str, Any] | None:
    """What was observed of a model; None when it was not looked at or is not on the host."""
    for entry in (observed or {}).get("models") or []:
        if (entry.get("model"), entry.get("source")) == (model, source) and entry.get("found"):
            return dict(entry)
    return None


def looked_for(observed: dict[str, Any] | None, model: str, source: str) -> bool:
    """Whether the observation says anything about a model, be it that it is not there."""
    models = (observed or {}).get("models") or []
    return any((entry.get("model"), entry.get("source")) == (model, source) for entry in models)


def check_files(name: str, model: str, files: dict[str, Any] | None, findings: Findings) -> None:
    """A problem for a local model that vLLM could not load: no config.json, or weight files that are not whole."""
    if files is None:
        return
    where = f"the model folder {model} of instance {name}"
    if files.get("config") in ("missing", "invalid"):
        flaw = "has no config.json" if files.get("config") == "missing" else "has a config.json that is no JSON"
        remedy = "Copy the whole model there; vLLM says of such a folder that it is no repository id."
        findings.problem("model_incomplete", f"{where} {flaw}", remedy)
    missing = files.get("missing_files")
    if missing:
        message = f"{where} lacks {len(missing)} of {files.get('weight_files')} weight files: {listed(missing)}"
        remedy = "Copy or download the rest; a text of Git LFS in their place counts as missing (git lfs pull)."
        findings.problem("model_incomplete", message, remedy)
    elif files.get("weight_files") == 0:
        message = f"{where} has no weight files"
        findings.warn("model_no_weights", message, "Copy the weights there, unless a --load-format does without them.")
    if files.get("broken_files"):
        message = f"{where} has weight files that are not as long as they say: {listed(files['broken_files'])}"
        findings.problem("model_incomplete", message, "A copy or download was cut off there: get these files again.")
    if files.get("tokenizer") is False:
        message = f"{where} has no vocabulary of a tokenizer"
        findings.warn("model_no_tokenizer", message, "Copy tokenizer.json (or its like) there, or give --tokenizer.")


def check_cache(
    name: str, model: str, files: dict[str, Any] | None, looked: bool, variables: dict[str, str], findings: Findings
) -> None:
    """A warning for a hub's model that is not whole in the cache, where the container may not ask the hub.

    files are those of the model (null: it is not there), looked says whether it was looked for.
    """
    offline = [key for key in OFFLINE if str(variables.get(key, "")).lower() in TRUE]
    if not looked or not offline:
        return
    remedy = "Fetch it on a run of model.yml, or copy the cache there; offline nothing is downloaded."
    lacking = (files or {}).get("missing_files") or (files or {}).get("broken_files")
    if files is None:
        message = f"instance {name} has {offline[0]}={variables[offline[0]]}, and {model} is not in its model cache"
        findings.warn("model_not_cached", message, remedy)
    elif lacking:
        message = f"instance {name} has {offline[0]}={variables[offline[0]]}, and of {model} the cache lacks "
        findings.warn("model_not_cached", message + listed(lacking), remedy)


def check_chips(
    name: str, shape: Shape, rules: dict[str, Any], suffix: str | None, arguments: list[Argument], findings: Findings
) -> None:
    """A problem for a model that the family's chips do not take, a warning for a length that they have no room for.

    suffix is that of the family's images, which stands for its chips.
    """
    chips = rules["chips"].get(suffix)
    if suffix is None or chips is None:
        return
    if shape.model_type in chips["architectures"]:
        message = f"instance {name}: the model is a {shape.model_type}: {chips['architectures_reason']}"
        remedy = f"Serve another model here, or this one on another family ({_origin(rules, chips, 'architectures')})."
        findings.problem("model_unsupported", message, remedy)
    kind = shape.quantization_type or ""
    if any(kind.startswith(prefix) for prefix in chips["quantization_refused"]):
        message = (
            f"instance {name}: the model is quantized as {kind}, which is not implemented for the {suffix.upper()}"
        )
        remedy = f"Quantize it as W8A8 ({_origin(rules, chips, 'quantization')})."
        findings.problem("model_unsupported", message, remedy)
    limit = chips["longest_unlimited"]
    if shape.max_length and shape.max_length > limit and last_value(arguments, "--max-model-len") is None:
        mask = shape.max_length**2 * 2 // MIB
        message = f"instance {name}: no --max-model-len, and the model takes {shape.max_length} tokens"
        message += f": the attention mask alone has {mask} MiB"
        remedy = f"Give --max-model-len among the extra arguments, such as 16384 ({_origin(rules, chips, 'length')})."
        findings.warn("model_length_unlimited", message, remedy)


def _origin(rules: dict[str, Any], chips: dict[str, Any], what: str) -> str:
    return str(rules["origins"][chips[f"{what}_origin"]])


def check_heads(name: str, shape: Shape, tensor: int, findings: Findings) -> None:
    """A problem for a tensor parallel size that the heads cannot be split into.

    Attention heads must be divisible by it (vllm.config.ModelConfig.verify_with_parallel_config); key and value heads
    too, or it by them, as they are copied where there are fewer (vllm/model_executor/models/qwen3.py).
    """
    uneven = []
    if shape.heads and shape.heads % tensor:
        uneven.append(f"{shape.heads} attention heads")
    if shape.kv_heads and shape.kv_heads % tensor and tensor % shape.kv_heads:
        uneven.append(f"{shape.kv_heads} key and value heads")
    if uneven:
        sizes = [size for size in range(1, MOST_CHIPS + 1) if _splits(shape, size)]
        message = f"instance {name}: {listed(uneven)} cannot be split into a tensor parallel size of {tensor}"
        remedy = f"Set npus and tensor_parallel_size to one of {listed(sizes)} ({shape.source})."
        findings.problem("heads_not_divisible", message, remedy)


def _splits(shape: Shape, tensor: int) -> bool:
    kv = shape.kv_heads
    return not (shape.heads and shape.heads % tensor) and not (kv and kv % tensor and tensor % kv)


def check_memory(name: str, shape: Shape, placing: Placing, arguments: list[Argument], findings: Findings) -> None:
    """A problem for weights that do not fit into what vLLM may take of a chip, a warning where little is left.

    Weights are spread over the ranks of tensor and pipeline parallelism; data parallel groups hold copies.
    """
    if shape.weights_mb is None or placing.memory_mb is None:
        return
    whole = shape.weights_mb * (2 if _doubled(shape, arguments) else 1)
    part = _utilization(arguments)
    room = placing.memory_mb * part
    share = whole / (placing.tensor * placing.pipeline)
    if share <= room * CLOSE:
        return
    chips = placing.tensor * placing.pipeline
    message = f"instance {name}: weights of {whole} MiB"
    message += f" on {chips} chips are {math.ceil(share)} MiB each, of" if chips > 1 else " on one chip, of"
    message += f" {math.floor(room)} MiB that vLLM may take there ({part:g} of {placing.memory_mb} MiB)"
    least = _least_chips(shape, whole, room, placing.pipeline)
    remedy = f"npus: {least} would do" if least else "More chips alone do not help"
    remedy += f", or take a quantized model ({shape.source})."
    if share > room:
        findings.problem("model_too_large", message, remedy)
    else:
        findings.warn("model_close", f"{message}: little is left for the KV cache", remedy)


def _doubled(shape: Shape, arguments: list[Argument]) -> bool:
    """Weights of 16 bits that are asked for in 32."""
    wide = last_value(arguments, "--dtype") in ("float32", "float")
    return wide and shape.quantization is None and shape.dtype in (None, "bfloat16", "float16")


def _utilization(arguments: list[Argument]) -> float:
    try:
        value = float(last_value(arguments, "--gpu-memory-utilization") or UTILIZATION)
    except ValueError:
        return UTILIZATION
    return value if 0 < value <= 1 else UTILIZATION


def _least_chips(shape: Shape, whole: int, room: float, pipeline: int) -> int | None:
    """The smallest number of chips with whose share there is room for a cache too."""
    sizes = [size for size in range(1, MOST_CHIPS + 1) if _splits(shape, size)]
    return next((size * pipeline for size in sizes if whole / (size * pipeline) <= room * CLOSE), None)


def offloads(arguments: list[Argument]) -> bool:
    """True when a part of the weights stays in the host's memory, or they are not loaded: nothing is said then."""
    offload = last_value(arguments, "--cpu-offload-gb")
    dummy = last_value(arguments, "--load-format") == "dummy"
    return dummy or bool(offload and offload.strip("0.")) or has_flag(arguments, "--offload-group-size")
