# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bring one image into the host's engine under its canonical reference: from mirrors in order, or from an archive.

Only the canonical reference changes for good. Names that a pull had to make are taken away again, names that a failed
try moved are moved back, and an image that was there before, or that anything uses, is never deleted.
"""

from __future__ import annotations

import os
import re
import time
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from . import documents, masking
from . import engine_settings as settings
from .commands import CommandResult, run
from .engine_settings import FileChange, problem
from .image_engine import (
    COMMAND_S,
    MIB,
    Engine,
    Image,
    ImageError,
    Problem,
    Snapshot,
    familiar,
    knows_platform,
    with_digest,
)
from .registry_errors import LOAD, PULL, Diagnosis, diagnose, meaningful_line

RESTART_S = 180.0
POLL_S = 0.5
PLATFORMS = ("linux/amd64", "linux/arm64")
DIGEST = re.compile(r"^sha256:[0-9a-f]{64}$")
REFERENCE = re.compile(r"^[A-Za-z0-9\[][A-Za-z0-9._:/@\[\]-]*$")
# A line of a systemd drop-in that sets a variable.
ASSIGNED = re.compile(r"^(\s*Environment=[\"']?\w+=)(.*)$", re.M)
LOADED = re.compile(r"^Loaded image(?: ID)?: (\S+)$", re.M)
# First bytes of what `docker load` can read: gzip, bzip2, xz, zstd. A plain tar has "ustar" at 257.
COMPRESSED = (b"\x1f\x8b", b"BZh", b"\xfd7zXZ\x00", b"\x28\xb5\x2f\xfd")


class Request(NamedTuple):
    """What is wanted; the fields are the options of the module vllm_image."""

    reference: str
    candidates: Sequence[str] = ()
    platform: Optional[str] = None
    archive: Optional[str] = None
    digest: Optional[str] = None
    pull: str = "missing"
    auth: Mapping[str, Mapping[str, str]] = {}
    ca: Mapping[str, str] = {}
    proxy: Optional[Mapping[str, Optional[str]]] = None
    timeout: float = 3600
    engine_cli: str = "docker"
    min_free_mb: int = 0
    check_mode: bool = False


# -- checks before anything changes --------------------------------------------------------------------------------


def request_problems(request: Request) -> List[Problem]:
    """Everything that is wrong with the request itself."""
    problems = []
    for name in [request.reference] + list(request.candidates):
        if not REFERENCE.match(name):
            problems.append(
                problem("bad_reference", "{0!r} is no image reference".format(name), "write registry/name:tag")
            )
    others = [name for name in request.candidates if familiar(name) != familiar(request.reference)]
    if "@" in request.reference and (others or request.archive):
        message = "the reference {0} is a digest, which an image from elsewhere cannot be given as its name"
        remedy = "give a tag as the reference and the digest as vllm_image_digest"
        problems.append(problem("bad_reference", message.format(request.reference), remedy))
    if request.digest and not DIGEST.match(request.digest):
        message = "digest: {0!r} is none".format(request.digest)
        problems.append(problem("bad_digest", message, "write sha256: and 64 hexadecimal digits"))
    pinned = [name for name in [request.reference] + list(request.candidates) if "@" in name]
    if request.digest and any(not name.endswith("@" + request.digest) for name in pinned):
        message = "{0} and digest {1} pin different images".format(pinned[0], request.digest)
        problems.append(problem("bad_digest", message, "pin one of the two"))
    if request.platform and request.platform not in PLATFORMS:
        message = "platform {0!r} is not one of {1}".format(request.platform, ", ".join(PLATFORMS))
        problems.append(problem("bad_platform", message, "give one of these, or none"))
    if request.timeout <= 0:
        message = "timeout {0} is not above 0".format(request.timeout)
        problems.append(problem("bad_timeout", message, "give the seconds that one pull or load may take"))
    problems += settings.auth_problems(request.auth) + settings.ca_problems(request.ca)
    return problems + settings.proxy_problems(settings.proxy_wanted(request.proxy))


def flaw_of(image: Image, request: Request) -> Optional[Problem]:
    """Why an image is not the wanted one (architecture, pinned digest); None when it is."""
    if request.platform and image.platform != request.platform:
        message = "the image is for {0}, this host needs {1}".format(image.platform, request.platform)
        return problem("wrong_architecture", message, "use a tag or mirror that has the image for " + request.platform)
    if (
        request.digest
        and request.digest != image.id
        and not any(d.endswith("@" + request.digest) for d in image.digests)
    ):
        known = [d.rsplit("@", 1)[-1] for d in image.digests] or ["none"]
        message = "the image has the digest {0} and the id {1}, pinned is {2}".format(
            ", ".join(sorted(set(known))), image.id, request.digest
        )
        remedy = "check vllm_image_digest; an archive carries no registry digest: pin the image id there"
        return problem("wrong_digest", message, remedy)
    return None


def archive_problem(path: str) -> Optional[Problem]:
    """Why a file cannot be an archive of `docker save`, from its first bytes; None when it may be one."""
    remedy = "copy the archive to this path of the host, or check vllm_image_archive"
    try:
        with open(path, "rb") as handle:
            head = handle.read(512)
    except OSError as failure:
        return problem("archive_missing", "the archive {0} cannot be read: {1}".format(path, failure.strerror), remedy)
    if head.startswith(COMPRESSED) or head[257:262] == b"ustar":
        return None
    message = "the file {0} is no tar archive, plain or compressed".format(path)
    return problem("archive_invalid", message, "make it with `docker save IMAGE | gzip > image.tar.gz`")


def space_problem(info: Mapping[str, Any], min_free_mb: int) -> Optional[Problem]:
    """Too little space below the engine's storage folder, both figures named; None when there is enough or no limit."""
    folder = documents.text(info.get("DockerRootDir")) or ""
    if min_free_mb <= 0 or not os.path.isdir(folder):
        return None
    stat = os.statvfs(folder)
    free = stat.f_bavail * stat.f_frsize // MIB
    if free >= min_free_mb:
        return None
    message = "{0} has {1} MB free, the image needs {2} MB".format(folder, free, min_free_mb)
    return problem("no_space", message, "free space (docker system df; docker image prune) or use a larger disk")


