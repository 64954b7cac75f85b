"""An agent that only knows an address: sub-agents in three dialects at once, with retries and a forgotten history."""

from __future__ import annotations

import asyncio

import httpx
from fastapi import Request

from nemo_gym import BaseResponsesAPIAgentConfig, BaseRunRequest, ModelServerRef, SimpleResponsesAPIAgent
from nemo_gym.openai_utils import NeMoGymResponse
from nemo_gym.testing import reply

TURNS, TRIES = 3, 200
PAUSE_S = 0.5


class BlackBoxConfig(BaseResponsesAPIAgentConfig):
    model_server: ModelServerRef


class RunRequest(BaseRunRequest, extra="allow"):
    dialects: list[str]
    votes: int = 0
    """The number of further calls with one prompt, all at the same time."""


def asked_in(dialect: str, said: list[dict]) -> tuple[str, dict]:
    if dialect == "responses":
        return "/v1/responses", {"input": said}
    if dialect == "chat":
        return "/v1/chat/completions", {"messages": said}
    return "/v1/messages", {"messages": said, "max_tokens": 50, "model": "m"}


def text_in(dialect: str, answer: dict) -> str:
    if dialect == "responses":
        return "".join(part["text"] for item in answer["output"] for part in item["content"])
    if dialect == "chat":
        return answer["choices"][0]["message"]["content"]
    return "".join(block["text"] for block in answer["content"])


class BlackBox(SimpleResponsesAPIAgent):
    config: BlackBoxConfig

    async def responses(self, request: Request, body: dict) -> dict:
        raise NotImplementedError

    async def run(self, request: Request, body: RunRequest) -> dict:
        row = await request.json()
        url = self.base_url_for_run(self.server_client._build_server_base_url(
            self.server_client.address_of(self.config.model_server.name)._asdict()), body)  # fmt: skip
        async with httpx.AsyncClient(timeout=60, trust_env=False) as client:
            heard = await asyncio.gather(*(self.converse(client, url, each, row["name"]) for each in body.dialects))
            path, asked = asked_in("chat", [{"role": "user", "content": f"{row['name']}: which one?"}])
            votes = [self.ask(client, f"{url}{path}", asked) for _ in range(body.votes)]
            heard += [[text_in("chat", answer)] for answer in await asyncio.gather(*votes)]
        response = NeMoGymResponse.model_validate(reply(heard[0][-1])).model_dump()
        return {**row, "heard": heard, "response": response, "reward": 1.0}

    async def converse(self, client: httpx.AsyncClient, url: str, dialect: str, name: str) -> list[str]:
        said, heard = [{"role": "user", "content": f"{name} in {dialect}"}], []
        for turn in range(TURNS):
            path, asked = asked_in(dialect, said)
            text = text_in(dialect, await self.ask(client, f"{url}{path}", asked))
            heard.append(text)
            said += [{"role": "assistant", "content": text}, {"role": "user", "content": f"turn {turn}"}]
        return heard

    async def ask(self, client: httpx.AsyncClient, url: str, asked: dict) -> dict:
        for _ in range(TRIES):
            try:
                answer = await client.post(url, json=asked)
                if answer.status_code < 500:
                    return answer.raise_for_status().json()
            except httpx.TransportError:
                pass
            await asyncio.sleep(PAUSE_S)
        raise RuntimeError("the model server did not come back")


if __name__ == "__main__":
    BlackBox.run_webserver()
