"""The filter of the pages, from the text of an address."""

import pytest

from nemo_gym.errors import UsageError
from nemo_gym.rollouts.outcome import Outcome
from nemo_gym.viewer.filters import Filter


def test_address_becomes_filter() -> None:
    found = Filter.parse(
        "agent=a&agent=b&task=3&outcome=failed&reward_min=.5&star=true&field=metadata.x=1=2&words=a+b"
    )
    assert found == Filter(
        agent=("a", "b"), task=(3,), outcome=(Outcome.FAILED,), reward_min=0.5, star=True,
        field=(("metadata.x", "1=2"),), words="a b",
    )  # fmt: skip
    assert Filter.parse("?agent=&words=").is_empty


def test_bad_values_are_named() -> None:
    wrong = {
        "task=x": "task.0: it must be a valid integer, but is 'x'.",
        "task=1&task=-1": "task.1: it must be greater than or equal to 0, but is '-1'.",
        "reward_min=nan": "reward_min: it must be a finite number, but is 'nan'.",
        "star=maybe": "star: it must be a valid boolean, but is 'maybe'.",
        "outcome=lost": "outcome.0: it must be 'scored', 'failed' or 'unresolved', but is 'lost'.",
        "field=subset": "field.0: it must be name=value, such as metadata.subset=algebra.",
        "&".join(["task=1"] * 501): "task: Tuple should have at most 500 items",
        f"words={'x' * 1001}": "words: String should have at most 1000 characters",
        "outcom=failed": "'outcom' is not a filter. Did you mean 'outcome'? Filters: agent, task, repeat, outcome,",
    }
    for text, message in wrong.items():
        with pytest.raises(UsageError) as problem:
            Filter.parse(text)
        assert str(problem.value).startswith(message)


def test_other_parameters_are_ignored() -> None:
    assert Filter.of([("run", "x"), ("sort", "reward"), ("tool", "search")]) == Filter(tool=("search",))
