"""Find further options that the text after a chosen letter also chooses, with any words between them."""

from __future__ import annotations

import re
from collections.abc import Set

from nemo_gym.grading import option_letter

FITS_TOO = re.compile(
    r"[)\].]*\s+(?:(?:(?:is|seems|looks|would|could|can|may|might|be|also|equally|just|as)\s+)++"
    r"(?:possible|plausible|likely|correct|right|true|acceptable|valid|fits?|works?)"
    r"|(?:fits|works)\s+(?:too|also|as\s+well|equally)|(?:too|as\s+well)(?=\s*(?:[).,;!]|\Z)))(?!\w)"
)
"""A regex for text that makes the letter before it a further choice, such as ` is also possible`."""

_LONGEST_ANSWER = 2000
_STANDALONE = re.compile(
    r"(?<![^\W\u3040-\u30ff\u4e00-\u9fff])(?<!['’.^_{}+=<>/\\-])(?P<letter>[^\W_])(?P<closing>[)\]*:]*)"
    r"(?![\w'’]|[-‐‑][^\W\d_]|\.\w|\s?[+#^_=<>∩∪/\\-])"
)
_SENTENCE_END = re.compile(r"[.!?;。।]\s")
_FORMULA = re.compile(r"[\d=+<>≤≥∩∪^\\/]")
_REASON = re.compile(
    r"(?<!\w)(?:because|since|as|for|given|due to|based on|by|from|according to|where|whereas|while|although|though|so"
    r"|therefore|thus|hence|unlike|compared|than|instead|not|neither|nor|never|without|others|rul\w+ out|eliminat\w+"
    r"|exclud\w+|reject\w+)(?!\w)|n['’]t(?!\w)"
)
"""A regex for words after which an answer mentions other options without choosing them."""
_RETRACTION = re.compile(
    r"(?<!\w)(?:wait|scratch|strike|correction|corrected|actually|on second thought|i mean(?:t)?|sorry|oops"
    r"|never ?mind|my mistake|my bad|make that|instead(?! of)|rather(?! than)|unless|except)(?!\w)"
)
_WORDS_OF_ONE_LETTER = frozenset("AI")
_WORD_FOLLOWS = re.compile(r"[.]*\s+\w")
_VERB_FOLLOWS = re.compile(
    r"(?:,?\s*(?:and|or|&)?\s*[(\[]?[^\W_](?!\w)[)\]]?)*+\s+(?:all\s+|also\s+|both\s+)?"
    r"(?:is|are|was|were|does|do|did|has|have|had|can|could|cannot|would|will|must|seems?|looks?|fails?|lacks?)(?!\w)",
    re.IGNORECASE,
)
_WORD = re.compile(r"\w+")
_REASON_FOLLOWS = re.compile(r"[)\]]*,?\s+(?:because|since|as|by|from|therefore|thus)(?!\w)")


def chooses_more(rest: str, others: Set[str]) -> bool:
    """Return whether the text after a chosen letter also chooses one of the `others`, as `vs C` and `oder C` do.

    A letter does not count in a formula, in a reason, such as `because C is too small`, or as the subject of a
    sentence, such as `C is too small`.
    """
    rest = rest[:_LONGEST_ANSWER]
    for found in _STANDALONE.finditer(rest):
        if option_letter(found["letter"]) in others and _is_chosen(found, rest):
            return True
    return False


def _is_chosen(found: re.Match[str], rest: str) -> bool:
    before, behind = rest[: found.start()].casefold(), rest[found.end() :]
    is_in_reason = _REASON.search(_SENTENCE_END.split(before)[-1]) is not None
    is_label = bool(found["closing"].strip("*]")) and before[-1:] not in ("(", "[")
    if FITS_TOO.match(behind):
        return not is_in_reason
    if _VERB_FOLLOWS.match(behind):
        return False
    if is_label and not is_in_reason:
        return True
    is_retracted = _RETRACTION.search(before) is not None
    if _FORMULA.search(before) or (is_in_reason and not is_retracted):
        return False
    if _REASON_FOLLOWS.match(behind) or found["closing"]:
        return True
    is_followed = _WORD_FOLLOWS.match(behind) is not None
    if found["letter"] in _WORDS_OF_ONE_LETTER:
        return not is_followed
    if found["letter"].islower():
        return not is_followed and len(_WORD.findall(before)) <= 1
    return is_retracted or not is_followed
