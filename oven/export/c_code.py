"""Native code as C99: one more back end for the source that `oven.compiler.lowering` reads.

Types follow by the same rules, and a function is written again when a variable turns out to be
wider. What the source names, C names, so the text can be read beside it.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from textwrap import wrap
from typing import NamedTuple

from oven.compiler.intrinsics.base import Routine
from oven.compiler.kinds import (
    BOOL,
    FLOAT32,
    FLOAT64,
    INT64,
    NOTHING,
    UINT64,
    Kind,
    Mismatch,
    common,
    merged,
    parts,
    several,
)
from oven.export.image import KEYWORDS

#: How tightly C's operators bind; names and calls most.
_ATOM, _UNARY, _PRODUCT, _SUM, _SHIFT, _ORDER, _BITS, _LOGIC, _CHOICE = range(9, 0, -1)
_WIDEST_PLAIN = 1 << 31
_MOVED = "(int64_t)((uint64_t)"
#: Whole numbers up to this are floats of either width.
_EXACT = 1 << 24
_C_NAMES = {"float64": "double", "float32": "float", "bool": "bool", "nothing": "int64_t"}
_NUMBERS = {"inf": "INFINITY", "nan": "NAN", "pi": "3.141592653589793"}


class CValue(NamedTuple):
    """An expression of C with its type; of a constant, its number."""

    kind: Kind
    text: str
    level: int = _ATOM
    number: int | None = None

    def at(self, level: int) -> str:
        """The text as an operand of an operator that binds like this."""
        return self.text if self.level > level else f"({self.text})"


class _Wider(Exception):
    """A variable has a wider type than the code so far supposes."""


def c_type(kind: Kind) -> str:
    """The name of a type in C."""
    if kind.form == "several":
        return "several_" + "_".join(part.strip("()").strip() for part in kind.name.split(","))
    return _C_NAMES.get(kind.name, f"{kind.name}_t")


#: Writes a call of native code in C.
CWord = Callable[["CFunction", Sequence[CValue]], CValue]
#: The names that native code may use in C.
CVocabulary = Mapping[str, CWord | Routine | int]


@dataclass
class CModule:
    """The functions of a file, each written once, and what they use."""

    vocabulary: CVocabulary
    functions: list[str] = field(default_factory=list)
    used: dict[str, None] = field(default_factory=dict)
    structs: dict[str, str] = field(default_factory=dict)
    _written: dict[tuple[str, tuple[Kind, ...]], tuple[str, Kind]] = field(default_factory=dict)

    def function(self, definition: ast.FunctionDef, kinds: tuple[Kind, ...]) -> tuple[str, Kind]:
        """The name of a function for arguments of these types, and what it returns."""
        key = definition.name, kinds
        if key not in self._written:
            same = sum(name == definition.name for name, _ in self._written)
            # No name that callers see ends like this.
            name = f"{definition.name}_pz{same or ''}"
            variables: dict[str, Kind] = {}
            while True:
                code = CFunction(self, definition, name, kinds, variables)
                try:
                    text = code.write()
                except _Wider:
                    continue
                except Mismatch as problem:
                    raise Mismatch(f"{definition.name}: {problem}") from problem
                break
            self.functions.append(text)
            self._written[key] = name, variables.get(_RETURNED, NOTHING)
        return self._written[key]

    def struct(self, kind: Kind, parts: Sequence[Kind]) -> str:
        """The struct of several values."""
        fields = " ".join(f"{c_type(part)} v{k};" for k, part in enumerate(parts))
        self.structs[c_type(kind)] = f"typedef struct {{ {fields} }} {c_type(kind)};"
        return c_type(kind)


_RETURNED = "return"


@dataclass
class CFunction:
    """Writes one function."""

    module: CModule
    definition: ast.FunctionDef
    name: str
    _kinds: tuple[Kind, ...]
    _variables: dict[str, Kind]

    def __post_init__(self) -> None:
        self._parameters = [item.arg for item in self.definition.args.args]
        for parameter, kind in zip(self._parameters, self._kinds, strict=True):
            self._widen(parameter, kind)
        self._lines: list[str] = []
        self._depth = 1
        #: Variables that a loop has declared, and arrays of the running call.
        self._own: set[str] = set()
        self._rooms: list[str] = []
        names = [n for n in ast.walk(self.definition) if isinstance(n, ast.Name)]
        self._read = {n.id for n in names if not _is_set(n)}
        #: Variables of loops alone, which C declares there.
        self._of_loops = _of_loops(self.definition)
        self._fresh = count()

    def write(self) -> str:
        """The function's text."""
        self._block(self.definition.body)
        result = self._variables.get(_RETURNED, INT64)
        if not self._lines or not self._lines[-1].startswith("    return"):
            self._line(f"return {'{0}' if result.form == 'several' else '0'};")
        pairs = zip(self._parameters, self._kinds, strict=True)
        given = ", ".join(f"{c_type(kind)} {_named(name)}" for name, kind in pairs)
        read = {*self._read, *self._own, _RETURNED}
        unread = [f"    (void){_named(each)};" for each in self._variables if each not in read]
        declared: dict[str, list[str]] = {}
        for name, kind in self._variables.items():
            if name not in {_RETURNED, *self._parameters} and name not in self._own:
                declared.setdefault(c_type(kind), []).append(f"{_named(name)} = 0")
        head = [f"{kind} {', '.join(names)};" for kind, names in declared.items()]
        lines = [
            f"    {line}" for each in head for line in wrap(each, 96, subsequent_indent="    ")
        ]
        lines += [*(f"    {room}" for room in self._rooms), *unread, *self._lines]
        return "\n".join([f"static {c_type(result)} {self.name}({given}) {{", *lines, "}", ""])

    def room(self, words: int) -> str:
        """An array of words that lives as long as the call."""
        name = f"room_{next(self._fresh)}"
        self._rooms.append(f"int64_t {name}[{words}];")
        return name

    def _line(self, text: str) -> None:
        self._lines.append("    " * self._depth + text)

    # --- statements ------------------------------------------------------------------------------

    def _block(self, statements: Sequence[ast.stmt]) -> None:
        for statement in statements:
            self._statement(statement)
            if isinstance(statement, ast.Return | ast.Break | ast.Continue):
                return  # nothing comes here

    def _statement(self, item: ast.stmt) -> None:  # noqa: C901 (a case for each statement)
        match item:
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    self._give(target, value)
            case ast.AugAssign(target=ast.Name(id=name), op=op, value=value):
                self._assign(name, self._operation(op, self._variable(name), self.value(value)))
            case ast.Expr(value=ast.Constant()) | ast.Pass():
                pass
            case ast.Expr(value=value):
                made = self.value(value)
                self._line(f"{made.text};" if made.level == _ATOM else f"(void)({made.text});")
            case ast.If(test=test, body=body, orelse=orelse):
                self._if("if", test, body, orelse)
            case ast.While(test=test, body=body, orelse=[]):
                self._nested(f"while ({self._condition(test)}) {{", body)
                self._line("}")
            case ast.For(target=ast.Name(id=name), iter=ast.Call() as call, body=body, orelse=[]):
                self._for(name, call, body)
            case ast.Break() | ast.Continue():
                self._line(f"{type(item).__name__.lower()};")
            case ast.Return(value=value):
                self._return(value)
            case _:
                raise Mismatch(f"{type(item).__name__} has no place in native code")

    def _nested(self, header: str, body: Sequence[ast.stmt], first: Sequence[str] = ()) -> None:
        self._line(header)
        self._depth += 1
        self._lines += ["    " * self._depth + line for line in first]
        self._block(body)
        self._depth -= 1

    def _give(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Name):
            self._assign(target.id, self.value(value))
            return
        assert isinstance(target, ast.Tuple), "the source was vetted"
        names = [item.id for item in target.elts if isinstance(item, ast.Name)]
        if isinstance(value, ast.Tuple):
            given = [self.value(item) for item in value.elts]
            read = {n.id for item in value.elts for n in ast.walk(item) if isinstance(n, ast.Name)}
            if not read.isdisjoint(names):  # all values are computed before the first is assigned
                given = [self._held(each) for each in given]
        else:
            held = self._held(self.value(value))
            kinds = parts(held.kind)
            given = [CValue(kind, f"{held.text}.v{k}") for k, kind in enumerate(kinds)]
        for name, each in zip(names, given, strict=True):
            self._assign(name, each)

    def _held(self, value: CValue) -> CValue:
        """The value in a constant of its own."""
        if value.number is not None:
            return value
        name = f"held_{next(self._fresh)}"
        self._line(f"const {c_type(value.kind)} {name} = {value.text};")
        return CValue(value.kind, name)

    def _if(
        self, word: str, test: ast.expr, body: Sequence[ast.stmt], orelse: Sequence[ast.stmt]
    ) -> None:
        known = self._known(test)
        if known is not None and word == "if":  # what does not apply is not even checked
            self._block(body if known else orelse)
            return
        self._nested(f"{word} ({self._condition(test)}) {{", body)
        match orelse:
            case [ast.If(test=inner, body=then, orelse=rest)]:
                self._if("} else if", inner, then, rest)
                return
            case [_, *_]:
                self._nested("} else {", orelse)
        self._line("}")

    def _known(self, test: ast.expr) -> bool | None:
        """The truth of a condition that is a number known in advance."""
        if isinstance(test, ast.Name) and test.id not in self._variables:
            number = self.module.vocabulary.get(test.id)
            return bool(number) if isinstance(number, int) else None
        return None

    def _for(self, name: str, call: ast.Call, body: Sequence[ast.stmt]) -> None:
        """A loop over a range, whose end is computed once and whose body may set the variable."""
        bounds = [converted(self.value(item), INT64) for item in call.args]
        start = bounds[0] if len(bounds) > 1 else constant(0)
        stop, step = bounds[min(1, len(bounds) - 1)], bounds[2] if len(bounds) == 3 else None
        self._widen(name, INT64)
        assigned = {
            n.id for s in body for n in ast.walk(s) if isinstance(n, ast.Name) and _is_set(n)
        }
        alone = name in self._of_loops
        index = _named(name) if alone else f"{_named(name)}_{next(self._fresh)}"
        end = stop.at(_ORDER)
        begin = f"int64_t {index} = {start.text}"
        if stop.number is None and not (stop.text.isidentifier() and stop.text not in assigned):
            begin, end = f"{begin}, {index}_end = {stop.text}", f"{index}_end"
        down = step is not None and step.number is not None and step.number < 0
        forward = f"{index}++" if step is None else f"{index} += {step.text}"
        header = f"for ({begin}; {index} {'>' if down else '<'} {end}; {forward}) {{"
        self._own |= {name} if alone else set()
        self._nested(header, body, [] if alone else [f"{_named(name)} = {index};"])
        self._line("}")

    def _return(self, value: ast.expr | None) -> None:
        if value is None:
            given = constant(0)
        elif isinstance(value, ast.Tuple):
            parts = [self.value(item) for item in value.elts]
            kinds = tuple(part.kind for part in parts)
            kind = several(kinds)
            name = self.module.struct(kind, kinds)
            given = CValue(kind, f"({name}){{{', '.join(part.text for part in parts)}}}")
        else:
            given = self.value(value)
        if given.kind is NOTHING:
            given = CValue(INT64, given.text, given.level)
        if _RETURNED not in self._variables and given.kind != INT64:
            self._variables[_RETURNED] = given.kind
            raise _Wider
        kind = self._widen(_RETURNED, given.kind)
        self._line(f"return {converted(given, kind).text};")

    # --- variables -------------------------------------------------------------------------------

    def _widen(self, name: str, kind: Kind) -> Kind:
        known = self._variables.setdefault(name, kind)
        wider = merged(known, kind)
        if wider != known:
            self._variables[name] = wider
            raise _Wider
        return known

    def _assign(self, name: str, value: CValue) -> None:
        made = converted(value, self._widen(name, value.kind)).text
        if made != _named(name):  # of which clang warns
            self._line(f"{_named(name)} = {made};")

    def _variable(self, name: str) -> CValue:
        kind = self._variables.get(name)
        if kind is not None:
            return CValue(kind, _named(name))
        known = self.module.vocabulary.get(name)
        if not isinstance(known, int):
            raise Mismatch(f"{name} has no value yet")
        return constant(known)

    # --- expressions -----------------------------------------------------------------------------

    def value(self, item: ast.expr) -> CValue:  # noqa: C901, PLR0911 (a case for each expression)
        """The value of an expression."""
        match item:
            case ast.Constant(value=int() | float() as number):
                return constant(number)
            case ast.Name(id=name):
                return self._variable(name)
            case ast.Attribute(value=ast.Name(id="math"), attr=name) if name in _NUMBERS:
                return CValue(FLOAT64, f"(double){_NUMBERS[name]}", _UNARY)
            case ast.BinOp(left=left, op=op, right=right):
                return self._operation(op, self.value(left), self.value(right))
            case ast.UnaryOp(op=op, operand=operand):
                return self._unary(op, operand)
            case ast.Compare(left=left, ops=ops, comparators=rest):
                return self._compare([self.value(each) for each in (left, *rest)], ops)
            case ast.BoolOp(op=op, values=values):
                sign = " && " if isinstance(op, ast.And) else " || "
                parts = [converted(self.value(each), BOOL).at(_LOGIC) for each in values]
                return CValue(BOOL, sign.join(parts), _LOGIC)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                known = self._known(test)
                if known is not None:
                    return self.value(body if known else orelse)
                return self._choice(test, self.value(body), self.value(orelse))
            case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]):
                return self.call(name, [self.value(argument) for argument in arguments])
        raise Mismatch(f"{type(item).__name__} has no place in native code")

    def call(self, name: str, arguments: Sequence[CValue]) -> CValue:
        """A call of a word."""
        word = self.module.vocabulary.get(name)
        if word is None or isinstance(word, int):
            raise Mismatch(f"{name!r} is not in the vocabulary of C")
        if isinstance(word, Routine):
            return self.routine(word.definition, arguments)
        return word(self, arguments)

    def routine(self, called: ast.FunctionDef, arguments: Sequence[CValue]) -> CValue:
        """A call of a function of the source."""
        name, result = self.module.function(called, tuple(each.kind for each in arguments))
        return CValue(result, f"{name}({', '.join(each.text for each in arguments)})")

    def use(self, helper: str) -> str:
        """A helper of the file's head, by its name."""
        self.module.used[helper] = None
        return helper

    def _condition(self, item: ast.expr) -> str:
        return converted(self.value(item), BOOL).text

    def _choice(self, test: ast.expr, left: CValue, right: CValue) -> CValue:
        kind = left.kind if left.kind == right.kind else common(left.kind, right.kind)
        sides = [converted(side, kind).at(_CHOICE) for side in (left, right)]
        condition = converted(self.value(test), BOOL).at(_BITS)
        return CValue(kind, f"{condition} ? {sides[0]} : {sides[1]}", _CHOICE)

    def _operation(self, op: ast.operator, left: CValue, right: CValue) -> CValue:
        if isinstance(op, ast.Pow):
            return self._power(left, right)
        if isinstance(op, ast.LShift | ast.RShift):
            kind = UINT64 if left.kind.form == "int" and not left.kind.signed else INT64
        elif left.kind == right.kind == BOOL and type(op) in _OF_CONDITIONS:
            kind = BOOL
        else:
            kind = common(left.kind, right.kind)
        if isinstance(op, ast.Div) and not kind.is_float:
            kind = FLOAT64
        a, b = (converted(side, kind) for side in (left, right))
        if not kind.is_float:
            return self._whole_operation(op, a, b)
        if isinstance(op, ast.Mod):
            return self.call("float_mod", [a, b])
        if not isinstance(op, ast.Add | ast.Sub | ast.Mult | ast.Div):
            raise Mismatch(f"floats have no {type(op).__name__} in native code")
        return _written(op, a, b)

    def _whole_operation(self, op: ast.operator, a: CValue, b: CValue) -> CValue:
        kind = a.kind
        if isinstance(op, ast.FloorDiv | ast.Mod):
            name = "floor_div" if isinstance(op, ast.FloorDiv) else "floor_mod"
            name = self.use(name if kind.signed else f"u{name}")
            return CValue(kind, f"{name}({a.text}, {b.text})")
        if a.number is not None and b.number is not None and type(op) in _FOLDED:
            made = _FOLDED[type(op)](a.number, b.number)
            if -(1 << 63) <= made < 1 << 63 and kind is INT64:
                return constant(made)
        if isinstance(op, ast.LShift) and kind is INT64:
            moved = f"{_MOVED}{a.at(_UNARY)} << {b.at(_PRODUCT)})"
            return CValue(INT64, moved, _UNARY)
        if isinstance(op, ast.Sub) and a.text.startswith(_MOVED) and b.number is not None:
            # One may have been moved to the sign, and nothing is less than that number.
            return CValue(INT64, f"{self.use('wrap_add')}({a.text}, {-b.number})")
        return _written(op, a, b)

    def _power(self, left: CValue, right: CValue) -> CValue:
        if right.kind.is_float:
            return self.call("pow", [left, right])
        kind = common(left.kind, INT64) if left.kind.is_whole else left.kind
        name = self.use(f"power_{kind.name}")
        return CValue(kind, f"{name}({converted(left, kind).text}, {right.text})")

    def _unary(self, op: ast.unaryop, operand: ast.expr) -> CValue:
        value = self.value(operand)
        if isinstance(op, ast.Not):
            return CValue(BOOL, f"!{converted(value, BOOL).at(_PRODUCT)}", _UNARY)
        if value.number is not None and not isinstance(op, ast.Invert):
            return constant(-value.number if isinstance(op, ast.USub) else value.number)
        kind = value.kind if value.kind.is_float else common(value.kind, value.kind)
        sign = {ast.USub: "-", ast.UAdd: "", ast.Invert: "~"}[type(op)]
        return CValue(kind, f"{sign}{converted(value, kind).at(_UNARY)}", _UNARY)

    def _compare(self, values: Sequence[CValue], ops: Sequence[ast.cmpop]) -> CValue:
        pairs = zip(values, values[1:], ops, strict=False)
        made = [self._compared(_SIGNS[type(op)], left, right) for left, right, op in pairs]
        if len(made) == 1:
            return made[0]
        return CValue(BOOL, " && ".join(each.at(_LOGIC) for each in made), _LOGIC)

    def _compared(self, sign: str, left: CValue, right: CValue) -> CValue:
        if left.kind.is_float or right.kind.is_float:
            kind = common(left.kind, right.kind)
            a, b = (converted(side, kind) for side in (left, right))
            return CValue(BOOL, f"{a.at(_ORDER)} {sign} {b.at(_ORDER)}", _ORDER)
        signed = [side.kind.signed or side.kind is BOOL for side in (left, right)]
        wide = [
            converted(s, INT64 if k else UINT64) for s, k in zip((left, right), signed, strict=True)
        ]
        for place in (0, 1):
            number = wide[place].number
            if signed[0] != signed[1] and signed[place] and number is not None and number >= 0:
                wide[place], signed[place] = CValue(UINT64, f"UINT64_C({number})"), False
        a, b = wide
        if signed[0] == signed[1]:
            return CValue(BOOL, f"{a.at(_ORDER)} {sign} {b.at(_ORDER)}", _ORDER)
        first, second = a.at(_UNARY), b.at(_UNARY)
        low = f"{first} {sign} 0" if signed[0] else f"0 {sign} {second}"
        high = f"(uint64_t){first} {sign} (uint64_t){second}"
        return CValue(BOOL, f"{first if signed[0] else second} < 0 ? {low} : {high}", _CHOICE)


