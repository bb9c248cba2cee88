"""image_store.ensure against a fake docker program: what is pulled, checked, named and undone."""

from __future__ import annotations

import os
import stat

import pytest
from ansible_collections.vllm_ascend.fleet.plugins.module_utils import (
    engine,
    engine_settings,
    image_engine,
    image_store,
)
from ansible_collections.vllm_ascend.fleet.plugins.module_utils.commands import CommandResult
from ansible_collections.vllm_ascend.fleet.plugins.module_utils.image_store import ImageError, Request, ensure

from tests.unit.support.docker_rig import CANNOT_CONNECT, DockerRig, image, sha

TAG = "ascend/vllm-ascend:v0.23.0-310p"
REF = "quay.io/" + TAG
MIRROR = "m.daocloud.io/quay.io/" + TAG
SECOND = "quay.nju.edu.cn/" + TAG
PEM = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
ARM = "linux/arm64"
PROXY = "http://proxy.test:3128"
LOGIN_PROXY = "http://u:s3cret@proxy.test:3128"


@pytest.fixture
def rig(tmp_path, monkeypatch):
    return DockerRig(tmp_path, monkeypatch, engine_settings)


def go(rig, **options):
    """Run ensure on the rig; the defaults are a canonical reference and two mirrors, on arm64."""
    wanted = dict({"reference": REF, "candidates": [REF, MIRROR, SECOND], "platform": ARM}, **options)
    rig.write()
    return ensure(Request(engine_cli=rig.cli, **wanted))


def refused(rig, **options):
    with pytest.raises(ImageError) as caught:
        go(rig, **options)
    return caught.value


def codes(problems):
    return [problem["code"] for problem in problems]


# -- present already -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pull", ["missing", "never"])
@pytest.mark.parametrize("check_mode", [False, True])
def test_present_costs_one_call_and_changes_nothing(rig, pull, check_mode):
    rig.has(1, REF)
    result = go(rig, pull=pull, check_mode=check_mode, ca={"quay.io": PEM}, proxy={"http": PROXY}, min_free_mb=1 << 40)
    assert rig.calls() == ["docker image inspect " + REF]
    assert not result["changed"] and result["action"] == "none" and result["attempts"] == []
    assert result["image"] == {
        "id": sha(1),
        "reference": REF,
        "source": "present",
        "architecture": "arm64",
        "digests": [],
        "size_mb": 5,
    }
    assert result["diff"]["before"] == result["diff"]["after"] == {"reference": REF, "image": sha(1)}


def test_architecture_is_not_checked_without_a_platform(rig):
    rig.has(1, REF, platform="linux/riscv64")
    assert go(rig, platform=None)["image"]["architecture"] == "riscv64"


@pytest.mark.parametrize("pin", [sha(1), sha(7)])
def test_a_pin_is_met_by_the_digest_or_the_id(rig, pin):
    rig.has(1, REF, digests=["quay.io/ascend/vllm-ascend@" + sha(7)])
    assert not go(rig, digest=pin)["changed"]
    assert len(rig.calls()) == 1


@pytest.mark.parametrize("pull", ["missing", "never"])
def test_an_image_under_a_mirrors_name_only_gets_its_canonical_name(rig, pull):
    rig.has(1, SECOND)
    result = go(rig, pull=pull)
    assert (result["changed"], result["action"], result["image"]["source"]) == (True, "tag", SECOND)
    assert rig.store() == ({SECOND: sha(1), REF: sha(1)}, [sha(1)])
    assert rig.calls("docker pull") == []
    assert not go(rig, pull=pull)["changed"] or rig.scenario["tags"] == {SECOND: sha(1)}


def test_a_mirrors_name_with_another_architecture_is_not_used(rig):
    rig.has(1, MIRROR, platform="linux/amd64")
    rig.offers(REF, image(2))
    assert go(rig)["image"]["id"] == sha(2)
    assert rig.store()[0] == {MIRROR: sha(1), REF: sha(2)}


def test_a_pinned_image_that_is_there_by_its_digest_needs_no_registry(rig):
    rig.has(1, digests=["quay.io/ascend/vllm-ascend@" + sha(7)])
    result = go(rig, digest=sha(7), pull="never")
    assert (result["action"], result["image"]["id"]) == ("tag", sha(1))


def test_never_and_missing(rig):
    failure = refused(rig, pull="never")
    assert codes(failure.problems) == ["image_missing"]
    assert REF in str(failure) and "vllm_image_pull" in str(failure)
    assert rig.calls("docker pull") == []


