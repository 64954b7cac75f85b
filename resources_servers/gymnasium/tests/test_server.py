"""The published base class with Gymnasium's reset and step, whose games are stored by session id."""

from typing import Any

import pytest

from nemo_gym import NeMoGymResponse
from nemo_gym.testing import make_server, reply, rollout, serving

# See test_app.py.
pytest.importorskip("gymnasium", reason="gymnasium is an extra: pip install 'nemo-gym[gymnasium]'")

from resources_servers.gymnasium import GymnasiumServer


class Echo(GymnasiumServer):
    """A game that ends with reward 1 when the model says the row's word."""

    games: dict[str, int] = {}  # noqa: RUF012
    closed: list[str] = []  # noqa: RUF012

    async def reset(self, metadata: dict[str, Any], session_id: str) -> tuple[str | None, dict[str, Any]]:
        self.games[session_id] = 0
        return f"Say {metadata['word']}.", {"given": sorted(metadata)}

    async def step(
        self, action: NeMoGymResponse, metadata: dict[str, Any], session_id: str
    ) -> tuple[str | None, float, bool, bool, dict[str, Any]]:
        self.games[session_id] += 1
        is_said = action.output_text == metadata["word"]
        return f"Turn {self.games[session_id]}", float(is_said), is_said, False, {"given": sorted(metadata)}

    async def close(self, session_id: str) -> None:
        self.closed.append(session_id)
        del self.games[session_id]


@pytest.fixture
def server():
    built = make_server(Echo)
    built.games, built.closed = {}, []
    return built


ROW = {"responses_create_params": {"input": []}, "word": "moo", "more": 1}


async def test_game_receives_the_rows_fields(server):
    async with serving(server) as client:
        first = (await client.post("/reset", json=ROW)).json()
        assert (first["observation"], first["info"]["given"]) == ("Say moo.", ["more", "word"])
        assert first["info"]["supports_explicit_close"] is True
        for number, (word, reward) in enumerate([("baa", 0.0), ("moo", 1.0)], start=1):
            turn = {**ROW, "response": reply(word).model_dump(mode="json")}
            step = (await client.post("/step", json=turn)).json()
            assert (step["observation"], step["reward"], step["terminated"]) == (
                f"Turn {number}",
                reward,
                bool(reward),
            )
            assert step["info"] == {"given": ["more", "word"]}
        assert server.closed == []
        await client.post("/close")
        assert (len(server.closed), server.games) == (1, {})


async def test_concurrent_games_do_not_interfere(server):
    async with serving(server) as one, serving(server) as other:
        for client in (one, other):
            await client.post("/reset", json=ROW)
        for client, number in ((one, 1), (one, 2), (other, 1)):
            turn = {**ROW, "response": reply("baa").model_dump(mode="json")}
            assert (await client.post("/step", json=turn)).json()["observation"] == f"Turn {number}"


async def test_verify_replays_and_closes_a_whole_rollout(server):
    async with rollout(server, **ROW) as attempt:
        assert (await attempt.verify(reply("baa", "moo", "moo"))).reward == 1.0
    assert (len(server.closed), server.games) == (1, {})
