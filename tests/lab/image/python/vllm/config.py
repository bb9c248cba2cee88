"""Checks of the configuration that fail as vLLM's do: pydantic's messages, the hub's, the model folder's."""

from __future__ import annotations

import json
import os
import pathlib
import re
from typing import Any

from vllm.logger import log

PYDANTIC = "https://errors.pydantic.dev/2.13/v/"
CUDAGRAPH_MODES = ("NONE", "PIECEWISE", "FULL", "FULL_DECODE_ONLY", "FULL_AND_PIECEWISE")
OPTIONS = json.loads((pathlib.Path(__file__).parent / "options.json").read_text(encoding="utf-8"))
DEFAULT_MAX_MODEL_LEN = 40960


class ValidationError(ValueError):
    """pydantic's error."""


class HFValidationError(ValueError):
    """The hub's error for a name that is none."""


class LocalEntryNotFoundError(FileNotFoundError):
    """The hub's error for a model that is not in the cache."""


ValidationError.__module__ = "pydantic_core._pydantic_core"
HFValidationError.__module__ = LocalEntryNotFoundError.__module__ = "huggingface_hub.errors"


def validation_error(cls: str, *problems: tuple[str, str, str, Any]) -> ValidationError:
    """A pydantic error; each problem is (field, text, kind, value)."""
    lines = [f"{len(problems)} validation error{'s' if len(problems) > 1 else ''} for {cls}"]
    for field, text, kind, value in problems:
        if field:
            lines.append(field)
        lines.append(f"  {text} [type={kind}, input_value={_short(value)}, input_type={type(value).__name__}]")
        lines.append(f"    For further information visit {PYDANTIC}{kind}")
    return ValidationError("\n".join(lines))


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 50 else f"{text[:25]}...{text[-24:]}"


def compilation_config(value: str) -> dict[str, Any]:
    """--compilation-config. Raises ValidationError; KeyError for an unknown graph mode, as the real one does."""
    name = "CompilationConfig"
    try:
        config = json.loads(value)
    except json.JSONDecodeError as error:
        reason = "EOF while parsing an object" if error.pos >= len(value) else "key must be a string"
        column = min(error.pos, len(value) - 1) + 1
        raise validation_error(
            name, ("", f"Invalid JSON: {reason} at line 1 column {column}", "json_invalid", value)
        ) from None
    if not isinstance(config, dict):
        return {"mode": config}
    problems: list[tuple[str, str, str, Any]] = [
        (key, "Unexpected keyword argument", "unexpected_keyword_argument", config[key])
        for key in config
        if key not in OPTIONS["compilation_config"]
    ]
    for index, size in enumerate(config.get("cudagraph_capture_sizes") or []):
        if not isinstance(size, int):
            text = "Input should be a valid integer, unable to parse string as an integer"
            problems.append((f"cudagraph_capture_sizes.{index}", text, "int_parsing", size))
    if problems:
        raise validation_error(name, *problems)
    mode = config.get("cudagraph_mode")
    if mode is not None and str(mode).upper() not in CUDAGRAPH_MODES:
        raise KeyError(str(mode).upper())
    return config


def model_folder(model: str) -> pathlib.Path:
    """Where the model's config.json lies; a hub's name gets an (empty) entry in the cache. Raises the real errors."""
    if os.path.isdir(model):
        return pathlib.Path(model)
    if not re.fullmatch(r"[\w.-]+(/[\w.-]+)?", model):
        raise HFValidationError(
            f"Repo id must be in the form 'repo_name' or 'namespace/repo_name': '{model}'. "
            "Use `repo_type` argument if needed."
        )
    return _cached(model)


def _cached(model: str) -> pathlib.Path:
    if os.environ.get("VLLM_USE_MODELSCOPE", "").lower() in ("1", "true"):
        hub, folder = "ModelScope", pathlib.Path("/root/.cache/modelscope/hub/models") / model
    else:
        home = pathlib.Path(os.environ.get("HF_HOME", "/root/.cache/huggingface"))
        hub, folder = "Hugging Face", home / "hub" / f"models--{model.replace('/', '--')}" / "snapshots" / "imitation"
        if os.environ.get("HF_HUB_OFFLINE") == "1" and not (folder / "config.json").exists():
            raise LocalEntryNotFoundError(
                "Cannot find an appropriate cached snapshot folder for the specified revision on the local disk and "
                "outgoing traffic has been disabled. To enable repo look-ups and downloads online, pass "
                "'local_files_only=False' as input."
            )
    if not (folder / "config.json").exists():
        text = f"imitation: nothing is downloaded from {hub}; {folder} gets a config.json only"
        log("WARNING", "imitation.py:1", text)
        folder.mkdir(parents=True, exist_ok=True)
        config = {"architectures": ["Qwen3ForCausalLM"], "max_position_embeddings": DEFAULT_MAX_MODEL_LEN}
        (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder


def max_model_len(model: str, wanted: int | None) -> int:
    """The context length, checked against the model's. Raises the real errors."""
    path = model_folder(model) / "config.json"
    if not path.exists():
        raise validation_error(
            "ModelConfig",
            (
                "",
                f"Value error, Invalid repository ID or local directory specified: '{model}'.\n"
                "Please verify the following requirements:\n1. Provide a valid Hugging Face repository ID.\n"
                "2. Specify a local directory that contains a recognized configuration file.\n"
                "   - For Hugging Face models: ensure the presence of a 'config.json'.\n"
                "   - For Mistral models: ensure the presence of a 'params.json'.\n",
                "value_error",
                {"model": model},
            ),
        )
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        raise OSError(f"It looks like the config file at '{path}' is not a valid JSON file.") from None
    derived = int(config.get("max_position_embeddings", DEFAULT_MAX_MODEL_LEN))
    if wanted is not None and wanted > derived:
        raise validation_error(
            "ModelConfig",
            (
                "",
                f"Value error, User-specified max_model_len ({wanted}) is greater than the derived max_model_len "
                f"(max_position_embeddings={float(derived)} or model_max_length=None in model's config.json). To allow "
                "overriding this maximum, set the env var VLLM_ALLOW_LONG_MAX_MODEL_LEN=1.",
                "value_error",
                {"max_model_len": wanted},
            ),
        )
    return wanted or derived


def check(arguments: Any, npus: int) -> None:
    """What fails after parsing. Raises ValidationError, ValueError or AssertionError."""
    if not isinstance(arguments.additional_config, dict):
        value = json.dumps(arguments.additional_config)
        raise validation_error(
            "VllmConfig",
            ("additional_config.dict[any,any]", "Input should be a valid dictionary", "dict_type", value),
            (
                "additional_config.is-instance[SupportsHash]",
                "Input should be an instance of SupportsHash",
                "is_instance_of",
                value,
            ),
        )
    if arguments.max_num_seqs is not None and arguments.max_num_seqs < 1:
        text = "Input should be greater than or equal to 1"
        raise validation_error(
            "SchedulerConfig",
            ("max_num_batched_tokens", text, "greater_than_equal", arguments.max_num_seqs),
            ("max_num_seqs", text, "greater_than_equal", arguments.max_num_seqs),
        )
    world = arguments.tensor_parallel_size * arguments.pipeline_parallel_size
    if world > npus:
        raise ValueError(
            f"World size ({world}) is larger than the number of available NPUs ({npus}) in this node. If this is "
            "intentional and you are using: ray, set '--distributed-executor-backend ray'."
        )
