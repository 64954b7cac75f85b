"""The text of tokens, decoded by a tokenizer on disk or by an engine."""

from __future__ import annotations

from pathlib import Path

import pytest

from nemo_gym.errors import DataError
from nemo_gym.viewer import decoding
from nemo_gym.viewer.decoding import texts_of

TEXT = " a café – 数学 🙂 <end>"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A tokenizer of bytes, so that most characters are several tokens."""
    tokenizers = pytest.importorskip("tokenizers", reason="the Python package tokenizers is not installed")
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    model = tokenizers.models.BPE({letter: number for number, letter in enumerate(alphabet)}, [])
    made = tokenizers.Tokenizer(model)
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    made.add_special_tokens(["<end>"])
    made.save(str(tmp_path / "tokenizer.json"))
    return tmp_path


def encoded(folder: Path) -> list[int]:
    import tokenizers

    ids: list[int] = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json")).encode(TEXT).ids
    return ids


def test_tokens_are_decoded_one_by_one(folder: Path) -> None:
    ids = encoded(folder)
    texts = texts_of(ids, str(folder), None)
    assert texts is not None
    # A character appears at its last token.
    assert (len(texts), "".join(texts), texts[-1]) == (len(ids), TEXT, "<end>")
    assert texts == texts_of(ids, str(folder / "tokenizer.json"), None)


def test_bytes_of_no_character_are_shown(folder: Path) -> None:
    ids = [each for each in encoded(folder)[-5:-4] for _ in range(40)]
    texts = texts_of(ids, str(folder), None)
    assert texts is not None
    assert "\ufffd" in "".join(texts)


def test_model_is_found_in_the_cache(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = folder / "hub" / "models--org--a.model" / "snapshots" / "1"
    snapshot.mkdir(parents=True)
    (folder / "tokenizer.json").rename(snapshot / "tokenizer.json")
    monkeypatch.setenv("HF_HUB_CACHE", str(folder / "hub"))
    assert texts_of(encoded(snapshot), None, "org/a.model") is not None
    assert texts_of([1], None, "org/another") is None


@pytest.mark.parametrize("model", [None, "policy", "../secret", "/etc", "a/b/c", "..", "a/.."])
def test_other_names_are_not_looked_up(model: str | None) -> None:
    assert texts_of([1], None, model) is None


def test_unusable_tokenizer_is_reported(tmp_path: Path) -> None:
    pytest.importorskip("tokenizers", reason="the Python package tokenizers is not installed")
    with pytest.raises(DataError, match=r"not a tokenizer .*Pass the folder of a tokenizer\.json"):
        texts_of([1], str(tmp_path), None)


def test_engine_decodes_each_token_once(run_endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = [*map(ord, "Aha!"), ord("h")]
    with run_endpoint() as url:
        for address in (url, f"{url}/v1"):
            assert texts_of(ids, address, "echo") == ["A", "h", "a", "!", "h"]
        monkeypatch.setattr(decoding, "MOST_ASKED", 1)
        assert texts_of(ids, url, "another") == ["", "", "", "!", ""]
    with pytest.raises(DataError, match="/detokenize failed"):
        texts_of([7], url, "echo")
