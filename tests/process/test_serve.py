"""A server's process builds the server and its app from settings and folder, or reports an error."""

import logging
import sys
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from nemo_gym.config.settings import BaseServerConfig
from nemo_gym.errors import ConfigError, LaunchError, ServerCallError
from nemo_gym.process.serve import ProcessSettings, build_app, build_server, load_module, server_class

pytestmark = pytest.mark.bare

PLAIN = """
from nemo_gym import BaseResourcesServerConfig, BaseVerifyRequest, SessionState, SimpleResourcesServer, tool

class PlainConfig(BaseResourcesServerConfig):
    greeting: str
    times: int = 1

class Plain(SimpleResourcesServer):
    config: PlainConfig

    @tool
    async def greet(self, name: str) -> str:
        '''Greet.'''
        return f"{self.config.greeting} {name}" * self.config.times

    async def verify(self, body: BaseVerifyRequest) -> float:
        raise ArithmeticError("never mind")
"""
KEEPS_STATE = PLAIN.replace("name: str", "name: str, seen: Seen").replace(
    "class Plain(", "class Seen(SessionState):\n    count: int = 0\n\nclass Plain("
)


@pytest.fixture(autouse=True)
def modules_and_paths():
    """Restore modules and paths, because folders of several tests have the same name."""
    modules, paths = dict(sys.modules), list(sys.path)
    yield
    sys.path[:] = paths
    for name in set(sys.modules) - set(modules):
        del sys.modules[name]


@pytest.fixture
def made(tmp_path):
    """Return a function that makes the settings for a folder `resources_servers/arena` with this source."""

    def make(source: str, **settings: Any) -> ProcessSettings:
        folder = tmp_path / "resources_servers" / "arena"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "app.py").write_text(source)
        defaults = {
            "name": "my_arena",
            "type": "resources_servers",
            "implementation": "arena",
            "entrypoint": "app.py",
            "folder": folder,
            "host": "127.0.0.1",
            "port": 4711,
            "settings": {"greeting": "hello"},
            "origins": {"greeting": ["arena.yaml", 5], "num_workers": ["arena.yaml", 7]},
            "plain": {"shared": 3},
            "addresses": {"policy": ["responses_api_models", "some_model", "10.0.0.1", 99]},
            "head": BaseServerConfig(host="127.0.0.1", port=11000),
            "cookie_secret": "s" * 64,
        }
        return ProcessSettings.model_validate({**defaults, **settings})

    return make


def client_of(settings: ProcessSettings) -> TestClient:
    return TestClient(build_app(build_server(settings), settings))


def test_server_has_its_typed_settings(made):
    server = build_server(made(PLAIN, settings={"greeting": "hi", "times": 2}))
    assert (server.config.name, server.config.host, server.config.port) == ("my_arena", "127.0.0.1", 4711)
    assert (server.config.greeting, server.config.times) == ("hi", 2)


def test_app_serves_tools_and_liveness(made):
    client = client_of(made(PLAIN))
    assert client.post("/greet", json={"name": "you"}).text == "hello you"
    for path in ("/", "/livez", "/readyz", "/healthz", "/health"):
        assert client.get(path).json() == {"status": "ok"}
    assert "/livez" not in client.get("/openapi.json").json()["paths"]


def test_failure_names_the_server_instance(made, caplog):
    row = {
        "responses_create_params": {"input": []},
        "response": {"id": "r", "created_at": 0, "model": "m", "output": []},
    }
    with caplog.at_level(logging.CRITICAL):
        answer = client_of(made(PLAIN)).post("/verify", json=row)
    assert (answer.status_code, answer.json()["server"]) == (500, "my_arena")
    assert answer.json()["failure_class"] == "environment_failed"
    assert "ArithmeticError" in answer.json()["detail"]


def test_restarted_server_reads_cookies_of_its_own_run(made):
    source = PLAIN.replace(
        "    async def verify",
        "    def setup_webserver(self):\n"
        "        app = super().setup_webserver()\n"
        "        app.post('/who')(self.who)\n"
        "        return app\n\n"
        "    async def who(self, request: Request) -> str:\n"
        "        return request.session['session_id']\n\n"
        "    async def verify",
    )
    source = "from fastapi import Request\n" + source
    one, later = client_of(made(source)), client_of(made(source))
    stranger = client_of(made(source, cookie_secret="t" * 64))
    session = one.post("/who").json()
    later.cookies = stranger.cookies = one.cookies
    assert one.post("/who").json() == session
    assert later.post("/who").json()["failure_class"] == "lost"
    assert stranger.post("/who").json() != session


