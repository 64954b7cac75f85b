"""Games with reset and step: routes, one game per rollout, repeated steps, and replayed games."""

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import httpx
import pytest
from pydantic import Field

from nemo_gym import (
    BaseResetRequest,
    BaseResetResponse,
    BaseStepRequest,
    BaseStepResponse,
    EnvironmentFailed,
    InvalidTask,
    SessionState,
    SteppedResourcesServer,
)
from nemo_gym.schemas.items import FunctionCallOutput, ReasoningItem
from nemo_gym.servers.stepped import turns_of
from nemo_gym.testing import call, make_server, on_a_port, reply, rollout, serving
from tests.each_case import each_case


class ResetRequest(BaseResetRequest):
    count: int = Field(ge=1)


class Launch(SessionState):
    count: int = 0
    closed: list[int] | None = None

    async def close(self) -> None:
        if self.closed is not None:
            self.closed.append(self.count)


class Countdown(SteppedResourcesServer):
    """Every turn counts down by one; the last one earns 1. `fail` fails, `wait` takes a while."""

    closed: list[int] = []  # noqa: RUF012

    async def reset(self, body: ResetRequest, launch: Launch) -> str:
        launch.count, launch.closed = body.count, self.closed
        if body.count == 13:
            raise RuntimeError("not today")
        return f"{launch.count} to go"

    async def step(self, body: BaseStepRequest, launch: Launch) -> BaseStepResponse:
        text = body.response.last_text
        if text == "fail":
            raise RuntimeError("engine trouble")
        if text == "wait":
            await asyncio.sleep(0.05)
        launch.count -= 1
        if text == "abort":
            return BaseStepResponse(observation="Aborted.", reward=-0.5, truncated=True, info={"why": text})
        if launch.count:
            return BaseStepResponse(observation=f"{launch.count} to go", reward=0.25)
        return BaseStepResponse(reward=1.0, terminated=True)


@pytest.fixture
def server():
    built = make_server(Countdown)
    built.closed = []
    return built


def row(count: int = 2, **fields: Any) -> dict[str, Any]:
    return {"responses_create_params": {"input": []}, "count": count, **fields}


def turn(text: str = "go", **fields: Any) -> dict[str, Any]:
    return {**row(**fields), "response": reply(text).model_dump(mode="json")}


async def test_game_runs_from_reset_to_its_end(server):
    async with serving(server) as client:
        begun = (await client.post("/reset", json=row())).json()
        assert begun["observation"] == "2 to go"
        assert begun["info"] == {"supports_explicit_close": True, "supports_step_idempotency": True}
        steps = [(await client.post("/step", json=turn())).json() for _ in range(2)]
        assert steps == [
            {"observation": "1 to go", "reward": 0.25, "terminated": False, "truncated": False, "info": {}},
            {"observation": None, "reward": 1.0, "terminated": True, "truncated": False, "info": {}},
        ]
        assert (await client.post("/close")).json() == {"closed": True}
        assert (await client.post("/close")).json() == {"closed": False}
        assert server.closed == [0]


class Slow(SteppedResourcesServer):
    """A game that keeps nothing in a session. Its steps take longer than idle sessions are kept."""

    async def reset(self, body: BaseResetRequest) -> str:
        return "wait"

    async def step(self, body: BaseStepRequest) -> BaseStepResponse:
        self.sessions.idle_s = 0.0
        assert await self.sessions.drop_idle() == 0
        # On a busy machine, even the time between two steps may be long.
        self.sessions.idle_s = 500.0
        return BaseStepResponse(reward=0.5)


async def test_game_is_not_idle_during_a_step():
    async with serving(make_server(Slow)) as client:
        await client.post("/reset", json=row())
        for _ in range(2):
            assert (await client.post("/step", json=turn())).json()["reward"] == 0.5


async def test_each_rollout_has_its_own_game(server):
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(serving(server)) for _ in range(3)]
        for count, client in enumerate(clients, start=2):
            await client.post("/reset", json=row(count))
        seen = [(await client.post("/step", json=turn())).json()["observation"] for client in clients]
        assert seen == ["1 to go", "2 to go", "3 to go"]


@pytest.mark.parametrize(
    ("before", "problem"),
    [((), "no game is running in this session"), (("/reset", "/step", "/step"), "the game has ended")],
)
async def test_step_without_a_game_fails_with_advice(server, before, problem):
    async with serving(server) as client:
        for path in before:
            await client.post(path, json=turn())
        with pytest.raises(EnvironmentFailed, match=f"{problem}.*POST /reset"):
            await client.post("/step", json=turn())


