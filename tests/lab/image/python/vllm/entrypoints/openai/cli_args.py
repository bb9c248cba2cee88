"""`vllm serve`'s options: a part of the real ones, by kind."""

from __future__ import annotations

import argparse
import json
from typing import Any

from vllm.config import OPTIONS, ValidationError, compilation_config


def make_arg_parser(parser: Any) -> Any:
    """Add the options to a parser and return it."""
    parser.add_argument("model_tag", nargs="?", help="The model tag to serve (optional if specified in config)")
    parser.add_argument("--dtype", choices=OPTIONS["dtype"], default="auto")
    parser.add_argument("--compilation-config", "-cc", type=_compilation_config, default={})
    parser.add_argument("--additional-config", type=_loads, default={})
    kinds: dict[str, dict[str, Any]] = {
        "string": {"type": str},
        "strings": {"nargs": "+"},
        "integer": {"type": int},
        "number": {"type": float},
        "object": {"type": _loads},
        "switch": {"action": argparse.BooleanOptionalAction, "default": None},
    }
    for kind, settings in kinds.items():
        for name in OPTIONS["options"][kind]:
            short = OPTIONS["short"].get(name)
            parser.add_argument(*[f"--{name}", *([short] if short else [])], **settings)
    parser.set_defaults(port=8000, tensor_parallel_size=1, pipeline_parallel_size=1, shutdown_timeout=0)
    return parser


def _compilation_config(value: str) -> dict[str, Any]:
    try:
        return compilation_config(value)
    except ValidationError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _loads(value: str) -> Any:
    try:
        return json.loads(value)
    except json.JSONDecodeError:
        raise argparse.ArgumentTypeError(f"Value {value} cannot be converted to {json.loads}.") from None
