"""Draw questions about a table and its parent tables. Each question has a reference query."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

COMPARISONS = {"more than": ">", "less than": "<", "at least": ">=", "at most": "<="}
AGGREGATES = {"average": "AVG", "lowest": "MIN", "highest": "MAX", "total": "SUM"}


@dataclass(frozen=True)
class Question:
    """A question and its reference query."""

    text: str
    sql: str


@dataclass(frozen=True)
class Column:
    """A column that questions are about."""

    name: str
    phrase: str
    """The column's name in a question."""
    values: Sequence[int] | Sequence[str] | None = None
    """The numbers or texts that questions compare the column with. None means the cities in the database."""
    has_gaps: bool = False
    """Whether some of the column's values are NULL."""
    adds_up: bool = True
    """Whether the sum of the column's numbers is meaningful."""

    @property
    def is_number(self) -> bool:
        return isinstance(self.values, range)


@dataclass(frozen=True)
class Table:
    """A table that questions are about. Its primary key is `id`."""

    name: str
    plural: str
    label: str
    """A column with unique values, by which answers identify rows."""
    columns: tuple[Column, ...]
    parents: tuple[Table, ...] = ()
    """The tables that this table refers to, by columns like `<name>_id`."""


class _Field(NamedTuple):
    """A column of a table or of its parent table, with the phrase by which questions about the table refer to it."""

    column: Column
    table: Table
    phrase: str

    @property
    def sql(self) -> str:
        return f"{self.table.name}.{self.column.name}"


class _Condition(NamedTuple):
    text: str
    sql: str
    table: Table


def literal(value: str | int | None) -> str:
    """Return a value as an SQL literal."""
    if isinstance(value, str):
        return "'{}'".format(value.replace("'", "''"))
    return "NULL" if value is None else str(value)


def ask(chance: random.Random, cities: Sequence[str], tables: Sequence[Table]) -> Question:
    """Draw a question about one of these tables. The result of its query may be empty."""
    return _Draw(chance, cities, chance.choice(tables)).question()


