"""Tests of `ng eval init`, `ng eval label` and `ng eval reverify --judge-repeats`, in a folder of a user's own."""

from __future__ import annotations

import base64
import re
from pathlib import Path

import orjson
import pytest

from tests.conftest import Workplace
from tests.rows import rows_of

pytestmark = pytest.mark.slow

QUESTIONS = "q,a,n,pattern,kind,tone\nWhich?,red,1,r.d,x,Be kind.\nAnd this?,blue,2.5,b.*,y,\n"
RUBRIC = "- polite (1): It is friendly.\n- exact (3): It names the colour.\n"
GRADERS = {
    "exact": ["--answer", "a"],
    "number": ["--answer", "n"],
    "choice": ["--answer", "a", "--subset", "kind"],
    "regex": ["--answer", "pattern"],
    "contains": ["--answer", "a"],
    "judge": ["--answer", "a"],
    "rubric": ["--rubric", "rubric.md"],
}
INIT = ("ng", "eval", "init", "mine", "--from", "q.csv", "--question", "q")
JUDGE = ("++judge_base_url=http://127.0.0.1:1/v1", "++judge_api_key=k", "++judge_model_name=j")
MODEL = """
policy_model:
  responses_api_models:
    sample_model:
      entrypoint: app.py
      answers: ["Answer: red", "Answer: blue"]
"""
FICKLE_JUDGE = '''
import itertools

from pydantic import PrivateAttr

from nemo_gym import NeMoGymResponse, NeMoGymResponseCreateParamsNonStreaming, SimpleResponsesAPIModel
from nemo_gym.testing import reply


class FickleJudge(SimpleResponsesAPIModel):
    """Every third verdict is that the criterion is not met."""

    _calls: itertools.count = PrivateAttr(default_factory=itertools.count)

    async def responses(self, body: NeMoGymResponseCreateParamsNonStreaming) -> NeMoGymResponse:
        return reply("[[not met]]" if next(self._calls) % 3 == 2 else "[[met]]")

    async def chat_completions(self, body):
        raise NotImplementedError
'''
WITH_FICKLE_JUDGE = """
config_paths: [benchmarks/mine/config.yaml]
judge_model:
  responses_api_models:
    fickle_judge:
      entrypoint: app.py
mine:
  resources_servers:
    rubric_judge:
      judge:
        model_server: {type: responses_api_models, name: judge_model}
"""


@pytest.fixture
def desk(workplace: Workplace) -> Workplace:
    workplace.write("q.csv", QUESTIONS)
    workplace.write("rubric.md", RUBRIC)
    workplace.write("model.yaml", MODEL)
    return workplace


@pytest.mark.parametrize("grader", GRADERS)
def test_folder_is_complete_and_valid(desk: Workplace, grader: str) -> None:
    made = desk.run(*INIT, "--grader", grader, *GRADERS[grader])
    assert (made.code, made.err) == (0, "")
    assert made.out.startswith(
        f"benchmarks/mine: 2 questions, graded by '{grader}'. Next:\n  ng eval run --benchmark mine"
    )
    folder = desk.folder / "benchmarks/mine"
    for name in re.findall(r"^\| `([\w/.]+)`", (folder / "README.md").read_text(), re.MULTILINE):
        assert (folder / name).is_file(), name
    assert not [
        path for path in folder.rglob("*") if path.is_file() and "$" in path.read_text().replace("${judge_", "")
    ]
    before = (folder / "data/mine.jsonl").read_bytes()
    assert desk.run("ng", "eval", "prepare", "--benchmark", "mine").code == 0
    assert (folder / "data/mine.jsonl").read_bytes() == before
    flavors = ["mine", "mine/judge"] if grader in ("judge", "rubric") else ["mine"]
    for flavor in flavors:
        valid = desk.run("ng_validate", "--benchmark", flavor, "--config", "model.yaml", *JUDGE)
        assert valid.code == 0, valid.err


