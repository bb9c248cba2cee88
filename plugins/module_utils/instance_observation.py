# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Everything that the plan and the difference need to know of a host beside its hardware, read in one go.

The container engine, systemd, the listening ports, the instances with their endpoints, the containers of others, the
images, the host helper. Nothing is changed. Below another root (a replay) nothing is run and no endpoint is asked.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from . import documents, endpoint, engine, instance_state, model_files, npu_holds, oci_bundles, systemd
from .listeners import read_listeners
from .sysroot import Sysroot

PROBE_COMPLETION = "completion"
PROBE_HEALTH = "health"
PROBE_NONE = "none"
PROBES = (PROBE_COMPLETION, PROBE_HEALTH, PROBE_NONE)

DEFAULT_PORT = 8000
PROBE_THREADS = 8
# A completion may wait for the requests of others; see endpoint.prove, accept_busy.
COMPLETION_FACTOR = 3
# Seconds for the question at the host's port: the container itself has just answered.
HOST_PORT_S = 5.0


class Options(NamedTuple):
    """How to observe: how far endpoints are asked, the ports of interest beside those of the instances (None: all; of
    others it is not said who listens), seconds for each call or request."""

    probe: str = PROBE_COMPLETION
    ports: Optional[List[int]] = None
    timeout: float = 20.0
    models: Tuple[model_files.Request, ...] = ()


def collect(sysroot: Sysroot, options: Optional[Options] = None) -> Dict[str, Any]:
    """{engine, systemd, listeners, instances, foreign, images, models, helper} of a host.

    What cannot be known is null. While engine.running is not true, images is empty and says nothing, and foreign has
    only what files tell. Secrets appear as digests only.
    """
    options = options or Options()
    reading = engine.read(sysroot, options.timeout)
    names = set(instance_state.instance_names(sysroot))
    # A container of ours without unit and state (left over) is an instance too: else nobody would account for it.
    names.update(label for label in map(engine.instance, reading.containers) if label)
    version = systemd.read_version(sysroot, options.timeout)
    unit_names = [instance_state.unit_name(name) for name in sorted(names)]
    units = systemd.read_units(sysroot, unit_names, options.timeout) if version else {}
    observer = _Observer(sysroot, options, reading, units)
    with ThreadPoolExecutor(max_workers=PROBE_THREADS) as pool:
        instances = list(pool.map(observer.instance, sorted(names)))
    ids = [(container, documents.text(container.get("Id"))) for container in reading.containers]
    alive = [(container, id_) for container, id_ in ids if id_ and engine.running_pid(container)]
    running = {pid: id_ for container, id_ in alive for pid in [engine.running_pid(container)] if pid}
    forwards = [
        (port, address, id_) for container, id_ in alive for port, address, _inner in engine.published(container)
    ]
    return {
        "engine": reading.engine,
        "systemd": version,
        "listeners": read_listeners(sysroot, None, running, forwards, _named_ports(options.ports, instances)),
        "instances": instances,
        "foreign": _foreign(sysroot, reading),
        "images": reading.images,
        "models": model_files.read_models(sysroot, list(options.models)),
        "helper": instance_state.read_helper(sysroot),
    }


def _named_ports(wanted: Optional[List[int]], instances: List[Dict[str, Any]]) -> Optional[List[int]]:
    """The ports whose processes are looked for: those of interest and those of the instances; None: all."""
    return None if wanted is None else wanted + [port for instance in instances for port in instance["ports"]]


def _foreign(sysroot: Sysroot, reading: engine.Reading) -> List[Dict[str, Any]]:
    """The containers of others that matter: those that Docker told, then those of which engines keep files."""
    majors = npu_holds.npu_majors(sysroot.read_text(npu_holds.DEVICES_FILE))
    host = npu_holds.Surroundings(majors, (reading.engine or {}).get("default_runtime"))
    listed = [documents.text(container.get("Id")) for container in reading.containers]
    entries = [engine.foreign(container, host) for container in reading.containers]
    others = oci_bundles.read(sysroot, [id_ for id_ in listed if id_], majors)
    entries += [npu_holds.foreign_entry(container, host) for container in others]
    return [entry for entry in entries if entry is not None]


