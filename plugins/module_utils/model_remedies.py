# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The problems of getting a model, each with what to do about it."""

from __future__ import annotations

from typing import Any, Dict

DERIVED = (
    "A pip install in a container is lost with it: make an image that has the client, `printf 'FROM {image}\\nRUN pip "
    'install "{requirement}"\\n\' | docker build --tag {tag} -` on the host, and set vllm_image: {tag}.'
)
REQUIREMENTS = {"modelscope": "modelscope>=1.18.1,<1.38", "huggingface": "huggingface_hub"}
REMEDIES = {
    "model_fetch_denied": (
        "Accept the model's terms at the hub, and give a token that may read it as vllm_hf_token, or for ModelScope as "
        "MODELSCOPE_API_TOKEN in vllm_secrets."
    ),
    "model_fetch_unknown": (
        "Correct the model's name or revision; a hub says the same of a private model without a token (vllm_hf_token)."
    ),
    "model_hub_unreachable": (
        "Run again: what came stays. Where the hub is out of reach, set a mirror (vllm_hf_endpoint), a proxy "
        "(vllm_proxy), vllm_model_source: modelscope, or copy the folder and use vllm_model_source: local."
    ),
    "model_disk_full": "Make room there, or put the models elsewhere with vllm_model_cache.",
    "model_fetch_failed": "Read the lines above; run again to go on: what came stays.",
    "model_fetch_timeout": "Run again to go on: what came stays. vllm_model_timeout is the limit in seconds.",
    "model_fetch_busy": "Wait for it, or end it with `docker rm --force` of that container.",
    "model_client_missing": DERIVED,
    "model_client_version": "It must be {requirement}. " + DERIVED,
    "model_copy_missing": "Correct vllm_model_copy_from: a folder with the model's files.",
    "model_copy_failed": "Mend what the message names and run again: what was copied stays.",
}
INCOMPLETE = {
    "local": "Copy the rest there (vllm_model_copy_from); git lfs pull fetches what is a text of Git LFS only.",
    "hub": "Run again with -e vllm_model_fetch=always. A file that is wrong although it has its size: remove it first.",
}


def problem_of(code: str, message: str, job: Dict[str, Any]) -> Dict[str, str]:
    """{code, message, remedy} of what went wrong with a model."""
    if code == "model_incomplete":
        remedy = INCOMPLETE["local" if job["source"] == "local" else "hub"]
    else:
        code = code if code in REMEDIES else "model_fetch_failed"
        remedy = REMEDIES[code]
    remedy = remedy.replace("{image}", str(job.get("image"))).replace("{tag}", "local/vllm-ascend:models")
    remedy = remedy.replace("{requirement}", REQUIREMENTS.get(job["source"], ""))
    return {"code": code, "message": "{0}: {1}".format(job["model"], message), "remedy": remedy}
