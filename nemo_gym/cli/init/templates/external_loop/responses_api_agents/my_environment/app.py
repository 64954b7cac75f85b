"""An agent whose loop is an external program: it gets the model's address, and its output is the answer."""

import asyncio
import json
import os
import sys
import time
from pathlib import Path
from uuid import uuid4

from fastapi import Request
from pydantic import Field

from nemo_gym import (
    AgentFailed,
    BaseRunRequest,
    Conversation,
    ConversingAgent,
    ConversingAgentConfig,
    NeMoGymResponse,
    NeMoGymResponseCreateParamsNonStreaming,
)
from nemo_gym.jsonl import JsonObject

PROGRAM = Path(__file__).with_name("program.py")


class MyEnvironmentAgentConfig(ConversingAgentConfig):
    command: list[str] = Field(default=[sys.executable, str(PROGRAM)], min_length=1)
    """The program and its arguments."""


class MyEnvironmentAgent(ConversingAgent):
    """The base class seeds the session, grades the answer and cleans up."""

    config: MyEnvironmentAgentConfig

    async def converse(
        self, request: Request, body: BaseRunRequest, row: JsonObject, session: dict[str, str]
    ) -> Conversation:
        """Have the program answer a row. The address contains the rollout id, so that its calls are captured."""
        url = self.resolve_model_base_url(self.config.model_server.name, self.rollout_id_from_run(row))
        answer = await self._answer_of_program(url, row["responses_create_params"])
        return Conversation(response=response_with(answer), session=session)

    async def responses(self, body: NeMoGymResponseCreateParamsNonStreaming) -> NeMoGymResponse:
        """Have the program answer a request outside of a rollout."""
        url = self.resolve_model_base_url(self.config.model_server.name)
        params = body.model_dump(mode="json", exclude_unset=True)
        return NeMoGymResponse.model_validate(response_with(await self._answer_of_program(url, params)))

    async def _answer_of_program(self, url: str, params: JsonObject) -> str:
        # Beyond loopback, the model server accepts only calls with the run's token.
        token = self.server_client.global_config_dict.get("run_token") or "none"
        process = await asyncio.create_subprocess_exec(
            *self.config.command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, "OPENAI_BASE_URL": url, "OPENAI_API_KEY": str(token)},
        )
        try:
            output, errors = await process.communicate(json.dumps({"input": params["input"]}).encode())
        finally:
            # A rollout that is cancelled, for example at its deadline, must not leave its program behind.
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode:
            last = errors.decode(errors="replace").strip().rpartition("\n")[2]
            raise AgentFailed(f"{self.config.name}: the program exited with {process.returncode}: {last}")
        return output.decode(errors="replace").strip()


def response_with(text: str) -> JsonObject:
    """Return a response whose only item is this text."""
    content = [{"type": "output_text", "text": text, "annotations": []}]
    message = {"id": "msg_0", "type": "message", "role": "assistant", "status": "completed", "content": content}
    return {
        "id": f"resp_{uuid4().hex}",
        "created_at": time.time(),
        "model": "external",
        "object": "response",
        "output": [message],
        "parallel_tool_calls": False,
        "tool_choice": "none",
        "tools": [],
    }


if __name__ == "__main__":
    MyEnvironmentAgent.run_webserver()
