# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Build and install the host helper: one file that runs by itself, made of this collection's own host code.

It is a zip application (PEP 441) of helper_main and the modules that it imports, stored with fixed times, so that the
same sources give the same bytes, and with them the same digest, on every host.
"""

from __future__ import annotations

import ast
import importlib
import io
import os
import stat
import zipfile
from typing import Any, Callable, Dict, List, Optional, Set

from . import atomic, helper_main
from .host_control import Host
from .instance_state import HELPER_MARK, HELPER_PATH, bytes_digest, read_helper

# Units and transactions name their interpreter; this line is for people.
SHEBANG = "#!/usr/bin/env python3"
PACKAGE = "vllm_ascend_host"
ENTRY = "helper_main"
MODE = 0o755
# The earliest time that a zip can hold.
TIMESTAMP = (1980, 1, 1, 0, 0, 0)
MAIN = "import sys\n\nfrom {0}.{1} import main\n\nsys.exit(main())\n".format(PACKAGE, ENTRY)


def build(read: Optional[Callable[[str], str]] = None) -> bytes:
    """The bytes of the helper. read gives the source of a module of this folder by its name."""
    sources = closure(ENTRY, read or source)
    files = {"__main__.py": MAIN, PACKAGE + "/__init__.py": ""}
    files.update({"{0}/{1}.py".format(PACKAGE, name): text for name, text in sources.items()})
    packed = io.BytesIO()
    packed.write("{0}\n{1}{2}\n".format(SHEBANG, HELPER_MARK, helper_main.VERSION).encode("utf-8"))
    with zipfile.ZipFile(packed, "a", zipfile.ZIP_STORED) as archive:
        for name in sorted(files):
            entry = zipfile.ZipInfo(name, TIMESTAMP)
            entry.create_system = 3
            entry.external_attr = (stat.S_IFREG | 0o644) << 16
            archive.writestr(entry, files[name].encode("utf-8"))
    return packed.getvalue()


def source(name: str) -> str:
    """The source of a module of this folder, wherever that was loaded from (a checkout, or what Ansible sends)."""
    full = "{0}.{1}".format(__name__.rpartition(".")[0], name)
    loader: Any = importlib.import_module(full).__loader__
    text = loader.get_source(full)
    if text is None:
        raise ImportError("the source of {0} cannot be read".format(full))
    return str(text)


def closure(name: str, read: Callable[[str], str]) -> Dict[str, str]:
    """{module: source} of a module and of all that it imports from its own folder."""
    found: Dict[str, str] = {}
    todo: List[str] = [name]
    while todo:
        current = todo.pop()
        if current not in found:
            found[current] = read(current)
            todo += sorted(imports(found[current]))
    return found


def imports(text: str) -> Set[str]:
    """The modules of its own folder that a source imports (`from .x import y`, `from . import x`)."""
    names: Set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and node.level == 1:
            names.update([node.module] if node.module else [alias.name for alias in node.names])
    return names


def install(host: Host, check: bool = False) -> Dict[str, Any]:
    """Install the helper where it is missing or another one; {changed, path, version, digest, before}.

    It is put in place in one step, and programs that run from the old file keep it: units in use are not disturbed.
    """
    content = build()
    digest = bytes_digest(content)
    path = host.path(HELPER_PATH)
    before = read_helper(host.sysroot)
    mode_right = before is not None and stat.S_IMODE(os.stat(path).st_mode) == MODE
    changed = before is None or before["digest"] != digest or not mode_right
    if changed and not check:
        os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
        atomic.write(path, content, MODE)
    return {
        "changed": changed,
        "path": HELPER_PATH,
        "version": helper_main.VERSION,
        "digest": digest,
        "before": before["digest"] if before else None,
    }
