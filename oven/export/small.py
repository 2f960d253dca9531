"""Stages in float32, for small machines: they take one row at a time.

A stage's text stays as it is but for what one row does not need; the C that is printed of it has
`float` for every `double`, so memory has four bytes for a number.
"""

from __future__ import annotations

import ast
import re
from dataclasses import replace

import numpy as np

from flour.core.parsing import parse_source
from flour.core.types import LARGEST
from objectstore import Blob
from oven.codegen.emitter import ParameterSlot
from oven.codegen.stages import Stage
from oven.errors import NotExportable

#: Operators of scalers, linear models, trees, ensembles and networks.
OPERATORS = frozenset(
    """
    Add ArgMax AsFloat AsVector Binarize Cast CastLike Clip Concat Divide Element Exp Greater
    Impute IsMissing Linear Minus Multiply Negate Norm OneIfTiny OneMinus Over Pick Plus Products
    Proportions Relu RequireFinite Select Sigmoid Softmax Source Subtract Sum TakeText Take Tally
    Tanh Trees WeightedMedian
    """.split()  # noqa: SIM905 (a list would be a page)
)
_LARGEST_SINGLE = np.finfo(np.float32).max
_LITERAL = re.compile(r"(?<![\w.])(?:\d+\.\d*(?:e[+-]?\d+)?|\d+e[+-]?\d+)(?![\w.])")
_DOUBLE = re.compile(r"\bdouble\b|float64|\b(?:fabs|sqrt|floor|ceil|trunc|rint)(?=\()")


class _SingleRow(ast.NodeTransformer):
    """Takes the number of rows for 1, and leaves out what is for more."""

    def visit_Name(self, item: ast.Name) -> ast.expr:
        return ast.Constant(1) if item.id == "n" and isinstance(item.ctx, ast.Load) else item

    def visit_If(self, item: ast.If) -> ast.If | list[ast.stmt]:
        self.generic_visit(item)
        match item.test:
            case ast.Compare(ast.Constant(int(a)), [ast.Lt()], [ast.Constant(int(b))]):
                return (item.body if a < b else item.orelse) or [ast.Pass()]
        return item


def one_row(stage: Stage) -> Stage:
    """The stage for one row, with the parameters that this reads in float32."""
    if not stage.source:
        return stage
    module = _SingleRow().visit(parse_source(stage.source))
    function: ast.FunctionDef = module.body[0]
    names = (item for item in ast.walk(function) if isinstance(item, ast.Name))
    read = {item.id for item in names if isinstance(item.ctx, ast.Load)}
    body, slots = list[ast.stmt](), list[ParameterSlot]()
    for item in function.body:
        match item:
            case ast.Assign(
                [ast.Name(name)],
                ast.Call(args=[ast.Name("params"), ast.Constant(int(index)) as place])
                | ast.BinOp(right=ast.Call(args=[_, ast.Constant(int(index)) as place])),
            ):
                if name not in read:
                    continue
                slot = stage.slots[index]
                place.value = len(slots) * (1 if slot.number is None else 2)
                slots.append(_narrow(slot))
        body.append(item)
    function.body = body
    return replace(stage, source=ast.unparse(module) + "\n", slots=tuple(slots))


def _narrow(slot: ParameterSlot) -> ParameterSlot:
    array = np.array([slot.number])  # it stands in the lower half of its word
    if slot.number is None:
        if not isinstance(slot.parameter, Blob) or slot.parameter.dtype != np.float64:
            return slot
        array = slot.parameter.array
    # The nearest ones: what is at a tree's threshold stays there.
    with np.errstate(over="ignore"):
        made = array.astype(np.float32)
    made = np.where(np.abs(array) == LARGEST, np.copysign(_LARGEST_SINGLE, made), made)
    if not np.array_equal(np.isfinite(made), np.isfinite(array)):
        raise NotExportable("a parameter is beyond float32", found=str(np.nanmax(np.abs(array))))
    if slot.number is None:
        return ParameterSlot(parameter=Blob.of(made))
    return ParameterSlot(size=int(made.view(np.uint32)[0]))


def narrowed(text: str) -> str:
    """C with `float` for every `double`."""
    text = _LITERAL.sub(_literal, text)
    named = {"double": "float", "float64": "float32"}
    return _DOUBLE.sub(lambda found: named.get(found[0], f"{found[0]}f"), text)


def _literal(found: re.Match[str]) -> str:
    with np.errstate(over="ignore"):
        number = np.float32(found[0])
    return f"{float(number)!r}f" if np.isfinite(number) else "INFINITY"
