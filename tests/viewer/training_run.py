"""The files of a training: tasks that are sampled again, with several versions of the policy."""

from __future__ import annotations

from pathlib import Path

from nemo_gym.jsonl import dump_json, write_rows
from nemo_gym.rollouts.job import RunFiles
from tests.viewer.index_rows import Row, failed, planned, scored, write

AT = 1_800_000_000.0
REPEATS = 4
VERSIONS = 6
SOLVED = {"easy": [2, 4, 4, 4, 4, 4], "hard": [0, 0, 0, 0, 1, 2], "flat": [0] * 6}
"""How many of a group's rewards are 1, by prompt and version."""


def write_training(folder: Path, copies: int = 1) -> Path:
    """Write a training with one group of each prompt per version. A rollout of the last version failed.

    Each version lasts 10 s, and step `n + 1` is noted at the end of version `n`. `hard` ends one version later than it
    begins.
    """
    files = RunFiles(results=folder / "train.jsonl")
    rows: list[Row] = []
    inputs: list[Row] = []
    events: list[Row] = []
    offset = 0
    prompts = [(name, copy) for name in SOLVED for copy in range(copies)]
    for version in range(VERSIONS):
        for place, (name, copy) in enumerate(prompts):
            task = version * len(prompts) + place
            asked = {"input": [{"role": "user", "content": f"A prompt: {name} {copy}"}]}
            for repeat in range(REPEATS):
                # Parameters of sampling may differ, although the task is the same.
                inputs.append(
                    planned(task, repeat) | {"responses_create_params": asked | {"metadata": {"n": str(task)}}}
                )
                row = scored(task, repeat, float(repeat < SOLVED[name][version]), policy_version=version)
                row["responses_create_params"] = asked
                row["response"]["output"][-1] |= {
                    "prompt_token_ids": [1], "generation_token_ids": [2, 3],
                    "generation_log_probs": [-1.0 - version, -3.0 - version],
                }  # fmt: skip
                rows.append(row)
                size = len(dump_json(row))
                events.append({
                    "event": "ended", "file": "results", "task": task,
                    "at": AT + 10 * (version + (name == "hard")) + 5,
                    "repeat": repeat, "attempt": 0, "outcome": "scored", "seconds": 1.0, "offset": offset,
                    "bytes": size, "digest": "",
                })  # fmt: skip
                offset += size + 1
        note = {"policy_version": version + 1, "step": version + 1, "loss": 1 / (version + 1), "name": "x"}
        events.append({"event": "note", "at": AT + 10 * (version + 1), "fields": note})
    write(files.failures, failed(VERSIONS * len(prompts), 0, policy_version=VERSIONS - 1))
    files.folder.mkdir()
    write_rows(files.materialized, inputs)
    write_rows(files.ledger, sorted(events, key=lambda event: event["at"]))
    write_rows(files.results, rows)
    return files.results
