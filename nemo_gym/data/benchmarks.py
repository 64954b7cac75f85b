"""Benchmarks: folders whose YAML describes a data set of the type `benchmark`, and whose program makes it."""

from __future__ import annotations

import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from itertools import repeat
from multiprocessing import get_context
from pathlib import Path
from types import ModuleType
from typing import Any, Self

from omegaconf import DictConfig
from pydantic import BaseModel, ConfigDict

from nemo_gym import paths
from nemo_gym.config import DatasetConfig, RunConfig, ServerConfig, load
from nemo_gym.config.published import maybe_get_global_config_dict, tell_process
from nemo_gym.config.servers import NO_MODEL
from nemo_gym.errors import DataError

BENCHMARKS = "benchmarks"
DEFAULT_FLAVOR = "config"


class BenchmarkConfig(BaseModel):
    """A benchmark: which agent runs it, on which data set, how often."""

    model_config = ConfigDict(frozen=True)

    name: str
    """The folder's, or `folder/flavor` where the YAML is not its `config.yaml`."""
    path: Path
    """The YAML."""
    agent_name: str
    num_repeats: int
    dataset: DatasetConfig

    @classmethod
    def from_config_path(cls, config_path: str | Path) -> Self:
        """The benchmark that a YAML describes; `DataError` where it has no data set of the type `benchmark`."""
        path = paths.find(config_path, Path.is_file)
        if path is None:
            places = ", ".join(str(root) for root in paths.search_roots())
            raise DataError(f"benchmark: there is no file '{config_path}' in {places}.")
        for agent in load([path], skip_dotenv=True, initial=NO_MODEL).servers_of("responses_api_agents"):
            for dataset in agent.datasets:
                if dataset.type == "benchmark":
                    return cls._of(path, agent, dataset)
        raise DataError(f"{path}: no agent of this configuration has a dataset with type: benchmark.")

    @classmethod
    def _of(cls, path: Path, agent: ServerConfig, dataset: DatasetConfig) -> Self:
        return cls(
            name=_name_of(path),
            path=path,
            agent_name=agent.name,
            num_repeats=dataset.num_repeats,
            dataset=dataset,
        )

    def prepare(self, **arguments: Any) -> Path:
        """Make the data set by the `prepare(**arguments)` of its program, and say where it is.

        Raises `DataError` where there is no such program, or it made another file than the YAML names.
        """
        program = self._program()
        with _importing_from([*self._roots(), *paths.search_roots()]):
            function = _prepare_of(program)
            try:
                inspect.signature(function).bind(**arguments)
            except TypeError as error:
                raise DataError(
                    f"{program}: prepare{inspect.signature(function)} does not take what prepare_script_args gives "
                    f"it: {error}."
                ) from error
            made = Path(function(**arguments))
        expected = [root / self.dataset.jsonl_fpath for root in (*self._roots(), *paths.search_roots())]
        if made.resolve() not in [path.resolve() for path in expected]:
            raise DataError(
                f"{program}: prepare() returned '{made}', but {self.path} names jsonl_fpath: "
                f"{self.dataset.jsonl_fpath}. They have to be the same file."
            )
        if not made.is_file():
            raise DataError(f"{program}: prepare() returned '{made}' and did not write it.")
        return made

    def _program(self) -> Path:
        named = self.dataset.prepare_script or str(self.path.with_name("prepare.py"))
        candidates = [root / named for root in self._roots()]
        found = next((path for path in candidates if path.is_file()), None) or paths.find(named, Path.is_file)
        if found is None:
            raise DataError(f"{self.path}: the benchmark '{self.name}' has no program '{named}' that makes its data.")
        return found

    def _roots(self) -> list[Path]:
        """Where this benchmark's own relative paths begin: the folder that holds `benchmarks/`."""
        return [parent.parent for parent in self.path.resolve().parents if parent.name == BENCHMARKS][-1:]


