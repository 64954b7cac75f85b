"""The client that calls other servers by their configured names."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, Self

from omegaconf import DictConfig, OmegaConf
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, ValidationError

from nemo_gym.calls.address_book import Address, AddressBook
from nemo_gym.calls.caller import Caller
from nemo_gym.calls.directory import Directory
from nemo_gym.calls.hooks import hooks
from nemo_gym.calls.look_up import looked_up
from nemo_gym.calls.places import Places
from nemo_gym.calls.running import run_token_for, tls_for
from nemo_gym.config.access import RUN_TOKEN_ENV_VAR, configured_token
from nemo_gym.config.foreign import run_of_config
from nemo_gym.config.models import HeadConfig, RunConfig
from nemo_gym.config.settings import BaseServerConfig, http_url
from nemo_gym.config.shared_run import SharedRun
from nemo_gym.config.tls import Tls, scheme_of
from nemo_gym.config.view import current_view
from nemo_gym.errors import HeadServerNotFoundError, ServerCallError
from nemo_gym.http.blocking import ask
from nemo_gym.http.internal import InternalClient
from nemo_gym.http.reply import NotTrusted, Reply, ReplyTimedOut
from nemo_gym.http.tls import needs_tls, speaks_tls
from nemo_gym.jsonl import loads_exact
from nemo_gym.schemas.rollout import RUN_TOKEN_HEADER, run_headers
from nemo_gym.text import problems_in

if TYPE_CHECKING:
    from aiohttp import ClientResponse

Head = BaseServerConfig | HeadConfig
ServerStatus = Literal["success", "connection_error", "timeout", "unknown_error"]

RUN_PATH = "/run"
"""The path at which the head server describes its run."""
POLL_TIMEOUT_S = 5.0

UNAUTHORISED = 401
OK = 200
HEAD_TIMEOUT_S = 10.0


class ServerClient(BaseModel):
    """Client that calls servers by instance name.

    It sends only the cookies that the caller passes, and returns new cookies in `reply.cookies`. Rollouts that share a
    client therefore never share a session.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    head_server_config: BaseServerConfig
    global_config_dict: DictConfig
    """The run's configuration, which only server folders read."""
    address_book: AddressBook = Field(default_factory=AddressBook, repr=False)
    """The servers to call. Default: those of `global_config_dict`, for clients that server folders create."""

    _caller: Caller = PrivateAttr()
    _shared: SharedRun | None = PrivateAttr(None)

    def model_post_init(self, context: object, /) -> None:
        if "address_book" not in self.model_fields_set:
            # The configuration may be missing, because tests construct a client without it.
            self.address_book = AddressBook.of_run(run_of_config(self.__dict__.get("global_config_dict") or {}))
        book = self.address_book
        # Add the rollout id to URL paths when model calls are recorded, for servers without nemo_gym's middleware.
        names_rollouts = book.settings.observability_enabled
        self._caller = Caller(self._open_connections(), self.address_of, book.tier_of, names_rollouts=names_rollouts)
        self._caller.shortcuts = dict(book.shortcuts)
        if book.head is not None:
            directory = Directory(book.head, book.member, book.run_token, self._caller.connections)
            self._caller.places = Places(book, directory, self._caller.shortcuts)
        # In a run on several machines, the header with the run id differs for each server, and `Places` adds it.
        self._caller.run_headers = run_headers(book.run_token, book.run_id if book.head is None else "")

    def _open_connections(self) -> InternalClient:
        return InternalClient(tls=self.address_book.tls)

    @classmethod
    def load_head_server_config(cls) -> BaseServerConfig:
        """Return the head server's address from the configuration of this process."""
        return BaseServerConfig.model_validate(dict(hooks().config()["head_server"]))

    @classmethod
    def load_from_global_config(
        cls, head_server_config: Head | None = None, run_token: str | None = None, tls: Tls | None = None
    ) -> Self:
        """Return a client for the servers of a run, with the configuration from its head server.

        The default head server is the one in this process's configuration. `run_token` and `tls` default to the
        configured values, or else to those recorded for that run on this machine. Raises `HeadServerNotFoundError`,
        which is also a `ValueError` and names the address, if no head server answers.
        """
        head_server_config = head_server_config or cls.load_head_server_config()
        host, port = head_server_config.host, head_server_config.port
        run_token = run_token or configured_token(current_view() or {}) or run_token_for(host, port)
        tls = tls or _tls_of(head_server_config) or tls_for(host, port)
        address = http_url(host, port, scheme_of(tls))
        headers = {RUN_TOKEN_HEADER: run_token} if run_token else {}
        try:
            reply = ask("GET", f"{address}{RUN_PATH}", timeout_s=HEAD_TIMEOUT_S, tls=tls, headers=headers)
            if reply.status == UNAUTHORISED:
                raise HeadServerNotFoundError(wants_token(address))
            if reply.status != OK:
                raise ValueError(f"the reply has HTTP status {reply.status}")
            shared = _described(reply.body)
        except HeadServerNotFoundError:
            raise
        except NotTrusted as error:
            # Raise without the cause, because its long traceback would hide the message, which includes the cause.
            raise HeadServerNotFoundError(f"cannot call {address}: {error}.") from None
        except (ServerCallError, ValueError) as error:
            if tls is None and speaks_tls(host, port):
                raise HeadServerNotFoundError(f"{needs_tls(address)}.") from None
            raise HeadServerNotFoundError(
                f"no head server answers at {address}{RUN_PATH} ({error}). Start the servers with ng_run, or name the "
                "run with --head_server.host … --head_server.port …"
            ) from None
        run = shared.run
        address_book = replace(
            AddressBook.of_run(run),
            # Ignore the sockets of a run on several machines, because they may be on another machine than this client.
            shortcuts={} if run.member else run.shortcuts,
            run_token=run_token,
            tls=tls,
            head=Address(host, port) if run.member else None,
            member="",
        )
        client = cls(
            head_server_config=BaseServerConfig(host=host, port=port),
            global_config_dict=OmegaConf.create(shared.config_yaml),
            address_book=address_book,
        )
        client._shared = shared
        return client

    @classmethod
    def of_run(cls, run: RunConfig) -> Self:
        """Return a client for the servers of a run that this process started."""
        head = BaseServerConfig(host=run.head.host, port=run.head.port)
        return cls(
            head_server_config=head, global_config_dict=OmegaConf.create({}), address_book=AddressBook.of_run(run)
        )

    @property
    def shared_run(self) -> SharedRun:
        """The run as described by its head server. Raise `RuntimeError` if the client was created without one."""
        if self._shared is None:
            raise RuntimeError("this client was not created from the description of a head server")
        return self._shared

    def address_of(self, server_name: str) -> Address:
        """Return the address of a server. For an unknown name, raise `ServerCallError` with the known names.

        If the run has several machines, this asks the head server and waits up to ten seconds for the server.
        """
        known = self.address_book.address_of(server_name)
        return known if self.directory is None else looked_up(self.address_book, server_name)

    @property
    def directory(self) -> Directory | None:
        """The addresses of the servers on all machines; None if the run has one machine."""
        return self._caller.places.directory if self._caller.places else None

    def agent_names(self) -> list[str]:
        """Return all names of the agents: their own, and those of their `environment_servers` blocks."""
        return self.address_book.agent_names()

    def _build_server_base_url(self, server_config_dict: Mapping[str, object]) -> str:
        scheme = scheme_of(hooks().address_book(self).tls)
        return f"{scheme}://{server_config_dict['host']}:{server_config_dict['port']}"

    async def request(self, server_name: str, url_path: str, method: str, **kwargs: object) -> Reply:
        """Send one request and return the complete reply, with any status.

        Keywords: `json` (a pydantic model, sent without its unset fields, or anything that orjson writes), `data`
        (bytes or text), `cookies`, `headers`, `params`, `timeouts`, or aiohttp's `timeout` instead of `timeouts`.
        Raises `ServerCallError` if there is no reply.
        """
        return await self._calls(server_name, url_path, method, **kwargs)

    async def get(self, server_name: str, url_path: str, **kwargs: object) -> Reply:
        return await self._calls(server_name, url_path, "GET", **kwargs)

    async def post(self, server_name: str, url_path: str, **kwargs: object) -> Reply:
        return await self._calls(server_name, url_path, "POST", **kwargs)

    def poll_for_status(self, server_name: str) -> ServerStatus:
        """Return "success" if a server (or `head_server`) answers in 5 s with any status, else the kind of failure."""
        head = self.head_server_config
        try:
            host, port = (head.host, head.port) if server_name == "head_server" else self.address_of(server_name)
        except ServerCallError:
            if server_name not in self.address_book.servers:
                raise
            # Report a known server without an address as unreachable, because no machine has started it yet.
            return "connection_error"
        tls = self.address_book.tls
        try:
            ask("GET", http_url(host, port, scheme_of(tls)), timeout_s=POLL_TIMEOUT_S, tls=tls, reads_body=False)
        except ReplyTimedOut:
            return "timeout"
        except ServerCallError:
            return "connection_error"
        return "success"

    async def aclose(self) -> None:
        await self._caller.connections.close()

    @property
    def _calls(self) -> Callable[..., Awaitable[Reply]]:
        # Read the private attribute directly, because pydantic's access would take half as long as the call itself.
        caller: Caller = self.__pydantic_private__["_caller"]  # type: ignore[index]
        return caller.call


