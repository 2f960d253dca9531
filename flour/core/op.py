"""The contract every operator fulfils.

An operator is one class in one place: its parameters are annotated fields, `infer` is its type
rule, `reference` its meaning in numpy, and `emit` (one row) or `kernel` (a block of rows) writes
its native code. The facts the optimiser may rely on are class attributes. Defining the class
registers it; nothing else has to be told.

    class Subtract(Elementwise):
        offset: Array                                   # a content-addressed parameter
        def reference(self, x): return x - self.offset.array
        def element(self, e, j, x): return f"({x} - {e.at(self.offset, j)})"

Fields are canonicalised by their annotation: `Array` takes anything array-like, `Long` too (and
keeps what is long in pieces: see flour/core/chunked_array.py), `Arrays` a sequence of arrays,
`Table` a sequence of strings, `Tables` a sequence of those; ints, floats, bools, strings and tuples
of them are part of the operator's identity as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from functools import lru_cache
from inspect import get_annotations
from math import isfinite
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, TypeVar, get_args

import numpy as np
from numpy.typing import NDArray

from flour.core.callables import Function
from flour.core.callables import found as found_function
from flour.core.chunked_array import Pieces, in_pieces
from flour.core.errors import DamagedProgram, FlourError, ParameterError, nearest
from flour.core.modules import load_operator
from flour.core.raw_columns import Made, merged, merged_all
from flour.core.types import ANYTHING, Extent, Type, extent_of, union
from objectstore import Blob, StoreError, Strings, combine

if TYPE_CHECKING:
    from typing_extensions import Self  # Python 3.11 has it

    from flour.core.emission import Column, Emitter, Value

#: A flow, whose class is the language's: what an operator is applied to, and what comes of it.
Program = TypeVar("Program")
Array: TypeAlias = Blob
Arrays: TypeAlias = tuple[Blob, ...]
Table: TypeAlias = Strings
Tables: TypeAlias = tuple[Strings, ...]
Parameter: TypeAlias = Blob | Strings
# What travels between operators in the reference interpreter: an ndarray, a Sparse, a list of
# token lists, or a dict of columns. The type rule says which, so `reference` need not check.
Columns: TypeAlias = Any

REGISTRY: dict[str, type[Op]] = {}
#: Applies an operator to flows: flour/language/flow.py, which knows them, puts its `apply` here.
appliers: list[Callable[..., Any]] = []


class Arity(Enum):
    """The number of output values that one input value meets."""

    ONE_TO_ONE = "one-to-one"
    ONE_TO_MANY = "one-to-many"
    AGGREGATE = "aggregate"


class Bound(Enum):
    """The limit of an operator: touching memory, or computing on what it touched."""

    MEMORY = "memory"
    COMPUTE = "compute"


class Op:
    """The base of all operators; see the module for how to write one."""

    arity: ClassVar[Arity] = Arity.ONE_TO_ONE
    bound: ClassVar[Bound] = Bound.MEMORY
    #: `reference` and `emit` take sparse inputs as they are (else they are given dense ones).
    takes_sparse: ClassVar[bool] = False
    #: f(0) == 0 whatever the parameters: may run over the stored values of a sparse vector only.
    keeps_zero: ClassVar[bool] = False
    associative: ClassVar[bool] = False
    commutative: ClassVar[bool] = False
    #: Non-decreasing in its input, column by column (what threshold pull-back relies on).
    monotone: ClassVar[bool] = False
    #: Between -b and b, no result is larger in magnitude than those for b and -b, nor NaN if they
    #: are numbers. True of what is monotone, which need not say so.
    widest_at_ends: ClassVar[bool] = False

    #: The answer jumps where its input reaches a fitted value: a rounding ahead of it is not small.
    cuts: ClassVar[bool] = False

    #: Column j of the answer is made of the columns j of its inputs, and of nothing else.
    by_column: ClassVar[bool] = False
    #: The answer says in another form what its input says, as a probability does of a score.
    restates: ClassVar[bool] = False
    #: Computing it can be an error for some rows, whatever its parameters are.
    refuses: ClassVar[bool] = False
    #: It moves values, and computes their complement or their width at most.
    moves: ClassVar[bool] = False
    #: The values are those of its input.
    same_values: ClassVar[bool] = False
    #: Its numbers are counts: whole, and not negative.
    counting: ClassVar[bool] = False
    #: The fields that its numbers are entries of.
    answers: ClassVar[tuple[str, ...]] = ()
    #: For finite numbers, its own are no larger in magnitude than this, nor NaN.
    largest_result: ClassVar[float] = np.inf

    #: It depends on what Python knows of characters, which is a version of Unicode.
    reads_characters: ClassVar[bool] = False

    #: Native code has the strings it makes in memory of its own, for those who read them there.
    makes_strings: ClassVar[bool] = False

    #: Fields that are no part of the digest where they are empty: programs before had none.
    later: ClassVar[tuple[str, ...]] = ()

    #: It knows its type although those of its inputs are known only when a graph is linked.
    takes_later: ClassVar[bool] = False

    #: Who runs it where there is no native code, for `explain`.
    runs_on: ClassVar[str] = "python"

    name: ClassVar[str] = "Op"
    #: The fluent method's name; None for the class name in snake_case, "" for no method.
    method: ClassVar[str | None] = None
    _fields: ClassVar[Mapping[str, str]] = {}
    _defaults: ClassVar[Mapping[str, object]] = {}

    digest: str

    def __init_subclass__(cls, *, abstract: bool = False, **facts: object) -> None:
        """Register the class; `facts` are class attributes, for one that says nothing else."""
        for fact, value in facts.items():
            setattr(cls, fact, value)
        spelt = {key: _spelt(kind) for key, kind in get_annotations(cls).items()}
        own = {key: kind for key, kind in spelt.items() if not kind.startswith("ClassVar")}
        cls._fields = {**cls._fields, **own}
        found = {k: cls.__dict__[k] for k in own if k in cls.__dict__}
        cls._defaults = {**cls._defaults, **found}
        if abstract:
            return
        cls.name = cls.__name__
        if not belongs_to_flour(cls.__module__):
            load_operator(cls.name)  # so that ours of this name is found now, not later
        other = REGISTRY.get(cls.name)
        if other is not None and other.__module__ != cls.__module__:
            raise ParameterError(
                f"two operators are called {cls.name}",
                found=f"{other.__module__} and {cls.__module__}",
            )
        REGISTRY[cls.name] = cls

    def __init__(self, *values: object, **fields: object) -> None:
        if len(values) > len(self._fields):
            raise ParameterError(f"{self.name} takes {len(self._fields)} parameters")
        given = {**self._defaults, **dict(zip(self._fields, values, strict=False)), **fields}
        if given.keys() != self._fields.keys():
            if missing := [key for key in self._fields if key not in given]:
                hint = self.signature()
                raise ParameterError(f"{self.name} needs {', '.join(missing)}", hint=hint)
            unknown = [key for key in given if key not in self._fields]
            raise ParameterError(
                f"{self.name} has no parameter {', '.join(unknown)}",
                hint=nearest(unknown[0], self._fields) or self.signature(),
            )
        for key, kind in self._fields.items():
            object.__setattr__(self, key, self._canonical(key, kind, given[key]))
        self.check()
        object.__setattr__(self, "digest", combine(self.name, *self.digested()))

    def _canonical(self, key: str, kind: str, value: object) -> object:
        try:
            return _CANONICAL.get(kind, _plain)(value)
        except (StoreError, TypeError, ValueError, OverflowError) as problem:
            said = getattr(problem, "what", None) or str(problem)
            hint = getattr(problem, "hint", None) or self.signature()
            raise ParameterError(
                f"{self.name} cannot use this as {key}: {said}", found=_short(value), hint=hint
            ) from problem

    def __setattr__(self, key: str, value: object) -> None:
        raise AttributeError(f"{self.name} is immutable; make a new one with replace({key}=...)")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Op) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        fields = (f"{key}={_short(getattr(self, key))}" for key in self._fields)
        return f"{self.name}({', '.join(fields)})"

    def __call__(self, *inputs: Program) -> Program:
        """Apply this operator to flows (the fluent methods do the same)."""
        made: Program = appliers[-1](self, *inputs)
        return made

    def replace(self, **fields: object) -> Self:
        """This operator with some parameters changed."""
        return type(self)(**{**self.fields(), **fields})

    def digested(self) -> list[str]:
        """The parts of its digest, besides its name."""
        kept = [v for k, v in self.fields().items() if k not in self.later or len(v)]
        return list(map(_part, kept))

    def fields(self) -> dict[str, Any]:
        """The parameters by name, canonicalised."""
        return {key: getattr(self, key) for key in self._fields}

    def parameters(self) -> Iterator[Parameter]:
        """Every array and string table this operator refers to."""
        for value in self.fields().values():
            for item in _items(value):
                if isinstance(item, Blob | Strings):
                    yield item

    @classmethod
    def signature(cls) -> str:
        """The call that makes this operator, for messages and docs."""
        return f"{cls.name}({', '.join(cls._fields)})"

    @classmethod
    def summary(cls) -> str:
        """The first sentence of the operator's description."""
        return f"{cls.name}: " + " ".join((cls.__doc__ or "").split("\n\n")[0].split())

    # --- what an operator defines -----------------------------------------------------------

    def check(self) -> None:
        """Raise ParameterError where the parameters make no sense (default: they do)."""

    def infer(self, *inputs: Any) -> Type:
        """The output type for these input types, or TypeMismatch."""
        raise NotImplementedError(f"{self.name}.infer")

    def reference(self, *inputs: Columns) -> Columns:
        """The operator's meaning, on whole columns, in numpy."""
        raise NotImplementedError(f"{self.name}.reference")

    def emit(self, e: Emitter, *inputs: Any) -> Value:
        """Native code for one row of a fused stage."""
        raise NotImplementedError(f"{self.name}.emit")

    def kernel(self, e: Emitter, inputs: tuple[Column, ...], out: Column) -> None:
        """Native code for a block of rows in a stage of its own."""
        raise NotImplementedError(f"{self.name}.kernel")

    @classmethod
    def has_emit(cls) -> bool:
        """True if one row of this operator can be native code."""
        return cls.emit is not Op.emit

    @classmethod
    def has_kernel(cls) -> bool:
        """True if a block of rows of this operator can be native code."""
        return cls.kernel is not Op.kernel

    def made_of(self, width: int, made: Sequence[Made], kinds: Sequence[Type]) -> Made:
        """The raw column of the program that each of its `width` columns is made of.

        `made` says the same of the inputs, whose types are `kinds`.
        """
        found = merged(*made) if self.by_column else np.full(1, merged_all(*made))
        return np.broadcast_to(found, width)

    def pull(
        self, weights: NDArray[np.float64], *inputs: Type
    ) -> Sequence[NDArray[np.float64]] | None:
        """The weights of its inputs' columns in weighted sums of its own; None: it is not linear.

        Weights are a row for each sum. What it adds, whatever its inputs are, is not counted.
        """
        return [weights] if self.same_values else None

    def extent(self, inputs: Sequence[Extent], kinds: Sequence[Type]) -> Extent:
        """The extent of its floats, from those of its inputs, whose types are `kinds`.

        An operator that does not say may make NaN and infinity of any number.
        """
        if self.counting:
            return Extent(nan=False, largest=1e20, counts=True)
        if self.answers:
            return union([extent_of(getattr(self, key).array) for key in self.answers])
        if isfinite(self.largest_result):
            return Extent(not all(each.finite for each in inputs), self.largest_result)
        return union(inputs) if self.same_values or self.moves else ANYTHING

    def refuses_rows(self) -> bool:
        """True if computing it can be an error for some rows (a category never seen, NaN)."""
        return self.refuses

    def cuts_behind(self, *sources: Op) -> bool:
        """True if it cuts at fitted values where these operators made its inputs."""
        return self.cuts

    def mixes_rows(self) -> bool:
        """True if an answer depends on other rows: a block is then never cut, nor put together."""
        return False

    def held_bytes(self) -> int:
        """About how much memory it holds once it has run, besides its parameters."""
        return 0

    def release(self) -> None:
        """Give that memory back until it runs again."""

    def runs_native(self) -> bool:
        """True if these very parameters can be native code, where the operator can."""
        return True

    def remark(self) -> str:
        """A remark on how these very parameters run, in few words."""
        return ""

    def wants_kernel(self, *inputs: Type) -> bool:
        """True if to stand alone as a kernel rather than be fused, for these input types."""
        return self.has_kernel() and (self.bound is Bound.COMPUTE or not self.has_emit())


