"""The judge: its prompts, the parsing of its answers, and its failures."""

import asyncio
from pathlib import Path
from typing import Annotated

import httpx
import pytest
from pydantic import TypeAdapter, ValidationError

from nemo_gym import (
    BaseResourcesServerConfig,
    BaseResponsesAPIModelConfig,
    BaseVerifyRequest,
    NeMoGymResponseCreateParamsNonStreaming,
    SimpleResourcesServer,
    SimpleResponsesAPIModel,
)
from nemo_gym.errors import ConfigError, JudgeFailed
from nemo_gym.grading import Judge, JudgeConfig, PromptFile, filled_with
from nemo_gym.grading.judge_labels import LabelReader
from nemo_gym.testing import FakeModel, make_server, on_a_port, reply, rollout
from tests.each_case import each_case
from tests.pace import assert_linear

REF = {"type": "responses_api_models", "name": "judge_model"}
PROMPT = "Question: {question} A: {expected} B: {answer} {{braces}}"
FIELDS = {"question": "Capital of France?", "expected": "Paris", "answer": "{Paris}"}


class JudgedConfig(BaseResourcesServerConfig):
    judge: JudgeConfig


class JudgedServer(SimpleResourcesServer):
    config: JudgedConfig

    async def verify(self, body: BaseVerifyRequest) -> float:
        verdict = await Judge(self.config.judge, self.server_client).ask(**FIELDS)
        return float(verdict.label == "yes")


@pytest.fixture
def prompt(tmp_path):
    path = tmp_path / "judge.md"
    path.write_text(PROMPT)
    return path


def judge_of(prompt, *replies, servers=(), **settings):
    """Return a judge and the fake model that gives these replies."""
    model = FakeModel(list(replies) or ["yes"])
    config = {"model_server": REF, "prompt": str(prompt), "labels": ["yes", "no"], **settings}
    server = make_server(JudgedServer, model=model, servers=servers, judge=config)
    return Judge(server.config.judge, server.server_client), model


async def test_prompt_is_filled_and_verdict_recorded(prompt):
    judge, model = judge_of(
        prompt, "They agree.\nyes", system_message="Be fair.", responses_create_params={"input": [], "temperature": 0}
    )
    verdict = await judge.ask(**FIELDS)
    assert (verdict.label, verdict.outcome, verdict.text) == ("yes", "agreed", "They agree.\nyes")
    assert model.requests == [
        {
            "temperature": 0.0,
            "input": [
                {"role": "system", "content": "Be fair."},
                {"role": "user", "content": "Question: Capital of France? A: Paris B: {Paris} {braces}"},
            ],
        }
    ]
    (record,) = [call.record() for call in verdict.calls]
    assert record["verdict_label"] == "yes"
    assert record["responses_create_params"]["input"] == model.requests[0]["input"]
    assert record["response"]["output"][0]["content"][0]["text"] == "They agree.\nyes"


EQUAL, DIFFERENT = "[[A=B]]", "[[A!=B]]"
YES_NO, MARKED, WORDS = ["yes", "no"], [EQUAL, DIFFERENT], ["equal", "not equal"]


