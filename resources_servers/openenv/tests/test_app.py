"""Episodes on a small OpenEnv server: rewards, tools, errors, capacity, and servers that break the protocol."""

import asyncio
import json

import pytest

from nemo_gym import EnvironmentFailed, InvalidTask, Overloaded
from nemo_gym.testing import call, make_server, reply, rollout, serving
from resources_servers.openenv.app import OpenEnvServer
from resources_servers.openenv.link import Address
from resources_servers.openenv.prepare import prepare
from resources_servers.openenv.tests.stub import MCP_SCHEMA, TOOLS, error, game, observation, stub, tools

TIMEOUT_S = 60.0
SECRET = "not-to-be-shown"


def server_of(server, **settings):
    return make_server(OpenEnvServer, address=server.address, **settings)


def move(value):
    return call("act", move=value)


async def ended(server):
    return await asyncio.wait_for(server.ended.get(), TIMEOUT_S)


@pytest.mark.parametrize(("how", "reward"), [("sum", 1.5), ("last", -1.0), ("max", 2.0)])
async def test_rewards_are_combined_as_configured(how, reward):
    async with stub(game) as server:
        async with rollout(server_of(server, reward=how), reset={"seed": 3}) as attempt:
            for value in ("0.5", "2", "-1"):
                assert await attempt.call("act", move=value) == '{"board":"on"}'
            graded = await attempt.verify(reply("Done."))
        assert await ended(server) == 1
    assert (graded.reward, graded.steps, graded.done) == (reward, 3, False)
    assert server.messages[0][0] == {"type": "reset", "data": {"seed": 3}}
    assert server.messages[0][-1] == {"type": "close"}


async def test_mcp_tools_become_tools_of_the_rollout():
    async with stub(tools, MCP_SCHEMA) as server, serving(server_of(server)) as client:
        seeded = (await client.post("/seed_session", json={"responses_create_params": {"input": []}})).json()
        turn = [call("add", a=number).model_copy(update={"call_id": f"c{number}"}) for number in (5, 0, 1)]
        turn.append(call("subtract", a=1))
        action = [item.model_dump() for item in turn]
        stepped = (await client.post("/step", json={"env_id": seeded["env_id"], "action": action})).json()
    assert seeded["obs"] == []
    (tool,) = seeded["tools"]
    assert (tool["name"], tool["description"], tool["parameters"]) == ("add", "Add.", TOOLS[0]["input_schema"])
    added, failed, picture, unknown = [item["output"] for item in stepped["obs"]]
    assert (added, failed) == ("add", "Error: a must not be 0")
    assert picture[1] == {"type": "input_image", "detail": "auto", "image_url": "data:image/png;base64,aGk="}
    assert unknown == "Error: unknown tool 'subtract'. The tools are: add."
    assert (stepped["reward"], stepped["done"]) == (1.5, False)
    assert server.messages[0][2]["data"] == {"type": "call_tool", "tool_name": "add", "arguments": {"a": 5}}


async def test_action_of_several_kinds_is_an_argument():
    shared = {"Left": {"type": "object", "properties": {"move": {"type": "string"}}}}
    schema = {"$ref": "#/$defs/Left", "$defs": shared}
    async with stub(game, schema) as server, serving(server_of(server)) as client:
        seeded = (await client.post("/seed_session", json={"responses_create_params": {"input": []}})).json()
        assert (await client.post("/act", json={"action": {"move": "1"}})).text == '{"board":"on"}'
    assert seeded["tools"][0]["parameters"] == {
        "type": "object", "properties": {"action": {"$ref": "#/$defs/Left"}}, "required": ["action"], "$defs": shared,
    }  # fmt: skip


async def test_errors_of_an_action_are_shown_to_the_model():
    async with stub(game) as server, rollout(server_of(server)) as attempt:
        assert await attempt.call("act", move="crash") == "Error: the dice fell off"
        assert await attempt.call("act") == "Error: Invalid message; move: Field required"
        assert await attempt.send(call("act").model_copy(update={"arguments": "[1]"})) == (
            "Error: the arguments are not a JSON object."
        )
        assert await attempt.call("act", move="1") == '{"board":"on"}'
        assert (await attempt.verify(reply("Done."))).reward == 1.0


async def test_rollouts_have_connections_of_their_own():
    async with stub(game) as server:
        own = server_of(server)
        async with rollout(own, reset={"seed": 1}) as first, rollout(own, reset={"seed": 2}) as second:
            await first.call("act", move="1")
            await second.call("act", move="2")
            rewards = [(await each.verify(reply("Done."))).reward for each in (first, second)]
    assert rewards == [1.0, 2.0]
    assert [len(messages) for messages in server.messages] == [3, 3]


