"""What emitted code says about trees that are walked: eight walks in lock-step.

Written as the compiler's intermediate language, because eight walks side by side as Python text
would take the compiler's front end longer than everything else in the stage.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

_WORD, _DOUBLE = ir.IntType(64), ir.DoubleType()
_HALF, _FLOAT = ir.IntType(32), ir.FloatType()
WALKS = 8
_SET_BIT = 30  # as in flour.ops.lockstep


def words() -> dict[str, Any]:
    """Every word by name."""
    return {f"walk8{kind}{apart}": _walk8(kind, apart) for kind in _KINDS for apart in _APART}


# --- eight walks ---------------------------------------------------------------------------------

#: Some nodes test for a set of categories, or all of them are small; every walk has slots of its
#: own, at an offset.
_KINDS: dict[str, int] = {"": 3, "_sets": 5, "_small": 4}
_APART = ("", "_apart")


def _walk8(kind: str, apart: str) -> Any:
    """Walk from eight places (written over with where the walks end).

    Arguments: the addresses of the places, of nodes and slots; with sets also of codes and words,
    with small nodes also how many bits are their child's; with walks apart also the address of
    their offsets. What they hold is told in flour.ops.lockstep.
    """
    count = _KINDS[kind] + bool(apart)

    def word(*arguments: Any) -> Any:
        def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            _WALKS[kind](builder, args, apart=bool(apart)).write()
            return context.get_dummy_value()

        return types.void(*[types.int64] * count), code

    names = ", ".join(["typingctx", *(f"a{place}" for place in range(count))])
    # numba asks an intrinsic for the names of its arguments.
    return intrinsic(eval(f"lambda {names}: word({names})", {"word": word}))  # noqa: S307


class _Walk:
    """Writes the loop of eight walks."""

    def __init__(self, builder: Any, args: Sequence[Any], *, apart: bool) -> None:
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

    def offset(self, lane: int) -> Any:
        """Where a lane's slots start."""
        return None if self.offsets is None else self.load(self.offsets, _WORD(lane), _WORD)

    def second(self, at: Any) -> Any:
        """The node's second half: its slot and its child."""
        return self.load(self.nodes, self.builder.add(at, _WORD(1)), _WORD)

    def moving(self, any_slot: Any) -> Any:
        """Whether any of the nodes looks at a slot but the first."""
        return self.builder.icmp_unsigned(">", any_slot, _WORD(0xFFFFFFFF))

    def next(self, at: Any, second: Any, shift: Any) -> Any:
        """Twice the number of the child."""
        builder = self.builder
        left = builder.and_(second, _WORD(0xFFFFFFFF))
        failed = self.failed(at, builder.lshr(second, _WORD(32)), shift)
        return builder.add(left, builder.shl(builder.zext(failed, _WORD), _WORD(1)))

    def failed(self, at: Any, number: Any, shift: Any) -> Any:
        """Whether the node sends the walk right."""
        return self.exceeds(at, self.moved(number, shift))

    def moved(self, slot: Any, shift: Any) -> Any:
        """The slot among those of all lanes."""
        return slot if shift is None else self.builder.add(slot, shift)

    def exceeds(self, at: Any, slot: Any) -> Any:
        """Whether the slot is not <= the threshold: larger, or NaN."""
        value = self.load(self.slots, slot, _DOUBLE, constant=False)
        return self.builder.fcmp_unordered(">", value, self.load(self.nodes, at, _DOUBLE))

    def where(self, base: Any, index: Any, kind: Any) -> Any:
        """The place of an element."""
        pointer = self.builder.inttoptr(base, kind.as_pointer())
        return self.builder.gep(pointer, [index], source_etype=kind)

    def load(
        self, base: Any, index: Any, kind: Any, *, constant: bool = True, step: Any = None
    ) -> Any:
        """An element (one of every step); what is constant nobody writes during the call."""
        value = self.builder.load(self.where(base, index, step or kind), typ=kind)
        if constant and base not in (self.places, self.offsets):
            value.set_metadata("invariant.load", self.builder.module.add_metadata([]))
        return value


class _SetWalk(_Walk):
    """Some nodes test for sets of categories."""

    def __init__(self, builder: Any, args: Sequence[Any], *, apart: bool) -> None:
        super().__init__(builder, args, apart=apart)
        self.codes, self.words = args[3:5]

    def failed(self, at: Any, number: Any, shift: Any) -> Any:
        """Either test is made, and the one that counts chosen without a branch."""
        builder = self.builder
        slot = self.moved(builder.and_(number, _WORD((1 << _SET_BIT) - 1)), shift)
        is_set = builder.lshr(number, _WORD(_SET_BIT))
        outside = self.outside(at, slot, is_set)
        chosen = builder.icmp_unsigned("!=", is_set, _WORD(0))
        return builder.select(chosen, outside, self.exceeds(at, slot))

    def outside(self, at: Any, slot: Any, is_set: Any) -> Any:
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

    def __init__(self, builder: Any, args: Sequence[Any], *, apart: bool) -> None:
        super().__init__(builder, args, apart=apart)
        self.bits = args[3]
        one = builder.shl(_WORD(1), self.bits)
        self.children = builder.sub(one, _WORD(1))

    def second(self, at: Any) -> Any:
        builder = self.builder
        half = self.load(builder.add(self.nodes, _WORD(4)), at, _HALF, step=_WORD)
        return builder.zext(half, _WORD)

    def moving(self, any_slot: Any) -> Any:
        return self.builder.icmp_unsigned(">", any_slot, self.children)

    def next(self, at: Any, second: Any, shift: Any) -> Any:
        builder = self.builder
        slot = self.moved(builder.lshr(second, self.bits), shift)
        value = self.load(self.slots, slot, _FLOAT, constant=False)
        limit = self.load(self.nodes, at, _FLOAT, step=_WORD)
        failed = builder.fcmp_unordered(">", value, limit)
        return builder.add(builder.and_(second, self.children), builder.zext(failed, _WORD))


_WALKS: dict[str, type[_Walk]] = {"": _Walk, "_sets": _SetWalk, "_small": _SmallWalk}
