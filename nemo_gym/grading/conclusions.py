"""Find the value that the last sentence of a text states in one of the accepted forms."""

from __future__ import annotations

import re

from nemo_gym.grading.number_words import NUMBER_WORDS
from nemo_gym.grading.numbers import SCALES, number_in, same_number, without_spelled_value
from nemo_gym.grading.units import is_usual, read_unit

LONGEST = 1_000
"""The number of characters at the end of a text in which to look for a stated value."""

_DISPLAYED = re.compile(r"\s*(?:\$\$(.{1,500}?)\$\$|\\\[(.{1,500}?)\\\])[ \t]*", re.DOTALL)
_INLINE = re.compile(r"\\\((.{1,500}?)\\\)")
_EMPHASIS = re.compile(r"\*{2,3}|__|`")
_SENTENCE_END = re.compile(r"\n|(?<=[.!?])(?<![A-Z][a-z]\.)\s+(?![a-z])")
"""The end of a line or of a sentence. The full stop of an abbreviation such as "Dr." does not count."""
_REMARK = re.compile(
    r"(?:I\s+)?hope\s+(?:it|this|that)\b[^\d?]{0,60}|(?:please\s+)?(?:let\s+me\s+know|feel\s+free)\b[^\d]{0,80}|"
    r"(?:you.re\s+)?welcome|(?:good|nice|great)\s+(?:luck|job|question|work)|[^\w$]*",
    re.IGNORECASE,
)
"""A sentence after the answer that does not belong to it, such as "I hope it is correct."."""

