"""Conditions on a row or on request headers, written as in Python: "country == 'UK'".

    predicate("country == 'UK' and 100 < amount <= 500 or headers['x-beta'] in ('1', 'yes')")

Columns are compared with texts, numbers and lists of them; `row['...']` names a column that is no
Python name. A comparison with a value that is missing, None, or of another type does not hold. The
text is read once: every part of it is checked and written anew, so that nothing else can be called.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from flour.core.errors import nearest
from flour.core.parsing import parse_expression
from flour.core.types import Category, Pairs, Record, Scalar, Text, Type
from runtime.errors import BadRegistration
from runtime.routing.row import refuse

Holds = Callable[[Mapping[str, Any], Mapping[str, str]], bool]
LONGEST = 2000
_TRY = "tried"
_SIGNS = (ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.In, ast.NotIn)
_HINT = "for instance \"country == 'UK' and amount > 100\""


@dataclass(frozen=True, slots=True)
class Predicate:
    """A condition, and the columns that it reads: with whether each is compared with text."""

    text: str
    columns: tuple[tuple[str, bool | None], ...]
    _holds: Holds
    _carefully: Holds

    def __call__(self, row: Mapping[str, Any], headers: Mapping[str, str]) -> bool:
        """True if it holds for a request."""
        try:
            return bool(self._holds(row, headers))
        except TypeError:  # a number was compared with a text, or with what pandas calls NA
            return bool(self._carefully(row, headers))
        except ValueError:  # a vector has no one answer
            refuse("several values in one column")

    def check(self, inputs: Mapping[str, Type]) -> None:
        """Raise unless a model with these inputs has the columns, of these types."""
        kinds = columns_of(inputs)
        if kinds is None:
            return
        for name, texts in self.columns:
            if name not in kinds:
                raise BadRegistration(
                    f"the model has no column {name!r}",
                    where=self.text,
                    found=", ".join(list(kinds)[:20])
                    or "inputs without columns: " + ", ".join(inputs),
                    hint=nearest(name, list(kinds)) or "",
                )
            if texts is not None and texts is not kinds[name]:
                raise BadRegistration(
                    f"column {name!r} is compared with {_noun(texts)}",
                    where=self.text,
                    found=f"a column of {_noun(kinds[name])}",
                )


def columns_of(inputs: Mapping[str, Type]) -> dict[str, bool] | None:
    """The columns of a row, with whether they hold text; None where any name may come."""
    found: dict[str, bool] = {}
    for name, kind in inputs.items():
        if isinstance(kind, Pairs):
            return None
        fields: Iterable[tuple[str, Type]] = [(name, kind)]
        if isinstance(kind, Record):
            fields = kind.fields
        for field, part in fields:
            if not isinstance(part, Scalar | Category | Text):
                continue
            found[field] = isinstance(part, Text) or getattr(part, "dtype", "") == "string"
    return found


def predicate(text: str) -> Predicate:
    """Read a condition."""
    if len(text) > LONGEST:
        raise BadRegistration(
            f"a condition has {LONGEST} characters at most", found=f"{len(text)} characters"
        )
    try:
        tree = parse_expression(text.strip())
        reader, careful = _Reader(text), _Reader(text, careful=True)
        bodies = reader.condition(tree), careful.condition(tree)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as problem:
        raise BadRegistration(
            "this is no condition",
            where=text[:200],
            found=str(getattr(problem, "msg", "")) or str(problem) or type(problem).__name__,
            hint=_HINT,
        ) from None
    return Predicate(text, tuple(reader.columns.items()), *map(_compiled, bodies))


def _compiled(body: ast.expr) -> Holds:
    names = [ast.arg("row"), ast.arg("headers")]
    made = ast.fix_missing_locations(ast.Expression(_function(names, body)))
    code = compile(made, "<route>", "eval")
    holds: Holds = eval(code, {"__builtins__": {}, _TRY: _tried})  # noqa: S307 (of checked parts)
    return holds


def _function(names: list[ast.arg], body: ast.expr) -> ast.Lambda:
    return ast.Lambda(ast.arguments([], names, None, [], [], None, []), body)


def _tried(comparison: Callable[[], object]) -> bool:
    """True if a comparison holds; one of values that cannot be compared does not."""
    try:
        return bool(comparison())
    except TypeError:
        return False


class _Reader:
    """Checks the parts of a condition, and writes each anew."""

    def __init__(self, text: str, *, careful: bool = False) -> None:
        self._text, self._count, self._careful = text, 0, careful
        self.columns: dict[str, bool | None] = {}

    def condition(self, node: ast.expr) -> ast.expr:
        match node:
            case ast.BoolOp(op, values):
                return ast.BoolOp(op, [self.condition(each) for each in values])
            case ast.UnaryOp(ast.Not(), operand):
                return ast.UnaryOp(ast.Not(), self.condition(operand))
            case ast.Compare(left, ops, comparators):
                return self._comparison([left, *comparators], ops)
        raise self._refused(node, "a comparison")

    def _comparison(self, sides: list[ast.expr], signs: list[ast.cmpop]) -> ast.expr:
        """A comparison whose values are read, and found to be there, before they are compared."""
        checks: list[ast.expr] = []
        written: list[ast.expr] = []
        columns: list[str] = []
        texts: set[bool] = set()
        differs = any(isinstance(sign, ast.NotEq | ast.NotIn) for sign in signs)
        for place, side in enumerate(sides):
            sign = signs[place - 1] if place else None
            many = isinstance(sign, ast.In | ast.NotIn)
            source = None if many else self._source(side)
            if source is None:
                value = self._literal(side, many=many)
                texts |= {isinstance(each, str) for each in _each(value)}
                written.append(ast.Constant(value))
                continue
            container, name = source
            if container == "row":
                columns.append(name)
            else:
                texts.add(True)
            checks.append(self._is_there(container, name))
            if differs:  # any other comparison with NaN does not hold anyway
                checks.append(_equals_itself(f"v{self._count}"))
            written.append(ast.Name(f"v{self._count}", ast.Load()))
        for sign in signs:
            if not isinstance(sign, _SIGNS):
                raise self._refused(sides[0], "one of == != < <= > >= in")
        if not checks:
            raise self._refused(sides[0], "a column or a header on one side")
        self._note(sides[0], columns, texts)
        checks.append(ast.Compare(written[0], signs, written[1:]))
        found = ast.BoolOp(ast.And(), checks)
        if not self._careful:
            return found
        return ast.Call(ast.Name(_TRY, ast.Load()), [_function([], found)], [])

    def _note(self, side: ast.expr, columns: list[str], texts: set[bool]) -> None:
        """Note what columns are compared with."""
        if len(texts) > 1:
            raise self._refused(side, "texts or numbers, not both (headers are texts)")
        for name in columns:
            known = self.columns.get(name)
            self.columns[name] = next(iter(texts)) if texts else known

    def _is_there(self, container: str, name: str) -> ast.expr:
        """`(v1 := row.get(name)) is not None`, which also reads the value."""
        self._count += 1
        get = ast.Attribute(ast.Name(container, ast.Load()), "get", ast.Load())
        value = ast.Call(get, [ast.Constant(name)], [])
        named = ast.NamedExpr(ast.Name(f"v{self._count}", ast.Store()), value)
        return ast.Compare(named, [ast.IsNot()], [ast.Constant(None)])

    def _source(self, node: ast.expr) -> tuple[str, str] | None:
        """The column or header that is read; None of a literal."""
        match node:
            case ast.Name(name):
                return "row", name
            case ast.Subscript(ast.Name("row"), ast.Constant(str() as name)):
                return "row", name
            case ast.Subscript(ast.Name("headers"), ast.Constant(str() as name)):
                return "headers", name.lower()
        return None

    def _literal(self, node: ast.expr, *, many: bool) -> Any:
        if many and not isinstance(node, ast.List | ast.Tuple):
            raise self._refused(node, "a list after `in`")
        try:
            value = ast.literal_eval(node)
        except (ValueError, TypeError):
            raise self._refused(node, "a column, a text or a number") from None
        if many and isinstance(value, list | tuple):
            value = tuple(value)
        values = _each(value) if many else [value]
        if not values or not all(isinstance(each, str | int | float) for each in values):
            raise self._refused(node, "a text or a number")
        return value

    def _refused(self, node: ast.expr, wanted: str) -> BadRegistration:
        part = ast.get_source_segment(self._text.strip(), node) or self._text
        return BadRegistration(
            f"here should be {wanted}", where=self._text[:200], found=part[:100], hint=_HINT
        )


def _equals_itself(name: str) -> ast.expr:
    """`v1 == v1`, which NaN does not."""
    return ast.Compare(ast.Name(name, ast.Load()), [ast.Eq()], [ast.Name(name, ast.Load())])


def _each(value: object) -> list[Any]:
    return list(value) if isinstance(value, tuple) else [value]


def _noun(texts: bool) -> str:  # noqa: FBT001 (what a column holds)
    return "text" if texts else "numbers"
