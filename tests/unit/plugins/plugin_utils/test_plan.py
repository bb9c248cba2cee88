# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan: problems and warnings of host, engine, ports, containers and hardware, all at once."""

from __future__ import annotations

import json

import pytest
from ansible_collections.vllm_ascend.fleet.plugins.plugin_utils.plan import deployment_plan
from ansible_collections.vllm_ascend.fleet.plugins.plugin_utils.settings import INSTANCE_SETTINGS, SETTINGS
from ansible_collections.vllm_ascend.fleet.tests.unit.support.facts_builder import (
    add_several_paths,
    build_facts,
    build_observed,
    case_of,
    foreign,
    observed_image,
    observed_instance,
    path_entry,
    shipped_profiles,
)

REFERENCE = "quay.io/ascend/vllm-ascend:v0.23.0"


def plan_of(facts=None, observed=None, **settings):
    facts = facts if facts is not None else build_facts(case_of("atlas_a2"), npus=4)
    return deployment_plan(facts, settings, shipped_profiles(), observed)


def codes(plan, kind="problems"):
    return [entry["code"] for entry in plan[kind]]


def found(plan, code, kind="problems"):
    (entry,) = (entry for entry in plan[kind] if entry["code"] == code)
    return entry


# -- hardware ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("family", "code"),
    [("none", "hardware_none"), ("unknown", "hardware_unknown"), ("unsupported", "hardware_unsupported")],
)
def test_no_family_is_a_problem_even_when_the_facts_name_none(family, code):
    facts = build_facts(case_of("atlas_a2"))
    facts["family"] = family
    plan = plan_of(facts)
    assert codes(plan) == [code]
    assert (plan["family"], plan["image"], plan["instances"]) == (family, None, [])


def test_a_problem_of_the_facts_says_it_once():
    facts = build_facts(case_of("atlas_a2"))
    problem = {"code": "mixed_npus", "message": "two generations", "remedy": "take one out"}
    facts.update(family="unknown", problems=[problem])
    assert plan_of(facts)["problems"] == [problem]


def test_the_operators_family_wins_and_both_are_said():
    facts = build_facts(case_of("atlas_a2"))
    problem = {"code": "unknown_npu", "message": "cannot tell", "remedy": "set it"}
    facts.update(family="unknown", problems=[problem], evidence=[{"source": "pci", "value": "19e5:d805"}])
    plan = plan_of(facts, vllm_hardware_family="atlas_a2")
    assert (plan["problems"], plan["family"]) == ([], "atlas_a2")
    assert problem in plan["warnings"]
    assert "19e5:d805" in found(plan, "family_overridden", "warnings")["message"]
    assert any(e["what"] == "family atlas_a2" and "unknown" in e["why"] for e in plan["explain"])


def test_a_family_without_a_profile_lists_those_that_have_one():
    problem = found(plan_of(vllm_hardware_family="atlas_a9"), "family_unknown")
    assert "atlas_a9" in problem["message"] and "atlas_a2, atlas_a3" in problem["message"]


@pytest.mark.parametrize("accept", [False, True])
def test_a_hung_npu_smi_is_a_warning_when_accepted(accept):
    facts = build_facts(case_of("atlas_a2"))
    facts["problems"] = [{"code": "npu_smi_hung", "message": "no answer", "remedy": "wait"}]
    plan = plan_of(facts, vllm_accept_problems=["npu_smi_hung"] if accept else [])
    assert codes(plan) == ([] if accept else ["npu_smi_hung"])
    assert ("npu_smi_hung" in codes(plan, "warnings")) is accept


@pytest.mark.parametrize("status", ["ok", "hung"])
def test_the_verification_calls_no_npu_smi_that_hung_on_the_host(status):
    facts = build_facts(case_of("atlas_a2"))
    facts["npu_smi"]["status"] = status
    (instance,) = plan_of(facts)["instances"]
    assert (instance["verification"]["npu_smi"] is None) is (status == "hung")
    assert instance["verification"]["python"]


