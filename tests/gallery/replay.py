"""A copy of a host, observed and planned in this process, as plan.yml does it."""

from __future__ import annotations

import functools
import pathlib
from typing import Any, NamedTuple

import yaml
from ansible_collections.vllm_ascend.fleet.plugins.module_utils import instance_observation, npu_observation
from ansible_collections.vllm_ascend.fleet.plugins.module_utils.model_files import Request
from ansible_collections.vllm_ascend.fleet.plugins.module_utils.sysroot import Sysroot
from ansible_collections.vllm_ascend.fleet.plugins.plugin_utils.model_size import model_requests
from ansible_collections.vllm_ascend.fleet.plugins.plugin_utils.plan import deployment_plan
from ansible_collections.vllm_ascend.fleet.plugins.plugin_utils.profiles import profile_paths
from ansible_collections.vllm_ascend.fleet.tests.unit.support.facts_builder import shipped_profiles

ROLE = pathlib.Path(__file__).resolve().parents[2] / "roles" / "npu_host"
# Of the role, but no settings of the plan.
OBSERVATION = ("vllm_npu_smi", "vllm_npu_smi_timeout", "vllm_probe", "vllm_plan_dir", "vllm_plan_only")


class Replay(NamedTuple):
    """What npu_facts and vllm_instance_info return for a folder, and the plan that follows."""

    facts: dict[str, Any]
    observed: dict[str, Any]
    plan: dict[str, Any]


@functools.cache
def shipped_rules() -> dict[str, Any]:
    """What the role's rules say of releases, options and models."""
    merged: dict[str, Any] = {}
    for path in sorted((ROLE / "vars" / "rules").glob("*.yml")):
        merged.update(yaml.safe_load(path.read_text(encoding="utf-8")))
    return merged


def replay(root: Any, settings: dict[str, Any] | None = None) -> Replay:
    """Observe and plan the host below root, with those settings and the role's defaults for all others."""
    given = {**(settings or {}), "vllm_sysroot": str(root)}
    profiles = shipped_profiles()
    paths = profile_paths(profiles, given.get("vllm_hardware_profiles"), given)
    sysroot = Sysroot(str(root))
    facts = npu_observation.collect(
        sysroot, npu_observation.Options(paths=paths, npu_smi=given.get("vllm_npu_smi", "auto"))
    )
    models = tuple(Request(**request) for request in model_requests(given))
    observed = instance_observation.collect(sysroot, instance_observation.Options(models=models))
    of_the_plan = {name: value for name, value in given.items() if name not in OBSERVATION}
    return Replay(facts, observed, deployment_plan(facts, of_the_plan, profiles, observed, shipped_rules()))
