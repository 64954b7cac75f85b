"""Aviary over HTTP: rollouts on task servers of the package, and on servers that break the protocol."""

import asyncio
import json
import select
import subprocess
import sys
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import httpx
import pytest
from aiohttp import web

from nemo_gym import DataError, EnvironmentFailed, InvalidTask, Overloaded
from nemo_gym.jsonl import read_rows
from nemo_gym.testing import FakeModel, call, make_server, reply, rollout, run, serving

pytest.importorskip("aviary.core", reason="Aviary is an extra: pip install 'nemo-gym[aviary]'")

from resources_servers.aviary.app import AviaryServer
from resources_servers.aviary.oracle import solve
from resources_servers.aviary.prepare import prepare
from responses_api_agents.aviary_agent.app import AviaryAgent

REPOSITORY = Path(__file__).parents[2]
STARTED_WITHIN_S = 300.0
KEY = "open sesame"
ROW = {"responses_create_params": {"input": []}, "task_idx": 0}
SOLUTION = "He has <<6*7=42>>42 apples.\n#### 42"


def server_of(address, **settings):
    return make_server(AviaryServer, address=address, dataset=None, **settings)


async def played(server, *turns, **row):
    place = {"type": "resources_servers", "name": server.config.name}
    agent = make_server(AviaryAgent, model=FakeModel(turns), servers=[server], resources_server=place)
    return await run(agent, **{"task_idx": 0, **row})


