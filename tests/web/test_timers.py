"""Timers fire in time, share the event loop's timers, and do not fire once cleared."""

import asyncio
import time

from nemo_gym.web.timers import FARTHEST_S, TICK_S, Timers


class Sleeper:
    def __init__(self) -> None:
        self.woken_at: list[float] = []

    def wake(self) -> None:
        self.woken_at.append(time.monotonic())


class CountingLoop:
    """The running event loop, which records the requested delays."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.delays: list[float] = []

    def call_later(self, delay: float, *call):
        self.delays.append(delay)
        return self.loop.call_later(delay, *call)


async def test_sleeper_is_woken_once_and_not_early():
    timers, sleeper, began = Timers(asyncio.get_running_loop()), Sleeper(), time.monotonic()
    timers.set(sleeper, 0.03)
    # An event loop fires its timers in order, so a late sleeper would not be woken yet, however busy the machine is.
    await asyncio.sleep(0.03 + 3 * TICK_S)
    (woken_at,) = sleeper.woken_at
    assert woken_at - began >= 0.03


async def test_sleeper_already_due_is_woken_within_a_tick():
    timers, sleepers = Timers(asyncio.get_running_loop()), [Sleeper(), Sleeper()]
    for sleeper, in_s in zip(sleepers, (0.0, -5.0), strict=True):
        timers.set(sleeper, in_s)
    await asyncio.sleep(TICK_S * 6)
    assert [len(each.woken_at) for each in sleepers] == [1, 1]


async def test_cleared_sleeper_is_not_woken():
    timers, cleared, other = Timers(asyncio.get_running_loop()), Sleeper(), Sleeper()
    tick = timers.set(cleared, 0.01)
    timers.set(other, 0.01)
    timers.clear(cleared, tick)
    await asyncio.sleep(0.05)
    assert (len(cleared.woken_at), len(other.woken_at)) == (0, 1)
    # Clearing a timer that has fired does nothing.
    timers.clear(other, tick)


async def test_thousands_of_sleepers_share_few_short_timers():
    loop = CountingLoop()
    timers = Timers(loop)  # type: ignore[arg-type]
    began = time.monotonic()
    for _ in range(5000):
        timers.set(Sleeper(), 3600.0)
    assert len(loop.delays) <= (time.monotonic() - began) / TICK_S + 2
    assert max(loop.delays) <= FARTHEST_S + TICK_S


async def test_woken_sleeper_may_set_and_clear_timers():
    timers = Timers(asyncio.get_running_loop())
    other = Sleeper()

    class Restless(Sleeper):
        def wake(self) -> None:
            super().wake()
            if len(self.woken_at) < 3:
                timers.set(self, 0.0)
                timers.clear(other, tick)

    restless = Restless()
    timers.set(restless, 0.0)
    tick = timers.set(other, 0.03)
    async with asyncio.timeout(100):
        while len(restless.woken_at) < 3:  # noqa: ASYNC110 - each wake sets the next one
            await asyncio.sleep(0.01)
    await asyncio.sleep(0.05)
    assert (len(restless.woken_at), len(other.woken_at)) == (3, 0)
