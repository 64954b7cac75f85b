"""This machine's part of a run whose head server is on another machine."""

from __future__ import annotations

import hashlib
import json
import secrets
import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple, Self

from nemo_gym.calls.client import ServerClient, wants_token
from nemo_gym.calls.joining import HEARTBEAT_S, LOST_AFTER_S, MEMBERS_PATH, RUN_HAS_ENDED, SENT_AT_HEADER, PartReport
from nemo_gym.calls.running import run_token_for
from nemo_gym.config.hosts import is_loopback, source_towards
from nemo_gym.config.models import HeadConfig, RunConfig, ServerConfig
from nemo_gym.config.process import ServerInstance
from nemo_gym.errors import HeadServerNotFoundError, LaunchError, ServerCallError
from nemo_gym.http.blocking import ask
from nemo_gym.http.reply import Reply
from nemo_gym.schemas.rollout import RUN_TOKEN_HEADER

HEAD_WAIT_S = 60.0
"""Seconds to wait for a head server that does not answer, both before joining the run and during it."""
RECORD_WAIT_S = 15.0
"""Seconds to wait for the record of a run on this machine, if no token is given."""
REFUSED_WAIT_S = 10.0
ANSWER_TIMEOUT_S = 5.0
RETRY_S = 1.0
NAME_SERVER_S = 5.0
"""Seconds in which the name server may be away, as it is for a moment when a container starts again."""
OK = 200


class LeftRunError(LaunchError):
    """An error that stops this machine's servers: the head server was silent for too long, or rejected them."""


class JoinedRun(NamedTuple):
    """The run to join, as its head server describes it."""

    run_id: str
    run_token: str

    @classmethod
    def of(cls, run: RunConfig, notice: Callable[[str], None]) -> Self:
        """Wait until the head server answers, and return its run. Raise `LaunchError` if the run cannot be joined."""
        head, given = run.head, run.settings.run_token or None
        url = head.url
        began_at, has_noted = time.monotonic(), False
        while True:
            # Look the token up each time, because a run on the same machine records its token only after its start.
            token = given or run_token_for(head.host, head.port)
            try:
                client = ServerClient.load_from_global_config(head, token)
                break
            except HeadServerNotFoundError as error:
                is_wrong_token = str(error) == wants_token(url)
                longest_s = (0 if token else RECORD_WAIT_S) if is_wrong_token else HEAD_WAIT_S
                if time.monotonic() - began_at > longest_s:
                    raise LaunchError(str(error)) from None
                if not has_noted:
                    notice(f"waiting for the head server at {url} (at most {HEAD_WAIT_S:g} s)")
                    has_noted = True
                time.sleep(RETRY_S)
        joined, token = client.shared_run.run, client.address_book.run_token
        if not joined.member:
            raise LaunchError(
                f"the run at {url} has only one machine. Start it with --only NAMES, or let its head server listen on "
                "an address that other machines can reach (--default-host 0.0.0.0)."
            )
        if not token:
            raise LaunchError(
                f"the run at {url} is open (run_token: false), and no machine can join an open run. Remove "
                "run_token: false from its configuration to join it."
            )
        return cls(joined.run_id, token)


def cookie_secret_of(run: RunConfig) -> str:
    """Return the secret that signs session cookies. All parts of a run have the same one."""
    if not run.member or not run.run_token:
        return secrets.token_hex(32)
    return hashlib.sha256(f"session cookies of {run.run_id} {run.run_token}".encode()).hexdigest()


def needs_one_process(server: ServerConfig) -> bool:
    """Return whether a server must be one process, because it serves its tools over MCP."""
    return server.settings.get("expose_tools_over_mcp") is True


def host_towards(head: HeadConfig) -> str:
    """Return this machine's address on the route to the head server. Raise `LaunchError` if there is no route."""
    until = time.monotonic() + NAME_SERVER_S
    while True:
        try:
            return source_towards(head.host)
        except OSError as error:
            is_brief = isinstance(error, socket.gaierror) and error.errno == socket.EAI_AGAIN
            if not is_brief or time.monotonic() > until:
                raise LaunchError(
                    f"this machine has no route to the head server at {head.host} ({error.strerror or error}). Set "
                    "--advertised-host ADDRESS to the address by which the other machines reach this one."
                ) from error
            time.sleep(NAME_SERVER_S / 20)


