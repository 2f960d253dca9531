"""Native code as plain Python functions.

An operator writes its native code as a function over vectors, memory and numbers, and `write` puts
its statements into a stage, with the operator's values in the place of its parameters:

    def largest(x):
        best = x[0]
        for j in range(1, len(x)):
            best = maximum(best, x[j])
        return best

    def emit(self, e, x):
        return e.let(write(e, largest, x), x.dtype)

The same function runs in Python on arrays: a vector is then a numpy array, and so is memory. A name
that is assigned once is a value, any other one a variable. What is known when code is written (an
option, a dtype, a number of classes) is an ordinary Python value: conditions on it choose among
statements, and loops over a tuple of it are unrolled. Functions that a function calls become part
of it; other names are those of the vocabulary (docs/contributing/native-code.md).
"""

from __future__ import annotations

import ast
import inspect
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, partial
from operator import attrgetter
from typing import Any, cast

from flour.core.emission import Emitter, Push, Room, RowValue, ScalarValue, VectorValue
from flour.core.native_source import OPERATORS, source_of
from flour.core.native_values import (
    BUILT_IN,
    STATIC,
    Code,
    CountedRange,
    FittedNumbers,
    Memory,
    Spelled,
    let,
    plain,
    text,
    ufunc,
    variable,
    word_of,
)

__all__ = ["Code", "FittedNumbers", "Memory", "Spelled"]

#: The result of a block that does not end its function.
_GOES_ON = object()


#: Writes a call's code in place of the call: it takes the emitter and the arguments.
Macro = Callable[..., object]
_MACROS: dict[Callable[..., object], Macro] = {}


