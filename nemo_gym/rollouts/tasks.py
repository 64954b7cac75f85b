"""Turn the rows of a file into the tasks of a run: each row as it is sent to the agent, once per repeat."""

from __future__ import annotations

import logging
from array import array
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from math import ceil
from pathlib import Path
from typing import NamedTuple

from pydantic import ValidationError

from nemo_gym import paths
from nemo_gym.calls.task_rules import TaskRules
from nemo_gym.config.explain import explain_params
from nemo_gym.data.gather import AgentDataset, numbered_rows_of
from nemo_gym.data.media import with_empty_media, with_media_dir
from nemo_gym.data.prompts import INPUT_AND_PROMPT, PromptConfig, apply_prompt_to_row, has_input, load_prompt_config
from nemo_gym.data.rows import agent_ref_problem, check_depth, check_keys
from nemo_gym.data.skills import load_skill_directory
from nemo_gym.errors import ConfigError, DataError
from nemo_gym.http.json_depth import DEEPEST_REQUEST
from nemo_gym.jsonl import Line, RawLine, dump_json, parse_row, read_raw_lines
from nemo_gym.rollouts.job import CollectionSettings, RunFiles
from nemo_gym.rollouts.numbering import TaskNumbers, digest_of
from nemo_gym.schemas.responses import ResponseCreateParams
from nemo_gym.schemas.row import TASK_INDEX_KEY, Row
from nemo_gym.text import closest, did_you_mean

logger = logging.getLogger(__name__)

PROBLEMS_SHOWN = 10
NO_AGENT = "The run has no agent. Start its servers with a config that defines one."
ANNOUNCED = 100_000
"""The number of rollouts above which the plan is announced, because writing it takes more than a moment."""
LARGEST_WITHOUT_YES = 10_000_000
"""The number of rollouts above which the plan is written only with `--yes`."""


def find_input(path: Path, notice: Callable[[str], None] = logger.warning) -> Path:
    """Find the task file of a run: in the working folder, else in the search roots.

    Call `notice` if other folders have such a file, too. Raise `DataError` if it does not exist.
    """
    found: list[Path] = []
    for each in (Path.cwd() / path.expanduser(), *paths.find_all(path)):
        if each.exists() and not any(each.samefile(other) for other in found):
            found.append(each)
    if len(found) > 1:
        others = ", ".join(map(str, found[1:]))
        notice(f"note: input_jsonl_fpath: using {found[0]}; also found: {others}.")
    if not found:
        places = ", ".join(str(root) for root in dict.fromkeys([Path.cwd(), *paths.search_roots()]))
        near = closest(path.name, [each.name for each in path.parent.glob("*.jsonl")])
        hint = f" Did you mean '{path.with_name(near)}'?" if near else " Check the path."
        raise DataError(f"input_jsonl_fpath: file '{path}' not found in {places}.{hint}")
    return found[0]


class PlannedRow(NamedTuple):
    """A row as it is sent to the agent, but without its repeat number."""

    row: Row
    task: int
    first: int
    """The number of the first repeat. It is above 0 if an earlier row belongs to the same task."""
    repeats: int
    has_own_number: bool
    """Whether the row contains its task number."""


