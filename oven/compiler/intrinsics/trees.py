"""What emitted code says about trees that are walked: eight walks in lock-step, or all in turns.

Written as the compiler's intermediate language, because eight walks side by side as Python text
would take the compiler's front end longer than everything else in the stage.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from llvmlite.ir import IRBuilder, Value

from oven.compiler.intrinsics.base import Values, on_words
from oven.compiler.intrinsics.memory import declared
from oven.compiler.lowering import Intrinsic

_WORD, _DOUBLE = ir.IntType(64), ir.DoubleType()
_HALF, _FLOAT = ir.IntType(32), ir.FloatType()
WALKS = 8
_SET_BIT = 30  # as in flour.ops.trees.lockstep


def intrinsics() -> dict[str, Intrinsic | int]:
    """Every word by name."""
    made = {f"walk8{kind}{apart}": _walk8(kind, apart) for kind in _KINDS for apart in _APART}
    return made | {f"walk_all{kind}": _walk_all(kind) for kind in _KINDS}


# --- eight walks ---------------------------------------------------------------------------------

#: Some nodes test for a set of categories, or for one category, or all of them are small; every
#: walk has slots of its own, at an offset.
_KINDS: dict[str, int] = {"": 3, "_codes": 4, "_sets": 5, "_small": 4, "_small_codes": 5}
_APART = ("", "_apart")


def _walk8(kind: str, apart: str) -> Any:
    """Walk from eight places (written over with where the walks end).

    Arguments: the addresses of the places, of nodes and slots; with sets also of codes and words,
    with small nodes also how many bits are their child's, with codes from which slot on there are
    codes; with walks apart also the address of their offsets. What they hold is told in
    flour.ops.trees.lockstep.
    """

    def write(builder: IRBuilder, args: Values) -> None:
        _WALKS[kind](builder, args, apart=bool(apart)).write()

    return on_words(_KINDS[kind] + bool(apart), write)


def _walk_all(kind: str) -> Any:
    """Walk from so many places, a step each in turn, and tell what the leaves hold.

    Arguments: as above, then the addresses of each walk's number and of where what its leaf holds
    is written by that number, and how many walks there are. Places and numbers are written over.
    """

    def write(builder: IRBuilder, args: Values) -> None:
        _Turns(_WALKS[kind](builder, args[:-3], apart=False), *args[-3:]).write()

    return on_words(_KINDS[kind] + 3, write)


class _Walk:
    """Writes the loop of eight walks."""

    def __init__(self, builder: IRBuilder, args: Values, *, apart: bool) -> None:
        self.builder = builder
        self.places, self.nodes, self.slots = args[:3]
        self.offsets = args[-1] if apart else None

    def write(self) -> None:
        """From the places to the places."""
        builder = self.builder
        start = [self.load(self.places, _WORD(lane), _WORD) for lane in range(WALKS)]
        shift = [self.offset(lane) for lane in range(WALKS)]
        before = builder.block
        look, step, end = (builder.append_basic_block(name) for name in ("look", "step", "end"))
        builder.branch(look)
        builder.position_at_end(look)
        at = [builder.phi(_WORD) for _ in range(WALKS)]
        # A leaf looks at the first slot: when all do, all walks have ended.
        seconds = [self.second(a) for a in at]
        any_slot = seconds[0]
        for second in seconds[1:]:
            any_slot = builder.or_(any_slot, second)
        builder.cbranch(self.moving(any_slot), step, end)
        builder.position_at_end(step)
        after = [self.next(*each) for each in zip(at, seconds, shift, strict=True)]
        builder.branch(look)
        for phi, first, then in zip(at, start, after, strict=True):
            phi.add_incoming(first, before)
            phi.add_incoming(then, step)
        builder.position_at_end(end)
        for lane, a in enumerate(at):
            builder.store(a, self.where(self.places, _WORD(lane), _WORD))

    def offset(self, lane: int) -> Value | None:
        """Where a lane's slots start."""
        return None if self.offsets is None else self.load(self.offsets, _WORD(lane), _WORD)

    def second(self, at: Value) -> Value:
        """The node's second half: its slot and its child."""
        return self.load(self.nodes, self.builder.add(at, _WORD(1)), _WORD)

    def held(self, at: Value) -> Value:
        """The first half, which is what a leaf holds."""
        return self.load(self.nodes, at, _WORD)

    def place(self, at: Value) -> Value:
        """The address of a node."""
        return self.where(self.nodes, at, _WORD)

    def moving(self, any_slot: Value) -> Value:
        """Whether any of the nodes looks at a slot but the first."""
        return self.builder.icmp_unsigned(">", any_slot, _WORD(0xFFFFFFFF))

    def next(self, at: Value, second: Value, shift: Value | None) -> Value:
        """Twice the number of the child."""
        builder = self.builder
        left = builder.and_(second, _WORD(0xFFFFFFFF))
        failed = self.failed(at, builder.lshr(second, _WORD(32)), shift)
        return builder.add(left, builder.shl(builder.zext(failed, _WORD), _WORD(1)))

    def failed(self, at: Value, number: Value, shift: Value | None) -> Value:
        """Whether the node sends the walk right."""
        return self.exceeds(at, number, self.moved(number, shift))

    def moved(self, slot: Value, shift: Value | None) -> Value:
        """The slot among those of all lanes."""
        return slot if shift is None else self.builder.add(slot, shift)

    def exceeds(self, at: Value, number: Value, slot: Value) -> Value:
        """Whether what the slot (of this number) holds fails the node's test."""
        value = self.load(self.slots, slot, _DOUBLE, constant=False)
        return self.fails(value, self.load(self.nodes, at, _DOUBLE), number)

    def fails(self, value: Value, limit: Value, number: Value) -> Value:
        """Whether the value is not <= the threshold: larger, or NaN."""
        return self.builder.fcmp_unordered(">", value, limit)

    def where(self, base: Value, index: Value, kind: ir.Type) -> Value:
        """The place of an element."""
        pointer = self.builder.inttoptr(base, kind.as_pointer())
        return self.builder.gep(pointer, [index], source_etype=kind)

    def load(
        self,
        base: Value,
        index: Value,
        kind: ir.Type,
        *,
        constant: bool = True,
        step: ir.Type | None = None,
    ) -> Value:
        """An element (one of every step); what is constant nobody writes during the call."""
        value = self.builder.load(self.where(base, index, step or kind), typ=kind)
        if constant and base not in (self.places, self.offsets):
            value.set_metadata("invariant.load", self.builder.module.add_metadata([]))
        return value


