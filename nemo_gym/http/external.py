"""Calls to model endpoints outside: one aiohttp session for each process, with limits and an end."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from urllib.parse import SplitResult, urlsplit
from urllib.request import getproxies, proxy_bypass

import orjson

from nemo_gym.config.published import maybe_get_global_config_dict
from nemo_gym.context.deadline import CLOCK_SLACK_S, time_left_s
from nemo_gym.errors import EndpointError, RolloutTimedOut, ServerCallError
from nemo_gym.http.aiohttp_errors import also_aiohttps
from nemo_gym.http.backoff import Backoff
from nemo_gym.http.internal import InternalClient
from nemo_gym.http.reply import NotConnected, ReplyTimedOut, Timeouts, readable

if TYPE_CHECKING:
    from aiohttp import ClientSession

RATE_LIMIT_ERROR_CODES = [429, 502, 503, 504, 520]
RETRY_ERROR_CODES = [*RATE_LIMIT_ERROR_CODES, 500]
MAX_NUM_TRIES = 3
ENDPOINT_BACKOFF = Backoff(first_s=0.5, factor=2, longest_s=30.0)

# uvicorn closes idle connections after 5 s; whoever reuses one at that moment loses the call.
IDLE_CONNECTION_S = 4.0
BODY_BEGINNING = 2000
REDACTED = "[redacted]"
SHORTEST_SECRET = 6
PLAIN_URL = re.compile(r"http://[^/?#@]+/[!-\"$-~]*")
OK = 200
REDIRECTS = (301, 302, 303, 307, 308)
MALFORMED = "could not be asked: the address, or the API key in its header, is malformed"
CHECK_ADDRESS = "Check the endpoint's address: it goes up to and including /v1, or what stands there in its place."
ADVICE = {
    401: "Check the API key.",
    403: "Check the API key, and what it allows.",
    404: f"{CHECK_ADDRESS} Check the model's name, too.",
    405: CHECK_ADDRESS,
}
"""What a user can do where an endpoint answers this status."""
THIS_MACHINE = ("127.0.0.1", "::1", "localhost")

logger = logging.getLogger(__name__)

AnswerT = TypeVar("AnswerT")


class Limits(NamedTuple):
    """How long one try may take, in seconds. An endpoint that does not stream is silent until it has finished."""

    connect_s: float = 10.0
    silence_s: float = 1800.0
    total_s: float = 1800.0

    def within(self, left_s: float | None) -> Limits:
        """The same, all over within the time that a rollout has left."""
        if left_s is None or left_s >= self.total_s:
            return self
        return Limits(self.connect_s, self.silence_s, left_s)


@dataclass(frozen=True)
class RetryPolicy:
    """Which failures are tried again and after what pause: a model call changes nothing, so repeating it is safe.

    A lost connection or an answer that took too long is final: the endpoint may still be working on it.
    """

    tries: int = MAX_NUM_TRIES
    backoff: Backoff = ENDPOINT_BACKOFF
    statuses: frozenset[int] = frozenset(RETRY_ERROR_CODES)

    def allows(self, failure: EndpointError) -> bool:
        """Whether this failure may be gone at the next try."""
        return failure.status in self.statuses if failure.was_sent else True


def seconds_of_retry_after(value: str | None) -> float | None:
    """A `Retry-After` header, which holds seconds or a date; None where it is absent or unreadable."""
    if value is None:
        return None
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        then = parsedate_to_datetime(value)
    except ValueError:
        return None
    return max(0.0, (then.replace(tzinfo=then.tzinfo or UTC) - datetime.now(UTC)).total_seconds())


class _Answer(NamedTuple):
    status: int
    body: bytes
    retry_after: str | None


class ExternalSession:
    """A pool of connections to the outside; opened by its first call, in that call's event loop.

    Cookies are never kept. The proxies of `HTTP_PROXY`, `HTTPS_PROXY` and `NO_PROXY` are used.
    """

    def __init__(self) -> None:
        self.most_connections = _configured("global_aiohttp_connector_limit")
        self.most_connections_per_host = _configured("global_aiohttp_connector_limit_per_host")
        """Both count from the next opening on; 0 is without limit."""
        self._session: ClientSession | None = None
        self._plain: InternalClient | None = None
        self._proxies: dict[str, str | None] = {}
        self._users: set[int] = set()

    async def call(
        self,
        method: str,
        url: str,
        *,
        body: bytes | None = None,
        headers: Mapping[str, str],
        limits: Limits,
        retry: RetryPolicy,
        read: Callable[[bytes], AnswerT | None],
        is_ours: bool = False,
    ) -> AnswerT:
        """The JSON object that the endpoint answers; one of our own servers (`is_ours`) is asked without a proxy.

        `read` (`parsed`, `as_written`) says what is made of its text, None where it is no object.

        Raises `EndpointError` where none came: what went wrong, how often it was tried, and the beginning of the
        answer, without the secrets of `headers`.
        """
        proxy = None if is_ours else self.proxy_for(url)
        tries = 0
        while True:
            tries += 1
            retry_after = None
            left_s, began_at = time_left_s(), time.monotonic()
            if left_s is not None and left_s <= CLOCK_SLACK_S:
                raise RolloutTimedOut(f"the rollout's time was over at {method} {_without_login(url)}", tier="model")
            try:
                answer = await self._try(method, url, body, headers, limits.within(left_s), proxy=proxy)
                retry_after = answer.retry_after
                return _object_of(answer, headers, read)
            except EndpointError as error:
                is_over = left_s is not None and left_s - CLOCK_SLACK_S < time.monotonic() - began_at
                if not is_over and (tries >= retry.tries or not retry.allows(error)):
                    raise _told(error, method, url, tries) from error.__cause__
                pause_s = 0.0 if is_over else retry.backoff.pause_s(tries, seconds_of_retry_after(retry_after))
                logger.info("%s %s; trying again in %.1f s", _without_login(url), error, pause_s)
            await asyncio.sleep(pause_s)

    async def _try(
        self,
        method: str,
        url: str,
        body: bytes | None,
        headers: Mapping[str, str],
        limits: Limits,
        *,
        proxy: str | None,
    ) -> _Answer:
        head = {"Content-Type": "application/json", **headers}
        if proxy is None and PLAIN_URL.match(url):
            answer = await self._try_plainly(method, url, body or b"", head, limits)
            if answer.status not in REDIRECTS:
                return answer
        return await self._try_anyhow(method, url, body, head, limits, proxy=proxy)

    async def _try_plainly(
        self, method: str, url: str, body: bytes, head: Mapping[str, str], limits: Limits
    ) -> _Answer:
        """Without TLS and proxy our own client does, at a fraction of the cost."""
        if self._plain is None:
            self._plain = InternalClient(
                max_connections=self.most_connections_per_host or None, idle_s=IDLE_CONNECTION_S
            )
        try:
            raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in head.items()]
            timeouts = Timeouts(limits.connect_s, limits.silence_s, limits.total_s)
            reply = await self._plain.request_url(method, url, body=body, headers=raw, timeouts=timeouts)
        except NotConnected as error:
            raise EndpointError(f"could not connect: {_reason(error)}", was_sent=False) from error
        except ReplyTimedOut as error:
            is_silence = "(read_s)" in str(error)
            silence, whole = f"said nothing for {limits.silence_s:g} s", f"did not answer within {limits.total_s:g} s"
            raise EndpointError(silence if is_silence else whole) from error
        except ServerCallError as error:
            raise EndpointError(f"broke off: {_reason(error)}") from error
        except ValueError:
            raise EndpointError(MALFORMED) from None
        retry_after = None if reply.status == OK else reply.headers.get("retry-after")
        return _Answer(reply.status, reply.body, retry_after)

    async def _try_anyhow(
        self,
        method: str,
        url: str,
        body: bytes | None,
        head: Mapping[str, str],
        limits: Limits,
        *,
        proxy: str | None,
    ) -> _Answer:
        import aiohttp

        timeout = aiohttp.ClientTimeout(
            total=limits.total_s, sock_connect=limits.connect_s, sock_read=limits.silence_s, connect=None
        )
        try:
            async with self.opened().request(
                method, url, data=body, headers=head, timeout=timeout, proxy=proxy
            ) as response:
                return _Answer(response.status, await response.read(), response.headers.get("Retry-After"))
        except aiohttp.ConnectionTimeoutError as error:
            raise EndpointError(f"could not connect within {limits.connect_s:g} s", was_sent=False) from error
        except aiohttp.SocketTimeoutError as error:
            raise EndpointError(f"said nothing for {limits.silence_s:g} s") from error
        except TimeoutError as error:
            raise EndpointError(f"did not answer within {limits.total_s:g} s") from error
        except aiohttp.ClientConnectorError as error:
            raise EndpointError(f"could not connect: {error}", was_sent=False) from error
        except ValueError:
            # The text is left out: it may quote the address with its login, or a header.
            raise EndpointError(MALFORMED) from None
        except aiohttp.ClientError as error:
            raise EndpointError(f"broke off: {error or type(error).__name__}") from error

    def opened(self) -> ClientSession:
        """The connections themselves, as aiohttp knows them."""
        if self._session is None or self._session.closed:
            # Imported here: it takes a third of a second, and most processes never call outside.
            import aiohttp

            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(
                    limit=self.most_connections,
                    limit_per_host=self.most_connections_per_host,
                    keepalive_timeout=IDLE_CONNECTION_S,
                ),
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=Limits().total_s, sock_connect=Limits().connect_s),
            )
        return self._session

    def proxy_for(self, url: str) -> str | None:
        """The proxy through which this address is asked, if any."""
        # aiohttp would read the environment again for every request, in a thread of its own.
        parts = urlsplit(url)
        origin = f"{parts.scheme}://{parts.netloc}"
        if origin not in self._proxies:
            self._proxies[origin] = proxy_of(parts)
        return self._proxies[origin]

    @property
    def is_open(self) -> bool:
        """Whether there may be connections to close."""
        return self._plain is not None or (self._session is not None and not self._session.closed)

    def join(self, user: object) -> None:
        """Note that `user` makes calls through this session."""
        self._users.add(id(user))

    async def leave(self, user: object) -> None:
        """Note that `user` has made its last call; the last one to leave closes the session."""
        if id(user) in self._users:
            self._users.remove(id(user))
            if not self._users:
                await self.aclose()

    async def aclose(self) -> None:
        """Close the connections; a later call opens new ones."""
        session, self._session = self._session, None
        plain, self._plain = self._plain, None
        if session is not None:
            await session.close()
        if plain is not None:
            await plain.close()


def _configured(limit: str) -> int:
    config = maybe_get_global_config_dict()
    return int((config is not None and config.get(limit)) or 0)


def proxy_of(url: SplitResult) -> str | None:
    """The proxy that the environment names for this address; this machine itself is reached without one."""
    host = url.hostname or ""
    proxy = getproxies().get(url.scheme)
    return None if proxy is None or host in THIS_MACHINE or proxy_bypass(host) else proxy


# The one thing that is shared: connections belong to an event loop, of which a process has one (tests have more).
_sessions: dict[asyncio.AbstractEventLoop, ExternalSession] = {}


def open_sessions() -> dict[asyncio.AbstractEventLoop, ExternalSession]:
    """The sessions of this process that hold connections, by their event loops."""
    return {loop: session for loop, session in _sessions.items() if session.is_open}


def external_session() -> ExternalSession:
    """The session of the running event loop."""
    loop = asyncio.get_running_loop()
    if loop not in _sessions:
        for ended in [known for known in _sessions if known.is_closed()]:
            del _sessions[ended]
        _sessions[loop] = ExternalSession()
    return _sessions[loop]


def parsed(text: bytes) -> dict[str, Any] | None:
    """A JSON object; None where the text is none."""
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    return value if isinstance(value, dict) else None


def as_written(text: bytes) -> bytes | None:
    """The text of what begins like a JSON object, for whoever reads it elsewhere."""
    return text if text.lstrip()[:1] == b"{" else None


def _object_of(answer: _Answer, headers: Mapping[str, str], read: Callable[[bytes], AnswerT | None]) -> AnswerT:
    if answer.status < 300:
        value = read(answer.body)
        if value is not None:
            return value
    text = _without_secrets(answer.body.decode("utf-8", "replace"), headers)
    told = readable(text.encode())
    if answer.status < 300:
        what = f"something that is no JSON object: {told}" if told else "nothing"
        raise EndpointError(f"answered {answer.status} with {what}. {CHECK_ADDRESS}")
    advice = ADVICE.get(answer.status)
    what = f"answered {answer.status}: {told}" if told else f"answered {answer.status}"
    raise EndpointError(
        f"{what.rstrip('.')}. {advice}" if advice else what, status=answer.status, body=text[:BODY_BEGINNING]
    )


def _reason(error: ServerCallError) -> str:
    """What went wrong, without the method and the address before it, which are told anyway."""
    return str(error).partition(": ")[2] or str(error)


def _told(error: EndpointError, method: str, url: str, tries: int) -> EndpointError:
    often = "" if tries == 1 else f" (tried {tries} times)"
    address = _without_login(url)
    told = EndpointError(
        f"{method} {address} {error}{often}", status=error.status, body=error.body, was_sent=error.was_sent
    )
    return also_aiohttps(told, method=method, url=address)


def _without_login(url: str) -> str:
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="").geturl()


def _without_secrets(text: str, headers: Mapping[str, str]) -> str:
    # An endpoint that refuses a key may quote it; which header holds one is not ours to know.
    for value in headers.values():
        secret = value.removeprefix("Bearer ")
        if len(secret) >= SHORTEST_SECRET:
            text = text.replace(secret, REDACTED)
    return text
