"""How submitted values are parsed and graded."""

from pathlib import Path

import orjson
import pytest

from nemo_gym import DataError
from nemo_gym.jsonl import read_rows
from nemo_gym.testing import call, make_server, reply, rollout
from resources_servers.example_multi_step.app import MultiStepServer, synonym_value

EXAMPLES = list(read_rows(Path(__file__).parents[1] / "data" / "example.jsonl"))
ROW = {"expected_synonym_values": [408, 665, 763], "minefield_label_value": 546}
DETAILS = (
    "parsed_synonym_values",
    "accuracy",
    "set_overlap",
    "original_term_minefield_hit",
    "order_instruction_following_failure",
)


@pytest.fixture
def server():
    return make_server(MultiStepServer)


def submit(*values):
    return call("extract_synonym_values", synonym_values=list(values))


def submit_raw(arguments):
    """Return a submission with exactly these arguments, JSON or not."""
    return submit().model_copy(update={"arguments": arguments})


async def graded_reply(server, *items, **fields):
    async with rollout(server, **{**ROW, **fields}) as attempt:
        return await attempt.verify(reply(*items))


def details_of(graded):
    return tuple(getattr(graded, name) for name in DETAILS)


@pytest.mark.parametrize(
    ("word", "value"), [("glad", 408), ("a", 97), ("", 0), ("é", 233), ("字", 23383), ("two words", 937)]
)
async def test_word_value_is_its_code_point_sum(server, word, value):
    async with rollout(server, **ROW) as attempt:
        assert orjson.loads(await attempt.call("get_synonym_value", synonym=word)) == {"synonym_value": value}


async def test_submission_reply_reveals_nothing(server):
    async with rollout(server, **ROW) as attempt:
        right = await attempt.call("extract_synonym_values", synonym_values=[408, 665, 763])
        wrong = await attempt.call("extract_synonym_values", synonym_values=[])
    assert right == wrong == '{"success":true}'


async def test_only_expected_values_in_order_are_rewarded(server):
    cases = [
        ([408, 665, 763], 1.0, ([408, 665, 763], True, 1.0, False, False)),
        ([665, 408, 763], 0.0, ([665, 408, 763], False, 1.0, False, True)),
        ([408, 665], 0.0, ([408, 665], False, 2 / 3, False, False)),
        ([408, 665, 763, 763], 0.0, ([408, 665, 763, 763], False, 1.0, False, False)),
        ([546, 408, 665, 763], 0.0, ([546, 408, 665, 763], False, 1.0, True, False)),
        ([546], 0.0, ([546], False, 0.0, True, False)),
        ([1, 2, 3], 0.0, ([1, 2, 3], False, 0.0, False, False)),
        ([], 0.0, ([], False, 0.0, False, False)),
    ]
    wrong = []
    for values, reward, details in cases:
        graded = await graded_reply(server, submit(*values), "Done.")
        if (found := (graded.reward, details_of(graded))) != (reward, details):
            wrong.append((values, reward, details, found))
    assert wrong == []


async def test_last_submission_counts(server):
    cases = [
        ([submit(1), submit(408, 665, 763)], 1.0),
        ([submit(408, 665, 763), submit(1)], 0.0),
        ([submit(408, 665, 763), submit_raw("{")], 0.0),
        ([submit(408, 665, 763), call("get_synonym_value", synonym="glad")], 1.0),
    ]
    wrong = [
        (calls, reward, found)
        for calls, reward in cases
        if (found := (await graded_reply(server, *calls)).reward) != reward
    ]
    assert wrong == []


@pytest.mark.parametrize(
    "items",
    [
        [],
        ["408, 665, 763"],
        [call("get_synonym_value", synonym="glad")],
        [call("extract", synonym_values=[408, 665, 763])],
        [submit_raw("")],
        pytest.param([submit_raw('{"synonym_values": [408, 665, 763]')], id="broken JSON"),
        [submit_raw("[408, 665, 763]")],
        [submit_raw('"408, 665, 763"')],
        [submit_raw("{}")],
        [submit_raw('{"values": [408, 665, 763]}')],
        [submit_raw('{"synonym_values": null}')],
        [submit_raw('{"synonym_values": 408}')],
        [submit_raw('{"synonym_values": ["408", "665", "763"]}')],
        [submit_raw('{"synonym_values": [408, 665, 763, null]}')],
        [submit_raw('{"synonym_values": [408, 665, 763.5]}')],
        [submit_raw('{"synonym_values": [true, 665, 763]}')],
        [submit_raw('{"synonym_values": [[408], 665, 763]}')],
        [submit_raw('{"synonym_values": [1e400, 665, 763]}')],
        [submit_raw(f'{{"synonym_values": [{10**30}]}}')],
        [submit_raw("[" * 100_000)],
    ],
)
async def test_unreadable_submission_earns_nothing(server, items):
    graded = await graded_reply(server, *items)
    assert (graded.reward, details_of(graded)) == (0.0, ([], False, 0.0, False, False))


async def test_integer_may_be_written_as_a_float(server):
    graded = await graded_reply(server, submit_raw('{"synonym_values": [408.0, 665, 7.63e2]}'))
    assert (graded.reward, graded.parsed_synonym_values) == (1.0, [408, 665, 763])


async def test_repeated_and_empty_values(server):
    cases = [
        ([5, 5], [5, 5], 1.0, False),
        ([5, 5], [5], 0.0, False),
        ([5, 6, 5], [6, 5, 5], 0.0, True),
        ([], [], 1.0, False),
        ([], [1], 0.0, False),
    ]
    wrong = []
    for expected, submitted, reward, is_out_of_order in cases:
        graded = await graded_reply(server, submit(*submitted), expected_synonym_values=expected)
        found = (graded.reward, graded.order_instruction_following_failure is is_out_of_order)
        if found != (reward, True):
            wrong.append((expected, submitted, reward, is_out_of_order, found))
    assert wrong == []


async def test_empty_list_must_still_be_submitted(server):
    graded = await graded_reply(server, "There are none.", expected_synonym_values=[])
    assert graded.reward == 0.0
    assert graded.order_instruction_following_failure is False


async def test_synonym_with_the_words_value_is_allowed(server):
    graded = await graded_reply(server, submit(408, 546), expected_synonym_values=[408, 546])
    assert (graded.reward, graded.original_term_minefield_hit) == (1.0, False)


async def test_graded_row_keeps_all_fields(server):
    graded = await graded_reply(server, submit(1), id=7, expected_synonyms=["glad"], note={"kept": True})
    assert (graded.id, graded.expected_synonyms, graded.note) == (7, ["glad"], {"kept": True})


@pytest.mark.parametrize("missing", ROW)
async def test_row_without_ground_truth_is_rejected(server, missing):
    row = {name: value for name, value in ROW.items() if name != missing}
    async with rollout(server, **row) as attempt:
        with pytest.raises(DataError, match=missing):
            await attempt.verify(reply("Done."))


@pytest.mark.parametrize("row", EXAMPLES)
async def test_looking_up_each_synonym_solves_an_example(server, row):
    async with rollout(server, **row) as attempt:
        answers = [await attempt.call("get_synonym_value", synonym=word) for word in row["expected_synonyms"]]
        values = [orjson.loads(answer)["synonym_value"] for answer in answers]
        await attempt.call("extract_synonym_values", synonym_values=values)
        graded = await attempt.verify()
    assert graded.reward == 1.0
    assert row["minefield_label_value"] == synonym_value(row["minefield_label"])
    assert row["minefield_label"] in row["responses_create_params"]["input"][1]["content"]
