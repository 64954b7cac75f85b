"""Rewrite image names, for example to fetch images from a mirror."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

Rewrites = Mapping[str, str] | Iterable[Mapping[str, str] | tuple[str, str]] | None

_FROM = ("from", "source", "prefix", "match", "old")
_TO = ("to", "target", "replacement", "replace", "new")


def rewrite_image(image: str, rewrites: Rewrites = None) -> str:
    """Replace the first of these prefixes that the image has; return it unchanged if it has none.

    Rewrites are `{prefix: replacement}`, or a list of pairs or of `{from: prefix, to: replacement}`. A prefix ends
    at a part of the name: `docker.io/me` does not match `docker.io/mehmet/x`.
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
    raise ValueError(f"an image rewrite needs the keys 'from' and 'to', but has {', '.join(rewrite) or 'no key'}")