async def test_step_without_a_game_is_a_client_error(server):
    async with on_a_port(server) as url, httpx.AsyncClient(base_url=url, verify=False) as client:
        before = await client.post("/step", json=turn())
        await client.post("/reset", json=row(1))
        end = await client.post("/step", json=turn())
        after = await client.post("/step", json=turn())
    assert [each.status_code for each in (before, end, after)] == [409, 200, 409]
    assert before.json()["failure_class"] == after.json()["failure_class"] == "environment_failed"


async def test_step_in_an_idle_session_is_a_client_error():
    server = make_server(Countdown, session_idle_s=0)
    async with on_a_port(server) as url, httpx.AsyncClient(base_url=url, verify=False) as client:
        await client.post("/reset", json=row())
        await server.sessions.drop_idle()
        step = await client.post("/step", json=turn())
    assert (step.status_code, step.json()["failure_class"]) == (409, "environment_failed")
    assert "was dropped because it was idle for more than 0 s" in step.text


async def test_reset_replaces_an_unfinished_game(server):
    async with serving(server) as client:
        await client.post("/reset", json=row(5))
        await client.post("/step", json=turn("abort"))
        assert (await client.post("/reset", json=row(3))).json()["observation"] == "3 to go"
        assert server.closed == [4]
        assert (await client.post("/step", json=turn())).json()["observation"] == "2 to go"


async def test_failed_reset_leaves_no_state(server):
    async with serving(server) as client:
        with pytest.raises(RuntimeError, match="not today"):
            await client.post("/reset", json=row(13))
        assert len(server.sessions) == 0


async def test_repeated_step_is_played_once(server):
    async with serving(server) as client:
        await client.post("/reset", json=row(3))
        first, again = [await client.post("/step", json=turn(_ng_step_request_id="a")) for _ in range(2)]
        assert first.json() == again.json() == {**first.json(), "observation": "2 to go"}
        assert (await client.post("/step", json=turn(_ng_step_request_id="b"))).json()["observation"] == "1 to go"
        last = [(await client.post("/step", json=turn(_ng_step_request_id="c"))).json() for _ in range(2)]
        assert [each["terminated"] for each in last] == [True, True]


async def test_step_repeated_during_its_run_is_played_once(server):
    async with serving(server) as client:
        await client.post("/reset", json=row(3))
        both = await asyncio.gather(*(client.post("/step", json=turn("wait", _ng_step_request_id="a")) for _ in "ab"))
        assert [each.json()["observation"] for each in both] == ["2 to go"] * 2


async def test_failed_step_can_be_sent_again(server):
    async with serving(server) as client:
        await client.post("/reset", json=row())
        with pytest.raises(RuntimeError, match="engine trouble"):
            await client.post("/step", json=turn("fail", _ng_step_request_id="a"))
        assert (await client.post("/step", json=turn(_ng_step_request_id="a"))).json()["observation"] == "1 to go"


async def test_invalid_row_is_rejected_with_the_field(server):
    async with serving(server) as client:
        answer = await client.post("/reset", json=row(0))
        assert (answer.status_code, "count" in answer.text) == (422, True)


@pytest.mark.parametrize(
    ("said", "graded"),
    [
        (["go", "go"], (1.25, 2, True, False)),
        (["go"], (0.25, 1, False, False)),
        (["abort", "go"], (-0.5, 1, False, True)),
        (["go", "go", "fail"], (1.25, 2, True, False)),
        ([], (0.0, 0, False, False)),
    ],
)
async def test_verify_grades_a_rollout_by_replaying_it(server, said, graded):
    for _ in range(2):
        async with rollout(server, **row(own=1)) as attempt:
            verified = await attempt.verify(reply(*said))
            assert (verified.reward, verified.steps, verified.terminated, verified.truncated) == graded
            assert (verified.own, verified.count) == (1, 2)
            assert len(server.sessions) == 0


async def test_unplayable_row_fails_the_rollout_with_the_reason(server):
    async with rollout(server, **row(0)) as attempt:
        with pytest.raises(InvalidTask, match="the row cannot be played: count: "):
            await attempt.verify(reply("go"))


