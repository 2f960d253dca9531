"""The meaning of names in a pickle, as data: nothing is imported, and nothing of it is called.

Names of numpy that are types or functions of arrays are these; `MAKERS` has what is called to make
data of the standard library and of numpy. Any other name is a `Global`, and an object of it is a
`StandIn`, whose attributes are its state.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import chain
from typing import Any, TypeGuard

import numpy as np

from flour.pickles import arrays
from flour.pickles.standins import Damaged, Global, StandIn, Unfinished, class_of

_LARGEST_KEY = 1 << 64
_DEEPEST_KEY = 8
#: How deep lists, tuples, mappings and sets may hold one another.
_DEEPEST_NEST = 100
_Nest = Collection[Any] | arrays.Array
_NESTS = (list, tuple, dict, set, frozenset)


class World:
    """Answers a machine's questions about names; `size` bytes of a file allow so much copying."""

    def __init__(self, size: int, met: Callable[[str], object]) -> None:
        """`met` is called with the name of each module."""
        self._budget, self._met = 8 * size + (1 << 16), met
        self._names: dict[tuple[str, str], Any] = {}
        self._classes: dict[Global, type[StandIn]] = {}
        self._objects: list[StandIn] = []

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
                return self._reconstructed(*arguments)
            if arguments and isinstance(arguments[0], Global):
                if kind.name.startswith("__pyx_unpickle_"):
                    return self._of_cython(*arguments)
                if kind.name == "newObj":
                    return self.new(arguments[0])
            return self.new(kind, arguments, named)
        if isinstance(kind, type) and (maker := _TYPES.get(kind)) is not None:
            return maker(self, *arguments)
        raise Damaged(f"a {type(kind).__name__} is called")

    def _reconstructed(self, kind: object, base: object, state: object) -> Any:
        """An object of a class that is also a tuple, a list or a mapping, as `base` says."""
        if not isinstance(kind, Global):
            return self.call(kind, ())
        if base in (tuple, list, dict) and type(state) is not base:
            raise Damaged(f"a {base} is made of a {type(state).__name__}")
        found = self.new(kind, state if base is tuple else ())
        if base is list:
            self.extend(found, _listed(self, state))
        elif base is dict:
            found.update(state)
        return found

    def new(self, kind: Global, arguments: Any = (), named: Any = None) -> StandIn:
        """An object of a class, or what a function makes, that is not known here."""
        if kind not in self._classes:
            self._classes[kind] = class_of(kind)
        found = object.__new__(self._classes[kind])
        found.begin(arguments, named or {})
        self._objects.append(found)
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

    def whole(self, found: object) -> Any:
        """The object of a file, once its lists and mappings are neither deep nor huge unfolded.

        One that is in several places counts there each time, as whoever goes through them meets it.
        """
        roots = chain([found], *(vars(each).values() for each in self._objects))
        level = {id(each): (each, 1) for each in roots if _holds(each)}
        for _ in range(_DEEPEST_NEST):
            if not level:
                return found
            self.pay(sum(_length(nest) * times for nest, times in level.values()))
            deeper: dict[int, tuple[_Nest, int]] = {}
            for nest, times in level.values():
                for part in filter(_holds, _parts(nest)):
                    _, others = deeper.get(id(part), (part, 0))
                    deeper[id(part)] = part, others + times
            level = deeper
        raise Damaged("lists within lists are nested too deeply")

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


def _holds(value: object) -> TypeGuard[_Nest]:
    """Return whether a value is a list, a mapping or the like of others."""
    return value.dtype.hasobject if isinstance(value, np.ndarray) else isinstance(value, _NESTS)


def _length(nest: _Nest) -> int:
    return nest.size if isinstance(nest, np.ndarray) else len(nest)


def _parts(nest: _Nest) -> Iterable[Any]:
    if isinstance(nest, dict):
        return chain(nest, nest.values())
    return nest.flat if isinstance(nest, np.ndarray) else iter(nest)


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


def _listed(world: World, values: object = ()) -> list[Any]:
    if not isinstance(values, list | tuple | set | frozenset | dict):
        raise Damaged(f"a list is made of a {type(values).__name__}")
    world.pay(len(values))
    return [*values]


def _pairs(world: World, values: object = ()) -> dict[Any, Any]:
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


_OBJECT = Global("builtins", "object")
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
    object: lambda world: world.new(_OBJECT),
    complex: lambda _, real=0.0, imaginary=0.0: complex(float(real), float(imaginary)),
}


def _by_value(_: World, code: StandIn, names: dict[str, object], *__: object) -> Global:
    """The name of a function that cloudpickle has written out: its code is not read."""
    texts = [each for each in vars(code)["_arguments"] if isinstance(each, str)]
    return Global(str(names.get("__name__", "__main__")), texts[1])


def _class_by_value(
    _: World, __: object, name: object, ___: object, how: dict[str, object], *____: object
) -> Global:
    return Global(str(how.get("__module__", "__main__")), str(name))


#: Functions that are called, by module and name -> what they make.
MAKERS: dict[tuple[str, str], Callable[..., Any]] = {
    ("_codecs", "encode"): _bytes,
    ("cloudpickle.cloudpickle", "_builtin_type"): lambda _, name: Global("types", str(name)),
    ("cloudpickle.cloudpickle", "_make_function"): _by_value,
    ("cloudpickle.cloudpickle", "_make_skeleton_class"): _class_by_value,
    ("collections", "defaultdict"): _default,
    **arrays.makers(),
}
