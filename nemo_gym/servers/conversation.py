"""A conversation: its items so far, the model's next turn, and the results of tool calls."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Container, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Self

import orjson
from pydantic import ValidationError

from nemo_gym.calls.caller import WrittenRequest
from nemo_gym.calls.client import ServerClient
from nemo_gym.calls.hooks import hooks
from nemo_gym.calls.problems import failure_of_call, failure_of_reply, problem_of_body, reply_to
from nemo_gym.dialects.calls import GENERATED_TOKENS, sendable_arguments, unique_ids
from nemo_gym.dialects.responses import reading, standard_response
from nemo_gym.errors import EnvironmentFailed, ModelFailed, Overloaded, RolloutTimedOut, ServerCallError, ServerLost
from nemo_gym.http.connection import RequestBody
from nemo_gym.http.json_depth import DEEPEST_ANSWER, is_deeper_than
from nemo_gym.jsonl import JsonObject, dump_json, dump_up_to
from nemo_gym.opaque import TOKEN_KEYS, loads_opaque, plain
from nemo_gym.records.usage import are_known
from nemo_gym.schemas.responses import RESPONSES_PATH, Response, sum_of_counts
from nemo_gym.schemas.rollout import INPUT_AT_HEADER
from nemo_gym.schemas.shapes import Item
from nemo_gym.servers.observing import Observer
from nemo_gym.servers.tools.parts import ToolOutput, output_of
from nemo_gym.servers.tools.tool import is_callable_name

Cookies = dict[str, str]

ENDS_THE_ROLLOUT = (ServerLost, RolloutTimedOut, Overloaded)
"""Failures after which a rollout cannot continue: state lost, deadline passed, or tool call not started."""
JSON = {"content-type": "application/json"}
UNSAID = {
    name: field.default
    for name, field in Response.model_fields.items()
    if not field.is_required() and field.default_factory is None
}
"""Defaults for fields that an endpoint left out of its response."""
_INPUT_AT = INPUT_AT_HEADER.encode()
APPROVAL = "mcp_approval_request"
PARTS = ("output_text", "refusal")
BOOKKEEPING = {"id": str, "model": str, "created_at": int | float}
COUNTS = frozenset({int, bool, dict, type(None)})
"""The types that a value in a response's `usage` may have."""
LONG_ITEM_BYTES = 256 * 1024
ARGUMENTS = "arguments"
CALL_FIELDS = ("name", "arguments", "call_id")
MOST_KEPT_BYTES = 128 * 1024
"""Maximum size in bytes of a failed rollout's recorded conversation. Earlier items are left out."""
LONGEST_KEPT_TEXT = 16 * 1024
"""Maximum number of characters of a string in a recorded conversation. Longer strings are truncated."""


