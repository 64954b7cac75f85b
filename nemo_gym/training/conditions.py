"""A condition on the fields of a row, such as `reward > 0.5 and subset == "easy"`."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from nemo_gym.errors import DataError
from nemo_gym.text import did_you_mean

_COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
    ast.In: lambda left, right: left in right,
    ast.NotIn: lambda left, right: left not in right,
}
_LITERALS = (str, int, float, bool, type(None))
_MISSING = object()


class Condition:
    """A parsed condition. It can use the dotted names of fields, literals, comparisons, `in`, `and`, `or` and `not`.

    A field that a row lacks is None.
    """

    def __init__(self, text: str) -> None:
        """Parse a condition. If a part is invalid or not allowed, raise a `ValueError` that names its position."""
        self.text = text
        self._tree = _parsed(text)
        self.columns = frozenset(_columns(self._tree))
        """The dotted names of the fields that the condition uses."""
        self._unseen: set[str] | None = None

    @property
    def unseen(self) -> list[str]:
        """The fields that none of the rows passed to `holds` has had. Empty if no row has been passed yet."""
        return sorted(self._unseen or ())

    def holds(self, row: Mapping[str, object]) -> bool:
        """Return whether the condition is true for a row. Raise `DataError` if values cannot be compared."""
        unseen = self.columns if self._unseen is None else self._unseen
        self._unseen = {column for column in unseen if not _has(row, column)}
        return bool(self._value(self._tree, row))

    def _value(self, node: ast.expr, row: Mapping[str, object]) -> Any:
        match node:
            case ast.Constant():
                return node.value
            case ast.List() | ast.Tuple():
                return [self._value(each, row) for each in node.elts]
            case ast.Name() | ast.Attribute():
                return _field(row, _dotted(node))
            case ast.UnaryOp(op=ast.Not()):
                return not self._value(node.operand, row)
            case ast.UnaryOp():
                return -self._value(node.operand, row)
            case ast.BoolOp():
                return self._joined(node, row)
            case ast.Compare():
                return self._compared(node, row)
        raise AssertionError(node)  # unreachable, because `_columns` has rejected other nodes

    def _joined(self, node: ast.BoolOp, row: Mapping[str, object]) -> Any:
        value: Any = None
        stops_at = isinstance(node.op, ast.Or)
        for each in node.values:
            value = self._value(each, row)
            if bool(value) is stops_at:
                break
        return value

    def _compared(self, node: ast.Compare, row: Mapping[str, object]) -> bool:
        left = self._value(node.left, row)
        for compare, operand in zip(node.ops, node.comparators, strict=True):
            right = self._value(operand, row)
            try:
                if not _COMPARISONS[type(compare)](left, right):
                    return False
            except TypeError as error:
                raise _not_comparable(node, left, right, row) from error
            left = right
        return True


def _parsed(text: str) -> ast.expr:
    """Parse an expression. The columns of its nodes are positions in `text`. Raise `ValueError` if it is invalid."""
    # Remove leading spaces, because the parser rejects them as indentation.
    expression = text.strip()
    indent = text.index(expression)
    try:
        tree = ast.parse(expression, mode="eval").body
    except SyntaxError as error:
        column = (error.offset or 0) + (indent if error.lineno == 1 else 0)
        raise ValueError(
            f"'{text}' is not a condition: {error.msg} at column {column}. Write it like: reward > 0.5"
        ) from error
    line = expression.encode()
    for node in ast.walk(tree):
        if isinstance(node, ast.expr) and node.lineno == 1:
            # The parser counts bytes, not characters.
            node.col_offset = indent + len(line[: node.col_offset].decode())
    return tree


def _columns(node: ast.expr) -> Iterable[str]:
    """Yield the names of the fields that an expression uses. Raise `ValueError` for a part that is not allowed."""
    match node:
        case ast.Constant(value=value) if isinstance(value, _LITERALS):
            return
        case ast.Name():
            yield node.id
        case ast.Attribute():
            yield _dotted(node)
        case ast.List(elts=parts) | ast.Tuple(elts=parts) | ast.BoolOp(values=parts):
            for part in parts:
                yield from _columns(part)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield from _columns(operand)
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float())):
            return
        case ast.Compare():
            for part in (node.left, *node.comparators):
                yield from _columns(part)
        case _:
            raise _not_allowed(node)


def _dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value)}.{node.attr}"
    raise _not_allowed(node)


def _not_allowed(node: ast.expr) -> ValueError:
    return ValueError(
        f"'{ast.unparse(node)}' at column {node.col_offset + 1} is not allowed. A condition consists of fields "
        "(reward, metadata.level), texts, numbers, lists, comparisons, in, and, or, not"
    )


def _field(row: Mapping[str, object], column: str, default: object = None) -> Any:
    value: Any = row
    for name in column.split("."):
        if not isinstance(value, dict) or name not in value:
            return default
        value = value[name]
    return value


def _has(row: Mapping[str, object], column: str) -> bool:
    return _field(row, column, _MISSING) is not _MISSING


def _not_comparable(node: ast.Compare, left: object, right: object, row: Mapping[str, object]) -> DataError:
    text = ast.unparse(node)
    for column in _columns(node):
        if not _has(row, column):
            return DataError(
                f"where: the row has no field '{column}' for '{text}'.{did_you_mean(column, row)} To leave out rows "
                f"without it, write '{column} != None and …'."
            )
    kinds = " and ".join("null" if value is None else type(value).__name__ for value in (left, right))
    return DataError(f"where: the values in '{text}' cannot be compared: {kinds}. Compare values of the same type.")
