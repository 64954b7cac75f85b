"""Read the label that a judge's reply decides on."""

from __future__ import annotations

import re

_SENTENCE_END = re.compile(r"\n|(?<=[.!?])\s+|(?<=[.!?][\"'*_`)])\s+|(?<=[。！？])")
_TAG = re.compile(r"</?\w{1,30}>")
_BARE = re.compile(r"[\s*_`\"'.:!。：！()\[\]{}“”‘’]*")
"""The punctuation and markup that may surround a label on a line of its own."""
_CLOSERS = r"[\s\"'*_`$”’)\]}]*"
_GOES_ON = re.compile(
    rf"{_CLOSERS}(?:[.!。！]*{_CLOSERS}\Z|[,;:，；：]|\s[-–—(]"
    r"|\s(?:because|since|as|for|it|they|the|both|this|that|these)\b)",
    re.IGNORECASE,
)
"""A regex for the text after a label that is a verdict. Before other text, the label is only part of a sentence."""
_NOT = r"(?:\b(?:not|never|no|cannot|neither|nor)\b|n['’]t\b)"
_REPORTS = (
    r"(?:\A|[,;:])[\s*_]*(?:(?!(?:what|as|which)\b)[\w'’]+\s+){1,5}(?:wrote|writes|says|said|claims|claimed|states|asserts|"
    r"quotes|reads|asks|demands|contains|includes|ends|ended|begins|began|tells|repeats)"
)
"""A regex for a clause such as "The student wrote". A label after such a clause belongs to the judged text."""
_DENIED = re.compile(
    rf"(?:{_NOT}|\b(?:hardly|without|unlike|than|instead|wrong|false|incorrect|either|whether)\b|[不非没未])"
    r"[^,:;，：；=>)→–—-]*\Z"
    rf"|{_NOT}(?:(?:\s+\w+){{0,3}}\s+(?:say|call|conclude|answer|give|choose|pick|be|verdict|label|write|output))?"
    r"[\s:\"“'*_`(]*\Z"
    rf"|{_REPORTS}(?:\s+(?:that|with|by|in|for|me|us))*[\s:,\"“'*_`(]*\Z"
    r"|\bor[\s\"“'*_`]*\Z",
    re.IGNORECASE,
)
"""A regex for text that precedes a label, and denies it or reports that another text contains it.

In "they do not match: equal", the label is not denied, because the colon ends the denial."""
_CONDITIONAL_OR_QUOTED = re.compile(r"\A\s*>|\b(?:if|unless|otherwise)\b", re.IGNORECASE)
_NEXT_CLAUSE = re.compile(r"\b(?:so|therefore|thus|hence|but|then)\b", re.IGNORECASE)
_OPENS_QUOTE = re.compile(r"[\"“'`]\s*\Z")
_NAMES_VERDICT = re.compile(r"(?:[:：=]|\b(?:is|be|say|answer|verdict))[\s\"“'*_`]*\Z", re.IGNORECASE)
_LONGEST_LEAD = 200
"""The maximum number of characters before a label in which to look for a denial of the label."""
_FIRST_MARK = 0xE000
"""The first of the private-use characters that replace labels, so that regexes can treat a label as one character."""
_PRIVATE = dict.fromkeys(range(_FIRST_MARK, 0xF900))


class LabelReader:
    """A parser that finds the last verdict in a judge's reply. A verdict is one of `labels`; case is ignored."""

    def __init__(self, labels: list[str]) -> None:
        self._labels = labels
        self._mark_of = {label.casefold(): chr(_FIRST_MARK + number) for number, label in enumerate(labels)}
        # Try the longest label first, so that a label within a longer label does not match.
        by_length = sorted(labels, key=len, reverse=True)
        self._any = re.compile(
            "|".join(rf"{_edge(each[0])}{re.escape(each)}{_edge(each[-1])}" for each in by_length), re.IGNORECASE
        )
        marks = "".join(self._mark_of.values())
        self._mark = re.compile(f"[{marks}]")
        words = "".join(self._mark_of[each.casefold()] for each in labels if each[0].isalnum() and each[-1].isalnum())
        self._words = frozenset(words)

    def find(self, text: str) -> str | None:
        """Return the label as spelled in the config, or None if the reply does not decide on one.

        A sentence decides on a label if it starts or ends with the label, and does not deny, quote or report it. The
        last such sentence counts, unless it mentions another label or a later sentence contradicts it.
        """
        marked = self._any.sub(lambda found: self._mark_of[found[0].casefold()], text.translate(_PRIVATE))
        verdict, bare = None, None
        for sentence in _SENTENCE_END.split(_TAG.sub(" ", marked)):
            mentions = [found for found in self._mark.finditer(sentence) if self._is_meant(found)]
            if not mentions:
                bare = bare if _BARE.fullmatch(sentence) else None
                continue
            last = mentions[-1]
            before, after = sentence[: last.start()][-_LONGEST_LEAD:], sentence[last.end() :]
            is_bare = bool(_BARE.fullmatch(before) and _BARE.fullmatch(after))
            is_only = all(found[0] == last[0] for found in mentions)
            if is_only and (is_bare or _states(before, after)):
                # Two different labels in succession, without a word between them, do not decide on either.
                verdict = last[0] if bare in (None, last[0]) else None
            elif not is_only or verdict != last[0] or _denies(before):
                verdict = None
            bare = last[0] if is_bare else None
        return None if verdict is None else self._labels[ord(verdict) - _FIRST_MARK]

    def _is_meant(self, found: re.Match[str]) -> bool:
        """Return whether a mention is the label, and not an ordinary use of the same word in a sentence."""
        return found[0] not in self._words or _GOES_ON.match(found.string, found.end()) is not None


def _states(before: str, after: str) -> bool:
    if _GOES_ON.match(after) is None or _denies(before):
        return False
    return (
        _BARE.fullmatch(before) is not None or not _OPENS_QUOTE.search(before) or bool(_NAMES_VERDICT.search(before))
    )


def _denies(before: str) -> bool:
    is_conditional = _CONDITIONAL_OR_QUOTED.search(before) is not None
    return is_conditional or _DENIED.search(_NEXT_CLAUSE.split(before)[-1]) is not None


def _edge(character: str) -> str:
    """Return a word-boundary regex if the character can be in a word, so that labels do not match inside words."""
    return r"\b" if character.isalnum() or character == "_" else ""
