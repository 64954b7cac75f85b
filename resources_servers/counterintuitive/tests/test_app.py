"""The trap, the documents, the metrics and invalid rows."""

from pathlib import Path

import pytest

from nemo_gym import InvalidTask
from nemo_gym.jsonl import read_rows
from nemo_gym.testing import make_server, reply, rollout
from resources_servers.counterintuitive.app import CounterintuitiveServer
from resources_servers.counterintuitive.oracle import solve

FOLDER = Path(__file__).resolve().parents[1]
EXAMPLES = list(read_rows(FOLDER / "data" / "example.jsonl"))
ROW = {"expected_answer": "send it back", "habitual_answer": "load it", "subset": "redefined_words"}
CONTROL = {"expected_answer": "load it", "habitual_answer": "load it", "subset": "control"}


@pytest.mark.parametrize(
    ("row", "text", "reward", "trap"),
    [
        (ROW, "Answer: send it back", 1.0, False),
        (ROW, "Answer: Load it.", 0.0, True),
        (ROW, "Answer: store it", 0.0, False),
        (ROW, "", 0.0, False),
        (CONTROL, "Answer: load it", 1.0, None),
        (CONTROL, "Answer: send it back", 0.0, None),
    ],
)
async def test_trap_is_the_habitual_answer(row, text, reward, trap):
    async with rollout(make_server(CounterintuitiveServer), **row) as attempt:
        graded = await attempt.verify(reply(text))
    assert (graded.reward, graded.trap) == (reward, trap)


async def test_documents_belong_to_their_rollout():
    server = make_server(CounterintuitiveServer)
    async with (
        rollout(server, **ROW, documents={"a.txt": "Lamps: 3"}) as one,
        rollout(server, **ROW) as other,
    ):
        assert await one.call("read_document", name="a.txt") == "Lamps: 3"
        assert "document 'b.txt' does not exist. The documents are: a.txt" in await one.call(
            "read_document", name="b.txt"
        )
        assert "The documents are: none" in await other.call("read_document", name="a.txt")


async def test_note_row_is_solved_by_reading_its_document():
    row = next(row for row in EXAMPLES if row["scenario"] == "note")
    reading, answer = solve(row)
    async with rollout(make_server(CounterintuitiveServer), **row) as attempt:
        assert [await attempt.send(reading)] == list(row["documents"].values())
        assert (await attempt.verify(reply(reading, answer))).reward == 1.0


@pytest.mark.parametrize("row", [{**ROW, "form": "date"}, {**ROW, "expected_answer": "3:7", "form": "time"}])
async def test_row_without_possible_answer_is_invalid(row):
    with pytest.raises(InvalidTask, match=r"does not have the form '(date|time)'\. Fix the row"):
        async with rollout(make_server(CounterintuitiveServer), **row) as attempt:
            await attempt.verify(reply("Answer: 1"))


def test_metrics_show_trap_next_to_accuracy():
    server = make_server(CounterintuitiveServer)
    right = {"subset": "priority", "reward": 1.0, "trap": False, "extracted_answer": "1"}
    trapped = {"subset": "priority", "reward": 0.0, "trap": True, "extracted_answer": "2"}
    control = {"subset": "control", "reward": 1.0, "trap": None, "extracted_answer": "3"}
    metrics = server.compute_metrics([[right, trapped], [control, control]])
    assert metrics["priority/pass@1[avg-of-2]/accuracy"] == 50.0
    assert metrics["priority/pass@1[avg-of-2]/trap"] == 50.0
    assert metrics["pass@1[avg-of-2]/accuracy"] == 75.0
    assert metrics["pass@1[avg-of-2]/trap"] == 50.0
    assert "control/pass@1[avg-of-2]/trap" not in metrics
    assert "priority/pass@1[avg-of-2]/trap" in server.get_key_metrics(metrics)


def test_examples_have_tool_turns_and_a_control():
    assert any("documents" in row for row in EXAMPLES)
    assert any(len(row["responses_create_params"]["input"]) > 4 for row in EXAMPLES)
    assert "control" in {row["subset"] for row in EXAMPLES}