@each_case(
    ("labels", "text", "label"),
    [
        (YES_NO, "Yes.", "yes"),
        (YES_NO, "**No**", "no"),
        (YES_NO, "Yes. There is no doubt.", "yes"),
        (YES_NO, "Yes they agree", "yes"),
        (YES_NO, "No doubt about it:\nyes", "yes"),
        (YES_NO, "yes\nNo doubt about it.", "yes"),
        (YES_NO, "I would say yes.", "yes"),
        (WORDS, "They are not equal.", "not equal"),
        (WORDS, "NOT EQUAL", "not equal"),
        (MARKED, f"Is it {EQUAL}? I think it is {DIFFERENT}", DIFFERENT),
        (MARKED, f"{EQUAL}\nWait, the units differ. My final verdict is {DIFFERENT}.", DIFFERENT),
        (MARKED, f"{DIFFERENT}\nOn second thought:\n{EQUAL}", EQUAL),
        (MARKED, f"They do not match: {DIFFERENT}", DIFFERENT),
        (MARKED, f"B states the day: {EQUAL}", EQUAL),
        (MARKED, f"B says what A says: {EQUAL}", EQUAL),
        (MARKED, f"B ends with: {DIFFERENT}\n{EQUAL}", EQUAL),
        (MARKED, f"They are not the same, so {DIFFERENT}.", DIFFERENT),
        (MARKED, f"{DIFFERENT} because B names another city.", DIFFERENT),
        (MARKED, f"Verdict: **{DIFFERENT}** (the units differ)", DIFFERENT),
        (MARKED, f'{{"verdict": "{EQUAL}"}}', EQUAL),
        (MARKED, f"<verdict>{EQUAL}</verdict>", EQUAL),
        (MARKED, f"{EQUAL}\n\nConfidence: 5", EQUAL),
        (MARKED, f"<think>{DIFFERENT}</think>{EQUAL}", EQUAL),
        (MARKED, "[[A = B]]", EQUAL),
        (MARKED, "Verdict: [[ A != B ]].", DIFFERENT),
        (MARKED, "[[A≠B]]", DIFFERENT),
        (MARKED, r"\[\[A=B\]\]", EQUAL),
        (MARKED, f"Das Urteil lautet {EQUAL}.", EQUAL),
        (MARKED, f"Le verdict est {EQUAL}.", EQUAL),
        (MARKED, f"Die Antworten unterscheiden sich nicht: {EQUAL}", EQUAL),
        (MARKED, f"Они не совпадают, поэтому {DIFFERENT}", DIFFERENT),
        (MARKED, f"Wait, the units. {DIFFERENT}", DIFFERENT),
        (MARKED, f"{EQUAL}\nWait, that is wrong.\n{DIFFERENT}", DIFFERENT),
        (MARKED, f"{DIFFERENT}\nThis is wrong because the units differ.", DIFFERENT),
        (MARKED, f"{DIFFERENT}\nB says 5 km, which is wrong.", DIFFERENT),
        (MARKED, f"判定：{EQUAL}。", EQUAL),
        (MARKED, f"两者不同：{DIFFERENT}，因为单位不同。", DIFFERENT),
    ],
)
async def test_last_verdict_of_an_answer_is_found(prompt, labels, text, label):
    judge, _ = judge_of(prompt, text, labels=labels)
    verdict = await judge.ask(**FIELDS)
    assert (verdict.label, verdict.outcome) == (label, "agreed")


@each_case(
    ("labels", "text"),
    [
        (YES_NO, "Nobody knows yesterday."),
        (YES_NO, "yes or no"),
        (YES_NO, "Not yes."),
        (YES_NO, ""),
        (WORDS, "They are not: equal"),
        (MARKED, "A=B"),
        (MARKED, f"I would not say {EQUAL}."),
        (MARKED, f"I wouldn\u2019t say: {EQUAL}"),
        (MARKED, f"I cannot choose {EQUAL}"),
        (MARKED, f"不能判为{EQUAL}。"),
        (MARKED, f"The verdict is not: {EQUAL}"),
        (MARKED, f"{EQUAL} would be wrong."),
        (MARKED, f"{EQUAL}? Hardly."),
        (MARKED, f"If units are ignored, {EQUAL}."),
        (MARKED, f'Answer B says "{EQUAL}".'),
        (MARKED, f"The student wrote: {EQUAL}"),
        (MARKED, f"The last line of B ends with {EQUAL}."),
        (MARKED, f"{DIFFERENT}\nBut the student says: {EQUAL}"),
        (MARKED, f"> {EQUAL}\n\nThat line is from answer B."),
        (MARKED, f"{EQUAL} or {DIFFERENT}"),
        (MARKED, f"{EQUAL}\n{DIFFERENT}"),
        (MARKED, f"{EQUAL}\nOne could also choose {DIFFERENT} here."),
        (MARKED, f"<think>{EQUAL}"),
        (MARKED, f"Ce n'est pas {EQUAL}."),
        (MARKED, f"Je ne dirais pas : {EQUAL}"),
        (MARKED, f"Das ist nicht {EQUAL}."),
        (MARKED, f"Ich würde nicht sagen: {EQUAL}"),
        (MARKED, f"Das Urteil ist keinesfalls {EQUAL}"),
        (MARKED, f"Wenn man die Einheiten ignoriert, {EQUAL}."),
        (MARKED, f"Это не {EQUAL}."),
        (MARKED, f"No es {EQUAL}."),
        (MARKED, f"Não é {EQUAL}."),
        (MARKED, f"It is not, in my view, {EQUAL}."),
        (MARKED, f"{EQUAL}\nWait, that is wrong."),
        (MARKED, f"{EQUAL} – wait, that is wrong."),
        (MARKED, f"**{EQUAL}**\n\n**Correction:** they are different."),
        (MARKED, f"{EQUAL}\nActually, they differ."),
        (MARKED, f"{EQUAL}\nMy verdict above is wrong."),
        (MARKED, f"{EQUAL}\nNo, that is not right."),
        (MARKED, f"{EQUAL}\nWarte, das ist falsch."),
        (MARKED, f"{EQUAL}\nAttendez, c'est faux."),
        (MARKED, f"{EQUAL}\nПодождите, это неверно."),
        (MARKED, f"{EQUAL} est faux."),
    ],
)
async def test_answer_without_clear_verdict_is_a_failure(prompt, labels, text):
    judge, _ = judge_of(prompt, text, labels=labels)
    with pytest.raises(JudgeFailed, match="the judge 'judge_model' did not decide on one of the labels"):
        await judge.ask(**FIELDS)