def test_driver_problems_stay_problems_under_an_override():
    facts = build_facts(case_of("atlas_a2"))
    facts["problems"] = [{"code": "driver_install_incomplete", "message": "half", "remedy": "again"}]
    assert codes(plan_of(facts, vllm_hardware_family="atlas_a2")) == ["driver_install_incomplete"]


def test_an_unknown_driver_folder_is_a_warning():
    facts = build_facts(case_of("atlas_a2"))
    facts["driver"].update(install_path=None, version=None)
    plan = plan_of(facts)
    assert plan["problems"] == []
    assert {"driver_unknown", "driver_version_unknown"} <= set(codes(plan, "warnings"))


def test_a_950pr_is_a_warning():
    facts = build_facts(case_of("atlas_950dt"))
    facts["chips"] = [{"device": "/dev/davinci0", "npu_id": 0, "chip_id": 0, "name": "Ascend950PR"}]
    assert "950PR" in found(plan_of(facts), "hardware_notice", "warnings")["message"]


def test_an_ordinary_file_in_the_place_of_a_node_is_a_problem():
    facts = build_facts(case_of("atlas_a2"))
    facts["device_nodes"]["/dev/hisi_hdc"]["type"] = "file"
    assert "/dev/hisi_hdc is of type file" in found(plan_of(facts), "device_wrong_type")["message"]


def test_a_broken_link_is_named_with_its_target():
    facts = build_facts(case_of("atlas_a2"))
    facts["paths"]["/usr/local/dcmi"] = path_entry("link_broken", link="/opt/gone")
    assert "/opt/gone" in found(plan_of(facts), "path_missing")["message"]


def test_all_problems_are_said_at_once():
    facts = build_facts(case_of("atlas_a2"), npus=1)
    del facts["device_nodes"]["/dev/hisi_hdc"]
    facts["paths"]["/usr/local/dcmi"] = path_entry("missing")
    facts["paths"]["/etc/ascend_install.info"] = path_entry("directory")
    facts["problems"] = [{"code": "npu_smi_missing", "message": "gone", "remedy": "install"}]
    listener = {"port": 8000, "address": "0.0.0.0", "pid": 7, "process": "nginx", "container": None}
    plan = plan_of(
        facts,
        build_observed(engine=None, systemd={"version": 239}, listeners=[listener], foreign=[foreign("vllm-ascend")]),
        vllm_npus=9,
        vllm_port=8000,
        vllm_stop_timeout="soon",
        vllm_extra_args=["--port", "1"],
        vllm_ascend_version="v0.1.0",
    )
    assert set(codes(plan)) == {
        "npu_smi_missing", "setting_invalid", "engine_missing", "systemd_too_old", "container_foreign", "port_taken",
        "extra_args_reserved", "image_suffix_not_in_release", "npu_shortage", "device_missing", "path_missing",
        "path_wrong_type",
    }  # fmt: skip
    assert all(problem["message"] and problem["remedy"] for problem in plan["problems"])


# -- engine and systemd ------------------------------------------------------------------------------------------------


def engine(**changes):
    return build_observed(engine={**build_observed()["engine"], **changes})


@pytest.mark.parametrize(
    ("observed", "code", "part"),
    [
        (build_observed(engine=None), "engine_missing", "no container engine"),
        (engine(kind="podman", version="4.9.3", running=None), "engine_unsupported", "podman 4.9.3"),
        (engine(running=False, error="Cannot connect"), "engine_stopped", "Cannot connect"),
        (engine(version="18.06.3-ce"), "engine_too_old", "18.06.3-ce"),
        (engine(version="1.13.1"), "engine_too_old", "1.13.1"),
        (build_observed(systemd=None), "systemd_missing", "systemd"),
        (build_observed(systemd={"version": 239}), "systemd_too_old", "239"),
    ],
)
def test_engine_and_systemd(observed, code, part):
    plan = plan_of(observed=observed)
    assert codes(plan) == [code]
    assert part in plan["problems"][0]["message"]
    assert len(plan["instances"]) == 1


