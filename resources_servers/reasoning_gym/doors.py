"""The places at which the package runs an answer as a program, and what stands there in a worker process instead.

Some of its scorers read a list with `eval`, others a formula with sympy's `parse_expr`, which ends in `eval` too. Both
would do whatever an answer says, such as to give every later answer full marks.
"""

from __future__ import annotations

import ast
import importlib
import sys
from typing import Any

VALUES = (
    ast.Expression, ast.Constant, ast.List, ast.Tuple, ast.Set, ast.Dict, ast.expr_context,
    ast.UnaryOp, ast.unaryop, ast.BinOp, ast.operator,
)  # fmt: skip
FORMULAS = (*VALUES, ast.Name, ast.Call)
FUNCTIONS = frozenset({
    # The first line is what sympy itself writes round the words and numbers of a formula.
    "Symbol", "Function", "Integer", "Float", "Rational", "factorial", "factorial2",
    "Abs", "abs", "sign", "sqrt", "cbrt", "root", "exp", "log", "ln", "pow", "Pow", "Add", "Mul", "Max", "Min",
    "max", "min", "sin", "cos", "tan", "cot", "sec", "csc", "asin", "acos", "atan", "acot", "asec", "acsc",
    "atan2", "sinh", "cosh", "tanh", "coth", "sech", "csch", "asinh", "acosh", "atanh", "acoth", "erf", "erfc",
    "erfi", "Ei", "Si", "Ci", "li", "gamma", "Integral", "Derivative",
})  # fmt: skip


class NotAllowed(ValueError):
    """An answer says more than a value or a formula can."""


def close_doors(package: str) -> None:
    """Read values and formulas only, in the modules of this package that are loaded and in all that sympy parses."""
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == package:
            vars(module).setdefault("eval", value_of)
    parser: Any = importlib.import_module("sympy.parsing.sympy_parser")
    parser.eval_expr = formula_of


def value_of(text: str, *_: Any) -> Any:
    """The value that numbers, texts, lists and arithmetic make; raises `NotAllowed`, or `SyntaxError`."""
    return eval(compile(_parsed(text, VALUES), "<answer>", "eval"), {"__builtins__": {}})


def formula_of(code: str, local_dict: dict[str, Any], global_dict: dict[str, Any]) -> Any:
    """In place of sympy's `eval_expr`: what a formula of symbols, numbers and known functions makes."""
    tree = _parsed(code, FORMULAS)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and (node.keywords or _name_called(node) not in FUNCTIONS):
            raise NotAllowed(f"{ast.unparse(node.func)[:50]}(…) is not one of the known functions")
    return eval(compile(tree, "<answer>", "eval"), global_dict, local_dict)


def _parsed(text: str, allowed: tuple[type[ast.AST], ...]) -> ast.Expression:
    tree = ast.parse(text.lstrip(" \t"), "<answer>", mode="eval")
    for node in ast.walk(tree):
        if not isinstance(node, allowed):
            raise NotAllowed(f"an answer cannot hold a {type(node).__name__}")
    return tree


def _name_called(call: ast.Call) -> str | None:
    """The function's name; of an unknown one, which sympy writes `Function('f')(x)`, it is `Function`."""
    called = call.func.func if isinstance(call.func, ast.Call) else call.func
    if isinstance(call.func, ast.Call) and not (isinstance(called, ast.Name) and called.id == "Function"):
        return None
    return called.id if isinstance(called, ast.Name) else None
