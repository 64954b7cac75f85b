"""Blocking look-ups of addresses, for code that cannot await, such as code that passes a URL to another program."""

from __future__ import annotations

import time
from typing import NamedTuple

from nemo_gym.calls.address_book import Address, AddressBook
from nemo_gym.calls.directory import ADDRESSES_PATH, LISTS, Listed
from nemo_gym.config.settings import http_url
from nemo_gym.config.tls import scheme_of
from nemo_gym.errors import ServerCallError
from nemo_gym.http.blocking import ask
from nemo_gym.schemas.rollout import RUN_TOKEN_HEADER

LONGEST_S = 10.0
OK = 200
PAUSE_S = 0.5
ANSWER_TIMEOUT_S = 5.0


def looked_up(book: AddressBook, server: str) -> Address:
    """Return the address of a server: the local one if this machine has the server, else one from the head server.

    Raise `ServerCallError` if the server is not found within ten seconds.
    """
    instance = book.aliases.get(server, server)
    own = book.address_of(instance)
    deadline = time.monotonic() + LONGEST_S
    while True:
        listed, trouble = addresses_of(book)
        found = listed.get(instance, ())
        if any(each.member == book.member for each in found) and own.port:
            return own
        if found:
            return Address(found[0].host, found[0].port)
        if trouble and own.host and own.port:
            # The head server does not answer. Use the address that was known when this client was created.
            return own
        if time.monotonic() > deadline:
            reason = trouble or "no machine of the run has started this server"
            raise ServerCallError(f"{server}: {reason} (waited {LONGEST_S:g} s)", was_sent=False)
        time.sleep(PAUSE_S)


class Addresses(NamedTuple):
    """The addresses of a run's servers."""

    listed: dict[str, list[Listed]]
    """The addresses of each server that a machine of the run has started."""
    trouble: str
    """The reason why the addresses are not known; empty if they are known."""


def addresses_of(book: AddressBook) -> Addresses:
    """Ask the head server for the addresses of the servers of a run on several machines, without a retry."""
    assert book.head is not None
    url = http_url(*book.head, scheme_of(book.tls)) + ADDRESSES_PATH
    headers = {RUN_TOKEN_HEADER: book.run_token or ""}
    try:
        reply = ask("GET", url, timeout_s=ANSWER_TIMEOUT_S, tls=book.tls, headers=headers)
        if reply.status != OK:
            return Addresses({}, f"the head server answered {reply.status}")
        return Addresses(LISTS.validate_json(reply.body), "")
    except (ServerCallError, ValueError) as error:
        return Addresses({}, f"the head server at {book.head.host}:{book.head.port} does not answer ({error})")
