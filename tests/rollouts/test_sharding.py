"""Sharded runs: which may start, how their results are merged, and what needs whole rollouts."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest
from pydantic import ValidationError

from nemo_gym.calls.address_book import AddressBook
from nemo_gym.calls.task_rules import TaskRules
from nemo_gym.config.token_capture import TokenCaptureConfig
from nemo_gym.errors import DataError, UsageError
from nemo_gym.evaluation.labels import SampleJob, write_sample
from nemo_gym.jsonl import JsonObject, read_rows, write_rows
from nemo_gym.rollouts.job import CollectionSettings, RunFiles
from nemo_gym.rollouts.merging import merge, shards_of
from nemo_gym.rollouts.resume import EarlierRun
from nemo_gym.rollouts.row_collector import RowCollector, check_collector
from nemo_gym.rollouts.stored_rollouts import ReverificationJob, Stored
from nemo_gym.rollouts.subject import ServerBlock
from nemo_gym.schemas.row import Row
from nemo_gym.servers.collecting import CollectingAgentConfig
from nemo_gym.servers.shards import Shards
from nemo_gym.training.dataset import DatasetJob, export_dataset

BLOCKS = [
    ServerBlock("games_agent", "responses_api_agents", "simple_agent", {}),
    ServerBlock("near", "responses_api_agents", "collecting_agent", {"shard_dir": "shards"}),
    ServerBlock("bare", "responses_api_agents", "collecting_agent", {"shard_dir": None}),
]
TOKENS = TokenCaptureConfig(enabled=True, all_agents=True, dir=Path("/tokens"))


def rollout(number: int) -> JsonObject:
    usage = {"input_tokens": 3, "output_tokens": number}
    return {
        "responses_create_params": {"input": f"question {number}"},
        "agent_ref": {"name": "games_agent"},
        "_ng_task_index": number,
        "_ng_rollout_index": 0,
        "response": {"output": [{"role": "assistant", "content": "x" * 300}], "usage": usage, "model": "small"},
        "reward": number / 10,
    }


async def kept(folder: Path, *numbers: int) -> list[JsonObject]:
    """Keep rollouts in a new shard and return their entries."""
    shards = Shards(folder, lambda line: line.replace(b"hunter22", b"***"))
    entries = [await shards.keep("out.0123", Row(rollout(number))) for number in numbers]
    shards.close()
    return entries


@pytest.fixture
async def index(tmp_path: Path) -> Path:
    """The results of a run with five rollouts in two shards, and one that is whole. One line is not listed."""
    first = await kept(tmp_path / "left", 3, 1, 9)
    second = await kept(tmp_path / "right", 2, 0, 4)
    whole = {**rollout(5), "_ng_shard": {"machine": "node1", "problem": "the disk is full"}}
    write_rows(tmp_path / "out.jsonl", [first[0], second[0], whole, first[1], second[1], second[2]])
    return tmp_path / "out.jsonl"


def copies(folder: Path) -> list[Path]:
    return sorted(folder.glob("*/*.jsonl"))


async def test_merged_rollouts_are_whole(index, tmp_path):
    merged = merge([index], copies(tmp_path), tmp_path / "merged.jsonl")
    assert list(read_rows(tmp_path / "merged.jsonl")) == [rollout(number) for number in (3, 2, 5, 1, 0, 4)]
    [(path, lines)] = merged.unlisted.items()
    assert (merged.rollouts, merged.missing, path.parent.name, lines) == (6, {}, "left", 1)


async def test_output_of_the_run_is_replaced(index, tmp_path):
    files = RunFiles(results=index)
    files.digests.write_bytes(b"x" * 8)
    merge([index], shards_of([index]), index)
    assert [row["_ng_task_index"] for row in read_rows(index)] == [3, 2, 5, 1, 0, 4]
    assert not files.digests.exists()


async def test_copies_may_be_joined_and_renamed(index, tmp_path):
    joined = tmp_path / "joined"
    joined.write_bytes(b"".join(path.read_bytes() for path in reversed(copies(tmp_path))))
    assert merge([index], [joined], tmp_path / "merged.jsonl").rollouts == 6


@pytest.mark.parametrize("damage", ["absent", "edited", "torn"])
async def test_missing_rollouts_are_named(index, tmp_path, damage):
    before = index.read_bytes()
    shards = copies(tmp_path)
    left = shards[0]
    if damage == "absent":
        shards = shards[1:]
    elif damage == "edited":
        left.write_bytes(left.read_bytes().replace(b"question", b"answer"))
    else:
        left.write_bytes(left.read_bytes()[:20])
    with pytest.raises(DataError, match=rf"2 rollouts not found: 2 in \S+:{left}\. Copy these files"):
        merge([index], shards, index)
    assert index.read_bytes() == before
    merged = merge([index], shards, index, leave_out=True)
    assert merged.missing.total() == 2
    # Those left out run again when the run is resumed.
    assert sorted(row["_ng_task_index"] for row in read_rows(index)) == [0, 2, 4, 5]


async def test_secrets_are_masked_before_the_digest(tmp_path):
    shards = Shards(tmp_path / "left", lambda line: line.replace(b"hunter22", b"***"))
    entry = await shards.keep("out", Row({**rollout(0), "note": "hunter22 " * 100}))
    shards.close()
    write_rows(tmp_path / "out.jsonl", [entry])
    merge([tmp_path / "out.jsonl"], copies(tmp_path), tmp_path / "merged.jsonl")
    [row] = read_rows(tmp_path / "merged.jsonl")
    assert row["note"] == "*** " * 100


async def test_run_is_resumed_from_its_entries(index):
    earlier = EarlierRun.read(RunFiles(results=index), 3)
    assert len(earlier.scored) == 6
    assert (earlier.reward_sum, earlier.usage.tokens.output) == (pytest.approx(1.5), 15)


def test_shards_are_named_after_output_and_run():
    settings = CollectionSettings(output_jsonl_fpath=Path("_a b.jsonl"), collector="near", sharded=True)
    collector = RowCollector.of(settings, RunFiles(results=Path("x/_a b.jsonl")), "0123456789abcdef")
    assert collector is not None
    assert (collector.server, collector.headers) == ("near", {"x-nemo-gym-shard": "a_b.01234567"})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"sharded": True}, "sharded: name the server that keeps the results: --collector NAME"),
        ({"collector": "nearr"}, "collector: 'nearr' is not a server of this run. Did you mean 'near'?"),
        ({"collector": "games_agent"}, "collector: 'games_agent' is an agent, not a collector"),
        ({"collector": "bare", "sharded": True}, "sharded: bare does not set shard_dir"),
        ({"collector": "near", "sharded": True, "rules": TaskRules(grouped={"a": "b"})}, "verified together"),
        (
            {
                "collector": "near",
                "sharded": True,
                "token_capture": TOKENS,
            },
            "recorded model calls and tokens",
        ),
    ],
)
def test_unsuitable_collector_is_refused(given, message):
    rules = given.pop("rules", TaskRules())
    book = AddressBook(token_capture=given.pop("token_capture", TokenCaptureConfig()))
    settings = CollectionSettings(output_jsonl_fpath=Path("x.jsonl"), **given)
    with pytest.raises(UsageError) as refused:
        check_collector(settings, BLOCKS, book, rules)
    assert message in str(refused.value)


def test_suitable_collector_is_accepted():
    settings = CollectionSettings(output_jsonl_fpath=Path("x.jsonl"), collector="near", sharded=True)
    check_collector(settings, BLOCKS, AddressBook(), TaskRules())


async def test_commands_that_need_whole_rollouts_say_so(index, tmp_path):
    inputs = tmp_path / "inputs.jsonl"
    write_rows(inputs, [rollout(number) for number in range(6)])
    reverification = ReverificationJob(
        materialized_inputs_jsonl_fpath=inputs, rollouts_jsonl_fpath=index, output_jsonl_fpath=tmp_path / "y.jsonl"
    )
    dataset = DatasetJob(input_jsonl_fpath=index, output_jsonl_fpath=tmp_path / "z.jsonl", format="messages")
    sample = SampleJob(rollouts=index, output=tmp_path / "sheet.csv", size=5, seed=0)
    for work in (lambda: Stored.read(reverification), lambda: export_dataset(dataset), lambda: write_sample(sample)):
        with pytest.raises(DataError, match=r"out.jsonl:1: the rollout is in a shard, .*ng eval aggregate"):
            work()
    assert orjson.loads(index.read_bytes().splitlines()[0])["_ng_task_index"] == 3


@pytest.mark.parametrize(("shard_dir", "problem"), [("file", "File exists"), ("file/below", "Not a directory")])
def test_unusable_folder_is_refused(tmp_path, shard_dir, problem):
    (tmp_path / "file").touch()
    settings = {
        "name": "near",
        "entrypoint": "app.py",
        "host": "127.0.0.1",
        "port": 1,
        "shard_dir": str(tmp_path / shard_dir),
    }
    # A machine that does not start the collector need not have its folder.
    assert CollectingAgentConfig.model_validate(settings).shard_dir == tmp_path / shard_dir
    with pytest.raises(ValidationError, match=rf"{shard_dir} cannot be written to \({problem}\)"):
        CollectingAgentConfig.model_validate(settings, context={"checks_files": True})
