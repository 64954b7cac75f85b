"""Rewards of reward_model_preference, with prepared scores and with reward models that fail."""

import json
import math
from pathlib import Path

import pytest
from fastapi import FastAPI, Response

from nemo_gym import DataError, InvalidTask, JudgeFailed, SimpleResponsesAPIModel
from nemo_gym.jsonl import read_rows
from nemo_gym.testing import call, connected_server, heard, make_server, reply, rollout
from resources_servers.reward_model_preference.app import RewardModelPreferenceServer
from resources_servers.reward_model_preference.prepare import prepare
from resources_servers.reward_model_preference.shaping import ShapingConfig, count_words, shaped

FOLDER = Path(__file__).resolve().parents[1]
EXAMPLES = list(read_rows(FOLDER / "data" / "example.jsonl"))
ROW = {"responses_create_params": {"input": [{"role": "user", "content": "Say hello."}]}}
RAW = {"normalise": "none", "clip": [-100.0, 100.0], "length_penalty": 0.0}


class StubModel(SimpleResponsesAPIModel):
    """A reward model that returns a prepared body, and records the requests."""

    @classmethod
    def answering(cls, body: str | bytes, status: int = 200):
        server = connected_server(cls, {"name": "reward_model"})
        # Pydantic models do not allow other attributes.
        server.__dict__.update(body=body, status=status, requests=[])
        return server

    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()
        app.post("/score")(self.score)
        return app

    async def score(self, body: dict) -> Response:
        self.requests.append(body)
        return Response(self.body, self.status, media_type="application/json")

    async def responses(self, body: dict) -> object:
        raise NotImplementedError

    async def chat_completions(self, body: dict) -> object:
        raise NotImplementedError


def scoring(*scores):
    return StubModel.answering(json.dumps({"scores": scores, "model": "rm"}))


async def grade(answer, model, row=ROW, **settings):
    server = make_server(RewardModelPreferenceServer, servers=[model], **settings)
    async with rollout(server, **row) as attempt:
        return await attempt.verify(answer if not isinstance(answer, str) else reply(answer))


# What is scored


async def test_prompt_and_final_answer_are_sent():
    model = scoring(1.0)
    params = {"instructions": "Be kind.", "input": "Say hello."}
    said = reply("<think>Which one?</think>In English?", heard("Yes."), call("look"), "<think>Fine.</think>\n Hello. ")
    await grade(said, model, {"responses_create_params": params})
    prompt = [("system", "Be kind."), ("user", "Say hello."), ("assistant", "In English?"), ("user", "Yes.")]
    messages = [{"role": role, "content": text} for role, text in prompt]
    assert model.requests == [{"inputs": [{"prompt": messages, "answer": "Hello."}]}]


async def test_image_in_the_prompt_fails_the_row():
    image = {"type": "input_image", "image_url": "data:image/png;base64,AA", "detail": "auto"}
    row = {"responses_create_params": {"input": [{"role": "user", "content": [image]}]}}
    with pytest.raises(InvalidTask, match="reads text only, but a message contains input_image"):
        await grade("Hello.", scoring(1.0), row)


# From the score to the reward


@pytest.mark.parametrize(
    ("settings", "score", "words", "expected"),
    [
        ({}, 1.5, 9, 1.5),
        ({"normalise": "standard", "mean": 1.0, "std": 2.0}, 4.0, 9, 1.5),
        ({"normalise": "sigmoid", "mean": 1.0, "std": 2.0}, 1.0, 9, 0.5),
        ({"normalise": "sigmoid"}, 1.0, 9, 0.7310586),
        ({"normalise": "sigmoid"}, 1e6, 9, 1.0),
        ({"normalise": "sigmoid"}, -1e6, 9, 0.0),
        ({"length_penalty": 0.5, "length_free": 10}, 1.0, 10, 1.0),
        ({"length_penalty": 0.5, "length_free": 10}, 1.0, 13, -0.5),
        ({"clip": (-1.0, 1.0)}, 7.0, 9, 1.0),
        ({"clip": (-1.0, 1.0)}, -7.0, 9, -1.0),
        ({"clip": (-1.0, 1.0), "length_penalty": 1.0, "length_free": 0}, 7.0, 6, 1.0),
    ],
)
def test_reward_is_normalised_shortened_and_clipped(settings, score, words, expected):
    config = ShapingConfig(**{"clip": (-10.0, 1e9), **settings})
    grade = shaped(score, words, config)
    assert grade.reward == pytest.approx(expected)
    assert grade.reward == pytest.approx(grade.normalised + grade.length + grade.clipping)


async def test_parts_of_the_reward_are_in_the_result():
    settings = {"normalise": "standard", "mean": 1.0, "std": 2.0, "clip": [-1.0, 1.0], "length_free": 2}
    graded = await grade("one two three", scoring(5.0), **settings, length_penalty=0.25)
    assert (graded.reward, graded.raw_score, graded.normalised_score, graded.answer_words) == (1.0, 5.0, 2.0, 3)
    assert (graded.is_clipped, graded.is_unfinished) == (1.0, 0.0)
    assert graded.reward_components == {"preference": 2.0, "length": -0.25, "clipping": -0.75}
    assert graded.why == "the sum of preference 2, length -0.25, clipping -0.75"


