"""Write the samples of a log of Inspect as rollouts, for `ng eval show` and `ng view`.

python rollouts_of_log.py logs/2026-11-30_my_task.eval results/my_task.jsonl [SCORER]

This file runs where inspect_ai is installed. The reward is the value of the first scorer, or of the named one. Samples
with an error, or without such a number, have no reward: they go to `results/my_task_failures.jsonl`.
"""

import json
import math
import sys
from pathlib import Path
from typing import Any

from inspect_ai.log import EvalSample, read_eval_log
from nemo_gym_task import first_answer, items_of

LETTERS = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0}


def rollout_of(number: int, sample: EvalSample, model: str, scorer: str | None) -> dict[str, Any]:
    """Return a sample as a result of a run. Without a score that is a number, it lacks a reward."""
    messages = sample.messages
    first = first_answer(messages)
    asked, said = ([item for each in part for item in items_of(each)] for part in (messages[:first], messages[first:]))
    scores = sample.scores or {}
    chosen = scores.get(scorer or next(iter(scores), ""))
    reward = number_of(chosen.value) if chosen and not sample.error else None
    response = {
        "id": f"resp_{sample.uuid}", "object": "response", "created_at": 0, "model": model, "output": said,
        "parallel_tool_calls": True, "tool_choice": "auto", "tools": [],
    }  # fmt: skip
    return {
        **{name: number for name, score in scores.items() if (number := number_of(score.value)) is not None},
        "_ng_task_index": number, "_ng_rollout_index": sample.epoch - 1,
        "responses_create_params": {"input": asked}, "response": response,
        **({"reward": reward} if reward is not None else _failure(sample)),
        "sample_id": sample.id, "target": sample.target,
        "explanations": {name: score.explanation for name, score in scores.items() if score.explanation},
        "error": sample.error.message if sample.error else None, "limit": sample.limit.type if sample.limit else None,
    }  # fmt: skip


def _failure(sample: EvalSample) -> dict[str, str]:
    message = sample.error.message if sample.error else "its score is not a number"
    return {"_ng_failure_class": "environment_failed", "_ng_failure_message": message}


def number_of(value: object) -> float | None:
    """Return a score as a number, or None for another text, a list, a dict and NaN, Inspect's sign of no score."""
    value = LETTERS.get(value, value) if isinstance(value, str) else value
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None


def main(log: str, output: str, scorer: str | None = None) -> None:
    """Write a row for each sample."""
    read = read_eval_log(log, resolve_attachments=True)
    samples = read.samples or []
    known = dict.fromkeys(name for sample in samples for name in sample.scores or ())
    if scorer is not None and scorer not in known:
        sys.exit(f"{log} lacks scores of '{scorer}'. It has: {', '.join(known) or 'none'}")
    number_of_id = {name: at for at, name in enumerate(dict.fromkeys(sample.id for sample in samples))}
    rows = [rollout_of(number_of_id[each.id], each, read.eval.model, scorer) for each in samples]
    path = Path(output)
    for name, is_scored in ((path.name, True), (f"{path.stem}_failures.jsonl", False)):
        chosen = [row for row in rows if ("reward" in row) is is_scored]
        if chosen or is_scored:
            path.with_name(name).write_text("".join(json.dumps(row) + "\n" for row in chosen), "utf-8")
            sys.stdout.write(f"{name}: {len(chosen)} samples\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
