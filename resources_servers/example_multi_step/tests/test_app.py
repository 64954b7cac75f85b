"""What is handed in, how it is read, and what is told about it."""

from pathlib import Path

import orjson
import pytest

from nemo_gym import DataError
from nemo_gym.jsonl import read_rows
from nemo_gym.testing import call, make_server, reply, rollout
from resources_servers.example_multi_step.app import MultiStepServer, synonym_value

EXAMPLES = list(read_rows(Path(__file__).parents[1] / "data" / "example.jsonl"))
ROW = {"expected_synonym_values": [408, 665, 763], "minefield_label_value": 546}
TOLD = (
    "parsed_synonym_values",
    "accuracy",
    "set_overlap",
    "original_term_minefield_hit",
    "order_instruction_following_failure",
)


@pytest.fixture
def server():
    return make_server(MultiStepServer)


def hand_in(*values):
    return call("extract_synonym_values", synonym_values=list(values))


def hand_in_as(arguments):
    """A hand-in with these very arguments, JSON or not."""
    return hand_in().model_copy(update={"arguments": arguments})


async def graded_reply(server, *items, **fields):
    async with rollout(server, **{**ROW, **fields}) as attempt:
        return await attempt.verify(reply(*items))


def told_of(graded):
    return tuple(getattr(graded, name) for name in TOLD)


@pytest.mark.parametrize(
    ("word", "value"), [("glad", 408), ("a", 97), ("", 0), ("é", 233), ("字", 23383), ("two words", 937)]
)
async def test_a_word_s_value_is_the_sum_of_its_code_points(server, word, value):
    async with rollout(server, **ROW) as attempt:
        assert orjson.loads(await attempt.call("get_synonym_value", synonym=word)) == {"synonym_value": value}


async def test_handing_in_says_nothing_about_the_values(server):
    async with rollout(server, **ROW) as attempt:
        right = await attempt.call("extract_synonym_values", synonym_values=[408, 665, 763])
        wrong = await attempt.call("extract_synonym_values", synonym_values=[])
    assert right == wrong == '{"success":true}'


@pytest.mark.parametrize(
    ("values", "reward", "told"),
    [
        ([408, 665, 763], 1.0, ([408, 665, 763], True, 1.0, False, False)),
        ([665, 408, 763], 0.0, ([665, 408, 763], False, 1.0, False, True)),
        ([408, 665], 0.0, ([408, 665], False, 2 / 3, False, False)),
        ([408, 665, 763, 763], 0.0, ([408, 665, 763, 763], False, 1.0, False, False)),
        ([546, 408, 665, 763], 0.0, ([546, 408, 665, 763], False, 1.0, True, False)),
        ([546], 0.0, ([546], False, 0.0, True, False)),
        ([1, 2, 3], 0.0, ([1, 2, 3], False, 0.0, False, False)),
        ([], 0.0, ([], False, 0.0, False, False)),
    ],
)
async def test_only_the_expected_values_in_their_order_are_rewarded(server, values, reward, told):
    graded = await graded_reply(server, hand_in(*values), "Done.")
    assert (graded.reward, told_of(graded)) == (reward, told)


@pytest.mark.parametrize(
    ("calls", "reward"),
    [
        ([hand_in(1), hand_in(408, 665, 763)], 1.0),
        ([hand_in(408, 665, 763), hand_in(1)], 0.0),
        ([hand_in(408, 665, 763), hand_in_as("{")], 0.0),
        ([hand_in(408, 665, 763), call("get_synonym_value", synonym="glad")], 1.0),
    ],
)
async def test_the_last_hand_in_counts(server, calls, reward):
    assert (await graded_reply(server, *calls)).reward == reward