def test_never_and_wrong(rig):
    rig.has(1, REF, platform="linux/amd64")
    failure = refused(rig, pull="never")
    assert codes(failure.problems) == ["wrong_architecture"]
    assert "linux/amd64" in str(failure) and ARM in str(failure)


# -- pull ----------------------------------------------------------------------------------------------------------


def test_pull_from_the_first(rig):
    rig.offers(REF, image(1))
    result = go(rig)
    assert (result["changed"], result["action"], result["image"]["source"]) == (True, "pull", REF)
    assert result["image"]["digests"] == ["quay.io/ascend/vllm-ascend@" + sha(1001)]
    assert rig.calls("docker pull") == [f"docker pull --platform {ARM} {REF}"]
    assert rig.calls("docker tag") == [] and rig.calls("docker image rm") == []
    assert result["diff"] == {
        "before": {"reference": REF, "image": None},
        "after": {"reference": REF, "image": sha(1)},
    }


def test_the_second_run_changes_nothing(rig):
    rig.offers(MIRROR, image(1))
    assert go(rig)["changed"]
    rig.scenario = rig.state()
    assert not go(rig)["changed"]


def test_pull_from_a_mirror_leaves_only_the_canonical_name(rig):
    rig.offers(REF, 'Error response from daemon: Get "https://quay.io/v2/": dial tcp: lookup quay.io: no such host')
    rig.offers(MIRROR, image(1))
    result = go(rig)
    assert rig.store() == ({REF: sha(1)}, [sha(1)])
    assert result["image"]["source"] == MIRROR
    assert result["image"]["digests"] == ["m.daocloud.io/quay.io/ascend/vllm-ascend@" + sha(1001)]
    assert [(a["reference"], a["code"]) for a in result["attempts"]] == [(REF, "name_resolution")]
    assert "no such host" in result["attempts"][0]["error"] and result["attempts"][0]["remedy"]


def test_a_mirrors_tag_that_was_there_before_means_what_it_meant(rig):
    rig.has(1, MIRROR, platform="linux/amd64")
    rig.offers(MIRROR, image(2))
    go(rig, candidates=[MIRROR])
    assert rig.store() == ({MIRROR: sha(1), REF: sha(2)}, [sha(1), sha(2)])


def test_without_candidates_the_reference_is_pulled(rig):
    rig.offers(REF, image(1))
    assert go(rig, candidates=[])["image"]["source"] == REF


def test_docker_hub_names(rig):
    rig.offers("docker.io/library/vllm", image(1))
    assert go(rig, reference="docker.io/library/vllm", candidates=["docker.io/library/vllm"])["changed"]
    assert rig.store()[0] == {"vllm:latest": sha(1)}
    assert rig.calls("docker tag") == []


@pytest.mark.parametrize(
    ("version", "experimental", "given"),
    [
        ("18.09.9", False, False),
        ("19.03.15", False, False),
        ("19.03.15", True, True),
        ("20.10.0", False, True),
        ("28.2.2", False, True),
    ],
)
def test_platform_is_given_where_the_engine_knows_it(rig, version, experimental, given):
    rig.scenario["info"].update(ServerVersion=version, ExperimentalBuild=experimental)
    rig.scenario["platform_flag"] = given
    rig.offers(REF, image(1))
    go(rig)
    assert ("--platform" in rig.calls("docker pull")[0]) is given


def test_wrong_architecture_is_removed_and_the_next_is_tried(rig):
    rig.offers(REF, image(1, "linux/amd64"))
    rig.offers(MIRROR, image(2))
    result = go(rig)
    assert rig.store() == ({REF: sha(2)}, [sha(2)])
    assert codes(result["attempts"]) == ["wrong_architecture"]
    assert "linux/amd64" in result["attempts"][0]["error"]


def test_wrong_architecture_that_something_else_refers_to_stays(rig):
    rig.has(1, "site/copy:1", platform="linux/amd64")
    rig.offers(REF, image(1, "linux/amd64"))
    failure = refused(rig, candidates=[REF])
    assert codes(failure.attempts) == ["wrong_architecture"]
    assert rig.store() == ({"site/copy:1": sha(1)}, [sha(1)])


def test_an_untagged_image_from_before_is_not_deleted_with_its_new_name(rig):
    rig.has(1, platform="linux/amd64")
    rig.offers(MIRROR, image(1, "linux/amd64"))
    refused(rig, candidates=[MIRROR])
    assert rig.store()[1] == [sha(1)]


