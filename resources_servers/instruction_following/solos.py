"""Solutions for constraints that can hardly be combined with others. Each solution is a whole answer."""

from __future__ import annotations

import itertools
import string
from collections.abc import Callable
from typing import Any

from resources_servers.instruction_following.lists import LISTS

Arguments = dict[str, Any]

LANGUAGES = {
    "ar": "هذا الكتاب من المكتبة التي في المدينة",
    "bg": "Това е книгата, която купих за сестра ми, и тя не е скъпа",
    "bn": "আমি প্রতিদিন সকালে বই পড়ি",
    "cs": "Kniha je na stole, ale já se na ni nedívám",
    "de": "Das ist ein Buch, und es liegt auf dem Tisch",
    "el": "Το βιβλίο είναι πάνω στο τραπέζι",
    "en": "The book is on the table, and it is not for you",
    "es": "El libro que está en la mesa es para los niños, pero no lo leen",
    "fa": "این کتاب را که در خانه است برای شما می آورم",
    "fi": "Kirja on pöydällä, mutta hän ei ole vielä lukenut sitä, ja se on hyvä",
    "fr": "Le livre est sur la table, et je ne le lis pas",
    "gu": "હું દરરોજ સવારે પુસ્તક વાંચું છું",
    "he": "הספר נמצא על השולחן",
    "hi": "यह किताब मेज पर है और मैं इसे नहीं पढ़ता",
    "id": "Buku itu ada di meja dan saya akan membacanya untuk kamu",
    "it": "Il libro è sulla tavola, e non lo leggo perché è di mia madre",
    "ja": "この本は机の上にあります",
    "kn": "ನಾನು ಪ್ರತಿದಿನ ಪುಸ್ತಕ ಓದುತ್ತೇನೆ",
    "ko": "책이 책상 위에 있습니다",
    "mr": "हे पुस्तक आहे आणि ते मी वाचले होते",
    "nl": "Het boek ligt op de tafel, maar ik lees het niet",
    "pa": "ਮੈਂ ਹਰ ਰੋਜ਼ ਕਿਤਾਬ ਪੜ੍ਹਦਾ ਹਾਂ",
    "pl": "Książka jest na stole, ale nie czytam jej, bo to nie jest moja książka",
    "pt": "O livro que está na mesa não é meu, mas eu leio com uma amiga",
    "ru": "Эта книга лежит на столе, и я её не читал, но это не важно",
    "sv": "Boken ligger på bordet, och jag har inte läst den, men det är en bra bok",
    "sw": "Kitabu hiki ni cha watoto na kiko katika nyumba ya mwalimu",
    "ta": "நான் தினமும் புத்தகம் படிக்கிறேன்",
    "te": "నేను ప్రతిరోజు పుస్తకం చదువుతాను",
    "th": "หนังสืออยู่บนโต๊ะ",
    "tr": "Bu kitap çok güzel ve benim için bir armağan gibi",
    "uk": "Ця книга лежить на столі, і я її не читав, але це не важливо",
    "ur": "یہ کتاب میز پر ہے اور میں اس کو نہیں پڑھتا",
    "vi": "Quyển sách này là của tôi và tôi không cho ai mượn",
    "zh": "这本书在桌子上",
}


def _copy_many(arguments: Arguments) -> str:
    return "\n******\n".join([arguments["prompt_to_repeat"].strip()] * int(arguments["N"]))


def _phrases(arguments: Arguments) -> str:
    words = arguments["phrase"].split()
    middle = len(words) // 2
    changed = (
        [*words[:middle], f"other{string.ascii_lowercase[number % 26]}", *words[middle + 1 :]]
        for number in range(int(arguments["small_n"]))
    )
    return "\n".join(" ".join(each) for each in changed)


def _composition(arguments: Arguments) -> str:
    sentence = " ".join(["Words", *["follow"] * (int(arguments["n_words"]) - 1)])
    return "\n* * *\n".join([" ".join([f"{sentence}."] * int(arguments["n_sent"]))] * 3)


def _placed(arguments: Arguments) -> str:
    before = ["We look at some things"] * (int(arguments["n"]) - 1)
    return (
        ". ".join([*before, " ".join([*["so"] * (int(arguments["m"]) - 1), arguments["keyword"], "stands there"])])
        + "."
    )


def _in_sentence(arguments: Arguments) -> str:
    return "".join(["We look at some things. "] * (int(arguments["N"]) - 1)) + f"Here is {arguments['word']}."


