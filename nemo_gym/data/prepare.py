"""Prepare the datasets of a configuration: check rows, compare metrics with earlier ones, and collate files."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import orjson
from pydantic import BaseModel, ConfigDict, ValidationError

from nemo_gym import paths
from nemo_gym.calls.task_rules import TaskRules
from nemo_gym.config.explain import explain_params, misspelt_params
from nemo_gym.config.models import DatasetConfig, RunConfig
from nemo_gym.data.gather import AgentDataset, PathOf, missing_file, no_dataset, rows_of
from nemo_gym.data.made import was_made_with
from nemo_gym.data.media import with_empty_media, with_media, with_media_dir
from nemo_gym.data.prompts import INPUT_AND_PROMPT, has_input
from nemo_gym.data.rows import agent_ref_problem, check_depth, check_keys
from nemo_gym.data.statistics import dataset_statistics, write_metrics
from nemo_gym.data.task_data import problems_of_task_data, task_data_of_agents
from nemo_gym.errors import DataError
from nemo_gym.http.json_depth import DEEPEST_REQUEST
from nemo_gym.jsonl import JsonObject, parse_row, read_raw_lines, read_rows, write_rows
from nemo_gym.schemas.responses import ResponseCreateParams
from nemo_gym.schemas.row import Row
from nemo_gym.text import counted, did_you_mean_or_all

TYPES_OF_MODE = {"train_preparation": ("train", "validation", "benchmark"), "example_validation": ("example",)}
PROBLEMS_SHOWN = 10
OWN_FILES = "datasets"
"""The folder in the output folder with the files of each dataset, unless they are written next to the data."""

CLOSE = 5e-3
"""The tolerance for numbers of at least 1. Metrics files round these to two decimals."""
CLOSE_BELOW_1 = 5e-4


class PreparationSettings(BaseModel):
    """Parameters of `ng dataset collate`."""

    model_config = ConfigDict(extra="ignore", use_attribute_docstrings=True)

    output_dirpath: Path
    """The folder for the collated files, one per dataset type."""
    mode: Literal["train_preparation", "example_validation"]
    """The dataset types. train_preparation: train, validation and benchmark. example_validation: example."""
    should_download: bool = False
    """Download missing files. Files that a script can make without a download are made in any case."""
    data_source: Literal["gitlab", "huggingface"] = "huggingface"
    """The hub from which to download."""
    overwrite_metrics_conflicts: bool = False
    """Replace earlier metrics that contradict the data."""
    task_data_validation: bool = False
    """Also check each row's own fields with the `TaskData` of its environment's `task_data.py`."""
    tools: bool = True
    """Add the environment's tools to rows that list none, for trainers and frameworks that read them there."""


class Collated(NamedTuple):
    """The files written for one dataset type."""

    type: str
    rows: int
    path: Path
    metrics: Path
    datasets: list[Path]
    """The files that were collated."""


def prepare(
    run: RunConfig,
    settings: PreparationSettings,
    path_of: PathOf,
    *,
    remade: Collection[Path] = (),
    writes_next_to_data: bool = False,
    tools_of: Callable[[Sequence[str]], Mapping[str, Sequence[object]]] = lambda agents: {},
) -> list[Collated]:
    """Check, measure and collate every dataset of the mode's types.

    The metrics and the prepared rows of each dataset are written to `datasets/` in the output folder, or, with
    `writes_next_to_data`, next to the dataset. Metrics that are next to a dataset must agree with it in both cases.
    `tools_of` returns the tools of agents, as a request lists them. Rows that list none get those of their agent.
    `remade` contains the files that `path_of` has made again. Their earlier metrics are replaced without a comparison.

    If a file is missing, a row is invalid, or metrics contradict earlier ones, raise `DataError` before collating
    anything. The message has the number of invalid rows, and lists the first ones.
    """
    datasets, depths = _in_scope(run, settings, path_of), TaskRules.of_run(run).depths
    kinds = _task_data(run, datasets) if settings.task_data_validation else {}
    for path in dict.fromkeys(each.path for each in datasets):
        own = [each for each in datasets if each.path == path]
        depth = min(depths.get(each.agent, DEEPEST_REQUEST) for each in own)
        own_kinds = [kinds[each.agent] for each in own if each.agent in kinds]
        _check_rows(path, own, own_kinds, run.agent_names, depth=depth)
    folder = None if writes_next_to_data else settings.output_dirpath / OWN_FILES
    _measure_all(datasets, folder, overwrite=settings.overwrite_metrics_conflicts, remade=remade)
    tools = tools_of(list(dict.fromkeys(each.agent for each in datasets)))
    for path in dict.fromkeys(each.path for each in datasets):
        own = [each for each in datasets if each.path == path]
        write_rows(_own_file(path, "_prepare.jsonl", folder), _prepared(own, tools))
    types = [type_ for type_ in TYPES_OF_MODE[settings.mode] if any(each.dataset.type == type_ for each in datasets)]
    return [
        _collate(type_, [each for each in datasets if each.dataset.type == type_], settings.output_dirpath, tools)
        for type_ in types
    ]


