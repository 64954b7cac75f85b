"""Read a rubric: the criteria of a Markdown file, each with a name, a weight and a description.

A weight is in brackets after the name: `name (2): text`. If the brackets contain a word, as in `(weight 2)` or
`(2 points)`, they may also be at the start or end of the line or of the description. Other brackets are text.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from nemo_gym import paths
from nemo_gym.errors import DataError

ADVICE = "Write a criterion as '- name (2): when it is met'; the weight is 1 if it is left out."
LONGEST_NAME = 60
LARGEST_WEIGHT = 1000
"""The largest accepted weight. A larger number is probably a year or an amount."""

_ITEM = re.compile(r"(?P<indent>\s*)(?:[-*+]|\d{1,3}[.)])\s+(?P<text>.*)")
_HEADING = re.compile(r"(?P<level>#{1,6})\s+(?P<text>.*?)\s*#*")
_WEIGHT = re.compile(
    r"[(\[]\s*(?P<word>weight|points?|pts?)?\s*[:=]?\s*(?P<number>[^()\[\]]*?)\s*(?P<unit>%|points?|pts?|x|×)?\s*[)\]]",
    re.IGNORECASE,
)
_NUMBER = re.compile(r"[-+]?\d+(?:[.,]\d+)?")
_THOUSANDS = re.compile(r"[-+]?[1-9]\d{0,2}(?:[.,' ]\d{3})+")
_BOLD = re.compile(r"(\*\*|__)(?P<name>.+?)\1")
_SEPARATOR = re.compile(r":(?:\s|\Z)|\s[-–—]\s")
_NAME_END = re.compile(r"[\s*_]*(?::(?:\s|\Z)|[-–—]\s|\Z)")
_MARKS = " \t*_:–—-"


@dataclass(frozen=True)
class Criterion:
    """One requirement on an answer, and its weight in the reward."""

    name: str
    weight: float
    text: str
    line: int


@dataclass(frozen=True)
class Rubric:
    """The criteria in a file, and their introduction. The introduction describes the answers to grade."""

    introduction: str
    criteria: tuple[Criterion, ...]

    def reward(self, met: Iterable[str]) -> float:
        """Return the total weight of the criteria that are met, divided by the total weight of all criteria."""
        names = set(met)
        total = math.fsum(each.weight for each in self.criteria)
        return math.fsum(each.weight for each in self.criteria if each.name in names) / total


@dataclass
class _Block:
    """The lines of a rubric's introduction, or of one of its criteria."""

    line: int
    text: list[str] = field(default_factory=list)


def read_rubric(path: Path) -> Rubric:
    """Read a rubric from the search roots. If it is missing or has a mistake, raise `DataError` with the location.

    Each list item is a criterion. If the file has no list, each heading from the second level on is a criterion,
    together with the text below it.
    """
    found = paths.find(path, Path.is_file)
    if found is None:
        places = ", ".join(map(str, paths.search_roots()))
        raise DataError(f"rubric: there is no file '{path}' in {places}. Check the path.")
    try:
        lines = found.read_text("utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise DataError(
            f"{found}: not UTF-8 text ({error.reason} at byte {error.start}). Save it as UTF-8."
        ) from error
    introduction, *blocks = _blocks(lines)
    if not blocks:
        raise DataError(f"{found}: the rubric does not have a criterion. {ADVICE}")
    criteria: dict[str, Criterion] = {}
    for number, block in enumerate(blocks, start=1):
        criterion = _criterion(block, number, found)
        if (earlier := criteria.get(criterion.name.casefold())) is not None:
            raise DataError(
                f"{found}:{criterion.line}: the criterion '{criterion.name}' is already in line {earlier.line}. Give "
                "each criterion its own name."
            )
        criteria[criterion.name.casefold()] = criterion
    return Rubric(" ".join(introduction.text), tuple(criteria.values()))


