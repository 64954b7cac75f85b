"""Rollouts exported as ATIF trajectories: their steps, tool calls, reasoning, tokens and rewards."""

from __future__ import annotations

from base64 import b64encode
from pathlib import Path

import pytest

from nemo_gym.errors import DataError
from nemo_gym.jsonl import write_rows
from nemo_gym.testing import call, heard, reply
from nemo_gym.training.dataset import DatasetJob, export_dataset
from nemo_gym.version import __version__
from tests.rows import rows_of

FUNCTION = {"name": "look", "description": "Look.", "parameters": {"type": "object"}}
ASKED = [
    {"role": "system", "content": "You see everything."},
    {"role": "user", "content": [{"type": "input_text", "text": "Where"}, {"type": "input_text", "text": "is it?"}]},
    {"role": "assistant", "content": "Where is what?"},
    {"role": "user", "content": "My key."},
]
USAGE = {"input_tokens": 30, "output_tokens": 7, "total_tokens": 37, "input_tokens_details": {"cached_tokens": 20}}
THOUGHT = {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "Twice."}]}
TOKENS = {"prompt_token_ids": [1, 2], "generation_token_ids": [3, 4], "generation_log_probs": [-0.5, -0.25]}


def looked(at, place):
    return call("look", at=at).model_copy(update={"call_id": f"call_{place}"})


def seen(text, place):
    return {"type": "function_call_output", "call_id": f"call_{place}", "output": text}


def done(*items, asked=ASKED, task=3, reward=0.5, **fields):
    output = [item if isinstance(item, dict) else reply(item).model_dump(mode="json")["output"][0] for item in items]
    response = reply().model_dump(mode="json") | {"output": output, "usage": USAGE}
    return {
        "responses_create_params": {"input": asked, "tools": [{"type": "function", **FUNCTION}]},
        "response": response,
        "reward": reward,
        "agent_ref": {"name": "key_agent"},
        "_ng_task_index": task,
        "_ng_rollout_index": 1,
        **fields,
    }


@pytest.fixture
def export(tmp_path):
    def exported(*rows, failures=(), **given):
        write_rows(tmp_path / "x.jsonl", rows)
        write_rows(tmp_path / "x_failures.jsonl", failures)
        files = {"input_jsonl_fpath": tmp_path / "x.jsonl", "output_jsonl_fpath": tmp_path / "out.jsonl"}
        report = export_dataset(DatasetJob(format="atif", **files, **given))
        return report, rows_of(tmp_path / "out.jsonl")

    return exported


def test_whole_rollout_is_one_trajectory(export):
    items = [THOUGHT, looked("floor", 1), looked("door", 2), seen("dust", 1), seen("a key", 2), "In the door."]
    _, (trajectory,) = export(done(*items, heard("Which door?"), "The front one.", reward_components={"found": 1.0}))
    steps = trajectory.pop("steps")
    assert trajectory == {
        "schema_version": "ATIF-v1.8",
        "session_id": "3-1",
        "agent": {
            "name": "key_agent",
            "version": __version__,
            "model_name": "test",
            "tool_definitions": [{"type": "function", "function": FUNCTION}],
        },
        "final_metrics": {
            "total_prompt_tokens": 30,
            "total_completion_tokens": 7,
            "total_cached_tokens": 20,
            "total_steps": 8,
            "extra": {"reward": 0.5, "reward_components": {"found": 1.0}},
        },
        "extra": {"_ng_task_index": 3, "_ng_rollout_index": 1, "agent_ref": {"name": "key_agent"}},
    }
    assert [step.pop("step_id") for step in steps] == list(range(1, 9))
    assert steps == [
        {"source": "system", "message": "You see everything."},
        {"source": "user", "message": "Where\nis it?"},
        {"source": "agent", "message": "Where is what?", "is_copied_context": True},
        {"source": "user", "message": "My key."},
        {
            "source": "agent",
            "message": "",
            "reasoning_content": "Twice.",
            "tool_calls": [
                {"tool_call_id": "call_1", "function_name": "look", "arguments": {"at": "floor"}},
                {"tool_call_id": "call_2", "function_name": "look", "arguments": {"at": "door"}},
            ],
            "observation": {
                "results": [
                    {"source_call_id": "call_1", "content": "dust"},
                    {"source_call_id": "call_2", "content": "a key"},
                ]
            },
        },
        {"source": "agent", "message": "In the door."},
        {"source": "user", "message": "Which door?"},
        {"source": "agent", "message": "The front one."},
    ]


