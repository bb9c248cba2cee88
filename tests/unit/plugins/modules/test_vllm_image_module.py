"""The module vllm_image through main(): what goes in and comes out, and what is masked."""

from __future__ import annotations

import json

import pytest
from ansible.module_utils.testing import patch_module_args
from ansible_collections.vllm_ascend.fleet.plugins.module_utils import engine_settings, image_store
from ansible_collections.vllm_ascend.fleet.plugins.modules import vllm_image

from tests.unit.support.docker_rig import CANNOT_CONNECT, DockerRig, image, sha

REF = "quay.io/ascend/vllm-ascend:v0.23.0"
MIRROR = "m.daocloud.io/quay.io/ascend/vllm-ascend:v0.23.0"
ARGS = {"reference": REF, "candidates": [REF, MIRROR], "platform": "linux/arm64"}


@pytest.fixture
def rig(tmp_path, monkeypatch):
    return DockerRig(tmp_path, monkeypatch, engine_settings)


@pytest.fixture
def run(rig, capsys):
    """Run the module; gives its exit code and what it printed."""

    def call(check=False, **options):
        rig.write()
        arguments = {**ARGS, "engine_cli": rig.cli, **options}
        with patch_module_args({**arguments, "_ansible_check_mode": check}), pytest.raises(SystemExit) as end:
            vllm_image.main()
        return end.value.code, json.loads(capsys.readouterr().out)

    return call


def test_a_pull_and_the_run_after_it(rig, run):
    rig.offers(MIRROR, image(1))
    code, result = run()
    assert (code, result["changed"], result["action"]) == (0, True, "pull")
    assert result["image"] == {
        "id": sha(1),
        "reference": REF,
        "source": MIRROR,
        "architecture": "arm64",
        "digests": ["m.daocloud.io/quay.io/ascend/vllm-ascend@" + sha(1001)],
        "size_mb": 5,
    }
    assert [attempt["reference"] for attempt in result["attempts"]] == [REF]
    assert result["diff"]["before"]["image"] is None and result["diff"]["after"]["image"] == sha(1)
    rig.scenario = rig.state()
    code, result = run()
    assert (code, result["changed"], result["action"], result["image"]["source"]) == (0, False, "none", "present")


@pytest.mark.parametrize("present", [False, True])
def test_check_mode_says_what_the_run_does(rig, run, present):
    if present:
        rig.has(1, REF)
    rig.offers(REF, image(1))
    _code, predicted = run(check=True)
    assert rig.calls("docker pull") == []
    _code, done = run()
    assert (predicted["changed"], predicted["action"]) == (done["changed"], done["action"])
    assert done["changed"] is not present


def test_failure_carries_every_attempt_and_remedy(rig, run):
    rig.offers(MIRROR, "Error response from daemon: unauthorized: authentication required")
    code, result = run(ca={"quay.io": "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----"})
    assert code == 1 and result["failed"] and result["changed"]
    assert [(a["reference"], a["code"]) for a in result["attempts"]] == [
        (REF, "manifest_unknown"),
        (MIRROR, "unauthorized"),
    ]
    assert all(attempt["remedy"] for attempt in result["attempts"])
    assert "vllm_registry_auth" in result["msg"] and REF in result["msg"]
    assert list(result["diff"]["after"]) == ["reference", "image", str(rig.certs / "quay.io" / "ca.crt")]


def test_engine_stopped(rig, run):
    rig.scenario["down"] = CANNOT_CONNECT
    code, result = run()
    assert code == 1 and not result["changed"]
    assert [problem["code"] for problem in result["problems"]] == ["engine_stopped"]


def test_passwords_are_masked_and_names_stay_readable(rig, run):
    rig.offers(REF, "Error response from daemon: login ascend:s3cret was refused: unauthorized")
    auth = {"quay.io": {"username": "ascend", "password": "s3cret"}}
    _code, result = run(auth=auth)
    text = json.dumps(result)
    assert "s3cret" not in text
    assert result["attempts"][0]["reference"] == REF and "login ascend:" in result["attempts"][0]["error"]
    seen = [record["login"] for record in rig.records() if record["login"]]
    assert [list(login["config"]["auths"]) for login in seen] == [["quay.io"]]


def test_a_proxys_login_is_masked_and_other_proxies_are_shown(rig, run):
    rig.scenario["info"].update(ContainersRunning=1, HttpProxy="http://old.test:1")
    proxy = {"http": "http://plain.test:3128", "https": "http://deploy:s3cret@login.test:3128", "no_proxy": ".test"}
    _code, result = run(proxy=proxy)
    text = json.dumps(result)
    assert "s3cret" not in text
    assert "http://plain.test:3128" in result["msg"] and "http://old.test:1" in result["msg"]
    assert "HTTPS_PROXY=http://login.test:3128" in result["msg"]


def test_nothing_secret_reaches_the_system_log(rig, run, monkeypatch):
    logged = []
    monkeypatch.setattr(
        "ansible.module_utils.basic.AnsibleModule.log", lambda _self, msg, log_args=None: logged.append((msg, log_args))
    )
    rig.has(1, REF)
    run(
        auth={"quay.io": {"username": "ascend", "password": "s3cret"}},
        proxy={"https": "http://deploy:s3cret@login.test:3128"},
    )
    assert logged and "s3cret" not in str(logged)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"reference": None}, "reference"),
        ({"pull": "sometimes"}, "missing, always, never"),
        ({"platform": "linux/s390x"}, "linux/amd64"),
        ({"timeout": 0}, "timeout 0"),
        ({"proxy": {"ftp": "x"}}, "ftp"),
        ({"digest": "latest"}, "'latest'"),
    ],
)
def test_bad_options_are_named(rig, run, options, words):
    code, result = run(**options)
    assert code == 1 and words in result["msg"]
    assert rig.calls() == []


def test_every_option_reaches_the_request():
    assert set(vllm_image.ARGUMENTS) == set(image_store.Request._fields) - {"check_mode"}
