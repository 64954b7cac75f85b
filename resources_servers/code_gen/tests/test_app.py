"""Rewards of code_gen: references, wrong programs and harmful programs."""

import asyncio
import gzip
import json
from pathlib import Path

import pytest
import pytest_asyncio

from nemo_gym import EnvironmentFailed, InvalidTask, run_prepare
from nemo_gym.jsonl import read_rows
from nemo_gym.testing import make_server, reply, rollout, serving
from resources_servers.code_gen.app import CodeGenServer
from resources_servers.code_gen.oracle import solve
from resources_servers.code_gen.prepare import prepare
from tests.data.real_files import real_file

FOLDER = Path(__file__).parent.parent
EXAMPLES = list(read_rows(FOLDER / "data" / "example.jsonl"))

on_the_shared_server = pytest.mark.asyncio(loop_scope="module")

HUMANEVAL = ("humaneval", "HumanEval.jsonl.gz")
DOUBLE = {"inputs": ["2\n", "21\n"], "outputs": ["4\n", "42\n"]}
DOUBLE_FUNCTION = {"fn_name": "double", "inputs": ["2", "21"], "outputs": ["4", "42"]}
MERGE_FUNCTION = {"fn_name": "merge", "inputs": ["[2, 1]"], "outputs": ["[1, 2]"]}
SMALLEST_FUNCTION = {"fn_name": "nsmallest", "inputs": ["1\n[2, 1]"], "outputs": ["[1]"]}
"""Tests of functions whose names `heapq` defines, too."""
DOUBLE_CHECK = {"fn_name": "double", "check": "def check(candidate):\n    assert candidate(2) == 4"}
PROGRAM = "print(2 * int(input()))"


def fenced(code):
    return f"```python\n{code}\n```"


def row(**tests):
    return {"verifier_metadata": {"unit_tests": tests}}


async def graded(server, answer, **fields):
    async with rollout(server, **fields) as attempt:
        return (await attempt.verify(reply(answer))).model_dump()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server():
    """Start one server for all tests, because each start probes the sandbox."""
    started = make_server(CodeGenServer, num_processes=2, unit_test_timeout_secs=60, total_timeout_secs=240)
    async with serving(started):
        yield started


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def hasty_server(server):
    """Start a server with the same sandboxes and short timeouts, for programs that do not end.

    On a busy machine, good programs may exceed these timeouts.
    """
    started = make_server(CodeGenServer, unit_test_timeout_secs=1, total_timeout_secs=4)
    vars(started)["python"] = server.python
    async with serving(started):
        yield started


@on_the_shared_server
@pytest.mark.needs_bubblewrap
@pytest.mark.parametrize("number", range(5))
async def test_example_rewards_its_oracle_but_not_silence(server, number):
    example = EXAMPLES[number]
    assert (await graded(server, solve(example)[0], **example))["reward"] == 1.0
    assert (await graded(server, "", **example))["reward"] == 0.0


@pytest.mark.slow
@pytest.mark.needs_bubblewrap
async def test_humaneval_references_earn_everything(tmp_path):
    rows = list(read_rows(prepare(tmp_path / "rows.jsonl", input=real_file(*HUMANEVAL))))
    assert len(rows) == 164
    server = make_server(CodeGenServer, num_processes=3)
    async with rollout(server) as attempt:
        response = await asyncio.gather(*(attempt.verify(reply(*solve(row)), **row) for row in rows))
    assert [row["source"] for row, each in zip(rows, response, strict=True) if each.reward != 1.0] == []


@pytest.mark.needs_bubblewrap
async def test_repeated_humaneval_prompt_earns_nothing(tmp_path):
    rows = list(read_rows(prepare(tmp_path / "rows.jsonl", input=real_file(*HUMANEVAL))))[::40]
    server = make_server(CodeGenServer, num_processes=2)
    for each in rows:
        response = await graded(server, each["responses_create_params"]["input"][0]["content"], **each)
        assert response["reward"] == 0.0, each["source"]


