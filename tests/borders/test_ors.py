"""ORS: rollouts on small servers with faults, and on real servers of both packages (`make borders-ors`)."""

import asyncio
import json
import subprocess
from pathlib import Path

import aiohttp
import pytest

from nemo_gym import EnvironmentFailed, InvalidTask, JudgeFailed, OutOfTurn, Overloaded
from nemo_gym.jsonl import read_rows
from nemo_gym.testing import FakeModel, call, make_server, reply, rollout, run, serving
from resources_servers.ors.app import OrsServer
from resources_servers.ors.group_app import OrsGroupServer
from resources_servers.ors.prepare import prepare
from resources_servers.ors.tests.stub import ends_with, replies, result, says, status, streams, stub
from responses_api_agents.aviary_agent.app import AviaryAgent

REPOSITORY = Path(__file__).parents[2]
HAS_BOTH = "from importlib.util import find_spec; raise SystemExit(not all(map(find_spec, ('ors', 'openreward'))))"
TASK = {"split": "train", "index": 0}
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
IMAGE = {"type": "image", "data": PIXEL, "mimeType": "image/png"}
PART = {"type": "input_image", "image_url": f"data:image/png;base64,{PIXEL}", "detail": "auto"}
SECRET = 'open "sesame"'


def server_of(address, **settings):
    return make_server(OrsServer, address=address, **settings)


def agent_of(server, *turns):
    model = FakeModel(turns)
    place = {"type": "resources_servers", "name": server.config.name}
    return make_server(AviaryAgent, model=model, servers=[server], resources_server=place), model


async def played(server, *turns):
    agent, model = agent_of(server, *turns)
    graded = await run(agent, ors=TASK)
    return graded, model


async def test_finished_ends_the_rollout():
    async with stub(call=replies(result(reward=0.25), result(), result(reward=1, finished=True))) as (seen, address):
        graded, model = await played(server_of(address), call("guess"), call("guess"), call("guess"), "never asked")
        assert (graded.reward, graded.rewards, graded.finished) == (1.0, [0.25, 1.0], True)
        assert len(model.requests) == 3
        assert model.requests[0]["tools"][0]["name"] == "guess"
        assert "hidden" in model.requests[0]["input"][0]["content"]
        assert seen.asked("delete") == 1
        graded, _ = await played(server_of(address, reward="sum"), call("guess"))
        assert graded.reward == 1.0


@pytest.mark.parametrize(("reward", "earned"), [("last", -0.5), ("sum", 0.5)])
async def test_dense_rewards_are_summed_on_request(reward, earned):
    async with stub(call=replies(result(reward=1), result(reward=-0.5), result())) as (_, address):
        graded, _ = await played(
            server_of(address, reward=reward), call("guess"), call("guess"), call("guess"), "Done."
        )
        assert (graded.reward, graded.finished) == (earned, False)


async def test_images_reach_the_model():
    blocks = [{"type": "text", "text": "See:"}, IMAGE]
    async with stub(prompt=says(blocks), call=result(blocks=blocks)) as (_, address):
        server = server_of(address)
        _, model = await played(server, call("guess"), "I see.")
        assert model.requests[0]["input"][0]["content"][1] == PART
        assert model.requests[1]["input"][-1]["output"] == [{"type": "input_text", "text": "See:"}, PART]
        async with rollout(server, ors=TASK) as attempt:
            assert (await attempt.call("guess"))[1]["image_url"] == PART["image_url"]


async def test_wrong_calls_are_answered_without_the_server():
    async with stub() as (seen, address), serving(server := server_of(address)) as client:
        with pytest.raises(OutOfTurn, match="must begin a task first"):
            await client.post("/step", json={"action": []})
        async with rollout(server, ors=TASK) as attempt:
            for arguments, problem in (("{", "not valid JSON"), ("[]", "a JSON object, found list")):
                assert problem in await attempt.send(call("guess").model_copy(update={"arguments": arguments}))
            assert seen.asked("call") == 0
            assert "whole number" in await attempt.call("no_such_tool")
            assert (await attempt.verify()).reward == 0.0


