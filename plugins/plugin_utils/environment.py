# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What an instance's container finds in its environment: open variables, and secrets kept apart from the plan."""

from __future__ import annotations

import re
from typing import Any

from ..module_utils.instance_state import API_KEY, secret_digest
from .plain import SECRET_NAME, Findings, has_login, kind_of, names_login, plain
from .settings import resolve_settings

TOKENS = {"huggingface": "HF_TOKEN", "modelscope": "MODELSCOPE_API_TOKEN"}
LOCAL_ADDRESSES = ("localhost", "127.0.0.1")
# HTTP_PROXY, https_proxy, ALL_PROXY and the like: their values are addresses, with or without a scheme.
_PROXY_NAME = re.compile(r".*_PROXY", re.IGNORECASE)
# Variables that change what the plan or the image decides, with the reason to be careful.
DELICATE = {
    "ASCEND_RT_VISIBLE_DEVICES": "inside the container NPUs are counted from 0, whatever their nodes are called; only "
    "the wanted nodes are mapped, so it is best left unset",
    "ASCEND_VISIBLE_DEVICES": "only the Ascend container runtime reads it, and the plan maps the nodes itself",
    "LD_LIBRARY_PATH": "it takes the place of the image's own value, which the Ascend libraries need",
    "LD_PRELOAD": "the image's ~/.bashrc sets it as well",
    "PATH": "it takes the place of the image's own value, where python3 and vllm are found",
    "HOME": "the model cache is mounted at /root/.cache, and bash reads ~/.bashrc of the image",
}
LOADER = "the dynamic loader of every program in the container reads it"


def open_variables(settings: dict[str, Any], instance: dict[str, Any], findings: Findings) -> dict[str, str]:
    """The variables that may be seen: model source, mirror and proxy, and the operator's on top."""
    variables: dict[str, str] = {}
    if instance["model_source"] == "modelscope":
        variables["VLLM_USE_MODELSCOPE"] = "True"
        why = f"instance {instance['name']} takes its model from ModelScope"
        findings.why("variable VLLM_USE_MODELSCOPE", why, "vLLM Ascend quick start v0.23.0, model source")
    addresses = _addresses(settings, instance)
    variables.update({name: address for name, address in addresses.items() if not has_login(address)})
    for name, value in instance["environment"].items():
        # What must not be seen is left out: a plan is shown and stored.
        if _check_variable(instance["name"], name, str(value), findings):
            variables[name] = str(value)
    return variables


def add_defaults(
    instance: str, defaults: dict[str, str], variables: dict[str, str], secrets: dict[str, str], findings: Findings
) -> None:
    """Add the profile's variables to the open ones; the operator's own of the same name, open or secret, win."""
    for name, value in defaults.items():
        if name in variables or name in secrets:
            why = f"the operator's own takes the place of the profile's {value}"
            findings.why(f"instance {instance}: variable {name}", why, "vllm_environment")
        else:
            variables[name] = value


def secret_values(settings: dict[str, Any], instance: dict[str, Any]) -> dict[str, str]:
    """The variables whose values only the environment file on the host may hold, by name."""
    addresses = _addresses(settings, instance)
    secrets = {name: address for name, address in addresses.items() if has_login(address)}
    token = TOKENS.get(instance["model_source"])
    if settings["vllm_hf_token"] and token:
        secrets[token] = settings["vllm_hf_token"]
    if instance["api_key"]:
        secrets[API_KEY] = instance["api_key"]
    secrets.update({name: str(value) for name, value in instance["secrets"].items()})
    return secrets


def secret_digests(secrets: dict[str, str]) -> list[dict[str, str]]:
    """[{name, digest}] in the order of the names: what a plan may know of secrets."""
    return [{"name": name, "digest": secret_digest(name, secrets[name])} for name in sorted(secrets)]


def check_secrets(
    instance: dict[str, Any], variables: dict[str, str], secrets: dict[str, str], findings: Findings
) -> None:
    """A problem for each name that is given as an open variable and as a secret, or twice as a secret."""
    for name in sorted(set(variables) & set(secrets)):
        message = f"instance {instance['name']} has {name} as an open variable and as a secret"
        findings.problem("environment_duplicate", message, "Give it in one place.")
    if instance["api_key"] and instance["secrets"].get(API_KEY, instance["api_key"]) != instance["api_key"]:
        message = f"instance {instance['name']} has an api_key, and another {API_KEY} among its secrets"
        findings.problem("environment_duplicate", message, "Give the key in one place: api_key.")


def instance_secrets(given: dict[str, Any]) -> dict[str, dict[str, str]]:
    """{instance name: {NAME: value}} from the same settings as the plan, for vllm_instance's no_log option."""
    given = plain(given)
    if not isinstance(given, dict):
        raise TypeError(f"the settings must be a dictionary of role variables, not of type {kind_of(given)}")
    settings = resolve_settings(given, Findings())
    return {instance["name"]: secret_values(settings, instance) for instance in settings["vllm_instances"]}


def _addresses(settings: dict[str, Any], instance: dict[str, Any]) -> dict[str, str]:
    """The mirror of the hub and the proxies on the way to it; one with a login in its address is a secret."""
    addresses: dict[str, str] = {}
    if settings["vllm_hf_endpoint"] and instance["model_source"] == "huggingface":
        addresses["HF_ENDPOINT"] = settings["vllm_hf_endpoint"]
    proxy = settings["vllm_proxy"] or {}
    if instance["model_source"] == "local" or not (proxy.get("http") or proxy.get("https")):
        return addresses
    given = {"HTTP_PROXY": proxy.get("http"), "HTTPS_PROXY": proxy.get("https")}
    addresses.update({name: address for name, address in given.items() if address})
    hosts = [host for host in str(proxy.get("no_proxy") or "").split(",") if host]
    addresses["NO_PROXY"] = ",".join([*hosts, *(a for a in LOCAL_ADDRESSES if a not in hosts)])
    return addresses


def _check_variable(instance: str, name: str, value: str, findings: Findings) -> bool:
    """False, and a problem, when the variable must not be an open one."""
    shown = True
    if name == API_KEY:
        shown = False
        message = f"instance {instance} has {API_KEY} among its open variables, where all can read it"
        findings.problem("secret_in_environment", message, "Give it as vllm_api_key (an instance's api_key).")
    elif names_login(value) or (_PROXY_NAME.fullmatch(name) and has_login(value)):
        shown = False
        message = f"instance {instance} has {name} among its open variables, and its value is an address with a login"
        remedy = f"Give {name} as one of vllm_secrets (an instance's secrets), or a proxy as vllm_proxy."
        findings.problem("secret_in_environment", message, remedy)
    elif SECRET_NAME.search(name):
        message = f"instance {instance} has {name} among its open variables; its name looks like a secret"
        findings.warn("secret_in_environment", message, "Give it as vllm_secrets (an instance's secrets).")
    reason = DELICATE.get(name) or (LOADER if name.startswith("LD_") else None)
    if reason:
        message = f"instance {instance} sets {name}: {reason}"
        findings.warn("environment_delicate", message, f"Leave {name} out unless you know why it is needed.")
    return shown
