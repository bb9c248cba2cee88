"""Two of vllm-ascend's own files, out of its source archive in the package registry: they run on the plan's flags."""

from __future__ import annotations

import hashlib
import html
import re
import subprocess
import sys
import tarfile
import urllib.error
import urllib.parse
import urllib.request

from ..settings import LabError, say
from .packages import FOLDER

RELEASE = "0.23.0.post1"
ARCHIVE = f"vllm_ascend-{RELEASE}.tar.gz"
SHA256 = "a3b9f4a5dd7aa50c37e03d1f35937c4ae5aeacc49b734cac74d59ce5757738e1"
FILES = ("ascend_config.py", "envs.py")
PUBLIC_INDEX = "https://pypi.org/simple"
LIMIT_S = 180


def ensure() -> dict[str, str]:
    """Text of each file by its name in the package vllm_ascend, kept in .lab/. Raises LabError."""
    kept = FOLDER / ARCHIVE
    if not kept.exists():
        say(f"getting {ARCHIVE} from the package registry")
        content = _download()
        found = hashlib.sha256(content).hexdigest()
        if found != SHA256:
            raise LabError(f"{ARCHIVE} has the sha256 {found}, not {SHA256}: the index serves another file")
        FOLDER.mkdir(parents=True, exist_ok=True)
        temporary = kept.with_suffix(".part")
        temporary.write_bytes(content)
        temporary.rename(kept)
    texts = {}
    with tarfile.open(kept) as archive:
        for name in FILES:
            member = archive.extractfile(f"vllm_ascend-{RELEASE}/vllm_ascend/{name}")
            assert member is not None
            texts[name] = member.read().decode()
    return texts


def _download() -> bytes:
    page = f"{_index()}/vllm-ascend/"
    try:
        with urllib.request.urlopen(page, timeout=LIMIT_S) as answer:
            links = re.findall(r'href="([^"]+)"', answer.read().decode())
            base = answer.url
        for link in map(html.unescape, links):
            if urllib.parse.urlsplit(link).path.endswith(f"/{ARCHIVE}"):
                with urllib.request.urlopen(urllib.parse.urljoin(base, link), timeout=LIMIT_S) as answer:
                    return answer.read()
    except (urllib.error.URLError, OSError) as error:
        raise LabError(f"{ARCHIVE} cannot be had from {page}: {error}") from error
    raise LabError(f"{page} does not list {ARCHIVE}")


def _index() -> str:
    """The index that pip is configured to use."""
    argv = [sys.executable, "-m", "pip", "config", "get", "global.index-url"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    return (done.stdout.strip() or PUBLIC_INDEX).rstrip("/")
