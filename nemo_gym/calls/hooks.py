"""How servers read what their caller and their folder hand them.

The defaults trust the types. Tests of server folders can hand over less than a real run does, and folders can use the
framework's names for something else. `use` replaces them for this process.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, MutableMapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar
from uuid import UUID, uuid4

if TYPE_CHECKING:
    from fastapi import FastAPI
    from omegaconf import DictConfig
    from starlette.requests import Request

    from nemo_gym.calls.address_book import Address, AddressBook
    from nemo_gym.http.reply import Reply


class FailedReply(NamedTuple):
    status: object
    body: bytes


ServerT = TypeVar("ServerT")


class Client(Protocol):
    """What the hooks use of a `ServerClient`."""

    address_book: AddressBook
    global_config_dict: DictConfig

    def address_of(self, server_name: str) -> Address: ...

    def _build_server_base_url(self, server_config_dict: Mapping[str, object]) -> str: ...


class Hooks:
    """The defaults, which suit the values of a real run."""

    def config(self) -> DictConfig:
        """Return the configuration of this process."""
        # Imported here, because converters need only `new_uuid`, and loading a configuration imports much.
        from nemo_gym.config.view import own_view

        return own_view()

    def new_uuid(self) -> UUID:
        """Return a number for a new id of an item or an answer."""
        return uuid4()

    def address_book(self, client: Client) -> AddressBook:
        """Return the servers that a client can call."""
        return client.address_book

    def base_url(self, client: Client, server: str) -> str:
        """Return the URL of a server, for programs with a client of their own."""
        return client._build_server_base_url(client.address_of(server)._asdict())

    def scope(self, request: Request) -> MutableMapping[str, Any]:
        """Return the ASGI scope of a request."""
        return request.scope

    def headers(self, reply: Reply) -> Mapping[str, str]:
        """Return the headers of a server's reply."""
        return reply.headers

    def cookies(self, reply: Reply) -> dict[str, str]:
        """Return the cookies that a reply sets, by name."""
        return reply.cookie_values

    async def failed_reply(self, reply: Reply) -> FailedReply:
        """Return the status and the body of a reply that reports an error."""
        return FailedReply(reply.status, await reply.read())

    def server(self, server: ServerT) -> ServerT:
        """Return the server as the framework sees it."""
        return server

    def setting(self, config: object, name: str) -> Any:
        """Return a setting of a server; None if its config class does not have it."""
        return getattr(config, name, None)

    def let_routes_replace(self, app: FastAPI, paths: Container[str]) -> None:
        """Let routes that a folder adds later replace the routes at these paths. By default, the first route wins."""

    def replaced_paths(self, app: FastAPI) -> frozenset[str]:
        """Return the paths at which a folder's route has replaced one."""
        return frozenset()

    def list_with_prefix(self, app: FastAPI, responses: Callable[..., object]) -> None:
        """List an agent's `responses` with a rollout's prefix, too. By default, list only the plain route."""


_used = [Hooks()]


def hooks() -> Hooks:
    """Return the hooks of this process."""
    return _used[0]


def use(replacement: Hooks) -> None:
    """Replace the hooks of this process."""
    _used[0] = replacement
