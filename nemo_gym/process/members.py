"""The parts of a run on several machines, as their launchers report them to the head server."""

from __future__ import annotations

import logging
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated, NamedTuple

from fastapi import FastAPI, Header
from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from nemo_gym.calls.directory import ADDRESSES_PATH, LISTS, NOT_MODIFIED, Listed
from nemo_gym.calls.joining import LOST_AFTER_S, MEMBERS_PATH, RUN_HAS_ENDED, SENT_AT_HEADER, PartReport
from nemo_gym.config.process import HeadSettings, ServerInstance
from nemo_gym.process.reached import host_reached
from nemo_gym.text import did_you_mean_or_all

logger = logging.getLogger(__name__)

LOOK_S = 0.5
"""Minimum number of seconds between two checks for lost parts of the run."""
MOST_HOSTS = 64
"""Maximum number of hosts for which the list of addresses is cached."""
FORGOTTEN_AFTER_S = 600.0
"""Seconds for which a lost part is still shown."""
CONFLICT = 409
UNKNOWN = 422


@dataclass
class Member:
    """A part of the run that another launcher has started."""

    id: str
    report: PartReport
    joined_at: float
    seen_at: float

    @property
    def silent_s(self) -> float:
        """Seconds since the last report of this part."""
        return time.monotonic() - self.seen_at

    @property
    def is_lost(self) -> bool:
        return self.silent_s > LOST_AFTER_S

    @property
    def names(self) -> set[str]:
        return {instance.config_path for instance in self.report.instances}


class AddressList(NamedTuple):
    """The addresses of all servers, as JSON."""

    version: str
    body: bytes


class Refusal(NamedTuple):
    """The reason why a part of the run is not allowed to join, and the HTTP status of the response."""

    status: int
    reason: str


