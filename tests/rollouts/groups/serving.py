"""An agent and a resources server that grades groups, for tests that decide what their rollouts do."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, ClassVar

import orjson
from omegaconf import OmegaConf
from starlette.requests import Request

from nemo_gym import (
    BaseRunRequest,
    BaseVerifyRequest,
    BaseVerifyResponse,
    ModelFailed,
    SimpleResourcesServer,
    SimpleResponsesAPIAgent,
    get_response_json,
    reply_to,
)
from nemo_gym.calls.address_book import AddressBook
from nemo_gym.calls.client import ServerClient
from nemo_gym.calls.task_rules import TaskRules
from nemo_gym.config.process import OtherServer
from nemo_gym.config.settings import BaseServerConfig
from nemo_gym.http.internal import split_url
from nemo_gym.rollouts.collector import collect
from nemo_gym.rollouts.job import CollectionSettings, RunFiles
from nemo_gym.rollouts.opening import open_run
from nemo_gym.rollouts.tasks import TaskPlan
from nemo_gym.schemas.row import Row as RowView
from nemo_gym.testing import make_server, on_a_port, reply

Row = dict[str, Any]


Act = Callable[[RowView], Awaitable[None]]


AGENT, SERVER = "agent", "shares"


class SharesRequest(BaseVerifyRequest):
    run: str = ""


class Shares(SimpleResourcesServer):
    """Rewards each answer with its share of the group's characters."""

    async def verify_group(self, bodies: Sequence[SharesRequest]) -> list[BaseVerifyResponse]:
        await acts.verifying()
        assert len({body.run for body in bodies}) == 1, "two runs were mixed"
        lengths = [len(body.response.last_text) for body in bodies]
        return [
            BaseVerifyResponse.grade(body, reward=own / sum(lengths), lengths=lengths)
            for body, own in zip(bodies, lengths, strict=True)
        ]


async def nothing(*_: object) -> None:
    return None


class Answering(SimpleResponsesAPIAgent):
    """Answers with as many characters as the number of the repeat, from 1, and does what the test asks for."""

    USED: ClassVar[str] = SERVER

    async def responses(self, body: BaseRunRequest) -> None:
        raise NotImplementedError

    async def run(self, request: Request) -> Any:
        row = RowView(await request.json())
        await acts.before(row)
        body = {**row.fields, "response": reply("x" * (row.key.repeat + 1)).model_dump(mode="json")}
        calling = self.server_client.post(self.USED, "/verify", json=body)
        graded = await get_response_json(
            await reply_to(calling, server=self.USED, during="/verify", otherwise=ModelFailed)
        )
        await acts.after(row)
        return graded


class AnsweringElsewhere(Answering):
    USED = "other_shares"


class _Acts:
    def __init__(self) -> None:
        self.before: Act = nothing
        self.verifying: Callable[[], Awaitable[None]] = nothing
        self.after: Act = nothing


acts = _Acts()


@asynccontextmanager
async def servers(**others: type[Answering]):
    """Serve an agent and its resources server over HTTP, and yield a function that returns clients for them.

    `others` are further agents by name. Each has its own resources server.
    """
    agents = {AGENT: Answering, **others}
    verifiers = [make_server(Shares, name=agent.USED, group_verification={}) for agent in agents.values()]
    async with AsyncExitStack() as stack:
        addresses = {}
        for (name, agent), shares in zip(agents.items(), verifiers, strict=True):
            answering = make_server(agent, name=name, servers=[shares])
            for server, own, tier in (
                (agent.USED, shares, "resources_servers"),
                (name, answering, "responses_api_agents"),
            ):
                host, port, *_ = split_url(await stack.enter_async_context(on_a_port(own)))
                addresses[server] = OtherServer(tier, server, host, port)
        grouped = {name: agent.USED for name, agent in agents.items()}
        clients: list[ServerClient] = []

        def client() -> ServerClient:
            clients.append(
                ServerClient(
                    head_server_config=BaseServerConfig(host=addresses[AGENT].host, port=addresses[AGENT].port),
                    global_config_dict=OmegaConf.create({}),
                    address_book=AddressBook(dict(addresses), task_rules=TaskRules(grouped=grouped)),
                )
            )
            return clients[-1]

        yield client
        for each in clients:
            await each.aclose()


def written(path: Path, tasks: int = 1, **fields: object) -> Path:
    """Write an input of this many tasks."""
    rows = [{"responses_create_params": {"input": f"Task {number}"}, **fields} for number in range(tasks)]
    path.write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))
    return path


async def collected(
    client: ServerClient,
    input_file: Path,
    name: str = "out",
    on_record=None,
    steer=None,
    subject=None,
    **settings: Any,
):
    """Collect the input's rollouts, 4 of each task by default."""
    files = RunFiles(results=input_file.with_name(f"{name}.jsonl"))
    given = {"agent_name": AGENT, "num_repeats": 4, "retry_pause_s": 0, **settings}
    plan = TaskPlan(
        input_file,
        CollectionSettings(output_jsonl_fpath=files.results, **given),
        client.agent_names(),
        rules=client.address_book.task_rules,
    )
    with open_run(plan, files, subject) as run:
        given = {"on_record": on_record, "on_control": steer}
        await collect(client, run, **{name: call for name, call in given.items() if call})
    return files


def rewards(rows: list[Row]) -> dict[int, float]:
    return {row["_ng_rollout_index"]: row["reward"] for row in rows}


def failing(cause: Exception, repeat: int, attempts: int = 1000) -> Act:
    """Fail the first attempts of a repeat."""

    async def act(row: RowView) -> None:
        if row.key.repeat == repeat and row.attempt < attempts:
            raise cause

    return act