def _in_scope(run: RunConfig, settings: PreparationSettings, path_of: PathOf) -> list[AgentDataset]:
    types = TYPES_OF_MODE[settings.mode]
    found: list[AgentDataset] = []
    missing: list[str] = []
    for agent in run.servers_of("responses_api_agents"):
        for dataset in agent.datasets:
            if dataset.type not in types:
                continue
            try:
                found.append(AgentDataset(agent.name, dataset, path_of(agent, dataset)))
            except DataError as error:
                missing.append(str(error))
    if missing:
        raise DataError("\n".join(missing))
    if not found:
        raise no_dataset(run, f"mode={settings.mode}", *types)
    return found


def unobtainable_files(run: RunConfig) -> list[str]:
    """Return a message for each dataset whose file is missing and cannot be downloaded or made by a command."""
    return [
        missing_file(agent, dataset, "Copy it there, or add a source.")
        for agent in run.servers_of("responses_api_agents")
        for dataset in agent.datasets
        if not (dataset.source or dataset.prepare_script or paths.find(dataset.jsonl_fpath, Path.is_file))
    ]


def _task_data(run: RunConfig, datasets: Sequence[AgentDataset]) -> dict[str, type[BaseModel]]:
    found = task_data_of_agents(run)
    if found.keys().isdisjoint(each.agent for each in datasets):
        agents = ", ".join(dict.fromkeys(each.agent for each in datasets))
        raise DataError(
            f"task_data_validation: no resources server of these agents has a task_data.py: {agents}. Add one with a "
            "class TaskData, or omit the flag."
        )
    return found


def _check_rows(
    path: Path,
    datasets: Sequence[AgentDataset],
    kinds: Sequence[type[BaseModel]],
    agents: Collection[str],
    *,
    depth: int,
) -> None:
    has_prompt = any(each.dataset.prompt_config for each in datasets)
    bad: list[int] = []
    shown: list[str] = []
    count = 0
    for number, raw in read_raw_lines(path):
        count += 1
        try:
            row = parse_row(raw, path, number)
            check_depth(raw, path, number, depth)
            check_keys(raw, row, path, number)
            problem = _agent_problem(Row(row), agents) or _problem(
                with_media_dir(row, path.parent), has_prompt=has_prompt
            )
            if problem:
                raise DataError(f"{path}:{number}: {problem}")
            for kind in dict.fromkeys(kinds):
                if problem := problems_of_task_data(row, kind):
                    raise DataError(f"{path}:{number}: {problem}")
        except DataError as error:
            bad.append(number)
            if len(shown) < PROBLEMS_SHOWN:
                shown.append(str(error))
    if not count:
        raise DataError(f"{path}: no rows. Each line must hold one JSON object.")
    if bad:
        hidden = len(bad) - len(shown)
        more = f"\n… and {hidden} more, in lines {', '.join(map(str, bad[PROBLEMS_SHOWN:]))}." if hidden else ""
        raise DataError(f"{path}: {len(bad)} of {counted(count, 'row')} invalid:\n" + "\n".join(shown) + more)


def _agent_problem(row: Row, agents: Collection[str]) -> str | None:
    # An empty reference is replaced by the dataset's agent.
    if not row.fields.get("agent_ref") or row.agent in agents:
        return None
    if row.agent is None:
        return agent_ref_problem(row)
    hint = did_you_mean_or_all(row.agent, agents, "agents")
    return f"agent_ref: this configuration does not define an agent '{row.agent}'.{hint}"


def _problem(row: JsonObject, *, has_prompt: bool) -> str | None:
    params = row.get("responses_create_params")
    if params is None and not has_prompt:
        without = "responses_create_params is missing, and the dataset does not set prompt_config. Add one of them."
        return misspelt_params(row) or without
    if not isinstance(params or {}, dict):
        return f"responses_create_params must be an object, found {type(params).__name__}."
    if has_prompt and has_input(row):
        return INPUT_AND_PROMPT
    given = {"input": [], **(params or {})} if has_prompt else params
    try:
        prepared = with_empty_media({**row, "responses_create_params": given})
        ResponseCreateParams.model_validate(prepared["responses_create_params"])
    except DataError as error:
        return str(error)
    except ValidationError as error:
        return explain_params(error, row, given)
    return None