def find_benchmarks() -> Iterator[BenchmarkConfig]:
    """Every benchmark in a `benchmarks/` of the search roots, by name; of one name the first root's counts."""
    return map(BenchmarkConfig.from_config_path, benchmark_files().values())


def benchmark_files() -> dict[str, Path]:
    """The YAML of every benchmark, by its name; see `find_benchmarks`."""
    found: dict[str, Path] = {}
    for root in paths.search_roots():
        for path in sorted((root / BENCHMARKS).rglob("*.yaml")):
            # Reading a configuration takes a while, and prompts are YAML too.
            if BENCHMARKS in path.relative_to(root).parts[:-2] and "type: benchmark" in path.read_text("utf-8"):
                found.setdefault(_name_of(path), path)
    return dict(sorted(found.items()))


def benchmarks_of(run: RunConfig) -> list[BenchmarkConfig]:
    """Every benchmark of a configuration; `DataError` where it has none."""
    found = [
        BenchmarkConfig._of(Path(_file_of(agent, place)).resolve(), agent, dataset)
        for agent in run.servers_of("responses_api_agents")
        for place, dataset in enumerate(agent.datasets)
        if dataset.type == "benchmark"
    ]
    if not found:
        known = ", ".join(benchmark_files()) or "none"
        raise DataError(
            "no agent of this configuration has a dataset with type: benchmark. Name one with --benchmark or "
            f"+config_paths=[…]; the benchmarks here are: {known}."
        )
    return found


def _file_of(agent: ServerConfig, place: int) -> str:
    # The agent itself may be inherited from the configuration of an environment.
    return agent.origins.get(f"datasets.{place}", agent.origins[""]).file


def prepare_all(
    benchmarks: Sequence[BenchmarkConfig], arguments: Mapping[str, Any], *, processes: int = 1
) -> list[Path]:
    """Make the data of each, and say where it is; with several processes, so many at once."""
    if processes == 1 or len(benchmarks) < 2:
        return [benchmark.prepare(**arguments) for benchmark in benchmarks]
    known = maybe_get_global_config_dict()
    with ProcessPoolExecutor(processes, get_context("spawn"), _begin, (known,)) as pool:
        return list(pool.map(_prepare, benchmarks, repeat(arguments)))


def _begin(known: DictConfig | None) -> None:
    if known is not None:
        tell_process(known)


def _prepare(benchmark: BenchmarkConfig, arguments: Mapping[str, Any]) -> Path:
    return benchmark.prepare(**arguments)


def _name_of(path: Path) -> str:
    parts = path.resolve().with_suffix("").parts
    named = parts[len(parts) - parts[::-1].index(BENCHMARKS) :] if BENCHMARKS in parts else parts[-2:]
    return "/".join(named[:-1] if named[-1] == DEFAULT_FLAVOR else named)


def _prepare_of(program: Path) -> Callable[..., str | Path]:
    module = _imported(program)
    prepare: Callable[..., str | Path] | None = getattr(module, "prepare", None)
    if not callable(prepare):
        raise DataError(f"{program}: a program that makes a benchmark's data defines prepare(**kwargs) -> Path.")
    return prepare


@contextmanager
def _importing_from(roots: Sequence[Path]) -> Iterator[None]:
    """Programs import from their own folder and from others by the names that these have in a checkout."""
    search_path = list(sys.path)
    sys.path[:0] = [str(root) for root in roots if str(root) not in search_path]
    try:
        yield
    finally:
        sys.path[:] = search_path


def _imported(program: Path) -> ModuleType:
    parts = program.with_suffix("").parts
    inner = parts[len(parts) - parts[::-1].index(BENCHMARKS) :] if BENCHMARKS in parts else parts[-2:]
    name = ".".join([BENCHMARKS, *inner])
    spec = importlib.util.spec_from_file_location(name, program)
    assert spec is not None
    assert spec.loader is not None
    # Where it is looked for by its name: its functions may be sent to processes of its own.
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
