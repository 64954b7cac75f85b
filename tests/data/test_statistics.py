"""Statistics of a dataset's rows."""

from __future__ import annotations

from nemo_gym.data.statistics import dataset_statistics
from tests.each_case import each_case

NOTHING = {
    "Total # non-null values": 0, "Average": 0.0, "Min": 0.0, "Max": 0.0, "Standard deviation": 0.0,
}  # fmt: skip


def row(text: str = "hi", tools: int = 0, **fields):
    params = {"input": [{"role": "system", "content": "s"}, {"role": "user", "content": text}]}
    if tools:
        params["tools"] = [{"type": "function", "name": str(number), "parameters": {}} for number in range(tools)]
    return {"responses_create_params": params, **fields}


def test_rows_are_counted():
    assert dataset_statistics([])["Number of examples"] == 0
    assert dataset_statistics(row() for _ in range(7))["Number of examples"] == 7


def test_spread_of_no_values_is_zero():
    found = dataset_statistics([row()])
    assert found["Number of tools"] == NOTHING
    assert found["Temperature"] == NOTHING


def test_numbers_have_sample_statistics():
    found = dataset_statistics([row(level=1), row(level=2), row(level=4), row()])
    assert found["level"] == {
        "Total # non-null values": 3, "Average": 2.33, "Min": 1, "Max": 4, "Standard deviation": 1.53,
    }  # fmt: skip


@each_case(("value", "rounded"), [(0.12345, 0.123), (1.23456, 1.23), (-0.98765, -0.988), (-12.345, -12.35)])
def test_numbers_below_one_have_three_decimals(value, rounded):
    assert dataset_statistics([row(x=value)])["x"]["Average"] == rounded


def test_tools_turns_and_temperature_are_counted():
    warm = row("one two three", tools=2)
    warm["responses_create_params"]["temperature"] = 0.5
    text = {"responses_create_params": {"input": "a text"}}
    found = dataset_statistics([warm, text, {"question": "no input yet"}])
    assert (found["Number of tools"]["Total # non-null values"], found["Number of tools"]["Average"]) == (1, 2)
    assert (found["Number of turns"]["Total # non-null values"], found["Number of turns"]["Average"]) == (2, 1)
    assert (found["Temperature"]["Total # non-null values"], found["Temperature"]["Average"]) == (1, 0.5)


def test_words_are_counted_in_the_json_request():
    found = dataset_statistics([{"responses_create_params": {"input": "a text"}}])
    words = found["Json-dumped number of words (proxy for token count)"]["Average"]
    assert words == len(['{"input":', '"a', 'text"}'])


def test_distinct_texts_are_counted():
    found = dataset_statistics([row(answer="a"), row(answer="b"), row(answer="a"), row()])
    assert found["answer"] == {"unique_count": 2, "total_count": 3}


def test_booleans_lists_and_objects_are_left_out():
    assert set(dataset_statistics([row(a=True, b=[1], c={"d": 1}, e=None)])) == set(dataset_statistics([row()]))
