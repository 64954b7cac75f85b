"""One test for a table of cheap cases: a test per case would cost more time than the case itself."""

from __future__ import annotations

import inspect
import reprlib
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Any

import pytest

Test = Callable[..., Any]
SHORT = reprlib.Repr()
SHORT.maxstring = SHORT.maxother = SHORT.maxlong = 300
SHORT.maxlist = SHORT.maxtuple = SHORT.maxdict = 20


class _Failures:
    """The failures of a table's cases, each with its arguments, its line and its message."""

    def __init__(self, test: Test) -> None:
        self._file = inspect.getfile(inspect.unwrap(test))
        self._number = 0
        self._lines: list[str] = []

    @contextmanager
    def note(self, case: dict[str, Any]) -> Iterator[None]:
        """Note a failure of the block instead of raising it."""
        self._number += 1
        try:
            yield
        except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001 - every failure is reported
            frames = [(frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(error.__traceback__)]
            line = next((line for file, line in reversed(frames) if file == self._file), "?")
            arguments = ", ".join(f"{name}={SHORT.repr(value)}" for name, value in case.items())
            self._lines.append(f"line {line}: {arguments}\n    {type(error).__name__}: {error}")

    def report(self) -> None:
        """Fail the test if a case has failed."""
        if self._lines:
            failures = "\n".join(self._lines)
            pytest.fail(f"{len(self._lines)} of {self._number} cases failed:\n{failures}", pytrace=False)


def each_case(names: str | Sequence[str], cases: Iterable[Any]) -> Callable[[Test], Test]:
    """Run a test for each case, as `pytest.mark.parametrize` does, but as one test that lists all failures.

    The cases share the test's fixtures, so a case must not depend on the state that an earlier one leaves.
    """
    if isinstance(names, str):
        table = [{names: case} for case in cases]
    else:
        table = [dict(zip(names, case, strict=True)) for case in cases]

    def decorate(test: Test) -> Test:
        signature = inspect.signature(test)
        fixtures = [each for name, each in signature.parameters.items() if name not in table[0]]

        @wraps(test)
        def run(**shared: Any) -> None:
            failures = _Failures(test)
            for case in table:
                with failures.note(case):
                    test(**case, **shared)
            failures.report()

        @wraps(test)
        async def run_async(**shared: Any) -> None:
            failures = _Failures(test)
            for case in table:
                with failures.note(case):
                    await test(**case, **shared)
            failures.report()

        runner = run_async if inspect.iscoroutinefunction(test) else run
        runner.__signature__ = signature.replace(parameters=fixtures)  # type: ignore[attr-defined]
        return runner

    return decorate
