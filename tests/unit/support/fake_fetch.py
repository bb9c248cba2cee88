"""A program that plays `docker` for fetches of models: it keeps a container while a run lasts.

Its folder holds scenario.json: {"result": what the program in the container says (null: nothing), "rc", "said": text of
the log, "makes": {path: content} of files that come, "sleep_s": before it ends}. Runs are added to runs.json.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import stat
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))


def path(name):
    return os.path.join(HERE, name)


def read(name, otherwise):
    if not os.path.exists(path(name)):
        return otherwise
    with open(path(name), encoding="utf-8") as stream:
        return json.load(stream)


def write(name, value):
    with open(path(name + ".new"), "w", encoding="utf-8") as stream:
        json.dump(value, stream)
    os.replace(path(name + ".new"), path(name))


def run(words, scenario):
    name = words[words.index("--name") + 1]
    labels = dict(words[n + 1].split("=", 1) for n, word in enumerate(words) if word == "--label")
    write(name + ".container", {"pid": os.getpid(), "labels": labels})
    file = scenario["root"] + words[words.index("--env-file") + 1]
    with open(file, encoding="utf-8") as stream:
        given = {"argv": words, "env": stream.read(), "mode": oct(stat.S_IMODE(os.stat(file).st_mode))}
    given["script"] = sys.stdin.read()[:2000]
    write("runs.json", [*read("runs.json", []), given])
    print(scenario.get("said", ""), flush=True)
    time.sleep(scenario.get("sleep_s", 0))
    for target, content in (scenario.get("makes") or {}).items():
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(target, "w", encoding="utf-8") as stream:
            stream.write(content)
    if scenario.get("result") is not None:
        print("vllm-ascend-model " + json.dumps(scenario["result"]), flush=True)
    with contextlib.suppress(OSError):
        os.unlink(path(name + ".container"))
    return scenario.get("rc", 0)


def main(words):
    if words[0] == "run":
        return run(words, read("scenario.json", {}))
    name = words[-1]
    known = read(name + ".container", None)
    if words[:2] == ["container", "inspect"]:
        if known is None:
            print(f"Error: No such container: {name}", file=sys.stderr)
            return 1
        print(json.dumps([{"Config": {"Labels": known["labels"]}}]))
        return 0
    if words[0] == "rm":
        if known is None:
            return 1
        os.unlink(path(name + ".container"))
        with contextlib.suppress(OSError):
            os.kill(known["pid"], signal.SIGKILL)
        return 0
    raise SystemExit(f"unexpected: {words}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
