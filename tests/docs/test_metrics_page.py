"""The metrics reference names every metric that a run may have."""

from __future__ import annotations

import re
from pathlib import Path

from nemo_gym.metrics import add_avg_sample_std_dev, compute_aggregate_metrics, compute_pass_majority_metrics
from nemo_gym.metrics.intervals import CI_HIGH, CI_LOW
from nemo_gym.metrics.meanings import SCORE_METRICS, VALUE_METRICS
from nemo_gym.rollouts.aggregate import MEAN_REWARD, PESSIMISTIC

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "metrics.md"
ROWS = [
    {"_ng_task_index": task, "_ng_rollout_index": attempt, "question": "?", "reward": float(attempt % 2),
     "extracted_answer": "A", "response": {"usage": {"output_tokens": 3}}}
    for task in range(3)
    for attempt in range(4)
]  # fmt: skip


def patterns() -> list[re.Pattern[str]]:
    """Return the names in the page's tables. Words in capitals may be anything; `K` is a number."""
    text = PAGE.read_text("utf-8")
    names = re.findall(r"^\| `([^`]+)` \|", text, re.MULTILINE)
    for table, made in (("value_metrics", VALUE_METRICS), ("score_metrics", SCORE_METRICS)):
        assert f"<!-- made from the code: {table} -->" in text
        names += made
    words = (re.sub(r"FIELD|SCORE|METRIC", "[^/]+(?:/[^/]+)?", re.escape(name)) for name in names)
    return [re.compile(re.sub(r"(?<![A-Z])K(?![A-Z])", "[0-9]+", word)) for word in words]


def test_every_metric_is_on_the_page() -> None:
    aggregated = compute_aggregate_metrics(ROWS)
    tasks = [[row for row in ROWS if row["_ng_task_index"] == task] for task in range(3)]
    majority = compute_pass_majority_metrics(tasks, answer_key="extracted_answer")
    add_avg_sample_std_dev(majority.metrics, majority.all_score_dicts, majority.score_names, majority.max_k)
    names = {
        *aggregated.model_dump(),
        *aggregated.agent_metrics,
        *aggregated.group_level_metrics[0],
        *majority.metrics,
        f"{CI_LOW}reward",
        f"{CI_HIGH}pass@4/accuracy",
        PESSIMISTIC + MEAN_REWARD,
    }
    known = patterns()
    assert {name for name in names if not any(pattern.fullmatch(name) for pattern in known)} == set()
