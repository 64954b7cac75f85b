"""The search for words in conversations."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nemo_gym.viewer.filters import Filter
from nemo_gym.viewer.index.run_index import RunIndex
from nemo_gym.viewer.index.words import Cancelled
from tests.viewer.index_rows import append, complete, failed, index_of, planned, scored, write

TEXTS = [
    'The Müller said: "yes"',
    "ZÜRICH 中文字 😀 end",
    "a\nnew line",
    "plain text",
    "über C:\\temp",
    "Tom & <Jerry>",
]


def found(index: RunIndex, words: str, query: str = "") -> list[int]:
    return [score.key.task for score in index.scores(Filter.of([*pairs_of(query), ("words", words)]))]


def pairs_of(query: str) -> list[tuple[str, str]]:
    return [tuple(each.split("=", 1)) for each in query.split("&") if each]  # type: ignore[misc]


@pytest.mark.parametrize("is_ascii", [True, False])
def test_case_and_escapes_hide_no_hit(tmp_path: Path, is_ascii: bool) -> None:
    path = tmp_path / "x.jsonl"
    rows = (json.dumps(scored(task, text=text), ensure_ascii=is_ascii) for task, text in enumerate(TEXTS))
    path.write_text("".join(f"{row}\n" for row in rows), "utf-8")
    index = index_of(path)
    wanted = {
        "müller": [0], "MÜLLER SAID": [0], 'said: "YES': [0], "zürich": [1], "Ü": [0, 1, 4], "中文": [1], "😀": [1],
        "a\nnew": [2], "C:\\TEMP": [4], "& <j": [5], "&": [5], "\n": [0, 1, 2, 3, 4, 5], "question 3": [3],
        "increment": [0, 1, 2, 3, 4, 5], '"by": 2': [0, 1, 2, 3, 4, 5], "nothing": [],
        "output_text": [], "counter_agent": [], "reward": [],
    }  # fmt: skip
    assert {words: found(index, words) for words in wanted} == wanted


@pytest.mark.parametrize("is_ascii", [True, False])
def test_letters_with_two_capitals_are_found(tmp_path: Path, is_ascii: bool) -> None:
    path = tmp_path / "x.jsonl"
    texts = ["300 \u212aelvin", "GRO\u1e9eE", "5 \u2126", "1 \u212b", "\u0130STANBUL", "\u03f4"]
    rows = (json.dumps(scored(task, text=text), ensure_ascii=is_ascii) for task, text in enumerate(texts))
    path.write_text("".join(f"{row}\n" for row in rows), "utf-8")
    index = index_of(path)
    wanted = {
        "300 kelvin": [0], "große": [1], "ß": [1], "ω": [2], "5 ω": [2], "å": [3], "stanbul": [4], "\u0130stan": [4],
        "θ": [5],
    }  # fmt: skip
    assert {words: found(index, words) for words in wanted} == wanted


def test_chat_messages_are_searched(tmp_path: Path) -> None:
    asked, said = {"role": "user", "content": "a zebra"}, {"role": "assistant", "content": "a giraffe"}
    rows = [scored(task) | {"responses_create_params": {}} for task in range(3)]
    rows[0]["responses_create_params"] = {"messages": [asked]}
    rows[1]["messages"] = [asked]
    rows[2]["response"] = {"messages": [said]}
    index = index_of(write(tmp_path / "x.jsonl", *rows))
    assert (found(index, "zebra"), found(index, "giraffe")) == ([0, 1], [2])


def test_letters_may_be_escaped(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text(json.dumps(scored(0, text="HIDDEN")).replace("HIDDEN", "\\u0048\\u0049dden") + "\n")
    assert found(index_of(path), "hidden") == [0]


def test_arguments_are_searched_unescaped(tmp_path: Path) -> None:
    row = scored(0)
    row["response"]["output"][0]["arguments"] = json.dumps({"city": "Köln"})
    assert found(index_of(write(tmp_path / "x.jsonl", row)), "köln") == [0]


def test_failed_and_planned_rollouts_are_searched(tmp_path: Path) -> None:
    items = {"items": [{"type": "message", "role": "assistant", "content": "half an Answer"}], "omitted": 0}
    path = write(tmp_path / "x.jsonl", scored(0, text="an answer"))
    write(tmp_path / "x_failures.jsonl", failed(1, _ng_failure_conversation=items))
    write(tmp_path / "x_materialized_inputs.jsonl", planned(0), planned(1), planned(2))
    index = index_of(path)
    assert found(index, "an answer") == [0, 1]
    assert found(index, "QUESTION") == [0, 1, 2]
    assert found(index, "question", "outcome=failed") == [1]


def test_search_continues_where_the_file_grew(tmp_path: Path) -> None:
    path = write(tmp_path / "x.jsonl", scored(0, text="green"), scored(1, text="red"))
    write(tmp_path / "x_failures.jsonl", failed(2))
    index = index_of(path)
    assert found(index, "green") == [0]
    assert found(index, "question 2", "task=2") == [2]
    append(path, scored(2, text="GREEN"), scored(1, text="green"))
    complete(index)
    assert found(index, "green") == [0, 1, 2]
    append(path, scored(0, text="blue"))
    complete(index)
    assert found(index, "green") == [1, 2]
    assert found(index, "question 2", "task=2") == [2]


def test_cancelled_search_leaves_nothing(tmp_path: Path) -> None:
    index = index_of(write(tmp_path / "x.jsonl", scored(0, text="green")))
    with pytest.raises(Cancelled):
        index.count(Filter(words="green"), lambda: True)
    assert index.count(Filter(words="green")) == 1


def test_long_lines_are_searched_in_part(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    with path.open("wb") as file:
        file.write(json.dumps(scored(0, text="needle")).encode()[:-1] + b', "filler": "' + b"x" * (34 << 20) + b'"}\n')
        file.write(json.dumps(scored(1, text="needle")).encode() + b"\n")
    assert found(index_of(path), "needle") == [0, 1]
    assert found(index_of(path), "absent") == []
