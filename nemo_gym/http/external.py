"""Calls to external model endpoints, with limits and retries, over one session per event loop."""

from __future__ import annotations

import asyncio
import logging
import re
import time
import zlib
from codecs import BOM_UTF8
from collections.abc import Awaitable, Callable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeVar
from urllib.parse import urlsplit

import orjson

from nemo_gym.config.view import current_view
from nemo_gym.context.current import Wait
from nemo_gym.context.deadline import CLOCK_SLACK_S, time_left_s
from nemo_gym.errors import EndpointError, RolloutTimedOut, ServerCallError
from nemo_gym.http.internal import InternalClient
from nemo_gym.http.json_depth import DEEPEST_ANSWER, is_deeper_than
from nemo_gym.http.model_replies import BODY_BEGINNING
from nemo_gym.http.open_files import TOO_MANY_FILES, is_out_of_files, no_free_connection
from nemo_gym.http.pool import wait_for_room
from nemo_gym.http.proxies import proxy_of
from nemo_gym.http.raising import as_expected
from nemo_gym.http.reply import (
    MAX_BODY_BYTES,
    NoFreeConnection,
    NotConnected,
    Reply,
    ReplyTimedOut,
    Timeouts,
    readable,
    too_large,
)
from nemo_gym.http.retries import RetryPolicy, pause_asked_for_s
from nemo_gym.http.tls import cause_of

if TYPE_CHECKING:
    from aiohttp import ClientSession

# Close idle connections before uvicorn does so (after 5 s), because a call on a closing connection fails.
IDLE_CONNECTION_S = 4.0
REDACTED = "[redacted]"
SHORTEST_SECRET = 6
PLAIN_URL = re.compile(r"http://[^/?#@]+/[!-\"$-~]*")
OK = 200
GZIP = b"\x1f\x8b"
REDIRECTS = (301, 302, 303, 307, 308)
MALFORMED = "could not send the request: the address, or the API key in its header, is malformed"
CHECK_ADDRESS = "Check the endpoint's address: it must end with /v1, or with the path that the endpoint uses instead."
ADVICE = {
    401: "Check the API key.",
    403: "Check the API key and its permissions.",
    404: f"{CHECK_ADDRESS} Check the model's name, too.",
    405: CHECK_ADDRESS,
}
"""Advice to the user, by the status of the endpoint's reply."""
KNOWN_ORIGINS = 1024
"""Maximum number of addresses whose proxies a session caches.

Each rollout may have its own endpoint, so without a limit the cache could grow indefinitely.
"""

logger = logging.getLogger(__name__)

AnswerT = TypeVar("AnswerT")
Send = Callable[[str, bytes, Mapping[str, str], float], Awaitable[tuple[int, bytes, Mapping[str, str]]]]
"""Another transport: takes a URL, a body, headers and a timeout in seconds. Returns a status, a body and headers."""


TIMEOUTS = Timeouts(read_s=1800.0, total_s=1800.0)
"""The timeouts of one try.

`read_s` is as long as `total_s`, because an endpoint that does not stream sends nothing until it has finished.
"""


class ConnectionLimits(NamedTuple):
    """The maximum numbers of open connections to external servers, in total and per host; 0 means no limit."""

    total: int = 0
    per_host: int = 0

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> Self:
        return cls(*(int(plain.get(f"global_aiohttp_connector_{key}") or 0) for key in ("limit", "limit_per_host")))


_process_limits: list[ConnectionLimits] = []


def limit_connections(limits: ConnectionLimits) -> None:
    """Set the connection limits of all sessions that this process creates later."""
    _process_limits[:] = [limits]


class _Request(NamedTuple):
    method: str
    url: str
    body: bytes | None
    headers: Mapping[str, str]
    proxy: str | None
    send: Send | None = None


class _Answer(NamedTuple):
    status: int
    body: bytes
    pause_s: float | None
    """The pause before the next try, if the endpoint asks for one."""