@dataclass
class Members:
    """The parts that have joined a run, by id."""

    settings: HeadSettings
    _members: dict[str, Member] = field(default_factory=dict)
    _bodies: dict[str, bytes] = field(default_factory=dict)
    """The last report of each part in bytes. Most reports are the same as the last one and need not be parsed."""
    _changes: int = 0
    _lost: frozenset[str] = frozenset()
    _looked_at: float = 0.0
    _listed: dict[str, AddressList] = field(default_factory=dict)
    """The list of addresses by host, with its version. It is cached, because thousands of processes request it."""

    def take(self, member_id: str, body: bytes, sent_at: float | None = None) -> Refusal | None:
        """Register a part of the run, or record that it is alive. Return a refusal if it may not join.

        `sent_at` is the time of the report by the clock of the part's machine. This machine's clock may differ.
        """
        known = self._members.get(member_id)
        if known is not None and self._bodies[member_id] == body:
            known.seen_at = time.monotonic()
            return None
        try:
            report = PartReport.model_validate_json(body)
        except ValidationError as error:
            return Refusal(
                UNKNOWN, f"the report is invalid ({error.error_count()} problems). Use one version of nemo_gym"
            )
        if refusal := self._refusal(member_id, report):
            return refusal
        ahead_s = 0.0 if sent_at is None else sent_at - time.time()
        for instance in report.instances:
            instance.start_time -= ahead_s
        now = time.monotonic()
        if known is None:
            self._remove_earlier(report)
            places = ", ".join(f"{each.config_path} at {each.url}" for each in report.instances)
            logger.info("%s joined: %s", report.machine, places)
        self._members[member_id] = Member(member_id, report, known.joined_at if known else now, now)
        self._bodies[member_id] = body
        self._changes += 1
        return None

    def remove(self, member_id: str) -> None:
        """Remove a part from the run, with all its servers. Ignore an unknown id."""
        member = self._members.pop(member_id, None)
        if member is not None:
            logger.info("%s left: %s", member.report.machine, ", ".join(sorted(member.names)))
        self._bodies.pop(member_id, None)
        self._changes += 1

    def instances(self) -> Iterator[tuple[ServerInstance, Member | None]]:
        """Yield each server with its part. The head server's own part comes first, as None."""
        self._forget()
        for instance in self.settings.instances:
            yield instance, None
        for member in self._members.values():
            for instance in member.report.instances:
                yield instance, member

    def missing(self) -> list[str]:
        """Return the names of the expected servers that are not in any live part of the run."""
        present = {each.config_path for each, member in self.instances() if member is None or not member.is_lost}
        return [name for name in self.settings.expected if name not in present]

    def version(self) -> str:
        """Return a version string that changes whenever an address changes."""
        now = time.monotonic()
        if now - self._looked_at > LOOK_S:
            self._looked_at = now
            lost = frozenset(member.id for member in self._members.values() if member.is_lost)
            self._changes += lost != self._lost
            self._lost = lost
        own = ",".join(str(each.start_time) for each in self.settings.instances)
        return f"{self._changes}-{zlib.crc32(own.encode()):x}"

    def list_for(self, host: str) -> AddressList:
        """Return the addresses as JSON, with their version, for callers that reach the head server by this host."""
        version = f'"{self.version()}-{host}"'
        if host not in self._listed or self._listed[host].version != version:
            if len(self._listed) >= MOST_HOSTS:
                self._listed.clear()
            self._listed[host] = AddressList(version, LISTS.dump_json(self.addresses(host)))
        return self._listed[host]

    def addresses(self, host: str) -> dict[str, list[Listed]]:
        """Return the addresses of all servers. `host` is the host by which the caller reached the head server."""
        found: dict[str, list[Listed]] = {}
        for instance, member in self.instances():
            if member is None or not member.is_lost:
                seen = instance.reached_at(host) if member is None else instance
                found.setdefault(seen.config_path, []).append(Listed(seen.host, seen.port, seen.member, seen.shortcut))
        return found

    def _refusal(self, member_id: str, report: PartReport) -> Refusal | None:
        settings = self.settings
        if not settings.run_token:
            return Refusal(CONFLICT, "the run is open (run_token: false). Remove that setting, so that it has a token")
        if report.run_id != settings.run_id:
            return Refusal(RUN_HAS_ENDED, "the run that these servers joined has ended")
        for instance in report.instances:
            name, expected = instance.config_path, settings.expected
            if name not in expected:
                hint = did_you_mean_or_all(name, expected, "servers", if_none="")
                return Refusal(
                    UNKNOWN, f"the run has no server '{name}'. Start all machines with the same config files.{hint}"
                )
            if (instance.server_type, instance.name) != (expected[name].type, expected[name].implementation):
                theirs = f"{expected[name].type}/{expected[name].implementation}"
                return Refusal(
                    UNKNOWN,
                    f"'{name}' is {instance.server_type}/{instance.name} here, but {theirs} in the run. Start all "
                    "machines with the same config files",
                )
            if instance.needs_one_process and (other := self._other_with(instance, member_id)):
                return Refusal(
                    CONFLICT,
                    f"'{name}' is already on {other}. It cannot run on two machines, because its rollouts share state "
                    "in its memory, or its tools are called over MCP. Use --only to start it on one machine",
                )
        return None

    def _other_with(self, new: ServerInstance, member_id: str) -> str | None:
        for instance, member in self.instances():
            is_another = member is None or (member.id != member_id and not member.is_lost and instance.url != new.url)
            if instance.config_path == new.config_path and is_another:
                return instance.machine or instance.host
        return None

    def _remove_earlier(self, report: PartReport) -> None:
        """Remove parts whose addresses the reporting part has now, for example because their container was restarted.

        If they remained, calls for their sessions would reach the reporting part, which would forward them to itself.
        """
        urls = {instance.url for instance in report.instances}
        for member in list(self._members.values()):
            if not urls.isdisjoint(instance.url for instance in member.report.instances):
                self.remove(member.id)

    def _forget(self) -> None:
        """Forget lost parts whose servers have all started again elsewhere, or that have been lost for too long."""
        lost = [member for member in self._members.values() if member.is_lost]
        for member in lost:
            later: set[str] = set()
            for other in self._members.values():
                if not other.is_lost and other.joined_at > member.seen_at:
                    later |= other.names
            if member.silent_s > FORGOTTEN_AFTER_S or member.names <= later:
                self.remove(member.id)


def add_member_routes(app: FastAPI, members: Members) -> None:
    """Add the routes by which other launchers join, and by which callers look up addresses."""

    @app.put(f"{MEMBERS_PATH}/{{member_id}}")
    async def report(
        member_id: str, request: Request, sent_at: Annotated[float | None, Header(alias=SENT_AT_HEADER)] = None
    ) -> Response:
        """Register the servers of another machine, or record that they are alive."""
        refusal = members.take(member_id, await request.body(), sent_at)
        if refusal is not None:
            return JSONResponse({"detail": refusal.reason}, refusal.status)
        return JSONResponse({"status": "ok"})

    @app.delete(f"{MEMBERS_PATH}/{{member_id}}")
    async def leave(member_id: str) -> dict[str, str]:
        """Remove the servers of another machine that leaves the run."""
        members.remove(member_id)
        return {"status": "ok"}

    @app.get(ADDRESSES_PATH, response_model=dict[str, list[Listed]])
    async def addresses(request: Request) -> Response:
        """Return each server's addresses: host, port, part of the run and unix socket. Lost machines are left out."""
        version, body = members.list_for(host_reached(request))
        headers = {"etag": version, "content-type": "application/json"}
        if request.headers.get("if-none-match") == version:
            return Response(status_code=NOT_MODIFIED, headers=headers)
        return Response(body, headers=headers)
