"""Imitation of the `vllm` command."""

from __future__ import annotations

import sys

# The backend's library is looked for before anything else.
import torch  # noqa: F401  because importing it is the check
from vllm_ascend import _build_info

from vllm import platforms
from vllm.entrypoints.openai.cli_args import make_arg_parser
from vllm.logger import log
from vllm.utils.argparse_utils import FlexibleArgumentParser
from vllm.version import __version__

OTHERS = ("chat", "complete", "serve", "launch", "bench", "collect-env", "run-batch")
DESCRIPTION = """Launch a local OpenAI-compatible API server to serve LLM
completions via HTTP. Defaults to Qwen/Qwen3-0.6B if no model is specified.
(Imitation for the simulated rack: a part of the real options, nothing is computed.)"""


def main() -> int | None:
    """Parse and run. The exit codes are the real ones: 2 for a flag that is not right, 1 for what fails later."""
    if "-v" in sys.argv[1:2] or "--version" in sys.argv[1:2]:
        print(__version__)
        return 0
    platforms.resolve()
    if _build_info.__device_type__ == "_310P":
        log(
            "INFO",
            "importing.py:81",
            "Triton not installed or not compatible; certain GPU-related functions will not be available.",
        )
    parser = FlexibleArgumentParser(prog="vllm")
    parser.add_argument("-v", "--version", action="version", version=__version__)
    commands = parser.add_subparsers(required=True, dest="subparser")
    for name in OTHERS:
        if name == "serve":
            serve = commands.add_parser("serve", description=DESCRIPTION, usage="vllm serve [model_tag] [options]")
            make_arg_parser(serve)
        else:
            commands.add_parser(name, help="not in this imitation")
    arguments = parser.parse_args()
    if arguments.subparser != "serve":
        print(f"vllm {arguments.subparser}: not in this imitation", file=sys.stderr)
        return 1
    from vllm.entrypoints.openai.api_server import run_server

    return run_server(arguments)


if __name__ == "__main__":
    sys.exit(main())