def written_as(macro: Macro) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Let native code that calls a function of Python have what `macro` returns."""

    def known(function: Callable[..., Any]) -> Callable[..., Any]:
        _MACROS[function] = macro
        return function

    return known


def write(e: Emitter, function: Callable[..., Any], *values: object, **named: object) -> Any:
    """Write a function's statements, and return what it returns.

    A function that is not written in Python, such as numpy's, is a word of its name.
    """
    made = _called(e, function, values, named)
    return Code(text(made)) if isinstance(made, int | float) else made


def expression(e: Emitter, function: Callable[..., Any], *values: object, **named: object) -> Code:
    """Write a function that returns a number, and return its expression."""
    made = write(e, function, *values, **named)
    assert isinstance(made, Code)
    return made


def _called(
    e: Emitter, function: Callable[..., Any], values: Sequence[Any], named: Mapping[str, object]
) -> Any:
    if inspect.isfunction(function):
        return _function(function)(e, values, named)
    if isinstance(function, type) and issubclass(function, tuple):  # a record
        return cast("Callable[..., Any]", function)(*values)
    return ufunc(e, function, values)


def held(e: Emitter, memory: Memory, width: int, size: str | None = None) -> VectorValue:
    """Return what is in memory as a vector."""
    return e.dense(memory.dtype, width, partial(_load, e, memory), size=size, stored=True)


def as_row(e: Emitter, x: RowValue) -> VectorValue:
    """Return a number as a row of one column, and a row as it is."""
    return e.joined([x], x.dtype, 1) if isinstance(x, ScalarValue) else x


def columnwise(
    e: Emitter, function: Callable[..., Any], x: RowValue, *values: object, dtype: str
) -> RowValue:
    """Return what a function makes of each number of a row, its column and these values."""

    def at(j: str, v: str) -> str:
        return str(write(e, function, Code(v, x.dtype), Code(j, "int64"), *values))

    return e.map(at, x, dtype=dtype)


def sparse(
    e: Emitter,
    function: Callable[..., Any],
    *values: object,
    dtype: str,
    width: int,
    most: Room | None = None,
) -> VectorValue:
    """Return the vector whose stored columns, with their values, a function yields."""
    return e.sparse(dtype, width, partial(_function(function), e, values, {}), most=most)


def indexable_row(e: Emitter, x: VectorValue) -> Spelled:
    """Return a vector as one of which any element is read cheaply, any number of times."""
    return Spelled(e.indexable(x), x.dtype, x.size)


def listed(e: Emitter, found: Spelled, dtype: str, width: int) -> VectorValue:
    """Return a list comprehension of a function as a vector: its numbers are computed when read."""
    return e.dense(dtype, width, found.write, size=found.size)


def _load(e: Emitter, memory: Memory, index: str) -> str:
    return e.load(memory, index, memory.dtype, constant=memory.constant)


class _CallWriting:
    """One call of a function that is being written: where to, and what its names stand for."""

    __slots__ = ("e", "names", "push")

    def __init__(self, e: Emitter, push: Push | None) -> None:
        self.e, self.push, self.names = e, push, dict[str, Any]()


_NO_CALL = cast("_CallWriting", None)
#: Writes a statement and returns what the function returns there; or returns an expression's code,
#: or its value if that is known while code is written.
_Step = Callable[[_CallWriting], Any]


class _PreparedFunction:
    """A function that can be written: each part of its source is turned into a step once."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.source, self.signature = source_of(function), inspect.signature(function)
        assigned, read = self.source.assigned, self.source.read
        #: Each parameter, whether it changes, and whether it is read more than once.
        self.parameters = [
            (name, assigned[name] > 0, read[name] > 1) for name in self.signature.parameters
        ]
        self.known = function.__globals__
        self.body = self.block(self.source.body)

    def __call__(
        self,
        e: Emitter,
        values: Sequence[object],
        named: Mapping[str, object],
        push: Push | None = None,
    ) -> Any:
        """Bind the parameters and write the body."""
        if len(values) != len(self.parameters):
            bound = self.signature.bind(*values, **named)
            bound.apply_defaults()
            values = list(bound.arguments.values())
        call = _CallWriting(e, push)
        for (name, changes, again), value in zip(self.parameters, values, strict=True):
            given = plain(value)
            if changes:  # it is a variable of its own
                given = variable(e, name, given)
            elif again and type(given) is Code:
                given = let(e, given)
            call.names[name] = given
        found = self.body(call)
        return None if found is _GOES_ON else found

    def block(self, statements: Sequence[ast.stmt]) -> _Step:
        """Statements one after the other, up to the one that returns."""
        steps = [
            (
                isinstance(each, ast.If | ast.Return),
                getattr(self, f"_{type(each).__name__.lower()}")(each),
            )
            for each in statements
        ]

        def step(call: _CallWriting) -> Any:
            for returns, each in steps:
                found = each(call)
                if returns and found is not _GOES_ON:
                    return found
            return _GOES_ON

        return step

    def _return(self, item: ast.Return) -> _Step:
        return self.value(item.value or ast.Constant(None))

    def _pass(self, _: ast.Pass) -> _Step:
        return lambda _: None

    def _break(self, _: ast.Break) -> _Step:
        return lambda call: call.e.line("break")

    def _continue(self, _: ast.Continue) -> _Step:
        return lambda call: call.e.line("continue")

    def _expr(self, item: ast.Expr) -> _Step:
        if isinstance(item.value, ast.Yield):
            assert item.value.value is not None
            pushed = self.value(item.value.value)
            return lambda call: call.push and call.push(*map(text, pushed(call)))
        made = self.value(item.value)

        def step(call: _CallWriting) -> None:
            code = made(call)
            if isinstance(code, Code):
                call.e.line(code)

        return step

    def _assign(self, item: ast.Assign) -> _Step:
        (target,) = item.targets
        value = self.value(item.value)
        if not isinstance(target, ast.Tuple):
            give = self.give(target)
            return lambda call: give(call, value(call))
        gives = [(self.give(each), getattr(each, "id", "")) for each in target.elts]

        def step(call: _CallWriting) -> None:
            values = [*value(call)]
            for place, (give, name) in enumerate(gives):
                give(call, values[place])
                known = call.names.get(name)
                late = [each for each in values[place + 1 :] if isinstance(each, Code)]
                if isinstance(known, Code) and any(known in each for each in late):
                    assert not any(known in re.findall(r"\w+", each) for each in late), known

        return step

    def give(self, target: ast.expr) -> Callable[[_CallWriting, Any], None]:
        """Let a name, or an element of memory, have a value."""
        if isinstance(target, ast.Subscript):
            memory, index = self.value(target.value), self.value(target.slice)

            def store(call: _CallWriting, value: object) -> None:
                place, at = memory(call), index(call)
                if isinstance(place, list):  # registers
                    call.e.line(f"{place[at]} = {text(value)}")
                else:
                    call.e.store(place, text(at), text(value), place.dtype)

            return store
        assert isinstance(target, ast.Name)
        name = target.id

        def once(call: _CallWriting, value: object) -> None:
            call.names[name] = let(call.e, value) if isinstance(value, Code) else value

        def change(call: _CallWriting, value: object) -> None:
            if name in call.names:
                call.e.line(f"{call.names[name]} = {text(value)}")
            else:
                call.names[name] = variable(call.e, name, value)

        return once if self.source.assigned[name] == 1 else change

    def _augassign(self, item: ast.AugAssign) -> _Step:
        symbol, value = OPERATORS[type(item.op)][0], self.value(item.value)
        if isinstance(item.target, ast.Name):
            name = item.target.id

            def change(call: _CallWriting) -> None:
                code = text(value(call))
                call.e.line(f"{call.names[name]} = {call.names[name]} {symbol} {code}")

            return change
        assert isinstance(item.target, ast.Subscript)
        memory, index = self.value(item.target.value), self.value(item.target.slice)

        def step(call: _CallWriting) -> None:
            place, at = memory(call), index(call)
            if isinstance(place, list):
                call.e.line(f"{place[at]} = {place[at]} {symbol} {text(value(call))}")
                return
            at = text(at)
            before = call.e.load(place, at, place.dtype)
            call.e.store(place, at, f"{before} {symbol} {text(value(call))}", place.dtype)

        return step

    def _if(self, item: ast.If) -> _Step:
        test, body = self.value(item.test), self.block(item.body)
        otherwise = self.block(item.orelse) if item.orelse else None

        def step(call: _CallWriting) -> Any:
            known = test(call)
            if not isinstance(known, Code):
                chosen = body if known else otherwise
                return _GOES_ON if chosen is None else chosen(call)
            with call.e.block(f"if {known}:"):
                found = [body(call)]
            if otherwise is not None:
                with call.e.block("else:"):
                    found.append(otherwise(call))
            assert all(each is _GOES_ON for each in found), "native code returns at its end"
            return _GOES_ON

        return step

    def _while(self, item: ast.While) -> _Step:
        test, body = self.value(item.test), self.block(item.body)

        def step(call: _CallWriting) -> None:
            with call.e.block(f"while {text(test(call))}:"):
                body(call)

        return step

    def _for(self, item: ast.For) -> _Step:
        over, body, bind = self.value(item.iter), self.block(item.body), _binding(item.target)

        def step(call: _CallWriting) -> None:
            values = over(call)
            if isinstance(values, CountedRange):
                with call.e.loop(text(values.stop), values.start) as j:
                    bind(call, Code(j, "int64"))
                    body(call)
            elif isinstance(values, VectorValue):

                def each(j: str, v: str) -> None:
                    bind(call, (Code(j, "int64"), Code(v, values.dtype)))
                    body(call)

                values.each(each)
            else:
                for known in values:
                    bind(call, known)
                    body(call)

        return step

    def value(self, item: ast.expr) -> _Step:
        """An expression."""
        made: _Step = getattr(self, f"_{type(item).__name__.lower()}_value")(item)
        return made

    def values(self, items: Iterable[ast.expr]) -> Callable[[_CallWriting], list[Any]]:
        """Several expressions, those behind a star one by one."""
        steps = [(self.value(each), isinstance(each, ast.Starred)) for each in items]
        if not any(many for _, many in steps):
            alone = [step for step, _ in steps]
            return lambda call: [step(call) for step in alone]
        return lambda call: [
            each for step, many in steps for each in (step(call) if many else (step(call),))
        ]

    def _starred_value(self, item: ast.Starred) -> _Step:
        return self.value(item.value)

    def _constant_value(self, item: ast.Constant) -> _Step:
        known = item.value
        return lambda _: known

    def _name_value(self, item: ast.Name) -> _Step:
        name, known = item.id, self.known
        if name in self.source.local:
            return lambda call: call.names[name]
        value = known[name] if name in known else BUILT_IN.get(name, Code(name))
        return lambda _: value

    def _attribute_value(self, item: ast.Attribute) -> _Step:
        root: ast.expr = item.value
        path = item.attr
        while isinstance(root, ast.Attribute):
            path, root = f"{root.attr}.{path}", root.value
        owner, of = self.value(root), attrgetter(path)
        if isinstance(root, ast.Name) and root.id not in self.source.local:
            module = owner(_NO_CALL)
            known = Code(f"math.{path}") if module is math else plain(of(module))
            return lambda _: known
        return lambda call: plain(of(owner(call)))

    def _tuple_value(self, item: ast.Tuple) -> _Step:
        values = self.values(item.elts)
        return lambda call: tuple(values(call))

    def _list_value(self, item: ast.List) -> _Step:
        return self.values(item.elts)

    def _slice_value(self, item: ast.Slice) -> _Step:
        ends = (item.lower, item.upper, item.step)
        values = self.values(end or ast.Constant(None) for end in ends)
        return lambda call: slice(*values(call))

    def _listcomp_value(self, item: ast.ListComp) -> _Step:
        """Columns that are computed where they are read, or a list of what is known now."""
        (loop,) = item.generators
        over, value, bind = self.value(loop.iter), self.value(item.elt), _binding(loop.target)

        def step(call: _CallWriting) -> Any:
            values = over(call)

            def at(j: object) -> Any:
                names = call.names
                call.names = {**names}  # the names of a comprehension are its own
                bind(call, j)
                found, call.names = value(call), names
                return found

            if not isinstance(values, CountedRange):
                return [at(each) for each in values]
            size = str(values.stop) if isinstance(values.stop, Code) else None
            return Spelled(lambda j: text(at(Code(j, "int64"))), size=size)

        return step

    def _subscript_value(self, item: ast.Subscript) -> _Step:
        owner, place = self.value(item.value), self.value(item.slice)

        def step(call: _CallWriting) -> Any:
            of, index = owner(call), place(call)
            if isinstance(of, Memory):
                return Code(_load(call.e, of, text(index)), of.dtype)
            if isinstance(of, FittedNumbers):
                return Code(call.e.at(of.parameter, text(index), of.dtype), of.dtype)
            if isinstance(of, VectorValue):
                return Code(call.e.indexable(of)(text(index)), of.dtype)
            return Code(of.write(text(index)), of.dtype) if isinstance(of, Spelled) else of[index]

        return step

    def _binop_value(self, item: ast.BinOp) -> _Step:
        first, second = self.value(item.left), self.value(item.right)
        symbol, meaning = OPERATORS[type(item.op)]

        def step(call: _CallWriting) -> Any:
            left, right = first(call), second(call)
            if isinstance(left, Code) or isinstance(right, Code):
                dtype = getattr(left, "dtype", "") or getattr(right, "dtype", "")
                return Code(f"({text(left)} {symbol} {text(right)})", dtype)
            return meaning(left, right)

        return step

    def _unaryop_value(self, item: ast.UnaryOp) -> _Step:
        value = self.value(item.operand)
        symbol, meaning = OPERATORS[type(item.op)]

        def step(call: _CallWriting) -> Any:
            operand = value(call)
            if isinstance(operand, Code):
                return Code(f"({symbol}{operand})", operand.dtype)
            return meaning(operand)

        return step

    def _boolop_value(self, item: ast.BoolOp) -> _Step:
        ends, steps = isinstance(item.op, ast.Or), [self.value(each) for each in item.values]
        symbol = " or " if ends else " and "

        def step(call: _CallWriting) -> Any:
            parts: list[Any] = []
            for each in steps:
                value = each(call)
                if isinstance(value, Code):
                    parts.append(value)
                elif bool(value) is ends:
                    if not parts:
                        return ends
                    break
            return Code(f"({symbol.join(parts)})", "bool") if parts else not ends

        return step

    def _compare_value(self, item: ast.Compare) -> _Step:
        compared = self.values((item.left, *item.comparators))
        known = [OPERATORS[type(each)] for each in item.ops]
        always = known[0][0][:2] in ("is", "in")  # of what is known while code is written

        def step(call: _CallWriting) -> Any:
            values = compared(call)
            if always or not any(isinstance(each, Code) for each in values):
                return all(m(a, b) for (_, m), a, b in zip(known, values, values[1:], strict=False))
            pairs = zip((symbol for symbol, _ in known), map(text, values[1:]), strict=True)
            return Code(f"({text(values[0])} {' '.join(f'{s} {v}' for s, v in pairs)})", "bool")

        return step

    def _ifexp_value(self, item: ast.IfExp) -> _Step:
        test, body, otherwise = map(self.value, (item.test, item.body, item.orelse))

        def step(call: _CallWriting) -> Any:
            known = test(call)
            if not isinstance(known, Code):
                return body(call) if known else otherwise(call)
            yes, no = body(call), otherwise(call)
            dtype = getattr(yes, "dtype", "") or getattr(no, "dtype", "")
            return Code(f"({text(yes)} if {known} else {text(no)})", dtype)

        return step

    def _call_value(self, item: ast.Call) -> _Step:
        called, steps = self.value(item.func), [self.value(each) for each in item.args]
        options = [(str(each.arg), self.value(each.value)) for each in item.keywords]
        known = isinstance(item.func, ast.Name) and item.func.id not in self.source.local
        if not known or options or any(isinstance(each, ast.Starred) for each in item.args):
            arguments = self.values(item.args)

            def step(call: _CallWriting) -> Any:
                named = {name: value(call) for name, value in options}
                return _call(call.e, called(call), arguments(call), named)

            return step
        function = called(_NO_CALL)
        macro = _MACROS.get(function)
        if macro is not None:
            return lambda call: macro(call.e, *[each(call) for each in steps])
        if inspect.isfunction(function):
            return lambda call: _function(function)(call.e, [each(call) for each in steps], {})
        return lambda call: _call(call.e, function, [each(call) for each in steps], {})


_function = cache(_PreparedFunction)


def _call(e: Emitter, function: Any, values: Sequence[Any], named: Mapping[str, Any]) -> Any:
    if isinstance(function, str):  # a word of the vocabulary, or a dtype
        return word_of(e, function, values)
    if function in _MACROS:
        return _MACROS[function](e, *values, **named)
    if function in STATIC:
        return STATIC[function](*values)
    if isinstance(function, Spelled):
        return function.write(*map(text, values))
    return _called(e, function, values, named)


def _binding(target: ast.expr) -> Callable[[_CallWriting, Any], None]:
    """Let the names of a loop stand for a value, or for its parts."""
    if isinstance(target, ast.Tuple):
        parts = [_binding(each) for each in target.elts]

        def each_part(call: _CallWriting, value: Any) -> None:
            for bind, part in zip(parts, value, strict=True):
                bind(call, part)

        return each_part
    assert isinstance(target, ast.Name)
    name = target.id

    def bind(call: _CallWriting, value: object) -> None:
        call.names[name] = value

    return bind
