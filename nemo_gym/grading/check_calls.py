"""Calls from a check to the function that it checks, in two processes that exchange only plain data.

Both ends run in the sandbox of `ConfinedPython` and import only the standard library.
"""

from __future__ import annotations

import builtins
import json
from collections.abc import Callable
from typing import Any, NamedTuple

ERROR_TAIL = 2_000
"""Characters that are kept of a failure's text."""


class Pipes(NamedTuple):
    """Both ends of the two pipes between a check and the function."""

    calls_read: int
    calls_write: int
    answers_read: int
    answers_write: int


def answer_calls(function_of: Callable[[], Callable[..., Any]], calls: int, answers: int) -> None:
    """Answer the check's calls until it closes the pipe."""
    function = function_of()
    with open(calls, "rb") as asked, open(answers, "wb") as replies:
        for line in asked:
            try:
                positional, named = _decoded(json.loads(line))
                answer: list[Any] = ["value", _tagged(function(*positional, **named))]
            except BaseException as error:  # noqa: BLE001 - the check may expect it
                answer = ["raised", type(error).__name__, str(error)[:ERROR_TAIL]]
            replies.write(json.dumps(answer).encode() + b"\n")
            replies.flush()


def verdict(check: dict[str, str], pipes: Pipes) -> dict[str, str]:
    """Run the check and return its verdict. The check calls the other process's function like a local one."""
    asked = open(pipes.calls_write, "wb")  # noqa: SIM115 - stays open for the life of the process
    replies = open(pipes.answers_read, "rb")  # noqa: SIM115

    def proxy(*positional: Any, **named: Any) -> Any:
        asked.write(json.dumps(_tagged((positional, named))).encode() + b"\n")
        asked.flush()
        answer = json.loads(replies.readline() or b'["raised", "RuntimeError", "the program ended"]')
        if answer[0] == "value":
            return _decoded(answer[1])
        kind: Any = getattr(builtins, answer[1], None)
        is_error = isinstance(kind, type) and issubclass(kind, Exception)
        raise (kind if is_error else RuntimeError)(answer[2])

    names: dict[str, Any] = {"__name__": "check", "__builtins__": builtins}
    try:
        exec(compile(check["preamble"], "<preamble>", "exec", dont_inherit=True), names)
        names[check["function"]] = proxy
        exec(compile(check["check"], "<check>", "exec", dont_inherit=True), names)
        whole = names.get("check")
        if callable(whole):
            whole(proxy)
    except AssertionError as error:
        return {"verdict": "wrong", "why": f"AssertionError: {error}"[:ERROR_TAIL]}
    except Exception as error:  # noqa: BLE001 - a wrong answer can make the check raise anything
        return {"verdict": "error", "why": f"{type(error).__name__}: {error}"[:ERROR_TAIL]}
    return {"verdict": "passed", "why": ""}


def _tagged(value: Any) -> Any:
    """Return a value as JSON that keeps its type. Raises `TypeError` for anything but plain data."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list):
        return [_tagged(each) for each in value]
    if isinstance(value, dict):
        return {"dict": [[_tagged(key), _tagged(each)] for key, each in value.items()]}
    for name, kind in _SEQUENCES.items():
        if isinstance(value, kind):
            return {name: [_tagged(each) for each in value]}
    if isinstance(value, complex):
        return {"complex": [value.real, value.imag]}
    raise TypeError(f"a value of type {type(value).__name__} cannot be passed to or from the check")


def _decoded(value: Any) -> Any:
    if isinstance(value, list):
        return [_decoded(each) for each in value]
    if not isinstance(value, dict):
        return value
    ((name, parts),) = value.items()
    if name == "dict":
        return {_decoded(key): _decoded(each) for key, each in parts}
    if name == "complex":
        return complex(*parts)
    return _SEQUENCES[name](_decoded(each) for each in parts)


_SEQUENCES: dict[str, type[Any]] = {"tuple": tuple, "set": set, "frozenset": frozenset, "bytes": bytes}