@dataclass(frozen=True)
class _Draw:
    """A source of random questions about a table, in all forms that its columns and parents allow."""

    chance: random.Random
    cities: Sequence[str]
    table: Table

    def question(self) -> Question:
        has_numbers = any(column.is_number for column in self.table.columns)
        has_texts = any(not field.column.is_number for field in self._fields())
        shapes: list[Callable[[], Question]] = [self._list, self._count]
        if has_numbers:
            shapes += [self._aggregate, self._first_ones, self._above_average]
        if has_texts and len(self._fields()) > 1:
            shapes += [self._groups]
        if has_texts and has_numbers:
            shapes += [self._aggregates_of_groups]
        if self.table.parents:
            shapes += [self._parents_without, self._parents_with_several, self._numbers_of_parents]
        return self.chance.choice(shapes)()

    def _list(self) -> Question:
        conditions = self._conditions()
        used = {each.sql.partition(" ")[0] for each in conditions}
        fields = [each for each in self._own_fields() if each.sql not in used and not each.column.has_gaps]
        orders = [(f"{each.phrase}, then by ", f"{each.sql}, ") for each in fields] or [("", "")]
        words, order = self.chance.choice(orders)
        lead = f"{self.chance.choice(['Give', 'I need', 'List'])} the {self.table.label}"
        # Order by the label, too, because two rows may have the same value in the first column.
        return Question(
            f"{lead} of each {self._words(conditions)}. Order them by {words}{self.table.label}.",
            f"SELECT {self._label} {self._from(conditions)} ORDER BY {order}{self._label}",
        )

    def _count(self) -> Question:
        conditions = self._conditions()
        noun = f"{self.table.plural} {_whose(conditions)}"
        text = self.chance.choice(
            [f"How many {noun} are there?", f"Count the {noun}.", f"What is the number of {noun}?"]
        )
        return Question(text, f"SELECT COUNT(*) {self._from(conditions)}")

    def _aggregate(self) -> Question:
        conditions, field = self._conditions(), self._number()
        word, function = self._aggregation(field)
        what = f"the {word} {field.phrase} of the {self.table.plural} {_whose(conditions)}"
        text = self.chance.choice([f"What is {what}?", f"Find {what}.", f"Compute {what}."])
        return Question(text, f"SELECT {function}({field.sql}) {self._from(conditions)}")

    def _groups(self) -> Question:
        by, least = self._text(), self.chance.randint(1, 3)
        conditions = self._conditions(but=by)
        text = f"For each {by.phrase}, how many {self.table.plural} are there {_whose(conditions)}?"
        having = ""
        if least > 1:
            text += f" Leave out those with fewer than {least}."
            having = f" HAVING COUNT(*) >= {least}"
        return Question(
            f"{text} Give the {by.phrase} and the number.",
            f"SELECT {by.sql}, COUNT(*) {self._from(conditions, by)} GROUP BY {by.sql}{having}",
        )

    def _aggregates_of_groups(self) -> Question:
        by, field = self._text(), self._number()
        conditions, (word, function) = self._conditions(but=by), self._aggregation(field)
        text = f"Give each {by.phrase}, and the {word} {field.phrase} of its {self.table.plural} {_whose(conditions)}."
        without = f" Leave out those without a known {field.phrase}." if field.column.has_gaps else ""
        return Question(
            f"{text}{without}",
            f"SELECT {by.sql}, {function}({field.sql}) {self._from(conditions, by)}{_is_known(field)} "
            f"GROUP BY {by.sql}",
        )

    def _first_ones(self) -> Question:
        conditions, field, most = self._conditions(), self._number(), self.chance.randint(1, 4)
        word, direction = self.chance.choice([("highest", "DESC"), ("lowest", "ASC")])
        which = f"{most} have" if most > 1 else "one has"
        known, label = "known " if field.column.has_gaps else "", self.table.label
        return Question(
            f"Of the {self.table.plural} {_whose(conditions)}, which {which} the {word} {known}{field.phrase}? "
            f"Give the {label} and the {field.phrase}, the {word} first; of equal ones, the first by {label}.",
            f"SELECT {self._label}, {field.sql} {self._from(conditions)}{_is_known(field)} "
            f"ORDER BY {field.sql} {direction}, {self._label} LIMIT {most}",
        )

    def _above_average(self) -> Question:
        conditions, field = self._conditions(), self._number()
        word, operator = self.chance.choice([("above", ">"), ("below", "<")])
        return Question(
            f"Give the {self.table.label} of each {self._words(conditions)} and whose {field.phrase} is {word} the "
            f"average of all {self.table.plural}.",
            f"SELECT {self._label} {self._from(conditions)} AND {field.sql} {operator} "
            f"(SELECT AVG({field.column.name}) FROM {self.table.name})",
        )

    def _parents_without(self) -> Question:
        parent, condition = self.chance.choice(self.table.parents), self._own_condition()
        has, negation = self.chance.choice([("without a", "NOT "), ("with at least one", "")])
        return Question(
            f"Give the {parent.label} of each {parent.name} {has} {self.table.name} {_whose([condition])}.",
            f"SELECT {parent.name}.{parent.label} FROM {parent.name} WHERE {negation}EXISTS (SELECT 1 FROM "
            f"{self.table.name} WHERE {self._link(parent)} AND {condition.sql})",
        )

    def _parents_with_several(self) -> Question:
        parent, condition = self.chance.choice(self.table.parents), self._own_condition()
        least = self.chance.randint(2, 4)
        return Question(
            f"Which {parent.plural} have {least} or more {self.table.plural} {_whose([condition])}? Give their "
            f"{parent.label} only.",
            f"SELECT {parent.name}.{parent.label} FROM {parent.name} JOIN {self.table.name} ON {self._link(parent)} "
            f"WHERE {condition.sql} GROUP BY {parent.name}.id HAVING COUNT(*) >= {least}",
        )

    def _numbers_of_parents(self) -> Question:
        parent, condition = self.chance.choice(self.table.parents), self._own_condition()
        return Question(
            f"How many {self.table.plural} {_whose([condition])} does each {parent.name} have? Give the "
            f"{parent.label} and the number, 0 included.",
            f"SELECT {parent.name}.{parent.label}, COUNT({self.table.name}.id) FROM {parent.name} LEFT JOIN "
            f"{self.table.name} ON {self._link(parent)} AND {condition.sql} GROUP BY {parent.name}.id",
        )

    @property
    def _label(self) -> str:
        return f"{self.table.name}.{self.table.label}"

    def _words(self, conditions: Sequence[_Condition]) -> str:
        return f"{self.table.name} {_whose(conditions)}"

    def _own_fields(self) -> list[_Field]:
        return [_Field(column, self.table, column.phrase) for column in self.table.columns]

    def _fields(self) -> list[_Field]:
        """Return the columns of the table and of its parents."""
        of_parents = (
            _Field(column, parent, f"{parent.name}'s {column.phrase}")
            for parent in self.table.parents
            for column in parent.columns
        )
        return [*self._own_fields(), *of_parents]

    def _number(self) -> _Field:
        return self.chance.choice([field for field in self._own_fields() if field.column.is_number])

    def _text(self) -> _Field:
        return self.chance.choice([field for field in self._fields() if not field.column.is_number])

    def _aggregation(self, field: _Field) -> tuple[str, str]:
        return self.chance.choice([each for each in AGGREGATES.items() if field.column.adds_up or each[1] != "SUM"])

    def _own_condition(self) -> _Condition:
        return self._condition(self.chance.choice(self._own_fields()))

    def _conditions(self, but: _Field | None = None) -> list[_Condition]:
        fields = [field for field in self._fields() if field != but]
        return [
            self._condition(field) for field in self.chance.sample(fields, min(len(fields), self.chance.randint(1, 2)))
        ]

    def _condition(self, field: _Field) -> _Condition:
        chance, values = self.chance, field.column.values
        if field.column.has_gaps and chance.random() < 1 / 4:
            word, operator = chance.choice([("known", "IS NOT NULL"), ("unknown", "IS NULL")])
        elif isinstance(values, range):
            word, operator = self._comparison(values)
        else:
            value = chance.choice(self.cities if values is None else values)
            is_equal = chance.random() < 3 / 4
            word, operator = f"{'' if is_equal else 'not '}{value}", f"{'=' if is_equal else '<>'} {literal(value)}"
        return _Condition(f"{field.phrase} is {word}", f"{field.sql} {operator}", field.table)

    def _comparison(self, values: range) -> tuple[str, str]:
        least, most = sorted(self.chance.sample(values, 2))
        if self.chance.random() < 1 / len(COMPARISONS):
            return f"from {least} to {most}", f"BETWEEN {least} AND {most}"
        words, operator = self.chance.choice(list(COMPARISONS.items()))
        return f"{words} {least}", f"{operator} {least}"

    def _link(self, parent: Table) -> str:
        return f"{self.table.name}.{parent.name}_id = {parent.name}.id"

    def _from(self, conditions: Sequence[_Condition], *fields: _Field) -> str:
        used = {each.table.name for each in chain(conditions, fields)}
        joins = [f" JOIN {each.name} ON {self._link(each)}" for each in self.table.parents if each.name in used]
        return f"FROM {self.table.name}{''.join(joins)} WHERE {' AND '.join(each.sql for each in conditions)}"


def _is_known(field: _Field) -> str:
    return f" AND {field.sql} IS NOT NULL" if field.column.has_gaps else ""


def _whose(conditions: Sequence[_Condition]) -> str:
    return " and ".join(f"whose {each.text}" for each in conditions)
