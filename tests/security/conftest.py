"""Fixtures that serve every server of the repository in this process, together with the servers it calls."""

from __future__ import annotations

import asyncio
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from nemo_gym.calls.client import ServerClient
from nemo_gym.config.loading import load
from nemo_gym.config.models import RunConfig, ServerConfig
from nemo_gym.config.process import HeadSettings, ProcessSettings
from nemo_gym.config.settings import BaseRunServerInstanceConfig
from nemo_gym.contract.environment import open_environment
from nemo_gym.process.head import Head
from nemo_gym.process.serve import load_module, server_class
from nemo_gym.servers.base import SimpleServer
from nemo_gym.testing import FakeModel, connected_server, make_server, on_a_port
from responses_api_agents.best_of_n_agent.app import BestOfNAgent
from responses_api_agents.harness_agent.app import HarnessAgent
from responses_api_agents.inspect_agent.app import InspectAgent
from responses_api_agents.reflection_agent.app import ReflectionAgent
from responses_api_agents.single_agent_turn.app import SingleAgentTurnServer
from responses_api_agents.verifiers_agent.app import VerifiersAgent
from responses_api_models.local_vllm_model.app import LocalVLLMModel
from responses_api_models.local_vllm_model_proxy.app import LocalVLLMModelProxy
from responses_api_models.reward_model.app import RewardModel

REPOSITORY = Path(__file__).parent.parent.parent
SAMPLE_MODEL = "responses_api_models/sample_model/configs/sample_model.yaml"
AGENTS = {
    "simple_agent": "mcqa",
    "gymnasium_agent": "blackjack",
    "aviary_agent": "aviary",
    "user_simulation_agent": "proactive_asking",
}
"""Each agent, with an environment whose configuration contains it."""
ASKS_ONCE = """exec python3 -S -c '
import os, urllib.request
kind = {"content-type": "application/json"}
asked = urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/responses", b"{\\"input\\": \\"?\\"}", kind)
urllib.request.urlopen(asked)'
"""
"""A program for a shell."""
OF_OTHER_AGENTS: dict[str, type[SimpleServer]] = {
    "best_of_n_agent": BestOfNAgent,
    "reflection_agent": ReflectionAgent,
    "single_agent_turn": SingleAgentTurnServer,
}
"""The agents that let another agent answer."""
STARTED_WITHIN_S = 60.0


