"""Collect the drafts that do not exist yet: `collect_drafts.py INPUT OUTPUT +head_server.port=…`."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any, Dict, List, Optional

from nemo_gym.rollout_collection import RolloutCollectionConfig, RolloutCollectionHelper


class DraftCollectionHelper(RolloutCollectionHelper):
    def _preprocess_rows_from_config(self, config: RolloutCollectionConfig) -> List[Dict[str, Any]]:
        rows = super()._preprocess_rows_from_config(config)
        for row in rows:
            row["draft_name"] = f"draft_{row['_ng_task_index']}_{row['_ng_rollout_index']}"
        drafts = Path(config.output_jsonl_fpath).parent
        return [row for row in rows if not (drafts / row["draft_name"]).exists()]

    async def _call_aggregate_metrics(
        self, results: List[Dict], rows: List[Dict], output_path: Path
    ) -> Optional[Path]:
        metrics_path = await super()._call_aggregate_metrics(results, rows, output_path)
        if metrics_path is None:
            return None
        metrics = json.loads(Path(metrics_path).read_text())
        summary = {"drafts": sorted(row["draft_name"] for row in rows), "metrics": metrics[0]["agent_metrics"]}
        Path(output_path).with_name("drafts.json").write_text(json.dumps(summary))
        return metrics_path


async def regrade(config: RolloutCollectionConfig) -> None:
    """Send the rows without the helper's own run, and use only its steps."""
    helper = DraftCollectionHelper()
    rows = helper._preprocess_rows_from_config(config)
    client = helper.setup_server_client()
    results = []
    for row in rows:
        reply = await client.post(server_name=row["agent_ref"]["name"], url_path="/run", json=row)
        result = json.loads(await reply.read())
        results.append(
            {**result, "_ng_task_index": row["_ng_task_index"], "_ng_rollout_index": row["_ng_rollout_index"]}
        )
    print(
        await helper._call_aggregate_metrics(results, rows, Path(config.output_jsonl_fpath).with_name("again.jsonl"))
    )


async def main() -> None:
    config = RolloutCollectionConfig(
        agent_name="kept_drafts_simple_agent",
        input_jsonl_fpath=sys.argv[1],
        output_jsonl_fpath=sys.argv[2],
        num_repeats=2,
    )
    print(len(await DraftCollectionHelper().run_from_config(config)))
    await regrade(config)


if __name__ == "__main__":
    asyncio.run(main())
