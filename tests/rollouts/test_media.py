"""Rows that name images as files: what is sent and what the files of a run contain."""

from __future__ import annotations

from base64 import b64encode

import pytest

from nemo_gym.errors import DataError

PIXELS = b"\x89PNG\r\n\x1a\n" + b"pixels" * 50
DATA = b64encode(PIXELS).decode()


def task_with(path, make_task, number=0, **fields):
    content = [{"type": "input_image", "image_path": path}]
    return make_task(number, responses_create_params={"input": [{"role": "user", "content": content}]}, **fields)


@pytest.fixture
def images(tmp_path):
    (tmp_path / "images").mkdir()
    for number in range(2):
        (tmp_path / "images" / f"{number}.png").write_bytes(PIXELS)
    return tmp_path / "images"


async def test_images_appear_once_in_results(run_tasks, make_task, images):
    rows = [task_with(f"images/{number}.png", make_task, number) for number in range(2)]
    run = await run_tasks(rows, num_repeats=3)
    assert run.summary.scored == 6
    for row in run.results:
        (part,) = row["responses_create_params"]["input"][0]["content"]
        assert part == {"type": "input_image", "image_url": f"data:image/png;base64,{DATA}"}
        assert "_ng_media_dir" not in row
    assert run.files.results.read_text("utf-8").count(DATA) == 6
    others = [path for path in run.files.results.parent.rglob("*") if path.is_file() and path != run.files.results]
    assert len(others) >= 3
    assert not [path for path in others if DATA.encode() in path.read_bytes()]


async def test_failed_rollouts_keep_path(run_tasks, run_again, make_task, images):
    await run_tasks([task_with("images/0.png", make_task, act="crash")], max_attempts=1)
    run = await run_again(max_attempts=2)
    assert run.summary.unresolved == 0
    for failure in run.failures:
        assert failure["responses_create_params"]["input"][0]["content"][0]["image_path"] == "images/0.png"


async def test_missing_image_stops_run_before_it_starts(run_tasks, make_task, images):
    with pytest.raises(DataError) as error:
        await run_tasks([task_with("images/0.png", make_task), task_with("images/7.png", make_task, 1)])
    assert str(error.value).partition("tasks.jsonl:")[2] == (
        "2: responses_create_params.input[0].content[0].image_path: file 'images/7.png' not found in the dataset's "
        f"folder {images.parent}."
    )


async def test_image_that_vanishes_fails_only_its_rollout(run_tasks, make_task, images):
    def remove(record, summary):
        (images / "1.png").unlink(missing_ok=True)

    rows = [task_with(f"images/{number}.png", make_task, number) for number in range(2)]
    run = await run_tasks(rows, num_samples_in_parallel=1, on_record=remove)
    assert (run.summary.scored, run.summary.failed_by_cause) == (1, {"invalid_task": 1})
    assert "image_path: file 'images/1.png' not found" in run.failures[0]["_ng_failure_message"]
