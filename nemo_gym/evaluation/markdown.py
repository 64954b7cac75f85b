"""The report of a comparison as Markdown for a pull request."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nemo_gym.evaluation.report import LETTERS, Report, difference_text, gate_lines, sections

TEXT_COLUMNS = {"subset", "metric"}


def markdown(report: Report) -> str:
    return "\n".join(_lines(report)) + "\n"


def _lines(report: Report) -> Iterator[str]:
    yield f"- A: `{report.comparisons[0].a.path}`"
    for letter, comparison, setup in zip(LETTERS[1:], report.comparisons, report.setups, strict=False):
        yield f"- {letter}: `{comparison.b.path}`"
        yield from (f"  - {_escaped(difference_text(each))}" for each in setup)
    for letter, comparison in zip(LETTERS[1:], report.comparisons, strict=False):
        for section in sections(comparison, letter):
            yield from ("", f"**{_escaped(section.heading)}**", "")
            yield _row(section.columns)
            yield _row([":--" if name in TEXT_COLUMNS else "--:" for name in section.columns])
            yield from (_row(map(_escaped, cells)) for cells in section.rows)
            yield ""
            yield from (f"{_escaped(line)}  " for line in section.lines)
    if report.decisions:
        yield from ("", "**Gates**", "")
        yield from (f"- {_escaped(line)}" for line in gate_lines(report))


def _row(cells: Iterator[str] | Sequence[str] | map[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _escaped(text: str) -> str:
    for character in "\\`*_|<>[]":
        text = text.replace(character, f"\\{character}")
    return text.replace("\n", " ")
