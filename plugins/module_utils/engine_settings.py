# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the Docker engine and its command line need to reach a registry: login, private CA, proxy.

Sources: Docker documentation, "Verify repository client with certificates" (certs.d), "Daemon proxy configuration"
(systemd drop-in; a pull uses the daemon's proxy, never the command line's), "docker login" (config.json).
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import re
import shutil
import signal
import tempfile
import threading
from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Optional, Set, Tuple
from urllib.parse import urlsplit

from . import documents, masking

CERTS = "/etc/docker/certs.d"
DROP_IN = "/etc/systemd/system/docker.service.d/vllm-ascend-proxy.conf"
DOCKER_HUB = "docker.io"
# The name under which the docker command line keeps the login of Docker Hub.
DOCKER_HUB_AUTH = "https://index.docker.io/v1/"
HOST = re.compile(r"^(\[[0-9A-Fa-f:]+\]|[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?)(:[0-9]{1,5})?$")
# key of the module's option, variable of the daemon, key of docker info
PROXY_KEYS = (
    ("http", "HTTP_PROXY", "HttpProxy"),
    ("https", "HTTPS_PROXY", "HttpsProxy"),
    ("no_proxy", "NO_PROXY", "NoProxy"),
)


class FileChange(NamedTuple):
    """A file that must be written: what it holds now (None: it is absent) and what it must hold."""

    path: str
    before: Optional[str]
    after: str
    mode: int


# -- registries ----------------------------------------------------------------------------------------------------


def registry_of(reference: str) -> str:
    """The registry (host[:port]) of an image reference; docker.io when it names none."""
    first, slash, _rest = reference.partition("/")
    return _hub(first) if slash and ("." in first or ":" in first or first == "localhost") else DOCKER_HUB


def registry_key(key: str) -> str:
    """The registry (host[:port]) that an operator meant by "quay.io", "https://quay.io/v2/" or "mirror/quay.io"."""
    return _hub(re.sub(r"^[a-z]+://", "", key.strip()).split("/")[0])


def _hub(host: str) -> str:
    return DOCKER_HUB if host in ("index.docker.io", "registry-1.docker.io") else host


# -- private CA ----------------------------------------------------------------------------------------------------


def ca_changes(ca: Mapping[str, str], certs: str) -> List[FileChange]:
    """The CA files that are missing or hold something else, one a registry, below the folder certs."""
    changes = []
    for key, pem in sorted(ca.items()):
        path = os.path.join(certs, registry_key(key), "ca.crt")
        wanted = pem.strip() + "\n"
        before = read_file(path)
        if before != wanted:
            changes.append(FileChange(path, before, wanted, 0o644))
    return changes


def ca_problems(ca: Mapping[str, Any]) -> List[Dict[str, str]]:
    """What is wrong with the option ca: {code, message, remedy} each."""
    problems = []
    for key, pem in sorted(ca.items()):
        if not HOST.match(registry_key(key)):
            problems.append(
                problem(
                    "bad_registry", "ca: {0!r} is no registry".format(key), "write host or host:port, as in the image"
                )
            )
        if not isinstance(pem, str) or "-----BEGIN CERTIFICATE-----" not in pem:
            problems.append(
                problem(
                    "bad_ca",
                    "ca: the value for {0} is no PEM certificate".format(key),
                    "give the text of the CA certificate, from -----BEGIN CERTIFICATE----- on",
                )
            )
        elif "PRIVATE KEY" in pem:
            problems.append(
                problem(
                    "bad_ca",
                    "ca: the value for {0} holds a private key".format(key),
                    "give the CA's certificate alone; its key has no business on the host",
                )
            )
    return problems


# -- proxy ---------------------------------------------------------------------------------------------------------


def public(url: str) -> str:
    """A proxy's address without its login, fit to be shown: http://proxy:3128."""
    return masking.masked(url)


def has_login(url: str) -> bool:
    """True when a proxy's address carries a login."""
    return masking.login_of(url) is not None


def proxy_wanted(proxy: Optional[Mapping[str, Optional[str]]]) -> Dict[str, str]:
    """The given proxy settings by the daemon's variable name; what is null or empty is left as it is on the host."""
    return {variable: str((proxy or {})[key]) for key, variable, _info in PROXY_KEYS if (proxy or {}).get(key)}


def proxy_of(info: Mapping[str, Any]) -> Dict[str, str]:
    """The daemon's proxy settings as `docker info` tells them, by variable name; logins are masked there as xxxxx."""
    return {variable: str(info.get(key) or "") for _key, variable, key in PROXY_KEYS}


def proxy_matches(wanted: Mapping[str, str], info: Mapping[str, Any], drop_in: Optional[str]) -> bool:
    """True when the daemon already uses the wanted settings.

    docker info masks logins, so a changed password shows only in our own drop-in (its text, None when absent).
    """
    actual = proxy_of(info)
    same = all(_same_address(value, actual[variable]) for variable, value in wanted.items())
    logins = [_drop_in_line(variable, value) for variable, value in wanted.items() if has_login(value)]
    return same and (drop_in is None or all(line in drop_in.splitlines() for line in logins))


def _same_address(wanted: str, actual: str) -> bool:
    return public(wanted).rstrip("/") == public(actual).rstrip("/") and has_login(wanted) == has_login(actual)


def drop_in_text(wanted: Mapping[str, str]) -> str:
    """The systemd drop-in of docker.service that sets the proxy; `%`, quotes and backslashes are special there."""
    lines = ["# made by the collection vllm_ascend.fleet: the proxy of image pulls", "[Service]"]
    lines += [_drop_in_line(variable, value) for variable, value in sorted(wanted.items())]
    return "\n".join(lines) + "\n"


