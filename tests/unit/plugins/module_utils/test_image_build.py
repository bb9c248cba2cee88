"""Building an image, with real git and a docker of the tests that keeps what it is told."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys

import pytest
from ansible_collections.vllm_ascend.fleet.plugins.module_utils import image_build

DOCKER = """\
#!{python}
import hashlib, json, os, sys
state = {state!r}
words = sys.argv[1:]
known = json.load(open(state))
known["calls"].append(words)
known["environment"] = dict(os.environ)
code = 0
if words[0] == "info":
    print(json.dumps({{"ServerVersion": "24.0.7", "DockerRootDir": "/"}}))
elif words[:2] == ["image", "inspect"]:
    found = known["images"].get(words[2])
    if found:
        print(json.dumps([found]))
    else:
        code = 1
        print("Error: No such image: " + words[2], file=sys.stderr)
elif words[0] == "build":
    print("Step 1/2 : FROM base")
    if known["fails"]:
        print(known["fails"], file=sys.stderr)
        code = 1
    else:
        labels = dict(words[n + 1].split("=", 1) for n, word in enumerate(words) if word == "--label")
        tag = words[words.index("--tag") + 1]
        known["context"] = sorted(os.listdir(words[-1]))
        image = "sha256:" + hashlib.sha256(json.dumps(words).encode()).hexdigest()
        known["images"][tag] = {{"Id": image, "RepoTags": [tag], "RepoDigests": [], "Config": {{"Labels": labels}}}}
elif words[0] == "tag":
    (image,) = [one for one in known["images"].values() if one["Id"] == words[1]]
    image["RepoTags"].append(words[2])
elif words[0] == "push":
    if known["fails"]:
        print(known["fails"], file=sys.stderr)
        code = 1
    else:
        for one in known["images"].values():
            if words[1] in one["RepoTags"]:
                one["RepoDigests"].append(words[1].rsplit(":", 1)[0] + "@sha256:" + "1" * 64)
elif words[0] == "save":
    open(words[2], "w").write("archive of " + words[3])
