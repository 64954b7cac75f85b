"""Benchmarks: folders with a YAML file with a dataset of type `benchmark`, and a script that creates the dataset."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Self

from omegaconf import DictConfig
from pydantic import BaseModel, ConfigDict

from nemo_gym import paths
from nemo_gym.config.loading import load
from nemo_gym.config.models import DatasetConfig, RunConfig, ServerConfig
from nemo_gym.config.servers import NO_MODEL
from nemo_gym.config.view import current_view, set_view
from nemo_gym.data.made import record_arguments
from nemo_gym.data.script_process import run_script
from nemo_gym.data.scripts import BENCHMARKS, Script, log_of
from nemo_gym.errors import DataError, UserError

DEFAULT_FLAVOR = "config"
TYPE_LINE = re.compile(rb"""\btype['"]?\s*:\s*['"]?benchmark\b""")
"""A regular expression for the line of a YAML file that defines a dataset of type `benchmark`."""


class BenchmarkConfig(BaseModel):
    """A benchmark: its agent, its dataset and its number of repeats."""

    model_config = ConfigDict(frozen=True)

    name: str
    """The folder name, or `folder/flavor` if the YAML is not `config.yaml`."""
    path: Path
    """The YAML file that defines the benchmark."""
    agent_name: str
    num_repeats: int
    dataset: DatasetConfig

    @classmethod
    def from_config_path(cls, config_path: str | Path) -> Self:
        """Read a benchmark from a YAML file. Raise `DataError` if it does not define a dataset of type `benchmark`."""
        path = paths.find(config_path, Path.is_file)
        if path is None:
            places = ", ".join(str(root) for root in paths.search_roots())
            raise DataError(f"benchmark: file '{config_path}' not found in {places}. Check the path.")
        for agent in load([path], skip_dotenv=True, initial=NO_MODEL, needs_variables=False).servers_of(
            "responses_api_agents"
        ):
            for dataset in agent.datasets:
                if dataset.type == "benchmark":
                    return cls._of(path, agent, dataset)
        raise DataError(f"{path}: no agent has a dataset with type: benchmark. Add one to the agent's datasets.")

    @classmethod
    def _of(cls, path: Path, agent: ServerConfig, dataset: DatasetConfig) -> Self:
        repeats = dataset.num_repeats
        return cls(name=_name_of(path), path=path, agent_name=agent.name, num_repeats=repeats, dataset=dataset)

    def prepare(self, **arguments: object) -> Path:
        """Create the dataset with the script's `prepare(**arguments)` and return the path of its file.

        Raise `DataError` if the script is missing, or if it returns a file that is not the `jsonl_fpath` of the YAML.
        """
        program = self._program()
        target = next(iter([*self._roots(), *paths.search_roots()])) / self.dataset.jsonl_fpath
        setting = "prepare_script_args" if arguments else "prepare_args"
        script = Script(program, log_of(target), self.dataset.prepare_dependencies, setting)
        made = run_script(script, {**self.dataset.prepare_args, **arguments})
        expected = [root / self.dataset.jsonl_fpath for root in (*self._roots(), *paths.search_roots())]
        if made.resolve() not in [path.resolve() for path in expected]:
            raise DataError(
                f"{program}: prepare() returned '{made}', but {self.path} names jsonl_fpath: "
                f"{self.dataset.jsonl_fpath}. Both must be the same file."
            )
        if not made.is_file():
            raise DataError(f"{program}: prepare() returned '{made}' but did not write this file.")
        # Do not record `arguments`. Otherwise a later run without them would consider the file outdated.
        record_arguments(made, self.dataset.prepare_args)
        return made

    def _program(self) -> Path:
        named = self.dataset.prepare_script or str(self.path.with_name("prepare.py"))
        candidates = [root / named for root in self._roots()]
        found = next((path for path in candidates if path.is_file()), None) or paths.find(named, Path.is_file)
        if found is None:
            raise DataError(f"{self.path}: script '{named}' not found. Add it to create the data of '{self.name}'.")
        return found

    def _roots(self) -> list[Path]:
        """Return a list with the folder to which this benchmark's paths are relative.

        The folder contains `benchmarks/`. The list is empty if the YAML is not below a folder `benchmarks/`.
        """
        return [parent.parent for parent in self.path.resolve().parents if parent.name == BENCHMARKS][-1:]


