"""Commands that make or download the datasets whose files do not exist yet."""

from __future__ import annotations

import hashlib

import orjson
import pytest
import yaml

from tests.rows import rows_of

pytestmark = pytest.mark.slow

FOLDER = "resources_servers/plain"
ROW = b'{"responses_create_params": {"input": "2 + 2?"}, "number": 0}\n'
SHA256 = hashlib.sha256(ROW).hexdigest()
GENERATED = """
from pathlib import Path

from nemo_gym import Split, run_prepare, split_rows
from nemo_gym.jsonl import write_rows


def prepare(output: Path, count: int = 3, size: tuple[int, int] = (1, 1), split: Split | None = None) -> Path:
    rows = ({"responses_create_params": {"input": "x"}, "number": n, "size": size} for n in range(1000))
    write_rows(output, split_rows(rows, split, count))
    return output
"""
FETCHED = """
from pathlib import Path

from nemo_gym.data.sources import GitHub, fetch


def prepare(output: Path) -> Path:
    source = fetch(GitHub("us/sums", "data/test.jsonl"), folder=output.parent / "source")
    output.write_bytes(source.read_bytes() * 2)
    return output
"""
COLLATE = ("ng_prepare_data", "+config_paths=[run.yaml]", "+output_dirpath=out", "+mode=train_preparation")


def dataset(type_="train", **more):
    return {"name": type_, "type": type_, "jsonl_fpath": f"{FOLDER}/data/{type_}.jsonl", "license": "MIT", **more}


@pytest.fixture
def plain(workplace):
    """A function that writes an environment with this prepare.py and these datasets, and returns its workplace."""

    def write(script, *datasets):
        workplace.environment("plain")
        workplace.write(f"{FOLDER}/prepare.py", script)
        agent = {
            "entrypoint": "app.py",
            "resources_server": {"type": "resources_servers", "name": "plain"},
            "model_server": {"type": "responses_api_models", "name": "policy_model"},
            "datasets": [{"prepare_script": f"{FOLDER}/prepare.py", **each} for each in datasets],
        }
        blocks = {
            "plain": {"resources_servers": {"plain": {"entrypoint": "app.py"}}},
            "solver": {"responses_api_agents": {"simple_agent": agent}},
        }
        workplace.write("run.yaml", yaml.safe_dump(blocks, sort_keys=False))
        return workplace

    return write


def made(workplace, type_="train"):
    return rows_of(workplace.folder / f"{FOLDER}/data/{type_}.jsonl")


def test_generated_datasets_are_made_without_permission(plain, dead_hub):
    train = dataset(prepare_args={"split": "train", "count": 40, "size": [2, 3]})
    held_out = dataset("validation", prepare_args={"split": "validation", "count": 5, "size": [2, 3]})
    workplace = plain(GENERATED, train, held_out)
    workplace.env |= dead_hub
    finished = workplace.run(*COLLATE)
    assert finished.code == 0, finished.err
    assert finished.err.splitlines()[0].startswith("making dataset 'train' with ")
    assert (len(made(workplace)), len(made(workplace, "validation"))) == (40, 5)
    assert made(workplace)[0]["size"] == [2, 3]
    shared = {row["number"] for row in made(workplace)} & {row["number"] for row in made(workplace, "validation")}
    assert shared == set()
    assert workplace.run(*COLLATE).err == ""


def test_file_in_a_new_folder_is_made_in_the_working_folder(plain):
    # The installation has a folder with this name, too.
    workplace = plain(GENERATED, dataset(jsonl_fpath="data/made_here.jsonl"))
    finished = workplace.run(*COLLATE)
    assert finished.code == 0, finished.err
    assert (workplace.folder / "data" / "made_here.jsonl").is_file()


def test_changed_arguments_make_the_file_again(plain):
    workplace = plain(GENERATED, dataset(prepare_args={"split": "train", "count": 4}))
    path = workplace.folder / f"{FOLDER}/data/train.jsonl"
    assert workplace.run(*COLLATE).code == 0
    workplace = plain(GENERATED, dataset(prepare_args={"split": "train", "count": 6}))
    finished = workplace.run(*COLLATE)
    assert (finished.code, len(made(workplace))) == (0, 6), finished.err
    assert orjson.loads(path.with_name("train_metrics.json").read_bytes())["Number of examples"] == 6
    assert finished.err.startswith(f"{path} was made with other prepare_args")
    assert workplace.run(*COLLATE).err == ""
    # Another command may have made it again.
    workplace = plain(GENERATED, dataset(prepare_args={"split": "train", "count": 7}))
    words = ("--config", "run.yaml", "--model-type", "sample_model", "--split", "train", "--output", "out.jsonl")
    assert workplace.run("ng_e2e_collect_rollouts", *words).code == 0
    assert len(made(workplace)) == 7
    finished = workplace.run(*COLLATE)
    assert (finished.code, finished.err) == (0, "")
    # A file that somebody copied there is theirs.
    path.write_bytes(ROW)
    workplace = plain(GENERATED, dataset(prepare_args={"split": "train", "count": 8}))
    assert "Correct the data" in workplace.run(*COLLATE).err
    assert workplace.run(*COLLATE, "+overwrite_metrics_conflicts=true").err == ""
    assert path.read_bytes() == ROW


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"counts": 3}, "does not accept these prepare_args: got an unexpected keyword argument 'counts'."),
        (
            {"count": "many"},
            "prepare_args.count: Input should be a valid integer, unable to parse string as an integer",
        ),
        ({"split": "test"}, "prepare_args.split: Input should be 'train' or 'validation', found 'test'."),
        ({"split": "train", "count": 5000}, "but only 911 distinct rows of it exist."),
    ],
)
def test_invalid_arguments_are_reported(plain, arguments, problem):
    finished = plain(GENERATED, dataset(prepare_args=arguments)).run(*COLLATE)
    assert (finished.code, finished.out) == (1, "")
    assert "Error: dataset 'train': " in finished.err
    assert problem in finished.err


