"""How the real vLLM reads arguments, without starting an engine: `python configure.py` with the packages' Python.

Standard input: a JSON list of {"serve": [words after `vllm serve`]}, {"llm": {keyword arguments of LLM(…)}} and
{"flags": true}, the first two with the image's "device_type" (A2, A3, _310P or A5; A2). With "program", the text of the
offline job's program, its as_the_server() comes before LLM(…).
Standard output: its last line is a JSON list with an entry for each: {"config": {"section.field": value, …}}, or
{"exit": code or null, "error": text}; for flags {"flags": {"--flag": [choices] or null, …}, "engine": [arguments of the
engine], "sampling": [arguments of SamplingParams]}.
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import io
import json
import sys
from typing import Any
from unittest import mock

SECTIONS = (
    "model_config",
    "cache_config",
    "parallel_config",
    "scheduler_config",
    "compilation_config",
    "load_config",
    "structured_outputs_config",
)


def flags() -> dict[str, list[Any] | None]:
    """The long names of what `vllm serve` takes, without the --no- forms, each with its choices."""
    _command, _parser, serving = _parsers()
    found = {}
    for action in serving._actions:
        for name in action.option_strings:
            if name.startswith("--") and not name.startswith("--no-") and name != "--help":
                found[name] = None if action.choices is None else list(action.choices)
    return found


def engine_names() -> list[str]:
    """The names of the engine's arguments, which LLM(…) takes."""
    from vllm.engine.arg_utils import EngineArgs

    return [field.name for field in dataclasses.fields(EngineArgs)]


def sampling_names() -> list[str]:
    """The names of SamplingParams that are not its own business."""
    from vllm import SamplingParams

    return [name for name in SamplingParams.__struct_fields__ if not name.startswith("_")]


def _parsers() -> tuple[Any, Any, Any]:
    from vllm.entrypoints.cli.serve import ServeSubcommand
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    parser = FlexibleArgumentParser(prog="vllm")
    command = ServeSubcommand()
    return command, parser, command.subparser_init(parser.add_subparsers(required=False, dest="subparser"))


def serve(words: list[str]) -> Any:
    """The engine's configuration as `vllm serve` makes it."""
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.usage.usage_lib import UsageContext

    command, parser, _serving = _parsers()
    arguments = parser.parse_args(["serve", *words])
    command.validate(arguments)
    if arguments.model_tag is not None:
        arguments.model = arguments.model_tag
    engine = AsyncEngineArgs.from_cli_args(arguments)
    return engine.create_engine_config(usage_context=UsageContext.OPENAI_API_SERVER)


class _Caught(Exception):
    """Carries the engine's arguments out of LLM.__init__, which would start the engine next."""


def llm(arguments: dict[str, Any], program: str | None = None) -> Any:
    """The engine's configuration as LLM(…) makes it."""
    from vllm import LLM
    from vllm.engine.arg_utils import EngineArgs
    from vllm.v1.engine.llm_engine import LLMEngine

    def caught(engine_args: Any, usage_context: Any, **_options: Any) -> None:
        raise _Caught(engine_args, usage_context)

    asked = EngineArgs.__dict__["get_batch_defaults"]
    with (
        mock.patch.object(LLMEngine, "from_engine_args", caught),
        mock.patch.object(EngineArgs, "get_batch_defaults", asked),
    ):
        if program is not None:
            names: dict[str, Any] = {"__name__": "program"}
            exec(program, names)
            assert names["as_the_server"]()
        try:
            LLM(**arguments)
        except _Caught as carried:
            engine_args, usage_context = carried.args
            return engine_args.create_engine_config(usage_context=usage_context)
    raise AssertionError("LLM() did not ask for an engine")


def flat(config: Any) -> dict[str, Any]:
    """What of the configuration is plain data, by "section.field"."""
    found = {"additional_config": config.additional_config}
    for section in SECTIONS:
        values = getattr(config, section)
        for field in dataclasses.fields(values):
            with contextlib.suppress(TypeError, AttributeError):
                found[f"{section}.{field.name}"] = _plain(getattr(values, field.name))
    return found


def _plain(value: Any) -> Any:
    """The value as JSON has it. Raises TypeError for what is no data."""
    if value is None or isinstance(value, bool | int | float | str):
        return value.name if isinstance(value, enum.Enum) else value
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if type(value).__module__ == "torch":
        return str(value)
    raise TypeError(type(value))


def answer(question: dict[str, Any]) -> dict[str, Any]:
    """One entry of the output."""
    from vllm_ascend import _build_info

    if "flags" in question:
        return {"flags": flags(), "engine": engine_names(), "sampling": sampling_names()}
    _build_info.__device_type__ = question.get("device_type", "A2")
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            config = serve(question["serve"]) if "serve" in question else llm(question["llm"], question.get("program"))
        return {"config": flat(config)}
    except SystemExit as end:
        return {"exit": end.code, "error": said.getvalue()}
    except Exception as error:
        return {"exit": None, "error": f"{type(error).__name__}: {error}"}


def main() -> None:
    """Answer all questions in one process: importing vLLM takes seconds."""
    answers = [answer(question) for question in json.load(sys.stdin)]
    print(json.dumps(answers), flush=True)


if __name__ == "__main__":
    main()
