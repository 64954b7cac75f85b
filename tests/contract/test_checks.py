"""Tests that each broken promise of an environment's folder is reported by its check."""

import asyncio
import re
from types import SimpleNamespace

import orjson
import pytest

from nemo_gym.contract.checks import PUBLISHING, check_environment
from nemo_gym.contract.environment import open_environment
from nemo_gym.contract.examples import write_examples
from nemo_gym.errors import DataError
from nemo_gym.jsonl import read_rows
from tests.contract.sums import APP, broken_promises, change

pytestmark = pytest.mark.slow

HINT = """SHARED = []
from pydantic import BaseModel, ConfigDict

class Hint(BaseModel):
    model_config = ConfigDict(extra="forbid")

    text: str = ""
"""


def test_sound_environment_keeps_all_promises(folder):
    assert broken_promises(folder) == {}


@pytest.mark.parametrize(
    ("file", "old", "new", "promise", "detail"),
    [
        ("oracle.py", "number=1)", "number=2)", "the oracle earns the full reward", "row 1 earned 0 of 1"),
        (
            "app.py",
            "float(state.total == body.wanted)",
            "1.0",
            "doing nothing earns less",
            "row 1 earned 1 for doing nothing",
        ),
        (
            "app.py",
            "float(state.total == body.wanted)",
            "random.random()",
            "the same attempt earns the same again",
            "the same attempt earned",
        ),
        (
            "app.py",
            "float(state.total == body.wanted)",
            "float(sum(SHARED[-2:]) == body.wanted and len(SHARED) % 4 < 3 and state.total > 0)",
            "two rollouts do not see each other",
            "played at the same time, earned",
        ),
        (
            "app.py",
            "float(state.total == body.wanted)",
            "float('nan')",
            "odd answers are graded",
            "not finite",
        ),
        (
            "app.py",
            "return float(",
            "len(body.response.output[0].content); return float(",
            "odd answers are graded",
            "row 1, no output: app.py:25: IndexError",
        ),
        (
            "app.py",
            "SHARED.append(number)",
            "if number < 1: raise ToolError('only positive numbers')",
            "odd answers are graded",
            """row 1, add called with '{"number": 0}': app.py:20: NameError: name 'ToolError' is not defined""",
        ),
        ("app.py", '        """Add to the sum."""\n', "", "tools are described and typed", "without a docstring: add"),
        (
            "data/example.jsonl",
            '{"input":"Bring the sum to 3."}',
            "{}",
            "rows are valid and name existing tools",
            "row 2",
        ),
        (
            "data/example.jsonl",
            '{"input":"Bring the sum to 3."}',
            '{"input":"", "tools":[{"type":"function","name":"subtract"}]}',
            "rows are valid and name existing tools",
            "row 2 names tools that the server lacks: subtract",
        ),
        ("configs/sums.yaml", "name: sums}", "name: sums2}", "configs load, each with an agent", "sums"),
        ("README.md", "Licence", "Origin", PUBLISHING, "missing the data's licence"),
        ("tests/test_app.py", "def test_", "def ", PUBLISHING, "no test found"),
    ],
)
def test_each_broken_promise_is_found(folder, file, old, new, promise, detail):
    if promise == "configs load, each with an agent":
        # Broken in a second config, so that the environment itself can still be opened.
        text = (folder / "configs/sums.yaml").read_text("utf-8").replace("    sums: {", "    sums: {port: 0, ")
        (folder / "configs/other.yaml").write_text(text.replace("sums_simple_agent", "_").split("_:")[0], "utf-8")
        detail = "no agent uses sums"
    else:
        change(folder / file, old, new)
    assert detail in broken_promises(folder)[promise]


def test_rows_may_name_any_tool_of_a_catch_all_route(folder):
    other = '{"input":"", "tools":[{"type":"function","name":"subtract"}]}'
    change(folder / "data/example.jsonl", '{"input":"Bring the sum to 3."}', other)
    catch_all = """
    def setup_webserver(self):
        app = super().setup_webserver()
        app.post("/{name}")(self.close_session)
        return app

    async def verify("""
    change(folder / "app.py", "    async def verify(", catch_all)
    assert "rows are valid and name existing tools" not in broken_promises(folder)


def test_config_for_other_callers_needs_no_agent(folder):
    text = (folder / "configs/sums.yaml").read_text("utf-8")
    (folder / "configs/resources_only.yaml").write_text(text.partition("sums_simple_agent:")[0], "utf-8")
    assert broken_promises(folder) == {}


