"""Tests of conditions on rows: accepted forms, and errors for all others."""

from __future__ import annotations

import re

import pytest

from nemo_gym.errors import DataError
from nemo_gym.training.conditions import Condition
from tests.each_case import each_case

ROW = {"reward": 0.75, "subset": "easy", "metadata": {"level": 3, "tags": ["short", "new"]}, "solved": True}


@each_case(
    ("text", "holds"),
    [
        ('reward > 0.5 and subset == "easy"', True),
        ('reward > 0.5 and not subset == "easy"', False),
        ("metadata.level >= 3 or missing", True),
        ("1 < metadata.level < 3", False),
        ("'new' in metadata.tags", True),
        ("subset not in ['easy', \"hard\"]", False),
        ("subset in ('easy',)", True),
        ("reward != -1", True),
        ("metadata.level.deeper == None", True),
        ("nothing is None and solved is not False", True),
        ("level != None and level > 3", False),
        ("solved", True),
    ],
)
def test_conditions_compare_fields_of_rows(text, holds):
    assert Condition(text).holds(ROW) is holds


@each_case(
    ("text", "message"),
    [
        ("reward >", "'reward >' is not a condition: invalid syntax at column"),
        ("", "'' is not a condition: "),
        ("reward > 0.5 and len(subset) > 1", "'len(subset)' at column 18 is not allowed. A condition consists of"),
        ("subset[0] == 'e'", "'subset[0]' at column 1 is not allowed"),
        ("__import__('os').name == 1", "'__import__('os')' at column 1 is not allowed"),
        ("reward + 1 > 2", "'reward + 1' at column 1 is not allowed"),
        ("reward if solved else 1", "is not allowed"),
        ("{'a': 1} == metadata", "is not allowed"),
        ("b'x' == subset", "is not allowed"),
        ("(reward := 1)", "is not allowed"),
        ("-reward < 0", "'-reward' at column 1 is not allowed"),
        ("  len(subset) > 1", "'len(subset)' at column 3 is not allowed"),
        ("  reward > > 1", "invalid syntax at column 12"),
        ("subset == 'für' and len(subset) > 1", "'len(subset)' at column 21 is not allowed"),
    ],
)
def test_anything_else_is_rejected_with_position(text, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        Condition(text)


@each_case(
    ("text", "message"),
    [
        ("rewerd > 1", "where: the row has no field 'rewerd' for 'rewerd > 1'. Did you mean 'reward'?"),
        ("subset > 1", "where: the values in 'subset > 1' cannot be compared: str and int."),
        ("'a' in solved", "where: the values in ''a' in solved' cannot be compared: str and bool."),
    ],
)
def test_values_that_do_not_compare_are_named(text, message):
    with pytest.raises(DataError, match=re.escape(message)):
        Condition(text).holds(ROW)


def test_fields_that_no_row_had_are_known():
    condition = Condition("subset == 1 or metadata.leval == 2 or other == 3")
    assert condition.unseen == []
    condition.holds(ROW)
    assert condition.unseen == ["metadata.leval", "other"]
    condition.holds({"other": None})
    assert condition.unseen == ["metadata.leval"]
