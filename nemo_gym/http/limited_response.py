"""aiohttp's response with a limit on the size of its body."""

from __future__ import annotations

import aiohttp

from nemo_gym.http.reply import MAX_BODY_BYTES, too_large


class LimitedResponse(aiohttp.ClientResponse):
    """A response whose `read`, `json` and `text` raise `ClientPayloadError` if the body is too large."""

    async def read(self) -> bytes:
        """Read the body. The limit applies after decompression, because a few kilobytes may expand to gigabytes."""
        if self._body is None:
            parts, size = [], 0
            async for part in self.content.iter_any():
                parts.append(part)
                size += len(part)
                if size > MAX_BODY_BYTES:
                    self.close()
                    raise aiohttp.ClientPayloadError(too_large(MAX_BODY_BYTES))
            self._body = b"".join(parts)
        return await super().read()
