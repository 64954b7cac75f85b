"""The conversations of a program: for each model call, the earlier call that it continues.

A program sends the whole history with each call, so a history is only a claim. Calls are linked by the answers that
passed through the gateway, and by the requests that earlier calls sent.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate, chain
from typing import Literal, NamedTuple

from nemo_gym.errors import DataError
from nemo_gym.harness.exchange import Exchange, items_of
from nemo_gym.harness.keys import REASONING, TOO_DEEP, Key, key_of, quotes, spaced_once, text_of, written
from nemo_gym.records.conversation import is_of_model
from nemo_gym.schemas.shapes import Item

Graded = Literal["first", "last"]


@dataclass
class ModelCall:
    """An answered model call, and its place among the others."""

    number: int
    exchange: Exchange
    answered: int
    """The number of the model's answers that the program had received when it made this call."""
    said: list[Item] = field(default_factory=list)
    """The items of the answer."""
    prompt: list[Item] = field(default_factory=list)
    """The items before the first one of an assistant, in the first call of a conversation."""
    added: list[Item] = field(default_factory=list)
    """The items of the history that neither an answer of the model nor an earlier call contained."""
    parent: int | None = None
    """The call that this one continues."""
    conversation: int = 0
    """The first call of the conversation."""
    problem: DataError | None = None
    """The reason why the call cannot be read."""

    @property
    def said_keys(self) -> list[Key]:
        return [key for item in self.said if item["type"] != REASONING and (key := key_of(item)) is not None]

    @property
    def tools(self) -> tuple[str, ...]:
        return tuple(sorted(str(tool.get("name")) for tool in self.exchange.tools))

    @property
    def text(self) -> str:
        """The text of the prompt."""
        given = [text_of(each.get("content")) for each in self.prompt]
        return spaced_once("\n".join([self.exchange.instructions, *given]))

    @property
    def system(self) -> str:
        """The system prompt."""
        roles = ("system", "developer")
        given = [text_of(each.get("content")) for each in self.prompt if each.get("role") in roles]
        return spaced_once("\n".join([self.exchange.instructions, *given]))


class _Request(NamedTuple):
    """A call's history as keys. `hashes[n]` identifies the system prompt and the first `n` keys."""

    items: list[Item]
    keys: list[Key | None]
    hashes: list[int]

    @property
    def last_text(self) -> str:
        """The text of the last message if it is a user's."""
        last = self.items[-1] if self.items else {}
        return text_of(last.get("content")) if last.get("role") == "user" else ""


class _Begun(NamedTuple):
    """The earlier call whose request begins a later one."""

    number: int | None
    length: int
    """The number of items of the earlier request, without a last message that has grown."""
    rest: Item | None = None
    """The last message without the text that the earlier one had."""


class _Found(NamedTuple):
    """The earlier answers in a history."""

    last: int | None
    """The last call whose answer the history contains."""
    places: set[int]
    """The indexes of the items that are answers of the model."""
    end: int
    """The index after the last of these answers."""