_LEAD = re.compile(
    r"(?:(?:so|thus|therefore|hence|finally|then|now|overall|together|altogether|in\s+(?:total|all|the\s+end|conclusion|"
    r"summary|short)|as\s+a\s+result|consequently|(?:this|that|which)\s+means|we\s+conclude|it\s+follows|we\s+(?:find|see)|"
    r"and|(?:the\s+)?final\s+answer\s*:|answer\s*:|solution\s*:|result\s*:)(?:\s+that\b)?\s*[,:]?\s+|[^\w\s$\\(\[.+−-]|[-=]+>|"
    r"\\(?:therefore|implies|Rightarrow)\b|\s)+",
    re.IGNORECASE,
)
"""Words before the statement, such as "Therefore," and `=>`."""
_HEADS = (
    "answer|result|solution|total|sum|number|amount|cost|price|profit|value|area|perimeter|circumference|volume|length|"
    "width|height|depth|radius|diameter|angle|slope|distance|speed|rate|age|weight|mass|time|difference|product|quotient|"
    "remainder|average|mean|median|ratio|percentage|percent|fraction|probability|salary|income|earnings|revenue|savings|"
    "change|balance|bill|fee|tip|tax|discount|loss|gain|score|count|quantity|money|expression|function|equation|limit|"
    "integral|derivative|determinant|coefficient|degree|minimum|maximum|x|y|n"
)
_QUALIFIERS = (
    "final|correct|right|total|overall|average|new|remaining|combined|numerical|exact|required|desired|original|whole|net|"
    "minimum|maximum|least|greatest|smallest|largest|weekly|monthly|yearly|annual|daily|hourly|full|additional|extra"
)
_HEAD = re.compile(rf"(?:in\s+)?(?:{_HEADS})", re.IGNORECASE)
_WORDS = r"(?:\s+[^\W\d_][\w'’-]*,?){0,12}"
_VALUE_OF = re.compile(
    rf"(?:(?:the|my|our|her|his|their|its|your|this|[A-Z]\w*['’]s)\s+)?(?:(?:{_QUALIFIERS})\s+)*(?:{_HEADS})"
    rf"(?:\s+(?:of|for|to|in|on|at|per|from|by|with|that|she|he|they|we|it|you|[a-z]+ed|each|left)\b{_WORDS})?\s*",
    re.IGNORECASE,
)
"""A subject whose value is the answer, such as "The total cost of the apples"."""
_NAME = r"[A-Z][\w'’-]*"
_ACTOR = re.compile(
    rf"(?:(?i:she|he|it|they|we|you|i|this|that|these|those|there|which)|(?i:the|a|an|her|his|their|our|my|its|all|each|"
    rf"every|both)(?:\s+[^\W\d_][\w'’-]*){{1,6}}|{_NAME}(?:,?\s+(?:and\s+)?{_NAME}){{0,3}}(?:\s+[a-z][\w'’-]*){{0,2}}"
    rf"|{_NAME}['’]s(?:\s+[^\W\d_][\w'’-]*){{1,4}})"
)
"""The subject of a sentence about someone or something, such as "She" and "The boots"."""
_LINK = re.compile(
    r"(?<!\w)(?:is|are|was|were|be|equals?|is\s+equal\s+to|comes?\s+(?:out\s+)?to|(?:adds?|sums?)\s+up\s+to)(?!\w)|:|=",
    re.IGNORECASE,
)
_VERB = re.compile(
    r"(?<!\w)(?:is|are|was|were|be|been|has|have|had|get|gets|got|need|needs|needed|make|makes|made|earns?|earned|pays?|paid|"
    r"costs?|spend|spends|spent|takes?|took|sells?|sold|buys?|bought|eats?|ate|uses?|used|gives?|gave|saves?|saved|runs?|ran|"
    r"walks?|walked|drives?|drove|travels?|traveled|travelled|works?|worked|reads?|writes?|wrote|drinks?|drank|keeps?|kept|"
    r"receives?|received|collects?|collected|contains?|holds?|weighs?|requires?|required|produces?|produced|charges?|"
    r"charged|owes?|owed|raises?|raised|lasts?|lasted|scores?|scored|bakes?|baked|plants?|planted|orders?|ordered|picks?|"
    r"picked|leaves?|left|finds?|found|gains?|gained|loses?|lost|grows?|grew|obtains?|obtained|come\s+to|comes\s+to|"
    r"came\s+to|equals?|totals?|measures?|needs\s+to\s+\w+|ha(?:s|ve)\s+to\s+\w+|(?:can|will|would|must|should)\s+\w+)(?!\w)"
)
_FINDS = re.compile(r"(?:get|got|find|found|obtain|obtained|came\s+to|come\s+to)")
_OF_ANSWER = re.compile(r"\b(?:answer|result|solution|bound|guess|estimate)\b", re.IGNORECASE)
"""Words that make a statement about the answer, such as "An upper bound of the answer is 10"."""
_FILLERS = re.compile(
    rf"(?:(?:an?\s+(?:grand\s+|total\s+)?(?:{_HEADS})\s+of|exactly|only|just|now|still|another|an\s+additional|also|equal\s+to|"
    r"left\s+with|therefore|thus|hence|indeed|simply|her|him|them|us|it|\w\s*=)\s+)+",
    re.IGNORECASE,
)
_EQUATES = re.compile(
    r"(?:get|have|find|obtain|give|yield|produce)s?|so|that|thus|hence|then|therefore", re.IGNORECASE
)
"""Words directly before an equation such as `x = 5` that states its result."""
_TWISTED = re.compile(
    rf"n['’]t\b|\b(?:not|never|cannot|no|none|nobody|nothing|nor|neither|either|or|if|unless|whether|wrong\w*|incorrect\w*|"
    rf"false\w*|doubt|unlikely|impossible|suppose|supposing|assum\w+|imagine|half|halves|twice|double|triple|thrice|quarter|"
    rf"(?<!\bthe )(?<!\ba )square|square\s+(?:root|of)|squared|cube|root|plus|minus|times|negative|opposite|"
    rf"reciprocal|inverse|log|without|except|excluding|but|"
    rf"than|under|over|below|above|beyond|between|within|versus|base|{NUMBER_WORDS})\b|[?~<>≤≥≠≈]",
    re.IGNORECASE,
)
"""A sign that a sentence states something other than one value."""
_FORMULA = re.compile(r"\$([^$\n]{1,500})\$(?!\d)")
_NUMBER = re.compile(
    r"[-+−]?\s?[$€£]?\s?(?:\d[\d,]*(?:\.\d+)?|\.\d+)(?:\s+\d+\s?/\s?\d+|\s?/\s?\d+)?(?:\s?\\?%)?(?![\w^_\\(])"
)
_ASIDE = re.compile(r"\s*\(([^()]{1,80})\)\Z")
_TRAILER = re.compile(
    r",\s+(?:I\s+(?:think|believe)|as\s+(?:required|desired|needed)|(?:and\s+)?not\s+[^,]*\d[^,]*)\Z|\s+(?:because|since)\b.*",
    re.I,
)
_CALCULATION = re.compile(
    r"\d[^=?]{0,80}?[-–−+*/×÷x%(][^=?]{0,80}=\s*(?P<value>[-−]?[$€£]?\d[\d,]*+(?:\.\d+)?+%?)(?!/\d)"
)
_DENIED = re.compile(
    r"n['’]t\b|\b(?:not|never|cannot|neither|either|wrong|incorrect|doubt|whether|suppose|assum\w+|imagine|reject\w*)\b|"
    r"\b(?:than|exceeds?|below|above|under|over|least|most|twice|negative|minus|but|except|(?:half|third|quarter|root|square|cube|opposite|inverse)\s+of)\s*\Z",
    re.IGNORECASE,
)
"""Words before a calculation that deny it, or directly before it that change its result."""
_REJECTED = re.compile(
    rf"\A\s*(?:or|to|and|-|–|±|<|>|≤|≥)\s*[$€£]?\d|\A\s*(?:{SCALES}|{NUMBER_WORDS})\b|\b(?:wrong|incorrect|false)\b|\?|"
    r"\A(?:\S+\s+){0,2}(?:not|never|or|at)\s(?=not|\w+\s\d|most|least)",
    re.IGNORECASE,
)
"""Words after a calculation that deny it or change its result."""
_AREA = re.compile(r"(?:\bsquare|\bsq)\s+(?=\w)|(?<=\w)\s+squared\b")
_LONG_WORD = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{2,}")
_OPERATOR = re.compile(r"[\\^_*+/{}|]|(?<=\w)\s*[-–−]\s*(?=\w)")
_FACTORIAL = re.compile(r"[\s$]*\d+!+[\s$]*")
"""A text that is only a factorial, such as `5!`. In a sentence, the `!` would be an exclamation mark."""
_MARKS = " \t\r\n*_`.!,;"


