"""The effects of a rollout's calls on the company: the differences from its initial data."""

from __future__ import annotations

from collections import Counter
from reprlib import repr as quoted
from typing import NamedTuple

from resources_servers.workplace_assistant.database import TODAY, YESTERDAY, Database

TABLES = ("emails", "events", "tasks", "customers")
DELETED = ("deleted",)
MOST_NAMED = 3


class Effect(NamedTuple):
    """A difference from the initial database. Texts are in lower case."""

    table: str
    row_id: str
    """The row's id, or an empty string for an added row."""
    column: str
    """The changed column, or an empty string for an added or deleted row."""
    values: tuple[str, ...]

    def __str__(self) -> str:
        return " ".join(part for part in (self.table, self.row_id, self.column, ", ".join(self.values)) if part)


Effects = Counter[Effect]


def effects_on(database: Database) -> Effects:
    """Return the differences of a rollout's database from the company's initial state."""
    # Today has just begun and has no visits, so a plot up to today shows the same as one up to yesterday.
    plots = (plot.casefold().replace(f"_{TODAY}_", f"_{YESTERDAY}_") for plot in database.plots)
    found: Effects = Counter(Effect("plots", "", "", (plot,)) for plot in plots)
    for name in TABLES:
        table = getattr(database, name)
        changes = table.changes()
        for values, count in changes.added.items():
            found[Effect(name, "", "", values)] = count
        for row_id, row in changes.known.items():
            if row is None:
                found[Effect(name, row_id, "", DELETED)] = 1
                continue
            before = table.start.rows[row_id]
            found.update(
                Effect(name, row_id, column, (value,))
                for column, value in row.items()
                if value != before[column].casefold()
            )
    return found


def difference(actual: Effects, expected: Effects) -> str:
    """Describe the effects that are missing and those that are not expected. Long values are shortened."""
    parts = (("missing", expected - actual), ("not expected", actual - expected))
    return "; ".join(f"{name}: {listed(effects)}" for name, effects in parts if effects)


def listed(effects: Effects) -> str:
    """Describe the first effects, with their values in quotation marks because they may come from the model."""
    named = [_named(each) for each in sorted(effects.elements())]
    more = f", and {len(named) - MOST_NAMED} more" if len(named) > MOST_NAMED else ""
    return ", ".join(named[:MOST_NAMED]) + more


def _named(effect: Effect) -> str:
    values = quoted(effect.values if len(effect.values) > 1 else effect.values[0])
    return " ".join(filter(None, (*effect[:3], values)))