def test_all_publishing_rules_are_reported_at_once(folder):
    (folder / "README.md").unlink()
    (folder / "tests/test_app.py").unlink()
    rows = (folder / "data/example.jsonl").read_text("utf-8").splitlines()
    (folder / "data/example.jsonl").write_text("\n".join([*rows, *rows]), "utf-8")
    surplus = "expected 5 example rows, found 10. Move the others to a dataset of type train or validation"
    assert broken_promises(folder)[PUBLISHING].endswith(surplus)
    (folder / "data/example.jsonl").write_text("\n".join(rows[:2]), "utf-8")
    found = broken_promises(folder)
    assert list(found) == [PUBLISHING]
    assert found[PUBLISHING] == (
        f"{folder / 'README.md'}: it does not exist. Write one with the data's licence, how answers are graded, a "
        "command with the folder's name; "
        f"{folder / 'tests'}: no test found; expected 5 example rows, found 2"
    )
    with open_environment(folder) as environment:
        findings = asyncio.run(check_environment(environment, for_publishing=False))
    assert len(findings) == 10
    assert all(finding.is_kept for finding in findings)


def test_tool_of_the_endpoint_is_not_missing(folder):
    row = '{"input":"Bring the sum to 3."'
    change(folder / "data/example.jsonl", row, f'{row},"tools":[{{"type":"web_search"}}]')
    assert broken_promises(folder) == {}


def test_null_request_is_not_taken_for_a_typo(folder):
    change(folder / "data/example.jsonl", '{"input":"Bring the sum to 3."}', "null")
    assert broken_promises(folder)["rows are valid and name existing tools"] == (
        "row 2: responses_create_params: it must be a mapping, but is empty"
    )


def test_all_wrong_rows_and_tools_are_reported(folder):
    change(folder / "data/example.jsonl", '{"input":"Bring the sum to 3."}', "{}")
    change(folder / "data/example.jsonl", '{"input":"Bring the sum to 5."}', '{"input":"","tmperature":1}')
    change(folder / "app.py", '        """Add to the sum."""\n', "")
    change(folder / "app.py", "number: int,", "number: Any,")
    change(folder / "app.py", "import random", "import random\nfrom typing import Any")
    found = broken_promises(folder)
    assert re.search(
        r"row 2: .*; row 4: .*Did you mean 'temperature'", found["rows are valid and name existing tools"]
    )
    assert found["tools are described and typed"] == "without a docstring: add; add: the argument 'number' has no type"


def test_missing_examples_are_a_broken_promise(folder):
    (folder / "data/example.jsonl").write_text("", "utf-8")
    assert "no example rows. Add a dataset" in broken_promises(folder)["rows are valid and name existing tools"]


def test_rows_that_ask_for_nothing_are_not_counted(folder):
    oracle = folder / "oracle.py"
    text = oracle.read_text("utf-8") + "\n\ndef asks_for_something(row):\n    return row['wanted'] > 3\n"
    oracle.write_text(text, "utf-8")
    with open_environment(folder) as environment:
        findings = asyncio.run(check_environment(environment))
    assert {finding.promise: finding.detail for finding in findings}["doing nothing earns less"] == (
        "less on 3 rows; 2 ask for nothing"
    )


def test_grading_time_is_unknown_if_nothing_is_graded(folder):
    change(folder / "app.py", "return float(state.total == body.wanted)", "return float('nan')")
    assert "no answer could be graded" in broken_promises(folder)["grading is quick"]


def test_quadratic_pattern_is_named_once(folder, monkeypatch):
    monkeypatch.setattr("nemo_gym.contract.checks.VERIFY_LIMIT_S", 0.3)
    monkeypatch.setattr("nemo_gym.contract.answers.BLANK_LINES", 30_000)
    change(folder / "app.py", "import random", "import random, re")
    change(
        folder / "app.py", "return float(", "re.search('(?m)^\\\\s*Answer', body.response.last_text); return float("
    )
    found = broken_promises(folder)
    assert list(found) == ["grading is quick"]
    assert re.fullmatch(
        r"grading one answer took .* s \(row 1, blank lines\); the limit is 0\.3 s", found["grading is quick"]
    )


