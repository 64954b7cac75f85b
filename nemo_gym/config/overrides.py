"""Command-line arguments that change the configuration: `--a.b 1`, `+a.b=1`, `++a=1`, `a=1`, `~a`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, NamedTuple

from nemo_gym.config.foreign import is_inherited, without_inherited
from nemo_gym.config.masking import MASK, is_secret_key, mask_text
from nemo_gym.config.models import Origin
from nemo_gym.config.tree import Node, Path, at, dotted, locate, merge, node_of, plain, replaced, split_key, step, walk
from nemo_gym.config.values import read_value, written
from nemo_gym.errors import OverrideError
from nemo_gym.text import closest

_WORD = re.compile(r"(?P<sign>\+\+|\+|~)?(?P<key>[^=]*)(?:(?P<equals>=)(?P<value>.*))?", re.DOTALL)
_DOTTED_PATH = re.compile(r"[^\s.\[\]{}'\"=,+~][^\s\[\]{}'\"=,]*(?:\[\d+\][^\s\[\]{}'\"=,]*)*")

_ENTRY = re.compile(r"([\w-]+\s*:\s*)(?!\$\{)[^,{}\[\]]+")
"""Matches a mapping entry inside an override. The group contains the key and the colon."""

TYPED = "command line: "
LONGEST_SHOWN = 160
"""The maximum length of an override in a message."""


@dataclass(frozen=True, slots=True)
class Override:
    """One override from the command line, parsed but not yet applied."""

    word: str
    """The override for messages: as it was typed, but shortened, and with secrets hidden."""
    has_secret: bool
    """Whether a secret is hidden in `word`."""
    action: Literal["set", "change", "delete"]
    """Flags, `+k=v` and `++k=v` set a key, `k=v` changes an existing key, `~k` deletes it."""
    path: tuple[str, ...]
    value: Node | None
    """The value. None for a deletion without `=`."""

    @property
    def origin(self) -> Origin:
        """The place of the override in messages, instead of a file and line."""
        return Origin(f"{TYPED}{self.word}", 0)

    def as_argument(self) -> str:
        """Return the override as one command-line argument."""
        sign = {"set": "++", "change": "", "delete": "~"}[self.action]
        return f"{sign}{dotted(self.path)}" + ("" if self.value is None else f"={written(plain(self.value))}")


def is_typed(origin: Origin) -> bool:
    """Return whether a value comes from the command line."""
    return origin.file.startswith(TYPED)


def parsed(given: Iterable[Override | str]) -> list[Override]:
    """Parse those overrides that are texts, such as `+a.b=1`. The others are flags that were parsed before."""
    return [parse_override(each) if isinstance(each, str) else each for each in given]


def parse_override(word: str) -> Override:
    """Parse one override in Hydra's grammar. Raise OverrideError with the override and the problem."""
    match = _WORD.fullmatch(word)
    # The regex matches any text, so the match is never None.
    assert match is not None
    sign, key, text = match["sign"] or "", match["key"].strip(), match["value"]
    shown, has_secret = _shown(word, key, text)
    path = _path(shown, key, text)
    if text is None and sign != "~":
        raise OverrideError(f"'{shown}' has no '='. Write --{key} VALUE to set a value, or ~{key} to delete it.")
    value = None if text is None else node_of(read_value(text, shown), Origin(f"{TYPED}{shown}", 0))
    action: Literal["set", "change", "delete"] = "delete" if sign == "~" else "set" if sign else "change"
    return Override(shown, has_secret, action, path, value)


def override_of_flag(flag: str, key: str, value: object) -> Override:
    """Return the override that sets a key to the value of a flag. `flag` is empty for an argument without a flag."""
    text = value if isinstance(value, str) else written(value)
    shown, has_secret = _shown(f"{flag} {text}" if flag else text, key, text)
    return Override(shown, has_secret, "set", _path(shown, key, text), node_of(value, Origin(f"{TYPED}{shown}", 0)))


def value_of_flag(text: str, flag: str, *, is_text: bool) -> object:
    """Return the value of a flag: a list or mapping, `true`, `false`, `null`, a number, or else the text itself.

    If the flag takes a text (`is_text`), `4.10` is a text, such as the name of a model, and not a number.
    """
    looks_structured = text[:1] in ("[", "{") or text.lower() in ("true", "false", "null")
    is_number = not is_text and text.replace(".", "", 1).replace("-", "", 1).isdigit()
    return read_value(text, f"{flag} {text}") if looks_structured or is_number else text


def apply_override(tree: Node, override: Override) -> Node:
    """Return the tree with one override applied. Raise OverrideError if the override does not fit the tree."""
    if override.action == "delete":
        return _deleted(tree, override)
    if override.action == "change" and not _is_defined(tree, override.path):
        key = dotted(override.path)
        raise OverrideError(
            f"'{override.word}': the key {key} does not exist.{_suggest_key(tree, override.path)} "
            f"To add it, write --{key} VALUE."
        )
    # The value is not None here, because only a deletion may omit it.
    assert override.value is not None
    return _merged_at(tree, override.path, override, tree)


