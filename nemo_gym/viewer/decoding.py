"""The text of each token, from a tokenizer on disk or from an engine."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path

import orjson

from nemo_gym.errors import DataError, ServerCallError
from nemo_gym.http.blocking import ask

TIMEOUT_S = 10.0
AT_ONCE = 8
MOST_ASKED = 2_000
"""The maximum number of different tokens whose texts an engine is asked for, because each is a request."""
LONGEST_CHARACTER = 16
"""The maximum number of tokens that are joined because they end within a character."""
_NAME = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")


def texts_of(ids: Sequence[int], tokenizer: str | None, model: str | None) -> list[str] | None:
    """Return the text of each token, or None if no tokenizer is known.

    `tokenizer` is a folder, a file `tokenizer.json`, or the address of an engine. Without it, use the tokenizer of the
    model in the Hugging Face cache. Raise `DataError` if the tokenizer cannot be used.
    """
    if tokenizer and tokenizer.startswith(("http:", "https:")):
        return _of_engine(ids, tokenizer.rstrip("/").removesuffix("/v1"), model)
    path = Path(tokenizer) if tokenizer else _cached(model)
    if path is None:
        return None
    return _joined(ids, _decoder(path / "tokenizer.json" if path.is_dir() else path))


def _cached(model: str | None) -> Path | None:
    """Return the newest tokenizer of a model in the Hugging Face cache."""
    if model is None or not _NAME.fullmatch(model):
        return None
    home = Path(os.environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface")
    hub = Path(os.environ.get("HF_HUB_CACHE") or home / "hub")
    found = (hub / f"models--{model.replace('/', '--')}" / "snapshots").glob("*/tokenizer.json")
    return max(found, key=lambda path: path.stat().st_mtime, default=None)


@lru_cache(maxsize=4)
def _decoder(path: Path) -> Callable[[list[int]], str]:
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise DataError(f"{path}: needs the package tokenizers: pip install tokenizers") from error
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # the package raises Exception itself
        raise DataError(f"{path}: not a tokenizer ({error}). Pass the folder of a tokenizer.json.") from error
    return lambda ids: str(tokenizer.decode(ids, skip_special_tokens=False))


def _joined(ids: Sequence[int], decode: Callable[[list[int]], str]) -> list[str]:
    """Decode each token with the one before it, because spaces and characters may depend on it."""
    texts: list[str] = []
    before, begin = 0, 0
    for end in range(1, len(ids) + 1):
        text = decode([*ids[before:end]])
        is_part = text.endswith("\ufffd") and end - begin < LONGEST_CHARACTER
        texts.append("" if is_part else text[len(decode([*ids[before:begin]])) :])
        if not is_part:
            before, begin = begin, end
    return texts


def _of_engine(ids: Sequence[int], url: str, model: str | None) -> list[str]:
    different = sorted({*ids})[:MOST_ASKED]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        try:
            found = pool.map(lambda each: _detokenized(url, model, each), different)
            texts = dict(zip(different, found, strict=True))
        finally:
            # After a failure, do not wait for the timeouts of all other requests.
            pool.shutdown(wait=False, cancel_futures=True)
    return [texts.get(each, "") for each in ids]


@lru_cache(maxsize=200_000)
def _detokenized(url: str, model: str | None, token: int) -> str:
    body = orjson.dumps({"model": model, "tokens": [token]})
    headers = {"Content-Type": "application/json"}
    try:
        reply = ask("POST", f"{url}/detokenize", timeout_s=TIMEOUT_S, headers=headers, body=body)
        return str(orjson.loads(reply.body)["prompt"])
    except (ServerCallError, ValueError, KeyError, TypeError) as error:
        problem = str(error) if isinstance(error, ServerCallError) else f"status {reply.status}"
        raise DataError(
            f"--tokenizer {url}: /detokenize failed ({problem}). Check that the engine serves it."
        ) from error
