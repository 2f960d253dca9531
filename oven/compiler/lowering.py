"""Emitted source to LLVM IR, without a search for types.

Native code is written in a small part of Python (`oven.compiler.source_check`): whole numbers,
floats and truth values, loops over ranges, and calls of intrinsics. So the type of an expression
follows from the types in it, and code is written in one pass over the syntax tree. Only variables
need more: one that is given values of two types gets the wider type, and the function is written
again. numba reads the same source and finds the same types by a search that takes a hundred times
as long; tests compare the two (tests/oven/test_lowering.py).
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import count
from typing import Protocol

from llvmlite import ir

from oven.compiler.kinds import (
    BOOL,
    FLOAT64,
    INT64,
    NOTHING,
    UINT64,
    WORD,
    Kind,
    Mismatch,
    Value,
    common,
    converted,
    merged,
    parts,
    several,
)

_NUMBERS = {"inf": float("inf"), "nan": float("nan"), "pi": 3.141592653589793}


class Intrinsic(Protocol):
    """The meaning of a call in native code."""

    def write(self, code: Lowering, arguments: Sequence[Value]) -> Value:
        """Write the call's code."""
        ...


#: The names that native code may use: functions, and whole numbers known in advance.
Vocabulary = Mapping[str, Intrinsic | int]


class _Widened(Exception):
    """A variable has a wider type than the code so far supposes."""