json.dump(known, open(state, "w"))
sys.exit(code)
"""
DOCKERFILE = "ARG BASE=x\nFROM $BASE\nARG VLLM_TAG=v1 \\\n    SOC_VERSION\nARG VLLM_COMMIT\nRUN make\n"


class Rig:
    """A folder with a fake docker and a git repository."""

    def __init__(self, path):
        self.path, self.state = path, path / "docker.json"
        self.state.write_text(json.dumps({"images": {}, "calls": [], "fails": None}))
        self.docker = path / "docker"
        self.docker.write_text(DOCKER.format(python=sys.executable, state=str(self.state)))
        self.docker.chmod(0o755)
        self.source = path / "source"
        self.source.mkdir()
        self.git("init", "--quiet", "--initial-branch=main", ".")
        (self.source / "Dockerfile").write_text(DOCKERFILE)
        (self.source / "Dockerfile.a3").write_text(DOCKERFILE)
        self.commit = self.commit_all()
        self.git("tag", "-a", "v0.23.0", "-m", "release")

    def git(self, *words):
        identity = ["-c", "user.name=t", "-c", "user.email=t@t.test", "-c", "commit.gpgsign=false"]
        done = subprocess.run(["git", *identity, *words], cwd=self.source, check=True, capture_output=True, text=True)
        return done.stdout.strip()

    def commit_all(self):
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", "x")
        return self.git("rev-parse", "HEAD")

    def known(self, **change):
        known = json.loads(self.state.read_text())
        if change:
            self.state.write_text(json.dumps({**known, **change}))
        return known

    def builds(self):
        return [words for words in self.known()["calls"] if words[0] == "build"]

    def ensure(self, **more):
        options = dict(
            dockerfile="Dockerfile.a3", tag="vllm-ascend-dev:v0.23.0-a3", repository=f"file://{self.source}",
            version="v0.23.0", folder=None, arguments={}, proxy=None, network=None, pull=False, force=False, push=None,
            auth={}, archive=None, work_folder=str(self.path / "work"), min_free_mb=0, timeout=60.0,
            engine_cli=str(self.docker),
        )  # fmt: skip
        options.update(more)
        return image_build.ensure(image_build.Request(**options))


@pytest.fixture
def rig(tmp_path):
    return Rig(tmp_path)


def problems_of(rig, **more):
    with pytest.raises(image_build.BuildError) as caught:
        rig.ensure(**more)
    return caught.value


def test_a_tag_is_built_once_and_recorded(rig):
    made = rig.ensure(arguments={"VLLM_TAG": "v0.23.0"})
    assert (made["changed"], made["action"], made["image"]["commit"]) == (True, "build", rig.commit)
    labels = rig.known()["images"]["vllm-ascend-dev:v0.23.0-a3"]["Config"]["Labels"]
    assert labels["org.opencontainers.image.revision"] == rig.commit
    assert labels["org.opencontainers.image.source"] == f"file://{rig.source}"
    assert json.loads(labels["vllm-ascend.build-arguments"]) == {"VLLM_TAG": "v0.23.0"}
    assert "Dockerfile.a3" in rig.known()["context"]
    assert [name for name in os.listdir(str(rig.path / "work"))] == ["vllm-ascend-dev_v0.23.0-a3.log"]
    assert stat.S_IMODE(os.stat(made["log"]).st_mode) == 0o600
    again = rig.ensure(arguments={"VLLM_TAG": "v0.23.0"})
    assert (again["changed"], again["action"], again["image"]["id"]) == (False, "none", made["image"]["id"])
    assert len(rig.builds()) == 1


@pytest.mark.parametrize("change", ["arguments", "dockerfile", "branch", "force"])
def test_what_changed_is_built_again(rig, change):
    rig.ensure(version="main")
    more = {"version": "main"}
    if change == "arguments":
        more["arguments"] = {"SOC_VERSION": "ascend910b1"}
    elif change == "dockerfile":
        more["dockerfile"] = "Dockerfile"
    elif change == "force":
        more["force"] = True
    else:
        (rig.source / "new").write_text("x")
        rig.commit_all()
    assert rig.ensure(**more)["action"] == "build"
    assert len(rig.builds()) == 2


def test_a_full_commit_is_built(rig):
    (rig.source / "later").write_text("x")
    rig.commit_all()
    rig.git("config", "uploadpack.allowAnySHA1InWant", "true")
    assert rig.ensure(version=rig.commit)["image"]["commit"] == rig.commit
    assert "later" not in rig.known()["context"]


def test_a_folder_is_built_again_when_its_content_changes(rig):
    source = {"repository": None, "version": None, "folder": str(rig.source)}
    assert rig.ensure(**source)["action"] == "build"
    assert rig.ensure(**source)["action"] == "none"
    (rig.source / "csrc").mkdir()
    (rig.source / "csrc/x.cpp").write_text("1")
    assert rig.ensure(**source)["action"] == "build"
    assert rig.ensure(**source)["action"] == "none"
    os.chmod(str(rig.source / "csrc/x.cpp"), 0o755)
    assert rig.ensure(**source)["action"] == "build"
    assert rig.source.is_dir()


def test_check_mode_builds_nothing_and_says_what_would_be(rig):
    made = rig.ensure(check_mode=True, push="r.test/x:1", archive=str(rig.path / "a.tar"))
    assert (made["changed"], made["action"], made["image"]["id"]) == (True, "build", None)
    assert (made["pushed"], made["saved"]) == ("r.test/x:1", str(rig.path / "a.tar"))
    assert {words[0] for words in rig.known()["calls"]} == {"info", "image"}


def test_a_proxy_s_login_is_on_no_command_line(rig):
    rig.ensure(proxy={"http": "http://u:pw@proxy.test:3128", "https": None, "no_proxy": "r.test"})
    (build,) = rig.builds()
    assert "pw" not in " ".join(build)
    assert [build[n + 1] for n, word in enumerate(build) if word == "--build-arg"] == ["HTTP_PROXY", "NO_PROXY"]
    assert rig.known()["environment"]["LC_ALL"] == "C"


def test_all_unknown_arguments_are_named_with_the_likely_one(rig):
    failure = problems_of(rig, arguments={"VLLM_TAGS": "x", "SOC": "y", "HTTP_PROXY": "z"})
    assert [one["code"] for one in failure.problems] == ["build_argument_unknown"] * 2
    assert "VLLM_TAG" in failure.problems[1]["remedy"] and "SOC_VERSION" in failure.problems[1]["remedy"]
    assert rig.builds() == []


@pytest.mark.parametrize(
    ("more", "code", "words"),
    [
        ({"dockerfile": "Dockerfile.a5"}, "build_dockerfile_missing", "Dockerfile, Dockerfile.a3"),
        ({"version": "v0.23"}, "build_version_missing", "v0.23.0"),
        ({"repository": "file:///nowhere/x.git"}, "build_source_unreachable", "/nowhere/x.git"),
        ({"repository": "https://u:pw@h.test/x.git"}, "build_source_login", "credential helper"),
        ({"repository": None, "version": None, "folder": "/nowhere"}, "build_source_missing", "/nowhere"),
        ({"min_free_mb": 10**9}, "no_space", "MB free"),
    ],
)
def test_what_cannot_be_built_is_said_before(rig, more, code, words):
    failure = problems_of(rig, **more)
    assert [one["code"] for one in failure.problems] == [code]
    assert words in str(failure) and "pw@" not in str(failure)
    assert rig.builds() == []


def test_a_build_that_fails_leaves_the_old_image_and_says_where_the_log_is(rig):
    old = rig.ensure(version="main")
    (rig.source / "new").write_text("x")
    rig.commit_all()
    rig.known(fails="ERROR: Could not find a version that satisfies the requirement torch_npu==9")
    failure = problems_of(rig, version="main")
    assert "Could not find a version" in str(failure) and "Could not find a version" in failure.output
    assert failure.log in str(failure) and os.path.isfile(failure.log)
    assert rig.known()["images"]["vllm-ascend-dev:v0.23.0-a3"]["Id"] == old["image"]["id"]
    assert [name for name in os.listdir(str(rig.path / "work")) if name.startswith("source-")] == []


def test_a_build_has_a_time_limit(rig):
    text = rig.docker.read_text().replace('    print("Step 1/2 : FROM base")', "    import time; time.sleep(60)")
    rig.docker.write_text(text)
    assert "no end within 1 s" in str(problems_of(rig, timeout=1.0))


def test_an_image_is_pushed_and_saved_once(rig):
    handed = {"push": "r.test:5000/ascend/mine:1", "archive": str(rig.path / "out/mine.tar")}
    made = rig.ensure(**handed)
    assert (made["pushed"], made["saved"]) == tuple(handed.values())
    assert (rig.path / "out/mine.tar").read_text() == "archive of vllm-ascend-dev:v0.23.0-a3"
    again = rig.ensure(**handed)
    assert (again["changed"], again["pushed"], again["saved"]) == (False, None, None)
    os.unlink(handed["archive"])
    assert rig.ensure(**handed)["saved"] == handed["archive"]


def test_a_push_that_is_refused_is_explained(rig):
    rig.ensure()
    rig.known(fails="denied: requested access to the resource is denied")
    failure = problems_of(rig, push="r.test/x:1")
    assert failure.problems[0]["code"] == "build_push_failed" and "denied" in str(failure)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("ARG A\nARG B=1 C\n", {"A", "B", "C"}),
        ("arg a=1\n# ARG no\nRUN echo ARG x\n", {"a"}),
        ('ARG A=1 \\\n  B=2\nFROM x\n  ARG D="x"\n', {"A", "B", "D"}),
    ],
)
def test_the_arguments_that_a_dockerfile_declares(text, names):
    assert image_build.declared_arguments(text) == names
