# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The deployment plan of one host: a pure function of facts, settings, profiles and what was observed."""

from __future__ import annotations

from typing import Any

from ..module_utils.instance_state import container_name as planned_name
from .conflicts import check_foreign, check_ports
from .container import expected_npus
from .engine_checks import check_engine
from .host_checks import check_host, choose_family
from .host_plan import HostPlan
from .plain import Findings, kind_of, plain
from .profiles import merge_profiles, profile_errors
from .rule_checks import RuleChecks
from .serve import parse_extra_args
from .settings import resolve_settings


def deployment_plan(
    facts: Any, settings: Any, profiles: Any, observed: Any = None, rules: Any = None, beside: bool = False
) -> dict[str, Any]:
    """The plan {family, product, image, instances, explain, problems, warnings} of a host.

    facts are ansible_facts.ascend_npu, settings the role variables by name, profiles the shipped ones by family,
    observed what vllm_instance_info returned (null: nothing was), rules what is known of releases, serve options and
    models (null: they are not checked). beside says that the instances come for a while beside those that run, which
    keep their NPUs, and have no endpoint. Everything that speaks against the deployment is in problems, never raised;
    TypeError is for callers who pass something else than data.
    """
    facts, given, shipped, observed = plain(facts), plain(settings), plain(profiles), plain(observed)
    rules = plain(rules)
    for name, value in (("facts", facts), ("settings", given), ("profiles", shipped)):
        if not isinstance(value, dict):
            raise TypeError(f"{name} must be a dictionary, not of type {kind_of(value)}")
    for name, value in (("observed", observed), ("rules", rules)):
        if not isinstance(value, (dict, type(None))):
            raise TypeError(f"{name} must be a dictionary or null, not of type {kind_of(value)}")
    findings = Findings()
    values = resolve_settings(given, findings)
    wanted = values["vllm_instances"]
    family, profile = choose_family(facts, values, _profiles(shipped, values, findings), findings)
    # Only a live host, or a bundle of one, tells its Python: what is missing there was not just left out of a copy.
    whole = values["vllm_sysroot"] is None or (facts.get("host") or {}).get("python") is not None
    check_engine(observed, whole, findings)
    check_host(facts, observed, findings)
    names = [planned_name(instance["name"]) for instance in wanted]
    if not beside:
        adopted = check_foreign(observed, names, values["vllm_adopt_containers"], findings)
        check_ports(wanted, observed, adopted, findings)
    extra = {
        instance["name"]: parse_extra_args(
            f"extra_args of instance {instance['name']}", instance["extra_args"], findings
        )
        for instance in wanted
    }
    checks = RuleChecks(rules, facts, values, observed, findings)
    extra = checks.arguments(extra, profile)
    plan: dict[str, Any] = {"family": family, "product": facts.get("product"), "image": None, "instances": []}
    if profile is not None:
        host = HostPlan(facts, values, profile, observed, findings, beside)
        checks.host(family, profile, host.system)
        plan["image"], plan["instances"] = host.image, host.instances(extra)
        expect = checks.expectations(family, profile)
        for instance in plan["instances"]:
            instance["verification"]["expect"] = {**expect, **expected_npus(instance)}
    checks.models(profile, extra, plan["instances"])
    plan.update(explain=findings.explain, problems=findings.problems, warnings=findings.warnings)
    return plan


def _profiles(shipped: dict[str, Any], values: dict[str, Any], findings: Findings) -> dict[str, dict[str, Any] | None]:
    """The merged profiles; None in place of one that is not in order, whose errors are problems."""
    changed = values["vllm_hardware_profiles"]
    profiles: dict[str, dict[str, Any] | None] = {}
    for family, profile in merge_profiles(shipped, changed).items():
        errors = profile_errors({family: profile})
        where = "vllm_hardware_profiles" if family in changed else "the shipped profile"
        for error in errors:
            remedy = "Correct it; the profiles that the collection ships show every key."
            findings.problem("profile_invalid", f"{where}: {error}", remedy)
        profiles[family] = None if errors else profile
        if family in changed and not errors:
            message = f"vllm_hardware_profiles changes or adds the profile of {family}"
            findings.warn("profile_changed", message, "Compare it with the shipped one after an update.")
    return profiles
