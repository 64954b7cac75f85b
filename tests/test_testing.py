"""Helpers for authors' tests: servers from their folders, in-process rollouts, models with given replies."""

import asyncio
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from fastapi import HTTPException

from nemo_gym import (
    BaseResourcesServerConfig,
    BaseSeedSessionRequest,
    BaseVerifyRequest,
    DataError,
    EnvironmentFailed,
    NeMoGymResponse,
    SessionState,
    SimpleResourcesServer,
    get_response_json,
    tool,
)
from nemo_gym.errors import ServerCallError
from nemo_gym.testing import FakeModel, call, make_server, reply, rollout, run, serving
from resources_servers.example_session_state_mgmt.app import CounterServer
from responses_api_agents.simple_agent.app import SimpleAgent
from responses_api_models.sample_model.app import SampleModel
from tests.each_case import each_case

COUNTER = {"type": "resources_servers", "name": "example_session_state_mgmt"}


class Marks(SessionState):
    names: list[str] = []  # noqa: RUF012


class ArenaConfig(BaseResourcesServerConfig):
    size: int


class Arena(SimpleResourcesServer):
    """A server whose board exists from startup to shutdown."""

    config: ArenaConfig
    board: list[str] | None = None
    events: list[str] = []  # noqa: RUF012

    async def startup(self) -> None:
        await asyncio.sleep(0)
        self.board = []
        self.events.append("startup")

    async def aclose(self) -> None:
        self.board = None
        self.events.append("aclose")

    async def seed_session(self, body: BaseSeedSessionRequest) -> None:
        assert self.board is not None

    @tool
    async def mark(self, name: str, marks: Marks) -> str:
        """Mark; `name` is an ordinary argument."""
        self.board.append(name)
        marks.names.append(name)
        return " ".join(marks.names)

    @tool
    async def ask(self, of: str) -> str:
        """Ask another server."""
        answer = await self.server_client.post(of, "/v1/responses", json={"input": "well?"})
        return NeMoGymResponse.model_validate(await get_response_json(answer)).last_text

    @tool
    async def fail(self, how: str) -> str:
        """Fail."""
        raise {"bug": ZeroDivisionError("of nothing"), "missing": HTTPException(404, "no such file")}[how]

    async def verify(self, body: BaseVerifyRequest) -> float:
        return float(len(body.response.tool_calls))


def make_arena(events: list[str], **settings: Any) -> Arena:
    server = make_server(Arena, size=3, **settings)
    server.events = events
    return server


def test_reply_consists_of_texts_and_calls():
    made = reply("One.", call("look", word="a"), "Two.")
    assert [item.type for item in made.output] == ["message", "function_call", "message"]
    assert (made.output_text, made.last_text) == ("One.Two.", "Two.")
    assert (made.tool_calls[0].name, made.tool_calls[0].arguments) == ("look", '{"word":"a"}')


@each_case("argument", ["name", "self", "arguments"])
def test_a_call_may_have_an_argument_of_any_name(argument):
    assert call("look", **{argument: 1}).arguments == f'{{"{argument}":1}}'


def test_fake_model_repeats_its_last_reply():
    model = FakeModel(["One.", call("look"), reply("Three.")])
    texts = [model.answer({"turn": turn}) for turn in range(4)]
    assert [answer.last_text for answer in texts] == ["One.", "", "Three.", "Three."]
    assert model.requests == [{"turn": turn} for turn in range(4)]
    with pytest.raises(ValueError, match="at least one reply"):
        FakeModel([])


def test_server_uses_the_config_with_its_folder_name():
    server = make_server(CounterServer)
    assert (server.config.name, server.config.entrypoint) == ("example_session_state_mgmt", "app.py")
    assert make_server(CounterServer, session_idle_s=5.0).config.session_idle_s == 5.0


def test_incomplete_settings_are_reported():
    with pytest.raises(DataError, match=r"the settings of Arena are incomplete \(size: Field required\)"):
        make_server(Arena)


async def test_rollout_starts_and_stops_the_server():
    events: list[str] = []
    async with rollout(make_arena(events)) as attempt:
        assert await attempt.call("mark", name="a") == "a"
        assert (await attempt.verify()).reward == 1.0
        assert events == ["startup"]
    assert events == ["startup", "aclose"]


async def test_concurrent_rollouts_share_the_server_not_state():
    events: list[str] = []
    server = make_arena(events)

    async def play(name: str) -> str:
        async with rollout(server) as attempt:
            await attempt.call("mark", name=name)
            await asyncio.sleep(0.01)
            return await attempt.call("mark", name=name)

    assert await asyncio.gather(play("a"), play("b")) == ["a a", "b b"]
    assert events == ["startup", "aclose"]
    assert len(server.sessions) == 0


