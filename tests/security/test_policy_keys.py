"""The key of a policy that a row or a trainer names appears in no file, log, output or result."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from nemo_gym.schemas.rollout import POLICY_HEADER
from nemo_gym.training import SyncTrainingClient
from tests.gateway import running_gateway

pytestmark = pytest.mark.slow

ROW_KEY = "made-up-key-of-a-row-1357"
TRAINER_KEY = "made-up-key-of-a-trainer-2468"
KEYS = (ROW_KEY, TRAINER_KEY)
LEAKING = """
import logging

from pydantic import ConfigDict
from fastapi import Request

from nemo_gym import BaseVerifyRequest, SimpleResourcesServer


class VerifyRequest(BaseVerifyRequest):
    model_config = ConfigDict(extra="allow")

    expected: int = 0


class Leaking(SimpleResourcesServer):
    async def verify(self, request: Request, body: VerifyRequest) -> float:
        logging.getLogger("leaking").info("received %s %s", dict(request.headers), await request.body())
        return 1.0
"""
AGENT = """
{folder}_agent:
  responses_api_agents:
    {folder}:
      entrypoint: app.py
      resources_server: {{type: resources_servers, name: leaking}}
      model_server: {{type: responses_api_models, name: policy_model}}
"""
PRINTING = """
import json
import logging

from fastapi import Request


from responses_api_agents.simple_agent.app import SimpleAgent, SimpleAgentRunRequest


class Printing(SimpleAgent):
    async def run(self, request: Request, body: SimpleAgentRunRequest):
        logging.getLogger("printing").info("%s %s %s", dict(request.headers), await request.body(), body.model_dump())
        return await super().run(request, body)
"""
MODEL = "responses_api_models/openai_model/configs/openai_model.yaml"


@pytest.fixture(scope="module")
def ran(shared_workplace: Any) -> tuple[Any, list[Any], str]:
    """Run rollouts that succeed and fail. Return the output, the rollouts, and the visible text of its processes."""
    place = shared_workplace
    place.environment("leaking", LEAKING)
    place.write("responses_api_agents/printing/app.py", PRINTING)
    agents = "".join(AGENT.format(folder=folder) for folder in ("printing", "simple_agent"))
    place.write("agents.yaml", agents)
    captured = place.folder / "captured"
    with running_gateway() as gateway:
        config = f"resources_servers/leaking/configs/leaking.yaml,agents.yaml,{MODEL}"
        command = place.start_servers(
            f"+config_paths=[{config}]", f"+policy_base_url={gateway.url('configured')}", "+policy_api_key=none",
            "+policy_model_name=tiny", "+allow_policy_override=true", "+nemo_gym_log_dir=logs",
            "+observability_enabled=true", f"+model_call_capture_dir={captured}",
        )  # fmt: skip
        with SyncTrainingClient(command.head) as client:
            client.set_policy(gateway.url("trainer"), api_key=TRAINER_KEY)
            rollouts = [each for group in client.rollouts(list(rows(gateway))) for each in group.rollouts]
        agent = command.servers["printing_agent"]["url"]
        # As from another agent.
        named = json.dumps({"policy_base_url": gateway.url("agent"), "policy_api_key": ROW_KEY})
        row = {"responses_create_params": {"input": "Sent by an agent."}}
        called = httpx.post(f"{agent}/run", json=row, headers={POLICY_HEADER: named}, timeout=60, verify=False)
        assert (called.status_code, [call.name for call in gateway.calls][-1]) == (200, "agent")
        shown = " ".join(map(shown_by, place.processes()))
        finished = command.end()
        assert {call.key for call in gateway.calls} == {f"Bearer {key}" for key in KEYS}
    return finished, rollouts, shown


def rows(gateway: Any) -> Iterator[dict[str, Any]]:
    for agent in ("printing_agent", "simple_agent_agent"):
        for text in ("Well.", "ECHO", "ERROR"):
            row = {"responses_create_params": {"input": text}, "agent_ref": {"name": agent}}
            yield row
            own = {"policy_base_url": gateway.url("row"), "policy_api_key": ROW_KEY}
            yield row | own
            # Each of these is rejected by another part of the run.
            yield row | own | {"expected": "many"}
            yield row | own | {"policy_base_url": "nowhere"}
            yield row | own | {"responses_create_params": {"input": text, "temperature": "hot"}}


def shown_by(process: psutil.Process) -> str:
    return " ".join([*process.cmdline(), *map("=".join, process.environ().items())])


def test_rollouts_succeeded_and_failed(ran, shared_workplace):
    _, rollouts, _ = ran
    classes = [each.failure and each.failure.failure_class for each in rollouts]
    assert {kind: classes.count(kind) for kind in classes} == {None: 8, "model_failed": 6, "invalid_task": 16}
    texts = [each.result["response"]["output"][0]["content"][0]["text"] for each in rollouts if not each.failure]
    assert sorted(texts) == ["Done."] * 4 + ["You sent Bearer ****"] * 4
    logs = "".join(path.read_text() for path in (shared_workplace.folder / "logs").rglob("*") if path.is_file())
    assert "INFO leaking: received" in logs
    assert "INFO printing: " in logs


def test_results_and_failures_contain_no_key(ran):
    for each in ran[1]:
        failure = each.failure and (str(each.failure), each.failure.row, each.failure.conversation)
        text = f"{json.dumps(each.result)} {failure}"
        assert [key for key in KEYS if key in text] == []


def test_files_output_and_processes_contain_no_key(ran, shared_workplace):
    finished, _, shown = ran
    folders = (shared_workplace.folder, Path(shared_workplace.env["XDG_RUNTIME_DIR"]))
    files = [Path(folder, name) for top in folders for folder, _, names in os.walk(top) for name in names]
    texts = {str(path): path.read_text(errors="replace") for path in files}
    texts |= {"out": finished.out, "err": finished.err, "processes": shown}
    assert any("captured" in path for path in texts)
    assert [(path, key) for path, text in texts.items() for key in KEYS if key in text] == []
