"""Safe replacements for the package's uses of `eval` in worker processes.

Some scorers parse lists with `eval`, others parse formulas with sympy's `parse_expr`, which calls `eval` too. Both
would execute an answer's code, which could for example give every later answer full marks.
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
    # Sympy itself wraps a formula's names and numbers in the functions of the first line.
    "Symbol", "Function", "Integer", "Float", "Rational", "factorial", "factorial2",
    "Abs", "abs", "sign", "sqrt", "cbrt", "root", "exp", "log", "ln", "pow", "Pow", "Add", "Mul", "Max", "Min",
    "max", "min", "sin", "cos", "tan", "cot", "sec", "csc", "asin", "acos", "atan", "acot", "asec", "acsc",
    "atan2", "sinh", "cosh", "tanh", "coth", "sech", "csch", "asinh", "acosh", "atanh", "acoth", "erf", "erfc",
    "erfi", "Ei", "Si", "Ci", "li", "gamma", "Integral", "Derivative",
})  # fmt: skip


class NotAllowed(ValueError):
    """An error for an answer that contains more than a value or a formula."""


def close_doors(package: str) -> None:
    """Restrict `eval` to values and formulas in the package's loaded modules and in sympy's parser."""
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == package:
            vars(module).setdefault("eval", value_of)
    parser: Any = importlib.import_module("sympy.parsing.sympy_parser")
    parser.eval_expr = formula_of


def value_of(text: str, *_: Any) -> Any:
    """Evaluate numbers, texts, lists and arithmetic. Raises `NotAllowed` or `SyntaxError`."""
    return eval(compile(_parsed(text, VALUES), "<answer>", "eval"), {"__builtins__": {}})


def formula_of(code: str, local_dict: dict[str, Any], global_dict: dict[str, Any]) -> Any:
    """Evaluate a formula of symbols, numbers and known functions, in place of sympy's `eval_expr`."""
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
    """Return the called function's name. For an unknown function, `Function('f')(x)` in sympy, return `Function`."""
    called = call.func.func if isinstance(call.func, ast.Call) else call.func
    if isinstance(call.func, ast.Call) and not (isinstance(called, ast.Name) and called.id == "Function"):
        return None
    return called.id if isinstance(called, ast.Name) else None
