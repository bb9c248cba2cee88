# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The verification of the container environment, with exactly the devices and mounts of the service.

The documented level: `npu-smi info` must end well, then a Python script on standard input must print `vLLM Ascend
environment: OK` (vLLM Ascend quick start v0.23.0). Of the script only that line counts: a process that prints it and
then crashes while it leaves has still shown what it was asked for. Everything else is evidence.

The deep level, where the plan asks for it, goes on in the same process: chips are counted and each computes something
(deep_script.py), and what was seen is compared with what the plan expects (deep_judgement.py).
"""

from __future__ import annotations

import csv
import json
import re
import time
from typing import Any, Dict, List, Optional

from . import deep_judgement, deep_script, log_lines, nodes
from .commands import CommandResult
from .host_control import Host, explain
from .instance_state import LABEL_INSTANCE, container_name

OK_LINE = "vLLM Ascend environment: OK"
ACTIVATED = "Platform plugin ascend is activated"
EVIDENCE = "vllm-ascend-evidence "
PLUGIN_GROUP = "vllm.platform_plugins"
THROW_AWAY = "throwaway"

# npu-smi can block for 150 s soon after boot (hicann/driver uda_access.c, uda_wait_all_phy_startup).
NPU_SMI_S = 180.0
PYTHON_S = 600.0

DOCUMENTED = "documented"
DEEP = "deep"
# Characters of a failed verification's output that are kept.
OUTPUT = 8000
_LOGIN = re.compile(r"(?<=://)[^/\s@]+@")

# The documented five lines, then what else is worth knowing; that part cannot fail the verification.
SCRIPT = """\
import torch
import vllm
import vllm_ascend
assert torch.npu.is_available(), "No available Ascend NPU detected in the container"
print("vLLM Ascend environment: OK")

import json, sys
sys.stdout.flush()
try:
    from importlib import metadata
except ImportError:
    metadata = None
evidence = {"python": sys.version.split()[0], "versions": {}, "plugins": [], "platform": None, "npus": None}
for name in ("torch", "torch_npu", "vllm", "vllm_ascend"):
    try:
        evidence["versions"][name] = metadata.version(name)
    except Exception:
        evidence["versions"][name] = getattr(sys.modules.get(name), "__version__", None)
try:
    evidence["plugins"] = sorted(point.name for point in metadata.entry_points(group="vllm.platform_plugins"))
except Exception:
    pass
try:
    evidence["npus"] = torch.npu.device_count()
except Exception:
    pass
try:
    from vllm.platforms import current_platform
    evidence["platform"] = type(current_platform).__module__
except Exception:
    pass
print("vllm-ascend-evidence " + json.dumps(evidence, default=str))
"""


def verify(host: Host, instance: Dict[str, Any], timeout: float = PYTHON_S) -> Dict[str, Any]:
    """Verify a planned instance in a throw-away container; the NPUs must be free.

    Returns the evidence {ok, level, where, npu_smi, python, platform_plugin, deep, message, lines, output, seconds};
    npu_smi is null where the plan asks for none, since it hung on the host, deep where the plan does not ask for it.
    """
    argvs = instance["verification"]
    began = time.monotonic()
    npu_smi = None
    if argvs["npu_smi"]:
        npu_smi = _throw_away(host, instance["name"], argvs["npu_smi"], min(NPU_SMI_S, timeout), None)
    script = _script(argvs, timeout, operate=True)
    python = _throw_away(host, instance["name"], argvs["python"], timeout, script)
    return _evidence(THROW_AWAY, argvs, npu_smi, python, began)


def verify_running(host: Host, instance: Dict[str, Any], timeout: float = PYTHON_S) -> Dict[str, Any]:
    """The same inside the container that serves now, which holds the NPUs. Returns the same evidence.

    No operation runs on a chip then: it could disturb the service, or find no memory.
    """
    container = container_name(instance["name"])
    began = time.monotonic()
    results: Dict[str, CommandResult] = {}
    argvs = instance["verification"]
    script = _script(argvs, timeout, operate=False)
    for key, stdin, limit in (("npu_smi", None, min(NPU_SMI_S, timeout)), ("python", script, timeout)):
        if argvs[key]:
            command = command_in(argvs[key], instance["container"]["image"])
            results[key] = host.ask_docker(["exec", "-i", container] + command, limit, stdin)
    return _evidence("running container", argvs, results.get("npu_smi"), results["python"], began)


def level_of(verification: Dict[str, Any]) -> str:
    """How much the plan's verification asks for; documented in plans from before there was a choice."""
    return str(verification.get("level") or DOCUMENTED)


