"""Let a check call the untrusted function that it checks, in another process, by exchanging only data.

Functions are passed as references, and a call of one is a message to its process. An instance of a class that the
check defines is passed as its attributes, and the receiver uses its own class of that name. So a result never brings
code, such as its own `__eq__`, into the check. Only if the check tests a class does it get references to instances.

Both ends run in the sandbox of `ConfinedPython` and import only the standard library.
"""

from __future__ import annotations

import builtins
import collections
import contextlib
import datetime
import decimal
import enum
import fractions
import functools
import itertools
import json
import operator
import sys
import types
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, NamedTuple

ERROR_TAIL = 2_000
"""The maximum length of a failure's text, in characters."""
PROGRAM, CHECK = "answer", "check"
"""The names of the modules in which the program and the check run."""
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
    names = vars(sys.modules[PROGRAM]) if PROGRAM in sys.modules else {}
    peer = _Peer(calls, answers, names, is_check=False)
    peer.held.append(function)
    peer.serve()


def verdict(check: dict[str, str], pipes: Pipes) -> dict[str, str]:
    """Run the check, in the check's process, and return its verdict. The check calls the function through `pipes`."""
    names: dict[str, object] = {"__name__": CHECK, "__builtins__": builtins}
    caller = _Peer(pipes.answers_read, pipes.calls_write, names, is_check=True)
    found = _verdict(check, caller, names)
    # Report an error even if the check passed: a check that expects an exception must not accept a program that ended
    # without raising one.
    return {"verdict": "error", "why": ENDED} if caller.is_ended else found


class _Peer:
    """One end of the pipes. It sends calls to the other process, and serves the calls that arrive meanwhile."""

    def __init__(self, reads: int, writes: int, names: dict[str, object], *, is_check: bool) -> None:
        self.is_ended = False
        """Whether the other process ended before it answered a call."""
        self.is_check = is_check
        self.tests_a_class = False
        """Whether the check gets references to instances of the program's classes."""
        self.names = names
        self.known: Collection[str] = ()
        """The names of the check's own classes."""
        self.held: list[object] = []
        """The objects of this process that the other one has references to."""
        # Both files stay open for the life of the process.
        self._read, self._write = open(reads, "rb"), open(writes, "wb")  # noqa: SIM115

    def call(self, place: int, positional: Sequence[object], named: dict[str, object]) -> object:
        """Call a function of the other process."""
        return self._ask(["call", place, _tagged((positional, named), self)], positional)

    def get(self, place: int, attribute: str) -> object:
        """Return an attribute of an object of the other process."""
        return self._ask(["get", place, attribute], ())

    def serve(self) -> None:
        """Answer calls until the pipe closes."""
        while (message := self._next()) is not None:
            self._answer(message)

    def _ask(self, question: list[object], positional: Sequence[object]) -> object:
        self._send(
            [*question, [name for name, value in self.names.items() if _is_own(value)] if self.is_check else []]
        )
        while (message := self._next()) is not None:
            if message[0] in ("call", "get"):
                self._answer(message)
            elif message[0] == "raised":
                raise _exception(message[1], message[2])
            else:
                result = _decoded(message[1], self)
                # A function without a result may change its arguments, as `list.sort` does. Another function could
                # also change the values that the check compares its result with.
                if result is None:
                    for original, changed in zip(positional, _decoded(message[2], self), strict=False):
                        _change(original, changed)
                return result
        self.is_ended = True
        raise RuntimeError(ENDED)

    def _answer(self, message: list[Any]) -> None:
        kind, place, about, known = message
        try:
            target: Any = self.held[place]
            if not self.is_check:
                self.known = known
            elif kind == "get":
                raise AttributeError("the program can only call the functions of the check")
            positional, named = _decoded(about, self) if kind == "call" else ((), {})
            value = target(*positional, **named) if kind == "call" else getattr(target, about)
            is_change = kind == "call" and value is None and not self.is_check
            answer = ["value", _tagged(value, self), [_tagged(each, self) for each in positional] if is_change else []]
        except BaseException as error:  # noqa: BLE001 - the caller may expect it
            answer = ["raised", [kind.__name__ for kind in type(error).__mro__], _text_of(error)]
        self._send(answer)

    def _next(self) -> list[Any] | None:
        try:
            line = self._read.readline()
        except OSError:
            line = b""
        return json.loads(line) if line.endswith(b"\n") else None

    def _send(self, message: object) -> None:
        # If the other process has ended, the next read reports it.
        with contextlib.suppress(OSError):
            self._write.write(json.dumps(message).encode() + b"\n")
            self._write.flush()


