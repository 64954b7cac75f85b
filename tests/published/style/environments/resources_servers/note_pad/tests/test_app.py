from unittest import IsolatedAsyncioTestCase
from unittest.mock import MagicMock

from fastapi.testclient import TestClient

from nemo_gym.openai_utils import NeMoGymResponse
from nemo_gym.server_utils import SESSION_ID_KEY, ServerClient
from resources_servers.note_pad.app import (
    NotePadConfig,
    NotePadResourcesServer,
    SeedRequest,
    Session,
    VerifyRequest,
    WriteRequest,
)


def make_server() -> NotePadResourcesServer:
    config = NotePadConfig(host="0.0.0.0", port=8080, entrypoint="", name="")
    return NotePadResourcesServer(config=config, server_client=MagicMock(spec=ServerClient))


RESPONSE = NeMoGymResponse(
    id="resp",
    created_at=0.0,
    model="dummy",
    object="response",
    output=[],
    parallel_tool_calls=True,
    tool_choice="auto",
    tools=[],
)


class TestApp(IsolatedAsyncioTestCase):
    async def test_methods(self) -> None:
        server = make_server()
        request = MagicMock()
        request.session = {SESSION_ID_KEY: "s"}
        await server.seed_session(request, SeedRequest(verifier_metadata={"first_lines": ["x"]}))
        assert isinstance(server._sessions["s"], Session)
        assert (await server.write(request, WriteRequest(line="y", at=0))).lines == ["y", "x"]
        body = VerifyRequest(
            responses_create_params={"input": "a"},
            response=RESPONSE,
            verifier_metadata={"expected_lines": ["y", "x"]},
            uuid="u",
        )
        graded = await server.verify(request, body)
        self.assertEqual((graded.reward, graded.uuid, graded.lines), (1.0, "u", ["y", "x"]))
        self.assertEqual((server._sessions, server.sessions), ({}, {}))

    def test_routes(self) -> None:
        server = make_server()
        server.tools = [{"name": "write"}]
        with TestClient(server.setup_webserver()) as client:
            assert server._cleanup_task is not None
            assert client.post("/read").status_code == 404
            client.post("/seed_session", json={"verifier_metadata": None, "other": 1})
            assert client.post("/write", json={"line": "a"}).json() == {"lines": ["a"]}
            assert client.get("/tools").json() == [{"name": "write"}]
            assert client.post("/close_session").json() == {"was_open": True}
            assert client.post("/close_session").json() == {"was_open": False}