def test_words_cannot_be_hidden():
    joined = ["one_two_three", "one-two-three", "one\u200btwo three", "one/two/three", "**one** `two` three"]
    assert [count_words(text) for text in joined] == [3] * len(joined)
    assert count_words("一二三") == 3
    assert count_words("a" * 100) == 5
    assert [count_words(each) for each in ('"Oh, no!" (No...)', "a - b", "😀", "→ ∑", "Hi! 😀😀😀😀😀")] == [
        3,
        3,
        1,
        2,
        2,
    ]
    assert [count_words(each * 100) for each in ("😀", "!", "_", "\u200b", "a😀😀😀😀😀", "__ ")] == [
        5,
        5,
        5,
        5,
        200,
        100,
    ]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"clip": [1.0, -1.0]}, "lowest reward 1 must be less than the highest, -1"),
        ({"clip": None}, "set clip or unfinished_reward"),
        ({"std": 0.0}, "std"),
        ({"mean": math.nan}, "mean"),
        ({"length_penalty": -1.0}, "length_penalty"),
    ],
)
def test_invalid_settings_are_explained(settings, message):
    with pytest.raises(DataError, match=message):
        make_server(RewardModelPreferenceServer, **settings)


# Answers that are not sent


async def test_empty_answer_earns_the_lowest_reward():
    for text in ("", " \n", "<think>Hello.</think>", "<think>Hello."):
        model = scoring(9.0)
        graded = await grade(text, model)
        assert (graded.reward, graded.raw_score, graded.is_unfinished, model.requests) == (-2.0, None, 1.0, [])
    assert (await grade("", scoring(9.0), unfinished_reward=-0.5)).reward == -0.5
    assert (await grade("", scoring(9.0), clip=None, unfinished_reward=-7.0)).reward == -7.0


async def test_truncated_answer_earns_the_lowest_reward():
    model = scoring(9.0)
    cut = reply("Hello, I am").model_copy(update={"status": "incomplete"})
    reason = {"incomplete_details": {"reason": "max_output_tokens"}}
    for answer in (cut, type(cut).model_validate({**reply("Hello, I am").model_dump(), **reason})):
        assert (await grade(answer, model)).reward == -2.0
    assert model.requests == []


# Failures are never a number

BAD_REPLIES = (
    ('{"scores": [NaN]}', 200),
    ('{"scores": [Infinity]}', 200),
    ('{"scores": [1e999]}', 200),
    ('{"scores": [null]}', 200),
    ('{"scores": ["high"]}', 200),
    ('{"scores": ["NaN"]}', 200),
    ('{"scores": []}', 200),
    ('{"scores": [1.0, 2.0]}', 200),
    ('{"score": 1.0}', 200),
    ("[1.0]", 200),
    ("1.0", 200),
    ("", 200),
    ('{"detail": "busy", "scores": [1.0]}', 503),
    ('{"detail": "bad", "scores": [1.0]}', 400),
    ('{"scores": [1.0]}', 500),
)


async def test_bad_reply_of_the_reward_model_is_judge_failed():
    for body, status in BAD_REPLIES:
        with pytest.raises(JudgeFailed, match="reward_model"):
            await grade("Hello.", StubModel.answering(body, status))


async def test_missing_reward_model_is_judge_failed():
    with pytest.raises(JudgeFailed, match="reward_model"):
        await grade("Hello.", connected_server(StubModel, {"name": "another"}))


# Reference answers


async def test_references_are_compared_if_asked():
    row = {**ROW, "chosen": "Hello!", "rejected": "Go away."}
    model = scoring(2.0, 3.0, 1.0)
    graded = await grade("Hi.", model, row, compare_references=True)
    assert [each["answer"] for each in model.requests[0]["inputs"]] == ["Hi.", "Hello!", "Go away."]
    compared = (graded.chosen_score, graded.rejected_score, graded.prefers_chosen, graded.beats_rejected)
    assert compared == (3.0, 1.0, 1.0, 1.0)
    tied = await grade("Hi.", scoring(1.0, 1.0, 1.0), row, compare_references=True)
    assert (tied.reward, tied.prefers_chosen, tied.beats_rejected) == (1.0, 0.5, 0.5)
    assert not hasattr(await grade("Hi.", scoring(2.0), row), "beats_rejected")


async def test_row_without_references_is_graded():
    graded = await grade("Hi.", scoring(1.0), compare_references=True)
    assert not hasattr(graded, "prefers_chosen")


# Metrics and rows


async def test_metrics_have_means_per_subset():
    first, second = EXAMPLES[:2]
    graded = [await grade(text, scoring(1.5), row) for row in (first, second) for text in (row["chosen"], "")]
    metrics = make_server(RewardModelPreferenceServer).compute_metrics(
        [[each.model_dump() for each in graded[:2]], [graded[2].model_dump()]]
    )
    assert metrics == {
        f"mean/reward/{first['subset']}": -0.25,
        f"mean/raw_score/{first['subset']}": 1.5,
        f"mean/reward/{second['subset']}": 1.5,
        f"mean/raw_score/{second['subset']}": 1.5,
    }


def test_made_rows_differ_and_have_both_answers(tmp_path):
    rows = list(read_rows(prepare(tmp_path / "rows.jsonl", 500, split="train")))
    assert len({row["responses_create_params"]["input"][0]["content"] for row in rows}) == 500
    assert all(row["chosen"] != row["rejected"] for row in rows)