class ExternalSession:
    """A pool of connections to external servers, opened in the event loop of its first call.

    It keeps no cookies, and obeys `HTTP_PROXY`, `HTTPS_PROXY` and `NO_PROXY`.
    """

    def __init__(self) -> None:
        self.limits = _process_limits[0] if _process_limits else _configured_limits()
        """The limits on connections. A change takes effect the next time the session is opened."""
        self._session: ClientSession | None = None
        self._plain: InternalClient | None = None
        self._proxies: dict[str, str | None] = {}
        self._users: set[int] = set()

    def call(
        self,
        method: str,
        url: str,
        *,
        body: bytes | None = None,
        headers: Mapping[str, str],
        timeouts: Timeouts,
        retry: RetryPolicy,
        read: Callable[[bytes], AnswerT | None],
        is_ours: bool = False,
        send: Send | None = None,
    ) -> Awaitable[AnswerT]:
        """Call the endpoint and return the JSON object of its reply. For nemo_gym's servers (`is_ours`), use no proxy.

        `read` (`parsed` or `as_written`) converts the body, and returns None if it is not a JSON object.

        Raise `EndpointError` if the call fails. The error has the reason, the number of tries and the beginning of
        the reply, without the secrets in `headers`.
        """
        asked_headers = {"Content-Type": "application/json", **headers}
        asked = _Request(method, url, body, asked_headers, None if is_ours or send else self.proxy_for(url), send)
        return self._call(asked, timeouts, retry, lambda answer: _object_of(answer, headers, read))

    async def _call(
        self, asked: _Request, timeouts: Timeouts, retry: RetryPolicy, read: Callable[[_Answer], AnswerT]
    ) -> AnswerT:
        tries = 0
        with Wait(f"{asked.method} {_without_login(asked.url)}") as wait:
            wait.trouble = "no answer yet"
            while True:
                tries += 1
                asked_pause_s = None
                left_s, began_at = time_left_s(), time.monotonic()
                if left_s is not None and left_s <= CLOCK_SLACK_S:
                    raise RolloutTimedOut(f"the rollout's time was over while waiting for {wait}", tier="model")
                try:
                    answer = await self._try(asked, timeouts if left_s is None else timeouts.within(left_s))
                    asked_pause_s = answer.pause_s
                    return read(answer)
                except EndpointError as error:
                    is_over = left_s is not None and left_s - CLOCK_SLACK_S < time.monotonic() - began_at
                    if not is_over and (tries >= retry.tries or not retry.allows(error)):
                        raise _with_context(error, asked.method, asked.url, tries) from error.__cause__
                    failure = str(error)
                if is_over:
                    continue
                pause_s = retry.backoff.pause_s(tries, asked_pause_s)
                wait.trouble = f"{failure}; next try after a pause of {pause_s:.1f} s"
                logger.info("%s", wait)
                left_s = time_left_s()
                await asyncio.sleep(pause_s if left_s is None else max(0.0, min(pause_s, left_s)))
                if left_s is None or pause_s < left_s:
                    wait.trouble = f"no answer to try {tries + 1} yet; before: {failure}"

    async def _try(self, asked: _Request, timeouts: Timeouts) -> _Answer:
        if asked.send is not None:
            status, body, headers = await asked.send(asked.url, asked.body or b"", asked.headers, timeouts.total_s)
            return _Answer(status, body, pause_asked_for_s(headers))
        if asked.proxy is None and PLAIN_URL.match(asked.url):
            answer = await self._try_plainly(asked, timeouts)
            if answer.status not in REDIRECTS:
                return answer
        return await self._try_anyhow(asked, timeouts)

    async def _try_plainly(self, asked: _Request, timeouts: Timeouts) -> _Answer:
        """Send the request with `InternalClient`, which is much cheaper than aiohttp but lacks TLS and proxies."""
        if self._plain is None:
            self._plain = InternalClient(max_connections=self.limits.per_host or None, idle_s=IDLE_CONNECTION_S)
        try:
            raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in asked.headers.items()]
            method, url, body = asked.method, asked.url, asked.body or b""
            reply = await self._plain.request_url(method, url, body=body, headers=raw, timeouts=timeouts)
        except NoFreeConnection as error:
            raise EndpointError(_reason(error), was_sent=False) from error
        except NotConnected as error:
            raise EndpointError(f"could not connect: {_reason(error)}", was_sent=False) from error
        except ReplyTimedOut as error:
            is_silence = "(read_s)" in str(error)
            silence, whole = f"sent nothing for {timeouts.read_s:g} s", f"did not answer within {timeouts.total_s:g} s"
            raise EndpointError(silence if is_silence else whole) from error
        except ServerCallError as error:
            raise EndpointError(f"lost the connection: {_reason(error)}") from error
        except ValueError:
            raise EndpointError(MALFORMED) from None
        return _Answer(
            reply.status, _unpacked(reply), None if reply.status == OK else pause_asked_for_s(reply.headers)
        )

    async def _try_anyhow(self, asked: _Request, timeouts: Timeouts) -> _Answer:
        """Send the request with aiohttp. While the process has too many open files, wait for one to be closed."""
        began_at = time.monotonic()
        while True:
            left_s = timeouts.total_s - (time.monotonic() - began_at)
            try:
                with Wait(f"a free connection to {_without_login(asked.url)}") as wait:
                    wait.trouble = TOO_MANY_FILES
                    async with asyncio.timeout(left_s):
                        await wait_for_room()
            except TimeoutError as error:
                raise EndpointError(no_free_connection(timeouts.total_s), was_sent=False) from error
            answer = await self._try_with_aiohttp(asked, timeouts, left_s)
            if answer is not None:
                return answer

    async def _try_with_aiohttp(self, asked: _Request, timeouts: Timeouts, left_s: float) -> _Answer | None:
        """Send the request with aiohttp. Return None if too many open files prevent this."""
        import aiohttp

        method, url, body, headers, proxy, _ = asked
        timeout = aiohttp.ClientTimeout(left_s, sock_connect=timeouts.connect_s, sock_read=timeouts.read_s)
        request = self.opened().request(method, url, data=body, headers=headers, timeout=timeout, proxy=proxy)
        try:
            async with request as response:
                return _Answer(response.status, await response.read(), pause_asked_for_s(response.headers))
        except aiohttp.ConnectionTimeoutError as error:
            raise EndpointError(f"could not connect within {timeouts.connect_s:g} s", was_sent=False) from error
        except aiohttp.SocketTimeoutError as error:
            raise EndpointError(f"sent nothing for {timeouts.read_s:g} s") from error
        except TimeoutError as error:
            raise EndpointError(f"did not answer within {timeouts.total_s:g} s") from error
        except aiohttp.ClientConnectorError as error:
            if is_out_of_files(error.os_error):
                return None
            through = f" through the proxy {_without_login(proxy)}" if proxy else ""
            raise EndpointError(f"could not connect{through}: {cause_of(error)}", was_sent=False) from error
        except ValueError:
            # Drop the original error's text, because it may quote a header, or the address with its credentials.
            raise EndpointError(MALFORMED) from None
        except aiohttp.TooManyRedirects as error:
            raise EndpointError(f"redirected {len(error.history)} times, so the address is a loop") from error
        except aiohttp.ClientError as error:
            raise EndpointError(f"lost the connection: {error or type(error).__name__}") from error

    def opened(self) -> ClientSession:
        """Return the aiohttp session. Open it if necessary."""
        if self._session is None or self._session.closed:
            # Imported here, because the import takes a third of a second and most processes make no external calls.
            import aiohttp

            from nemo_gym.http.limited_response import LimitedResponse

            self._session = aiohttp.ClientSession(
                response_class=LimitedResponse,
                connector=aiohttp.TCPConnector(
                    limit=self.limits.total, limit_per_host=self.limits.per_host, keepalive_timeout=IDLE_CONNECTION_S
                ),
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=TIMEOUTS.total_s, sock_connect=TIMEOUTS.connect_s),
            )
        return self._session

    def proxy_for(self, url: str) -> str | None:
        # Cache the proxies, because aiohttp would read the environment in a thread for every request.
        parts = urlsplit(url)
        origin = f"{parts.scheme}://{parts.netloc}"
        if origin not in self._proxies:
            if len(self._proxies) >= KNOWN_ORIGINS:
                self._proxies.clear()
            self._proxies[origin] = proxy_of(parts)
        return self._proxies[origin]

    @property
    def is_open(self) -> bool:
        """Whether there may be open connections."""
        return self._plain is not None or (self._session is not None and not self._session.closed)

    def join(self, user: object) -> None:
        """Register `user` as a user of this session. The session stays open until its last user leaves."""
        self._users.add(id(user))

    async def leave(self, user: object) -> None:
        """Unregister `user`. If it was the last user, close the session."""
        if id(user) in self._users:
            self._users.remove(id(user))
            if not self._users:
                await self.aclose()

    async def aclose(self) -> None:
        """Close the connections. A later call opens new ones."""
        session, self._session = self._session, None
        plain, self._plain = self._plain, None
        if session is not None:
            await session.close()
        if plain is not None:
            await plain.close()