def belongs_to_flour(module: str) -> bool:
    """True if a module is one of this package."""
    return module.startswith("flour.")


def operator(name: str) -> type[Op] | None:
    """The class of the operator of this name, imported if it is one of ours.

    Its own module is imported first, and every module where the index does not know it.
    """
    for wanted in (name, ""):
        if name not in REGISTRY:
            load_operator(wanted)
    return REGISTRY.get(name)


def ours(name: str) -> type[Op]:
    """The class of an operator that this package has."""
    kind = REGISTRY.get(name) or operator(name)
    assert kind is not None, f"no operator is called {name}"
    return kind


def _spelt(annotation: Any) -> str:
    """An annotation as it is written, also in a file that does not keep annotations as text."""
    if isinstance(annotation, str):
        return annotation
    for name, kind in (("Array", Array), ("Arrays", Arrays), ("Table", Table), ("Tables", Tables)):
        if annotation == kind:
            return name
    plain = isinstance(annotation, type) and not get_args(annotation)
    return annotation.__name__ if plain else str(annotation).removeprefix("typing.")


def _plain(value: object) -> object:
    """A static field: a number, bool, string, None, or a tuple of them."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, list | tuple):
        return tuple(_plain(item) for item in value)
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, Op | Type | Function):
        return value
    raise ParameterError(
        f"a static parameter is a number, a string or a tuple, not {type(value).__name__}"
    )


def _items(value: object) -> tuple[object, ...]:
    """The parts of a field."""
    if isinstance(value, Pieces):
        return value.parts
    return value if isinstance(value, tuple) else (value,)


#: Numbers, such as thresholds of zero, that every import makes again.
_number = lru_cache(256)(lambda digits: Blob.of(float.fromhex(digits)))


def _array(value: Any) -> Blob:
    if isinstance(value, Blob):
        return value
    return _number(value.hex()) if type(value) is float and isfinite(value) else Blob.of(value)


def _table(value: Any) -> Strings:
    return value if isinstance(value, Strings) else Strings.of(value)


def _text(value: object) -> str:
    """A string: static ones become part of emitted code, so nothing may pass for one."""
    if not isinstance(value, str):
        raise ParameterError(f"a string is needed, not {type(value).__name__}")
    return str(value)


def _texts(values: Any) -> tuple[str, ...]:
    if isinstance(values, str) or not isinstance(values, Sequence):
        raise ParameterError("several strings are needed", found=repr(values)[:80])
    return tuple(_text(value) for value in values)


_CANONICAL: dict[str, Callable[[Any], object]] = {
    "Array": _array,
    "Arrays": lambda values: tuple(map(_array, values)),
    "Long": in_pieces,
    "Table": _table,
    "Tables": lambda tables: tuple(map(_table, tables)),
    "float": float,
    "int": int,
    "bool": bool,
    "str": _text,
    "tuple[str, ...]": _texts,
}


def _part(value: object) -> str:
    """One field's contribution to the digest; kinds are told apart, floats are exact."""
    match value:
        case Blob() | Pieces() | Strings():
            return f"{type(value).__name__}:{value.digest}"
        case Op():
            return f"op:{value.digest}"
        case float():
            return f"float:{value.hex()}"
        case tuple():
            return "(" + ",".join(_part(item) for item in value) + ")"
        case _:
            return f"{type(value).__name__}:{value!r}"


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 48 else text[:45] + "..."


