"""Read the label that a judge's reply decides on."""

from __future__ import annotations

import re

_NEGATIONS = (
    r"ne|pas|jamais|aucune?|ni|non|nicht|kein\w*|nie|niemals|weder|statt|не|нет|ни|никак|никогда|нельзя|вместо|ні"
    r"|nunca|tampoco|jamás|ningun[oa]|ningún|não|nem|né|mai|niet|geen|nooit|ani|inte|ej|aldrig|ikke|ei|ليس|ليست|لا|غير"
    r"|नहीं"
)
_SAYING = r"sagen|behaupten|schließen|dire|dirais|conclure|сказать|сказал\w*|утверждать|decir|diría|dizer|diria|direi"
FOREIGN_DENIAL = rf"(?:\b(?:{_NEGATIONS})\b|\bn['’])"
"""A regex for words that deny the label after them."""
FOREIGN_DENIAL_OF_SAYING = rf"(?:\b(?:{_NEGATIONS})\s+(?:{_SAYING})|(?:{_SAYING})\s+(?:pas|nicht|niet))"
"""A regex for a denial such as "nicht sagen", after which even a colon does not make the label a verdict."""
FOREIGN_CONDITIONS = r"wenn|falls|sofern|si|если|se|als|jeśli"

_STATEMENT = (
    r"(?:that|(?:my|this|the)(?: (?:first|last|previous|above|final|initial))? (?:verdict|label|conclusion|judge?ment)"
    r"(?: above)?)"
)
_PHRASES = (
    r"(?:(?:but|and|oh|no|ah)[,\s]+)?(?:wait|hold on|hmm+|scratch that|strike that|correction|corrected|actually)",
    r"(?:on|upon) (?:second thoughts?|reflection|closer inspection)|sorry|apologies|oops|never ?mind|disregard",
    r"i (?:take that back|retract|withdraw|was wrong|am wrong|was mistaken|\w+ corrected|misread|changed? my mind)",
    r"i (?:made|have made|need to correct|must correct)",
    rf"{_STATEMENT}(?: is| was|['’]s)"
    r" (?:wrong|incorrect|false|mistaken|a mistake|an error|not (?:right|true|correct))",
    r"moment|warte|korrektur|doch nicht|falsch|das (?:ist|war|stimmt) (?:falsch|nicht)|ich (?:habe|hatte) mich",
    r"attends|attendez|en fait|rectification|c['’](?:est|était) (?:faux|incorrect)|faux|je me (?:suis )?tromp\w+",
    r"подожди\w*|постой\w*|стоп|исправление|поправка|это (?:не ?верно|неправильно|ошибка)|я ошиб\w+|неверно",
    r"espera|espere|corrección|(?:eso|esto) es (?:falso|incorrecto)|me equivoqu\w+|aspetta|correzione|è sbagliato",
    r"correção|wacht|correctie|等等|更正|不对|訂正|待って",
)
RETRACTION = re.compile(
    rf"\A[\s*_>(–—-]*(?:(?:no|nein|non|нет)\s*[,!]\s|(?:(?:no|nein|non|нет),\s*)?(?:{'|'.join(_PHRASES)})(?!\w))",
    re.IGNORECASE,
)
"""A regex for the start of a sentence that takes back the verdict of an earlier one."""
RETRACTION_WITHIN = re.compile(
    r"(?:[-–—,;:(.]|\bbut)\s*(?:(?:oh|no),?\s+)?(?:wait|scratch that|strike that|correction|on second thought|actually"
    r"|sorry|that(?: is|['’]s) (?:wrong|incorrect)|no(?=\s*,))\b",
    re.IGNORECASE,
)
"""A regex for words after a label that take it back in the same sentence."""


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
    rf"(?:{_NOT}|{FOREIGN_DENIAL}|\b(?:hardly|without|unlike|than|instead|wrong|false|incorrect|either|whether)\b|[不非没未])"
    r"[^,:;，：；=>)→–—-]*\Z"
    rf"|{_NOT}(?:(?:\s+\w+){{0,3}}\s+(?:say|call|conclude|answer|give|choose|pick|be|verdict|label|write|output))?"
    r"[\s:\"“'*_`(]*\Z"
    rf"|{FOREIGN_DENIAL_OF_SAYING}[\s:\"“'*_`(]*\Z"
    rf"|{_REPORTS}(?:\s+(?:that|with|by|in|for|me|us))*[\s:,\"“'*_`(]*\Z"
    r"|\bor[\s\"“'*_`]*\Z",
    re.IGNORECASE,
)
"""A regex for text that precedes a label, and denies it or reports that another text contains it.

In "they do not match: equal", the label is not denied, because the colon ends the denial."""
_CONDITIONAL_OR_QUOTED = re.compile(rf"\A\s*>|\b(?:if|unless|otherwise|{FOREIGN_CONDITIONS})\b", re.IGNORECASE)
_NEXT_CLAUSE = re.compile(r"\b(?:so|therefore|thus|hence|but|then)\b", re.IGNORECASE)
_INSERTED = re.compile(r",[^,:;]{1,60},\s*\Z")
"""A clause between commas directly before a label, as in "It is not, in my view, equal"."""
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
        mark_of = {label: chr(_FIRST_MARK + number) for number, label in enumerate(labels)}
        # Try the longest label first, so that a label within a longer label does not match.
        by_length = sorted(labels, key=len, reverse=True)
        self._any = re.compile("|".join(f"({_spelled(each)})" for each in by_length), re.IGNORECASE)
        self._marks = [mark_of[each] for each in by_length]
        marks = "".join(mark_of.values())
        self._mark = re.compile(f"[{marks}]")
        words = "".join(mark_of[each] for each in labels if each[0].isalnum() and each[-1].isalnum())
        self._words = frozenset(words)

    def find(self, text: str) -> str | None:
        """Return the label as spelled in the config, or None if the reply does not decide on one.

        A sentence decides on a label if it starts or ends with the label, and does not deny, quote or report it. The
        last such sentence counts, unless it mentions another label, or a later sentence contradicts it or takes it
        back. Spaces within a label such as `[[A=B]]` do not matter.
        """
        marked = self._any.sub(lambda found: self._marks[(found.lastindex or 1) - 1], text.translate(_PRIVATE))
        verdict, bare = None, None
        for sentence in _SENTENCE_END.split(_TAG.sub(" ", marked)):
            mentions = [found for found in self._mark.finditer(sentence) if self._is_meant(found)]
            if not mentions:
                bare = bare if _BARE.fullmatch(sentence) else None
                verdict = None if RETRACTION.match(sentence) else verdict
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
    if _GOES_ON.match(after) is None or RETRACTION_WITHIN.search(after) or _denies(before):
        return False
    return (
        _BARE.fullmatch(before) is not None or not _OPENS_QUOTE.search(before) or bool(_NAMES_VERDICT.search(before))
    )


def _denies(before: str) -> bool:
    before = _INSERTED.sub(" ", before)
    is_conditional = _CONDITIONAL_OR_QUOTED.search(before) is not None
    return is_conditional or _DENIED.search(_NEXT_CLAUSE.split(before)[-1]) is not None


def _spelled(label: str) -> str:
    """Return a regex for a label in which spaces around symbols, escapes of symbols and `≠` for `!=` are allowed."""
    parts = re.findall(r"!=|\w+|\s+|.", label)
    if all(part.isspace() or part[0].isalnum() for part in parts):
        return rf"{_edge(label[0])}{re.escape(label)}{_edge(label[-1])}"
    symbols = (part for part in parts if not part.isspace())
    shown = r"[ \t]?".join(_spelled_part(part) for part in symbols)
    return f"{_edge(label[0])}{shown}{_edge(label[-1])}"


def _spelled_part(part: str) -> str:
    if part == "!=":
        return r"(?:\\?!\s?=|≠|\\neq?\s)"
    return re.escape(part) if part[0].isalnum() else rf"\\?{re.escape(part)}"


def _edge(character: str) -> str:
    """Return a word-boundary regex if the character can be in a word, so that labels do not match inside words."""
    return r"\b" if character.isalnum() or character == "_" else ""
