"""What is built for which family, and what is wrong with the wish."""

from __future__ import annotations

import pytest
from ansible_collections.vllm_ascend.fleet.plugins.plugin_utils.build_request import build_request
from ansible_collections.vllm_ascend.fleet.tests.unit.support.facts_builder import (
    build_facts,
    case_of,
    shipped_profiles,
)

PROFILES = shipped_profiles()
SOURCE = {
    "vllm_build_repository": "https://gitcode.com/gh_mirrors/vl/vllm-ascend.git",
    "vllm_build_version": "v0.23.0",
}


def request(facts=None, **settings):
    return build_request({**SOURCE, **settings}, PROFILES, facts)


def codes(made):
    return [problem["code"] for problem in made["problems"]]


@pytest.mark.parametrize(
    ("family", "system", "dockerfile", "tag"),
    [
        ("atlas_a2", "ubuntu", "Dockerfile", "v0.23.0"),
        ("atlas_a2", "openeuler", "Dockerfile.openEuler", "v0.23.0-openeuler"),
        ("atlas_a3", "ubuntu", "Dockerfile.a3", "v0.23.0-a3"),
        ("atlas_a3", "openeuler", "Dockerfile.a3.openEuler", "v0.23.0-a3-openeuler"),
        ("atlas_300i_duo", "ubuntu", "Dockerfile.310p", "v0.23.0-310p"),
        ("atlas_200i_pro", "openeuler", "Dockerfile.310p.openEuler", "v0.23.0-310p-openeuler"),
        ("atlas_950dt", "ubuntu", "Dockerfile.a5", "v0.23.0-a5"),
        ("atlas_950dt", "openeuler", "Dockerfile.a5.openEuler", "v0.23.0-a5-openeuler"),
    ],
)
def test_the_dockerfile_and_tag_of_each_family(family, system, dockerfile, tag):
    made = request(vllm_build_family=family, vllm_build_os=system)
    assert made["problems"] == []
    assert (made["dockerfile"], made["tag"]) == (dockerfile, f"vllm-ascend-dev:{tag}")
    assert (made["repository"], made["version"], made["folder"]) == (*SOURCE.values(), None)


def test_the_build_host_s_own_hardware_decides_when_nothing_is_said():
    made = request(build_facts(case_of("atlas_200i_pro", "openeuler")))
    assert made["dockerfile"] == "Dockerfile.310p.openEuler"
    made = request()
    assert codes(made) == ["build_family_unknown"] and "atlas_a3" in made["problems"][0]["remedy"]
    assert request(vllm_build_dockerfile="docker/Dockerfile.mine")["problems"] == []


def test_a_folder_a_branch_and_arguments():
    arguments = {"VLLM_TAG": "v0.23.0", "COMPILE_CUSTOM_KERNELS": 0, "SOC_VERSION": "ascend310p1"}
    made = request(vllm_build_family="atlas_a2", vllm_build_version="feature/x", vllm_build_arguments=arguments)
    assert made["tag"] == "vllm-ascend-dev:feature-x"
    assert made["arguments"] == {"VLLM_TAG": "v0.23.0", "COMPILE_CUSTOM_KERNELS": "0", "SOC_VERSION": "ascend310p1"}
    made = request(vllm_build_family="atlas_a2", vllm_build_folder="/srv/src")
    assert (made["repository"], made["folder"]) == (None, "/srv/src")


@pytest.mark.parametrize(
    ("settings", "code", "words"),
    [
        ({"vllm_build_family": "atlas_a4"}, "build_setting_invalid", "atlas_a3"),
        ({"vllm_build_os": "ubunut"}, "build_setting_invalid", 'did you mean "ubuntu"'),
        ({"vllm_build_version": "a b"}, "build_setting_invalid", "a tag, a branch or a commit"),
        ({"vllm_build_repository": "gitcode"}, "build_setting_invalid", "that git can clone"),
        ({"vllm_build_repository": "https://u:pw@h.test/x.git"}, "build_source_login", "login"),
        ({"vllm_build_folder": "src"}, "build_setting_invalid", "an absolute path"),
        ({"vllm_build_dockerfile": "../Dockerfile"}, "build_setting_invalid", "inside the source"),
        ({"vllm_build_tag": "Mine"}, "build_setting_invalid", "image reference"),
        ({"vllm_build_push": "r.test:5000/x"}, "build_setting_invalid", "image reference"),
        ({"vllm_build_arguments": {"A-B": 1}}, "build_setting_invalid", "names of build arguments"),
        ({"vllm_build_arguments": {"HF_TOKEN": "hf_x"}}, "build_argument_secret", "HF_TOKEN"),
        ({"vllm_build_arguments": {"A": ["1"]}}, "build_setting_invalid", "text or a number"),
        ({"vllm_build_arguments": ["A=1"]}, "build_setting_invalid", "a dictionary"),
    ],
)
def test_what_is_wrong_is_named_with_what_to_do(settings, code, words):
    made = request(**{"vllm_build_family": "atlas_a2", **settings})
    assert codes(made) == [code]
    assert words in made["problems"][0]["message"] and made["problems"][0]["remedy"]
    assert "pw@" not in str(made["problems"]) and "hf_x" not in str(made["problems"])


def test_everything_that_is_wrong_is_said_at_once():
    made = request(vllm_build_family="x", vllm_build_version="", vllm_build_tag="Mine", vllm_build_archive="a.tar")
    assert len(made["problems"]) == 4
