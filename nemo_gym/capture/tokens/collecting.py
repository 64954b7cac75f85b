"""Add the recorded tokens of a rollout to its result, when the rollout has ended."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence

from nemo_gym.capture.tokens.entry import FrozenTokens, TokenEntry, TokenSource
from nemo_gym.capture.tokens.numbers import Numbers
from nemo_gym.capture.tokens.sequences import TokenTrajectories, trajectories_for_rollout
from nemo_gym.jsonl import JsonObject, loads_exact
from nemo_gym.opaque import plain
from nemo_gym.records.conversation import is_of_model, objects_in
from nemo_gym.schemas.row import TOKEN_CAPTURE_RESULT_KEY, Row, mirror_mask
from nemo_gym.schemas.shapes import AnswerJson
from nemo_gym.schemas.tokens import OPTIONAL_TOKEN_METADATA_FIELDS, REQUIRED_TOKEN_METADATA_FIELDS, without_tokens

logger = logging.getLogger(__name__)


def finalize_rollout_token_capture(
    result: JsonObject, rollout_id: str, source: TokenSource, *, rebuild_response: bool = True
) -> TokenTrajectories:
    """Add the recorded tokens of a rollout to its result in place, as lists, and return its training sequences.

    `response.output` gets the tokens of the last sequence that it contains, or else of the sequence with the
    rollout's last call. The other sequences are listed under `_ng_token_capture`. If the rollout must not be trained
    on, `mask_sample` is set, and `_ng_token_capture` has the reasons. Text in the result changes only if it does not
    match the recorded calls. In that case, the agent's own output is kept under `_ng_token_capture`.
    """
    found = _finalize(result, rollout_id, source, rebuild_response)
    result.update(plain(result))
    return found


def add_recorded_tokens(
    result: JsonObject, rollout_id: str, source: TokenSource, *, rebuild_response: bool
) -> tuple[str, ...]:
    """Like `finalize_rollout_token_capture`, but add tokens as `orjson.Fragment`, only for writing as JSON.

    Return the reasons for a mask. If the tokens cannot be added, the rollout is masked, too.
    """
    try:
        return _finalize(result, rollout_id, source, rebuild_response).mask_reasons
    except Exception as error:
        # Catch every error, because the source may be a user's class, and the result comes from an agent.
        logger.exception("rollout %s: its tokens could not be added to the result", rollout_id)
        reasons = (f"the recorded tokens could not be added to the result: {error!r}",)
        about = {"rollout_id": rollout_id, "mask_reasons": list(reasons), "is_rebuilt": False, "branches": []}
        result[TOKEN_CAPTURE_RESULT_KEY] = about
        _mask(result)
        return reasons


def _finalize(result: JsonObject, rollout_id: str, source: TokenSource, rebuild_response: bool) -> TokenTrajectories:
    result.pop(TOKEN_CAPTURE_RESULT_KEY, None)
    frozen = source.freeze(rollout_id)
    if frozen == FrozenTokens() and _has_tokens(result):
        # Add nothing, because the agent passed on the tokens itself and made no recorded call.
        return TokenTrajectories(())
    found = trajectories_for_rollout(frozen)
    order = {call.model_call_id: number for number, call in enumerate(frozen.entries)}
    response = Row(result).response
    latest_first = sorted(found.sequences, key=lambda calls: order[calls[-1].model_call_id], reverse=True)
    main = _graded(latest_first, response) if response is not None else ()
    shown: dict[str, object] = {
        "rollout_id": rollout_id,
        "calls": len(frozen.entries),
        "retries": found.retries,
        "sequences": len(found.sequences),
        "sampled_tokens": sum(len(call.generation_token_ids) for each in found.sequences for call in each),
        "mask_reasons": list(found.mask_reasons),
        "is_rebuilt": False,
    }
    if rebuild_response and main and response is not None:
        shown |= _rebuild(response, main)
    branches = [each for each in found.sequences if each is not main or not shown["is_rebuilt"]]
    result[TOKEN_CAPTURE_RESULT_KEY] = {**shown, "branches": [_turns_of(each) for each in branches]}
    if found.mask_reasons:
        _mask(result)
    return found


def _has_tokens(result: JsonObject) -> bool:
    output = objects_in((Row(result).response or {}).get("output"))
    return any(all(name in item for name in REQUIRED_TOKEN_METADATA_FIELDS) for item in output)


def _mask(result: JsonObject) -> None:
    result["mask_sample"] = True
    mirror_mask(result)


def _graded(latest_first: Sequence[Sequence[TokenEntry]], response: AnswerJson) -> Sequence[TokenEntry]:
    """Return the last sequence in the response, because a rollout may end with a side conversation.

    If the response has parts only, return the sequence with the most parts in it.
    """
    output = _plain_output(response)
    said = [_said(item) for item in output]

    def likeness(calls: Sequence[TokenEntry]) -> float:
        if _placed(output, calls) is not None:
            return math.inf
        return sum(_said(call.output_items[call.token_item_index]) in said for call in calls)

    return max(latest_first, key=likeness, default=())


def _rebuild(response: AnswerJson, calls: Sequence[TokenEntry]) -> dict[str, object]:
    """Put the tokens into a response's output. Return the fields for `_ng_token_capture` that describe the change."""
    plain = _plain_output(response)
    placed = _placed(plain, calls)
    response["output"] = _recorded_output(plain, calls) if placed is None else placed
    return {"is_rebuilt": True} | ({"agent_output": plain} if placed is None else {})