class _Function:
    """A function of the other process."""

    def __init__(self, peer: _Peer, place: int) -> None:
        self._peer, self._place = peer, place

    def __call__(self, *positional: object, **named: object) -> object:
        return self._peer.call(self._place, positional, named)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Function):
            raise TypeError("a function of the other process can be called, but not compared")
        return self._place == other._place

    __hash__ = None  # type: ignore[assignment]


class _Object(_Function):
    """An instance of a class of the program, for a check of this class. Its operators are not used."""

    def __getattr__(self, name: str) -> object:
        return self._peer.get(self._place, name)

    def __len__(self) -> int:
        return operator.index(self._method("__len__"))

    def __getitem__(self, key: object) -> object:
        return self._method("__getitem__", key)

    def __str__(self) -> str:
        return str(self._method("__str__"))

    def __repr__(self) -> str:
        return str(self._method("__repr__"))

    def __bool__(self) -> bool:
        return True

    def _method(self, name: str, *positional: object) -> Any:
        method: Any = self._peer.get(self._place, name)
        return method(*positional)


def _verdict(check: dict[str, str], caller: _Peer, names: dict[str, object]) -> dict[str, str]:
    def proxy(*positional: object, **named: object) -> object:
        caller.tests_a_class = isinstance(declared, type) or check["function"][:1].isupper()
        return caller.call(0, positional, named)

    declared: object = None
    try:
        exec(compile(check["preamble"], "<preamble>", "exec", dont_inherit=True), names)
        declared = names.get(check["function"])
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


def _is_own(value: object) -> bool:
    """Return whether a value is a class that the check itself defines."""
    return isinstance(value, type) and value.__module__ == CHECK


def _is_known(kind: type, peer: _Peer) -> bool:
    """Return whether the check defines a class of this name."""
    return _is_own(kind) if peer.is_check else kind.__name__ in peer.known


def _change(original: Any, changed: Any) -> None:
    """Give an argument the content that the function left in its copy of it."""
    if isinstance(original, list) and isinstance(changed, list):
        kept = [_merged(one, other) for one, other in zip(original, changed, strict=False)]
        original[:] = [*kept, *changed[len(kept) :]]
    elif isinstance(original, dict) and isinstance(changed, dict):
        kept_items = {key: _merged(original[key], each) if key in original else each for key, each in changed.items()}
        original.clear()
        original.update(kept_items)
    elif isinstance(original, set | bytearray | collections.deque) and type(changed) is type(original):
        original.clear()
        (original.update if isinstance(original, set) else original.extend)(changed)
    elif _is_own(type(original)) and type(changed) is type(original):
        for name, value in _attributes_of(changed):
            object.__setattr__(original, name, value)


def _merged(one: object, other: object) -> object:
    """Return the same object with its new content, if it can be changed, because the check may also refer to it."""
    if type(one) is type(other) and (isinstance(one, list | dict | set) or _is_own(type(one))):
        _change(one, other)
        return one
    return other


def _attributes_of(value: object) -> list[tuple[str, object]]:
    slots = [name for kind in type(value).__mro__ for name in _slots_of(kind)]
    found = {name: getattr(value, name) for name in slots if hasattr(value, name)}
    return [*found.items(), *getattr(value, "__dict__", {}).items()]


def _slots_of(kind: type) -> list[str]:
    slots = vars(kind).get("__slots__", ())
    return [name for name in ([slots] if isinstance(slots, str) else slots) if not name.startswith("__")]


def _tagged(value: object, peer: _Peer) -> object:
    """Encode a value as JSON data that keeps its type. Raise `TypeError` for a value that cannot be passed."""
    if isinstance(value, enum.Enum) and _is_known(type(value), peer):
        return {"member": [type(value).__name__, value.name]}
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > _LARGEST_DECIMAL:
        return {"int": hex(value)}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list):
        return [_tagged(each, peer) for each in value]
    if isinstance(value, dict):
        return {"dict": [[_tagged(key, peer), _tagged(each, peer)] for key, each in value.items()]}
    for name, sequence in _SEQUENCES.items():
        if isinstance(value, sequence):
            return {name: [_tagged(each, peer) for each in value]}
    if isinstance(value, complex):
        return {"complex": [value.real, value.imag]}
    if isinstance(value, range):
        return {"range": [value.start, value.stop, value.step]}
    for name, (kind, shown) in _WRITTEN.items():
        # Compare the exact type, because a `datetime` is also a `date`.
        if type(value) is kind:
            return {name: shown(value)}
    return _reference_to(value, peer)