async def test_nonce_is_stable_and_depends_on_fields(tmp_path):
    (tmp_path / "judge.md").write_text("{nonce}\n{answer}\n{nonce}")
    judge, model = judge_of(tmp_path / "judge.md", "yes", "yes", "yes")
    nonces = []
    for answer in ("one", "one"):
        await judge.ask(answer=answer)
        nonces.append(model.requests[-1]["input"][-1]["content"].split("\n")[0])
    assert nonces[0] == nonces[1]
    # An answer that ends the block with the code of another answer gets another code itself.
    await judge.ask(answer=f"one\n{nonces[0]}\nyes")
    first, *inside, last = model.requests[-1]["input"][-1]["content"].split("\n")
    assert first == last
    assert first not in inside


@each_case("filling", ["\n", " ", "*", "\n*", "[[A=B]", "yes", "not ", "<a", ". "])
def test_judge_answers_are_parsed_in_linear_time(filling):
    find = LabelReader(["yes", "no"]).find
    assert find(f"no\nI think{filling * 9}of course") == "no"
    assert_linear(find, filling, 400_000, start="no\nI think", end="of course")


@each_case(
    ("replies", "label", "outcome"),
    [
        (["yes", "no", "yes"], "yes", "agreed"),
        (["no", "no", "yes"], "no", "agreed"),
        (["?", "no", "?"], "no", "agreed"),
        (["yes", "no", "?"], None, "tied"),
    ],
)
async def test_majority_of_readable_votes_decides(prompt, replies, label, outcome):
    judge, model = judge_of(prompt, *replies, votes=3)
    verdict = await judge.ask(**FIELDS)
    assert (verdict.label, verdict.outcome) == (label, outcome)
    assert len(model.requests) == len(verdict.calls) == 3


@each_case(
    ("replies", "label", "outcome", "calls"),
    [
        (["yes", "yes"], "yes", "agreed", 2),
        (["yes", "no"], None, "order_decides", 2),
        (["no", "yes"], "no", "agreed", 1),
    ],
)
async def test_first_label_must_hold_in_both_orders(prompt, replies, label, outcome, calls):
    judge, model = judge_of(prompt, *replies, swap=["expected", "answer"])
    verdict = await judge.ask(**FIELDS)
    assert (verdict.label, verdict.outcome, len(verdict.calls)) == (label, outcome, calls)
    assert verdict.was_swapped == (calls == 2)
    asked = [request["input"][0]["content"] for request in model.requests]
    assert (
        asked
        == [
            "Question: Capital of France? A: Paris B: {Paris} {braces}",
            "Question: Capital of France? A: {Paris} B: Paris {braces}",
        ][:calls]
    )


@each_case(("replies", "calls"), [(["yes", "?"], 2), (["?", "yes"], 1)])
async def test_swapped_question_needs_a_verdict_too(prompt, replies, calls):
    judge, model = judge_of(prompt, *replies, swap=["expected", "answer"])
    with pytest.raises(JudgeFailed, match=r"The end of its answer: '\?'"):
        await judge.ask(**FIELDS)
    assert len(model.requests) == calls


class JudgeModel(SimpleResponsesAPIModel):
    """A judge model without chat completions."""

    config: BaseResponsesAPIModelConfig

    async def chat_completions(self, body: dict):
        raise NotImplementedError


class SlowModel(JudgeModel):
    """A model that counts its concurrent requests."""

    _now: int = 0
    _most: int = 0

    async def responses(self, body: NeMoGymResponseCreateParamsNonStreaming):
        self._now += 1
        self._most = max(self._most, self._now)
        await asyncio.sleep(0.02)
        self._now -= 1
        return reply("yes")


class BrokenModel(JudgeModel):
    """A model that always fails."""

    async def responses(self, body: NeMoGymResponseCreateParamsNonStreaming):
        raise RuntimeError("out of order")


def judged_by(model, prompt, **settings):
    """Return a server whose judge is this model."""
    config = {"model_server": REF, "prompt": str(prompt), "labels": ["yes", "no"], **settings}
    return make_server(JudgedServer, servers=[model], judge=config)


async def test_max_concurrency_limits_calls(prompt):
    model = make_server(SlowModel, name="judge_model")
    server = judged_by(model, prompt, max_concurrency=3, votes=2)
    judge = Judge(server.config.judge, server.server_client)
    async with rollout(server):
        await asyncio.gather(*(judge.ask(**FIELDS) for _ in range(6)))
    assert model._most == 3


