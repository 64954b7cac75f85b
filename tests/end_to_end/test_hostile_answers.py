"""Malicious answers affect only their own rollout: they earn nothing in bounded time, and the others continue."""

import re
import socket
import time
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import pytest

pytestmark = [pytest.mark.needs_bubblewrap, pytest.mark.slow]

REPOSITORY = Path(__file__).parents[2]
TRIAL_S = 5.0
"""The time limit of a program, a query and a formula comparison. A pattern has 5 seconds, too.

On a busy machine, ordinary answers may need more than a second next to the hostile ones."""
BOUND_S = 100.0
"""The time by which the last hostile answer must be graded, even if the machine also runs other tests."""
LATER_BOUND_S = 60.0
"""The largest delay of an ordinary answer caused by hostile ones. All compete for two or three workers of an
environment, and replacing a killed worker takes seconds."""
FAILED = "invalid_task"

PARROT = '''
from nemo_gym import NeMoGymResponse, NeMoGymResponseCreateParamsNonStreaming, SimpleResponsesAPIModel
from nemo_gym.testing import reply


class Parrot(SimpleResponsesAPIModel):
    """Repeats the user's text."""

    async def responses(self, body: NeMoGymResponseCreateParamsNonStreaming) -> NeMoGymResponse:
        return reply(body.input[-1].content)

    async def chat_completions(self):
        raise NotImplementedError
'''
JUDGE = PARROT.replace(
    "reply(body.input[-1].content)",
    'reply("[[A=B]]" if len(set(body.input[-1].content.split("==="))) == 1 else "[[A!=B]]")',
)
JUDGE_PROMPT = "{expected_answer}==={generated_answer}"
CONFIG = """
policy_model: {responses_api_models: {parrot: {entrypoint: app.py}}}
judge_model: {responses_api_models: {judge: {entrypoint: app.py}}}
"""


class Case(NamedTuple):
    """The model's answer to a row of an environment, and its expected outcome."""

    environment: str
    answer: str
    row: dict[str, Any]
    becomes: str | float = 0.0
    """The reward, or the stage at which the rollout fails."""


def program(source: str, expected: str = "done") -> Case:
    tests = {"inputs": [""], "outputs": [f"{expected}\n"]}
    return Case("code_gen", f"```python\n{source}\n```", {"verifier_metadata": {"unit_tests": tests}})


def formula(answer: str, expected: str = "x^2+1") -> Case:
    return Case("math_with_judge", rf"\boxed{{{answer}}}", {"question": "What is it?", "expected_answer": expected})


def query(sql: str) -> Case:
    numbers = ", ".join(f"({number})" for number in range(1000))
    context = f"CREATE TABLE n (i INTEGER); INSERT INTO n VALUES {numbers};"
    return Case("text_to_sql", f"```sql\n{sql}\n```", {"sql": "SELECT COUNT(*) FROM n", "sql_context": context})


def document(text: str, kind: str) -> Case:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"}}, "required": ["a"]}
    return Case("structured_outputs", text, {"schema_str": orjson.dumps(schema).decode(), "schema_type": kind})


def choice(answer: str, pattern: str) -> Case:
    row = {"options": [{"A": "one"}, {"B": "two"}], "expected_answer": "B"}
    return Case("mcqa", answer, {**row, "template_metadata": {"output_regex": pattern}})


def judged(answer: str, pattern: str) -> Case:
    row = {"question": "Which?", "expected_answer": "two", "template_metadata": {"output_regex": pattern}}
    return Case("equivalence_llm_judge", answer, row)


EXPLODING, LONG = r"^(\w+\s?)*$", "a" * 60 + "!"
GENERATIONS = list(zip("abcdefghi", "bcdefghij", strict=True))
"""Each name expands to ten of the previous one, the last one to 10^10 letters."""
YAML_BOMB = "\n".join(
    ["a: &a [x, x, x, x, x, x, x, x, x, x]", *(f"{new}: &{new} [{f'*{old}, ' * 10}]" for old, new in GENERATIONS)]
)
XML_ENTITIES = "".join(f'<!ENTITY {new} "{f"&{old};" * 10}">' for old, new in GENERATIONS)
XML_BOMB = f'<!DOCTYPE r [<!ENTITY a "xxxxxxxxxx">{XML_ENTITIES}]><r><a>&j;</a></r>'

