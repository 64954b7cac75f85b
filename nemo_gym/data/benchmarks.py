"""Benchmarks: folders with a YAML that has a dataset of type `benchmark`, and a script that creates the dataset."""

from __future__ import annotations

import importlib.util
import inspect
import os
import re
import socket
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from operator import methodcaller
from pathlib import Path
from types import ModuleType
from typing import Self

from omegaconf import DictConfig
from pydantic import BaseModel, ConfigDict

from nemo_gym import paths
from nemo_gym.config import DatasetConfig, RunConfig, ServerConfig, load
from nemo_gym.config.published import maybe_get_global_config_dict, set_process_config
from nemo_gym.config.servers import NO_MODEL
from nemo_gym.config.settings import SERVER_TYPES
from nemo_gym.config.suggestions import search_dir_for
from nemo_gym.data import huggingface
from nemo_gym.errors import DataError, UserError

BENCHMARKS = "benchmarks"
DEFAULT_FLAVOR = "config"
NETWORK_LIBRARIES = ("httpx", "httpx2", "requests", "urllib3", "urllib", "aiohttp", "huggingface_hub")
USES_HUB = re.compile(r"^\s*(?:from|import) +(?:datasets|huggingface_hub)\b", re.MULTILINE)
EXTRA_OF = {"datasets": "full", "huggingface_hub": "hub", "ray": "ray", "reasoning_gym": "reasoning-gym"}
"""The extra that brings a package, for scripts that need more than the core."""


class BenchmarkConfig(BaseModel):
    """A benchmark: its agent, its dataset and its number of repeats."""

    model_config = ConfigDict(frozen=True)

    name: str
    """The folder name, or `folder/flavor` if the YAML is not `config.yaml`."""
    path: Path
    """The YAML file."""
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
        for agent in load([path], skip_dotenv=True, initial=NO_MODEL).servers_of("responses_api_agents"):
            for dataset in agent.datasets:
                if dataset.type == "benchmark":
                    return cls._of(path, agent, dataset)
        raise DataError(f"{path}: no agent has a dataset with type: benchmark. Add one to the agent's datasets.")

    @classmethod
    def _of(cls, path: Path, agent: ServerConfig, dataset: DatasetConfig) -> Self:
        repeats = dataset.num_repeats
        return cls(name=_name_of(path), path=path, agent_name=agent.name, num_repeats=repeats, dataset=dataset)

    def prepare(self, **arguments: object) -> Path:
        """Create the dataset with the script's `prepare(**arguments)` and return its path.

        Raise `DataError` if the script is missing or its file is not the one named in the YAML.
        """
        program = self._program()
        hub_problem = _hub_problem(program)
        with _importing_from([*self._roots(), *paths.search_roots()]), _failing_as(program, hub_problem):
            function = _prepare_of(program)
            try:
                inspect.signature(function).bind(**arguments)
            except TypeError as error:
                raise DataError(
                    f"{program}: prepare{inspect.signature(function)} does not accept these prepare_script_args: "
                    f"{error}."
                ) from error
            made = Path(function(**arguments))
        expected = [root / self.dataset.jsonl_fpath for root in (*self._roots(), *paths.search_roots())]
        if made.resolve() not in [path.resolve() for path in expected]:
            raise DataError(
                f"{program}: prepare() returned '{made}', but {self.path} names jsonl_fpath: "
                f"{self.dataset.jsonl_fpath}. Both must be the same file."
            )
        if not made.is_file():
            raise DataError(f"{program}: prepare() returned '{made}' but did not write this file.")
        return made

    def _program(self) -> Path:
        named = self.dataset.prepare_script or str(self.path.with_name("prepare.py"))
        candidates = [root / named for root in self._roots()]
        found = next((path for path in candidates if path.is_file()), None) or paths.find(named, Path.is_file)
        if found is None:
            raise DataError(f"{self.path}: script '{named}' not found. Add it to create the data of '{self.name}'.")
        return found

    def _roots(self) -> list[Path]:
        """Return the folder that contains `benchmarks/`, the base of this benchmark's relative paths."""
        return [parent.parent for parent in self.path.resolve().parents if parent.name == BENCHMARKS][-1:]


def find_benchmarks() -> Iterator[BenchmarkConfig]:
    """Yield the benchmarks in the search roots' `benchmarks/` by name. For equal names the first root wins."""
    return map(BenchmarkConfig.from_config_path, benchmark_files().values())


def benchmark_files() -> dict[str, Path]:
    """Return the YAML file of each benchmark, keyed by name. See `find_benchmarks`."""
    found: dict[str, Path] = {}
    for root in paths.search_roots():
        for path in sorted((root / BENCHMARKS).rglob("*.yaml")):
            # Loading a config is slow, and prompts are YAML files too.
            if BENCHMARKS in path.relative_to(root).parts[:-2] and "type: benchmark" in path.read_text("utf-8"):
                found.setdefault(_name_of(path), path)
    return dict(sorted(found.items()))


