"""Calls within a process beside each other and within each other: what is theirs alone."""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import FastAPI

from nemo_gym.http.correlation import current_rollout_id, noting_failures, rollout_context
from nemo_gym.http.deadline import deadline_in
from nemo_gym.http.local import LocalApp, LocalClient
from tests.http.local.app import WORD, new_app


async def test_context_variables_do_not_pass_from_one_server_to_the_other(port, client):
    WORD.set("set by the caller")
    with rollout_context("a-b"), deadline_in(30), noting_failures() as failures:
        reply = await client.request("GET", "127.0.0.1", port, "/sees")
        assert await reply.json() == ["unset", None, None, "set by the handler"]
        assert (WORD.get(), current_rollout_id(), failures) == ("set by the caller", "a-b", [])


async def test_sessions_are_kept_by_cookie_and_by_nothing_else(port, client):
    first = await client.request("POST", "127.0.0.1", port, "/session")
    again = await client.request("POST", "127.0.0.1", port, "/session")
    assert [first.body, again.body] == [b"1", b"1"]
    cookie = [(b"Cookie", f"other=x; mine={first.cookie_values['mine']}".encode())]
    assert (await client.request("POST", "127.0.0.1", port, "/session", headers=cookie)).body == b"2"


async def test_many_calls_go_on_side_by_side(port, local):
    paths = ["/tell/a", "/chunked", "/break-before", "/nowhere"] * 50
    replies = await asyncio.gather(*(local.request("POST", "127.0.0.1", port, path) for path in paths))
    assert [reply.status for reply in replies] == [200, 200, 500, 404] * 50


async def test_a_call_may_be_made_from_within_a_call(port):
    app = FastAPI()
    client = LocalClient({("inner", 1): LocalApp(new_app(), {"kept": ""}), ("outer", 1): LocalApp(app)})

    @app.post("/ask/{path}", response_model=None)
    async def ask(path: str) -> Any:
        WORD.set("set by the outer one")
        answers = await asyncio.gather(*(client.request("POST", "inner", 1, f"/{path}") for _ in range(3)))
        return [WORD.get(), *[await reply.json() for reply in answers]]

    reply = await client.request("POST", "outer", 1, "/ask/sees")
    assert await reply.json() == ["set by the outer one", *[["unset", None, None, "set by the handler"]] * 3]
