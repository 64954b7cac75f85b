"""The small lists in `data/` that generators share."""

import os
import re
import subprocess
import sys
import unicodedata
import zipfile
import zoneinfo
from collections.abc import Iterator
from pathlib import Path

import pytest

from nemo_gym import DataError, shared_rows

REPOSITORY = Path(__file__).parents[2]
FOLDER = REPOSITORY / "data"
FIELDS: dict[str, dict[str, type]] = {
    "cities.jsonl": {"city": str, "country": str, "time_zone": str},
    "names.jsonl": {"given_name": str, "surname": str, "language": str},
    "personas.jsonl": {"name": str, "age": int, "city": str, "job": str, "interests": list, "manner": str},
}
"""The files, and the type of each field."""
UNIQUE = [
    ("cities.jsonl", "city"),
    ("names.jsonl", "given_name"),
    ("names.jsonl", "surname"),
    ("personas.jsonl", "name"),
    ("personas.jsonl", "manner"),
]
GENERATORS = ("example_mcp_weather", "proactive_asking", "text_to_sql")


def texts_of(row: dict) -> Iterator[str]:
    for value in row.values():
        if not isinstance(value, int):
            yield from [value] if isinstance(value, str) else value


@pytest.mark.parametrize(("name", "fields"), FIELDS.items())
def test_every_row_has_the_same_fields(name, fields):
    for row in shared_rows(name):
        assert {field: type(value) for field, value in row.items()} == fields
        for text in texts_of(row):
            assert text == unicodedata.normalize("NFC", " ".join(text.split())) != ""


@pytest.mark.parametrize(("name", "field"), UNIQUE)
def test_rows_are_unique(name, field):
    values = [row[field] for row in shared_rows(name)]
    assert sorted(set(values)) == sorted(values)
    assert len(values) >= 60


def test_languages_are_two_letter_codes():
    assert all(re.fullmatch("[a-z]{2}", row["language"]) for row in shared_rows("names.jsonl"))


def test_time_zones_exist():
    known = zoneinfo.available_timezones()
    if not known:
        pytest.skip("this machine has no time zone database")
    assert {row["time_zone"] for row in shared_rows("cities.jsonl")} - known == set()


def test_personas_use_the_shared_names_and_cities():
    names = {f"{row['given_name']} {row['surname']}" for row in shared_rows("names.jsonl")}
    cities = {row["city"] for row in shared_rows("cities.jsonl")}
    for row in shared_rows("personas.jsonl"):
        assert row["name"] in names
        assert row["city"] in cities
        assert 18 <= row["age"] <= 100
        assert row["job"].startswith(("a ", "an "))
        assert len(row["interests"]) == 2


def test_readme_and_gitignore_list_every_file():
    described = re.findall(r"^\| `(\S+)` \|", (FOLDER / "README.md").read_text("utf-8"), re.MULTILINE)
    kept = re.findall(r"^!/data/(\S+)$", (REPOSITORY / ".gitignore").read_text("utf-8"), re.MULTILINE)
    assert sorted(described) == sorted(FIELDS)
    assert sorted(kept) == sorted(["README.md", *FIELDS])


def test_missing_file_is_reported_with_its_path():
    with pytest.raises(DataError, match=re.escape(f"{FOLDER / 'colors.jsonl'}: cannot be read")):
        shared_rows("colors.jsonl")


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The files of the wheel."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=REPOSITORY, check=True, capture_output=True, timeout=60)
    (wheel,) = folder.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(folder / "site")
    return folder / "site"


def generated(generator, root, working_dir):
    """Return the rows that a generator writes if it is imported from `root`."""
    (working_dir / "data").mkdir(parents=True)
    for name in FIELDS:
        # A project's files of the same names are not the shared ones.
        (working_dir / "data" / name).write_text("")
    output = working_dir / "rows.jsonl"
    arguments = ["--output", str(output), "--count", "20", "--seed", "3"]
    subprocess.run(
        [sys.executable, "-m", f"resources_servers.{generator}.prepare", *arguments],
        cwd=working_dir,
        env={**os.environ, "PYTHONPATH": str(root)},
        check=True,
        timeout=60,
    )
    return output.read_bytes()


@pytest.mark.parametrize("generator", GENERATORS)
def test_generators_find_files_outside_the_checkout(installed, tmp_path, generator):
    rows = generated(generator, installed, tmp_path / "installed")
    assert rows == generated(generator, REPOSITORY, tmp_path / "checkout")
    assert len(rows.splitlines()) == 20


def test_wheel_contains_only_the_shared_files(installed):
    assert sorted(path.name for path in (installed / "nemo_gym" / "shared_data").iterdir()) == sorted(
        ["README.md", *FIELDS]
    )
    assert not (installed / "data").exists()


def test_wheel_contains_the_pages_of_the_viewer(installed):
    page = REPOSITORY / "nemo_gym" / "viewer" / "page"
    built = sorted(path.relative_to(page) for path in page.rglob("*.*"))
    packed = installed / "nemo_gym" / "viewer" / "page"
    assert sorted(path.relative_to(packed) for path in packed.rglob("*.*")) == built
    assert (packed / "app.js").stat().st_size > 0
