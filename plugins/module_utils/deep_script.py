# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the deep verification runs in the container after the documented script, and how its output is read.

It prints one marked line of JSON with what the image and the container are, then one for each chip, so that what was
seen before a chip hangs is not lost. The text runs with the image's Python, not with the host's.
"""

from __future__ import annotations

import json
from typing import Any, Dict, List, Optional

FACTS = "vllm-ascend-deep "
CHIP = "vllm-ascend-chip "
# Seconds that the operation on one chip may take, the import of torch and the compilation of an operator included.
OPERATION_S = 240.0

# A small product of matrices whose every number is exact in fp16. It runs in a process of its own, since one that
# waits inside the driver cannot be interrupted, and since the library is not safe in a forked process.
_OPERATION = """\
import json, sys
index = int(sys.argv[1])
import torch
try:
    import torch_npu
except ModuleNotFoundError:
    pass
torch.npu.set_device(index)
rows = [[(5 * row + 3 * column) % 7 - 3 for column in range(16)] for row in range(16)]
wanted = [[sum(a * row[column] for a, row in zip(line, rows)) for column in range(16)] for line in rows]
values = torch.tensor(rows, dtype=torch.float16).to("npu:%d" % index)
product = torch.matmul(values, values)
torch.npu.synchronize(index)
result = product.cpu().tolist()
wrong = [
    "row %d, column %d of the product is %s instead of %s" % (row, column, result[row][column], wanted[row][column])
    for row in range(16) for column in range(16)
    if not abs(result[row][column] - wanted[row][column]) <= 0.5
]
found = {"wrong": len(wrong), "first_wrong": wrong[0] if wrong else None, "soc": None}
try:
    found["soc"] = int(torch.npu.get_soc_version())
except Exception:
    pass
print("\\nvllm-ascend-operation " + json.dumps(found), flush=True)
"""

_DEEP = """\

def deep(operations, limit, operation):
    import glob, os, re, signal, subprocess, tempfile, time

    def say(mark, value):
        print("\\n" + mark + json.dumps(value, default=str), flush=True)

    def read(path):
        try:
            with open(path, encoding="utf-8", errors="replace") as stream:
                return stream.read(100000)
        except OSError:
            return ""

    def build():
        found = {"device_type": None, "soc_version": None, "why": None}
        try:
            from vllm_ascend import _build_info
        except Exception as failure:
            found["why"] = "%s: %s" % (type(failure).__name__, failure)
        else:
            for key in ("device_type", "soc_version"):
                value = getattr(_build_info, "__" + key + "__", None)
                found[key] = None if value is None else str(value)
        return found

    def cann():
        homes = [os.environ.get("ASCEND_TOOLKIT_HOME"), os.environ.get("ASCEND_HOME_PATH")]
        homes += ["/usr/local/Ascend/cann", "/usr/local/Ascend/ascend-toolkit/latest"]
        for home in filter(None, homes):
            for path in sorted(glob.glob(home + "/*-linux/ascend_toolkit_install.info")):
                match = re.search(r"(?m)^version=(\\S+)", read(path))
                if match:
                    return {"version": match.group(1), "source": path}
            path = home + "/version.cfg"
            match = re.search(r"(?m)^toolkit_running_version=\\[[^:\\]\\n]*:([^\\]\\n]+)\\]", read(path))
            if match:
                return {"version": match.group(1), "source": path}
        return None

    def driver():
        path = "/usr/local/Ascend/driver/version.info"
        match = re.search(r"(?m)^Version=(\\S+)", read(path))
        return {"version": match.group(1), "source": path} if match else None

    def output(stream):
        stream.seek(0)
        return stream.read().decode("utf-8", "replace")

    def report(index, stream, seconds, code, hung):
        text = output(stream)
        mark = "vllm-ascend-operation "
        lines = [line for line in text.splitlines() if line.startswith(mark)]
        found = json.loads(lines[-1][len(mark):]) if lines else {}
        say("vllm-ascend-chip ", {
            "npu": index, "seconds": round(seconds, 1), "done": bool(lines), "wrong": found.get("wrong"),
            "first_wrong": found.get("first_wrong"), "soc": found.get("soc"), "rc": code,
            "timed_out": hung and not lines, "output": "" if lines and not found.get("wrong") else text[-3000:],
        })

    facts = {"npus": evidence["npus"], "build": build(), "cann": cann(), "driver": driver(),
             "image_soc_version": os.environ.get("SOC_VERSION"), "limit_s": limit}
    say("vllm-ascend-deep ", facts)
    running = []
    seen = facts["npus"]
    for index in range(operations if seen is None else min(operations, seen)):
        stream = tempfile.TemporaryFile()
        process = subprocess.Popen(
            [sys.executable, "-c", operation, str(index)],
            stdin=subprocess.DEVNULL, stdout=stream, stderr=subprocess.STDOUT, start_new_session=True,
        )
        running.append((index, process, stream, time.monotonic()))
    while running:
        left = []
        for index, process, stream, began in running:
            seconds = time.monotonic() - began
            code = process.poll()
            if code is None and seconds < limit:
                left.append((index, process, stream, began))
                continue
            if code is None:
                try:
                    os.killpg(process.pid, signal.SIGKILL)
                except OSError:
                    pass
            report(index, stream, seconds, code, code is None)
        running = left
        if running:
            time.sleep(0.05)

try:
    deep(@OPERATIONS@, @LIMIT_S@, @OPERATION@)
except Exception as failure:
    print("the deep verification ended with %s: %s" % (type(failure).__name__, failure), file=sys.stderr)
"""


def script(operations: int, timeout: float) -> str:
    """What follows the documented script: an operation on so many chips (0: none), within timeout seconds in all."""
    limit = min(OPERATION_S, round(0.4 * timeout, 1))
    text = _DEEP.replace("@OPERATIONS@", str(int(operations))).replace("@LIMIT_S@", repr(limit))
    return text.replace("@OPERATION@", repr(_OPERATION))


def parse(stdout: str) -> Dict[str, Any]:
    """{facts: {...} or null, chips: {number: {...}}} of what the script printed."""
    facts: Optional[Dict[str, Any]] = None
    chips: List[Dict[str, Any]] = []
    for line in stdout.splitlines():
        if line.startswith(FACTS):
            facts = json.loads(line[len(FACTS) :])
        elif line.startswith(CHIP):
            chips.append(json.loads(line[len(CHIP) :]))
    return {"facts": facts, "chips": {chip["npu"]: chip for chip in chips}}