@pytest.mark.parametrize("version", ["18.09.1", "20.10.24+dfsg1", "24.0.7", "29.0.0", None])
def test_an_engine_that_is_new_enough(version):
    assert plan_of(observed=engine(version=version))["problems"] == []


def test_pull_never_is_left_out_for_engines_that_do_not_know_it():
    def run(version):
        return plan_of(observed=engine(version=version))["instances"][0]["docker_run"]

    assert "--pull" not in run("19.03.15")
    assert run("20.10.0")[:4] == ["docker", "run", "--pull", "never"]


def test_the_ascend_runtime_is_left_aside():
    assert plan_of(observed=engine(default_runtime="ascend"))["instances"][0]["container"]["runtime"] == "runc"
    assert plan_of(observed=engine(default_runtime="other"))["instances"][0]["container"]["runtime"] is None


def test_a_replay_without_records_has_no_engine_problems():
    nothing, bare = build_observed(engine=None, systemd=None), build_facts(case_of("atlas_a2"), npus=4)
    bare["host"]["python"] = None
    assert codes(plan_of(observed=nothing)) == ["engine_missing", "systemd_missing"]
    plan = plan_of(bare, nothing, vllm_sysroot="/tmp/host")
    assert (plan["problems"], len(plan["instances"])) == ([], 1)
    unread = {**build_observed()["engine"], "version": None, "running": None}
    assert plan_of(bare, build_observed(engine=unread, systemd=None), vllm_sysroot="/tmp/host")["problems"] == []


def test_a_bundle_of_a_live_host_that_had_no_engine_says_so():
    nothing = build_observed(engine=None, systemd=None)
    assert codes(plan_of(observed=nothing, vllm_sysroot="/tmp/host")) == ["engine_missing", "systemd_missing"]


# -- ports and other containers ----------------------------------------------------------------------------------------


def listener(port=8000, **changes):
    return {"port": port, "address": "0.0.0.0", "pid": 7, "process": "nginx", "container": None, **changes}


@pytest.mark.parametrize(
    ("bind", "address", "taken"),
    [
        ("0.0.0.0", "127.0.0.1", True),
        ("0.0.0.0", "::", True),
        ("127.0.0.1", "0.0.0.0", True),
        ("127.0.0.1", "127.0.0.1", True),
        ("127.0.0.1", "10.0.0.5", False),
        ("10.0.0.5", None, True),
    ],
)
def test_a_port_is_taken_where_the_addresses_meet(bind, address, taken):
    plan = plan_of(observed=build_observed(listeners=[listener(address=address)]), vllm_bind_address=bind)
    assert codes(plan) == (["port_taken"] if taken else [])
    if taken:
        assert "8000" in plan["problems"][0]["message"] and "nginx (pid 7)" in plan["problems"][0]["message"]


def test_other_ports_do_not_matter():
    assert plan_of(observed=build_observed(listeners=[listener(8001)]))["problems"] == []


def test_the_instances_own_listener_is_fine():
    own = observed_instance(plan_of()["instances"][0])
    proxy = listener(process="docker-proxy", container=own["container"]["id"])
    assert plan_of(observed=build_observed(instances=[own], listeners=[proxy]))["problems"] == []
    unnamed = listener(process="docker-proxy", container=None)
    assert plan_of(observed=build_observed(instances=[own], listeners=[unnamed]))["problems"] == []
    inside = listener(process="vllm", container=own["container"]["id"][:12])
    assert plan_of(observed=build_observed(instances=[own], listeners=[inside]))["problems"] == []


def test_a_stranger_on_the_instances_port_is_not_fine():
    own = observed_instance(plan_of()["instances"][0])
    plan = plan_of(observed=build_observed(instances=[own], listeners=[listener()]))
    assert codes(plan) == ["port_taken"]