def concluded(text: str) -> str | None:
    """Return the value that the last sentence states, or None if it does not have an accepted form.

    The forms are: a value alone; "The answer (or total, result, cost …) is" or "=" and a value; an equation such as
    `2 + 3 = 5` or "we get x = 5"; "She has" or a similar verb and a value. A usual unit and phrases such as "in total"
    may follow. Other words around the value, such as "half of" or "exceeds", could change it.
    """
    if _FACTORIAL.fullmatch(text[-LONGEST:]):
        return text.strip(" \t\r\n$")
    tail = _DISPLAYED.sub(lambda shown: f" ${(shown[1] or shown[2]).strip()}$ ", text[-LONGEST:])
    sentences = _SENTENCE_END.split(without_spelled_value(_EMPHASIS.sub("", _INLINE.sub(r"$\1$", tail))))
    while len(sentences) > 1 and _REMARK.fullmatch(sentences[-1].strip()):
        sentences.pop()
    if len(sentences) == 1 and len(text) > LONGEST:
        return None
    sentence = sentences[-1].strip(_MARKS)
    return _calculated(sentence) or _stated(_LEAD.sub("", sentence, count=1) if _LEAD.match(sentence) else sentence)


def _calculated(sentence: str) -> str | None:
    """Return the result of a calculation such as `2 + 3 = 5` if it is the sentence's last equation, or else None.

    Words such as "if", which make other sentences undecided, may come before the calculation.
    """
    equations = list(_CALCULATION.finditer(sentence))
    if not equations or "=" in sentence[equations[-1].end() :]:
        return None
    last = equations[-1]
    if any("=" in formula for formula in _FORMULA.findall(sentence)) or _DENIED.search(sentence[: last.start()]):
        return None
    result, rest = sentence[last.start("value") :], sentence[last.end() :].lstrip(" /")
    if _REJECTED.search(rest) or not (is_usual(rest) or _HEAD.fullmatch(rest)):
        return None
    return result if number_in(result) else last["value"].strip(_MARKS)


def _stated(sentence: str) -> str | None:
    if value := _value(sentence):
        return value
    for link in reversed(list(_LINK.finditer(sentence))):
        before, after = sentence[: link.start()].strip(" $"), sentence[link.end() :]
        if link[0] == "=" and _equated(before):
            return _value(after.strip(" $"))
        if _VALUE_OF.fullmatch(before) and not _TWISTED.search(before) and (value := _value(_without_fillers(after))):
            return value
    for verb in _VERB.finditer(sentence):
        before, after = sentence[: verb.start()].strip(), sentence[verb.end() :]
        if before.lower() in ("i", "you") and not _FINDS.fullmatch(verb[0]):
            continue
        if (
            _ACTOR.fullmatch(before)
            and not _TWISTED.search(before)
            and not _OF_ANSWER.search(before)
            and (value := _value(_without_fillers(after)))
        ):
            return value
    return None


def _equated(before: str) -> bool:
    """Return whether the text before an equals sign ends in a formula whose value the sentence states."""
    words = _LONG_WORD.findall(before)
    return not _TWISTED.search(before) and (not words or _EQUATES.fullmatch(words[-1]) is not None)


def _without_fillers(text: str) -> str:
    text = text.strip(" :")
    return _FILLERS.sub("", text, count=1) if _FILLERS.match(text) else text


def _value(text: str) -> str | None:
    """Return the value that a text begins with, if the rest is a usual unit or phrase. Return None for other texts."""
    text = _TRAILER.sub("", text.strip(_MARKS)).strip(_MARKS)
    if aside := _ASIDE.search(text):
        value = _value(text[: aside.start()])
        same = value is not None and (number_in(aside[1]) is None or same_number(value, aside[1]) is True)
        return value if same and not re.search(r"\A\s*or\b", aside[1]) and not _TWISTED.search(aside[1]) else None
    formula = _FORMULA.match(text)
    if formula and number_in(formula[1]) is None:
        rest = text[formula.end() :]
        return formula[1].strip() if is_usual(rest) and not _is_changed(rest) and "=" not in formula[1] else None
    plain = f"{formula[1]} {text[formula.end() :]}".strip() if formula else text
    number = number_in(plain)
    if number is None:
        is_expression = _OPERATOR.search(plain) and not _LONG_WORD.search(plain) and not _TWISTED.search(plain)
        return plain if is_expression and "$" not in plain else None
    if not is_usual(number.unit) or _is_changed(number.unit):
        return None
    written = _NUMBER.match(plain)
    is_written = written and (short := number_in(written[0])) and short.value == number.value
    return written[0].strip() if written and is_written and not read_unit(number.unit.lstrip("$ ")) else plain


def _is_changed(rest: str) -> bool:
    rest = _AREA.sub("", rest)
    return _TWISTED.search(rest) is not None or re.search(r"\d", rest) is not None
