"""The rack's imitated images: what they insist on, and that their server behaves as vLLM 0.23.0 was seen to.

Runs on the machine's own Docker engine (the rack's hosts are not needed), with null devices and prepared host trees.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import json
import pathlib
import time
import types
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any, NamedTuple

import docker
import pytest
from docker.models.containers import Container

from tests.lab import engine, images, rootfs, tree
from tests.lab.settings import LABEL

CASES = json.loads(
    (pathlib.Path(__file__).parents[1] / "unit/data/documented_run_specs.json").read_text(encoding="utf-8")
)["cases"]
REPOSITORY = f"{LABEL}/engine"
CACHE = "/root/.cache"
VERIFICATION = """\
import torch
import vllm
import vllm_ascend
assert torch.npu.is_available(), "No available Ascend NPU detected in the container"
print("vLLM Ascend environment: OK")
"""
OK = "vLLM Ascend environment: OK"
# What is said where the message does not simply name the device or the mount's target.
MESSAGES = {
    "/usr/local/Ascend/driver/lib64": "libc_sec.so: cannot open shared object file",
    "/usr/local/dcmi": "libdcmi.so: cannot open shared object file",
    "/usr/local/bin/npu-smi": "npu-smi: command not found",
    "/usr/local/sbin/npu-smi": "npu-smi: command not found",
}
RUN_LIMIT_S = 60
SERVE_310P = next(case["serve_args"] for case in CASES if case["family"] == "atlas_300i_duo")


class Run(NamedTuple):
    """One run of the verification: a documented case without one of its items (None: with all)."""

    case: dict[str, Any]
    without: str | None

    @property
    def name(self) -> str:
        """Name of the test."""
        return f"{self.case['family']}-{self.case['image_os']}-{self.without or 'everything'}"


class Outcome(NamedTuple):
    """What came of it."""

    code: int
    output: str


def all_runs() -> list[Run]:
    """Every case with everything, and without each device and each mount but the model cache."""
    return [
        Run(case, without)
        for case in CASES
        for without in [
            None,
            *case["devices"],
            *(mount["target"] for mount in case["mounts"] if mount["target"] != CACHE),
        ]
    ]


@pytest.fixture(scope="session")
def client() -> docker.DockerClient:
    """The engine that the rack uses."""
    return engine.ensure()


@pytest.fixture(scope="session")
def loaded(client: docker.DockerClient) -> dict[str, str]:
    """Tag → reference in this engine, of every imitated image."""
    architecture = client.version()["Arch"]
    tags = images.tags(client, rootfs.ensure(client))
    client.images.load(images.archive({f"{REPOSITORY}:{tag.name}": tag.images[architecture] for tag in tags}))
    return {tag.name: f"{REPOSITORY}:{tag.name}" for tag in tags}


@pytest.fixture(scope="session")
def trees(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], pathlib.Path]:
    """The files of a host of each case."""
    folders = {}
    for case in CASES:
        key = case["family"], case["image_os"]
        folders[key] = tmp_path_factory.mktemp("-".join(key))
        tree.write(tree.build(*key), folders[key])
        (folders[key] / "cache").mkdir()
    return folders


def arguments(case: dict[str, Any], folder: pathlib.Path, without: str | None = None) -> dict[str, Any]:
    """The documented `docker run` for the SDK; null devices stand for the NPU's, whatever their path is."""
    mounts = [
        docker.types.Mount(
            type="bind",
            source=str(folder / "cache" if mount["target"] == CACHE else folder / mount["source"].lstrip("/")),
            target=mount["target"],
        )
        for mount in case["mounts"]
        if mount["target"] != without
    ]
    return {
        "devices": [f"/dev/null:{path}:rwm" for path in case["devices"] if path != without],
        "mounts": mounts,
        "privileged": case["privileged"],
        "shm_size": case["shm_size"],
        "network_mode": "none",
        "labels": {LABEL: "test"},
    }


def tag_of(case: dict[str, Any]) -> str:
    """The tag of a case's image."""
    return case["image"].rpartition(":")[2]


NO_PARAMETERS = types.SimpleNamespace(params={})