# -- settings of the engine ----------------------------------------------------------------------------------------


class Changes(NamedTuple):
    """What must change on the host before a pull: files, and the daemon's proxy (empty: nothing)."""

    files: List[FileChange]
    proxy: Dict[str, str]


def plan_changes(engine: Engine, request: Request, info: Mapping[str, Any]) -> Tuple[Changes, List[Problem]]:
    """The settings that a pull needs, and what forbids to make them now. Nothing is touched."""
    files = settings.ca_changes(request.ca, settings.CERTS)
    wanted = settings.proxy_wanted(request.proxy)
    drop_in = settings.read_file(settings.DROP_IN)
    if settings.proxy_matches(wanted, info, drop_in):
        return Changes(files, {}), []
    if drop_in != settings.drop_in_text(wanted):
        files.append(FileChange(settings.DROP_IN, drop_in, settings.drop_in_text(wanted), 0o600))
    return Changes(files, wanted), restart_problems(engine, info, wanted)


def restart_problems(engine: Engine, info: Mapping[str, Any], wanted: Mapping[str, str]) -> List[Problem]:
    """Why Docker must not be restarted now to take a proxy: it would stop what runs.

    live-restore keeps containers alive, but not the `docker run` in the foreground of an instance's unit: that ends
    with "unexpected EOF" (tried, Docker 20.10.24), and the service with it.
    """
    running = documents.integer(info.get("ContainersRunning")) or 0
    instances = engine.running_instances() if running and info.get("LiveRestoreEnabled") else []
    if running and not info.get("LiveRestoreEnabled"):
        why = "{0} container(s) run and live-restore is off".format(running)
    elif instances:
        why = "the instance(s) {0} run, whose units lose their container even with live-restore".format(
            ", ".join(instances)
        )
    else:
        return []
    actual = settings.proxy_of(info)
    message = "Docker must restart to use the proxy {0} (now: {1}), but {2}".format(
        ", ".join("{0}={1}".format(key, settings.public(value)) for key, value in sorted(wanted.items())),
        ", ".join("{0}={1}".format(key, settings.public(actual[key]) or "none") for key in sorted(wanted)),
        why,
    )
    remedy = "stop these first, or set the proxy of docker.service yourself at a quiet time, or leave out vllm_proxy"
    return [problem("proxy_needs_restart", message, remedy)]