class _WrittenItems:
    """A conversation's items as JSON. A short item is serialized once, so the last turn costs no more than the first.

    Long items are serialized again for each request. Keeping their JSON would take much memory, because thousands of
    rollouts wait for their model at once.
    """

    def __init__(self) -> None:
        self._texts: list[bytes | None] = []
        self._items: list[object] = []
        self.unreadable: set[str] = set()
        """The ids of calls with arguments that endpoints cannot parse."""
        self._unsent: dict[int, bytes] = {}
        """The JSON of new long items by index, kept until it is sent for the first time."""

    def request(self, params: Mapping[str, object], items: list[Item]) -> WrittenRequest:
        known = len(self._items)
        # Compare the lists first, because most agents never shorten or replace earlier items, and comparing is fast.
        if self._items != items[:known]:
            known = _in_common(self._items, items)
            del self._texts[known:], self._items[known:]
        self._unsent.clear()
        for item in items[known:]:
            text = self._text_of(item)
            if len(text) >= LONG_ITEM_BYTES:
                self._unsent[len(self._texts)] = text
            self._texts.append(text if len(text) < LONG_ITEM_BYTES else None)
            self._items.append(_copied(item))
        beginning = dump_up_to("input", {name: value for name, value in params.items() if name != "input"})
        request = WrittenRequest(params, input=items)
        if None in self._texts:
            request.text = partial(self._in_pieces, beginning)
        else:
            request.text = b"".join((beginning, b"[", b",".join(filter(None, self._texts)), b"]}"))
        request.headers = [(_INPUT_AT, b"%d" % len(beginning))]
        return request

    def _text_of(self, item: object) -> bytes:
        if self.unreadable and isinstance(item, dict) and item.get("call_id") in self.unreadable and ARGUMENTS in item:
            item = {**item, ARGUMENTS: sendable_arguments(item[ARGUMENTS])}
        return dump_json(_without_empty(item))

    def _in_pieces(self, beginning: bytes) -> RequestBody:
        """Return the request as a list of pieces, in which each long item is a separate piece."""
        pieces: list[bytes] = []
        between = [beginning, b"["]
        for place, (item, text) in enumerate(zip(self._items, self._texts, strict=True)):
            if text is None:
                pieces += (b"".join(between), self._unsent.pop(place, b"") or self._text_of(item))
                between = [b","]
            else:
                between += (text, b",")
        return [*pieces, b"".join(between)[:-1] + b"]}"]


ItemsSoFar = Callable[[], Sequence[Item]]

_unfinished: ContextVar[Unfinished | None] = ContextVar("nemo_gym_unfinished", default=None)


class Unfinished:
    """The conversation of the rollout that runs inside the `with` block. It is recorded if the rollout fails."""

    def __init__(self) -> None:
        self._items: ItemsSoFar | None = None

    def __enter__(self) -> Self:
        self._token = _unfinished.set(self)
        return self

    def __exit__(self, *_: object) -> None:
        _unfinished.reset(self._token)

    def is_about(self, items: ItemsSoFar) -> None:
        self._items = items

    def so_far(self) -> Mapping[str, object] | None:
        """Return the last items, and the number of `omitted` earlier ones. Return None for an empty conversation."""
        given = list(self._items()) if self._items is not None else []
        kept: list[Item] = []
        left = MOST_KEPT_BYTES
        for item in reversed(given):
            written = dump_json(_shortened(item))
            left -= len(written)
            if left < 0:
                break
            kept.append(orjson.loads(written))
        return {"items": kept[::-1], "omitted": len(given) - len(kept)} if given else None


def keep_if_failed(items: ItemsSoFar) -> None:
    """Record a conversation if its rollout fails. `items` returns all items after the row's own input."""
    if (unfinished := _unfinished.get()) is not None:
        unfinished.is_about(items)


def _shortened(value: object) -> Any:
    """Copy a JSON value. Omit token fields and truncate long strings."""
    if isinstance(value, dict):
        return {name: _shortened(each) for name, each in value.items() if name not in TOKEN_KEYS}
    if isinstance(value, list):
        return [_shortened(each) for each in value]
    if isinstance(value, str) and len(value) > LONGEST_KEPT_TEXT:
        return f"{value[:LONGEST_KEPT_TEXT]}… ({len(value)} characters)"
    # Convert other objects to text, because an author's agent may have put some into the conversation.
    return value if value is None or isinstance(value, str | int | float) else str(value)