def _letter_count(arguments: Arguments) -> str:
    rare = arguments.get("relation") in ("less than", "at most")
    return "O" if rare else "river " * (int(arguments["N"]) // 5 + 1)


def _unique(arguments: Arguments) -> str:
    made = ("".join(letters) for letters in itertools.product(string.ascii_lowercase, repeat=3))
    return " ".join(itertools.islice(made, int(arguments["N"])))


def _increasing(arguments: Arguments) -> str:
    step = int(arguments["small_n"])
    return " ".join(" ".join(["Words", *["follow"] * (number * step)]) + "." for number in range(3))


def _option(arguments: Arguments) -> str:
    options = arguments["options"]
    return str(options[0] if isinstance(options, list) else options.split("/")[0].split(",")[0]).strip()


SOLOS: dict[str, Callable[[Arguments], str]] = {
    **LISTS,
    "words:keywords_specific_position": _placed,
    "language:response_language": lambda arguments: f"{LANGUAGES[arguments['language'].split('-')[0]]}.",
    "detectable_format:json_format": lambda _: '{"river": ["wide", "green"]}',
    "detectable_format:square_brackets": lambda _: "[The] [river] [is] [wide]",
    "detectable_format:bigram_wrapping": lambda _: "<<The river>> <<is wide>>",
    "detectable_format:sentence_hyphens": lambda _: "The river is wide.-The mill is old.",
    "copy:copying_simple": lambda arguments: arguments["prompt_to_repeat"],
    "copy:copying_multiple": _copy_many,
    "copy:repeat_phrase": _phrases,
    "new:copy_span_idx": lambda arguments: arguments["prompt_to_repeat"][
        int(arguments["n_start"]) : int(arguments["n_end"]) + 1
    ],
    "count:counting_composition": _composition,
    "first_word:first_word_sent": lambda arguments: "{0} it is. {0} it was.".format(arguments["first_word"]),
    "last_word:last_word_sent": lambda arguments: "It is {0}. It was {0}.".format(arguments["last_word"]),
    "keywords:start_end": lambda _: "River meets river",
    "keywords:keyword_specific_position": _placed,
    "keywords:no_adjacent_consecutive": lambda _: "Rivers flow past",
    "sentence:keyword": _in_sentence,
    "count:count_increment_word": lambda arguments: "{keyword1}. {keyword2}. {keyword2}.".format(**arguments),
    "count:count_unique": lambda _: "Some rivers never reach any sea.",
    "count:lowercase_counting": lambda _: "THE RIVER IS WIDE.",
    "letters:letter_counting": _letter_count,
    "count:unique_word_count": _unique,
    "count:numbers": lambda arguments: f"Count: {' '.join(map(str, range(1, int(arguments['N']) + 1)))}",
    "count:conjunctions": lambda _: (
        "Slow and wide but cold, for it is deep, so none swim or row, nor fish, yet it calls."
    ),
    "count:pronouns": lambda arguments: "it " * int(arguments["N"]) + "runs",
    "count:punctuation": lambda _: "Look, a river: wide; deep. Is it cold? It is! Really?!",
    "ratio:stop_words": lambda _: "Rivers run south.",
    "ratio:sentence_type": lambda _: "It is wide. It is deep. Is it cold?",
    "ratio:sentence_balance": lambda _: "It is wide. Is it deep? It is!",
    "sentence:increment": _increasing,
    "words:alphabet": lambda _: "All birds can dance.",
    "words:vowel": lambda _: "The tall trees stand.",
    "words:consonants": lambda _: "Fresh streams start north.",
    "words:prime_lengths": lambda _: "The old trees",
    "words:no_consecutive": lambda _: "The old river is wide.",
    "words:palindrome": lambda _: "level radar rotor civic kayak madam refer stats solos tenet",
    "words:repeats": lambda _: "Some rivers never reach any sea.",
    "words:last_first": lambda _: "We see rivers. Rivers see us.",
    "words:paragraph_last_first": lambda _: "River meets river.\n\nSea meets sea.",
    "format:options": _option,
    "format:parentheses": lambda _: "one (two [three {four (five [six])}])",
    "format:quotes": lambda _: '"She said \'he said "they left" at noon\' and slept"',
    "format:emoji": lambda _: "The river is wide \N{WATER WAVE}. It is cold. \N{SNOWFLAKE}",
    "format:newline": lambda _: "The\nriver\nis\nwide",
    "format:line_indent": lambda _: "The river\n is wide\n  and cold",
    "format:list": lambda arguments: f"{arguments['sep']} a river\n{arguments['sep']} a mill",
    "format:no_whitespace": lambda _: "TheRiverIsWide",
    "format:title_case": lambda _: "The River of the North",
}
