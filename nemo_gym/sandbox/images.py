"""Rewrite image names, for example to fetch images from a mirror."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

Rewrites = Mapping[str, str] | Iterable[Mapping[str, str] | tuple[str, str]] | None

_FROM = ("from", "source", "prefix", "match", "old")
_TO = ("to", "target", "replacement", "replace", "new")


def rewrite_image(image: str, rewrites: Rewrites = None) -> str:
    """Replace the first prefix in `rewrites` that matches the image name. Return the name unchanged if none matches.

    Rewrites are `{prefix: replacement}`, or a list of pairs or of `{from: prefix, to: replacement}`. A prefix matches
    only whole parts of the name: `docker.io/me` does not match `docker.io/mehmet/x`.
    """
    pairs = rewrites.items() if isinstance(rewrites, Mapping) else [_pair(each) for each in rewrites or ()]
    for old, new in pairs:
        if old and image.startswith(old) and (old[-1] in "/:@" or image[len(old) :][:1] in ("", "/", ":", "@")):
            return new + image[len(old) :]
    return image


def _pair(rewrite: Mapping[str, str] | tuple[str, str]) -> tuple[str, str]:
    if not isinstance(rewrite, Mapping):
        return rewrite
    found = [next((str(rewrite[name]) for name in names if name in rewrite), None) for names in (_FROM, _TO)]
    if found[0] is None or found[1] is None:
        raise ValueError(f"an image rewrite needs the keys 'from' and 'to', but has {', '.join(rewrite) or 'no key'}")
    return found[0], found[1]
