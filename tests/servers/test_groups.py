"""Groups of rollouts: which members are compared, when, and how missing ones are reported."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import asynccontextmanager, suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nemo_gym.context.current import Work, begin_work, current_work, end_work
from nemo_gym.context.deadline import deadline_in
from nemo_gym.errors import JudgeFailed, RolloutCancelled
from nemo_gym.servers.groups import Groups, Membership

NEVER_S = 1000.0


class Comparing:
    """A `verify_group` that returns each body with the number of bodies, and records its calls."""

    def __init__(self, *, is_held: bool = False) -> None:
        self.calls: list[list[object]] = []
        self.works: list[Work] = []
        self.may_end = asyncio.Event()
        self.fault: Exception | None = None
        if not is_held:
            self.may_end.set()

    async def __call__(self, bodies: list[object]) -> Sequence[object]:
        self.calls.append(bodies)
        self.works.append(current_work())
        await self.may_end.wait()
        if self.fault is not None:
            raise self.fault
        return [f"{body} of {len(bodies)}" for body in bodies]


@asynccontextmanager
async def groups_of(compare: Comparing, timeout_s: float = NEVER_S):
    groups = Groups(compare, timeout_s=timeout_s, server="pairs")
    yield groups
    await groups.close()


def arriving(groups: Groups, member: int | None, body: object = None, *, size: int = 3, group: str = "g", **fields):
    """Start the arrival of a member."""
    membership = Membership(group, size, member, **fields)
    return asyncio.ensure_future(groups.verdict(membership, f"body {member}" if body is None else body))


async def settled() -> None:
    """Let all tasks run until they wait."""
    for _ in range(10):
        await asyncio.sleep(0)


def end(groups: Groups) -> None:
    """Report the end of the group, which is then forgotten."""
    assert len(groups) == 1
    groups.take_note("g", {}, {}, is_over=True)
    assert len(groups) == 0


async def test_group_is_verified_when_all_have_arrived():
    async with groups_of(compare := Comparing()) as groups:
        first, second = arriving(groups, 2), arriving(groups, 0)
        await settled()
        assert compare.calls == []
        third = arriving(groups, 1)
        verdicts = await asyncio.gather(first, second, third)

    assert compare.calls == [["body 0", "body 1", "body 2"]]
    assert [each.result for each in verdicts] == ["body 2 of 3", "body 0 of 3", "body 1 of 3"]
    assert all(each.group == {"size": 3, "compared": 3, "missing": []} for each in verdicts)
    end(groups)


async def test_later_attempt_replaces_the_earlier_one():
    async with groups_of(compare := Comparing()) as groups:
        earlier, other, later = arriving(groups, 0, "old"), arriving(groups, 1), arriving(groups, 0, "new")
        await settled()
        last = arriving(groups, 2)
        with pytest.raises(RolloutCancelled, match="later attempt"):
            await earlier
        assert (await later).result == "new of 3"
        await asyncio.gather(other, last)
    assert compare.calls == [["new", "body 1", "body 2"]]


async def test_absent_member_is_not_waited_for():
    async with groups_of(Comparing()) as groups:
        arrived = [arriving(groups, 0), arriving(groups, 2)]
        await settled()
        groups.take_note("g", {1: "model_failed"}, {})
        verdicts = await asyncio.gather(*arrived)
    assert verdicts[0].group == {"size": 3, "compared": 2, "missing": ["1: model_failed"]}
    end(groups)


async def test_absent_member_may_arrive_after_all():
    async with groups_of(compare := Comparing()) as groups:
        groups.take_note("g", {1: "timeout"}, {})
        arrived = [arriving(groups, 0), arriving(groups, 1)]
        await settled()
        assert compare.calls == []
        await asyncio.gather(*arrived, arriving(groups, 2))
    assert compare.calls == [["body 0", "body 1", "body 2"]]


async def test_group_is_verified_without_silent_members():
    async with groups_of(Comparing(), timeout_s=0.02) as groups:
        verdicts = await asyncio.gather(arriving(groups, 0), arriving(groups, 1))
    assert verdicts[0].group["missing"] == ["2: not arrived in 0.02 s"]


async def test_late_member_is_compared_with_earlier_ones():
    async with groups_of(compare := Comparing(), timeout_s=0.02) as groups:
        await asyncio.gather(arriving(groups, 0), arriving(groups, 1))
        late = await arriving(groups, 2)
    assert compare.calls == [["body 0", "body 1"], ["body 0", "body 1", "body 2"]]
    assert late == ("body 2 of 3", {"size": 3, "compared": 3, "missing": []})
    end(groups)


async def test_single_member_gets_no_reward():
    async with groups_of(compare := Comparing(), timeout_s=0.02) as groups:
        with pytest.raises(JudgeFailed) as failure:
            await arriving(groups, 1)
    assert compare.calls == []
    assert str(failure.value) == (
        "pairs: only one of the 3 members of group g has arrived, so it cannot be compared; missing: 0: not arrived "
        "in 0.02 s, 2: not arrived in 0.02 s"
    )


async def test_last_member_fails_at_once_without_others():
    async with groups_of(Comparing()) as groups:
        alone = arriving(groups, 1)
        await settled()
        groups.take_note("g", {0: "timeout", 2: "model_failed"}, {})
        with pytest.raises(JudgeFailed, match=r"missing: 0: timeout, 2: model_failed$"):
            await alone
    end(groups)


async def test_rollout_deadline_ends_the_wait():
    async with groups_of(Comparing()) as groups:
        with deadline_in(0.2):
            soon = arriving(groups, 0)
        verdicts = await asyncio.gather(soon, arriving(groups, 1))
    assert verdicts[1].group["missing"] == ["2: not arrived before another member's deadline"]


async def test_failure_is_that_of_every_member():
    async with groups_of(compare := Comparing()) as groups:
        compare.fault = JudgeFailed("the endpoint is down")
        arrived = await asyncio.gather(*(arriving(groups, member) for member in range(3)), return_exceptions=True)
    assert [(type(each), str(each), each.server) for each in arrived] == [
        (JudgeFailed, "the endpoint is down", "pairs")
    ] * 3
    assert len(set(map(id, arrived))) == 3
    end(groups)


async def test_cancelled_member_counts_as_missing():
    async with groups_of(compare := Comparing()) as groups:
        gone, other = arriving(groups, 0), arriving(groups, 1)
        await settled()
        gone.cancel()
        await settled()
        groups.take_note("g", {0: "timeout"}, {})
        last = arriving(groups, 2)
        assert (await other).group["missing"] == ["0: timeout"]
        await last
    assert compare.calls == [["body 1", "body 2"]]


async def test_absent_member_that_came_and_left_may_return():
    async with groups_of(compare := Comparing()) as groups:
        groups.take_note("g", {0: "timeout"}, {})
        gone, others = arriving(groups, 0), [arriving(groups, 1)]
        await settled()
        gone.cancel()
        await settled()
        others.append(arriving(groups, 2))
        await settled()
        assert compare.calls == []
        await asyncio.gather(*others, arriving(groups, 0, "second attempt"))
    assert compare.calls == [["second attempt", "body 1", "body 2"]]


async def test_news_of_a_waiting_member_counts_once_it_leaves():
    async with groups_of(compare := Comparing()) as groups:
        gone, others = arriving(groups, 0), [arriving(groups, 1)]
        await settled()
        groups.take_note("g", {0: "timeout", 2: "model_failed"}, {})
        await settled()
        # Both connections are open, so both are compared.
        assert [each.group["compared"] for each in await asyncio.gather(gone, *others)] == [2, 2]
        gone = arriving(groups, 0, group="h")
        other = arriving(groups, 1, group="h")
        await settled()
        groups.take_note("h", {0: "timeout"}, {})
        gone.cancel()
        last = arriving(groups, 2, group="h")
        assert (await other).group["missing"] == ["0: timeout"]
        await last
    assert len(compare.calls) == 2


async def test_member_arriving_during_verification_is_compared_next():
    async with groups_of(compare := Comparing(is_held=True)) as groups:
        groups.take_note("g", {2: "timeout"}, {})
        arrived = [arriving(groups, 0), arriving(groups, 1)]
        await settled()
        late, again = arriving(groups, 2), arriving(groups, 1, "second attempt")
        await settled()
        assert compare.calls == [["body 0", "body 1"]]
        compare.may_end.set()
        results = [each.result for each in await asyncio.gather(*arrived, late, again)]
    assert results == ["body 0 of 2", "body 1 of 2", "body 2 of 3", "second attempt of 3"]
    end(groups)


async def test_member_leaving_during_verification_stays_compared():
    async with groups_of(compare := Comparing(is_held=True)) as groups:
        gone, *others = [arriving(groups, member) for member in range(3)]
        await settled()
        gone.cancel()
        with suppress(asyncio.CancelledError):
            await gone
        compare.may_end.set()
        assert [each.group["compared"] for each in await asyncio.gather(*others)] == [3, 3]
    end(groups)


async def test_member_lost_during_verification_is_compared_again():
    async with groups_of(compare := Comparing(is_held=True)) as groups:
        lost, *others = [arriving(groups, member) for member in range(3)]
        await settled()
        lost.cancel()
        await settled()
        compare.may_end.set()
        await asyncio.gather(*others)
        assert (await arriving(groups, 0, "second attempt")).result == "second attempt of 3"
    end(groups)


async def test_lost_members_are_not_compared_with_each_other():
    async with groups_of(compare := Comparing(is_held=True)) as groups:
        *lost, other = [arriving(groups, member) for member in range(3)]
        await settled()
        for each in lost:
            each.cancel()
        await settled()
        early = arriving(groups, 0, "second attempt")
        await settled()
        compare.may_end.set()
        await asyncio.gather(other, early, arriving(groups, 1, "second attempt, too"))
    assert compare.calls == [
        ["body 0", "body 1", "body 2"],
        ["second attempt", "second attempt, too", "body 2"],
    ]


async def test_group_without_callers_is_forgotten():
    async with groups_of(compare := Comparing(is_held=True)) as groups:
        lost = [arriving(groups, member) for member in range(3)]
        await settled()
        for each in lost:
            each.cancel()
        await settled()
        compare.may_end.set()
        await settled()
        assert len(groups) == 0


async def test_present_members_are_compared_but_not_answered():
    async with groups_of(compare := Comparing()) as groups:
        groups.take_note("g", {1: "model_failed"}, {0: "stored"})
        verdict = await arriving(groups, 2)
    assert compare.calls == [["stored", "body 2"]]
    assert verdict == ("body 2 of 2", {"size": 3, "compared": 2, "missing": ["1: model_failed"]})


async def test_unannounced_groups_begin_again():
    async with groups_of(compare := Comparing()) as groups:
        epochs = [arriving(groups, None, f"answer {number}", size=2, is_announced=False) for number in range(4)]
        results = [each.result for each in await asyncio.gather(*epochs)]
    assert compare.calls == [["answer 0", "answer 1"], ["answer 2", "answer 3"]]
    assert results == [f"answer {number} of 2" for number in range(4)]
    assert len(groups) == 0


async def test_same_member_of_another_epoch_opens_a_group():
    async with groups_of(compare := Comparing()) as groups:
        arrived = []
        for member, epoch in ((0, "one"), (0, "other"), (0, "third"), (1, "one"), (1, "other")):
            arrived.append(arriving(groups, member, f"{epoch} {member}", size=2, is_announced=False))
            await settled()
        left = arrived.pop(2)
        assert [each.result for each in await asyncio.gather(*arrived)] == [
            "one 0 of 2", "other 0 of 2", "one 1 of 2", "other 1 of 2",
        ]  # fmt: skip
        assert len(groups) == 1
        left.cancel()
        await settled()
        assert len(groups) == 0
    assert compare.calls == [["one 0", "one 1"], ["other 0", "other 1"]]


async def test_silent_unannounced_group_is_forgotten():
    async with groups_of(compare := Comparing(), timeout_s=0.02) as groups:
        await asyncio.gather(*(arriving(groups, None, number, is_announced=False) for number in range(2)))
        assert len(groups) == 0
    assert compare.calls == [[0, 1]]


async def test_idle_groups_are_forgotten():
    async with groups_of(Comparing()) as groups:
        groups.take_note("old", {0: "timeout"}, {})
        waiting = arriving(groups, 0)
        await settled()
        groups.drop_idle(-1)
        assert len(groups) == 1
        waiting.cancel()
        await settled()
        groups.drop_idle(-1)
    assert len(groups) == 0


async def test_verification_belongs_to_no_single_rollout():
    async with groups_of(compare := Comparing()) as groups:
        token = begin_work(Work(rollout_id="7-0"))
        first = arriving(groups, 0, size=2)
        end_work(token)
        with deadline_in(100):
            ends_at = current_work().ends_at
            second = arriving(groups, 1, size=2)
            await asyncio.gather(first, second)
        with deadline_in(100):
            ends_at = current_work().ends_at
            await asyncio.gather(*(arriving(groups, member, size=2) for member in range(2)))
    assert compare.works[0] == Work()
    assert compare.works[1] == Work(ends_at=ends_at)


STEP = st.tuples(st.sampled_from(["arrive", "leave", "absent", "present"]), st.integers(0, 4))


@given(steps=st.lists(STEP, max_size=25), failing=st.booleans())
async def test_every_member_gets_one_answer(steps, failing):
    """After any events, everybody who waits is answered once all others are known to be absent."""
    async with groups_of(compare := Comparing()) as groups:
        compare.fault = JudgeFailed("down") if failing else None
        waiting: dict[int, asyncio.Future] = {}
        everyone: list[asyncio.Future] = []
        for step, member in steps:
            if step == "arrive":
                waiting[member] = arriving(groups, member, size=5)
                everyone.append(waiting[member])
            elif step == "leave" and member in waiting:
                waiting.pop(member).cancel()
            elif step == "absent":
                groups.take_note("g", {member: "timeout"}, {})
            elif step == "present":
                groups.take_note("g", {}, {member: f"stored {member}"})
            await settled()
        for member in range(5):
            if member not in waiting or waiting[member].done():
                groups.take_note("g", {member: "timeout"}, {})
        await settled()
        assert all(each.done() for each in everyone)
        for each in everyone:
            if not each.cancelled() and each.exception() is None:
                verdict = each.result()
                assert verdict.group["compared"] >= 2
                assert verdict.group["compared"] + len(verdict.group["missing"]) == 5
                assert verdict.result.endswith(f"of {verdict.group['compared']}")
        for bodies in compare.calls:
            assert len(bodies) >= 2