def _plain_output(response: AnswerJson) -> list[object]:
    given = response.get("output")
    items = given if isinstance(given, list) else []
    return [without_tokens(item) if isinstance(item, dict) else item for item in items]


def _placed(output: list[object], calls: Sequence[TokenEntry]) -> list[object] | None:
    """Return the agent's items with the tokens added, or None if they do not include each call's item in order."""
    placed, begin = list(output), 0
    for call in calls:
        wanted = _said(call.output_items[call.token_item_index])
        at = next((at for at in range(begin, len(placed)) if _said(placed[at]) == wanted), None)
        if at is None:
            return None
        placed[at] = _with_tokens(placed[at], call)
        begin = at + 1
    return placed


def _recorded_output(output: list[object], calls: Sequence[TokenEntry]) -> list[object]:
    """Return the recorded items of all calls, with the tokens, and the results of the agent's tool calls."""
    results = {item["call_id"]: item for item in output if isinstance(item, dict) and _is_result(item)}
    rebuilt: list[object] = []
    for call in calls:
        items: list[object] = list(call.output_items)
        items[call.token_item_index] = _with_tokens(items[call.token_item_index], call)
        asked = [item.get("call_id") for item in call.output_items]
        rebuilt += [*items, *(results[each] for each in asked if each in results)]
    return rebuilt


def _is_result(item: Mapping[str, object]) -> bool:
    return str(item.get("type")).endswith("_output") and isinstance(item.get("call_id"), str)


def _said(item: object) -> object:
    """Return the part of an output item by which it is matched with the item of a recorded call."""
    if not isinstance(item, dict) or not is_of_model(item):
        return None
    if item.get("type") == "function_call":
        return item.get("name"), _read(item.get("arguments"))
    parts = [part for name in ("summary", "content") for part in _parts(item.get(name))]
    texts = (part.get("text") or part.get("refusal") if isinstance(part, dict) else part for part in parts)
    return item.get("type", "message"), tuple(str(text or "") for text in texts)


def _read(arguments: object) -> object:
    """Parse a call's arguments, because an API may return them in another format."""
    try:
        return loads_exact(arguments) if isinstance(arguments, str) else arguments
    except ValueError:
        return arguments


def _parts(value: object) -> Sequence[object]:
    return value if isinstance(value, list) else [value] if isinstance(value, str) else []


def _with_tokens(item: object, call: TokenEntry) -> Mapping[str, object]:
    fields: Mapping[str, object] = dict(item) if isinstance(item, dict) else {}
    tokens = {name: getattr(call, name).fragment() for name in REQUIRED_TOKEN_METADATA_FIELDS}
    return {**fields, **tokens, **_optional(call)}


def _optional(call: TokenEntry) -> Mapping[str, object]:
    return {name: value for name in OPTIONAL_TOKEN_METADATA_FIELDS if (value := getattr(call, name)) is not None}


def _turns_of(calls: Sequence[TokenEntry]) -> list[Mapping[str, object]]:
    """Return one entry per call of a sequence. `context_ids` are the prompt tokens that follow the previous call."""
    turns: list[Mapping[str, object]] = []
    known = 0
    for call in calls:
        context = Numbers(call.prompt_token_ids.text[known:])
        known = len(call.prompt_token_ids.text) + len(call.generation_token_ids.text)
        tokens = {
            "context_ids": context.fragment(),
            "sampled_ids": call.generation_token_ids.fragment(),
            "log_probs": call.generation_log_probs.fragment(),
        }
        turns.append({"model_call_id": call.model_call_id, **tokens, **_optional(call)})
    return turns