def test_an_image_in_use_is_never_deleted(rig):
    rig.offers(MIRROR, image(1, "linux/amd64"))
    rig.scenario["in_use"] = [sha(1)]
    refused(rig, candidates=[MIRROR])
    assert rig.store()[1] == [sha(1)]
    assert not [call for call in rig.calls("docker image rm") if "-f" in call.split()]


@pytest.mark.parametrize("pull", ["missing", "always"])
def test_all_fail_and_the_engine_is_as_before(rig, pull):
    rig.has(1, REF, platform="linux/amd64" if pull == "missing" else ARM)
    rig.has(9, "other:1", in_use=True)
    before = dict(rig.scenario["tags"])
    rig.offers(REF, image(2, "linux/amd64"))
    rig.offers(MIRROR, 'Error response from daemon: Get "https://m/v2/": x509: certificate signed by unknown authority')
    failure = refused(rig, pull=pull)
    assert codes(failure.attempts) == ["wrong_architecture", "tls_unknown_authority", "manifest_unknown"]
    assert [a["reference"] for a in failure.attempts] == [REF, MIRROR, SECOND]
    for attempt in failure.attempts:
        assert attempt["reference"] in str(failure) and attempt["error"] in str(failure)
    assert "vllm_registry_ca" in str(failure)
    assert codes(failure.problems) == codes(failure.attempts)
    assert not failure.changed
    assert rig.store() == (before, [sha(1), sha(9)])


def test_no_space_ends_the_tries(rig):
    rig.offers(REF, "write /blob: no space left on device")
    rig.offers(MIRROR, image(1))
    failure = refused(rig)
    assert codes(failure.attempts) == ["no_space"]
    assert len(rig.calls("docker pull")) == 1


def test_time_limit_undoes_what_the_engine_did_meanwhile(rig):
    rig.has(1, REF, platform="linux/amd64")
    rig.offers(REF, image(2, sleep=30))
    rig.offers(MIRROR, image(3))
    result = go(rig, timeout=1)
    assert codes(result["attempts"]) == ["time_limit"] and "1 s" in result["attempts"][0]["error"]
    assert rig.store() == ({REF: sha(3)}, [sha(1), sha(3)])


def test_a_name_that_cannot_be_given_is_undone(rig):
    rig.scenario["tag_fails"] = True
    rig.offers(MIRROR, image(1))
    failure = refused(rig, candidates=[MIRROR])
    assert codes(failure.attempts) == ["tag_failed"]
    assert rig.store() == ({}, [])


def test_an_image_that_goes_away_meanwhile(rig):
    rig.scenario["vanishing"] = True
    rig.offers(REF, image(1))
    assert codes(refused(rig, candidates=[REF]).attempts) == ["image_vanished"]


# -- pull: always --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("offered", "changed"), [(1, False), (2, True)])
@pytest.mark.parametrize("source", [REF, MIRROR])
def test_always_is_a_change_only_when_the_id_changes(rig, offered, changed, source):
    rig.has(1, REF, in_use=True)
    rig.offers(source, image(offered))
    result = go(rig, pull="always", candidates=[source])
    assert (result["changed"], result["action"]) == (changed, "pull")
    assert rig.store() == ({REF: sha(offered)}, sorted({sha(1), sha(offered)}))


def test_always_puts_the_tag_back_when_the_new_image_is_wrong(rig):
    rig.has(1, REF)
    rig.offers(REF, image(2, "linux/amd64"))
    refused(rig, pull="always", candidates=[REF])
    assert rig.store() == ({REF: sha(1)}, [sha(1)])


# -- digest --------------------------------------------------------------------------------------------------------


def test_a_pinned_image_is_pulled_by_digest_and_stays_proved(rig):
    rig.offers(MIRROR, image(1))
    result = go(rig, digest=sha(1001))
    name = "m.daocloud.io/quay.io/ascend/vllm-ascend@" + sha(1001)
    assert rig.calls("docker pull")[1] == f"docker pull --platform {ARM} {name}"
    assert rig.store()[0] == {REF: sha(1)} and result["image"]["digests"] == [name]
    assert codes(result["attempts"]) == ["manifest_unknown"]
    rig.scenario = rig.state()
    assert not go(rig, digest=sha(1001))["changed"]


def test_a_present_image_with_another_digest_is_replaced(rig):
    rig.has(1, REF, digests=["quay.io/ascend/vllm-ascend@" + sha(5)])
    rig.offers(REF, image(2))
    result = go(rig, digest=sha(1002))
    assert (result["changed"], result["image"]["id"]) == (True, sha(2))
    assert sha(1) in rig.store()[1]


