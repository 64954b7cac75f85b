"""Tests of `ng_prepare_data` and `ng_materialize_prompts`."""

from __future__ import annotations

import orjson
import pytest
import yaml

from tests.rows import rows_of

pytestmark = pytest.mark.slow

ROW = {"responses_create_params": {"input": "2 + 2?"}, "expected": 4, "topic": "sums"}
FOLDER = "resources_servers/plain"


def write_rows(workplace, path, *rows):
    return workplace.write(path, "".join(orjson.dumps(row).decode() + "\n" for row in rows))


def read_rows(workplace, path):
    return rows_of(workplace.folder / path)


def read_json(workplace, path):
    return orjson.loads((workplace.folder / path).read_bytes())


@pytest.fixture
def with_datasets(workplace):
    """A function that writes an environment whose agents have these datasets, and returns its config's override."""

    def write(*datasets, **others):
        workplace.environment("plain")
        agents = {
            name: {
                "responses_api_agents": {
                    "simple_agent": {
                        "entrypoint": "app.py",
                        "resources_server": {"type": "resources_servers", "name": "plain"},
                        "model_server": {"type": "responses_api_models", "name": "policy_model"},
                        "datasets": list(entries),
                    }
                }
            }
            for name, entries in {"solver": datasets, **others}.items()
        }
        blocks = {"plain": {"resources_servers": {"plain": {"entrypoint": "app.py"}}}, **agents}
        workplace.write("run.yaml", yaml.safe_dump(blocks, sort_keys=False))
        return "+config_paths=[run.yaml]"

    return write


def dataset(name="train", type_="train", **more):
    license_ = {"license": "MIT"} if type_ in ("train", "validation") else {}
    return {"name": name, "type": type_, "jsonl_fpath": f"{FOLDER}/data/{name}.jsonl", **license_, **more}


def prepared(workplace, *words, mode="train_preparation"):
    return workplace.run("ng_prepare_data", "+output_dirpath=out", f"+mode={mode}", *words)


def test_datasets_are_measured_and_collated_by_type(workplace, with_datasets):
    write_rows(workplace, f"{FOLDER}/data/train.jsonl", ROW, {**ROW, "expected": 8})
    write_rows(workplace, f"{FOLDER}/data/more.jsonl", {**ROW, "agent_ref": {"name": "other"}})
    write_rows(workplace, f"{FOLDER}/data/held.jsonl", ROW)
    config = with_datasets(
        dataset(num_repeats=2), dataset("held", "validation"), dataset("shown", "example"), other=[dataset("more")]
    )
    finished = prepared(workplace, config)
    assert (finished.code, finished.err) == (0, "")
    assert finished.out.splitlines()[0].startswith("train: 5 rows in out/train.jsonl (metrics: train_metrics.json), ")
    rows = read_rows(workplace, "out/train.jsonl")
    assert [(row["expected"], row["agent_ref"]["name"]) for row in rows] == [
        (4, "solver"), (4, "solver"), (8, "solver"), (8, "solver"), (4, "other"),
    ]  # fmt: skip
    assert read_rows(workplace, f"{FOLDER}/data/train_prepare.jsonl") == rows[:4]
    measured = read_json(workplace, f"{FOLDER}/data/train_metrics.json")
    assert (measured["name"], measured["num_repeats"], measured["license"]) == ("train", 2, "MIT")
    assert measured["Number of examples"] == 2
    assert measured["expected"] == {
        "Total # non-null values": 2, "Average": 6.0, "Min": 4, "Max": 8, "Standard deviation": 2.83,
    }  # fmt: skip
    assert measured["topic"] == {"unique_count": 1, "total_count": 2}
    assert read_json(workplace, "out/train_metrics.json")["Number of examples"] == 5
    assert {path.name for path in (workplace.folder / "out").iterdir()} == {
        "train.jsonl", "train_metrics.json", "validation.jsonl", "validation_metrics.json",
    }  # fmt: skip


COLLATE = ("ng", "dataset", "collate", "--output-dir", "out", "--mode")


