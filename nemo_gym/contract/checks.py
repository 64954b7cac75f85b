"""The checks of the rules that every environment must follow. Most checks run rollouts on an in-process server."""

from __future__ import annotations

import asyncio
import gc
import inspect
import math
import re
import statistics
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from types import FunctionType
from typing import NamedTuple

from fastapi.routing import APIRoute
from pydantic import ValidationError
from pydantic.json_schema import JsonSchemaValue

from nemo_gym.calls.problems import faults_of_row
from nemo_gym.config.explain import explain_params, with_known_fields
from nemo_gym.contract.answers import ODD_ARGUMENTS, odd_answers
from nemo_gym.contract.arguments import odd_arguments
from nemo_gym.contract.environment import Environment, Oracle, Solution, own_configs, own_servers
from nemo_gym.contract.play import Played, act, grade, grade_alone, play
from nemo_gym.contract.tasks import Task, named_tools
from nemo_gym.contract.watching import TIMEOUT_S, Late, OnStep, Watch
from nemo_gym.errors import NemoGymError, SignatureError, fault_in
from nemo_gym.jsonl import JsonObject
from nemo_gym.schemas.responses import Response, ResponseCreateParams
from nemo_gym.servers.base import SimpleServer, folder_of
from nemo_gym.servers.resources import listed_tools
from nemo_gym.servers.tools.handlers import place_of
from nemo_gym.testing import call, reply, rollout, serving
from nemo_gym.text import CERTAINLY_MEANT, closest, counted
from nemo_gym.web.blocking import CURE, Block

EXAMPLES = 5
VERIFY_LIMIT_S = 10.0
"""The maximum time in seconds to grade any answer. Slow grading delays all other rollouts."""
BLOCK_LIMIT_S = 1.0
"""The maximum time in seconds for which a handler may block the event loop."""
PARALLEL_ROWS = 16
SHOWN = 3
WITHOUT_AGENT = "resources_only.yaml"
"""The name of a config that need not have an agent, for programs that call the resources server themselves."""
PLAIN_REPLY: Solution = ["I am sure that the answer is 42."]


class Broken(NemoGymError):
    """The error of a failed check. The message names the place and the reason."""


class Finding(NamedTuple):
    """The result of one check."""

    promise: str
    is_kept: bool
    detail: str
    """A summary if the check has passed, or else a description of the problem."""


@dataclass
class Checkup:
    """The state of one run of the checks: the rows to play and the grading times so far."""

    environment: Environment
    tasks: Sequence[Task]
    verify_s: list[float] = field(default_factory=list)
    slow: list[tuple[float, str]] = field(default_factory=list)
    """Grading times above the limit, each with the name of the graded answer."""
    repeating: asyncio.Lock = field(default_factory=asyncio.Lock)
    watch: Watch | None = None
    """What was seen of the environment's code; None if it is not watched."""

    async def play(self, server: SimpleServer, row: JsonObject, items: Solution) -> Played:
        """Play an attempt and record its grading time."""
        return await self.graded(partial(play, server, row, items, self.rivals(row, items)))

    def rivals(self, row: JsonObject, items: Solution | None) -> list[Response]:
        """Return the other answers of an attempt's group, for a server with `verify_group`.

        The oracle's attempt gets empty answers as its rivals. Any other attempt gets answers of the oracle. If the
        server does not verify groups, return an empty list.
        """
        size = self.environment.group_size
        if size is None:
            return []
        solution = self.oracle.solve(row)
        return [reply("") if items == solution else reply(*solution)] * (size - 1)

    async def graded(self, attempt: Callable[[], Awaitable[Played]]) -> Played:
        """Make an attempt and record its grading time. Raise `Broken` if the reward is not in the declared range.

        If grading was slow, the attempt is repeated, because other work may have delayed it. Repetitions run one at a
        time.
        """
        played = await attempt()
        if played.verify_s > VERIFY_LIMIT_S:
            async with self.repeating:
                again = await attempt()
            played = again if again.verify_s < played.verify_s else played
        self.verify_s.append(played.verify_s)
        if problem := self.environment.declared_reward.problem_of(played.reward):
            raise Broken(problem)
        return played

    @asynccontextmanager
    async def server(self, *, judge_agrees: bool = True) -> AsyncIterator[SimpleServer]:
        """Start a fresh server that serves many rollouts, as in a run."""
        server = self.environment.server(judge_agrees=judge_agrees)
        async with serving(server):
            yield server

    @property
    def oracle(self) -> Oracle:
        """The folder's oracle. Raise `Broken` if there is none."""
        if self.environment.oracle is None:
            raise Broken(
                "there is no oracle.py. Write one: solve(row) returns the texts and calls of a perfect attempt"
            )
        return self.environment.oracle