def _written(op: ast.operator, a: CValue, b: CValue) -> CValue:
    """An operation on two numbers of one type."""
    sign, level = _OPERATORS[type(op)]
    if level in {_SHIFT, _BITS}:  # compilers ask for parentheses
        return CValue(a.kind, f"{a.at(_PRODUCT)} {sign} {b.at(_PRODUCT)}", level)
    left = a.text if a.level >= level else f"({a.text})"
    return CValue(a.kind, f"{left} {sign} {b.at(level)}", level)


_OPERATORS: dict[type[ast.operator], tuple[str, int]]
_OPERATORS = {ast.Add: ("+", _SUM), ast.Sub: ("-", _SUM), ast.Mult: ("*", _PRODUCT)}
_OPERATORS |= {ast.Div: ("/", _PRODUCT), ast.LShift: ("<<", _SHIFT), ast.RShift: (">>", _SHIFT)}
_OPERATORS |= {ast.BitAnd: ("&", _BITS), ast.BitOr: ("|", _BITS), ast.BitXor: ("^", _BITS)}
_FOLDED: dict[type[ast.operator], Callable[[int, int], int]]
_FOLDED = {ast.Add: int.__add__, ast.Sub: int.__sub__, ast.Mult: int.__mul__}
_FOLDED |= {ast.BitAnd: int.__and__, ast.BitOr: int.__or__, ast.LShift: int.__lshift__}
_OF_CONDITIONS = {ast.BitAnd, ast.BitOr, ast.BitXor}
_SIGNS: dict[type[ast.cmpop], str] = {ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<="}
_SIGNS |= {ast.Gt: ">", ast.GtE: ">="}


def constant(number: float | int) -> CValue:  # noqa: PYI041 (they are told apart here)
    """A number of the source."""
    if isinstance(number, bool):
        return CValue(BOOL, "true" if number else "false")
    if isinstance(number, float):
        return CValue(FLOAT64, repr(number), _ATOM if number >= 0 else _UNARY)
    if number >= 1 << 63:
        return CValue(UINT64, f"UINT64_C({number})", number=number)
    if number == -(1 << 63):
        return CValue(INT64, "INT64_MIN", number=number)
    plain = str(number) if abs(number) < _WIDEST_PLAIN else f"INT64_C({number})"
    return CValue(INT64, plain, _ATOM if number >= 0 else _UNARY, number)


def converted(value: CValue, kind: Kind) -> CValue:
    """The value in another type, as C converts it."""
    own = value.kind
    if own == kind or own is NOTHING:
        return value._replace(kind=kind)
    if "several" in (own.form, kind.form):
        raise Mismatch(f"{own.name} is no {kind.name}")
    if kind is BOOL:
        return CValue(BOOL, f"{value.at(_ORDER)} != 0", _ORDER)
    if value.number is not None and kind is INT64:
        return value._replace(kind=kind)
    if value.number is not None and kind.is_float and abs(value.number) < _EXACT:
        return CValue(kind, f"{value.number}.0{'f' * (kind is FLOAT32)}", value.level)
    if own is BOOL and kind is INT64 and value.level == _ATOM:
        return CValue(kind, f"(int64_t){value.text}", _UNARY)
    return CValue(kind, f"({c_type(kind)}){value.at(_UNARY)}", _UNARY)


def _named(name: str) -> str:
    """A name of the source that is none of C's words."""
    return f"{name}_" if name in _TAKEN else name


_TAKEN = KEYWORDS | {"index", "y0", "y1", "j0", "j1", "jn", "yn", "gamma", "log", "exp", "pow"}


def _is_set(item: ast.Name) -> bool:
    return isinstance(item.ctx, ast.Store)


def _of_loops(definition: ast.FunctionDef) -> set[str]:
    """Variables that loops set, and nothing else, and that are read inside these loops only."""
    uses = Counter(n.id for n in ast.walk(definition) if isinstance(n, ast.Name))
    inside = Counter[str]()
    for loop in ast.walk(definition):
        if isinstance(loop, ast.For) and isinstance(loop.target, ast.Name):
            body = (n for each in loop.body for n in ast.walk(each) if isinstance(n, ast.Name))
            name = loop.target.id
            inside[name] += 1 + sum(n.id == name and not _is_set(n) for n in body)
    return {name for name, number in inside.items() if number == uses[name]}
