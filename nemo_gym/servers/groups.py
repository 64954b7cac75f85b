"""Groups of rollouts that wait for each other and are then verified together."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from nemo_gym.context.current import Wait, Work, begin_work, current_work
from nemo_gym.context.group import LEAST_GROUP
from nemo_gym.errors import JudgeFailed, RolloutCancelled
from nemo_gym.jsonl import JsonObject

RESERVED_SHARE = 0.1
LONGEST_RESERVE_S = 60.0
"""Verification gets `RESERVED_SHARE` of the time left before a deadline, but at most this many seconds."""
LONGEST_IDLE_S = 24 * 3600.0
"""Seconds without requests or reports after which a group is dropped, because its caller may have been killed."""

Verify = Callable[[list[object]], Awaitable[Sequence[object]]]
"""A function that returns the result of each body, in order. It raises `JudgeFailed` if no body can be verified."""


class Membership(NamedTuple):
    """The place of a rollout in a group."""

    group: str
    size: int
    member: int | None
    """The rollout's number in the group; None for the next free number."""
    is_announced: bool = True
    """Whether a header of the request names the group. If not, its name is from the row, and epochs may share it."""


class Verdict(NamedTuple):
    """The verification result of one member of a group."""

    result: object
    group: JsonObject
    """The `size` of the group, how many members were `compared`, and why the others are `missing`."""


@dataclass
class _Waiting:
    verdict: asyncio.Future[Verdict]
    ends_at: float | None
    """The deadline of the member's rollout, by the monotonic clock."""
    due_at: float
    """The latest time at which the member's group is verified, by the monotonic clock."""
    reason: str
    """The reason to report for members that have not arrived at `due_at`."""


@dataclass(eq=False)
class _Group:
    """A group of one task's rollouts, with the request bodies that have arrived."""

    name: str
    size: int = 0
    """The number of members, or 0 until the first one arrives."""
    bodies: dict[int, object] = field(default_factory=dict)
    waiting: dict[int, _Waiting] = field(default_factory=dict)
    """The members whose callers wait for the next verification."""
    absent: dict[int, str] = field(default_factory=dict)
    left: set[int] = field(default_factory=set)
    """The members whose callers hung up during the current verification. They are removed after the verification."""
    is_announced: bool = True
    is_over: bool = False
    """Whether the group's caller has reported that no member will arrive any more."""
    is_being_verified: bool = False
    timer: asyncio.TimerHandle | None = None
    used_at: float = field(default_factory=time.monotonic)

    @property
    def missing(self) -> list[int]:
        """The members that have not arrived."""
        return [number for number in range(self.size) if number not in self.bodies]

    @property
    def is_complete(self) -> bool:
        """Whether all members have arrived, except those that are known to be absent."""
        return all(number in self.absent for number in self.missing)

    @property
    def may_go_on(self) -> bool:
        """Whether the group must be kept, because more members may still arrive."""
        return self.is_announced and not self.is_over and bool(self.bodies or self.absent)

    def put(self, number: int, body: object) -> None:
        """Store the body of a member, replacing an earlier one."""
        self.bodies[number] = body
        self.absent.pop(number, None)
        self.left.discard(number)

    def next_free(self) -> int:
        return next(number for number in range(len(self.bodies) + 1) if number not in self.bodies)

    def described(self) -> str:
        """Return how many members have arrived and which are missing."""
        missing = ", ".join(map(str, self.missing))
        return f"group {self.name} has {len(self.bodies)} of its {self.size} members (missing: {missing})"


class _GroupWait(Wait):
    """A member's wait for the others, as described in the error message of a timeout."""

    __slots__ = ("_group",)

    def __init__(self, group: _Group) -> None:
        super().__init__("")
        self._group = group

    def __str__(self) -> str:
        return f"the verification of its group: {self._group.described()}"


