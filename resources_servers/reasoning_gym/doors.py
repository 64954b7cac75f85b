"""Safe replacements for reasoning-gym's uses of `eval` in worker processes.

Some scorers parse lists with `eval`. Others parse formulas with sympy's `parse_expr`, which also calls `eval`. Both
would execute code in an answer. Such code could, for example, give full marks to every later answer.
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
    # Sympy's parser itself inserts the functions of the first line, for example `Symbol` around each name.
    "Symbol", "Function", "Integer", "Float", "Rational", "factorial", "factorial2",
    "Abs", "abs", "sign", "sqrt", "cbrt", "root", "exp", "log", "ln", "pow", "Pow", "Add", "Mul", "Max", "Min",
    "max", "min", "sin", "cos", "tan", "cot", "sec", "csc", "asin", "acos", "atan", "acot", "asec", "acsc",
    "atan2", "sinh", "cosh", "tanh", "coth", "sech", "csch", "asinh", "acosh", "atanh", "acoth", "erf", "erfc",
    "erfi", "Ei", "Si", "Ci", "li", "gamma", "Integral", "Derivative",
})  # fmt: skip


class NotAllowed(ValueError):
    """An error for an answer that contains code other than a value or a formula."""


def close_doors(package: str) -> None:
    """Make reasoning-gym's loaded modules evaluate only values, and sympy's parser only formulas."""
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == package:
            vars(module).setdefault("eval", value_of)
    parser: Any = importlib.import_module("sympy.parsing.sympy_parser")
    parser.eval_expr = formula_of


def value_of(text: str, *_: Any) -> Any:
    """Evaluate numbers, strings, lists and arithmetic. Raises `NotAllowed` or `SyntaxError`."""
    return eval(compile(_parsed(text, VALUES), "<answer>", "eval"), {"__builtins__": {}})


def formula_of(code: str, local_dict: dict[str, Any], global_dict: dict[str, Any]) -> Any:
    """Evaluate a formula of symbols, numbers and known functions. This replaces sympy's `eval_expr`."""
    tree = _parsed(code, FORMULAS)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and (node.keywords or _name_called(node) not in FUNCTIONS):
            raise NotAllowed(f"{ast.unparse(node.func)[:50]}(…) is not one of the known functions")
    return eval(compile(tree, "<answer>", "eval"), global_dict, local_dict)


def _parsed(text: str, allowed: tuple[type[ast.AST], ...]) -> ast.Expression:
    tree = ast.parse(text.lstrip(" \t"), "<answer>", mode="eval")
    for node in ast.walk(tree):
        if not isinstance(node, allowed):
            raise NotAllowed(f"an answer must not contain {type(node).__name__}")
    return tree


def _name_called(call: ast.Call) -> str | None:
    """Return the called function's name, or `Function` for sympy's unknown functions, such as `Function('f')(x)`."""
    called = call.func.func if isinstance(call.func, ast.Call) else call.func
    if isinstance(call.func, ast.Call) and not (isinstance(called, ast.Name) and called.id == "Function"):
        return None
    return called.id if isinstance(called, ast.Name) else None
