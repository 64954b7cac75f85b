"""Draft texts that follow several constraints. They combine plain filler sentences with the required parts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

Arguments = dict[str, Any]

FILLERS = (
    "The old mill stands near the bridge",
    "Every morning the baker lights her oven",
    "Two friends walk along the quiet shore",
    "In spring the meadow is full of flowers",
    "Nobody knows how deep the lake is",
    "Small boats leave the harbour at dawn",
    "Her garden grows beans and tall sunflowers",
    "The night train stops at each village",
    "Fresh snow lies on the northern hills",
    "Children play behind the white school",
    "Those clouds bring rain before the evening",
    "People still tell stories by the fire",
)
MOST_FILLERS = 150


@dataclass
class Draft:
    """The parts of a text before they are joined."""

    added: list[str] = field(default_factory=list)
    """Sentences that constraints require, without their full stops."""
    avoided: list[str] = field(default_factory=list)
    """Words and letters that filler sentences must not contain."""
    opening: str = ""
    closing: list[str] = field(default_factory=list)
    stop: str = "."
    arrange: Callable[[list[str]], str] = " ".join
    finish: list[Callable[[str], str]] = field(default_factory=list)

    def texts(self) -> Iterator[str]:
        """Yield texts with more and more filler sentences. Also yield each text as one long sentence."""
        usable = [each for each in FILLERS if not any(word.lower() in each.lower() for word in self.avoided)]
        if not usable:
            return
        for count in range(1, MOST_FILLERS):
            fillers = [usable[number % len(usable)] for number in range(count)]
            yield self._text([*self.added, *fillers])
            yield self._text([" and ".join([*self.added, *fillers])])

    def _text(self, sentences: list[str]) -> str:
        body = self.arrange([f"{sentence}{self.stop}" for sentence in sentences])
        text = f"{self.opening}{body}{''.join(self.closing)}"
        for change in self.finish:
            text = change(text)
        return text


def _count_asked(arguments: Arguments, count: str, relation: str) -> int:
    """Return the smallest allowed number of the counted item. It is 0 if the relation is an upper limit."""
    asked = int(arguments[count])
    named = arguments.get(relation) or "at least"
    return {"less than": 0, "at most": 0, "more than": asked + 1}.get(named, asked)


def _keywords(draft: Draft, arguments: Arguments) -> None:
    draft.added += [f"Here we speak of {keyword}" for keyword in arguments["keywords"]]


def _frequency(draft: Draft, arguments: Arguments) -> None:
    keyword = arguments["keyword"]
    draft.avoided.append(keyword)
    draft.added += [f"Now comes {keyword}"] * _count_asked(arguments, "frequency", "relation")


def _letters(draft: Draft, arguments: Arguments) -> None:
    wanted = _count_asked(arguments, "let_frequency", "let_relation")
    if wanted:
        draft.added.append(f"Spell {' '.join([arguments['letter']] * wanted)}")
    else:
        draft.avoided.append(arguments["letter"])


def _capitals(draft: Draft, arguments: Arguments) -> None:
    wanted = _count_asked(arguments, "capital_frequency", "capital_relation")
    if wanted:
        draft.added.append(f"They call {' '.join(['LOUDLY'] * wanted)}")


def _paragraphs(draft: Draft, count: int, divider: str, first_words: dict[int, str]) -> None:
    def arrange(sentences: list[str]) -> str:
        shares: list[list[str]] = [[] for _ in range(count)]
        for number, sentence in enumerate(sentences):
            shares[number * count // max(len(sentences), count)].append(sentence)
        for number, word in first_words.items():
            shares[number - 1].insert(0, f"{word} is how it begins{draft.stop}")
        return divider.join(" ".join(share) for share in shares)

    draft.arrange = arrange


def _bullets(draft: Draft, arguments: Arguments) -> None:
    def arrange(sentences: list[str]) -> str:
        points = "".join(f"\n* point {number}" for number in range(1, int(arguments["num_bullets"]) + 1))
        return f"{' '.join(sentences)}{points}"

    draft.arrange = arrange


def _sections(draft: Draft, arguments: Arguments) -> None:
    count, word = int(arguments["num_sections"]), arguments["section_spliter"]

    def arrange(sentences: list[str]) -> str:
        return "\n".join(f"{word} {number}\n{' '.join(sentences)}" for number in range(1, count + 1))

    draft.arrange = arrange


def _two_responses(draft: Draft, _: Arguments) -> None:
    draft.arrange = lambda sentences: f"{' '.join(sentences)}\n******\nAgain: {' '.join(sentences)}"


def _set_stop(stop: str) -> Callable[[Draft, Arguments], None]:
    def apply(draft: Draft, _: Arguments) -> None:
        draft.stop = stop

    return apply


def _finish(change: Callable[[str], str]) -> Callable[[Draft, Arguments], None]:
    return lambda draft, _: draft.finish.append(change)


def _open(opening: Callable[[Arguments], str]) -> Callable[[Draft, Arguments], None]:
    def apply(draft: Draft, arguments: Arguments) -> None:
        draft.opening = opening(arguments)

    return apply


def _close(closing: Callable[[Arguments], str]) -> Callable[[Draft, Arguments], None]:
    return lambda draft, arguments: draft.closing.append(closing(arguments))


def _add(sentence: Callable[[Arguments], str]) -> Callable[[Draft, Arguments], None]:
    return lambda draft, arguments: draft.added.append(sentence(arguments))


def _nothing(_: Draft, __: Arguments) -> None:
    """Leave the draft as it is, because plain sentences already follow the constraint."""


# The parts are applied in this order, which sets the order of the closing texts and of changes to the whole text.
PARTS: dict[str, Callable[[Draft, Arguments], None]] = {
    "keywords:existence": _keywords,
    "keywords:frequency": _frequency,
    "keywords:forbidden_words": lambda draft, arguments: draft.avoided.extend(arguments["forbidden_words"]),
    "keywords:letter_frequency": _letters,
    "letters:letter_counting2": _letters,
    "keywords:word_once": lambda draft, arguments: _frequency(draft, {**arguments, "frequency": 1}),
    "keywords:word_count_different_numbers": _frequency,
    "keywords:exclude_word_harder": lambda draft, arguments: draft.avoided.append(arguments["keyword"]),
    "keywords:palindrome": _add(lambda _: "The ground is level"),
    "change_case:capital_word_frequency": _capitals,
    "detectable_content:number_placeholders": _add(
        lambda arguments: f"Send it to{' [address]' * int(arguments['num_placeholders'])}"
    ),
    "detectable_format:number_highlighted_sections": _add(
        lambda arguments: f"It is{' *bright*' * int(arguments['num_highlights'])}"
    ),
    "length_constraints:number_words": _nothing,
    "length_constraints:number_sentences": _nothing,
    "count:word_count_range": _nothing,
    "punctuation:no_comma": _nothing,
    "punctuation:punctuation_dot": _set_stop("!"),
    "punctuation:punctuation_exclamation": _nothing,
    "length_constraints:number_paragraphs": lambda draft, arguments: _paragraphs(
        draft, int(arguments["num_paragraphs"]), "\n***\n", {}
    ),
    "length_constraints:nth_paragraph_first_word": lambda draft, arguments: _paragraphs(
        draft,
        int(arguments["num_paragraphs"]),
        "\n\n",
        {int(arguments["nth_paragraph"]): arguments["first_word"]},
    ),
    "paragraphs:paragraphs": lambda draft, _: _paragraphs(draft, 2, "\n***\n", {}),
    "paragraphs:paragraphs2": lambda draft, _: _paragraphs(draft, 2, "\n\n", {}),
    "detectable_format:number_bullet_lists": _bullets,
    "detectable_format:multiple_sections": _sections,
    "detectable_format:constrained_response": _close(lambda _: " My answer is maybe."),
    "combination:two_responses": _two_responses,
    "combination:repeat_prompt": _open(lambda arguments: f"{arguments['prompt_to_repeat'].strip()}\n"),
    "detectable_format:title": _open(lambda _: "<<plain things>>\n"),
    "first_word:first_word_answer": _open(lambda arguments: f"{arguments['first_word']} comes first: "),
    "detectable_content:postscript": _close(lambda arguments: f"\n{arguments['postscript_marker']} Write again"),
    "startend:end_checker": _close(lambda arguments: f" {arguments['end_phrase']}"),
    "last_word:last_word_answer": _close(lambda arguments: f" At the end stands {arguments['last_word']}"),
    "change_case:english_capital": _finish(str.upper),
    "change_case:english_lowercase": _finish(str.lower),
    "startend:quotation": _finish(lambda text: f'"{text}"'),
}


def drafts(asked: list[tuple[str, Arguments]]) -> Iterator[str]:
    """Yield candidate texts, the shortest first. Yield nothing if `PARTS` does not contain all constraints."""
    if any(id_ not in PARTS for id_, _ in asked):
        return
    draft = Draft()
    for known, apply in PARTS.items():
        for id_, arguments in asked:
            if id_ == known:
                apply(draft, arguments)
    yield from draft.texts()
