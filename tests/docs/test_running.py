"""The rules of the runner: each page that breaks one fails, with the file and the line."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from tests.conftest import Workplace
from tests.docs.pages import PageError, read_page
from tests.docs.running import run_page

pytestmark = pytest.mark.slow

RunText = Callable[..., None]
WRONG_OUTPUT = """
Text.

```console
$ echo one
one
$ printf 'two\\nthree\\n'
two
four
```
"""
PORTS = """
This is `serve.py`:

```python file=serve.py
from http.server import HTTPServer, SimpleHTTPRequestHandler

server = HTTPServer(("127.0.0.1", int("localhost:9001".split(":")[1])), SimpleHTTPRequestHandler)
print("serving at", server.server_address, flush=True)
server.serve_forever()
```

```console
$ python serve.py &
serving at ('127.0.0.1', 9001)
```

```python
import asyncio
from urllib.request import ProxyHandler, build_opener

assert "serve.py" in build_opener(ProxyHandler({})).open("http://127.0.0.1:9001").read().decode()
await asyncio.sleep(0)
```
"""


@pytest.fixture
def run_text(workplace: Workplace, tmp_path: Path) -> RunText:
    def run(text: str, timeout_s: float = 100.0) -> None:
        path = tmp_path / "page.md"
        path.write_text(text, "utf-8")
        run_page(read_page(path), workplace, timeout_s=timeout_s)

    return run


def fails(run_text: RunText, text: str, message: str, timeout_s: float = 100.0) -> None:
    with pytest.raises(PageError, match=message):
        run_text(text, timeout_s)


def test_shell_keeps_folder_and_variables(run_text: RunText) -> None:
    run_text("```bash\nmkdir made && cd made\nname=x\n```\n```console\n$ echo $name $(basename $PWD)\nx made\n```\n")


def test_wrong_output_is_shown_with_its_line(run_text: RunText) -> None:
    fails(run_text, WRONG_OUTPUT, r"(?s)page\.md:7: .*-four\n\+three")


def test_wrong_exit_code_is_reported(run_text: RunText) -> None:
    fails(run_text, "```console\n$ false\n```\n", r"page\.md:2: `false`: exit code 1, not 0")
    fails(run_text, "```console exits-1\n$ true\n```\n", "exit code 0, not 1")


def test_expected_exit_code_is_of_last_command(run_text: RunText) -> None:
    run_text("```console exits-3\n$ true\n$ (exit 3)\n```\n")


def test_hanging_command_is_named(run_text: RunText) -> None:
    fails(
        run_text, "```console\n$ cat /dev/zero > /dev/null\n```\n", "zero > /dev/null` has not ended after 0.2 s", 0.2
    )


def test_command_that_ends_shell_is_named(run_text: RunText) -> None:
    fails(run_text, "```console\n$ exit 0\n```\n", "`exit 0` has ended the page's interpreter")


def test_missing_file_is_reported(run_text: RunText) -> None:
    fails(run_text, "```console\n$ cat data.jsonl\n```\n", r"(?s)exit code 1.*data\.jsonl: No such file")


def test_ellipsis_matches_text_and_lines(run_text: RunText) -> None:
    run_text("```console\n$ seq 9\n1\n…\n8\n9\n$ echo in 4.2 s\nin … s\n```\n")
    fails(run_text, "```console\n$ seq 9\n1\n…\n8\n```\n", "prints something else")


def test_numbers_differ_only_where_marked(run_text: RunText) -> None:
    text = "console\n$ printf 'reward   0.25  of 1,000\\n'\nreward 0.5 of 20\n```\n"
    run_text(text.replace("console", "```console numbers-differ", 1))
    fails(run_text, f"```{text}", "prints something else")


def test_ports_are_free_and_servers_end(run_text: RunText, workplace: Workplace) -> None:
    with socket.socket() as taken:
        # If another program has the port already, the test is the same.
        with suppress(OSError):
            taken.bind(("127.0.0.1", 9001))
        run_text(PORTS)
    assert workplace.left_over() == []


def test_background_output_that_never_comes(run_text: RunText) -> None:
    fails(run_text, "```console\n$ echo starting &\nready\n```\n", r"(?s)-ready\n\+starting", 3.0)


def test_python_blocks_share_a_namespace(run_text: RunText) -> None:
    run_text("```python\nx = 1\n```\n\n```python\nassert x == 1\n```\n")
    fails(run_text, "```python\nx = 1\nraise KeyError(x)\n```\n", r'(?s)page\.md:2: .*page\.md", line 3.*KeyError: 1')


def test_invalid_data_is_reported(run_text: RunText) -> None:
    fails(run_text, "```json\n{'a': 1}\n```\n", r"page\.md:2: invalid json")
    fails(run_text, "Text.\n\n```yaml\na: [\n```\n", r"page\.md:4: invalid yaml")


def test_hidden_block_runs_for_the_reader(run_text: RunText) -> None:
    page = (
        "<!-- hidden: the reader writes it\n```bash\necho yes > label\n```\n-->\n\n```console\n$ cat label\n{}\n```\n"
    )
    run_text(page.format("yes"))
    fails(run_text, page.format("no"), r"page\.md:8: ")


def test_unrun_command_is_checked_by_its_parser(run_text: RunText) -> None:
    block = "---\nneeds: hub\n---\n\n```bash\n{}\n```\n"
    run_text(block.format("ng eval run --benchmark gsm8k --model-type openai_model --limit 5 | tail -1"))
    fails(run_text, block.format("ng eval run --limits 5"), r"page\.md:6: ng_?\S* has no flag --limits")
    fails(run_text, block.format("ng evals run"), r"(?s)'ng evals' is not a command")
    fails(
        run_text,
        block.format("ng eval run --benchmark gsm9k"),
        "(?s)ng env validate --benchmark gsm9k.*Did you mean 'gsm8k'",
    )


def test_unrun_python_needs_existing_names(run_text: RunText) -> None:
    block = "<!-- not run: needs a GPU -->\n```python\nfrom nemo_gym import {}\nmodel.train()\n```\n"
    run_text(block.format("tool"))
    fails(run_text, block.format("tools_of"), r"page\.md:3: nemo_gym has no tools_of")


def test_malformed_pages_are_rejected(run_text: RunText) -> None:
    for text, message in (
        ("    ng version\n", r"page\.md:1: indented block"),
        ("```\nng version\n```\n", "language ''"),
        ("```{code-block} python\nx = 1\n```\n", "use ``` and the language"),
        ("```console\nng version\n```\n", r"begins with '\$ '"),
        ("```bash\nng_run &\n```\n", "must show the output to wait for"),
        ("```bash\nif true\n```\n", "cannot parse"),
        ("```python file=app.py\nx = 1\n```\n", "does not name its file"),
        ("`../x`:\n\n```python file=../x\nx = 1\n```\n", "must be in its folder"),
        ("```bash exit-1\nfalse\n```\n", "'exit-1' is unknown"),
        ("---\nneeds: gpus\n---\n", "needs: gpus is unknown"),
        ("<!-- not run: needs a GPU -->\n\nText.\n", "directly above a block"),
    ):
        fails(run_text, text, message)