def test_a_present_image_without_a_record_of_its_digest_gets_one(rig):
    rig.has(1, REF)
    rig.offers(REF, image(1))
    assert go(rig, digest=sha(1001))["changed"]
    rig.scenario = rig.state()
    assert not go(rig, digest=sha(1001))["changed"]


def test_another_digest_than_the_pinned_one_is_an_error(rig):
    rig.has(1, REF, digests=["quay.io/ascend/vllm-ascend@" + sha(5)])
    failure = refused(rig, digest=sha(6), pull="never")
    assert codes(failure.problems) == ["wrong_digest"]
    assert sha(5) in str(failure) and sha(6) in str(failure)


def test_a_reference_by_digest(rig):
    name = "quay.io/ascend/vllm-ascend@" + sha(1001)
    rig.offers(REF, image(1))
    assert go(rig, reference=name, candidates=[name])["changed"]
    assert rig.calls("docker tag") == []
    rig.scenario = rig.state()
    assert not go(rig, reference=name, candidates=[name], digest=sha(1001))["changed"]


def test_a_wrong_image_pulled_by_digest_goes(rig):
    rig.offers(REF, image(1, "linux/amd64"))
    refused(rig, candidates=[REF], digest=sha(1001))
    assert rig.store() == ({}, [])


# -- archive -------------------------------------------------------------------------------------------------------


@pytest.fixture
def archive(tmp_path):
    path = tmp_path / "image.tar"
    path.write_bytes(b"\0" * 257 + b"ustar" + b"\0" * 250)
    return str(path)


@pytest.mark.parametrize(
    "entries",
    [
        [image(1, tag=REF)],
        [image(1, tag=MIRROR)],
        [image(1, tag="somebody/else:1")],
        [image(1)],
        [image(1, tag="a:1"), image(1, tag="b:1")],
        [image(2, tag="other:1"), image(1, tag=MIRROR)],
    ],
)
def test_an_archive_is_loaded_and_named(rig, archive, entries):
    rig.scenario["archives"][archive] = entries
    result = go(rig, archive=archive)
    assert (result["changed"], result["action"], result["image"]["source"]) == (True, "load", archive)
    assert result["image"]["id"] == sha(1) and rig.store()[0][REF] == sha(1)
    assert rig.calls("docker pull") == []
    rig.scenario = rig.state()
    assert not go(rig, archive=archive)["changed"]


def test_an_archive_is_loaded_also_under_never(rig, archive):
    rig.scenario["archives"][archive] = [image(1)]
    assert go(rig, archive=archive, pull="never")["action"] == "load"


@pytest.mark.parametrize(("loaded", "changed"), [(1, False), (2, True)])
def test_an_archive_is_loaded_again_under_always(rig, archive, loaded, changed):
    rig.has(1, REF)
    rig.scenario["archives"][archive] = [image(loaded, tag=REF)]
    assert go(rig, archive=archive, pull="always")["changed"] is changed


@pytest.mark.parametrize("tag", [REF, "somebody/else:1"])
def test_an_archive_for_another_architecture_is_undone(rig, archive, tag):
    rig.has(1, REF, platform="linux/riscv64")
    rig.scenario["archives"][archive] = [image(2, "linux/amd64", tag=tag)]
    failure = refused(rig, archive=archive)
    assert codes(failure.problems) == ["wrong_architecture"]
    assert archive in str(failure) and "linux/amd64" in str(failure)
    assert rig.store() == ({REF: sha(1)}, [sha(1)])


def test_an_archive_with_other_images(rig, archive):
    rig.scenario["archives"][archive] = [image(1, tag="a:1"), image(2, tag="b:1")]
    failure = refused(rig, archive=archive)
    assert codes(failure.problems) == ["archive_other_image"]
    assert "a:1, b:1" in str(failure)
    assert rig.store() == ({}, [])


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        ("Error processing tar file(exit status 1): unexpected EOF", "archive_truncated"),
        ("open /var/lib/docker/tmp/docker-import-1/repositories: no such file or directory", "archive_invalid"),
        ("Error processing tar file(exit status 1): write /x: no space left on device", "no_space"),
        ([], "archive_other_image"),
    ],
)
def test_an_archive_that_the_engine_refuses(rig, archive, answer, code):
    rig.scenario["archives"][archive] = answer
    failure = refused(rig, archive=archive)
    assert codes(failure.problems) == [code]
    assert archive in str(failure)


def test_a_load_has_a_time_limit(rig, archive):
    rig.scenario["archives"][archive] = [image(1, sleep=30)]
    assert codes(refused(rig, archive=archive, timeout=1).problems) == ["time_limit"]