Check = Callable[[Checkup], Awaitable[str]]


async def _configs_load(checkup: Checkup) -> str:
    folder = checkup.environment.folder
    configs = own_configs(folder)
    for path in configs:
        run = checkup.environment.load(path)
        used = {agent.referred("resources_server") for agent in run.servers_of("responses_api_agents")}
        alone = [server.name for server in own_servers(run, folder) if server.name not in used]
        if alone and path.name != WITHOUT_AGENT:
            raise Broken(f"{path}: no agent uses {', '.join(alone)}. Add an agent to the config")
    return counted(len(configs), "config")


async def _ready_to_publish(checkup: Checkup) -> str:
    folder = checkup.environment.folder
    problems = []
    readme, tests = folder / "README.md", folder / "tests"
    text = readme.read_text("utf-8") if readme.is_file() else ""
    needed = "missing" if readme.is_file() else "it does not exist. Write one with"
    required = {
        "the data's licence": "licen",
        "how answers are graded": "reward|earn",
        "a command with the folder's name": folder.name,
    }
    missing = [meaning for meaning, pattern in required.items() if not re.search(pattern, text, re.IGNORECASE)]
    if missing:
        problems.append(f"{readme}: {needed} {', '.join(missing)}")
    found = [path for path in tests.glob("test_*.py") if "def test_" in path.read_text("utf-8")]
    if not found:
        problems.append(f"{tests}: no test found")
    if (count := len(checkup.environment.rows)) != EXAMPLES:
        more = ". Move the others to a dataset of type train or validation" if count > EXAMPLES else ""
        problems.append(f"expected {EXAMPLES} example rows, found {count}{more}")
    _raise_for(problems)
    return f"{counted(len(found), 'test file')}, {EXAMPLES} example rows"


async def _tools_are_described(checkup: Checkup) -> str:
    tools = listed_tools(checkup.environment.server())
    bare = [tool.name for tool in tools if not tool.description]
    problems = [f"without a docstring: {', '.join(bare)}"] if bare else []
    folder = f"{checkup.environment.folder.resolve()}/"
    # Report misspelled hooks here, because the other checks that fail because of a hook do not mention it.
    problems += [hook.removeprefix(folder) for hook in misspelled_hooks(checkup.environment.server_class)]
    for tool in tools:
        for name, schema in tool.parameters["properties"].items():
            if not schema.keys() & {"type", "enum", "const", "anyOf", "oneOf", "allOf", "$ref"}:
                problems.append(f"{tool.name}: the argument '{name}' has no type")
    _raise_for(problems)
    return counted(len(tools), "tool")


async def _rows_are_valid(checkup: Checkup) -> str:
    if not checkup.environment.rows:
        raise Broken("no example rows. Add a dataset of the type example to the agent's block in the config")
    routes = {
        getattr(route, "path", ""): route for route in checkup.environment.server().setup_webserver().routes[::-1]
    }
    has_catch_all = any(re.fullmatch(r"/\{\w+\}", path) for path in routes)
    problems = []
    for place, row in checkup.tasks:
        given = row.get("responses_create_params", {})
        try:
            params = ResponseCreateParams.model_validate(given)
        except ValidationError as error:
            problems.append(f"{place}: {explain_params(error, row, given).removesuffix('.')}")
            continue
        # Skip tools without a name, such as web_search, because the model's endpoint runs them.
        named = [tool["name"] for tool in params.tools if tool.get("name")]
        missing = [] if has_catch_all else [name for name in named if f"/{name}" not in routes]
        if missing:
            problems.append(f"{place} names tools that the server lacks: {', '.join(missing)}")
        for method in ("seed_session", "verify"):
            # Report only the first method that rejects the row, because a rollout ends there.
            faults = _faults(routes.get(f"/{method}"), row, f"{method} of {checkup.environment.name}")
            if faults:
                problems.append(f"{place}: {'; '.join(faults)}")
                break
    _raise_for(problems)
    return f"{len(checkup.tasks)} rows"


