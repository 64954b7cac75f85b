"""Serve the model that a trainer trains, from a thread of the trainer, as an endpoint for `vllm_model`.

Each reply has the exact tokens of its prompt and completion. Requests that arrive while a batch is sampled are the
next batch. It replaces vLLM for small models, also on machines without a GPU.
"""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

import torch
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from trl.chat_template_utils import parse_response

MOST_TOKENS = 16
"""The limit of a turn that does not set one."""
START_TIMEOUT_S = 30.0


class Sampled(NamedTuple):
    """One completion."""

    ids: list[int]
    log_probs: list[float]
    has_ended: bool
    """Whether the model itself ended it, instead of the limit."""


@dataclass
class Asked:
    """One request that waits for its completion."""

    prompt: list[int]
    temperature: float
    most: int
    answer: asyncio.Future[Sampled] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class PolicyServer:
    """The endpoint, from `__enter__` to `__exit__`. The model may be trained between two batches of rollouts."""

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
        self._model = model
        self._tokenizer = tokenizer
        self._waiting: list[Asked] = []
        self._sampling = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        routes = [
            Route("/v1/chat/completions", self._complete, methods=["POST"]),
            Route("/v1/models", self._models),
        ]
        app = Starlette(routes=routes, lifespan=self._lifespan)
        # Idle connections stay open, because a call may reuse one at the moment of its close on a busy machine.
        config = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=10, timeout_keep_alive=600)
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, args=([self._listener],), daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}/v1"

    def load(self, weights: Mapping[str, torch.Tensor]) -> None:
        """Replace the model's weights between two batches."""
        with self._sampling:
            self._model.load_state_dict(weights)

    def __enter__(self) -> Self:
        self._thread.start()
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self._server.started:
            if not self._thread.is_alive() or time.monotonic() > deadline:
                raise RuntimeError(f"the policy server did not start within {START_TIMEOUT_S:g} s")
            time.sleep(0.01)
        return self

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = True
        self._thread.join()

    @asynccontextmanager
    async def _lifespan(self, _: Starlette) -> AsyncIterator[None]:
        self._arrived = asyncio.Event()
        sampling = asyncio.create_task(self._sample_batches())
        yield
        sampling.cancel()

    async def _models(self, _: Request) -> JSONResponse:
        return JSONResponse({"object": "list", "data": [{"id": "policy", "object": "model"}]})

    async def _complete(self, request: Request) -> JSONResponse:
        body = await request.json()
        # None means the default here.
        temperature, most = body.get("temperature"), body.get("max_tokens")
        prompt = self._prompt_of(body["messages"])
        asked = Asked(prompt, 1.0 if temperature is None else temperature, most or MOST_TOKENS)
        self._waiting.append(asked)
        self._arrived.set()
        return JSONResponse(self._completion(prompt, await asked.answer))

    def _prompt_of(self, messages: list[dict[str, Any]]) -> list[int]:
        """Return the prompt's tokens. The turns so far keep the tokens that were sampled."""
        said = [at for at, message in enumerate(messages) if message.get("generation_token_ids")]
        before: list[int] = []
        if said:
            last = messages[said[-1]]
            before = last["prompt_token_ids"] + last["generation_token_ids"]
            messages = messages[said[-1] + 1 :]
        return before + self._tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)

    def _completion(self, prompt: list[int], sampled: Sampled) -> dict[str, Any]:
        message = parse_response(self._tokenizer, sampled.ids, prefix=prompt)
        calls = message.pop("tool_calls", [])
        if calls:
            message["tool_calls"] = [
                {
                    "id": f"call_{number}",
                    "type": "function",
                    "function": {
                        "name": call["function"]["name"],
                        "arguments": json.dumps(call["function"]["arguments"]),
                    },
                }
                for number, call in enumerate(calls)
            ]
        tokens = [
            {"token": f"token_id:{token}", "logprob": log_prob, "top_logprobs": []}
            for token, log_prob in zip(sampled.ids, sampled.log_probs, strict=True)
        ]
        choice = {
            "index": 0,
            "message": message,
            "finish_reason": ("tool_calls" if calls else "stop") if sampled.has_ended else "length",
            "logprobs": {"content": tokens},
            "token_ids": sampled.ids,
        }
        return {
            "id": "policy",
            "object": "chat.completion",
            "created": int(time.time()),
            "model": "policy",
            "choices": [choice],
            "prompt_token_ids": prompt,
        }

    async def _sample_batches(self) -> None:
        while True:
            await self._arrived.wait()
            # The other requests of a batch arrive within milliseconds, and sampling 64 takes as long as sampling 8.
            await asyncio.sleep(0.01)
            self._arrived.clear()
            batch, self._waiting = self._waiting, []
            try:
                completions = await asyncio.to_thread(self._sampled, batch)
            except Exception as error:  # noqa: BLE001 - each request fails with it
                for asked in batch:
                    asked.answer.set_exception(error)
                continue
            for asked, sampled in zip(batch, completions, strict=True):
                if not asked.answer.done():
                    asked.answer.set_result(sampled)

    def _sampled(self, batch: list[Asked]) -> list[Sampled]:
        with self._sampling:
            return self._sample(batch)

    @torch.no_grad()
    def _sample(self, batch: list[Asked]) -> list[Sampled]:
        # The trainer may have moved the model to a GPU.
        device = self._model.device
        padded = self._tokenizer.pad({"input_ids": [asked.prompt for asked in batch]}, return_tensors="pt").to(device)
        ids, mask = padded["input_ids"], padded["attention_mask"]
        temperatures = torch.tensor([[max(asked.temperature, 1e-6)] for asked in batch], device=device)
        ends = torch.tensor(self._model.generation_config.eos_token_id, device=device)
        has_ended = torch.zeros(len(batch), dtype=torch.bool, device=device)
        steps: list[torch.Tensor] = []
        log_probs: list[torch.Tensor] = []
        for _ in range(max(asked.most for asked in batch)):
            positions = (mask.cumsum(-1) - 1).clamp(min=0)
            logits = self._model(input_ids=ids, attention_mask=mask, position_ids=positions).logits[:, -1]
            log_p = torch.log_softmax(logits.float() / temperatures, dim=-1)
            token = torch.multinomial(log_p.exp(), 1)
            steps.append(token)
            log_probs.append(log_p.gather(-1, token))
            ids, mask = torch.cat([ids, token], dim=1), torch.cat([mask, torch.ones_like(token)], dim=1)
            has_ended |= torch.isin(token[:, 0], ends)
            if has_ended.all():
                break
        is_end = torch.isin(torch.cat(steps, dim=1), ends).tolist()
        rows = zip(batch, torch.cat(steps, dim=1).tolist(), torch.cat(log_probs, dim=1).tolist(), is_end, strict=True)
        return [_cut(asked.most, *row) for asked, *row in rows]


def _cut(most: int, ids: list[int], log_probs: list[float], is_end: list[bool]) -> Sampled:
    """Cut a row of a batch after the token that ends it, or at its limit."""
    length = min(most, is_end.index(True) + 1 if any(is_end) else len(ids))
    return Sampled(ids[:length], log_probs[:length], is_end[length - 1])
