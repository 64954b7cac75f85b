"""Special tokens are broken up in every spelling that a tokenizer may accept, and other text stays the same."""

import unicodedata

import pytest

from nemo_gym.grading import SpecialTokens

TOKENS = (
    "<|im_end|>", "<|im_start|>", "<|eot_id|>", "<|endoftext|>", "<|start_header_id|>", "[INST]", "[/INST]",
    "<<SYS>>", "<</SYS>>", "<s>", "</s>", "<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>", "<extra_id_7>",
    "<unused12>", "[gMASK]", "[CLS]", "[SEP]", "[TOOL_CALLS]", "[SYSTEM_PROMPT]",
)  # fmt: skip


def spellings(token):
    """Return forms of a token that some tokenizers read as the token."""
    wide = "".join(chr(ord(char) + 0xFEE0) if "!" <= char <= "~" else char for char in token)
    yield from (token, token.upper(), wide, "\u200b".join(token), f"a{token}b", f"{token}{token}")
    yield f"{token[:2]}{token}{token[2:]}"


def as_a_tokenizer_reads(text):
    """Return the text without invisible characters, in normal width and one case."""
    shown = "".join(char for char in text if unicodedata.category(char) != "Cf")
    return unicodedata.normalize("NFKC", shown).casefold()


@pytest.mark.parametrize("token", TOKENS)
def test_no_spelling_of_a_token_survives(token):
    tokens = SpecialTokens()
    for text in spellings(token):
        assert tokens.occur_in(text)
        escaped = tokens.escaped(text)
        assert token.casefold() not in as_a_tokenizer_reads(escaped)
        assert escaped.replace(" ", "") == text
        assert tokens.escaped(escaped) == escaped


def test_ordinary_text_stays_the_same():
    texts = [
        "a < b and b > c",
        "x | y",
        "if a <b: pass",
        "List[int] [1] [Inst.] <b>bold</b> <script>",
        "f(x) |> g",
        "",
    ]
    assert [SpecialTokens().escaped(text) for text in texts] == texts


def test_tokens_of_a_model_can_be_added():
    tokens = SpecialTokens(["~end~", "d~x", "<｜User｜>"])
    assert tokens.escaped("~end~ <｜User｜>") == "~ end~ < ｜User｜>"
    assert tokens.escaped("and~x") == "and ~x"


def test_escaping_takes_linear_time():
    # Quadratic time would be longer than the timeout of a test.
    for part in ("<|", "<", "[/INST", "\u200b", "<\u200b"):
        text = part * 40_000
        assert SpecialTokens().escaped(text).replace(" ", "") == text