def test_new_evaluation_runs_as_it_is(desk: Workplace) -> None:
    desk.run(*INIT, "--grader", "choice", *GRADERS["choice"])
    words = ("--benchmark", "mine", "--config", "model.yaml", "--num-repeats", "8", "--output", "results/a.jsonl")
    finished = desk.run("ng", "eval", "run", *words)
    assert finished.code == 0, finished.err
    rollouts = rows_of(desk.folder / "results/a.jsonl")
    assert {row["extracted_answer"] for row in rollouts} == {"red", "blue"}
    assert all(row["reward"] == (row["extracted_answer"] == row["expected_answer"]) for row in rollouts)
    (metrics,) = orjson.loads((desk.folder / "results/a_aggregate_metrics.json").read_bytes())
    assert {"x/pass@8/accuracy", "option/red/pass@8/accuracy"} <= metrics["agent_metrics"].keys()
    asked = desk.run("ng", "eval", "label", "results/a.jsonl", "--output", "labels.csv")
    assert re.fullmatch(r"labels.csv: 16 rollouts to label \(\d+ of \d+ 'no', \d+ of \d+ 'yes'\)\n", asked.out)
    refused = desk.run("ng", "eval", "label", "results/a.jsonl", "--output", "labels.csv")
    assert (refused.code, refused.err.startswith("Error: labels.csv already exists, and may contain labels.")) == (
        1,
        True,
    )
    sheet = desk.folder / "labels.csv"
    sheet.write_text(sheet.read_text("utf-8-sig").replace(",,", ",yes,"))
    scored = desk.run("ng", "eval", "label", "--score", "labels.csv", "results/a.jsonl", "--json")
    assert orjson.loads(scored.out)["labelled"] == 16


def test_edited_questions_are_prepared_again(desk: Workplace) -> None:
    desk.run(*INIT, "--grader", "exact", *GRADERS["exact"])
    words = (
        "ng",
        "eval",
        "run",
        "--benchmark",
        "mine",
        "--config",
        "model.yaml",
        "--output",
        "r.jsonl",
        "--overwrite",
    )
    assert "mine.jsonl" not in desk.run(*words).err
    questions = desk.folder / "benchmarks/mine/questions.csv"
    questions.write_text(QUESTIONS + "And now?,green,3,g.*,x\n")
    finished = desk.run(*words)
    data = desk.folder / "benchmarks/mine/data/mine.jsonl"
    assert finished.err.splitlines()[:2] == [
        f"{data} was made from an earlier version of {questions}",
        "preparing benchmark 'mine' …",
    ]
    assert {row["expected_answer"] for row in rows_of(desk.folder / "r.jsonl")} == {"red", "blue", "green"}
    assert "preparing" not in desk.run(*words).err
    script = desk.folder / "benchmarks/mine/prepare.py"
    script.write_text(script.read_text() + "# Reviewed.\n")
    assert desk.run(*words).err.splitlines()[0] == f"{data} was made from an earlier version of {script}"
    assert "preparing" not in desk.run(*words).err
    # Data that was replaced by hand stays.
    data.write_bytes(data.read_bytes().splitlines(keepends=True)[0])
    questions.write_text(QUESTIONS)
    assert "preparing" not in desk.run(*words).err
    assert len(rows_of(desk.folder / "r.jsonl")) == 1