class Conversations:
    """All answered model calls of a program, in the order of their answers."""

    def __init__(self) -> None:
        self.calls: list[ModelCall] = []
        self._by_request: defaultdict[int, list[int]] = defaultdict(list)
        self._by_beginning: defaultdict[int, list[tuple[int, str]]] = defaultdict(list)
        self._by_said: defaultdict[Key, list[int]] = defaultdict(list)
        self._said_after: dict[tuple[int | None, Key], int] = {}
        self._by_id: dict[object, int] = {}
        self._items: dict[str, list[tuple[Item, Key | None]]] = {}
        """The items of each message that the program has sent."""
        self._known: defaultdict[int, set[Key | None]] = defaultdict(set)
        """The keys of the items in each conversation."""

    def add(self, exchange: Exchange, answered: int) -> None:
        """Add an answered call. `answered` is the number of answers that the program had when it made the call."""
        call = ModelCall(len(self.calls), exchange, answered, conversation=len(self.calls))
        self.calls.append(call)
        try:
            call.said = exchange.said()
            request = self._read(exchange)
        except DataError as error:
            call.problem = error
            return
        self._link(call, request)
        self._known[call.conversation].update((None, *request.keys, *map(key_of, call.said)))
        self._by_request[request.hashes[-1]].append(call.number)
        if request.last_text:
            self._by_beginning[request.hashes[-2]].append((call.number, request.last_text))
        for key in call.said_keys:
            self._by_said[key].append(call.number)
            self._said_after[call.parent, key] = call.number
        self._by_id[exchange.answer.get("id")] = call.number

    def graded(self, which: Graded, *, task: str, model_name: str) -> list[ModelCall]:
        """Return the calls of the graded conversation in order.

        The first conversation is graded whose prompt has the task and that names the given model, or else the last
        one. Side conversations of a program, such as one that asks for a title, are left out.
        """
        last = self._last_of(self.calls[-1].conversation) if which == "last" else self._main(task, model_name)
        calls = [last]
        while (parent := calls[-1].parent) is not None:
            calls.append(self.calls[parent])
        return calls[::-1]

    def _read(self, exchange: Exchange) -> _Request:
        """Return the history of a call. Read only its new messages, because a program sends the others again."""
        read: list[tuple[Item, Key | None]] = []
        for message in exchange.messages:
            text = written([exchange.dialect, message])
            if text not in self._items or text == TOO_DEEP:
                self._items[text] = [(item, key_of(item)) for item in items_of(exchange.dialect, message)]
            read += self._items[text]
        keys = [key for _, key in read]
        hashes = accumulate(keys, lambda before, key: hash((before, key)), initial=hash(exchange.instructions))
        return _Request([item for item, _ in read], keys, list(hashes))

    def _link(self, call: ModelCall, request: _Request) -> None:
        """Set the call's parent and conversation, and the items that it adds to the conversation."""
        response_id = call.exchange.request.get("previous_response_id")
        if isinstance(response_id, str) and response_id in self._by_id:
            call.added = request.items
            self._continue(call, self._by_id[response_id])
            return
        begun = self._begun(call, request)
        twin = self._latest(self._by_request.get(request.hashes[-1], ()), call)
        known_call = begun.number if twin is None else twin
        found = self._found(call, request, None if known_call is None else self.calls[known_call].conversation)
        if found.last is not None:
            # The later one of the two: a program may have changed the last answer before it sent the answer back.
            parent, begin = max((found.last, found.end), (begun.number or 0, begun.length))
        elif twin is not None and not any(each.parent == twin for each in self.calls):
            # The program has asked once more instead of using the answer.
            call.parent, call.conversation = self.calls[twin].parent, self.calls[twin].conversation
            call.added = self.calls[twin].added
            return
        elif known_call is not None:
            begin = begun.length if twin is None else len(request.items)
            is_edited = begin < len(request.items) and is_of_model(request.items[begin])
            # Without a copy of an answer, the program has replaced its history, for example by a summary.
            conversation = self.calls[known_call].conversation
            parent = known_call if is_edited else self._last_of(conversation, before=call.answered).number
        else:
            prompt = next((at for at, item in enumerate(request.items) if is_of_model(item)), len(request.items))
            call.prompt, history = request.items[:prompt], request.items[prompt:]
            call.added = [each for place, each in enumerate(history, prompt) if place not in found.places]
            return
        self._continue(call, parent)
        known = self._known[call.conversation]
        call.added = [
            begun.rest if place == begun.length and begun.rest is not None else item
            for place, item in enumerate(request.items)
            if place not in found.places and (place >= begin or request.keys[place] not in known)
        ]

    def _continue(self, call: ModelCall, parent: int) -> None:
        call.parent, call.conversation = parent, self.calls[parent].conversation

    def _begun(self, call: ModelCall, request: _Request) -> _Begun:
        """Return the earlier call with the longest request that begins this one."""
        for length in range(len(request.keys) - 1, 0, -1):
            number = self._latest(self._by_request.get(request.hashes[length], ()), call)
            if number is not None:
                return _Begun(number, length)
        text = request.last_text
        # A program may keep the whole conversation in one message, which grows.
        begun = [
            (len(earlier), number)
            for number, earlier in (self._by_beginning.get(request.hashes[-2], ()) if text else ())
            if number < call.answered and text.startswith(earlier) and text != earlier
        ]
        if not begun:
            return _Begun(None, 0)
        length, number = max(begun)
        return _Begun(number, len(request.items) - 1, {**request.items[-1], "content": text[length:]})

    def _found(self, call: ModelCall, request: _Request, within: int | None) -> _Found:
        """Find the model's answers in a history, in order. Answers of other conversations do not count."""
        last: int | None = None
        end = 0
        rest: list[Key] = []
        places = set()
        for place, (item, key) in enumerate(zip(request.items, request.keys, strict=True)):
            if not is_of_model(item):
                continue
            if key is None or (item["type"] == REASONING and within is not None and key in self._known[within]):
                places.add(place)
                continue
            if key in rest:
                rest = rest[rest.index(key) + 1 :]
            else:
                best = self._answer(call, key, last, within)
                if best is None:
                    continue
                last, within = best.number, best.conversation
                rest = best.said_keys[best.said_keys.index(key) + 1 :]
            places.add(place)
            end = place + 1
        return _Found(last, places, end)

    def _answer(self, call: ModelCall, key: Key, last: int | None, within: int | None) -> ModelCall | None:
        """Return the call whose answer has this item: preferably the one that continues `last`, or else the latest."""
        next_one = self._said_after.get((last, key))
        latest_first = reversed(self._by_said.get(key, []))
        for number in chain([] if next_one is None else [next_one], latest_first):
            found = self.calls[number]
            if number < call.answered and within in (None, found.conversation) and (last is None or number > last):
                return found
        return None

    def _main(self, task: str, model_name: str) -> ModelCall:
        """Return the last call of the first conversation with the task."""
        task = spaced_once(task)

        def rank(first: ModelCall) -> tuple[bool, bool, bool, int, int]:
            # The model cannot have started conversations that began before its first answer.
            is_at_start = not first.answered
            answers = sum(each.conversation == first.number for each in self.calls)
            return (
                first.exchange.request.get("model") == model_name,
                task in first.text,
                is_at_start and bool(first.tools),
                answers if is_at_start else 0,
                -first.number,
            )

        firsts = [each for each in self.calls if each.conversation == each.number]
        main = max(firsts, key=rank)
        last = self._last_of(main.number)
        for first in firsts:
            if first.answered > last.number and self._continues(first, main, last):
                self._join(first, last)
                last = self._last_of(main.number)
        return last

    def _continues(self, first: ModelCall, main: ModelCall, last: ModelCall) -> bool:
        """Return whether a conversation goes on after the program has replaced its history by a summary."""
        is_alike = last.tools == first.tools if last.tools else not first.tools and main.system == first.system
        said = (item for each in self.calls[: first.answered] for item in each.said)
        answers = (text_of(item.get("content")) for item in said)
        return is_alike and any(quotes(first.text, answer) for answer in answers)

    def _join(self, first: ModelCall, last: ModelCall) -> None:
        known = self._known[last.conversation]
        joined = first.number
        for each in self.calls[joined:]:
            if each.conversation == joined:
                each.conversation = last.conversation
                if each.parent is None:
                    each.parent = last.number
        first.added = [item for item in first.prompt if key_of(item) not in known] + first.added
        known |= self._known[joined]

    def _last_of(self, conversation: int, before: int | None = None) -> ModelCall:
        return next(each for each in self.calls[:before][::-1] if each.conversation == conversation)

    def _latest(self, numbers: Sequence[int], call: ModelCall) -> int | None:
        """Return the latest of these calls that was answered before the given call was made."""
        return next((number for number in reversed(numbers) if number < call.answered), None)