@on_the_shared_server
@pytest.mark.needs_bubblewrap
@pytest.mark.parametrize(
    ("code", "tests", "result"),
    [
        (PROGRAM, DOUBLE, [True, True]),
        ("print(4)", DOUBLE, [True, -2]),
        ("print(f'{2 * int(input())}.0')", DOUBLE, [True, True]),
        ("print(2 * int(input()), 'or so')", DOUBLE, [-2, -2]),
        ("raise ValueError('no')", DOUBLE, [-4, -4]),
        ("1 +", DOUBLE, [-4, -4]),
        (f"{PROGRAM}\nexit()", DOUBLE, [True, True]),
        (f"{PROGRAM}\nimport sys; sys.exit('no')", DOUBLE, [-4, -4]),
        (f"import threading\ndef main(): {PROGRAM}\nthreading.Thread(target=main).start()", DOUBLE, [True, True]),
        (f"if __name__ == '__main__':\n    {PROGRAM}", DOUBLE, [True, True]),
        ("def double(n): return 2 * n", DOUBLE_FUNCTION, [True, True]),
        ("class Solution:\n    def double(self, n: Optional[int]): return 2 * n", DOUBLE_FUNCTION, [True, True]),
        ("class Solution:\n    def merge(self, spans): return sorted(spans)", MERGE_FUNCTION, [True]),
        ("def merge(spans): return sorted(spans)", MERGE_FUNCTION, [True]),
        ("pass", SMALLEST_FUNCTION, [-4]),
        ("def double(n): return str(2 * n)", DOUBLE_FUNCTION, [-2, -2]),
        ("def double(n): return {1, 2}", DOUBLE_FUNCTION, [-4, -4]),
        ("def double(n): print('here'); return 2 * n", DOUBLE_FUNCTION, [True, True]),
        ("def triple(n): return 2 * n", DOUBLE_FUNCTION, [-4, -4]),
        ("def double(n): return 2 * n", DOUBLE_CHECK, [True]),
        ("def double(n): return 5", DOUBLE_CHECK, [-2]),
        ("def double(n): return n.double", DOUBLE_CHECK, [-4]),
        ("def double(n): return double", DOUBLE_CHECK, [-4]),
        ("print('hello')", DOUBLE_CHECK, [-4]),
    ],
)
async def test_each_test_has_a_result(server, code, tests, result):
    response = await graded(server, fenced(code), **row(**tests))
    assert response["result"] == result
    assert response["reward"] == float(all(each is True for each in result))
    assert response["extracted_model_code"] == code


@on_the_shared_server
@pytest.mark.needs_bubblewrap
@pytest.mark.parametrize(
    ("code", "tests", "result"),
    [
        ("while True: pass", DOUBLE, [-3, -1]),
        ("def double(n):\n    while True: pass", DOUBLE_CHECK, [-3]),
    ],
)
async def test_endless_program_is_out_of_time(hasty_server, code, tests, result):
    response = await graded(hasty_server, fenced(code), **row(**tests))
    assert (response["result"], response["reward"]) == (result, 0.0)
    count = f"{result.count(True)} of {len(result)} tests passed"
    assert response["why"].startswith(
        f"{count}; test {response['metadata']['failed_test']} failed first: 'out of time"
    )


@on_the_shared_server
@pytest.mark.needs_bubblewrap
async def test_error_message_with_invalid_unicode_is_reported(server):
    response = await graded(server, fenced("def double(n): raise ValueError('\\ud800')"), **row(**DOUBLE_CHECK))
    assert (response["reward"], response["metadata"]["error_message"]) == (0.0, "ValueError: ?")


CHEATS = {
    "an object that equals everything": "class Same(int):\n    def __eq__(self, other): return True\n"
    "def double(n): return Same(7)",
    "leaving before the check": "import os, sys\ndef double(n): os._exit(0)",
    "leaving at once": "import sys; sys.exit(0)",
    "printing a verdict": 'print(\'{"verdict": "passed", "why": ""}\', flush=True)\ndef double(n): return 0',
    "writing a verdict wherever it can": "import os\nfor fd in range(3, 64):\n    try: os.write(fd, "
    'b\'{"verdict": "passed", "why": ""}\\n\')\n    except OSError: pass\ndef double(n): return 0',
    "reaching for the one who asks": "import os\nfor pid in os.listdir('/proc'):\n    if pid.isdecimal():\n"
    "        for fd in range(64):\n            try: os.write(os.open(f'/proc/{pid}/fd/{fd}', os.O_WRONLY), "
    'b\'{"verdict": "passed", "why": ""}\')\n            except OSError: pass\ndef double(n): return 0',
    "reports of its own": 'import os\nreport = b\'{"how": "finished", "output": "4"}\'\n'
    "for fd in range(64):\n    try: os.write(os.open(f'/proc/1/fd/{fd}', os.O_WRONLY), bytes([0] * 7 + "
    "[len(report)]) + report)\n    except OSError: pass\ndef double(n): return 0",
    "killing all that there is": "import os, signal\nos.kill(-1, signal.SIGKILL)\ndef double(n): return 0",
    "changing the frames above it": "import sys\nframe = sys._getframe()\nwhile frame:\n"
    "    frame.f_globals['_tagged'] = lambda value: 4\n    frame = frame.f_back\n"
    "def double(n): return 0\nraise SystemExit",
    "builtins that do nothing": "import builtins, os, sys\nsys.exit = os._exit = os.abort = builtins.exit = print\n"
    "builtins.isinstance = lambda *_: True\nbuiltins.all = builtins.any = builtins.bool = lambda *_: True\n"
    "def double(n): return 0",
    "threads that answer, too": "import os, threading\ndef spam():\n    while True:\n        for fd in range(3, 12):\n"
    "            try: os.write(fd, b'[\"value\", 5]\\n')\n            except OSError: pass\n"
    "for _ in range(3): threading.Thread(target=spam, daemon=True).start()\n"
    "def double(n): return 0",
    "a module named like ours": "for name in ('check_calls', 'json', 'builtins'):\n"
    "    open(f'/tmp/{name}.py', 'w').write('raise SystemExit(0)')\ndef double(n): return 0",
    "an assertion that never fails": "import builtins\nbuiltins.AssertionError = type('Fine', (Exception,), {})\n"
    "def double(n): return 5",
}


