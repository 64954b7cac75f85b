"""`verify_group` behind `/verify`: its results, its failures, and the settings that it needs."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Sequence

import pytest
from pydantic import ConfigDict

from nemo_gym import BaseVerifyRequest, BaseVerifyResponse, InvalidTask, JudgeFailed, SimpleResourcesServer
from nemo_gym.context.group import GROUP_HEADER, GROUP_MEMBERS_PATH, GroupPlace
from nemo_gym.errors import ConfigError, SignatureError
from nemo_gym.servers.base import context_of
from nemo_gym.testing import make_server, reply, rollout, serving
from tests.each_case import each_case

ALWAYS = {"timeout_s": 1000}


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


async def answers(server, texts: Sequence[str], *, headers: bool = True, **fields: object):
    """Return the replies of `/verify` to one group of these texts."""
    async with serving(server) as client:

        async def answer(number: int, text: str):
            place = {GROUP_HEADER: GroupPlace("g", len(texts), number).header} if headers else {}
            return await client.post("/verify", json=body_of(text, **fields), headers=place)

        return await asyncio.gather(*(answer(number, text) for number, text in enumerate(texts)))


async def graded(cls, texts: Sequence[str] = ("a", "bbb"), **fields: object) -> list[dict]:
    replies = await answers(make_server(cls, group_verification=ALWAYS), texts, **fields)
    assert {each.status_code for each in replies} == {200}
    return [each.json() for each in replies]


async def test_each_member_gets_its_own_result_and_row():
    rows = await graded(Longest, ["a", "ccc", "bb"], weight=2.0, other={"thing": [1, None]})
    assert [row["reward"] for row in rows] == [0.0, 1.0, 0.0]
    assert [row["length"] for row in rows] == [2.0, 6.0, 4.0]
    assert all(row["other"] == {"thing": [1, None]} and row["weight"] == 2.0 for row in rows)
    assert [row["response"]["output"][0]["content"][0]["text"] for row in rows] == ["a", "ccc", "bb"]
    assert all(row["_ng_group"] == {"size": 3, "compared": 3, "missing": []} for row in rows)


async def test_numbers_of_a_plain_function_are_rewards():
    assert [row["reward"] for row in await graded(Numbers)] == [0.0, 0.5]


async def test_own_response_class_keeps_its_fields():
    rows = await graded(OwnClass, x=1)
    assert [(row["rank"], row["reward"], row["_ng_group"]["compared"]) for row in rows] == [(0, 1.0, 2), (1, 1.0, 2)]


async def test_verify_group_is_preferred_to_verify():
    assert [row["reward"] for row in await graded(Both)] == [0.0, 0.5]


async def test_member_without_verdict_fails_alone():
    rewarded, failed = await graded(OneWithoutVerdict)
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
async def test_fault_in_verify_group_fails_every_member(cls, message):
    for each in await answers(make_server(cls, group_verification=ALWAYS, name="tmp"), ["a", "b"]):
        row = each.json()
        assert (row["_ng_failure_class"], row["reward"]) == ("judge_failed", 0.0)
        assert row["_ng_failure_judge_error"].startswith("tmp: ")
        assert "test_group_verification.py:" in row["_ng_failure_judge_error"]
        assert message in row["_ng_failure_judge_error"]
        assert row["response"]


async def test_reward_that_is_not_finite_fails_its_member():
    failed, rewarded = await graded(NotFinite)
    assert (rewarded["reward"], failed["_ng_failure_class"]) == (0.5, "judge_failed")
    assert re.fullmatch(
        r"\w+: test_group_verification\.py:\d+: verify_group returned the reward nan, which is not finite",
        failed["_ng_failure_judge_error"],
    )


async def test_unknown_group_names_the_setting():
    with pytest.raises(InvalidTask, match=r"the caller does not send .* Set group_verification.size"):
        await answers(make_server(Longest, group_verification={}), ["a", "b"], headers=False)


@pytest.mark.parametrize("value", ["", "g", "g;2", "g;2;2", "g;1;0", "g h;2;0", "g;2;-1", "g;2;٣", ";2;0", "g;2;0;1"])
async def test_invalid_header_is_refused(value):
    async with serving(make_server(Longest, group_verification=ALWAYS)) as client:
        with pytest.raises(InvalidTask, match="is not <group>;<size>;<member>"):
            await client.post("/verify", json=body_of("a"), headers={GROUP_HEADER: value.encode()})


async def test_groups_without_header_are_found_by_task():
    server = make_server(Longest, group_verification={"size": 2})
    async with serving(server) as client:
        bodies = [
            body_of("a", _ng_task_index=1), body_of("b", _ng_task_index=2),
            body_of("cc", _ng_task_index=2), body_of("dd", _ng_task_index=1),
        ]  # fmt: skip
        replies = await asyncio.gather(*(client.post("/verify", json=body) for body in bodies))
    assert [each.json()["reward"] for each in replies] == [0.0, 0.0, 1.0, 1.0]


async def test_groups_without_header_are_found_by_input():
    server = make_server(Longest, group_verification={"size": 2})
    async with serving(server) as client:
        bodies = [
            {**body_of(text), "responses_create_params": {"input": question}}
            for text, question in (("a", "X?"), ("bb", "Y?"), ("cc", "X?"), ("d", "Y?"))
        ]
        replies = await asyncio.gather(*(client.post("/verify", json=body) for body in bodies))
    assert [each.json()["reward"] for each in replies] == [0.0, 1.0, 1.0, 0.0]


async def test_stored_members_are_compared_with():
    async with serving(make_server(Longest, group_verification=ALWAYS)) as client:
        news = {"group": "g", "present": {"0": body_of("aaaa")}, "absent": {"2": "model_failed"}}
        assert (await client.post(GROUP_MEMBERS_PATH, json=news)).is_success
        late = await client.post("/verify", json=body_of("b"), headers={GROUP_HEADER: "g;3;1"})
    assert late.json()["reward"] == 0.0
    assert late.json()["_ng_group"] == {"size": 3, "compared": 2, "missing": ["2: model_failed"]}


async def test_stored_members_outlast_idle_sessions():
    async with serving(make_server(Longest, group_verification=ALWAYS, session_idle_s=0.01)) as client:
        assert (await client.post(GROUP_MEMBERS_PATH, json={"group": "g", "present": {"0": body_of("aa")}})).is_success
        # The rollout of the other member takes longer.
        await asyncio.sleep(0.2)
        late = await client.post("/verify", json=body_of("b"), headers={GROUP_HEADER: "g;2;1"})
    assert late.json()["_ng_group"] == {"size": 2, "compared": 2, "missing": []}


async def test_fields_named_group_are_kept():
    columns = [row["group"] for row in await graded(Numbers, group="control")]
    results = [row["group"] for row in await graded(OwnGroup)]
    assert (columns, results) == (["control", "control"], ["short", "long"])


async def test_invalid_stored_member_is_refused():
    async with serving(make_server(Longest, group_verification=ALWAYS)) as client:
        news = {"group": "g", "present": {"0": body_of("a", weight="heavy")}}
        with pytest.raises(InvalidTask, match=r"present\.0: weight: "):
            await client.post(GROUP_MEMBERS_PATH, json=news)


async def test_attempts_are_compared_in_authors_tests():
    async with rollout(make_server(Longest, group_verification=ALWAYS)) as attempt:
        assert (await attempt.verify(reply("long"), compared_with=[reply("x"), reply("y")])).reward == 1.0
        assert (await attempt.verify(reply("x"), compared_with=[reply("long")])).reward == 0.0


def of_two_processes():
    server = make_server(Longest, group_verification=ALWAYS)
    context_of(server).processes = 2
    return server


SETTINGS = {
    "tmp: Longest overrides verify_group, so its block needs the key group_verification, such as group_verification: "
    "{}": lambda: make_server(Longest, name="tmp"),
    "tmp: group_verification is set, but Alone does not override verify_group. Remove group_verification.": (
        lambda: make_server(Alone, name="tmp", group_verification=ALWAYS)
    ),
    "needs all rollouts of a task in one process, but the server has 2. Set num_workers: 1 in its block.": (
        of_two_processes
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
        make_server(cls, group_verification=ALWAYS).setup_webserver()


async def test_verify_of_a_group_server_explains_itself():
    with pytest.raises(InvalidTask, match="Longest verifies rollouts in groups"):
        await make_server(Longest, group_verification=ALWAYS).verify(BaseVerifyRequest.model_construct())


def test_server_without_any_verify_stays_abstract():
    class Neither(SimpleResourcesServer):
        pass

    assert Neither.__abstractmethods__ == {"verify"}
    assert not Longest.__abstractmethods__
