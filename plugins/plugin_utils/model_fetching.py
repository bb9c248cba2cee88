# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What models a host's plan needs, how each is got, and what came of it, as text."""

from __future__ import annotations

import hashlib
from typing import Any

from ..module_utils.instance_state import LABEL_ROLE
from ..module_utils.model_fetch import ENV, FOLDER, ROLE_MODEL, request_text
from .container import CACHE_TARGET, SHELL, docker_run
from .plain import Findings, kind_of, listed, plain

# The clients of ModelScope that vLLM Ascend v0.23.0 names (its quick start, "model source"): from, and below.
MODELSCOPE_VERSIONS = ("1.18.1", "1.38")
# How often a fetch is tried when the way to the hub is at fault.
ATTEMPTS = 5
# Seconds between the limit's SIGTERM to the program and its SIGKILL.
KILL_AFTER_S = 20
# An image may say that no hub is to be asked; a fetch asks one. ModelScope's client imports torch where there is one,
# and that torch_npu, which cannot be loaded without the host's driver.
FETCHING = {"HF_HUB_OFFLINE": "0", "HF_HUB_DISABLE_PROGRESS_BARS": "1", "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
LONGEST_S = 604_800
# Problems of a plan that getting the model mends.
MENDED = ("model_folder_missing", "model_incomplete")


def model_jobs(plan: Any, wanted: Any) -> dict[str, Any]:
    """{jobs, problems} of the models that the instances of a plan need, each model once.

    wanted are the variables vllm_model_{copy_from,copy_on,fetch,timeout,verify} by name. A job is {name, model, source,
    cache, revision, instances, image, argv, limit_s, copy_from, copy_on}: argv is the `docker run` of the fetch (null
    for a local model), copy_from the folder that a local model is copied from (null: from none). Problems are those of
    the plan that getting a model does not mend, and those of the variables. TypeError for something else than data.
    """
    plan, wanted = plain(plan), plain(wanted)
    for name, value in (("plan", plan), ("wanted", wanted)):
        if not isinstance(value, dict):
            raise TypeError(f"{name} must be a dictionary, not of type {kind_of(value)}")
    findings = Findings()
    limit_s = _seconds(wanted.get("vllm_model_timeout"), findings)
    for name, choices in (("verify", ("size", "checksum")), ("fetch", ("missing", "always", "never")),
                          ("copy_on", ("controller", "host"))):  # fmt: skip
        if wanted.get(f"vllm_model_{name}") not in choices:
            _wrong(f"vllm_model_{name}", wanted.get(f"vllm_model_{name}"), f"one of {listed(choices)}", findings)
    jobs: list[dict[str, Any]] = []
    for instance in plan["instances"]:
        job = _job(instance, limit_s)
        known = next((one for one in jobs if one["name"] == job["name"]), None)
        if known is None:
            jobs.append(job)
        else:
            known["instances"].append(instance["name"])
    _copies(jobs, wanted, findings)
    mended = MENDED if wanted.get("vllm_model_copy_from") else ()
    kept = [problem for problem in plan["problems"] if problem["code"] not in mended]
    return {"jobs": jobs, "problems": kept + findings.problems}


def _job(instance: dict[str, Any], limit_s: int) -> dict[str, Any]:
    container, cache = instance["container"], instance["model_cache"]["path"]
    source, revision = instance["model_source"], _revision(instance["serve_args"])
    model = instance["model_folder"] or instance["model"]
    identity = "\n".join((source, model, cache, revision or ""))
    name = hashlib.sha256(identity.encode("utf-8", "backslashreplace")).hexdigest()[:12]
    argv = None
    if source != "local":
        request = request_text(model, source, revision, ATTEMPTS, list(MODELSCOPE_VERSIONS))
        argv = docker_run(
            container,
            name=f"vllm-model-{name}",
            devices=[],
            privileged=False,
            published_ports=[],
            mounts=[{"source": cache, "target": CACHE_TARGET, "read_only": False}],
            labels={LABEL_ROLE: ROLE_MODEL},
            environment={**FETCHING, **container["environment"]},
            env_file=f"{FOLDER}/{name}/{ENV}",
            stop_signal="SIGTERM",
            interactive=True,
            command=[*SHELL, "timeout", f"--kill-after={KILL_AFTER_S}", str(limit_s), "python3", "-", request],
        )
    return {
        "name": name,
        "model": model,
        "source": source,
        "cache": cache,
        "revision": revision,
        "instances": [instance["name"]],
        "image": container["image"],
        "argv": argv,
        "limit_s": limit_s,
        "copy_from": None,
        "copy_on": None,
    }


def _revision(words: list[str]) -> str | None:
    """The revision that vllm serve is told; None for the hub's own."""
    for place, word in enumerate(words):
        flag, equals, value = word.partition("=")
        if flag == "--revision":
            return value if equals else next(iter(words[place + 1 : place + 2]), None)
    return None


def _copies(jobs: list[dict[str, Any]], wanted: dict[str, Any], findings: Findings) -> None:
    """Say of each local model where it is copied from."""
    given, where = wanted.get("vllm_model_copy_from") or None, wanted.get("vllm_model_copy_on")
    local = [job for job in jobs if job["source"] == "local"]
    if given is None:
        return
    if isinstance(given, str):
        if len(local) > 1:
            message = f"vllm_model_copy_from is one folder, {given}, and there are {len(local)} local models"
            remedy = "Give a dictionary of folders by the path of the model."
            findings.problem("model_copy_invalid", message, remedy)
            return
        given = {job["model"]: given for job in local}
    if not isinstance(given, dict) or not all(isinstance(path, str) and path.strip() for path in given.values()):
        _wrong("vllm_model_copy_from", given, "a folder, or a dictionary of folders by the path of the model", findings)
        return
    folders = {str(path).rstrip("/"): source for path, source in given.items()}
    for job in local:
        job.update(copy_from=folders.get(job["model"]), copy_on=where)
        if job["copy_from"] and where == "host" and not job["copy_from"].startswith("/"):
            _wrong("vllm_model_copy_from", job["copy_from"], "an absolute path on the host", findings)


def _seconds(value: Any, findings: Findings) -> int:
    number = int(value) if isinstance(value, str) and value.isdecimal() and len(value) < 20 else value
    if isinstance(number, bool) or not isinstance(number, int) or not 1 <= number <= LONGEST_S:
        _wrong("vllm_model_timeout", value, f"a whole number of seconds from 1 to {LONGEST_S}", findings)
        return LONGEST_S
    return number


def _wrong(name: str, value: Any, expected: str, findings: Findings) -> None:
    message = f"{name} is {value!r}; expected is {expected}"
    findings.problem("model_setting_invalid", message, "Correct the value; the role vllm_model describes it.")


def model_lines(models: Any, host: str = "") -> list[str]:
    """What came of each model, for people: the models that vllm_model returned."""
    return [line for one in plain(models) for line in _lines(one, host)]


def _lines(one: dict[str, Any], host: str) -> list[str]:
    did = {"fetch": "fetched", "copy": "copied", "none": "there"}[one["action"]]
    did = f"would be {did}" if one["planned"] else did if one["changed"] or one["action"] == "none" else "up to date"
    size = f"{one['files']} files, {one['size_mb']} MiB in {one['folder']}" if one["folder"] else "not there"
    head = f"{host}: " if host else ""
    lines = [f"{head}{one['model']} ({one['source']}): {did if one['ok'] else 'failed'}; {size}"]
    client = [f"with {one['client']}"] if one["client"] else []
    verified = [f"{one['verified']} files compared with a checksum"] if one["verified"] else []
    if client or verified:
        lines.append(f"  {', '.join([*client, *verified])}; {one['seconds']} s")
    lines += [f"  {note}" for note in one["notes"]]
    if one["unfinished"]:
        lines.append(f"  left by downloads that ended early, may be removed: {listed(one['unfinished'])}")
    for problem in one["problems"]:
        lines += [f"  {problem['code']}: {problem['message']}", f"    {problem['remedy']}"]
    return lines
