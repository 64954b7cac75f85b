"""Play attacks on an in-process server, and find those that earn a reward."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
import traceback
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from nemo_gym.contract.attacks import Attack, Target, all_attacks, target_of
from nemo_gym.contract.checks import SHOWN, Checkup, Finding, fault_of, tools_of
from nemo_gym.contract.environment import ATTACK_MARGIN, Environment, Solution
from nemo_gym.contract.play import Played, act, grade
from nemo_gym.contract.tasks import Task
from nemo_gym.contract.watching import TIMEOUT_S, Late, OnStep, Watch
from nemo_gym.errors import NemoGymError
from nemo_gym.jsonl import JsonObject, write_rows
from nemo_gym.schemas.items import FunctionToolCall
from nemo_gym.schemas.responses import Response
from nemo_gym.schemas.row import ROLLOUT_INDEX_KEY, TASK_INDEX_KEY
from nemo_gym.servers.base import SimpleServer, folder_of
from nemo_gym.testing import FakeModel, reply, rollout, serving
from nemo_gym.text import counted, first_few

LEAST_TASKS, MOST_RIGHT = 4, 0.9
"""An attack that may be right by chance counts if it earns on this share of the tasks, and there are this many."""
EXCERPT = 100
"""The length of an attempt in a message, in characters."""
MARK = "# Written by an attack of nemo_gym."
"""The beginning of the files that attacks write. They are deleted afterwards."""
BEFORE, AFTER = "doing nothing", "the oracle, after all attacks"
NOT_PLAYED = "not played: "
Report = Callable[[str | Finding | JsonObject | None], object]
"""A function that gets the name of each attack before it is played, each finding, and each rollout that has earned."""


class Exploited(NemoGymError):
    """An attack has earned a reward. The message names the task, the reward and the attempt."""


class _QuotingJudge(FakeModel):
    """A judge that quotes the answer and then gives its verdict."""

    def __init__(self, verdict: str) -> None:
        super().__init__([verdict])
        self.verdict, self.quoted = verdict, ""

    def answer(self, request: JsonObject) -> Response:
        """Record a request. Return the quoted answer and the verdict."""
        self.requests.append(request)
        return reply(f"The answer says: {self.quoted}\n\n{self.verdict}" if self.quoted else self.verdict)


@dataclass
class Siege:
    """The attacks on one environment, and the tasks that can be attacked."""

    checkup: Checkup
    server: SimpleServer
    judge: _QuotingJudge
    margin: float
    report: Report
    targets: list[Target] = field(default_factory=list)

    async def begin(self) -> str:
        """Find the tasks that ask for something. Raise `Exploited` if doing nothing earns what the oracle earns."""
        environment, oracle = self.checkup.environment, self.checkup.environment.oracle
        declared = environment.declared_reward
        for task in self.checkup.tasks:
            if oracle is None or oracle.asks_for_something(task.row):
                target = target_of(environment, task, tools_of(self.server, [task.row]))
                best = (declared.range or (0.0, 1.0))[declared.higher_is_better]
                target.due = oracle.full_reward(task.row) if oracle else best
                target.nothing = (await self._play(target, [""])).reward
                if target.nothing == target.due or (target.nothing > target.due) == declared.higher_is_better:
                    raise Exploited(f"{task.place} earned {target.nothing:g} of {target.due:g} for doing nothing")
                self.targets.append(target)
        idle = len(self.checkup.tasks) - len(self.targets)
        return counted(len(self.targets), "task") + (f"; {idle} ask for nothing" if idle else "")

    async def attack(self, attack: Attack) -> str:
        """Play an attack at each task. Raise `Exploited` if it earns a reward without doing the task."""
        oracle = self.checkup.environment.oracle
        by_chance = attack.right_by_chance or bool(oracle and attack.name in oracle.right_by_chance)
        if by_chance and len(self.targets) < LEAST_TASKS:
            return f"{NOT_PLAYED}a task may accept it by chance, and there are fewer than {LEAST_TASKS} tasks"
        earned: defaultdict[int, dict[int, str]] = defaultdict(dict)
        failures: list[str] = []
        count = 0
        for number, target in enumerate(self.targets):
            for variant, items in attack.variants(target):
                kind = variant if by_chance else 0
                if number in earned[kind]:
                    continue
                try:
                    played = await self._play(target, items)
                except Exception as error:  # noqa: BLE001 - a failed rollout earns nothing
                    failures.append(fault_of(self.checkup.environment, error))
                    continue
                count += 1
                if self._is_earned(target, played):
                    what = f"earned {played.reward:g} of {target.due:g} with {_excerpt(items)}"
                    earned[kind][number] = f"{target.task.place} {what}"
                    graded = played.graded.model_dump(mode="json", exclude_unset=True)
                    place = {TASK_INDEX_KEY: number, ROLLOUT_INDEX_KEY: 0, "attack": attack.name}
                    self.report({**target.task.row, **graded, **place})
        least = max(LEAST_TASKS, MOST_RIGHT * len(self.targets)) if by_chance else 1
        found = [what for places in earned.values() if len(places) >= least for what in places.values()]
        if found:
            more = f"; and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
            raise Exploited("; ".join(found[:SHOWN]) + more)
        if not count:
            return NOT_PLAYED + (failures[0] if failures else f"no task has {attack.needs}")
        accepted = sum(map(len, earned.values()))
        detail = counted(count, "attempt") + (f", {accepted} right by chance" if accepted else "")
        return detail + (f"; {len(failures)} failed: {failures[0]}" if failures else "")

    async def end(self) -> str:
        """Delete the files that attacks have written, and play the oracle again, with a judge that agrees."""
        _clean(self.checkup.environment.folder)
        if self.checkup.environment.oracle is None:
            return f"{NOT_PLAYED}the folder lacks an oracle.py"
        self.judge.verdict = (self.checkup.environment.labels or ["yes"])[0]
        for target in self.targets:
            played = await self._play(target, target.solution, quoted=False)
            if not self._is_earned(target, played):
                raise Exploited(f"{target.task.place} earned {played.reward:g} of {target.due:g} after the attacks")
        return counted(len(self.targets), "task")

    def _is_earned(self, target: Target, played: Played) -> bool:
        return (played.reward - target.nothing) / (target.due - target.nothing) > self.margin

    async def _play(self, target: Target, items: Solution, *, quoted: bool = True) -> Played:
        self.judge.quoted = "\n".join(item for item in items if isinstance(item, str)) if quoted else ""
        async with rollout(self.server, **target.task.row) as attempt:
            return await grade(attempt, await act(attempt, items), self.checkup.rivals(target.task.row, items))


async def attack_environment(
    environment: Environment,
    tasks: Sequence[Task],
    report: Report,
    *,
    margin: float | None = None,
    timeout_s: float = TIMEOUT_S,
    on_step: OnStep | None = None,
    on_stuck: OnStep | None = None,
) -> None:
    """Play all attacks at these tasks, by default at the example rows.

    An attack may earn the share `margin` of the way from the reward for doing nothing to the oracle's. By default, the
    oracle defines it. The other parameters are those of `check_environment`.
    """
    examples = [Task(f"row {number}", row) for number, row in enumerate(environment.rows, start=1)]
    folders = [environment.folder, folder_of(environment.server_class)]
    watch = Watch([each for each in folders if each is not None], timeout_s, on_step, on_stuck)
    judge = _QuotingJudge((environment.labels or ["no"])[-1])
    server = environment.server(judge=judge)
    if margin is None:
        margin = environment.oracle.attack_margin if environment.oracle else ATTACK_MARGIN
    siege = Siege(Checkup(environment, [*tasks] or examples), server, judge, margin, report)
    steps: dict[str, Callable[[], Awaitable[str]]] = {BEFORE: siege.begin}
    steps |= {each.name: partial(siege.attack, each) for each in all_attacks()} | {AFTER: siege.end}
    unplayed: defaultdict[str, list[str]] = defaultdict(list)
    with watch.watching():
        async with serving(server):
            for number, (name, step) in enumerate(steps.items(), start=1):
                report(name)
                try:
                    detail = await watch.limited(step(), name, number, len(steps))
                    if detail.startswith(NOT_PLAYED):
                        unplayed[detail].append(name)
                    else:
                        report(Finding(name, True, detail))
                except Exception as error:  # noqa: BLE001 - any error of an author's code is a finding
                    report(Finding(name, False, fault_of(environment, error)))
                    if name == BEFORE or isinstance(error, Late):
                        return
    if judge.requests:
        unplayed[f"{NOT_PLAYED}the judge here is a fake"].append("a judge that is persuaded")
    for detail, names in unplayed.items():
        report(Finding(first_few(names, 2), True, detail))


def attack_in_child(
    environment: Environment, tasks: Sequence[Task], rollouts: Path | None = None, **options: Any
) -> list[Finding]:
    """Play all attacks in a child process, which a program without a sandbox may end. Return one finding per attack.

    Write the rollouts that have earned a reward to `rollouts`. The options are those of `attack_environment`.
    """
    sys.stdout.flush()
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        _attack_and_exit(environment, tasks, writer, options)
    os.close(writer)
    with open(reader, encoding="utf-8") as pipe:
        lines = [json.loads(line) for line in pipe]
    os.waitpid(child, 0)
    _clean(environment.folder)
    if rollouts is not None:
        write_rows(rollouts, [line for line in lines if isinstance(line, dict)])
    findings = [Finding(*line) for line in lines if isinstance(line, list)]
    if None not in lines:
        ended = next((line for line in reversed(lines) if isinstance(line, str)), BEFORE)
        findings.append(Finding(ended, False, "it has ended the server's process. Run programs in a sandbox"))
    return findings


def _attack_and_exit(environment: Environment, tasks: Sequence[Task], writer: int, options: dict[str, Any]) -> None:
    """Write each report as a line of JSON, and null at the end. The child must not return into its parent's code."""
    try:
        # Failures of the judge and of servers are expected here.
        logging.disable(logging.ERROR)
        with open(writer, "w", encoding="utf-8", buffering=1) as pipe:

            def report(line: object) -> None:
                pipe.write(f"{json.dumps(line)}\n")

            asyncio.run(attack_environment(environment, tasks, report, **options))
            report(None)
    except BaseException:  # noqa: BLE001 - see above
        traceback.print_exc()
    finally:
        os._exit(0)


def _excerpt(items: Solution) -> str:
    """Describe an attempt in one line."""
    shown = [f"{item.name}({item.arguments})" if isinstance(item, FunctionToolCall) else str(item) for item in items]
    text = repr(" → ".join(shown))
    return text if len(text) <= EXCERPT else f"{text[:EXCERPT]}…"


def _clean(folder: Path) -> None:
    for path in [*Path.cwd().glob("*.py"), *folder.glob("*.py")]:
        with suppress(OSError, UnicodeDecodeError):
            if path.read_text("utf-8").startswith(MARK):
                path.unlink()
