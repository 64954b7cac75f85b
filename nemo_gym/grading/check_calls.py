"""Let a check call the untrusted function that it checks, in another process, by exchanging only plain data.

Both ends run in the sandbox of `ConfinedPython` and import only the standard library.
"""

from __future__ import annotations

import builtins
import json
from collections.abc import Callable
from typing import Any, NamedTuple

ERROR_TAIL = 2_000
"""The maximum length of a failure's text, in characters."""
ENDED = "the program ended before it answered the check"

_ENDS_A_LOOP = frozenset({"StopIteration", "StopAsyncIteration", "GeneratorExit"})
_LARGEST_DECIMAL = 2**63
"""Larger integers are passed in base 16, because Python limits the number of digits that it parses in base 10."""


class Pipes(NamedTuple):
    """Both ends of the two pipes between the check's process and the function's process."""

    calls_read: int
    calls_write: int
    answers_read: int
    answers_write: int


def answer_calls(function_of: Callable[[], Callable[..., object]], calls: int, answers: int) -> None:
    """Call the function with the arguments that the check sends, and reply with the result, until the pipe closes."""
    function = function_of()
    with open(calls, "rb") as asked, open(answers, "wb") as replies:
        for line in asked:
            try:
                positional, named = _decoded(json.loads(line))
                answer: list[object] = ["value", _tagged(function(*positional, **named))]
            except BaseException as error:  # noqa: BLE001 - the check may expect it
                answer = ["raised", [kind.__name__ for kind in type(error).__mro__], _text_of(error)]
            replies.write(json.dumps(answer).encode() + b"\n")
            replies.flush()


def verdict(check: dict[str, str], pipes: Pipes) -> dict[str, str]:
    """Run the check, in the check's process, and return its verdict. The check calls the function through `pipes`."""
    caller = _Caller(pipes)
    found = _verdict(check, caller)
    # Report an error even if the check passed: a check that expects an exception must not accept a program that ended
    # without raising one.
    return {"verdict": "error", "why": ENDED} if caller.is_ended else found


class _Caller:
    """The check's end of the pipes. It sends calls to the function's process."""

    def __init__(self, pipes: Pipes) -> None:
        self.is_ended = False
        """Whether the program ended before it answered a call."""
        self._asked = open(pipes.calls_write, "wb")  # noqa: SIM115 - stays open for the life of the process
        self._replies = open(pipes.answers_read, "rb")  # noqa: SIM115

    def call(self, *positional: object, **named: object) -> object:
        asked = json.dumps(_tagged((positional, named))).encode() + b"\n"
        try:
            self._asked.write(asked)
            self._asked.flush()
            line = self._replies.readline()
        except OSError:
            line = b""
        if not line.endswith(b"\n"):
            self.is_ended = True
            raise RuntimeError(ENDED)
        answer = json.loads(line)
        if answer[0] == "value":
            return _decoded(answer[1])
        raise _exception(answer[1], answer[2])


def _verdict(check: dict[str, str], caller: _Caller) -> dict[str, str]:
    def proxy(*positional: object, **named: object) -> object:
        return caller.call(*positional, **named)

    names: dict[str, object] = {"__name__": "check", "__builtins__": builtins}
    try:
        exec(compile(check["preamble"], "<preamble>", "exec", dont_inherit=True), names)
        names[check["function"]] = proxy
        exec(compile(check["check"], "<check>", "exec", dont_inherit=True), names)
        whole = names.get("check")
        if callable(whole):
            whole(proxy)
    except AssertionError as error:
        return {"verdict": "wrong", "why": f"AssertionError: {error}"[:ERROR_TAIL]}
    except SystemExit as leaving:
        # A successful exit is not a verdict: in Python 3.11, `unittest.main` exits like this if it finds no tests.
        return {"verdict": "error" if leaving.code else "exited", "why": f"SystemExit: {leaving}"[:ERROR_TAIL]}
    except Exception as error:  # noqa: BLE001 - a wrong answer can make the check raise anything
        return {"verdict": "error", "why": f"{type(error).__name__}: {error}"[:ERROR_TAIL]}
    return {"verdict": "passed", "why": ""}


def _text_of(error: BaseException) -> str:
    try:
        return str(error)[:ERROR_TAIL]
    except Exception:  # noqa: BLE001 - the program may define `__str__`
        return ""


def _exception(names: list[str], text: str) -> Exception:
    """Return an exception of the first built-in class among `names`, so that a check can expect it.

    `names` are the classes of the function's exception, the most specific one first. Exceptions that end a loop or the
    process become `RuntimeError`, because a check that calls `map(candidate, …)` would swallow a `StopIteration`.
    """
    kinds = [getattr(builtins, name, None) for name in names]
    for kind in kinds if _ENDS_A_LOOP.isdisjoint(names) else ():
        if not (isinstance(kind, type) and issubclass(kind, Exception)):
            continue
        try:
            return kind(text)
        except TypeError:
            # `UnicodeDecodeError` and others require more arguments, so skip `__init__`. An exception group cannot be
            # made without its exceptions, so try the next class.
            if not issubclass(kind, BaseExceptionGroup):
                return kind.__new__(kind, text)
    return RuntimeError(f"{names[0]}: {text}")


def _tagged(value: object) -> object:
    """Encode a value as JSON data that keeps its type. Raise `TypeError` for a value that is not plain data."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > _LARGEST_DECIMAL:
        return {"int": hex(value)}
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


def _decoded(value: object) -> Any:
    if isinstance(value, list):
        return [_decoded(each) for each in value]
    if not isinstance(value, dict):
        return value
    ((name, parts),) = value.items()
    if name == "dict":
        return {_decoded(key): _decoded(each) for key, each in parts}
    if name == "complex":
        return complex(*parts)
    if name == "int":
        return int(parts, 16)
    return _SEQUENCES[name](_decoded(each) for each in parts)


_SEQUENCES: dict[str, type[tuple[Any, ...] | set[Any] | frozenset[Any] | bytes]] = {
    "tuple": tuple,
    "set": set,
    "frozenset": frozenset,
    "bytes": bytes,
}