class Loop:
    """An event loop in its own thread, so that servers can answer blocking requests of a test."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._servers: list[Any] = []

    def run(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(STARTED_WITHIN_S)

    def serve(self, server: SimpleServer) -> str:
        """Start a server and return its address."""
        context = on_a_port(server)
        address = self.run(context.__aenter__())
        self._servers.append(context)
        return address

    def close(self) -> None:
        # Stop all servers at once, because each waits a second for open connections.
        self.run(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(100.0)

    async def _end(self) -> None:
        await asyncio.gather(*(context.__aexit__(None, None, None) for context in self._servers))


class _Head(SimpleServer):
    """The head server of an empty run, wrapped as a tier server for `on_a_port`."""

    def setup_webserver(self) -> Any:
        return Head(HeadSettings(host="127.0.0.1", port=0, instances=[], config_yaml="a: 1\n")).app()


def _head() -> SimpleServer:
    settings = BaseRunServerInstanceConfig(host="127.0.0.1", port=0, entrypoint="", name="head_server")
    client = ServerClient(head_server_config=settings, global_config_dict=OmegaConf.create({}))
    return _Head(config=settings, server_client=client)


def _environment(name: str) -> SimpleServer:
    with open_environment(REPOSITORY / "resources_servers" / name) as environment:
        return environment.server()


def _agent(name: str) -> SimpleServer:
    if name in OF_OTHER_AGENTS:
        agent, environment = _agent("simple_agent"), _environment("mcqa")
        about = {
            "agent_server": {"type": "responses_api_agents", "name": agent.config.name},
            "resources_server": {"type": "resources_servers", "name": environment.config.name},
            "model_server": {"type": "responses_api_models", "name": "policy"},
        }
        model = FakeModel(["I am sure that the answer is \\boxed{A}."])
        settings = {"name": name, **about}
        return connected_server(OF_OTHER_AGENTS[name], settings, model=model, servers=[agent, environment])
    if name == "harness_agent":
        # Its program asks the model once.
        return make_server(
            HarnessAgent, model=FakeModel(["A"]), servers=[_environment("mcqa")], command=["sh", "-c", ASKS_ONCE],
            files={}, resources_server={"type": "resources_servers", "name": "mcqa"},
        )  # fmt: skip
    if name in ("inspect_agent", "verifiers_agent"):
        # Their workers are ones without the package.
        stub = str(REPOSITORY / "responses_api_agents" / name / "tests" / "stub.py")
        if name == "inspect_agent":
            return make_server(InspectAgent, model=FakeModel(["A"]), task="stub", python=stub)
        return make_server(VerifiersAgent, model=FakeModel(["A"]), taskset="stub", python=stub)
    environment = AGENTS[name]
    configs = REPOSITORY / "resources_servers" / environment / "configs"
    run = load([configs / f"{environment}.yaml", SAMPLE_MODEL], skip_dotenv=True, require_servers=True)
    agent = next(each for each in run.servers_of("responses_api_agents") if each.implementation == name)
    model = FakeModel(["I am sure that the answer is \\boxed{A}."])
    return make_server(_class_of(run, agent), model=model, servers=[_environment(environment)], **agent.settings)


def _model(name: str, endpoint: str) -> SimpleServer:
    if name == "litellm_model":
        pytest.importorskip("litellm", reason="make test-litellm installs litellm in an environment of its own")
    if name == "reward_model":
        # It needs an endpoint with routes of its own, or none.
        return connected_server(RewardModel, {"name": name, "host": "127.0.0.1", "port": 0, "api": "embedded"})
    if name == "local_vllm_model":
        stub = REPOSITORY / "responses_api_models" / name / "tests" / "stub_engine.py"
        folder = tempfile.mkdtemp(prefix="nemo_gym-engine-")
        own = {"engine": "vllm", "command": [sys.executable, str(stub), "--port", "{port}"], "log_dir": folder}
        return make_server(LocalVLLMModel, model="m", **own, env={"STUB_FOLDER": folder})
    path = REPOSITORY / "responses_api_models" / name / "configs" / f"{name}.yaml"
    words = [
        word
        for model in ("policy", "reward", "genrm")
        for word in (f"+{model}_base_url={endpoint}/v1", f"+{model}_api_key=nothing", f"+{model}_model_name=sample")
    ]
    run = load([path], words, skip_dotenv=True, require_servers=True)
    server = next(each for each in run.servers_of("responses_api_models") if each.implementation == name)
    return make_server(_class_of(run, server), **server.settings)


def _class_of(run: RunConfig, server: ServerConfig) -> Any:
    search_path = list(sys.path)
    try:
        settings = ProcessSettings.of(run, server, cookie_secret="of no importance")
        return server_class(load_module(settings), settings)
    finally:
        sys.path[:] = search_path


@pytest.fixture(scope="session")
def loop() -> Iterator[Loop]:
    running = Loop()
    yield running
    running.close()


@pytest.fixture(scope="session")
def address_of(loop: Loop) -> Callable[[str], str]:
    """Return a function that starts `<tier>/<folder>` or `head` on first use and returns its address."""
    known: dict[str, str] = {}

    def address(server: str) -> str:
        if server not in known:
            tier, _, name = server.partition("/")
            if tier == "head":
                built = _head()
            elif tier == "resources_servers":
                built = _environment(name)
            elif tier == "responses_api_agents":
                built = _agent(name)
            elif name == "local_vllm_model_proxy":
                engines = _model("local_vllm_model", "")
                loop.serve(engines)
                own = {"type": tier, "name": engines.config.name}
                built = make_server(LocalVLLMModelProxy, name="proxy", servers=[engines], model_server=own)
            else:
                endpoint = "" if name == "sample_model" else address("responses_api_models/sample_model")
                built = _model(name, endpoint)
            known[server] = loop.serve(built)
        return known[server]

    return address
