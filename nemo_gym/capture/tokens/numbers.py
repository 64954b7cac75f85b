"""Arrays of token ids and log-probabilities that stay JSON text until the numbers are read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Self

import orjson

_DIGITS = b"0123456789,"
_NUMERIC = _DIGITS + b".-+eE"
_SPACES = (b" ", b"\n", b"\r", b"\t")


class Numbers(Sequence[Any]):
    """A list of numbers, kept as text, so that lists are compared and joined without parsing.

    In `text`, a comma follows each number. The text of a list therefore begins with the text of each of its prefixes.
    """

    __slots__ = ("_length", "_values", "text")

    def __init__(self, text: bytes = b"", length: int | None = None) -> None:
        self.text = text
        self._length = length
        self._values: list[Any] | None = None

    @classmethod
    def of(cls, value: object) -> Self:
        """Return the numbers of a list or an `orjson.Fragment`, unchecked. Raise `ValueError` for anything else."""
        if isinstance(value, cls):
            return value
        written = orjson.dumps(value)
        if written[:1] != b"[" or written[-1:] != b"]":
            raise ValueError(f"the value is not an array: {written[:60]!r}")
        if any(space in written for space in _SPACES):
            written = written.translate(None, b"".join(_SPACES))
        numbers = cls(b"".join((memoryview(written)[1:-1], b",")) if len(written) > len(b"[]") else b"")
        if isinstance(value, list):
            numbers._values = value
        return numbers

    @classmethod
    def joined(cls, parts: Sequence[Numbers]) -> Self:
        return cls(b"".join([part.text for part in parts]), sum(map(len, parts)))

    def checked(self, *, are_ids: bool) -> Self:
        """Return this object. Raise `ValueError` if a number is not finite, or, with `are_ids`, not a token id."""
        if self.text.translate(None, _DIGITS if are_ids else _NUMERIC):
            raise ValueError(
                f"the value is not an array of {'token ids' if are_ids else 'numbers'}: {self.text[:60]!r}"
            )
        self.tolist()
        return self

    def tolist(self) -> list[Any]:
        """Return the numbers. Raise `ValueError` if one is malformed."""
        if self._values is None:
            self._values = orjson.loads(self._array())
        return self._values

    def fragment(self) -> orjson.Fragment:
        """Return the array in a form that `orjson.dumps` writes unchanged."""
        return orjson.Fragment(self._array())

    def _array(self) -> bytes:
        # Join in one step, so that the text, which may be long, is copied only once.
        return b"".join((b"[", memoryview(self.text)[:-1], b"]"))

    def __len__(self) -> int:
        if self._length is None:
            self._length = self.text.count(b",")
        return self._length

    def __getitem__(self, index: Any) -> Any:
        return self.tolist()[index]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.tolist())

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Numbers):
            return self.text == other.text or self.tolist() == other.tolist()
        return isinstance(other, Sequence) and self.tolist() == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Numbers({self.tolist()!r})"