def test_collate_writes_only_into_the_output_folder(workplace, with_datasets, tmp_path):
    write_rows(workplace, f"{FOLDER}/data/shown.jsonl", ROW)
    elsewhere = tmp_path / "elsewhere" / "shown.jsonl"
    write_rows(workplace, elsewhere, ROW, ROW)
    config = with_datasets(dataset("shown", "example"), dataset("other", "example", jsonl_fpath=str(elsewhere)))
    words = (*COLLATE, "example_validation", config)
    first, second = workplace.run(*words), workplace.run(*words)
    assert (first.code, first.err, first.out) == (0, "", second.out)
    out = workplace.folder / "out"
    apart = elsewhere.parent.relative_to(elsewhere.anchor)
    own = [f"datasets/{folder}/shown_" for folder in (f"{FOLDER}/data", apart)]
    assert {str(path.relative_to(out)) for path in out.rglob("*") if path.is_file()} == {
        "example.jsonl", "example_metrics.json",
        *(f"{each}prepare.jsonl" for each in own), *(f"{each}metrics.json" for each in own),
    }  # fmt: skip
    assert [path.name for path in (workplace.folder / FOLDER / "data").iterdir()] == ["shown.jsonl"]
    assert [path.name for path in elsewhere.parent.iterdir()] == ["shown.jsonl"]
    assert len(read_rows(workplace, out / "datasets" / apart / "shown_prepare.jsonl")) == 2


def test_collate_compares_with_metrics_next_to_the_data(workplace, with_datasets):
    write_rows(workplace, f"{FOLDER}/data/train.jsonl", ROW)
    shipped = workplace.write(f"{FOLDER}/data/train_metrics.json", '{"expected": {"Average": 9}}')
    words = (*COLLATE, "train_preparation", with_datasets(dataset()))
    own = f"out/datasets/{FOLDER}/data/train_metrics"
    finished = workplace.run(*words)
    assert finished.code == 1
    assert finished.err.startswith(
        f"Error: {shipped}: expected.Average was 9 and is 4.0 now. The current metrics are in "
    )
    assert read_json(workplace, f"{own}_conflict.json")["Number of examples"] == 1
    assert workplace.run(*words, "--overwrite-metrics-conflicts").code == 0
    # The accepted metrics replace those next to the data in later comparisons.
    assert workplace.run(*words).code == 0
    write_rows(workplace, f"{FOLDER}/data/train.jsonl", ROW, ROW)
    assert f"{own}.json: Number of examples was 1 and is 2 now" in workplace.run(*words).err
    assert read_json(workplace, f"{FOLDER}/data/train_metrics.json") == {"expected": {"Average": 9}}


def test_benchmark_rows_get_their_prompt(workplace, with_datasets):
    write_rows(workplace, f"{FOLDER}/data/bench.jsonl", {"question": "2 + 2?"})
    workplace.write("prompt.yaml", "user: 'Solve {question}'\n")
    config = with_datasets(dataset("bench", "benchmark", prompt_config="prompt.yaml", prepare_script="prepare.py"))
    assert prepared(workplace, config).code == 0
    (row,) = read_rows(workplace, "out/benchmark.jsonl")
    assert row["responses_create_params"] == {"input": [{"role": "user", "content": "Solve 2 + 2?"}]}


def test_input_in_addition_to_prompt_is_rejected(workplace, with_datasets):
    file = write_rows(workplace, f"{FOLDER}/data/train.jsonl", {"question": "?"}, {**ROW, "question": "?"})
    workplace.write("prompt.yaml", "user: 'Solve {question}'\n")
    finished = prepared(workplace, with_datasets(dataset(prompt_config="prompt.yaml")))
    assert finished.code == 1
    problem = "prompt_config is set, but the row has responses_create_params.input. Remove one of them."
    assert finished.err == f"Error: {file}: 1 of 2 rows invalid:\n{file}:2: {problem}\n"


def test_metrics_conflict_stops_preparation(workplace, with_datasets):
    config = with_datasets(dataset())
    write_rows(workplace, f"{FOLDER}/data/train.jsonl", ROW)
    assert prepared(workplace, config).code == 0
    write_rows(workplace, f"{FOLDER}/data/train.jsonl", ROW, {**ROW, "expected": 5})
    (workplace.folder / "out/train.jsonl").unlink()
    finished = prepared(workplace, config)
    assert (finished.code, finished.out) == (1, "")
    metrics = f"{workplace.folder}/{FOLDER}/data/train_metrics"
    assert finished.err.startswith(f"Error: {metrics}.json: Number of examples was 1 and is 2 now; ")
    assert f"{metrics}_conflict.json." in finished.err
    assert read_json(workplace, f"{FOLDER}/data/train_metrics_conflict.json")["Number of examples"] == 2
    assert not (workplace.folder / "out/train.jsonl").exists()

    assert prepared(workplace, config, "+overwrite_metrics_conflicts=true").code == 0
    assert read_json(workplace, f"{FOLDER}/data/train_metrics.json")["Number of examples"] == 2
    assert not (workplace.folder / f"{FOLDER}/data/train_metrics_conflict.json").exists()