def _drop_in_line(variable: str, value: str) -> str:
    quoted = value.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return 'Environment="{0}={1}"'.format(variable, quoted)


def proxy_problems(wanted: Mapping[str, str]) -> List[Dict[str, str]]:
    """What is wrong with the option proxy: {code, message, remedy} each; logins are not shown."""
    problems = []
    for variable, value in sorted(wanted.items()):
        if re.search(r"[\x00-\x1f\x7f]", value):
            problems.append(
                problem("bad_proxy", "proxy: {0} holds a control character".format(variable), "give one line")
            )
        elif variable != "NO_PROXY" and not _is_address(value):
            problems.append(
                problem(
                    "bad_proxy",
                    "proxy: {0}={1} is no address of a proxy".format(variable, public(value)),
                    "write it as http://[user:password@]host:port",
                )
            )
    return problems


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https", "socks5") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


# -- login ---------------------------------------------------------------------------------------------------------


def auth_problems(auth: Mapping[str, Any]) -> List[Dict[str, str]]:
    """What is wrong with the option auth: {code, message, remedy} each; its values are never shown."""
    problems = []
    for key, login in sorted(auth.items()):
        complete = isinstance(login, dict) and all(
            isinstance(login.get(k), str) and login[k] for k in ("username", "password")
        )
        if not complete:
            problems.append(
                problem("bad_auth", "auth: {0} has no username and password".format(key), "give both, as text")
            )
        if not HOST.match(registry_key(key)):
            problems.append(
                problem(
                    "bad_registry", "auth: {0!r} is no registry".format(key), "write host or host:port, as in the image"
                )
            )
    return problems


def auth_for(auth: Mapping[str, Mapping[str, str]], reference: str) -> Optional[Mapping[str, str]]:
    """The login for the registry of a reference, None when none was given."""
    return next((login for key, login in sorted(auth.items()) if registry_key(key) == registry_of(reference)), None)


def client_config(existing: Mapping[str, Any], registry: str, login: Mapping[str, str]) -> Dict[str, Any]:
    """The docker command line's config.json: the existing one, with this registry's login in the file itself.

    A credential store goes before the file, so it is left out; it is only for this one pull.
    """
    config = {key: value for key, value in existing.items() if key != "credsStore"}
    helpers = {name: helper for name, helper in (config.pop("credHelpers", None) or {}).items() if name != registry}
    if helpers:
        config["credHelpers"] = helpers
    token = "{username}:{password}".format(**login).encode("utf-8")
    key = DOCKER_HUB_AUTH if registry == DOCKER_HUB else registry
    config["auths"] = dict(config.get("auths") or {}, **{key: {"auth": base64.b64encode(token).decode("ascii")}})
    return config


@contextlib.contextmanager
def login_folder(registry: str, login: Optional[Mapping[str, str]]) -> Iterator[Dict[str, str]]:
    """The environment for one pull: DOCKER_CONFIG is a temporary folder (0700, files 0600), gone afterwards.

    Without a login the environment is left as it is. A SIGTERM or SIGHUP (a lost connection) removes the folder too.
    """
    if login is None:
        yield {}
        return
    home = os.environ.get("DOCKER_CONFIG") or os.path.expanduser("~/.docker")
    with _signals_exit():
        folder = tempfile.mkdtemp(prefix="vllm-ascend-docker-")
        try:
            existing = _json_object(read_file(os.path.join(home, "config.json")))
            write_file(os.path.join(folder, "config.json"), json.dumps(client_config(existing, registry, login)), 0o600)
            yield {"DOCKER_CONFIG": folder}
        finally:
            shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _signals_exit() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def leave(number: int, _frame: Any) -> None:
        raise SystemExit(128 + number)

    old = {number: signal.signal(number, leave) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)


def _json_object(text: Optional[str]) -> Dict[str, Any]:
    return documents.mapping(documents.parsed(text))


def shown_values(auth: Mapping[str, Any], proxy: Optional[Mapping[str, Optional[str]]]) -> Tuple[Set[str], Set[str]]:
    """What of auth and proxy must be masked in a module's output, and what may be shown.

    Masking works on substrings: a user called "ascend" would make "quay.io/ascend/…" unreadable, so user names are
    shown, and so are proxies without a login.
    """
    logins = [login for login in auth.values() if isinstance(login, dict)]
    urls = [url for url in proxy_wanted(proxy).values()]
    hidden = {str(login["password"]) for login in logins if login.get("password")}
    for url in urls:
        login = masking.login_of(url)
        if login:
            hidden |= {url, login} | {part for part in login.split(":", 1)[1:] if part}
    shown = {str(login.get("username")) for login in logins} | {url for url in urls if not has_login(url)}
    return hidden, shown - hidden


# -- files ---------------------------------------------------------------------------------------------------------


def problem(code: str, message: str, remedy: str) -> Dict[str, str]:
    """One problem, as everywhere in the collection."""
    return {"code": code, "message": message, "remedy": remedy}


def read_file(path: str) -> Optional[str]:
    """The text of a file, None when it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as handle:
            return handle.read()
    except OSError:
        return None


def write_file(path: str, text: str, mode: int) -> None:
    """Put text into a file in one step, with that mode from the start; its folder is made (0755) when missing.

    Raises OSError when that cannot be done.
    """
    folder = os.path.dirname(path)
    os.makedirs(folder, mode=0o755, exist_ok=True)
    handle, temporary = tempfile.mkstemp(prefix=".vllm-ascend-", dir=folder)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fchmod(stream.fileno(), mode)
            os.fsync(stream.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def restore_file(path: str, text: Optional[str], mode: int) -> None:
    """Give a file its earlier text back, or remove it when it was absent."""
    if text is not None:
        write_file(path, text, mode)
        return
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
