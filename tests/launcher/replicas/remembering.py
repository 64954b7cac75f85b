"""A server that keeps state, with its agent and rows, and calls to it."""

from __future__ import annotations

from functools import partial
from typing import Any

import httpx
import orjson

# Each call has its own connection. Without certificates, which would take longer to read than the calls.
get, post = partial(httpx.get, verify=False, timeout=100), partial(httpx.post, verify=False, timeout=100)
REMEMBERING_SERVER = """
import os
from pathlib import Path

from nemo_gym import (
    BaseResourcesServerConfig, BaseSeedSessionRequest, BaseVerifyRequest, SessionState, SimpleResourcesServer, tool
)
from nemo_gym.global_config import get_global_config_dict

AT_IMPORT = Path("word.txt").read_text()


class Config(BaseResourcesServerConfig):
    word: str = "no word"


class Seen(SessionState):
    was_seeded: bool = False
    count: int = 0


class Remembering(SimpleResourcesServer):
    config: Config

    def model_post_init(self, context):
        self._read = [AT_IMPORT, Path("word.txt").read_text()]

    async def startup(self):
        self._read.append(Path("word.txt").read_text())
        Path("lives.txt").open("a").write("begun ")

    async def aclose(self):
        (Path(__file__).parent / "lives.txt").open("a").write("ended ")

    async def seed_session(self, body: BaseSeedSessionRequest, seen: Seen) -> None:
        seen.was_seeded = True

    @tool
    async def look(self, seen: Seen) -> int:
        \"\"\"Look once.\"\"\"
        seen.count += 1
        return seen.count

    async def verify(self, body: BaseVerifyRequest, seen: Seen) -> float:
        return float(seen.was_seeded and seen.count == len(body.response.tool_calls))

    def setup_webserver(self):
        app = super().setup_webserver()

        @app.get("/about")
        def about() -> dict:
            known = get_global_config_dict()
            return {
                "pid": os.getpid(), "read": self._read, "word": self.config.word,
                "names": sorted(str(name) for name in known if name in NAMES),
                "client_knows_all": known == self.server_client.global_config_dict,
                "own": str(known[self.config.name]["resources_servers"][self.config.name].get("word")),
            }

        return app


NAMES = ("remembering", "other", "agent", "policy_model", "head_server")
"""
CONFIG = """
agent:
  responses_api_agents:
    simple_agent:
      entrypoint: app.py
      resources_server: {type: resources_servers, name: remembering}
      model_server: {type: responses_api_models, name: policy_model}
      datasets:
      - {name: rows, type: example, jsonl_fpath: resources_servers/remembering/data/example.jsonl}
"""
SAMPLE_MODEL = "responses_api_models/sample_model/configs/sample_model.yaml"
ROWS = 5
ROW = {"responses_create_params": {"input": "Look around."}}


def remembering(workplace: Any, settings: str = "", name: str = "remembering") -> str:
    """Write the server, its agent and its rows. Return the argument that starts both with a model."""
    workplace.environment(name, REMEMBERING_SERVER, settings)
    workplace.write(f"resources_servers/{name}/word.txt", f"word of {name}")
    workplace.write("agent.yaml", CONFIG)
    rows = [{"responses_create_params": {"input": f"Look around, {number}."}} for number in range(ROWS)]
    lines = "".join(f"{orjson.dumps(row).decode()}\n" for row in rows)
    workplace.write(f"resources_servers/{name}/data/example.jsonl", lines)
    return f"+config_paths=[resources_servers/{name}/configs/{name}.yaml,agent.yaml,{SAMPLE_MODEL}]"


def seeded(url: str) -> dict[str, str]:
    """Return the cookies of a new session."""
    answer = post(f"{url}/seed_session", json=ROW)
    assert answer.status_code == 200
    return dict(answer.cookies)


def look(url: str, cookies: dict[str, str]) -> httpx.Response:
    """Call the tool in a session, with a new connection."""
    return post(f"{url}/look", json={}, cookies=cookies)


def graded(url: str, cookies: dict[str, str], looks: int) -> float:
    calls = [{"type": "function_call", "name": "look", "arguments": "{}", "call_id": str(at)} for at in range(looks)]
    response = {
        "id": "r", "created_at": 0, "model": "m", "object": "response", "output": calls, "parallel_tool_calls": True,
        "tool_choice": "auto", "tools": [],
    }  # fmt: skip
    answer = post(f"{url}/verify", json={**ROW, "response": response}, cookies=cookies)
    assert answer.status_code == 200, answer.text
    return answer.json()["reward"]


def pid_of(url: str, cookies: dict[str, str] | None = None) -> int:
    """Return the pid of the process that answers: with cookies, the one that has the session."""
    return get(f"{url}/about", cookies=cookies).json()["pid"]


def status_of(workplace: Any, command: Any) -> str:
    return workplace.run("ng_status", f"+head_server.port={command.head.rpartition(':')[2]}").out
