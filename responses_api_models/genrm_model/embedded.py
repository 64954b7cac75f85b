"""A judge without an endpoint. It prefers the answer that covers more of the request's words and is
closer to the requested length.

The judge is for tests and demos. It can be fooled, because it does not check grammar or facts.
"""

import json
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from nemo_gym import EndpointError
from nemo_gym.jsonl import JsonObject

USUAL_WORDS = 60
"""The length of a good answer in words, if the request does not ask for a number of words."""
CLEARLY, MUCH = 0.25, 0.6
"""The leads in merit above which an answer counts as better, and as much better."""
INTRODUCTION = "I compare two answers: send one message with the role response_1 and one with the role response_2."

_WORD = re.compile(r"\w+")
_LENGTH = re.compile(r"\b(\d{1,4}) words\b")
_SHORTEST_WORD = 5

_SMALL_WORDS = frozenset((
    "because", "been", "could", "from", "have", "should", "than", "that", "their", "them", "then", "there", "they",
    "this", "were", "what", "when", "which", "will", "with", "would", "your",
))  # fmt: skip
"""Function words that occur in every English text. Words of up to three letters count as function words, too."""
_LONGEST_SMALL_WORD = 3
_SMALL_WORDS_WITHIN, _WORDS_PER_SMALL_WORD = 12, 4
_OWN_WORD_WITHIN = 20


class EmbeddedJudge:
    """A Chat Completions endpoint that runs in this process."""

    url = "embedded"

    async def create_chat_completion(self, *, messages: list[JsonObject], **_: object) -> JsonObject:
        """Return a completion with the verdict as JSON, or with an introduction if the messages contain no answers."""
        texts = {message["role"]: _text_of(message.get("content")) for message in messages}
        given = texts.keys() & {"response_1", "response_2"}
        if len(given) == 1:
            raise EndpointError(f"{self.url} compares two answers, but got only {given.pop()}", status=400)
        content = _verdict(texts) if given else INTRODUCTION
        read = sum(len(text.split()) for text in map(_text_of, (message.get("content") for message in messages)))
        written = len(content.split())
        return {
            "id": "chatcmpl-embedded",
            "object": "chat.completion",
            "created": 0,
            "model": self.url,
            "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": content}}],
            "usage": {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written},
        }

    async def aclose(self) -> None:
        """Do nothing, because there is no connection to close."""


class Merits(NamedTuple):
    """The two halves of an answer's merit, each from 0 to 1."""

    shared: float
    """The share of the request's longer words that the answer uses. Copied answers and word lists get less."""
    length: float
    """How close the answer's length is to the requested number of words."""


def merits_of(request: str, answer: str) -> Merits:
    """Rate how many of the request's words an answer uses, and how close it is to the requested length."""
    asked, used = _words(request), _words(answer)
    topics = {word for word in asked if len(word) >= _SHORTEST_WORD}
    named = _LENGTH.search(request)
    wanted, count = int(named[1]) if named else USUAL_WORDS, len(used)
    length = min(count, wanted) / max(count, wanted) if count and wanted else 0.0
    shared = len(topics & set(used)) / len(topics) if topics else 0.0
    return Merits(shared * _own_prose(set(asked), used), length)


def _own_prose(asked: set[str], used: list[str]) -> float:
    """Rate from 0 to 1 how much of an answer is prose rather than a word list, and not copied from the request."""

    def has_small_words(passage: Sequence[str]) -> bool:
        return len(set(filter(_is_small, passage))) >= len(passage) // _WORDS_PER_SMALL_WORD

    def has_own_word(passage: Sequence[str]) -> bool:
        return any(word not in asked and not _is_small(word) for word in passage)

    prose = _share(used, _SMALL_WORDS_WITHIN, has_small_words)
    own = _share(used, _OWN_WORD_WITHIN, has_own_word)
    return _between(0.75, 0.9, prose) * _between(0.6, 0.75, own)


def _is_small(word: str) -> bool:
    return (len(word) <= _LONGEST_SMALL_WORD and word.isalpha()) or word in _SMALL_WORDS


def _share(words: list[str], length: int, is_right: Callable[[Sequence[str]], bool]) -> float:
    """Return the share of passages of `length` words for which `is_right` holds. A shorter text is one passage."""
    starts = range(max(1, len(words) - length + 1))
    return sum(is_right(words[start : start + length]) for start in starts) / len(starts)


def _between(low: float, high: float, share: float) -> float:
    return min(1.0, max(0.0, share - low) / (high - low))


def _verdict(texts: dict[str, str]) -> str:
    request = texts.get("user", "")
    one, other = (sum(merits_of(request, texts[role])) for role in ("response_1", "response_2"))
    scores = {"score_1": round(1 + 2 * one), "score_2": round(1 + 2 * other)}
    return f"```json\n{json.dumps({**scores, 'ranking': _ranking(one - other)})}\n```"


def _ranking(lead: float) -> int:
    """Return the ranking, from 1 (the first answer is much better) to 6 (the second answer is much better).

    Two equal answers get 3, which favors the first one, because real judges have a position bias, too.
    """
    distance = 0 if abs(lead) <= CLEARLY else 1 if abs(lead) <= MUCH else 2
    return 3 - distance if lead >= 0 else 4 + distance


def _words(text: str) -> list[str]:
    return _WORD.findall(text.casefold())


def _text_of(content: object) -> str:
    if isinstance(content, list):
        return " ".join(part.get("text", "") for part in content)
    return str(content or "")
