"""Rewards for right and wrong answers, the zoom tool, and rows that cannot be graded."""

import sys
from pathlib import Path

import pytest

from nemo_gym import DataError, InvalidTask
from nemo_gym.jsonl import read_rows
from nemo_gym.testing import make_server, reply, rollout, serving
from resources_servers.visual_reasoning.answers import GRADERS, graded
from resources_servers.visual_reasoning.app import VisualReasoningServer
from resources_servers.visual_reasoning.drawing import opened
from resources_servers.visual_reasoning.oracle import solve
from resources_servers.visual_reasoning.tests.spellings import CASES, right_replies, wrong_replies

FOLDER = Path(__file__).resolve().parents[1]
EXAMPLES = list(read_rows(FOLDER / "data" / "example.jsonl"))
BOARD = next(row for row in EXAMPLES if row["subset"] == "zoom")
PAIR = next(row for row in EXAMPLES if row["subset"] == "compare_shapes")
POINT = {"question": "Point.", "grader": "point", "expected_answer": "120, 80", "box": [110, 70, 130, 90], "reach": 40}


def test_cases_cover_every_grader():
    assert {case.grader for case in CASES} == GRADERS.keys()
    for grader in GRADERS:
        cases = [case for case in CASES if case.grader == grader]
        assert sum(len(right_replies(case)) for case in cases) >= 200, grader
        assert sum(len(wrong_replies(case)) for case in cases) >= 400, grader


def test_right_answers_earn_the_reward():
    wrong = [
        (case.key.question, text)
        for case in CASES
        for text in right_replies(case)
        if graded(text, case.grader, case.key).reward != 1.0
    ]
    assert wrong == []


def test_wrong_answers_earn_nothing():
    wrong = [
        (case.key.question, text)
        for case in CASES
        for text in wrong_replies(case)
        if graded(text, case.grader, case.key).reward != 0.0
    ]
    assert wrong == []


async def rewards(row, texts):
    server = make_server(VisualReasoningServer)
    async with serving(server):
        for text in texts:
            async with rollout(server, **row) as attempt:
                yield (await attempt.verify(reply(text))).reward


async def test_reward_of_point_falls_with_distance():
    texts = ["120, 80", "130, 90", "140, 80", "120, 110", "154, 122", "170, 80", "500, 500"]
    expected = [1.0, 1.0, 0.75, 0.5, 0.0, 0.0, 0.0]
    assert [reward async for reward in rewards(POINT, texts)] == pytest.approx(expected)


async def test_oracle_earns_the_reward_of_examples():
    for row in EXAMPLES:
        assert [reward async for reward in rewards(row, solve(row)[-1:])] == [1.0]


def part_shown(output):
    text, image = output
    return text["text"], opened(image["image_url"])


def difference(one, other):
    """Return the mean difference of two pictures, of 255."""
    apart = [abs(first - second) for first, second in zip(one.tobytes(), other.tobytes(), strict=True)]
    return sum(apart) / len(apart)


def pictures_of(row):
    return [opened(part["image_url"]) for part in row["responses_create_params"]["input"][0]["content"][1:]]


async def test_zoom_enlarges_a_part_of_picture():
    left, top, right, bottom = box = BOARD["box"]
    async with rollout(make_server(VisualReasoningServer), **BOARD) as attempt:
        text, shown = part_shown(await attempt.call("zoom", x=left, y=top, w=right - left, h=bottom - top))
    assert text == f"Pixels {left} to {right} from the left and {top} to {bottom} from the top, 3 times as large."
    assert shown.size == (3 * (right - left), 3 * (bottom - top))
    assert difference(shown.reduce(3), pictures_of(BOARD)[0].crop(box)) < 3


async def test_zoom_shows_either_of_two_pictures():
    async with rollout(make_server(VisualReasoningServer), **PAIR) as attempt:
        shown = [part_shown(await attempt.call("zoom", x=0, y=0, w=320, h=240, picture=at))[1] for at in (1, 2)]
    for picture, whole in zip(pictures_of(PAIR), shown, strict=True):
        assert difference(whole.reduce(2), picture) < 3
    assert difference(*shown) > 3


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        ({"x": 1600, "y": 0}, "x must be from 0 to 1599, found 1600. The picture is 1600 pixels wide and 800 pixels"),
        ({"x": 0, "y": -1}, "y must be from 0 to 799, found -1."),
        ({"x": 1500, "y": 0, "w": 101}, "w must be from 1 to 100 for x = 1500, found 101."),
        ({"x": 0, "y": 0, "h": 0}, "h must be from 1 to 800 for y = 0, found 0."),
        ({"x": 0, "y": 0, "picture": 2}, "picture must be from 1 to 1, found 2."),
        ({"x": 0.5, "y": 0}, "Invalid arguments for zoom: 'x': Input should be a valid integer"),
    ],
)
async def test_bad_coordinates_are_explained_to_the_model(arguments, answer):
    async with rollout(make_server(VisualReasoningServer), **BOARD) as attempt:
        assert answer in await attempt.call("zoom", **{"w": 10, "h": 10, **arguments})


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("https://example.com/a.png", "it is not a data URL"),
        ("data:image/png;base64,AAAA", "its data is not a complete image"),
        ("data:image/png;base64,A", "Invalid base64"),
    ],
)
async def test_unreadable_picture_fails_before_the_model(url, problem):
    image = {"type": "input_image", "image_url": url}
    row = {**BOARD, "responses_create_params": {"input": [{"role": "user", "content": [image]}]}}
    with pytest.raises(InvalidTask, match=f"visual_reasoning: picture 1 of the row cannot be read: {problem}"):
        async with rollout(make_server(VisualReasoningServer), **row):
            pass


async def test_missing_pillow_stops_the_server_with_advice(monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    reason = r"^visual_reasoning: Pillow, which draws the pictures, is not installed\. Install it: pip install"
    with pytest.raises(DataError, match=rf"{reason} 'nemo-gym\[vision]'"):
        async with serving(make_server(VisualReasoningServer)):
            pass


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"box": None}, "the grader 'point' needs 'box' and 'reach'"),
        ({"expected_answer": "1, 1"}, "'1, 1' is not an answer for the grader 'point'"),
        ({"grader": "time", "expected_answer": "25:00"}, "'25:00' is not an answer for the grader 'time'"),
        ({"grader": "number", "expected_answer": "many"}, "'many' is not an answer for the grader 'number'"),
        ({"grader": "moves", "expected_answer": "north"}, "'north' is not an answer for the grader 'moves'"),
    ],
)
async def test_impossible_row_fails_the_rollout(fields, message):
    with pytest.raises(InvalidTask, match=message):
        _ = [reward async for reward in rewards({**POINT, **fields}, ["120, 80"])]


def test_metrics_have_a_line_per_kind():
    tasks = [[{"reward": 0.5, "subset": "point", "extracted_answer": "1, 1"}], [{"reward": 1.0, "subset": "clock"}]]
    metrics = make_server(VisualReasoningServer).compute_metrics(tasks)
    assert metrics["point/pass@1[avg-of-1]/accuracy"] == 50.0
    assert metrics["clock/pass@1[avg-of-1]/no_answer"] == 100.0


async def test_part_that_is_large_keeps_its_size():
    async with rollout(make_server(VisualReasoningServer), **BOARD) as attempt:
        text, shown = part_shown(await attempt.call("zoom", x=0, y=0, w=1600, h=800))
        tiny = part_shown(await attempt.call("zoom", x=0, y=0, w=5, h=5))[1]
    assert (text.endswith("1 times as large."), shown.size, tiny.size) == (True, (1600, 800), (40, 40))
