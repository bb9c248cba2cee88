"""Logins, CA files and proxies of the engine: what is written where, and that nothing of it leaks."""

from __future__ import annotations

import base64
import json
import os
import signal
import stat
import subprocess
import sys

import pytest
from ansible_collections.vllm_ascend.fleet.plugins.module_utils import engine_settings as settings
from ansible_collections.vllm_ascend.fleet.plugins.module_utils import masking

PEM = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----"
LOGIN = {"username": "deploy", "password": "s3cret"}


@pytest.mark.parametrize(
    ("reference", "registry"),
    [
        ("quay.io/ascend/vllm-ascend:v1", "quay.io"),
        ("m.daocloud.io/quay.io/ascend/vllm-ascend:v1", "m.daocloud.io"),
        ("registry:5000/a:b", "registry:5000"),
        ("localhost/a:b", "localhost"),
        ("ascend/vllm-ascend:v1", "docker.io"),
        ("alpine", "docker.io"),
        ("index.docker.io/a/b", "docker.io"),
    ],
)
def test_registry_of_a_reference(reference, registry):
    assert settings.registry_of(reference) == registry


@pytest.mark.parametrize(
    ("key", "registry"),
    [
        ("quay.io", "quay.io"),
        ("https://quay.io/v2/", "quay.io"),
        ("m.daocloud.io/quay.io", "m.daocloud.io"),
        ("https://index.docker.io/v1/", "docker.io"),
        (" registry:5000 ", "registry:5000"),
    ],
)
def test_registry_that_a_key_means(key, registry):
    assert settings.registry_key(key) == registry


def test_login_is_for_its_registry_only():
    auth = {"https://quay.io": LOGIN}
    assert settings.auth_for(auth, "quay.io/a/b:c") == LOGIN
    assert settings.auth_for(auth, "m.daocloud.io/quay.io/a/b:c") is None


def test_client_config_keeps_the_rest_and_beats_the_credential_store():
    existing = {
        "auths": {"other.test": {"auth": "b3RoZXI="}},
        "HttpHeaders": {"User-Agent": "x"},
        "credsStore": "secretservice",
        "credHelpers": {"quay.io": "a", "gcr.io": "b"},
    }
    config = settings.client_config(existing, "quay.io", LOGIN)
    token = base64.b64encode(b"deploy:s3cret").decode()
    assert config == {
        "auths": {"other.test": {"auth": "b3RoZXI="}, "quay.io": {"auth": token}},
        "HttpHeaders": {"User-Agent": "x"},
        "credHelpers": {"gcr.io": "b"},
    }
    assert list(settings.client_config({}, "docker.io", LOGIN)["auths"]) == ["https://index.docker.io/v1/"]


def test_login_folder_is_private_and_goes(tmp_path, monkeypatch):
    (tmp_path / "config.json").write_text('{"HttpHeaders": {"X": "y"}}')
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    with pytest.raises(RuntimeError), settings.login_folder("quay.io", LOGIN) as env:
        folder = env["DOCKER_CONFIG"]
        config = os.path.join(folder, "config.json")
        assert stat.S_IMODE(os.stat(folder).st_mode) == 0o700
        assert stat.S_IMODE(os.stat(config).st_mode) == 0o600
        assert json.loads(settings.read_file(config) or "")["HttpHeaders"] == {"X": "y"}
        raise RuntimeError
    assert not os.path.exists(folder)
    assert (tmp_path / "config.json").is_file()


def test_without_a_login_the_environment_stays():
    with settings.login_folder("quay.io", None) as env:
        assert env == {}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_removes_the_login(tmp_path, number):
    program = (
        f"import sys, time; sys.path[:0] = {sys.path!r}\n"
        "from ansible_collections.vllm_ascend.fleet.plugins.module_utils.engine_settings import login_folder\n"
        f"with login_folder('quay.io', {LOGIN!r}) as env:\n"
        "    print(env['DOCKER_CONFIG'], flush=True)\n"
        "    time.sleep(30)\n"
    )
    env = dict(os.environ, TMPDIR=str(tmp_path))
    argv = [sys.executable, "-c", program]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, universal_newlines=True, env=env) as child:
        assert child.stdout is not None
        folder = child.stdout.readline().strip()
        assert os.path.isdir(folder)
        child.send_signal(number)
        assert child.wait(20) == 128 + number
    assert not os.path.exists(folder)