def _configured_limits() -> ConnectionLimits:
    """Return the limits that a program has set in this process's global configuration."""
    config = current_view()
    return ConnectionLimits() if config is None else ConnectionLimits.of(config)


# One session per event loop, because connections belong to a loop. A process has one loop; tests have several.
_sessions: dict[asyncio.AbstractEventLoop, ExternalSession] = {}


def open_sessions() -> dict[asyncio.AbstractEventLoop, ExternalSession]:
    return {loop: session for loop, session in _sessions.items() if session.is_open}


def external_session() -> ExternalSession:
    """Return the session of the running event loop."""
    loop = asyncio.get_running_loop()
    if loop not in _sessions:
        for ended in [known for known in _sessions if known.is_closed()]:
            del _sessions[ended]
        _sessions[loop] = ExternalSession()
    return _sessions[loop]


def _unpacked(reply: Reply) -> bytes:
    """Return a body without its compression, which some endpoints apply although the request did not ask for it."""
    if not reply.body.startswith(GZIP) or reply.headers.get("content-encoding") != "gzip":
        return reply.body
    unpacking = zlib.decompressobj(16 + zlib.MAX_WBITS)
    try:
        body = unpacking.decompress(reply.body, MAX_BODY_BYTES)
    except zlib.error as error:
        raise EndpointError(f"sent a gzip body that cannot be decompressed ({error})") from error
    if unpacking.unconsumed_tail:
        raise EndpointError(f"sent a gzip body: {too_large(MAX_BODY_BYTES)}")
    return body


