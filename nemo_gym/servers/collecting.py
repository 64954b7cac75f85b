"""Base class of collectors: servers that forward each row to its agent, and can store the results locally."""

from __future__ import annotations

from pathlib import Path

import orjson
from fastapi import FastAPI, Request, Response
from pydantic import PrivateAttr, ValidationInfo, field_validator

from nemo_gym.calls.problems import failure_of_call
from nemo_gym.calls.results import result_of_reply
from nemo_gym.config.settings import BaseResponsesAPIAgentConfig
from nemo_gym.context.deadline import time_left_s
from nemo_gym.errors import AgentFailed, InvalidTask, RolloutError, RolloutTimedOut, ServerCallError
from nemo_gym.http.reply import Reply, ReplyTimedOut, Timeouts
from nemo_gym.jsonl import WriteFailed, dump_json
from nemo_gym.schemas.rollout import FAILURE_HEADER, SHARD_HEADER
from nemo_gym.schemas.row import AGENT_REF_KEY, Row
from nemo_gym.servers.agent import BaseResponsesAPIAgent
from nemo_gym.servers.base import context_of
from nemo_gym.servers.name_clashes import hook_of
from nemo_gym.servers.shards import NAME, Shards, check_folder

RUN_PATH = "/run"
JSON = "application/json"
PASSED_ON = ("content-type", "retry-after", FAILURE_HEADER)
"""Headers of an agent's reply that the collector returns to its caller."""
LONGEST_S = 7 * 24 * 3600.0


class CollectingAgentConfig(BaseResponsesAPIAgentConfig):
    """Settings of a collector. Without `shard_dir`, it only forwards rows and replies."""

    shard_dir: Path | None = None
    """The absolute path of a folder on the collector's machine, for the results of sharded collections."""

    @field_validator("shard_dir")
    @classmethod
    def _is_usable(cls, given: Path | None, info: ValidationInfo) -> Path | None:
        if given is None:
            return None
        if not given.is_absolute():
            raise ValueError(f"must be an absolute path, because each server runs in its own folder, but is '{given}'")
        # Check the folder only in the server's own process, because other processes may run on other machines.
        if info.context and info.context.get("checks_files"):
            check_folder(given)
        return given


class CollectingAgent(BaseResponsesAPIAgent):
    """A server that forwards each row to the agent that the row names, and returns that agent's reply."""

    config: CollectingAgentConfig

    _shards: Shards | None = PrivateAttr(default=None)

    def setup_webserver(self) -> FastAPI:
        app: FastAPI = hook_of(self, "new_app")()
        app.post(RUN_PATH)(self.run)
        return app

    async def startup(self) -> None:
        if self.config.shard_dir is not None:
            self._shards = Shards(self.config.shard_dir, context_of(self).secret_values.mask_bytes)

    async def close_owned(self) -> None:
        if self._shards is not None:
            self._shards.close()

    async def run(self, request: Request) -> Response:
        """Run a row and return its result. If the caller names a shard, store the result and return a short entry."""
        body = await request.body()
        row = self._row_in(body)
        shard = request.headers.get(SHARD_HEADER)
        if shard is None:
            return _passed_on(await self._reply(str(row.agent), body))
        shards = self._shards
        if shards is None or not NAME.fullmatch(shard):
            reason = f"'{shard}' is not a valid shard name" if shards else "shard_dir is not set"
            raise AgentFailed(f"{self.config.name} cannot keep the result: {reason}", server=self.config.name)
        reply = await self._reply(str(row.agent), body)
        del body
        return await self._kept(shards, shard, row, reply)

    def _row_in(self, body: bytes) -> Row:
        """Return a row's identity fields. Raise `InvalidTask` if the row does not name a valid agent."""
        try:
            fields = orjson.loads(body)
        except orjson.JSONDecodeError as error:
            raise InvalidTask(f"the row is not valid JSON ({error.msg})") from error
        row = Row(fields if isinstance(fields, dict) else {})
        if row.agent is None:
            raise InvalidTask(f"the row does not name an agent in {AGENT_REF_KEY}.name")
        if row.agent == self.config.name:
            raise InvalidTask(f"{AGENT_REF_KEY}.name is '{row.agent}', a collector. Name the agent that runs the row")
        # Drop the other fields to save memory: thousands of rollouts may run at once.
        return Row(row.identity)

    async def _reply(self, agent: str, body: bytes) -> Reply:
        # If the rollout has a deadline, the client shortens these timeouts to the time left.
        limit_s = LONGEST_S if time_left_s() is not None else Timeouts().total_s
        timeouts = Timeouts(read_s=limit_s, total_s=limit_s)
        try:
            return await self.server_client.post(
                agent, RUN_PATH, data=body, headers={"content-type": JSON}, timeouts=timeouts
            )
        except ReplyTimedOut as error:
            raise RolloutTimedOut(
                f"{agent}: the rollout took longer than its time limit ({error})", server=agent
            ) from error
        except ServerCallError as error:
            raise failure_of_call(error, server=agent, otherwise=AgentFailed) from error

    async def _kept(self, shards: Shards, name: str, row: Row, reply: Reply) -> Response:
        """Store a scored result and return its entry. Pass on other replies, so that the caller records failures."""
        if not reply.ok:
            return _passed_on(reply)
        try:
            result = result_of_reply(reply.body, row, server=str(row.agent), during=RUN_PATH, otherwise=AgentFailed)
        except RolloutError:
            return _passed_on(reply)
        if result.is_discarded or result.failure_class or result.reward is None:
            return _passed_on(reply)
        try:
            entry = await shards.keep(name, result)
        except (WriteFailed, OSError) as error:
            # Return the whole result, so that the caller can write it to its own file.
            entry = shards.whole(result, str(error))
        return Response(dump_json(entry), media_type=JSON)


def _passed_on(reply: Reply) -> Response:
    headers = {name: reply.headers[name] for name in PASSED_ON if name in reply.headers}
    return Response(reply.body, reply.status, headers)
