"""The servers of a run on several machines, as its head server lists them."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple
from zlib import crc32

from pydantic import TypeAdapter, ValidationError

from nemo_gym.errors import ServerCallError
from nemo_gym.http.internal import InternalClient
from nemo_gym.http.reply import Timeouts
from nemo_gym.schemas.rollout import run_headers

ADDRESSES_PATH = "/addresses"
REFRESH_S = 5.0
"""Seconds after which the addresses are read again in the background, so that new replicas get calls."""
NOT_MODIFIED = 304
REMEMBERED_CHOICES = 16_384
SHORTEST_INTERVAL_S = 0.5
DISTRUST_S = 5.0
"""Seconds for which an unreachable address gets no new calls, if the server has another address."""
TIMEOUTS = Timeouts(connect_s=3.0, read_s=5.0, total_s=5.0)


class Listed(NamedTuple):
    """One address of a server."""

    host: str
    port: int
    member: str
    """The id of the part of the run in which the server was started."""
    shortcut: str = ""
    """A unix socket of the same server, as `<machine id>:<path>`; empty if there is none."""


LISTS = TypeAdapter(dict[str, list[Listed]])
"""The type of the reply at `ADDRESSES_PATH`: the addresses of each server."""


class Directory:
    """The current addresses of every server. A server that several parts of a run start has one address in each."""

    def __init__(self, head: tuple[str, int], member: str, run_token: str | None, connections: InternalClient) -> None:
        """Set the head server's address and the id of the part of the run that contains the caller, if any."""
        self.head = head
        self.member = member
        self.trouble = ""
        """The reason why the last look-up failed; empty if it succeeded."""
        self._headers = run_headers(run_token)
        self._connections = connections
        self._listed: Mapping[str, Sequence[Listed]] = {}
        self._chosen: dict[tuple[str, str | None], Listed] = {}
        """The cached choice for each server and rollout, because choosing among many replicas is slow."""
        self._version = ""
        self._read_at = -REFRESH_S
        self._distrusted: dict[Listed, float] = {}
        self._turns = itertools.count()
        self._reading: asyncio.Task[None] | None = None

    async def choose(self, server: str, rollout_id: str | None) -> Listed | None:
        """Return an address of a server, or None while none is known. A rollout keeps its address if possible."""
        if not self._listed.get(server):
            await self.refresh()
        elif time.monotonic() - self._read_at > REFRESH_S:
            self._start_reading()
        listed = self._listed.get(server, ())
        if len(listed) <= 1:
            return listed[0] if listed else None
        key = server, rollout_id
        known = self._chosen.get(key)
        if known is not None and known not in self._distrusted:
            return known
        listed = self._trusted(listed)
        if rollout_id is None:
            return listed[next(self._turns) % len(listed)]
        # Rendezvous hashing: a new or lost address changes the choice of as few rollouts as possible.
        chosen = max(listed, key=lambda each: crc32(f"{rollout_id} {each.member}".encode()))
        if len(self._chosen) >= REMEMBERED_CHOICES:
            self._chosen.clear()
        self._chosen[key] = chosen
        return chosen

    async def of_member(self, server: str, member: str) -> Listed | None:
        """Return the address of a server in one part of the run, or None if that part is lost."""
        found = self._in_part(server, member)
        if found is None:
            await self.refresh()
            found = self._in_part(server, member)
        return found

    def distrust(self, listed: Listed) -> None:
        """Avoid an address for a while, because it could not be reached."""
        self._distrusted[listed] = time.monotonic() + DISTRUST_S

    async def refresh(self) -> None:
        """Read the addresses from the head server, unless they were just read. On failure, keep the old addresses."""
        if time.monotonic() - self._read_at > SHORTEST_INTERVAL_S or self._is_reading():
            # Use `shield`, because a cancelled call must not cancel the look-up for which other calls wait.
            await asyncio.shield(self._start_reading())

    def _is_reading(self) -> bool:
        reading = self._reading
        return reading is not None and not reading.done() and reading.get_loop() is asyncio.get_running_loop()

    def _start_reading(self) -> asyncio.Task[None]:
        if self._reading is None or not self._is_reading():
            self._reading = asyncio.get_running_loop().create_task(self._read())
        return self._reading

    async def _read(self) -> None:
        host, port = self.head
        self._read_at = time.monotonic()
        try:
            headers = [*self._headers, (b"if-none-match", self._version.encode())] if self._version else self._headers
            reply = await self._connections.request(
                "GET", host, port, ADDRESSES_PATH, headers=headers, timeouts=TIMEOUTS
            )
            if reply.status != NOT_MODIFIED:
                if not reply.ok:
                    raise ValueError(f"the reply has status {reply.status}")
                self._listed = LISTS.validate_json(reply.body)
                self._chosen.clear()
                self._version = reply.headers.get("etag") or ""
            self.trouble = ""
        except (ServerCallError, ValueError, ValidationError) as error:
            self.trouble = f"cannot read the run's servers from the head server at {host}:{port}: {error}"

    def _trusted(self, listed: Sequence[Listed]) -> Sequence[Listed]:
        if not self._distrusted:
            return listed
        now = time.monotonic()
        self._distrusted = {each: until for each, until in self._distrusted.items() if until > now}
        return [each for each in listed if each not in self._distrusted] or listed

    def _in_part(self, server: str, member: str) -> Listed | None:
        return next((each for each in self._listed.get(server, ()) if each.member == member), None)