class _Shown(NamedTuple):
    """An argument for messages, with its secrets masked."""

    text: str
    has_secret: bool


def _shown(word: str, key: str, text: str | None) -> _Shown:
    if text and any(is_secret_key(part) for part in split_key(key)) and "${" not in text:
        masked = word[: -len(text)] + MASK
    else:
        masked = _ENTRY.sub(
            lambda entry: f"{entry[1]}{MASK}" if is_secret_key(entry[1]) else entry[0], mask_text(word)
        )
    shown = masked if len(masked) <= LONGEST_SHOWN else f"{masked[: LONGEST_SHOWN - 3]}..."
    return _Shown(shown, masked != word)


def _path(shown: str, key: str, text: str | None) -> tuple[str, ...]:
    if key.startswith("-") or not _DOTTED_PATH.fullmatch(key) or key.endswith(".") or ".." in key:
        raise OverrideError(_malformed_key(shown, key, text))
    return split_key(key)


def _malformed_key(shown: str, key: str, text: str | None) -> str:
    if key.startswith("-"):
        return f"'{shown}' is not a known flag of this command."
    if text is None and re.search(r"[\[\]{},'\"]|\.ya?ml$", key):
        return (
            f"'{shown}' is not a setting. If the shell split a list or a text at a space, quote the whole word, such "
            "as '[a.yaml, b.yaml]'."
        )
    if not key:
        return (
            f"'{shown}': there is no key before '='. Write a setting as --KEY VALUE or --KEY=VALUE, "
            "without spaces around '='."
        )
    return f"'{shown}': the key '{key}' is not a dotted name such as a.b or a.list[0]. Write a setting as --KEY VALUE."


def _merged_at(node: Node, parts: Path, override: Override, whole: Node) -> Node:
    """Merge the override's value into `node` at `parts`."""
    assert override.value is not None
    if not parts:
        return merge(node, override.value, whole)
    below = step(node, parts)
    if below:
        child = _merged_at(below.node, parts[below.used :], override, whole)
        return replaced(node, (below.key,), child)
    grown = override.value
    for part in reversed(parts):
        grown = Node({part: grown}, override.origin)
    if isinstance(node.value, list):
        raise OverrideError(
            f"'{override.word}': the list at {node.origin} has {len(node.value)} items (counted from 0), so "
            f"'{parts[0]}' is out of range."
        )
    result = merge(node, grown, whole)
    if result is grown and node.value is not None and not node.is_unset:
        holder = dotted(override.path[: len(override.path) - len(parts)])
        raise OverrideError(
            f"'{override.word}': {holder} is {_brief(holder, node)} ({node.origin}), not a mapping, so it has no "
            f"{dotted(parts)}."
        )
    return result


def _brief(key: str, node: Node) -> str:
    return MASK if is_secret_key(key) else mask_text(repr(node.value))


def _deleted(tree: Node, override: Override) -> Node:
    path = locate(tree, override.path)
    is_from_another = is_inherited(tree, override.path)
    if path is None and not is_from_another:
        raise OverrideError(
            f"'{override.word}': the key {dotted(override.path)} does not exist.{_suggest_key(tree, override.path)}"
        )
    if path is not None and override.value is not None and plain(at(tree, path)) != plain(override.value):
        raise OverrideError(
            f"'{override.word}': {dotted(path)} is {_brief(dotted(path), at(tree, path))} "
            f"({at(tree, path).origin}), so it is not deleted. Write ~{dotted(path)} to delete it with any value."
        )
    if path is not None:
        tree = replaced(tree, path, None)
    return without_inherited(tree, override.path, override.origin) if is_from_another else tree


def _is_defined(tree: Node, parts: Path) -> bool:
    """Return whether a key exists, or will exist once the blocks above it have inherited their keys."""
    return locate(tree, parts) is not None or dotted(parts) == "config_paths" or is_inherited(tree, parts)


def _suggest_key(tree: Node, parts: Path) -> str:
    """Suggest a similar key in the same block, the same key in another block, or a similar path, in this order.

    Never suggest a block that contains the key, because its whole content would be replaced or deleted.
    """
    wanted, name = dotted(parts), str(parts[-1])
    paths = [path for path, _ in walk(tree) if path]
    above = locate(tree, parts[:-1])
    neighbours = [str(path[-1]) for path in paths if path[:-1] == above]
    guess = closest(name, neighbours)
    if guess:
        guess = dotted((*parts[:-1], guess))
    else:
        elsewhere = [dotted(path) for path in paths if str(path[-1]) == name and path != parts[: len(path)]]
        similar = [dotted(path) for path in paths if len(path) == len(parts) and closest(name, [str(path[-1])])]
        guess = closest(wanted, elsewhere, cutoff=0.0) or closest(wanted, similar, cutoff=0.75)
    return f" Did you mean '{guess}'?" if guess else ""
