"""Writes walks over packed nodes (flour.ops.trees.lockstep): of one row, or eight at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flour.core.types import Vector
from flour.ops.trees.lockstep import BEYOND, LANES, MANY, CodeSlots, Packed, Shared

if TYPE_CHECKING:
    from collections.abc import Callable

    from flour.core.emission import Column, Emitter
    from flour.ops.trees.walk import Nodes

    #: Code for a row before and after its walks, and for the content of a tree's leaf.
    Begin = Callable[[str], None]
    Take = Callable[[str, str, str], None]

#: The rows a tree is walked for before the next: their slots should stay in a near cache.
_MOST_ROWS, _SLOT_BYTES, _BYTES = 64, 64 * 1024, {"float32": 4, "float64": 8}


class Walks:
    """Writes walks in lock-step over packed nodes."""

    def __init__(self, e: Emitter, op: Nodes, packed: Packed, x: Column, *, block: bool) -> None:
        self.e, self.op, self.x = e, op, x
        self.trees = e.size(len(op.roots))
        self.nodes, self.roots = e.address(packed.nodes), e.address(packed.roots)
        self.column, self.fill = e.address(packed.column), e.address(packed.fill)
        self.zero, self.code = e.address(packed.zero), e.address(packed.code)
        self.words, self.shared = e.address(packed.words), packed.shared
        self.shift = e.size(packed.shift) if packed.shift else ""
        self.coded = packed.coded
        has_set_slots = packed.shared is not None or packed.coded is not None
        self.apart = len(op.words) > 0 and not has_set_slots and not packed.shift
        #: The dtype of the numbers in slots.
        self.dtype = "float32" if packed.shift else "float64"
        count = len(packed.column)
        own = sum(len(part.column) for part in (packed.shared, packed.coded) if part is not None)
        #: Whether all trees take their steps in turns.
        self.in_turns = not block and packed.in_turns
        if self.in_turns:
            self.places, self.numbers = (e.scratch("int32", len(op.roots)) for _ in range(2))
            self.ends = e.scratch("int64", len(op.roots))
        else:
            self.places = e.scratch("int64", LANES)
        self.offsets = e.scratch("int64", LANES) if block else ""
        rows = 1
        if block:
            fitting = min(_MOST_ROWS, _SLOT_BYTES // (_BYTES[self.dtype] * (count + own + 1)))
            rows = LANES * max(1, fitting // LANES)
            self.chunk = e.size(rows)
        self.count = e.size(count)
        self.width = e.size(count + own + 1)
        self.slots = e.scratch(self.dtype, (count + own + 1) * rows)
        self.codes = e.scratch("int64", (count + 1) * rows) if self.apart else ""

    def look(self, row: str, index: str = "0") -> None:
        """Fill the slots of one row, which is the one of this index among the held rows."""
        e = self.e
        start = e.var(f"{index} * {self.width}", "h")
        e.store(self.slots, start, "-math.inf", self.dtype)
        if self.codes:
            e.store(self.codes, start, "0", "int64")
        with e.loop(self.count) as u:
            value, missing = self._value(row, self.column, self.zero, u)
            content = f"({self._of(self.fill, u)} if {missing} else {value})"
            e.store(self.slots, f"{start} + {u} + 1", content, self.dtype)
            if self.codes:
                self._code(f"{start} + {u} + 1", u, value, missing)
        if self.shared is not None:
            self._look_up(self.shared, row, start)
        if self.coded is not None:
            self._look_at_codes(self.coded, row, start)

    def _value(self, row: str, columns: str, zeros: str, u: str) -> tuple[str, str]:
        """The row's value in a slot's column, and whether it is taken for missing."""
        e, kind = self.e, self.x.type
        assert isinstance(kind, Vector)
        column = f"int64({e.load(columns, u, 'int32', constant=True)})"
        loaded = e.load(row, column, kind.dtype, constant=True)
        value = e.let(self.op.seen(e, loaded, kind, self.dtype), self.dtype).expr
        missing = f"{value} != {value}"
        if self.op.zeros:
            missing = f"({missing}) or abs({value}) <= {self._of(zeros, u)}"
        return value, e.let(f"({missing})", "bool").expr

    def _look_up(self, sets: Shared, row: str, start: str) -> None:
        """Fill the slots of sets: minus infinity for members, which passes, NaN for others."""
        e = self.e
        column, fill, zero = (e.address(part) for part in (sets.column, sets.fill, sets.zero))
        first, limit = e.address(sets.start), e.address(sets.limit)
        least = "> -1.0" if self.op.signed else ">= 0.0"
        with e.loop(e.size(len(sets.column))) as u:
            value, missing = self._value(row, column, zero, u)
            content = e.var("math.nan", "v")
            with e.block(f"if {missing}:"):
                e.line(f"{content} = {self._of(fill, u)}")
            with e.block(f"elif {value} {least} and {value} < {self._of(limit, u)}:"):
                code = e.let(f"int64({value})", "int64").expr
                where = f"{e.load(first, u, 'int64', constant=True)} + {code} // 32"
                word = e.load(self.words, where, "uint32", constant=True)
                with e.block(f"if (int64({word}) >> ({code} % 32)) & 1 != 0:"):
                    e.line(f"{content} = -math.inf")
            e.store(self.slots, f"{start} + {self.count} + 1 + {u}", content, self.dtype)

    def _look_at_codes(self, codes: CodeSlots, row: str, start: str) -> None:
        """Fill the slots of codes: NaN for a value that is no category, as no node tests for it."""
        e = self.e
        column, zero = e.address(codes.column), e.address(codes.zero)
        least = "> -1.0" if self.op.signed else ">= 0.0"
        with e.loop(e.size(len(codes.column))) as u:
            value, missing = self._value(row, column, zero, u)
            content = e.var("math.nan", "v")
            with e.block(f"if not ({missing}) and {value} {least} and {value} < {float(MANY)}:"):
                e.line(f"{content} = float64(int64({value}))")
            e.store(self.slots, f"{start} + {self.count} + 1 + {u}", content, self.dtype)

    def _of(self, table: str, u: str) -> str:
        return self.e.load(table, u, "float64", constant=True)

    def _code(self, where: str, u: str, value: str, missing: str) -> None:
        """The slot's value as the number of a category."""
        e = self.e
        code = e.var(e.load(self.code, u, "int64", constant=True), "k")
        least = "> -1.0" if self.op.signed else ">= 0.0"
        with e.block(f"if {code} != 0 and not {missing}:"):
            inside = f"{value} {least} and {value} < {float(BEYOND)}"
            e.line(f"{code} = int64({value}) if {inside} else {BEYOND}")
        e.store(self.codes, where, code, "int64")

    def one_by_one(self, begin: Begin, take: Take, end: Begin, start: str = "0") -> None:
        """Row after row: `take` gets the content of each tree's leaf, tree after tree."""
        e = self.e
        with e.loop(e.rows, start) as i:
            self.look(e.var(self.x.row(i), "r"))
            begin(i)
            (self._all_trees if self.in_turns else self._eight_trees)(i, take)
            end(i)

    def _all_trees(self, i: str, take: Take) -> None:
        """A step of every tree, then the next: each tree's next node is loaded meanwhile."""
        e = self.e
        with e.loop(self.trees) as t:
            root = e.load(self.roots, t, "int64", constant=True)
            e.store(self.places, t, f"int32({root})", "int32")
            e.store(self.numbers, t, f"int32({t})", "int32")
        kind, more = self._kind()
        arguments = [
            self.places,
            self.nodes,
            self.slots,
            *more,
            self.numbers,
            self.ends,
            self.trees,
        ]
        e.line(f"walk_all{kind}({', '.join(arguments)})")
        with e.loop(self.trees) as t:
            take(i, t, e.load(self.ends, t, "int64" if self.shift else "float64"))

    def _eight_trees(self, i: str, take: Take) -> None:
        """Eight trees at a time."""
        e = self.e
        with e.loop(f"({self.trees} + {LANES - 1}) // {LANES}") as g:
            first = e.var(f"{g} * {LANES}", "h")
            with e.loop(str(LANES)) as lane:
                root = e.load(self.roots, f"{first} + {lane}", "int64", constant=True)
                e.store(self.places, lane, root, "int64")
            self.walk()
            with e.loop(f"min({LANES}, {self.trees} - {first})") as lane:
                t = e.var(f"{first} + {lane}", "t")
                take(i, t, self.held(lane, t))

    def by_the_block(self, begin: Begin, take: Take, end: Begin) -> None:
        """Tree after tree, eight rows at a time, for as many rows as there are slots for."""
        e = self.e
        with e.loop(f"({e.rows} + {self.chunk} - 1) // {self.chunk}") as c:
            first = e.var(f"{c} * {self.chunk}", "h")
            count = e.var(f"min({self.chunk}, {e.rows} - {first})", "h")
            with e.loop(count) as i:
                self.look(e.var(self.x.row(f"({first} + {i})"), "r"), i)
                begin(f"({first} + {i})")
            with e.loop(self.trees) as t, e.loop(f"({count} + {LANES - 1}) // {LANES}") as b:
                start = e.var(f"{b} * {LANES}", "h")
                self._eight_rows(start, count, t)
                with e.loop(f"min({LANES}, {count} - {start})") as lane:
                    take(f"({first} + {start} + {lane})", t, self.held(lane, t))
            with e.loop(count) as i:
                end(f"({first} + {i})")

    def _eight_rows(self, start: str, count: str, tree: str) -> None:
        """One tree for eight rows; where there are fewer, the last is walked again."""
        e = self.e
        with e.loop(str(LANES)) as lane:
            root = e.load(self.roots, tree, "int64", constant=True)
            e.store(self.places, lane, root, "int64")
            row = f"min({start} + {lane}, {count} - 1)"
            e.store(self.offsets, lane, f"{row} * {self.width}", "int64")
        self.walk()

    def walk(self) -> None:
        """Walk from the nodes in `places`, which hold the ends of the walks afterwards."""
        apart, offsets = "_apart" if self.offsets else "", [self.offsets] if self.offsets else []
        kind, more = self._kind()
        arguments = [self.places, self.nodes, self.slots, *more, *offsets]
        self.e.line(f"walk8{kind}{apart}({', '.join(arguments)})")

    def _kind(self) -> tuple[str, list[str]]:
        """The suffix of the intrinsic for this kind of nodes, and its extra arguments."""
        if self.codes:
            return "_sets", [self.codes, self.words]
        small, bits = ("_small", [self.shift]) if self.shift else ("", [])
        if self.coded is None:
            return small, bits
        return f"{small}_codes", [*bits, f"{self.count} + 1"]

    def held(self, lane: str, tree: str) -> str:
        """The content of the tree's leaf at the end of a walk, or its number in small nodes."""
        node = self.e.load(self.places, lane, "int64")
        if self.shift:
            return f"int64({self.e.load(self.nodes, f'2 * {node}', 'int32', constant=True)})"
        return self.e.load(self.nodes, node, "float64", constant=True)