def test_fetched_dataset_needs_permission(plain, fake_hub):
    fake_hub.github("us/sums", "data/test.jsonl", ROW)
    url = "https://example.org/validation.jsonl"
    fake_hub.file(url, ROW)
    direct = dataset("validation", source={"type": "url", "url": url, "sha256": SHA256})
    workplace = plain(FETCHED, dataset(), direct)
    workplace.env |= fake_hub.env
    finished = workplace.run(*COLLATE)
    assert finished.code == 1
    first, second = finished.err.removeprefix("making dataset").splitlines()[-2:]
    mirror = f"{fake_hub.url}/raw.githubusercontent.com/us/sums/main/data/test.jsonl"
    assert first.endswith(f"It comes from {mirror}. Add --download to download it.")
    assert second.endswith(
        f"It comes from {fake_hub.url}/example.org/validation.jsonl. Add --download to download it."
    )
    assert fake_hub.requests == []

    finished = workplace.run(*COLLATE, "+should_download=true")
    assert finished.code == 0, finished.err
    assert (len(made(workplace)), len(made(workplace, "validation"))) == (2, 1)
    record = orjson.loads((workplace.folder / f"{FOLDER}/data/validation.jsonl.source.json").read_bytes())
    assert (record["address"], record["sha256"]) == (url, SHA256)

    # The size is known from the last download.
    (workplace.folder / f"{FOLDER}/data/validation.jsonl").unlink()
    assert "validation.jsonl (62 B). Add --download" in workplace.run(*COLLATE).err


def test_source_with_wrong_hash_is_rejected(plain, fake_hub):
    fake_hub.huggingface("us/sums", "train.jsonl", ROW, "v1")
    source = {"type": "huggingface", "repo_id": "us/sums", "artifact_fpath": "train.jsonl", "revision": "v1"}
    workplace = plain(GENERATED, dataset(source={**source, "sha256": "0" * 64}))
    workplace.env |= fake_hub.env
    finished = workplace.run(*COLLATE, "+should_download=true")
    assert finished.code == 1
    assert f"its SHA-256 is {SHA256}, but {'0' * 64} is pinned." in finished.err
    assert not (workplace.folder / f"{FOLDER}/data/train.jsonl").exists()
    workplace = plain(GENERATED, dataset(source=source))
    assert workplace.run(*COLLATE, "+should_download=true").code == 0
    assert len(made(workplace)) == 1


def test_unreachable_source_is_one_line(plain, dead_hub):
    workplace = plain(FETCHED, dataset())
    workplace.env |= dead_hub
    finished = workplace.run(*COLLATE, "+should_download=true")
    assert finished.code == 1
    note, error = finished.err.splitlines()
    assert note.startswith("making dataset 'train' with ")
    assert "no connection to 127.0.0.1:1 (" in error
    assert "NEMO_GYM_MIRROR, or copy the file to " in error


def test_run_makes_its_missing_split(plain):
    workplace = plain(GENERATED, dataset(prepare_args={"split": "train", "count": 4}))
    words = ("--model-type", "sample_model", "+split=train", "+output_jsonl_fpath=results/r.jsonl")
    finished = workplace.run("ng_e2e_collect_rollouts", "+config_paths=[run.yaml]", *words)
    assert finished.code == 0, finished.err
    assert "4 planned = 4 scored" in finished.out
    assert len(made(workplace)) == 4


def test_split_without_file_name_is_described_at_the_endpoint_in_use(plain):
    source = {"type": "huggingface", "repo_id": "us/sums"}
    workplace = plain(GENERATED, dataset(source=source))
    public = workplace.run(*COLLATE)
    assert "It comes from https://huggingface.co/datasets/us/sums (split train). Add " in public.err
    workplace.env["HF_ENDPOINT"] = "http://hub.example/"
    assert "It comes from http://hub.example/datasets/us/sums (split train). Add " in workplace.run(*COLLATE).err