def test_a_pin_of_an_archive_is_its_image_id(rig, archive):
    rig.scenario["archives"][archive] = [image(1, tag=REF)]
    failure = refused(rig, archive=archive, digest=sha(1001))
    assert codes(failure.problems) == ["wrong_digest"] and "pin the image id" in str(failure)
    assert go(rig, archive=archive, digest=sha(1))["changed"]


@pytest.mark.parametrize("check_mode", [False, True])
@pytest.mark.parametrize(
    ("content", "code"), [(None, "archive_missing"), (b"", "archive_invalid"), (b"<html>", "archive_invalid")]
)
def test_an_archive_that_is_none(rig, tmp_path, content, code, check_mode):
    path = tmp_path / "none.tar"
    if content is not None:
        path.write_bytes(content)
    failure = refused(rig, archive=str(path), check_mode=check_mode)
    assert codes(failure.problems) == [code] and str(path) in str(failure)
    assert rig.calls("docker load") == []


@pytest.mark.parametrize("head", [b"\x1f\x8b\x08", b"BZh9", b"\xfd7zXZ\x00", b"\x28\xb5\x2f\xfd"])
def test_compressed_archives_are_left_to_the_engine(tmp_path, head):
    (tmp_path / "a").write_bytes(head)
    assert image_store.archive_problem(str(tmp_path / "a")) is None


# -- check mode ----------------------------------------------------------------------------------------------------


def test_check_mode_predicts_a_pull(rig):
    rig.offers(MIRROR, image(1))
    result = go(rig, check_mode=True, candidates=[MIRROR], ca={"m.daocloud.io": PEM}, proxy={"https": LOGIN_PROXY})
    assert (result["changed"], result["action"], result["image"]["source"]) == (True, "pull", MIRROR)
    assert result["image"]["id"] is None and result["image"]["size_mb"] is None
    after = result["diff"]["after"]
    assert MIRROR in after["image"] and after[str(rig.certs / "m.daocloud.io" / "ca.crt")] == PEM
    assert "proxy.test" in after[str(rig.drop_in)] and "s3cret" not in str(result)
    assert not rig.certs.exists() and not rig.drop_in.exists()
    assert rig.calls("docker pull") == rig.calls("systemctl") == []


@pytest.mark.parametrize("pull", ["missing", "never"])
def test_check_mode_predicts_a_name_and_an_archive(rig, archive, pull):
    rig.has(1, MIRROR)
    before = dict(rig.scenario["tags"])
    assert go(rig, check_mode=True, pull=pull)["action"] == "tag"
    assert go(rig, check_mode=True, pull=pull, archive=archive)["action"] == "load"
    assert rig.store()[0] == before


def test_check_mode_of_a_refresh_is_no_change(rig):
    rig.has(1, REF)
    result = go(rig, check_mode=True, pull="always")
    assert not result["changed"] and "known only then" in result["msg"]
    assert result["image"]["id"] == sha(1)
    assert result["diff"]["before"] == result["diff"]["after"]


# -- login ---------------------------------------------------------------------------------------------------------


def test_only_the_pull_from_that_registry_sees_the_login(rig):
    rig.home.mkdir()
    (rig.home / "config.json").write_text('{"HttpHeaders": {"X": "y"}, "auths": {"o.test": {"auth": "bw=="}}}')
    rig.offers(MIRROR, image(1))
    go(rig, auth={"m.daocloud.io": {"username": "u", "password": "s3cret"}})
    seen = {record["argv"][-1]: record["login"] for record in rig.records() if record["argv"][1] == "pull"}
    assert seen[REF]["folder"] == str(rig.home)
    login = seen[MIRROR]
    assert login["modes"] == ["0o700", "0o600"] and login["files"] == ["config.json"]
    assert login["config"]["HttpHeaders"] == {"X": "y"} and set(login["config"]["auths"]) == {"o.test", "m.daocloud.io"}
    assert not os.path.exists(login["folder"])
    assert all("s3cret" not in call for call in rig.calls())


def test_the_login_goes_when_the_pull_fails_or_runs_out_of_time(rig):
    rig.offers(REF, image(1, sleep=30))
    auth = {name: {"username": "u", "password": "s3cret"} for name in ("quay.io", "m.daocloud.io")}
    failure = refused(rig, auth=auth, timeout=1, candidates=[REF, MIRROR])
    folders = [record["login"]["folder"] for record in rig.records() if record["argv"][1] == "pull"]
    assert len(folders) == 2 and not any(map(os.path.exists, folders))
    assert codes(failure.attempts) == ["time_limit", "manifest_unknown"]