async def test_pings_are_answered_while_the_model_writes():
    pinged = asyncio.Event()

    async def greet(socket):
        socket._autoping = False
        await socket.ping()

    async def answer(socket, message):
        await game(socket, message)
        if message["type"] == "reset":
            # The next frame is the answer to the ping, before any step.
            await socket.receive()
            pinged.set()

    async with stub(answer, greet=greet) as server, rollout(server_of(server)) as attempt:
        await asyncio.wait_for(pinged.wait(), TIMEOUT_S)
        assert await attempt.call("act", move="1") == '{"board":"on"}'


async def test_stored_rollout_is_played_again():
    async with stub(game) as server, serving(server_of(server)) as client:
        row = {"responses_create_params": {"input": []}, "reset": {"seed": 7}}
        response = reply(move("1"), move("crash"), move("2")).model_dump(mode="json")
        graded = (await client.post("/verify", json={**row, "response": response})).json()
    assert (graded["reward"], graded["steps"], server.messages[0][0]["data"]) == (3.0, 3, {"seed": 7})


async def test_free_session_is_awaited():
    refusals = 2

    async def greet(socket):
        nonlocal refusals
        if refusals:
            refusals -= 1
            await socket.send_str(error("CAPACITY_REACHED", "1 of 1 sessions"))
            await socket.close()

    async with stub(game, greet=greet) as server, rollout(server_of(server)) as attempt:
        assert await attempt.call("act", move="1") == '{"board":"on"}'
    assert len(server.messages) == 3


@pytest.mark.parametrize("status", [0, 503])
async def test_lasting_lack_of_capacity_is_overload(status):
    async def answer(socket, message):
        await socket.send_str(error("CAPACITY_REACHED", "1 of 1 sessions"))

    async with stub(answer) as server:
        server.refused_with = status
        with pytest.raises(Overloaded, match=r"had no free session for 0\.3 s \((1 of 1 sessions|status 503)\)"):
            async with rollout(server_of(server, capacity_wait_s=0.3)):
                pass


async def close(socket):
    await socket.close()


async def be_silent(socket):
    await asyncio.sleep(TIMEOUT_S)


async def cut(socket):
    socket._req.transport.abort()


async def flood(socket):
    while True:
        await socket.send_str(observation({"board": "more"}))


async def flood_pings(socket):
    while True:
        await socket.ping(b"x" * 100)


def sends(text):
    async def send(socket):
        await (socket.send_str(text) if isinstance(text, str) else socket.send_bytes(text))

    return send