ORDINARY = {
    "a right program": program("print('done')"),
    "a right formula": formula("1+x^2"),
    "a right number": formula("42", "42.0"),
    "a right query": query("SELECT COUNT(i) FROM n"),
    "a right document": document('{"a": 1, "b": "c"}', "json"),
    "a long right document": document(f"b: {'c' * 10_000}\na: 2\n", "yaml"),
    "a right letter": choice("I say: B", r"I say: (\w)"),
    "a right answer": judged("I say: two", r"I say: (\w+)"),
}


def hostile(port: int, file: Path) -> dict[str, Case]:
    """Return the hostile answers by description. `port` has a listener, and `file` is a foreign file."""
    config = str(REPOSITORY / "pyproject.toml")
    return {
        "a fork bomb": program("import os\nwhile True:\n    os.fork()"),
        "an endless loop": program("while True:\n    pass"),
        "an endless sleep": program("import time\ntime.sleep(10**6)"),
        "100 MB of output": program("for _ in range(100):\n    print('x' * 10**6)\nprint('done')"),
        "all of the memory": program("kept = [bytearray(10**8) for _ in range(10**4)]\nprint('done')"),
        "a socket": program(f"import socket\nsocket.create_connection(('127.0.0.1', {port}))\nprint('done')"),
        "a file of ours read": program(f"print(open({config!r}).readline())", "[build-system]"),
        "a file of ours written": program(f"print('done', file=open({str(file)!r}, 'w'))\nprint('done')"),
        "an end to all processes": program("import os, signal\nos.kill(-1, signal.SIGKILL)\nos.kill(1, 9)"),
        "a tower of powers": formula("10^{10^{9}}"),
        "deep LaTeX": formula(r"\frac{1}{" * 1500 + "2" + "}" * 1500),
        "roots of roots": formula(r"\sqrt{" * 300 + "x" + "}" * 300),
        "a cross join of 10^12 rows": query("SELECT COUNT(*) FROM n a, n b, n c, n d"),
        "a table without an end": query(
            "WITH RECURSIVE r(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM r) SELECT MAX(i) FROM r"
        ),
        "900 MB in each row": query("SELECT HEX(ZEROBLOB(900000000)) FROM n"),
        "deep JSON": document('{"a": ' + "[" * 200_000 + "]" * 200_000 + "}", "json"),
        "deep YAML": document("a: " + "[" * 20_000 + "]" * 20_000, "yaml"),
        "a YAML bomb": document(YAML_BOMB, "yaml"),
        "an XML bomb": document(XML_BOMB, "xml"),
        # Here the row's own pattern takes too long, so the rollout fails without a reward.
        "a text that a letter's pattern chokes on": choice(LONG, EXPLODING)._replace(becomes=FAILED),
        "a text that an answer's pattern chokes on": judged(LONG, EXPLODING)._replace(becomes=FAILED),
    }


class Outcome(NamedTuple):
    """The outcome of an answer, and the seconds since the command's start."""

    becomes: str | float
    after_s: float


class Run(NamedTuple):
    """The outcomes of all answers, with those of a run of only ordinary ones, and the observed side effects."""

    cases: dict[str, Case]
    alone: dict[str, Outcome]
    outcomes: dict[str, Outcome]
    summary: str
    printed: str
    is_file_untouched: bool
    has_visitor: bool


@pytest.fixture(scope="module")
def run(shared_workplace):
    """All answers in one run on one set of servers, the hostile ones first."""
    for name, source in (("parrot", PARROT), ("judge", JUDGE)):
        shared_workplace.write(f"responses_api_models/{name}/app.py", source)
    shared_workplace.write("models.yaml", CONFIG)
    prompt = shared_workplace.write("judge.md", JUDGE_PROMPT)
    file = shared_workplace.write("ours.txt", "untouched")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        cases = {**hostile(listener.getsockname()[1], file), **ORDINARY}
        servers = shared_workplace.start_servers(*settings({case.environment for case in cases.values()}, prompt))
        alone, _ = collected(shared_workplace, "alone", ORDINARY)
        outcomes, summary = collected(shared_workplace, "together", cases)
        listener.setblocking(False)
        try:
            listener.accept()[0].close()
            has_visitor = True
        except BlockingIOError:
            has_visitor = False
    ended = servers.end()
    assert ended.code == 0
    assert shared_workplace.left_over() == []
    printed = ended.out + ended.err
    return Run(cases, alone, outcomes, summary, printed, file.read_text() == "untouched", has_visitor)