# -- CA ------------------------------------------------------------------------------------------------------------


def test_a_ca_is_written_before_the_pull_and_is_a_change(rig):
    rig.has(1, REF)
    rig.offers(REF, image(1))
    path = rig.certs / "m.daocloud.io" / "ca.crt"
    result = go(rig, pull="always", ca={"m.daocloud.io": PEM})
    assert result["changed"] and result["image"]["id"] == sha(1)
    assert path.read_text() == PEM and stat.S_IMODE(path.stat().st_mode) == 0o644
    assert result["diff"]["before"][str(path)] is None and result["diff"]["after"][str(path)] == PEM
    assert not go(rig, pull="always", ca={"m.daocloud.io": PEM})["changed"]


def test_a_ca_that_was_written_is_told_when_all_fail(rig):
    failure = refused(rig, candidates=[REF], ca={"quay.io": PEM})
    assert failure.changed and failure.diff["after"][str(rig.certs / "quay.io" / "ca.crt")] == PEM


def test_a_ca_that_cannot_be_written(rig):
    rig.certs.write_text("a file where a folder should be")
    failure = refused(rig, ca={"quay.io": PEM})
    assert codes(failure.problems) == ["not_writable"] and str(rig.certs) in str(failure)
    assert not failure.changed and rig.calls("docker pull") == []


# -- proxy ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("url", [PROXY, LOGIN_PROXY])
def test_a_proxy_is_given_to_the_daemon(rig, url):
    rig.offers(REF, image(1))
    result = go(rig, proxy={"https": url, "no_proxy": "10.0.0.0/8"})
    assert rig.calls("systemctl") == ["systemctl daemon-reload", "systemctl restart docker"]
    text = rig.drop_in.read_text()
    assert f'Environment="HTTPS_PROXY={url}"' in text and "HTTP_PROXY=" not in text.replace("HTTPS", "")
    assert stat.S_IMODE(rig.drop_in.stat().st_mode) == 0o600
    assert "s3cret" not in str(result) and str(rig.drop_in) in result["diff"]["after"]
    rig.scenario = rig.state()
    assert not go(rig, pull="always", proxy={"https": url})["changed"]
    assert len(rig.calls("systemctl")) == 2


def test_a_changed_proxy_password_is_a_change(rig):
    rig.offers(REF, image(1))
    go(rig, proxy={"https": LOGIN_PROXY})
    rig.scenario = rig.state()
    assert go(rig, pull="always", proxy={"https": LOGIN_PROXY.replace("s3cret", "n3w")})["changed"]
    assert "n3w" in rig.drop_in.read_text()


def test_a_drop_in_that_the_daemon_has_not_read_yet(rig):
    rig.offers(REF, image(1))
    rig.drop_in.parent.mkdir()
    rig.drop_in.write_text(engine_settings.drop_in_text({"HTTP_PROXY": PROXY}))
    assert go(rig, proxy={"http": PROXY})["changed"]
    assert rig.state()["info"]["HttpProxy"] == PROXY


def test_the_daemons_own_proxy_is_enough(rig):
    rig.scenario["info"].update(HttpsProxy=PROXY, ContainersRunning=3)
    rig.offers(REF, image(1))
    go(rig, proxy={"https": PROXY})
    assert rig.calls("systemctl") == [] and not rig.drop_in.exists()


@pytest.mark.parametrize("check_mode", [False, True])
@pytest.mark.parametrize(
    ("live_restore", "instances", "words"),
    [
        (False, [], "2 container(s) run and live-restore is off"),
        (True, ["vllm-ascend", "vllm-b"], "vllm-ascend, vllm-b"),
    ],
)
def test_docker_is_not_restarted_under_what_runs(rig, live_restore, instances, words, check_mode):
    rig.scenario["info"].update(ContainersRunning=2, LiveRestoreEnabled=live_restore, HttpsProxy="http://old:1")
    rig.scenario["instances"] = instances
    failure = refused(rig, proxy={"https": LOGIN_PROXY}, ca={"quay.io": PEM}, check_mode=check_mode)
    assert codes(failure.problems) == ["proxy_needs_restart"]
    for expected in (words, "http://old:1", "HTTPS_PROXY=" + PROXY):
        assert expected in str(failure)
    assert "s3cret" not in str(failure)
    assert not failure.changed and not rig.certs.exists() and not rig.drop_in.exists()
    assert rig.calls("systemctl") == rig.calls("docker pull") == []