@pytest.mark.parametrize(
    "items",
    [
        pytest.param([], id="nothing"),
        pytest.param(["408, 665, 763"], id="only said"),
        pytest.param([call("get_synonym_value", synonym="glad")], id="only looked up"),
        pytest.param([call("extract", synonym_values=[408, 665, 763])], id="another tool"),
        pytest.param([hand_in_as("")], id="no arguments"),
        pytest.param([hand_in_as('{"synonym_values": [408, 665, 763]')], id="broken JSON"),
        pytest.param([hand_in_as("[408, 665, 763]")], id="a bare list"),
        pytest.param([hand_in_as('"408, 665, 763"')], id="a bare text"),
        pytest.param([hand_in_as("{}")], id="an empty object"),
        pytest.param([hand_in_as('{"values": [408, 665, 763]}')], id="another argument"),
        pytest.param([hand_in_as('{"synonym_values": null}')], id="null"),
        pytest.param([hand_in_as('{"synonym_values": 408}')], id="a number"),
        pytest.param([hand_in_as('{"synonym_values": ["408", "665", "763"]}')], id="texts"),
        pytest.param([hand_in_as('{"synonym_values": [408, 665, 763, null]}')], id="a null among them"),
        pytest.param([hand_in_as('{"synonym_values": [408, 665, 763.5]}')], id="a fraction among them"),
        pytest.param([hand_in_as('{"synonym_values": [true, 665, 763]}')], id="a truth among them"),
        pytest.param([hand_in_as('{"synonym_values": [[408], 665, 763]}')], id="a list among them"),
        pytest.param([hand_in_as('{"synonym_values": [1e400, 665, 763]}')], id="more than a float holds"),
        pytest.param([hand_in_as(f'{{"synonym_values": [{10**30}]}}')], id="more than 64 bits hold"),
        pytest.param([hand_in_as("[" * 100_000)], id="without an end"),
    ],
)
async def test_what_cannot_be_read_earns_nothing(server, items):
    graded = await graded_reply(server, *items)
    assert (graded.reward, told_of(graded)) == (0.0, ([], False, 0.0, False, False))


async def test_a_whole_number_may_be_written_with_a_point(server):
    graded = await graded_reply(server, hand_in_as('{"synonym_values": [408.0, 665, 7.63e2]}'))
    assert (graded.reward, graded.parsed_synonym_values) == (1.0, [408, 665, 763])


@pytest.mark.parametrize(
    ("expected", "handed_in", "reward", "is_out_of_order"),
    [
        ([5, 5], [5, 5], 1.0, False),
        ([5, 5], [5], 0.0, False),
        ([5, 6, 5], [6, 5, 5], 0.0, True),
        ([], [], 1.0, False),
        ([], [1], 0.0, False),
    ],
)
async def test_values_that_occur_twice_and_rows_without_any(server, expected, handed_in, reward, is_out_of_order):
    graded = await graded_reply(server, hand_in(*handed_in), expected_synonym_values=expected)
    assert graded.reward == reward
    assert graded.order_instruction_following_failure is is_out_of_order


async def test_where_no_values_are_expected_they_still_have_to_be_handed_in(server):
    graded = await graded_reply(server, "There are none.", expected_synonym_values=[])
    assert graded.reward == 0.0
    assert graded.order_instruction_following_failure is False


async def test_a_synonym_with_the_word_s_own_value_is_no_trap(server):
    graded = await graded_reply(server, hand_in(408, 546), expected_synonym_values=[408, 546])
    assert (graded.reward, graded.original_term_minefield_hit) == (1.0, False)


async def test_all_fields_of_a_row_come_back(server):
    graded = await graded_reply(server, hand_in(1), id=7, expected_synonyms=["glad"], note={"kept": True})
    assert (graded.id, graded.expected_synonyms, graded.note) == (7, ["glad"], {"kept": True})


@pytest.mark.parametrize("missing", ROW)
async def test_a_row_without_its_ground_truth_is_refused(server, missing):
    row = {name: value for name, value in ROW.items() if name != missing}
    async with rollout(server, **row) as attempt:
        with pytest.raises(DataError, match=missing):
            await attempt.verify(reply("Done."))


@pytest.mark.parametrize("row", EXAMPLES)
async def test_an_example_is_solved_by_looking_each_synonym_up(server, row):
    async with rollout(server, **row) as attempt:
        answers = [await attempt.call("get_synonym_value", synonym=word) for word in row["expected_synonyms"]]
        values = [orjson.loads(answer)["synonym_value"] for answer in answers]
        await attempt.call("extract_synonym_values", synonym_values=values)
        graded = await attempt.verify()
    assert graded.reward == 1.0
    assert row["minefield_label_value"] == synonym_value(row["minefield_label"])
    assert row["minefield_label"] in row["responses_create_params"]["input"][1]["content"]
