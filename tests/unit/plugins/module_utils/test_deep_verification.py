"""The deep verification: what its script finds out in a container, how that is judged, and what fails by it."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from ansible_collections.vllm_ascend.fleet.plugins.module_utils import deep_judgement, deep_script, verification

from tests.unit.support.fleet_rig import KEY, NEW_IMAGE, FleetRig

# The part of torch that the script uses. CHIPS says what each NPU does: ok, fail, wrong, hang, die.
TORCH = """\
import os, signal, time
__version__ = "2.10.0"
float16 = "float16"
CHIPS = os.environ["CHIPS"].split()
class Tensor:
    def __init__(self, rows, chip=None):
        self.rows, self.chip = rows, chip
    def to(self, device):
        return Tensor(self.rows, int(device.split(":")[1]))
    def cpu(self):
        return Tensor(self.rows)
    def tolist(self):
        return self.rows
def tensor(rows, dtype):
    return Tensor(rows)
def matmul(left, right):
    columns = list(zip(*right.rows))
    rows = [[float(sum(a * b for a, b in zip(row, column))) for column in columns] for row in left.rows]
    does = CHIPS[left.chip]
    if does == "hang":
        time.sleep(600)
    if does == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if does == "fail":
        raise RuntimeError("aicore execution is abnormal, error code is 507015")
    if does == "wrong":
        rows[3][5] = float("nan")
    return Tensor(rows, left.chip)
class npu:
    is_available = staticmethod(lambda: True)
    device_count = staticmethod(lambda: len(CHIPS))
    set_device = staticmethod(lambda index: None)
    synchronize = staticmethod(lambda index: None)
    get_soc_version = staticmethod(lambda: 223)
