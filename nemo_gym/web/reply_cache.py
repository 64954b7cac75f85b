"""Middleware that lets the handlers of a model server use the cache of replies."""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send

from nemo_gym.http.reply_cache import ReplyCache, current_cache


class CachedReplies:
    """Middleware that sets the cache for the model calls that a request causes. See `ReplyCache`."""

    def __init__(self, app: ASGIApp, cache: ReplyCache) -> None:
        self.app = app
        self.cache = cache

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        token = current_cache.set(self.cache)
        try:
            await self.app(scope, receive, send)
        finally:
            current_cache.reset(token)
