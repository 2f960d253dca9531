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
of it; other names are those of the vocabulary (docs/35-native-code.md).
"""

from __future__ import annotations

import ast
import inspect
import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any, NamedTuple, Self, cast

from flour.core.emission import Emitter, Push, Room, RowValue, ScalarValue, VectorValue
from flour.core.native_source import source_of
from objectstore import Blob

_OPERATORS: dict[type, tuple[str, Callable[..., object]]] = {
    ast.Add: ("+", operator.add),
    ast.Sub: ("-", operator.sub),
    ast.Mult: ("*", operator.mul),
    ast.Div: ("/", operator.truediv),
    ast.FloorDiv: ("//", operator.floordiv),
    ast.Mod: ("%", operator.mod),
    ast.Pow: ("**", operator.pow),
    ast.LShift: ("<<", operator.lshift),
    ast.RShift: (">>", operator.rshift),
    ast.BitAnd: ("&", operator.and_),
    ast.BitOr: ("|", operator.or_),
    ast.BitXor: ("^", operator.xor),
    ast.Eq: ("==", operator.eq),
    ast.NotEq: ("!=", operator.ne),
    ast.Lt: ("<", operator.lt),
    ast.LtE: ("<=", operator.le),
    ast.Gt: (">", operator.gt),
    ast.GtE: (">=", operator.ge),
    ast.UAdd: ("+", operator.pos),
    ast.USub: ("-", operator.neg),
    ast.Invert: ("~", operator.invert),
    ast.Not: ("not ", operator.not_),
    ast.Is: ("is", operator.is_),
    ast.IsNot: ("is not", operator.is_not),
    ast.In: ("in", lambda item, many: item in many),
    ast.NotIn: ("not in", lambda item, many: item not in many),
}

#: The dtypes of numbers that a function spells out.
_KINDS: dict[type, str] = {float: "float64", int: "int64", bool: "bool"}
#: Names that every function knows; `float64` and other dtypes are words of native code.
_BUILT_IN = {"len": len, "range": range, "zip": zip}
#: Functions of numpy whose word is another name.
_NUMPY = {f"arc{name}": f"a{name}" for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh")}
#: Functions of numpy that are operators.
_INFIX = {
    "add": "+",
    "subtract": "-",
    "multiply": "*",
    "divide": "/",
    "greater": ">",
    "greater_equal": ">=",
    "less": "<",
    "less_equal": "<=",
    "equal": "==",
    "not_equal": "!=",
    "logical_and": "and",
    "logical_or": "or",
    "bitwise_and": "&",
    "bitwise_or": "|",
    "bitwise_xor": "^",
}
#: The result of a block that does not end its function.
_GOES_ON = object()


class Code(str):
    """An expression of native code, and its dtype where it is known."""

    __slots__ = ("dtype",)
    dtype: str

    def __new__(cls, text: str, dtype: str = "") -> Self:
        """Make an expression."""
        made = super().__new__(cls, text)
        made.dtype = dtype
        return made


class Memory(NamedTuple):
    """Numbers at an address: what is read and written by index. `constant` is never written."""

    address: str
    dtype: str
    constant: bool = False


class Fitted(NamedTuple):
    """Numbers of an operator, read by index; a single number stands for all of them."""

    parameter: Blob
    dtype: str


class Spelled(NamedTuple):
    """A function of Python that writes code: what it is called with, it gets as text.

    As a row it says its number at an index; its size is None where its width is known.
    """

    write: Callable[..., Any]
    dtype: str = ""
    size: str | None = None


class _Range(NamedTuple):
    start: str
    stop: object


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
    return Code(_text(made)) if isinstance(made, int | float) else made


def expression(e: Emitter, function: Callable[..., Any], *values: object, **named: object) -> Code:
    """Write a function that returns a number, and return its expression."""
    made = write(e, function, *values, **named)
    assert isinstance(made, Code)
    return made


def _called(
    e: Emitter, function: Callable[..., Any], values: Sequence[object], named: Mapping[str, object]
) -> Any:
    if isinstance(function, type) and issubclass(function, tuple):  # a record
        return cast("Callable[..., Any]", function)(*values)
    if inspect.isfunction(function):
        return _CallWriter(e, function).call(values, named)
    given, name = [_plain(value) for value in values], function.__name__
    if name == "isnan":
        held = e.let(_text(given[0]), getattr(given[0], "dtype", "")).expr
        return Code(f"({held} != {held})", "bool")
    if name in _INFIX:
        left, right = map(_text, given)
        return Code(f"({left} {_INFIX[name]} {right})", _dtype_of("", given))
    if name == "where":
        return Code("({1} if {0} else {2})".format(*map(_text, given)), _dtype_of("", given[1:]))
    arguments = ", ".join(map(_text, given))
    return Code(f"{_NUMPY.get(name, name)}({arguments})", _dtype_of("", given))


def held(e: Emitter, memory: Memory, width: int, size: str | None = None) -> VectorValue:
    """Return what is in memory as a vector."""
    at = partial(_load, e, memory)
    return e.dense(memory.dtype, width, at, size=size, stored=True)


def as_row(e: Emitter, x: RowValue) -> VectorValue:
    """Return a number as a row of one column, and a row as it is."""
    return e.joined([x], x.dtype, 1) if isinstance(x, ScalarValue) else x


def columnwise(
    e: Emitter, function: Callable[..., Any], x: RowValue, *values: object, dtype: str
) -> RowValue:
    """Return what a function makes of each number of a row, its column and these values."""

    def at(j: str, v: str) -> str:
        return str(write(e, function, Code(v, x.dtype), Code(j, "int64"), *values))

    if isinstance(x, ScalarValue):
        return e.let(at("0", x.expr), dtype)
    return e.map(at, x, dtype=dtype, width=x.width)


def sparse(
    e: Emitter,
    function: Callable[..., Any],
    *values: object,
    dtype: str,
    width: int,
    most: Room | None = None,
) -> VectorValue:
    """Return the vector whose stored columns, with their values, a function yields."""

    def each(push: Push) -> None:
        writer = _CallWriter(e, function)
        writer.push = push
        writer.call(values, {})

    return e.sparse(dtype, width, each, most=most)


def indexable_row(e: Emitter, x: VectorValue) -> Spelled:
    """Return a vector as one of which any element is read cheaply, any number of times."""
    return Spelled(e.indexable(x), x.dtype, x.size)


def listed(e: Emitter, found: Spelled, dtype: str, width: int) -> VectorValue:
    """Return a list comprehension of a function as a vector: its numbers are computed when read."""
    return e.dense(dtype, width, found.write, size=found.size)


def _load(e: Emitter, memory: Memory, index: str) -> str:
    return e.load(memory.address, index, memory.dtype, constant=memory.constant)


#: Functions of Python that are called while code is written.
_STATIC: dict[object, Callable[..., Any]] = {
    len: lambda of: len(of) if type(of) in (list, tuple) else Code(of.size, "int64"),
    range: lambda *ends: _Range(_text(ends[0]) if len(ends) > 1 else "0", ends[-1]),
    zip: lambda *many: list(zip(*many, strict=True)),
}


_source, _signature = cache(source_of), cache(inspect.signature)


class _CallWriter:
    """Writes one call of a function."""

    def __init__(self, e: Emitter, function: Callable[..., Any]) -> None:
        self.e, self.function, self.source = e, function, _source(function)
        self.names: dict[str, Any] = {}
        self.push: Push

    def call(self, values: Sequence[object], named: Mapping[str, object]) -> Any:
        """Bind the parameters and write the body."""
        for name, value in self.arguments(values, named).items():
            given = _plain(value)
            if self.source.assigned[name]:  # a parameter that changes is a variable of its own
                given = Code(self.e.var(_text(given), name), getattr(given, "dtype", ""))
            elif isinstance(given, Code) and self.source.read[name] > 1:
                given = Code(self.e.let(given, given.dtype).expr, given.dtype)
            self.names[name] = given
        found = self.block(self.source.body)
        return None if found is _GOES_ON else found

    def arguments(
        self, values: Sequence[object], named: Mapping[str, object]
    ) -> Mapping[str, object]:
        """Return the values by the names of their parameters."""
        signature = _signature(self.function)
        if len(values) == len(signature.parameters):
            return dict(zip(signature.parameters, values, strict=True))
        bound = signature.bind(*values, **named)
        bound.apply_defaults()
        return bound.arguments

    # --- statements ------------------------------------------------------------------------------

    def block(self, statements: Sequence[ast.stmt]) -> Any:
        """Write statements one after the other, and return what the function returns here."""
        for each in statements:
            if isinstance(each, ast.Return):
                return None if each.value is None else self.value(each.value)
            found = _PARTS[type(each)](self, each)
            if found is not _GOES_ON and isinstance(each, ast.If):
                return found
        return _GOES_ON

    def _pass(self, _: ast.Pass) -> None:
        pass

    def _break(self, _: ast.Break) -> None:
        self.e.line("break")

    def _continue(self, _: ast.Continue) -> None:
        self.e.line("continue")

    def _expr(self, item: ast.Expr) -> None:
        if isinstance(item.value, ast.Yield):
            assert isinstance(item.value.value, ast.Tuple)
            self.push(*map(_text, self.value(item.value.value)))
        if isinstance(item.value, ast.Call):
            made = self.value(item.value)
            if isinstance(made, Code):
                self.e.line(made)

    def _assign(self, item: ast.Assign) -> None:
        (target,) = item.targets
        if isinstance(target, ast.Tuple):
            values = [*self.value(item.value)]
            for place, (each, value) in enumerate(zip(target.elts, values, strict=True)):
                self._give(each, value)
                name = str(self.names.get(each.id, "")) if isinstance(each, ast.Name) else ""
                late = (_text(later) for later in values[place + 1 :] if isinstance(later, Code))
                assert not any(name in re.findall(r"\w+", text) for text in late), name
        else:
            self._give(target, self.value(item.value))

    def _give(self, target: ast.expr, value: Any) -> None:
        if isinstance(target, ast.Subscript):
            memory, index = self.value(target.value), self.value(target.slice)
            if isinstance(memory, list):  # registers
                self.e.line(f"{memory[index]} = {_text(value)}")
            else:
                self.e.store(memory.address, _text(index), _text(value), memory.dtype)
            return
        assert isinstance(target, ast.Name)
        name = target.id
        if self.source.assigned[name] == 1:
            if isinstance(value, Code):
                value = Code(self.e.let(value, value.dtype).expr, value.dtype)
            self.names[name] = value
        elif name in self.names:
            self.e.line(f"{self.names[name]} = {_text(value)}")
        else:
            dtype = value.dtype if isinstance(value, Code) else _KINDS[type(value)]
            self.names[name] = Code(self.e.var(_text(value), name), dtype)

    def _augassign(self, item: ast.AugAssign) -> None:
        symbol, _ = _OPERATORS[type(item.op)]
        if isinstance(item.target, ast.Name):
            name, value = self.names[item.target.id], _text(self.value(item.value))
            self.e.line(f"{name} = {name} {symbol} {value}")
            return
        assert isinstance(item.target, ast.Subscript)
        memory, index = self.value(item.target.value), self.value(item.target.slice)
        if isinstance(memory, list):
            value = _text(self.value(item.value))
            self.e.line(f"{memory[index]} = {memory[index]} {symbol} {value}")
            return
        index = _text(index)
        before = self.e.load(memory.address, index, memory.dtype)
        after = f"{before} {symbol} {_text(self.value(item.value))}"
        self.e.store(memory.address, index, after, memory.dtype)

    def _if(self, item: ast.If) -> Any:
        test = self.value(item.test)
        if not isinstance(test, Code):  # known while code is written
            return self.block(item.body if test else item.orelse)
        with self.e.block(f"if {test}:"):
            found = [self.block(item.body)]
        if item.orelse:
            with self.e.block("else:"):
                found.append(self.block(item.orelse))
        assert all(each is _GOES_ON for each in found), "native code returns at its end"
        return _GOES_ON

    def _while(self, item: ast.While) -> None:
        with self.e.block(f"while {_text(self.value(item.test))}:"):
            self.block(item.body)

    def _for(self, item: ast.For) -> None:
        values = self.value(item.iter)
        if isinstance(values, _Range):
            assert isinstance(item.target, ast.Name)
            with self.e.loop(_text(values.stop), values.start) as j:
                self.names[item.target.id] = Code(j, "int64")
                self.block(item.body)
            return
        if isinstance(values, VectorValue):
            assert isinstance(item.target, ast.Tuple)
            names = [each.id for each in item.target.elts if isinstance(each, ast.Name)]

            def body(j: str, v: str) -> None:
                given = (Code(j, "int64"), Code(v, values.dtype))
                self.names |= zip(names, given, strict=True)
                self.block(item.body)

            values.each(body)
            return
        for each in values:
            self._bind(item.target, each)
            self.block(item.body)

    def _bind(self, target: ast.expr, value: Any) -> None:
        if isinstance(target, ast.Tuple):
            for each, one in zip(target.elts, value, strict=True):
                self._bind(each, one)
        else:
            assert isinstance(target, ast.Name)
            self.names[target.id] = value

    # --- expressions -----------------------------------------------------------------------------

    def value(self, item: ast.expr) -> Any:
        """Return an expression's code, or its value if that is known now."""
        return _PARTS[type(item)](self, item)

    def _constant_value(self, item: ast.Constant) -> Any:
        return item.value

    def _name_value(self, item: ast.Name) -> Any:
        if item.id in self.names:
            return self.names[item.id]
        known = self.function.__globals__
        return known[item.id] if item.id in known else _BUILT_IN.get(item.id, Code(item.id))

    def _attribute_value(self, item: ast.Attribute) -> Any:
        of = self.value(item.value)
        return Code(f"math.{item.attr}") if of is math else _plain(getattr(of, item.attr))

    def _tuple_value(self, item: ast.Tuple) -> tuple[Any, ...]:
        return tuple(map(self.value, item.elts))

    def _list_value(self, item: ast.List) -> list[Any]:
        return [self.value(each) for each in item.elts]

    def _slice_value(self, item: ast.Slice) -> slice:
        ends = (item.lower, item.upper, item.step)
        return slice(*(end and self.value(end) for end in ends))

    def _listcomp_value(self, item: ast.ListComp) -> Any:
        """Return columns that are computed where they are read, or a list of what is known now."""
        (loop,) = item.generators
        over = self.value(loop.iter)

        def at(j: object) -> Any:
            names = self.names
            self.names = {**names}  # the names of a comprehension are its own
            self._bind(loop.target, j)
            value = self.value(item.elt)
            self.names = names
            return value

        if not isinstance(over, _Range):
            return [at(each) for each in over]
        size = str(over.stop) if isinstance(over.stop, Code) else None
        return Spelled(lambda j: _text(at(Code(j, "int64"))), size=size)

    def _subscript_value(self, item: ast.Subscript) -> Any:
        of, index = self.value(item.value), self.value(item.slice)
        if isinstance(of, Memory):
            return Code(_load(self.e, of, _text(index)), of.dtype)
        if isinstance(of, Fitted):
            return Code(self.e.at(of.parameter, _text(index), of.dtype), of.dtype)
        if isinstance(of, VectorValue):
            return Code(self.e.indexable(of)(_text(index)), of.dtype)
        return Code(of.write(_text(index)), of.dtype) if isinstance(of, Spelled) else of[index]

    def _binop_value(self, item: ast.BinOp) -> Any:
        left, right = self.value(item.left), self.value(item.right)
        symbol, meaning = _OPERATORS[type(item.op)]
        if isinstance(left, Code) or isinstance(right, Code):
            dtype = getattr(left, "dtype", "") or getattr(right, "dtype", "")
            return Code(f"({_text(left)} {symbol} {_text(right)})", dtype)
        return meaning(left, right)

    def _unaryop_value(self, item: ast.UnaryOp) -> Any:
        operand = self.value(item.operand)
        symbol, meaning = _OPERATORS[type(item.op)]
        if isinstance(operand, Code):
            return Code(f"({symbol}{operand})", operand.dtype)
        return meaning(operand)

    def _boolop_value(self, item: ast.BoolOp) -> Any:
        ends = isinstance(item.op, ast.Or)
        parts: list[Any] = []
        for each in item.values:
            value = self.value(each)
            if isinstance(value, Code):
                parts.append(value)
            elif bool(value) is ends:
                return ends if not parts else Code(_joined(parts, ends=ends), "bool")
        return Code(_joined(parts, ends=ends), "bool") if parts else not ends

    def _compare_value(self, item: ast.Compare) -> Any:
        values = [self.value(each) for each in (item.left, *item.comparators)]
        known = [_OPERATORS[type(each)] for each in item.ops]
        if not any(isinstance(each, Code) for each in values) or known[0][0][:2] in ("is", "in"):
            return all(m(a, b) for (_, m), a, b in zip(known, values, values[1:], strict=False))
        pairs = zip((symbol for symbol, _ in known), map(_text, values[1:]), strict=True)
        return Code(f"({_text(values[0])} {' '.join(f'{s} {v}' for s, v in pairs)})", "bool")

    def _ifexp_value(self, item: ast.IfExp) -> Any:
        test = self.value(item.test)
        if not isinstance(test, Code):
            return self.value(item.body if test else item.orelse)
        yes, no = self.value(item.body), self.value(item.orelse)
        dtype = getattr(yes, "dtype", "") or getattr(no, "dtype", "")
        return Code(f"({_text(yes)} if {test} else {_text(no)})", dtype)

    def _call_value(self, item: ast.Call) -> Any:
        function = self.value(item.func)
        values = [self.value(each) for each in item.args]
        named = {str(each.arg): self.value(each.value) for each in item.keywords}
        if function in _MACROS:
            return _MACROS[function](self.e, *values, **named)
        if function in _STATIC:
            return _STATIC[function](*values)
        if isinstance(function, Spelled):
            return function.write(*map(_text, values))
        if isinstance(function, str):  # a word of the vocabulary, or a dtype
            return Code(f"{function}({', '.join(map(_text, values))})", _dtype_of(function, values))
        return _called(self.e, function, values, named)


#: The writer of each part of a function.
_PARTS: dict[type, Callable[[_CallWriter, Any], Any]] = {
    kind: method
    for name, kind in vars(ast).items()
    if isinstance(kind, type) and issubclass(kind, ast.expr | ast.stmt)
    for suffix in ["_value" if issubclass(kind, ast.expr) else ""]
    for method in [vars(_CallWriter).get(f"_{name.lower()}{suffix}")]
    if method is not None
}


def _plain(value: object) -> object:
    """Return what an operator hands over as native code sees it."""
    if isinstance(value, ScalarValue):
        return Code(value.expr, value.dtype)
    if type(value) is tuple:
        return tuple(map(_plain, value))
    return Fitted(value, value.dtype.name) if isinstance(value, Blob) else value


def _text(value: Any) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return "math.nan" if math.isnan(value) else f"{'-' if value < 0 else ''}math.inf"
    return value if isinstance(value, str) else repr(value)


def _joined(parts: Sequence[str], *, ends: bool) -> str:
    return f"({(' or ' if ends else ' and ').join(parts)})"


def _dtype_of(word: str, values: Sequence[object]) -> str:
    if word.startswith(("float", "int", "uint")):
        return word
    return next((each.dtype for each in values if isinstance(each, Code)), "")
