"""A bundle of every host of the gallery gives the same facts, the same observation and the same plan elsewhere."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys

import pytest
import yaml
from ansible_collections.vllm_ascend.fleet.plugins.module_utils import (
    bundle,
    instance_observation,
    model_files,
    npu_observation,
)
from ansible_collections.vllm_ascend.fleet.plugins.plugin_utils.model_size import model_requests
from ansible_collections.vllm_ascend.fleet.plugins.plugin_utils.profiles import profile_paths
from ansible_collections.vllm_ascend.fleet.tests import gallery
from ansible_collections.vllm_ascend.fleet.tests.gallery.replay import replay
from ansible_collections.vllm_ascend.fleet.tests.unit.support import host_trees
from ansible_collections.vllm_ascend.fleet.tests.unit.support.facts_builder import shipped_profiles

from tests.unit.support import canary_host

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(sys.executable).parent


def options(settings=None, hide=()):
    """How bundle.yml observes."""
    given = settings or {}
    paths = profile_paths(shipped_profiles(), given.get("vllm_hardware_profiles"), given)
    npu = npu_observation.Options(paths=paths, npu_smi=given.get("vllm_npu_smi", "auto"))
    models = tuple(model_files.Request(**request) for request in model_requests(given))
    return bundle.Options(npu, instance_observation.Options(models=models), hide)


def assert_same(host, copy, settings=None):
    """The two folders are read and planned alike; where they lie is part of no answer."""
    told, again = (
        json.dumps(replay(root, settings), sort_keys=True).replace(str(root), "ROOT") for root in (host, copy)
    )
    assert told == again


@pytest.mark.parametrize("name", gallery.names())
def test_gallery(tmp_path, name):
    settings = gallery.load(name).get("settings")
    gallery.build(tmp_path / "host", name)
    made = canary_host.packed(tmp_path / "host", tmp_path / "scratch", options(settings))
    assert made.differences == []
    assert len(made.archive) < 100_000
    assert_same(tmp_path / "host", canary_host.unpacked(made.archive, tmp_path / "copy"), settings)


def test_a_host_with_private_things_is_planned_alike(tmp_path):
    canary_host.build(tmp_path / "host")
    made = canary_host.packed(tmp_path / "host", tmp_path / "scratch", options(hide=[canary_host.CUSTOMER]))
    copy = canary_host.unpacked(made.archive, tmp_path / "copy")
    settings = {"vllm_instances": [{"name": "ascend"}, {"name": "other", "port": 8001}, {"name": "third", "npus": 2}]}
    told, again = replay(tmp_path / "host", settings), replay(copy, settings)
    assert told.facts == again.facts
    assert told.plan["problems"] and told.plan == again.plan


@pytest.fixture
def replays(tmp_path):
    """An inventory of two copies, and a folder to run in."""
    canary_host.build(tmp_path / "a2")
    host_trees.family_host(tmp_path / "duo", "atlas_300i_duo")
    for trap in (path for name in ("a2", "duo") for path in (tmp_path / name).rglob("npu-smi")):
        trap.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
        trap.chmod(0o755)
    hosts = {name: {"vllm_sysroot": str(tmp_path / name)} for name in ("a2", "duo")}
    connection = {"ansible_connection": "local", "ansible_python_interpreter": "{{ ansible_playbook_python }}"}
    (tmp_path / "hosts.yml").write_text(yaml.safe_dump({"all": {"hosts": hosts, "vars": connection}}))
    (tmp_path / "shell").mkdir()
    return tmp_path


def play(folder, name, *arguments):
    return subprocess.run(
        [str(BIN / "ansible-playbook"), name, *arguments],
        cwd=folder / "shell",
        env={
            **os.environ,
            "PWD": str(folder / "shell"),
            "ANSIBLE_NOCOLOR": "1",
            "ANSIBLE_COLLECTIONS_PATH": str(ROOT / ".ansible/collections"),
        },
        capture_output=True,
        text=True,
        check=False,
    )


def test_bundle_yml_brings_an_archive_of_every_host_that_plan_yml_reads_alike(replays):
    before = sorted(path.name for path in pathlib.Path("/var/tmp").glob("vllm-ascend-bundle-*"))
    run = play(replays, "vllm_ascend.fleet.bundle", "-i", str(replays / "hosts.yml"))
    assert run.returncode == 0, run.stdout[-3000:] + run.stderr
    assert run.stdout.count("Look through it before you attach it") == 2
    assert "masked: " in run.stdout and "environment" in run.stdout
    assert "changed=0" in run.stdout and "changed=1" not in run.stdout
    bundles = replays / "shell/bundles"
    assert sorted(path.name for path in bundles.iterdir()) == ["a2.tar.gz", "duo.tar.gz"]
    assert sorted(path.name for path in pathlib.Path("/var/tmp").glob("vllm-ascend-bundle-*")) == before
    # As the documentation says it.
    copy = replays / "shell/copy"
    copy.mkdir()
    unpack = ["tar", "xzf", str(bundles / "duo.tar.gz"), "--no-same-owner", "-C", str(copy)]
    assert subprocess.run(unpack, check=True, capture_output=True, text=True).stderr == ""
    plan = ["vllm_ascend.fleet.plan", "-i", "host,", "-c", "local", "-e", f"vllm_sysroot={copy}"]
    plan += ["-e", "ansible_python_interpreter={{ ansible_playbook_python }}"]
    planned = play(replays, *plan, "-e", "vllm_plan_dir=plans")
    assert planned.returncode == 0, planned.stdout[-3000:]
    facts = json.loads((replays / "shell/plans/host.json").read_text())["facts"]
    assert (facts["family"], facts["problems"]) == ("atlas_300i_duo", [])
    assert not (replays / "ran").exists(), "something below a sysroot was run"


def test_in_check_mode_nothing_is_written(replays):
    arguments = ["-i", str(replays / "hosts.yml"), "--check", "--limit", "a2", "-e", "vllm_bundle_dir=else/where"]
    run = play(replays, "vllm_ascend.fleet.bundle", *arguments)
    assert run.returncode == 0, run.stdout[-3000:] + run.stderr
    assert "check mode" in run.stdout
    assert list((replays / "shell").rglob("*.tar.gz")) == []


def test_a_host_that_cannot_be_packed_fails_and_leaves_nothing(replays):
    (replays / "duo/recorded/commands.json").write_text("{")
    run = play(replays, "vllm_ascend.fleet.bundle", "-i", str(replays / "hosts.yml"))
    assert run.returncode == 2
    assert "is not JSON" in run.stdout
    assert [path.name for path in (replays / "shell/bundles").iterdir()] == ["a2.tar.gz"]
    assert not list(pathlib.Path("/var/tmp").glob("vllm-ascend-bundle-duo*"))
