"""Tables for the terminal, at a fixed width and without colour if the output is piped."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.table import Column
from rich.table import Table as RichTable
from rich.text import Text

from nemo_gym.jsonl import JsonObject
from nemo_gym.metrics.intervals import CI_HIGH, CI_LOW
from nemo_gym.metrics.pass_at_k import highest_k_metrics
from nemo_gym.rollouts.progress import clock
from nemo_gym.schemas.rollout import AgentMetrics
from nemo_gym.text import decimal, visible

if TYPE_CHECKING:
    # Import these modules for types only, because they import others that most tables do not need.
    from nemo_gym.contract.checks import Finding
    from nemo_gym.contract.pairing import Fit
    from nemo_gym.data.catalog import Component
    from nemo_gym.evaluation.health import Finding as Checked
    from nemo_gym.launcher.folder_tests import Tested

PIPED_WIDTH = 200
NARROW = 100
"""The width below which a table of benchmarks has only its short columns."""
REWARD = "mean/reward"
PESSIMISTIC = "pessimistic/"
PESSIMISTIC_REWARD = PESSIMISTIC + REWARD
INTERVAL = "95% interval"
TOKENS_OUT = "tokens out"
OVER = "scored of planned"
AVERAGED = "pass@1[avg-of-"
"""The prefix of the names of a benchmark's main metrics."""
MOST_COLUMNS = 4
EIGHTHS = " ▏▎▍▌▋▊▉█"
REWARD_BAR_WIDTH = 8
ABSENT = "–"
BINS = 10
BAR_WIDTH = 40
_OF_ATTEMPTS = re.compile(r"(.*/)?(pass|majority)@")
_OVER_ATTEMPTS = re.compile(r"(?:pass|majority)@(?:1\[avg-of-)?(\d+)\]?/")
"""A metric over the first so many rollouts of each task, not one of a subset."""
TOKENS_SUFFIX = "_tokens"
"""The suffix of fields that are counts. They are not shown in percent, even if they are always 0 or 1."""
PERCENT_SUFFIX = "_pct"
"""The suffix of metrics that are already in percent, like pass@k and majority@k. All others have the unit of the
verifier."""


class Table(RichTable):
    """A table without borders. Cells are not markup, and control characters in them are made visible."""

    def __init__(self, *columns: str | Column, **options: Any) -> None:
        super().__init__(*columns, box=None, pad_edge=False, header_style="bold", title_justify="left", **options)

    def add_row(self, *cells: RenderableType | None, **options: Any) -> None:
        super().add_row(*map(safe, cells), **options)

    def width_in(self, terminal: Console) -> int:
        """Return the width that the table needs to have no folded cell, which may be more than the terminal has."""
        return self.__rich_measure__(terminal, terminal.options.update(max_width=sys.maxsize)).maximum


def safe(text: object, style: str = "") -> Text:
    """Return a text in which control characters are visible, in one style."""
    return text if isinstance(text, Text) else Text(visible(str(text)), style=style)


def show(table: Table | Group) -> None:
    console().print(table)


def console() -> Console:
    """Return a console for standard output. If that is not a terminal, lines have a fixed width."""
    found = Console(highlight=False)
    if not found.is_terminal:
        found.width = PIPED_WIDTH
    return found


def findings(found: Iterable[Finding], heading: str = "promise") -> Table:
    """Return a table of the results of `ng env check`, one row per check or attack."""
    return _marked(heading, rows=((each.is_kept, each.promise, each.detail) for each in found))


def fits(found: Iterable[Fit]) -> Table:
    """Return a table of which agents fit an environment, and why the others do not."""
    own = {True: "it fits; the environment's own", False: "it fits"}
    rows = ((not each.problems, each.agent, "\n".join(each.problems) or own[each.is_own]) for each in found)
    return _marked("agent", rows=rows)


def health(found: Iterable[Checked]) -> Table:
    """Return a table of checked servers, one row per check."""
    return _marked("server", "check", rows=((each.is_good, each.server, each.check, each.detail) for each in found))


def _marked(*headings: str, rows: Iterable[tuple[bool, *tuple[str, ...]]]) -> Table:
    """Return a table with one row per check: a mark, and the details."""
    table = Table("", *headings, Column("found", overflow="fold"))
    for is_good, *cells in rows:
        table.add_row("✓" if is_good else "✗", *cells)
    return table


def tested(folders: Iterable[Tested]) -> Table:
    """Return a table of tested folders, one row per folder."""
    counted = (Column(heading, justify="right") for heading in ("passed", "failed", "skipped", "seconds"))
    table = Table("", Column("folder", overflow="fold"), *counted)
    for each in folders:
        mark = "✗" if not each.is_good else "✓" if each.has_tests else "–"
        table.add_row(mark, each.name, *map(str, (each.passed, each.failed, each.skipped)), f"{each.took_s:.1f}")
    return table


