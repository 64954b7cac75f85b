"""The messages of the configuration reader, from the code that raises them, each with its cause and cure.

Causes and cures are in `docs/troubleshooting/configuration_errors.yaml`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import yaml

from nemo_gym import errors

ENTRIES = Path("docs", "troubleshooting", "configuration_errors.yaml")
OTHER_SUBJECTS = ("errors.py", "training/", "evaluation/", "scaffold/", "rollouts/control/")
"""Parts of the package whose errors are not about the configuration."""
DATASETS = ("data/benchmarks.py", "data/gather.py", "data/obtain.py")
"""Files whose `DataError`s are about the paths in a configuration."""
SETTINGS = ("cli/", "config/", "data/", "grading/", "rollouts/")
"""Parts of the package whose validators check settings. Others check rows and requests."""
CARRIERS = {
    "cli/options.py": {"settings_from", "_named", "_check_keys", "reject"},
    "config/checks.py": {"_dangling"},
    "config/explain.py": {"_problem", "_near_misses"},
    "config/interpolation.py": {"_why", "_cause", "_undefined"},
    "config/overrides.py": {"_malformed_key"},
    "config/run_settings.py": {"_check_folder", "checked_token"},
    "config/servers.py": {
        "find_blocks", "parse_server", "_settings_next_to", "_settings_above", "_unusable_name", "_misspelt_tier",
        "_unknown_server",
    },
    "config/values.py": {"value", "_separator", "_mapping", "_quoted"},
    "data/gather.py": {"missing_file"},
    "grading/judge.py": {"_is_there", "_unknown_field"},
    "rollouts/job.py": {"check_resume"},
    "rollouts/tasks.py": {"_unknown_agent"},
}  # fmt: skip
"""Functions that make a message, or the main part of one, that is raised elsewhere."""
FRAGMENTS = re.compile(
    r"\.? \(?(?:Did you mean|is) '\0'.*|\. Put words .*|Value error, |; put it in quotes"
    r"|is (?:empty|not a mapping|not set)"
    r"|Input should be a mapping|unknown setting|\0?is missing| ?Running agents: \0\.|\0 --help lists all settings\."
    r"|it must be at least \0|\{type: .*|\0: \0 refers to \0|'\0': \0\. Write (?:lists|an override) as .*"
    r"|datasets\.\0\.jsonl_fpath|Copy it there, .*|Its script .*",
    re.DOTALL,
)
"""Texts that are only a part of another message."""
FEWEST_WORDS = 2
"""A template with fewer words only passes on the message of a carrier."""
ANYTHING = "\0"
_TEXT_METHODS = {"removeprefix", "removesuffix", "replace", "split", "startswith", "endswith", "rstrip", "strip"}


class Message(NamedTuple):
    """A message in the code, with `ANYTHING` for each inserted value."""

    place: str
    template: str

    @property
    def fixed(self) -> int:
        """The number of characters that are not inserted."""
        return len(self.template.replace(ANYTHING, ""))

    def is_in(self, text: str) -> bool:
        """Return whether a text contains this message with values inserted."""
        return re.search(".*".join(map(re.escape, self.template.split(ANYTHING))), text) is not None


class Entry(NamedTuple):
    """A message as users see it, with placeholders such as `<file>`, and its explanation."""

    id: str
    message: str
    cause: str
    cure: str

    def as_markdown(self) -> str:
        """Return the message with an anchor, and its explanation."""
        fence = "``" if "`" in self.message else "`"
        return f"({self.id})=\n{fence}{self.message}{fence} [#](#{self.id})\n: {self.cause} {self.cure}\n"


def configuration_errors(repository: Path) -> str:
    """Return the list of all messages, by subject."""
    return "\n".join(
        "\n".join([f"### {subject}\n", *(entry.as_markdown() for entry in found)])
        for subject, found in _subjects(repository)
    )


def entries(repository: Path) -> list[Entry]:
    """Return all entries of the page."""
    return [each for _, found in _subjects(repository) for each in found]


def _subjects(repository: Path) -> Iterator[tuple[str, list[Entry]]]:
    by_subject: dict[str, list[dict[str, str]]] = yaml.safe_load((repository / ENTRIES).read_text("utf-8"))
    for subject, found in by_subject.items():
        yield subject, [Entry(**each) for each in found]


def messages(package: Path) -> list[Message]:
    """Return every message of the configuration reader once."""
    found: dict[str, Message] = {}
    for path in sorted(package.rglob("*.py")):
        name = path.relative_to(package).as_posix()
        if name.startswith(OTHER_SUBJECTS):
            continue
        for line, template in _Module(name).texts(ast.parse(path.read_text("utf-8"))):
            words = re.sub(rf"{ANYTHING}+", ANYTHING, re.sub(r"\s+", " ", template))
            if not FRAGMENTS.fullmatch(words):
                found.setdefault(words, Message(f"{name}:{line}", words))
    return list(found.values())


class _Module:
    """One file of the package."""

    def __init__(self, name: str) -> None:
        self._carriers = CARRIERS.get(name, set())
        self._kinds = {
            each for each, kind in vars(errors).items()
            if isinstance(kind, type) and issubclass(kind, errors.ConfigError) and kind is not errors.UsageError
        }  # fmt: skip
        if name.startswith(DATASETS):
            self._kinds |= {"DataError"}
        self._has_validators = name.startswith(SETTINGS)

    def texts(self, module: ast.Module) -> Iterator[tuple[int, str]]:
        """Yield the templates of the messages, each with its line."""
        for node in ast.walk(module):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                kinds = self._kinds | ({"ValueError"} if self._has_validators and _is_validator(node) else set())
                for inner in _own_nodes(node):
                    if isinstance(inner, ast.Call) and isinstance(inner.func, ast.Name) and inner.func.id in kinds:
                        yield from _templates(inner.args[0], node)
                if node.name in self._carriers:
                    for statement in node.body[1:] if ast.get_docstring(node) else node.body:
                        yield from _texts_in(statement)


def _is_validator(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any("_validator" in ast.unparse(each) for each in node.decorator_list)


def _own_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """Yield all nodes in a function, without those of functions inside it."""
    for child in ast.iter_child_nodes(node):
        yield child
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _own_nodes(child)


def _templates(argument: ast.expr, function: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the templates of an error's argument, also if it is a variable of the function."""
    if not isinstance(argument, ast.Name):
        yield from _texts_in(argument)
        return
    for each in _own_nodes(function):
        if isinstance(each, ast.Assign) and any(ast.unparse(target) == argument.id for target in each.targets):
            yield from _texts_in(each.value)


def _texts_in(node: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the longest texts in a piece of code, if they have words of their own."""
    if isinstance(node, ast.expr) and (text := _text_of(node)) is not None:
        words = [word for word in text.replace(ANYTHING, " ").split() if re.search(r"[A-Za-z]{2}", word)]
        if len(words) >= FEWEST_WORDS:
            yield node.lineno, text
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _TEXT_METHODS:
        yield from _texts_in(node.func.value)
    else:
        for child in ast.iter_child_nodes(node):
            yield from _texts_in(child)


def _text_of(node: ast.expr) -> str | None:
    """Return a text with `ANYTHING` for inserted values; None if it is not a text."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if isinstance(node, ast.JoinedStr):
        return "".join(_text_of(each) or ANYTHING for each in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = _text_of(node.left), _text_of(node.right)
        return None if left is None and right is None else (left or ANYTHING) + (right or ANYTHING)
    return None
