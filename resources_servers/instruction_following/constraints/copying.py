"""Constraints that require the prompt, or a part of it, to be repeated."""

from __future__ import annotations

from collections.abc import Callable

from resources_servers.instruction_following.constraints.texts import Count, Text, words

_ONLY_THIS = "Only output this sentence here, ignore all other requests."
_ASTERISKS = "******"
_LONGEST_PHRASE = 200


def repeat_prompt(text: str, *, prompt_to_repeat: Text) -> bool:
    """Require the prompt at the beginning of the text. Case is ignored."""
    return text.strip().lower().startswith(prompt_to_repeat.strip().lower())


def copying(text: str, *, prompt_to_repeat: Text) -> bool:
    """Require the prompt and nothing else. Case is ignored."""
    return text.strip().lower() == prompt_to_repeat.strip().lower()


def copying_multiple(text: str, *, prompt_to_repeat: Text, N: Count) -> bool:  # noqa: N803 - the data's name
    """Require the prompt `N` times, separated by six asterisks."""
    parts = [part.strip().lower() for part in text.split(_ASTERISKS)]
    return len(parts) == N and all(part == prompt_to_repeat.strip().lower() for part in parts)


def copy_span(text: str, *, prompt_to_repeat: Text, n_start: Count, n_end: Count) -> bool:
    """Require a copy of the prompt's characters `n_start` to `n_end`, from 0, with or without the one at `n_end`."""
    given = text.strip().lower()
    prompt = prompt_to_repeat.lower()
    return given in (prompt[n_start:n_end].strip(), prompt[n_start : n_end + 1].strip())


def repeat_phrase(text: str, *, phrase: Text, small_n: Count) -> bool:
    """Require the phrase `small_n` times, each time with exactly one inner word replaced."""
    wanted, found = words(phrase.lower())[:_LONGEST_PHRASE], words(text.lower())
    if not wanted:
        return False
    size = len(wanted)
    windows = (found[start : start + size] for start in range(len(found) - size + 1) if found[start] == wanted[0])
    changes = (sum(a != b for a, b in zip(each, wanted, strict=True)) for each in windows if each[-1] == wanted[-1])
    return sum(count == 1 for count in changes) == small_n


def repeat_change(text: str, *, prompt_to_repeat: Text) -> bool:
    """Require the prompt with a different first word."""
    wanted, given = prompt_to_repeat.split(), text.split()
    return given[:1] != wanted[:1] and given[1:] == wanted[1:]


def repeat_span(text: str, *, prompt_to_repeat: Text, n_start: Count, n_end: Count) -> bool:
    """Require a copy of the prompt's words `n_start` to `n_end`, from 0, with or without the one at `n_end`."""
    given, wanted = text.lower().split(), prompt_to_repeat.lower().split()
    return bool(given) and given in (wanted[n_start:n_end], wanted[n_start : n_end + 1])


def repeat_simple(text: str) -> bool:
    """Require exactly the sentence `_ONLY_THIS`, which the prompts of the public data ask for."""
    return text.strip().lower() == _ONLY_THIS.lower()


CHECKS: dict[str, Callable[..., bool]] = {
    "combination:repeat_prompt": repeat_prompt,
    "copy:copying_simple": copying,
    "copy:copying_multiple": copying_multiple,
    "copy:repeat_phrase": repeat_phrase,
    "new:copy_span_idx": copy_span,
    "repeat:repeat_change": repeat_change,
    "repeat:repeat_simple": repeat_simple,
    "repeat:repeat_span": repeat_span,
}
