"""Timers for thousands of calls: they ring in time, together, and not at all once they are cleared."""

import asyncio
import time

from nemo_gym.web.timers import FARTHEST_S, TICK_S, Timers


class Sleeper:
    def __init__(self) -> None:
        self.woken_at: list[float] = []

    def wake(self) -> None:
        self.woken_at.append(time.monotonic())


class CountingLoop:
    """The running event loop, which tells what was asked of it."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.delays: list[float] = []

    def call_later(self, delay: float, *call):
        self.delays.append(delay)
        return self.loop.call_later(delay, *call)


async def test_a_sleeper_is_woken_once_and_never_too_early():
    alarms, sleeper, began = Timers(asyncio.get_running_loop()), Sleeper(), time.monotonic()
    alarms.set(sleeper, 0.03)
    await asyncio.sleep(0.1)
    (woken_at,) = sleeper.woken_at
    assert 0.03 <= woken_at - began < 0.1


async def test_what_is_due_at_once_or_was_due_before_is_woken_within_a_tick():
    alarms, sleepers = Timers(asyncio.get_running_loop()), [Sleeper(), Sleeper()]
    for sleeper, in_s in zip(sleepers, (0.0, -5.0), strict=True):
        alarms.set(sleeper, in_s)
    await asyncio.sleep(TICK_S * 6)
    assert [len(each.woken_at) for each in sleepers] == [1, 1]


async def test_a_sleeper_that_was_cleared_sleeps_on_and_others_do_not():
    alarms, cleared, other = Timers(asyncio.get_running_loop()), Sleeper(), Sleeper()
    tick = alarms.set(cleared, 0.01)
    alarms.set(other, 0.01)
    alarms.clear(cleared, tick)
    await asyncio.sleep(0.05)
    assert (len(cleared.woken_at), len(other.woken_at)) == (0, 1)
    # Its alarm is over: clearing it once more means nothing.
    alarms.clear(other, tick)


async def test_thousands_that_are_due_together_share_few_timers_and_none_is_set_for_an_hour():
    loop = CountingLoop()
    alarms = Timers(loop)  # type: ignore[arg-type]
    began = time.monotonic()
    for _ in range(5000):
        alarms.set(Sleeper(), 3600.0)
    assert len(loop.delays) <= (time.monotonic() - began) / TICK_S + 2
    assert max(loop.delays) <= FARTHEST_S + TICK_S


async def test_whoever_is_woken_may_set_the_next_alarm_or_clear_another_ones():
    alarms = Timers(asyncio.get_running_loop())
    other = Sleeper()

    class Restless(Sleeper):
        def wake(self) -> None:
            super().wake()
            if len(self.woken_at) < 3:
                alarms.set(self, 0.0)
                alarms.clear(other, tick)

    restless = Restless()
    alarms.set(restless, 0.0)
    tick = alarms.set(other, 0.03)
    await asyncio.sleep(0.12)
    assert (len(restless.woken_at), len(other.woken_at)) == (3, 0)