@pytest.fixture(scope="session")
def outcomes(
    request: pytest.FixtureRequest,
    client: docker.DockerClient,
    loaded: dict[str, str],
    trees: dict[tuple[str, str], pathlib.Path],
) -> Iterator[dict[str, concurrent.futures.Future[Outcome]]]:
    """All selected runs, a few at a time: each is a `docker run` of its own."""
    selected: list[Any] = [
        item.callspec.params["run"]
        for item in request.session.items
        if isinstance(item, pytest.Function) and "run" in getattr(item, "callspec", NO_PARAMETERS).params
    ]

    def verify(run: Run) -> Outcome:
        case = run.case
        folder = trees[case["family"], case["image_os"]]
        container = client.containers.run(
            loaded[tag_of(case)],
            ["bash", "-ic", 'npu-smi info && python3 -c "$1"', "--", VERIFICATION],
            detach=True,
            **arguments(case, folder, run.without),
        )
        try:
            code = container.wait(timeout=RUN_LIMIT_S)["StatusCode"]
            return Outcome(code, container.logs().decode())
        finally:
            container.remove(force=True)

    with concurrent.futures.ThreadPoolExecutor(max_workers=4) as pool:
        yield {run.name: pool.submit(verify, run) for run in selected}


@pytest.mark.parametrize("run", all_runs(), ids=lambda run: run.name)
def test_verification_needs_every_documented_item(
    run: Run, outcomes: dict[str, concurrent.futures.Future[Outcome]]
) -> None:
    outcome = outcomes[run.name].result()
    if run.without is None:
        assert outcome.code == 0, outcome.output
        assert OK in outcome.output.splitlines()
        return
    assert outcome.code != 0
    assert OK not in outcome.output
    only_npu = run.without == "/dev/davinci0" and run.case["family"] != "atlas_a3"
    expected = "no /dev/davinci<N> is there" if only_npu else MESSAGES.get(run.without, run.without)
    assert expected in outcome.output


class Service:
    """A running server of the imitation and its address in the container's network."""

    def __init__(self, container: Container) -> None:
        self.container = container
        container.reload()
        networks = container.attrs["NetworkSettings"]["Networks"]
        self.base = f"http://{next(iter(networks.values()))['IPAddress']}:8000"

    def get(self, path: str, key: str | None = None) -> tuple[int, Any]:
        """Status and decoded body."""
        return self._ask(urllib.request.Request(self.base + path, headers=_authorization(key)))

    def post(self, path: str, body: dict[str, Any], key: str | None = None) -> tuple[int, Any]:
        """Status and decoded body."""
        headers = {"Content-Type": "application/json", **_authorization(key)}
        return self._ask(urllib.request.Request(self.base + path, json.dumps(body).encode(), headers))

    def _ask(self, request: urllib.request.Request) -> tuple[int, Any]:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=60) as answer:
                status, body = answer.status, answer.read()
        except urllib.error.HTTPError as error:
            status, body = error.code, error.read()
        with contextlib.suppress(ValueError):
            return status, json.loads(body)
        return status, body.decode()

    def wait_healthy(self, limit_s: float = 20) -> None:
        """Until /health answers 200."""
        deadline = time.monotonic() + limit_s
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                if self.get("/health")[0] == 200:
                    return
            time.sleep(0.05)
        pytest.fail(f"not healthy after {limit_s} s: {self.log()}")

    def log(self) -> str:
        """Standard output and error."""
        return self.container.logs().decode()

    def wait_log(self, text: str, limit_s: float = 20) -> None:
        """Until a line has the text."""
        deadline = time.monotonic() + limit_s
        while text not in self.log():
            if time.monotonic() > deadline:
                pytest.fail(f"{text!r} is not in the log after {limit_s} s: {self.log()}")
            time.sleep(0.05)

    def exit_code(self, limit_s: float = 10) -> tuple[int, float]:
        """The exit code, and the seconds until it came."""
        started = time.monotonic()
        return self.container.wait(timeout=limit_s)["StatusCode"], time.monotonic() - started


def _authorization(key: str | None) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"} if key else {}


@pytest.fixture
def start(
    client: docker.DockerClient, loaded: dict[str, str], trees: dict[tuple[str, str], pathlib.Path]
) -> Iterator[Any]:
    """start(*options, environment=…, tag=…, shell=…) → a Service of the 300I Duo's image on the bridge network."""
    containers: list[Container] = []
    case = next(case for case in CASES if case["family"] == "atlas_300i_duo" and case["image_os"] == "ubuntu")
    folder = trees[case["family"], case["image_os"]]

    def starter(
        *options: str,
        environment: dict[str, str] | None = None,
        tag: str = "",
        interactive: bool = True,
        command: list[str] | None = None,
    ) -> Service:
        shell = ["bash", "-ic", 'exec "$@"', "--"] if interactive else []
        settings = {**arguments(case, folder), "network_mode": "bridge"}
        container = client.containers.run(
            loaded[tag or tag_of(case)],
            [*shell, *(command or [*SERVE_310P, *options])],
            detach=True,
            init=True,
            environment={"LAB_LOAD_S": "0.5", **(environment or {})},
            **settings,
        )
        containers.append(container)
        return Service(container)

    yield starter
    for container in containers:
        container.remove(force=True)


