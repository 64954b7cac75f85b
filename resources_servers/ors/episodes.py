"""Episodes of any resources server, played through its own routes on behalf of a client with another protocol."""

from __future__ import annotations

import asyncio
import itertools
import logging
import math
import threading
import time
import uuid
from array import array
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from starlette.routing import Route

from nemo_gym import (
    EnvironmentFailed,
    NeMoGymResponse,
    Overloaded,
    RolloutError,
    SimpleResourcesServer,
    failure_of_reply,
    find_path,
)
from nemo_gym.calls.problems import failure_of_row
from nemo_gym.data.media import with_media_dir
from nemo_gym.data.prompts import load_prompt_config, with_prompt
from nemo_gym.errors import SignatureError
from nemo_gym.jsonl import dump_json, loads_exact, parse_row, read_lines_at
from nemo_gym.schemas.rollout import FAILURE_HEADER, GROUP_PATH, run_headers
from nemo_gym.schemas.row import Row
from nemo_gym.servers.group_verification import is_for_groups
from nemo_gym.servers.resources import listed_tools
from nemo_gym.servers.sessions import session_id_of
from nemo_gym.servers.tools.parts import output_of
from nemo_gym.web.in_process import OWN_CALL_SCOPE_KEY, Answer, answer_of, post_scope

logger = logging.getLogger(__name__)

HOME = "/also_serve/session"
"""The path of the routes that run in the process that has a session. Any process may call them by its id."""
SESSIONS = 1024
"""The number of sessions per process, unless the server sets `max_requests_in_flight`."""
KEPT_RESULTS = 64
MODEL = "also_serve"
REFUSED = 409
FROM_HERE: dict[str, Any] = {"http_version": "1.1", "scheme": "http"}
SPLITS = ("train", "validation", "benchmark", "example")
NO_ARGUMENTS = {"type": "object", "properties": {}}

Json = dict[str, Any]


class Refused(Exception):
    """A request that the client can correct. The episode goes on."""

    def __init__(self, message: str, code: str = "turn") -> None:
        super().__init__(message)
        self.code = code
        """`turn`: not at this point of an episode; `task`: not a task; `session`: not a session."""


class _File:
    """A file of rows. The places of its lines are read on first use, and again if the file changes."""

    def __init__(self, path: Path, prompt: str | None) -> None:
        self.path, self.prompt = path, prompt
        self._read_at: tuple[int, int] | None = None
        self._offsets = array("Q")
        self._reading = threading.Lock()

    def offsets(self) -> array[int]:
        with self._reading:
            about = self.path.stat()
            if self._read_at != (now := (about.st_mtime_ns, about.st_size)):
                self._offsets, self._read_at = array("Q", (place for place, _ in read_lines_at(self.path))), now
            return self._offsets

    def row(self, index: int) -> Json:
        with self.path.open("rb") as file:
            file.seek(self.offsets()[index])
            row = parse_row(file.readline().rstrip(), self.path, index + 1)
        prompt = load_prompt_config(self.prompt) if self.prompt else None
        return with_media_dir(with_prompt(row, prompt, f"{self.path}:{index + 1}"), self.path.parent)


class Tasks:
    """The rows of a server's datasets, by split and index. A split has all datasets of one type."""

    def __init__(self, server: str, datasets: Any) -> None:
        self._server, self._datasets = server, datasets
        self._files: dict[tuple[Path, str | None], _File] = {}
        self._next = itertools.count()

    def splits(self) -> list[str]:
        """Return the splits that have a file."""
        return [each for each in SPLITS if self._of(each)]

    def size(self, split: str) -> int:
        """Return the number of tasks of a split. Raise `Refused` for an unknown split."""
        return sum(len(each.offsets()) for each in self._known(split))

    def place(self, asked: Mapping[str, Any]) -> tuple[str, int]:
        """Return the split and index of a task: by `split` and `index`, by `seed`, or the next one in order."""
        splits = self.splits()
        if not splits:
            raise Refused(
                f"{self._server} does not have tasks, because the files of its datasets do not exist", "task"
            )
        split, index, seed = asked.get("split") or splits[0], asked.get("index"), asked.get("seed")
        size = self.size(split)
        if index is None:
            index = (seed if type(seed) is int else next(self._next)) % size if size else 0
        if type(index) is not int or not 0 <= index < size:
            raise Refused(f"index: the split '{split}' has the tasks 0 to {size - 1}, not {index!r:.50}", "task")
        return split, index

    def row(self, split: str, index: int) -> Json:
        for each in self._known(split):
            if index < (size := len(each.offsets())):
                return each.row(index)
            index -= size
        raise Refused(f"the split '{split}' does not have the task {index}", "task")

    def _known(self, split: object) -> list[_File]:
        found = self._of(split)
        if not found:
            raise Refused(f"split: the splits are {', '.join(self.splits()) or 'none'}, not {split!r:.50}", "task")
        return found

    def _of(self, split: object) -> list[_File]:
        found = {}
        for each in self._datasets:
            if each["type"] == split and (path := find_path(each["jsonl_fpath"], Path.is_file)):
                key = path, each.get("prompt_config")
                found[key] = self._files.setdefault(key, _File(*key))
        return list(found.values())


