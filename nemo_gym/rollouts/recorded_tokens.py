"""Token ids that the model servers record during rollouts, added to the results when the rollouts end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Self
from uuid import uuid4

from nemo_gym.calls.client import ServerClient
from nemo_gym.rollouts.outcome import Outcome, Record
from nemo_gym.schemas.row import ROLLOUT_ID_KEY, Row

if TYPE_CHECKING:
    from nemo_gym.capture.tokens.collecting import TokenCollector

ID_DIGITS = 8


class RecordedTokens:
    """Access to the tokens that are recorded during a client's rollouts."""

    def __init__(self, client: ServerClient, collector: TokenCollector, run_id: str = "") -> None:
        self._client = client
        self._collector = collector
        self._run_digits = run_id[:ID_DIGITS]

    @classmethod
    def of(cls, client: ServerClient, run_id: str = "") -> Self | None:
        """Return the recorded tokens of a run, or None if tokens are not recorded or another program reads them.

        `run_id` identifies a run that can be resumed.
        """
        config = client.address_book.settings.token_id_capture
        if not config.enabled:
            return None
        # Import these modules here, because only runs with token capture need them.
        from nemo_gym.capture.tokens.collecting import TokenCollector
        from nemo_gym.capture.tokens.recording import open_store

        store = open_store(config)
        return cls(client, TokenCollector(store, config), run_id) if hasattr(store, "freeze") else None

    async def run(self, row: Row, run: Callable[[Row], Awaitable[Record]]) -> Record:
        """Run one attempt and add its token ids. Raise `DataError` if too many earlier rollouts lack token ids."""
        base = _id_without_attempt(row) if self._client.address_book.captures_tokens_of(row.agent) else None
        if base is None:
            return await run(row)
        self._collector.check()
        # Make the id unique, because another client, or another run with the same folder, may use the same id.
        sent = row.with_fields({ROLLOUT_ID_KEY: f"{base}-{self._run_digits}{uuid4().hex[:ID_DIGITS]}"})
        record, has_failed = None, True
        try:
            record = await run(sent)
            has_failed = record.outcome is not Outcome.SCORED
        finally:
            fields = {} if record is None else record.row.fields
            ending = asyncio.to_thread(self._collector.end, str(sent.rollout_id), fields, has_failed=has_failed)
            await asyncio.shield(ending)
        if ROLLOUT_ID_KEY in row.fields:
            fields[ROLLOUT_ID_KEY] = row.fields[ROLLOUT_ID_KEY]
        else:
            fields.pop(ROLLOUT_ID_KEY, None)
        return record

    async def drop_left_by(self, run_ids: Iterable[str]) -> None:
        """Delete the token records that killed sessions of these runs have left."""
        for run_id in run_ids:
            await asyncio.to_thread(self._collector.drop_ending, f"-{run_id[:ID_DIGITS]}{'[0-9a-f]' * ID_DIGITS}")

    def check(self) -> None:
        """Raise `DataError` if too many rollouts lack tokens."""
        self._collector.check()

    async def aclose(self) -> None:
        """Delete the token records."""
        await asyncio.to_thread(self._collector.close)


@asynccontextmanager
async def kept_until_the_end(tokens: RecordedTokens | None) -> AsyncIterator[None]:
    """Delete the token records after the block. Until then, further model calls of ended rollouts are rejected."""
    try:
        yield
    finally:
        if tokens is not None:
            await tokens.aclose()


def _id_without_attempt(row: Row) -> str | None:
    """Return the id that all attempts of a row share, or None if the row's id is missing or invalid."""
    try:
        return row.of_attempt(0).rollout_id
    except ValueError:
        return None