@on_the_shared_server
@pytest.mark.needs_bubblewrap
@pytest.mark.parametrize("tests", [DOUBLE_CHECK, DOUBLE_FUNCTION, DOUBLE], ids=["check", "function", "stdin"])
@pytest.mark.parametrize("cheat", CHEATS)
async def test_program_cannot_grade_itself(hasty_server, cheat, tests):
    assert (await graded(hasty_server, fenced(CHEATS[cheat]), **row(**tests)))["reward"] == 0.0


SECRET = "48151623"
SEARCH = r"""
import gc, glob, re, sys

def seen():
    frame = sys._getframe()
    while frame:
        yield repr([frame.f_locals, frame.f_globals]).encode()
        frame = frame.f_back
    yield from (repr(each).encode() for each in gc.get_objects() if type(each) in (list, tuple, dict))
    for path in [*glob.glob("/proc/*/cmdline"), *glob.glob("/proc/*/environ"), *glob.glob("/tmp/**", recursive=True)]:
        try:
            yield open(path, "rb").read()
        except OSError:
            pass
    for process in glob.glob("/proc/[0-9]*") + ["/proc/self"]:
        try:
            memory, areas = open(process + "/mem", "rb"), open(process + "/maps").read().splitlines()
        except OSError:
            continue
        for area in areas:
            start, end = (int(each, 16) for each in area.split()[0].split("-"))
            if " rw" in area and end - start < 2**26:
                try:
                    memory.seek(start)
                    yield memory.read(end - start)
                except (OSError, ValueError, OverflowError):
                    pass

def double(_):
    found = (re.search(rb"4815[0-9]{4}", text) for text in seen())
    return next((int(each[0]) for each in found if each), 0)
"""


@on_the_shared_server
@pytest.mark.needs_bubblewrap
@pytest.mark.parametrize(
    ("tests", "ending"),
    [
        ({"fn_name": "double", "check": f"assert double(2) == {SECRET}"}, ""),
        ({"fn_name": "double", "inputs": ["2"], "outputs": [SECRET]}, ""),
        ({"inputs": ["2\n"], "outputs": [f"{SECRET}\n"]}, "print(double(2))"),
    ],
    ids=["check", "function", "stdin"],
)
async def test_program_cannot_find_the_answer(server, tests, ending):
    assert (await graded(server, fenced(SEARCH + ending), **row(**tests)))["result"] == [-2]
    # The search finds a number that is in the program's memory.
    own = f"{SEARCH}\nhidden = [{SECRET[:4]} * 10_000 + {SECRET[4:]}]\n{ending}"
    assert (await graded(server, fenced(own), **row(**tests)))["reward"] == 1.0


GREETING = '''def greeting(name: str) -> str:
  """Greet someone."""
'''
GREETING_TESTS = {
    "fn_name": "greeting",
    "preamble": f"PUNCTUATION = '!'\n\n\n{GREETING}",
    "check": "def check(candidate):\n    assert candidate('Bo') == 'Hello, Bo!'",
}


