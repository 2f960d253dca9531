"""The stack machine of pickles, protocols 0 to 5, which makes data and calls nothing.

Python's own machine imports the modules that a file names and calls what it finds there. This one
hands every name to a `World`, which answers from its tables. Work and memory grow with the file's
size: copies are paid for (`World.pay`), keys that could collide are refused, and no claimed size
is believed before the bytes are there.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from flour.pickles.arrays import Array, Described, Order, of_bytes
from flour.pickles.standins import Damaged
from flour.pickles.world import World

_MOST_PROTOCOL = 5
#: How deep a file of joblib may have pickles of object arrays within one another.
_NESTED = 4


class Machine:
    """One pickle within `data`, which begins at the byte `at`."""

    def __init__(self, data: bytes, world: World, at: int = 0, depth: int = 0) -> None:
        if depth > _NESTED:
            raise Damaged("pickles within pickles are nested too deeply")
        self.data, self.world, self.at, self.depth = data, world, at, depth
        self.stack: list[Any] = []
        self.below: list[list[Any]] = []
        self.memo: dict[int, Any] = {}
        #: The places of objects in the memo that a BUILD replaces, by `id`.
        self.places: dict[int, int] = {}
        self.ended = False

    def run(self) -> Any:
        """The object that the pickle describes; `at` is behind its end then."""
        steps, data, end = _STEPS, self.data, len(self.data)
        while not self.ended:
            if self.at >= end:
                raise Damaged("the file ends within the pickle")
            step = steps[data[self.at]]
            self.at += 1
            step(self)
        return self.world.settled(self.stack[-1])

    # --- bytes ------------------------------------------------------------------------------------

    def take(self, size: int) -> bytes:
        """The next bytes."""
        end = self.at + size
        if size < 0 or end > len(self.data):
            raise Damaged("the file ends within a value")
        found, self.at = self.data[self.at : end], end
        return found

    def sized(self, form: str) -> bytes:
        """The bytes behind their number."""
        (size,) = struct.unpack(form, self.take(struct.calcsize(form)))
        return self.take(size)

    def line(self) -> bytes:
        """The bytes up to the end of the line."""
        end = self.data.find(b"\n", self.at)
        if end < 0:
            raise Damaged("the file ends within a line")
        found, self.at = self.data[self.at : end], end + 1
        return found

    def name(self) -> Any:
        """The object of the name in the next two lines."""
        module, name = self.line().decode(), self.line().decode()
        if name.endswith("\r"):
            raise Damaged("its line ends were changed, as of a text: copy it as binary")
        return self.world.named(module, name)

    # --- the stack --------------------------------------------------------------------------------

    def marked(self) -> list[Any]:
        """The values above the last mark, which are taken away with it."""
        found, self.stack = self.stack, self.below.pop()
        return found

    def put(self, place: int) -> None:
        """Remember the topmost value."""
        value = self.stack[-1]
        self.memo[place] = value
        if self.world.is_pending(value):
            self.places[id(value)] = place

    def build(self) -> None:
        """Give the topmost object its state."""
        state = self.stack.pop()
        pending = self.stack[-1]
        built = self.world.build(pending, state)
        if isinstance(built, Described):
            built = self.array(built)
        if built is not pending:
            self.stack[-1] = built
            place = self.places.pop(id(pending), None)
            if place is not None:
                self.memo[place] = built

    def array(self, described: Described) -> Array:
        """The array whose bytes joblib has written behind its description."""
        kind, shape = described.checked()
        if kind.hasobject:
            inner = Machine(self.data, self.world, self.at, self.depth + 1)
            found = inner.run()
            self.at = inner.at
            if not isinstance(found, np.ndarray):
                raise Damaged("an array is something else")
            return found
        if described.numpy_array_alignment_bytes is not None:
            self.take(self.take(1)[0])
        start, self.at = self.at, self.at + prod(shape) * kind.itemsize
        if self.at > len(self.data):
            raise Damaged("the file ends within an array")
        order: Order = "F" if described.order == "F" else "C"
        return of_bytes(self.world, memoryview(self.data)[start : self.at], kind, shape, order)


def _push(make: Callable[[Machine], Any]) -> Callable[[Machine], None]:
    def step(m: Machine) -> None:
        value = make(m)  # which may take values away first
        m.stack.append(value)

    return step


def _integer(m: Machine) -> Any:
    text = m.line()
    return text == b"01" if text in (b"00", b"01") else int(text.removesuffix(b"L"))


def _quoted(m: Machine) -> str:
    text = m.line()
    if len(text) < 2 or text[0] != text[-1] or text[:1] not in (b"'", b'"'):
        raise Damaged("a text has no quotation marks")
    return text[1:-1].decode("unicode_escape")


def _unicode(form: str) -> Callable[[Machine], str]:
    return lambda m: m.sized(form).decode("utf-8", "surrogatepass")


def _number(form: str) -> Callable[[Machine], Any]:
    size = struct.calcsize(form)
    return lambda m: struct.unpack(form, m.take(size))[0]


def _long(form: str) -> Callable[[Machine], int]:
    return lambda m: int.from_bytes(m.sized(form), "little", signed=True)


def _stack_global(m: Machine) -> Any:
    name, module = m.stack.pop(), m.stack.pop()
    if not (isinstance(name, str) and isinstance(module, str)):
        raise Damaged("a name is no text")
    return m.world.named(module, name)


def _instance(m: Machine) -> Any:
    return m.world.call(m.name(), tuple(m.marked()))


def _object(m: Machine) -> Any:
    kind, *arguments = m.marked()
    return m.world.call(kind, tuple(arguments))


def _called(m: Machine) -> Any:
    arguments, kind = m.stack.pop(), m.stack.pop()
    return m.world.call(kind, arguments)


def _called_by_name(m: Machine) -> Any:
    named, arguments, kind = m.stack.pop(), m.stack.pop(), m.stack.pop()
    return m.world.call(kind, arguments, named)


def _append(m: Machine) -> None:
    value = m.stack.pop()
    m.world.extend(m.stack[-1], [value])


def _appends(m: Machine) -> None:
    values = m.marked()
    m.world.extend(m.stack[-1], values)


def _set_item(m: Machine) -> None:
    value, key = m.stack.pop(), m.stack.pop()
    m.world.update(m.stack[-1], [key, value])


def _set_items(m: Machine) -> None:
    values = m.marked()
    m.world.update(m.stack[-1], values)


def _add_items(m: Machine) -> None:
    values = m.marked()
    m.world.add(m.stack[-1], values)


def _tuple(size: int) -> Callable[[Machine], None]:
    def step(m: Machine) -> None:
        if len(m.stack) < size:
            raise Damaged("a value is missing")
        m.stack[-size:] = [tuple(m.stack[-size:])]

    return step


def _mark(m: Machine) -> None:
    m.below.append(m.stack)
    m.stack = []


def _pop(m: Machine) -> None:
    if m.stack:
        m.stack.pop()
    else:
        m.marked()


def _protocol(m: Machine) -> None:
    if (version := m.take(1)[0]) > _MOST_PROTOCOL:
        raise Damaged(f"this is protocol {version}, of which nothing is known")


def _stop(m: Machine) -> None:
    m.ended = True


def _refused(what: str) -> Callable[[Machine], None]:
    def step(_: Machine) -> None:
        raise Damaged(what)

    return step


_ELSEWHERE = "parts of this pickle lie outside of the file"
_STEPS: list[Callable[[Machine], None]] = [_refused("this is no pickle")] * 256
_BY_CODE: dict[bytes, Callable[[Machine], None]] = {
    b"(": _mark,
    b".": _stop,
    b"0": _pop,
    b"1": lambda m: m.marked().clear(),
    b"2": _push(lambda m: m.stack[-1]),
    b"F": _push(lambda m: float(m.line())),
    b"I": _push(_integer),
    b"J": _push(_number("<i")),
    b"K": _push(_number("<B")),
    b"M": _push(_number("<H")),
    b"L": _push(_integer),
    b"N": _push(lambda _: None),
    b"P": _refused(_ELSEWHERE),
    b"Q": _refused(_ELSEWHERE),
    b"R": _push(_called),
    b"S": _push(_quoted),
    b"T": _push(lambda m: m.sized("<i").decode("latin-1")),
    b"U": _push(lambda m: m.sized("<B").decode("latin-1")),
    b"V": _push(lambda m: m.line().decode("raw_unicode_escape")),
    b"X": _push(_unicode("<I")),
    b"a": _append,
    b"b": Machine.build,
    b"c": _push(Machine.name),
    b"d": _push(lambda m: m.world.update({}, m.marked())),
    b"}": _push(lambda _: {}),
    b"e": _appends,
    b"g": _push(lambda m: m.memo[int(m.line())]),
    b"h": _push(lambda m: m.memo[m.take(1)[0]]),
    b"j": _push(lambda m: m.memo[_number("<I")(m)]),
    b"i": _push(_instance),
    b"l": _push(Machine.marked),
    b"]": _push(lambda _: []),
    b"o": _push(_object),
    b"p": lambda m: m.put(int(m.line())),
    b"q": lambda m: m.put(m.take(1)[0]),
    b"r": lambda m: m.put(_number("<I")(m)),
    b"s": _set_item,
    b"t": _push(lambda m: tuple(m.marked())),
    b")": _push(lambda _: ()),
    b"u": _set_items,
    b"G": _push(_number(">d")),
    b"B": _push(lambda m: m.sized("<I")),
    b"C": _push(lambda m: m.sized("<B")),
    b"\x80": _protocol,
    b"\x81": _push(_called),
    b"\x82": _refused(_ELSEWHERE),
    b"\x83": _refused(_ELSEWHERE),
    b"\x84": _refused(_ELSEWHERE),
    b"\x85": _tuple(1),
    b"\x86": _tuple(2),
    b"\x87": _tuple(3),
    b"\x88": _push(lambda _: True),
    b"\x89": _push(lambda _: False),
    b"\x8a": _push(_long("<B")),
    b"\x8b": _push(_long("<i")),
    b"\x8c": _push(_unicode("<B")),
    b"\x8d": _push(_unicode("<Q")),
    b"\x8e": _push(lambda m: m.sized("<Q")),
    b"\x8f": _push(lambda _: set()),
    b"\x90": _add_items,
    b"\x91": _push(lambda m: frozenset(m.world.keys(m.marked()))),
    b"\x92": _push(_called_by_name),
    b"\x93": _push(_stack_global),
    b"\x94": lambda m: m.put(len(m.memo)),
    b"\x95": lambda m: (m.take(8), None)[1],
    b"\x96": _push(lambda m: bytearray(m.sized("<Q"))),
    b"\x97": _refused(_ELSEWHERE),
    b"\x98": lambda _: None,
}
for _code, _step in _BY_CODE.items():
    _STEPS[_code[0]] = _step
