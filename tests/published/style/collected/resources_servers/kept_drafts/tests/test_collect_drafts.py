import json
from unittest.mock import AsyncMock, MagicMock, patch

from collect_drafts import DraftCollectionHelper

from nemo_gym.rollout_collection import RolloutCollectionConfig


class SimpleClient:
    """Has no `global_config_dict`."""

    def __init__(self, reply):
        self.post = AsyncMock(return_value=reply)


async def test_rows_are_posted_with_their_draft_names(tmp_path):
    (tmp_path / "rows.jsonl").write_text(
        json.dumps({"responses_create_params": {"input": "hi"}, "word": "fig"}) + "\n"
    )
    (tmp_path / "draft_0_1").mkdir()
    config = RolloutCollectionConfig(
        agent_name="any_agent",
        input_jsonl_fpath=str(tmp_path / "rows.jsonl"),
        output_jsonl_fpath=str(tmp_path / "out.jsonl"),
        num_repeats=3,
        disable_aggregation=True,
    )
    client = SimpleClient(MagicMock(ok=True, status=200, read=AsyncMock(return_value=b'{"reward": 1.0}')))
    with (
        patch("nemo_gym.rollout_collection.get_global_config_dict", return_value={"policy_model_name": "m"}),
        patch.object(DraftCollectionHelper, "setup_server_client", return_value=client),
    ):
        results = await DraftCollectionHelper().run_from_config(config)
    assert sorted(each.kwargs["json"]["draft_name"] for each in client.post.await_args_list) == [
        "draft_0_0",
        "draft_0_2",
    ]
    assert {each.kwargs["server_name"] for each in client.post.await_args_list} == {"any_agent"}
    assert sorted(each["_ng_rollout_index"] for each in results) == [0, 2]
