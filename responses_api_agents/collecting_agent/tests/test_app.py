"""The collector returns what the agent returned, or keeps it and returns an entry for it."""

import asyncio
import json
import shutil

import httpx
import pytest
from fastapi import Request, Response
from pydantic import Field, PrivateAttr

from nemo_gym import AgentFailed, DataError, SimpleResponsesAPIAgent, current_rollout_id
from nemo_gym.testing import make_server, on_a_port, serving
from responses_api_agents.collecting_agent.app import RolloutCollector

SHARD = {"x-nemo-gym-shard": "out.0123"}
ANSWER = {"output": ["a long story " * 100], "usage": {"input_tokens": 3, "output_tokens": 4}, "model": "small"}
PROBLEM = b'{"title": "no", "status": 503, "detail": "later", "failure_class": "overloaded", "server": "games"}'


class Scripted(SimpleResponsesAPIAgent):
    """An agent that returns what the row asks for, and notes the headers and whether it was cancelled."""

    headers_seen: list[dict[str, str | None]] = Field(default_factory=list)
    _has_begun: asyncio.Event = PrivateAttr(default_factory=asyncio.Event)
    _was_cancelled: asyncio.Event = PrivateAttr(default_factory=asyncio.Event)

    async def responses(self, body: dict) -> None:
        raise NotImplementedError

    async def run(self, request: Request, body: dict) -> Response:
        self.headers_seen.append({**request.headers, "rollout": current_rollout_id()})
        self._has_begun.set()
        try:
            await asyncio.sleep(body.get("lasts_s", 0))
        except asyncio.CancelledError:
            self._was_cancelled.set()
            raise
        if "bytes" in body:
            return Response(body["bytes"], body["status"], {"content-type": "text/x", "retry-after": "7"})
        return Response(json.dumps({**body, "response": ANSWER, "reward": 1.0}))


def row(number=0, **fields):
    named = {"agent_ref": {"name": "scripted"}, "_ng_task_index": number, "_ng_rollout_index": 0}
    return {**named, "responses_create_params": {"input": "Go."}, "question": "why? " * 100, **fields}


@pytest.fixture
def agent():
    return make_server(Scripted, name="scripted")


@pytest.fixture
def collector(agent, tmp_path):
    (tmp_path / "shards").mkdir()
    return make_server(RolloutCollector, servers=[agent], shard_dir=str(tmp_path / "shards"))


def lines_in(folder):
    """Return the lines of the only shard in a folder."""
    [path] = folder.glob("*.jsonl")
    return path.read_bytes().splitlines()


@pytest.mark.parametrize("headers", [{}, SHARD])
@pytest.mark.parametrize(
    ("status", "body"),
    [
        (503, PROBLEM),
        (500, b"out of luck"),
        (200, b"<html>"),
        (200, b'{"reward": null}'),
        (200, b'{"reward": 1.0, "_ng_no_persist": true}'),
        (200, b'{"reward": 0.0, "_ng_failure_class": "judge_failed"}'),
    ],
)
async def test_other_replies_are_passed_on_unchanged(agent, collector, status, body, headers):
    async with serving(agent), serving(collector) as client:
        reply = await client.post("/run", json=row(bytes=body.decode(), status=status), headers=headers)
    assert (reply.status_code, reply.content) == (status, body)
    assert (reply.headers["content-type"], reply.headers["retry-after"]) == ("text/x", "7")


async def test_agent_receives_the_rollouts_headers(agent, collector):
    place = {"x-nemo-gym-group": "g;4;2", "x-nemo-gym-rollout": "7-3-a1", "x-nemo-gym-time-left": "60"}
    async with serving(agent), serving(collector) as client:
        assert (await client.post("/run", json=row(), headers=place)).status_code == 200
    [seen] = agent.headers_seen
    assert (seen["x-nemo-gym-group"], seen["rollout"]) == ("g;4;2", "7-3-a1")
    assert 30 < float(seen["x-nemo-gym-time-left"]) < 60