@dataclass
class Conversation:
    """A conversation that grows with each turn.

    The cookies of the model server and of the resources server are separate. Neither receives the other's cookies.
    """

    params: JsonObject = field(default_factory=dict)
    session: Cookies = field(default_factory=dict)
    """The resources server's cookies."""
    independent_tools: Container[str] = ()
    """Tools whose calls may run in any order, because they do not use the rollout's state."""
    model_path: str = RESPONSES_PATH
    """The URL path of the requests for the model's turns."""
    model_cookies: Cookies = field(default_factory=dict)
    response: JsonObject = field(default_factory=dict)
    """The model's last reply, but with the output and the usage of the whole conversation."""
    turns: int = 0
    """The number of the model's turns so far."""
    added: JsonObject = field(default_factory=dict)
    """Fields that the agent adds to the graded row, next to the response."""
    usage: object = None
    """The sum of the token counts that the model reported for all turns."""
    _written: _WrittenItems = field(default_factory=_WrittenItems)
    mask_reason: str | None = None
    """The reason why training must skip the rollout, or None if only the verifier decides about that."""
    observer: Observer | None = None
    """Recorder of the model and tool calls; None if the run does not capture calls."""
    was_cut_off: bool = False
    """Whether the model's last turn is incomplete."""
    _is_over: bool = False
    """Whether the model cannot continue, because endpoints reject its last call, and its tokens must not change."""
    _call_ids: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        keep_if_failed(lambda: self.said)

    @property
    def asked(self) -> list[Item]:
        """The items of the row's own input."""
        return _items(self.params["input"])

    @property
    def said(self) -> list[Item]:
        """All items after the row's own input."""
        said: list[Item] = self.response.get("output", [])
        return said

    def plain_response(self) -> JsonObject:
        """Return the response with all token arrays as lists. In `response`, long token arrays are not parsed."""
        response: JsonObject = plain(self.response)
        return response

    def hear(self, text: str) -> None:
        """Add a user message before the model's next turn."""
        self.response["output"] = [*self.said, {"type": "message", "role": "user", "content": text}]

    async def ask(self, client: ServerClient, model: str) -> list[Item]:
        """Request the model's next turn. Return its tool calls, or an empty list if the model finished or was cut off.

        Raises the failure of the call, such as `ModelFailed` for an invalid response.
        """
        if self._is_over:
            return []
        request = self._written.request(self.params, [*self.asked, *self.said])
        began_at = time.time()
        call = client.post(server_name=model, url_path=self.model_path, json=request, cookies=self.model_cookies)
        reply = await reply_to(call, server=model, during=RESPONSES_PATH, otherwise=ModelFailed)
        body = await reply.read()
        self.model_cookies |= hooks().cookies(reply)
        turn = _read_turn(body, model)
        self._rename_repeated(turn["output"])
        self.usage = sum_of_counts(self.usage, turn.get("usage"))
        self.was_cut_off = turn.get("incomplete_details") is not None
        self.turns += 1
        if self.observer is not None:
            self.observer.note_model_call(model, reply, turn, began_at, heard=len(self.said))
        said = [*self.said, *turn["output"]]
        self.response = {**UNSAID, "tools": [], **turn, "output": said, "usage": self.usage}
        if self.was_cut_off:
            return []
        _check_runnable(turn["output"], model)
        return [item for item in turn["output"] if item["type"] == "function_call"]

    async def act(self, client: ServerClient, resources_server: str, calls: list[Item], *, tells_faults: bool) -> None:
        """Run the tool calls of one turn. If any fails, raise its error after all have ended.

        Independent calls run concurrently. Calls that share the rollout's state run one after the other, in the order
        of the turn. Otherwise, their effect would depend on which call arrives first.
        """
        answers: dict[int, ToolOutput] = {}
        observations: dict[int, Mapping[str, object]] = {}

        async def answer(*places: int) -> None:
            for place in places:
                call, began_at = calls[place], time.time()
                answers[place] = await self._answer(client, resources_server, call, tells_faults=tells_faults)
                if self.observer is not None:
                    observations[place] = self.observer.tool_call(call, began_at)

        independent = [at for at, call in enumerate(calls) if call["name"] in self.independent_tools]
        ordered = [at for at in range(len(calls)) if at not in independent]
        if len(calls) == 1:
            await answer(0)
        else:
            # Wait for all calls, because a failed rollout's session must not be closed while a call is running.
            for failure in await asyncio.gather(answer(*ordered), *map(answer, independent), return_exceptions=True):
                if failure is not None:
                    raise failure
        if self.observer is not None:
            self.observer.note_tool_calls([observations[at] for at in range(len(calls))])
        self.response["output"].extend(
            {"type": "function_call_output", "call_id": call["call_id"], "output": answers[at]}
            for at, call in enumerate(calls)
        )

    async def _answer(
        self, client: ServerClient, resources_server: str, call: Item, *, tells_faults: bool
    ) -> ToolOutput:
        name = call["name"]
        functions = (tool["name"] for tool in self.params["tools"] if tool["type"] == "function")
        known = [function for function in functions if is_callable_name(function)]
        # If the request does not list tools, let the server decide whether this tool exists.
        if name not in known and (known or not is_callable_name(name)):
            return f"Unknown tool {name!r}. The tools are: {', '.join(known) or 'none'}."
        # Send the arguments as the model wrote them, because parsing and rewriting a number may round it.
        written = call["arguments"] or "{}"
        try:
            arguments = orjson.loads(written)
        except orjson.JSONDecodeError as error:
            return self._invalid(call, f"{error.msg} at column {error.colno}")
        if not isinstance(arguments, dict):
            return self._invalid(call, f"expected a JSON object, found {type(arguments).__name__}")
        try:
            reply = await client.post(
                server_name=resources_server, url_path=f"/{name}", data=written, headers=JSON, cookies=self.session
            )
        except ServerCallError as error:
            raise failure_of_call(
                error, server=resources_server, otherwise=EnvironmentFailed, during=f"tool '{name}'"
            ) from error
        body = await reply.read()
        self.session |= hooks().cookies(reply)
        # Below status 500, the body is for the model unless it reports a failure of the rollout. Such a failure may
        # have any status, such as 409 for a session that has not begun.
        if reply.ok or (reply.status < 500 and problem_of_body(body) is None):
            return output_of(body, hooks().headers(reply))
        failure = failure_of_reply(
            reply.status, body, server=resources_server, during=f"tool '{name}'", otherwise=EnvironmentFailed
        )
        # Return a tool's failure to the model if the model may see it. Always raise a failure that ends the rollout.
        if not tells_faults or isinstance(failure, ENDS_THE_ROLLOUT):
            raise failure
        return f"Error: {failure}"

    def _invalid(self, call: Item, problem: str) -> str:
        """Return the tool's output for invalid arguments. Later requests must not contain the arguments as written."""
        self._is_over = self._is_over or any(GENERATED_TOKENS in item for item in self.said)
        self._written.unreadable.add(call["call_id"])
        return orjson.dumps({"error": f"Invalid tool call arguments: {problem}"}).decode()

    def _rename_repeated(self, output: list[Item]) -> None:
        """Give the turn's calls ids that are unique in the conversation, so that each result matches one call."""
        calls = [item for item in output if item["type"] == "function_call"]
        if not calls:
            return
        if not self.turns:
            self._call_ids = {item["call_id"] for item in self.asked if item.get("type") == "function_call"}
        for call, call_id in zip(calls, unique_ids((each["call_id"] for each in calls), self._call_ids), strict=True):
            call["call_id"] = call_id
            self._call_ids.add(call_id)