"""
BUILD = "vllm_ascend/_build_info.py"
NODES = ["/dev/davinci4", "/dev/davinci10"]
EXPECT = {
    "family": "atlas_a2",
    "title": "Atlas A2",
    "device_type": "A2",
    "npus": NODES,
    "count": 2,
    "exact": True,
    "driver_version": "25.5.1",
    "driver_installed": "25.5.1",
    "drivers": [{"cann": "9.1", "works": ["25.5", "26.0"], "broken": ["25.0"], "source": "release notes"}],
    "bad_driver_accepted": False,
    "release": "v0.23.0",
    "cann": "9.1.0",
    "versions": {"torch": "2.10.0", "vllm": "0.23.0"},
}
FACTS = {
    "npus": 2,
    "build": {"device_type": "A2", "soc_version": None, "why": None},
    "cann": {"version": "9.1.0", "source": "/usr/local/Ascend/cann/aarch64-linux/ascend_toolkit_install.info"},
    "driver": {"version": "25.5.1", "source": "/usr/local/Ascend/driver/version.info"},
    "image_soc_version": "ascend910b1",
    "limit_s": 240.0,
}
VERSIONS = {"torch": "2.10.0+cpu", "vllm": "0.23.0+empty", "vllm_ascend": "0.23.0"}
DONE = {"done": True, "wrong": 0, "first_wrong": None, "soc": 223, "rc": 0, "timed_out": False, "output": ""}
TRACE = "Traceback (most recent call last):\n  File ...\nRuntimeError: set_device failed, error code is 507033\n"


@pytest.fixture
def rig(tmp_path, monkeypatch):
    made = FleetRig(tmp_path, monkeypatch)
    yield made
    made.close()


@pytest.fixture
def image(tmp_path):
    """Run the script in the shape of an image: chips (words), files of packages, files of CANN below its home."""

    def run(chips="ok ok", operations=2, timeout=60, build="__device_type__ = 'A2'\n", cann=None):
        site, home = tmp_path / "site", tmp_path / "cann"
        files = {site / "torch.py": TORCH, site / "vllm.py": "", site / "vllm_ascend/__init__.py": ""}
        files.update({home / name: text for name, text in (cann or {}).items()})
        if build is not None:
            files[site / BUILD] = build
        for path, text in files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        done = subprocess.run(
            [sys.executable, "-S", "-"],
            input=verification.SCRIPT + deep_script.script(operations, timeout),
            capture_output=True,
            text=True,
            env={"PYTHONPATH": str(site), "CHIPS": chips, "ASCEND_HOME_PATH": str(home), "SOC_VERSION": "ascend910b1"},
            timeout=60,
            check=False,
        )
        assert done.stdout.startswith(verification.OK_LINE), done.stderr
        return deep_script.parse(done.stdout)

    return run


def judged(seen, expect=None, operated=True):
    return deep_judgement.judge(seen, dict(EXPECT, **(expect or {})), VERSIONS, operated)


def seen(chips=None, **facts):
    chips = {0: {}, 1: {}} if chips is None else chips
    return {"facts": dict(FACTS, **facts), "chips": {n: dict(DONE, npu=n, seconds=1.0, **c) for n, c in chips.items()}}


# -- the script ------------------------------------------------------------------------------------------------------


def test_every_chip_computes_and_the_image_tells_what_it_is(image):
    found = image(
        cann={"x86_64-linux/ascend_toolkit_install.info": "package_name=Ascend-cann-toolkit\nversion=9.1.0\n"}
    )
    assert found["facts"]["npus"] == 2
    assert found["facts"]["build"] == {"device_type": "A2", "soc_version": None, "why": None}
    assert found["facts"]["cann"]["version"] == "9.1.0"
    assert found["facts"]["image_soc_version"] == "ascend910b1"
    assert [(chip["done"], chip["wrong"], chip["soc"], chip["rc"]) for _, chip in sorted(found["chips"].items())] == [
        (True, 0, 223, 0)
    ] * 2


@pytest.mark.parametrize(
    ("chips", "timeout", "why"),
    [
        ("ok fail", 60, "RuntimeError: aicore execution is abnormal, error code is 507015"),
        ("ok wrong", 60, "1 numbers are wrong: row 3, column 5 of the product is nan instead of"),
        ("ok die", 60, "it ended with -9: no output"),
        ("ok hang", 10, "no end within 4 s"),
    ],
)
def test_the_chip_that_fails_is_named_and_the_other_is_not(image, chips, timeout, why):
    deep = judged(image(chips, timeout=timeout))
    (failure,) = deep["failures"]
    assert failure.startswith("npu:1 (/dev/davinci10) fails a small fp16 operation: " + why)
    assert [(chip["node"], chip["ok"]) for chip in deep["chips"]] == [(NODES[0], True), (NODES[1], False)]


def test_no_operation_runs_where_none_is_wanted(image):
    found = image("hang hang", operations=0)
    assert (found["facts"]["npus"], found["chips"]) == (2, {})


def test_a_chip_that_is_not_there_is_not_tried(image):
    assert sorted(image("ok")["chips"]) == [0]


@pytest.mark.parametrize(
    ("build", "kind"),
    [
        ("__device_type__ = '_310P'\n", "_310P"),
        ("__soc_version__ = 'ascend910b1'\n", "A2"),
        ("__soc_version__ = 'ascend910_9391'\n", "A3"),
        ("__soc_version__ = 'Ascend310P3'\n", "_310P"),
        ("__soc_version__ = 'ascend999'\n", None),
        ("", None),
        (None, None),
    ],
)
def test_what_an_image_is_built_for(image, build, kind):
    found = image(build=build, operations=0)["facts"]["build"]
    assert deep_judgement.built_for(found) == kind
    assert (build is None) == (found["why"] is not None)


@pytest.mark.parametrize(
    ("cann", "version"),
    [
        ({"aarch64-linux/ascend_toolkit_install.info": "version=8.3.RC1\ninnerversion=V1\n"}, "8.3.RC1"),
        ({"version.cfg": "opp_running_version=[7.3:8.0.RC2]\ntoolkit_running_version=[7.3:8.0.RC3]\n"}, "8.0.RC3"),
        ({"version.cfg": "toolkit_running_version=\n"}, None),
        ({}, None),
    ],
)  # fmt: skip
def test_the_version_of_cann_comes_from_its_own_files(image, cann, version):
    assert (image(cann=cann, operations=0)["facts"]["cann"] or {}).get("version") == version


# -- how it is judged ------------------------------------------------------------------------------------------------


def test_what_fits_passes_without_a_word():
    deep = judged(seen())
    assert (deep["failures"], deep["warnings"]) == ([], [])
    assert [chip["node"] for chip in deep["chips"]] == NODES


@pytest.mark.parametrize(
    ("facts", "expect", "texts"),
    [
        ({"npus": 1}, {}, ["device_count() is 1, but 2 NPU nodes are mapped (/dev/davinci4, /dev/davinci10)"]),
        ({"npus": 8}, {}, ["device_count() is 8, but 2"]),
        ({"npus": 1}, {"exact": False}, ["device_count() is 1, but 2"]),
        ({"build": {"device_type": "_310P"}}, {}, ["built for the device type _310P, but this host is Atlas A2", "A2"]),
        ({"build": {"soc_version": "ascend310p1"}}, {}, ["built for the device type _310P", "which needs A2"]),
        (
            {"build": {"device_type": "A3"}},
            {"device_type": None},
            ["npu:0 (/dev/davinci4), npu:1 (/dev/davinci10) are of the device type A2 (SoC 223)", "built for A3"],
        ),
        ({}, {"driver_version": "25.0.rc1"}, ["driver 25.0.rc1 with the image's CANN 9.1.0", "release notes"]),
    ],
)
def test_what_is_proved_to_be_wrong_fails(facts, expect, texts):
    failures = judged(seen(**facts), expect)["failures"]
    assert all(text in failures[0] for text in texts), failures


@pytest.mark.parametrize(
    ("facts", "expect", "text"),
    [
        ({"npus": None}, {}, "could not be asked"),
        ({"npus": 8}, {"exact": False}, "8 NPUs are seen and 2 planned: a privileged container"),
        ({"npus": 1}, {"count": None}, "ASCEND_RT_VISIBLE_DEVICES is set"),
        ({"build": {"device_type": None, "why": "ImportError: no _build_info"}}, {}, "ImportError: no _build_info"),
        ({"build": {"device_type": "A6"}}, {}, "the image is built for A6, which is not known here"),
        ({"cann": None}, {}, "CANN in the image is not known"),
        ({"cann": {"version": "9.0.1"}}, {"drivers": []}, "CANN in the image is 9.0.1; v0.23.0 is known to have 9.1.0"),
        ({"cann": {"version": "9.5.0"}}, {"cann": None}, "no list of drivers for it is known"),
        ({}, {"driver_version": "27.1.0"}, "driver 27.1.0 with the image's CANN 9.1.0 is not listed"),
        ({}, {"driver_version": "25.0.rc1", "bad_driver_accepted": True}, "listed as not compatible"),
        ({"driver": None}, {"driver_version": None}, "the host's driver is not known"),
        ({"driver": {"version": "26.0.1"}}, {}, "the driver's files are now of 26.0.1, the plan found 25.5.1"),
        ({}, {"versions": {"torch": "2.9.0"}}, "torch in the image is 2.10.0+cpu; v0.23.0 is known to have 2.9.0"),
    ],
)
def test_the_unknown_and_the_doubtful_are_warnings(facts, expect, text):
    deep = judged(seen(**facts), expect)
    assert deep["failures"] == []
    assert any(text in warning for warning in deep["warnings"]), deep["warnings"]


def test_a_plan_without_expectations_fails_nothing_of_the_image():
    deep = deep_judgement.judge(seen(chips={}), {}, VERSIONS, True)
    assert deep["failures"] == []


def test_a_family_without_a_device_type_is_not_compared():
    assert judged(seen(), {"device_type": None})["failures"] == []


def test_where_more_is_seen_than_mapped_no_node_is_named():
    deep = judged(seen(chips={0: {"done": False, "output": TRACE, "rc": 1}, 1: {}}, npus=8), {"exact": False})
    assert deep["failures"] == [
        "npu:0 fails a small fp16 operation: RuntimeError: set_device failed, error code is 507033"
    ]


def test_chips_that_fail_alike_are_named_together():
    broken = {"done": False, "output": TRACE, "rc": 1}
    (failure,) = judged(seen(chips={0: broken, 1: broken}))["failures"]
    assert failure.startswith("npu:0 (/dev/davinci4), npu:1 (/dev/davinci10) fail a small fp16 operation: RuntimeError")


@pytest.mark.parametrize("found", [{"facts": FACTS, "chips": {}}, {"facts": None, "chips": {}}])
def test_no_answer_is_a_failure(found):
    deep = judged(found)
    assert any("no answer" in failure for failure in deep["failures"])


# -- in its place ------------------------------------------------------------------------------------------------------


def printed(facts=FACTS, chips=({}, {})):
    lines = [deep_script.FACTS + json.dumps(facts) + "\n"]
    for number, chip in enumerate(chips):
        lines.append(deep_script.CHIP + json.dumps(dict(DONE, npu=number, seconds=1.0, **chip)) + "\n")
    return lines


def deep_plan(rig, **more):
    plan = rig.plan(npus=NODES, **more)
    plan["verification"].update(level="deep", expect=EXPECT)
    return plan


BROKEN = {"done": False, "output": TRACE, "rc": 1}


def test_a_deep_verification_passes_with_its_evidence(rig):
    rig.does(NEW_IMAGE, deep=printed())
    evidence = verification.verify(rig.host, deep_plan(rig))
    assert (evidence["ok"], evidence["level"], evidence["deep"]["npus"]) == (True, "deep", 2)
    assert (evidence["message"], evidence["output"]) == (None, None)


def test_the_documented_level_asks_for_no_more_than_before(rig):
    rig.does(NEW_IMAGE, deep=printed(chips=({}, BROKEN)))
    plan = deep_plan(rig)
    plan["verification"]["level"] = "documented"
    evidence = verification.verify(rig.host, plan)
    assert (evidence["ok"], evidence["level"], evidence["deep"]) == (True, "documented", None)


def test_a_failure_has_message_lines_and_output(rig):
    rig.does(NEW_IMAGE, deep=["http://user:word@proxy said no\n", *printed(chips=({}, BROKEN))])
    evidence = verification.verify(rig.host, deep_plan(rig))
    assert evidence["message"] == (
        "npu:1 (/dev/davinci10) fails a small fp16 operation: RuntimeError: set_device failed, error code is 507033"
    )
    assert "npu:1: RuntimeError: set_device failed, error code is 507033" in evidence["lines"]
    assert "http://********@proxy said no" in evidence["output"]
    assert "vllm-ascend-" not in evidence["output"]


def test_a_container_that_serves_is_counted_and_left_alone(rig):
    rig.does(NEW_IMAGE, deep=printed())
    plan = deep_plan(rig)
    rig.apply(plan)
    rig.does(NEW_IMAGE, deep=printed(facts=dict(FACTS, npus=1), chips=()))
    (evidence,) = verification.verify_all(rig.host, [plan])
    assert (evidence["ok"], evidence["where"]) == (False, "running container")
    assert evidence["deep"]["chips"] == []
    assert "could disturb" in evidence["deep"]["operations"]
    assert "deep(0, " in rig.world.inputs[-1]


def test_secrets_of_a_service_are_masked(rig):
    rig.does(NEW_IMAGE, deep=printed())
    plan = deep_plan(rig)
    rig.apply(plan)
    rig.does(NEW_IMAGE, deep=["the key is " + KEY + "\n", *printed(facts=dict(FACTS, npus=1), chips=())])
    (evidence,) = verification.verify_all(rig.host, [plan])
    assert "the key is ********" in evidence["output"]


def test_a_transaction_goes_back_when_a_chip_fails(rig):
    old = rig.install_old()
    rig.does(NEW_IMAGE, deep=printed(chips=({}, BROKEN)))
    done = rig.apply(deep_plan(rig))
    assert (done["outcome"], done["failure"]["step"]) == ("rolled_back", "verify")
    assert "npu:1 (/dev/davinci10) fails" in done["failure"]["message"]
    assert rig.serves(old)


@pytest.mark.parametrize(
    ("level", "verify", "outcome"),
    [("deep", "documented", "refused"), ("deep", "skip", "committed"), ("documented", "documented", "committed")],
)
def test_an_image_for_other_hardware_is_refused_before_anything_stops(rig, level, verify, outcome):
    old = rig.install_old()
    rig.does(NEW_IMAGE, built_for="_310P", deep=printed())
    plan = deep_plan(rig)
    plan["verification"]["level"] = level
    done = rig.apply(plan, verify=verify)
    assert done["outcome"] == outcome
    if outcome == "refused":
        assert "built for the device type _310P, but this host is Atlas A2" in done["failure"]["message"]
        assert rig.serves(old) and rig.calls("systemctl", "stop") == []


def test_a_model_cache_that_is_not_there_is_not_mounted_and_not_made(rig):
    plan = rig.plan()
    for argv in (plan["verification"][key] for key in ("npu_smi", "python")):
        argv[3:3] = ["--mount", "type=bind,source=/root/.cache,target=/root/.cache"]
    (evidence,) = verification.verify_all(rig.host, [plan])
    assert evidence["ok"] and not (rig.root / "root/.cache").exists()
    assert all("--mount" not in call for call in rig.calls("docker", "run"))
    (rig.root / "root/.cache").mkdir(parents=True)
    rig.forget_calls()
    verification.verify_all(rig.host, [plan])
    assert all("--mount" in call for call in rig.calls("docker", "run"))