async def test_handler_errors_are_raised_in_the_test():
    async with rollout(make_arena([])) as attempt:
        with pytest.raises(ZeroDivisionError, match="of nothing"):
            await attempt.call("fail", how="bug")


async def test_unknown_tool_is_an_error_of_the_test():
    async with rollout(make_arena([])) as attempt:
        for name in ("marc", "tools"):
            with pytest.raises(DataError, match=f"the server has no tool '{name}'"):
                await attempt.call(name)
        # A 404 raised inside a tool is a tool output for the model.
        assert await attempt.call("fail", how="missing") == '{"detail":"no such file"}'


async def test_verify_grades_calls_or_the_given_response():
    async with rollout(make_arena([]), extra=1) as attempt:
        await attempt.call("mark", name="a")
        await attempt.call("mark", name="b")
        graded = await attempt.verify()
        assert (graded.reward, graded.extra, graded.response.last_text) == (2.0, 1, "Done.")
        assert (await attempt.verify(reply("Nothing."), extra=2)).reward == 0.0


async def test_a_row_may_have_a_field_of_any_name():
    async with rollout(make_arena([]), server="s", agent="a", name="n") as attempt:
        graded = await attempt.verify()
    assert (graded.server, graded.agent, graded.name) == ("s", "a", "n")


async def test_unknown_server_names_reach_the_model():
    model = FakeModel(["Well."])
    async with rollout(make_arena([], model=model)) as attempt:
        assert await attempt.call("ask", of="judge") == "Well."
    assert model.requests == [{"input": "well?"}]


async def test_missing_server_is_named():
    async with rollout(make_arena([])) as attempt:
        with pytest.raises(ServerCallError, match="'judge': this test has no such server"):
            await attempt.call("ask", of="judge")


async def test_agent_rollout_runs_through_its_servers():
    counter = make_server(CounterServer)
    model = FakeModel([call("increment_counter", count=2), call("increment_counter", count=3), "Done."])
    agent = make_server(SimpleAgent, model=model, servers=[counter], resources_server=COUNTER)
    graded = await run(agent, initial_count=1, expected_count=6)
    assert (graded.reward, graded.response.last_text) == (1.0, "Done.")
    assert len(counter.sessions) == 0


async def test_real_model_server_can_be_used():
    policy = make_server(SampleModel, name="policy_model")
    agent = make_server(SimpleAgent, servers=[make_server(CounterServer), policy], resources_server=COUNTER)
    graded = await run(agent, expected_count=0)
    assert graded.response.output[-1].type in ("message", "function_call_output")


async def test_called_servers_are_started_too():
    events: list[str] = []
    inner = make_arena(events, name="arena")
    agent = make_server(
        SimpleAgent,
        model=FakeModel(["Done."]),
        servers=[inner],
        resources_server={"type": "resources_servers", "name": "arena"},
    )
    async with serving(agent):
        assert events == ["startup"]
        assert (await run(agent)).reward == 0.0
        assert events == ["startup"]
    assert events == ["startup", "aclose"]


async def test_failed_agent_rollout_raises_its_cause():
    agent = make_server(
        SimpleAgent,
        model=FakeModel([call("fail", how="bug"), "Done."]),
        servers=[make_arena([], name="arena")],
        resources_server={"type": "resources_servers", "name": "arena"},
    )
    with pytest.raises(EnvironmentFailed, match="arena: /fail raised ZeroDivisionError: of nothing"):
        await run(agent)


async def test_row_rejected_by_the_agent_is_reported():
    agent = make_server(SimpleAgent, resources_server=COUNTER)
    with pytest.raises(DataError, match=r"the row's 'responses_create_params\.temperature' is invalid for run of "):
        await run(agent, responses_create_params={"input": [], "temperature": "hot"})


CELL = """
from nemo_gym import BaseVerifyRequest, SimpleResourcesServer

class Short(SimpleResourcesServer):
    async def verify(self, body: BaseVerifyRequest) -> float:
        return float(len(body.response.last_text) < 5)
"""


async def test_class_in_a_notebook_needs_no_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    notebook = ModuleType("notebook_without_a_file")
    monkeypatch.setitem(sys.modules, notebook.__name__, notebook)
    monkeypatch.chdir(tmp_path)
    exec(CELL, notebook.__dict__)
    async with rollout(make_server(notebook.Short)) as attempt:
        assert (await attempt.verify(reply("ok"))).reward == 1.0
