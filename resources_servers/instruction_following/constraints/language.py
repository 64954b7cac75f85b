"""Check the language of a text by its script, and by function words for languages that share a script."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Callable
from functools import cache
from typing import Annotated, Literal, NamedTuple

from pydantic import Field

Language = Literal[
    "ar", "bg", "bn", "cs", "da", "de", "el", "en", "es", "fa", "fi", "fr", "gu", "he", "hi", "hu", "id", "it", "ja",
    "kn", "ko", "ml", "mr", "ne", "nl", "no", "pa", "pl", "pt", "ro", "ru", "sv", "sw", "ta", "te", "th", "tr", "uk",
    "ur", "vi", "zh", "zh-cn", "zh-tw",
]  # fmt: skip

READ_FROM = 20_000
"""The number of characters that are examined. The rest of the text is assumed to be in the same language."""

_SCRIPTS: dict[str, frozenset[str]] = {
    "bn": frozenset({"BENGALI"}), "el": frozenset({"GREEK"}), "gu": frozenset({"GUJARATI"}),
    "he": frozenset({"HEBREW"}), "ja": frozenset({"HIRAGANA", "KATAKANA", "CJK"}), "kn": frozenset({"KANNADA"}),
    "ko": frozenset({"HANGUL"}), "ml": frozenset({"MALAYALAM"}), "pa": frozenset({"GURMUKHI"}),
    "ta": frozenset({"TAMIL"}), "te": frozenset({"TELUGU"}), "th": frozenset({"THAI"}),
    **dict.fromkeys(("zh", "zh-cn", "zh-tw"), frozenset({"CJK"})),
    **dict.fromkeys(("ar", "fa", "ur"), frozenset({"ARABIC"})),
    **dict.fromkeys(("bg", "ru", "uk"), frozenset({"CYRILLIC"})),
    **dict.fromkeys(("hi", "mr", "ne"), frozenset({"DEVANAGARI"})),
}  # fmt: skip
_LATIN = frozenset({"LATIN"})
_MARKS = ".,:;!?()[]{}<>*_#\"'“”‘’«»،؛؟।॥…-–—"

_SMALL_WORDS: dict[str, str] = {
    "cs": "a je se na že to v s z do jsem jako pro ale by si tak po jsou nebo která který při podle",
    "da": "og i at det er en til af på de som med der den for ikke et var jeg har fra blev ved eller hvor",
    "de": "der die und das ist nicht ein eine zu den mit von sich auf für dem des es im auch als wird sind oder wie",
    "en": "the of and to in is that it for was on are with as be this have from or by not but what which you they",
    "es": "el la de que y en los se del las por un con una su para es al lo como más pero sus o este está son no",
    "fi": "ja on ei se että hän oli ovat kun niin mutta joka ole myös sen kuin tai jos mitä sekä tämä olla minä",
    "fr": "le la les de et des en un une est que dans qui pour pas au sur plus par avec il elle ne ce sont du ou se",
    "hu": "a az és hogy nem is egy ez azt csak van meg mint volt de ha már még vagy amely el lehet minden",
    "id": "yang dan di dengan untuk ini itu dari tidak dalam adalah pada ke akan juga oleh saya ada bisa atau kami",
    "it": "il di che e la un per è in una sono non del con si le da della gli come anche più ma al nel i lo questo",
    "nl": "de het een en van is dat in op te zijn met voor niet aan er om ook als bij door maar naar uit wordt ze",
    "no": "og i det er på som en til å av for at med de ikke den har jeg et var fra eller ble kan også seg",
    "pl": "i w na się nie z że to jest do jak o a po przez co od dla za są oraz ale który która być lub tym",
    "pt": "o de que e do da em um para com não uma os no se na por mais as dos como mas ao ele das à são é ou",
    "ro": "și de la în nu o cu este a că pe mai un din pentru care sunt ca se sau fi prin dar ce au cel",
    "sv": "och i att det som en på är av för med den till inte ett har de om jag från eller vid kan var så",
    "sw": "na ya wa kwa ni za katika la kuwa hii cha kama hiyo yake lakini pia watu huu wake au kwamba sana hakuna",
    "tr": "ve bir bu için ile da de çok olarak daha ne gibi var olan kadar sonra ama en değil her veya mi ben",
    "vi": "và của là có không được trong cho các một với những này để người từ khi đã cũng như về tôi bạn",
    "ar": "في من على أن إلى هذا التي عن الذي ما هو هي مع كان لا هذه بين كل أو قد لم ذلك و",
    "fa": "و در به از که این را با است برای آن یک می تا بر هم شده های اما یا شود ما بود خود",
    "ur": "کے میں کی ہے اور سے کا کو اس پر ہیں نے کہ یہ ایک بھی نہیں کر تھا ہو وہ جو لیے گیا",
    "bg": "и на в да се за от е с не са по че като до това или който които но при има бе ще си",
    "ru": "и в не на что с как это по но из у за от для о так же все он она было быть или если также я мы",
    "uk": "і в на не що з та як це до у для але від є про за по або він вона його були який якщо також й",
    "hi": "के है में की और से का को पर यह हैं कि एक ने नहीं लिए भी इस हो कर था वह जो या तो",
    "mr": "आणि आहे या हे ते आहेत मध्ये व एक तो ती नाही होते होता केले करून साठी त्या की म्हणून पण असे",
    "ne": "र छ मा को का हो यो छन् पनि गर्न लागि एक यस भएको गर्ने थियो हुन् तर उनले त्यो लाई वा छैन",
}

_OWN_LETTERS: dict[str, frozenset[str]] = {
    language: frozenset(letters)
    for language, letters in {
        "cs": "ěřů", "de": "ß", "es": "ñ¿¡", "hu": "őű", "mr": "ळ", "pl": "ąęłśżź", "pt": "ãõ", "ro": "șț",
        "ru": "ыэё", "tr": "ğış", "uk": "іїєґ", "ur": "ٹڈڑں", "vi": "ơưđ",
    }.items()
}  # fmt: skip
"""Letters that only one of the languages with the same script uses."""


def response_language(text: str, *, language: Language) -> bool:
    """Require a text in the language with this code."""
    return is_in_language(text, language)


def japanese_words(text: str, *, N: Annotated[int, Field(ge=1)]) -> bool:  # noqa: N803 - the data's name
    """Require a Japanese character in every `N`-th word, except in numbers."""
    found = (word.strip(_MARKS) for word in text.split()[N - 1 :: N])
    return all(not word or word.isdigit() or any(map(_is_japanese, word)) for word in found)


def is_in_language(text: str, language: Language) -> bool:
    """Return whether a text is in a language. A text without letters passes for any language.

    At least half of the letters must be in the language's script. Japanese also needs kana. In Chinese, at most a
    tenth of the letters may be kana. For other languages, no language with the same script may have more words that
    are its function words or contain its own letters. A text without such words passes for any of these languages.
    """
    sample = text[:READ_FROM].lower()
    scripts = Counter(_script_of(character) for character in sample if character.isalpha())
    wanted = _SCRIPTS.get(language, _LATIN)
    if 2 * sum(scripts[script] for script in wanted) < scripts.total():
        return False
    kana = scripts["HIRAGANA"] + scripts["KATAKANA"]
    if language == "ja":
        return kana > 0 or not scripts
    if "CJK" in wanted:
        return 10 * kana <= scripts.total()
    if language not in _SMALL_WORDS:
        return True
    found = Counter(word.strip(_MARKS) for word in sample.split())
    counts = {
        each: sum(count for word, count in found.items() if word in small or not own.isdisjoint(word))
        for each, small, own in _signs()
        if _SCRIPTS.get(each, _LATIN) == wanted
    }
    return counts[language] == max(counts.values())


class _Signs(NamedTuple):
    language: str
    small_words: frozenset[str]
    own_letters: frozenset[str]


@cache
def _signs() -> list[_Signs]:
    return [
        _Signs(language, frozenset(listed.split()), _OWN_LETTERS.get(language, frozenset()))
        for language, listed in _SMALL_WORDS.items()
    ]


def _is_japanese(character: str) -> bool:
    return _script_of(character) in _SCRIPTS["ja"]


@cache
def _script_of(character: str) -> str:
    return unicodedata.name(character, "").split(" ")[0].split("-")[0]


CHECKS: dict[str, Callable[..., bool]] = {
    "language:response_language": response_language,
    "count:words_japanese": japanese_words,
}