JSON_BOMB = "[" * 100_000
FAULTS = {
    "silent": (streams(ends="silent"), {"silence_s": 0.1}, "the server sends nothing"),
    "endless comments": (
        streams(": ping\n\n", ends="endless"),
        {"call_timeout_s": 0.3},
        "no complete reply within 0.3 s",
    ),
    "endless chunks": (
        streams("event: chunk\ndata: x\n\n", ends="endless"),
        {"max_reply_mb": 0.1},
        "larger than 0.1 MB",
    ),
    "one endless line": (streams("data: ", "x" * 9999, ends="endless"), {"max_reply_mb": 0.5}, "larger than 0.5 MB"),
    "64 MB": (streams(f"event: end\ndata: {'x' * 2**26}\n\n"), {}, "larger than 16 MB"),
    "closes at once": (streams(ends="aborted", task_id=""), {}, "no usable reply"),
    "ends at once": (streams(task_id=""), {}, "ended without a result"),
    "error event": (streams("event: error\ndata: KeyError: 'x'\n\n"), {}, "the call failed: KeyError: 'x'"),
    "unknown events": (streams("hello\n\nevent: what\ndata: 1\n\n\xff", task_id=""), {}, "ended without a result"),
    "error status": (status(500, "boom"), {}, "answered 500: boom"),
    "redirect": (status(307, Location="http://127.0.0.1:1/"), {}, "answered 307"),
    "expired": (status(404, "Active environment not found"), {}, "The session has expired"),
    "not JSON": (ends_with("{"), {}, "the reply is not JSON"),
    "deep JSON": (ends_with(JSON_BOMB), {}, "the reply is not JSON"),
    "not a result": (ends_with("[]"), {}, "the reply is not valid"),
    "text as reward": (result(reward="1"), {}, "output.reward: Input should be a valid number"),
    "bool as reward": (result(reward=True), {}, "output.reward: Input should be a valid number"),
    "NaN as reward": (result(reward=float("nan")), {}, "the reply is not JSON"),
    "infinite reward": (ends_with('{"ok":true,"output":{"reward":1e999}}'), {}, "the reply is not"),
    "odd blocks": (result(blocks=[{"type": "video"}]), {}, "output.blocks.0"),
}


@pytest.mark.parametrize("name", FAULTS)
async def test_failed_call_fails_the_rollout(name):
    fault, settings, problem = FAULTS[name]
    async with stub(call=fault) as (seen, address):
        server = server_of(address, **settings)
        with pytest.raises(EnvironmentFailed, match="tool 'guess'") as raised:
            await played(server, call("guess"))
        assert problem in str(raised.value)
        assert seen.asked("delete") == 1
        async with rollout(server, ors=TASK) as attempt:
            for _ in range(2):
                with pytest.raises(EnvironmentFailed):
                    await attempt.call("guess")
            # The reward is unknown, which is not a reward of 0.
            with pytest.raises(EnvironmentFailed):
                await attempt.verify()


async def test_broken_stream_is_resumed_without_a_second_call():
    broken = [streams(ends="aborted"), streams('event: chunk\ndata: {"ok":\n\n', ends="aborted")]
    async with stub(call=replies(*broken, result(reward=1, finished=True))) as (seen, address):
        graded, _ = await played(server_of(address), call("guess"))
        assert graded.reward == 1.0
        assert [body.get("task_id") for route, body, _ in seen.seen if route == "call"] == [None, "t1", "t1"]


async def test_resumes_are_limited():
    async with stub(call=streams(ends="aborted")) as (seen, address):
        with pytest.raises(EnvironmentFailed, match="no usable reply"):
            await played(server_of(address), call("guess"))
        assert seen.asked("call") == 4


async def test_server_without_room_is_asked_again():
    async with stub(create=replies(status(503), status(429), says({}))) as (seen, address):
        graded, _ = await played(server_of(address), "I give up.")
        assert (graded.reward, seen.asked("create")) == (0.0, 3)
    async with stub(create=status(503, "full")) as (_, address):
        with pytest.raises(
            Overloaded, match=r"POST /create: the server is still full after 0\.3 s .*answered 503: full"
        ):
            await played(server_of(address, overload_wait_s=0.3), "I give up.")
    # A task's setup is not an overload, and has a limit of its own.
    starting = replies(*[status(503, X_Backend_State="starting", Retry_After="0")] * 3, says([]))
    async with stub(prompt=starting) as (seen, address):
        await played(server_of(address, overload_wait_s=0.0), "I give up.")
        assert seen.asked("prompt") == 4


@pytest.mark.parametrize(
    ("faults", "settings", "error", "problem"),
    [
        (
            {"create": status(400, "Invalid index")},
            {},
            InvalidTask,
            "Invalid index. The server rejects the row's task",
        ),
        ({"create": status(422)}, {}, InvalidTask, "answered 422"),
        ({"create": status(401)}, {}, EnvironmentFailed, "answered 401"),
        ({"create_session": streams(task_id="")}, {}, EnvironmentFailed, "ended without a result"),
        ({"prompt": status(500)}, {}, EnvironmentFailed, "GET /number/prompt: answered 500"),
        ({"prompt": says({})}, {}, EnvironmentFailed, "the reply is not valid"),
        ({"prompt": streams(ends="silent")}, {"setup_timeout_s": 0.3}, EnvironmentFailed, "no complete reply"),
        ({"task_tools": says({"tools": [{}]})}, {}, EnvironmentFailed, "tools.0.name"),
    ],
)
async def test_failed_start_fails_the_rollout(faults, settings, error, problem):
    async with stub(**faults) as (_, address):
        server = server_of(address, **settings)
        async with serving(server) as client:
            row = {"responses_create_params": {"input": []}, "ors": TASK}
            with pytest.raises(error) as raised:
                await client.post("/seed_session", json=row)
            assert problem in str(raised.value)


