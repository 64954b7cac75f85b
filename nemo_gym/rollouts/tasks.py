"""From the rows of a file to the tasks of a run: each row as it will be sent, once per repeat."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import islice
from pathlib import Path
from typing import Any

import orjson
from pydantic import ValidationError

from nemo_gym.data.prompts import PromptConfig, apply_prompt_to_row, load_prompt_config
from nemo_gym.data.skills import load_skill_directory
from nemo_gym.errors import DataError
from nemo_gym.jsonl import Line, read_lines
from nemo_gym.rollouts.job import CollectionSettings
from nemo_gym.schemas.responses import ResponseCreateParams
from nemo_gym.schemas.rollout import AGENT_REF_KEY, ROLLOUT_INDEX_KEY, SKILLS_REF_KEY, TASK_INDEX_KEY

PROBLEMS_SHOWN = 10
DEFAULT_AGENT_KEY = "_default"


@dataclass(frozen=True)
class TaskPlan:
    """How the rows of one file become tasks."""

    input: Path
    settings: CollectionSettings
    agents: Collection[str]
    """The agents that are up."""

    def check(self) -> None:
        """Raise `DataError` if any row cannot be a task: all problems are told at once, with file and line."""
        self._checked_numbers()

    def rows(self) -> Iterator[dict[str, Any]]:
        """Every task, repeats one after the other; nothing but the current row is held.

        Checks all rows before the first one is given out.
        """
        numbers = self._checked_numbers()
        prompt = self._prompt()
        skills = load_skill_directory(self.settings.skills.path) if self.settings.skills else None
        for line in self._lines():
            row = self._prepared(line.row, prompt)
            if skills is not None:
                row[SKILLS_REF_KEY] = skills.model_dump()
            repeats = self._repeats(row)
            task, first = numbers.take(line.raw, row.get(TASK_INDEX_KEY), repeats)
            row[TASK_INDEX_KEY] = task
            for repeat in range(first, first + repeats):
                yield self._repeated(row, repeat)

    def _lines(self) -> Iterator[Line]:
        return islice(read_lines(self.input), self.settings.limit)

    def _prompt(self) -> PromptConfig | None:
        return load_prompt_config(self.settings.prompt_config) if self.settings.prompt_config else None

    def _checked_numbers(self) -> TaskNumbers:
        digests = array("Q")
        problems: list[str] = []
        prompt = self._prompt()
        for line in self._lines():
            digests.append(_digest(line.raw))
            if problem := self._problem(line.row, prompt):
                problems.append(f"{self.input}:{line.number}: {problem}")
        if problems:
            hidden = len(problems) - PROBLEMS_SHOWN
            more = f"\n… and {hidden} rows more." if hidden > 0 else ""
            raise DataError("\n".join(problems[:PROBLEMS_SHOWN]) + more)
        if not digests:
            raise DataError(f"{self.input}: no rows. Each line must hold one JSON object.")
        return TaskNumbers(digests)

    def _problem(self, row: dict[str, Any], prompt: PromptConfig | None) -> str | None:
        params = row.get("responses_create_params")
        if params is not None and not isinstance(params, dict):
            return f"responses_create_params must be an object, found {type(params).__name__}."
        if prompt is not None and "input" in (params or {}):
            return "prompt_config is given, but the row has responses_create_params.input. Leave one of them out."
        try:
            prepared = self._prepared(row, prompt)
            ResponseCreateParams.model_validate(prepared["responses_create_params"])
        except KeyError as error:
            return str(error.args[0])
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(str(part) for part in ("responses_create_params", *first["loc"]))
            return f"{place}: {first['msg']}."
        return self._agent_problem(prepared)

    def _agent_problem(self, row: dict[str, Any]) -> str | None:
        name = _agent_of(row)
        if name is None:
            return f"the row names no agent. Add +agent_name=… (one of: {', '.join(sorted(self.agents))})."
        if name not in self.agents:
            close = get_close_matches(name, self.agents, n=1)
            hint = f" Did you mean '{close[0]}'?" if close else f" There are: {', '.join(sorted(self.agents))}."
            return f"no agent '{name}' is up.{hint}"
        repeats = self.settings.num_repeats
        if isinstance(repeats, dict) and name not in repeats and DEFAULT_AGENT_KEY not in repeats:
            return f"num_repeats says nothing of agent '{name}'. Add it, or _default."
        return None

    def _prepared(self, row: dict[str, Any], prompt: PromptConfig | None) -> dict[str, Any]:
        prepared = apply_prompt_to_row(row, prompt) if prompt else dict(row)
        params = {**(prepared.get("responses_create_params") or {}), **self.settings.responses_create_params}
        prepared["responses_create_params"] = params
        if _agent_of(prepared) is None and self.settings.agent_name is not None:
            prepared[AGENT_REF_KEY] = {"type": "responses_api_agents", "name": self.settings.agent_name}
        return prepared

    def _repeats(self, row: dict[str, Any]) -> int:
        repeats = self.settings.num_repeats
        if isinstance(repeats, dict):
            return repeats.get(str(_agent_of(row))) or repeats[DEFAULT_AGENT_KEY]
        return repeats or 1

    def _repeated(self, row: dict[str, Any], repeat: int) -> dict[str, Any]:
        task = {**row, ROLLOUT_INDEX_KEY: repeat}
        if self.settings.num_repeats_add_seed:
            params = dict(task["responses_create_params"])
            metadata = dict(params.get("metadata") or {})
            extra_body = {**orjson.loads(metadata.get("extra_body") or "{}"), "seed": repeat}
            params["metadata"] = {**metadata, "extra_body": orjson.dumps(extra_body).decode()}
            task["responses_create_params"] = params
        return task


class TaskNumbers:
    """Numbers tasks in the order of first appearance, and the repeats of each from 0.

    Identical lines are one task, and so are rows that bring the same index. Only lines that occur more than once are
    remembered: a file of a million different rows costs eight bytes each while it is checked, and nothing afterwards.
    """

    def __init__(self, digests: array[int]) -> None:
        ordered = sorted(digests)
        self._repeated = {
            left for left, right in zip(ordered, islice(ordered, 1, None), strict=False) if left == right
        }
        self._index_of_line: dict[int, int] = {}
        self._repeats_taken: dict[int, int] = {}
        self._next = 0

    def take(self, raw: bytes, given: int | None, repeats: int) -> tuple[int, int]:
        """The task of the next line, and the first of its repeats; `given` is the index that the row brings."""
        digest = _digest(raw)
        is_repeated = given is not None or digest in self._repeated
        task = given if given is not None else self._index_of_line.get(digest)
        if task is None:
            task = self._next
            self._next += 1
            if is_repeated:
                self._index_of_line[digest] = task
        if not is_repeated:
            return task, 0
        first = self._repeats_taken.get(task, 0)
        self._repeats_taken[task] = first + repeats
        return task, first


def _digest(raw: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(raw, digest_size=8).digest(), "little")


def _agent_of(row: dict[str, Any]) -> str | None:
    reference = row.get(AGENT_REF_KEY)
    name = reference.get("name") if isinstance(reference, dict) else None
    return name if isinstance(name, str) else None