def test_a_port_of_another_container_or_instance_is_taken():
    web = foreign("web", ports=[8000], npu=False)
    assert "container web" in found(plan_of(observed=build_observed(foreign=[web])), "port_taken")["message"]
    gone = foreign("web", ports=[8000], npu=False, state="exited")
    assert plan_of(observed=build_observed(foreign=[gone]))["problems"] == []
    old = observed_instance(plan_of()["instances"][0], name="old", npus=["/dev/davinci3"])
    assert "instance old" in found(plan_of(observed=build_observed(instances=[old])), "port_taken")["message"]


def test_a_container_of_our_name_is_a_problem_until_it_is_adopted():
    mine = foreign("vllm-ascend", ports=[8000], devices=["/dev/davinci0"], image="quay.io/x:1")
    proxy = listener(process="docker-proxy", container=mine["id"])
    observed = build_observed(foreign=[mine], listeners=[proxy])
    plan = plan_of(observed=observed)
    assert codes(plan) == ["container_foreign"]
    assert "docker rm -f vllm-ascend" in plan["problems"][0]["remedy"]
    adopted = plan_of(observed=observed, vllm_adopt_containers=True)
    assert adopted["problems"] == []
    assert adopted["instances"][0]["npus"] == ["/dev/davinci0"]
    assert "container_adopted" in codes(adopted, "warnings")


# -- NPUs of others ----------------------------------------------------------------------------------------------------


def test_a_node_of_another_container_is_not_taken():
    # davinci1 is exactly that node: davinci10 to 15 stay free.
    holder = foreign("train", devices=["/dev/davinci0", "/dev/davinci1"])
    facts = add_several_paths(build_facts(case_of("atlas_a2"), npus=16))
    assert plan_of(facts, build_observed(foreign=[holder]))["instances"][0]["npus"] == ["/dev/davinci2"]
    plan = plan_of(facts, build_observed(foreign=[holder]), vllm_npus=15)
    message = found(plan, "npu_shortage")["message"]
    assert "14 of 16 are free" in message and "container train" in message
    plan = plan_of(facts, build_observed(foreign=[holder]), vllm_npus=["/dev/davinci1"])
    assert "container train" in found(plan, "npu_held")["message"]
    assert codes(plan_of(facts, build_observed(foreign=[holder]), vllm_npus="all")) == ["npu_held"]


def test_usage_by_our_own_instance_holds_nothing():
    facts = build_facts(case_of("atlas_a2"), npus=2)
    own = observed_instance(plan_of(facts)["instances"][0])
    facts["usage"] = [
        {"device": "/dev/davinci0", "owner": {"kind": "process", "name": "VLLM", "id": 42}, "source": "npu-smi"},
        {"device": "/dev/davinci0", "owner": {"kind": "container", "name": None, "id": own["container"]["id"]}},
    ]
    plan = plan_of(facts, build_observed(instances=[own]))
    assert (plan["problems"], plan["instances"][0]["npus"]) == ([], ["/dev/davinci0"])


def test_an_instance_keeps_the_nodes_that_it_runs_on():
    facts = build_facts(case_of("atlas_a2"), npus=4)
    first = plan_of(facts, vllm_npus=["/dev/davinci2"])["instances"][0]
    own = observed_instance(first)
    assert plan_of(facts, build_observed(instances=[own]))["instances"][0]["npus"] == ["/dev/davinci2"]


def running(name, npus, facts, **changes):
    """An instance that was deployed under that name on these nodes."""
    entry = {"name": name, "npus": npus}
    plan = plan_of(facts, vllm_instances=[entry])
    assert plan["problems"] == []
    ident = name.encode().hex().ljust(64, "0")[:64]
    observed = observed_instance(plan["instances"][0], ports=[])
    return {**observed, "container": {**observed["container"], "id": ident}, **changes}


