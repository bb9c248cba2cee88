"""Transactions on a real host of the rack: killed at each step, failing, and with the connection lost.

They have an instance of their own on the last NPU of the host, and leave the host as they found it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time

import pytest
from ansible_collections.vllm_ascend.fleet.plugins.plugin_utils.plan import deployment_plan
from ansible_collections.vllm_ascend.fleet.tests.integration.rack import BIN, INVENTORY, ROOT, on, playbook
from ansible_collections.vllm_ascend.fleet.tests.unit.support.facts_builder import shipped_profiles

pytestmark = pytest.mark.lab

HOST = "a2-ubuntu-1"
NAME, NPU, PORT = "trial", "/dev/davinci7", 8077
SECRETS = {"VLLM_API_KEY": "sk-trial"}
IMAGE = "quay.io/ascend/vllm-ascend:v0.23.0"
BROKEN = IMAGE + "-lab-broken"
GARBAGE = IMAGE + "-lab-garbage"
UNIT = f"vllm-{NAME}.service"
# No engine of the rack computes anything: this answer never comes.
GOLDEN = {"prompt": "The capital of China is", "answer": "Beijing", "max_tokens": 8}
# Steps before which the running service is not touched: the old one goes on.
UNTOUCHED = ("snapshot", "prepare", "image", "preflight")
# The step, and the run after it: the same plan, another one, or only a start.
KILLS = [
    *((step, "before", "started") for step in UNTOUCHED),
    ("adopt", "after", "same"),
    ("stop", "after", "started"),
    ("verify", "after", "same"),
    ("write", "after", "other"),
    ("enable", "before", "started"),
    ("start", "after", "other"),
    ("prove", "after", "started"),
    ("commit", "after", "started"),
]


def plan(observation, image=None, **environment):
    """The plan of the trial instance for the host as it is."""
    settings = {
        "vllm_instances": [{"name": NAME, "npus": [NPU], "port": PORT, "secrets": SECRETS, "environment": environment}],
        "vllm_image": image,
        "vllm_start_timeout": 60,
        "vllm_node_timeout": 30,
        "vllm_stop_timeout": 15,
    }
    made = deployment_plan(observation["facts"], settings, shipped_profiles(), observation["observed"])
    assert made["problems"] == []
    (instance,) = made["instances"]
    return instance


def state():
    """What a transaction may change on the host, as text; what belongs to other instances is in it too."""
    find = "find /etc/systemd/system /etc/vllm-ascend /var/lib/vllm-ascend -type f -path '*vllm*'"
    files = on(HOST, f"{find} 2> /dev/null | sort", check=False)
    return files + on(HOST, "docker ps -a --no-trunc --format '{{.ID}} {{.Names}} {{.Image}}' | sort")


@pytest.fixture(scope="module")
def plans(tmp_path_factory):
    """{name: plan}; afterwards the trial instance and what it brought are gone."""
    folder = tmp_path_factory.mktemp("plans")
    run = playbook("playbooks/plan.yml", "-i", str(INVENTORY), "--limit", HOST, "-e", f"vllm_plan_dir={folder}")
    assert run.rc == 0, run.text[-3000:]
    observation = json.loads((folder / f"{HOST}.json").read_text())
    before = state()
    images = set(on(HOST, "docker image ls --format '{{.Repository}}:{{.Tag}}'").split())
    yield {
        "a": plan(observation, LAB_LOAD_S="0.2", TRIAL="a"),
        "b": plan(observation, LAB_LOAD_S="0.2", TRIAL="b"),
        "broken": plan(observation, BROKEN, LAB_LOAD_S="0.2"),
        "garbage": plan(observation, GARBAGE, LAB_LOAD_S="0.2"),
        "golden": {**plan(observation, LAB_LOAD_S="0.2", TRIAL="golden"), "answers": {"golden": GOLDEN}},
    }
    module(state="absent", names=[NAME])
    for image in {BROKEN, GARBAGE} - images:
        on(HOST, "docker", "image", "rm", image, check=False)
    on(HOST, "rm", "-f", "/run/vllm-ascend-fault")
    assert state() == before


def command(**options):
    argv = [str(BIN / "ansible"), HOST, "-i", str(INVENTORY), "-m", "vllm_ascend.fleet.vllm_instance"]
    return [*argv, "-a", json.dumps(options)]


def environment():
    more = {"ANSIBLE_CALLBACK_RESULT_FORMAT": "json", "ANSIBLE_NOCOLOR": "1"}
    return {**os.environ, **more, "ANSIBLE_COLLECTIONS_PATH": str(ROOT / ".ansible/collections")}


def module(**options):
    """Run vllm_instance on the host and give its result."""
    done = subprocess.run(
        command(**options), capture_output=True, text=True, timeout=200, check=False, cwd=ROOT, env=environment()
    )
    assert "=> {" in done.stdout, done.stdout + done.stderr
    return json.loads(done.stdout.split("=> ", 1)[1])


def cases():
    """Every kill and failure, and the plan that serves before each; a kill is followed by one of KILLS' runs."""
    made, now = [], "a"
    for step, when, following in KILLS:
        wanted = "b" if now == "a" else "a"
        # Once it is committed, or proved and only to be committed, the new one stays.
        kept = wanted if step == "commit" else now
        after = {"same": wanted, "other": now, "started": kept}[following]
        made.append(
            {
                "name": f"kill {when} {step}, then {following}",
                "plan": wanted,
                "fault": {"step": step, "when": when, "action": "kill", "instance": NAME},
                "verify": "documented" if step == "verify" else "skip",
                "fails": True,
                "following": "started" if following == "started" else after,
                "serves": after,
            }
        )
        now = after
    for name in ("broken", "garbage", "golden"):
        made.append({"name": name, "plan": name, "fault": None, "verify": "skip", "fails": True, "following": now})
        made[-1]["serves"] = now
    return made


