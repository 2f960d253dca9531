"""Words of emitted code for walked trees: eight walks in lock-step, or all in turns.

Written as the compiler's intermediate language, because eight walks side by side as Python text
would take the compiler's front end longer than everything else in the stage.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, reduce

from llvmlite import ir
from llvmlite.ir import Value

from oven.compiler.intrinsics.base import Values
from oven.compiler.intrinsics.builder import FLOATS, Builder, on_words
from oven.compiler.kinds import BIT, INT, WORD
from oven.compiler.lowering import Intrinsic

WALKS = 8
_SET_BIT = 30  # as in flour.ops.trees.lockstep


def intrinsics() -> dict[str, Intrinsic | int]:
    """Every word by name."""
    made: dict[str, Intrinsic | int] = {}
    for kind, count in _KINDS.items():
        made[f"walk8{kind}"] = on_words(count, partial(_walk8, kind=kind, apart=False))
        made[f"walk8{kind}_apart"] = on_words(count + 1, partial(_walk8, kind=kind, apart=True))
        made[f"walk_all{kind}"] = on_words(count + 3, partial(_walk_all, kind=kind))
    return made


# --- eight walks ---------------------------------------------------------------------------------

#: Some nodes test for a set of categories, or for one category, or all of them are small; every
#: walk has slots of its own, at an offset.
_KINDS: dict[str, int] = {"": 3, "_codes": 4, "_sets": 5, "_small": 4, "_small_codes": 5}


def _walk8(b: Builder, args: Values, *, kind: str, apart: bool) -> None:
    """Walk from eight places (written over with where the walks end).

    Arguments: the addresses of the places, of nodes and slots; with sets also of codes and words,
    with small nodes also how many bits are their child's, with codes from which slot on there are
    codes; with walks apart also the address of their offsets. What they hold is told in
    flour.ops.trees.lockstep.
    """
    _WALKS[kind](b, args, apart=apart).write()


def _walk_all(b: Builder, args: Values, *, kind: str) -> None:
    """Walk from so many places, a step each in turn, and tell what the leaves hold.

    Arguments: as above, then the addresses of each walk's number and of where what its leaf holds
    is written by that number, and how many walks there are. Places and numbers are written over.
    """
    _Turns(_WALKS[kind](b, args[:-3], apart=False), *args[-3:]).write()


class _EightWalks:
    """Writes the loop of eight walks."""

    def __init__(self, builder: Builder, args: Values, *, apart: bool) -> None:
        self.builder = builder
        self.places, self.nodes, self.slots = args[:3]
        self.offsets = args[-1] if apart else None
        self.codes: Value | None = None

    def write(self) -> None:
        """From the places to the places."""
        builder = self.builder
        start = [self.load(self.places, WORD(lane), WORD) for lane in range(WALKS)]
        shift = [self.offset(lane) for lane in range(WALKS)]
        seconds: list[Value] = []

        def look(at: Values) -> Value:
            # A leaf looks at the first slot: when all do, all walks have ended.
            seconds[:] = [self.second(a) for a in at]
            return self.moving(reduce(builder.or_, seconds))

        def step(at: Values) -> Values:
            return [self.next(*each) for each in zip(at, seconds, shift, strict=True)]

        for lane, a in enumerate(builder.while_(start, look, step)):
            builder.put(self.places, WORD(lane), a)

    def offset(self, lane: int) -> Value | None:
        """The start of a lane's slots."""
        return None if self.offsets is None else self.load(self.offsets, WORD(lane), WORD)

    def second(self, at: Value) -> Value:
        """The node's second half: its slot and its child."""
        return self.load(self.nodes, self.builder.add(at, 1), WORD)

    def held(self, at: Value) -> Value:
        """The first half, which is what a leaf holds."""
        return self.load(self.nodes, at, WORD)

    def moving(self, any_slot: Value) -> Value:
        """True if any of the nodes looks at a slot but the first."""
        return self.builder.icmp_unsigned(">", any_slot, WORD(0xFFFFFFFF))

    def next(self, at: Value, second: Value, shift: Value | None) -> Value:
        """Twice the number of the child."""
        builder = self.builder
        left = builder.and_(second, 0xFFFFFFFF)
        failed = self.failed(at, builder.lshr(second, 32), shift)
        return builder.add(left, builder.shl(builder.zext(failed, WORD), WORD(1)))

    def failed(self, at: Value, number: Value, shift: Value | None) -> Value:
        """True if the node sends the walk right."""
        return self.exceeds(at, number, self.moved(number, shift))

    def moved(self, slot: Value, shift: Value | None) -> Value:
        """The slot among those of all lanes."""
        return slot if shift is None else self.builder.add(slot, shift)

    def exceeds(self, at: Value, number: Value, slot: Value) -> Value:
        """True if what the slot (of this number) holds fails the node's test."""
        value = self.load(self.slots, slot, FLOATS["float64"])
        return self.fails(value, self.load(self.nodes, at, FLOATS["float64"]), number)

    def fails(self, value: Value, limit: Value, number: Value) -> Value:
        """True if the value is not <= the threshold: larger, or NaN."""
        return self.builder.fcmp_unordered(">", value, limit)

    def where(self, base: Value, index: Value, kind: ir.Type) -> Value:
        """The place of an element."""
        return self.builder.gep(self.builder.pointer(base, kind), [index])

    def load(self, base: Value, index: Value, kind: ir.Type, step: ir.Type | None = None) -> Value:
        """An element (one of every step); only nodes and words stay the same during the call."""
        value = self.builder.load(self.builder.place((base, index), step or kind, kind))
        varies = base in (self.places, self.offsets, self.slots, self.codes)
        return value if varies else self.builder.unchanging(value)