class Membership:
    """A thread that reports this machine's servers to the head server. If it has given up, `failure` is the reason."""

    def __init__(
        self, run: RunConfig, instances: Callable[[], Sequence[ServerInstance]], notice: Callable[[str], None]
    ) -> None:
        """Report once before returning. Raise `LaunchError` if the head server rejects these servers."""
        self.failure: LaunchError | None = None
        self._run = run
        self._instances = instances
        self._notice = notice
        self._host = host_towards(run.head)
        self._url = run.head.url
        self._check_reachable()
        if refusal := self._report():
            raise LaunchError(refusal)
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._keep_reporting, name="heartbeat", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop reporting, and remove the servers from the head server's list if it answers."""
        self._closed.set()
        self._thread.join(ANSWER_TIMEOUT_S)
        if self.failure is None:
            # Ignore an error, because the head server drops servers that are no longer reported.
            with suppress(ServerCallError):
                self._send("DELETE", b"")

    def _check_reachable(self) -> None:
        """Raise `LaunchError` if a server has a loopback address, but the head server is on another machine."""
        for instance in self._reached():
            if is_loopback(instance.host) and not is_loopback(self._host):
                raise LaunchError(
                    f"{instance.config_path} listens on {instance.host}, which the other machines of the run cannot "
                    "reach. Set --default-host 0.0.0.0, or set its host to an address of this machine."
                )

    def _reached(self) -> list[ServerInstance]:
        # Leave out unix sockets, which other machines cannot reach.
        return [
            each.model_copy(update={"sockets": []}).reached_at(self._host) for each in self._instances()
        ]  # fmt: skip

    def _report(self) -> str | None:
        """Report once. Return None if the head server accepts the servers, or else the error message."""
        report = PartReport(run_id=self._run.run_id, machine=socket.gethostname(), instances=self._reached())
        reply = self._send("PUT", report.model_dump_json().encode())
        if reply.status == OK:
            return None
        try:
            reason = json.loads(reply.body)["detail"]
        except (ValueError, TypeError, KeyError):
            reason = f"status {reply.status}: {reply.body.decode(errors='replace')[:200]}"
        if reply.status == RUN_HAS_ENDED:
            return f"{self._url}: {reason}, so the servers on this machine are stopped too."
        return f"cannot join the run at {self._url}: {reason}."

    def _keep_reporting(self) -> None:
        heard_at, has_noted = time.monotonic(), False
        while not self._closed.wait(HEARTBEAT_S):
            try:
                refusal = self._report()
            except ServerCallError as error:
                silent_s = time.monotonic() - heard_at
                # Wait less if the connection is refused. The head server is then not just being restarted, because its
                # launcher keeps the port open during a restart.
                is_refused = isinstance(error.__cause__, ConnectionRefusedError)
                left_s = (REFUSED_WAIT_S if is_refused else HEAD_WAIT_S) - silent_s
                silence = f"the head server at {self._url} has not answered for {silent_s:.0f} s ({error})"
                refusal = f"{silence}, so the servers on this machine are stopped." if left_s < 0 else None
                if silent_s > LOST_AFTER_S and not has_noted and refusal is None:
                    has_noted = True
                    self._notice(f"{silence}. In {left_s:.0f} s, the servers on this machine are stopped.")
            else:
                heard_at, has_noted = time.monotonic(), False
            if refusal is not None:
                self.failure = LeftRunError(refusal)
                return

    def _send(self, method: str, body: bytes) -> Reply:
        url = f"{self._url}{MEMBERS_PATH}/{self._run.member}"
        headers = {
            "content-type": "application/json",
            RUN_TOKEN_HEADER: self._run.run_token or "",
            SENT_AT_HEADER: str(time.time()),
        }
        return ask(method, url, timeout_s=ANSWER_TIMEOUT_S, tls=self._run.tls, headers=headers, body=body)