def apply_changes(engine: Engine, changes: Changes) -> None:
    """Write the files and, for a proxy, restart Docker; a proxy that Docker does not take is undone and an error."""
    try:
        for change in changes.files:
            settings.write_file(change.path, change.after, change.mode)
    except OSError as failure:
        message = "{0} cannot be written: {1}".format(failure.filename, failure.strerror)
        raise ImageError([problem("not_writable", message, "run as root (become: true)")]) from failure
    if not changes.proxy:
        return
    reason = _restart(engine, changes.proxy)
    if reason is None:
        return
    for change in changes.files:
        if change.path == settings.DROP_IN:
            settings.restore_file(change.path, change.before, change.mode)
    _restart(engine, {})
    remedy = "see `proxies` in /etc/docker/daemon.json, which goes before the unit's, and journalctl -u docker"
    raise ImageError([problem("proxy_not_taken", "Docker did not take the proxy: " + reason, remedy)])


def _restart(engine: Engine, wanted: Mapping[str, str]) -> Optional[str]:
    """Restart Docker and wait until it answers; why it does not have the wanted proxy then, None when it does."""
    for argv in (["systemctl", "daemon-reload"], ["systemctl", "restart", "docker"]):
        result = run(argv, RESTART_S)
        if not result.ok:
            reason = result.error or ("no answer in time" if result.timed_out else meaningful_line(result.text))
            return "`{0}` failed: {1}".format(" ".join(argv), reason)
    deadline = time.monotonic() + COMMAND_S
    while True:
        try:
            info = engine.info()
            break
        except ImageError as failure:
            if time.monotonic() > deadline:
                return str(failure)
            time.sleep(POLL_S)
    actual = settings.proxy_of(info)
    if settings.proxy_matches(wanted, info, None):
        return None
    return ", ".join("{0} is {1}".format(k, settings.public(actual[k]) or "none") for k in sorted(wanted))


# -- getting the image ---------------------------------------------------------------------------------------------


def ensure(request: Request) -> Dict[str, Any]:
    """Make the image be there under request.reference and say what was done.

    Returns changed, action (none, tag, pull or load), image {id, reference, source, architecture, digests, size_mb}
    (id, architecture and size_mb null where check mode cannot know), attempts [{reference, code, error, remedy}],
    msg and diff. Raises ImageError with all problems; the engine's images and tags are then as they were before.
    """
    problems = request_problems(request)
    if problems:
        raise ImageError(problems)
    engine = Engine(request.engine_cli)
    present = engine.inspect(request.reference)
    flaw = flaw_of(present, request) if present else None
    if present and not flaw and request.pull != "always":
        return _result(request, present, present, "none", "present", "the image is there")
    if request.archive:
        return _from_archive(engine, request, present)
    if request.pull != "always":
        result = _from_store(engine, request, present)
        if result:
            return result
    if request.pull == "never":
        message = "the image {0} must be here already (pull: never), but {1}".format(
            request.reference, flaw["message"] if flaw else "it is not on this host"
        )
        remedy = "set vllm_image_pull: missing, give vllm_image_archive, or load it by hand (docker load)"
        raise ImageError([problem(flaw["code"] if flaw else "image_missing", message, remedy)])
    return _from_registries(engine, request, present)


def _from_store(engine: Engine, request: Request, present: Optional[Image]) -> Optional[Dict[str, Any]]:
    """Use an image that is there under a mirror's name or by its digest; None when there is none."""
    for candidate in list(request.candidates) + [request.reference]:
        for name in sorted({candidate, with_digest(candidate, request.digest)}):
            image = engine.inspect(name) if familiar(name) != familiar(request.reference) else None
            if image and not flaw_of(image, request):
                if not request.check_mode:
                    _must_tag(engine, image.id, request.reference)
                message = "the image is there as {0} and gets its canonical name".format(name)
                return _result(request, present, image, "tag", name, message)
    return None


def _from_archive(engine: Engine, request: Request, present: Optional[Image]) -> Dict[str, Any]:
    archive = str(request.archive)
    found = (archive_problem(archive), space_problem(engine.info(), request.min_free_mb))
    problems = [p for p in found if p]
    if problems:
        raise ImageError(problems)
    if request.check_mode:
        return _predicted(request, present, "load", archive)
    before = engine.snapshot()
    loaded = engine.load(archive, request.timeout)
    names = LOADED.findall(loaded.stdout)
    try:
        image = _loaded_image(engine, request, loaded, names)
        _must_tag(engine, image.id, request.reference)
    except ImageError:
        _undo(engine, before, [name for name in names if not name.startswith("sha256:")])
        raise
    final = _proved(engine, request, image)
    return _result(request, present, final, "load", archive, "the image was loaded from {0}".format(archive))