def test_slow_grading_is_timed_again(folder, monkeypatch):
    # Only the first grading seems to take longer than the limit, by a clock that no busy machine moves.
    clock = SimpleNamespace(now=0.0, perf_counter=lambda: clock.now)
    monkeypatch.setattr("nemo_gym.contract.play.time", clock)
    change(folder / "app.py", "import random", "import random\nfrom nemo_gym.contract import play\n\nPAUSES_S = [11]")
    advance = "play.time.now += PAUSES_S.pop() if PAUSES_S else 0"
    change(folder / "app.py", "return float(", f"{advance}; return float(")
    assert broken_promises(folder) == {}


def test_misspelled_hook_is_reported_with_its_line(folder):
    hook = "    async def seed_sesion(self, body: BaseSeedSessionRequest) -> None: ...\n\n"
    change(folder / "app.py", "    async def verify", f"{hook}    async def verify")
    assert broken_promises(folder) == {
        "tools are described and typed": (
            "app.py:24: SumServer.seed_sesion is never called. Did you mean 'seed_session'?"
        )
    }


def test_helper_with_similar_name_is_not_a_hook(folder):
    change(folder / "app.py", "return float(", "self.verified(); return float(")
    change(folder / "app.py", "    @tool", "    def verified(self): ...\n    def seeds(self): ...\n\n    @tool")
    assert broken_promises(folder) == {}


def test_missing_oracle_breaks_promises_that_need_it(folder):
    (folder / "oracle.py").unlink()
    found = broken_promises(folder)
    assert "there is no oracle.py" in found["the oracle earns the full reward"]
    assert "grading is quick" not in found


def test_examples_are_played_by_the_oracle(folder):
    with open_environment(folder) as environment:
        assert asyncio.run(write_examples(environment)) == 5
    rollouts = list(read_rows(folder / "data/example_rollouts.jsonl"))
    assert [rollout["reward"] for rollout in rollouts] == [1.0] * 5
    assert [item["type"] for item in rollouts[0]["response"]["output"]] == [
        *("function_call", "function_call_output") * 2,
        "message",
    ]
    assert orjson.loads((folder / "data/example_metrics.json").read_bytes())["Number of examples"] == 5


def test_verifier_that_assumes_json_arguments_is_detected(folder):
    change(
        folder / "app.py",
        "return float(",
        "[json.loads(call.arguments) for call in body.response.tool_calls]\n        return float(",
    )
    change(folder / "app.py", "import random\n", "import json\nimport random\n")
    found = broken_promises(folder)
    assert list(found) == ["odd answers are graded"]
    assert "calls with the arguments ''" in found["odd answers are graded"]


def test_measured_values_are_not_in_example_rollouts(folder):
    change(folder / "app.py", "-> float:\n", "-> BaseVerifyResponse:\n")
    change(folder / "app.py", "BaseVerifyRequest, S", "BaseVerifyRequest, BaseVerifyResponse, S")
    change(
        folder / "app.py",
        "return float(state.total == body.wanted)",
        "return BaseVerifyResponse.grade(body, reward=1.0, time_taken=random.random(), total=state.total)",
    )
    with open_environment(folder) as environment:
        asyncio.run(write_examples(environment))
    (first, *_) = read_rows(folder / "data/example_rollouts.jsonl")
    assert (first["total"], first["wanted"], "time_taken" in first) == (2, 2, False)
    (row, *_) = read_rows(folder / "data/example.jsonl")
    assert {**first, **row} == first


@pytest.mark.parametrize(
    ("old", "new", "differing"),
    [
        ("return state.total", "return random.randrange(10**9)", "response"),
        ("float(state.total == body.wanted)", "random.random()", "reward"),
    ],
)
def test_examples_that_vary_are_not_written(folder, old, new, differing):
    change(folder / "app.py", old, new)
    with open_environment(folder) as environment, pytest.raises(DataError, match=f"row 1: {differing} changed"):
        asyncio.run(write_examples(environment))
    assert not (folder / "data/example_rollouts.jsonl").exists()


def test_misspelt_row_field_is_reported_once(folder):
    change(folder / "data/example.jsonl", '"wanted":3', '"wantd":3')
    change(folder / "data/example.jsonl", '"wanted":5', '"wanted":"x1"')
    change(folder / "oracle.py", 'row["wanted"]', "3")
    found = broken_promises(folder)
    assert found["rows are valid and name existing tools"] == (
        "row 2: the row lacks 'wanted', which verify of sums needs; is 'wantd' a typo?; row 4: the row's 'wanted' is "
        "invalid for verify of sums: it must be a valid integer, but is 'x1'"
    )
    assert found["odd answers are graded"].startswith("row 2, no output: the row lacks 'wanted'")
    assert not any("422" in detail or len(detail) > 300 for detail in found.values())


