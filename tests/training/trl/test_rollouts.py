"""TRL's `rollout_func` with real servers: order, masks, rewards and sampling."""

from __future__ import annotations

import logging
from types import SimpleNamespace

import pytest

from nemo_gym.errors import DataError, UsageError
from nemo_gym.training import trl
from nemo_gym.training.trl.prompts import prompt_of, row_of

pytestmark = pytest.mark.slow

SHOUTING = """
import asyncio

from nemo_gym import BaseVerifyRequest, BaseVerifyResponse, SimpleResourcesServer, tool


class VerifyRequest(BaseVerifyRequest):
    pause_s: float = 0.0
    fails: bool = False
    masks: bool = False
    forks: bool = False


class Shouting(SimpleResourcesServer):
    @tool
    async def shout(self, word: str) -> str:
        return word.upper()

    async def verify(self, body: VerifyRequest) -> BaseVerifyResponse:
        await asyncio.sleep(body.pause_s)
        if body.fails:
            raise RuntimeError("the grading broke")
        reward = float("!" in body.response.output_text)
        if body.forks:
            other = body.response.output[-1].model_copy(update={"prompt_token_ids": [1, 2]})
            response = body.response.model_copy(update={"output": [*body.response.output, other]})
            params = body.responses_create_params
            return BaseVerifyResponse(responses_create_params=params, response=response, reward=reward)
        return BaseVerifyResponse.grade(body, reward=reward, mask_sample=body.masks)
"""
AGENT = """
shouting_agent:
  responses_api_agents:
    simple_agent:
      entrypoint: app.py
      resources_server: {type: resources_servers, name: shouting}
      model_server: {type: responses_api_models, name: policy_model}
"""
VLLM = "responses_api_models/vllm_model/configs/vllm_model_for_training.yaml"
END = 7


class Trainer:
    """The attributes of `GRPOTrainer` that a `rollout_func` reads."""

    temperature = 0.7
    top_p = 0.9
    max_completion_length = 5
    processing_class = SimpleNamespace(eos_token_id=END)


@pytest.fixture(scope="module")
def run(shared_workplace, endpoint):
    shared_workplace.environment("shouting", SHOUTING)
    config = shared_workplace.folder / "resources_servers/shouting/configs/shouting.yaml"
    config.write_text(config.read_text() + AGENT)
    command = shared_workplace.start_servers(
        f"+config_paths=[{config},{VLLM}]", f"+policy_base_url={endpoint}/v1", "+policy_api_key=none",
        "+policy_model_name=echo",
    )  # fmt: skip
    yield command.head
    command.end()


def prompt(text, **fields):
    row = {"responses_create_params": {"input": [{"role": "user", "content": text}]}, **fields}
    return prompt_of(row, 0)


def text_of(tokens):
    return "".join(map(chr, tokens))


def test_fields_are_in_the_order_of_the_prompts(run):
    texts = ["slow!", "slow!", "hm", "ho!"]
    pauses = {"slow!": 0.5}
    with trl.Rollouts(run) as rollouts:
        fields = rollouts([prompt(text, pause_s=pauses.get(text, 0.0)) for text in texts], Trainer())
    assert list(map(text_of, fields["prompt_ids"])) == texts
    assert list(map(text_of, fields["completion_ids"])) == [f"echo: {text}" for text in texts]
    assert fields["env_reward"] == [1.0, 1.0, 0.0, 1.0]
    assert fields["env_mask"] == [[1] * len(ids) for ids in fields["completion_ids"]]
    assert fields["logprobs"] == [[-0.5] * len(ids) for ids in fields["completion_ids"]]
    assert rollouts.reward(env_reward=fields["env_reward"], prompts=[]) == fields["env_reward"]


def test_rollouts_without_reward_are_masked(run, caplog):
    prompts = [prompt("a!", fails=True), prompt("b!", masks=True), prompt("c!", forks=True), prompt("d!")]
    with caplog.at_level(logging.WARNING), trl.Rollouts(run, attempts=1) as rollouts:
        fields = rollouts(prompts, Trainer())
    assert fields["env_reward"] == [None, None, None, 1.0]
    assert [set(mask) for mask in fields["env_mask"]] == [{0}, {0}, {0}, {1}]
    assert (fields["prompt_ids"][0], fields["completion_ids"][0], fields["logprobs"][0]) == ([END], [END], [0.0])
    for ids, mask, logprobs in zip(fields["completion_ids"], fields["env_mask"], fields["logprobs"], strict=True):
        assert len(ids) == len(mask) == len(logprobs) > 0
    assert "3 of 4 rollouts cannot be used for training" in caplog.text


def test_sampling_is_the_trainers(run, seen):
    with trl.Rollouts(run, sampling={"top_p": 0.5}) as rollouts:
        rollouts([prompt("hm")], Trainer())
    asked = next(each["body"] for each in seen() if "messages" in each["body"])
    assert (asked["temperature"], asked["top_p"], asked["max_tokens"]) == (0.7, 0.5, 5)


def test_failure_can_end_the_training(run):
    with trl.Rollouts(run, attempts=1, failed_rollouts="raise") as rollouts, pytest.raises(Exception, match="broke"):
        rollouts([prompt("a!", fails=True)], Trainer())


def test_environment_of_a_running_run(run):
    with trl.environment(run) as factory:
        shouting = factory()
        shouting.reset()
        assert shouting.shout(word="ho") == "HO"
        assert factory.reward(["ho!"], [shouting]) == [1.0]
    with pytest.raises(UsageError, match=r"no resources server is named 'shoutin'.*shouting"):
        trl.environment(run, server="shoutin")


def test_dropped_rollouts_are_rejected():
    with pytest.raises(UsageError, match="one rollout for each prompt"):
        trl.Rollouts(failed_rollouts="drop")


def test_prompt_without_row_is_rejected(run):
    with trl.Rollouts(run) as rollouts, pytest.raises(DataError, match=r"nemo_gym.training.trl.dataset\(rows\)"):
        rollouts([[{"role": "user", "content": "hm"}]], Trainer())


def test_prompt_has_the_messages_of_the_row():
    parts = [{"type": "input_text", "text": "one"}, {"type": "input_text", "text": "two"}]
    row = {"responses_create_params": {"instructions": "Be brief.", "input": [{"role": "user", "content": parts}]}}
    system, user = made = prompt_of(row, 0)
    assert (system["role"], system["content"]) == ("system", "Be brief.")
    assert user == {"role": "user", "content": "one\ntwo"}
    assert row_of(made) == row


def test_row_without_input_has_an_empty_prompt():
    (message,) = prompt_of({"responses_create_params": {"input": []}}, 0)
    assert (message["role"], message["content"]) == ("user", "")


def test_invalid_row_is_reported_with_its_number():
    with pytest.raises(DataError, match=r"^rows\[3\]: "):
        prompt_of({"responses_create_params": {"input": 5}}, 3)
    with pytest.raises(DataError, match=r"^rows\[3\]: "):
        prompt_of({"question": "?"}, 3)