@pytest.mark.parametrize(
    ("earlier", "agrees"),
    [
        ({"expected": {"Average": 4.004}}, True),
        ({"expected": {"Average": 4.02}}, False),
        ({"num_repeats": 1, "gitlab_identifier": None, "unheard of": None}, True),
        ({"unheard of": 1}, False),
        ({"topic": {"unique_count": 2}}, False),
    ],
)
def test_earlier_metrics_must_agree_with_data(workplace, with_datasets, earlier, agrees):
    write_rows(workplace, f"{FOLDER}/data/train.jsonl", ROW)
    workplace.write(f"{FOLDER}/data/train_metrics.json", orjson.dumps(earlier).decode())
    assert prepared(workplace, with_datasets(dataset())).code == (0 if agrees else 1)


def test_invalid_rows_are_reported_with_lines(workplace, with_datasets):
    bad = {"responses_create_params": {"input": 3}}
    typo = {"response_create_params": {"input": "?"}}
    deep = {**ROW, "deep": orjson.loads(b"[" * 250 + b"]" * 250)}
    file = write_rows(workplace, f"{FOLDER}/data/train.jsonl", ROW, bad, ROW, {"question": "?"}, typo, deep)
    finished = prepared(workplace, with_datasets(dataset()))
    assert finished.code == 1
    summary, first, second, third, fourth = finished.err.splitlines()
    assert summary == f"Error: {file}: 4 of 6 rows invalid:"
    assert first.startswith(f"{file}:2: responses_create_params.input")
    problem = "responses_create_params is missing, and the dataset does not set prompt_config. Add one of them."
    assert second == f"{file}:4: {problem}"
    assert third == f"{file}:5: responses_create_params is missing. Is 'response_create_params' a typo for it?"
    assert fourth.startswith(f"{file}:6: brackets nest more than 100 deep. Flatten the row, or write a part of it")
    assert not (workplace.folder / f"{FOLDER}/data/train_metrics.json").exists()


def test_rows_of_invalid_agents_are_reported(workplace, with_datasets):
    given = ({}, "solver", {"name": "solvr"}, {"name": "solver"}, {"nam": "solver"})
    rows = ({**ROW, "agent_ref": agent} for agent in given)
    file = write_rows(workplace, f"{FOLDER}/data/train.jsonl", *rows)
    finished = prepared(workplace, with_datasets(dataset()))
    assert (finished.code, finished.err.splitlines()) == (
        1,
        [
            f"Error: {file}: 3 of 5 rows invalid:",
            f"{file}:2: agent_ref must be {{name: AGENT}}, found 'solver'.",
            f"{file}:3: agent_ref: this configuration does not define an agent 'solvr'. Did you mean 'solver'?",
            f"{file}:5: agent_ref must be {{name: AGENT}}, found {{'nam': 'solver'}}.",
        ],
    )
    assert not (workplace.folder / "out").exists()


@pytest.mark.parametrize(
    ("more", "words", "advice"),
    [
        ({}, (), "Copy it there, or add a source."),
        ({"source": {"type": "huggingface", "repo_id": "a/b"}}, (), "Add --download to download it."),
        ({}, ("+should_download=true",), "does not name a huggingface source. Add source: {type: huggingface, …}"),
        (
            {"source": {"type": "gitlab", "dataset_name": "d", "version": "1", "artifact_fpath": "d.jsonl"}},
            ("--download",),
            "does not name a huggingface source. Add --data-source gitlab.",
        ),
    ],
)
def test_missing_file_is_reported_with_remedy(workplace, with_datasets, more, words, advice):
    finished = prepared(workplace, with_datasets(dataset(**more)), *words)
    assert finished.code == 1
    assert "dataset 'train'" in finished.err
    assert advice in finished.err


def test_mode_without_datasets_lists_available_types(workplace, with_datasets):
    finished = prepared(workplace, with_datasets(dataset()), mode="example_validation")
    assert finished == (
        1,
        "",
        "Error: mode=example_validation: no agent of this configuration has a dataset of type example. Available "
        "types: train.\n",
    )


