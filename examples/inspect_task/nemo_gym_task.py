"""A task of Inspect with the rows and the tools of a run of nemo_gym, found by the address of its head server.

This file runs where inspect_ai is installed, and does not need nemo_gym there:

inspect eval nemo_gym_task.py -T server=workplace_assistant -T split=example --model …

Each sample has a session on the run's resources server, which also grades it. A failure of the server is an error of
the sample, and never a score.
"""

import json
import os
from pathlib import Path
from typing import Any

import httpx
import yaml
from inspect_ai import Task, task
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.model import ChatMessageAssistant, ChatMessageSystem, ChatMessageTool, ChatMessageUser
from inspect_ai.scorer import Score, mean, scorer, stderr
from inspect_ai.solver import generate, solver
from inspect_ai.tool import ToolDef, ToolError, ToolParams
from inspect_ai.util import store

TOKEN = "NEMO_GYM_TOKEN"
"""The environment variable with the run's token, if it has one."""
COOKIES = "nemo_gym_cookies"
"""The key of the sample's store that has its session."""
ROLES = {
    "system": ChatMessageSystem, "developer": ChatMessageSystem, "user": ChatMessageUser,
    "assistant": ChatMessageAssistant,
}  # fmt: skip


@task
def nemo_gym_task(
    url: str = "http://127.0.0.1:11000",
    split: str = "example",
    server: str | None = None,
    dataset: str | None = None,
    timeout_s: float = 600.0,
) -> Task:
    """Play the rows of a run.

    url: the head server of the run
    split: the type of the server's dataset: `example`, `train`, `validation` …
    server: the resources server, by its name in the config; not needed if the run has only one
    dataset: a file of rows instead, if the run's files are on another machine
    timeout_s: seconds for each request to the server
    """
    run = _Run(url, timeout_s)
    instance = run.instance(server)
    path = Path(dataset) if dataset else run.dataset(instance, split)
    rows = [json.loads(line) for line in path.read_text("utf-8").splitlines() if line.strip()]
    tools = run.get(f"{instance['url']}/tools")
    samples = [_sample(number, row) for number, row in enumerate(rows)]
    client = _Client(instance["url"], timeout_s)
    # The setup runs with any solver, so another one also finds the session and its tools.
    return Task(
        dataset=MemoryDataset(samples, name=f"{instance['config_path']}:{split}"),
        setup=seed(client, tools if isinstance(tools, list) else []),
        solver=generate(),
        scorer=verify(client),
    )


@solver
def seed(client: "_Client", listed: list[dict[str, Any]]):
    """Begin the session of a sample, and offer its tools."""

    async def solve(state, generate):
        row = state.metadata["row"]
        await client.post("/seed_session", row)
        params = row["responses_create_params"]
        state.tools = [client.tool(each) for each in params.get("tools") or listed if each.get("type") == "function"]
        return state

    return solve


@scorer(metrics=[mean(), stderr()])
def verify(client: "_Client"):
    """Let the server grade the conversation."""

    async def score(state, target):
        row = state.metadata["row"]
        output = [item for message in state.messages[first_answer(state.messages) :] for item in items_of(message)]
        response = {
            "id": f"resp_{state.uuid}", "object": "response", "created_at": 0, "model": str(state.model),
            "output": output, "parallel_tool_calls": True, "tool_choice": "auto", "tools": [],
        }  # fmt: skip
        reply = await client.post("/verify", {**row, "response": response})
        graded = reply.json()
        more = {name: value for name, value in graded.items() if name not in (*row, "response", "reward")}
        why = graded.get("why") or json.dumps(more, ensure_ascii=False)
        return Score(value=float(graded["reward"]), answer=state.output.completion, explanation=why, metadata=more)

    return score


class _Client:
    """Requests to a resources server, each in the session of the current sample."""

    def __init__(self, url: str, timeout_s: float) -> None:
        self.url, self.timeout_s = url, timeout_s

    async def request(self, path: str, body: object) -> httpx.Response:
        cookies = store().get(COOKIES, {})
        async with httpx.AsyncClient(timeout=self.timeout_s, cookies=cookies) as http:
            response = await http.post(f"{self.url}{path}", json=body, headers=_headers())
        store().set(COOKIES, {**cookies, **response.cookies})
        return response

    async def post(self, path: str, body: object) -> httpx.Response:
        """Send a request. Raise `RuntimeError` with the server's reason if it fails."""
        response = await self.request(path, body)
        if response.is_error:
            raise RuntimeError(f"{self.url}{path} failed with status {response.status_code}: {response.text[:1000]}")
        return response

    def tool(self, given: dict[str, Any]):
        """Return a tool of the server, for the model."""
        name = given["name"]

        async def execute(**arguments: Any) -> str:
            response = await self.request(f"/{name}", arguments)
            # The model can correct its own call. Anything else is a failure of the server.
            if response.is_client_error:
                raise ToolError(response.text)
            if response.is_error:
                raise RuntimeError(
                    f"the tool {name} failed with status {response.status_code}: {response.text[:1000]}"
                )
            return response.text

        schema = given.get("parameters") or {"type": "object"}
        # Inspect requires a description of each parameter.
        about = {key: {"description": key, **each} for key, each in (schema.get("properties") or {}).items()}
        parameters = ToolParams.model_validate({**schema, "properties": about})
        return ToolDef(execute, name, given.get("description") or name, parameters).as_tool()


