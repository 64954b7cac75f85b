"""Known attacks on a reward: texts, programs, queries and tool calls, made from a task's prompt and tools."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from nemo_gym.contract.arguments import odd_arguments
from nemo_gym.contract.environment import Environment, Solution
from nemo_gym.contract.tasks import Task
from nemo_gym.jsonl import JsonObject
from nemo_gym.records.conversation import texts_of
from nemo_gym.testing import call

PLACEHOLDER = re.compile(r"@(\w+)(?::([^@]*))?@")
OPTION = re.compile(r"^\s*\(?([A-J])[.:)]\s+(.+)$", re.MULTILINE)
PROGRAM = re.compile(
    r"```python|\bpython\b.*\b(program|function|code)|\b(program|function)\b.*\bpython\b", re.I | re.S
)
FUNCTION = re.compile(r"\bdef (\w+)\s*\(|\bfunction (?:named |called )?[`'\"](\w+)")
QUERY = re.compile(r"```sql|\bSQL\b")
TABLE = re.compile(r"CREATE TABLE (?:IF NOT EXISTS )?[\"`\[]?(\w+)", re.IGNORECASE)
TAG = re.compile(r"<(?!think)(\w+)>[^<]*</\1>")
LABEL_OF_LINE = re.compile(r"^(\W{0,2}[A-Z][\w ]{0,20}\W{0,2}: ?\W{0,2}?)", re.MULTILINE)
NUMBERS = [str(number) for number in range(-10, 1001)]
CALLS = 30


@dataclass
class Target:
    """A task under attack, with the parts that an attack can use."""

    task: Task
    prompt: str
    solution: Solution
    """The oracle's attempt; empty without an oracle. Attacks use only its form."""
    tools: Mapping[str, Mapping[str, Any]]
    """The JSON Schema of each tool's arguments, keyed by tool name."""
    label: str | None
    """The verdict with which the judge agrees; None without a judge."""
    nothing: float = 0.0
    """The reward for doing nothing."""
    due: float = 1.0
    """The oracle's reward."""

    @property
    def said(self) -> str:
        """The texts of the oracle's attempt."""
        return "\n".join(item for item in self.solution if isinstance(item, str))


class Attack(NamedTuple):
    """A known way to earn a reward without doing the task."""

    name: str
    right_by_chance: bool
    """Whether a task may accept it. If so, it counts only if it earns on almost all tasks."""
    needs: str
    """The part of a task that it needs, for a message."""
    variants: Callable[[Target], list[tuple[int, Solution]]]
    """A function that returns the attempts at a task, each with the number of its kind; none if it does not fit."""


def target_of(environment: Environment, task: Task, tools: Mapping[str, Mapping[str, Any]]) -> Target:
    """Return a task with the parts that an attack can use."""
    given = task.row.get("responses_create_params")
    messages = given.get("input") if isinstance(given, dict) else None
    contents = (
        [each.get("content") for each in messages if isinstance(each, dict)] if isinstance(messages, list) else []
    )
    texts = [messages] if isinstance(messages, str) else ["\n".join(texts_of(each)) for each in contents]
    solution = environment.oracle.solve(task.row) if environment.oracle else []
    label = environment.labels[0] if environment.labels else None
    return Target(task, "\n\n".join(texts), solution, tools, label)


@cache
def all_attacks() -> tuple[Attack, ...]:
    """Return the attacks on answers, programs, queries and tools."""
    library = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text("utf-8"))
    for each in library["programs"].values():
        each["texts"] = each.get("texts") or [f"{each['search']}\n\n{library['search']}"]
    makers = (
        ("answers", "what it uses", _answers),
        ("programs", "a program to write", _programs),
        ("queries", "an SQL query to write", _queries),
    )
    on_texts = [
        _on_texts(name, {"needs": needs, **each}, made)
        for kind, needs, made in makers
        for name, each in library[kind].items()
    ]
    return (*on_texts, *(_on_tools(name, made) for name, made in ON_TOOLS.items()))


def _on_texts(name: str, given: JsonObject, made: Callable[[Target, str], Iterable[str]]) -> Attack:
    def variants(target: Target) -> list[tuple[int, Solution]]:
        texts = enumerate(each * given.get("times", 1) for each in given["texts"])
        return [(kind, [text]) for kind, template in texts for text in made(target, template)]

    return Attack(name, bool(given.get("right_by_chance")), given["needs"], variants)


def _on_tools(name: str, made: Callable[[Target], Iterable[Solution]]) -> Attack:
    return Attack(name, name in ACCEPTED, "tools", lambda target: [(0, solution) for solution in made(target)])