def _loaded_image(engine: Engine, request: Request, loaded: CommandResult, names: List[str]) -> Image:
    """The wanted image among those that `docker load` brought; raises ImageError when there is none."""
    if not loaded.ok:
        if loaded.timed_out:
            message = "`docker load` of {0} was not done after {1:.0f} s".format(request.archive, request.timeout)
            raise ImageError([problem("time_limit", message, "raise the time limit, or see what the disk does")])
        found = diagnose(loaded.stderr or loaded.stdout, LOAD)
        message = "the archive {0} cannot be loaded: {1}".format(request.archive, found.error)
        raise ImageError([problem(found.code, message, found.remedy)])
    images = {name: image for name, image in ((name, engine.inspect(name)) for name in names) if image}
    wanted = [familiar(name) for name in [request.reference] + list(request.candidates)]
    known = [name for name in wanted if name in images]
    if not known and len({image.id for image in images.values()}) != 1:
        message = "the archive {0} holds {1}, none of them is {2}".format(
            request.archive, ", ".join(names) or "no image", request.reference
        )
        raise ImageError([problem("archive_other_image", message, "save this one image alone: docker save IMAGE")])
    name = (known or sorted(images))[0]
    image = images[name]
    flaw = flaw_of(image, request)
    if flaw:
        raise ImageError([dict(flaw, message="{0} in {1}: {2}".format(name, request.archive, flaw["message"]))])
    return image


def _from_registries(engine: Engine, request: Request, present: Optional[Image]) -> Dict[str, Any]:
    candidates = list(request.candidates) or [request.reference]
    info = engine.info()
    changes, problems = plan_changes(engine, request, info)
    space = space_problem(info, request.min_free_mb)
    if problems or space:
        raise ImageError(problems + ([space] if space else []))
    if request.check_mode:
        return _predicted(request, present, "pull", candidates[0], changes)
    attempts: List[Dict[str, str]] = []
    try:
        apply_changes(engine, changes)
        before = engine.snapshot()
        for candidate in candidates:
            found = _try(engine, request, candidate, before, knows_platform(info))
            if isinstance(found, Image):
                message = "the image was pulled as {0}".format(candidate)
                return _result(request, present, found, "pull", candidate, message, attempts, changes)
            attempts.append({"reference": candidate, "code": found.code, "error": found.error, "remedy": found.remedy})
            if found.code == "no_space":
                break
        tried = [problem(a["code"], "{0}: {1}".format(a["reference"], a["error"]), a["remedy"]) for a in attempts]
        raise ImageError(tried, attempts, "the image {0} could not be fetched:".format(request.reference))
    except ImageError as failure:
        written = [change for change in changes.files if settings.read_file(change.path) == change.after]
        failure.changed = bool(written)
        failure.attempts = failure.attempts or attempts
        failure.diff = _diff(request, present, present, Changes(written, {}))
        raise


def _try(engine: Engine, request: Request, candidate: str, before: Snapshot, platform_known: bool) -> Any:
    """Pull one candidate and give it the canonical name: the Image, or the Diagnosis of why not (all undone)."""
    name = with_digest(candidate, request.digest)
    registry = settings.registry_of(candidate)
    with settings.login_folder(registry, settings.auth_for(request.auth, candidate)) as env:
        pulled = engine.pull(name, request.platform if platform_known else None, request.timeout, env)
    if not pulled.ok:
        if pulled.timed_out:
            _undo(engine, before, [name])
            error = "the pull was not done after {0:.0f} s".format(request.timeout)
            return Diagnosis("time_limit", error, "use a nearer mirror or vllm_image_archive, or raise the time limit")
        return diagnose(pulled.stderr or pulled.stdout, PULL)
    image = engine.inspect(name)
    if image is None:
        return Diagnosis("image_vanished", "the image was pulled and is gone", "see who removes images on this host")
    try:
        flaw = flaw_of(image, request)
        if flaw:
            raise ImageError([flaw])
        if familiar(name) != familiar(request.reference):
            _must_tag(engine, image.id, request.reference)
    except ImageError as failure:
        _undo(engine, before, [name, request.reference])
        return Diagnosis(failure.problems[0]["code"], failure.problems[0]["message"], failure.problems[0]["remedy"])
    if familiar(name) != familiar(request.reference) and "@" not in name:
        _undo(engine, before, [name])
    return _proved(engine, request, image)