@dataclass(frozen=True)
class TaskPlan:
    """The conversion of a file's rows to tasks."""

    input: Path
    settings: CollectionSettings
    agents: Collection[str]
    """The names of the run's agents."""
    elsewhere: Mapping[str, str] = field(default_factory=dict)
    """For each agent that is only in other runs, the command-line override that selects its run."""
    rules: TaskRules = field(default_factory=TaskRules)
    datasets: Sequence[AgentDataset] = ()
    """The datasets from which the input was gathered; empty if the input is the user's own file."""
    is_gathered: bool = False
    """Whether the input was gathered from datasets.

    If so, `limit` applies to the rows of each agent instead of all lines, and copies of a row count once. The rows
    then also name the folder of their media.
    """
    notice: Callable[[str], None] = logger.info
    """What is called with the size of a large plan before it is written."""

    def check(self) -> TaskNumbers:
        """Check all rows and return their numbering. Raise `DataError`, with file and line, if rows are invalid."""
        if self.input.exists() and not self.input.is_file():
            raise DataError(f"{self.input} is not a regular file. Rows are read more than once; write them to a file.")
        digests, given = array("Q"), array("Q")
        rollouts = 0
        problems = _Problems(self.input)
        prompt = self._prompt()
        # Report an unknown `agent_name` once instead of for each row, because the setting is wrong, not the rows.
        no_such_agent = self._unknown_agent(self.settings.agent_name) if self.settings.agent_name else None
        for number, raw in self._raw_lines():
            try:
                row = Row(parse_row(raw, self.input, number))
                if no_such_agent and row.agent is None:
                    raise ConfigError(f"agent_name: {no_such_agent}")
                accepted = self.rules.depths.get(str(row.agent or self.settings.agent_name), DEEPEST_REQUEST)
                check_depth(raw, self.input, number, accepted)
                check_keys(raw, row.fields, self.input, number)
                if problem := self._problem(row, prompt):
                    raise DataError(f"{self.input}:{number}: {problem}")
            except DataError as error:
                if raw.strip() in (b"[", b"{"):
                    raise DataError(
                        f"{self.input}:{number}: a JSON document of several lines starts here. Each line must contain "
                        "one JSON object. Put each row on its own line, for a list with: jq -c '.[]'"
                    ) from error
                problems.add(str(error), number)
            else:
                rollouts += self._repeats(row.agent or self.settings.agent_name)
                if row.task_index is None:
                    digests.append(digest_of(raw))
                else:
                    given.append(row.task_index)
        problems.raise_if_any()
        if not digests and not given:
            raise DataError(f"{self.input}: no rows. Each line must contain one JSON object.")
        return TaskNumbers(digests, given, rollouts)

    def rows(self) -> Iterator[Row]:
        """Check all rows. Then yield each row as often as it is repeated, keeping only one row in memory.

        Raise `DataError` before the first row if the plan has too many rollouts.
        """
        numbers = self.check()
        self.check_size(numbers)
        for planned in self.planned(numbers):
            for repeat in range(planned.first, planned.first + planned.repeats):
                yield self.repeated(planned.row, repeat)

    def check_size(self, numbers: TaskNumbers) -> None:
        """Announce a large plan. Raise `DataError` if the settings do not allow its size."""
        check_size(numbers.rows, numbers.rollouts, self.settings, self.notice)

    def planned(self, numbers: TaskNumbers) -> Iterator[PlannedRow]:
        """Yield the rows of the run's part of the tasks. The rows must have been checked before."""
        numbers.begin_again()
        prompt = self._prompt()
        skills = load_skill_directory(self.settings.skills.path) if self.settings.skills else None
        part = self.settings.part
        for line in self._lines():
            row = self._prepared(Row(line.row), prompt)
            if skills is not None:
                row = row.with_fields({"skills_ref": skills.model_dump()})
            repeats = self._repeats(row.agent)
            has_own_number = row.task_index is not None
            task, first = numbers.take(line.raw, row.task_index, repeats)
            if task in part:
                yield PlannedRow(row.of_task(task), task, first, repeats, has_own_number)

    def placed_in_sources(self) -> Iterator[tuple[str, Row]]:
        """Yield the place (`file:line`) of each row of the datasets, and the row as it is sent to the agent."""
        prompt = self._prompt()
        for source in self.datasets:
            for number, row in numbered_rows_of(source):
                yield f"{source.path}:{number}", self._prepared(Row(row), prompt)

    def placed(self) -> Iterator[tuple[str, Row]]:
        """Yield the place (`file:line`) of each row of the input, and the row as it is sent to the agent."""
        prompt = self._prompt()
        for line in self._lines():
            yield f"{self.input}:{line.number}", self._prepared(Row(line.row), prompt)

    def repeated(self, row: Row, repeat: int) -> Row:
        """Return one repeat of a row, with its own sampling seed if `num_repeats_add_seed` is set."""
        task = row.of_repeat(repeat)
        if not self.settings.num_repeats_add_seed:
            return task
        params = row.params or {}
        extra_body = {**(row.extra_body or {}), "seed": repeat}
        metadata = {**(params.get("metadata") or {}), "extra_body": dump_json(extra_body).decode()}
        return task.with_fields({"responses_create_params": {**params, "metadata": metadata}})

    def prompt_file(self) -> Path | None:
        """Return the path of the prompt for rows without input, or None if no prompt is set or the file is missing."""
        return paths.find(self.settings.prompt_config, Path.is_file) if self.settings.prompt_config else None

    def read_files(self) -> Iterator[Path]:
        """Yield the files that the plan reads."""
        if not self.is_gathered:
            yield self.input
        yield from (each.path for each in self.datasets)
        if prompt := self.prompt_file():
            yield prompt
        if self.settings.prices:
            yield self.settings.prices
        if self.settings.skills and (folder := paths.find(self.settings.skills.path, Path.is_dir)):
            yield from (path for path in folder.rglob("*") if path.is_file())

    def _lines(self) -> Iterator[Line]:
        for number, raw in self._raw_lines():
            yield Line(number, raw, parse_row(raw, self.input, number))

    def _raw_lines(self) -> Iterator[RawLine]:
        lines, limit = read_raw_lines(self.input), self.settings.limit
        if limit is None or not self.is_gathered:
            return islice(lines, limit)
        return self._first_of_each_agent(lines, limit)

    def _first_of_each_agent(self, lines: Iterator[RawLine], limit: int) -> Iterator[RawLine]:
        rows: Counter[str | None] = Counter()
        before: dict[str | None, bytes] = {}
        for line in lines:
            agent = Row(parse_row(line.raw, self.input, line.number)).agent
            # Copies of a row are its repeats. They follow each other, and count as one row.
            rows[agent] += before.get(agent) != line.raw
            before[agent] = line.raw
            if rows[agent] <= limit:
                yield line

    def _prompt(self) -> PromptConfig | None:
        return load_prompt_config(self.settings.prompt_config) if self.settings.prompt_config else None

    def _problem(self, row: Row, prompt: PromptConfig | None) -> str | None:
        if problem := _index_problem(row) or agent_ref_problem(row):
            return problem
        if "policy_api_key" in row.fields:
            return (
                "policy_api_key does not belong in a file, and a collection would copy it to other files. Remove "
                "it, or run the rows with run_examples or nemo_gym.training.TrainingClient."
            )
        params = row.fields.get("responses_create_params")
        if params is not None and not isinstance(params, dict):
            return f"responses_create_params must be an object, found {type(params).__name__}."
        if prompt is not None and has_input(row.fields):
            return INPUT_AND_PROMPT
        try:
            prepared = self._prepared(row, prompt)
            ResponseCreateParams.model_validate(with_empty_media(prepared.fields)["responses_create_params"])
        except KeyError as error:
            return f"{error.args[0]}."
        except DataError as error:
            return str(error)
        except ValidationError as error:
            return explain_params(error, row.fields, prepared.params)
        if self.settings.num_repeats_add_seed and prepared.extra_body is None:
            return "responses_create_params.metadata.extra_body must be a JSON object for num_repeats_add_seed."
        return self._agent_problem(prepared)

    def _agent_problem(self, row: Row) -> str | None:
        name = row.agent
        if name is None:
            known = ", ".join(sorted(self.agents))
            return f"the row does not name an agent. {f'Add --agent … (one of: {known}).' if known else NO_AGENT}"
        if unknown := self._unknown_agent(name):
            return unknown
        repeats = self.settings.num_repeats
        if isinstance(repeats, dict) and name not in repeats and "_default" not in repeats:
            return f"num_repeats does not list agent '{name}'. Add it, or _default."
        return None

    def _unknown_agent(self, name: str) -> str | None:
        if name in self.agents:
            return None
        if name in self.elsewhere:
            return f"agent '{name}' is not part of this run. Select the run that has it: {self.elsewhere[name]}."
        known = f" Running agents: {', '.join(sorted(self.agents))}." if self.agents else f" {NO_AGENT}"
        return f"agent '{name}' is not running.{did_you_mean(name, [*self.agents, *self.elsewhere]) or known}"

    def _prepared(self, row: Row, prompt: PromptConfig | None) -> Row:
        fields = apply_prompt_to_row(row.fields, prompt) if prompt else row.fields
        prepared = Row(fields if self.is_gathered else with_media_dir(fields, self.input.parent)).without_outcome()
        params = {**(prepared.params or {}), **self.settings.responses_create_params}
        prepared.fields["responses_create_params"] = params
        if prepared.agent is None and self.settings.agent_name is not None:
            prepared.fields["agent_ref"] = {"type": "responses_api_agents", "name": self.settings.agent_name}
        return prepared

    def _repeats(self, agent: str | None) -> int:
        repeats = self.settings.num_repeats
        if isinstance(repeats, dict):
            return repeats.get(str(agent)) or repeats["_default"]
        return repeats or 1


