"""A fake host for the transaction: folders below a root, fake programs, a served endpoint, and plans that fit them."""

from __future__ import annotations

import contextlib
import hashlib
import http.server
import json
import os
import pathlib
import signal
import threading

from ansible_collections.vllm_ascend.fleet.plugins.module_utils import (
    endpoint,
    instance_state,
    operations,
    snapshot,
    steps,
    transaction,
)
from ansible_collections.vllm_ascend.fleet.plugins.module_utils.host_control import Host
from ansible_collections.vllm_ascend.fleet.plugins.module_utils.transaction_client import make_state_folder, request

from tests.unit.support.fake_fleet import FakeFleet

OLD_IMAGE, NEW_IMAGE = "sha256:" + "1" * 64, "sha256:" + "2" * 64
OLD, NEW = "quay.io/ascend/vllm-ascend:v0.22.0", "quay.io/ascend/vllm-ascend:v0.23.0"
DEVICE = "/dev/davinci0"
SHELL = ["bash", "-ic", 'exec "$@"', "--"]
KEY = "sk-very-secret"
NAME = "ascend"


class FleetRig:
    """One fake host: its folders below `root`, its programs on PATH, its `world` (fake_fleet.FakeFleet)."""

    def __init__(self, folder, monkeypatch):
        self.root = folder / "root"
        for path in ("etc/systemd/system", "run", "models/qwen"):
            (self.root / path).mkdir(parents=True)
        self.world = FakeFleet(self.root, {OLD: OLD_IMAGE, NEW: NEW_IMAGE})
        programs = folder / "bin"
        programs.mkdir()
        self.world.write_programs(programs)
        monkeypatch.setenv("PATH", str(programs), prepend=":")
        for module in (steps, transaction):
            monkeypatch.setattr(module, "PROVE_S", 0.2)
        # A process that is killed loses nothing of what it has written: only a machine does.
        monkeypatch.setattr(os, "fsync", lambda _descriptor: None)
        self.host = Host("docker", str(self.root))
        self.server = _serve(self)
        self.port = self.server.server_port

    def close(self):
        self.server.shutdown()
        self.server.server_close()
        self.world.close()

    # -- the world -----------------------------------------------------------------------------------------------------

    def calls(self, *start):
        """The recorded calls that begin with these words."""
        return [call for call in self.world.calls if call[: len(start)] == list(start)]

    def forget_calls(self):
        self.world.calls = []

    def running(self):
        """{container: image id} of what runs."""
        return {c["Name"].lstrip("/"): c["Image"] for c in self.world.containers if c["State"]["Running"]}

    def does(self, image, **what):
        """What an image does from now on."""
        self.world.does[image] = what

    # -- plans and requests --------------------------------------------------------------------------------------------

    def plan(self, image=NEW, secrets=None, name=NAME, **more):
        """A plan of the shape that deployment_plan gives, as far as a transaction looks at it."""
        secrets = {"VLLM_API_KEY": KEY} if secrets is None else secrets
        digests = instance_state.secret_digests(secrets)
        container = instance_state.container_name(name)
        env_file = instance_state.env_path(name) if secrets else None
        throw_away = ["docker", "run", "--rm", "-i", "--name", container + "-verify"]
        npus = more.get("npus", [DEVICE])
        devices = [word for npu in npus for word in ("--device", npu)]
        plan = {
            "name": name,
            "served_model_name": "Qwen/Qwen3-0.6B",
            "npus": npus,
            "endpoint": {"address": "127.0.0.1", "port": self.port, "network": "bridge", "container_port": 8000},
            "container": {"name": container, "image": image, "env_file": env_file, "secrets": digests},
            "serve_args": ["vllm", "serve", "Qwen/Qwen3-0.6B"],
            "timeouts": {"nodes_s": 5, "start_s": 20, "stop_s": 5, "shutdown_s": None},
            "model_cache": {"path": "/root/.cache", "target": "/root/.cache"},
            "model_folder": "/models/qwen",
            "required_paths": [],
            "verification": {
                "npu_smi": [*throw_away, *devices, image, *SHELL, "npu-smi", "info"],
                "python": [*throw_away, *devices, image, *SHELL, "python3", "-"],
            },
            "preflight": [*throw_away, image, *SHELL, "python3", "-"],
        }
        plan.update(more)
        spec = {key: plan["container"][key] for key in ("image", "env_file")}
        spec.update(container=container, instance=name, devices=plan["npus"], model=plan["served_model_name"])
        identity = json.dumps([spec, digests, plan["serve_args"]], sort_keys=True)
        plan["plan_hash"] = hashlib.sha256(identity.encode()).hexdigest()[:16]
        text = "{0}\n# plan {1}\n# fake {2}\n[Service]\n"
        text = text.format(instance_state.UNIT_MARK, plan["plan_hash"], json.dumps(spec))
        plan["unit"] = {"name": instance_state.unit_name(name), "text": text}
        return plan

    def request(self, plan, image_id=None, **more):
        wanted = dict(image_id=image_id or self.host.image_id(plan["container"]["image"]), adopt=False)
        wanted.update(verify="documented", secrets=plan["container"]["secrets"], helper_version="0.1.0")
        wanted.update(more)
        return request("present", plan["name"], "docker", plan=plan, run_id="test", **wanted)

    def put(self, wanted, secrets=None):
        """Leave a request for the helper, as the module does."""
        make_state_folder(self.host, wanted["instance"])
        text = "".join("{}={}\n".format(*item) for item in sorted((secrets or {}).items()))
        if wanted["state"] == "present":
            pathlib.Path(self.host.state(wanted["instance"], steps.STAGED_ENV)).write_text(text, encoding="utf-8")
        path = pathlib.Path(self.host.state(wanted["instance"], instance_state.REQUEST))
        path.write_text(json.dumps(wanted), encoding="utf-8")

    def apply(self, plan, secrets=None, **more):
        """Run the transaction of a plan here and give its result."""
        self.put(self.request(plan, **more), {"VLLM_API_KEY": KEY} if secrets is None else secrets)
        return operations.transact(plan["name"], str(self.root))

    def operate(self, state, name=NAME):
        self.put(request(state, name, "docker", run_id="test"))
        return operations.transact(name, str(self.root))

    def killed(self, act):
        """Do it in a process of its own; true when that process was killed by SIGKILL."""
        pid = os.fork()
        if pid == 0:
            with contextlib.suppress(BaseException):
                act()
            os._exit(0)
        return os.WTERMSIG(os.waitpid(pid, 0)[1]) == signal.SIGKILL

    def fault(self, step, action, when="before", **more):
        path = self.root / "run" / "vllm-ascend-fault"
        path.write_text(json.dumps(dict(step=step, action=action, when=when, **more)), encoding="utf-8")

    # -- what is there -------------------------------------------------------------------------------------------------

    def install_old(self, **more):
        """An old service that serves, committed: what an earlier transaction left."""
        plan = self.plan(OLD, **more)
        assert self.apply(plan)["ok"]
        self.forget_calls()
        return plan

    def serves(self, plan):
        """True when exactly this plan's service serves, by its unit, its files, its image and its endpoint."""
        name = plan["name"]
        unit = pathlib.Path(self.host.path(instance_state.unit_path(name)))
        image = self.host.image_id(plan["container"]["image"])
        state = self.world.units[plan["unit"]["name"]]
        return (
            unit.is_file()
            and unit.read_text(encoding="utf-8") == plan["unit"]["text"]
            and state["loaded"] == plan["unit"]["text"]
            and (state["active"], state["enabled"]) == ("active", "enabled")
            and self.running().get(plan["container"]["name"]) == image
            and instance_state.secret_digests(self.host.environment(name)) == plan["container"]["secrets"]
            and snapshot.prove(self.host, name, plan).health == endpoint.SERVING
        )

    def leftovers(self, name=NAME):
        """What is left of an instance beside its state folder and its caches."""
        files = [instance_state.unit_path(name), instance_state.env_path(name)]
        found = [path for path in files if os.path.exists(self.host.path(path))]
        containers = [c["Name"].lstrip("/") for c in self.world.containers]
        return found + [c for c in containers if c.startswith(instance_state.container_name(name))]

    def committed(self, name=NAME):
        return instance_state.read_committed(self.host.sysroot, name)

    def journal(self, name=NAME):
        return json.loads(pathlib.Path(self.host.state(name, instance_state.JOURNAL)).read_text(encoding="utf-8"))


def _serve(rig):
    class Handler(http.server.BaseHTTPRequestHandler):
        def log_message(self, *_args):
            pass

        def do_GET(self):
            self._answer()

        def do_POST(self):
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            self._answer()

        def _answer(self):
            served = [c for c in rig.world.containers if c["State"]["Running"] and c.get("serves")]
            if not served:
                return self._send(503, {})
            does = rig.world.does.get(served[0]["Image"], {}).get("serve")
            key = served[0]["serves"]["key"]
            if does == "down":
                return self._send(503, {})
            if self.path != "/health" and key and self.headers.get("Authorization") != "Bearer " + key:
                return self._send(401, {})
            if self.path == "/v1/models":
                return self._send(200, {"data": [{"id": served[0]["serves"]["model"]}]})
            if self.path == "/v1/completions":
                return self._send(200, {"choices": [{"text": "" if does == "empty" else " city"}]})
            return self._send(200, {})

        def _send(self, status, body):
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    return server