def test_judge_is_measured_against_itself_and_people(desk: Workplace) -> None:
    desk.run(*INIT, "--grader", "rubric", *GRADERS["rubric"])
    desk.write("responses_api_models/fickle_judge/app.py", FICKLE_JUDGE)
    desk.write("fickle.yaml", WITH_FICKLE_JUDGE)
    words = ("--config", "fickle.yaml", "--config", "model.yaml", "--num-repeats", "4", "--output", "a.jsonl")
    finished = desk.run("ng", "eval", "run", *words)
    assert finished.code == 0, finished.err
    desk.run("ng", "eval", "label", "a.jsonl", "--output", "labels.csv")
    sheet = desk.folder / "labels.csv"
    sheet.write_text(sheet.read_text("utf-8-sig").replace(",,,", ",yes,no,"))
    words = ("--inputs", "a_materialized_inputs.jsonl", "--rollouts", "a.jsonl", "--output", "b.jsonl")
    again = ("ng", "eval", "reverify", "--config", "fickle.yaml", *words, "--judge-repeats", "5")
    finished = desk.run(*again, "--labels", "labels.csv")
    assert finished.code == 0, finished.err
    assert "8 rollouts graded 5 times each; mean rewards: " in finished.out
    assert re.search(r"polite: Fleiss' kappa -?\d\.\d\d; unstable rollouts (?!0\.0)", finished.out)
    assert "exact: grader \\ people" in finished.out
    rewards = [[row["reward"] for row in rows_of(desk.folder / f"b_judge{number}.jsonl")] for number in range(1, 6)]
    report = orjson.loads((desk.folder / "b_judge_variance.json").read_bytes())
    assert report["mean_rewards"] == pytest.approx([sum(each) / 8 for each in rewards])
    assert report["reward_std"] > 0
    refused = desk.run(*again)
    assert (refused.code, "b_judge1.jsonl already contains rollouts" in refused.err) == (1, True)
    (desk.folder / "b_judge5.jsonl").unlink()
    resumed = desk.run(*again, "--resume")
    assert (resumed.code, resumed.out.count("8 scored (8 of them earlier)")) == (0, 4)


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--grader", "exact"], 1, "q.csv: grader 'exact' needs a column with the answers. Name it with --answer."),
        (
            ["--grader", "exact", "--answer", "ans"],
            1,
            "q.csv: column 'ans' is missing. The columns are: a, kind, n, pattern, q, tone.",
        ),
        (["--grader", "number", "--answer", "a"], 1, "q.csv: row 2, column 'a': 'red' is not a number."),
        (["--grader", "rubric"], 2, "rubric: the grader 'rubric' needs a file with the criteria."),
        (["--grader", "rubric", "--rubric", "no.md"], 1, "rubric: there is no file 'no.md'"),
        (
            ["--grader", "exact", "--answer", "a", "--rubric", "rubric.md"],
            2,
            "the grader 'exact' does not use a rubric.",
        ),
        (["--grader", "exact", "--answer", "a", "--options", "a"], 2, "the grader 'exact' does not use options."),
        (["--grader", "exact", "--answer", "a", "--system", " "], 2, "system: the system prompt is empty."),
        (
            ["--grader", "exact", "--answer", "a", "--system", "kimd"],
            1,
            "q.csv: column 'kimd' is missing. Did you mean 'kind'? A system prompt has more than one word.",
        ),
        (
            ["--grader", "exact", "--answer", "a", "--system", "tone"],
            1,
            "q.csv: row 3, column 'tone': the system prom",
        ),
        (["--grader", "exact", "--answer", "a", "--train-share", "0.01"], 1, "leaves none for training. Choose an"),
        (["--grader", "exact", "--answer", "a", "--train-share", "1.5"], 2, "train_share: "),
        (["--grader", "exakt", "--answer", "a"], 2, "grader: "),
        (["--grader", "exact", "--answer", "a", "+name=my-eval"], 2, "'my-eval' cannot be the name of a benchmark"),
        (["--grader", "exact", "--answer", "a", "+name=taken"], 1, "benchmarks/taken already exists."),
        (["--grader", "exact", "--answer", "a", "+name=gsm8k"], 1, "benchmarks/gsm8k). Choose another name.\n"),
    ],
)
def test_unusable_settings_create_nothing(
    shared_workplace: Workplace, words: list[str], code: int, message: str
) -> None:
    shared_workplace.write("q.csv", QUESTIONS)
    shared_workplace.write("rubric.md", RUBRIC)
    shared_workplace.write("benchmarks/taken/config.yaml", "")
    name = [] if any(word.startswith("+name") for word in words) else ["mine"]
    finished = shared_workplace.run("ng", "eval", "init", *name, "--from", "q.csv", "--question", "q", *words)
    assert (finished.code, message in finished.err, finished.err.startswith("Error: ")) == (code, True, True), finished
    assert [path.name for path in Path(shared_workplace.folder, "benchmarks").iterdir()] == ["taken"]


@pytest.mark.parametrize(
    ("system", "prompts"),
    [
        ("Answer in {one} word.\n Be: brief.", ["Answer in {one} word.\n Be: brief."] * 2),
        ("Kind", ["x", "y"]),
    ],
)
def test_system_prompt_is_a_text_or_a_column(desk: Workplace, system: str, prompts: list[str]) -> None:
    made = desk.run(*INIT, "--grader", "exact", "--answer", "a", "--system", system)
    assert (made.code, made.err) == (0, "")
    assert desk.run("ng", "eval", "prepare", "--benchmark", "mine").code == 0
    collated = desk.run(
        "ng", "dataset", "collate", "--benchmark", "mine", "--mode", "train_preparation", "--output-dir", "out"
    )
    assert collated.code == 0, collated.err
    inputs = [row["responses_create_params"]["input"] for row in rows_of(desk.folder / "out/benchmark.jsonl")]
    assert [[message["role"] for message in each] for each in inputs] == [["system", "user"]] * 2
    assert [each[0]["content"] for each in inputs] == prompts