@pytest.mark.parametrize(
    ("program", "words"),
    [
        (
            "ng_materialize_prompts",
            ("+input_jsonl_fpath=in.jsonl", "+prompt_config=p.yaml", "+output_jsonl_fpath=o.jsonl"),
        ),
        ("gym", ("dataset", "render", "-i", "in.jsonl", "--prompt-config", "p.yaml", "-o", "o.jsonl")),
    ],
)
def test_rows_are_rendered_with_a_prompt(workplace, program, words):
    write_rows(workplace, "in.jsonl", {"q": "a", "expected": 1}, {"q": "b", "expected": 2})
    workplace.write("p.yaml", "system: Be brief.\nuser: 'Say {q}.'\n")
    assert workplace.run(program, *words) == (0, "2 rows: o.jsonl\n", "")
    first, second = read_rows(workplace, "o.jsonl")
    assert (first["expected"], second["expected"]) == (1, 2)
    assert second["responses_create_params"]["input"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Say b."},
    ]


def test_prompt_mismatch_reports_file_and_line(workplace):
    write_rows(workplace, "in.jsonl", {"q": "a"}, {"question": "b"})
    workplace.write("p.yaml", "user: '{q}'\n")
    finished = workplace.run(
        "ng_materialize_prompts", "--input", "in.jsonl", "--prompt-config", "p.yaml", "-o", "o.jsonl"
    )
    assert finished.code == 1
    assert "in.jsonl:2: the prompt uses 'q', but the row has only: question." in finished.err
    assert not (workplace.folder / "o.jsonl").exists()


def test_images_named_by_rows_are_collated_as_data(workplace, with_datasets):
    content = [{"type": "input_image", "image_path": "images/a.png"}]
    row = {"responses_create_params": {"input": [{"role": "user", "content": content}]}}
    write_rows(workplace, f"{FOLDER}/data/train.jsonl", row)
    config = with_datasets(dataset())
    finished = prepared(workplace, config)
    assert finished.code == 1
    assert f"{FOLDER}/data/train.jsonl:1: responses_create_params.input[0].content[0].image_path: file" in finished.err
    workplace.write(f"{FOLDER}/data/images/a.png", "")
    (workplace.folder / FOLDER / "data/images/a.png").write_bytes(b"\x89PNG\r\n\x1a\npixels")
    assert prepared(workplace, config).code == 0
    (collated,) = read_rows(workplace, "out/train.jsonl")
    (part,) = collated["responses_create_params"]["input"][0]["content"]
    assert part == {"type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgpwaXhlbHM="}
    assert "_ng_media_dir" not in collated


TASK_DATA = """
from pydantic import BaseModel, ConfigDict


class TaskData(BaseModel):
    model_config = ConfigDict(extra="forbid")

    expected: int
    topic: str = ""
"""


def test_task_data_validation_reports_each_invalid_row(workplace, with_datasets):
    write_rows(workplace, f"{FOLDER}/data/train.jsonl", ROW, {**ROW, "expected": "many"}, {**ROW, "extra": 1})
    config = with_datasets(dataset())
    workplace.write(f"{FOLDER}/task_data.py", TASK_DATA)
    assert prepared(workplace, config).code == 0
    finished = workplace.run(
        "ng", "dataset", "collate", "--config", "run.yaml", "--mode", "train_preparation", "--output-dir", "out",
        "--task-data-validation",
    )  # fmt: skip
    assert finished.code == 1
    assert "2 of 3 rows invalid" in finished.err
    assert "train.jsonl:2: expected: it must be a valid integer" in finished.err
    assert "train.jsonl:3: extra: " in finished.err


def test_task_data_validation_needs_a_usable_class(workplace, with_datasets):
    write_rows(workplace, f"{FOLDER}/data/train.jsonl", ROW)
    config = with_datasets(dataset())
    for source, reason in (
        (None, "no resources server of these agents has a task_data.py: solver"),
        ("x = 1\n", "task_data.py does not define TaskData"),
        ("import nowhere\n", "task_data.py cannot be imported: ModuleNotFoundError"),
        ("exit(0)\n", "task_data.py cannot be imported: SystemExit"),
    ):
        if source:
            workplace.write(f"{FOLDER}/task_data.py", source)
        finished = prepared(workplace, config, "+task_data_validation=true")
        assert (finished.code, reason in finished.err) == (1, True), finished.err
