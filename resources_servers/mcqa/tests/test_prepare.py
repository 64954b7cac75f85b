"""AGIEval files and MMLU's questions converted to rows."""

import json
import subprocess
import sys
from pathlib import Path
from unittest.mock import MagicMock

import pytest

from nemo_gym import DataError, ServerClient, UsageError
from nemo_gym.jsonl import read_rows
from resources_servers.mcqa.app import McqaConfig, McqaRunRequest, McqaServer, McqaVerifyRequest
from resources_servers.mcqa.grading import GRADING_MODES
from resources_servers.mcqa.prepare import prepare
from tests.data.real_files import real_file
from tests.data.tables_as_files import parquet

pytestmark = pytest.mark.slow

REPOSITORY = Path(__file__).resolve().parents[3]
ANSWERS = {
    "strict_single_letter_boxed": r"It follows that \boxed{%s}.",
    "lenient_boxed": r"It follows that \boxed{\text{%s}}.",
    "lenient_answer_colon": "It follows.\nAnswer: %s",
    "lenient_answer_colon_md": "It follows.\n**Answer**: (%s)",
}


def question(**fields):
    return {
        "passage": "All cats purr.",
        "question": "Does Tom, a cat, purr?",
        "options": ["(A)Yes", "(B) No"],
        "label": "A",
        **fields,
    }


def write_file(folder: Path, *rows) -> Path:
    path = folder / "logic.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def response_of(text):
    message = {"id": "m", "type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}
    return {"id": "r", "created_at": 0, "model": "a-model", "output": [message]}


def test_row_contains_passage_question_options_and_instruction(tmp_path):
    output = tmp_path / "made" / "rows.jsonl"
    assert prepare(input=write_file(tmp_path, question()), output=output) == output
    (row,) = read_rows(output)
    (message,) = row["responses_create_params"]["input"]
    assert message["role"] == "user"
    *parts, instruction = message["content"].split("\n\n")
    assert parts == ["All cats purr.", "Does Tom, a cat, purr?", "A: Yes\nB: No"]
    assert r"\boxed{}" in instruction
    assert row["options"] == [{"A": "Yes"}, {"B": "No"}]
    assert row["expected_answer"] == "A"
    assert row["grading_mode"] == "strict_single_letter_boxed"
    assert row["metadata"] == {"dataset": "logic", "line": 1}


@pytest.mark.parametrize(
    "options",
    [
        ["(A)one", "(C)three", "(B)two", "(D)four"],
        ["A one", "B two", "C three", "D four"],
        ["A. one", "B) two", "C: three", "(D) four"],
        [" (A) one", "(B)two", "C  three", "D\tfour"],
    ],
)
def test_options_may_be_unordered_or_without_brackets(tmp_path, options):
    output = prepare(input=write_file(tmp_path, question(options=options, label="C")), output=tmp_path / "rows.jsonl")
    (row,) = read_rows(output)
    assert row["options"] == [{"A": "one"}, {"B": "two"}, {"C": "three"}, {"D": "four"}]
    assert row["expected_answer"] == "C"


@pytest.mark.parametrize("passage", [None, ""])
def test_row_without_passage_starts_with_the_question(tmp_path, passage):
    output = prepare(input=write_file(tmp_path, question(passage=passage)), output=tmp_path / "rows.jsonl")
    (row,) = read_rows(output)
    assert row["responses_create_params"]["input"][0]["content"].startswith("Does Tom")


def test_rows_are_deterministic_with_unique_ids(tmp_path):
    source = write_file(tmp_path, question(), question(question="Does Kim, a dog, purr?"))
    once = list(read_rows(prepare(input=source, output=tmp_path / "one.jsonl")))
    again = list(read_rows(prepare(input=source, output=tmp_path / "two.jsonl")))
    assert once == again
    assert once[0]["uuid"] != once[1]["uuid"]


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        ({"label": "C"}, "label: 'C' is not one of the options A, B"),
        ({"label": None}, "label: "),
        ({"label": ["A", "B"]}, "label: "),
        ({"options": None}, "options: "),
        ({"options": []}, "label: 'A' is not one of the options"),
        ({"options": ["Yes", "No"]}, "'Yes' does not begin with a letter"),
        ({"options": ["(A)Yes", "(A)No"]}, "two options have the letter A"),
        ({"question": None}, "question: "),
    ],
)
def test_invalid_line_is_reported_and_nothing_is_written(tmp_path, wrong, problem):
    source, output = write_file(tmp_path, question(), question(**wrong)), tmp_path / "rows.jsonl"
    with pytest.raises(DataError) as failure:
        prepare(input=source, output=output)
    assert str(failure.value).startswith(f"{source}:2: ")
    assert problem in str(failure.value)
    assert not output.exists()