def test_ca_files_only_where_they_differ(tmp_path):
    ca = {"https://r.test:5000/v2": PEM, "quay.io": PEM}
    first = settings.ca_changes(ca, str(tmp_path))
    assert [(c.path, c.before, c.mode) for c in first] == [
        (str(tmp_path / "r.test:5000/ca.crt"), None, 0o644),
        (str(tmp_path / "quay.io/ca.crt"), None, 0o644),
    ]
    for change in first:
        settings.write_file(change.path, change.after, change.mode)
    assert settings.ca_changes(ca, str(tmp_path)) == []
    assert (tmp_path / "quay.io/ca.crt").read_text() == PEM + "\n"
    changed = settings.ca_changes({"quay.io": PEM.replace("MIIB", "MIIC")}, str(tmp_path))
    assert [change.before for change in changed] == [PEM + "\n"]


@pytest.mark.parametrize(
    ("problems", "codes"),
    [
        (settings.ca_problems({"../etc": PEM}), ["bad_registry"]),
        (settings.ca_problems({"": PEM}), ["bad_registry"]),
        (settings.ca_problems({"quay.io": "/etc/ca.pem"}), ["bad_ca"]),
        (settings.ca_problems({"quay.io": None}), ["bad_ca"]),
        (settings.ca_problems({"quay.io": PEM + "\n-----BEGIN PRIVATE KEY-----"}), ["bad_ca"]),
        (settings.ca_problems({"quay.io": PEM, "[::1]:5000": PEM}), []),
        (settings.auth_problems({"quay.io": LOGIN}), []),
        (settings.auth_problems({"quay.io": {"username": "a"}}), ["bad_auth"]),
        (settings.auth_problems({"quay.io": "a:s3cret"}), ["bad_auth"]),
        (settings.auth_problems({"a b": LOGIN}), ["bad_registry"]),
        (settings.proxy_problems({"HTTP_PROXY": "http://u:p@proxy:3128", "NO_PROXY": "a,b"}), []),
        (settings.proxy_problems({"HTTP_PROXY": "proxy:3128"}), ["bad_proxy"]),
        (settings.proxy_problems({"HTTPS_PROXY": "http://u:s3cret@:x"}), ["bad_proxy"]),
        (settings.proxy_problems({"HTTPS_PROXY": "http://[bad"}), ["bad_proxy"]),
        (settings.proxy_problems({"HTTPS_PROXY": "http://u:s3cret/@s3cret@proxy:port"}), ["bad_proxy"]),
        (settings.proxy_problems({"NO_PROXY": "a\nExecStart=x"}), ["bad_proxy"]),
    ],
)
def test_problems_of_the_options(problems, codes):
    assert [problem["code"] for problem in problems] == codes
    assert "s3cret" not in json.dumps(problems)
    assert all(problem["remedy"] for problem in problems)


def test_drop_in_is_quoted_for_systemd():
    text = settings.drop_in_text({"HTTP_PROXY": 'http://u:50%"\\@proxy:3128', "NO_PROXY": "a,.b"})
    assert text.splitlines()[1:] == [
        "[Service]",
        'Environment="HTTP_PROXY=http://u:50%%\\"\\\\@proxy:3128"',
        'Environment="NO_PROXY=a,.b"',
    ]


P = "http://proxy:3128"
L = "http://u:p@proxy:3128"
MASKED = "http://xxxxx:xxxxx@proxy:3128"