def _in_common(before: Sequence[object], now: Sequence[object]) -> int:
    """Return the length of the common prefix of two lists."""
    pairs = enumerate(zip(before, now, strict=False))
    return next((at for at, (known, item) in pairs if known != item), min(len(before), len(now)))


def _copied(item: object) -> object:
    """Copy an item and its content parts, so that later changes to the original do not affect the copy."""
    if not isinstance(item, dict):
        return item
    return {
        name: [_copied(part) for part in value] if isinstance(value, list) else value for name, value in item.items()
    }


def _without_empty(item: object) -> object:
    """Drop the null fields of an item and of its content parts, because some endpoints reject them."""
    if not isinstance(item, dict):
        return item
    kept = {name: value for name, value in item.items() if value is not None}
    for name in ("content", "summary"):
        if isinstance(parts := kept.get(name), list):
            kept[name] = [
                {key: value for key, value in part.items() if value is not None} if isinstance(part, dict) else part
                for part in parts
            ]
    return kept


def _items(given: str | list[Item]) -> list[Item]:
    return [{"role": "user", "content": given}] if isinstance(given, str) else list(given)


def _read_turn(body: bytes, model: str) -> JsonObject:
    """Parse a reply of the model. Check only what a conversation depends on; the verifier checks the rest."""
    if is_deeper_than(body, DEEPEST_ANSWER):
        raise ModelFailed(f"{model}: the answer is nested more than {DEEPEST_ANSWER} levels deep", server=model)
    try:
        # Token ids and log-probabilities stay unparsed, because most conversations do not use them.
        turn: JsonObject = loads_opaque(body)
    except orjson.JSONDecodeError as error:
        raise ModelFailed(f"{model}: the reply is not a valid response: {error}", server=model) from error
    if not (isinstance(turn, dict) and _is_sound_turn(turn)):
        turn = _repaired(plain(turn), model)
    if turn.get("status") == "failed":
        raise ModelFailed(f"{model}: the response has the status 'failed', error: {turn.get('error')}", server=model)
    return turn