async def test_two_rollouts_never_share_a_session():
    async with stub(create_session=ends_with(""), create=says({})) as (_, address):
        server = server_of(address)
        async with rollout(server, ors=TASK):
            with pytest.raises(EnvironmentFailed, match="no session id, or one that is in use"):
                async with rollout(server, ors=TASK):
                    pass
        async with rollout(server, ors=TASK):
            pass


async def test_missing_server_fails_the_rollout():
    with pytest.raises(EnvironmentFailed, match=r"GET /list_environments: .*Cannot connect"):
        await played(server_of("http://127.0.0.1:1"), "hi")


async def test_sessions_are_kept_alive_and_deleted():
    async with stub(ping=replies(status(500), says({}))) as (seen, address):
        async with rollout(server_of(address, ping_s=0.01), ors=TASK):
            await asyncio.wait_for(seen.pinged.wait(), 60)
            assert seen.asked("delete") == 0
        assert (seen.asked("delete"), seen.asked("delete_session")) == (1, 1)
        pings = seen.asked("ping")
        await asyncio.sleep(0.1)
        assert seen.asked("ping") == pings >= 3


@pytest.mark.parametrize("is_openreward", [True, False])
async def test_secrets_reach_the_environment_only(is_openreward, tmp_path, monkeypatch):
    echo = {"blocks": [{"type": "text", "text": f"<{SECRET}> <{json.dumps(SECRET)}>"}], "metadata": {"key": SECRET}}
    version = {"version": says({"version": "0.1.157"})} if is_openreward else {}
    async with stub(call=replies(result(**echo), status(500, SECRET)), **version) as (seen, address):
        server = server_of(address, secrets=json.dumps({"KEY": SECRET}), api_key="my-api-key")
        async with rollout(server, ors=TASK) as attempt:
            assert await attempt.call("guess") == '<[redacted]> <"[redacted]">'
            with pytest.raises(EnvironmentFailed, match=r"answered 500: \[redacted\]"):
                await attempt.call("guess")
        (created,) = [(body, headers) for route, body, headers in seen.seen if route == "create"]
        assert ("secrets" in created[0], "X-Secrets" in created[1]) == (not is_openreward, is_openreward)
        assert created[1]["X-API-Key"] == "my-api-key"
        monkeypatch.setenv("ORS_SECRETS", json.dumps({"KEY": SECRET}))
        made = await asyncio.to_thread(prepare, tmp_path / "rows.jsonl", address, "example", 5)
        assert b"sesame" not in made.read_bytes()


async def test_terminal_tool_gets_the_last_message():
    tools = {"tools": [], "terminal_tool": {"name": "submit", "arg": "text"}}
    async with stub(task_tools=says(tools), call=result(reward=1, finished=True)) as (seen, address):
        server = server_of(address)
        graded, model = await played(server, "My answer.")
        assert (graded.reward, len(model.requests)) == (1.0, 1)
        # Agents that do not step have it called when they verify.
        async with rollout(server, ors=TASK) as attempt:
            assert (await attempt.verify(reply("My answer."))).reward == 1.0
        calls = [body for route, body, _ in seen.seen if route == "call"]
        assert calls == [{"name": "submit", "input": {"text": "My answer."}}] * 2


async def test_address_without_a_name_is_the_first_environment():
    async with stub(list_environments=says(["number", "other"]), task_tools=status(404), create=says({})) as (
        seen,
        address,
    ):
        server = server_of(address.removesuffix("/number"))
        async with rollout(server, ors={"task_spec": {"a": 1}}, responses_create_params={"input": "Hi"}):
            pass
    assert ("create", {"env_name": "number", "task_spec": {"a": 1}}) in [each[:2] for each in seen.seen]


def grouped(address, **settings):
    return make_server(OrsGroupServer, address=address, group_verification={}, **settings)


async def test_groups_are_scored_by_the_environment():
    scores = {"scores": [{"reward": 1, "metadata": {"why": "longer"}}, {"reward": 0}]}
    async with stub(score_group=ends_with(json.dumps(scores))) as (seen, address):
        async with rollout(grouped(address), ors=TASK) as attempt:
            graded = await attempt.verify(reply("A long answer."), compared_with=[reply("No.")])
        assert (graded.reward, graded.score) == (1.0, {"why": "longer"})
        (asked,) = [body["candidates"] for route, body, _ in seen.seen if route == "score_group"]
        texts = [each["messages"][0]["blocks"][0]["text"] for each in asked]
        assert texts == ["A long answer.", "No."]
        assert seen.asked("delete") == seen.asked("create") == 2


