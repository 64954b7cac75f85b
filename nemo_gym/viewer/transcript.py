"""A rollout as text for the terminal: its conversation, how it was graded, and why it failed.

Texts by models are not trusted: control characters, which could change the terminal or hide text, are made visible.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from nemo_gym.jsonl import dump_json
from nemo_gym.text import visible
from nemo_gym.viewer.conversation import ShownItem, ShownPart

LONGEST_TEXT = 4000
LONGEST_VALUE = 400
"""Maximum number of characters to print of a field's value."""
PLAIN, BOLD, DIM, RED, GREEN = "", "bold", "dim", "red", "green"
ROLES = {"user": "bold cyan", "assistant": "bold green", "tool": "bold yellow"}
OTHER_ROLE = "bold magenta"


class Line(NamedTuple):
    """Text in one style. It can have several lines."""

    text: str
    style: str = PLAIN
    """A style of the `rich` library, such as `bold red`. The style is used only on a terminal."""


class Transcript:
    """A formatter that turns rollouts into text. A rollout is JSON of the type `Rollout` in `viewer/src/api.ts`."""

    def __init__(self, *, is_full: bool) -> None:
        """Set whether to show long texts in full."""
        self._is_full = is_full

    def lines(self, rollout: Mapping[str, Any], recorded_log: str | None = None) -> Iterator[Line]:
        """Yield the lines of a rollout.

        `recorded_log` is the path of the failed server's log. It is shown if `rollout` does not contain the log.
        """
        for line in self._lines(rollout, recorded_log):
            yield Line(visible(line.text), line.style)

    def _lines(self, rollout: Mapping[str, Any], recorded_log: str | None) -> Iterator[Line]:
        yield _heading(rollout)
        if rollout["why"]:
            yield Line(f"why: {self._value(rollout['why'])}")
        if names := [tool["name"] for tool in rollout["tools"]]:
            yield Line(f"tools: {', '.join(names)}", DIM)
        for item in rollout["items"]:
            yield Line("")
            yield from self._item(item)
        if rollout["omitted"]:
            yield Line(f"\n{self._more(rollout['omitted'], 'item')}", DIM)
        yield from self._fields("task", rollout["given"])
        graded = {name: value for name, value in rollout["graded"].items() if name != "why"}
        yield from self._fields("grading", {**rollout["reward_components"], **graded})
        for judge in rollout["judges"]:
            yield from self._judge(judge)
        if rollout["failure"]:
            yield from self._failure(rollout["failure"], recorded_log)

    def _item(self, item: ShownItem) -> Iterator[Line]:
        match item["kind"]:
            case "message":
                yield Line(f"[{item['role']}]", ROLES.get(item["role"], OTHER_ROLE))
                yield from self._parts(item["parts"])
            case "reasoning":
                yield Line(f"[reasoning{', summary' if item['is_summary'] else ''}]", DIM)
                yield Line(self._cut(item["text"]), DIM)
            case "tool":
                yield from self._tool(item)
            case _:
                yield Line(f"[{item['type']}]", OTHER_ROLE)
                yield Line(self._value(item["value"]))

    def _parts(self, parts: Iterable[ShownPart]) -> Iterator[Line]:
        for part in parts:
            match part["kind"]:
                case "text":
                    yield Line(self._cut(part["text"], part["omitted"]))
                case "refusal":
                    yield Line(f"(refusal) {self._cut(part['text'])}")
                case kind:
                    yield Line(f"({kind}{': ' + part['note'] if part['note'] else ''})", DIM)

    def _tool(self, item: ShownItem) -> Iterator[Line]:
        seconds = "" if item["seconds"] is None else f"  ({item['seconds']:.1f} s)"
        yield Line(f"[tool] {item['name']}{seconds}", ROLES["tool"])
        yield Line(self._value(item["arguments"]))
        if item["result"] is None:
            yield Line("→ (no result)", DIM)
            return
        arrow, style = ("→ failed: ", RED) if item["failed"] else ("→ ", PLAIN)
        first, *others = [*self._parts(item["result"])] or [Line("(empty)", DIM)]
        yield Line(f"{arrow}{first.text}", style or first.style)
        yield from others

    def _fields(self, name: str, fields: Mapping[str, object]) -> Iterator[Line]:
        if fields:
            yield Line(f"\n[{name}]", OTHER_ROLE)
        for key, value in fields.items():
            yield Line(f"{key}: {self._value(value)}")

    def _judge(self, judge: Mapping[str, Any]) -> Iterator[Line]:
        reward = "" if judge["reward"] is None else f", {judge['reward']:g}"
        verdict = f": {self._value(judge['verdict'])}" if judge["verdict"] is not None else ""
        yield Line(f"\n[{judge['name']}]{verdict}{reward}", OTHER_ROLE)
        if judge["prompt"]:
            yield Line(self._cut(judge["prompt"]), DIM)
        if judge["answer"]:
            yield Line(f"→ {self._cut(judge['answer'])}")

    def _failure(self, failure: Mapping[str, Any], recorded_log: str | None) -> Iterator[Line]:
        yield Line(f"\n[failure] {_cause(failure)}", f"bold {RED}")
        yield Line(self._cut(failure["message"]))
        log = failure["log"]
        if log is None:
            if recorded_log:
                yield Line(f"log: {recorded_log}", DIM)
            return
        marked = log["marked"][0] if log["marked"] else len(log["lines"]) - 1
        number = "" if log["first_line"] is None else f":{log['first_line'] + marked}"
        yield Line(f"log: {log['path']}{number}", DIM)
        if self._is_full:
            yield Line("\n".join(log["lines"]), DIM)

    def _value(self, value: object) -> str:
        text = value if isinstance(value, str) else dump_json(value).decode()
        return self._cut(text, longest=LONGEST_VALUE)

    def _cut(self, text: str, omitted: int = 0, longest: int = LONGEST_TEXT) -> str:
        if not self._is_full and len(text) > longest:
            return f"{text[:longest]}{self._more(len(text) - longest + omitted, 'character')}"
        return f"{text}{self._more(omitted, 'character')}" if omitted else text

    def _more(self, number: int, noun: str) -> str:
        where = "--json prints the whole record" if self._is_full else "--full shows them"
        return f"… {number:,} more {noun}{'' if number == 1 else 's'} ({where})"


