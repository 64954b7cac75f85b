"""Where an image is fetched from: names rewritten for a mirror."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

Rewrites = Mapping[str, str] | Iterable[Mapping[str, str] | tuple[str, str]] | None

_FROM = ("from", "source", "prefix", "match", "old")
_TO = ("to", "target", "replacement", "replace", "new")


def rewrite_image(image: str, rewrites: Rewrites = None) -> str:
    """The image with the first of these beginnings that it has replaced; as it is where it has none of them.

    Rewrites are `{beginning: other}`, or a list of pairs or of `{from: beginning, to: other}`. A beginning ends where
    a part of the name does: `docker.io/me` is none of `docker.io/mehmet/x`.
    """
    for old, new in _pairs(rewrites):
        if old and image.startswith(old) and (old[-1] in "/:@" or image[len(old) :][:1] in ("", "/", ":", "@")):
            return new + image[len(old) :]
    return image


def _pairs(rewrites: Rewrites) -> list[tuple[str, str]]:
    if rewrites is None:
        return []
    if isinstance(rewrites, Mapping):
        return list(rewrites.items())
    return [(_of(each, _FROM), _of(each, _TO)) if isinstance(each, Mapping) else _pair(each) for each in rewrites]


def _pair(given: tuple[str, str]) -> tuple[str, str]:
    old, new = given
    return old, new


def _of(rewrite: Mapping[str, Any], names: tuple[str, ...]) -> str:
    for name in names:
        if name in rewrite:
            return str(rewrite[name])
    raise ValueError(f"a rewrite of an image needs the keys 'from' and 'to', and has {', '.join(rewrite) or 'none'}")