def run_script(*arguments):
    script = REPOSITORY / "resources_servers" / "mcqa" / "prepare.py"
    return subprocess.run(
        [sys.executable, str(script), *map(str, arguments)],
        env={"PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("mode", GRADING_MODES)
def test_script_writes_rows_of_the_given_mode(tmp_path, mode):
    output = tmp_path / "rows.jsonl"
    ran = run_script("--input", write_file(tmp_path, question()), "--output", output, "--grading-mode", mode)
    assert (ran.returncode, ran.stderr) == (0, "")
    (row,) = read_rows(output)
    assert row["grading_mode"] == mode


def test_script_reports_a_wrong_line_in_one_line(tmp_path):
    source = write_file(tmp_path, question(label="C"))
    ran = run_script("--input", source, "--output", tmp_path / "rows.jsonl")
    assert ran.returncode == 1
    assert ran.stderr.startswith(f"{source}:1: label")
    assert ran.stderr.count("\n") == 1


def test_script_skips_and_reports_bad_lines(tmp_path):
    source = write_file(tmp_path, question(), question(options=["Yes", "(B)No"]), question(label="B"))
    output = tmp_path / "rows.jsonl"
    refused = run_script("--input", source, "--output", output)
    assert (refused.returncode, output.exists()) == (1, False)
    assert refused.stderr.endswith("To leave out such lines, prepare the data with --skip-bad.\n")
    ran = run_script("--input", source, "--output", output, "--skip-bad")
    assert ran.returncode == 0
    assert ran.stderr.splitlines() == [
        f"skipped {source}:2: options: 'Yes' does not begin with a letter, such as '(A)' or 'A '.",
        "skipped 1 of 3 lines",
    ]
    assert [row["metadata"]["line"] for row in read_rows(output)] == [1, 3]


def test_script_reports_a_missing_file_in_one_line(tmp_path):
    ran = run_script("--input", tmp_path / "none.jsonl", "--output", tmp_path / "rows.jsonl")
    assert ran.returncode == 1
    assert ran.stderr.count("\n") == 1
    assert "none.jsonl: cannot be read" in ran.stderr


@pytest.mark.parametrize(("name", "count"), [("aqua-rat", 254), ("lsat-lr", 510), ("sat-math", 220)])
@pytest.mark.parametrize("mode", GRADING_MODES)
async def test_every_agieval_question_rewards_only_its_letter(tmp_path, name, count, mode):
    source = real_file("agieval", f"{name}.jsonl")
    rows = list(read_rows(prepare(input=source, output=tmp_path / "rows.jsonl", grading_mode=mode)))
    assert len(rows) == count
    config = McqaConfig(host="0.0.0.0", port=8080, entrypoint="", name="mcqa")
    server = McqaServer(config=config, server_client=MagicMock(spec=ServerClient))
    for row in rows:
        McqaRunRequest.model_validate(row)
        for letter in (letter for option in row["options"] for letter in option):
            body = McqaVerifyRequest.model_validate({**row, "response": response_of(ANSWERS[mode] % letter)})
            graded = await server.verify(body)
            assert graded.extracted_answer == letter
            assert graded.reward == float(letter == row["expected_answer"])


@pytest.fixture
def mmlu(fake_hub):
    """Serve MMLU's questions for training and validation."""
    for name, subject in (("auxiliary_train", ""), ("validation", "astronomy")):
        rows = [
            {
                "question": f"{name} {number}? ",
                "subject": subject,
                "choices": ["a", "b", "c ", "d"],
                "answer": number % 4,
            }
            for number in range(20)
        ]
        fake_hub.huggingface("cais/mmlu", f"all/{name}-00000-of-00001.parquet", parquet(rows))
    return fake_hub


def test_splits_are_fetched_files_of_mmlu(mmlu, tmp_path):
    train = list(read_rows(prepare(output=tmp_path / "train.jsonl", split="train")))
    validation = list(read_rows(prepare(output=tmp_path / "validation.jsonl", split="validation")))
    first = next(row for row in validation if row["metadata"]["line"] == 3)
    *parts, instruction = first["responses_create_params"]["input"][0]["content"].split("\n\n")
    assert (parts, instruction.endswith(r"\boxed{}.")) == (["validation 2?", "A: a\nB: b\nC: c\nD: d"], True)
    assert (first["expected_answer"], first["metadata"]["subject"], first["metadata"]["dataset"]) == (
        "C",
        "astronomy",
        "mmlu_validation",
    )
    lines = [row["metadata"]["line"] for row in train]
    assert (sorted(lines), lines == sorted(lines)) == (list(range(1, 21)), False)
    assert {row["metadata"]["dataset"] for row in train} == {"mmlu_auxiliary_train"}


def test_bad_question_of_mmlu_is_reported_or_skipped(fake_hub, tmp_path):
    rows = [
        {"question": f"{n}?", "subject": "", "choices": list("abcd")[: 4 * (n != 1)], "answer": 0} for n in range(3)
    ]
    fake_hub.huggingface("cais/mmlu", "all/validation-00000-of-00001.parquet", parquet(rows))
    with pytest.raises(DataError, match=r"parquet: row 2: options: .*--skip-bad"):
        prepare(output=tmp_path / "rows.jsonl", split="validation")
    assert len(list(read_rows(prepare(output=tmp_path / "rows.jsonl", split="validation", skip_bad=True)))) == 2


def test_count_takes_a_random_sample(mmlu, tmp_path):
    def sample(**arguments) -> list[int]:
        rows = read_rows(prepare(output=tmp_path / "train.jsonl", split="train", count=5, **arguments))
        return [row["metadata"]["line"] for row in rows]

    assert sample() == sample()
    assert len(set(sample())) == 5
    assert sample() != sample(seed=1)
    with pytest.raises(DataError, match="count: 21 rows are asked for, but split 'train' has 20"):
        prepare(output=tmp_path / "train.jsonl", split="train", count=21)


def test_mmlu_answer_must_be_an_option(mmlu, tmp_path):
    for answer, letter in ((4, "E"), (-1, "Z"), (26, "")):
        wrong = {"question": "?", "subject": "", "choices": ["a", "b", "c", "d"], "answer": answer}
        mmlu.huggingface("cais/mmlu", "all/validation-00000-of-00001.parquet", parquet([wrong]))
        output = tmp_path / str(answer) / "validation.jsonl"
        with pytest.raises(DataError, match=f"row 1: the answer '{letter}' is not one of the options A, B, C, D"):
            prepare(output=output, split="validation")


def test_either_input_or_split_is_required(tmp_path):
    for arguments in ({}, {"input": tmp_path / "a.jsonl", "split": "train"}):
        with pytest.raises(UsageError, match="either --input or --split is required"):
            prepare(output=tmp_path / "rows.jsonl", **arguments)