def test_live_restore_keeps_other_containers(rig):
    rig.scenario["info"].update(ContainersRunning=2, LiveRestoreEnabled=True)
    rig.offers(REF, image(1))
    assert go(rig, proxy={"https": PROXY})["changed"]
    assert rig.calls("systemctl restart")


@pytest.mark.parametrize("before", [None, "# of before\n"])
@pytest.mark.parametrize(
    ("broken", "words"),
    [
        ({"daemon_json": {"HttpsProxy": "http://u:s3cret@daemon.json:1"}}, "http://daemon.json:1"),
        ({"systemctl_fails": {"restart": "Job for docker.service failed."}}, "Job for docker.service failed."),
        ({"systemctl_fails": {"daemon-reload": "Access denied"}}, "Access denied"),
    ],
)
def test_a_proxy_that_docker_does_not_take_is_undone(rig, broken, words, before):
    rig.scenario.update(broken)
    if before:
        rig.drop_in.parent.mkdir()
        rig.drop_in.write_text(before)
    failure = refused(rig, proxy={"https": PROXY})
    assert codes(failure.problems) == ["proxy_not_taken"]
    assert words in str(failure) and "s3cret" not in str(failure)
    assert engine_settings.read_file(str(rig.drop_in)) == before and not failure.changed
    assert rig.calls("docker pull") == []
    assert rig.calls("systemctl")[-1].split()[-1] in ("docker", "daemon-reload")


def test_an_engine_that_does_not_come_back(rig, monkeypatch):
    monkeypatch.setattr(image_store, "COMMAND_S", 0.5)
    rig.write()
    rig.scenario["down"] = CANNOT_CONNECT
    rig.write()
    assert "Cannot connect" in str(image_store._restart(image_engine.Engine(rig.cli), {"HTTPS_PROXY": PROXY}))


# -- the disk ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("check_mode", [False, True])
@pytest.mark.parametrize("from_archive", [False, True])
def test_too_little_space_names_both_figures(rig, archive, check_mode, from_archive):
    free = os.statvfs(rig.scenario["info"]["DockerRootDir"])
    free_mb = free.f_bavail * free.f_frsize >> 20
    wanted = free_mb + 100000
    failure = refused(rig, min_free_mb=wanted, check_mode=check_mode, archive=archive if from_archive else None)
    assert codes(failure.problems) == ["no_space"]
    assert f" {wanted} MB" in str(failure) and rig.scenario["info"]["DockerRootDir"] in str(failure)
    assert rig.calls("docker pull") == rig.calls("docker load") == []


@pytest.mark.parametrize("min_free_mb", [0, 1])
def test_enough_space(rig, min_free_mb):
    rig.offers(REF, image(1))
    assert go(rig, min_free_mb=min_free_mb)["changed"]


def test_all_that_forbids_a_pull_is_said_at_once(rig):
    rig.scenario["info"].update(ContainersRunning=1)
    failure = refused(rig, min_free_mb=1 << 40, proxy={"http": PROXY})
    assert codes(failure.problems) == ["proxy_needs_restart", "no_space"]


# -- the engine and the request ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", ["Error: No such image: {}", "Error response from daemon: no such image: {0}: No such image: {0}"]
)
def test_both_texts_of_a_missing_image(rig, text):
    rig.scenario["no_such_image"] = text
    rig.offers(REF, image(1))
    assert go(rig)["action"] == "pull"


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        (CANNOT_CONNECT, "engine_stopped", "systemctl start docker"),
        ("permission denied while trying to connect to the Docker daemon socket", "engine_permission", "Run as root"),
        ("Error response from daemon: invalid reference format", "engine_error", "invalid reference format"),
    ],
)
def test_an_engine_that_cannot_be_asked(rig, text, code, words):
    rig.scenario["down"] = text
    failure = refused(rig)
    assert codes(failure.problems) == [code] and words in str(failure)


def test_an_engine_that_stops_before_the_pull(rig):
    rig.scenario["down"] = CANNOT_CONNECT
    rig.write()
    with pytest.raises(ImageError) as caught:
        image_engine.Engine(rig.cli).info()
    assert codes(caught.value.problems) == ["engine_stopped"]


def test_no_engine(rig):
    rig.cli = "/nowhere/docker"
    failure = refused(rig)
    assert codes(failure.problems) == ["engine_missing"] and "/nowhere/docker" in str(failure)


def test_an_engine_that_hangs(rig, monkeypatch):
    monkeypatch.setattr(image_engine, "COMMAND_S", 1)
    monkeypatch.setattr(image_engine.Engine._run, "__defaults__", (1, None, False))
    rig.scenario["hang"] = ["image", "inspect"]
    assert codes(refused(rig).problems) == ["engine_hung"]