def test_questions_are_divided_for_training(desk: Workplace) -> None:
    desk.write("q.csv", "q,a\n" + "".join(f"What is {n} + {n}?,{2 * n}\n" for n in range(40)))
    made = desk.run(*INIT, "--grader", "number", "--answer", "a", "--train-share", "0.5")
    assert (made.code, made.err) == (0, "")
    data = desk.folder / "benchmarks/mine/data"
    files = (data / "mine.jsonl", data / "train.jsonl")
    before = [file.read_bytes() for file in files]
    benchmark, train = ({row["question"] for row in rows_of(file)} for file in files)
    assert (len(benchmark | train), benchmark & train, 10 < len(train) < 30) == (40, set(), True)
    files[1].unlink()
    words = ("--benchmark", "mine", "--mode", "train_preparation", "--output-dir", "out")
    collated = desk.run("ng", "dataset", "collate", *words)
    assert collated.code == 0, collated.err
    assert [file.read_bytes() for file in files] == before
    assert len(rows_of(desk.folder / "out/train.jsonl")) == len(train)


def test_images_are_files_or_addresses(desk: Workplace) -> None:
    picture = Path(__file__).parents[2].joinpath("docs", "images", "dice.png").read_bytes()
    desk.write("pictures/dice.png", "").write_bytes(picture)
    address = "https://example.org/b.png"
    desk.write("q.csv", f"q,a,p\nHow many?,5,pictures/dice.png\nAnd here?,2,{address}\n")
    made = desk.run(*INIT, "--grader", "number", "--answer", "a", "--image", "P")
    assert (made.code, made.err) == (0, "")
    (desk.folder / "pictures/dice.png").unlink()
    (desk.folder / "benchmarks/mine/data/mine.jsonl").unlink()
    assert desk.run("ng", "eval", "prepare", "--benchmark", "mine").code == 0
    words = ("--benchmark", "mine", "--mode", "train_preparation", "--output-dir", "out")
    collated = desk.run("ng", "dataset", "collate", *words)
    assert collated.code == 0, collated.err
    rows = rows_of(desk.folder / "out/benchmark.jsonl")
    text, image = rows[0]["responses_create_params"]["input"][0]["content"]
    assert text["text"].startswith("How many?")
    assert base64.b64decode(image["image_url"].removeprefix("data:image/png;base64,")) == picture
    assert rows[1]["responses_create_params"]["input"][0]["content"][1]["image_url"] == address


@pytest.mark.parametrize(
    ("cell", "problem"),
    [
        ("", "row 2, column 'p': the image is empty."),
        ("no.png", "row 2, column 'p': the image 'no.png' was not found in "),
        ("../no.png", "row 2, column 'p': '../no.png' is not below the table's folder."),
        ("/etc/passwd", "row 2, column 'p': '/etc/passwd' is not below the table's folder."),
    ],
)
def test_unusable_images_create_nothing(shared_workplace: Workplace, cell: str, problem: str) -> None:
    shared_workplace.write("p.csv", f"q,a,p\nHow many?,5,{cell}\n")
    words = ("--from", "p.csv", "--question", "q", "--answer", "a", "--grader", "number", "--image", "p")
    finished = shared_workplace.run("ng", "eval", "init", "pictures", *words)
    assert (finished.code, problem in finished.err) == (1, True), finished.err
    assert not (shared_workplace.folder / "benchmarks/pictures").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("label", "a.jsonl"), "Choose either --output LABELS.csv, to write a sample, or --score"),
        (("label", "a.jsonl", "--output", "x.csv", "--score", "x.csv"), "Choose either --output"),
        (("reverify", "--labels", "x.csv"), "labels: only used with --judge-repeats."),
        (("reverify", "--judge-repeats", "1"), "judge_repeats: "),
        (("reverify", "--judge-repeats", "2", "--append"), "append cannot be used with judge_repeats"),
        (("reverify", "--judge-repeats", "2", "+model_cache=/tmp/x"), "cached verdicts do not vary"),
    ],
)
def test_settings_that_exclude_each_other(shared_workplace: Workplace, words: tuple[str, ...], message: str) -> None:
    files = ("--inputs", "a.jsonl", "--rollouts", "a.jsonl", "--output", "b.jsonl") if words[0] == "reverify" else ()
    finished = shared_workplace.run("ng", "eval", words[0], *files, *words[1:])
    assert (finished.code, message in finished.err) == (2, True), finished
