"""Fake `docker` and `apptainer` that record their arguments and run sandboxed commands on this machine."""

import json
import os
import sys

FAKE = '''#!{python}
"""Records its arguments, and runs sandboxed commands on this machine."""
import json, os, subprocess, sys
from pathlib import Path

here, words = Path({folder!r}), sys.argv[1:]
files = [Path(words[n + 1]).read_text() for n, word in enumerate(words) if word == "--env-file"]
inside = {{key: value for key, value in os.environ.items() if key.startswith("APPTAINERENV_")}}
with open(here / "calls", "a") as calls:
    calls.write(json.dumps([words, files, inside]) + "\\n")
verb = " ".join(words[:2]) if words[0] == "instance" else words[0]
answer = here / f"answer {{verb}}"
if answer.exists():
    code, text = answer.read_text().split(" ", 1)
    (sys.stdout if code == "0" else sys.stderr).write(text)
    sys.exit(int(code))
if verb == "exec":
    first = next(n for n, word in enumerate(words) if word in ("sh", "/bin/sh", "cat", "mkdir"))
    # In its own session, because a process in a container outlives the client too.
    sys.exit(subprocess.run(words[first:], start_new_session={apart}).returncode % 256)
'''


class Fake:
    """A fake program and its recorded calls."""

    def __init__(self, folder, name, monkeypatch):
        self.folder = folder / "fake"
        self.folder.mkdir()
        program = self.folder / name
        # Unlike docker, a killed apptainer ends its command too.
        program.write_text(FAKE.format(python=sys.executable, folder=str(self.folder), apart=name == "docker"))
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{self.folder}{os.pathsep}{os.environ['PATH']}")

    def answers(self, verb, text, code=0):
        (self.folder / f"answer {verb}").write_text(f"{code} {text}")

    @property
    def calls(self):
        return [json.loads(line) for line in (self.folder / "calls").read_text().splitlines()]

    def words_of(self, verb):
        return next(words for words, _, _ in self.calls if words[0] == verb or " ".join(words[:2]) == verb)