def test_serves_the_documented_command(start: Any) -> None:
    service = start(environment={"VLLM_API_KEY": "word"})
    service.wait_healthy()
    assert service.get("/v1/models")[0] == 401
    status, models = service.get("/v1/models", key="word")
    assert (status, [model["id"] for model in models["data"]]) == (200, ["Qwen/Qwen3-0.6B"])
    body = {"model": "Qwen/Qwen3-0.6B", "prompt": "Beijing is a", "max_tokens": 5, "temperature": 0}
    status, completion = service.post("/v1/completions", body, key="word")
    assert status == 200
    assert completion["choices"][0]["text"].strip()
    status, error = service.post("/v1/completions", {**body, "model": "nope"}, key="word")
    assert (status, error["error"]["message"]) == (404, "The model `nope` does not exist.")
    assert "vllm:num_requests_running" in service.get("/metrics")[1]
    log = service.log()
    assert "Platform plugin ascend is activated" in log
    assert "imitation of vLLM" in log
    assert "word" not in log
    service.container.kill("SIGINT")
    code, seconds = service.exit_code()
    assert code == 0
    assert seconds < 1.5
    assert "[shutdown] API server: shutdown triggered" in service.log()
    assert "Application shutdown complete." in service.log()


def test_needs_the_interactive_shell(start: Any) -> None:
    service = start(interactive=False)
    assert service.exit_code()[0] == 1
    assert "ImportError: libascend_hal.so: cannot open shared object file" in service.log()


def test_one_sigterm_while_loading_is_swallowed(start: Any) -> None:
    service = start(environment={"LAB_LOAD_S": "2"})
    service.wait_log("Initializing a V1 LLM engine")
    service.container.kill("SIGTERM")
    service.wait_healthy()


def test_two_sigterms_while_loading_end_it(start: Any) -> None:
    service = start(environment={"LAB_LOAD_S": "30"})
    service.wait_log("Initializing a V1 LLM engine")
    service.container.kill("SIGTERM")
    service.container.kill("SIGTERM")
    assert service.exit_code()[0] == 130
    assert "KeyboardInterrupt: terminated" in service.log()


def test_sigint_while_loading_acts_after_the_load(start: Any) -> None:
    service = start(environment={"LAB_LOAD_S": "3"})
    service.wait_log("Initializing a V1 LLM engine")
    service.container.kill("SIGINT")
    code, seconds = service.exit_code()
    assert code == 130
    assert seconds > 1


def test_death_of_the_engine_process_ends_the_server_with_0(start: Any) -> None:
    service = start()
    service.wait_healthy()
    found = service.container.exec_run(["pgrep", "-f", "vllm.v1.engine.core"]).output.split()
    service.container.exec_run(["kill", "-9", found[0].decode()])
    service.wait_log("engine core exited unexpectedly")
    assert service.get("/health")[0] == 503
    assert service.exit_code()[0] == 0


def test_a_stream_is_aborted_by_sigint_and_drained_with_a_shutdown_timeout(start: Any) -> None:
    body = {"model": "Qwen/Qwen3-0.6B", "prompt": "x", "max_tokens": 40, "stream": True}
    events = {}
    for timeout in ("0", "20"):
        service = start("--shutdown-timeout", timeout, environment={"LAB_STEP_S": "0.05"})
        service.wait_healthy()
        with concurrent.futures.ThreadPoolExecutor() as pool:
            stream = pool.submit(service.post, "/v1/completions", body)
            time.sleep(0.5)
            service.container.kill("SIGINT")
            events[timeout] = stream.result()[1].count("data: {")
        assert service.exit_code()[0] == 0
    assert 0 < events["0"] < 40
    assert events["20"] == 40


def test_a_chip_serves_one_container_at_a_time(start: Any) -> None:
    first = start()
    first.wait_healthy()
    beside = start(command=["npu-smi", "info"])
    assert beside.exit_code()[0] == 172
    assert "the device is used. ret is -8020" in beside.log()
    second = start()
    assert second.exit_code()[0] == 1
    assert "ret is -8020" in second.log()
    assert first.get("/health")[0] == 200


def test_an_image_for_other_hardware_fails(start: Any) -> None:
    service = start(tag="v0.23.0-a3")
    assert service.exit_code()[0] == 1
    assert "does not match the installed version's device type: AscendDeviceType.A3" in service.log()


def test_faulty_builds(start: Any) -> None:
    broken = start(tag="v0.23.0-310p-lab-broken")
    assert broken.exit_code()[0] == 1
    assert "Engine core initialization failed. See root cause above." in broken.log()
    garbage = start(tag="v0.23.0-310p-lab-garbage")
    garbage.wait_healthy()
    status, answer = garbage.post("/v1/completions", {"prompt": "x", "max_tokens": 5})
    assert (status, answer["choices"][0]["text"]) == (200, "")