def host_of(count):
    return add_several_paths(build_facts(case_of("atlas_a2"), npus=count))


def test_a_renamed_instance_finds_its_node_held_by_the_old_one():
    facts = host_of(1)
    old = running("old", ["/dev/davinci0"], facts)
    facts["usage"] = [
        {"device": "/dev/davinci0", "owner": {"kind": "process", "name": "VLLM", "id": 42}},
        {"device": "/dev/davinci0", "owner": {"kind": "container", "name": None, "id": old["container"]["id"]}},
    ]
    plan = plan_of(facts, build_observed(instances=[old]), vllm_instances=[{"name": "new"}])
    assert codes(plan) == ["npu_held", "npu_shortage"]
    problem = found(plan, "npu_held")
    assert "instance old" in problem["message"] and "/dev/davinci0" in problem["message"]
    assert """remove.yml -e '{"vllm_instance_names": ["old"]}'""" in problem["remedy"]
    asked = plan_of(facts, build_observed(instances=[old]), vllm_instances=[{"name": "n", "npus": ["/dev/davinci0"]}])
    assert codes(asked) == ["npu_held"] and "remove.yml" in found(asked, "npu_held")["remedy"]
    every = plan_of(facts, build_observed(instances=[old]), vllm_instances=[{"name": "n", "npus": "all"}])
    assert "remove.yml" in found(every, "npu_held")["remedy"]


def test_nodes_of_an_orphan_are_left_alone_where_others_are_free():
    facts = host_of(2)
    old = running("old", ["/dev/davinci0"], facts)
    plan = plan_of(facts, build_observed(instances=[old]), vllm_instances=[{"name": "new"}])
    assert (plan["problems"], plan["instances"][0]["npus"]) == ([], ["/dev/davinci1"])


def test_an_orphan_that_is_stopped_holds_nothing():
    facts = host_of(1)
    old = running("old", ["/dev/davinci0"], facts, container=None, active_state="inactive")
    plan = plan_of(facts, build_observed(instances=[old]), vllm_instances=[{"name": "new"}])
    assert (plan["problems"], plan["instances"][0]["npus"]) == ([], ["/dev/davinci0"])


def test_a_port_of_an_orphan_names_its_removal():
    old = running("old", ["/dev/davinci3"], host_of(4), ports=[8000])
    plan = plan_of(observed=build_observed(instances=[old]))
    assert "remove.yml" in found(plan, "port_taken")["remedy"]


def swap(first, second, **changes):
    facts = host_of(2)
    observed = [running("a", ["/dev/davinci0"], facts), running("b", ["/dev/davinci1"], facts, **changes)]
    entries = [{"name": "a", "npus": first}, {"name": "b", "npus": second, "port": 8001}]
    return plan_of(facts, build_observed(instances=observed), vllm_instances=entries)


def test_running_instances_that_swap_nodes_need_one_stopped_first():
    plan = swap(["/dev/davinci1"], ["/dev/davinci0"])
    assert codes(plan) == ["npu_swapped"]
    problem = plan["problems"][0]
    assert "instance a gets /dev/davinci1" in problem["message"] and "the instance b runs on" in problem["message"]
    assert """stop.yml -e '{"vllm_instance_names": ["b"]}'""" in problem["remedy"]
    stopped = {"container": None, "active_state": "inactive"}
    assert swap(["/dev/davinci1"], ["/dev/davinci0"], **stopped)["problems"] == []
    assert swap(["/dev/davinci0"], ["/dev/davinci1"])["problems"] == []


def test_a_node_that_an_earlier_instance_gives_up_is_free_in_time():
    facts = host_of(3)
    observed = [running("a", ["/dev/davinci0"], facts), running("b", ["/dev/davinci1"], facts)]
    entries = [
        {"name": "a", "npus": ["/dev/davinci2"]},
        {"name": "b", "npus": ["/dev/davinci0"], "port": 8001},
    ]
    plan = plan_of(facts, build_observed(instances=observed), vllm_instances=entries)
    assert plan["problems"] == []