@on_the_shared_server
@pytest.mark.needs_bubblewrap
@pytest.mark.parametrize(
    ("code", "reward"),
    [
        ("return f'Hello, {name}{PUNCTUATION}'", 1.0),
        ("  whole = f'Hello, {name}'\n  if whole:\n    whole += PUNCTUATION\n  return whole", 1.0),
        (f"{GREETING}  return f'Hello, {{name}}!'", 1.0),
        ("def greeting(name):\n    return f'Hello, {name}!'", 1.0),
        ("greeting = 'Hello, {}!'.format", 1.0),
        ("return f'Hello, {name}'", 0.0),
        (GREETING, 0.0),
        ("def greet(name):\n    return f'Hello, {name}!'", 0.0),
        ("return (", 0.0),
    ],
)
async def test_body_alone_completes_the_preamble(server, code, reward):
    assert (await graded(server, fenced(code), **row(**GREETING_TESTS)))["reward"] == reward


@pytest.fixture
def folder_with_tests(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tests.json.gz").write_bytes(gzip.compress(json.dumps(DOUBLE).encode()))
    (tmp_path / "broken.json.gz").write_bytes(gzip.compress(b'{"inputs": 5}'))


@on_the_shared_server
@pytest.mark.needs_bubblewrap
@pytest.mark.usefixtures("folder_with_tests")
async def test_tests_may_be_in_a_file(server):
    response = await graded(server, fenced(PROGRAM), **row(file="tests.json.gz"))
    assert response["result"] == [True, True]
    assert response["verifier_metadata"] == {"unit_tests": {"file": "tests.json.gz"}}
    for name, message in [("none.json.gz", "not found. Create it"), ("broken.json.gz", "Create it again")]:
        with pytest.raises(InvalidTask, match=f"file: .*{name}.*{message}"):
            await graded(server, fenced(PROGRAM), **row(file=name))


def test_metrics_have_pass_rates_by_difficulty():
    easy, hard = ([{"reward": reward, "difficulty": name} for reward in rewards]
                  for name, rewards in [("easy", (1.0, 1.0)), ("hard", (1.0, 0.0))])  # fmt: skip
    server = make_server(CodeGenServer)
    metrics = server.compute_metrics([easy, hard])
    assert (metrics["pass@1/accuracy"], metrics["pass@2/accuracy"]) == (75.0, 100.0)
    assert (metrics["easy/pass@1/accuracy"], metrics["hard/pass@1/accuracy"]) == (100.0, 50.0)
    assert server.get_key_metrics(metrics) == {"pass@1[avg-of-2]/accuracy": 75.0, "pass@2/accuracy": 100.0}


OVER_A_PROTOCOL = [
    "assert all(value == 4 for value in map(candidate, [2, 2]))",
    "for got, wanted in zip(map(candidate, [2, 3]), [4, 6]): assert got == wanted",
    "assert sum(1 for value in map(candidate, [2]) if value != 4) == 0",
    "for value in iter(lambda: candidate(2), None): assert value == 4",
    "assert not list(filter(lambda n: candidate(n) != 2 * n, [1, 2, 3]))",
    "for value in itertools.takewhile(lambda _: True, map(candidate, [2])): assert value == 4",
]
ESCAPES = ["StopIteration", "StopAsyncIteration", "GeneratorExit", "SystemExit", "KeyboardInterrupt", "BaseException"]


@on_the_shared_server
@pytest.mark.needs_bubblewrap
async def test_exception_does_not_end_a_checks_loop(server):
    passed = []
    for check in OVER_A_PROTOCOL:
        tests = {"fn_name": "double", "preamble": "import itertools", "check": f"def check(candidate):\n    {check}"}
        for name in ESCAPES if check is OVER_A_PROTOCOL[0] else ESCAPES[:1]:
            answer = fenced(f"def double(n): raise {name}")
            if (await graded(server, answer, **row(**tests)))["reward"]:
                passed.append((check, name))
    assert passed == []


EXPECTS = "try:\n    double(-1)\n    raise SystemError\nexcept {kind}:\n    pass"
RAISED = [
    ("ValueError", "raise ValueError('negative')", 1.0),
    ("ValueError", "raise Negative('negative')", 1.0),
    ("ValueError", "import json; return json.loads('{')", 1.0),
    ("ValueError", "return b'\\xff'.decode()", 1.0),
    ("UnicodeDecodeError", "return b'\\xff'.decode()", 1.0),
    ("KeyError", "return {}[n]", 1.0),
    ("LookupError", "return [][n]", 1.0),
    ("Exception", "raise ExceptionGroup('two', [ValueError(), KeyError()])", 1.0),
    ("ValueError", "raise KeyError(n)", 0.0),
    ("ValueError", "raise Unprintable", 1.0),
    ("ValueError", "return n", 0.0),
    ("Exception", "raise SystemExit", 1.0),
    ("Exception", "import os; os._exit(0)", 0.0),
    ("BaseException", "import os; os._exit(0)", 0.0),
    ("BaseException", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)", 0.0),
]


@on_the_shared_server
@pytest.mark.needs_bubblewrap
async def test_check_may_expect_the_functions_own_exceptions(server):
    classes = (
        "class Negative(ValueError): pass\n"
        "class Unprintable(ValueError):\n    def __str__(self): raise StopIteration\n"
    )
    wrong = []
    for kind, body, reward in RAISED:
        tests = {"fn_name": "double", "check": EXPECTS.format(kind=kind)}
        response = await graded(server, fenced(f"{classes}def double(n): {body}"), **row(**tests))
        if response["reward"] != reward:
            wrong.append((kind, body, response["metadata"]))
    assert wrong == []


@on_the_shared_server
@pytest.mark.needs_bubblewrap
async def test_check_compares_integers_of_any_size(server):
    tests = {"fn_name": "double", "check": "assert double(10**6000) == 2 * 10**6000 and double(-(10**6000)) < 0"}
    assert (await graded(server, fenced("def double(n): return 2 * n"), **row(**tests)))["reward"] == 1.0


@on_the_shared_server
@pytest.mark.needs_bubblewrap
async def test_check_exchanges_iterators_and_dates(server):
    right = "import datetime, decimal, fractions\n"
    cases = [
        ("def f(n):\n    yield from range(n)", "assert list(f(3)) == [0, 1, 2]", 1.0),
        ("def f(n):\n    yield from range(n)", "assert f(3) == [0, 1, 2]", 0.0),
        ("def f(n):\n    while True: yield 1", "assert list(f(3)) == [1]", 0.0),
        ("def f(n): return map(str, range(n))", "assert list(f(2)) == ['0', '1']", 1.0),
        ("def f(items): return sum(items)", "assert f(range(4)) == 6 and f(x for x in (1, 2)) == 3", 1.0),
        ("def f(n): return range(n)", "assert f(3) == range(3)", 1.0),
        ("def f(d): return d + datetime.timedelta(days=1)", "assert f(datetime.date(2020, 2, 28)).day == 29", 1.0),
        ("def f(d): return d.date()", "assert f(datetime.datetime(2020, 1, 1, 5)) == datetime.date(2020, 1, 1)", 1.0),
        ("def f(d): return d", "assert f(datetime.date(2020, 1, 1)) == datetime.date(2020, 1, 2)", 0.0),
        ("def f(x): return x / 3", "assert f(fractions.Fraction(1)) == fractions.Fraction(1, 3)", 1.0),
        ("def f(x): return x * 2", "assert f(decimal.Decimal('0.1')) == decimal.Decimal('0.2')", 1.0),
    ]
    wrong = []
    for code, check, reward in cases:
        tests = {"fn_name": "f", "preamble": right, "check": check}
        found = (await graded(server, fenced(code), **row(**tests)))["reward"]
        if found != reward:
            wrong.append((code, check, found))
    assert wrong == []


POINT = """
import dataclasses, enum

@dataclasses.dataclass
class Point:
    x: int
    y: int = 0

class Node:
    def __init__(self, val, next=None):
        self.val, self.next = val, next

class Color(enum.Enum):
    RED = 1
    BLUE = 2
"""
STACK = "class Stack:\n    def __init__(self): self.items = []\n    def push(self, item): self.items.append(item)\n"
STACK += "    def pop(self): return self.items.pop()\n    def __len__(self): return len(self.items)"
SAME = "class Point:\n    def __eq__(self, other): return True\n"
EXCHANGED = [
    ("f", "def f(g, n): return g(g(n))", "assert f(lambda n: n + 1, 2) == 4", 1.0),
    ("f", "def f(g, n): return n", "assert f(lambda n: n + 1, 2) == 4", 0.0),
    ("f", "def f(items, key): return sorted(items, key=key)", "assert f(['bb', 'a'], len) == ['a', 'bb']", 1.0),
    ("f", "def f(g): return g()", "try: f(lambda: 1 / 0)\nexcept ZeroDivisionError: pass\nelse: assert False", 1.0),
    ("f", "def f(n): return lambda m: n + m", "assert f(2)(3) == 5 and callable(f(1))", 1.0),
    ("f", "def f(g): return lambda *a: 2 * g(*a)", "assert f(lambda a, b: a * b)(2, 3) == 12", 1.0),
    ("f", "def f(n): return f", "assert f(2) == 4", 0.0),
    ("f", "def f(items, kind): return [kind(i) for i in items]", "assert f([1, 'a'], str) == ['1', 'a']", 1.0),
    ("f", "def f(p): return Point(p.y, p.x)", "assert f(Point(1, 2)) == Point(2, 1)", 1.0),
    ("f", "def f(p): return Point(p.x, p.y)", "assert f(Point(1, 2)) == Point(2, 1)", 0.0),
    ("f", f"{SAME}def f(p): return Point()", "assert f(1) == Point(2)", 0.0),
    ("f", f"{SAME}Other = Point\ndel Point\ndef f(p): return Other()", "assert f(1) == Point(2)", 0.0),
    (
        "f",
        "def f(p):\n    p.next = Node(3, Node(4))\n    return p.next",
        "assert (f(Node(1)).val, f(Node(1)).next.val) == (3, 4)",
        1.0,
    ),
    ("f", "def f(c): return Color.BLUE if c is Color.RED else c", "assert f(Color.RED) is Color.BLUE", 1.0),
    ("f", "def f(items): items.sort()", "items = [3, 1]\nf(items)\nassert items == [1, 3]", 1.0),
    ("f", "def f(items): sorted(items)", "items = [3, 1]\nf(items)\nassert items == [1, 3]", 0.0),
    ("f", "def f(grid): grid[0][1] = 5", "row = [1, 2]\ngrid = [row]\nassert f(grid) is None and row == [1, 5]", 1.0),
    (
        "f",
        "def f(table, seen): table['a'] = 1; seen.add(2)",
        "t, s = {}, {1}\nf(t, s)\nassert (t, s) == ({'a': 1}, {1, 2})",
        1.0,
    ),
    ("f", "def f(p): p.x += 1", "p = Point(1)\nf(p)\nassert p == Point(2)", 1.0),
    ("f", "def f(items): items.clear(); return []", "items = [3, 1]\nassert f(items) == sorted(items)", 0.0),
    ("Stack", STACK, "s = Stack()\ns.push(3)\ns.push(4)\nassert len(s) == 2 and s.pop() == 4 and s.items == [3]", 1.0),
    ("Stack", STACK, "s = Stack()\ns.push(3)\nassert s.pop() == 4", 0.0),
    ("Stack", "class Stack:\n    def __eq__(self, other): return True", "assert Stack() == 5", 0.0),
    ("Stack", "class Stack:\n    def __contains__(self, other): return True", "assert 5 in Stack()", 0.0),
]


@on_the_shared_server
@pytest.mark.needs_bubblewrap
async def test_check_exchanges_functions_objects_and_changes(server):
    wrong = []
    for name, code, check, reward in EXCHANGED:
        tests = {"fn_name": name, "preamble": POINT, "check": check}
        found = await graded(server, fenced(code), **row(**tests))
        if found["reward"] != reward:
            wrong.append((code, check, found["reward"], found["metadata"]))
    assert wrong == []


FORGED = """
import json, os
def f(*_):
    for fd in range(3, 64):
        try: os.write(fd, json.dumps({forged}).encode() + b"\\n")
        except OSError: pass
    return 0
"""
FORGERIES = [
    ('["value", 0, [[]]]', "items = [3]\nassert f(items) == len(items)"),
    ('["get", 0, "__globals__", []]', "expected = 4\nassert f(lambda: 0) == expected"),
    ('["value", {"instance": ["Point", [["same", {"function": [0, ""]}]]]}, []]', "assert f(1).same(4)"),
    ('["value", {"object": [0, "int"]}, []]', "assert f(1).bit_length() == 4"),
]


@on_the_shared_server
@pytest.mark.needs_bubblewrap
async def test_forged_messages_earn_nothing(hasty_server):
    preamble = "class Point:\n    def same(self, other): return False"
    earned = []
    for forged, check in FORGERIES:
        tests = {"fn_name": "f", "preamble": preamble, "check": check}
        if (await graded(hasty_server, fenced(FORGED.replace("{forged}", forged)), **row(**tests)))["reward"]:
            earned.append(forged)
    assert earned == []


READS_OUTPUT_LIMITS = """
import sys
frame = sys._getframe()
while "job" not in frame.f_locals:
    frame = frame.f_back
job = frame.f_locals["job"]
allowed = job["output_bytes"][job["inputs"].index(input())]
print("YES" if allowed == max(job["output_bytes"]) else "NO")
"""


@on_the_shared_server
@pytest.mark.needs_bubblewrap
async def test_output_limit_does_not_reveal_the_answer(server):
    response = await graded(server, fenced(READS_OUTPUT_LIMITS), **row(inputs=["1", "2"], outputs=["YES", "NO"]))
    assert response["result"] == [True, -2]


HARM = {
    "a fork bomb": "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass",
    "a bomb of threads": "import threading, time\nwhile True: threading.Thread(target=time.sleep, args=(60,)).start()",
    "an endless loop": "while True: pass",
    "100 MB of output": "import sys\nsys.stdout.write('x' * 100_000_000)",
    "100 MB of complaints": "import sys\nsys.stderr.write('x' * 100_000_000)",
    "a memory hog": "hog = []\nwhile True: hog.append(bytearray(10_000_000))",
    "a hog of many processes": "import os, time\nfor _ in range(5): os.fork()\n"
    "hog = bytearray(500_000_000)\ntime.sleep(60)",
    "a full disk": "with open('/tmp/x', 'wb') as f:\n    while True: f.write(b'x' * 1_000_000)",
    "a child that stays": "import os, time\nif os.fork() == 0:\n    os.setsid()\n    time.sleep(60)\ntime.sleep(60)",
    "deaf to signals": "import signal\nfor n in range(1, 32):\n    try: signal.signal(n, signal.SIG_IGN)\n"
    "    except OSError: pass\nwhile True: pass",
    "a crash": "import ctypes; ctypes.string_at(0)",
    "deep recursion": "import sys\nsys.setrecursionlimit(10**9)\nf = lambda: f()\nf()",
    "a text with a null and a surrogate": "\x00print(4)\ud800".encode("utf-8", "replace").decode(),
}


@on_the_shared_server
@pytest.mark.needs_bubblewrap
@pytest.mark.parametrize("harm", HARM)
async def test_harmful_programs_earn_nothing_and_block_nothing(server, hasty_server, harm):
    async with rollout(server) as attempt, rollout(hasty_server) as hasty_attempt:
        bad, *good = await asyncio.gather(
            hasty_attempt.verify(reply(fenced(HARM[harm])), **row(**DOUBLE)),
            *(attempt.verify(reply(fenced(PROGRAM)), **row(**DOUBLE)) for _ in range(4)),
        )
    assert bad.reward == 0.0
    assert [each.reward for each in good] == [1.0] * 4


OUTSIDE = {
    "this file": f"print(open({str(Path(__file__))!r}).read())",
    "the users": "print(open('/etc/passwd').read())",
    "the home": f"import os; print(os.listdir({str(Path.home() / 'x')!r}))",
    "the environment": "import os; print(os.environ['VIRTUAL_ENV'])",
    "a server here": "import socket; socket.create_connection(('127.0.0.1', PORT), 1)",
    "a server elsewhere": "import socket; socket.create_connection(('192.0.2.1', 80), 1)",
    "a name": "import socket; socket.getaddrinfo('localhost.example', 80)",
    "the system": "open('/usr/bin/ours', 'w')",
    "the root": "open('/ours', 'w')",
    "devices": "open('/dev/ours', 'w')",
    "another user": "import os; os.setuid(0)",
    "a process of ours": "import os; os.kill(PID, 9)",
}


@on_the_shared_server
@pytest.mark.needs_bubblewrap
@pytest.mark.parametrize("what", OUTSIDE)
async def test_nothing_outside_can_be_reached(server, what):
    listener = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
    async with listener:
        port = listener.sockets[0].getsockname()[1]
        attempt = OUTSIDE[what].replace("PORT", str(port)).replace("PID", "1")
        body = "\n    ".join(attempt.split("\n"))
        code = f"try:\n    {body}\nexcept (OSError, KeyError):\n    print('refused')"
        response = await graded(server, fenced(code), **row(inputs=[""], outputs=["refused"]))
    assert response["result"] == [True]


@on_the_shared_server
@pytest.mark.needs_bubblewrap
async def test_metadata_describes_the_first_failure(server):
    response = await graded(server, fenced("print(4)"), **row(**DOUBLE))
    assert response["metadata"]["failed_test"] == 1
    assert response["metadata"]["error_code"] == -2
    assert "expected" not in response["metadata"]
    curious = make_server(CodeGenServer, debug=True)
    response = await graded(curious, fenced("print(4)"), **row(**DOUBLE))
    assert (response["metadata"]["inputs"], response["metadata"]["output"], response["metadata"]["expected"]) == (
        "21\n",
        "4\n",
        "42\n",
    )


@on_the_shared_server
@pytest.mark.parametrize("answer", ["", "no code", "```python\nprint(4)", "```\n\n```", "`print(4)`"])
async def test_answer_without_complete_block_earns_nothing(server, answer):
    response = await graded(server, answer, **row(**DOUBLE))
    assert (response["reward"], response["extracted_model_code"], response["result"]) == (0.0, None, [])


@on_the_shared_server
@pytest.mark.parametrize(
    ("tests", "message"),
    [
        ({}, "tests are missing"),
        ({"inputs": ["1"], "outputs": []}, "1 inputs and 0 outputs"),
        ({"check": "assert True"}, "fn_name is missing"),
        ({**DOUBLE_CHECK, "check": "assert double(2) = 4"}, "check is not Python: "),
        ({**DOUBLE_CHECK, "preamble": "import"}, "preamble is not Python: "),
        ({**DOUBLE_FUNCTION, "preamble": "import"}, "preamble is not Python: "),
        ({**DOUBLE_FUNCTION, "inputs": ["2", "[2"]}, r"inputs\[1\] is not JSON: "),
        ({**DOUBLE_FUNCTION, "outputs": ["four", "42"]}, r"outputs\[0\] is not JSON: "),
    ],
)
@pytest.mark.parametrize("answer", [fenced(PROGRAM), ""], ids=["program", "nothing"])
async def test_faulty_row_raises_invalid_task(server, tests, message, answer):
    with pytest.raises(InvalidTask, match=f"code_gen: verifier_metadata.unit_tests: .*{message}"):
        await graded(server, answer, **row(**tests))


@on_the_shared_server
@pytest.mark.needs_bubblewrap
async def test_check_that_exits_without_error_is_invalid(server):
    tests = row(fn_name="double", check="import sys\nassert double(2) == 4\nsys.exit()")
    with pytest.raises(InvalidTask, match=r"check: it ends its process .*Use assertions"):
        await graded(server, fenced("def double(n): return 2 * n"), **tests)
    assert (await graded(server, fenced("def double(n): return 5"), **tests))["result"] == [-2]


@on_the_shared_server
@pytest.mark.needs_bubblewrap
async def test_check_may_exit_with_an_error(server):
    tests = row(fn_name="double", check="import sys\nif double(2) != 4: sys.exit(1)")
    answers = {"return 2 * n": [True], "return 5": [-4]}
    results = {body: (await graded(server, fenced(f"def double(n): {body}"), **tests))["result"] for body in answers}
    assert results == answers


async def test_missing_sandbox_fails_with_install_instructions(without_bubblewrap):
    with pytest.raises(EnvironmentFailed, match=r"apt-get install bubblewrap.*allow_unconfined: true"):
        await graded(make_server(CodeGenServer), fenced(PROGRAM), **row(**DOUBLE))


@pytest.mark.parametrize(
    ("code", "result", "timeout_s"),
    [
        (PROGRAM, [True, True], 60),
        ("while True: pass", [-3, -1], 1),
        ("hog = []\nwhile True: hog.append(bytearray(10_000_000))", [-4, -4], 60),
        ("while True: print('x' * 1000)", [-2, -2], 60),
    ],
)
async def test_limits_hold_with_allow_unconfined(without_bubblewrap, code, result, timeout_s):
    server = make_server(CodeGenServer, unit_test_timeout_secs=timeout_s, memory_limit_mb=128, allow_unconfined=True)
    response = await graded(server, fenced(code), **row(**DOUBLE))
    assert response["result"] == result
    assert response["metadata"]["confinement"] == "resource limits only"


@pytest.mark.parametrize(
    ("content", "where"),
    [(b'{"task_id": "a"}\n', ":1: prompt"), (b"\n[1]\n", ":2:"), (b"{\n", ":1: not valid JSON")],
)
def test_prepare_reports_the_invalid_line(tmp_path, capsys, content, where):
    given = tmp_path / "given.jsonl"
    given.write_bytes(content)
    with pytest.raises(SystemExit, match="1"):
        run_prepare(prepare, ["--input", str(given), "--output", str(tmp_path / "rows.jsonl")])
    assert f"{given}{where}" in capsys.readouterr().err
    assert not (tmp_path / "rows.jsonl").exists()


def test_prepare_skips_bad_lines(tmp_path):
    problem = {"task_id": "a", "prompt": "p", "entry_point": "f", "canonical_solution": "s", "test": "t"}
    given = tmp_path / "given.jsonl"
    given.write_text("\n".join(['{"task_id": "b"}', "", json.dumps(problem), "{"]))
    assert [row["source"] for row in read_rows(prepare(tmp_path / "rows.jsonl", input=given, skip_bad=True))] == ["a"]


def test_prepare_reports_a_missing_file(tmp_path, capsys):
    with pytest.raises(SystemExit, match="1"):
        run_prepare(prepare, ["--input", str(tmp_path / "none.jsonl.gz"), "--output", str(tmp_path / "rows.jsonl")])
    assert "none.jsonl.gz" in capsys.readouterr().err