def settings(environments, prompt):
    """Return the arguments that start the servers with lower limits."""
    paths = [f"resources_servers/{name}/configs/{name}.yaml" for name in sorted(environments)]

    def key(name, setting, value):
        return f"++{name}.resources_servers.{name}.{setting}={value}"

    return (
        f"+config_paths=[{','.join([*paths, 'models.yaml'])}]",
        key("code_gen", "unit_test_timeout_secs", TRIAL_S),
        key("code_gen", "memory_limit_mb", 256),
        key("text_to_sql", "query_timeout_secs", TRIAL_S),
        key("math_with_judge", "library_verifier_timeout_seconds", TRIAL_S),
        key("math_with_judge", "should_use_judge", "false"),
        key("equivalence_llm_judge", "judge_model_server.name", "judge_model"),
        key("equivalence_llm_judge", "judge_prompt_template_fpath", prompt),
    )


def row_of(name, case):
    agent = {"type": "responses_api_agents", "name": f"{case.environment}_simple_agent"}
    request = {"input": [{"role": "user", "content": case.answer}]}
    return {"case": name, "agent_ref": agent, "responses_create_params": request, **case.row}


def collected(workplace, name, cases):
    """Return the outcome of every case, observed when it is written, and the command's summary."""
    rows = [row_of(*case) for case in cases.items()]
    workplace.write(f"{name}_rows.jsonl", "".join(orjson.dumps(row).decode() + "\n" for row in rows))
    started_at = time.monotonic()
    command = workplace.start(
        "ng_collect_rollouts", f"+input_jsonl_fpath={name}_rows.jsonl", f"+output_jsonl_fpath={name}.jsonl"
    )
    outcomes: dict[str, Outcome] = {}
    has_ended = False
    while not has_ended:
        has_ended = command.process.poll() is not None
        for file, field in ((f"{name}.jsonl", "reward"), (f"{name}_failures.jsonl", "_ng_failure_class")):
            for row in whole_lines(workplace.folder / file):
                outcomes.setdefault(row["case"], Outcome(row[field], time.monotonic() - started_at))
        time.sleep(0.05)
    finished = command.wait()
    assert finished.code == 0, finished.err
    return outcomes, re.search(r"\d+ planned .*", finished.out).group()


def whole_lines(path):
    lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
    return [orjson.loads(line) for line in lines if line.endswith(b"\n")]


@pytest.mark.parametrize("name", hostile(0, Path()))
def test_hostile_answer_earns_nothing_within_its_bound(run, name):
    outcome = run.outcomes[name]
    assert outcome.becomes == run.cases[name].becomes
    assert outcome.after_s < BOUND_S


@pytest.mark.parametrize("name", ORDINARY)
def test_ordinary_answer_still_gets_its_reward(run, name):
    assert run.alone[name].becomes == run.outcomes[name].becomes == 1.0
    assert run.outcomes[name].after_s < run.alone[name].after_s + LATER_BOUND_S


def test_most_ordinary_answers_finish_before_hostile_ones(run):
    last = max(outcome.after_s for name, outcome in run.outcomes.items() if name not in ORDINARY)
    assert sum(run.outcomes[name].after_s < last for name in ORDINARY) > len(ORDINARY) / 2


def test_answers_reach_no_foreign_files_or_sockets(run):
    assert run.is_file_untouched
    assert not run.has_visitor


def test_no_server_ended_or_raised(run):
    assert "Traceback" not in run.printed
    count = len(run.cases)
    assert run.summary == f"{count} planned = {count - 2} scored + 2 failed (2 {FAILED}) + 0 unresolved"
