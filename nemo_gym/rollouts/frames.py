"""What the process that writes a run and those that run its rollouts tell each other: frames of bytes on a socket."""

from __future__ import annotations

import asyncio
import math
import socket
import struct
from collections.abc import Callable
from typing import Any, NamedTuple, Self, cast

import orjson

from nemo_gym.http.deadline import time_left_s
from nemo_gym.jsonl import dump_json, dump_line
from nemo_gym.rollouts.outcome import Outcome, Record

_LENGTH = struct.Struct("<Q")
_TASK = struct.Struct("<Qd")
_ENDED = struct.Struct("<QBBddI")
_OUTCOMES = tuple(Outcome)


class Frames(asyncio.Protocol):
    """One end of the socket: frames come whole, and those said in one turn of the loop leave together."""

    def __init__(self, on_frame: Callable[[bytes], None], on_end: Callable[[], None]) -> None:
        self._on_frame = on_frame
        self._on_end = on_end
        self._came = bytearray()
        self._said: list[bytes] = []
        self._transport: asyncio.Transport | None = None

    async def open(self, end: socket.socket) -> None:
        """Speak through this end of a pair of sockets from now on."""
        await asyncio.get_running_loop().create_unix_connection(lambda: self, sock=end)

    def say(self, frame: bytes) -> None:
        """Send a frame; to an end that is closed it says nothing."""
        if not self._said:
            asyncio.get_running_loop().call_soon(self._send)
        self._said += (_LENGTH.pack(len(frame)), frame)

    def hang_up(self) -> None:
        """Close this end at once, whatever is still to be said."""
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are of no class of asyncio's.
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._came += data
        begin = 0
        with memoryview(self._came) as came:
            while len(came) - begin >= _LENGTH.size:
                (length,) = _LENGTH.unpack_from(came, begin)
                end = begin + _LENGTH.size + length
                if end > len(came):
                    break
                self._on_frame(bytes(came[end - length : end]))
                begin = end
        del self._came[:begin]

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self._on_end()

    def _send(self) -> None:
        said, self._said = self._said, []
        if self._transport is not None:
            self._transport.writelines(said)


class TaskFrame(NamedTuple):
    """One attempt to be made."""

    number: int
    """Tells its end from that of others."""
    left_s: float | None
    """What is left of its rollout's time."""
    row: bytes

    @classmethod
    def of(cls, number: int, row: dict[str, Any]) -> Self:
        """The attempt at a row, within the time that the rollout under way here has left."""
        return cls(number, time_left_s(), dump_json(row))

    def encoded(self) -> bytes:
        return _TASK.pack(self.number, _or_nan(self.left_s)) + self.row

    @classmethod
    def decoded(cls, frame: bytes) -> Self:
        number, left_s = _TASK.unpack_from(frame)
        return cls(number, _or_none(left_s), frame[_TASK.size :])


class EndedFrame(NamedTuple):
    """What came of an attempt."""

    number: int
    record: Record

    def encoded(self) -> bytes:
        """The line as it is to be written, and what the writer has to know of it."""
        record = self.record
        cause = (record.cause or "").encode()
        line = b"" if record.outcome is Outcome.UNRESOLVED else dump_line(record.row)
        head = _ENDED.pack(
            self.number,
            _OUTCOMES.index(record.outcome),
            record.may_retry,
            _or_nan(record.reward),
            _or_nan(record.retry_after_s),
            len(cause),
        )
        return b"".join((head, cause, line))

    @classmethod
    def decoded(cls, frame: bytes) -> Self:
        number, outcome, may_retry, reward, retry_after_s, length = _ENDED.unpack_from(frame)
        line_at = _ENDED.size + length
        line = frame[line_at:]
        record = Record(
            _OUTCOMES[outcome],
            # What a failure says is told to the user; a result is only written.
            orjson.loads(line) if _OUTCOMES[outcome] is Outcome.FAILED else {},
            reward=_or_none(reward),
            cause=frame[_ENDED.size : line_at].decode() or None,
            may_retry=bool(may_retry),
            retry_after_s=_or_none(retry_after_s),
            line=line,
        )
        return cls(number, record)


def _or_nan(value: float | None) -> float:
    return math.nan if value is None else value


def _or_none(value: float) -> float | None:
    return None if math.isnan(value) else value
