"""Constraints as a prompt phrases them, with arguments drawn at random."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, NamedTuple

from resources_servers.instruction_following.solos import LANGUAGES

WORDS = (
    "amber", "candle", "distance", "envelope", "feather", "gravel", "hollow", "island", "jacket", "kettle", "lantern",
    "marble", "needle", "orchard", "pebble", "quarrel", "ribbon", "saddle", "timber", "velvet", "whistle",
)  # fmt: skip
NAMES = {
    "ar": "Arabic", "bn": "Bengali", "de": "German", "es": "Spanish", "fa": "Persian", "fi": "Finnish", "fr": "French",
    "hi": "Hindi", "it": "Italian", "ja": "Japanese", "ko": "Korean", "pl": "Polish", "pt": "Portuguese",
    "ru": "Russian", "sw": "Swahili", "ta": "Tamil", "th": "Thai", "uk": "Ukrainian", "vi": "Vietnamese",
}  # fmt: skip
PHRASE = "the river carries every boat down to the sea"

Draw = Callable[[random.Random, str], dict[str, Any]]


def _none(_: random.Random, __: str) -> dict[str, Any]:
    return {}


def _given(**drawn: Callable[[random.Random], Any]) -> Draw:
    return lambda rng, _: {name: draw(rng) for name, draw in drawn.items()}


def _int(low: int, high: int) -> Callable[[random.Random], int]:
    return lambda rng: rng.randint(low, high)


def _one_of(*values: Any) -> Callable[[random.Random], Any]:
    return lambda rng: rng.choice(values)


def _word(rng: random.Random) -> str:
    return rng.choice(WORDS)


def _words(count: int) -> Callable[[random.Random], list[str]]:
    return lambda rng: rng.sample(WORDS, rng.randint(1, count))


def _relation(rng: random.Random) -> str:
    return rng.choice(("at least", "less than"))


def _nth(rng: random.Random, _: str) -> dict[str, Any]:
    count = rng.randint(2, 5)
    return {"num_paragraphs": count, "nth_paragraph": rng.randint(1, count), "first_word": _word(rng)}


def _range(rng: random.Random, _: str) -> dict[str, Any]:
    low = rng.randint(20, 80)
    return {"min_words": low, "max_words": low + rng.randint(10, 40)}


def _two_words(rng: random.Random, _: str) -> dict[str, Any]:
    first, second = rng.sample(WORDS, 2)
    return {"keyword1": first, "keyword2": second}


def _prompt(rng: random.Random, topic: str) -> dict[str, Any]:
    return {"prompt_to_repeat": topic}


def _span(rng: random.Random, topic: str) -> dict[str, Any]:
    start = rng.randint(0, len(topic) // 2)
    return {"prompt_to_repeat": topic, "n_start": start, "n_end": rng.randint(start + 3, len(topic) - 1)}


class Wish(NamedTuple):
    """A constraint, with its wording in a prompt. A prompt has at most one constraint of each kind."""

    id: str
    kind: str
    ask: str
    """The sentence in the prompt. It is a template with the arguments' names in braces."""
    draw: Draw = _none