THOUGHT = ReasoningItem(id="r", summary=[])
RECEIVED = FunctionCallOutput(call_id="c", output="received")


@each_case(
    ("items", "sizes"),
    [
        ([], []),
        (["a", "b"], [1, 1]),
        (["a", call("b"), "c"], [1, 1, 1]),
        ([THOUGHT, "a", THOUGHT, "b"], [2, 2]),
        (["a", THOUGHT], [1, 1]),
        (["a", call("b"), RECEIVED, "c", "d"], [2, 2]),
        (["a", RECEIVED, RECEIVED, "b"], [1, 1]),
        ([RECEIVED, "a", "b", RECEIVED], [2]),
    ],
)
def test_received_items_separate_the_models_turns(items, sizes):
    made = [item if isinstance(item, (ReasoningItem, FunctionCallOutput)) else reply(item).output[0] for item in items]
    turns = list(turns_of(made))
    assert [len(each) for each in turns] == sizes
    assert [item for each in turns for item in each] == [item for item in made if item is not RECEIVED]


def answering(reset: Any, step: Any) -> SteppedResourcesServer:
    class Answering(SteppedResourcesServer):
        async def reset(self, body: BaseResetRequest) -> Any:
            return reset

        async def step(self, body: BaseStepRequest) -> Any:
            return step

    return make_server(Answering)


@each_case(
    ("reset", "observation", "info"),
    [
        ("Hello", "Hello", {}),
        (None, None, {}),
        (("Hello", {"a": 1}), "Hello", {"a": 1}),
        ((None, {}), None, {}),
        (BaseResetResponse(observation="Hello", info={"a": 1}), "Hello", {"a": 1}),
    ],
)
async def test_reset_may_return_text_response_or_pair(reset, observation, info):
    async with serving(answering(reset, None)) as client:
        begun = (await client.post("/reset", json=row())).json()
        assert begun["observation"] == observation
        assert begun["info"].items() >= info.items()


async def test_server_may_override_the_announced_features():
    async with serving(answering(("Hello", {"supports_step_idempotency": False}), None)) as client:
        assert (await client.post("/reset", json=row())).json()["info"]["supports_step_idempotency"] is False


async def test_step_may_return_gymnasiums_five_values():
    async with serving(answering("Hello", ("Bye", 2, True, False, {"a": 1}))) as client:
        await client.post("/reset", json=row())
        assert (await client.post("/step", json=turn())).json() == {
            "observation": "Bye",
            "reward": 2.0,
            "terminated": True,
            "truncated": False,
            "info": {"a": 1},
        }


@each_case("reset", [1, ("Hello",), ("Hello", None), ("a", {}, 1)])
async def test_invalid_reset_result_fails_the_rollout(reset):
    async with serving(answering(reset, None)) as client:
        with pytest.raises(EnvironmentFailed, match=r"reset returned an? .*expected a text"):
            await client.post("/reset", json=row())


@each_case("step", [None, 1.0, "Bye", ("Bye", 1.0, True, False), ("Bye", "much", True, False, {}), {"reward": 1.0}])
async def test_invalid_step_result_fails_the_rollout(step):
    async with serving(answering("Hello", step)) as client:
        await client.post("/reset", json=row())
        with pytest.raises(EnvironmentFailed, match=r"step returned a .*expected a BaseStepResponse"):
            await client.post("/step", json=turn())


@pytest.mark.parametrize("reward", [float("nan"), float("inf")])
async def test_reward_that_is_not_finite_fails_the_rollout(reward):
    server = answering("Hello", BaseStepResponse(reward=reward))
    async with serving(server) as client:
        await client.post("/reset", json=row())
        with pytest.raises(EnvironmentFailed, match="which is not finite"):
            await client.post("/step", json=turn())
    async with rollout(server, **row()) as attempt:
        with pytest.raises(EnvironmentFailed, match="which is not finite"):
            await attempt.verify(reply("go"))


async def test_key_metrics_are_those_shared_by_games(server):
    rows = [{"_ng_task_index": task, "reward": 1.0 - task, "steps": 3 + 2 * task, "seed": task} for task in range(2)]
    async with serving(server) as client:
        metrics = (await client.post("/aggregate_metrics", json={"verify_responses": rows})).json()
    assert metrics["key_metrics"] == {"mean/reward": 0.5, "mean/steps": 4.0}
    assert metrics["agent_metrics"]["mean/seed"] == 0.5