def test_server_knows_only_the_addresses_of_others(made):
    server = build_server(made(PLAIN))
    assert server.server_client.address_of("policy") == ("10.0.0.1", 99)
    assert server.server_client.global_config_dict["shared"] == 3
    others = server.server_client.global_config_dict["policy"]["responses_api_models"]["some_model"]
    assert set(others) == {"host", "port"}
    with pytest.raises(ServerCallError, match="no server is named 'missing'; there are: my_arena, policy"):
        server.server_client.address_of("missing")


def test_mcp_with_several_processes_is_rejected(made):
    settings = made(KEEPS_STATE, num_workers=2)
    exposing = settings.model_copy(update={"settings": {**settings.settings, "expose_tools_over_mcp": True}})
    with pytest.raises(ConfigError, match=r"my_arena: with 2 processes, a call over MCP may reach a process"):
        build_server(exposing)
    assert build_server(settings).config.name == "my_arena"


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (PLAIN.replace("def greet", "def verify_").replace("@tool", "@tool(name='verify')"), "'verify' is a route"),
        (PLAIN.replace("name: str)", "name)"), "@tool Plain.greet: the argument 'name' does not have a type"),
        (KEEPS_STATE.replace("count: int = 0", "count: int"), r"SessionState Seen.*default \(count\)"),
    ],
)
def test_invalid_tool_is_reported_with_its_file(made, source, message):
    settings = made(source)
    with pytest.raises(LaunchError, match=rf"resources_servers/arena/app\.py:\d+: .*{message}"):
        client_of(settings)


@pytest.mark.parametrize("kind", ["", ": object", ": str"])
def test_verify_without_a_body_class_is_rejected(made, kind):
    settings = made(PLAIN.replace(": BaseVerifyRequest", kind))
    message = r"arena/app\.py:\d+: Plain\.verify: the parameter 'body' would not receive the row\. .*BaseVerifyRequest"
    with pytest.raises(LaunchError, match=message):
        client_of(settings)


def test_authors_own_type_error_keeps_its_traceback(made):
    source = PLAIN + "\n    def setup_webserver(self):\n        return len(5)\n"
    with pytest.raises(TypeError, match="has no len"):
        client_of(made(source))


BASE_AND_LEAF = PLAIN + "\nclass Leaf(Plain):\n    pass\n"
TWO = (
    PLAIN + "\nclass Second(SimpleResourcesServer):\n    async def verify(self, body) -> float:\n        return 0.0\n"
)
STARTS = "\nif __name__ == '__main__':\n    {}.run_webserver()\n"


@pytest.mark.parametrize(
    ("source", "name"),
    [
        (PLAIN, "Plain"),
        (BASE_AND_LEAF, "Leaf"),
        (BASE_AND_LEAF + STARTS.format("Plain"), "Plain"),
        (TWO + STARTS.format("Second"), "Second"),
        ("from nemo_gym import SimpleResourcesServer as Base\n" + PLAIN, "Plain"),
    ],
)
def test_server_class_is_the_started_or_only_one(made, source, name):
    settings = made(source)
    assert server_class(load_module(settings), settings).__name__ == name


def test_two_server_classes_without_start_are_rejected(made):
    settings = made(TWO)
    with pytest.raises(LaunchError, match=r"app\.py: .*Plain, Second"):
        server_class(load_module(settings), settings)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("import nemo_gym.deliverables", "No module named 'nemo_gym.deliverables'"),
        ("from nemo_gym.errors import Nonsense", "cannot import name 'Nonsense' from 'nemo_gym.errors'"),
    ],
)
def test_missing_name_of_ours_is_not_a_missing_package(made, line, problem):
    settings = made(f"\n{line}\n{PLAIN}")
    (settings.folder / "requirements.txt").write_text("numpy\n")
    with pytest.raises(LaunchError, match=rf"arena/app\.py:2: {problem}.* no other package adds it") as raised:
        load_module(settings)
    assert "pip install" not in str(raised.value)


def test_folder_is_a_package_with_importable_modules(made):
    source = "from resources_servers.arena.game import WORD\nimport game\n" + PLAIN.replace('"never mind"', "WORD")
    settings = made(source)
    (settings.folder / "game.py").write_text("WORD = 'chess'\n")
    module = load_module(settings)
    assert (module.__name__, module.WORD, module.game.WORD) == ("resources_servers.arena.app", "chess", "chess")
    assert Path(module.__file__) == settings.folder / "app.py"


def test_annotations_may_be_strings(made):
    client = client_of(made("from __future__ import annotations\n" + KEEPS_STATE))
    assert client.post("/greet", json={"name": "you"}).text == "hello you"