@dataclass
class Episode:
    """One session of a client: its task, and its calls so far."""

    cookie: str
    """The cookie of the server's own session. A handler may change it."""
    begun_with: str
    row: Json = field(default_factory=dict)
    prompt: list[Json] = field(default_factory=list)
    tools: list[Json] = field(default_factory=list)
    items: list[Json] = field(default_factory=list)
    place: tuple[str, int] | None = None
    steps: int = 0
    is_over: bool = False
    failure: RolloutError | None = None
    is_attached: bool = False
    """Whether a connection uses a session that a client has made by a call. It is then not idle."""
    is_closing: bool = False
    used_at: float = field(default_factory=time.monotonic)
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    jobs: dict[str, asyncio.Task[Json]] = field(default_factory=dict)
    """The calls of this session by id, for clients that lose a connection and ask again."""


class Episodes:
    """The episodes of one server. The app has one instance, which all protocols share."""

    @classmethod
    def of(cls, app: FastAPI, server: SimpleResourcesServer) -> Episodes:
        """Return the app's instance. It is created, and its routes are added, on the first call."""
        if getattr(app.state, "episodes", None) is None:
            app.state.episodes = cls(app, server)
        found: Episodes = app.state.episodes
        return found

    def __init__(self, app: FastAPI, server: SimpleResourcesServer) -> None:
        self.app, self.server, self.name = app, server, server.config.name
        self.tasks = Tasks(self.name, server.config.datasets)
        self.most = server.config.max_requests_in_flight or SESSIONS
        self.idle_s = server.config.session_idle_s
        self.is_stepped = server.EPISODE_ROUTES == ("/seed_session", "/step")
        if server.EPISODE_ROUTES and not self.is_stepped:
            raise SignatureError(f"also_serve: {self.name} is a game with the route /reset. Remove it, or the setting")
        self.by_id: dict[str, Episode] = {}
        self._reaping: asyncio.Task[None] | None = None
        self._ops: dict[str, Callable[[Episode, Json], Awaitable[Json]]] = {
            "begin": self._begin, "call": self._call_once, "about": self._about, "score": self._score,
            "attach": self._attach,
        }  # fmt: skip
        app.router.routes.insert(0, Route(f"{HOME}/{{op}}", self._at_home, methods=["POST"], include_in_schema=False))
        app.router.on_startup.append(self._start)
        app.router.on_shutdown.append(self._stop)

    def check_name(self, name: str) -> None:
        """Raise `Refused` if a client asks for another environment."""
        if name.lower() != self.name.lower():
            raise Refused(f"unknown environment {name!r:.80}. The environment is '{self.name}'", "session")

    def listed(self) -> list[Json]:
        """Return the tools of every task, in the format of a model request."""
        return self._with_submit([dict(each.definition) for each in listed_tools(self.server)])

    # These methods run in the process to which the client is connected.

    async def open(self) -> str:
        """Begin a session and return its id. Raise `Overloaded` if this process is full."""
        answer = await self._sent(f"{HOME}/open", {}, "", is_own=False)
        self._check(answer, "/open")
        return self._cookie_in(answer).partition("=")[2]

    async def ask(self, sid: str, op: str, body: Json | None = None, *, is_own: bool = False) -> Json:
        """Run an operation in the process that has a session. `is_own`: whether an admitted call waits for it.

        Raise `Refused` if the client is at fault, and a `RolloutError` if the episode has failed.
        """
        cookie = f"{self.server.get_session_middleware_key()}={sid}"
        answer = await self._sent(f"{HOME}/{op}", body or {}, cookie, is_own=is_own)
        if answer.status == REFUSED:
            problem = orjson.loads(answer.body)
            if isinstance(problem, dict) and "refused" in problem:
                raise Refused(problem["message"], problem["refused"])
        self._check(answer, f"/{op}")
        result: Json = loads_exact(answer.body)
        return result

    # The methods below run in the process that has the session.

    async def _at_home(self, request: Request) -> JSONResponse:
        op, sid = request.path_params["op"], session_id_of(request)
        cookie = request.headers.get("cookie", "")
        try:
            if op == "open":
                if len(self.by_id) >= self.most:
                    raise Overloaded(f"{self.name} has {len(self.by_id)} of {self.most} sessions", server=self.name)
                self.by_id[sid] = Episode("", "")
                return _json({})
            episode = self.by_id.get(sid)
            if episode is None:
                raise Refused("this session does not exist, or has ended", "session")
            episode.begun_with = episode.begun_with or cookie
            episode.used_at = time.monotonic()
            if op == "detach":
                episode.is_attached = False
            episode.is_closing |= op in ("close", "close_detached")
            if op in ("close", "close_detached", "detach"):
                if episode.is_closing and (op == "close" or not episode.is_attached):
                    await self._close(sid)
                return _json({"closed": sid not in self.by_id, "closing": episode.is_closing})
            if op not in self._ops:
                raise Refused("an unknown operation")
            return _json(await self._ops[op](episode, await request.json()))
        except Refused as error:
            return _json({"refused": error.code, "message": str(error)}, REFUSED)

    async def _begin(self, episode: Episode, asked: Json) -> Json:
        async with episode.turn:
            split, index = episode.place = await asyncio.to_thread(self.tasks.place, asked)
            row = await asyncio.to_thread(self.tasks.row, split, index)
            if episode.row:
                await self._leave(episode)
            # Begin with the session's first cookie, because later ones may contain values of the earlier episode.
            episode.cookie, episode.row, episode.items = episode.begun_with, {}, []
            episode.steps, episode.is_over, episode.failure = 0, False, None
            answer = await self._own(episode, "/seed_session", row)
            self._check(answer, "/seed_session")
            seeded = loads_exact(answer.body)
            params = row.get("responses_create_params") or {}
            shown = params.get("input") or []
            prompt = [{"role": "user", "content": shown}] if isinstance(shown, str) else list(shown)
            if params.get("instructions"):
                prompt.insert(0, {"role": "system", "content": params["instructions"]})
            more, tools = (seeded.get("obs"), seeded.get("tools")) if isinstance(seeded, dict) else (None, None)
            episode.prompt = prompt + (more if isinstance(more, list) else [])
            own = [each for each in params.get("tools") or tools or () if each.get("type") == "function"]
            episode.tools = self._with_submit(own) if own else self.listed()
            episode.row = row
        return await self._about(episode, {})

    async def _attach(self, episode: Episode, _: Json) -> Json:
        if episode.is_attached:
            raise Refused("this session already has a connection", "session")
        episode.is_attached = True
        return {}

    async def _about(self, episode: Episode, _: Json) -> Json:
        """Return what is known of the session. Without an episode, the prompt is empty."""
        return {
            "prompt": episode.prompt, "tools": episode.tools, "steps": episode.steps, "is_over": episode.is_over,
            "has_begun": bool(episode.row), "place": episode.place, "is_for_groups": is_for_groups(self.server),
        }  # fmt: skip

    async def _call_once(self, episode: Episode, asked: Json) -> Json:
        """Run a call, unless it runs already. It does not end with the request, because the client may ask again."""
        job = episode.jobs.get(asked.get("job", ""))
        if job is None:
            if asked.get("is_again"):
                raise Refused("unknown task_id", "session")
            for old in list(episode.jobs)[:-KEPT_RESULTS]:
                if episode.jobs[old].done():
                    del episode.jobs[old]
            job = asyncio.create_task(self._call(episode, asked["name"], asked["arguments"]))
            # Read the error here, because the client may never ask for it.
            job.add_done_callback(lambda done: done.cancelled() or done.exception())
            episode.jobs[asked.get("job") or uuid.uuid4().hex] = job
        return await asyncio.shield(job)

    async def _call(self, episode: Episode, name: str, arguments: Json) -> Json:
        async with episode.turn:
            episode.used_at = time.monotonic()
            self._check_turn(episode)
            try:
                if name == _submit_of(episode.tools):
                    answer = arguments.get("answer", "")
                    return await self._graded(
                        episode, answer if isinstance(answer, str) else dump_json(answer).decode()
                    )
                return await self._called(episode, name, arguments)
            except RolloutError as error:
                episode.failure = error
                raise
            finally:
                episode.steps += 1
                episode.used_at = time.monotonic()

    def _check_turn(self, episode: Episode) -> None:
        if episode.failure is not None:
            raise episode.failure
        if not episode.row:
            raise Refused("no episode has begun. Reset it first")
        if episode.is_over:
            raise Refused("the episode is over. Reset it to begin another one")

    async def _called(self, episode: Episode, name: str, arguments: Json) -> Json:
        call_id = f"call_{episode.steps}"
        call = {"type": "function_call", "call_id": call_id, "name": name, "arguments": dump_json(arguments).decode()}
        result: Json = {"output": "", "is_error": False, "is_unknown": False, "reward": None, "done": False}
        if name not in {each["name"] for each in episode.tools}:
            names = ", ".join(each["name"] for each in episode.tools)
            result |= {
                "output": f"Error: unknown tool {name!r:.80}. The tools are: {names}.",
                "is_error": True,
                "is_unknown": True,
            }
        elif self.is_stepped:
            answer = await self._own(episode, "/step", {"env_id": None, "action": [call]})
            self._check(answer, "/step")
            stepped = loads_exact(answer.body)
            result["done"] = bool(stepped.get("done"))
            result["output"] = next((each["output"] for each in stepped["obs"] if each.get("call_id") == call_id), "")
        else:
            answer = await self._own(episode, f"/{name}", arguments)
            if answer.status >= 500:
                self._check(answer, f"tool '{name}'")
            headers = {key.decode("latin-1").lower(): value.decode("latin-1") for key, value in answer.headers}
            result |= {"output": output_of(answer.body, headers), "is_error": answer.status >= 400}
        episode.items += [call, {"type": "function_call_output", "call_id": call_id, "output": result["output"]}]
        if not result["done"]:
            return result
        return {**result, "reward": (await self._graded(episode, ""))["reward"]}

    async def _graded(self, episode: Episode, answer: str) -> Json:
        if is_for_groups(self.server):
            raise Refused("this environment grades only groups of rollouts (score_group of ORS)")
        response = _response([*episode.items, *([_message(answer)] if answer or not episode.items else [])])
        reply = await self._own(episode, self.server.VERIFY_PATH, {**episode.row, "response": response})
        self._check(reply, self.server.VERIFY_PATH)
        graded = loads_exact(reply.body)
        if isinstance(graded, dict) and (failure := failure_of_row(Row(graded))):
            raise failure
        reward = graded.get("reward") if isinstance(graded, dict) else None
        is_failed = any(name.lower() == FAILURE_HEADER.encode() for name, _ in reply.headers)
        if is_failed or isinstance(reward, bool) or not isinstance(reward, int | float) or not math.isfinite(reward):
            raise EnvironmentFailed(f"{self.name}: verify gave no reward", server=self.name)
        episode.is_over = True
        shown = f"The reward is {reward:g}."
        return {"output": shown, "is_error": False, "is_unknown": False, "reward": float(reward), "done": True}

    async def _score(self, episode: Episode, asked: Json) -> Json:
        """Grade a group of answers to the session's task. Each candidate is a list of output items."""
        if not episode.row:
            raise Refused("no episode has begun. Create it first")
        bodies = [{**episode.row, "response": _response(items)} for items in asked["candidates"]]
        answer = await self._own(episode, GROUP_PATH, {"bodies": bodies})
        self._check(answer, GROUP_PATH)
        results = loads_exact(answer.body)["results"]
        for each in results:
            if failure := failure_of_row(Row(each)):
                raise failure
        return {"rewards": [each["reward"] for each in results]}

    async def _own(self, episode: Episode, path: str, body: Json) -> Answer:
        answer = await self._sent(path, body, episode.cookie, is_own=True)
        episode.cookie = self._cookie_in(answer) or episode.cookie
        return answer

    async def _sent(self, path: str, body: Json, cookie: str, *, is_own: bool) -> Answer:
        headers = [(b"cookie", cookie.encode("latin-1", "replace"))] if cookie else []
        if not is_own and (admission := getattr(self.app, "parts", {}).get("admission")):
            headers += run_headers(admission.run_token)
        scope = post_scope(path, headers, like=FROM_HERE)
        if not is_own:
            # Count this call like one over HTTP, because a message of a WebSocket has passed no limit so far.
            del scope[OWN_CALL_SCOPE_KEY]
        return await answer_of(self.app, scope, dump_json(body))

    def _check(self, answer: Answer, during: str) -> None:
        if answer.status >= 400:
            raise failure_of_reply(
                answer.status, answer.body, server=self.name, during=during, otherwise=EnvironmentFailed
            )

    def _cookie_in(self, answer: Answer) -> str:
        start = f"{self.server.get_session_middleware_key()}=".encode("latin-1")
        set_ = [value for name, value in answer.headers if name.lower() == b"set-cookie" and value.startswith(start)]
        return set_[-1].partition(b";")[0].decode("latin-1") if set_ else ""

    @staticmethod
    def _with_submit(tools: list[Json]) -> list[Json]:
        name = "submit_answer" if any(each["name"] == "submit" for each in tools) else "submit"
        about = "Submit the final answer. It ends the episode, which is then graded."
        schema = {"type": "object", "properties": {"answer": {"type": "string"}}, "required": ["answer"]}
        return [*tools, {"type": "function", "name": name, "description": about, "parameters": schema}]

    async def _leave(self, episode: Episode) -> None:
        """Release what the server keeps for an episode. A failure is only logged, because it drops idle sessions."""
        with suppress(RolloutError):
            answer = await self._own(episode, "/close_session", {})
            if answer.status >= 400:
                logger.warning("a session was not closed: status %d", answer.status)

    async def _close(self, sid: str) -> None:
        episode = self.by_id.pop(sid)
        for job in episode.jobs.values():
            job.cancel()
        if episode.row:
            await self._leave(episode)

    async def _start(self) -> None:
        self._reaping = asyncio.create_task(self._reap())

    async def _stop(self) -> None:
        if self._reaping is not None:
            self._reaping.cancel()
        for sid in list(self.by_id):
            await self._close(sid)

    async def _reap(self) -> None:
        """End sessions without a call for `session_idle_s`."""
        while True:
            await asyncio.sleep(min(60.0, max(self.idle_s / 4, 0.01)))
            for sid, episode in list(self.by_id.items()):
                if (
                    not (episode.turn.locked() or episode.is_attached)
                    and episode.used_at < time.monotonic() - self.idle_s
                ):
                    logger.warning("ended a session idle for more than %g s", self.idle_s)
                    await self._close(sid)


def _submit_of(tools: list[Json]) -> str:
    """Return the name of the tool that ends an episode. It is the last one."""
    return str(tools[-1]["name"]) if tools else "submit"


def _message(text: str) -> Json:
    content = [{"type": "output_text", "text": text, "annotations": []}]
    return {"type": "message", "id": "msg_answer", "role": "assistant", "status": "completed", "content": content}


def _response(items: list[Json]) -> Json:
    """Return what happened as the response of a model, so that graders find calls, outputs and the answer in order."""
    response = NeMoGymResponse.model_validate(
        {"id": f"resp_{uuid.uuid4().hex}", "created_at": int(time.time()), "model": MODEL, "output": items}
    )
    dumped: Json = response.model_dump(mode="json")
    return dumped


def _json(value: object, status: int = 200) -> Any:
    return JSONResponse(None, status) if value is None else _Written(value, status)


class _Written(JSONResponse):
    def render(self, content: Any) -> bytes:
        return dump_json(content)