def _answers(target: Target, template: str) -> Iterator[str]:
    options = {letter: text.strip() for letter, text in OPTION.findall(target.prompt)}
    letters, forms = [*options] if len(options) > 1 else [*"ABCDE"], _forms(target)
    inner = [key for value in target.task.row.values() if isinstance(value, dict) for key in value if key != "input"]
    values = {
        "letters": letters,
        "options": [*options.values()],
        "lettered": [f"{letter}: {text}" for letter, text in options.items()],
        "numbers": NUMBERS,
        # The last one is wrong, because a verifier may take the last one on purpose.
        "formed_letters": ["\n".join(form.replace("%s", each) for each in (*letters, "Z")) for form in forms],
        "formed_numbers": ["\n".join(form.replace("%s", each) for each in (*NUMBERS, "7654321")) for form in forms],
        "field": [key for key in (*target.task.row, *inner) if key != "responses_create_params"][:20],
        "label": [target.label] if target.label else [],
        "question": [each for each in (target.prompt, target.prompt.rpartition("\n\n")[2]) if each],
        "sample": [line for form in forms[1:] for line in _shown_in(target.prompt, form)],
        "schema": [each for each in target.task.row.values() if isinstance(each, str) and each[:1] == "{"],
    }
    for text in _filled(template, values):
        yield from dict.fromkeys(form.replace("%s", text) for form in forms)


def _programs(target: Target, template: str) -> Iterable[str]:
    if not PROGRAM.search(f"{target.prompt}\n{target.said}"):
        return []
    named = [one or other for one, other in FUNCTION.findall(target.prompt) or FUNCTION.findall(target.said)]
    values = {"function": named[-1:] or ["solve"], "has_function": ["yes" if named else ""]}
    return (f"```python\n{code}\n```" for code in _filled(template, values))


def _queries(target: Target, template: str) -> Iterable[str]:
    if not QUERY.search(f"{target.prompt}\n{target.said}"):
        return []
    values = {"table": TABLE.findall(target.prompt), "numbers": NUMBERS[:400]}
    return (f"```sql\n{query}\n```" for query in _filled(template, values))


def _filled(template: str, values: Mapping[str, list[str]]) -> Iterator[str]:
    """Yield the template with each value of its placeholders `@name@`, or with all values joined: `@name:, @`."""
    names = {found[1] for found in PLACEHOLDER.finditer(template)} & {*values}
    single = [found[1] for found in PLACEHOLDER.finditer(template) if found[1] in names and found[2] is None]
    if all(values[name] for name in names):
        for chosen in values[single[0]] if single else [""]:

            def value_of(found: re.Match[str], chosen: str = chosen) -> str:
                if found[1] not in names:
                    return found[0]
                if found[2] is not None:
                    return found[2].join(values[found[1]])
                return chosen if found[1] == single[0] else values[found[1]][0]

            yield PLACEHOLDER.sub(value_of, template)


def _forms(target: Target) -> list[str]:
    """Return the forms of an answer that the prompt or the oracle shows, with `%s` for the answer itself."""
    boxed = [r"\boxed{%s}"] if "\\boxed" in target.prompt + target.said else []
    tagged = [f"<{tag}>%s</{tag}>" for tag in TAG.findall(f"{target.prompt}\n{target.said}")]
    labelled = [f"{label.rstrip()} %s" for label in LABEL_OF_LINE.findall(target.said)[-1:]]
    return list(dict.fromkeys(["%s", *boxed, *tagged, *labelled]))


def _shown_in(prompt: str, form: str) -> list[str]:
    before, _, after = form.partition("%s")
    return re.findall(rf"{re.escape(before)}[^\n'\"`<]{{1,80}}{re.escape(after)}", prompt)


def _made_up(target: Target, **more: object) -> Iterator[Any]:
    """Yield a call of each tool with arguments that fit its schema but no task."""
    for name, parameters in target.tools.items():
        yield call(name, **json.loads(next(odd_arguments(parameters))), **more)


def _enumerated(target: Target) -> Iterator[Solution]:
    """Yield, per tool, calls with all values of each argument: its enum, or the first numbers."""
    for made_up in _made_up(target):
        calls: list[Any] = []
        for key, schema in (target.tools[made_up.name].get("properties") or {}).items():
            values = schema.get("enum") or (range(CALLS) if schema.get("type") in ("integer", "number") else ())
            calls += [call(made_up.name, **{**json.loads(made_up.arguments), key: each}) for each in values[:CALLS]]
        yield [*calls, "Done."]


REWRITTEN = {"reward": 1.0, "score": 1.0, "done": True, "is_done": True, "success": True, "state": {"done": True}}
ON_TOOLS: dict[str, Callable[[Target], Iterable[Solution]]] = {
    "one tool called without work": lambda target: ([one, "Done."] for one in _made_up(target)),
    "every tool called": lambda target: [[*_made_up(target), "Done."]] if target.tools else [],
    "the same tool repeated": lambda target: ([*[one] * CALLS, "Done."] for one in _made_up(target)),
    "the state rewritten": lambda target: ([one, "Done."] for one in _made_up(target, **REWRITTEN)),
    "all values enumerated": _enumerated,
    "a call written as text": lambda target: (
        [json.dumps({"name": one.name, "arguments": json.loads(one.arguments)})] for one in _made_up(target)
    ),
}
ACCEPTED = {"all values enumerated"}
"""The attacks on tools that a task may accept."""