class _SetWalk(_Walk):
    """Some nodes test for sets of categories."""

    def __init__(self, builder: IRBuilder, args: Values, *, apart: bool) -> None:
        super().__init__(builder, args, apart=apart)
        self.codes, self.words = args[3:5]

    def failed(self, at: Value, number: Value, shift: Value | None) -> Value:
        """Either test is made, and the one that counts chosen without a branch."""
        builder = self.builder
        slot = self.moved(builder.and_(number, _WORD((1 << _SET_BIT) - 1)), shift)
        is_set = builder.lshr(number, _WORD(_SET_BIT))
        outside = self.outside(at, slot, is_set)
        chosen = builder.icmp_unsigned("!=", is_set, _WORD(0))
        return builder.select(chosen, outside, self.exceeds(at, number, slot))

    def outside(self, at: Value, slot: Value, is_set: Value) -> Value:
        """Whether the slot's code is not in the node's set (any answer where it has none)."""
        builder = self.builder
        code = self.load(self.codes, slot, _WORD, constant=False)
        span = builder.and_(self.load(self.nodes, at, _WORD), builder.neg(is_set))
        last, word = builder.lshr(span, _WORD(32)), builder.ashr(code, _WORD(5))
        within = builder.select(builder.icmp_signed("<", word, last), word, last)
        index = builder.add(builder.and_(span, _WORD(0xFFFFFFFF)), within)
        bits = builder.zext(self.load(self.words, index, ir.IntType(32)), _WORD)
        bit = builder.lshr(bits, builder.and_(code, _WORD(31)))
        return builder.not_(builder.trunc(bit, ir.IntType(1)))


class _SmallWalk(_Walk):
    """Nodes of eight bytes, numbers of four."""

    def __init__(self, builder: IRBuilder, args: Values, *, apart: bool) -> None:
        super().__init__(builder, args, apart=apart)
        self.bits = args[3]
        one = builder.shl(_WORD(1), self.bits)
        self.children = builder.sub(one, _WORD(1))

    def second(self, at: Value) -> Value:
        builder = self.builder
        half = self.load(builder.add(self.nodes, _WORD(4)), at, _HALF, step=_WORD)
        return builder.zext(half, _WORD)

    def held(self, at: Value) -> Value:
        return self.builder.zext(self.load(self.nodes, at, _HALF, step=_WORD), _WORD)

    def moving(self, any_slot: Value) -> Value:
        return self.builder.icmp_unsigned(">", any_slot, self.children)

    def next(self, at: Value, second: Value, shift: Value | None) -> Value:
        builder = self.builder
        failed = self.failed(at, builder.lshr(second, self.bits), shift)
        return builder.add(builder.and_(second, self.children), builder.zext(failed, _WORD))

    def exceeds(self, at: Value, number: Value, slot: Value) -> Value:
        value = self.load(self.slots, slot, _FLOAT, constant=False)
        return self.fails(value, self.load(self.nodes, at, _FLOAT, step=_WORD), number)