def kept_and_dropped(kept: int, dropped: Mapping[str, int]) -> Table:
    """Return a table with the number of kept rollouts, and of dropped ones by reason, the most frequent first."""
    table = Table("", Column("rollouts", justify="right"), Column("reason", overflow="fold"))
    table.add_row("kept", str(kept), "")
    for reason, count in sorted(dropped.items(), key=lambda each: -each[1]):
        table.add_row("dropped", str(count), reason)
    return table


def collections(found: Sequence[JsonObject]) -> Table:
    """Return a table of running collections, with their state, progress and mean reward."""
    names = ("run", "state", "ended", "running", "per second", "left", "mean reward", "minutes", "process")
    numbers = (Column(name, justify="right") for name in names[2:])
    table = Table(*names[:2], *numbers, Column("output", overflow="fold"))
    for each in found:
        left_s, mean = each.get("left_s"), each.get("mean_reward")
        table.add_row(
            each["run_id"][:8], each["state"],
            f"{each['planned'] - each['unresolved']}/{each['planned']}" if "planned" in each else ABSENT,
            f"{each['running']}/{each['concurrency']}" if "running" in each else ABSENT,
            f"{each['rollouts_per_s']:g}" if "rollouts_per_s" in each else ABSENT,
            ABSENT if left_s is None else clock(left_s), ABSENT if mean is None else decimal(mean),
            f"{each['seconds'] / 60:.1f}", str(each["pid"]), each["output"],
        )  # fmt: skip
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
        "repeats": [str(each.num_repeats or "") for each in found],
        "description": [each.description or "" for each in found],
    }
    shown = {name: texts for name, texts in columns.items() if any(texts)}
    # Names are typed again, so the other columns give way to them.
    table = Table(*(Column(name, overflow="fold", no_wrap=name == "name") for name in shown))
    for row in zip(*shown.values(), strict=True):
        table.add_row(*row)
    return table


def benchmarks(found: Sequence[Component]) -> Table:
    """Return a table of benchmarks: their size, and whether their data exists.

    If the terminal is wide enough, add their licence and description.
    """
    is_narrow = console().width < NARROW
    numbers = (Column(heading, justify="right") for heading in ("rows", "repeats"))
    texts = (
        Column(name, overflow="fold") for name in (("data",) if is_narrow else ("licence", "data", "description"))
    )
    table = Table(Column("name", overflow="fold"), "domain", *numbers, *texts)
    for each in found:
        counts = (f"{each.rows:,}" if each.rows else ABSENT, str(each.num_repeats or ABSENT))
        state = "prepared" if each.is_prepared else "missing"
        words = (state,) if is_narrow else (each.license or ABSENT, state, each.description or "")
        table.add_row(each.name, each.domain or ABSENT, *counts, *words)
    return table


def tasks(found: Sequence[Mapping[str, object]]) -> Table:
    """Return a table of tasks: their numbers, and the fields of their rows that are numbers or short texts."""
    names = dict.fromkeys(name for each in found for name in each)
    table = Table(Column("task", justify="right"), *(Column(name, overflow="fold") for name in names))
    for number, each in enumerate(found):
        table.add_row(str(number), *(safe(each.get(name, "")) for name in names))
    return table


def component(one: Component) -> Table:
    """Return a table with all details of one component."""
    table = Table(Column(style="bold"), Column(overflow="fold"), show_header=False)
    for name, value in asdict(one).items():
        if value not in (None, "", ()):
            table.add_row(name, ", ".join(value) if isinstance(value, tuple) else str(value))
    return table


def fitting(columns: Sequence[tuple[Column, Sequence[object]]], dispensable: Sequence[str]) -> Table:
    """Return a table of these columns. Leave out dispensable ones, by heading and in this order, until it fits."""
    terminal, left_out = console(), set[object]()
    for heading in (None, *dispensable):
        left_out.add(heading)
        kept = [(column.copy(), cells) for column, cells in columns if column.header not in left_out]
        table = Table(*(column for column, _ in kept))
        for row in zip(*(cells for _, cells in kept), strict=True):
            table.add_row(*row)
        if (excess := table.width_in(terminal) - terminal.width) <= 0:
            return table
    # Otherwise, every column would lose letters.
    table.columns[0].max_width = max(1, max(cell_len(str(cell)) for cell in table.columns[0].cells) - excess)
    return table


