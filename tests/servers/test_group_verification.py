"""`verify_group` and `/verify` of its server: the results, its failures, and the settings that it needs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import ClassVar

import pytest
from pydantic import ConfigDict

from nemo_gym import (
    BaseSeedSessionRequest,
    BaseVerifyRequest,
    BaseVerifyResponse,
    InvalidTask,
    JudgeFailed,
    SessionState,
    SimpleResourcesServer,
)
from nemo_gym.errors import ConfigError, SignatureError
from nemo_gym.schemas.rollout import FAILURE_HEADER, GROUP_PATH
from nemo_gym.testing import make_server, reply, rollout, serving
from tests.each_case import each_case


class VerifyRequest(BaseVerifyRequest):
    weight: float = 1.0


class Longest(SimpleResourcesServer):
    async def verify_group(self, bodies: Sequence[VerifyRequest]) -> list[BaseVerifyResponse]:
        lengths = [len(body.response.last_text) * body.weight for body in bodies]
        return [
            BaseVerifyResponse.grade(body, reward=float(own == max(lengths)), length=own)
            for body, own in zip(bodies, lengths, strict=True)
        ]


class Numbers(SimpleResourcesServer):
    """A plain function that returns numbers; it runs in a thread."""

    def verify_group(self, bodies: list[BaseVerifyRequest]) -> Iterable[float]:
        return (number / len(bodies) for number in range(len(bodies)))


class Extended(BaseVerifyResponse):
    model_config = ConfigDict(extra="allow")
    rank: int


class OwnClass(SimpleResourcesServer):
    async def verify_group(self, bodies: list[BaseVerifyRequest]) -> list[Extended]:
        return [Extended(**body.model_dump(), reward=1.0, rank=rank) for rank, body in enumerate(bodies)]


class OwnGroup(SimpleResourcesServer):
    async def verify_group(self, bodies: list[BaseVerifyRequest]) -> list[BaseVerifyResponse]:
        names = ("short", "long")
        return [BaseVerifyResponse.grade(body, reward=1.0, group=n) for body, n in zip(bodies, names, strict=True)]


class OneWithoutVerdict(SimpleResourcesServer):
    async def verify_group(self, bodies: list[BaseVerifyRequest]) -> list[float | JudgeFailed]:
        return [1.0, JudgeFailed("no pair was judged")]


class Broken(SimpleResourcesServer):
    async def verify_group(self, bodies: list[BaseVerifyRequest]) -> list[float]:
        raise KeyError("weights")


class TooFew(SimpleResourcesServer):
    async def verify_group(self, bodies: list[BaseVerifyRequest]) -> list[float]:
        return [1.0]


class Texts(SimpleResourcesServer):
    async def verify_group(self, bodies: list[BaseVerifyRequest]) -> list[str]:
        return ["good"] * len(bodies)


class Nothing(SimpleResourcesServer):
    async def verify_group(self, bodies: list[BaseVerifyRequest]) -> None:
        return None


class NotFinite(SimpleResourcesServer):
    async def verify_group(self, bodies: list[BaseVerifyRequest]) -> list[float]:
        return [float("nan"), 0.5]


class Both(Numbers):
    async def verify(self, body: BaseVerifyRequest) -> float:
        return 0.0


class Alone(SimpleResourcesServer):
    async def verify(self, body: BaseVerifyRequest) -> float:
        return 1.0


def body_of(text: str, **fields: object) -> dict[str, object]:
    return {"responses_create_params": {"input": "Hi"}, "response": reply(text).model_dump(mode="json"), **fields}


async def verified(cls, texts: Sequence[str] = ("a", "bbb"), **fields: object) -> list[dict]:
    """Return the results of a group of these texts."""
    async with serving(make_server(cls, group_verification={}, name="tmp")) as client:
        reply = await client.post(GROUP_PATH, json={"bodies": [body_of(text, **fields) for text in texts]})
    assert reply.status_code == 200
    return reply.json()["results"]


async def test_each_member_gets_its_own_result():
    rows = await verified(Longest, ["a", "ccc", "bb"], weight=2.0)
    assert [row["reward"] for row in rows] == [0.0, 1.0, 0.0]
    assert [row["length"] for row in rows] == [2.0, 6.0, 4.0]


async def test_single_rollout_is_ungraded():
    async with serving(make_server(Longest, group_verification={}, name="tmp")) as client:
        sent = body_of("a", weight=2.0, other={"thing": [1, None]})
        reply = await client.post("/verify", json=sent)
    assert (reply.status_code, reply.headers[FAILURE_HEADER]) == (200, "ungraded")
    row = reply.json()
    assert (row.pop("reward"), row.pop("_ng_failure_class"), row.pop("_ng_failure_server")) == (0.0, "ungraded", "tmp")
    assert row.pop("_ng_failure_message").startswith("tmp verifies all rollouts of a task together, so this rollout")
    assert row == sent


class Closed(SessionState):
    left: ClassVar[list[bool]] = []

    async def close(self) -> None:
        self.left.append(True)


class Seeded(Longest):
    async def seed_session(self, body: BaseSeedSessionRequest, state: Closed) -> None:
        pass


async def test_verify_ends_the_session_once():
    Closed.left.clear()
    async with serving(make_server(Seeded, group_verification={})) as client:
        await client.post("/seed_session", json={"responses_create_params": {"input": "Hi"}})
        await client.post("/verify", json=body_of("a"))
        assert Closed.left == [True]
        await client.post(GROUP_PATH, json={"bodies": [body_of("a"), body_of("b")]})
        await client.post("/close_session")
    assert Closed.left == [True]


async def test_invalid_rollout_is_refused_before_its_group():
    async with serving(make_server(Longest, group_verification={})) as client:
        assert (await client.post("/verify", json=body_of("a", weight="heavy"))).status_code == 422


async def test_numbers_of_a_plain_function_are_rewards():
    assert [row["reward"] for row in await verified(Numbers)] == [0.0, 0.5]


async def test_own_response_class_keeps_its_fields():
    rows = await verified(OwnClass)
    assert [(row["rank"], row["reward"]) for row in rows] == [(0, 1.0), (1, 1.0)]


async def test_verify_group_is_preferred_to_verify():
    assert [row["reward"] for row in await verified(Both)] == [0.0, 0.5]


async def test_member_without_verdict_fails_alone():
    rewarded, failed = await verified(OneWithoutVerdict)
    assert rewarded["reward"] == 1.0
    assert "_ng_failure_class" not in rewarded
    assert (failed["_ng_failure_class"], failed["_ng_failure_judge_error"]) == ("judge_failed", "no pair was judged")


FAULTS = {
    Broken: "verify_group raised test_group_verification.py:",
    TooFew: "verify_group returned 1 result for 2 rollouts",
    Texts: "verify_group returned a str for a rollout. Return numbers or BaseVerifyResponses",
    Nothing: "verify_group returned a NoneType for 2 rollouts",
}


@each_case(("cls", "message"), list(FAULTS.items()))
async def test_fault_in_verify_group_fails_the_group(cls, message):
    with pytest.raises(JudgeFailed, match=r"tmp: .*test_group_verification\.py:\d+") as failed:
        await verified(cls)
    assert message in str(failed.value)


async def test_reward_that_is_not_finite_fails_its_member():
    failed, rewarded = await verified(NotFinite)
    assert (rewarded["reward"], failed["_ng_failure_class"]) == (0.5, "judge_failed")
    assert re.fullmatch(
        r"\w+: test_group_verification\.py:\d+: verify_group returned the reward nan, which is not finite",
        failed["_ng_failure_judge_error"],
    )


async def test_results_keep_a_field_named_group():
    assert [row["group"] for row in await verified(OwnGroup)] == ["short", "long"]


class Tokens(SimpleResourcesServer):
    async def verify_group(self, bodies: list[BaseVerifyRequest]) -> list[float]:
        return [float(len(body.response.output[0].generation_token_ids)) for body in bodies]


async def test_grader_may_read_token_ids():
    bodies = [body_of("a"), body_of("b")]
    for number, body in enumerate(bodies):
        body["response"]["output"][0] |= {
            "prompt_token_ids": [1000] * 2000,
            "generation_token_ids": [1000] * (2000 + number),
            "generation_log_probs": [-0.5] * (2000 + number),
        }
    async with serving(make_server(Tokens, group_verification={})) as client:
        reply = await client.post(GROUP_PATH, json={"bodies": bodies})
    assert [each["reward"] for each in reply.json()["results"]] == [2000.0, 2001.0]


async def test_attempts_are_compared_in_authors_tests():
    async with rollout(make_server(Longest, group_verification={})) as attempt:
        assert (await attempt.verify(reply("long"), compared_with=[reply("x"), reply("y")])).reward == 1.0
        assert (await attempt.verify(reply("x"), compared_with=[reply("long")])).reward == 0.0


SETTINGS = {
    "tmp: Longest overrides verify_group, so its block needs the key group_verification, such as group_verification: "
    "{}": lambda: make_server(Longest, name="tmp"),
    "tmp: group_verification is set, but Alone does not override verify_group. Remove group_verification.": (
        lambda: make_server(Alone, name="tmp", group_verification={})
    ),
}


@each_case(("message", "make"), list(SETTINGS.items()))
def test_settings_that_do_not_fit_are_refused(message, make):
    with pytest.raises(ConfigError) as error:
        make().setup_webserver()
    assert message in str(error.value)


class Bare(SimpleResourcesServer):
    async def verify_group(self, bodies):
        return []


class NotABody(SimpleResourcesServer):
    async def verify_group(self, bodies: list[str]) -> list[float]:
        return []


class TakesMore(SimpleResourcesServer):
    async def verify_group(self, bodies: list[BaseVerifyRequest], more: int) -> list[float]:
        return []


@each_case("cls", [Bare, NotABody, TakesMore])
def test_signature_of_verify_group_is_checked(cls):
    with pytest.raises(SignatureError, match=r"Annotate it with Sequence\[BaseVerifyRequest\]"):
        make_server(cls, group_verification={}).setup_webserver()


async def test_verify_of_a_group_server_explains_itself():
    with pytest.raises(InvalidTask, match="Longest verifies rollouts in groups"):
        await make_server(Longest, group_verification={}).verify(BaseVerifyRequest.model_construct())


def test_server_without_any_verify_stays_abstract():
    class Neither(SimpleResourcesServer):
        pass

    assert Neither.__abstractmethods__ == {"verify"}
    assert not Longest.__abstractmethods__