def find_container(containers: List[Dict[str, Any]], instance: str) -> Optional[Dict[str, Any]]:
    """The serving container of an instance among docker inspect's objects: a running one first, then the newest."""
    found = [
        container
        for container in containers
        if engine.instance(container) == instance
        and engine.labels(container).get(instance_state.LABEL_ROLE, instance_state.ROLE_SERVE)
        == instance_state.ROLE_SERVE
    ]
    found.sort(key=lambda c: (engine.running_pid(c) is not None, str(c.get("Created") or "")), reverse=True)
    return found[0] if found else None


def serving_port(inspect: Dict[str, Any], plan: Optional[Dict[str, Any]] = None) -> int:
    """The port on which the server of a container listens, at the address of the container itself.

    On the host network the plan's port, else its command's --port; else the container's side of the published port.
    """
    ends = _endpoint(plan)
    if engine.on_host_network(inspect):
        flag = _port_flag(documents.words(documents.mapping(inspect.get("Config")).get("Cmd")))
        return documents.port(ends.get("port")) or flag or DEFAULT_PORT
    inner = [port for _host, _address, port in engine.published(inspect)]
    return documents.port(ends.get("container_port")) or (inner[0] if inner else DEFAULT_PORT)


def host_side(inspect: Dict[str, Any], plan: Optional[Dict[str, Any]] = None) -> Optional[Tuple[str, int]]:
    """(address, port) where clients on the host reach a container that has a network of its own, None: not known.

    By the plan, else by what the container publishes for the port that its server listens on.
    """
    if engine.on_host_network(inspect):
        return None
    ends = _endpoint(plan)
    planned = documents.port(ends.get("port"))
    if planned is not None:
        return endpoint.outside_address(documents.text(ends.get("address"))), planned
    inner = serving_port(inspect, plan)
    for port, address, container_port in engine.published(inspect):
        if container_port == inner:
            return endpoint.outside_address(address), port
    return None


def _endpoint(plan: Optional[Dict[str, Any]]) -> Dict[str, Any]:
    return documents.mapping((plan or {}).get("endpoint"))


def _port_flag(words: List[str]) -> Optional[int]:
    for place, word in enumerate(words):
        value = " ".join(words[place + 1 : place + 2]) if word == "--port" else word[len("--port=") :]
        if (word == "--port" or word.startswith("--port=")) and documents.port(value):
            return documents.port(value)
    return None