@pytest.fixture(scope="module")
def addresses():
    """Yield the addresses of task servers of the package, by name."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.borders.aviary_servers"], stdout=subprocess.PIPE, text=True
    ) as servers:
        try:
            assert select.select([servers.stdout], [], [], STARTED_WITHIN_S)[0], "the task servers did not start"
            ports = json.loads(servers.stdout.readline())
            yield {name: f"http://127.0.0.1:{port}" for name, port in ports.items()}
        finally:
            servers.kill()


@pytest.mark.slow
async def test_environment_of_another_process_is_won(addresses):
    server = server_of(addresses["museum"], api_key=KEY)
    rows = [{"task_idx": number} for number in (3, 8)]
    graded = await asyncio.gather(*(played(server, *solve(row), **row) for row in rows))
    assert [each.reward for each in graded] == [pytest.approx(1.0)] * 2
    assert graded[0].model_dump()["responses_create_params"]["tools"][0]["name"] == "look"


@pytest.mark.slow
async def test_stored_rollout_is_replayed_on_the_server(addresses):
    async with rollout(server_of(addresses["museum"], api_key=KEY), task_idx=3) as attempt:
        assert (await attempt.verify(reply(*solve({"task_idx": 3})))).reward == pytest.approx(1.0)


@pytest.mark.slow
async def test_arguments_of_a_row_are_sent(addresses):
    row = {"task": {"question": "6 * 7?", "answer": SOLUTION}}
    assert (await played(server_of(addresses["problems"]), *solve(row), **row)).reward == 1.0


@pytest.mark.slow
async def test_environments_are_closed_on_the_server(addresses):
    async with serving(server_of(addresses["dummy"])) as client:
        seeded = (await client.post("/seed_session", json=ROW)).json()
        async with httpx.AsyncClient(base_url=addresses["dummy"]) as http:
            assert len((await http.get("/info")).json()["running_env_ids"]) == 1
            await client.post("/close", json={"env_id": seeded["env_id"]})
            assert (await http.get("/info")).json()["running_env_ids"] == []


@pytest.mark.slow
async def test_text_instead_of_a_call_is_a_turn(addresses):
    graded = await played(server_of(addresses["fragile"]), "I would rather not.", task_idx=3)
    assert graded.reward == 1.0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "settings", "row", "kind", "problem"),
    [
        (
            "museum",
            {"api_key": "guess-123"},
            {},
            EnvironmentFailed,
            "/start: answered 403: Invalid or missing",
        ),
        ("fragile", {}, {"task_idx": 4}, InvalidTask, "/start: answered 500: IndexError"),
        ("fragile", {}, {"task_idx": 0}, EnvironmentFailed, "/reset: answered 500: ValueError.'the lamp is broken'"),
        ("fragile", {}, {"task_idx": 1}, EnvironmentFailed, "/step: answered 500: ValueError.'the switch is broken'"),
        ("fragile", {}, {"task_idx": 2}, EnvironmentFailed, "/step: "),
    ],
)
async def test_errors_of_the_package_fail_the_rollout(addresses, name, settings, row, kind, problem):
    with pytest.raises(kind, match=problem) as failed:
        await played(server_of(addresses[name], **settings), call("push", times=1), **row)
    assert "guess-123" not in str(failed.value)


@pytest.mark.slow
def test_tasks_of_a_server_are_run_and_checked(addresses, workplace):
    chosen = ["--from", f"aviary:{addresses['museum']}"]
    listed = workplace.run(
        "ng", "eval", "run", *chosen, "--limit", "2", "--model-type", "sample_model", "--output", "results/a.jsonl",
        AVIARY_API_KEY=KEY,
    )  # fmt: skip
    assert listed.code == 0, listed.out + listed.err
    text = (workplace.folder / "results/a.jsonl").read_text()
    assert [json.loads(line)["task_idx"] for line in sorted(text.splitlines())] == [0, 1]
    assert KEY not in text
    refused = workplace.run("ng", "list", "environments", *chosen)
    assert refused.code == 1
    assert "answered 403" in refused.err


def test_server_that_is_not_there_is_reported(tmp_path):
    with pytest.raises(DataError, match=r"127.0.0.1:9: /info: no usable reply: .*Check that the server runs"):
        prepare(tmp_path / "rows.jsonl", address="http://127.0.0.1:9")


class Stub:
    """A task server with one environment. Its routes can be replaced."""

    def __init__(self, **faults):
        self.faults, self.asked = faults, []

    async def answer(self, request):
        route = request.path.strip("/")
        self.asked.append(route)
        if route in self.faults:
            return await self.faults[route](request)
        replies = {
            "start": {"env_id": "e1"},
            "reset": [[{"role": "user", "content": "Push."}], []],
            "step": [[{"role": "user", "content": "Once more."}], 0.5, False, False],
            "close": {"env_id": "e1"},
            "info": {"dataset_size": 2, "running_env_ids": []},
        }
        return web.json_response(replies[route])


@asynccontextmanager
async def stub(**faults):
    given = Stub(**faults)
    app = web.Application()
    app.router.add_route("*", "/{route}", given.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield given, "http://{}:{}".format(*runner.addresses[0][:2])
    finally:
        await runner.cleanup()


def says(content, status=200, **headers):
    async def answer(_):
        return web.Response(text=content, status=status, headers=headers, content_type="application/json")

    return answer


async def silent(_):
    await asyncio.Event().wait()


async def aborts(request):
    request.transport.abort()
    return web.Response()


async def breaks_off(request):
    response = web.StreamResponse(headers={"Content-Length": "1000"})
    await response.prepare(request)
    await response.write(b"[[")
    request.transport.abort()
    return response


async def endless(request):
    response = web.StreamResponse()
    await response.prepare(request)
    with suppress(ConnectionError):
        while True:
            await response.write(b" " * 2**16)
    return response


async def drips(request):
    response = web.StreamResponse()
    await response.prepare(request)
    with suppress(ConnectionError):
        while True:
            await response.write(b" ")
            await asyncio.sleep(0.01)
    return response


FAULTS = {
    "silence": (silent, {"reply_timeout_s": 0.5}, "no reply within 0.5 s"),
    "endless": (endless, {}, "the reply is larger than 16 MB"),
    "drips": (drips, {"reply_timeout_s": 0.5}, "no reply within 0.5 s"),
    "64 MB": (
        says(json.dumps([[{"role": "user", "content": "x" * 2**26}], []])),
        {},
        "the reply is larger than 16 MB",
    ),
    "closed socket": (aborts, {}, "no usable reply"),
    "broken off": (breaks_off, {}, "no usable reply"),
    "not JSON": (says("{"), {}, "the reply is not JSON"),
    "deep JSON": (says("[" * 100_000 + "]" * 100_000), {}, "the reply is not JSON"),
    "another shape": (says('{"reward": 1}'), {}, "the reply is not valid"),
    "odd messages": (says('[[{"role": 5, "content": {"a": 1}}], [], false, false]'), {}, "the reply is not valid"),
    "redirect": (says("", 307, Location="http://127.0.0.1:9/"), {}, "answered 307"),
    "error": (says("boom", 500), {}, "answered 500: boom"),
}
REWARDS = ['"1"', "true", "null", "NaN", "1e999", "[1]"]


@pytest.mark.parametrize("route", ["start", "reset", "step"])
@pytest.mark.parametrize("fault", FAULTS)
async def test_broken_server_fails_the_rollout(fault, route):
    answer, settings, problem = FAULTS[fault]
    async with stub(**{route: answer}) as (server, address):
        with pytest.raises(EnvironmentFailed, match=f"/{route}: {problem}"):
            await played(server_of(address, **settings), "I push.", "I push.")
    # A step is not sent twice, because the first one may have had an effect.
    assert server.asked.count(route) == 1


@pytest.mark.parametrize("reward", REWARDS)
async def test_reward_that_is_not_a_number_fails_the_rollout(reward):
    async with stub(step=says(f"[[], {reward}, true, false]")) as (_, address):
        with pytest.raises(EnvironmentFailed, match="/step: the reply is not"):
            await played(server_of(address), "I push.")


async def test_lost_step_has_no_reward():
    async with stub(step=aborts) as (_, address), serving(server_of(address)) as client:
        seeded = (await client.post("/seed_session", json=ROW)).json()
        with pytest.raises(EnvironmentFailed, match="/step: no usable reply"):
            await client.post("/push", json={})
        assert seeded["env_id"]
        with pytest.raises(EnvironmentFailed, match="the reward is unknown"):
            await client.post("/verify", json={**ROW, "response": reply("Done.").model_dump(mode="json")})


async def test_full_server_is_overload():
    async with stub(start=says("later", 503)) as (_, address):
        with pytest.raises(Overloaded, match="/start: answered 503: later"):
            await played(server_of(address), "I push.")


async def test_failing_close_does_not_fail_the_rollout():
    for fault in (aborts, says("boom", 500), endless):
        async with stub(close=fault, step=says("[[], 1.0, true, false]")) as (server, address):
            assert (await played(server_of(address), "I push.")).reward == 1.0
            assert server.asked[-1] == "close"


async def test_rows_of_a_server_have_its_task_numbers(tmp_path):
    for size, expected in (("2", 2), ("null", 3)):
        async with stub(info=says(f'{{"dataset_size": {size}}}')) as (_, address):
            path = await asyncio.to_thread(prepare, tmp_path / f"{size}.jsonl", 3, address=address)
        assert [row["task_idx"] for row in read_rows(path)] == list(range(expected))