def _must_tag(engine: Engine, source: str, target: str) -> None:
    result = engine.tag(source, target)
    if not result.ok:
        message = "{0} cannot be named {1}: {2}".format(source, target, meaningful_line(result.text))
        raise ImageError([problem("tag_failed", message, "check the reference")])


def _proved(engine: Engine, request: Request, image: Image) -> Image:
    """The image as it stands now; the digests seen at the pull are kept, since they go with the mirror's name."""
    final = engine.inspect(request.reference)
    if final is None or final.id != image.id:
        message = "{0} is {1} just after it was made {2}".format(
            request.reference, final.id if final else "gone", image.id
        )
        raise ImageError([problem("image_moved", message, "see who else changes images on this host, and run again")])
    return final._replace(digests=sorted(set(image.digests + final.digests)))


def _undo(engine: Engine, before: Snapshot, names: Sequence[str]) -> None:
    """Give these names back what they meant before. No image of the snapshot is deleted, and none that is in use."""
    now = engine.snapshot()
    for name in names:
        key = familiar(name)
        old, new = before.tags.get(key), now.tags.get(key)
        if old and old != new:
            engine.tag(old, key)
            left = engine.inspect(new) if new and new not in before.ids else None
            if left and not left.tags:
                engine.remove(left.id)
        elif not old and (new or "@" in name):
            image = engine.inspect(name)
            if image and (image.id not in before.ids or _has_other_tag(image, name)):
                engine.remove(name)


def _has_other_tag(image: Image, name: str) -> bool:
    """True when taking the tag name away leaves the image another one. A digest is left alone: it may be older."""
    return "@" not in name and any(familiar(tag) != familiar(name) for tag in image.tags)


# -- what is returned ----------------------------------------------------------------------------------------------


def _result(
    request: Request,
    present: Optional[Image],
    image: Image,
    action: str,
    source: str,
    message: str,
    attempts: Sequence[Dict[str, str]] = (),
    changes: Optional[Changes] = None,
) -> Dict[str, Any]:
    moved = present is None or present.id != image.id or flaw_of(present, request) is not None
    return {
        "changed": moved or bool(changes and (changes.files or changes.proxy)),
        "action": action,
        "msg": message,
        "image": _returned(request, image, source),
        "attempts": list(attempts),
        "diff": _diff(request, present, image, changes),
    }


def _predicted(
    request: Request, present: Optional[Image], action: str, source: str, changes: Optional[Changes] = None
) -> Dict[str, Any]:
    """What a run would do. Whether a refresh brings another image is known only afterwards: it counts as no change."""
    kept = present if present and not flaw_of(present, request) else None
    message = "would {0} from {1}".format(action, source)
    shown = _diff(request, present, kept, changes)
    if kept:
        message += "; whether that is another image than the present one is known only then"
    else:
        shown["after"]["image"] = "known after the {0} from {1}".format(action, source)
    return {
        "changed": kept is None or bool(changes and (changes.files or changes.proxy)),
        "action": action,
        "msg": message,
        "image": _returned(request, kept, source),
        "attempts": [],
        "diff": shown,
    }


def _returned(request: Request, image: Optional[Image], source: str) -> Dict[str, Any]:
    return {
        "id": image.id if image else None,
        "reference": request.reference,
        "source": source,
        "architecture": image.architecture if image else None,
        "digests": image.digests if image else [],
        "size_mb": image.size_mb if image else None,
    }


def _diff(
    request: Request, before: Optional[Image], after: Optional[Image], changes: Optional[Changes]
) -> Dict[str, Any]:
    shown: Dict[str, Dict[str, Any]] = {
        "before": {"reference": request.reference, "image": before.id if before else None},
        "after": {"reference": request.reference, "image": after.id if after else None},
    }
    for change in changes.files if changes else []:
        shown["before"][change.path] = _shown(change.before)
        shown["after"][change.path] = _shown(change.after)
    return dict(shown)


def _shown(text: Optional[str]) -> Optional[str]:
    """A file's text without the logins of proxies."""
    if text is None:
        return None
    shown = re.sub(r"//.*@", "//********@", text)
    return ASSIGNED.sub(lambda line: line.group(1) + masking.masked(line.group(2), "********@"), shown)
