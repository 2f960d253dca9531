"""Writes the code of one stage from the hooks of its operators.

`Body` is the text being written and the slots of its parameter table. `Scope` is one operator's
view of it: every operator has slots of its own, so the text does not depend on whether two
parameters are equal.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import NamedTuple

from flour.core.emission import BYTES, Emitter, Room
from flour.core.op import Parameter
from objectstore import Blob


class ParameterSlot(NamedTuple):
    """One entry of a stage's parameter table: exactly one of its meanings is set."""

    parameter: Parameter | None = None
    size: int | None = None
    number: float | None = None
    #: Bytes of scratch memory; the entry is their offset.
    scratch: int | None = None


class Body:
    """The text of one stage and the slots of its parameter table."""

    def __init__(self, *, exact: bool, ordered: bool = False, lean: str = "") -> None:
        self.exact, self.ordered, self.lean = exact, exact or ordered, lean
        #: Memory whose size depends on the data, in the order of its addresses.
        self.rooms: list[Room] = []
        self._columns, self._free, self._longest = 0, "", ""
        self.slots: list[ParameterSlot] = []
        self._head: list[str] = []
        self._lines: list[str] = []
        self._depth = 1
        self._names = 0

    def line(self, text: str) -> None:
        """One statement at the current depth."""
        self._lines.append("    " * self._depth + text)

    def head(self, text: str) -> None:
        """One statement ahead of the loop over rows."""
        self._head.append("    " + text)

    def fresh(self, stem: str) -> str:
        """A new name."""
        self._names += 1
        return f"{stem}{self._names}"

    def slot(self, stem: str, entry: ParameterSlot) -> str:
        """A local holding a new entry of the parameter table."""
        name = self.fresh(stem)
        index = len(self.slots)
        self.slots.append(entry)
        dtype = "int64" if entry.number is None else "float64"
        base = "" if entry.scratch is None else "scratch + "
        self.head(f"{name} = {base}ldc_{dtype}(params, {index})")
        return name

    def column(self, *stems: str) -> tuple[str, str]:
        """Two locals holding the next entry of the stage's table of columns."""
        first, second = map(self.fresh, stems)
        self.head(f"{first} = ldc_int64(io, {2 * self._columns})")
        self.head(f"{second} = ldc_int64(io, {2 * self._columns + 1})")
        self._columns += 1
        return first, second

    def room(self, room: Room) -> str:
        """A local with the address of memory for one row.

        All rooms are adjacent. The entry after the columns holds their address and the length of
        the longest row.
        """
        if not self.rooms:
            self._free, self._longest = self.column("f", "l")
        name, self._free = self._free, self.fresh("f")
        each, fixed, most = (self.slot("n", ParameterSlot(size=number)) for number in room)
        size = f"min({self._longest} * {each} + {fixed}, {most})"
        self.head(f"{self._free} = {name} + (({size} + 63) & -64)")
        self.rooms.append(room)
        return name

    @contextmanager
    def block(self, header: str) -> Iterator[None]:
        """A compound statement."""
        self.line(header)
        self._depth += 1
        before = len(self._lines)
        yield
        if len(self._lines) == before:
            self.line("pass")
        self._depth -= 1

    def text(self, name: str) -> str:
        """The whole function."""
        head = [f"def {name}(params, io, n, scratch):", *self._head]
        return "\n".join([*head, *self._lines, "    return 0"]) + "\n"


class Scope(Emitter):
    """One operator's view of the text of a stage."""

    def __init__(self, body: Body, rows: str = "n") -> None:
        self._body = body
        self.exact, self.ordered, self.lean = body.exact, body.ordered, body.lean
        self.rows = rows
        self._known: dict[tuple[str, str | None], str] = {}

    def line(self, text: str) -> None:
        """One statement at the depth of the body."""
        self._body.line(text)

    def fresh(self, stem: str = "v") -> str:
        """A name that the body does not have yet."""
        return self._body.fresh(stem)

    def block(self, header: str) -> AbstractContextManager[None]:
        """A compound statement of the body."""
        return self._body.block(header)

    def address(self, parameter: Parameter, dtype: str | None = None) -> str:
        """A slot for the parameter, one for each dtype."""
        key = (parameter.digest, dtype)
        if key not in self._known:
            if isinstance(parameter, Blob) and dtype not in (None, parameter.dtype.name):
                parameter = Blob.of(parameter.array.astype(dtype))
            self._known[key] = self._body.slot("p", ParameterSlot(parameter=parameter))
        return self._known[key]

    def at(self, parameter: Parameter, index: str, dtype: str | None = None) -> str:
        """A load; of a parameter of one element, ahead of the loop over rows."""
        assert isinstance(parameter, Blob), "string tables are read by their address"
        kind = dtype or parameter.dtype.name
        address = self.address(parameter, dtype)
        if parameter.array.size != 1:
            return f"ldc_{kind}({address}, {index})"
        key = (parameter.digest, f"{kind} alone")
        if key not in self._known:
            self._known[key] = name = self.fresh("c")
            self._body.head(f"{name} = ldc_{kind}({address}, 0)")
        return self._known[key]

    def size(self, number: int) -> str:
        """A slot for the integer."""
        return self._body.slot("n", ParameterSlot(size=int(number)))

    def number(self, value: float, dtype: str) -> str:
        """A slot for the number."""
        name = self._body.slot("c", ParameterSlot(number=float(value)))
        if dtype == "float64":
            return name
        narrow = self.fresh("c")
        self._body.head(f"{narrow} = {dtype}({name})")
        return narrow

    def scratch(self, dtype: str, count: int) -> str:
        """A slot for the memory."""
        return self._body.slot("s", ParameterSlot(scratch=BYTES[dtype] * max(count, 1)))

    def room(self, room: Room) -> str:
        """One of the body's rooms."""
        return self._body.room(room)


__all__ = ["BYTES", "Body", "ParameterSlot", "Scope"]
