"""A program as an agent in a container, where it reaches its gateway at an address of this machine."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from nemo_gym import AgentFailed, BaseVerifyRequest, SimpleResourcesServer
from nemo_gym.harness import Collected
from nemo_gym.testing import FakeModel, make_server, run
from responses_api_agents.harness_agent.app import HarnessAgent
from tests.containers.engine import Engine, engine_with_base

pytestmark = pytest.mark.slow

PROGRAM = """
import json, os, urllib.request
body = json.dumps({"model": os.environ["NEMO_GYM_MODEL"], "input": open("task.md").read()}).encode()
url, headers = os.environ["OPENAI_BASE_URL"] + "/responses", {"content-type": "application/json"}
asked = urllib.request.Request(url, body, headers)
answer = json.load(urllib.request.urlopen(asked))
open("answer.txt", "w").write(answer["output"][0]["content"][0]["text"])
"""


class Request(BaseVerifyRequest):
    workspace: Collected


class FilesServer(SimpleResourcesServer):
    async def verify(self, body: Request) -> float:
        return float(body.workspace.files.get("answer.txt") == "42")


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with engine_with_base(Path(tempfile.mkdtemp(prefix="ngc-"))) as made:
        yield made


@pytest.fixture
def agent_of(engine: Engine, monkeypatch: pytest.MonkeyPatch):
    for name in ("CONTAINERS_CONF", "CONTAINERS_STORAGE_CONF"):
        monkeypatch.setenv(name, engine.env[name])

    def agent(**settings: object) -> HarnessAgent:
        return make_server(
            HarnessAgent,
            model=FakeModel(["42"]),
            servers=[make_server(FilesServer, name="environment")],
            resources_server={"type": "resources_servers", "name": "environment"},
            model_server={"type": "responses_api_models", "name": "policy"},
            command=["python3", "-c", PROGRAM],
            files={},
            sandbox_provider={"docker": {"program": "podman", "create": {"network": "host"}}},
            sandbox={"image": "localhost/ngc-base", "memory_mib": 256},
            workdir="/tmp",
            **settings,
        )

    return agent


async def test_program_in_a_container_is_graded(agent_of, engine):
    graded = await run(agent_of(gateway_host="127.0.0.1"), responses_create_params={"input": "6 · 7?"})
    assert graded.reward == 1.0
    assert graded.workspace["files"] == {"task.md": "6 · 7?", "answer.txt": "42"}
    assert engine.must("podman", "ps", "--all", "--quiet") == ""


async def test_containers_need_an_address_of_the_gateway(agent_of, engine):
    with pytest.raises(AgentFailed, match=r"cannot listen inside its sandboxes\. Set gateway_host"):
        await run(agent_of())
    assert engine.must("podman", "ps", "--all", "--quiet") == ""
