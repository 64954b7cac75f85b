"""Make the special tokens of chat templates harmless in texts that a policy wrote.

A tokenizer turns `<|im_end|>` into the token that ends a turn, even within an answer. So in a judge's prompt, an
answer could end its own turn and add another turn that praises the answer.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

BRACKETED = (
    "[INST]", "[/INST]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]",
    "[TOOL_CALLS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]", "[gMASK]", "[MASK]", "[CLS]", "[SEP]", "[PAD]", "[UNK]",
    "[BOS]", "[EOS]", "<<SYS>>", "<</SYS>>", "<s>", "</s>", "<bos>", "<eos>", "<pad>", "<unk>", "<mask>", "<cls>",
    "<sep>", "<sop>", "<eop>", "<start_of_turn>", "<end_of_turn>", "<start_of_image>", "<end_of_utterance>",
)  # fmt: skip
NUMBERED = ("<extra_id_", "<unused", "<reserved_", "<special_")
PIPED = "<|"
"""The start of `<|im_start|>`, `<|eot_id|>` and most other special tokens."""
INVISIBLE = "[\u00ad\u034f\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff]*"
"""Characters that some tokenizers remove before they look for special tokens."""
FULL_WIDTH = 0xFEE0
"""The code point distance of the full-width `＜` from `<`.

Full-width forms are escaped, too, because some tokenizers normalise them before they look for special tokens."""


class SpecialTokens:
    """The common special tokens, plus a specific model's own tokens (`more`)."""

    def __init__(self, more: Iterable[str] = ()) -> None:
        tokens = sorted({PIPED, *NUMBERED, *BRACKETED, *more}, key=len, reverse=True)
        # Without the lookahead for the first character, the search takes ten times as long.
        first = "".join(sorted({_either(token[0]) for token in tokens}))
        self._pattern = re.compile(f"(?=[{first}])(?:{'|'.join(map(_spelled, tokens))})", re.IGNORECASE)

    def occur_in(self, text: str) -> bool:
        return self._pattern.search(text) is not None

    def escaped(self, text: str) -> str:
        """Return the text with a space in each special token, so that readers recognize it, but tokenizers do not."""
        # Repeat, because one pass does not find a token that overlaps another one.
        while self.occur_in(text):
            text = self._pattern.sub(lambda found: f"{found[0][0]} {found[0][1:]}", text)
        return text


def visible_text(text: str) -> str:
    """Return a text without invisible characters and with full-width forms replaced, as a tokenizer might read it."""
    return re.sub(INVISIBLE, "", unicodedata.normalize("NFKC", text))


def _spelled(token: str) -> str:
    return INVISIBLE.join(f"[{_either(char)}]" for char in token)


def _either(char: str) -> str:
    """Return a character for a regex character class, with its full-width form if it has one."""
    return re.escape(char) + (chr(ord(char) + FULL_WIDTH) if "!" <= char <= "~" else "")