@pytest.mark.parametrize(
    ("fault", "problem"),
    [
        (status(404, "does not implement score_group"), "does not implement score_group"),
        (ends_with('{"scores": []}'), "0 scores for 2 rollouts"),
        (ends_with('{"scores": [{"reward": null}, {"reward": 0}]}'), "scores.0.reward"),
        (streams(ends="silent"), "sends nothing"),
    ],
)
async def test_failed_scores_are_failures_of_the_judge(fault, problem):
    async with (
        stub(score_group=fault) as (_, address),
        rollout(grouped(address, silence_s=0.2), ors=TASK) as attempt,
    ):
        with pytest.raises(JudgeFailed, match=problem):
            await attempt.verify(reply("A"), compared_with=[reply("B")])


@pytest.fixture(scope="module", params=["ors", "openreward"])
def real_address(request):
    """The address of the environment in ors_server.py, served by each package."""
    python = REPOSITORY / ".venv-ors/bin/python"
    if not python.is_file() or subprocess.run([python, "-c", HAS_BOTH], check=False).returncode:
        pytest.skip("no Python with ors-sdk and openreward: run `make borders-ors`")
    program = [python, Path(__file__).with_name("ors_server.py"), request.param]
    with subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        assert server.stdout is not None
        yield f"http://127.0.0.1:{int(server.stdout.readline())}/words"
        server.terminate()


@pytest.mark.slow
async def test_real_servers_are_played(real_address, tmp_path):
    made = await asyncio.to_thread(prepare, tmp_path / "rows.jsonl", real_address, "test")
    rows = list(read_rows(made))
    assert [row["ors"] for row in rows] == [{"split": "test", "index": index} for index in range(5)]
    assert rows[0]["responses_create_params"]["input"][0]["content"] == [
        {"type": "input_text", "text": "Say test-0."},
        PART,
    ]
    server = server_of(real_address, reward="sum", secrets={"KEY": SECRET})
    for number, row in enumerate(rows):
        agent, model = agent_of(
            server, call("look"), call("say", text="secret"), call("say", wrong=1), call("say", text=f"test-{number}")
        )
        graded = await run(agent, **row)
        assert (graded.reward, graded.rewards, graded.finished) == (1.25, [0.25, 0.0, 1.0], True)
        outputs = [each["output"] for each in model.requests[-1]["input"] if "output" in each]
        assert outputs[:2] == [[PART], "[redacted]"]
        assert "validation error" in outputs[2]
    with pytest.raises(EnvironmentFailed, match="a bug of the environment"):
        await played(server, call("say", text="crash"))
    with pytest.raises(InvalidTask, match="Invalid index"):
        await run(agent_of(server, "hi")[0], ors={"split": "test", "index": 5})


@pytest.mark.slow
async def test_real_servers_score_groups_if_they_can(real_address):
    async with rollout(grouped(real_address), ors=TASK) as attempt:
        async with aiohttp.ClientSession() as http, http.get(f"{real_address}/tools") as listed:
            scores = (await listed.json()).get("supports_score_group")
        if scores:
            graded = await attempt.verify(reply("long"), compared_with=[reply("no")])
            assert graded.reward == 4.0
        else:
            with pytest.raises(JudgeFailed, match="score_group"):
                await attempt.verify(reply("long"), compared_with=[reply("no")])


@pytest.mark.slow
def test_real_servers_are_played_by_the_command(real_address, workplace):
    workplace.env["ORS_SECRETS"] = json.dumps({"KEY": SECRET})
    words = ["--from", f"ors:{real_address}", "--split", "test", "--model-type", "sample_model"]
    done = workplace.run("ng", "eval", "run", *words, "--output", "results/a.jsonl")
    assert done.code == 0, done.err
    written = b"".join(path.read_bytes() for path in workplace.folder.rglob("*") if path.is_file())
    assert (b'"word"' in written or b"words" in written, b"sesame" in written) == (True, False)
    assert [path.read_text() for path in workplace.folder.glob("results/*_failures.jsonl")] == [""]
    assert "10 of 10 promises kept" in workplace.run("ng", "env", "check", *words[:2]).out
    wrong = workplace.run("ng", "eval", "run", *words[:3], "tset", *words[4:], "--output", "results/b.jsonl")
    assert (wrong.code, "the server's splits are: train, test." in wrong.err) == (1, True)
