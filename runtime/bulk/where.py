"""Conditions on rows as text: `age >= 30 and city in ['Oslo', 'Rome'] and not score is None`.

The syntax is Python's, of which these are known: names of columns, `column('any name')`, numbers,
strings, True and False; `== != < <= > >=`, also chained; `in` and `not in` a list; `is None` and
`is not None`; `and`, `or`, `not`, parentheses. As in SQL, a comparison with a missing value does
not hold, and nor does its opposite. Nothing is evaluated: the text becomes an expression of
pyarrow, which also says for which row groups of Parquet it cannot hold.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from importlib import import_module
from typing import Any

from flour.data.arrow_reader import Arrow, library
from runtime.errors import BadCall


def _is_in(one: Arrow, values: Arrow) -> Any:
    """Whether it is one of the values; unknown where it is missing, as for every comparison."""
    compute = import_module("pyarrow.compute")
    return compute.if_else(one.is_valid(), one.isin(values), library().scalar(None, "bool"))


_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Is: lambda one, _: one.is_null(),
    ast.IsNot: lambda one, _: one.is_valid(),
    ast.In: _is_in,
    ast.NotIn: lambda one, values: ~_is_in(one, values),
}


class Where:
    """A condition, and the columns that it reads."""

    def __init__(self, text: str) -> None:
        self._text = text
        self.columns: set[str] = set()
        try:
            tree = ast.parse(text.strip(), mode="eval").body
            #: The condition for pyarrow.
            self.expression = self._condition(tree)
        except (SyntaxError, ValueError, RecursionError) as problem:
            raise BadCall(
                "this is no condition", found=f"{text[:80]!r}: {problem}", hint=_HINT
            ) from None

    def matching(self, batch: Arrow) -> Arrow:
        """The rows for which it holds."""
        names = batch.schema.names
        missing = sorted(self.columns - set(names))
        if missing:
            found = ", ".join(names)[:200]
            raise BadCall(f"there is no column {missing[0]!r} for the condition", found=found)
        pa = library()
        try:
            return batch.filter(self.expression)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as problem:
            hint = "the values of folders are strings, as in year == '2026'"
            found = str(problem).splitlines()[0][:120]
            raise BadCall(
                "the condition does not fit the columns", found=found, hint=hint
            ) from None

    def _condition(self, node: ast.expr) -> Any:
        match node:
            case ast.BoolOp(op, values):
                join = operator.and_ if isinstance(op, ast.And) else operator.or_
                made = self._condition(values[0])
                for each in values[1:]:
                    made = join(made, self._condition(each))
                return made
            case ast.UnaryOp(ast.Not(), operand):
                return ~self._condition(operand)
            case ast.Compare(left, ops, rights):
                pairs = zip([left, *rights[:-1]], ops, rights, strict=True)
                made = [self._compared(*pair) for pair in pairs]
                for each in made[1:]:
                    made[0] &= each
                return made[0]
            case ast.Name() | ast.Call():
                return self._value(node)
            case _:
                raise _unknown(node)

    def _compared(self, left: ast.expr, kind: ast.cmpop, right: ast.expr) -> Any:
        if isinstance(kind, ast.Is | ast.IsNot):
            if not (isinstance(right, ast.Constant) and right.value is None):
                raise _unknown(right)
            other = None
        elif isinstance(kind, ast.In | ast.NotIn):
            if not isinstance(right, ast.List | ast.Tuple):
                raise _unknown(right)
            other = library().array([_constant(each) for each in right.elts])
        else:
            other = self._value(right)
        return _COMPARE[type(kind)](self._value(left), other)

    def _value(self, node: ast.expr) -> Any:
        """A column, or what it is compared with."""
        compute = import_module("pyarrow.compute")
        match node:
            case ast.Name(name) | ast.Call(ast.Name("column"), [ast.Constant(str(name))], []):
                self.columns.add(name)
                return compute.field(name)
        return compute.scalar(_constant(node))


def _unknown(node: ast.expr) -> ValueError:
    return ValueError(f"{ast.unparse(node)[:40]!r} is not known here")


def _constant(node: ast.expr) -> Any:
    value = ast.literal_eval(node)
    if not isinstance(value, str | int | float):
        raise ValueError(f"{ast.unparse(node)[:40]!r} is no number and no string")  # noqa: TRY004 (told as all wrong text is)
    return value


_HINT = "as in: age >= 30 and city in ['Oslo', 'Rome'] and income is not None"
