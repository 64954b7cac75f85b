"""Tokens of a verify request: not parsed for a verifier that ignores them, plain lists for any other."""

from typing import Any

import orjson
import pytest
from fastapi.testclient import TestClient
from pydantic import field_validator, model_validator

from nemo_gym import BaseVerifyRequest, BaseVerifyResponse, ModelFailed, SimpleResourcesServer
from nemo_gym.opaque import WORTH_BYTES
from nemo_gym.schemas.rollout import ADDED_ONLY_HEADER
from nemo_gym.testing import make_server, reply
from tests.each_case import each_case

IDS = list(range(1000, 1000 + WORTH_BYTES))
TOKENS = {"prompt_token_ids": IDS, "generation_token_ids": IDS, "generation_log_probs": [-0.5] * len(IDS)}
RESPONSE = reply("Hello.").model_dump(mode="json")
RESPONSE["output"][0] |= TOKENS
ROW = {"responses_create_params": {"input": "Hi"}, "prompt_token_ids": IDS, "response": RESPONSE}
JSON = {"content-type": "application/json"}


def is_plain(ids: object) -> bool:
    return type(ids) is list and ids == IDS


class Ignoring(SimpleResourcesServer):
    async def verify(self, body: BaseVerifyRequest) -> float:
        return 1.0


class Reading(SimpleResourcesServer):
    async def verify(self, body: BaseVerifyRequest) -> float:
        ids = body.response.output[0].prompt_token_ids
        return float(is_plain(ids) and sum(ids))


class OfOnesOwn(SimpleResourcesServer):
    """Echoes like most published servers."""

    async def verify(self, body: BaseVerifyRequest) -> BaseVerifyResponse:
        return BaseVerifyResponse(**body.model_dump(), reward=1.0)


class WithRowTokens(BaseVerifyRequest):
    prompt_token_ids: list[int]


class ReadingRow(SimpleResourcesServer):
    async def verify(self, body: WithRowTokens) -> float:
        return float(sum(body.prompt_token_ids))


class Untyped(BaseVerifyRequest):
    response: Any


class Validating(BaseVerifyRequest):
    @field_validator("response", mode="before")
    @classmethod
    def _sees_lists(cls, response: Any) -> Any:
        assert is_plain(response["output"][0]["prompt_token_ids"])
        return response


class ValidatingAll(BaseVerifyRequest):
    @model_validator(mode="before")
    @classmethod
    def _sees_lists(cls, row: Any) -> Any:
        assert is_plain(row["response"]["output"][0]["prompt_token_ids"])
        return row


def server_that_takes(kind: type[BaseVerifyRequest]) -> type[SimpleResourcesServer]:
    class Server(SimpleResourcesServer):
        async def verify(self, body: kind) -> float:  # type: ignore[valid-type]
            output = body.response["output"] if isinstance(body.response, dict) else body.response.output
            first = output[0] if isinstance(output[0], dict) else output[0].model_dump()
            return float(is_plain(first["prompt_token_ids"]))

    return Server


def verified(server: type[SimpleResourcesServer], text: bytes, headers: dict[str, str] | None = None) -> Any:
    return TestClient(make_server(server).setup_webserver()).post(
        "/verify", content=text, headers=JSON | (headers or {})
    )


@each_case(
    ("server", "reward"), [(Ignoring, 1.0), (OfOnesOwn, 1.0), (Reading, sum(IDS)), (ReadingRow, sum(IDS))],
)  # fmt: skip
def test_verifier_echoes_and_reads_plain_tokens(server, reward):
    graded = verified(server, orjson.dumps(ROW)).json()
    assert graded["reward"] == reward
    assert {name: graded["response"]["output"][0][name] for name in TOKENS} == TOKENS


@pytest.mark.parametrize("kind", [Untyped, Validating, ValidatingAll])
def test_own_validators_and_types_see_plain_lists(kind):
    assert verified(server_that_takes(kind), orjson.dumps(ROW)).json()["reward"] == 1.0


def test_only_a_reader_notices_invalid_tokens():
    text = orjson.dumps({**ROW, "prompt_token_ids": None}).replace(b"[1000,1001,", b"[1000,,1001,", 1)
    assert verified(Ignoring, text).status_code == 200
    with pytest.raises(ModelFailed, match="prompt_token_ids of the model's answer is invalid"):
        verified(Reading, text)


@each_case("bad", [b"NaN", b"null", b'"x"', b"[1]"])
def test_tokens_that_are_not_numbers_are_rejected(bad):
    text = orjson.dumps(ROW).replace(b"[-0.5,-0.5,", b"[-0.5,%b," % bad, 1)
    assert verified(Ignoring, text).status_code in ((200,) if bad == b"NaN" else (422,))


def test_caller_may_ask_for_the_added_fields_only():
    answer = verified(Ignoring, orjson.dumps(ROW), {ADDED_ONLY_HEADER: "true"})
    assert answer.json() == {"reward": 1.0}
    assert ADDED_ONLY_HEADER in answer.headers
    own = verified(OfOnesOwn, orjson.dumps(ROW), {ADDED_ONLY_HEADER: "true"})
    assert ADDED_ONLY_HEADER not in own.headers
    assert own.json()["response"]["output"][0]["prompt_token_ids"] == IDS
