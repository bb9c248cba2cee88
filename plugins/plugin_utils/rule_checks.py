# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the rules of roles/npu_host/vars/rules say of a deployment: releases, drivers, serve flags, models."""

from __future__ import annotations

from typing import Any

from .compatibility import SUFFIX_310P, Target, check_compatibility, known_contents, known_drivers
from .model_size import (
    Placing,
    check_cache,
    check_chips,
    check_files,
    check_heads,
    check_memory,
    known_shape,
    looked_for,
    model_files,
    offloads,
)
from .plain import Findings
from .serve import Argument
from .serve_flags import check_flags
from .serve_options import check_options, check_together, known_release, last_value
from .versions import parse_release


class RuleChecks:
    """Compares a deployment with the rules; a part of them that is not given is not checked."""

    def __init__(
        self,
        rules: dict[str, Any] | None,
        facts: dict[str, Any],
        values: dict[str, Any],
        observed: dict[str, Any] | None,
        findings: Findings,
    ) -> None:
        self.rules, self.facts, self.values, self.observed = rules or {}, facts, values, observed
        self.findings = findings
        # An image of the operator's own may hold anything: the newest rules apply, and only warn.
        self.tag = values["vllm_image"] or values["vllm_ascend_version"]
        self.release = None if values["vllm_image"] else parse_release(self.tag)

    def arguments(self, extra: dict[str, list[Argument]], profile: dict[str, Any] | None) -> dict[str, list[Argument]]:
        """The extra arguments of each instance under the full names of their flags, after a look at each."""
        flags, options = self.rules.get("serve_flags"), self.rules.get("serve_options")
        resolved = {}
        for instance in self.values["vllm_instances"]:
            name = instance["name"]
            where, arguments = f"extra_args of instance {name}", extra[name]
            if flags:
                arguments = check_flags(where, arguments, flags, self.tag, self.release, self.findings)
            if options:
                check_options(where, arguments, options, self.tag, self.release, self.findings)
                static = profile is None or profile["image"]["suffix"] != SUFFIX_310P
                check_together(f"instance {name}", arguments, instance["environment"], static, self.findings)
            resolved[name] = arguments
        if flags and any(resolved.values()) and not known_release(flags, self.release):
            known = f"{flags['first']} to {flags['last']}"
            message = f"the flags of vllm serve are known here for {known}, not for {self.tag}"
            remedy = "The newest known were compared; what differs from them is only a warning."
            self.findings.warn("serve_rules_other_release", message, remedy)
        return resolved

    def host(self, family: str | None, profile: dict[str, Any], system: str | None) -> None:
        """Release, family, image system (null: not known), machine and driver together."""
        rules = self.rules.get("releases")
        if not rules or family is None or self.values["vllm_image"]:
            return
        host, driver = self.facts.get("host") or {}, self.facts.get("driver") or {}
        target = Target(
            tag=self.tag,
            family=family,
            title=profile["title"],
            suffix=profile["image"]["suffix"],
            image_os=system,
            architecture=host.get("architecture"),
            driver=driver.get("loaded_version") or driver.get("version"),
        )
        check_compatibility(rules, target, self.findings)

    def expectations(self, family: str, profile: dict[str, Any]) -> dict[str, Any]:
        """What a deep verification compares with, as far as it is the same for all instances of the host.

        What is in an image of the operator's own is not known; drivers are compared with what it turns out to hold.
        """
        rules, image = self.rules.get("releases"), profile["image"]
        driver = self.facts.get("driver") or {}
        expect: dict[str, Any] = {
            "family": family,
            "title": profile["title"],
            "device_type": image.get("device_type"),
            "driver_version": driver.get("loaded_version") or driver.get("version"),
            "driver_installed": driver.get("version"),
            "drivers": known_drivers(rules, family) if rules else [],
            "bad_driver_accepted": "driver_known_bad" in self.findings.accepted,
            "release": None,
            "cann": None,
            "versions": {},
        }
        if rules and not self.values["vllm_image"]:
            expect.update(known_contents(rules, self.tag, image["suffix"]))
        return expect

    def models(
        self, profile: dict[str, Any] | None, extra: dict[str, list[Argument]], plans: list[dict[str, Any]]
    ) -> None:
        """The model of each instance; plans are those that got NPUs."""
        rules = self.rules.get("models")
        if not rules:
            return
        planned = {plan["name"]: plan for plan in plans}
        for instance in self.values["vllm_instances"]:
            name, model, source = instance["name"], instance["model"], instance["model_source"]
            arguments = extra[name]
            if source == "local":
                check_files(name, model.rstrip("/"), model_files(self.observed, model, source), self.findings)
            elif source == "huggingface":
                files, looked = model_files(self.observed, model, source), looked_for(self.observed, model, source)
                check_cache(name, model, files, looked, instance["environment"], self.findings)
            shape = known_shape(rules, self.observed, model, source)
            if profile is not None:
                check_chips(name, shape, rules, profile["image"]["suffix"], arguments, self.findings)
            plan = planned.get(name)
            placing = self._placing(plan, arguments, instance["tensor_parallel_size"])
            check_heads(name, shape, placing.tensor, self.findings)
            if plan is not None and not offloads(arguments):
                check_memory(name, shape, placing, arguments, self.findings)

    def _placing(self, plan: dict[str, Any] | None, arguments: list[Argument], asked: int | None) -> Placing:
        pipeline = last_value(arguments, "--pipeline-parallel-size") or "1"
        tensor = plan["tensor_parallel_size"] if plan is not None else asked
        return Placing(tensor or 1, int(pipeline) if pipeline.isdigit() and int(pipeline) else 1, self._memory(plan))

    def _memory(self, plan: dict[str, Any] | None) -> int | None:
        """The memory in MiB of the smallest chip that an instance got; None when that of one is not known."""
        nodes = plan["npus"] if plan is not None else []
        memory = {chip.get("device"): chip.get("memory_total_mb") for chip in self.facts.get("chips") or []}
        found = [memory.get(node) for node in nodes]
        known = [amount for amount in found if isinstance(amount, int) and amount > 0]
        return min(known) if known and len(known) == len(found) else None
