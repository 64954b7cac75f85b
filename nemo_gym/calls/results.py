"""Parse a rollout's result from the reply of the server that ran or verified the rollout."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import orjson

from nemo_gym.errors import RolloutError
from nemo_gym.http.json_depth import DEEPEST_ROW, is_deeper_than
from nemo_gym.http.reply import readable
from nemo_gym.opaque import loads_opaque
from nemo_gym.schemas.row import Row, mirror_mask
from nemo_gym.text import with_article

Loads = Callable[[bytes], Any]
"""A JSON parser. `loads_opaque` leaves token arrays unparsed, for results that are only serialized again."""


def check_is_object(body: bytes, *, server: str, during: str, otherwise: type[RolloutError]) -> None:
    """Raise `otherwise` if a body is valid JSON, but not an object."""
    if body[:1] == b"{":
        return
    with suppress(orjson.JSONDecodeError):
        result = orjson.loads(body)
        if not isinstance(result, dict):
            found = with_article(type(result).__name__)
            raise otherwise(f"{server}: {during} returned {found}, not an object", server=server)


def result_of_reply(
    body: bytes, row: Row, *, server: str, during: str, otherwise: type[RolloutError], loads: Loads = loads_opaque
) -> Row:
    """Return a reply's result with the row's identity fields. Raise `otherwise` unless the reply is a JSON object."""
    if is_deeper_than(body, DEEPEST_ROW):
        raise otherwise(
            f"{server}: the reply of {during} is nested more than {DEEPEST_ROW} levels deep", server=server
        )
    try:
        result = loads(body)
    except orjson.JSONDecodeError as error:
        raise otherwise(
            f"{server}: the reply of {during} is not valid JSON ({error.msg}): {readable(body, 200)}", server=server
        ) from error
    check_is_object(body, server=server, during=during, otherwise=otherwise)
    if result.get("mask_sample") is True:
        mirror_mask(result)
    return Row({**result, **row.identity})