# -- images ------------------------------------------------------------------------------------------------------------


def test_the_registries_are_tried_in_order_with_only_the_prefix_replaced():
    image = plan_of(vllm_image_registries=["mirror.example:5000/quay.io", "quay.io"])["image"]
    assert image["reference"] == REFERENCE
    assert image["candidates"] == ["mirror.example:5000/quay.io/ascend/vllm-ascend:v0.23.0", REFERENCE]
    assert plan_of()["image"]["candidates"] == [
        REFERENCE,
        "m.daocloud.io/quay.io/ascend/vllm-ascend:v0.23.0",
        "quay.nju.edu.cn/ascend/vllm-ascend:v0.23.0",
    ]
    own = plan_of(vllm_image_registries=["hub.example"], vllm_image_repository="team/vllm")["image"]
    assert own["reference"] == "hub.example/team/vllm:v0.23.0"


def test_an_own_image_is_taken_whole_with_a_warning():
    plan = plan_of(vllm_image="hub.example/own:1", vllm_ascend_version="v0.1.0")
    assert plan["problems"] == []
    assert plan["image"]["candidates"] == ["hub.example/own:1"] == [plan["instances"][0]["container"]["image"]]
    assert "image_own" in codes(plan, "warnings")


DIGEST = "sha256:" + "a" * 64


def test_a_digest_comes_from_one_place():
    assert plan_of(vllm_image_digest=DIGEST)["image"]["digest"] == DIGEST
    pinned = f"hub.example/own:1@{DIGEST}"
    assert plan_of(vllm_image=pinned)["image"]["digest"] == DIGEST
    other = "sha256:" + "b" * 64
    assert codes(plan_of(vllm_image=pinned, vllm_image_digest=other)) == ["image_digest_conflict"]


def test_an_archive_may_be_pinned_by_the_image_id():
    plan = plan_of(vllm_image_archive="/srv/i.tar", vllm_image_digest=DIGEST)
    assert plan["problems"] == []
    assert (plan["image"]["archive"], plan["image"]["digest"]) == ("/srv/i.tar", DIGEST)
    pinned = plan_of(vllm_image_archive="/srv/i.tar", vllm_image=f"hub.example/own:1@{DIGEST}")
    assert codes(pinned) == ["image_digest_archive"]


def test_an_image_that_may_not_be_pulled_must_be_there():
    plan = plan_of(observed=build_observed(), vllm_image_pull="never")
    assert REFERENCE in found(plan, "image_missing")["message"]
    there = build_observed(images=[observed_image(REFERENCE)])
    assert plan_of(observed=there, vllm_image_pull="never")["problems"] == []
    archive = {"vllm_image_pull": "never", "vllm_image_archive": "/srv/image.tar.gz"}
    assert plan_of(observed=build_observed(), **archive)["problems"] == []
    assert plan_of(observed=None, vllm_image_pull="never")["problems"] == []


# -- profiles from the inventory ---------------------------------------------------------------------------------------


def test_a_profile_is_changed_key_by_key():
    plan = plan_of(vllm_hardware_profiles={"atlas_a2": {"shm_size": "16g", "image": {"suffix": "own"}}})
    assert plan["problems"] == []
    assert plan["image"]["reference"] == REFERENCE + "-own"
    assert plan["instances"][0]["container"]["shm_size"] == "16g"
    assert "profile_changed" in codes(plan, "warnings")


def test_a_profile_that_is_not_in_order_is_named_with_all_its_errors():
    plan = plan_of(vllm_hardware_profiles={"atlas_a2": {"shm_size": "much", "network": "mesh", "privilged": True}})
    messages = " ".join(p["message"] for p in plan["problems"] if p["code"] == "profile_invalid")
    assert "'much'" in messages and "'mesh'" in messages and '"privilged" (did you mean "privileged"?)' in messages
    assert set(codes(plan)) == {"profile_invalid"}


