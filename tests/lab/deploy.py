"""`make lab`: deploy to the rack, then ask every endpoint for a completion and show the table.

Exit code 0 when every good host answers and exactly the hosts of the inventory's group `bad` failed.
"""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
import urllib.error
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(sys.executable).parent
INVENTORY = "inventories/lab"
FAILED_HOSTS = 2  # ansible-playbook's exit code when a host failed
TIMEOUT_S = 30


def inventory() -> tuple[dict[str, str], set[str]]:
    """The rack's hosts with their addresses, and the names of the bad ones."""
    done = subprocess.run(
        [str(BIN / "ansible-inventory"), "-i", INVENTORY, "--list"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    data = json.loads(done.stdout)
    addresses = {host: values.get("ansible_host", host) for host, values in data["_meta"]["hostvars"].items()}
    return addresses, set(data["bad"]["hosts"])


def complete(address: str, port: int = 8000) -> str:
    """The text of a completion from the first model that an endpoint lists; an error's text in angle brackets."""
    base = f"http://{address}:{port}/v1"
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"{base}/models", timeout=TIMEOUT_S) as reply:
            model = json.load(reply)["data"][0]["id"]
        body = json.dumps({"model": model, "prompt": "Beijing is a", "max_tokens": 5, "temperature": 0}).encode()
        request = urllib.request.Request(f"{base}/completions", body, {"Content-Type": "application/json"})
        with opener.open(request, timeout=TIMEOUT_S) as reply:
            return json.load(reply)["choices"][0]["text"]
    except (OSError, urllib.error.URLError, KeyError, IndexError, ValueError) as failure:
        return f"<{failure}>"


def main() -> int:
    """Run site.yml against the rack, check every endpoint from here, print the table."""
    site = subprocess.run([str(BIN / "ansible-playbook"), "playbooks/site.yml", "-i", INVENTORY], cwd=ROOT, check=False)
    addresses, bad = inventory()
    answers = {host: complete(address) for host, address in sorted(addresses.items())}
    print(f"\n{'host':<20}{'endpoint':<34}completion of 'Beijing is a' (simulated engines compute nothing)")
    for host, answer in answers.items():
        print(
            f"{host:<20}{f'http://{addresses[host]}:8000/v1':<34}{'(bad on purpose) ' if host in bad else ''}{answer}"
        )
    answered = {host for host, answer in answers.items() if answer and not answer.startswith("<")}
    good = answered == set(addresses) - bad and site.returncode == FAILED_HOSTS
    print(f"{len(answered)} of {len(addresses)} endpoints answer; bad on purpose: {', '.join(sorted(bad))}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