def _blocks(lines: list[str]) -> Iterator[_Block]:
    """Yield the lines of the introduction, then those of each criterion."""
    items = [item for item in map(_ITEM.fullmatch, lines) if item]
    top = min((len(item["indent"]) for item in items), default=0)
    block = _Block(0)
    for number, line in enumerate(lines, start=1):
        heading, item = _HEADING.fullmatch(line), _ITEM.fullmatch(line)
        begins = item["text"] if item and len(item["indent"]) == top else None
        if heading and not items and len(heading["level"]) > 1:
            begins = heading["text"]
        if begins is not None:
            yield block
            block = _Block(number, [begins.strip()])
        elif not heading and line.strip():
            block.text.append(line.strip())
    yield block


def _criterion(block: _Block, number: int, path: Path) -> Criterion:
    where = f"{path}:{block.line}"
    head, *rest = block.text
    weight, head = _weight_and_rest(head, where)
    name, text = _name_and_text(head, has_more=bool(rest))
    described = " ".join(filter(None, [text, *rest])) or name
    if not described:
        raise DataError(f"{where}: the criterion is empty. {ADVICE}")
    return Criterion(name or f"criterion {number}", weight, described, block.line)


def _weight_and_rest(head: str, where: str) -> tuple[float, str]:
    """Return the weight in brackets, or 1 if there is none, and the text without the weight. Keep other brackets."""
    for found in _WEIGHT.finditer(head):
        before, after = head[: found.start()].rstrip(), head[found.end() :].lstrip()
        is_numeric = _NUMBER.fullmatch(found["number"]) or _THOUSANDS.fullmatch(found["number"])
        follows_name = _follows_name(head, found)
        is_edge = before.rstrip("*_")[-1:] in ("", *":–—-") or not after.strip(_MARKS + ".")
        if not (is_numeric or found["word"]) or not (follows_name or is_edge):
            continue
        if not follows_name and not found["word"] and (found["unit"] or "%") == "%":
            raise DataError(
                f"{where}: '{found[0]}' could be a weight or a part of the text. Put a weight after the name, or "
                f"write '(weight {found['number']})'. If it is text, add a word inside its brackets."
            )
        return _weight(found, where), f"{before} {after}".strip()
    return 1.0, head


def _follows_name(head: str, found: re.Match[str]) -> bool:
    """Return whether brackets are directly after the criterion's name, or at the end of a bold name."""
    before, after = head[: found.start()].rstrip(), head[found.end() :]
    if bold := _BOLD.match(head):
        between = head[found.end() : bold.end()] if found.start() < bold.end() else head[bold.end() : found.start()]
        if not between.strip(_MARKS):
            return True
    ends_text = not after.strip() and (bold is not None or before.endswith("."))
    return not _SEPARATOR.search(before) and not ends_text and _NAME_END.match(after) is not None


def _weight(found: re.Match[str], where: str) -> float:
    if _THOUSANDS.fullmatch(found["number"]):
        raise DataError(f"{where}: the weight '{found[0]}' has a thousands separator. Remove the separator.")
    weight = float(found["number"].replace(",", ".")) if _NUMBER.fullmatch(found["number"]) else math.nan
    if not weight > 0:
        raise DataError(f"{where}: the weight '{found[0]}' is not a positive number. {ADVICE}")
    if weight > LARGEST_WEIGHT:
        raise DataError(
            f"{where}: the weight '{found[0]}' is larger than {LARGEST_WEIGHT}. Write a smaller weight, or write the "
            "number without brackets if it is not a weight."
        )
    return weight


def _name_and_text(head: str, *, has_more: bool) -> tuple[str, str]:
    """Split `**name**: text`, `name: text` or `name - text`. Another short text is a name.

    A short text that ends with a full stop is a name only if more lines follow it (`has_more`).
    """
    if bold := _BOLD.match(head):
        return bold["name"].strip(_MARKS), head[bold.end() :].strip(_MARKS)
    if (parted := _SEPARATOR.search(head)) and parted.start() <= LONGEST_NAME:
        return head[: parted.start()].strip(_MARKS), head[parted.end() :].strip()
    if len(head) <= LONGEST_NAME and (has_more or not head.rstrip().endswith(".")):
        return head.strip(_MARKS), ""
    return "", head.strip()
