"""Parse the value of a command-line override, such as `3`, `[a,b]`, `{k: v}`, `'text'` or plain text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NoReturn

from nemo_gym.config.tree import Scalar
from nemo_gym.errors import OverrideError

_INTEGER = re.compile(r"[+-]?(?:0|[1-9](?:_?\d)*)")
_FLOAT = re.compile(r"[+-]?(?:(?:\d(?:_?\d)*\.\d*|\.\d(?:_?\d)*)(?:e[+-]?\d+)?|\d(?:_?\d)*e[+-]?\d+|inf|nan)", re.I)
_CONSTANTS: dict[str, Scalar] = {"null": None, "true": True, "false": False}
_ESCAPE = re.compile(r"\\([\\()\[\]{}:=, \t])")


def read_value(text: str, word: str) -> object:
    """Parse the value after '='. Raise an `OverrideError` that shows `word`, the override with secrets hidden.

    The grammar is Hydra's with one extension: `a: b` and `a,b` outside brackets are plain text.
    """
    return _Reader(text, word).value()


def written(value: object) -> str:
    """Return the text that `read_value` reads as this value.

    It is not JSON, because overrides have no escapes for line breaks, and because the name of a file may not be valid
    Unicode.
    """
    if isinstance(value, Mapping):
        return f"{{{','.join(f'{written(key)}:{written(each)}' for key, each in value.items())}}}"
    if isinstance(value, list):
        return f"[{','.join(map(written, value))}]"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, (int, float)):
        return str(value)
    escaped = str(value).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


class _Reader:
    """A parser that reads one value from left to right."""

    def __init__(self, text: str, word: str) -> None:
        self._text = text
        self._word = word
        self._next = 0

    def value(self) -> object:
        text = self._text.strip()
        if not text.startswith(("[", "{", "'", '"')):
            return _scalar(text)
        value = self._element("")
        self._skip_space()
        if self._next < len(self._text):
            self._fail(f"unexpected text after the value: '{self._text[self._next :]}'")
        return value

    def _fail(self, problem: str) -> NoReturn:
        raise OverrideError(
            f"'{self._word}': {problem}. Write lists as [a,b] and mappings as {{a: 1, b: 2}}. Quote text with special "
            "characters inside the shell's quotes: '\"[any] text\"'."
        )

    def _peek(self) -> str:
        return self._text[self._next : self._next + 1]

    def _skip_space(self) -> None:
        while self._peek().isspace():
            self._next += 1

    def _element(self, ends: str) -> object:
        self._skip_space()
        opening = self._peek()
        if opening == "[":
            return list(self._elements("]"))
        if opening == "{":
            return self._mapping()
        return self._scalar(ends)

    def _elements(self, closing: str) -> Iterator[object]:
        self._next += 1
        self._skip_space()
        while self._peek() != closing:
            yield self._element("," + closing)
            self._separator(closing)
        self._next += 1

    def _separator(self, closing: str) -> None:
        self._skip_space()
        if self._peek() == ",":
            self._next += 1
            self._skip_space()
        elif not self._peek():
            self._fail(
                f"a '{'[' if closing == ']' else '{'}' is not closed (if the shell split the word at a space, quote "
                "the whole word)"
            )
        elif self._peek() != closing:
            self._fail(f"expected ',' or '{closing}' before '{self._text[self._next :]}'")

    def _mapping(self) -> dict[Scalar, object]:
        entries: dict[Scalar, object] = {}
        self._next += 1
        self._skip_space()
        while self._peek() != "}":
            key = self._scalar(":,}")
            self._skip_space()
            if self._peek() != ":":
                self._fail(f"the mapping has no ':' after '{key}'")
            self._next += 1
            entries[key] = self._element(",}")
            self._separator("}")
        self._next += 1
        return entries

    def _scalar(self, ends: str) -> Scalar:
        quote = self._peek()
        return self._quoted(quote) if quote in {"'", '"'} else _scalar(self._bare(ends))

    def _quoted(self, quote: str) -> str:
        match = re.compile(rf"{quote}((?:\\.|[^\\{quote}])*){quote}", re.DOTALL).match(self._text, self._next)
        if not match:
            self._fail(f"a quote ({quote}) is not closed")
        self._next = match.end()
        return match[1].replace("\\" + quote, quote).replace("\\\\", "\\")

    def _bare(self, ends: str) -> str:
        """Read text up to a character in `ends`. In `${…}` and after a backslash, such characters do not count."""
        start, depth = self._next, 0
        while (sign := self._peek()) and (depth or sign not in ends):
            if sign == "\\":
                self._next += 1
            elif self._text.startswith("${", self._next) or (sign == "{" and depth):
                depth += 1
                self._next += sign == "$"
            elif sign == "}" and depth:
                depth -= 1
            self._next += 1
        self._next = min(self._next, len(self._text))
        return self._text[start : self._next].strip()


def _scalar(text: str) -> Scalar:
    if text.lower() in _CONSTANTS:
        return _CONSTANTS[text.lower()]
    if _INTEGER.fullmatch(text):
        return int(text)
    if _FLOAT.fullmatch(text):
        return float(text)
    return text if "${" in text else _ESCAPE.sub(r"\1", text)
