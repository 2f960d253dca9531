"""The meaning of names in a pickle, as data: nothing is imported, and nothing of it is called.

Names of numpy that are types or functions of arrays are these; `MAKERS` has what is called to make
data of the standard library and of numpy. Any other name is a `Global`, and an object of it is a
`StandIn`, whose attributes are its state.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from flour.pickles import arrays
from flour.pickles.standins import Damaged, Global, StandIn, Unfinished, class_of

_LARGEST_KEY = 1 << 64
_DEEPEST_KEY = 8


class World:
    """Answers a machine's questions about names; `size` bytes of a file allow so much copying."""

    def __init__(self, size: int, met: Callable[[str], object]) -> None:
        """`met` is called with the name of each module."""
        self._budget, self._met = 8 * size + (1 << 16), met
        self._names: dict[tuple[str, str], Any] = {}
        self._classes: dict[Global, type[StandIn]] = {}

    def pay(self, items: int) -> None:
        """Account for a copy of so many items."""
        self._budget -= items
        if self._budget < 0:
            raise Damaged("the file copies the same values over and over")

    # --- names ------------------------------------------------------------------------------------

    def named(self, module: str, name: str) -> Any:
        """A type or function of numpy or Python that is data, else a `Global`."""
        key = module, name
        if key not in self._names:
            self._met(module)
            self._names[key] = arrays.named(module, name) or _PLAIN.get(key) or Global(module, name)
        return self._names[key]

    def call(self, kind: object, arguments: object, named: object = None) -> Any:
        """The object that a name makes of arguments."""
        if not isinstance(arguments, tuple) or not isinstance(named, dict | None):
            raise Damaged("arguments are no tuple")
        self.pay(len(arguments))
        if isinstance(kind, Global):
            key = kind.module, kind.name
            if (maker := MAKERS.get(key)) is not None:
                return maker(self, *arguments)
            if kind.name == "_reconstructor" and kind.module in ("copyreg", "copy_reg"):
                kind, _, _ = arguments
                return self.new(kind) if isinstance(kind, Global) else self.call(kind, ())
            if arguments and isinstance(arguments[0], Global):
                if kind.name.startswith("__pyx_unpickle_"):
                    return self._of_cython(*arguments)
                if kind.name == "newObj":
                    return self.new(arguments[0])
            return self.new(kind, arguments, named)
        if isinstance(kind, type) and (maker := _TYPES.get(kind)) is not None:
            return maker(self, *arguments)
        raise Damaged(f"a {type(kind).__name__} is called")

    def new(self, kind: Global, arguments: Any = (), named: Any = None) -> StandIn:
        """An object of a class, or what a function makes, that is not known here."""
        if kind not in self._classes:
            self._classes[kind] = class_of(kind)
        found = object.__new__(self._classes[kind])
        found.begin(arguments, named or {})
        return found

    def _of_cython(self, kind: Global, checksum: object, *state: object) -> StandIn:
        found = self.new(kind)
        for each in state:
            if each is not None:
                self.build(found, each)
        return found

    # --- state ------------------------------------------------------------------------------------

    def is_pending(self, value: object) -> bool:
        """True if a BUILD replaces this object."""
        return type(value) is Unfinished

    def settled(self, value: object) -> Any:
        """An object that has its state."""
        if type(value) is Unfinished:
            raise Damaged("an array has no values")
        return value

    def build(self, value: object, state: object) -> Any:
        """The object with its state; another one for arrays."""
        if type(value) is Unfinished:
            return value.made(state)
        if isinstance(value, StandIn):
            self.pay(len(state) if hasattr(state, "__len__") else 1)
            value.build(state)
            return value.finished()
        if isinstance(value, np.random.RandomState | OrderedDict | defaultdict):
            return value
        raise Damaged(f"a {type(value).__name__} gets a state")

    # --- containers -------------------------------------------------------------------------------

    def keys(self, values: Sequence[Any], depth: int = 0) -> Sequence[Any]:
        """Values that may be keys: their hashes neither collide by design nor recurse far."""
        for value in values:
            kind = type(value)
            if kind is int and not -_LARGEST_KEY < value < _LARGEST_KEY:
                raise Damaged("a key is a huge number")
            if kind is tuple:
                if depth > _DEEPEST_KEY:
                    raise Damaged("a key is nested too deeply")
                self.pay(len(value))
                self.keys(value, depth + 1)
            elif not issubclass(kind, _KEYS):
                raise Damaged(f"a {kind.__name__} is a key")
        return values

    def extend(self, target: object, values: list[Any]) -> None:
        """Append to a list."""
        if not isinstance(target, list | StandIn):
            raise Damaged(f"a {type(target).__name__} is appended to")
        target.extend(values)

    def update(self, target: object, values: list[Any]) -> Any:
        """Set items of a mapping."""
        if not isinstance(target, dict | StandIn) or len(values) % 2:
            raise Damaged(f"items of a {type(target).__name__} are set")
        target.update(zip(self.keys(values[::2]), values[1::2], strict=True))
        return target

    def add(self, target: object, values: list[Any]) -> None:
        """Add to a set."""
        if not isinstance(target, set):
            raise Damaged(f"a {type(target).__name__} is added to")
        target.update(self.keys(values))


