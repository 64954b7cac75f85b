"""The train and validation data of every environment: made on demand, distinct, without a common row, and solvable."""

import json
import random
from functools import cache
from importlib import import_module
from typing import NamedTuple

import pytest

from nemo_gym import DataError
from nemo_gym.config.loading import load
from nemo_gym.contract.checks import CHECKS, Checkup
from nemo_gym.contract.environment import open_environment
from nemo_gym.contract.tasks import Task
from nemo_gym.data.gather import AgentDataset, rows_of
from nemo_gym.data.media import with_media
from nemo_gym.data.sources import MIRROR_ENV_VAR
from tests.each_case import each_case
from tests.test_every_environment import CONFIGS, SAMPLE_MODEL

pytestmark = pytest.mark.slow

NO_MIRROR = "http://127.0.0.1:9"
"""Nothing answers here, so data that is fetched cannot be made."""
PROMISES = (
    "rows are valid and name existing tools",
    "the oracle earns the full reward",
    "doing nothing earns less",
)
NUMBERS = {"id", "uuid"}
"""Fields that do not make another task of a row."""
TASK_IS_NOT_IN_THE_PROMPT = {
    "aviary", "blackjack", "calendar_user_simulation", "example_session_state_mgmt", "grl_sokoban", "gymnasium",
    "ors",
}  # fmt: skip
"""A session or a simulated user shows the rest of these tasks, so two of them may begin alike."""
HAS_TASKS_ELSEWHERE = {"harbor", "mcp_tools", "openenv", "textgames"}
"""The tasks come from the servers that the user names; the folder has only examples."""
FOR_DATA_OF_RECIPES = {"lc_judge.yaml", "nl2bash-equivalency.yaml"}
"""Recipes of NeMo RL name these configs together with data of their own."""
PACKAGE_LOADS_SLOWLY = {"reasoning_gym"}


class Scale(NamedTuple):
    """How many rows are made, and how many of them the oracle plays."""

    counts: dict[str, int]
    """Per split; without one the config decides."""
    played: int


FEW = Scale({"train": 30, "validation": 10}, played=20)
ALL = Scale({}, played=100)
OTHER_SEED = 10**6
"""Far away, because some scripts number their rows from the seed on."""
LEAST = {"train": 2000, "validation": 200}


@cache
def datasets_of(path):
    """Return the train and validation datasets of a config that a script makes, and their agents."""
    run = load([path, SAMPLE_MODEL], skip_dotenv=True, require_servers=True)
    return [
        (agent.name, dataset)
        for agent in run.servers_of("responses_api_agents")
        for dataset in agent.datasets
        if dataset.type in LEAST and dataset.prepare_script
    ]


def cases():
    for path in CONFIGS:
        # Loading every config here would slow the collection of all tests down.
        if "prepare_script:" not in path.read_text("utf-8"):
            continue
        folder = path.parents[1].name
        marks = [pytest.mark.needs_bubblewrap] if folder == "code_gen" else []
        if folder not in PACKAGE_LOADS_SLOWLY:
            yield pytest.param((path, FEW), id=f"{path.stem}-few", marks=marks)
        stands_on = pytest.mark.stands_on(f"resources_servers/{folder}/", "nemo_gym/data/", "nemo_gym/contract/")
        yield pytest.param((path, ALL), id=f"{path.stem}-all", marks=[*marks, stands_on])


@pytest.fixture(params=cases(), scope="module")
def made(request, tmp_path_factory):
    """The config, its made rows by split, and how many of them the oracle plays."""
    path, scale = request.param
    folder = tmp_path_factory.mktemp("data")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(MIRROR_ENV_VAR, NO_MIRROR)
        rows = {
            dataset.type: made_rows(folder, agent, dataset, **count_of(scale, dataset))
            for agent, dataset in datasets_of(path)
        }
    return path, rows, scale


def count_of(scale, dataset):
    return {"count": scale.counts[dataset.type]} if dataset.type in scale.counts else {}


def made_rows(folder, agent, dataset, **arguments):
    """Return the rows that a dataset's script makes, as they are sent."""
    output = folder / f"{agent}_{dataset.name}_{'_'.join(arguments)}.jsonl"
    script = import_module(dataset.prepare_script.removesuffix(".py").replace("/", "."))
    try:
        script.prepare(**{"output": output, **dataset.prepare_args, **arguments})
    except DataError as error:
        if NO_MIRROR in str(error):
            pytest.skip(f"it is fetched: {error}")
        raise
    return [with_media(row) for row in rows_of([AgentDataset(agent, dataset, output)], copies=False)]


def tasks_of(rows):
    """Return each row without the fields that do not make another task of it."""
    return [json.dumps({key: row[key] for key in sorted(row.keys() - NUMBERS)}) for row in rows]


def prompt_of(row):
    return json.dumps(row["responses_create_params"]["input"])


def test_splits_are_distinct_and_share_nothing(made):
    path, rows, scale = made
    asked = {dataset.type: dataset.prepare_args.get("count") for _, dataset in datasets_of(path)} | scale.counts
    assert {split: len(each) for split, each in rows.items() if asked[split] is not None} == asked
    train, validation = (tasks_of(rows[split]) for split in ("train", "validation"))
    assert len({*train, *validation}) == len(train) + len(validation)


def test_splits_share_no_prompt(made):
    path, rows, _ = made
    train, validation = ({prompt_of(row) for row in rows[split]} for split in ("train", "validation"))
    if path.stem not in TASK_IS_NOT_IN_THE_PROMPT:
        assert not train & validation


def test_another_seed_shares_nothing_with_train(made, tmp_path):
    path, rows, _ = made
    for agent, dataset in datasets_of(path):
        if dataset.type == "validation":
            other = made_rows(tmp_path, agent, dataset, count=20, seed=OTHER_SEED)
            assert tasks_of(other) != tasks_of(rows["validation"])[:20]
            assert not {*tasks_of(other)} & {*tasks_of(rows["train"])}


async def test_training_rows_keep_promises(made):
    path, rows, scale = made
    played = random.Random(f"sample of {path.stem}").sample(rows["train"], scale.played)
    tasks = [Task(f"row {number}", row) for number, row in enumerate(played, start=1)]
    with open_environment(path.parents[1], [f"+config_paths=[{path}]"]) as environment:
        # In one test, because the oracles remember solutions that take long to find.
        for promise in PROMISES:
            await CHECKS[promise](Checkup(environment, tasks))


@each_case(
    "path",
    [
        path
        for path in CONFIGS
        if path.parents[1].name not in HAS_TASKS_ELSEWHERE and path.name not in FOR_DATA_OF_RECIPES
    ],
)
def test_config_has_train_and_validation_data(path):
    run = load([path, SAMPLE_MODEL], skip_dotenv=True, require_servers=True)
    datasets = [dataset for agent in run.servers_of("responses_api_agents") for dataset in agent.datasets]
    assert {dataset.type for dataset in datasets if dataset.prepare_script or dataset.source} >= LEAST.keys()
    for _, dataset in datasets_of(path):
        assert dataset.prepare_args["split"] == dataset.type
        assert dataset.prepare_args.get("count", LEAST[dataset.type]) >= LEAST[dataset.type]