class Module:
    """A module of LLVM IR, and the functions in it that are written once."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.llvm = ir.Module()
        self.vocabulary = vocabulary
        self._written: dict[tuple[str, tuple[Kind, ...]], tuple[ir.Function, Kind]] = {}

    def function(
        self, definition: ast.FunctionDef, kinds: tuple[Kind, ...], *, inline: bool
    ) -> tuple[ir.Function, Kind]:
        """A function of the module for arguments of these types, and what it returns."""
        key = definition.name, kinds
        if key not in self._written:
            suffix = ".".join(kind.name for kind in kinds)
            written = self.write(definition, f"{definition.name}.{suffix}", kinds)
            written[0].linkage = "internal"
            if inline:
                written[0].attributes.add("alwaysinline")
            self._written[key] = written
        return self._written[key]

    def write(
        self, definition: ast.FunctionDef, name: str, kinds: tuple[Kind, ...]
    ) -> tuple[ir.Function, Kind]:
        """Write a function, again whenever a variable turns out to be of a wider type."""
        if len(kinds) != len(definition.args.args):
            wanted = len(definition.args.args)
            raise Mismatch(f"{definition.name} has {wanted} arguments, not {len(kinds)}")
        variables: dict[str, Kind] = {}
        for attempt in count():
            given = f"{name}.{attempt}" if attempt else name
            code = Lowering(self, definition, given, kinds, variables)
            try:
                return code.function(), variables.get(_RETURNED, NOTHING)
            except _Widened:  # functions that it calls are kept
                del self.llvm.globals[given]
            except Mismatch as problem:
                raise Mismatch(f"line {code.line} of {definition.name}: {problem}") from problem
        raise AssertionError("variables can be widened a few times only")


_RETURNED = "return"


class Lowering:
    """Writes one function."""

    def __init__(
        self,
        module: Module,
        definition: ast.FunctionDef,
        name: str,
        kinds: tuple[Kind, ...],
        variables: dict[str, Kind],
    ) -> None:
        self.module, self.definition, self.line = module, definition, definition.lineno
        self._kinds, self._variables = kinds, variables
        self._names = [item.arg for item in definition.args.args]
        for parameter, kind in zip(self._names, kinds, strict=True):
            self._widen(parameter, kind)
        result = variables.get(_RETURNED, INT64)
        signature = ir.FunctionType(result.llvm, [kind.llvm for kind in kinds])
        self._function = ir.Function(module.llvm, signature, name)
        self._function.attributes.add("nounwind")
        self._entry = ir.IRBuilder(self._function.append_basic_block("entry"))
        self.builder = ir.IRBuilder(self._function.append_basic_block("body"))
        self._places: dict[str, ir.Value] = {}
        self._loops: list[tuple[ir.Block, ir.Block]] = []

    def function(self) -> ir.Function:
        """The function, written."""
        for name, kind, value in zip(self._names, self._kinds, self._function.args, strict=True):
            self._assign(name, Value(kind, value))
        self._block(self.definition.body)
        if not self.builder.block.is_terminated:
            self._return(None)
        self._entry.position_at_end(self._function.entry_basic_block)
        self._entry.branch(self._function.blocks[1])
        return self._function

    def room(self, kind: ir.Type) -> ir.Value:
        """Memory of the running call."""
        return self._entry.alloca(kind)

    # --- statements ------------------------------------------------------------------------------

    def _block(self, statements: Sequence[ast.stmt]) -> None:
        for statement in statements:
            if self.builder.block.is_terminated:
                return  # nothing comes here
            self.line = statement.lineno
            self._statement(statement)

    def _statement(self, item: ast.stmt) -> None:  # noqa: C901 (a case for each statement)
        match item:
            case ast.Assign(targets=targets, value=value):
                self._give(targets, value)
            case ast.AugAssign(target=ast.Name(id=name), op=op, value=value):
                before = self._variable(name)
                self._assign(name, self._operation(op, before, self.value(value)))
            case ast.Expr(value=ast.Constant()) | ast.Pass():
                pass
            case ast.Expr(value=value):
                self.value(value)
            case ast.If(test=test, body=body, orelse=orelse):
                self._if(test, body, orelse)
            case ast.While(test=test, body=body, orelse=[]):
                self._while(test, body)
            case ast.For(target=ast.Name(id=name), iter=ast.Call() as call, body=body, orelse=[]):
                self._for(name, call, body)
            case ast.Break():
                self.builder.branch(self._loops[-1][1])
            case ast.Continue():
                self.builder.branch(self._loops[-1][0])
            case ast.Return(value=value):
                self._return(value)
            case _:
                raise Mismatch(f"{type(item).__name__} has no place in native code")

    def _give(self, targets: Sequence[ast.expr], value: ast.expr) -> None:
        for target in targets:
            if isinstance(target, ast.Name):
                self._assign(target.id, self.value(value))
                continue
            if not isinstance(target, ast.Tuple):
                raise Mismatch(f"nothing can be assigned to {ast.unparse(target)}")
            # All values are computed before the first is assigned.
            for name, each in zip(target.elts, self._several(value), strict=True):
                assert isinstance(name, ast.Name)
                self._assign(name.id, each)

    def _several(self, value: ast.expr) -> list[Value]:
        if isinstance(value, ast.Tuple):
            return [self.value(item) for item in value.elts]
        given = self.value(value)
        if given.kind.form != "several":
            raise Mismatch(f"{ast.unparse(value):.60} is one value")
        return unpacked(self.builder, given)

    def _if(self, test: ast.expr, body: Sequence[ast.stmt], orelse: Sequence[ast.stmt]) -> None:
        known = self._known(test)
        if known is not None:  # what does not apply is not even checked: see `permutes128`
            self._block(body if known else orelse)
            return
        *starts, end = self._branches(test)
        for start, statements in zip(starts, (body, orelse), strict=True):
            self.builder.position_at_end(start)
            self._block(statements)
            if not self.builder.block.is_terminated:
                self.builder.branch(end)
        self.builder.position_at_end(end)

    def _branches(self, test: ast.expr) -> list[ir.Block]:
        """The blocks for a condition that is true, and that is false, and the block after both."""
        condition = self._condition(test)
        yes, no, end = self._blocks("then", "else", "end")
        self.builder.cbranch(condition, yes, no)
        return [yes, no, end]

    def _known(self, test: ast.expr) -> bool | None:
        """The truth of a condition that is a number known in advance."""
        if isinstance(test, ast.Name) and test.id not in self._variables:
            number = self.module.vocabulary.get(test.id)
            return bool(number) if isinstance(number, int) else None
        return None

    def _while(self, test: ast.expr, body: Sequence[ast.stmt]) -> None:
        look, inside, end = self._blocks("look", "body", "end")
        self.builder.branch(look)
        self.builder.position_at_end(look)
        self.builder.cbranch(self._condition(test), inside, end)
        self.builder.position_at_end(inside)
        self._turn(body, look, end)

    def _turn(self, body: Sequence[ast.stmt], again: ir.Block, end: ir.Block) -> None:
        """The body of a loop, and where it goes on."""
        self._loops.append((again, end))
        self._block(body)
        self._loops.pop()
        if not self.builder.block.is_terminated:
            self.builder.branch(again)
        self.builder.position_at_end(end)

    def _for(self, name: str, call: ast.Call, body: Sequence[ast.stmt]) -> None:
        """A loop over a range. The variable is set each time, so the body may change it."""
        if not isinstance(call.func, ast.Name) or call.func.id != "range" or call.keywords:
            raise Mismatch(f"a loop runs over a range, not over {ast.unparse(call):.60}")
        bounds = [converted(self.builder, self.value(item), INT64) for item in call.args]
        start = WORD(0) if len(bounds) == 1 else bounds[0]
        stop = bounds[min(1, len(bounds) - 1)]
        step = bounds[2] if len(bounds) == 3 else WORD(1)
        # A step that is not a number below zero counts up.
        down = isinstance(step, ir.Constant) and step.constant < 0
        before = self.builder.block
        look, inside, after, end = self._blocks("look", "body", "next", "end")
        self.builder.branch(look)
        self.builder.position_at_end(look)
        index = self.builder.phi(WORD)
        index.add_incoming(start, before)
        more = self.builder.icmp_signed(">" if down else "<", index, stop)
        self.builder.cbranch(more, inside, end)
        self.builder.position_at_end(inside)
        self._assign(name, Value(INT64, index))
        self._turn(body, after, end)
        self.builder.position_at_end(after)
        index.add_incoming(self.builder.add(index, step, flags=("nsw",)), after)
        self.builder.branch(look)
        self.builder.position_at_end(end)

    def _return(self, value: ast.expr | None) -> None:
        if value is None:
            given = Value(INT64, WORD(0))
        elif isinstance(value, ast.Tuple):
            given = packed(self.builder, [self.value(item) for item in value.elts])
        else:
            given = self.value(value)
        if _RETURNED not in self._variables and given.kind != INT64:
            self._variables[_RETURNED] = given.kind
            raise _Widened
        kind = self._widen(_RETURNED, given.kind)
        self.builder.ret(converted(self.builder, given, kind))

    # --- variables -------------------------------------------------------------------------------

    def _widen(self, name: str, kind: Kind) -> Kind:
        """The variable's type; if it has to be another one, the code is written again."""
        known = self._variables.setdefault(name, kind)
        wider = merged(known, kind)
        if wider != known:
            self._variables[name] = wider
            raise _Widened
        return known

    def _assign(self, name: str, value: Value) -> None:
        kind = self._widen(name, value.kind)
        if name not in self._places:
            self._places[name] = self.room(kind.llvm)
        self.builder.store(converted(self.builder, value, kind), self._places[name])

    def _variable(self, name: str) -> Value:
        kind = self._variables.get(name)
        if kind is not None:
            if name not in self._places:  # assigned further down, in a loop
                self._places[name] = self.room(kind.llvm)
            return Value(kind, self.builder.load(self._places[name]))
        known = self.module.vocabulary.get(name)
        if not isinstance(known, int):
            raise Mismatch(f"{name} has no value yet")
        return Value(INT64, WORD(known))

    # --- expressions -----------------------------------------------------------------------------

    def value(self, item: ast.expr) -> Value:  # noqa: PLR0911 (a case for each expression)
        """The value of an expression."""
        match item:
            case ast.Constant(value=int() | float() as number):
                return constant(number)
            case ast.Name(id=name):
                return self._variable(name)
            case ast.Attribute(value=ast.Name(id="math"), attr=name) if name in _NUMBERS:
                return constant(_NUMBERS[name])
            case ast.BinOp(left=left, op=op, right=right):
                return self._operation(op, self.value(left), self.value(right))
            case ast.UnaryOp(op=op, operand=operand):
                return self._unary(op, operand)
            case ast.Compare(left=left, ops=ops, comparators=rest):
                return self._compare([left, *rest], ops)
            case ast.BoolOp():
                return self._logic(item)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                return self._choice(test, body, orelse)
            case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]):
                return self._call(name, [self.value(argument) for argument in arguments])
        raise Mismatch(f"{type(item).__name__} has no place in native code")

    def _call(self, name: str, arguments: Sequence[Value]) -> Value:
        function = self.module.vocabulary.get(name)
        if function is None or isinstance(function, int):
            raise Mismatch(f"{name!r} is not in the vocabulary of native code")
        return function.write(self, arguments)

    def _condition(self, item: ast.expr) -> ir.Value:
        if isinstance(item, ast.BoolOp):
            return self._logic(item).llvm
        return converted(self.builder, self.value(item), BOOL)

    def _operation(self, op: ast.operator, left: Value, right: Value) -> Value:
        shift = isinstance(op, ast.LShift | ast.RShift)
        if shift:  # the left side alone says what type the result has
            kind = UINT64 if left.kind.form == "int" and not left.kind.signed else INT64
        elif left.kind == right.kind == BOOL and type(op) in _OF_CONDITIONS:
            kind = BOOL
        else:
            kind = common(left.kind, right.kind)
        if isinstance(op, ast.Pow):
            return self._power(left, right)
        if isinstance(op, ast.Div) and not kind.is_float:
            kind = FLOAT64
        a, b = (converted(self.builder, side, kind) for side in (left, right))
        if kind.is_float and isinstance(op, ast.Mod):
            return self._call("float_mod", [Value(kind, a), Value(kind, b)])
        if not kind.is_float:
            return Value(kind, self._whole_operation(op, kind, a, b))
        if type(op) not in _FLOAT:
            raise Mismatch(f"floats have no {type(op).__name__} in native code")
        return Value(kind, getattr(self.builder, _FLOAT[type(op)])(a, b))

    def _whole_operation(self, op: ast.operator, kind: Kind, a: ir.Value, b: ir.Value) -> ir.Value:
        if isinstance(op, ast.FloorDiv | ast.Mod):
            return self._divided(kind, a, b, remainder=isinstance(op, ast.Mod))
        name = _WHOLE.get(type(op))
        if name is None:
            raise Mismatch(f"whole numbers have no {type(op).__name__} in native code")
        if name == "shr":
            name = "ashr" if kind.signed else "lshr"
        overflows = name in {"add", "sub", "mul"} and kind.signed
        return getattr(self.builder, name)(a, b, flags=("nsw",) if overflows else ())

    def _divided(self, kind: Kind, a: ir.Value, b: ir.Value, *, remainder: bool) -> ir.Value:
        """Quotient rounded down, or the remainder that has the sign of b; by zero, zero.

        The least number by -1 is zero as well: the processor would stop the program.
        """
        builder, zero, one = self.builder, kind.llvm(0), kind.llvm(1)
        bad = builder.icmp_unsigned("==", b, zero)
        if kind.signed:
            least = builder.icmp_unsigned("==", a, kind.llvm(-(1 << kind.bits - 1)))
            minus = builder.icmp_unsigned("==", b, kind.llvm(-1))
            bad = builder.or_(bad, builder.and_(least, minus))
        by = builder.select(bad, one, b)
        rest = (builder.srem if kind.signed else builder.urem)(a, by)
        made = rest if remainder else (builder.sdiv if kind.signed else builder.udiv)(a, by)
        if kind.signed:
            other_sign = builder.icmp_signed("<", builder.xor(by, rest), zero)
            below = builder.and_(builder.icmp_unsigned("!=", rest, zero), other_sign)
            lower = builder.add(rest, by) if remainder else builder.sub(made, one)
            made = builder.select(below, lower, made)
        return builder.select(bad, zero, made)

    def _power(self, left: Value, right: Value) -> Value:
        if right.kind.is_float:
            return self._call("pow", [left, right])
        exponent = right.llvm.constant if isinstance(right.llvm, ir.Constant) else None
        if not isinstance(exponent, int) or not 0 < exponent < 64:
            raise Mismatch("a power has a float or a small whole number for its exponent")
        kind = common(left.kind, INT64) if left.kind.is_whole else left.kind
        base = converted(self.builder, left, kind)
        multiply = self.builder.fmul if kind.is_float else self.builder.mul
        made = ir.Constant(kind.llvm, 1)
        while exponent:  # by squares, from the lowest bit up
            made = multiply(made, base) if exponent & 1 else made
            exponent >>= 1
            base = multiply(base, base)
        return Value(kind, made)

    def _unary(self, op: ast.unaryop, operand: ast.expr) -> Value:
        builder = self.builder
        if isinstance(op, ast.Not):
            return Value(BOOL, builder.not_(self._condition(operand)))
        value = self.value(operand)
        if isinstance(op, ast.USub) and value.kind.is_float:
            return Value(value.kind, builder.fneg(value.llvm))
        kind = common(value.kind, value.kind)
        number = converted(builder, value, kind)
        if isinstance(op, ast.USub) and isinstance(number, ir.Constant):
            return Value(INT64, WORD(-number.constant))
        if isinstance(op, ast.USub | ast.UAdd):
            return Value(kind, builder.neg(number) if isinstance(op, ast.USub) else number)
        if isinstance(op, ast.Invert) and kind.form == "int":
            return Value(kind, builder.not_(number))
        raise Mismatch(f"{value.kind.name} has no {type(op).__name__}")

    def _compare(self, items: Sequence[ast.expr], ops: Sequence[ast.cmpop]) -> Value:
        """One comparison, or several in a row, of which the first that fails decides."""
        left, right = self.value(items[0]), self.value(items[1])
        first = self.compared(ops[0], left, right)
        if len(ops) == 1:
            return Value(BOOL, first)

        def rest() -> ir.Value:
            middle = right
            made = ir.Constant(BOOL.llvm, 1)
            for op, item in zip(ops[1:], items[2:], strict=True):
                following = self.value(item)
                made = self.builder.and_(made, self.compared(op, middle, following))
                middle = following
            return made

        return Value(BOOL, self._shortened(first, rest, is_and=True))

    def compared(self, op: ast.cmpop, left: Value, right: Value) -> ir.Value:
        """The comparison of two numbers."""
        builder, sign = self.builder, _SIGNS[type(op)]
        if left.kind.is_float or right.kind.is_float:
            kind = common(left.kind, right.kind)
            a, b = (converted(builder, side, kind) for side in (left, right))
            test = builder.fcmp_unordered if sign == "!=" else builder.fcmp_ordered
            return test(sign, a, b)
        signs = [side.kind.signed or side.kind is BOOL for side in (left, right)]
        wide = [INT64 if signed else UINT64 for signed in signs]
        a, b = (
            converted(builder, side, kind) for side, kind in zip((left, right), wide, strict=True)
        )
        if signs[0] == signs[1]:
            return (builder.icmp_signed if signs[0] else builder.icmp_unsigned)(sign, a, b)
        signed, zero = (a if signs[0] else b), WORD(0)
        below = builder.icmp_signed(sign, *((a, zero) if signs[0] else (zero, b)))
        above = builder.icmp_unsigned(sign, a, b)
        return builder.select(builder.icmp_signed("<", signed, zero), below, above)

    def _logic(self, item: ast.BoolOp) -> Value:
        """`and` and `or` of conditions."""
        made = self._condition(item.values[0])
        for operand in item.values[1:]:
            rest = partial(self._condition, operand)
            made = self._shortened(made, rest, is_and=isinstance(item.op, ast.And))
        return Value(BOOL, made)

    def _shortened(
        self, first: ir.Value, rest: Callable[[], ir.Value], *, is_and: bool
    ) -> ir.Value:
        """A second condition, looked at only where the first does not decide."""
        before = self.builder.block
        more, end = self._blocks("more", "end")
        self.builder.cbranch(first, *((more, end) if is_and else (end, more)))
        self.builder.position_at_end(more)
        second = rest()
        last = self.builder.block
        self.builder.branch(end)
        self.builder.position_at_end(end)
        made = self.builder.phi(BOOL.llvm)
        made.add_incoming(ir.Constant(BOOL.llvm, int(not is_and)), before)
        made.add_incoming(second, last)
        return made

    def _choice(self, test: ast.expr, body: ast.expr, orelse: ast.expr) -> Value:
        known = self._known(test)
        if known is not None:
            return self.value(body if known else orelse)
        *starts, end = self._branches(test)
        sides = []
        for start, item in zip(starts, (body, orelse), strict=True):
            self.builder.position_at_end(start)
            value = self.value(item)
            sides.append((value, self.builder.block))
        left, right = (value.kind for value, _ in sides)
        kind = left if left == right else common(left, right)
        given = []
        for value, block in sides:
            self.builder.position_at_end(block)
            given.append(converted(self.builder, value, kind))
            self.builder.branch(end)
        self.builder.position_at_end(end)
        made = self.builder.phi(kind.llvm)
        for number, (_, block) in zip(given, sides, strict=True):
            made.add_incoming(number, block)
        return Value(kind, made)

    def _blocks(self, *names: str) -> list[ir.Block]:
        return [self._function.append_basic_block(name) for name in names]


