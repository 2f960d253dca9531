"""What emitted code says about trees: walks in lock-step, and masks of leaves for sixteen rows.

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
_KINDS: dict[str, Any] = {"float32": types.float32, "float64": types.float64}
_BITS: dict[str, Any] = {"uint32": types.uint32, "uint64": types.uint64}
WALKS = 8
_LANES = 16
_SET_BIT = 30  # as in flour.ops.lockstep


def words() -> dict[str, Any]:
    """Every word by name."""
    made = {f"walk8{sets}{apart}": _walk8(sets, apart) for sets in _SETS for apart in _APART}
    made |= {
        f"and16_{test}_{k}_{b}": _and16(test, kind, bits)
        for test in ("ogt", "ugt", "oge", "uge")
        for k, kind in _KINDS.items()
        for b, bits in _BITS.items()
    }
    return made | {f"first_bit_{b}": _first_bit(bits) for b, bits in _BITS.items()}


# --- eight walks ---------------------------------------------------------------------------------

#: Some nodes test for a set of categories; every walk has slots of its own, at an offset.
_SETS, _APART = ("", "_sets"), ("", "_apart")


def _walk8(sets: str, apart: str) -> Any:
    """Walk from eight places (written over with where the walks end).

    Arguments: the addresses of the places, of nodes and slots; with sets also of codes and words;
    with walks apart also of their offsets. What they hold is told in flour.ops.lockstep.
    """
    count = 3 + 2 * bool(sets) + bool(apart)

    def word(*arguments: Any) -> Any:
        def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            _Walk(builder, args, sets=bool(sets), apart=bool(apart)).write()
            return context.get_dummy_value()

        return types.void(*[types.int64] * count), code

    names = ", ".join(["typingctx", *(f"a{place}" for place in range(count))])
    # numba asks an intrinsic for the names of its arguments.
    return intrinsic(eval(f"lambda {names}: word({names})", {"word": word}))  # noqa: S307


class _Walk:
    """Writes the loop of eight walks."""

    def __init__(self, builder: Any, args: Sequence[Any], *, sets: bool, apart: bool) -> None:
        self.builder = builder
        self.places, self.nodes, self.slots = args[:3]
        self.codes: Any = args[3] if sets else None
        self.words: Any = args[4] if sets else None
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
        seconds = [self.load(self.nodes, builder.add(a, _WORD(1)), _WORD) for a in at]
        any_slot = seconds[0]
        for second in seconds[1:]:
            any_slot = builder.or_(any_slot, second)
        moving = builder.icmp_unsigned("!=", builder.lshr(any_slot, _WORD(32)), _WORD(0))
        builder.cbranch(moving, step, end)
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

    def next(self, at: Any, second: Any, shift: Any) -> Any:
        """Twice the number of the child."""
        builder = self.builder
        left = builder.and_(second, _WORD(0xFFFFFFFF))
        number = builder.lshr(second, _WORD(32))
        if self.words is None:
            failed = self.exceeds(at, self.moved(number, shift))
        else:
            slot = self.moved(builder.and_(number, _WORD((1 << _SET_BIT) - 1)), shift)
            is_set = builder.lshr(number, _WORD(_SET_BIT))
            outside = self.outside(at, slot, is_set)
            chosen = builder.icmp_unsigned("!=", is_set, _WORD(0))
            failed = builder.select(chosen, outside, self.exceeds(at, slot))
        return builder.add(left, builder.shl(builder.zext(failed, _WORD), _WORD(1)))

    def moved(self, slot: Any, shift: Any) -> Any:
        """The slot among those of all lanes."""
        return slot if shift is None else self.builder.add(slot, shift)

    def exceeds(self, at: Any, slot: Any) -> Any:
        """Whether the slot is not <= the threshold: larger, or NaN."""
        value = self.load(self.slots, slot, _DOUBLE, constant=False)
        return self.builder.fcmp_unordered(">", value, self.load(self.nodes, at, _DOUBLE))

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

    def where(self, base: Any, index: Any, kind: Any) -> Any:
        """The place of an element."""
        pointer = self.builder.inttoptr(base, kind.as_pointer())
        return self.builder.gep(pointer, [index], source_etype=kind)

    def load(self, base: Any, index: Any, kind: Any, *, constant: bool = True) -> Any:
        """An element; what is constant nobody writes during the call."""
        value = self.builder.load(self.where(base, index, kind), typ=kind)
        if constant and base not in (self.places, self.offsets):
            value.set_metadata("invariant.load", self.builder.module.add_metadata([]))
        return value


# --- sixteen rows --------------------------------------------------------------------------------

_STORED = {"float32": ir.FloatType(), "float64": _DOUBLE}


def _and16(test: str, kind: Any, bits: Any) -> Any:
    """masks[l] &= mask wherever values[l] compares so with the threshold, for sixteen lanes."""
    values = ir.VectorType(_STORED[str(kind)], _LANES)
    words = ir.VectorType(ir.IntType(bits.bitwidth), _LANES)

    def word(typingctx: Any, masks: Any, here: Any, threshold: Any, mask: Any) -> Any:
        def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            where = builder.inttoptr(args[0], words.as_pointer())
            given = builder.inttoptr(args[1], values.as_pointer())
            known = builder.load(given, align=kind.bitwidth // 8, typ=values)
            compare = builder.fcmp_ordered if test[0] == "o" else builder.fcmp_unordered
            symbol = ">" if test[1:] == "gt" else ">="
            failed = compare(symbol, known, _repeated(builder, args[2]))
            all_leaves = ir.Constant(words, [(1 << bits.bitwidth) - 1] * _LANES)
            kept = builder.select(failed, _repeated(builder, args[3]), all_leaves)
            old = builder.load(where, align=bits.bitwidth // 8, typ=words)
            builder.store(builder.and_(old, kept), where, align=bits.bitwidth // 8)
            return context.get_dummy_value()

        return types.void(types.int64, types.int64, kind, bits), code

    return intrinsic(word)


def _first_bit(bits: Any) -> Any:
    """The number of the lowest bit that is set."""

    def word(typingctx: Any, mask: Any) -> Any:
        def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            found = builder.cttz(args[0], ir.Constant(ir.IntType(1), 0))
            return builder.zext(found, ir.IntType(64)) if bits.bitwidth < 64 else found

        return types.int64(bits), code

    return intrinsic(word)


def _repeated(builder: Any, value: Any) -> Any:
    """One number in every lane."""
    kind = ir.VectorType(value.type, _LANES)
    one = builder.insert_element(ir.Constant(kind, ir.Undefined), value, ir.IntType(32)(0))
    order = ir.Constant(ir.VectorType(ir.IntType(32), _LANES), [0] * _LANES)
    return builder.shuffle_vector(one, ir.Constant(kind, ir.Undefined), order)