class _CodeWalk(_Walk):
    """Some nodes test for one category: from a slot on, slots hold codes."""

    def __init__(self, builder: IRBuilder, args: Values, *, apart: bool) -> None:
        super().__init__(builder, args, apart=apart)
        self.first = args[-2 if apart else -1]

    def fails(self, value: Value, limit: Value, number: Value) -> Value:
        """A code fails if it is less, too."""
        builder = self.builder
        less = builder.fcmp_ordered("<", value, limit)
        coded = builder.icmp_unsigned(">=", number, self.first)
        return builder.or_(super().fails(value, limit, number), builder.and_(less, coded))


class _SmallCodeWalk(_CodeWalk, _SmallWalk):
    """Small nodes, some of them for one category."""


_WALKS: dict[str, type[_Walk]] = {
    "": _Walk,
    "_codes": _CodeWalk,
    "_sets": _SetWalk,
    "_small": _SmallWalk,
    "_small_codes": _SmallCodeWalk,
}


# --- all walks -----------------------------------------------------------------------------------

#: So many steps are made of every walk before those that have ended are looked for.
_ROUNDS = 4


class _Turns:
    """Writes walks that take a step each in turn, and ask for the memory of their next one.

    When a walk's turn comes again, its node is there, however far away it was: what is waited for
    is not each step's memory, as it is by walks in lock-step, but the first step's alone.
    """

    def __init__(self, walk: _Walk, numbers: Value, ends: Value, count: Value) -> None:
        self.walk, self.builder = walk, walk.builder
        self.numbers, self.ends, self.count = numbers, ends, count

    def write(self) -> None:
        """Rounds until no walk is left; in the last of each few the ended ones are left out."""
        builder = self.builder
        before = builder.block
        look, rounds, end = (builder.append_basic_block(name) for name in ("look", "rounds", "end"))
        builder.branch(look)
        builder.position_at_end(look)
        left = builder.phi(_WORD)
        left.add_incoming(self.count, before)
        builder.cbranch(builder.icmp_signed(">", left, _WORD(0)), rounds, end)
        builder.position_at_end(rounds)
        for _ in range(_ROUNDS - 1):
            self.loop(left, self.step)
        kept = self.loop(left, self.sift)
        left.add_incoming(kept, builder.block)
        builder.branch(look)
        builder.position_at_end(end)

    def loop(self, count: Value, body: Callable[[Value, Value], Value]) -> Value:
        """Do this for each walk, of which there is one at least; a number goes along."""
        builder = self.builder
        before, inside = builder.block, builder.append_basic_block("walks")
        after = builder.append_basic_block("then")
        builder.branch(inside)
        builder.position_at_end(inside)
        index, carried = builder.phi(_WORD), builder.phi(_WORD)
        for phi in (index, carried):
            phi.add_incoming(_WORD(0), before)
        made, following = body(index, carried), builder.add(index, _WORD(1))
        builder.cbranch(builder.icmp_signed("<", following, count), inside, after)
        index.add_incoming(following, builder.block)
        carried.add_incoming(made, builder.block)
        builder.position_at_end(after)
        return made

    def step(self, index: Value, carried: Value) -> Value:
        """One step of one walk; of a leaf to itself."""
        at = self.read(self.walk.places, index)
        self.write_to(self.walk.places, index, self.following(at, self.walk.second(at)))
        return carried

    def sift(self, index: Value, kept: Value) -> Value:
        """The same, where only walks are kept that had not ended; what a leaf holds is told."""
        builder, walk = self.builder, self.walk
        at, number = self.read(walk.places, index), self.read(self.numbers, index)
        second = walk.second(at)
        builder.store(walk.held(at), walk.where(self.ends, number, _WORD))
        self.write_to(walk.places, kept, self.following(at, second))
        self.write_to(self.numbers, kept, number)
        return builder.add(kept, builder.zext(walk.moving(second), _WORD))

    def following(self, at: Value, second: Value) -> Value:
        """Where the walk goes from here; its memory is asked for."""
        builder = self.builder
        made = self.walk.next(at, second, None)
        pointer, flag = ir.IntType(8).as_pointer(), ir.IntType(32)
        given = [pointer, flag, flag, flag]
        fetch = declared(builder, "llvm.prefetch.p0", given, ir.VoidType())
        place = builder.bitcast(self.walk.place(made), pointer)
        builder.call(fetch, [place, flag(0), flag(3), flag(1)])
        return made

    def read(self, base: Value, index: Value) -> Value:
        """A place, or a walk's number, of 32 bits."""
        pointer = self.walk.where(base, index, _HALF)
        return self.builder.zext(self.builder.load(pointer, typ=_HALF), _WORD)

    def write_to(self, base: Value, index: Value, value: Value) -> None:
        """The same, written."""
        builder = self.builder
        builder.store(builder.trunc(value, _HALF), self.walk.where(base, index, _HALF))