def check_size(rows: int, rollouts: int, settings: CollectionSettings, notice: Callable[[str], None]) -> None:
    """Announce a large plan before it is written. Raise `DataError` if the settings do not allow its size.

    `rows` and `rollouts` are those of the whole input. Assume that all parts of it have the same size.
    """
    parts = settings.part.of
    rows, rollouts = ceil(rows / parts), ceil(rollouts / parts)
    if rollouts > ANNOUNCED:
        file = RunFiles(results=settings.output_jsonl_fpath).materialized
        notice(f"plan: {rollouts:,} rollouts of {rows:,} rows, in {file}")
    if rollouts > LARGEST_WITHOUT_YES and not settings.yes:
        raise DataError(
            f"the plan has {rollouts:,} rollouts. Add --yes if that is meant, or lower num_repeats or limit."
        )


class _Problems:
    """The problems of a file's rows. Each problem is reported once, with the first row that has it."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._first: dict[str, str] = {}
        self._count: Counter[str] = Counter()
        self._hidden = 0

    def add(self, message: str, line: int) -> None:
        """Record a row's error message. The message begins with the file and line."""
        problem = message.removeprefix(f"{self._file}:{line}")
        if problem not in self._first:
            if len(self._first) == PROBLEMS_SHOWN:
                self._hidden += 1
                return
            self._first[problem] = message
        self._count[problem] += 1

    def raise_if_any(self) -> None:
        """Raise `DataError` with all problems, if there are any."""
        lines = [
            message + (f" (and {_more_rows(others)})" if (others := self._count[problem] - 1) else "")
            for problem, message in self._first.items()
        ]
        if self._hidden:
            lines.append(f"… and {_more_rows(self._hidden)}.")
        if lines:
            raise DataError("\n".join(lines))


def _more_rows(number: int) -> str:
    return f"{number} more row{'s' if number > 1 else ''}"


def _index_problem(row: Row) -> str | None:
    index = row.fields.get(TASK_INDEX_KEY)
    if index is not None and (row.task_index is None or not 0 <= row.task_index < 2**63):
        return f"{TASK_INDEX_KEY} must be an integer of at least 0, found {index!r}."
    try:
        _ = row.without_outcome().rollout_id
    except ValueError as error:
        return f"{error}."
    return None