_KEYS = (
    *(str, int, float, bool, bytes, complex, type(None), frozenset, type),
    *(np.generic, Global, StandIn),
)
_PLAIN: dict[tuple[str, str], Any] = {
    (module, kind.__name__): kind
    for module in ("builtins", "__builtin__")
    for kind in (
        *(int, float, str, bool, bytes, bytearray, complex, object, list, dict, tuple, set),
        *(frozenset, slice, range, type(None), type(NotImplemented)),
    )
}
_PLAIN[("__builtin__", "unicode")] = str
_PLAIN[("collections", "OrderedDict")] = OrderedDict


def _listed(world: World, values: Any = ()) -> list[Any]:
    if not isinstance(values, list | tuple | set | frozenset | dict):
        raise Damaged(f"a list is made of a {type(values).__name__}")
    world.pay(len(values))
    return [*values]


def _pairs(world: World, values: Any = ()) -> dict[Any, Any]:
    pairs = [_listed(world, pair) for pair in _listed(world, values)]
    world.keys([key for key, _ in pairs])
    return dict(map(tuple, pairs))


def _bytes(world: World, value: object = b"", encoding: str = "latin-1") -> bytes:
    if isinstance(value, str):
        world.pay(len(value))
        return value.encode("latin-1" if encoding == "latin1" else encoding)
    return bytes(_listed(world, value)) if not isinstance(value, bytes) else value


def _integers(kind: Callable[..., Any]) -> Callable[..., Any]:
    def make(_: World, *bounds: object) -> Any:
        if not all(isinstance(each, int | str | None) for each in bounds):
            raise Damaged("a bound is no number")
        return kind(*bounds)

    return make


def _default(_: World, factory: object = None) -> Any:
    return defaultdict(factory if factory in (list, dict, int, float, set) else None)


#: Types that are called -> what makes such a value of checked arguments.
_TYPES: dict[type, Callable[..., Any]] = {
    list: _listed,
    tuple: lambda world, values=(): tuple(_listed(world, values)),
    set: lambda world, values=(): {*world.keys(_listed(world, values))},
    frozenset: lambda world, values=(): frozenset(world.keys(_listed(world, values))),
    dict: _pairs,
    OrderedDict: lambda world, values=(): OrderedDict(_pairs(world, values)),
    bytes: _bytes,
    bytearray: lambda world, *given: bytearray(_bytes(world, *given)),
    slice: _integers(slice),
    range: _integers(range),
    object: lambda _: StandIn(),
    complex: lambda _, real=0.0, imaginary=0.0: complex(float(real), float(imaginary)),
}
#: Functions that are called, by module and name -> what they make.
MAKERS: dict[tuple[str, str], Callable[..., Any]] = {
    ("_codecs", "encode"): _bytes,
    ("collections", "defaultdict"): _default,
    **arrays.makers(),
}