FAULTS = {
    "close": (close, "closed the connection"),
    "cut": (cut, "the connection failed|closed the connection"),
    "silence": (be_silent, "no reply to (reset|step) within 0.5 s"),
    "pings": (flood_pings, "no reply to (reset|step) within 0.5 s|closed the connection|the connection failed"),
    "binary": (sends(b"{}"), "sent a binary message"),
    "text": (sends("hello"), "sent an invalid message: 'hello'"),
    "list": (sends("[1]"), "sent an invalid message"),
    "no data": (sends('{"type":"observation"}'), "sent an invalid message"),
    "half a character": (sends('{"type":"observation","data":{"observation":"\\ud83d"}}'), "sent an invalid message"),
    "another type": (sends('{"type":"state","data":{}}'), "state: an unexpected message"),
    "text as observation": (sends(json.dumps({"type": "observation", "data": {"observation": "x"}})), "invalid obs"),
    "reward of no number": (sends(observation({}, "much")), "invalid observation: reward"),
    "infinite reward": (sends(observation({}, float("inf"))), "sent an invalid message"),
    "large infinite reward": (sends(observation({}, 1).replace(" 1,", " 1e999,")), "invalid"),
    "deep": (
        sends('{"type":"observation","data":{"observation":{"a":' + "[" * 500 + "]" * 500 + "}}}"),
        "invalid obs",
    ),
    "64 MB": (sends(observation({"board": "x" * 64_000_000})), "the connection failed: .*exceeds|closed the connec"),
    "FACTORY_ERROR": (sends(error("FACTORY_ERROR", "no GPU")), "FACTORY_ERROR: no GPU"),
    "SESSION_ERROR": (sends(error("SESSION_ERROR")), "SESSION_ERROR: no"),
    "INVALID_JSON": (sends(error("INVALID_JSON")), "INVALID_JSON: no"),
    "UNKNOWN_TYPE": (sends(error("UNKNOWN_TYPE")), "UNKNOWN_TYPE: no"),
    "error without a code": (sends('{"type":"error","data":{}}'), "an error without a code"),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("place", ["reset", "step"])
async def test_hostile_server_fails_the_rollout_without_a_reward(fault, place):
    break_protocol, problem = FAULTS[fault]

    async def answer(socket, message):
        await (break_protocol(socket) if message["type"] == place else game(socket, message))

    async with stub(answer) as server:
        own = server_of(server, reply_timeout_s=0.5)
        if place == "reset":
            with pytest.raises(EnvironmentFailed, match=problem):
                async with rollout(own):
                    pass
            return
        async with rollout(own) as attempt:
            for _ in range(2):
                with pytest.raises(EnvironmentFailed, match=problem):
                    await attempt.call("act", move="1")
            with pytest.raises(EnvironmentFailed, match="lost during a step"):
                await attempt.verify(reply("Done."))


async def act_forever(attempt):
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            await attempt.call("act", move="1")


async def test_second_reply_to_a_request_fails_the_rollout():
    async def answer(socket, message):
        await game(socket, message)
        if message["type"] == "step":
            await socket.send_str(observation({"board": "again"}, 100.0))

    async with stub(answer) as server, rollout(server_of(server)) as attempt:
        with pytest.raises(EnvironmentFailed, match="sent a message without a request"):
            await act_forever(attempt)
        with pytest.raises(EnvironmentFailed, match="sent a message without a request"):
            await attempt.verify(reply("Done."))


async def test_flood_ends_with_the_rollout():
    async def answer(socket, message):
        await (game(socket, message) if message["type"] == "reset" else flood(socket))

    async with stub(answer) as server:
        async with rollout(server_of(server)) as attempt:
            assert await attempt.call("act", move="1") == '{"board":"more"}'
        assert await ended(server) == 1


async def test_unreachable_server_is_named_without_credentials():
    address = f"ws://user:{SECRET}@127.0.0.1:9/ws?token={SECRET}"
    with pytest.raises(EnvironmentFailed, match=r"at ws://127\.0\.0\.1:9: no reply to /schema") as raised:
        async with rollout(make_server(OpenEnvServer, address=address)):
            pass
    assert SECRET not in str(raised.value)


async def test_reset_that_rejects_the_row_is_an_invalid_task():
    async def answer(socket, message):
        await socket.send_str(error("VALIDATION_ERROR", "seed must be positive"))

    async with stub(answer) as server:
        with pytest.raises(InvalidTask, match="reset: VALIDATION_ERROR: seed must be positive"):
            async with rollout(server_of(server), reset={"seed": -1}):
                pass


@pytest.mark.parametrize(
    "schema", ["x", {"properties": []}, {"properties": {"type": "x"}}, {"properties": {"a": 1, "type": [1]}}]
)
async def test_invalid_schema_fails_the_rollout(schema):
    async with stub(game, schema) as server:
        with pytest.raises(EnvironmentFailed, match="its action schema or its list of tools is invalid"):
            async with rollout(server_of(server)):
                pass


@pytest.mark.parametrize("listed", [[], [1], "x", [{"name": 1}], [{"name": "a.b"}, {"name": "a_b"}]])
async def test_invalid_list_of_tools_fails_the_rollout(listed):
    async def answer(socket, message):
        await socket.send_str(observation({"tools": listed}))

    async with stub(answer, MCP_SCHEMA) as server:
        with pytest.raises(EnvironmentFailed, match="its action schema or its list of tools is invalid"):
            async with rollout(server_of(server)):
                pass


async def test_action_without_arguments_is_a_tool():
    async def answer(socket, message):
        is_listing = message["data"].get("type") == "list_tools"
        await socket.send_str(error("VALIDATION_ERROR") if is_listing else observation({"light": "on"}, 1.0))

    async with stub(answer, MCP_SCHEMA) as server, rollout(server_of(server)) as attempt:
        assert await attempt.call("act") == '{"light":"on"}'
    assert server.messages[0][2] == {"type": "step", "data": {}}


async def test_rows_are_the_tasks_of_the_split(tmp_path):
    async with stub(game) as server:
        server.routes = {
            "/metadata": {"name": "Chess", "description": "Mate in two"},
            "/list_environments": ["chess_env"],
            "/chess_env/splits": [{"name": "train"}, {"name": "test"}],
            "/chess_env/num_tasks": {"num_tasks": 2},
        }
        path = await asyncio.to_thread(prepare, tmp_path / "rows.jsonl", server.address, split="test")
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        with pytest.raises(ValueError, match=r"does not have the split 'dev'\. Its splits are: train, test"):
            await asyncio.to_thread(prepare, path, server.address, split="dev")
        server.routes = {}
        await asyncio.to_thread(prepare, path, server.address, count=3, seed=5)
    assert [row["reset"] for row in rows] == [{"split": "test", "index": 0}, {"split": "test", "index": 1}]
    assert rows[0]["responses_create_params"]["input"][0]["content"] == (
        "You are in the environment 'Chess'. Mate in two. Act with the tools until the episode ends."
    )
    assert [json.loads(line)["reset"]["seed"] for line in path.read_text().splitlines()] == [5, 6, 7]


def test_addresses_are_parsed():
    assert Address.of("ws://h:1/ws") == ("ws://h:1/ws", "http://h:1", "ws://h:1")
    assert Address.of("https://u:p@h/space/") == ("wss://u:p@h/space/ws", "https://u:p@h/space", "https://h/space")
    for wrong in ("h:8000", "ftp://h", "ws://", "ws://h:x", "ws://h/ws?session_id=a"):
        with pytest.raises(ValueError, match=r"expected the address|remove session_id|Port could not be cast"):
            Address.of(wrong)
