"""Imitation of vLLM's argument parser."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any


class FlexibleArgumentParser(argparse.ArgumentParser):
    """argparse that takes `_` for `-` in names of options. Unique prefixes are taken silently, as by the real one."""

    def parse_known_args(  # type: ignore[override]  # because argparse's own signature is an overload
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> Any:
        import sys

        given = list(sys.argv[1:] if args is None else args)
        return super().parse_known_args([_dashes(argument) for argument in given], namespace)


def _dashes(argument: str) -> str:
    if not argument.startswith("--"):
        return argument
    name, equals, value = argument.partition("=")
    return "--" + name[2:].replace("_", "-") + equals + value
