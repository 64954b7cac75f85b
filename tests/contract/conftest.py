"""The folder of an environment that keeps all promises."""

import orjson
import pytest

from tests.contract.sums import APP, CONFIG, ORACLE, README


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An environment that keeps all promises, in its own working folder."""
    monkeypatch.chdir(tmp_path)
    made = tmp_path / "resources_servers" / "sums"
    rows = [{"responses_create_params": {"input": f"Bring the sum to {n}."}, "wanted": n} for n in range(2, 7)]
    files = {
        "app.py": APP,
        "oracle.py": ORACLE,
        "README.md": README,
        "configs/sums.yaml": CONFIG,
        "tests/test_app.py": "def test_nothing():\n    assert True\n",
        "data/example.jsonl": b"\n".join(orjson.dumps(row) for row in rows).decode(),
    }
    for name, text in files.items():
        path = made / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    return made