def _faults(route: object, row: Mapping[str, object], needed_by: str) -> list[str]:
    """Return the reasons why a row is not a valid request body of a route."""
    if not isinstance(route, APIRoute) or route.body_field is None:
        return []
    body = {"responses_create_params": {"input": []}, **row, "response": reply().model_dump(mode="json")}
    _, problems = route.body_field.validate(body, {}, loc=("body",))
    kind = route.body_field.field_info.annotation
    return faults_of_row([with_known_fields(each, kind) for each in problems or ()], needed_by) if problems else []


async def _oracle_earns_all(checkup: Checkup) -> str:
    oracle = checkup.oracle

    async def falls_short(task: Task) -> str | None:
        earned = (await checkup.play(server, task.row, oracle.solve(task.row))).reward
        due = oracle.full_reward(task.row)
        return None if math.isclose(earned, due) else f"{task.place} earned {earned:g} of {due:g}"

    async with checkup.server() as server:
        await _each_row(checkup.tasks, falls_short)
    return f"full reward on {len(checkup.tasks)} rows"


async def _no_op_earns_less(checkup: Checkup) -> str:
    oracle = checkup.oracle

    async def earns_all(task: Task) -> str | None:
        if not oracle.asks_for_something(task.row):
            return None
        earned, due = (await checkup.play(server, task.row, [""])).reward, oracle.full_reward(task.row)
        is_as_good = earned >= due if checkup.environment.declared_reward.higher_is_better else earned <= due
        return f"{task.place} earned {earned:g} for doing nothing" if is_as_good else None

    async with checkup.server(judge_agrees=False) as server:
        await _each_row(checkup.tasks, earns_all)
    idle = sum(not oracle.asks_for_something(task.row) for task in checkup.tasks)
    return f"less on {len(checkup.tasks) - idle} rows" + (f"; {idle} ask for nothing" if idle else "")


async def _same_reward_twice(checkup: Checkup) -> str:
    async with checkup.server() as one, checkup.server() as other:
        for number, row in enumerate(checkup.environment.rows, start=1):
            for items in (checkup.oracle.solve(row), PLAIN_REPLY):
                with _naming(f"row {number}"):
                    first, second = [(await checkup.play(server, row, items)).reward for server in (one, other)]
                if first != second:
                    raise Broken(
                        f"row {number}: the same attempt earned {first:g} and then {second:g}. Make grading "
                        "deterministic, for example by seeding random numbers from the row"
                    )
    return "oracle and a plain reply"


async def _sessions_are_apart(checkup: Checkup) -> str:
    rows, oracle = checkup.environment.rows, checkup.oracle
    async with checkup.server() as server:
        for number, (row, other) in enumerate(zip(rows, (*rows[1:], *rows[:1]), strict=True), start=1):
            pair = f"rows {number} and {number % len(rows) + 1}, played at the same time"
            with _naming(pair):
                async with rollout(server, **row) as first, rollout(server, **other) as second:
                    solution, half = oracle.solve(row), len(oracle.solve(row)) // 2
                    begun = await act(first, solution[:half])
                    rivals = [checkup.rivals(each, oracle.solve(each)) for each in (row, other)]
                    disturbed = await grade(second, await act(second, oracle.solve(other)), rivals[1])
                    ended = await act(first, solution[half:])
                    whole = ended.model_copy(update={"output": [*begun.output, *ended.output]})
                    both = (await grade(first, whole, rivals[0])).reward, disturbed.reward
            if not all(map(math.isclose, both, (oracle.full_reward(row), oracle.full_reward(other)))):
                raise Broken(f"{pair}, earned {both} instead of the full reward")
    return f"{len(rows)} interleaved pairs"


async def _odd_answers_are_graded(checkup: Checkup) -> str:
    async with checkup.server() as server:
        tools = tools_of(server, checkup.environment.rows)
        answers = odd_answers(tools)
        blocks = [] if checkup.watch is None else checkup.watch.blocks
        before = len(blocks)
        for name, answer in answers.items():
            await _is_graded_for_each_row(checkup, server, name, answer)
        # Forget the blocks, because grading a huge answer may take longer than handling an ordinary call.
        del blocks[before:]
        calls = await _odd_calls_are_answered(checkup, server, tools)
    return f"{len(answers)} kinds" + (f", {counted(calls, 'odd call')}" if calls else "")


