# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What an endpoint answers, beyond that it answers: a golden answer, and that decoding goes on.

/health and a short completion can both be fine while the output is garbage: without /etc/hccn.conf several cards
answer with wrong text (vllm-ascend issue 7711).
"""

from __future__ import annotations

import time
from typing import Any, Dict, Optional, Tuple

from . import endpoint
from .documents import parse

GOLDEN_S = 120.0
# For all tokens together; a token a second is slower than any supported hardware.
DECODE_BASE_S = 60.0
QUOTED = 120


class WrongAnswerError(Exception):
    """The endpoint answers, but not as it should; the message is one sentence."""


def check(
    address: str,
    port: int,
    model: str,
    api_key: Optional[str],
    wanted: Dict[str, Any],
    decode_s: Optional[float] = None,
) -> Dict[str, Any]:
    """Ask what a plan's answers want: golden {prompt, answer, max_tokens} and decode_tokens, each may be null.

    Returns the evidence {golden: text|null, decoded: {tokens, seconds}|null}. WrongAnswerError on the first that is
    not as wanted. decode_s: seconds for all tokens (default: a minute and a second each).
    """
    evidence: Dict[str, Any] = {"golden": None, "decoded": None}
    golden, tokens = wanted.get("golden"), wanted.get("decode_tokens")
    if golden:
        evidence["golden"] = _golden(address, port, model, api_key, golden)
    if tokens:
        evidence["decoded"] = _decode(address, port, model, api_key, int(tokens), decode_s or DECODE_BASE_S + tokens)
    return evidence


def _golden(address: str, port: int, model: str, api_key: Optional[str], golden: Dict[str, Any]) -> str:
    """The text of the golden prompt's completion at temperature 0; it must begin with the golden answer."""
    body = {"prompt": golden["prompt"], "max_tokens": golden["max_tokens"], "temperature": 0, "seed": 0}
    text, _count = _completion(address, port, model, api_key, body, GOLDEN_S, "the golden prompt")
    if not text.strip().startswith(golden["answer"].strip()):
        raise WrongAnswerError(
            "the answer to the golden prompt {0!r} is {1!r}, and must begin with {2!r}".format(
                golden["prompt"][:QUOTED], text.strip()[:QUOTED], golden["answer"].strip()[:QUOTED]
            )
        )
    return text


def _decode(address: str, port: int, model: str, api_key: Optional[str], tokens: int, limit_s: float) -> Dict[str, Any]:
    """Let the engine decode that many tokens in one answer; an end-of-sequence token does not end it."""
    body = {
        "prompt": endpoint.PROMPT,
        "max_tokens": tokens,
        "min_tokens": tokens,
        "ignore_eos": True,
        "temperature": 0,
    }
    began = time.monotonic()
    _text, made = _completion(address, port, model, api_key, body, limit_s, "decoding {0} tokens".format(tokens))
    if made is not None and made < tokens:
        raise WrongAnswerError("decoding ended after {0} of {1} tokens".format(made, tokens))
    return {"tokens": made if made is not None else tokens, "seconds": round(time.monotonic() - began, 2)}


def _completion(
    address: str, port: int, model: str, api_key: Optional[str], body: Dict[str, Any], limit_s: float, what: str
) -> Tuple[str, Optional[int]]:
    """The text of a completion and its number of tokens (None: not said)."""
    reply = endpoint.request(address, port, "/v1/completions", api_key, dict(body, model=model), limit_s)
    if not reply.ok:
        raise WrongAnswerError("{0} failed: {1}".format(what, endpoint.failure_of(reply, api_key)))
    try:
        answer = parse(reply.body)
        text = answer["choices"][0]["text"]
        count = (answer.get("usage") or {}).get("completion_tokens")
    except (ValueError, KeyError, IndexError, TypeError, AttributeError):
        text = count = None
    if not isinstance(text, str) or not text.strip():
        raise WrongAnswerError("{0} gave no text".format(what))
    return text, count if isinstance(count, int) and not isinstance(count, bool) else None
