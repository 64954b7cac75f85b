"""Request scores from an endpoint, with one of vLLM's scoring APIs or with nemo_gym's own, named `plain`."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from itertools import accumulate
from typing import Literal

from nemo_gym import DataError, NeMoGymAsyncOpenAI
from nemo_gym.grading import SpecialTokens, visible_text
from nemo_gym.jsonl import JsonObject
from responses_api_models.reward_model.exchange import Exchange, Message

EndpointApi = Literal["vllm_score", "vllm_classify", "vllm_pooling", "plain"]

PATHS: dict[EndpointApi, str] = {
    "vllm_score": "/score",
    "vllm_classify": "/classify",
    "vllm_pooling": "/pooling",
    # Do not append a path, because `base_url` is already the full URL.
    "plain": "",
}
ROLES = ("user", "assistant", "system", "developer")
CONTENT = "{content}"
LINE_END = r"[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]"
"""The characters at which `str.splitlines` splits."""
BEFORE_TURN = rf"(?:(?!{LINE_END})[\s*_`~\"'(\[{{|>#+•-])*?"
"""A regex for whitespace and markup before a message prefix. It is lazy, because the prefix may start with markup."""
MARKUP_WITHIN = r"[ \t*_`~]*"


class MessageTemplate:
    """A template that formats messages as text, for APIs that do not accept messages."""

    def __init__(self, template: str) -> None:
        self._template = template
        beginnings = [template.partition(CONTENT)[0].strip().replace("{role}", role) for role in ROLES]
        known = "|".join(_spelled(each) for each in beginnings if each)
        self._turn = re.compile(f"{BEFORE_TURN}(?:{known})", re.IGNORECASE) if known else None

    def joined(self, messages: Sequence[Message]) -> str:
        """Return the messages as one text. A single user message stays as it is."""
        if [each.role for each in messages] == ["user"]:
            return messages[0].content
        return "\n\n".join(map(self._written, messages))

    def quoted(self, content: str) -> str:
        """Return the content with `> ` before each line that looks like the start of another message."""
        if self._turn is None:
            return content
        lines = content.splitlines(keepends=True)
        visible = [visible_text(line) for line in lines]
        starts = accumulate(map(len, visible), initial=0)
        text = "".join(visible)
        marks = ("> " if self._turn.match(text, start) else "" for start in starts)
        return "".join(f"{mark}{line}" for line, mark in zip(lines, marks, strict=False))

    def _written(self, message: Message) -> str:
        return self._template.replace("{role}", message.role).replace(CONTENT, self.quoted(message.content))


def _spelled(beginning: str) -> str:
    """Return a regex for a message prefix that allows markup and whitespace between its parts."""
    parts = re.findall(rf"\w+|{LINE_END}|[^\w\s]+", visible_text(beginning))
    return MARKUP_WITHIN.join(LINE_END if part.isspace() else re.escape(part) for part in parts)


class EndpointScorer:
    """A scorer that sends one request per answer, because some APIs accept only one conversation per request."""

    def __init__(
        self,
        api: EndpointApi,
        endpoint: NeMoGymAsyncOpenAI,
        special_tokens: SpecialTokens,
        *,
        fields: JsonObject,
        template: MessageTemplate,
        sends_messages: bool,
        class_index: int,
    ) -> None:
        self._api = api
        self._endpoint = endpoint
        self._special_tokens = special_tokens
        self._fields = fields
        self._template = template
        self._sends_messages = sends_messages
        self._class_index = class_index

    async def score(self, exchange: Exchange) -> float:
        """Return the endpoint's score.

        Raise `EndpointError` if the call fails, and `DataError` if the reply does not hold exactly one finite score.
        """
        reply = await self._endpoint.post(PATHS[self._api], **self._fields, **self._input(self._escaped(exchange)))
        score = self._score_in(reply)
        if isinstance(score, bool) or not isinstance(score, (int, float)) or not math.isfinite(score):
            raise DataError(f"{self._where} returned the score {score!r}, which is not a finite number")
        return float(score)

    async def aclose(self) -> None:
        await self._endpoint.aclose()

    @property
    def _where(self) -> str:
        return (
            f"{self._endpoint.url.removesuffix('/v1') if PATHS[self._api] else self._endpoint.url}{PATHS[self._api]}"
        )

    def _escaped(self, exchange: Exchange) -> Exchange:
        """Escape special tokens, also in the prompt, because the policy wrote parts of a conversation's prompt."""
        escaped = self._special_tokens.escaped
        prompt = (each.model_copy(update={"content": escaped(each.content)}) for each in exchange.prompt)
        return Exchange(tuple(prompt), escaped(exchange.answer))

    def _input(self, exchange: Exchange) -> JsonObject:
        if self._api == "plain":
            prompt = [each.model_dump() for each in exchange.prompt]
            return {"input": {"prompt": prompt, "answer": exchange.answer}}
        if self._api == "vllm_score":
            return {"text_1": self._template.joined(exchange.prompt), "text_2": self._template.quoted(exchange.answer)}
        messages = [*exchange.prompt, Message(role="assistant", content=exchange.answer)]
        if self._sends_messages:
            return {"messages": [each.model_dump() for each in messages], "add_generation_prompt": False}
        return {"input": self._template.joined(messages)}

    def _score_in(self, reply: JsonObject) -> object:
        if self._api == "plain":
            return self._field(reply, "score")
        data = self._field(reply, "data")
        if not isinstance(data, list) or len(data) != 1 or not isinstance(data[0], dict):
            count = len(data) if isinstance(data, list) else 0
            raise DataError(f"{self._where} returned {count} scores for one answer")
        if self._api == "vllm_score":
            return self._field(data[0], "score")
        if self._api == "vllm_classify":
            return self._of_class(self._field(data[0], "probs"))
        return self._last(self._field(data[0], "data"))

    def _field(self, reply: JsonObject, name: str) -> object:
        if name not in reply:
            problem = reply.get("message") or reply.get("error") or f"only {', '.join(reply) or 'an empty object'}"
            raise DataError(f"{self._where} returned a reply without '{name}': {problem}")
        return reply[name]

    def _of_class(self, probabilities: object) -> object:
        if not isinstance(probabilities, list) or not -len(probabilities) <= self._class_index < len(probabilities):
            count = len(probabilities) if isinstance(probabilities, list) else 0
            raise DataError(
                f"{self._where} returned {count} classes, but class_index is {self._class_index}. Classes are counted "
                "from 0; -1 is the last one."
            )
        return probabilities[self._class_index]

    def _last(self, values: object) -> object:
        """Unwrap nested lists and return the last number, because some reward models return one number per token."""
        while isinstance(values, list):
            if not values:
                raise DataError(f"{self._where} returned an empty list of scores")
            values = values[-1]
        return values