def test_tokens_are_metrics_of_their_step(export):
    turns = [{**reply("a").model_dump(mode="json")["output"][0], **TOKENS}, heard("And?"), "b"]
    _, (trajectory,) = export(done(*turns))
    assert [step.get("metrics") for step in trajectory["steps"][4:]] == [
        {
            "prompt_tokens": 2,
            "completion_tokens": 2,
            "prompt_token_ids": [1, 2],
            "completion_token_ids": [3, 4],
            "logprobs": [-0.5, -0.25],
        },
        None,
        None,
    ]


def test_results_after_the_last_answer_stay(export):
    _, (trajectory,) = export(done(looked("floor", 1), seen("dust", 1), heard("Time is up.")))
    *_, acted, last = trajectory["steps"]
    assert acted["observation"]["results"] == [{"source_call_id": "call_1", "content": "dust"}]
    assert last["message"] == "Time is up."


def test_reasoning_can_be_dropped(export):
    _, (trajectory,) = export(done(THOUGHT, "Yes."), reasoning="drop")
    assert trajectory["steps"][-1] == {"step_id": 5, "source": "agent", "message": "Yes."}


def test_equal_rollouts_of_two_repeats_stay(export):
    report, trajectories = export(done("Yes."), done("Yes.", _ng_rollout_index=2), done("Yes."))
    assert [each["session_id"] for each in trajectories] == ["3-1", "3-2"]
    assert report.dropped == {"duplicate": 1}


def asked_with(*parts):
    return [{"role": "user", "content": [{"type": "input_text", "text": "What is it?"}, *parts]}]


def test_images_are_files_next_to_the_output(export, tmp_path):
    picture, enlarged = (f"data:image/png;base64,{b64encode(data).decode()}" for data in (b"small", b"large"))
    parts = [{"type": "input_image", "image_url": url} for url in (picture, "https://example.com/a.webp?size=1")]
    output = [{"type": "input_text", "text": "Twice."}, {"type": "input_image", "image_url": enlarged}]
    for _ in range(2):
        _, (trajectory,) = export(
            done(looked("floor", 1), seen(output, 1), "A key.", asked=asked_with(*parts)), overwrite=True
        )
        asked, acted, shown, _ = trajectory["steps"]
        paths = [part["source"]["path"] for part in (asked["message"][1], shown["message"][-1])]
        assert [(tmp_path / path).read_bytes() for path in paths] == [b"small", b"large"]
        assert {path.name for path in (tmp_path / "out_images").iterdir()} == {Path(path).name for path in paths}
    assert asked["message"] == [
        {"type": "text", "text": "What is it?"},
        {"type": "image", "source": {"media_type": "image/png", "path": paths[0]}},
        {"type": "image", "source": {"media_type": "image/webp", "path": parts[1]["image_url"]}},
    ]
    assert acted["observation"]["results"][0]["content"] == "Twice."
    assert shown["source"] == "user"


def test_sounds_are_files_next_to_the_output(export, tmp_path):
    given = {"data": b64encode(b"noise").decode(), "format": "mp3"}
    asked = asked_with({"type": "input_audio", "input_audio": given})
    _, (trajectory,) = export(done("A bell.", asked=asked))
    sound = trajectory["steps"][0]["message"][1]
    assert (sound["type"], sound["source"]["media_type"]) == ("audio", "audio/mpeg")
    assert (tmp_path / sound["source"]["path"]).read_bytes() == b"noise"
    assert sound["source"]["path"].endswith(".mp3")


def test_dropped_rollouts_are_counted(export):
    urls = ["data:image/svg+xml;base64,AA==", "data:image/png;base64,A"]
    sound = {"type": "input_audio", "input_audio": {"data": "AA==", "format": "midi"}}
    rows = [
        done("Yes."),
        *(done("Yes.", asked=asked_with({"type": "input_image", "image_url": url})) for url in urls),
        done("Yes.", asked=asked_with(sound)),
        done("Yes.", asked=[*ASKED, seen("dust", 1)]),
        done("Yes.", mask_sample=True),
        done("Yes.", reward=0.0),
    ]
    failed = {"_ng_task_index": 3, "_ng_failure_class": "timeout"}
    report, trajectories = export(*rows, failures=[failed], min_reward=0.5)
    assert (len(trajectories), report.kept, report.read) == (1, 1, 8)
    assert report.dropped == {
        "unsupported: an image of type 'image/svg+xml' (atif)": 1,
        "unsupported: an image with invalid base64 data (atif)": 1,
        "unsupported: an audio of type 'audio/midi' (atif)": 1,
        "unsupported: a tool result without its call (atif)": 1,
        "masked (mask_sample)": 1,
        "below min_reward": 1,
        "failed (timeout)": 1,
    }


def test_invalid_rollout_id_is_reported_with_its_line(export):
    with pytest.raises(DataError, match=r"x\.jsonl:1: _ng_rollout_id '\?' is not a rollout id"):
        export(done("Yes.", _ng_rollout_id="?"))