async def _is_graded_for_each_row(checkup: Checkup, server: SimpleServer, name: str, answer: Response) -> None:
    for number, row in enumerate(checkup.environment.rows, start=1):
        try:
            played = await checkup.graded(partial(grade_alone, server, row, answer, checkup.rivals(row, None)))
        except Exception as error:
            raise Broken(f"row {number}, {name}: {fault_of(checkup.environment, error)}") from error
        if not math.isfinite(played.reward):
            raise Broken(f"row {number}, {name}: the reward is {played.reward}, but it must be a finite number")
        if played.verify_s > VERIFY_LIMIT_S:
            # Skip the other rows, because grading this answer would take as long for them.
            checkup.slow.append((played.verify_s, f"row {number}, {name}"))
            return


async def _odd_calls_are_answered(checkup: Checkup, server: SimpleServer, tools: Mapping[str, JsonSchemaValue]) -> int:
    """For each row, call each tool with malformed and with unknown arguments. Return the number of calls per row."""
    calls = [
        call(name).model_copy(update={"arguments": arguments})
        for name, parameters in tools.items()
        for arguments in (*ODD_ARGUMENTS, *odd_arguments(parameters))
    ]
    for number, row in enumerate(checkup.environment.rows, start=1):
        async with rollout(server, **row) as attempt:
            for each in calls:
                # Calls in this process may never pause, and many quick ones would look like one that blocks.
                await asyncio.sleep(0)
                try:
                    await attempt.send(each)
                except Exception as error:
                    called = f"row {number}, {each.name} called with {each.arguments[:60]!r}"
                    raise Broken(f"{called}: {fault_of(checkup.environment, error)}") from error
    return len(calls)


def tools_of(server: SimpleServer, rows: Sequence[Mapping[str, object]]) -> dict[str, JsonSchemaValue]:
    """Return the JSON Schema of each tool's arguments, keyed by tool name. The server or a row names the tools."""
    named = (tool for row in rows for tool in named_tools(row))
    return {tool["name"]: tool.get("parameters") or {} for tool in named} | {
        tool.name: tool.parameters for tool in listed_tools(server)
    }


async def _verify_is_quick(checkup: Checkup) -> str:
    if not checkup.verify_s:
        raise Broken("no answer could be graded, so the grading time is unknown")
    middle, worst = statistics.median(checkup.verify_s), max(checkup.verify_s)
    if worst > VERIFY_LIMIT_S:
        place = f" ({max(checkup.slow)[1]})" if checkup.slow else ""
        raise Broken(f"grading one answer took {worst:.1f} s{place}; the limit is {VERIFY_LIMIT_S:g} s")
    return f"{middle * 1000:.1f} ms, {worst * 1000:.0f} ms at worst"


async def _nothing_blocks(checkup: Checkup) -> str:
    if checkup.watch is None:
        raise Broken("the code was not watched")
    # Delete objects in cycles, because a forgotten call is noticed when it is deleted.
    gc.collect()
    problems = [f"{call}, but does not await it. Write await before it" for call in checkup.watch.forgotten]
    longest: dict[str, Block] = {}
    for block in sorted(checkup.watch.blocks, key=lambda block: block.seconds):
        longest[block.path] = block
    slow = [block for path, block in longest.items() if path and block.seconds >= BLOCK_LIMIT_S]
    problems += [f"{block.described(checkup.environment.name)}. {CURE}" for block in slow]
    _raise_for(problems)
    return f"each held the event loop for less than {BLOCK_LIMIT_S:g} s"


PUBLISHING = "README, tests and examples are there"
"""The name of the check that is skipped if a folder is for private use."""
CHECKS: dict[str, Check] = {
    "configs load, each with an agent": _configs_load,
    PUBLISHING: _ready_to_publish,
    "tools are described and typed": _tools_are_described,
    "rows are valid and name existing tools": _rows_are_valid,
    "the oracle earns the full reward": _oracle_earns_all,
    "doing nothing earns less": _no_op_earns_less,
    "the same attempt earns the same again": _same_reward_twice,
    "two rollouts do not see each other": _sessions_are_apart,
    "odd answers are graded": _odd_answers_are_graded,
    "grading is quick": _verify_is_quick,
    "no handler blocks or forgets an await": _nothing_blocks,
}