def _own_file(path: Path, ending: str, folder: Path | None) -> Path:
    """Return the path for a file about a dataset: next to it, or in `folder` at its path relative to the search roots.

    The innermost root counts, because an installation may be inside the working folder.
    """
    next_to_data = path.with_name(f"{path.stem}{ending}")
    if folder is None:
        return next_to_data
    absolute = Path(os.path.abspath(next_to_data))
    roots = [root for root in (Path(absolute.anchor), *paths.search_roots()) if absolute.is_relative_to(root)]
    return folder / absolute.relative_to(max(roots, key=lambda root: len(root.parts)))


def _measure_all(
    datasets: Sequence[AgentDataset], folder: Path | None, *, overwrite: bool, remade: Collection[Path]
) -> None:
    problems: list[str] = []
    for path, dataset in {each.path: each.dataset for each in reversed(datasets)}.items():
        measured = dataset_statistics(read_rows(path))
        target = _own_file(path, "_metrics.json", folder)
        target.parent.mkdir(parents=True, exist_ok=True)
        conflict = target.with_name(f"{target.stem}_conflict.json")
        earlier = target if target.is_file() else _own_file(path, "_metrics.json", None)
        written = {**dataset.model_dump(mode="json", exclude_defaults=True), **measured}
        whole = {**dataset.model_dump(mode="json"), **measured}
        is_new = path in remade or _has_outdated_metrics(path, earlier, dataset)
        is_compared = earlier.is_file() and not (overwrite or is_new)
        if is_compared and (found := list(_differences(earlier_metrics(earlier), whole, ""))):
            write_metrics(conflict, written)
            problems.append(f"{earlier}: {'; '.join(found)}. The current metrics are in {conflict}.")
        else:
            write_metrics(target, written)
            conflict.unlink(missing_ok=True)
    if problems:
        advice = "Correct the data, or accept the new metrics with --overwrite-metrics-conflicts."
        raise DataError("\n".join([*problems, advice]))


def _has_outdated_metrics(path: Path, metrics: Path, dataset: DatasetConfig) -> bool:
    """Return whether the file was made again with other `prepare_args` after its metrics were computed."""
    arguments = dataset.prepare_args
    if not (metrics.is_file() and was_made_with(path, arguments)):
        return False
    earlier = earlier_metrics(metrics).get("prepare_args", arguments)
    return bool(earlier != dataset.model_dump(mode="json")["prepare_args"])


def _prepared(datasets: Sequence[AgentDataset], tools: Mapping[str, Sequence[object]]) -> Iterator[JsonObject]:
    """Yield the rows as a trainer reads them: with prompts, media and tools, and as often as they are repeated."""
    for row in map(with_media, rows_of(datasets, copies=True)):
        if not row["responses_create_params"].get("tools") and (offered := tools.get(str(Row(row).agent))):
            row["responses_create_params"] = {**row["responses_create_params"], "tools": offered}
        yield row


def _collate(
    type_: str, datasets: Sequence[AgentDataset], folder: Path, tools: Mapping[str, Sequence[object]]
) -> Collated:
    path, metrics = folder / f"{type_}.jsonl", folder / f"{type_}_metrics.json"
    count = write_rows(path, _prepared(datasets, tools))
    write_metrics(
        metrics, {"name": type_, "type": type_, "jsonl_fpath": str(path), **dataset_statistics(read_rows(path))}
    )
    return Collated(type_, count, path, metrics, list(dict.fromkeys(each.path for each in datasets)))


def earlier_metrics(path: Path) -> Mapping[str, object]:
    """Read a metrics file. Raise `DataError` if it is not a JSON object."""
    try:
        earlier = orjson.loads(path.read_bytes())
    except orjson.JSONDecodeError as error:
        raise DataError(
            f"{path}:{error.lineno}:{error.colno}: not valid JSON ({error.msg}). Delete the file."
        ) from error
    if not isinstance(earlier, dict):
        raise DataError(f"{path}: expected a JSON object, found {type(earlier).__name__}. Delete the file.")
    return earlier


def _differences(earlier: Mapping[str, object], now: Mapping[str, object], above: str) -> Iterator[str]:
    """Yield the differences between earlier metrics and the current ones, as text. Ignore keys that only `now` has."""
    for key, was in earlier.items():
        name, value = f"{above}{key}", now.get(key)
        if key not in now:
            if was is not None:
                yield f"{name} was {was!r} and is missing now"
        elif isinstance(was, dict) and isinstance(value, dict):
            yield from _differences(was, value, f"{name}.")
        elif not _agree(was, value):
            yield f"{name} was {was!r} and is {value!r} now"


def _agree(was: object, now: object) -> bool:
    if isinstance(was, bool) or isinstance(now, bool):
        return was is now
    if isinstance(was, int | float) and isinstance(now, int | float):
        return abs(was - now) <= (CLOSE if abs(was) >= 1 else CLOSE_BELOW_1)
    if isinstance(was, list) and isinstance(now, list):
        return sorted(map(orjson.dumps, was)) == sorted(map(orjson.dumps, now))
    return bool(was == now)