def _heading(rollout: Mapping[str, Any]) -> Line:
    parts = [f"{rollout['task']}:{rollout['repeat']}", rollout["agent"] or "no agent"]
    failure = rollout["failure"]
    if rollout["outcome"] == "scored":
        parts.append("no reward" if rollout["reward"] is None else f"reward {rollout['reward']:g}")
    else:
        parts.append(f"failed: {_cause(failure)}" if failure else rollout["outcome"])
    if rollout["is_masked"]:
        parts.append(f"masked{': ' + rollout['mask_reason'] if rollout['mask_reason'] else ''}")
    if usage := rollout["usage"]:
        sides = (("in", usage["input_tokens"]), ("out", usage["output_tokens"]))
        counts = " + ".join(f"{count:,} {side}" for side, count in sides if count is not None)
        parts.append(f"{counts} tokens" if counts else "")
    if len(rollout["attempts"]) > 1:
        parts.append(f"attempt {rollout['attempt']} of {', '.join(map(str, rollout['attempts']))}")
    reward = -1 if rollout["outcome"] == "failed" else 0.5 if rollout["reward"] is None else rollout["reward"]
    style = RED if reward <= 0 else GREEN if reward >= 1 else PLAIN
    return Line(f"── {'  '.join(filter(None, parts))} ──", f"bold {style}".strip())


def _cause(failure: Mapping[str, Any]) -> str:
    place = " ".join(filter(None, (failure["tier"], failure["server"])))
    return f"{failure['class']}{f' ({place})' if place else ''}"


class Output:
    """A printer of lines: with styles if standard output is a terminal, else as plain text."""

    def __init__(self) -> None:
        self._console = None
        if sys.stdout.isatty():
            # Import rich here, because output to a pipe or file does not need it.
            from rich.console import Console

            self._console = Console(highlight=False, markup=False, emoji=False, soft_wrap=True)

    def print(self, lines: Iterable[Line]) -> None:
        """Print lines and flush standard output."""
        for line in lines:
            if self._console is None:
                sys.stdout.write(f"{line.text}\n")
            else:
                self._console.print(line.text, style=line.style or None)
        sys.stdout.flush()
