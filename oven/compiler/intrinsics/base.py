"""Meanings of a call in native code: code of LLVM, or a function written in Python."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from llvmlite import ir

from oven.compiler.kinds import INT64, Kind, Mismatch, Value, converted
from oven.compiler.lowering import Lowering
from oven.compiler.written import definitions

#: Writes code for values of known types, and returns the result, if there is one.
Values = Sequence[ir.Value]
Writer = Callable[[ir.IRBuilder, Values], ir.Value | None]


@dataclass(frozen=True)
class Typed:
    """An intrinsic with arguments of fixed types; others are converted."""

    kinds: tuple[Kind, ...]
    result: Kind
    writer: Writer

    def write(self, code: Lowering, arguments: Sequence[Value]) -> Value:
        """Write the call's code."""
        if len(arguments) != len(self.kinds):
            raise Mismatch(f"{len(arguments)} arguments where there are {len(self.kinds)}")
        given = [
            value.llvm if value.kind == kind else converted(code.builder, value, kind)
            for value, kind in zip(arguments, self.kinds, strict=True)
        ]
        made = self.writer(code.builder, given)
        return Value(self.result, ir.Constant(INT64.llvm, 0) if made is None else made)


@dataclass(frozen=True)
class Generic:
    """An intrinsic whose result has a type that follows from its arguments."""

    writer: Callable[[Lowering, Sequence[Value]], Value]

    def write(self, code: Lowering, arguments: Sequence[Value]) -> Value:
        """Write the call's code."""
        return self.writer(code, arguments)


@dataclass(frozen=True)
class Routine:
    """A function in Python over the vocabulary, which becomes a function of the module."""

    function: Callable[..., object]
    inline: bool = False

    @property
    def definition(self) -> ast.FunctionDef:
        """Its source."""
        return definitions(self.function.__module__)[self.function.__name__]

    def write(self, code: Lowering, arguments: Sequence[Value]) -> Value:
        """Write the call, and the function unless the module has it."""
        kinds = tuple(value.kind for value in arguments)
        function, result = code.module.function(self.definition, kinds, inline=self.inline)
        return Value(result, code.builder.call(function, [value.llvm for value in arguments]))


@dataclass(frozen=True)
class Helper:
    """A function of the source itself, which is compiled into those that call it."""

    definition: ast.FunctionDef
    inline = True
    write = Routine.write