class _Observer:
    """Makes an instance's entry out of what was read for all of them."""

    def __init__(
        self, sysroot: Sysroot, options: Options, reading: engine.Reading, units: Dict[str, systemd.Unit]
    ) -> None:
        self.sysroot = sysroot
        self.options = options
        self.reading = reading
        self.units = units

    def instance(self, name: str) -> Dict[str, Any]:
        unit_name = instance_state.unit_name(name)
        unit = self.units.get(unit_name) or systemd.Unit(unit_name)
        committed = instance_state.read_committed(self.sysroot, name) or {}
        plan = committed.get("plan") if isinstance(committed.get("plan"), dict) else None
        secrets = instance_state.read_env(self.sysroot, name)
        container = find_container(self.reading.containers, name)
        proof = self.prove(unit, container, plan, (secrets or {}).get(instance_state.API_KEY))
        return {
            "name": name,
            "unit": unit_name,
            "active_state": unit.active_state,
            "sub_state": unit.sub_state,
            "unit_file_state": unit.unit_file_state,
            "restarts": unit.restarts,
            "result": unit.result,
            "unit_digest": instance_state.file_digest(self.sysroot, instance_state.unit_path(name)),
            "secrets": None if secrets is None else instance_state.secret_digests(secrets),
            "plan_hash": documents.text(committed.get("plan_hash")),
            "plan": plan,
            "image_id": documents.text(committed.get("image_id")),
            "image_reference": documents.text(committed.get("image_reference")),
            "container": engine.container_summary(container) if container else None,
            "npus": _npus(plan, container),
            "ports": _ports(plan, container),
            "health": proof.health,
            "health_detail": proof.detail,
            "served_models": proof.served_models,
            "journal": instance_state.journal_state(self.sysroot, name),
            "previous": instance_state.read_previous(self.sysroot, name) is not None,
        }

    def prove(
        self,
        unit: systemd.Unit,
        container: Optional[Dict[str, Any]],
        plan: Optional[Dict[str, Any]],
        api_key: Optional[str],
    ) -> endpoint.Proof:
        """How the endpoint of an instance is, asked at the container's own address, then at the host's port."""
        host_engine = self.reading.engine
        if not host_engine or not host_engine["running"]:
            why = (host_engine or {}).get("error") or "it was not read"
            return endpoint.Proof(endpoint.UNKNOWN, "the containers are not known: {0}".format(why))
        if container is None or engine.running_pid(container) is None:
            return _without_container(unit, container, _starting(unit))
        proof = None
        if self.options.probe != PROBE_NONE:
            found = self.sysroot.live("endpoint of " + unit.name, lambda: self.asked(unit, container, plan, api_key))
            proof = _as_proof(found)
        return proof or endpoint.Proof(endpoint.UNKNOWN, "the endpoint was not asked")

    def asked(
        self, unit: systemd.Unit, container: Dict[str, Any], plan: Optional[Dict[str, Any]], api_key: Optional[str]
    ) -> Dict[str, Any]:
        """The proof of the endpoint of a container that runs, as plain JSON."""
        return dict(self.ask(unit, container, plan, api_key)._asdict(), completion=None)

    def ask(
        self, unit: systemd.Unit, container: Dict[str, Any], plan: Optional[Dict[str, Any]], api_key: Optional[str]
    ) -> endpoint.Proof:
        """Ask the endpoint of a container that runs."""
        if engine.status(container) == "paused":
            return endpoint.Proof(endpoint.UNHEALTHY, "the container is paused")
        address = endpoint.container_address(container, documents.text(_endpoint(plan).get("address")))
        if address is None:
            return endpoint.Proof(endpoint.UNHEALTHY, "the container has no address on any network")
        proof = endpoint.prove(
            address,
            serving_port(container, plan),
            model=_served_name(plan),
            api_key=api_key,
            with_completion=self.options.probe == PROBE_COMPLETION,
            starting=_starting(unit),
            accept_busy=True,
            timeout=self.options.timeout,
            completion_timeout=self.options.timeout * COMPLETION_FACTOR,
        )
        return self.reached(proof, container, plan) if proof.serving else proof

    def reached(
        self, proof: endpoint.Proof, container: Dict[str, Any], plan: Optional[Dict[str, Any]]
    ) -> endpoint.Proof:
        """The proof, or why clients have nothing of it: they come through the port that the host forwards."""
        outside = host_side(container, plan)
        if outside is None:
            return proof
        address, port = outside
        reply = endpoint.health(address, port, min(self.options.timeout, HOST_PORT_S))
        if reply.ok:
            return proof
        why = reply.error if reply.failure is not None else "HTTP {0}".format(reply.status)
        detail = "the container serves, but the host's port {0} does not answer: {1}".format(port, why)
        return proof._replace(health=endpoint.UNHEALTHY, detail=detail)


def _starting(unit: systemd.Unit) -> bool:
    return unit.active_state == "activating" and not (unit.sub_state or "").startswith("auto-restart")


def _as_proof(found: Any) -> Optional[endpoint.Proof]:
    """The proof that was recorded, None when there is none."""
    proof = documents.mapping(found)
    health, detail = documents.text(proof.get("health")), documents.text(proof.get("detail"))
    models = proof.get("served_models")
    served = documents.words(models) if isinstance(models, list) else None
    return endpoint.Proof(health, detail or "", served) if health else None


def _without_container(unit: systemd.Unit, container: Optional[Dict[str, Any]], starting: bool) -> endpoint.Proof:
    state = "no container" if container is None else "container {0}".format(engine.status(container))
    words = [word for word in (unit.active_state, unit.sub_state) if word]
    detail = "{0}, unit {1}".format(state, "/".join(words) or "unknown")
    if unit.restarts:
        detail += ", {0} automatic restarts, last result {1}".format(unit.restarts, unit.result)
    return endpoint.Proof(endpoint.LOADING if starting else endpoint.DOWN, detail)


def _served_name(plan: Optional[Dict[str, Any]]) -> Optional[str]:
    return documents.text((plan or {}).get("served_model_name")) or documents.text((plan or {}).get("model"))


def _npus(plan: Optional[Dict[str, Any]], container: Optional[Dict[str, Any]]) -> List[str]:
    if plan is not None and isinstance(plan.get("npus"), list):
        return documents.words(plan["npus"])
    return engine.npu_devices(container) if container else []


def _ports(plan: Optional[Dict[str, Any]], container: Optional[Dict[str, Any]]) -> List[int]:
    port = documents.port(_endpoint(plan).get("port"))
    if port is not None:
        return [port]
    if container is None:
        return []
    if engine.on_host_network(container):
        return [serving_port(container)]
    return engine.host_ports(container)