def test_unknown_row_field_gets_a_suggestion(folder):
    change(folder / "app.py", "    wanted: int\n", "    wanted: int\n    hint: Hint | None = None\n")
    change(folder / "app.py", "SHARED = []", HINT)
    change(folder / "data/example.jsonl", '"wanted":3', '"wanted":3,"hint":{"txt":"x"}')
    assert broken_promises(folder)["rows are valid and name existing tools"] == (
        "row 2: the row's 'hint.txt' is invalid for verify of sums: unknown setting. Did you mean 'text'?"
    )


def test_misspelt_request_of_a_row_is_recognised(folder):
    change(
        folder / "data/example.jsonl",
        '"responses_create_params":{"input":"Bring the sum to 4."}',
        '"response_create_params":{"input":"Bring the sum to 4."}',
    )
    assert broken_promises(folder)["rows are valid and name existing tools"] == (
        "row 3: responses_create_params is missing. Is 'response_create_params' a typo for it?"
    )


def test_missing_readme_is_named_as_missing(folder):
    (folder / "README.md").unlink()
    assert broken_promises(folder)[PUBLISHING] == (
        f"{folder / 'README.md'}: it does not exist. Write one with the data's licence, how answers are graded, a "
        "command with the folder's name"
    )


NOTHING_BLOCKS = "no handler blocks or forgets an await"
SLEEP_ONCE = "time.sleep(1.3 * (not SLEPT)); SLEPT.append(1)"
GRADE = "return float(state.total == body.wanted)"


@pytest.mark.parametrize(
    ("old", "new", "detail"),
    [
        (
            GRADE,
            f"{SLEEP_ONCE}; {GRADE}",
            r"sums /verify blocked the event loop for 1\.\d s \(app.py:25 in verify\)\. Make the handler a plain def",
        ),
        (
            "state.total += number",
            f"{SLEEP_ONCE}; state.total += number",
            r"sums /add blocked the event loop for 1\.\d s \(app.py:21 in add\)\. .*, or await what it waits for",
        ),
        (GRADE, f"asyncio.sleep(0); {GRADE}", "app.py:25 calls sleep, but does not await it. Write await before it"),
        (
            "state.total += number",
            "self.count(number); state.total += number",
            "app.py:21 calls SumServer.count, but does not await it",
        ),
        (
            GRADE,
            f"kept = [self.count(1)]; kept.append(kept); {GRADE}",
            "app.py:25 calls SumServer.count, but does not",
        ),
    ],
)
def test_handler_that_blocks_or_forgets_an_await_is_named(folder, old, new, detail):
    app = APP.replace("import random", "import asyncio, random, time").replace(old, new)
    app = f"{app}\n    async def count(self, number: int) -> None: ...\n\nSLEPT = []\n"
    (folder / "app.py").write_text(app, "utf-8")
    found = broken_promises(folder)
    assert list(found) == [NOTHING_BLOCKS]
    assert re.search(detail, found[NOTHING_BLOCKS])


@pytest.mark.parametrize(
    ("new", "line"),
    [
        ("while True: pass", r"app.py:\d+ in verify"),
        ("time.sleep(1000)", r"app.py:\d+ in verify"),
        ("re.match('(a+)+$', 'a' * 60 + 'b')", ""),
        ("await asyncio.sleep(1000)", ""),
    ],
)
def test_code_that_does_not_end_ends_the_check(folder, new, line):
    app = APP.replace("import random", "import asyncio, random, re, time").replace(GRADE, new)
    (folder / "app.py").write_text(app, "utf-8")
    steps = []
    with open_environment(folder) as environment:
        findings = asyncio.run(check_environment(environment, timeout_s=1.0, on_step=steps.append))
    found = {finding.promise: finding.detail for finding in findings if not finding.is_kept}
    first, *others = found.values()
    assert next(iter(found)) == "the oracle earns the full reward"
    assert re.match(f"no result after 1 s.*{line}.*raise the limit with --timeout", first)
    assert set(others) == {"not checked, because 'the oracle earns the full reward' took too long"}
    assert len(others) == 6
    assert "checking 5 of 11: the oracle earns the full reward, " in str(steps[-1])
