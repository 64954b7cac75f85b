"""Tables for the terminal, at a fixed width and without colour if the output is piped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from nemo_gym.jsonl import JsonObject

if TYPE_CHECKING:
    # Types only, because these modules bring imports that the other tables do not need.
    from nemo_gym.contract import Finding
    from nemo_gym.data.catalog import Component
    from nemo_gym.launcher.folder_tests import Tested

PIPED_WIDTH = 200
REWARD = "mean/reward"
PESSIMISTIC_REWARD = "pessimistic/mean/reward"
OVER = "scored of planned"
MOST_COLUMNS = 4
SHOWN_IN_ROW = 3


def show(table: Table) -> None:
    """Print a table."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = PIPED_WIDTH
    console.print(table)


def _table(*columns: str | Column, title: str | None = None) -> Table:
    return Table(*columns, box=None, pad_edge=False, header_style="bold", title=title, title_justify="left")


def findings(found: Iterable[Finding]) -> Table:
    """Return a table of findings, one row per promise."""
    table = _table("", "promise", Column("found", overflow="fold"))
    for finding in found:
        table.add_row("✓" if finding.is_kept else "✗", finding.promise, Text(finding.detail))
    return table


def tested(folders: Iterable[Tested]) -> Table:
    """Return a table of tested folders, one row per folder."""
    counted = (Column(heading, justify="right") for heading in ("passed", "failed", "skipped", "seconds"))
    table = _table("", Column("folder", overflow="fold"), *counted)
    for each in folders:
        mark = "✗" if not each.is_good else "✓" if each.has_tests else "–"
        counts = (each.passed, each.failed, each.skipped)
        table.add_row(mark, Text(each.name), *map(str, counts), f"{each.took_s:.1f}")
    return table


def components(found: Sequence[Component]) -> Table:
    """Return a table of components, one row each, without empty columns."""
    columns = {
        "name": [each.name for each in found],
        "kind": [each.kind for each in found] if len({each.kind for each in found}) > 1 else [],
        "domain": [each.domain or "" for each in found],
        "configs": [", ".join(each.configs) for each in found],
        "agents": [", ".join(each.agents) for each in found],
        "datasets": [", ".join(each.datasets) for each in found],
        "description": [each.description or "" for each in found],
    }
    shown = {heading: texts for heading, texts in columns.items() if any(texts)}
    table = _table(*(Column(heading, overflow="fold") for heading in shown))
    for row in zip(*shown.values(), strict=True):
        table.add_row(*map(Text, row))
    return table


def component(one: Component) -> Table:
    """Return a table with all details of one component."""
    table = Table(Column(style="bold"), Column(overflow="fold"), box=None, pad_edge=False, show_header=False)
    for name, value in asdict(one).items():
        if value:
            table.add_row(name, Text(", ".join(value) if isinstance(value, tuple) else str(value)))
    return table


def key_metrics(metrics: Sequence[JsonObject]) -> Table:
    """Return a table of rewards and key metrics: one column per agent if they fit, else one row per agent."""
    return _agents_in_columns(metrics) if len(metrics) <= MOST_COLUMNS else _agents_in_rows(metrics)


def _agents_in_rows(metrics: Sequence[JsonObject]) -> Table:
    reward = Column(REWARD, justify="right", style="bold")
    table = _table(Column("agent", overflow="fold"), reward, Column("others", overflow="fold"), title="Key metrics")
    has_ledgers = any("ledger" in agent for agent in metrics)
    if has_ledgers:
        table.add_column(OVER, justify="right", overflow="fold")
        table.add_column(PESSIMISTIC_REWARD, justify="right")
    for agent in metrics:
        chosen = {name: value for name, value in agent["key_metrics"].items() if name != REWARD}
        others = ", ".join(f"{name} {_digits(value)}" for name, value in sorted(chosen.items())[:SHOWN_IN_ROW])
        more = len(chosen) - SHOWN_IN_ROW
        table.add_row(
            Text(str(agent["agent_ref"]["name"])),
            _number(agent["agent_metrics"].get(REWARD)),
            Text(others + (f", … {more} more" if more > 0 else "")),
            *((_over(agent), _number(agent["agent_metrics"].get(PESSIMISTIC_REWARD))) if has_ledgers else ()),
        )
    return table


def _agents_in_columns(metrics: Sequence[JsonObject]) -> Table:
    table = _table(Column("metric", overflow="fold"), title="Key metrics")
    for agent in metrics:
        table.add_column(Text(str(agent["agent_ref"]["name"])), justify="right", overflow="fold")
    table.add_row(REWARD, *(_number(agent["agent_metrics"].get(REWARD)) for agent in metrics), style="bold")
    if any("ledger" in agent for agent in metrics):
        table.add_row(OVER, *map(_over, metrics))
    if any("ledger" in agent and agent["ledger"]["failed"] for agent in metrics):
        table.add_row(
            PESSIMISTIC_REWARD, *(_number(agent["agent_metrics"].get(PESSIMISTIC_REWARD)) for agent in metrics)
        )
    for name in sorted({name for agent in metrics for name in agent["key_metrics"]} - {REWARD}):
        table.add_row(Text(name), *(_number(agent["key_metrics"].get(name)) for agent in metrics))
    return table


def _over(agent: JsonObject) -> Text:
    """Return how many rollouts an agent's means cover, and what happened to the others."""
    ledger = agent.get("ledger")
    if ledger is None:
        return Text("–")
    rest = [f"{count} {cause}" for cause, count in ledger["failed"].items()]
    rest += [f"{ledger['unresolved']} unresolved"] if ledger["unresolved"] else []
    return Text(f"{ledger['scored']} of {ledger['planned']}" + (f" ({', '.join(rest)})" if rest else ""))


def _number(value: object) -> Text:
    return Text(_digits(value))


def _digits(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return "–" if value is None else str(value)
    is_large = float(value).is_integer() and abs(value) >= 1000
    return f"{value:,.0f}" if is_large else f"{value:,.3f}".rstrip("0").rstrip(".")