async def test_results_are_kept_in_the_shard(agent, collector, tmp_path):
    async with serving(agent), serving(collector) as client:
        whole = (await client.post("/run", json=row())).json()
        assert not list((tmp_path / "shards").iterdir())
        entry = (await client.post("/run", json=row(), headers=SHARD)).json()
    [line] = lines_in(tmp_path / "shards")
    assert json.loads(line) == whole
    assert entry.pop("_ng_shard")["path"].startswith(f"{tmp_path}/shards/out.0123.")
    response = {"model": "small", "usage": ANSWER["usage"]}
    names = ("agent_ref", "_ng_task_index", "_ng_rollout_index", "reward")
    assert entry == {**{name: whole[name] for name in names}, "response": response}


async def test_entries_keep_identity_and_mask(agent, collector):
    marks = {"mask_sample": True, "skills_ref": {"path": "p" * 300}, "instance_config": {"long": "x" * 300}}
    async with serving(agent), serving(collector) as client:
        entry = (await client.post("/run", json=row(**marks), headers=SHARD)).json()
    assert (entry["mask_sample"], entry["instance_config"]) == (True, {"mask_sample": True})
    assert entry["skills_ref"] == {"path": "p" * 300}


async def test_simultaneous_results_are_all_kept(agent, collector, tmp_path):
    async with serving(agent), serving(collector) as client:
        rows = [row(number) for number in range(200)]
        replies = await asyncio.gather(*(client.post("/run", json=each, headers=SHARD) for each in rows))
    assert len({reply.json()["_ng_shard"]["line"] for reply in replies}) == 200
    assert {json.loads(line)["_ng_task_index"] for line in lines_in(tmp_path / "shards")} == set(range(200))


async def test_result_that_cannot_be_kept_is_returned(agent, collector, tmp_path):
    async with serving(agent), serving(collector) as client:
        shutil.rmtree(tmp_path / "shards")
        (tmp_path / "shards").touch()
        result = (await client.post("/run", json=row(), headers=SHARD)).json()
    assert result["response"] == ANSWER
    assert "File exists" in result["_ng_shard"]["problem"]
    assert "line" not in result["_ng_shard"]


@pytest.mark.parametrize(
    ("asked", "headers", "failure"),
    [
        (row(agent_ref=None), {}, "422 does not name an agent"),
        (row(agent_ref={"name": "rollout_collector"}), {}, "422 'rollout_collector', a collector"),
        (row(), {"x-nemo-gym-shard": "../elsewhere"}, "500 is not a valid shard name"),
        (row(lasts_s=60), {"x-nemo-gym-time-left": "0.3"}, "504 time was over"),
    ],
)
async def test_other_rows_fail_with_a_cause(agent, collector, asked, headers, failure):
    status, words = failure.split(" ", 1)
    async with serving(agent), on_a_port(collector) as url, httpx.AsyncClient(base_url=url) as client:
        reply = await client.post("/run", json=asked, headers=headers)
    assert (str(reply.status_code), words in reply.json()["detail"]) == (status, True), reply.text
    assert not any(collector.config.shard_dir.iterdir())


@pytest.mark.parametrize("headers", [{}, SHARD])
async def test_hang_up_of_the_caller_cancels_the_rollout(agent, collector, headers):
    async with serving(agent), on_a_port(collector) as url, httpx.AsyncClient(base_url=url) as client:
        asking = asyncio.create_task(client.post("/run", json=row(lasts_s=600), headers=headers))
        async with asyncio.timeout(60):
            await agent._has_begun.wait()
            asking.cancel()
            await agent._was_cancelled.wait()


async def test_shard_needs_a_folder(agent):
    collector = make_server(RolloutCollector, servers=[agent])
    async with serving(agent), serving(collector) as client:
        with pytest.raises(AgentFailed, match="shard_dir is not set"):
            await client.post("/run", json=row(), headers=SHARD)
    assert agent.headers_seen == []


def test_relative_folder_is_refused(agent):
    with pytest.raises(DataError, match=r"shard_dir: .*must be an absolute path"):
        make_server(RolloutCollector, servers=[agent], shard_dir="shards")