async def check_environment(
    environment: Environment,
    tasks: Sequence[Task] = (),
    *,
    for_publishing: bool = True,
    timeout_s: float = TIMEOUT_S,
    on_step: OnStep | None = None,
    on_stuck: OnStep | None = None,
) -> list[Finding]:
    """Run all checks on the example rows and on these further tasks. If a check fails, run the others anyway.

    If `for_publishing` is false, skip the check for the parts that only a folder for others needs. `on_step` is called
    twice a second with the progress. After a check that exceeds `timeout_s`, no other check is run. If the code even
    ignores the interruption, `on_stuck` is called.
    """
    examples = [Task(f"row {number}", row) for number, row in enumerate(environment.rows, start=1)]
    folders = [environment.folder, folder_of(environment.server_class)]
    watch = Watch([each for each in folders if each is not None], timeout_s, on_step, on_stuck)
    checkup = Checkup(environment, [*examples, *tasks], watch=watch)
    checks = {promise: check for promise, check in CHECKS.items() if for_publishing or promise != PUBLISHING}
    findings: list[Finding] = []
    first: dict[str, str] = {}
    late = ""
    with watch.watching():
        for number, (promise, check) in enumerate(checks.items(), start=1):
            if late:
                findings.append(Finding(promise, False, f"not checked, because '{late}' took too long"))
                continue
            try:
                detail = await watch.limited(check(checkup), promise, number, len(checks))
                findings.append(Finding(promise, True, detail))
            except Exception as error:  # noqa: BLE001 - any error of an author's code is a finding
                late = promise if isinstance(error, Late) else ""
                fault = fault_of(environment, error)
                same = first.setdefault(fault, promise)
                shown = fault if same == promise else f"the same error as in '{same}'"
                findings.append(Finding(promise, False, shown))
    return findings


def fault_of(environment: Environment, error: Exception) -> str:
    """Describe an error, with its file and line if they are known."""
    if isinstance(error, SignatureError) and error.place:
        return f"{error.place.removeprefix(f'{environment.folder.resolve()}/')}: {error}"
    return str(error) if isinstance(error, NemoGymError) else fault_in(environment.folder, error)


@contextmanager
def _naming(rows: str) -> Iterator[None]:
    """Prefix the message of a `NemoGymError` in this block with the rows, unless it is a `SignatureError`."""
    try:
        yield
    except SignatureError:
        # Do not name the row, because the error concerns the server.
        raise
    except NemoGymError as error:
        raise Broken(f"{rows}: {error}") from error


async def _each_row(tasks: Sequence[Task], problem_of: Callable[[Task], Awaitable[str | None]]) -> None:
    """Call `problem_of` for each row, a limited number at once. Raise `Broken` with the first problems, if any."""
    gate = asyncio.Semaphore(PARALLEL_ROWS)

    async def gated(task: Task) -> str | None:
        async with gate:
            with _naming(task.place):
                return await problem_of(task)

    found = await asyncio.gather(*map(gated, tasks))
    _raise_for([problem for problem in found if problem])


def _raise_for(problems: Sequence[str]) -> None:
    if problems:
        more = f"; and {len(problems) - SHOWN} more" if len(problems) > SHOWN else ""
        raise Broken("; ".join(problems[:SHOWN]) + more)


def misspelled_hooks(server_class: type[SimpleServer]) -> Iterator[str]:
    """Yield a message for each public method that the class never calls and whose name is almost a hook's name."""
    ours = [cls for cls in server_class.__mro__ if cls.__module__.startswith("nemo_gym.")]
    theirs = [cls for cls in server_class.__mro__ if issubclass(cls, SimpleServer) and cls not in ours]
    hooks = {name for cls in ours for name, value in vars(cls).items() if inspect.isfunction(value) and name[0] != "_"}
    methods = {name: value for cls in theirs for name, value in vars(cls).items() if inspect.isfunction(value)}
    used = {name for method in methods.values() for name in inspect.unwrap(method).__code__.co_names}
    for name, method in methods.items():
        if name.startswith("_") or name in hooks or name in used or not _is_plain(method):
            continue
        if hook := closest(name, hooks - methods.keys(), CERTAINLY_MEANT):
            yield f"{place_of(method)}: {method.__qualname__} is never called. Did you mean '{hook}'?"


def _is_plain(method: FunctionType) -> bool:
    """Return whether no decorator, such as `@tool`, has marked a method."""
    return not vars(method)