def _script(verification: Dict[str, Any], timeout: float, operate: bool) -> str:
    if level_of(verification) != DEEP:
        return SCRIPT
    number = deep_judgement.operations(verification.get("expect") or {}) if operate else 0
    return SCRIPT + deep_script.script(number, timeout)


def command_in(argv: List[str], image: str) -> List[str]:
    """The words after the image in the argv of a `docker run`. ValueError when the image is not in it."""
    return argv[argv.index(image) + 1 :]


def container_of(argv: List[str]) -> Optional[str]:
    """The container name in the argv of a `docker run`, None when it gives none."""
    for number, word in enumerate(argv[:-1]):
        if word == "--name":
            return argv[number + 1]
        if word.startswith("--name="):
            return word[len("--name=") :]
    return None


def throw_away(host: Host, instance: str, argv: List[str], timeout: float, stdin: Optional[str]) -> CommandResult:
    """Run a throw-away container of the plan; one that a killed run left is removed before, a stuck one after."""
    container = container_of(argv)
    if container:
        nodes.remove_stale(host.engine, container, instance)
    result = host.planned(argv, timeout, stdin)
    if container and not result.ok:
        host.ask_docker(["rm", "--force", container])
    return result


def _throw_away(host: Host, instance: str, argv: List[str], timeout: float, stdin: Optional[str]) -> CommandResult:
    try:
        return throw_away(host, instance, argv, timeout, stdin)
    except nodes.NodeError as failure:
        return CommandResult(argv, None, "", "", error=str(failure))


def _evidence(
    where: str,
    verification: Dict[str, Any],
    npu_smi: Optional[CommandResult],
    python: CommandResult,
    began: float,
) -> Dict[str, Any]:
    lines = [line.strip() for line in python.stdout.splitlines()]
    printed = OK_LINE in lines
    said = next((line[len(EVIDENCE) :] for line in lines if line.startswith(EVIDENCE)), None)
    details: Dict[str, Any] = json.loads(said) if said else {}
    deep = None
    if printed and level_of(verification) == DEEP:
        expect, operated = verification.get("expect") or {}, where == THROW_AWAY
        versions = details.get("versions") or {}
        deep = deep_judgement.judge(deep_script.parse(python.stdout), expect, versions, operated)
    # A hanging npu-smi is judged before, on the host, where an operator can accept it: it is not called again then.
    # One that hangs here only is noted.
    failed = npu_smi if npu_smi is not None and not npu_smi.ok and not npu_smi.timed_out else None
    message, why = None, []
    if failed is not None:
        message = "npu-smi info fails in the container: {0}".format(explain(failed, NPU_SMI_S))
        why = log_lines.relevant(failed.text.splitlines())
    elif not printed:
        message = "the verification script did not print {0!r}: {1}".format(OK_LINE, _last(python))
        why = log_lines.relevant(python.text.splitlines())
    elif deep is not None and deep["failures"]:
        message = "; ".join(deep["failures"])
        why = deep_judgement.lines(deep) or log_lines.relevant(python.stderr.splitlines())
    return {
        "ok": message is None,
        "level": level_of(verification),
        "where": where,
        "npu_smi": _smi(npu_smi),
        "python": dict(details, ok=printed, rc=python.rc, timed_out=python.timed_out),
        "platform_plugin": _plugin(python, details),
        "deep": deep,
        "message": message,
        "lines": why,
        "output": None if message is None else _output(failed or python),
        "seconds": round(time.monotonic() - began, 1),
    }


