# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What an offline job runs inside the container: vLLM's LLM over the prompts of one host.

Its text is written beside the job's request and mounted: `python3 job.py FOLDER`. It is a file, and has a guard at its
end, since vLLM may start its engine by "spawn", which imports this file once more. The results are lines of JSON in a
file, not in the log, which the engine's processes write to as well; the last line says that all are there.
"""

from __future__ import annotations

import json
import os
import sys

REQUEST, RESULTS = "request.json", "results.jsonl"
# Results come after each that many prompts: what is there stays there when the job dies later.
CHUNK = 1024


def as_the_server():
    """Let LLM() take the server's defaults, where vLLM 0.23.0 has others for it; False when it has no such place.

    These are 2048 tokens a step instead of 8192 (EngineArgs.get_batch_defaults): a model that fits the NPU as a service
    then fits as a job.
    """
    try:
        from vllm.engine.arg_utils import EngineArgs
        from vllm.usage.usage_lib import UsageContext

        asked = EngineArgs.get_batch_defaults
    except (ImportError, AttributeError):
        return False

    def defaults(_cls, world_size):
        tables = asked(world_size)
        for table in tables:
            if UsageContext.OPENAI_API_SERVER in table:
                table[UsageContext.LLM_CLASS] = table[UsageContext.OPENAI_API_SERVER]
        return tables

    EngineArgs.get_batch_defaults = classmethod(defaults)
    return True


def sampling_params(given):
    """SamplingParams of these names."""
    from vllm import SamplingParams

    given = dict(given)
    if given.get("structured_outputs"):
        from vllm.sampling_params import StructuredOutputsParams

        given["structured_outputs"] = StructuredOutputsParams(**given["structured_outputs"])
    return SamplingParams(**given)


def line_of(index, output):
    """A result: {index, text, finish_reason, prompt_tokens, output_tokens}; null where vLLM gives none."""
    first = output.outputs[0] if output.outputs else None
    prompt, tokens = getattr(output, "prompt_token_ids", None), getattr(first, "token_ids", None)
    return {
        "index": index,
        "text": first.text if first is not None else "",
        "finish_reason": getattr(first, "finish_reason", None),
        "prompt_tokens": None if prompt is None else len(prompt),
        "output_tokens": None if tokens is None else len(tokens),
    }


def main(folder):
    """Run the request in a folder, and write the results there."""
    with open(os.path.join(folder, REQUEST), encoding="utf-8") as stream:
        request = json.load(stream)
    from vllm import LLM

    as_the_server()
    engine = LLM(**request["engine"])
    params = sampling_params(request["sampling"])
    prompts = request["prompts"]
    with open(os.path.join(folder, RESULTS), "a", encoding="utf-8") as stream:
        for start in range(0, len(prompts), CHUNK):
            part = prompts[start : start + CHUNK]
            outputs = engine.generate([entry["prompt"] for entry in part], params, use_tqdm=False)
            for place, output in enumerate(outputs):
                stream.write(json.dumps(line_of(part[place]["index"], output)) + "\n")
            stream.flush()
            os.fsync(stream.fileno())
        stream.write(json.dumps({"done": True}) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