def _described(body: bytes) -> SharedRun:
    try:
        return SharedRun.model_validate_json(body)
    except ValidationError as error:
        raise ValueError(f"the reply does not describe a run: {problems_in(error, 1)}") from None


def _tls_of(head: Head) -> Tls | None:
    """Return the TLS settings in `head`, or else those in this process's configuration."""
    given = head.tls if isinstance(head, HeadConfig) else None
    return given or Tls.of(current_view() or {})


def wants_token(address: str) -> str:
    """Return the error message for a call without the run token, which the head server rejects."""
    return (
        f"the run at {address} requires its run token. Pass it with --run_token …, in env.yaml or in "
        f"{RUN_TOKEN_ENV_VAR}; it is the run_token of the run's configuration. Commands of the same user on the "
        "run's machine find it automatically."
    )


async def raise_for_status(response: Reply | ClientResponse) -> None:
    """Raise the reply's own error if its status is 400 or more. The error has the body as `response_content`."""
    if response.ok:
        return
    content = await response.content.read()
    try:
        response.raise_for_status()
    except Exception as error:
        error.response_content = content  # type: ignore[attr-defined]
        raise


async def get_response_json(response: Reply | ClientResponse) -> Any:
    """Parse the reply's body as JSON. Raise `orjson.JSONDecodeError` (a `ValueError`) if it is not JSON."""
    return loads_exact(await response.read())