FAILURES = {
    "misspelt flag": (["--max-num-seq-s", "8"], 2, "vllm: error: unrecognized arguments: --max-num-seq-s 8"),
    "bad dtype": (
        ["--dtype", "fp16"],
        2,
        "vllm serve: error: argument --dtype: invalid choice: 'fp16' "
        "(choose from 'auto', 'bfloat16', 'float', 'float16', 'float32', 'half')",
    ),
    "dtype without value": (["--dtype"], 2, "vllm serve: error: argument --dtype: expected one argument"),
    "port is no number": (["--port", "http"], 2, "vllm serve: error: argument --port: invalid int value: 'http'"),
    "JSON with single quotes": (
        ["--compilation-config", "{'cudagraph_mode':'FULL_DECODE_ONLY'}"],
        2,
        "Invalid JSON: key must be a string at line 1 column 2",
    ),
    "truncated JSON": (
        ["--compilation-config", '{"cudagraph_mode":"FULL_DECODE_ONLY"'],
        2,
        "Invalid JSON: EOF while parsing an object at line 1 column 36",
    ),
    "unknown key": (
        ["--compilation-config", '{"cudagraph_modes":"FULL_DECODE_ONLY"}'],
        2,
        "Unexpected keyword argument [type=unexpected_keyword_argument",
    ),
    "sizes of a bad type": (
        ["--compilation-config", '{"cudagraph_capture_sizes":["one"]}'],
        2,
        "Input should be a valid integer, unable to parse string as an integer",
    ),
    "unknown graph mode": (["--compilation-config", '{"cudagraph_mode":"full_decode"}'], 1, "KeyError: 'FULL_DECODE'"),
    "unquoted additional config": (
        ["--additional-config", "{a:1}"],
        2,
        "argument --additional-config: Value {a:1} cannot be converted to <function loads at 0x",
    ),
    "additional config is a list": (["--additional-config", "[1]"], 1, "Input should be a valid dictionary"),
    "no sequences": (["--max-num-seqs", "0"], 1, "Input should be greater than or equal to 1"),
    "context too long": (["--max-model-len", "999999"], 1, "User-specified max_model_len (999999) is greater than"),
    "more dies than mapped": (["--tensor-parallel-size", "4"], 1, "World size (4) is larger than"),
}


@pytest.mark.parametrize("failure", FAILURES)
def test_wrong_flags_end_as_with_the_real_one(failure: str, start: Any) -> None:
    options, code, text = FAILURES[failure]
    service = start(*options)
    assert service.exit_code()[0] == code
    assert text in service.log()


@pytest.mark.parametrize(
    ("model", "environment", "text"),
    [
        ("/models/none", {}, "huggingface_hub.errors.HFValidationError: Repo id must be in the form"),
        ("/etc", {}, "Invalid repository ID or local directory specified: '/etc'."),
        ("a/b", {"HF_HUB_OFFLINE": "1"}, "outgoing traffic has been disabled"),
    ],
)
def test_a_model_that_is_not_there(model: str, environment: dict[str, str], text: str, start: Any) -> None:
    service = start(command=["vllm", "serve", model], environment=environment)
    assert service.exit_code()[0] == 1
    assert text in service.log()


def test_the_port_of_another_program_and_of_another_server(start: Any) -> None:
    held = "import socket, subprocess, sys; s = socket.socket(); s.bind(('', 8000)); s.listen();"
    program = f"{held} sys.exit(subprocess.run(sys.argv[1:]).returncode)"
    service = start(command=["python3", "-c", program, *SERVE_310P])
    assert service.exit_code()[0] == 1
    assert "OSError: [Errno 98] Address already in use" in service.log()


def test_underscores_and_unique_prefixes_are_taken(start: Any) -> None:
    service = start("--max_model_len", "1024", "--served-model-n", "short")
    service.wait_healthy()
    assert service.get("/v1/models")[1]["data"][0]["max_model_len"] == 1024
    assert service.get("/v1/models")[1]["data"][0]["id"] == "short"


def test_flags_can_be_checked_without_devices(start: Any) -> None:
    """What a preflight does: the parser alone, in a container."""
    code = (
        "import sys\n"
        "from vllm.entrypoints.openai.cli_args import make_arg_parser\n"
        "from vllm.utils.argparse_utils import FlexibleArgumentParser\n"
        "make_arg_parser(FlexibleArgumentParser()).parse_args(sys.argv[1:])\n"
    )
    right = start(command=["python3", "-c", code, *SERVE_310P[2:]])
    wrong = start(command=["python3", "-c", code, *SERVE_310P[2:], "--no-such-flag"])
    assert (right.exit_code()[0], wrong.exit_code()[0]) == (0, 2)