def _output(result: CommandResult) -> str:
    """The end of what a failed verification printed, without the logins of proxies and our own marked lines."""
    marks = (EVIDENCE, deep_script.FACTS, deep_script.CHIP)
    text = "\n".join(line for line in result.text.splitlines() if not line.startswith(marks))
    return _LOGIN.sub(log_lines.MASK + "@", log_lines.without_shell_noise(text))[-OUTPUT:]


def _smi(npu_smi: Optional[CommandResult]) -> Optional[Dict[str, Any]]:
    if npu_smi is None:
        return None
    return {"ok": npu_smi.ok, "rc": npu_smi.rc, "timed_out": npu_smi.timed_out}


def _last(python: CommandResult) -> str:
    """The line of the script's output that says most: a traceback's last."""
    if python.timed_out:
        return "no end within its time"
    lines = [line.strip() for line in (python.stderr or python.error or python.stdout).splitlines() if line.strip()]
    return lines[-1][: log_lines.WIDTH] if lines else "exit {0}, no output".format(python.rc)


def _plugin(python: CommandResult, details: Dict[str, Any]) -> str:
    """Whether vLLM took the platform plugin ascend: activated (its log says so), installed, missing or unknown."""
    if ACTIVATED in python.text or str(details.get("platform") or "").startswith("vllm_ascend"):
        return "activated"
    if "plugins" not in details:
        return "unknown"
    return "installed" if "ascend" in details["plugins"] else "missing"


def verify_all(host: Host, instances: List[Dict[str, Any]], timeout: float = PYTHON_S) -> List[Dict[str, Any]]:
    """[{name, ...evidence}] of each planned instance: in its running container, else in a throw-away one.

    An instance whose NPUs another container holds is not ok, and its message names that container.
    """
    found = []
    for instance in instances:
        running = host.inspect(container_name(instance["name"]))
        labels = ((running or {}).get("Config") or {}).get("Labels") or {}
        if running and (running.get("State") or {}).get("Running") and labels.get(LABEL_INSTANCE) == instance["name"]:
            evidence = verify_running(host, instance, timeout)
        else:
            others = holders(host, instance.get("npus") or [])
            evidence = _busy(instance, others) if others else verify(host, _as_found(host, instance), timeout)
        secrets = list(host.environment(instance["name"]).values())
        found.append(dict(log_lines.mask_value(evidence, secrets), name=instance["name"]))
    return found


def _as_found(host: Host, instance: Dict[str, Any]) -> Dict[str, Any]:
    """The instance without the mount of a model cache that is not there yet: a deployment makes it, this must not."""
    cache = (instance.get("model_cache") or {}).get("path")
    if not cache or host.sysroot.exists(cache):
        return instance
    argvs = dict(instance["verification"])
    for key in ("npu_smi", "python"):
        argvs[key] = _without_mount(argvs[key], cache) if argvs[key] else None
    return dict(instance, verification=argvs)


def _without_mount(argv: List[str], source: str) -> List[str]:
    """The argv of a `docker run` without the --mount of that source."""
    kept: List[str] = []
    for word in argv:
        if kept and kept[-1] == "--mount" and "source={0}".format(source) in next(csv.reader([word])):
            kept.pop()
        else:
            kept.append(word)
    return kept


def holders(host: Host, npus: List[str]) -> List[str]:
    """The names of the running containers that any of these device nodes is mapped into."""
    identities = host.docker("ps", "--quiet", "--no-trunc").stdout.split()
    names = []
    for identity in identities:
        inspect = host.inspect(identity) or {}
        devices = [device.get("PathOnHost") for device in (inspect.get("HostConfig") or {}).get("Devices") or []]
        if set(devices) & set(npus):
            names.append(str(inspect.get("Name", identity)).lstrip("/"))
    return sorted(names)


def _busy(instance: Dict[str, Any], others: List[str]) -> Dict[str, Any]:
    return {
        "ok": False,
        "level": level_of(instance["verification"]),
        "where": None,
        "npu_smi": None,
        "python": None,
        "platform_plugin": "unknown",
        "deep": None,
        "message": "the NPUs are held by the container {0}, and a chip serves one at a time".format(", ".join(others)),
        "lines": [],
        "output": None,
        "seconds": 0.0,
    }