_FLOAT = {ast.Add: "fadd", ast.Sub: "fsub", ast.Mult: "fmul", ast.Div: "fdiv"}
_OF_CONDITIONS = {ast.BitAnd, ast.BitOr, ast.BitXor}
_WHOLE = {ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.LShift: "shl", ast.RShift: "shr"}
_WHOLE |= {ast.BitAnd: "and_", ast.BitOr: "or_", ast.BitXor: "xor"}
_SIGNS: dict[type[ast.cmpop], str] = {ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<="}
_SIGNS |= {ast.Gt: ">", ast.GtE: ">="}


def constant(number: float | int) -> Value:  # noqa: PYI041 (they are told apart here)
    """A number of the source."""
    if isinstance(number, bool):
        return Value(BOOL, ir.Constant(BOOL.llvm, int(number)))
    if isinstance(number, float):
        return Value(FLOAT64, ir.Constant(FLOAT64.llvm, number))
    return Value(INT64 if number < 1 << 63 else UINT64, WORD(number))


def packed(builder: ir.IRBuilder, values: Sequence[Value]) -> Value:
    """Several values as one."""
    kind = several(tuple(value.kind for value in values))
    made: ir.Value = ir.Constant(kind.llvm, ir.Undefined)
    for place, value in enumerate(values):
        made = builder.insert_value(made, value.llvm, place)
    return Value(kind, made)


def unpacked(builder: ir.IRBuilder, value: Value) -> list[Value]:
    """The values that one holds."""
    made = enumerate(parts(value.kind))
    return [Value(part, builder.extract_value(value.llvm, place)) for place, part in made]
