"""Strings that match a pattern as a whole."""

from __future__ import annotations

import re

import numpy as np

from flour.core.check import expect
from flour.core.emission import Emitter, Room, RowValue, ScalarValue, TextValue
from flour.core.errors import ParameterError
from flour.core.op import Columns, Op
from flour.core.types import Scalar, Text, Type, Vector
from flour.strings.patterns import automaton, first_is_longest


class MatchesWhole(Op):
    """True if a string matches a regular expression from its first character to its last.

    A missing string does not.
    """

    pattern: str
    reads_characters = True

    def check(self) -> None:
        try:
            re.compile(self.pattern)
        except re.error as problem:
            raise ParameterError(
                "this is not a regular expression", where=repr(self.pattern), found=str(problem)
            ) from None

    def infer(self, x: Type) -> Vector | Scalar:
        fine = isinstance(x, Text) or (isinstance(x, Vector | Scalar) and x.dtype == "string")
        expect(fine, f"only strings match a pattern, got {x}")
        return Vector(x.width, "bool") if isinstance(x, Vector) else Scalar("bool")

    def reference(self, x: Columns) -> Columns:
        match = re.compile(self.pattern).fullmatch
        flat = [isinstance(v, str) and match(v) is not None for v in x.reshape(-1).tolist()]
        return np.array(flat, bool).reshape(x.shape)

    def runs_native(self) -> bool:
        matcher = automaton(self.pattern)
        return matcher is not None and not matcher.trims and first_is_longest(self.pattern)

    def emit(self, e: Emitter, x: RowValue | TextValue) -> RowValue:
        matcher = automaton(self.pattern)
        assert matcher is not None, "only patterns with an automaton are native"
        growth = x.growth if isinstance(x, TextValue) else 1
        slices = e.room(Room(growth, 1).times(8))
        tables = ", ".join(map(e.address, matcher.tables))
        sizes = f"{e.size(matcher.kinds)}, {e.size(matcher.run)}"

        def whole(where: str, size: str) -> ScalarValue:
            most = e.let(f"max({size}, 0)", "int64").expr
            call = f"text_tokens({where}, {most}, {slices}, {tables}, {sizes})"
            count = e.let(call, "int64").expr
            # The first match is the longest from the first character on: it is the whole string, or
            # no match is.
            return e.let(f"{count} > 0 and ld_int64({slices}, 0) == {size}", "bool")

        def cell(value: str) -> ScalarValue:
            address = e.let(value, "int64").expr
            return whole(*(e.let(f"ld_int64({address}, {k})", "int64").expr for k in (0, 1)))

        if isinstance(x, TextValue):
            return whole(x.where, x.size)
        if isinstance(x, ScalarValue):
            return cell(x.expr)
        return e.map(lambda _, value: cell(value).expr, x, dtype="bool", width=x.width)