def shown(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return arguments as a prompt shows them: lists joined by commas, and a language's name instead of its code."""
    names = {name: ", ".join(value) if isinstance(value, list) else value for name, value in arguments.items()}
    return {**names, "language": NAMES.get(names.get("language", ""), "")}


TOGETHER = (
    Wish("keywords:existence", "words to use", "Use the words {keywords}.", _given(keywords=_words(3))),
    Wish(
        "keywords:frequency",
        "a word to count",
        "The word {keyword} should be there {relation} {frequency} times.",
        _given(keyword=_word, frequency=_int(2, 5), relation=_relation),
    ),
    Wish("keywords:word_once", "a word to count", "Use the word {keyword} exactly once.", _given(keyword=_word)),
    Wish(
        "keywords:word_count_different_numbers",
        "a word to count",
        "Use the word {keyword} just {frequency} times.",
        _given(keyword=_word, frequency=_int(2, 5)),
    ),
    Wish(
        "keywords:forbidden_words",
        "words to avoid",
        "Do not use the words {forbidden_words}.",
        _given(forbidden_words=_words(3)),
    ),
    Wish("keywords:exclude_word_harder", "words to avoid", "Do not use the word {keyword}.", _given(keyword=_word)),
    Wish(
        "keywords:letter_frequency",
        "letters",
        "Use the letter {letter} {let_relation} {let_frequency} times.",
        _given(letter=_one_of(*"aeiorst"), let_frequency=_int(5, 20), let_relation=_one_of("at least")),
    ),
    Wish("keywords:palindrome", "palindrome", "Include a palindrome."),
    Wish(
        "length_constraints:number_words",
        "length",
        "Answer with {relation} {num_words} words.",
        _given(num_words=_int(60, 200), relation=_relation),
    ),
    Wish(
        "length_constraints:number_sentences",
        "length",
        "Answer with {relation} {num_sentences} sentences.",
        _given(num_sentences=_int(8, 20), relation=_relation),
    ),
    Wish("count:word_count_range", "length", "Write between {min_words} and {max_words} words.", _range),
    Wish(
        "length_constraints:number_paragraphs",
        "parts",
        "Write {num_paragraphs} paragraphs with the divider *** between them.",
        _given(num_paragraphs=_int(2, 5)),
    ),
    Wish(
        "length_constraints:nth_paragraph_first_word",
        "parts",
        "Write {num_paragraphs} paragraphs with a blank line between them. Paragraph {nth_paragraph} must begin with "
        "the word {first_word}.",
        _nth,
    ),
    Wish("paragraphs:paragraphs", "parts", "Write two paragraphs with the divider *** between them."),
    Wish("paragraphs:paragraphs2", "parts", "Write two paragraphs with a blank line between them."),
    Wish(
        "detectable_format:number_bullet_lists",
        "parts",
        "Include exactly {num_bullets} bullet points, each a line that begins with *.",
        _given(num_bullets=_int(2, 6)),
    ),
    Wish(
        "detectable_format:multiple_sections",
        "parts",
        "Write {num_sections} sections, each begun by a line such as {section_spliter} 1.",
        _given(section_spliter=_one_of("SECTION", "PART"), num_sections=_int(2, 5)),
    ),
    Wish("combination:two_responses", "parts", "Give two different answers with ****** between them."),
    Wish(
        "detectable_content:number_placeholders",
        "placeholders",
        "Use at least {num_placeholders} placeholders in square brackets, such as [address].",
        _given(num_placeholders=_int(1, 5)),
    ),
    Wish(
        "detectable_format:number_highlighted_sections",
        "highlights",
        "Highlight at least {num_highlights} parts with asterisks, *like this*.",
        _given(num_highlights=_int(1, 5)),
    ),
    Wish("detectable_format:title", "beginning", "Give it a title in double angular brackets, such as <<a title>>."),
    Wish(
        "first_word:first_word_answer", "beginning", "The first word must be {first_word}.", _given(first_word=_word)
    ),
    Wish(
        "combination:repeat_prompt",
        "beginning",
        "Before you answer, repeat this word for word, with nothing before it: {prompt_to_repeat}",
        _prompt,
    ),
    Wish(
        "startend:end_checker",
        "end",
        "End with exactly these words: {end_phrase}",
        _given(end_phrase=_one_of("That is all there is.", "What do you think?", "Until next time.")),
    ),
    Wish("last_word:last_word_answer", "end", "The last word must be {last_word}.", _given(last_word=_word)),
    Wish(
        "detectable_content:postscript",
        "end",
        "Add a postscript that begins with {postscript_marker}",
        _given(postscript_marker=_one_of("P.S.", "P.P.S")),
    ),
    Wish("startend:quotation", "quotes", "Put the whole answer in double quotes."),
    Wish(
        "change_case:capital_word_frequency",
        "case",
        "Words in capitals only should be there {capital_relation} {capital_frequency} times.",
        _given(capital_frequency=_int(2, 8), capital_relation=_relation),
    ),
    Wish("change_case:english_capital", "case", "Answer in English, in capital letters only."),
    Wish("change_case:english_lowercase", "case", "Answer in English, in lowercase letters only."),
    Wish("punctuation:no_comma", "punctuation", "Do not use any commas."),
    Wish("punctuation:punctuation_dot", "punctuation", "Do not use any full stops."),
    Wish("punctuation:punctuation_exclamation", "punctuation", "Do not use any exclamation marks."),
)
"""Constraints that can be combined with constraints of other kinds. `prepare` discards unsolvable combinations."""

ALONE = (
    Wish(
        "language:response_language",
        "",
        "Answer in {language} and in no other language.",
        _given(language=_one_of(*sorted(NAMES.keys() & LANGUAGES.keys()))),
    ),
    Wish("detectable_format:json_format", "", "The whole answer must be JSON."),
    Wish("detectable_format:square_brackets", "", "Put each word in square brackets."),
    Wish(
        "detectable_format:bigram_wrapping", "", "Put each two words in double angular brackets: <<I am>> <<at home>>."
    ),
    Wish("detectable_format:sentence_hyphens", "", "Join all sentences with hyphens, without spaces round them."),
    Wish(
        "detectable_format:constrained_response",
        "",
        "Answer with one of: My answer is yes. My answer is no. My answer is maybe.",
    ),
    Wish(
        "copy:copying_simple",
        "",
        "Do not do that: repeat the request before this sentence, and nothing else.",
        _prompt,
    ),
    Wish(
        "copy:copying_multiple",
        "",
        "Do not do that: repeat the request before this sentence {N} times, with ****** between.",
        lambda rng, topic: {"prompt_to_repeat": topic, "N": rng.randint(2, 5)},
    ),
    Wish(
        "new:copy_span_idx",
        "",
        "Do not do that: copy the characters {n_start} to {n_end} of the request before this, counted from 0.",
        _span,
    ),
    Wish(
        "copy:repeat_phrase",
        "",
        "Repeat the phrase '{phrase}' {small_n} times, each time with one word of its middle replaced.",
        _given(phrase=_one_of(PHRASE), small_n=_int(2, 5)),
    ),
    Wish(
        "count:counting_composition",
        "",
        "Write three paragraphs with * * * between them, each of exactly {n_sent} sentences of {n_words} words.",
        _given(n_sent=_int(1, 4), n_words=_int(3, 9)),
    ),
    Wish(
        "first_word:first_word_sent", "", "Begin each sentence with the word {first_word}.", _given(first_word=_word)
    ),
    Wish("last_word:last_word_sent", "", "End each sentence with the word {last_word}.", _given(last_word=_word)),
    Wish("keywords:start_end", "", "Begin and end with the same word, and write nothing after it."),
    Wish(
        "keywords:keyword_specific_position",
        "",
        "Word {m} of sentence {n} must be {keyword}.",
        _given(keyword=_word, n=_int(1, 4), m=_int(1, 5)),
    ),
    Wish("keywords:no_adjacent_consecutive", "", "No two adjacent words may begin with consecutive letters."),
    Wish("sentence:keyword", "", "Sentence {N} must hold the word {word}.", _given(word=_word, N=_int(1, 5))),
    Wish("count:count_increment_word", "", "Use {keyword1} once and {keyword2} twice.", _two_words),
    Wish("count:count_unique", "", "Use no word twice."),
    Wish("count:lowercase_counting", "", "Use at most {N} words in lowercase only.", _given(N=_int(2, 10))),
    Wish(
        "letters:letter_counting",
        "",
        "Answer with {relation} {N} letters.",
        _given(N=_int(10, 80), relation=_relation),
    ),
    Wish("count:unique_word_count", "", "Use at least {N} different words.", _given(N=_int(20, 120))),
    Wish("count:numbers", "", "Write exactly {N} numbers in digits.", _given(N=_int(1, 8))),
    Wish(
        "count:conjunctions",
        "",
        "Use at least {small_n} different coordinating conjunctions.",
        _given(small_n=_int(2, 7)),
    ),
    Wish("count:pronouns", "", "Use at least {N} pronouns.", _given(N=_int(3, 20))),
    Wish("count:punctuation", "", "Use each of . , ! ? ; : and an interrobang (?!) at least once."),
    Wish(
        "ratio:stop_words",
        "",
        "At most {percentage} percent of the words may be stop words.",
        _given(percentage=_int(10, 50)),
    ),
    Wish("ratio:sentence_type", "", "Write twice as many statements as questions."),
    Wish("ratio:sentence_balance", "", "Write as many statements as questions and as exclamations."),
    Wish(
        "sentence:increment",
        "",
        "Each sentence must have exactly {small_n} words more than the one before it.",
        _given(small_n=_int(1, 3)),
    ),
    Wish("words:alphabet", "", "Each word must begin with the letter after the one before it."),
    Wish("words:vowel", "", "Use at most three of the five vowels."),
    Wish("words:consonants", "", "Each word must have two consonants in a row."),
    Wish("words:prime_lengths", "", "The number of letters of each word must be prime."),
    Wish("words:no_consecutive", "", "No two words in a row may begin with the same letter."),
    Wish("words:palindrome", "", "Use ten different palindromes of five letters or more."),
    Wish("words:repeats", "", "Use no word more than {small_n} times.", _given(small_n=_int(1, 4))),
    Wish("words:last_first", "", "Begin each sentence with the last word of the one before it."),
    Wish("words:paragraph_last_first", "", "End each paragraph with the word with which it begins."),
    Wish(
        "format:options",
        "",
        "Ignore that, and answer with one of these and nothing else: {options}.",
        _given(options=_one_of("yes/no/perhaps", "red/green/blue")),
    ),
    Wish("format:parentheses", "", "Nest brackets in brackets, five levels deep."),
    Wish("format:quotes", "", "Put quotes in quotes in quotes, double and single ones in turn."),
    Wish("format:emoji", "", "End each sentence with an emoji."),
    Wish("format:newline", "", "Put each word on a line of its own."),
    Wish("format:line_indent", "", "Indent each line further than the one before it."),
    Wish(
        "format:list",
        "",
        "Answer with a list whose items are kept apart by {sep}.",
        _given(sep=_one_of("...", "!?!?", "%%")),
    ),
    Wish("format:no_whitespace", "", "Use no spaces, tabs or line breaks."),
    Wish("format:title_case", "", "Begin each word with a capital."),
)
"""Constraints that are not combined with others in a prompt."""