def agents(metrics: Sequence[AgentMetrics], *, are_benchmarks: bool = False) -> Table:
    """Return a table with one line per agent, and indented lines for the parts of its reward.

    The parts of a benchmark are its main metrics, and those of other agents the means that the environment shows.
    """
    rates = [highest_k_metrics(agent["agent_metrics"], "pass@{k}", ["accuracy"]) for agent in metrics]
    names = {name.partition("/")[0] for rate in rates for name in rate}
    pass_at_k = names.pop() if len(names) == 1 else "pass@k"
    headings = ("reward", INTERVAL, "", "scored", pass_at_k, TOKENS_OUT)
    lines: list[list[str]] = []
    for agent, rate in zip(metrics, rates, strict=True):
        found, ledger = agent["agent_metrics"], agent.get("ledger")
        low, high = (found.get(f"{bound}reward") for bound in (CI_LOW, CI_HIGH))
        lines.append([
            str(agent["agent_ref"]["name"]),
            _digits(_value(agent, REWARD)),
            "" if low is None or high is None else f"{_digits(low)}…{_digits(high)}",
            _bar(agent),
            f"{ledger['scored']}/{ledger['planned']}" if ledger else "",
            ", ".join(f"{_digits(value / 100)}{_fewer_tasks(agent, name)}" for name, value in rate.items()),
            _digits(found.get("mean/output_tokens", "")),
        ])  # fmt: skip
        for name in _chosen(agent) if are_benchmarks or len(metrics) <= MOST_COLUMNS else ():
            if are_benchmarks and name.startswith(AVERAGED):
                lines.append([f"  {name}", _shown(agent, name), *[""] * len(headings[1:])])
            elif not are_benchmarks and name.startswith("mean/") and not name.endswith(TOKENS_SUFFIX):
                lines.append(
                    [f"  {name.removeprefix('mean/')}", _digits(_value(agent, name)), *[""] * len(headings[1:])]
                )
    columns = [(Column("agent", overflow="ellipsis", no_wrap=True), [line[0] for line in lines])]
    for at, heading in enumerate(headings, start=1):
        if any(cells := [line[at] for line in lines]):
            columns.append((Column(heading, justify="right" if heading else "left", no_wrap=True), cells))
    return fitting(columns, (TOKENS_OUT, "", pass_at_k, INTERVAL))


def _bar(agent: AgentMetrics) -> str:
    """Return a bar for a mean reward if all rewards of the agent are between 0 and 1, else an empty string."""
    mean, low, high = (_value(agent, f"{kind}/reward") for kind in ("mean", "min", "max"))
    if None in (mean, low, high) or low < 0 or high > 1:
        return ""
    full, rest = divmod(round(mean * REWARD_BAR_WIDTH * 8), 8)
    return f"{EIGHTHS[8] * full}{EIGHTHS[rest]}".strip()


def key_metrics(metrics: Sequence[AgentMetrics]) -> Table | Group:
    """Return a table of rewards and all key metrics, with one column per agent.

    If there are too many agents, or if the terminal is too narrow, the agents are below each other.
    """
    terminal, table = console(), _agents_in_columns(metrics)
    if len(metrics) <= MOST_COLUMNS and (not terminal.is_terminal or table.width_in(terminal) <= terminal.width):
        return table
    parts: list[RenderableType] = [Text("Key metrics", style="italic")]
    for agent in metrics:
        parts += [safe(agent["agent_ref"]["name"], "bold"), _agents_in_columns([agent], named=False)]
    return Group(*parts)


