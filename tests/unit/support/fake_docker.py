"""A program that plays `docker` (and `systemctl`, under that name) from a scenario, for tests that run real processes.

Its folder holds scenario.json: what the engine has (images, tags, containers), what the registries and archives give,
and what is broken. Every call is added to calls.jsonl. The texts are those that Docker 20.10.24 and 28.2 printed.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
SCENARIO = os.path.join(HERE, "scenario.json")


class Failure(Exception):
    """What the program prints on standard error; the exit code is 1."""


def familiar(name):
    name = re.sub(r"^(docker\.io/)?(library/)?", "", name)
    return name if "@" in name or ":" in name.rsplit("/", 1)[-1] or name.startswith("sha256:") else name + ":latest"


def repository(name):
    return re.sub(r":[^/]*$", "", name.split("@")[0])


def find(state, name):
    if name in state["images"]:
        return name
    if "@" in name:
        return next((i for i, image in state["images"].items() if name in image["digests"]), None)
    return state["tags"].get(familiar(name))


def put(state, image, tag=None, digest=None):
    entry = state["images"].setdefault(image["id"], dict(image, digests=[]))
    if tag:
        state["tags"][familiar(tag)] = image["id"]
    if digest and digest not in entry["digests"]:
        entry["digests"].append(digest)


def pull(state, args):
    name = args[-1]
    if "--platform" in args and not state["platform_flag"]:
        raise Failure('"--platform" is only supported on a Docker daemon with experimental features enabled')
    known = state["registry"]
    if "@" in name:
        same = [
            v for k, v in known.items() if repository(k) == repository(name) and v.get("digest") == name.split("@")[1]
        ]
        answer = same[0] if same else known.get(name, {})
    else:
        answer = known.get(name, {})
    if "stderr" in answer:
        raise Failure(answer["stderr"])
    if "id" not in answer:
        raise Failure(f"Error response from daemon: manifest for {name} not found: manifest unknown: manifest unknown")
    put(state, answer, None if "@" in name else name, repository(name) + "@" + answer["digest"])
    save(state)
    time.sleep(answer.get("sleep", 0))
    print("Digest: {}\nStatus: Downloaded newer image for {}\n{}".format(answer["digest"], name, name))


def load(state, args):
    entries = state["archives"].get(args[-1])
    if entries is None or isinstance(entries, str):
        raise Failure(entries or f"open {args[-1]}: no such file or directory")
    for entry in entries:
        time.sleep(entry.get("sleep", 0))
        put(state, entry, entry.get("tag"))
        print("Loaded image: " + entry["tag"] if entry.get("tag") else "Loaded image ID: " + entry["id"])


def inspect(state, args):
    image = find(state, args[-1])
    if image is None or state.get("vanishing"):
        print("[]")
        raise Failure(state["no_such_image"].format(args[-1]))
    entry = state["images"][image]
    system, architecture = entry["platform"].split("/")
    tags = [tag for tag, target in state["tags"].items() if target == image]
    answer = {
        "Id": image,
        "Os": system,
        "Architecture": architecture,
        "RepoTags": tags,
        "RepoDigests": entry["digests"],
    }
    print(json.dumps([dict(answer, Size=entry.get("size", 5 << 20))]))


def tag(state, args):
    if state.get("tag_fails"):
        raise Failure(f'Error parsing reference: "{args[1]}" is not a valid repository/tag')
    state["tags"][familiar(args[1])] = find(state, args[0])


def remove(state, args):
    name = args[-1]
    image = find(state, name)
    if image is None:
        raise Failure("Error: No such image: " + name)
    entry = state["images"][image]
    tags = [tag for tag, target in state["tags"].items() if target == image]
    names = [] if name == image else [n for n in tags + entry["digests"] if n not in (name, familiar(name))]
    if "@" not in name and name != image and not any(repository(n) == repository(name) for n in names if "@" not in n):
        names = [n for n in names if repository(n) != repository(name)]
    if not names and image in state["in_use"]:
        raise Failure("Error response from daemon: conflict: unable to remove repository reference " + name)
    for gone in [tag for tag in tags if tag not in names]:
        del state["tags"][gone]
    entry["digests"] = [digest for digest in entry["digests"] if digest in names]
    if not names:
        del state["images"][image]


def images(state, _args):
    tagged = set(state["tags"].values())
    for name, image in state["tags"].items():
        print(image, name)
    for image in state["images"]:
        if image not in tagged:
            print(image, "<none>:<none>")


def info(state, _args):
    print(json.dumps(state["info"]))


def containers(state, _args):
    print("\n".join(state["instances"]))


DOCKER = {
    ("image", "inspect"): inspect,
    ("image", "ls"): images,
    ("image", "rm"): remove,
    ("pull",): pull,
    ("load",): load,
    ("tag",): tag,
    ("info",): info,
    ("ps",): containers,
}


def docker(state, argv):
    if state.get("hang") and argv[: len(state["hang"])] == state["hang"]:
        time.sleep(60)
    if state["down"]:
        if argv[0] == "info":
            print(json.dumps({"ServerErrors": [state["down"]]}))
            return
        raise Failure(state["down"])
    words = next(words for words in DOCKER if tuple(argv[: len(words)]) == words)
    DOCKER[words](state, argv[len(words) :])


def systemctl(state, argv):
    if argv[0] in state["systemctl_fails"]:
        raise Failure(state["systemctl_fails"][argv[0]])
    if argv != ["restart", "docker"]:
        return
    info = {"HttpProxy": "", "HttpsProxy": "", "NoProxy": ""}
    if os.path.exists(state["drop_in"]):
        with open(state["drop_in"], encoding="utf-8") as handle:
            found = re.findall(r'^Environment="(\w+)=(.*)"$', handle.read(), re.M)
        names = {"HTTP_PROXY": "HttpProxy", "HTTPS_PROXY": "HttpsProxy", "NO_PROXY": "NoProxy"}
        for variable, value in found:
            info[names[variable]] = re.sub(r"//[^@/]*@", "//xxxxx:xxxxx@", value.replace("%%", "%"))
    state["info"].update(info, **state["daemon_json"])


def save(state):
    with open(SCENARIO, "w", encoding="utf-8") as handle:
        json.dump(state, handle)


def seen_login():
    """The folder of DOCKER_CONFIG, as this call sees it: modes and contents."""
    folder = os.environ.get("DOCKER_CONFIG")
    path = os.path.join(folder or "", "config.json")
    if not folder or not os.path.exists(path):
        return None
    with open(path, encoding="utf-8") as handle:
        config = json.load(handle)
    modes = [oct(os.stat(p).st_mode & 0o777) for p in (folder, path)]
    return {"folder": folder, "modes": modes, "config": config, "files": sorted(os.listdir(folder))}


def main():
    with open(SCENARIO, encoding="utf-8") as handle:
        state = json.load(handle)
    program = os.path.basename(sys.argv[0])
    with open(os.path.join(HERE, "calls.jsonl"), "a", encoding="utf-8") as handle:
        handle.write(json.dumps({"argv": [program, *sys.argv[1:]], "login": seen_login()}) + "\n")
    try:
        {"docker": docker, "systemctl": systemctl}[program](state, sys.argv[1:])
    except Failure as failure:
        print(failure, file=sys.stderr)
        return 1
    save(state)
    return 0


if __name__ == "__main__":
    sys.exit(main())