# --- operators as data ------------------------------------------------------------------------


def to_data(op: Op) -> list[Any]:
    """An operator as plain JSON data: its parameters by digest, and its module if not ours."""
    module = type(op).__module__
    outside = [] if belongs_to_flour(module) else [module]
    return [op.name, {key: _field_data(value) for key, value in op.fields().items()}, *outside]


def _field_data(value: object) -> object:  # noqa: PLR0911 (one for each kind)
    match value:
        case Blob() | Strings():
            return {"parameter": value.digest}
        case Op():
            return {"op": to_data(value)}
        case Function():
            return {"function": value.saved()}
        case float():
            return {"float": value.hex()}
        case Pieces() | tuple():
            return [_field_data(item) for item in _items(value)]
        case _ if isinstance(value, Type):
            from flour.core.types import to_data as type_data

            return {"type": type_data(value)}
    return value


def from_data(data: object, find: Callable[[str], Parameter]) -> Op:
    """The operator described by `to_data`, its parameters looked up with `find`."""
    match data:
        case [str(name), dict(fields), *_] if (kind := operator(name)) is not None:
            values = {key: _field_value(value, find) for key, value in fields.items()}
            try:
                return kind(**values)
            except (FlourError, StoreError, TypeError, ValueError, OverflowError) as problem:
                raise DamagedProgram(f"{name} cannot be made", found=str(problem)[:200]) from None
        case [str(name), dict(), str(module)]:
            raise DamagedProgram(
                f"the operator {name[:80]} is not known here",
                found=f"it is defined in {module[:200]}, which is not imported",
                hint=f"import {module[:200]} before this plan is loaded; loading runs no code",
            )
    raise DamagedProgram("this is not an operator", found=repr(data)[:80])


def _field_value(  # noqa: PLR0911 (one for each kind)
    value: object, find: Callable[[str], Parameter]
) -> object:
    match value:
        case {"parameter": str(digest)}:
            return find(digest)
        case {"op": data}:
            return from_data(data, find)
        case {"float": str(text)}:
            try:
                return float.fromhex(text)
            except (ValueError, OverflowError):
                raise DamagedProgram("this is not a float", found=text[:80]) from None
        case {"function": str(place)}:
            return found_function(place)
        case {"type": data}:
            from flour.core.types import from_data as type_from_data

            return type_from_data(data)
        case list():
            return tuple(_field_value(item, find) for item in value)
        case None | bool() | int() | str():
            return value
    raise DamagedProgram("this is not a parameter", found=repr(value)[:80])
