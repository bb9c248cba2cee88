"""Plays huggingface.co and www.modelscope.cn for models in a folder: `hub_server.py FOLDER [CERTIFICATE KEY]`.

Only what the clients' downloads ask for. FOLDER/<org>/<name>/ are the files of a model; FOLDER/<org>/<name>.json may
hold {"token": the one that must be sent, "hidden": [files that are listed and not there]}. HTTP is on port 80, HTTPS on
443 with a certificate. /_lab/faults takes a JSON object {"cut": {file: [bytes, times]}, "slow": {file: bytes a
second}}, /_lab/requests gives the requests since the last call. It runs with the rack's host image, by the standard
library alone.
"""

from __future__ import annotations

import hashlib
import http.server
import json
import os
import pathlib
import ssl
import sys
import threading
import time
import urllib.parse

# Stands for the commit of a repository.
REVISION = hashlib.sha1(b"the hub of the simulated rack").hexdigest()
PIECE = 1 << 16
LARGE = (".safetensors",)
faults: dict = {}
requests: list = []


class Model:
    """A model of the folder."""

    def __init__(self, root: pathlib.Path, name: str) -> None:
        self.name, self.folder = name, root / name
        rules = root / f"{name}.json"
        self.rules = json.loads(rules.read_text("utf-8")) if rules.exists() else {}

    def files(self) -> list:
        """The names of its files, those that are hidden included."""
        found = [str(p.relative_to(self.folder)) for p in self.folder.rglob("*") if p.is_file()]
        return sorted([*found, *self.rules.get("hidden", [])])

    def path(self, name: str) -> pathlib.Path | None:
        """Where a file is, None when there is none."""
        path = (self.folder / name).resolve()
        return path if name in self.files() and path.is_file() else None

    def described(self, name: str) -> dict:
        """Size and digests of a file."""
        path = self.path(name)
        content = path.read_bytes() if path else b""
        blob = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
        return {"size": len(content), "sha1": blob, "sha256": hashlib.sha256(content).hexdigest()}