class _SetWalk(_EightWalks):
    """Some nodes test for sets of categories."""

    def __init__(self, builder: Builder, args: Values, *, apart: bool) -> None:
        super().__init__(builder, args, apart=apart)
        self.codes, self.words = args[3:5]

    def failed(self, at: Value, number: Value, shift: Value | None) -> Value:
        """Either test is made, and the one that counts chosen without a branch."""
        builder = self.builder
        slot = self.moved(builder.and_(number, WORD((1 << _SET_BIT) - 1)), shift)
        is_set = builder.lshr(number, _SET_BIT)
        outside = self.outside(at, slot, is_set)
        chosen = builder.icmp_unsigned("!=", is_set, WORD(0))
        return builder.select(chosen, outside, self.exceeds(at, number, slot))

    def outside(self, at: Value, slot: Value, is_set: Value) -> Value:
        """True if the slot's code is not in the node's set (any answer where it has none)."""
        builder = self.builder
        code = self.load(self.codes, slot, WORD)
        span = builder.and_(self.load(self.nodes, at, WORD), builder.neg(is_set))
        last, word = builder.lshr(span, 32), builder.ashr(code, 5)
        within = builder.select(builder.icmp_signed("<", word, last), word, last)
        index = builder.add(builder.and_(span, 0xFFFFFFFF), within)
        bits = builder.zext(self.load(self.words, index, INT), WORD)
        bit = builder.lshr(bits, builder.and_(code, 31))
        return builder.not_(builder.trunc(bit, BIT))


class _SmallWalk(_EightWalks):
    """Nodes of eight bytes, numbers of four."""

    def __init__(self, builder: Builder, args: Values, *, apart: bool) -> None:
        super().__init__(builder, args, apart=apart)
        self.bits = args[3]
        one = builder.shl(WORD(1), self.bits)
        self.children = builder.sub(one, 1)

    def second(self, at: Value) -> Value:
        half = self.load(self.builder.add(self.nodes, 4), at, INT, WORD)
        return self.builder.zext(half, WORD)

    def held(self, at: Value) -> Value:
        return self.builder.zext(self.load(self.nodes, at, INT, WORD), WORD)

    def moving(self, any_slot: Value) -> Value:
        return self.builder.icmp_unsigned(">", any_slot, self.children)

    def next(self, at: Value, second: Value, shift: Value | None) -> Value:
        builder = self.builder
        failed = self.failed(at, builder.lshr(second, self.bits), shift)
        return builder.add(builder.and_(second, self.children), builder.zext(failed, WORD))

    def exceeds(self, at: Value, number: Value, slot: Value) -> Value:
        value = self.load(self.slots, slot, FLOATS["float32"])
        return self.fails(value, self.load(self.nodes, at, FLOATS["float32"], WORD), number)


class _CodeWalk(_EightWalks):
    """Some nodes test for one category: from a slot on, slots hold codes."""

    def __init__(self, builder: Builder, args: Values, *, apart: bool) -> None:
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


_WALKS: dict[str, type[_EightWalks]] = {
    "": _EightWalks,
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

    def __init__(self, walk: _EightWalks, numbers: Value, ends: Value, count: Value) -> None:
        self.walk, self.builder = walk, walk.builder
        self.numbers, self.ends, self.count = numbers, ends, count

    def write(self) -> None:
        """Rounds until no walk is left; in the last of each few the ended ones are left out."""
        builder = self.builder

        def rounds(left: Values) -> Values:
            for _ in range(_ROUNDS - 1):
                self.loop(left[0], self.step)
            return [self.loop(left[0], self.sift)]

        builder.while_(
            [self.count], lambda left: builder.icmp_signed(">", left[0], WORD(0)), rounds
        )

    def loop(self, count: Value, body: Callable[[Value, Value], Value]) -> Value:
        """Do this for each walk, of which there is one at least; a number goes along."""
        builder = self.builder
        before, inside = builder.block, builder.append_basic_block("walks")
        after = builder.append_basic_block("then")
        builder.branch(inside)
        builder.position_at_end(inside)
        index, carried = builder.phi(WORD), builder.phi(WORD)
        for phi in (index, carried):
            phi.add_incoming(WORD(0), before)
        made, following = body(index, carried), builder.add(index, 1)
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
        """One step of one walk, kept only if it had not ended; what a leaf holds is told."""
        builder, walk = self.builder, self.walk
        at, number = self.read(walk.places, index), self.read(self.numbers, index)
        second = walk.second(at)
        builder.put(self.ends, number, walk.held(at))
        self.write_to(walk.places, kept, self.following(at, second))
        self.write_to(self.numbers, kept, number)
        return builder.add(kept, builder.zext(walk.moving(second), WORD))

    def following(self, at: Value, second: Value) -> Value:
        """The next node of the walk; its memory is prefetched."""
        made = self.walk.next(at, second, None)
        self.builder.fetch(self.walk.where(self.walk.nodes, made, WORD))
        return made

    def read(self, base: Value, index: Value) -> Value:
        """A place, or a walk's number, of 32 bits."""
        return self.builder.zext(self.builder.item(base, index, INT, constant=False), WORD)

    def write_to(self, base: Value, index: Value, value: Value) -> None:
        """Write a place, or a walk's number, of 32 bits."""
        self.builder.put(base, index, self.builder.trunc(value, INT))
