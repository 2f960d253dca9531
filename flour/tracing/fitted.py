"""What an importer reads of a fitted object: numbers that may differ, and all else, which may not.

    recorder = Recorder(estimator, trace)
    adapter(recorder.root)              # a copy; each attribute that is read is recorded
    reading = recorder.reading()
    reading.of(another)                 # the same attributes of another: Parts, or None
    reading.restored(parts)             # an object that has these attributes and no others

Fitted numbers (arrays and scalars of float32 and float64) are handed out as traced arrays. All else
that is read is a constant: a template holds for objects that have equal ones, types included. An
attribute that is never read may be anything. A value of a kind that is not understood here breaks
the trace.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from functools import lru_cache
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from flour.tracing.traced_array import ArrayTrace

#: Classes whose objects are looked into are of this package.
_PACKAGE = "sklearn."
#: Objects of more parts than this are not compared: forests have hundreds of trees.
MOST_OBJECTS = 64
#: Nor are those where so many values have to be looked at: a list may be inside itself.
MOST_VALUES = 1 << 14
_ABSENT = object()
_PLAIN = frozenset({str, int, bool, bytes, type(None)})
_FLOATS = frozenset({np.float64, np.float32})
_CONTAINERS = frozenset({list, tuple, dict})
_LEAVES = frozenset({*_PLAIN, *_FLOATS, float, dict, np.ndarray})


class UnreadableError(Exception):
    """A value of a kind that is not understood here."""


class Access(NamedTuple):
    """One attribute of an object, or one item of a container, that was read."""

    #: Which access made its owner; 0 is the fitted object itself, the first access makes 1.
    owner: int
    name: Any
    item: bool
    kind: str


class Parts(NamedTuple):
    """A fitted object taken apart: what has to be equal, and what may differ."""

    constants: tuple[Any, ...]
    numbers: list[NDArray[Any]]


class Reading(NamedTuple):
    """Which attributes are read, in order."""

    accesses: tuple[Access, ...]

    def of(self, root: object) -> Parts | None:
        """These attributes of an object; None where it has others, or values of other kinds."""
        slots: list[Any] = [root]
        constants: list[Any] = [type(root)]
        numbers = list[NDArray[Any]]()
        try:
            for owner, name, item, kind in self.accesses:
                above = slots[owner]
                value = above[name] if item else vars(above).get(name, _ABSENT)
                found, constant = classified(value)
                if found != kind:
                    return None
                slots.append(value)
                constants.append(constant)
                if kind == "numbers":
                    numbers.append(value)
        except (UnreadableError, LookupError, TypeError):
            return None
        return Parts(tuple(constants), numbers)

    def values(self, root: object) -> list[Any]:
        """A copy of each constant, by access, to restore other objects with."""
        slots: list[Any] = [root]
        for owner, name, item, _ in self.accesses:
            above = slots[owner]
            slots.append(above[name] if item else vars(above).get(name, _ABSENT))
        kinds = [access.kind for access in self.accesses]
        copied = [
            deepcopy(value) if kind == "constant" else type(value)
            for value, kind in zip(slots[1:], kinds, strict=True)
        ]
        return [type(root), *copied]

    def restored(self, values: Sequence[Any], numbers: Sequence[NDArray[Any]]) -> Any:
        """An object with these attributes and no others."""
        below = dict[int, list[tuple[Access, int]]]()
        for place, access in enumerate(self.accesses, 1):
            below.setdefault(access.owner, []).append((access, place))
        rest = iter(numbers)
        arrays = {
            n: next(rest) for n, access in enumerate(self.accesses, 1) if access.kind == "numbers"
        }

        def made(place: int, kind: str) -> Any:
            if kind == "constant":
                return values[place]
            if kind == "numbers":
                return arrays[place]
            inside = {
                access.name: made(n, access.kind)
                for access, n in below.get(place, ())
                if access.kind != "absent"
            }
            if kind == "object":
                found = object.__new__(values[place])
                vars(found).update(inside)
                return found
            return inside if values[place] is dict else _filled(values[place], [*inside.values()])

        return made(0, "object")


# --- telling values apart -----------------------------------------------------------------------


def classified(value: Any) -> tuple[str, Any]:
    """The kind of a value, and what has to be equal where another takes its place."""
    kind = type(value)
    if kind in _FLOATS or (kind is np.ndarray and value.dtype.kind == "f" and value.size):
        return "numbers", _memory(value)
    if value is _ABSENT:
        return "absent", None
    if is_object(value):
        return "object", kind
    try:
        return "constant", frozen(value)
    except UnreadableError:
        if kind not in _CONTAINERS and not _is_list(value):
            raise
        return "container", (kind, frozen([*value]) if kind is dict else len(value))


def _is_list(value: object) -> bool:
    """Whether this is a row of objects, such as arrays of several lengths."""
    return type(value) is np.ndarray and value.dtype.kind == "O" and value.ndim == 1


def is_object(value: object) -> bool:
    """Whether a value is an object whose attributes may be read one by one."""
    kind: Any = type(value)
    return _has_attributes(kind)


@lru_cache(1024)
def _has_attributes(kind: Any) -> bool:
    """Whether all that objects of this class are is in their attributes."""
    above = kind.__mro__[:-1]
    return (
        kind.__module__.startswith(_PACKAGE)
        and bool(kind.__dictoffset__)
        and not issubclass(kind, type | dict | list | tuple | np.ndarray)
        and not any("__getattribute__" in vars(one) for one in above)
    )


def _filled(kind: type, values: Sequence[Any]) -> Any:
    """A list, a tuple or an array of these objects."""
    if kind is not np.ndarray:
        return kind(values)
    made = np.empty(len(values), object)
    for place, value in enumerate(values):
        made[place] = value
    return made


def copied(array: Any) -> Any:
    """A copy of an array, or of a scalar, with the same strides."""
    if isinstance(array, np.generic):
        return array
    last = [(size - 1) * step for size, step in zip(array.shape, array.strides, strict=True)]
    low, high = sum(min(step, 0) for step in last), sum(max(step, 0) for step in last)
    room = np.empty(high - low + array.itemsize, np.uint8)
    made = np.ndarray(array.shape, array.dtype, room, -low, array.strides)
    made[...] = array
    return made


def _memory(array: NDArray[Any]) -> tuple[Any, ...]:
    """The layout of an array: sums over other layouts may round otherwise."""
    if array.dtype.str not in ("<f4", "<f8"):
        raise UnreadableError("the layout of an array")
    return type(array), array.dtype.str, array.shape, array.strides


def frozen(value: Any) -> Any:
    """A value in a form that is hashable, and equal for values of equal types and bits alone."""
    kind = type(value)
    if kind in _PLAIN or isinstance(value, type | np.dtype | np.ufunc):
        return kind, value
    if kind is float:
        return kind, value.hex()
    if kind is np.ndarray:
        return _frozen_array(value)
    if kind in _CONTAINERS:
        return _frozen_container(kind, [*value, *value.values()] if kind is dict else value)
    if isinstance(value, np.generic):
        return kind, value.tobytes()
    if kind is slice:
        return kind, frozen([value.start, value.stop, value.step])
    raise UnreadableError(kind.__name__)


def _frozen_container(kind: type, values: Sequence[Any]) -> Any:
    if all(type(each) is str for each in values):
        return kind, str, tuple(values)
    return kind, tuple(map(frozen, values))


def _frozen_array(value: NDArray[Any]) -> Any:
    if value.dtype.kind == "O":
        return "O", value.shape, frozen(value.ravel().tolist())
    if value.dtype.kind not in "biuSU" and value.size:
        raise UnreadableError(value.dtype.str)
    return value.dtype.str, value.shape, value.tobytes()


def outline(root: object) -> tuple[type, ...] | None:
    """The classes of an object and of those inside it; None where there are too many to compare."""
    found, rest, looked_at = list[type](), [root], 0
    while rest:
        value = rest.pop()
        looked_at += 1
        kind: Any = type(value)
        if kind is list or kind is tuple:
            rest += value[: MOST_OBJECTS + 1]  # type: ignore[index]  # it is one of these
        elif kind not in _LEAVES and _has_attributes(kind):
            found.append(kind)
            rest += vars(value).values()
        if len(found) > MOST_OBJECTS or looked_at > MOST_VALUES:
            return None
    return tuple(found)


# --- recording ----------------------------------------------------------------------------------


class Recorder:
    """Records what is read of a fitted object, with traced arrays in place of its numbers."""

    def __init__(self, root: object, trace: ArrayTrace) -> None:
        self._trace = trace
        self._accesses = list[Access]()
        self._made = dict[tuple[int, Any], Any]()
        #: Something was read that cannot be told apart from others of its kind.
        self.unreadable = False
        self.root = self._copy(root, 0)

    def reading(self) -> Reading:
        """What has been read so far."""
        return Reading(tuple(self._accesses))

    def read(self, owner: int, name: object, value: object, *, item: bool = False) -> Any:
        """What readers get for a value; `_ABSENT` for no value."""
        key = owner, name
        if key in self._made:
            return self._made[key]
        try:
            kind, _ = classified(value)
        except UnreadableError as problem:
            self.refuse(f"{name}: {problem}")
        self._accesses.append(Access(owner, name, item, kind))
        self._made[key] = made = self._stands_for(value, kind, len(self._accesses))
        return made

    def refuse(self, what: str) -> NoReturn:
        """Break the trace."""
        self.unreadable = True
        self._trace.refuse(what)

    def _stands_for(self, value: Any, kind: str, slot: int) -> Any:
        match kind:
            case "numbers":
                return self._trace.leaf(copied(value))
            case "object":
                return self._copy(value, slot)
            case "container" if type(value) is dict:
                return {name: self.read(slot, name, it, item=True) for name, it in value.items()}
            case "container":
                made = [self.read(slot, n, it, item=True) for n, it in enumerate(value)]
                return _filled(type(value), made)
        return value

    def _copy(self, value: object, slot: int) -> Any:
        kind: Any = type(value)
        made = object.__new__(_recording(kind))
        object.__setattr__(made, "_read_by", (self, slot, vars(value)))
        return made


class _Recording:
    """An object whose attributes are another's, and that tells a recorder which are read."""

    def __init_subclass__(cls) -> None:
        """Nothing of what its class does for classes that are meant to be used."""

    def __getattribute__(self, name: str) -> Any:
        usual = object.__getattribute__
        recorder, slot, attributes = usual(self, "_read_by")
        if name == "__dict__":
            recorder.refuse("all attributes")
        if name.startswith("__") or _is_computed(usual(self, "__class__"), name):
            return usual(self, name)
        found = recorder.read(slot, name, attributes.get(name, _ABSENT))
        return usual(self, name) if found is _ABSENT else found

    def __setattr__(self, name: str, value: object) -> None:
        object.__getattribute__(self, "_read_by")[0].refuse(f"{name} is set")


def _is_computed(kind: type, name: str) -> bool:
    """Whether a class answers for an attribute itself, whatever the object has of that name."""
    return hasattr(type(getattr(kind, name, None)), "__set__")


@lru_cache(256)
def _recording(kind: Any) -> Any:
    """A class of the same name, with the same methods."""
    body = {"__module__": kind.__module__, "__qualname__": kind.__qualname__}
    return type(kind)(kind.__name__, (_Recording, kind), body)