def benchmarks_of(run: RunConfig) -> list[BenchmarkConfig]:
    """Return the benchmarks of a configuration. Raise `DataError` if it does not define one."""
    found = [
        BenchmarkConfig._of(Path(_file_of(agent, place)).resolve(), agent, dataset)
        for agent in run.servers_of("responses_api_agents")
        for place, dataset in enumerate(agent.datasets)
        if dataset.type == "benchmark"
    ]
    if not found:
        known = ", ".join(benchmark_files())
        listed = f"Available: {known}." if known else f"There are no benchmarks. {search_dir_for(BENCHMARKS)}"
        raise DataError(
            "no agent of this configuration has a dataset with type: benchmark. Choose a benchmark with --benchmark "
            f"or +config_paths=[…]. {listed}"
        )
    return found


def _file_of(agent: ServerConfig, place: int) -> str:
    # The agent may be inherited from an environment's config, so ask for the dataset's own file first.
    return agent.origins.get(f"datasets.{place}", agent.origins[""]).file


def prepare_all(
    benchmarks: Sequence[BenchmarkConfig], arguments: Mapping[str, object], *, processes: int = 1
) -> list[Path]:
    """Create the dataset of each benchmark, up to `processes` at once, and return their paths."""
    if processes == 1 or len(benchmarks) < 2:
        return [benchmark.prepare(**arguments) for benchmark in benchmarks]
    known = maybe_get_global_config_dict()
    with ProcessPoolExecutor(processes, get_context("spawn"), _begin, (known,)) as pool:
        return list(pool.map(methodcaller("prepare", **arguments), benchmarks))


def _begin(known: DictConfig | None) -> None:
    if known is not None:
        set_process_config(known)


def _name_of(path: Path) -> str:
    named = _parts_in_benchmarks(path.resolve())
    return "/".join(named[:-1] if named[-1] == DEFAULT_FLAVOR else named)


def _parts_in_benchmarks(path: Path) -> tuple[str, ...]:
    """Return the parts of a path below `benchmarks/`, without the suffix; outside of it, the last two."""
    parts = path.with_suffix("").parts
    return parts[len(parts) - parts[::-1].index(BENCHMARKS) :] if BENCHMARKS in parts else parts[-2:]


def _prepare_of(program: Path) -> Callable[..., str | Path]:
    prepare: Callable[..., str | Path] | None = getattr(_imported(program), "prepare", None)
    if not callable(prepare):
        raise DataError(f"{program}: prepare() not found. Define prepare(**kwargs) -> Path, which creates the data.")
    return prepare


@contextmanager
def _importing_from(roots: Sequence[Path]) -> Iterator[None]:
    """Put the roots on `sys.path`, because scripts import each other by their names in a checkout."""
    search_path = list(sys.path)
    sys.path[:0] = [str(root) for root in roots if str(root) not in search_path]
    try:
        yield
    finally:
        sys.path[:] = search_path


def _hub_problem(program: Path) -> str | None:
    """Return why the hub that a script uses cannot be reached.

    Its libraries then use only their caches, because they would try each file for half a minute.
    """
    if not USES_HUB.search(program.read_text("utf-8")) or (problem := huggingface.unreachable()) is None:
        return None
    os.environ[huggingface.OFFLINE] = "1"
    return problem


@contextmanager
def _failing_as(program: Path, hub_problem: str | None) -> Iterator[None]:
    """Turn an error of the script into a `DataError` that names the line, and the package or the host."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        # Imported here because it takes long, and only a failing script needs it.
        from nemo_gym.web.failures import fault_in

        text = " ".join(fault_in(program.parent, error).split())
        if isinstance(error, ModuleNotFoundError):
            package = str(error.name).partition(".")[0]
            named = f"nemo-gym[{EXTRA_OF[package]}]" if package in EXTRA_OF else package
            is_ours = package in (BENCHMARKS, *SERVER_TYPES, "nemo_gym")
            advice = "Correct the import." if is_ours else f"Install the package: pip install '{named}'"
        elif hub_problem:
            advice = f"Check the network: {hub_problem}."
        elif _is_of_network(error):
            advice = "Check the network, or run the command where the data can be downloaded."
        else:
            advice = "Correct the script."
        raise DataError(f"{program}: prepare() failed: {text}. {advice}") from error


def _is_of_network(error: BaseException) -> bool:
    own = isinstance(error, (ConnectionError, TimeoutError, socket.gaierror))
    return own or type(error).__module__.partition(".")[0] in NETWORK_LIBRARIES


def _imported(program: Path) -> ModuleType:
    name = ".".join([BENCHMARKS, *_parts_in_benchmarks(program)])
    spec = importlib.util.spec_from_file_location(name, program)
    assert spec is not None
    assert spec.loader is not None
    # Register the module by name, because its functions may be pickled for worker processes.
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
