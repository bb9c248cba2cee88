# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What can be checked of a new image beside the running service, without a device: versions and the flags.

A refusal of the flags by the image's own parser stops a transaction before anything stops; where the plan asks for a
deep verification, an image that is built for other hardware does too. Whatever cannot be checked (a vLLM that needs
the device to load its parser) is evidence, not a failure.
"""

from __future__ import annotations

import json
from typing import Any, Dict, List

from . import deep_judgement, log_lines
from .host_control import Host, explain
from .verification import DEEP, level_of, throw_away

TIMEOUT_S = 300.0
MARK = "vllm-ascend-preflight "
# The exit code of `docker run` when the engine itself refused (Docker reference): the service would be refused too.
ENGINE_REFUSED = 125

_SCRIPT = """\
import contextlib, io, json, sys
serve_args = json.loads(SERVE_ARGS)
found = {"python": sys.version.split()[0], "vllm": None, "vllm_ascend": None, "plugins": [], "flags": "unchecked"}
# Read, not imported: a package may ask for the device.
found["build"] = {}
try:
    import importlib.util, os, re
    place = importlib.util.find_spec("vllm_ascend").submodule_search_locations[0]
    with open(os.path.join(place, "_build_info.py"), encoding="utf-8") as stream:
        found["build"] = dict(re.findall(r"(?m)^__(device_type|soc_version)__ *= *\\W(\\w[\\w.-]*)", stream.read()))
except Exception:
    pass
try:
    from importlib import metadata
    found["plugins"] = sorted(point.name for point in metadata.entry_points(group="vllm.platform_plugins"))
    found["vllm_ascend"] = metadata.version("vllm_ascend")
except Exception:
    pass
try:
    import vllm
    found["vllm"] = getattr(vllm, "__version__", None)
    from vllm.entrypoints.openai.cli_args import make_arg_parser
    try:
        from vllm.utils.argparse_utils import FlexibleArgumentParser
    except ImportError:
        from vllm.utils import FlexibleArgumentParser
    parser = make_arg_parser(FlexibleArgumentParser(prog="vllm serve"))
    words = serve_args[2:]
    if not any(action.dest == "model_tag" for action in parser._actions):
        words = words[1:]
except BaseException as failure:
    found["why"] = "%s: %s" % (type(failure).__name__, failure)
else:
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
            parser.parse_args(words)
        found["flags"] = "accepted"
    except SystemExit as failure:
        found["flags"] = "refused" if failure.code else "accepted"
        found["why"] = said.getvalue()[-2000:]
    except (KeyError, ValueError, TypeError) as failure:
        found["flags"] = "refused"
        found["why"] = "%s: %s" % (type(failure).__name__, failure)
    except BaseException as failure:
        found["why"] = "%s: %s" % (type(failure).__name__, failure)
print("\\nvllm-ascend-preflight " + json.dumps(found, default=str), flush=True)
"""


class PreflightError(Exception):
    """The new image refuses what it would be started with; lines say more."""

    def __init__(self, message: str, lines: List[str]) -> None:
        super().__init__(message)
        self.lines = lines


def script(serve_args: List[str]) -> str:
    """The script for `python3 -` that checks these arguments; it prints one marked line of JSON."""
    return _SCRIPT.replace("SERVE_ARGS", repr(json.dumps(serve_args)), 1)


def check(host: Host, instance: Dict[str, Any], timeout: float = TIMEOUT_S, verified: bool = True) -> Dict[str, Any]:
    """Run the checks of a planned instance and give the evidence {checked, flags, vllm, plugins, build, why, ...}.

    PreflightError when the engine refuses the container, the image's parser refuses the flags, or a deep verification
    is planned and would find that the image is built for other hardware; verified says that it will run at all.
    """
    result = throw_away(host, instance["name"], instance["preflight"], timeout, script(instance["serve_args"]))
    if result.rc == ENGINE_REFUSED:
        raise PreflightError(
            "the container engine refuses the new container: {0}".format(explain(result, timeout)),
            result.stderr.splitlines(),
        )
    said = next((line[len(MARK) :] for line in result.stdout.splitlines() if line.startswith(MARK)), None)
    if said is None:
        return {"checked": False, "flags": "unchecked", "why": explain(result, timeout)}
    found: Dict[str, Any] = dict(json.loads(said), checked=True)
    if found["flags"] == "refused":
        lines = [line for line in str(found.get("why") or "").splitlines() if not line.startswith("usage:")]
        raise PreflightError(
            "the image's own parser refuses the arguments of `vllm serve`: {0}".format(_first(lines)),
            log_lines.relevant(lines),
        )
    verification = instance.get("verification") or {}
    if verified and level_of(verification) == DEEP:
        wrong = deep_judgement.wrong_image(found.get("build"), verification.get("expect") or {})
        if wrong:
            raise PreflightError(wrong, [])
    return found


def _first(lines: List[str]) -> str:
    """The line of argparse's refusal that names the argument, else the first."""
    named = [line for line in lines if "error:" in line]
    return (named or lines or ["no reason given"])[0].strip()[: log_lines.WIDTH]
