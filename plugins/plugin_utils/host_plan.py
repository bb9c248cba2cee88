# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The image and the instances of a host whose family is known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .allocation import Request, allocate, check_swaps
from .conflicts import check_image_store, is_running
from .engine_checks import engine_pull_option, engine_runtime
from .environment import add_defaults, check_secrets, open_variables, secret_values
from .hccl import BASE_PORT, PORT_RANGE, SOURCE, Need, base_ports, busy_ports, kept_base
from .holders import check_unproven, doubtful_nodes, instance_holders, node_holders
from .host_checks import check_driver, check_node_modes, check_notices
from .image import choose_image, image_system
from .instance_plan import Engine, Resources, instance_plan
from .npu_nodes import Nodes, host_nodes
from .parallel import applying_overlays, check_capture_sizes, tensor_parallel_size
from .plain import Findings
from .resources import check_npu_nodes, choose_devices, choose_mounts, with_overlays, wrong_type_remedy
from .serve import Argument, check_refusals

LOOPBACK = ("127.", "::1")


@dataclass
class Parts:
    """What an instance is made of; resources are null where it got no NPUs."""

    instance: dict[str, Any]
    arguments: list[Argument]
    variables: dict[str, str]
    secrets: dict[str, str]
    resources: Resources | None = None


class HostPlan:
    """Chooses the image, gives NPUs to the instances and assembles them; what cannot be done is a problem."""

    def __init__(
        self,
        facts: dict[str, Any],
        values: dict[str, Any],
        profile: dict[str, Any],
        observed: dict[str, Any] | None,
        findings: Findings,
        beside: bool = False,
    ) -> None:
        self.facts, self.values, self.profile, self.observed = facts, values, profile, observed
        self.findings, self.beside = findings, beside
        host = facts.get("host") or {}
        self.system = image_system(values, profile, host, findings)
        self.image = choose_image(values, profile, host, self.system, findings)
        if self.image is not None:
            check_image_store(self.image, observed, values["vllm_image"] is None, findings)
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
        nodes = self._nodes()
        given = allocate(self._requests(), nodes, findings) if nodes.names else {}
        check_swaps([instance["name"] for instance in wanted], given, self._running_nodes(), findings)
        if not given:
            # Nothing can be planned, but what the host lacks beside NPUs is said as well.
            choose_devices(self.profile, self.facts, [], findings)
            choose_mounts(self.profile, self.facts, self.system, findings)
        self._explain_left_out(nodes, {node for chosen in given.values() for node in chosen})
        parts = [self._parts(instance, extra[instance["name"]]) for instance in wanted]
        for part in parts:
            if part.instance["name"] in given:
                part.resources = self._resources(part, given[part.instance["name"]], nodes)
        self._give_hccl_ports(parts)
        if self.values["vllm_image"] is not None:
            check_node_modes(self.facts, [node for chosen in given.values() for node in chosen], findings)
        plans = [plan for plan in (self._plan(part) for part in parts) if plan is not None]
        if (self.facts.get("npu_smi") or {}).get("status") == "hung":
            # One call that hung is enough: what the operator accepts here, the verification does not try again.
            for plan in plans:
                plan["verification"]["npu_smi"] = None
        return plans

    def _nodes(self) -> Nodes:
        names = [instance["name"] for instance in self.values["vllm_instances"]]
        host_memory = bool(self.profile.get("host_memory"))
        staying = instance_holders(self.observed, names) if self.beside else {}
        names += sorted({holder.instance for holder in staying.values() if holder.instance})
        held = {**node_holders(self.facts, self.observed, names, host_memory), **staying}
        doubt = {} if host_memory else doubtful_nodes(self.facts, self.observed, names)
        nodes = host_nodes(self.facts, self.profile["nodes_per_card"], held, doubt)
        check_npu_nodes(self.facts, nodes, self.profile["title"], self.findings)
        check_unproven(self.facts, self.observed, names, host_memory, self.findings)
        return nodes

    def _explain_left_out(self, nodes: Nodes, given: set[str]) -> None:
        """Why a node is not given to any instance, where that is not for want of instances."""
        for node in (node for node in nodes.names if node not in given):
            reasons = [nodes.held[node].holds([node])] if node in nodes.held else []
            reasons += [f"its chip has health {nodes.health[node]}"] if node in nodes.health else []
            if reasons:
                self.findings.why(f"not given: {node}", "; ".join(reasons), "observation of the host")

    def _parts(self, instance: dict[str, Any], arguments: list[Argument]) -> Parts:
        findings = self.findings
        check_refusals(f"extra_args of instance {instance['name']}", arguments, self.profile, findings)
        variables = open_variables(self.values, instance, findings)
        secrets = secret_values(self.values, instance)
        check_secrets(instance, variables, secrets, findings)
        if not self.beside:
            self._check_access(instance, secrets)
        self._check_folders(instance)
        return Parts(instance, arguments, variables, secrets)

    def _plan(self, part: Parts) -> dict[str, Any] | None:
        if part.resources is None or self.image is None:
            return None
        return instance_plan(
            part.instance, self.values, self.image, part.resources, self.engine,
            part.variables, part.secrets, part.arguments, self.findings,
        )  # fmt: skip

    def _requests(self) -> list[Request]:
        known = {entry["name"]: entry for entry in (self.observed or {}).get("instances") or []}
        default, requests = self.profile["default_npus"], []
        for instance in self.values["vllm_instances"]:
            found = known.get(instance["name"]) or {}
            npus = default if instance["npus"] is None else instance["npus"]
            running = bool(found) and is_running(found)
            requests.append(Request(instance["name"], npus, list(found.get("npus") or []), running))
        return requests

    def _running_nodes(self) -> dict[str, list[str]]:
        known = (self.observed or {}).get("instances") or []
        return {entry["name"]: list(entry.get("npus") or []) for entry in known if is_running(entry)}

    def _resources(self, part: Parts, chosen: list[str], nodes: Nodes) -> Resources:
        instance, findings = part.instance, self.findings
        name = instance["name"]
        why = f"npus: {instance['npus']}"
        if instance["npus"] is None:
            why = f"the family's default of {self.profile['default_npus']}, free nodes, whole cards first"
        findings.why(f"instance {name}: NPU nodes {', '.join(chosen)}", why, "device nodes on the host")
        self._check_cards(name, chosen, nodes)
        size = tensor_parallel_size(instance, chosen, part.arguments, findings)
        applying = applying_overlays(chosen, nodes, size, part.arguments, part.variables)
        rules = with_overlays(self.profile, applying, f"instance {name}", findings)
        check_capture_sizes(f"extra_args of instance {name}", part.arguments, rules, findings)
        add_defaults(name, rules.get("environment") or {}, part.variables, part.secrets, findings)
        if instance["shm_size"]:
            rules = {**rules, "shm_size": instance["shm_size"]}
            findings.why(f"instance {name}: shm size {instance['shm_size']}", "the operator set it", "vllm_shm_size")
        return Resources(
            rules=rules,
            npus=chosen,
            devices=choose_devices(rules, self.facts, chosen, findings),
            mounts=choose_mounts(rules, self.facts, self.system, findings),
            tensor_parallel_size=size,
        )

    def _give_hccl_ports(self, parts: list[Parts]) -> None:
        """A range of HCCL ports for each instance of several NPUs on the host network."""
        known = {entry["name"]: entry for entry in (self.observed or {}).get("instances") or []}
        needing = [
            part for part in parts
            if part.resources is not None and len(part.resources.npus) > 1 and part.resources.rules["network"] == "host"
            and not {PORT_RANGE} & (set(part.variables) | set(part.secrets)) and BASE_PORT not in part.secrets
        ]  # fmt: skip
        needs = [
            Need(part.instance["name"], part.variables.get(BASE_PORT), kept_base(known.get(part.instance["name"])))
            for part in needing
        ]
        names = [part.instance["name"] for part in parts]
        ports = {part.instance["port"]: part.instance["name"] for part in parts}
        chosen = base_ports(needs, busy_ports(self.observed, names), ports, self.findings)
        for part in needing:
            name = part.instance["name"]
            if name in chosen and BASE_PORT not in part.variables:
                part.variables[BASE_PORT] = str(chosen[name])
                why = "a range of its own: two instances on the host network cannot share HCCL's ports"
                self.findings.why(f"instance {name}: {BASE_PORT} {chosen[name]}", why, SOURCE)

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