@pytest.mark.parametrize(
    ("wanted", "info", "drop_in", "same"),
    [
        ({}, {"HttpProxy": P}, None, True),
        ({"HTTP_PROXY": P}, {"HttpProxy": P}, None, True),
        ({"HTTP_PROXY": P + "/"}, {"HttpProxy": P}, None, True),
        ({"HTTP_PROXY": P}, {"HttpProxy": "", "HttpsProxy": P}, None, False),
        ({"HTTP_PROXY": P}, {}, None, False),
        ({"HTTP_PROXY": P}, {"HttpProxy": MASKED}, None, False),
        ({"HTTP_PROXY": L}, {"HttpProxy": P}, None, False),
        ({"HTTP_PROXY": L}, {"HttpProxy": MASKED}, None, True),
        ({"HTTP_PROXY": L}, {"HttpProxy": MASKED}, settings.drop_in_text({"HTTP_PROXY": L}), True),
        ({"HTTP_PROXY": L}, {"HttpProxy": MASKED}, settings.drop_in_text({"HTTP_PROXY": L.replace("p@", "q@")}), False),
        ({"NO_PROXY": "a,b"}, {"NoProxy": "a"}, None, False),
    ],
)
def test_proxy_matches(wanted, info, drop_in, same):
    assert settings.proxy_matches(wanted, info, drop_in) is same


def test_only_given_proxies_are_wanted():
    assert settings.proxy_wanted({"http": P, "https": None, "no_proxy": ""}) == {"HTTP_PROXY": P}
    assert settings.proxy_wanted(None) == {}


def test_what_is_masked_and_what_is_shown():
    auth = {"quay.io": LOGIN, "r.test": {"username": "same", "password": "same"}}
    hidden, shown = settings.shown_values(auth, {"http": L, "https": P, "no_proxy": "a"})
    assert settings.shown_values({}, {"http": "http://u:a/b@c@proxy"})[0] >= {"a/b@c"}
    assert hidden == {"s3cret", "same", L, "u:p", "p"}
    assert shown == {"deploy", P, "a"}


def test_write_file_replaces_in_one_step(tmp_path):
    path = tmp_path / "deep" / "file"
    settings.write_file(str(path), "one", 0o600)
    inode = path.stat().st_ino
    settings.write_file(str(path), "two", 0o644)
    assert (path.read_text(), stat.S_IMODE(path.stat().st_mode)) == ("two", 0o644)
    assert path.stat().st_ino != inode
    assert os.listdir(str(path.parent)) == ["file"]


def test_write_file_leaves_nothing_behind(tmp_path):
    (tmp_path / "file").mkdir()
    with pytest.raises(OSError):
        settings.write_file(str(tmp_path / "file"), "x", 0o600)
    assert os.listdir(str(tmp_path)) == ["file"]


def test_restore_file(tmp_path):
    path = tmp_path / "file"
    path.write_text("new")
    settings.restore_file(str(path), "old", 0o600)
    assert path.read_text() == "old"
    settings.restore_file(str(path), None, 0o600)
    settings.restore_file(str(path), None, 0o600)
    assert not path.exists()


@pytest.mark.parametrize(
    "url, shown, login",
    [
        ("http://user:pa/ss@w@proxy:3128", "http://proxy:3128", "user:pa/ss@w"),
        ("user:pa/ss@proxy:3128", "proxy:3128", "user:pa/ss"),
        ("//deploy:s3cret@proxy", "//proxy", "deploy:s3cret"),
        ("http://proxy:3128", "http://proxy:3128", None),
        ("", "", None),
    ],
)
def test_a_login_is_found_with_and_without_a_scheme(url, shown, login):
    assert (settings.public(url), settings.has_login(url)) == (shown, login is not None)
    assert masking.login_of(url) == login
    if login:
        assert settings.shown_values({}, {"http": url}) == ({url, login, login.split(":", 1)[1]}, set())
        problems = settings.proxy_problems({"HTTP_PROXY": url.replace("http:", "gopher:")})
        assert problems and login not in str(problems)
