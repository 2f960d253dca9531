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
from collections.abc import Callable, Collection, Sequence
from importlib import import_module
from typing import Any

from flour.core.errors import nearest
from flour.core.parsing import parse_expression
from flour.data.arrow_reader import Arrow, library
from runtime.errors import BadCall

#: A column of places, while rows are selected.
_PLACE = "\0place"


def _is_in(one: Arrow, values: Arrow) -> Any:
    """True if it is one of the values; unknown where it is missing, as for every comparison."""
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


class RowCondition:
    """A condition, and the columns that it reads."""

    def __init__(self, text: str) -> None:
        self._text = text
        self.columns: set[str] = set()
        try:
            tree = parse_expression(text.strip())
            #: The condition for pyarrow.
            self.expression = self._condition(tree)
        except (SyntaxError, TypeError, ValueError, OverflowError, RecursionError) as problem:
            said = problem.msg if isinstance(problem, SyntaxError) else problem
            raise BadCall(
                "this is no condition", found=f"{text[:80]!r}: {said}", hint=_HINT
            ) from None

    def check(self, names: Sequence[str], where: str) -> None:
        """Raise where a column that it reads is not there."""
        missing = sorted(self.columns - set(names))
        if missing:
            raise BadCall(
                f"there is no column {missing[0]!r} for the condition",
                where=where,
                found=", ".join(names)[:200],
                hint=nearest(missing[0], list(names))
                or "strings have quotation marks, and column('any name') is for other names",
            )

    def matching(self, batch: Arrow, folders: Collection[str] = ()) -> tuple[Arrow, list[int]]:
        """The rows for which it holds, and their places; the values of `folders` are in paths."""
        pa, last = library(), batch.num_columns
        numbered = batch.append_column(_PLACE, pa.array(range(len(batch)), pa.int64()))
        try:
            found = numbered.filter(self.expression)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
            read = [f"{name} is {_kind(batch[name])}" for name in sorted(self.columns)]
            raise BadCall(
                "the condition does not fit the columns",
                found=f"{self._text[:80]!r}, where {', '.join(read)}"[:200],
                hint="the values of folders are strings, as in year == '2026'"
                if self.columns & set(folders)
                else "compare a column with values of its own type; alone it has to be bool",
            ) from None
        return found.remove_column(last), found.column(last).to_pylist()

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


def _kind(column: Arrow) -> str:
    kind = getattr(column.type, "value_type", column.type)
    return f"a {kind}"


def _unknown(node: ast.expr) -> ValueError:
    return ValueError(f"{ast.unparse(node)[:40]!r} is not known here")


def _constant(node: ast.expr) -> Any:
    try:
        value = ast.literal_eval(node)
    except ValueError:
        raise _unknown(node) from None
    if not isinstance(value, str | int | float):
        raise ValueError(f"{ast.unparse(node)[:40]!r} is no number and no string")  # noqa: TRY004 (told as all wrong text is)
    return value


_HINT = "as in: age >= 30 and city in ['Oslo', 'Rome'] and income is not None"
