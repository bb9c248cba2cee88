# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The image and the instances of a host whose family is known."""

from __future__ import annotations

from typing import Any

from .allocation import Nodes, Request, allocate, check_swaps, host_nodes
from .conflicts import check_image_store, is_running, node_holders
from .environment import check_secrets, open_variables, secret_values
from .host_checks import check_driver, check_notices, engine_pull_option, engine_runtime
from .image import choose_image, image_system
from .instance_plan import Engine, Resources, instance_plan
from .plain import Findings
from .resources import check_npu_nodes, choose_devices, choose_mounts, with_overlays, wrong_type_remedy
from .serve import Argument, check_refusals, parallel_ranks

LOOPBACK = ("127.", "::1")
# HCCL takes ports from its base on: two instances on the host network need ranges of their own (vllm-ascend issue 405).
HCCL_BASE_PORT, HCCL_PORT_STEP = 60000, 100


class HostPlan:
    """Chooses the image, gives NPUs to the instances and assembles them; what cannot be done is a problem."""

    def __init__(
        self,
        facts: dict[str, Any],
        values: dict[str, Any],
        profile: dict[str, Any],
        observed: dict[str, Any] | None,
        findings: Findings,
    ) -> None:
        self.facts, self.values, self.profile, self.observed = facts, values, profile, observed
        self.findings = findings
        host = facts.get("host") or {}
        self.system = image_system(values, profile, host, findings)
        self.image = choose_image(values, profile, host, self.system, findings)
        if self.image is not None:
            check_image_store(self.image, observed, findings)
        check_driver(facts, findings)
        check_notices(facts, profile, findings)
        self.engine = Engine(
            python=host.get("python"),
            docker=((observed or {}).get("engine") or {}).get("cli"),
            pull=engine_pull_option(observed),
            runtime=engine_runtime(observed, findings),
        )

    def instances(self, extra: dict[str, list[Argument]]) -> list[dict[str, Any]]:
        """Every instance that can be planned, with the extra arguments of each by its name."""
        wanted, findings = self.values["vllm_instances"], self.findings
        names = [instance["name"] for instance in wanted]
        held = node_holders(self.facts, self.observed, names)
        nodes = host_nodes(self.facts, self.profile["nodes_per_card"], held)
        check_npu_nodes(self.facts, nodes, self.profile["title"], findings)
        given = allocate(self._requests(), nodes, findings) if nodes.names else {}
        check_swaps(names, given, self._running_nodes(), findings)
        if not given:
            # Nothing can be planned, but what the host lacks beside NPUs is said as well.
            choose_devices(self.profile, self.facts, [], findings)
            choose_mounts(self.profile, self.facts, self.system, findings)
        plans = []
        for place, instance in enumerate(wanted):
            arguments = extra[instance["name"]]
            check_refusals(f"extra_args of instance {instance['name']}", arguments, self.profile, findings)
            variables = open_variables(self.values, instance, findings)
            secrets = secret_values(self.values, instance)
            check_secrets(instance, variables, secrets, findings)
            self._check_access(instance, secrets)
            self._check_folders(instance)
            if instance["name"] not in given:
                continue
            resources = self._resources(instance, given[instance["name"]], nodes, arguments)
            if len(resources.npus) > 1 and place and resources.rules["network"] == "host":
                variables.setdefault("HCCL_IF_BASE_PORT", str(HCCL_BASE_PORT + HCCL_PORT_STEP * place))
                why = "other instances on the host network take HCCL's default ports"
                findings.why(f"instance {instance['name']}: HCCL_IF_BASE_PORT", why, "vllm-ascend issue 405")
            if self.image is None:
                continue
            plan = instance_plan(
                instance, self.values, self.image, resources, self.engine, variables, secrets, arguments, findings
            )
            plans += [plan] if plan is not None else []
        return plans

    def _requests(self) -> list[Request]:
        running = {entry["name"]: entry.get("npus") or [] for entry in (self.observed or {}).get("instances") or []}
        default = self.profile["default_npus"]
        return [
            Request(i["name"], default if i["npus"] is None else i["npus"], list(running.get(i["name"], [])))
            for i in self.values["vllm_instances"]
        ]

    def _running_nodes(self) -> dict[str, list[str]]:
        known = (self.observed or {}).get("instances") or []
        return {entry["name"]: list(entry.get("npus") or []) for entry in known if is_running(entry)}

    def _resources(
        self, instance: dict[str, Any], chosen: list[str], nodes: Nodes, arguments: list[Argument]
    ) -> Resources:
        name, findings = instance["name"], self.findings
        why = f"npus: {instance['npus']}"
        if instance["npus"] is None:
            why = f"the family's default of {self.profile['default_npus']}, free nodes, whole cards first"
        findings.why(f"instance {name}: NPU nodes {', '.join(chosen)}", why, "device nodes on the host")
        self._check_cards(name, chosen, nodes)
        rules = with_overlays(self.profile, nodes, chosen, f"instance {name}", findings)
        return Resources(
            rules=rules,
            npus=chosen,
            devices=choose_devices(rules, self.facts, chosen, findings),
            mounts=choose_mounts(rules, self.facts, self.system, findings),
            tensor_parallel_size=self._tensor_parallel_size(instance, chosen, arguments),
        )

    def _tensor_parallel_size(
        self, instance: dict[str, Any], chosen: list[str], arguments: list[Argument]
    ) -> int | None:
        """The size to pass: the operator's, else all nodes where they asked for more than one."""
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
            self.findings.problem("parallel_size_mismatch", message, remedy)
        return int(size) if size else None

    def _check_cards(self, name: str, chosen: list[str], nodes: Nodes) -> None:
        least, title = self.profile.get("min_npus", 1), self.profile["title"]
        if len(chosen) < least:
            message = f"instance {name} has {len(chosen)} NPU node; {title} needs at least {least}"
            self.findings.problem("npus_too_few", message, f"Set its npus to {least} or more.")
        split = [n for n in chosen if any(nodes.card[o] == nodes.card[n] and o not in chosen for o in nodes.names)]
        if split and len(chosen) > 1:
            message = f"instance {name} gets {', '.join(split)}, of cards whose other nodes it does not get"
            self.findings.warn("card_split", message, "Give it nodes of whole cards where it can be.")

    def _check_access(self, instance: dict[str, Any], secrets: dict[str, str]) -> None:
        if "VLLM_API_KEY" not in secrets and not instance["bind_address"].startswith(LOOPBACK):
            message = f"instance {instance['name']} listens on {instance['bind_address']} and asks for no API key"
            remedy = "That is as documented; set vllm_api_key, or bind 127.0.0.1 behind a proxy of yours."
            self.findings.warn("endpoint_open", message, remedy)

    def _check_folders(self, instance: dict[str, Any]) -> None:
        """The operator's folders, as far as they were looked at; the cache may be missing, it is made."""
        paths = self.facts.get("paths") or {}
        folders = [(self.values["vllm_model_cache"].rstrip("/"), False)]
        if instance["model_source"] == "local":
            folders.append((instance["model"].rstrip("/"), True))
        for path, required in folders:
            kind = (paths.get(path) or {}).get("type")
            if kind in ("missing", "link_broken") and required:
                message = f"the model folder {path} of instance {instance['name']} does not exist on the host"
                self.findings.problem("model_folder_missing", message, "Put the model there, or correct the path.")
            elif kind not in (None, "directory", "missing", "link_broken"):
                message = f"{path} is a {kind}, but a folder is needed for instance {instance['name']}"
                self.findings.problem("path_wrong_type", message, wrong_type_remedy(path, kind, "directory"))
