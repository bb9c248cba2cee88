"""A program that plays `docker` for offline jobs: it keeps containers, and a run writes the results that it is told to.

Its folder holds scenario.json: {"answers": how many prompts get a result (null: all), "empty": [indexes], "done":
whether the last line comes, "rc", "said": text of the log, "sleep_s": before it ends}. Runs are added to runs.json with
what was in the mounted folder.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
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
    container = path(name + ".container")
    if os.path.exists(container):
        print("docker: Error response from daemon: Conflict. The container name is in use.", file=sys.stderr)
        return 125
    labels = dict(words[n + 1].split("=", 1) for n, word in enumerate(words) if word == "--label")
    write(name + ".container", {"pid": os.getpid(), "labels": labels})
    source = next(
        re.search(r"source=([^,]*),target=/vllm-offline$", word) for word in words if "/vllm-offline" in word
    )[1]
    folder = scenario["root"] + source
    names = sorted(os.listdir(folder))
    with open(os.path.join(folder, "request.json"), encoding="utf-8") as stream:
        request = json.load(stream)
    modes = {one: oct(stat.S_IMODE(os.stat(os.path.join(folder, one)).st_mode)) for one in names if one != "output.log"}
    files = {"request": request, "modes": modes, "folder": oct(stat.S_IMODE(os.stat(folder).st_mode)), "argv": words}
    with open(os.path.join(folder, "job.env"), encoding="utf-8") as stream:
        files["env"] = stream.read()
    write("runs.json", [*read("runs.json", []), files])
    print(scenario.get("said", ""), flush=True)
    answered = request["prompts"][: scenario.get("answers")]
    with open(os.path.join(folder, "results.jsonl"), "a", encoding="utf-8") as stream:
        for entry in answered:
            text = "" if entry["index"] in scenario.get("empty", []) else "text of " + entry["prompt"]
            stream.write(json.dumps({"index": entry["index"], "text": text, "finish_reason": "length"}) + "\n")
        stream.write('{"done": true}\n' if scenario.get("done", True) else '{"index": 9')
    time.sleep(scenario.get("sleep_s", 0))
    if os.path.exists(container):
        os.unlink(container)
    return scenario.get("rc", 0)


def inspect(name):
    found = read(name + ".container", None)
    if found is None:
        print("Error: No such container: " + name, file=sys.stderr)
        return 1
    print(json.dumps([{"Id": "c1", "Config": {"Labels": found["labels"]}}]))
    return 0


def remove(name):
    found = read(name + ".container", None)
    if found is None:
        print("Error: No such container: " + name, file=sys.stderr)
        return 1
    os.unlink(path(name + ".container"))
    with contextlib.suppress(OSError):
        os.kill(found["pid"], signal.SIGKILL)
    return 0


def main():
    words, scenario = sys.argv[1:], read("scenario.json", {})
    write("calls.json", [*read("calls.json", []), words[:2]])
    if words[0] == "run":
        return run(words, scenario)
    if words[:2] == ["container", "inspect"]:
        return inspect(words[-1])
    return remove(words[-1]) if words[0] == "rm" else 64


if __name__ == "__main__":
    sys.exit(main())
