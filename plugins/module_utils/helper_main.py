# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The host helper's command line: what the units of the instances and the transactions run.

It is installed as one file (helper_install.py). Every failure is one clear line on standard error and exit code 1.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import List, Optional

from . import gate, nodes, operations
from .host_control import HostError
from .journal import LockError

VERSION = "0.3.0"
ENGINE = "docker"


def parser() -> argparse.ArgumentParser:
    """The options of every verb."""
    top = argparse.ArgumentParser(prog="host.py", description="Host helper of the collection vllm_ascend.fleet.")
    top.add_argument("--version", action="version", version="vllm_ascend.fleet host helper {0}".format(VERSION))
    # Not required=True: Python 3.7 then prints a traceback when the verb is missing.
    verbs = top.add_subparsers(dest="verb", metavar="VERB")

    verb = verbs.add_parser("pre-start", help="wait for the device nodes, check the image, remove a stale container")
    verb.add_argument("--instance", required=True)
    verb.add_argument("--container", required=True)
    verb.add_argument("--image", required=True)
    verb.add_argument("--node", action="append", default=[], metavar="PATH")
    verb.add_argument("--node-timeout", type=float, default=900.0, metavar="SECONDS")
    verb.add_argument("--engine", default=ENGINE)

    verb = verbs.add_parser("gate", help="wait until the container serves its model")
    verb.add_argument("--container", required=True)
    verb.add_argument("--network", choices=["bridge", "host"], default="bridge")
    verb.add_argument("--port", type=int, required=True)
    verb.add_argument("--model")
    verb.add_argument("--env-file", metavar="PATH")
    verb.add_argument("--timeout", type=float, default=1800.0, metavar="SECONDS")
    verb.add_argument("--main-pid", type=int, default=0, metavar="PID")
    verb.add_argument("--engine", default=ENGINE)

    verb = verbs.add_parser("post-stop", help="remove the container of a stopped unit")
    verb.add_argument("--container", required=True)
    verb.add_argument("--engine", default=ENGINE)

    verb = verbs.add_parser("transact", help="run the request in an instance's state folder")
    verb.add_argument("--instance", required=True)
    verb.add_argument("--root", default="/", help=argparse.SUPPRESS)
    return top


def main(argv: Optional[List[str]] = None) -> int:
    """Run one verb; the exit code: 0 done, 1 not done (why is on standard error), 2 wrong options."""
    top = parser()
    args = top.parse_args(argv)
    if args.verb is None:
        top.error("name a verb: pre-start, gate, post-stop or transact")
    try:
        return int(globals()["_" + args.verb.replace("-", "_")](args))
    except (nodes.NodeError, gate.GateError, LockError, HostError, operations.RequestError) as failure:
        return _fail(args.verb, str(failure))
    except OSError as failure:
        return _fail(args.verb, "{0}: {1}".format(type(failure).__name__, failure))


def _fail(verb: str, message: str) -> int:
    print("vllm-ascend {0}: {1}".format(verb, message), file=sys.stderr, flush=True)
    return 1


def _say(text: str) -> None:
    print(text, flush=True)


def _pre_start(args: argparse.Namespace) -> int:
    nodes.remove_stale(args.engine, args.container, args.instance)
    waited = nodes.wait_for_nodes(args.node, args.node_timeout, say=_say)
    if waited >= 1:
        _say("device nodes are there after {0:.0f} s".format(waited))
    nodes.require_image(args.engine, args.image)
    return 0


def _gate(args: argparse.Namespace) -> int:
    began = time.monotonic()
    target = gate.Target(args.engine, args.container, args.network, args.port, args.model, args.env_file)
    try:
        proof = gate.wait(target, args.timeout, args.main_pid, say=_say)
    except gate.StoppedError as stopped:
        # Exit code 1 would make the stopped unit a failed one.
        _say(str(stopped))
        return 0
    _say("{0} serves after {1:.1f} s: {2}".format(args.container, time.monotonic() - began, proof.detail))
    return 0


def _post_stop(args: argparse.Namespace) -> int:
    if nodes.owner(args.engine, args.container):
        nodes.remove_stale(args.engine, args.container)
    return 0


def _transact(args: argparse.Namespace) -> int:
    result = operations.transact(args.instance, args.root)
    if result["ok"]:
        return 0
    failure = result.get("failure") or {}
    return _fail("transact", "{0}: {1}; {2}".format(failure.get("step"), failure.get("message"), result["state_now"]))
