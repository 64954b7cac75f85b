"""Choose the destination of each call in a run on several machines."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from typing import NamedTuple

from nemo_gym.calls.address_book import AddressBook
from nemo_gym.calls.directory import Directory, Listed
from nemo_gym.config.hosts import this_machine
from nemo_gym.schemas.rollout import RUN_ID_HEADER, run_id_of_server


class Place(NamedTuple):
    """The destination of one try of a call."""

    host: str
    port: int
    shortcut: str | None
    """A unix socket of the same server, if the server is on this machine."""
    header: tuple[bytes, bytes]
    """A header that names the intended run and server, because another server may now use the address."""
    listed: Listed


class Places:
    """The look-up of places for calls to a run's servers, by server name or alias."""

    def __init__(self, book: AddressBook, directory: Directory, shortcuts: MutableMapping[str, str]) -> None:
        """Use the unix sockets in `shortcuts`, from which `Caller` removes sockets that do not work any more."""
        self.directory = directory
        self._own = book.servers
        self.failed: set[str] = set()
        """Unix sockets that do not work any more."""
        self._shortcuts = shortcuts
        self._aliases = book.aliases
        self._headers: Mapping[str, tuple[bytes, bytes]] = {
            name: (RUN_ID_HEADER.encode(), run_id_of_server(book.run_id, self._instance(name)).encode())
            for name in book.servers
        }

    def knows(self, server: str) -> bool:
        """Return whether the configuration of the run has a server with this name."""
        return server in self._own

    async def find(self, server: str, rollout_id: str | None) -> Place | None:
        """Return the place to send a call to, or None while no machine has the server."""
        listed = await self.directory.choose(self._instance(server), rollout_id)
        if listed is None:
            return None
        header = self._headers[server]
        own = self._own[server]
        if listed.member == self.directory.member and own.port:
            # Use the local address, because the advertised one may work only from other machines.
            return Place(own.host, own.port, self._shortcuts.get(server), header, listed)
        return Place(listed.host, listed.port, self._shortcut_of(listed), header, listed)

    def _shortcut_of(self, listed: Listed) -> str | None:
        """Return the server's unix socket if the server is on this machine and the socket has not failed."""
        machine, _, path = listed.shortcut.partition(":")
        return path if path and machine == this_machine() and path not in self.failed else None

    async def avoid(self, place: Place) -> None:
        """Avoid a place that could not be reached. Refresh the addresses, because the server may have a new one."""
        self.directory.distrust(place.listed)
        await self.directory.refresh()

    def why_missing(self, server: str) -> str:
        """Return the reason why `find` returned None."""
        return self.directory.trouble or f"no machine of the run has started {self._instance(server)}"

    def _instance(self, name: str) -> str:
        return self._aliases.get(name, name)