class Handler(http.server.BaseHTTPRequestHandler):
    """One request."""

    protocol_version = "HTTP/1.1"
    root: pathlib.Path

    def log_message(self, *_words) -> None:
        """Nothing: /_lab/requests tells more."""

    def do_HEAD(self) -> None:
        """As GET, without a body."""
        self.answer()

    def do_POST(self) -> None:
        """Set the faults."""
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length)
        if self.path == "/_lab/faults":
            faults.clear()
            faults.update(json.loads(body))
        self.json({})

    def do_GET(self) -> None:
        """Send what is asked for."""
        self.answer()

    def answer(self) -> None:
        """Find out which hub is asked, and for what."""
        url = urllib.parse.urlsplit(self.path)
        query = dict(urllib.parse.parse_qsl(url.query))
        parts = [urllib.parse.unquote(part) for part in url.path.strip("/").split("/")]
        if parts[0] == "_lab":
            found = list(requests)
            requests.clear()
            self.json(found)
            return
        seen = {key: self.headers.get(key) for key in ("Range", "Authorization", "User-Agent")}
        requests.append({"method": self.command, "path": self.path, **seen})
        if parts[:2] == ["api", "models"] and len(parts) >= 4:
            self.huggingface_info("/".join(parts[2:4]), bool(query.get("blobs")))
        elif parts[:3] == ["api", "v1", "models"] and len(parts) >= 5:
            self.modelscope("/".join(parts[3:5]), parts[5:], query)
        elif len(parts) >= 5 and parts[2] == "resolve":
            self.huggingface_file("/".join(parts[:2]), "/".join(parts[4:]))
        else:
            self.refuse(404, "EntryNotFound")

    def model(self, name: str) -> Model | None:
        """The model of that name; None when there is none."""
        found = Model(self.root, name)
        return found if found.folder.is_dir() else None

    # -- Hugging Face ----------------------------------------------------------------------------------------------

    def huggingface_info(self, name: str, blobs: bool) -> None:
        """What a model has: names, with blobs also sizes and digests. Gated models show that to all."""
        model = self.model(name)
        if model is None:
            self.refuse(401, "RepoNotFound")
            return
        siblings = []
        for file in model.files():
            entry: dict = {"rfilename": file}
            if blobs:
                known = model.described(file)
                entry.update(size=known["size"], blobId=known["sha1"])
                if file.endswith(LARGE):
                    entry["lfs"] = {"sha256": known["sha256"], "size": known["size"], "pointerSize": 134}
            siblings.append(entry)
        gated = "manual" if model.rules.get("token") else False
        self.json(
            {"id": name, "modelId": name, "sha": REVISION, "siblings": siblings, "gated": gated, "private": False}
        )

    def huggingface_file(self, name: str, file: str) -> None:
        """A file of a model, as the hub that keeps all itself."""
        model = self.model(name)
        if model is None:
            self.refuse(401, "RepoNotFound")
            return
        token = model.rules.get("token")
        if token and self.headers.get("Authorization") != f"Bearer {token}":
            self.refuse(403 if self.headers.get("Authorization") else 401, "GatedRepo")
            return
        path = model.path(file)
        if path is None:
            self.refuse(404, "EntryNotFound")
            return
        known = model.described(file)
        etag = known["sha256"] if file.endswith(LARGE) else known["sha1"]
        self.file(path, {"ETag": f'"{etag}"', "X-Repo-Commit": REVISION})

    # -- ModelScope ------------------------------------------------------------------------------------------------

    def modelscope(self, name: str, rest: list, query: dict) -> None:
        """What ModelScope's client asks for: the model, its revisions, its files, a file."""
        model = self.model(name)
        if model is None:
            self.json({"Code": 404, "Success": False, "Message": "no such model"}, 404)
        elif not rest:
            self.modelscope_data({"Id": 1, "Name": name.split("/")[1], "Path": name.split("/")[0]})
        elif rest == ["revisions"]:
            branch = {"Revision": "master", "CreatedAt": 1700000000}
            self.modelscope_data({"RevisionMap": {"Branches": [branch], "Tags": []}})
        elif rest == ["repo", "files"]:
            files = []
            for file in model.files():
                known = model.described(file)
                files.append({
                    "Name": file.split("/")[-1], "Path": file, "Type": "blob", "Revision": REVISION,
                    "Size": known["size"], "Sha256": known["sha256"], "CommittedDate": 1700000000,
                })  # fmt: skip
            self.modelscope_data({"Files": files})
        elif rest == ["repo"] and model.path(query.get("FilePath", "")):
            self.file(model.path(query["FilePath"]), {})
        else:
            self.json({"Code": 404, "Success": False, "Message": "no such file"}, 404)

    def modelscope_data(self, data: dict) -> None:
        """An answer in ModelScope's form."""
        self.json({"Code": 200, "Success": True, "Message": "success", "Data": data})

    # -- answers ---------------------------------------------------------------------------------------------------

    def json(self, value, status: int = 200, headers: dict | None = None) -> None:
        """Send a value as JSON."""
        body = json.dumps(value).encode()
        self.send_response(status)
        for key, text in {"Content-Type": "application/json", **(headers or {})}.items():
            self.send_header(key, text)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def refuse(self, status: int, code: str) -> None:
        """Say no as Hugging Face does."""
        self.json({"error": code}, status, {"X-Error-Code": code})

    def file(self, path: pathlib.Path, headers: dict) -> None:
        """Send a file, or the part that is asked for; cut or slow where a fault says so."""
        size, begin = path.stat().st_size, 0
        asked = self.headers.get("Range") or ""
        if asked.startswith("bytes="):
            begin = int(asked[6:].split("-")[0])
        self.send_response(206 if asked else 200)
        for key, text in {**headers, "Accept-Ranges": "bytes", "Content-Length": str(size - begin)}.items():
            self.send_header(key, text)
        if asked:
            self.send_header("Content-Range", f"bytes {begin}-{size - 1}/{size}")
        self.end_headers()
        if self.command == "HEAD":
            return
        cut = (faults.get("cut") or {}).get(path.name)
        limit = size
        if cut and cut[1] > 0:
            cut[1] -= 1
            limit = begin + cut[0]
        speed = (faults.get("slow") or {}).get(path.name)
        with path.open("rb") as stream:
            stream.seek(begin)
            while begin < limit:
                piece = stream.read(min(PIECE, limit - begin))
                if not piece:
                    break
                self.wfile.write(piece)
                begin += len(piece)
                if speed:
                    time.sleep(len(piece) / speed)
        if begin < size:
            self.close_connection = True
            self.connection.close()


def main(folder: str, certificate: str = "", key: str = "") -> None:
    """Serve for ever."""
    Handler.root = pathlib.Path(os.path.realpath(folder))
    if certificate:
        secure = http.server.ThreadingHTTPServer(("", 443), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        secure.socket = context.wrap_socket(secure.socket, server_side=True)
        threading.Thread(target=secure.serve_forever, daemon=True).start()
    http.server.ThreadingHTTPServer(("", 80), Handler).serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
