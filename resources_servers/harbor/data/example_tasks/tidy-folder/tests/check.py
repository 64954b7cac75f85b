"""Check which files are left, and that their contents are unchanged."""

from pathlib import Path

EXPECTED = {"logs/a.log": "started\n", "logs/b.log": "", "notes.txt": "Buy tea.\n", "data.csv": "1,2\n"}

inbox = Path("/app/inbox")
found = {path.relative_to(inbox).as_posix(): path.read_text() for path in inbox.rglob("*") if path.is_file()}
assert found == EXPECTED, found
