"""Grade each of the two files."""

import json
from pathlib import Path

JOINED = "name,city,country\nAda,London,England\nLi,Lyon,France\nMina,Porto,Portugal\n"
MISSING = "Bo\nJo\n"


def has(name, text):
    path = Path("/app", name)
    return path.is_file() and path.read_text().replace("\r", "").strip() == text.strip()


parts = {"joined": float(has("joined.csv", JOINED)), "missing": float(has("missing.txt", MISSING))}
Path("/logs/verifier/reward.json").write_text(json.dumps({"reward": sum(parts.values()) / 2, **parts}))
