"""An exact calculator for the four operations, powers and percentages, with bounded run time."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable
from fractions import Fraction

LONGEST = 200
"""Maximum number of characters of an expression."""
LARGEST_BITS = 900
"""Maximum number of bits of numerators and denominators. It ensures that results fit into a float."""
DIGITS_SHOWN = 12

_WRITTEN = str.maketrans({"×": "*", "·": "*", "÷": "/", "−": "-", "–": "-", "$": "", "€": "", "£": ""})
_GROUP = re.compile(r"(?<=\d),(?=\d{3})")
_PERCENT = re.compile(r"(?<=[\d.])\s*%")

OPERATIONS: dict[type[ast.AST], Callable[[Fraction, Fraction], Fraction]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: lambda left, right: Fraction(left // right),
}


class NotCalculable(Exception):
    """An error for an expression that cannot be calculated. The message is shown to the model."""


def calculate(expression: str) -> str:
    """Return the decimal value of an expression. Raises `NotCalculable` if it cannot be calculated."""
    if len(expression) > LONGEST:
        raise NotCalculable(f"the expression is longer than {LONGEST} characters")
    written = _GROUP.sub("", expression.translate(_WRITTEN)).replace("^", "**").strip()
    written = _PERCENT.sub("/100", written)
    try:
        tree = ast.parse(written, mode="eval")
        return _shown(_value(tree.body))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise NotCalculable(f"cannot read '{expression}'; write numbers, + - * / ** and parentheses") from error
    except ZeroDivisionError as error:
        raise NotCalculable("division by zero") from error


def _value(node: ast.AST) -> Fraction:
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        # Convert the number from its decimal digits, so that 0.1 is exactly one tenth.
        return _bounded(Fraction(str(node.value)))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.UAdd, ast.USub)):
        value = _value(node.operand)
        return -value if isinstance(node.op, ast.USub) else value
    if isinstance(node, ast.BinOp):
        left, right = _value(node.left), _value(node.right)
        if isinstance(node.op, ast.Pow):
            return _power(left, right)
        if type(node.op) in OPERATIONS:
            return _bounded(OPERATIONS[type(node.op)](left, right))
    raise NotCalculable("only numbers, + - * / // ** and parentheses can be calculated")


def _power(base: Fraction, exponent: Fraction) -> Fraction:
    if exponent.denominator != 1:
        raise NotCalculable("an exponent must be a whole number")
    if _bits(base) * abs(exponent.numerator) > 2 * LARGEST_BITS:
        raise NotCalculable("the result is too large")
    return _bounded(base**exponent.numerator)


def _bounded(value: Fraction) -> Fraction:
    if _bits(value) > LARGEST_BITS:
        raise NotCalculable("the result is too large")
    return value


def _bits(value: Fraction) -> int:
    return max(value.numerator.bit_length(), value.denominator.bit_length())


def _shown(value: Fraction) -> str:
    return str(value.numerator) if value.denominator == 1 else format(float(value), f".{DIGITS_SHOWN}g")
