"""Token ids and log-probabilities for replies: each byte is a token, and a seeded table gives the probabilities."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from functools import cache
from random import Random

from nemo_gym.jsonl import JsonObject

END = 256
"""The token at the end of each item or message."""


def tokens_of(prompt: Iterable[JsonObject], reply: Iterable[JsonObject], seed: int | None) -> JsonObject:
    """Return the token fields of a reply to a prompt. Both are items of the Responses API, or chat messages.

    The tokens of a turn begin the prompt of the next turn. The probability of a token depends on the token before it.
    """
    prompt_ids, ids = list(_ids(prompt)), list(_ids(reply))
    before = [*(prompt_ids[-1:] or [END]), *ids[:-1]]
    log_probs = [_log_probs(seed, previous)[token] for previous, token in zip(before, ids, strict=True)]
    return {"prompt_token_ids": prompt_ids, "generation_token_ids": ids, "generation_log_probs": log_probs}


def _ids(entries: Iterable[JsonObject]) -> Iterator[int]:
    for entry in entries:
        yield from _text(entry).encode(errors="replace")
        yield END


def _text(entry: JsonObject) -> str:
    content = entry.get("content") or entry.get("output") or ""
    texts = [content] if isinstance(content, str) else [str(part.get("text") or "") for part in content]
    is_call = entry.get("type") == "function_call"
    calls = [entry] if is_call else [call.get("function", {}) for call in entry.get("tool_calls") or ()]
    kind = entry.get("role") or entry.get("type")
    return " ".join([str(kind), *texts, *(f"{call.get('name')} {call.get('arguments')}" for call in calls)])


@cache
def _log_probs(seed: int | None, previous: int) -> list[float]:
    """Return the log-probability of each token after the previous one."""
    rng = Random(f"{seed}:{previous}")
    logits = [rng.gauss(0, 1) for _ in range(END + 1)]
    total = math.log(sum(map(math.exp, logits)))
    return [logit - total for logit in logits]