def _object_of(answer: _Answer, headers: Mapping[str, str], read: Callable[[bytes], AnswerT | None]) -> AnswerT:
    if answer.status < 300:
        if is_deeper_than(answer.body, DEEPEST_ANSWER):
            raise EndpointError(
                f"answered {answer.status} with JSON that is nested more than {DEEPEST_ANSWER} levels deep"
            )
        try:
            value = read(answer.body)
        except EndpointError as error:
            text, body = (_without_secrets(each, headers) for each in (str(error), error.body))
            raise EndpointError(text, status=error.status, body=body) from error.__cause__
        if value is not None:
            return value
    text = _without_secrets(answer.body.decode("utf-8", "replace"), headers)
    shown = readable(text.encode())
    if answer.status < 300:
        raise EndpointError(f"answered {answer.status} with {_misfit(answer.body, shown)}")
    advice = ADVICE.get(answer.status)
    what = f"answered {answer.status}: {shown}" if shown else f"answered {answer.status}"
    raise EndpointError(
        f"{what.rstrip('.')}. {advice}" if advice else what, status=answer.status, body=text[:BODY_BEGINNING]
    )


def _misfit(body: bytes, shown: str) -> str:
    """Describe a reply that is not a JSON object, with the place and the reason."""
    if not shown:
        return "nothing"
    if body.lstrip()[:1] == b"<":
        return f"something that is not a JSON object: {shown}. {CHECK_ADDRESS}"
    if body.lstrip().startswith((b"data:", b"event:")):
        return f"a stream of events, although the request did not ask for one: {shown}"
    if body.startswith(BOM_UTF8):
        return f"a byte order mark at line 1 column 1, which JSON does not allow: {shown}"
    try:
        kind = type(orjson.loads(body)).__name__
    except orjson.JSONDecodeError as error:
        return f"something that is not a JSON object ({error}): {shown}"
    return f"something that is not a JSON object ({kind}): {shown}"


def _reason(error: ServerCallError) -> str:
    """Return an error's message without the method and address at its beginning, because the caller adds them."""
    return str(error).partition(": ")[2] or str(error)


def _with_context(error: EndpointError, method: str, url: str, tries: int) -> EndpointError:
    often = "" if tries == 1 else f" (tried {tries} times)"
    address = _without_login(url)
    complete = EndpointError(
        f"{method} {address} {error}{often}", status=error.status, body=error.body, was_sent=error.was_sent
    )
    return as_expected(complete, method=method, url=address)


@lru_cache(maxsize=64)
def _without_login(url: str) -> str:
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="").geturl()


def _without_secrets(text: str, headers: Mapping[str, str]) -> str:
    # Mask all header values, because an endpoint may quote a rejected key, and any header may contain a key.
    for value in headers.values():
        secret = value.removeprefix("Bearer ")
        if len(secret) >= SHORTEST_SECRET:
            text = text.replace(secret, REDACTED)
    return text