class Groups:
    """The groups of one server that can still be verified.

    If the caller named a group in a header, the group is kept until the caller reports its end. Until then, the caller
    may resend members whose result was lost.
    """

    def __init__(self, verify: Verify, *, timeout_s: float, server: str) -> None:
        self._verify = verify
        self._timeout_s = timeout_s
        self._server = server
        self._groups: dict[str, list[_Group]] = {}
        """The groups with each name. Several groups may have the same name if it is from a row and epochs overlap."""
        self._verifying: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return sum(map(len, self._groups.values()))

    async def verdict(self, membership: Membership, body: object) -> Verdict:
        """Wait for the other members and return the verdict of this member, or raise `JudgeFailed`.

        If the caller named the group in a header, a later attempt of a member replaces the earlier one.
        """
        group = self._joined(membership)
        group.size, group.is_announced = membership.size, membership.is_announced
        number = group.next_free() if membership.member is None else membership.member
        if (replaced := group.waiting.pop(number, None)) is not None and not replaced.verdict.done():
            replaced.verdict.set_exception(RolloutCancelled("a later attempt of this rollout has arrived"))
        future: asyncio.Future[Verdict] = asyncio.get_running_loop().create_future()
        group.waiting[number] = waiting = self._waiting(future, current_work().ends_at)
        group.put(number, body)
        del body
        self._settle(group)
        try:
            with _GroupWait(group):
                return await future
        except asyncio.CancelledError:
            self._leave(group, number, waiting)
            raise

    def take_note(
        self, group: str, absent: Mapping[int, str], present: Mapping[int, object], *, is_over: bool = False
    ) -> None:
        """Update a group with its caller's report.

        `absent` has the reasons why members will not arrive. `present` has the bodies of members that already have
        their result. `is_over` means that no member will arrive any more.
        """
        found = self._of(group)
        found.is_over = is_over
        for number, body in present.items():
            if number not in found.waiting:
                found.put(number, body)
        for number, reason in absent.items():
            found.absent[number] = reason
            # Keep the body while the member's caller waits, because `_leave` removes it when the caller hangs up.
            if number not in found.waiting:
                found.bodies.pop(number, None)
        self._settle(found)

    def drop_idle(self, idle_s: float) -> None:
        """Forget groups without requests or reports for `idle_s` seconds."""
        for group in self._all():
            if not (group.waiting or group.is_being_verified) and group.used_at < time.monotonic() - idle_s:
                self._forget(group)

    async def reap(self) -> None:
        """Drop idle groups for as long as the server runs."""
        while True:
            await asyncio.sleep(60.0)
            self.drop_idle(LONGEST_IDLE_S)

    async def close(self) -> None:
        """Cancel all verifications at shutdown."""
        for group in self._all():
            if group.timer is not None:
                group.timer.cancel()
        for task in self._verifying:
            task.cancel()
        await asyncio.gather(*self._verifying, return_exceptions=True)

    def _all(self) -> list[_Group]:
        return [group for named in self._groups.values() for group in named]

    def _of(self, name: str, without: int | None = None) -> _Group:
        """Return the first group with this name in which member `without` is not waiting, or a new group."""
        named = self._groups.setdefault(name, [])
        group = next((each for each in named if without not in each.waiting), None)
        if group is None:
            group = _Group(name)
            named.append(group)
        group.used_at = time.monotonic()
        return group

    def _joined(self, membership: Membership) -> _Group:
        """Return the group that an arriving member joins."""
        # If the group's name is from the row, a second request for a member is another rollout, such as one of another
        # epoch.
        return self._of(membership.group, None if membership.is_announced else membership.member)

    def _forget(self, group: _Group) -> None:
        named = self._groups.get(group.name, [])
        if group in named:
            named.remove(group)
        if not named:
            self._groups.pop(group.name, None)

    def _waiting(self, verdict: asyncio.Future[Verdict], ends_at: float | None) -> _Waiting:
        now = time.monotonic()
        left_s = math.inf if ends_at is None else ends_at - now
        before_end_s = left_s - min(LONGEST_RESERVE_S, RESERVED_SHARE * left_s)
        if self._timeout_s <= before_end_s:
            return _Waiting(verdict, ends_at, now + self._timeout_s, f"not arrived in {self._timeout_s:g} s")
        return _Waiting(verdict, ends_at, now + before_end_s, "not arrived before another member's deadline")

    def _leave(self, group: _Group, number: int, waiting: _Waiting) -> None:
        """Remove a member whose caller no longer waits, or mark it for removal if the group is being verified."""
        if group.waiting.get(number) is waiting:
            del group.waiting[number], group.bodies[number]
            self._settle(group)
        elif group.is_being_verified and number not in group.waiting:
            group.left.add(number)

    def _settle(self, group: _Group) -> None:
        """Start to verify a complete group. For other groups, set the timer, or drop the group if nothing needs it."""
        if group.timer is not None:
            group.timer.cancel()
            group.timer = None
        if group.is_being_verified:
            return
        if group.waiting and group.is_complete:
            self._begin(group, "")
        elif group.waiting:
            left_s = min(each.due_at for each in group.waiting.values()) - time.monotonic()
            group.timer = asyncio.get_running_loop().call_later(max(0.0, left_s), self._expire, group)
        elif not group.may_go_on:
            self._forget(group)

    def _expire(self, group: _Group) -> None:
        self._begin(group, min(group.waiting.values(), key=lambda each: each.due_at).reason)

    def _begin(self, group: _Group, silent: str) -> None:
        """Start to verify the members that have arrived. `silent` is the default reason why one is missing."""
        waiting, group.waiting = group.waiting, {}
        group.is_being_verified = True
        if not group.is_announced:
            # Forget the group now, so that later rollouts with the same name join a new group.
            self._forget(group)
        missing = [f"{number}: {group.absent.get(number) or silent}" for number in group.missing]
        bodies = dict(sorted(group.bodies.items()))
        task = asyncio.create_task(self._verified(group, bodies, waiting, missing))
        self._verifying.add(task)
        task.add_done_callback(self._verifying.discard)

    async def _verified(
        self, group: _Group, bodies: dict[int, object], waiting: dict[int, _Waiting], missing: list[str]
    ) -> None:
        # Use the latest deadline of all members instead of the inherited one, because the result is for all of them.
        deadlines = [each.ends_at for each in waiting.values()]
        begin_work(Work(ends_at=None if None in deadlines else max(filter(None, deadlines), default=None)))
        about = {"size": group.size, "compared": len(bodies), "missing": missing}
        try:
            if len(bodies) < LEAST_GROUP:
                raise JudgeFailed(self._alone(group, missing))
            results = dict(zip(bodies, await self._verify(list(bodies.values())), strict=True))
        except Exception as error:  # noqa: BLE001 - each member reports it
            for each in waiting.values():
                if not each.verdict.done():
                    server = getattr(error, "server", None) or self._server
                    each.verdict.set_exception(JudgeFailed(str(error), server=server))
        else:
            for number, each in waiting.items():
                if not each.verdict.done():
                    each.verdict.set_result(Verdict(results[number], about))
        finally:
            group.is_being_verified = False
            group.used_at = time.monotonic()
            for number in group.left:
                group.bodies.pop(number, None)
            group.left.clear()
            self._settle(group)

    def _alone(self, group: _Group, missing: Sequence[str]) -> str:
        return (
            f"{self._server}: only one of the {group.size} members of group {group.name} has arrived, so it cannot be "
            f"compared; missing: {', '.join(missing)}"
        )