def test_output_that_is_no_json(rig):
    rig.write()
    (rig.folder / "docker").write_text("#!/bin/sh\necho podman\n")
    with pytest.raises(ImageError) as caught:
        image_engine.Engine(rig.cli).inspect(REF)
    assert codes(caught.value.problems) == ["engine_error"] and "not JSON: podman" in str(caught.value)


def test_everything_wrong_with_the_request_is_said_at_once(rig):
    failure = refused(
        rig,
        reference="--all",
        candidates=["a b"],
        platform="linux/s390x",
        digest="sha256:1",
        timeout=0,
        auth={"quay.io": {}},
        ca={"quay.io": "x"},
        proxy={"http": "x"},
    )
    assert codes(failure.problems) == [
        "bad_reference",
        "bad_reference",
        "bad_digest",
        "bad_platform",
        "bad_timeout",
        "bad_auth",
        "bad_ca",
        "bad_proxy",
    ]
    assert rig.calls() == [] and all(p["message"] in str(failure) for p in failure.problems)


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"reference": "a/b@" + sha(1), "candidates": ["c/b@" + sha(1)]}, "bad_reference"),
        ({"reference": "a/b@" + sha(1), "candidates": [], "archive": "/x.tar"}, "bad_reference"),
        ({"reference": "a/b:c", "candidates": ["c/b@" + sha(1)], "digest": sha(2)}, "bad_digest"),
        ({"reference": "a/b@" + sha(1), "candidates": [], "digest": sha(2)}, "bad_digest"),
    ],
)
def test_names_by_digest_that_contradict(rig, options, code):
    assert codes(refused(rig, **options).problems) == [code]


@pytest.mark.parametrize(
    ("reference", "name"),
    [
        ("quay.io/a/b:c", "quay.io/a/b@" + sha(1)),
        ("r:5000/a/b", "r:5000/a/b@" + sha(1)),
        ("b:c", "b@" + sha(1)),
        ("a/b@" + sha(2), "a/b@" + sha(2)),
    ],
)
def test_the_name_by_digest(reference, name):
    assert image_engine.with_digest(reference, sha(1)) == name
    assert image_engine.with_digest(reference, None) == reference


@pytest.mark.parametrize(
    ("reference", "name"),
    [
        ("docker.io/library/alpine", "alpine:latest"),
        ("index.docker.io/a/b:1", "a/b:1"),
        ("r:5000/a", "r:5000/a:latest"),
        ("quay.io/a/b@" + sha(1), "quay.io/a/b@" + sha(1)),
    ],
)
def test_the_name_that_the_engine_prints(reference, name):
    assert image_engine.familiar(reference) == name


def test_every_call_goes_to_the_engine_that_is_observed(rig, monkeypatch):
    environments = []

    def noting(argv, timeout, stdin=None, env=None):
        environments.append(env)
        return run(argv, timeout, stdin, env)

    run = image_engine.run
    monkeypatch.setattr(image_engine, "run", noting)
    monkeypatch.setenv("DOCKER_HOST", "tcp://elsewhere:2376")
    rig.offers(REF, image(1))
    login = {"quay.io": {"username": "deploy", "password": "s3cret"}}
    assert go(rig, candidates=[REF], auth=login)["changed"]
    pulls = [env for env in environments if "DOCKER_CONFIG" in env]
    assert len(pulls) == 1 and len(environments) > 3
    assert all(env[key] == value for env in environments for key, value in engine.ENGINE_ENV.items())


@pytest.mark.parametrize("output", ["[]", "{}", "[7]", '[{"Id": 7}]', "null", "[" * 100_000, "x"])
def test_an_answer_that_names_no_image(rig, monkeypatch, output):
    monkeypatch.setattr(image_engine, "run", lambda argv, *_args, **_more: CommandResult(argv, 0, output, ""))
    assert codes(refused(rig).problems) == ["engine_error"]
    with pytest.raises(image_engine.ImageError):
        image_engine.Engine("docker").info()


def test_a_proxys_login_without_a_scheme_is_not_in_the_diff():
    text = '[Service]\nEnvironment="HTTP_PROXY=user:pa/ss@proxy:3128"\nEnvironment="NO_PROXY=a,b"\n# http://u:p@h\n'
    assert image_store._shown(text) == (
        '[Service]\nEnvironment="HTTP_PROXY=********@proxy:3128"\nEnvironment="NO_PROXY=a,b"\n# http://********@h\n'
    )