def histogram(rewards: Sequence[float], *, title: str) -> Table:
    """Return a table of how often each reward occurs. More than ten different rewards are put into ten bins."""
    counts = Counter(rewards)
    if len(counts) > BINS:
        low, high = min(rewards), max(rewards)
        width = (high - low) / BINS
        places = Counter(min(int((reward - low) / width), BINS - 1) for reward in rewards)
        bars = {f"{_digits(low + at * width)} … {_digits(low + (at + 1) * width)}": places[at] for at in range(BINS)}
    else:
        bars = {_digits(reward): counts[reward] for reward in sorted(counts)}
    table = Table(Column("reward", justify="right"), Column("rollouts", justify="right"), "", title=safe(title))
    most = max(bars.values(), default=0)
    for name, count in bars.items():
        table.add_row(name, str(count), "█" * -(-count * BAR_WIDTH // most))
    return table


def _agents_in_columns(metrics: Sequence[AgentMetrics], *, named: bool = True) -> Table:
    table = Table(Column("metric", overflow="fold"), title="Key metrics" if named else None, show_header=named)
    for agent in metrics:
        table.add_column(safe(agent["agent_ref"]["name"] if named else ""), justify="right", overflow="fold")

    def add(name: str, style: str | None = None) -> None:
        table.add_row(name, *(_shown(agent, name) for agent in metrics), style=style)
        intervals = [_interval(agent, name) for agent in metrics]
        if any(each.plain != ABSENT for each in intervals):
            table.add_row(INTERVAL, *intervals, style="dim")

    add(REWARD, "bold")
    if any("ledger" in agent for agent in metrics):
        table.add_row(OVER, *map(_over, metrics))
    if any("ledger" in agent and agent["ledger"]["failed"] for agent in metrics):
        add(PESSIMISTIC_REWARD)
    for name in sorted({name for agent in metrics for name in _chosen(agent)}):
        add(name)
    return table


def _chosen(agent: AgentMetrics) -> list[str]:
    """Return the names of the metrics to show, apart from the reward.

    These are the key metrics, without the means of fields that were already in the rows. If the key metrics include
    neither pass@k nor majority@k, both are added for the highest k.
    """
    echoed = {f"mean/{field}" for field in agent.get("row_fields", ())}
    chosen = {*agent["key_metrics"]} - {REWARD} - echoed
    if not any(_OF_ATTEMPTS.match(name) for name in chosen):
        for pattern in ("pass@{k}", "majority@{k}"):
            chosen |= highest_k_metrics(agent["agent_metrics"], pattern, ["accuracy"]).keys()
    return sorted(chosen)


def _shown(agent: AgentMetrics, name: str) -> str:
    """Return a metric's value, in percent if it is a share."""
    value = _value(agent, name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return _digits(value)
    factor = _percent_factor(agent, name)
    return (_percent(factor * value) if factor else _digits(value)) + _fewer_tasks(agent, name)


def _value(agent: AgentMetrics, name: str) -> Any:
    return agent["key_metrics"].get(name, agent["agent_metrics"].get(name))


def _fewer_tasks(agent: AgentMetrics, name: str) -> str:
    """Return over how many tasks a metric such as pass@k is computed, if some tasks have fewer rollouts than its k."""
    if (over := _OVER_ATTEMPTS.match(name)) is None:
        return ""
    # An environment may group its rollouts in its own way, without these counts or with fewer rollouts than `k`.
    counts = [group.get("num_rollouts") for group in agent.get("group_level_metrics", ())]
    has_enough = [count >= int(over[1]) for count in counts if isinstance(count, int)]
    if all(has_enough) or not any(has_enough):
        return ""
    return f" ({sum(has_enough)} of {len(has_enough)} tasks)"


def _percent_factor(agent: AgentMetrics, name: str) -> int:
    """Return the factor that turns a metric's values into percent; 0 if they are not shares."""
    if _OF_ATTEMPTS.match(name) or name.endswith(PERCENT_SUFFIX):
        return 1
    metrics = agent["agent_metrics"]
    # Decide by the overall metric, because a subset's mean has the same unit.
    field = name.rpartition("mean/")[2]
    low, high = metrics.get(f"min/{field}"), metrics.get(f"max/{field}")
    is_count = field.endswith(TOKENS_SUFFIX) or field in agent.get("integer_fields", ())
    is_share = low in (0, 1) and high in (0, 1) and not is_count
    if field == "reward" and low is not None and high is not None:
        is_share = low >= 0 and high <= 1
    return 100 if "mean/" in name and is_share else 0


def _interval(agent: AgentMetrics, name: str) -> Text:
    low, high = (agent["agent_metrics"].get(f"{bound}{name.removeprefix('mean/')}") for bound in (CI_LOW, CI_HIGH))
    if low is None or high is None:
        return safe(ABSENT)
    if factor := _percent_factor(agent, name):
        return safe(f"{_percent(factor * low, 1)[:-1]}–{_percent(factor * high, 1)}")
    return safe(f"{_digits(low)} … {_digits(high)}")


def _over(agent: AgentMetrics) -> Text:
    """Return how many rollouts an agent's means cover, and the outcomes of the other rollouts."""
    if (ledger := agent.get("ledger")) is None:
        return safe(ABSENT)
    causes = {**ledger["failed"], "unresolved": ledger["unresolved"]}
    rest = ", ".join(f"{count} {cause}" for cause, count in causes.items() if count)
    return safe(f"{ledger['scored']} of {ledger['planned']}" + (f" ({rest})" if rest else ""))


def _percent(value: float, decimals: int = 2) -> str:
    return f"{_without_zeros(decimal(value, decimals))}%"


def _digits(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return ABSENT if value is None else str(value)
    is_large = float(value).is_integer() and abs(value) >= 1000
    return decimal(value, 0) if is_large else _without_zeros(decimal(value))


def _without_zeros(number: str) -> str:
    """Remove the zeros at the end of a number's decimal places."""
    return number.rstrip("0").rstrip(".") if "." in number and "e" not in number else number
