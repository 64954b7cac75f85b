"""A look-up of one address for code that cannot await, such as that which passes a URL to another program."""

from __future__ import annotations

import json
import time
from http.client import HTTPException

from nemo_gym.calls.address_book import Address, AddressBook
from nemo_gym.calls.directory import ADDRESSES_PATH
from nemo_gym.errors import ServerCallError
from nemo_gym.http.tls import connection_to
from nemo_gym.schemas.rollout import RUN_TOKEN_HEADER

LONGEST_S = 10.0
PAUSE_S = 0.5
ANSWER_TIMEOUT_S = 5.0


def looked_up(book: AddressBook, server: str) -> Address:
    """Return the address of a server: this machine's own if it has one, else one that the head server lists.

    Wait up to ten seconds, then raise `ServerCallError`.
    """
    instance = book.aliases.get(server, server)
    own = book.address_of(instance)
    deadline = time.monotonic() + LONGEST_S
    while True:
        listed, trouble = _asked(book)
        found = listed.get(instance, ())
        if any(member == book.member for _, _, member, _ in found) and own.port:
            return own
        if found:
            host, port, *_ = found[0]
            return Address(host, port)
        if trouble and own.host and own.port:
            # The address that was known when this client was made.
            return own
        if time.monotonic() > deadline:
            reason = trouble or "no machine of the run has started it"
            raise ServerCallError(f"{server}: {reason} ({LONGEST_S:g} s)", was_sent=False)
        time.sleep(PAUSE_S)


def _asked(book: AddressBook) -> tuple[dict[str, list[tuple[str, int, str, str]]], str]:
    """Return the addresses by server, or the reason why there are none."""
    assert book.head is not None
    connection = connection_to(*book.head, book.tls, ANSWER_TIMEOUT_S)
    try:
        connection.request("GET", ADDRESSES_PATH, headers={RUN_TOKEN_HEADER: book.run_token or ""})
        reply = connection.getresponse()
        body = json.loads(reply.read())
        return (body, "") if reply.status == 200 else ({}, f"the head server answered {reply.status}")
    except (OSError, HTTPException, ValueError) as error:
        return {}, f"the head server at {book.head.host}:{book.head.port} does not answer ({error})"
    finally:
        connection.close()