def _reference_to(value: object, peer: _Peer) -> dict[str, object]:
    """Encode a value that is not plain data."""
    kind = type(value)
    if isinstance(value, _Function):
        return {"own": value._place}
    if isinstance(value, type) and value.__module__ == "builtins":
        return {"builtin": value.__name__}
    if _is_known(kind, peer):
        return {"instance": [kind.__name__, [[name, _tagged(each, peer)] for name, each in _attributes_of(value)]]}
    if isinstance(value, Iterator):
        items = list(itertools.islice(value, _MOST_ITEMS + 1))
        if len(items) > _MOST_ITEMS:
            raise TypeError(f"an iterator with more than {_MOST_ITEMS} items cannot be passed to or from the check")
        return {"iterator": [_tagged(each, peer) for each in items]}
    peer.held.append(value)
    is_function = isinstance(value, _FUNCTIONS) or (peer.is_check and callable(value))
    return {"function" if is_function else "object": [len(peer.held) - 1, kind.__name__]}


def _decoded(value: object, peer: _Peer) -> Any:
    if isinstance(value, list):
        return [_decoded(each, peer) for each in value]
    if not isinstance(value, dict):
        return value
    ((name, parts),) = value.items()
    if name == "dict":
        return {_decoded(key, peer): _decoded(each, peer) for key, each in parts}
    if name == "complex":
        return complex(*parts)
    if name == "int":
        return int(parts, 16)
    if name == "range":
        return range(*parts)
    if name == "iterator":
        return iter([_decoded(each, peer) for each in parts])
    if name == "timedelta":
        return datetime.timedelta(*parts)
    if name in _WRITTEN:
        kind: Any = _WRITTEN[name][0]
        return getattr(kind, "fromisoformat", kind)(parts)
    if name in _SEQUENCES:
        return _SEQUENCES[name](_decoded(each, peer) for each in parts)
    return _referred(name, parts, peer)


def _referred(name: str, parts: Any, peer: _Peer) -> Any:
    """Return the value of a reference in this process."""
    if name == "own":
        return peer.held[parts]
    if name == "builtin" and isinstance(getattr(builtins, parts, None), type):
        return getattr(builtins, parts)
    if name == "function":
        return _Function(peer, parts[0])
    own: Any = peer.names.get(parts[0]) if isinstance(parts[0], str) else None
    if not isinstance(own, type) or (peer.is_check and not _is_own(own)):
        own = None
    if name == "member" and own is not None:
        return own[parts[1]]
    if name == "instance" and (own is not None or not peer.is_check):
        made = object.__new__(own or type(parts[0], (), {}))
        for attribute, value in parts[1]:
            # The program must not replace the methods of the check's class.
            if callable(getattr(own, attribute, None)):
                raise TypeError(f"the attribute '{attribute}' of {parts[0]} is a method in the check")
            object.__setattr__(made, attribute, _decoded(value, peer))
        return made
    if name == "object" and peer.is_check and peer.tests_a_class:
        return _Object(peer, parts[0])
    raise TypeError(
        f"a value of type {parts[-1] if name == 'object' else parts} cannot be passed to or from the check"
    )


_MOST_ITEMS = 100_000
"""Maximum number of items of an iterator, because a generator may be endless."""
_WRITTEN: dict[str, tuple[type, Callable[[Any], object]]] = {
    "date": (datetime.date, str),
    "datetime": (datetime.datetime, lambda value: value.isoformat()),
    "time": (datetime.time, str),
    "timedelta": (datetime.timedelta, lambda value: [value.days, value.seconds, value.microseconds]),
    "decimal": (decimal.Decimal, str),
    "fraction": (fractions.Fraction, str),
}
_FUNCTIONS = (
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodType,
    functools.partial,
    type(functools.lru_cache(abs)),
    type(str.upper),
    operator.itemgetter,
    operator.attrgetter,
)
_SEQUENCES: dict[str, type[Any]] = {
    "tuple": tuple,
    "set": set,
    "frozenset": frozenset,
    "bytes": bytes,
    "bytearray": bytearray,
    "deque": collections.deque,
}
