"""Rows and their pictures: readable from the pixels alone, the same bytes every time, in files or in the row."""

import itertools
import random
import subprocess
import sys
from pathlib import Path

import pytest

from nemo_gym.jsonl import read_rows
from resources_servers.visual_reasoning.answers import Key, graded
from resources_servers.visual_reasoning.drawing import data_url
from resources_servers.visual_reasoning.prepare import KINDS, prepare
from resources_servers.visual_reasoning.shapes import point
from resources_servers.visual_reasoning.tasks import png_file
from resources_servers.visual_reasoning.tests.seeing import decoded, see

REPOSITORY = Path(__file__).resolve().parents[3]
READABLE = {"count_shapes", "clock", "gauge", "bar_chart", "point", "maze"}
WITHOUT_PILLOW = """
import sys
sys.modules["PIL"] = None
from nemo_gym import run_prepare
from resources_servers.visual_reasoning.prepare import prepare
run_prepare(prepare)
"""


def images_of(row):
    return row["responses_create_params"]["input"][0]["content"][1:]


@pytest.fixture(scope="module")
def named(tmp_path_factory):
    """A file of rows whose pictures are files, two rows of each kind."""
    return prepare(tmp_path_factory.mktemp("rows") / "rows.jsonl", count=2 * len(KINDS))


@pytest.mark.parametrize("make", [kind for kind in KINDS if kind.__name__ in READABLE], ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("rows", [4, pytest.param(50, marks=pytest.mark.slow)])
def test_answer_is_in_the_pixels(make, rows):
    rng = random.Random(f"seeing {make.__name__}")
    wrong = []
    for task in (make(rng) for _ in range(rows)):
        said = see(task.question, [decoded(data_url(png_file(picture))) for picture in task.pictures])
        key = Key(task.question, task.expected_answer, task.tolerance, task.box, task.reach)
        if graded(said, task.grader, key).reward != 1.0:
            wrong.append((task.question, said, task.expected_answer))
    assert wrong == []


def test_same_seed_makes_the_same_files(named, tmp_path):
    again = prepare(tmp_path / "rows.jsonl", count=2 * len(KINDS))
    other = prepare(tmp_path / "other.jsonl", count=2 * len(KINDS), seed=1)
    assert again.read_bytes() == named.read_bytes()
    pictures = {path.name: path.read_bytes() for path in named.with_name("rows_images").iterdir()}
    assert pictures == {path.name: path.read_bytes() for path in (tmp_path / "rows_images").iterdir()}
    assert not pictures.keys() & {path.name for path in other.with_name("other_images").iterdir()}


def test_files_and_embedded_pictures_are_the_same(named, tmp_path):
    embedded = list(read_rows(prepare(tmp_path / "rows.jsonl", count=2 * len(KINDS), embed=True)))
    assert not (tmp_path / "rows_images").exists()
    for row in (rows := list(read_rows(named))):
        for image in images_of(row):
            image["image_url"] = data_url((named.parent / image.pop("image_path")).read_bytes())
    assert rows == embedded


def test_rows_have_every_kind_and_pictures(named):
    rows = list(read_rows(named))
    assert {row["subset"] for row in rows} == {kind.__name__ for kind in KINDS}
    assert {row["subset"] for row in rows if len(images_of(row)) == 2} == {"compare_shapes"}
    sizes = [path.stat().st_size for path in named.with_name("rows_images").iterdir()]
    assert max(sizes) < 9_000


def test_answers_do_not_depend_on_habits():
    for make in KINDS:
        rng = random.Random(f"habits {make.__name__}")
        answers = [make(rng).expected_answer for _ in range(300)]
        most = max(answers.count(answer) for answer in set(answers))
        assert most < 100, make.__name__


def test_point_in_another_shape_earns_nothing():
    rng = random.Random("points")
    for task in (point(rng) for _ in range(100)):
        key = Key(task.question, task.expected_answer, task.tolerance, task.box, task.reach)
        left, top, right, bottom = task.box
        assert 0 < task.reach <= max(right - left, bottom - top) / 2
        for shape in task.pictures[0].shapes:
            x, y = shape.centre
            corners = itertools.product((shape.box[0], x, shape.box[2]), (shape.box[1], y, shape.box[3]))
            rewards = {graded(f"Answer: {x}, {y}", "point", key).reward for x, y in corners}
            assert rewards == {float(shape.box == task.box)}, task.question


def test_missing_pillow_is_named(tmp_path):
    words = [sys.executable, "-c", WITHOUT_PILLOW, "--count", "1", "--output", str(tmp_path / "rows.jsonl")]
    finished = subprocess.run(words, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert finished.returncode == 1
    assert finished.stderr == (
        "visual_reasoning: Pillow, which draws the pictures, is not installed. Install it: pip install "
        "'nemo-gym[vision]'\n"
    )
