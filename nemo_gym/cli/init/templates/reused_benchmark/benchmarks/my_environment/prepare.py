"""Turn the tasks into the rows of this benchmark: ng eval prepare --benchmark my_environment."""

from pathlib import Path

from nemo_gym.jsonl import read_rows, write_rows

FOLDER = Path(__file__).parent
OUTPUT = FOLDER / "data" / "my_environment.jsonl"
# To download a file instead, see fetch() in nemo_gym.data.sources and read_table() in nemo_gym.data.tables.
SOURCE = FOLDER / "tasks.jsonl"


def prepare(output: Path = OUTPUT) -> Path:
    """Write one row per task and return the path."""
    write_rows(output, read_rows(SOURCE))
    return output


if __name__ == "__main__":
    prepare()