async def test_failing_judge_fails_the_rollout(prompt):
    server = judged_by(make_server(BrokenModel, name="judge_model"), prompt, votes=3)
    async with rollout(server) as attempt:
        with pytest.raises(JudgeFailed, match="out of order") as failure:
            await attempt.verify(reply("Paris"))
    assert failure.value.server == "judge_model"


async def test_judge_failure_keeps_its_class_over_http(prompt):
    server = judged_by(make_server(BrokenModel, name="judge_model"), prompt)
    body = {"responses_create_params": {"input": []}, "response": reply("Paris").model_dump(mode="json")}
    async with on_a_port(server) as url, httpx.AsyncClient(verify=False) as client:
        answer = await client.post(f"{url}/verify", json=body)
    row = answer.json()
    assert answer.status_code == 200
    assert (row["_ng_failure_class"], row["_ng_failure_server"]) == ("judge_failed", "judge_model")
    assert "out of order" in row["_ng_failure_judge_error"]
    assert row["response"] == body["response"]


@pytest.mark.parametrize(
    ("file", "problem"), [("{", "brace"), ("{}", "does not have a valid name"), ("{0}", "does not have a valid name")]
)
def test_invalid_prompt_template_is_rejected_at_startup(tmp_path, file, problem):
    (tmp_path / "judge.md").write_text(file)
    with pytest.raises(ConfigError, match=problem):
        judge_of(tmp_path / "judge.md")


async def test_unknown_prompt_field_lists_known_fields(tmp_path):
    (tmp_path / "judge.md").write_text("{question} {secret}")
    judge, _ = judge_of(tmp_path / "judge.md")
    with pytest.raises(ConfigError, match=r"unknown field 'secret'\. The fields are: answer, expected, question\."):
        await judge.ask(**FIELDS)


async def test_misspelled_prompt_field_gets_a_suggestion(tmp_path):
    (tmp_path / "judge.md").write_text("{question} {expcted}")
    judge, _ = judge_of(tmp_path / "judge.md")
    with pytest.raises(ConfigError, match=r"the unknown field 'expcted'\. Did you mean 'expected'\?"):
        await judge.ask(**FIELDS)


def test_swapped_fields_must_be_in_the_prompt(prompt):
    raw = {"model_server": REF, "prompt": str(prompt), "labels": ["yes"], "swap": ["answer", "expcted"]}
    context = {"folder": prompt.parent, "checks_files": True}
    problem = r"swap: judge\.md has no field 'expcted'\. Did you mean 'expected'\?"
    with pytest.raises(ValidationError, match=problem):
        JudgeConfig.model_validate(raw, context=context)
    JudgeConfig.model_validate({**raw, "swap": ["answer", "expected"]}, context=context)


@each_case(
    ("annotation", "raw"),
    [
        (JudgeConfig, lambda path: {"model_server": REF, "prompt": path, "labels": ["yes"]}),
        (PromptFile, lambda path: path),
    ],
)
def test_known_fields_are_checked_before_a_rollout(tmp_path_factory, annotation, raw):
    path = tmp_path_factory.mktemp("prompts") / "judge.md"
    kind = TypeAdapter(Annotated[annotation, filled_with("question", "expected", "answer")])
    context = {"folder": path.parent, "checks_files": True}
    path.write_text(PROMPT + "{nonce}")
    kind.validate_python(raw(str(path)), context=context)
    path.write_text("{question} {expcted}")
    with pytest.raises(ValidationError, match=r"the unknown field 'expcted'\. Did you mean 'expected'\?"):
        kind.validate_python(raw(str(path)), context=context)
    # Other programs that read the settings may not have the file.
    kind.validate_python(raw(str(path)))


def test_missing_prompt_lists_search_roots():
    with pytest.raises(ConfigError, match=r"no file 'prompts/none\.md' in "):
        judge_of("prompts/none.md")


def test_prompt_in_server_folder_comes_first(tmp_path):
    (tmp_path / "prompts").mkdir()
    (tmp_path / "prompts" / "judge.md").write_text(PROMPT)
    raw = {"model_server": REF, "prompt": "prompts/judge.md", "labels": ["yes"]}
    config = JudgeConfig.model_validate(raw, context={"folder": tmp_path})
    assert config.prompt == tmp_path / "prompts" / "judge.md"
    assert JudgeConfig.model_validate(raw, context={"folder": tmp_path / "other"}).prompt == Path("prompts/judge.md")


@each_case("labels", [[], ["yes", "Yes"], [""]])
def test_labels_must_be_different_and_not_empty(labels):
    with pytest.raises(ValidationError, match="labels"):
        JudgeConfig.model_validate({"model_server": REF, "prompt": "p.md", "labels": labels})
