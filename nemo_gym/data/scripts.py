"""Run a folder's `prepare.py`, and report its errors in one paragraph instead of a traceback."""

from __future__ import annotations

import inspect
import os
import re
import socket
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, get_type_hints

from pydantic import PydanticUserError, TypeAdapter, ValidationError

from nemo_gym import paths
from nemo_gym.config.settings import SERVER_TYPES
from nemo_gym.data import huggingface
from nemo_gym.data.splits import check_count
from nemo_gym.errors import DataError, UserError, fault_in

FUNCTION = "prepare"
BENCHMARKS, ENVIRONMENTS = "benchmarks", "environments"
NETWORK_LIBRARIES = ("httpx", "httpx2", "requests", "urllib3", "urllib", "aiohttp", "huggingface_hub")
USES_HUB = re.compile(rb"^\s*(?:from|import) +(?:datasets|huggingface_hub)\b", re.MULTILINE)
EXTRA_OF = {
    "datasets": "full", "huggingface_hub": "hub", "PIL": "vision", "ray": "ray", "reasoning_gym": "reasoning-gym",
}  # fmt: skip
"""The extra of `nemo-gym` that installs a package, for scripts that need more than the core dependencies."""


class Script(NamedTuple):
    """A `prepare.py`, with the settings for running it."""

    program: Path
    log: Path
    """The file to which the traceback of a failure is written."""
    dependencies: tuple[str, ...] = ()
    setting: str = "prepare_args"
    """The name of the setting that contains the arguments, for error messages."""

    def run_here(self, arguments: Mapping[str, object]) -> Path:
        """Run `prepare(**arguments)` in this process, and return the path that it returns.

        The script can import modules such as `benchmarks.x.prepare` by their names in a checkout. Arguments are
        converted to the types of the parameters. If the script fails, write its traceback to the log and raise
        `DataError`.
        """
        hub_problem = _hub_problem(self.program)
        with _importing_from(self.program), self._failing(hub_problem):
            function = self._function()
            checked = self._checked(function, arguments)
            check_count(checked.get("count"))
            return Path(str(function(**checked)))

    def _function(self) -> Callable[..., object]:
        function: Callable[..., object] | None = getattr(_imported(self.program), FUNCTION, None)
        if not callable(function):
            raise DataError(
                f"{self.program}: {FUNCTION}() not found. Define prepare(**kwargs) -> Path, which creates the data."
            )
        return function

    def _checked(self, function: Callable[..., object], arguments: Mapping[str, object]) -> dict[str, object]:
        """Return the arguments, converted to the types of the function's parameters."""
        signature = inspect.signature(function)
        try:
            signature.bind(**arguments)
        except TypeError as error:
            raise DataError(
                f"{self.program}: prepare{signature} does not accept these {self.setting}: {error}."
            ) from error
        try:
            hints = get_type_hints(function)
        except NameError:
            # The types are imported for type checkers only, so do not convert the arguments.
            hints = {}
        return {name: self._converted(name, value, hints.get(name, Any)) for name, value in arguments.items()}

    def _converted(self, name: str, value: object, annotation: Any) -> object:
        try:
            converted: object = TypeAdapter(annotation).validate_python(value)
        except PydanticUserError:
            # Leave the value unchanged, because pydantic cannot convert to classes that the script itself defines.
            return value
        except ValidationError as error:
            problem = error.errors()[0]["msg"]
            raise DataError(f"{self.program}: {self.setting}.{name}: {problem}, found {value!r}.") from error
        return converted

    @contextmanager
    def _failing(self, hub_problem: str | None) -> Iterator[None]:
        """Convert an error of the script to a `DataError` that names the line and gives advice.

        A call of `sys.exit` also counts as an error, because it would end the whole command.
        """
        try:
            yield
        except UserError:
            raise
        except (Exception, SystemExit) as error:
            text = " ".join(fault_in(self.program.parent, error).split())
            logged = write_log(self.log, "".join(traceback.format_exception(error)), "traceback")
            raise DataError(
                f"{self.program}: prepare() failed: {text}. {_advice(error, hub_problem)}{logged}"
            ) from error


def log_of(dataset_path: Path) -> Path:
    """Return the path of the log of the script that makes this dataset file."""
    return dataset_path.with_name(f"{dataset_path.stem}_prepare.log")


def write_log(log: Path, text: str, content: str) -> str:
    """Write a log, and return a sentence with its path. Return an empty string if the log cannot be written."""
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text(text, "utf-8")
    except OSError:
        # Do not raise this error, because it would hide the error of the script.
        return ""
    return f" The {content} is in {log}."


def _advice(error: BaseException, hub_problem: str | None) -> str:
    if isinstance(error, SystemExit):
        return "Raise an error instead of ending the process, and call run_prepare only if __name__ is '__main__'."
    if isinstance(error, ModuleNotFoundError):
        package = str(error.name).partition(".")[0]
        named = f"nemo-gym[{EXTRA_OF[package]}]" if package in EXTRA_OF else package
        is_ours = package in (BENCHMARKS, *SERVER_TYPES, "nemo_gym")
        return "Correct the import." if is_ours else f"Install the package: pip install '{named}'."
    if hub_problem:
        return f"Check the network: {hub_problem}."
    if _is_of_network(error):
        return "Check the network, or run the command where the data can be downloaded."
    return "Correct the script."


def _is_of_network(error: BaseException) -> bool:
    own = isinstance(error, (ConnectionError, TimeoutError, socket.gaierror))
    return own or type(error).__module__.partition(".")[0] in NETWORK_LIBRARIES


def _hub_problem(program: Path) -> str | None:
    """Return why the Hugging Face Hub cannot be reached, or None if it can be reached or the script does not use it.

    If the Hub cannot be reached, make its libraries use only their caches. Otherwise they would retry each file for
    half a minute.
    """
    if not USES_HUB.search(program.read_bytes()) or (problem := huggingface.unreachable()) is None:
        return None
    os.environ[huggingface.OFFLINE] = "1"
    return problem


def root_of(program: Path) -> Path | None:
    """Return the folder that contains the script's `benchmarks/`, `resources_servers/` or similar folder.

    The script's paths are relative to the returned folder. Return None if the script is not in such a folder.
    """
    tiers = (BENCHMARKS, ENVIRONMENTS, *SERVER_TYPES)
    return next((each.parent for each in reversed(program.resolve().parents) if each.name in tiers), None)


@contextmanager
def _importing_from(program: Path) -> Iterator[None]:
    """Add the script's root and the search roots to `sys.path`, for scripts that import each other by module name."""
    root = root_of(program)
    search_path = list(sys.path)
    roots = [*([root] if root else []), *paths.search_roots()]
    sys.path[:0] = [str(each) for each in roots if str(each) not in search_path]
    try:
        yield
    finally:
        sys.path[:] = search_path


def _imported(program: Path) -> ModuleType:
    root = root_of(program)
    parts = program.resolve().with_suffix("").parts
    name = ".".join(parts[len(root.parts) :] if root else (BENCHMARKS, *parts[-2:]))
    return paths.module_at(program, name)
