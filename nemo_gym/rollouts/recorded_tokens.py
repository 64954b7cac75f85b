"""Token ids that the model servers record during rollouts, added to the results when the rollouts end."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Self
from uuid import uuid4

from nemo_gym.calls.client import ServerClient
from nemo_gym.errors import DataError
from nemo_gym.rollouts.outcome import Outcome, Record
from nemo_gym.schemas.row import ROLLOUT_ID_KEY, Row

if TYPE_CHECKING:
    from nemo_gym.capture.tokens.entry import TokenSource

logger = logging.getLogger(__name__)

ID_DIGITS = 8
SHOWN_REASONS = 3


class RecordedTokens:
    """The tokens that are recorded during a client's rollouts."""

    def __init__(self, client: ServerClient, source: TokenSource, run_id: str = "") -> None:
        self._client = client
        self._source = source
        self._config = client.address_book.settings.token_id_capture
        self._run_digits = run_id[:ID_DIGITS]
        self._rollouts = self._masked = 0
        self._reasons: deque[str] = deque(maxlen=SHOWN_REASONS)
        """One reason for each of the last masked rollouts."""

    @classmethod
    def of(cls, client: ServerClient, run_id: str = "") -> Self | None:
        """Return the recorded tokens of a run, or None if tokens are not recorded or another program reads them.

        `run_id` identifies a run that can be resumed.
        """
        config = client.address_book.settings.token_id_capture
        if not config.enabled:
            return None
        # Imported here, because only runs with token capture need it.
        from nemo_gym.capture.tokens.recording import open_store

        store = open_store(config)
        return cls(client, store, run_id) if hasattr(store, "freeze") else None

    async def run(self, row: Row, run: Callable[[Row], Awaitable[Record]]) -> Record:
        """Run one attempt and add its token ids. Raise `DataError` if too many earlier rollouts lack token ids."""
        base = _id_without_attempt(row) if self._client.address_book.captures_tokens_of(row.agent) else None
        if base is None:
            return await run(row)
        self.check()
        # Make the id unique, because another client, or another run with the same folder, may use the same id.
        sent = row.with_fields({ROLLOUT_ID_KEY: f"{base}-{self._run_digits}{uuid4().hex[:ID_DIGITS]}"})
        record, scored = None, None
        try:
            record = await run(sent)
            scored = record.row if record.outcome is Outcome.SCORED or record.is_ungraded else None
        finally:
            reasons = await asyncio.shield(asyncio.to_thread(self._end, str(sent.rollout_id), scored))
            self._rollouts += scored is not None
            self._masked += bool(reasons)
            self._reasons += reasons[:1]
        if ROLLOUT_ID_KEY in row.fields:
            record.row.fields[ROLLOUT_ID_KEY] = row.fields[ROLLOUT_ID_KEY]
        else:
            record.row.fields.pop(ROLLOUT_ID_KEY, None)
        return record

    def _end(self, rollout_id: str, scored: Row | None) -> tuple[str, ...]:
        """Add the tokens of a rollout to its result if it was scored or will be, and delete their record.

        Return the reasons for a mask.
        """
        from nemo_gym.capture.tokens.collecting import add_recorded_tokens

        reasons: tuple[str, ...] = ()
        if scored is not None:
            rebuilds = self._config.rebuild_response
            reasons = add_recorded_tokens(scored.fields, rollout_id, self._source, rebuild_response=rebuilds)
        try:
            self._source.drop(rollout_id)
        except OSError as error:
            logger.warning("rollout %s: the record of its tokens could not be deleted: %s", rollout_id, error)
        return reasons

    async def drop_left_by(self, run_ids: Iterable[str]) -> None:
        """Delete the token records that killed sessions of these runs have left.

        Records in a user's class are not changed, because the class need not be able to list them.
        """
        from nemo_gym.capture.tokens.file_store import FileTokenStore

        source = self._source
        if isinstance(source, FileTokenStore):
            for run_id in run_ids:
                await asyncio.to_thread(source.drop_ending, f"-{run_id[:ID_DIGITS]}{'[0-9a-f]' * ID_DIGITS}")

    def check(self) -> None:
        """Raise `DataError` if more than `max_mask_fraction` of the rollouts are masked."""
        limit, count, masked = self._config.max_mask_fraction, self._rollouts, self._masked
        if limit is not None and count >= self._config.mask_fraction_min_samples and masked > limit * count:
            reasons = "; ".join(dict.fromkeys(self._reasons))
            raise DataError(
                f"token_id_capture.max_mask_fraction: {masked} of {count} rollouts ({masked / count:.0%}) lack tokens "
                f"and are masked, but only {limit:.0%} may. The last reasons: {reasons}. The collected rollouts are "
                "kept. Fix the cause, then continue with --resume."
            )

    async def aclose(self) -> None:
        """Delete the token records."""
        await asyncio.to_thread(self._source.close)


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