class _Run:
    """What the head server of a run knows."""

    def __init__(self, url: str, timeout_s: float) -> None:
        self.url, self.timeout_s = url, timeout_s

    def get(self, url: str) -> Any:
        response = httpx.get(url, headers=_headers(), timeout=self.timeout_s)
        # A server without nemo_gym's base class does not list its tools.
        return None if response.status_code == httpx.codes.NOT_FOUND else response.raise_for_status().json()

    def instance(self, name: str | None) -> dict[str, Any]:
        instances = self.get(f"{self.url}/server_instances")
        found = {each["config_path"]: each for each in instances if each["server_type"] == "resources_servers"}
        if name is None and len(found) == 1:
            return next(iter(found.values()))
        if name not in found:
            raise ValueError(f"{self.url}: set `server` to one of the run's servers: {', '.join(found)}")
        return found[name]

    def dataset(self, instance: dict[str, Any], split: str) -> Path:
        name, root = instance["config_path"], Path(instance["dir_path"]).parents[1]
        blocks = yaml.safe_load(self.get(f"{self.url}/global_config_dict_yaml")).values()
        agents = [
            agent
            for block in blocks
            if isinstance(block, dict)
            for agent in (block.get("responses_api_agents") or {}).values()
            if (agent.get("resources_server") or {}).get("name") == name
        ]
        files = {each["type"]: Path(each["jsonl_fpath"]) for agent in agents for each in agent.get("datasets") or ()}
        if split not in files:
            raise ValueError(f"{name} lacks a dataset '{split}'. It has: {', '.join(files) or 'none'}")
        # The servers know in which folder their config's relative paths begin.
        path = next((each for each in (files[split], root / files[split]) if each.is_file()), None)
        if path is None:
            raise ValueError(f"{files[split]} of the run is not on this machine. Set `dataset` to a copy")
        return path


def _headers() -> dict[str, str]:
    return {"authorization": f"Bearer {os.environ[TOKEN]}"} if os.environ.get(TOKEN) else {}


def _sample(number: int, row: dict[str, Any]) -> Sample:
    """Return a sample with the messages of a row. Raise `ValueError` if they are not texts."""
    params = row["responses_create_params"]
    given = [{"role": "user", "content": params["input"]}] if isinstance(params["input"], str) else params["input"]
    if params.get("instructions"):
        given = [{"role": "system", "content": params["instructions"]}, *given]
    try:
        messages = [ROLES[each["role"]](content=_text(each["content"])) for each in given]
    except KeyError as error:
        raise ValueError(f"row {number}: its input has something else than messages with texts: {error}") from error
    return Sample(id=number, input=messages, metadata={"row": row})


def _text(content: Any) -> str:
    return content if isinstance(content, str) else "\n".join(part["text"] for part in content)


def first_answer(messages: list[Any]) -> int:
    """Return the place of the model's first answer. Messages before it are the row's own, or those of a solver."""
    places = (at for at, each in enumerate(messages) if each.role == "assistant" and each.source == "generate")
    return next(places, len(messages))


def items_of(message: Any) -> list[dict[str, Any]]:
    """Return a message as items of the Responses API."""
    if isinstance(message, ChatMessageTool):
        output = message.error.message if message.error else message.text
        return [{"type": "function_call_output", "call_id": message.tool_call_id, "output": output}]
    if not isinstance(message, ChatMessageAssistant):
        return [{"type": "message", "role": message.role, "content": message.text}]
    text = {"type": "output_text", "text": message.text, "annotations": []}
    said = {
        "id": f"msg_{message.id}",
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": [text],
    }
    calls = [
        {"type": "function_call", "call_id": each.id, "name": each.function, "arguments": json.dumps(each.arguments)}
        for each in message.tool_calls or ()
    ]
    return [*([said] if message.text or not calls else []), *calls]