CASES = cases()


@pytest.fixture(scope="module")
def results(plans, tmp_path_factory):
    """{task: its result}, of one playbook through all cases."""
    variables = {
        "trial_plans": plans,
        "trial_images": [IMAGE, BROKEN, GARBAGE],
        "trial_secrets": {NAME: SECRETS},
        "trial_port": PORT,
        "trial_cases": CASES,
    }
    path = tmp_path_factory.mktemp("trial") / "variables.json"
    path.write_text(json.dumps(variables))
    run = playbook("tests/integration/transaction.yml", "-i", str(INVENTORY), "--limit", HOST, "-e", f"@{path}")
    assert run.rc == 0, run.text[-6000:]
    return {name: result for name, _host, result in run.tasks}


def test_check_mode_predicts_the_first_run_and_the_second_changes_nothing(results):
    predicted, done, again = (
        results[name] for name in ("Predict the first instance", "Install the first instance", "Install it again")
    )
    assert (predicted["changed"], done["changed"], again["changed"]) == (True, True, False)
    assert predicted["diff"] == done["diff"]
    assert [one["action"] for one in predicted["instances"]] == ["create"]
    (one,) = done["instances"]
    assert (one["outcome"], one["state"]) == ("committed", "serving")
    assert one["evidence"]["verification"]["platform_plugin"] == "activated"
    assert one["evidence"]["preflight"]["flags"] == "accepted"


@pytest.mark.parametrize("case", CASES, ids=[case["name"].replace(" ", "-") for case in CASES])
def test_the_old_or_the_new_service_is_proved_after_the_next_run(results, plans, case):
    first, following = results[f"Run {case['name']}"], results[f"Follow {case['name']}"]
    if case["fault"]:
        assert f"ended without a result in the step {case['fault']['step']};" in first["msg"]
    else:
        (one,) = first["instances"]
        assert (one["outcome"], one["state"]) == ("rolled_back", "serving")
    assert following["instances"][0]["state"] == "serving"
    assert results[f"Ask {case['name']}"]["json"]["choices"][0]["text"]
    assert results[f"Inspect {case['name']}"]["stdout"] == plans[case["serves"]]["plan_hash"]


@pytest.mark.parametrize(
    ("name", "step", "text"),
    [
        ("broken", "start", "RuntimeError"),
        ("garbage", "start", "choices[0].text is empty"),
        ("golden", "prove", "must begin with 'Beijing'"),
    ],
)
def test_an_image_that_does_not_serve_is_undone_and_the_reason_is_shown(results, name, step, text):
    first = results[f"Run {name}"]
    assert first["failed_step"] == step
    assert text in first["msg"]
    assert "The previous state is back." in first["msg"]
    assert SECRETS["VLLM_API_KEY"] not in json.dumps({key: first[key] for key in ("msg", "instances", "diff")})


def test_a_lost_connection_loses_nothing(results, plans):
    """ssh is killed with ansible while the unit starts; the next run attaches, or finds it done."""
    served = on(HOST, "docker", "inspect", "--format", "'{{index .Config.Labels \"vllm-ascend.plan\"}}'", "vllm-trial")
    name = "b" if served.strip() == plans["a"]["plan_hash"] else "a"
    options = {"instances": [plans[name]], "secrets": {NAME: SECRETS}, "verify": "skip"}
    fault = {"step": "start", "action": "sleep", "seconds": 6, "instance": NAME}
    on(HOST, f"echo '{json.dumps(fault)}' > /run/vllm-ascend-fault")
    # Without a shared connection, so that the ssh that is killed is the one in use.
    alone = {**environment(), "ANSIBLE_SSH_ARGS": "-o ControlMaster=no -o ControlPath=none"}
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen(command(**options), **quiet, start_new_session=True, cwd=ROOT, env=alone)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and on(HOST, "ls /run/vllm-ascend-fault 2>/dev/null", check=False):
        time.sleep(0.2)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    result = module(**options)
    assert result["instances"][0]["attached"] is True
    assert (result["instances"][0]["outcome"], result["instances"][0]["state"]) == ("committed", "serving")
    assert module(**options)["changed"] is False


def test_removing_it_leaves_nothing(results):
    result = module(state="absent", names=[NAME])
    assert (result["changed"], result["instances"][0]["state"]) == (True, "absent")
    paths = [f"/etc/systemd/system/{UNIT}", f"/etc/vllm-ascend/{NAME}.env", f"/var/lib/vllm-ascend/{NAME}"]
    assert on(HOST, "ls", "-d", *paths, check=False) == ""
    assert f"vllm-{NAME}" not in on(HOST, "docker", "ps", "-a", "--format", "'{{.Names}}'")
    assert module(state="absent", names=[NAME])["changed"] is False
