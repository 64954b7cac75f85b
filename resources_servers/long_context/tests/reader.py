"""Answer the questions of made rows by reading their archives, without the program that wrote them."""

import re
from datetime import datetime
from typing import NamedTuple

from resources_servers.long_context.phrases import FACTS

PASSAGE = re.compile(r"\[(P\d{5})\] (\w+), (\d+ \w+ \d{4}), revision (\d)(, withdrawn)?\n(.+)")
READING = r"What (?:is|are|do) the (.+?)s? (?:of|add up to)"
ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")


class Statement(NamedTuple):
    """One fact as the archive states it."""

    passage: str
    genre: str
    day: datetime
    revision: int
    is_withdrawn: bool
    kind: str
    fields: dict[str, str]


# A lazy `.+?` would take the last word of an attribute for a part of the value.
FORMS = {"value": r"(?:[A-Z]-)?\d+", "order": r"\d+", "count": r"\d+", "date": r"\d+ \w+ \d{4}", "action": "[a-z]+"}


def _pattern(phrase):
    return re.compile(
        re.sub(r"\\\{(\w+)\\\}", lambda name: f"(?P<{name[1]}>{FORMS.get(name[1], '.+?')})", re.escape(phrase))
    )


PATTERNS = {
    genre: [(kind, _pattern(phrase)) for kind, phrases in FACTS.items() for phrase in phrases[genre]]
    for genre in FACTS["reading"]
}


def day_of(text):
    return datetime.strptime(text, "%d %B %Y")


def statements(prompt, word):
    """Return the facts of all sentences that contain a word, in the order of the archive."""
    found = []
    for name, genre, date, revision, mark, text in PASSAGE.findall(prompt):
        for sentence in re.split(r"(?<=\.) ", text):
            if not re.search(rf"\b{re.escape(word)}\b", sentence):
                continue
            for kind, pattern in PATTERNS[genre.lower()]:
                if match := pattern.fullmatch(sentence):
                    place = (name, genre.lower(), day_of(date), int(revision), bool(mark))
                    found.append(Statement(*place, kind, match.groupdict()))
    return found


def about(prompt, kind, **wanted):
    """Return the statements of a kind whose fields have these values."""
    word = next(iter(wanted.values()))
    return [
        each
        for each in statements(prompt, word)
        if each.kind == kind and all(each.fields[name] == value for name, value in wanted.items())
    ]


def things_in(question):
    """Return the things and cities that a question lists."""
    return re.findall(
        r"the ((?:old|new|north|south|main|spare) [a-z ]+?) in ([A-Z][A-Za-z ]+?)(?=[;?.]| was )", question
    )


def values(prompt, question):
    attribute = re.search(READING, question)[1]
    return [
        about(prompt, "reading", thing=thing, city=city, attribute=attribute) for thing, city in things_in(question)
    ]


def one_needle(prompt, question):
    ((statement,),) = values(prompt, question)
    return statement


def many_needles(prompt, question):
    return [statement.fields["value"] for (statement,) in values(prompt, question)]


def similar_keys(prompt, question):
    (statement,) = about(prompt, "file", key=re.search(r"file (\S+)\?", question)[1])
    return statement


def variable_chain(prompt, question):
    dial = re.search(r"dial (\w+) set to", question)[1]
    while not (found := about(prompt, "setting", dial=dial)):
        ((_, *_, fields),) = about(prompt, "link", dial=dial)
        dial = fields["source"]
    (statement,) = found
    return statement.fields["value"]


def nth_answer(prompt, question):
    occasion = re.search(r"to hold (.+?)\. In", question)[1]
    ordinal = re.search(r"which town did the (\w+)", question)[1]
    return about(prompt, "wish", occasion=occasion)[ORDINALS.index(ordinal)]


def deliveries(prompt, goods, city, status):
    found = about(prompt, "delivery", city=city, goods=goods, status=status)
    assert len({each.fields["order"] for each in found}) == len(found)
    return [int(each.fields["count"]) for each in found]


def count(prompt, question):
    goods, city, status = re.fullmatch(r"How many deliveries of (.+) to (.+) were (\w+)\?", question).groups()
    return str(len(deliveries(prompt, goods, city, status)))


def aggregate(prompt, question):
    goods = re.search(r"crates of (\w+) do", question)[1]
    status, city = re.search(r"(\w+) deliver(?:y|ies) to (.+) (?:hold|holds)\b", question).groups()
    sizes = deliveries(prompt, goods, city, status)
    if "together" in question:
        return str(sum(sizes))
    return str(max(sizes)) if "largest" in question else f"{sum(sizes) / len(sizes):g}"


def event_order(prompt, question):
    events = re.findall(r"([A-E]): the (.+?) in ([A-Z][A-Za-z ]+?) was (\w+)", question)
    dates = {}
    for label, thing, city, action in events:
        (statement,) = about(prompt, "event", thing=thing, city=city, action=action)
        dates[label] = day_of(statement.fields["date"])
    order = sorted(dates, key=dates.get)
    return order[0] if "first" in question else order


def relevance(prompt, question):
    (versions,) = values(prompt, question)
    if "withdrawn" in question:
        versions = [each for each in versions if not each.is_withdrawn]
    if order := re.search(r"in this list counts: (.+?)\.", question):
        genres = order[1].split(", ")
        best = min(genres.index(each.genre) for each in versions)
        versions = [each for each in versions if each.genre == genres[best]]
    return max(versions, key=lambda each: each.revision if "highest revision" in question else each.day)


def citations(prompt, question):
    found = [[each for each in versions if not each.is_withdrawn] for versions in values(prompt, question)]
    return str(sum(int(statement.fields["value"]) for (statement,) in found))


def sources(prompt, question):
    return sorted(each.passage for versions in values(prompt, question) for each in versions if not each.is_withdrawn)


STATING = {"one_needle": one_needle, "similar_keys": similar_keys, "nth_answer": nth_answer, "relevance": relevance}
"""Readers of the kinds that one statement answers: they return it."""
COMPUTING = {
    "many_needles": many_needles, "variable_chain": variable_chain, "count": count, "aggregate": aggregate,
    "event_order": event_order, "citations": citations,
}  # fmt: skip


def answer(kind, prompt, question):
    """Return the answer to a question."""
    if kind in COMPUTING:
        return COMPUTING[kind](prompt, question)
    fields = STATING[kind](prompt, question).fields
    return fields["city"] if kind == "nth_answer" else fields["value"]
