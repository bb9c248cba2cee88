"""Run inside the host image: writes /carved.tar, the few packages of it that an engine image needs."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import tarfile

ROOTS = [
    "base-files",
    "bash",
    "coreutils",
    "curl",
    "dash",
    "findutils",
    "grep",
    "libstdc++6",
    "procps",
    "python3",
    "sed",
    "util-linux",
]
# Needed by maintainer scripts only, or not at all here.
LEFT_OUT = {"adduser", "debconf", "dpkg", "init-system-helpers", "passwd", "perl-base", "media-types", "tzdata"}
EXTRA = ["/usr/bin/sh", "/etc/passwd", "/etc/group", "/etc/nsswitch.conf", "/etc/ld.so.conf", "/etc/ld.so.cache"]
FOLDERS = {"/tmp": 0o1777, "/var/tmp": 0o1777, "/root": 0o700}
EMPTY = ["/dev", "/proc", "/sys", "/run", "/workspace", "/usr/local/bin", "/usr/local/Ascend", "/var/log"]
PRUNED = re.compile(
    r"/usr/share/(doc|man|info|locale|lintian|bash-completion|python3|zsh)/|/usr/share/bug/|/etc/(init\.d|cron|systemd)"
    r"|/lib/systemd/|/usr/lib/python3[^/]*/(test|idlelib|lib2to3|ensurepip|turtledemo|tkinter|pydoc_data|distutils)/"
    r"|/usr/share/perl|/etc/profile\.d/"
)


def query(*arguments: str) -> str:
    """Output of dpkg-query."""
    return subprocess.run(["dpkg-query", *arguments], capture_output=True, text=True, check=False).stdout


def closure() -> set[str]:
    """The roots and all that they depend on."""
    found: set[str] = set()
    queue = list(ROOTS)
    while queue:
        name = queue.pop()
        if name in found or name in LEFT_OUT:
            continue
        depends = query("-W", "-f", "${Pre-Depends}, ${Depends}", name)
        if not depends:
            continue
        found.add(name)
        queue += [re.split(r"[ :(|]", part.strip())[0] for part in depends.split(",") if part.strip()]
    return found


def files(packages: set[str]) -> set[str]:
    """Real paths of the packages' files, with python's compiled files."""
    paths = set(EXTRA)
    for path in query("-L", *sorted(packages)).splitlines():
        if path.startswith("/") and (os.path.islink(path) or os.path.isfile(path)):
            paths.add(os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path)))
    for folder in pathlib.Path("/usr/lib").glob("python3.*"):
        paths |= {str(path) for path in folder.rglob("__pycache__/*.pyc")}
    return {path for path in paths if not PRUNED.search(path)}


def main() -> None:
    """Write the archive: folders first, entries sorted, owners root."""
    links = [name for name in ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32") if os.path.islink(name)]
    paths = sorted(path for path in files(closure()) - set(links) if os.path.lexists(path))
    inner = [*paths, *(f"{folder}/x" for folder in [*EMPTY, *FOLDERS])]
    parents = {str(parent) for path in inner for parent in pathlib.PurePath(path).parents} - {"/"}
    with tarfile.open("/carved.tar", "w", format=tarfile.PAX_FORMAT) as archive:
        for folder in sorted(parents - set(links)):
            info = tarfile.TarInfo(folder.lstrip("/"))
            info.type, info.mode = tarfile.DIRTYPE, FOLDERS.get(folder, 0o755)
            archive.addfile(info)
        for path in links + paths:
            info = archive.gettarinfo(path, path.lstrip("/"))
            info.uid = info.gid = 0
            info.uname = info.gname = "root"
            if info.isreg():
                with open(path, "rb") as content:
                    archive.addfile(info, content)
            else:
                archive.addfile(info)


if __name__ == "__main__":
    main()