def _repaired(turn: object, model: str) -> JsonObject:
    with reading(model):
        if isinstance(turn, dict) and isinstance(turn.get("output"), list):
            turn = standard_response(turn, model=model)
    check_response(turn, model)
    assert isinstance(turn, dict)
    return turn


def _check_runnable(output: list[Item], model: str) -> None:
    """Raise `ModelFailed` for a call that only a program at the user's side could run, such as a shell's."""
    answered = {item.get("call_id") for item in output if item["type"].endswith("_output")}
    for item in output:
        kind = item["type"]
        is_call = "call_id" in item and kind != "function_call" and not kind.endswith("_output")
        if kind == APPROVAL or (is_call and item["call_id"] not in answered):
            raise ModelFailed(
                f"{model}: the model's answer has an item of type '{kind}', which cannot be run here. Offer "
                "the model only function tools, and tools that the endpoint runs without approval.",
                server=model,
            )


def check_response(response: object, model: str) -> None:
    """Raise `ModelFailed` with the location of each problem if a model's response is invalid."""
    try:
        Response.model_validate(response)
    except ValidationError as error:
        raise ModelFailed(f"{model}: the reply is not a valid response: {error}", server=model) from error


def _is_sound_turn(turn: Mapping[str, object]) -> bool:
    is_named = all(isinstance(turn.get(name), kind) for name, kind in BOOKKEEPING.items())
    return is_named and _is_sound_output(turn.get("output")) and _is_sound_usage(turn.get("usage"))


def _is_sound_output(output: object) -> bool:
    return isinstance(output, list) and all(isinstance(item, dict) and _is_sound(item) for item in output)


def _is_sound(item: Mapping[str, object]) -> bool:
    kind = item.get("type")
    if kind == "message":
        parts = item.get("content")
        return isinstance(parts, str) or (isinstance(parts, list) and all(map(_is_sound_part, parts)))
    if kind == "reasoning":
        return isinstance(item.get("summary"), list) and "id" in item
    if kind != "function_call":
        return isinstance(kind, str)
    return all(isinstance(item.get(name), str) for name in CALL_FIELDS)


def _is_sound_part(part: object) -> bool:
    return isinstance(part, dict) and part.get("type") in PARTS and part.get("annotations", ()) is not None


def _is_sound_usage(usage: object) -> bool:
    return usage is None or (
        isinstance(usage, dict)
        and COUNTS.issuperset(map(type, usage.values()))
        and are_known(usage.get("input_tokens"), usage.get("output_tokens"))
        and None not in (usage.get("input_tokens_details", ()), usage.get("output_tokens_details", ()))
    )
