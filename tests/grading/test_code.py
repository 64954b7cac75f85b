"""Finding a program in an answer, and comparing outputs."""

from nemo_gym.grading.code import last_code_block, same_output, same_values
from tests.each_case import each_case
from tests.pace import assert_linear


@each_case(
    ("text", "code"),
    [
        ("```python\nx\n```", "x"),
        ("```\na\n```\nor\n```py\nb\n```\nas said", "b"),
        ("1. so:\n   ```python\n   if a:\n       b\n   ```", "if a:\n    b"),
        ("````\n```\ninner\n```\n````", "```\ninner\n```"),
        ("~~~\nx\n~~~", "x"),
        ("```python\nx\n```\n```\n\n```", "x"),
        ("```python\nx\n```\n```python\nunfinished", "x"),
        ("```python\nx", None),
        ("x", None),
        ("", None),
        ("`x`", None),
        ("```a``` is no block", None),
    ],
)
def test_last_complete_block_is_the_program(text, code):
    assert last_code_block(text) == code


@each_case(
    ("text", "code"),
    [
        ("```python\nx\n```\nRun it:\n```bash\npython a.py\n```", "x"),
        ("```Python3\nx\n```\nIt prints\n```\n4\n```", "x"),
        ("```py\na\n```\n```json\n{}\n```\n```python\nb\n```", "b"),
        ("```{.python}\nx\n```\n```text\n4\n```", "x"),
        ("```\nx\n```\n```sh\npython a.py\n```", "x"),
        ("```\na\n```\n```\nb\n```", "b"),
        ("```\na\n```\n```python\nb\n```", "b"),
        ("```cpp\na\n```", "a"),
        ("```python\n\n```\n```bash\nx\n```", "x"),
    ],
)
def test_block_in_another_language_is_not_the_program(text, code):
    assert last_code_block(text, ("python", "py", "python3")) == code


@each_case(("start", "piece"), [("```", "a"), ("```", " "), ("", "~")])
def test_almost_fences_take_linear_time(start, piece):
    start = f"```\nx\n```\n{start}"
    assert last_code_block(start + piece * 999 + "`") == "x"
    assert_linear(last_code_block, piece, 300_000, start=start, end="`")


@each_case(
    ("printed", "expected", "is_same"),
    [
        ("1\n2\n", "1\n2", True),
        (" 1  \n2", "1\n2\n\n", True),
        ("1 2", "1\n2", False),
        ("1.50 x", "1.5 x", True),
        ("1e3", "1000", True),
        ("1e999999999", "1", False),
        ("10", "0010", False),
        ("0010", "10", False),
        ("-007", "-7", False),
        ("0010", "0010", True),
        ("0.50", "0.5", True),
        ("0", "0.0", True),
        ("nan", "NaN", False),
        ("yes", "YES", False),
        ("", "", True),
        ("", "0", False),
        ("1\n\n2", "1\n2", False),
    ],
)
def test_outputs_are_compared_line_by_line(printed, expected, is_same):
    assert same_output(printed, expected) is is_same


@each_case(
    ("returned", "expected", "is_same"),
    [("[1, 2]", "[1,2]", True), ("1.0", "1", True), ('"a"', "a", False), ("{", "{}", False), ("[" * 9999, "1", False)],
)
def test_values_are_compared_as_json(returned, expected, is_same):
    assert same_values(returned, expected) is is_same
