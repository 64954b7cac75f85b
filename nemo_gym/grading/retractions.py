"""Recognize sentences that take back a judge's verdict, and denials in other languages than English."""

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
