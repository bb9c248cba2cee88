# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What follows from an instance that uses more than one NPU: its tensor parallel size, and which rules apply."""

from __future__ import annotations

import json
from typing import Any

from .npu_nodes import Nodes
from .plain import Findings
from .profiles import OVERLAYS, origin_of
from .serve import Argument, parallel_ranks

COMPILATION, SIZES = "--compilation-config", "cudagraph_capture_sizes"
ROCE, KV_TRANSFER = "HCCL_INTRA_ROCE_ENABLE", "--kv-transfer-config"
TRUE = ("1", "true", "True", "TRUE")


def tensor_parallel_size(
    instance: dict[str, Any], chosen: list[str], arguments: list[Argument], findings: Findings
) -> int | None:
    """The size to pass: the operator's, else all nodes where they asked for more than one; None: vLLM's own, 1.

    A node is a die of an A3 and a chip of a 300I Duo: vLLM Ascend counts them, not cards (16 on an A3 of 8 cards).
    """
    size, groups, name = instance["tensor_parallel_size"], parallel_ranks(arguments), instance["name"]
    if size is None and (instance["npus"] is None or len(chosen) == 1):
        return None
    if size is None and len(chosen) % groups == 0:
        return len(chosen) // groups
    if size is None or size * groups > len(chosen):
        asked = f"tensor parallel size {size}" if size else "a tensor parallel size"
        message = f"instance {name} has {len(chosen)} NPU nodes, and asks for {asked}"
        message += f" in {groups} groups" if groups > 1 else ""
        remedy = "Give it as many npus as tensor, pipeline and data parallel size multiplied."
        findings.problem("parallel_size_mismatch", message, remedy)
    return int(size) if size else None


def applying_overlays(
    chosen: list[str], nodes: Nodes, size: int | None, arguments: list[Argument], variables: dict[str, str]
) -> dict[str, str]:
    """Which overlays of a profile apply to an instance, with the reason of each."""
    cards, ranks, roce = nodes.on_cards(chosen), (size or 1) * parallel_ranks(arguments), _roce(arguments, variables)
    found = {
        "several_npus": f"{len(chosen)} NPU nodes" if len(chosen) > 1 else "",
        "several_cards": f"{cards} cards" if cards > 1 else "",
        "several_ranks": f"{ranks} ranks" if ranks > 1 else "",
        "over_roce": f"the NPUs' own network ({roce})" if roce else "",
    }
    return {key: why for key, why in found.items() if why}


def _roce(arguments: list[Argument], variables: dict[str, str]) -> str | None:
    """What makes the NPUs talk over their own network, None: nothing."""
    if any(argument.name == KV_TRANSFER and not argument.removes for argument in arguments):
        return KV_TRANSFER
    return f"{ROCE}={variables[ROCE]}" if variables.get(ROCE) in TRUE else None


def check_capture_sizes(where: str, arguments: list[Argument], rules: dict[str, Any], findings: Findings) -> None:
    """A problem for more capture sizes than the hardware has event ids for with parallelism (rules: overlays applied).

    The operator's own are counted; the profile's defaults keep the limit.
    """
    most = rules.get("max_capture_sizes")
    if most is None or any(a.name == "--enforce-eager" and not a.removes for a in arguments):
        return
    for argument in (argument for argument in arguments if not argument.removes):
        sizes = _capture_sizes(argument)
        if len(sizes) > most:
            shown = ", ".join(map(str, sizes))
            message = f"{where}: {len(sizes)} capture sizes ({shown}); {rules['title']} takes at most {most} with "
            message += "tensor parallelism, for want of event ids"
            overlay = next(rules[key] for key in OVERLAYS if "max_capture_sizes" in (rules.get(key) or {}))
            remedy = f"Keep the smallest and the largest ({origin_of(rules, overlay['origin'])})."
            findings.problem("capture_sizes_too_many", message, remedy)


def _capture_sizes(argument: Argument) -> list[Any]:
    """The capture sizes in one argument: inside of JSON, by their key after a dot, or of the flag of their own."""
    flag = argument.words[0].partition("=")[0] if argument.words else ""
    if argument.name == "--cudagraph-capture-sizes":
        return [value for words in argument.values for value in words.split()]
    if argument.name != COMPILATION or not argument.values:
        return []
    try:
        value = json.loads(argument.values[-1])
    except ValueError:
        return []
    if isinstance(value, dict) and "." not in flag:
        value = value.get(SIZES)
    elif not flag.endswith(f".{SIZES}"):
        return []
    return list(dict.fromkeys(map(str, value))) if isinstance(value, list) else []
