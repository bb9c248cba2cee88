"""What a unit does before its container starts: nodes, image, left-over container."""

from __future__ import annotations

import os
import threading
import time

import pytest
from ansible_collections.vllm_ascend.fleet.plugins.module_utils import nodes

from tests.unit.support.fleet_rig import NEW, NEW_IMAGE, FleetRig

LABELS = {"vllm-ascend.instance": "ascend"}


@pytest.fixture
def rig(tmp_path, monkeypatch):
    made = FleetRig(tmp_path, monkeypatch)
    yield made
    made.close()


def test_a_character_device_is_a_node_and_is_not_waited_for():
    assert nodes.wait_for_nodes(["/dev/null", "/dev/zero"], 60) < 10


def test_a_folder_of_nodes_is_one_as_on_a_950(tmp_path):
    folder = tmp_path / "uburma"
    folder.mkdir()
    (folder / "udma0").symlink_to("/dev/null")
    assert nodes.wait_for_nodes([str(folder)], 60) < 10


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda path: None, "missing"),
        (lambda path: path.write_text("x"), "not a character device"),
        (lambda path: path.mkdir(), "a folder without a character device"),
        (lambda path: path.symlink_to("nowhere"), "missing"),
    ],
)
def test_what_is_no_node_after_the_wait_is_named_with_the_reason(tmp_path, make, text):
    path = tmp_path / "davinci0"
    make(path)
    with pytest.raises(nodes.NodeError) as caught:
        nodes.wait_for_nodes(["/dev/null", str(path)], 0.1, say=lambda _text: None)
    assert f"{path} ({text})" in str(caught.value)
    assert "/dev/null" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_every_bad_node_is_named_at_once():
    with pytest.raises(nodes.NodeError, match=r"/dev/a \(missing\), /dev/b \(missing\)"):
        nodes.wait_for_nodes(["/dev/a", "/dev/b"], 0, say=lambda _text: None)


def test_a_node_that_appears_ends_the_wait(tmp_path):
    path, said = tmp_path / "davinci0", []
    threading.Timer(0.3, os.symlink, ("/dev/null", str(path))).start()
    waited = nodes.wait_for_nodes([str(path)], 20, poll=0.05, say=said.append)
    assert 0.2 < waited < 10
    assert said == [f"waiting up to 20 s for {path} (missing)"]


def test_the_wait_is_not_longer_than_its_limit():
    began = time.monotonic()
    with pytest.raises(nodes.NodeError):
        nodes.wait_for_nodes(["/dev/nope"], 0.3, poll=60, say=lambda _text: None)
    assert time.monotonic() - began < 30


def test_an_image_that_is_there_has_an_id(rig):
    assert nodes.require_image("docker", NEW) == NEW_IMAGE


def test_a_missing_image_is_named_and_never_pulled(rig):
    with pytest.raises(nodes.NodeError, match=r"quay\.io/x:y is not on this host and a unit never pulls"):
        nodes.require_image("docker", "quay.io/x:y")
    assert rig.calls("docker", "pull") == []


def test_a_missing_engine_is_said():
    with pytest.raises(nodes.NodeError, match="the program is missing"):
        nodes.require_image("/nowhere/docker", NEW)


def test_a_stale_container_of_ours_is_removed(rig):
    rig.world.create("vllm-ascend", NEW, LABELS, [])
    assert nodes.remove_stale("docker", "vllm-ascend", "ascend") is True
    assert rig.world.containers == []
    assert nodes.remove_stale("docker", "vllm-ascend", "ascend") is False


@pytest.mark.parametrize(
    ("labels", "text"),
    [({}, "not made by vllm_ascend.fleet"), ({"vllm-ascend.instance": "b"}, "of the instance b")],
)
def test_somebody_else_s_container_is_named_and_left_alone(rig, labels, text):
    rig.world.create("vllm-ascend", NEW, labels, [])
    with pytest.raises(nodes.NodeError) as caught:
        nodes.remove_stale("docker", "vllm-ascend", "ascend")
    assert "vllm-ascend" in str(caught.value)
    assert text in str(caught.value)
    assert len(rig.world.containers) == 1