def test_a_new_family_is_one_entry():
    profile = {**shipped_profiles()["atlas_a2"], "title": "Atlas next"}
    plan = plan_of(vllm_hardware_profiles={"atlas_next": profile}, vllm_hardware_family="atlas_next")
    assert (plan["problems"], plan["family"], len(plan["instances"])) == ([], "atlas_next", 1)


# -- callers -----------------------------------------------------------------------------------------------------------


HOSTILE = [5, 1.5, True, [], {}, [5], {"a": 1}, "", "x", None, "é", "a\nb", "-x", 10**30, -1, "\ud800", [None], [{}]]
HOSTS = {
    family: build_facts(case_of(family), npus=2) for family in ("atlas_a2", "atlas_a3", "atlas_300i_duo", "atlas_950dt")
}


def check_is_a_plan(plan):
    assert set(plan) == {"family", "product", "image", "instances", "explain", "problems", "warnings"}
    assert json.loads(json.dumps(plan)) == plan
    assert plan["problems"] or plan["instances"]


@pytest.mark.parametrize("value", HOSTILE, ids=repr)
@pytest.mark.parametrize("name", [setting.name for setting in SETTINGS])
def test_no_setting_makes_the_plan_raise(name, value):
    for facts in HOSTS.values():
        check_is_a_plan(plan_of(facts, build_observed(), **{name: value}))


@pytest.mark.parametrize("value", HOSTILE, ids=repr)
@pytest.mark.parametrize("key", ["name", *INSTANCE_SETTINGS])
def test_no_value_of_an_instance_makes_the_plan_raise(key, value):
    check_is_a_plan(plan_of(observed=build_observed(), vllm_instances=[{"name": "a", key: value}]))


@pytest.mark.parametrize(
    "key",
    [
        "image", "devices", "mounts", "several_npus", "several_cards", "several_ranks", "over_roce", "serve_args",
        "refuses", "notices", "security_options", "host_memory",
    ],
)  # fmt: skip
@pytest.mark.parametrize("value", HOSTILE, ids=repr)
def test_no_profile_of_the_operators_makes_the_plan_raise(key, value):
    check_is_a_plan(plan_of(vllm_hardware_profiles={"atlas_a2": {key: value}}))


@pytest.mark.parametrize("name", [setting.name for setting in SETTINGS])
def test_null_is_the_default_of_every_setting(name):
    assert plan_of(observed=build_observed(), **{name: None}) == plan_of(observed=build_observed())


@pytest.mark.parametrize("key", list(INSTANCE_SETTINGS))
def test_null_in_an_instance_is_the_hosts_value(key):
    plan = plan_of(vllm_instances=[{"name": "ascend", key: None}], vllm_port=8100)
    assert plan == plan_of(vllm_port=8100)


@pytest.mark.parametrize("arguments", [(None, {}, {}), ({}, [], {}), ({}, {}, None), ({}, {}, {}, [])])
def test_only_a_callers_error_is_raised(arguments):
    with pytest.raises(TypeError):
        deployment_plan(*arguments)


def test_empty_facts_are_an_unknown_host():
    plan = deployment_plan({}, {}, shipped_profiles())
    assert codes(plan) == ["hardware_unknown"]
    assert json.loads(json.dumps(plan)) == plan


def test_wanted_answers_are_in_the_plan_and_are_no_difference():
    """They are asked when an instance changes; a service is not restarted for them."""
    golden = {"prompt": "The capital of China is", "answer": "Beijing"}
    (plain,) = plan_of()["instances"]
    (asked,) = plan_of(vllm_golden=golden, vllm_decode_tokens=64)["instances"]
    assert plain["answers"] == {"golden": None, "decode_tokens": None}
    assert asked["answers"] == {"golden": {"max_tokens": 16, **golden}, "decode_tokens": 64}
    assert asked["plan_hash"] == plain["plan_hash"]