def find_benchmarks() -> Iterator[BenchmarkConfig]:
    """Yield the benchmarks in the search roots' `benchmarks/`, sorted by name. For equal names the first root wins."""
    return map(BenchmarkConfig.from_config_path, benchmark_files().values())


def benchmark_files() -> dict[str, Path]:
    """Return the YAML file of each benchmark, keyed by name. See `find_benchmarks`."""
    found: dict[str, Path] = {}
    for root in paths.search_roots():
        for path in sorted((root / BENCHMARKS).rglob("*.yaml")):
            # Search the text instead of loading the file, because loading is slow and some YAML files are prompts.
            is_inside = BENCHMARKS in path.relative_to(root).parts[:-2]
            if is_inside and path.is_file() and TYPE_LINE.search(path.read_bytes()):
                found.setdefault(_name_of(path), path)
    return dict(sorted(found.items()))


def benchmarks_of(run: RunConfig) -> list[BenchmarkConfig]:
    """Return the benchmarks of a configuration. Raise `DataError` if the configuration does not define any."""
    found = [
        benchmark_of(agent, dataset)
        for agent in run.servers_of("responses_api_agents")
        for dataset in agent.datasets
        if dataset.type == "benchmark"
    ]
    if not found:
        raise DataError(
            "no agent of this configuration has a dataset with type: benchmark. Choose a benchmark with --benchmark "
            f"or --config. Available: {', '.join(benchmark_files())}."
        )
    return found


def check_prepared(run: RunConfig) -> None:
    """Raise `DataError` if a server's setting names data that the preparation of a benchmark would create."""
    for server in run.servers.values():
        for key, value in server.settings.items():
            parts = Path(value).parts if isinstance(value, str) else ()
            if parts[:1] != (BENCHMARKS,) or parts[2:3] != ("data",) or paths.find(value) is not None:
                continue
            if (named := "/".join(parts[1:2])) in benchmark_files():
                origin = server.origins.get(key) or server.origins[""]
                raise DataError(
                    f"{origin}: {server.name}.{key}: '{value}' does not exist, because the data of this benchmark is "
                    f"not prepared. Create it with: {command_to_prepare(named)}"
                )


def command_to_prepare(name: str) -> str:
    return f"ng eval prepare --benchmark {name}"


def benchmark_of(agent: ServerConfig, dataset: DatasetConfig) -> BenchmarkConfig:
    """Return the benchmark that a dataset of type `benchmark` belongs to."""
    place = f"datasets.{agent.datasets.index(dataset)}"
    # Prefer the file that defines the dataset, because the agent may be inherited from an environment's config.
    file = agent.origins.get(place, agent.origins[""]).file
    return BenchmarkConfig._of(Path(file).resolve(), agent, dataset)


def prepare_all(
    benchmarks: Sequence[BenchmarkConfig],
    arguments: Mapping[str, object],
    *,
    processes: int = 1,
    notice: Callable[[str], None],
) -> Iterator[Path | UserError]:
    """Create the dataset of each benchmark, up to `processes` at once. Yield the path or the error of each dataset."""
    attempt = partial(_attempt, arguments=arguments)
    if processes == 1 or len(benchmarks) < 2:
        for benchmark in benchmarks:
            notice(_first_line(benchmark))
            yield attempt(benchmark)
        return
    for benchmark in benchmarks:
        notice(_first_line(benchmark))
    with ProcessPoolExecutor(processes, get_context("spawn"), _begin, (current_view(),)) as pool:
        yield from pool.map(attempt, benchmarks)


def _first_line(benchmark: BenchmarkConfig) -> str:
    """Return the line that is shown before a benchmark's dataset is created."""
    return f"preparing benchmark '{benchmark.name}' …"


def _attempt(benchmark: BenchmarkConfig, arguments: Mapping[str, object]) -> Path | UserError:
    try:
        return benchmark.prepare(**arguments)
    except UserError as error:
        return error


def _begin(known: DictConfig | None) -> None:
    if known is not None:
        set_view(known)


def _name_of(path: Path) -> str:
    """Return the name of a file's benchmark: its path below `benchmarks/`, or the last two parts of any other path."""
    parts = path.resolve().with_suffix("").parts
    named = parts[len(parts) - parts[::-1].index(BENCHMARKS) :] if BENCHMARKS in parts else parts[-2:]
    return "/".join(named[:-1] if named[-1] == DEFAULT_FLAVOR else named)
