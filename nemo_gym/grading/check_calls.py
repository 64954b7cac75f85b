"""The calls of a check at the function that it checks: in two processes, which share plain data and nothing else.

Both ends run in the sandbox of `ConfinedPython`, with the standard library only.
"""

from __future__ import annotations

import builtins
import json
from collections.abc import Callable
from typing import Any, NamedTuple

ERROR_TAIL = 2_000
"""So many characters are told of a failure."""


class Pipes(NamedTuple):
    """The ends of the two pipes between a check and the function it calls."""

    calls_read: int
    calls_write: int
    answers_read: int
    answers_write: int


def answer_calls(function_of: Callable[[], Callable[..., Any]], calls: int, answers: int) -> None:
    """Call the function as often as the check asks, until it asks no more."""
    function = function_of()
    with open(calls, "rb") as asked, open(answers, "wb") as told:
        for line in asked:
            try:
                positional, named = _plain(json.loads(line))
                answer: list[Any] = ["value", _tagged(function(*positional, **named))]
            except BaseException as error:  # noqa: BLE001 - the check may expect it
                answer = ["raised", type(error).__name__, str(error)[:ERROR_TAIL]]
            told.write(json.dumps(answer).encode() + b"\n")
            told.flush()


def verdict(check: dict[str, str], pipes: Pipes) -> dict[str, str]:
    """What becomes of the check, to which the function of the other process seems to be its own."""
    asked = open(pipes.calls_write, "wb")  # noqa: SIM115 - for the process's life
    told = open(pipes.answers_read, "rb")  # noqa: SIM115

    def proxy(*positional: Any, **named: Any) -> Any:
        asked.write(json.dumps(_tagged((positional, named))).encode() + b"\n")
        asked.flush()
        answer = json.loads(told.readline() or b'["raised", "RuntimeError", "the program ended"]')
        if answer[0] == "value":
            return _plain(answer[1])
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
    except Exception as error:  # noqa: BLE001 - whatever the answer made the check raise
        return {"verdict": "error", "why": f"{type(error).__name__}: {error}"[:ERROR_TAIL]}
    return {"verdict": "passed", "why": ""}


def _tagged(value: Any) -> Any:
    """A value as JSON that keeps what kind it is; only plain data can be passed on."""
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


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if not isinstance(value, dict):
        return value
    ((name, parts),) = value.items()
    if name == "dict":
        return {_plain(key): _plain(each) for key, each in parts}
    if name == "complex":
        return complex(*parts)
    return _SEQUENCES[name](_plain(each) for each in parts)


_SEQUENCES: dict[str, type[Any]] = {"tuple": tuple, "set": set, "frozenset": frozenset, "bytes": bytes}
