"""What emitted code says about trees scored sixty-four rows at a time: see flour.ops.trees.slices.

A set of rows is the bits of one number, so a test of all of them is one comparison of a vector of
ranks, and following it to the children is two operations on whole numbers. Written as the
compiler's intermediate language: vectors of 64 have no counterpart in Python's text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir
from llvmlite.ir import IRBuilder, Value

from oven.compiler import machine
from oven.compiler.intrinsics.base import Typed, Values, on_words
from oven.compiler.kinds import FLOAT64, INT64, NOTHING, UINT32, UINT64
from oven.compiler.lowering import Intrinsic

ROWS = 64
#: Where there are no more rows than this, no others are looked at.
FEW_ROWS = 16
_BIT, _WORD, _INT, _DOUBLE = ir.IntType(1), ir.IntType(64), ir.IntType(32), ir.DoubleType()
_WHOLE = {"uint8": ir.IntType(8), "uint16": ir.IntType(16)}
_FLOATS = {"float32": ir.FloatType(), "float64": _DOUBLE}
_BYTE, _SHORT = ir.IntType(8), ir.IntType(16)
_RANKS = ir.VectorType(_BYTE, ROWS)
#: Ranks of one byte are below this; 255 is NaN's.
_MOST_RANKS = 254
#: The four fields of a node.
_SLOT, _RANK, _ROWS, _PASSED = range(4)
#: How many numbers a gather takes.
_GATHERED = 8
#: Sixteen thresholds can be read from so many in front of their power of two on; some lie behind.
_LAST = 14
_EIGHT, _PLACES = ir.VectorType(_DOUBLE, _GATHERED), ir.VectorType(_WORD, _GATHERED)


def intrinsics() -> dict[str, Intrinsic | int]:
    """Every word by name."""
    made: dict[str, Intrinsic | int] = {
        "rank64": on_words(6, _rank),
        "fails64": on_words(4, _fail),
        "member64": Typed((INT64, UINT64), UINT64, _member64),
        "bytes64": Typed((UINT64, INT64), NOTHING, _bytes64),
    }
    for index, kind in _WHOLE.items():
        name = "masks" if index == "uint8" else index
        made[f"split64_{name}"] = on_words(5, _splitting(kind, tested=False))
        made[f"split64_known_{name}"] = on_words(5, _splitting(kind, tested=True))
        made |= {
            f"add64_{index}_{value}": on_words(5, _adding(kind, held))
            for value, held in _FLOATS.items()
        }
        made |= {
            f"fold64_{index}_{value}": on_words(6, _folding(kind, held))
            for value, held in _FLOATS.items()
        }
    alone: dict[str, Any] = {f"leaf{width}": _leaf(width) for width in (32, 64)}
    alone["rank_alone"] = Typed((FLOAT64, INT64, INT64), INT64, _rank_alone)
    # Numbers, not functions: what depends on them is left out before it costs anything.
    known = {"permutes128": "avx512vbmi", "bit_masks": "avx512bw"}
    numbers = {name: int(machine.has(feature)) for name, feature in known.items()}
    return made | alone | numbers | {"wide_registers": int(machine.vector_bytes() >= ROWS // 2)}


def _fail(builder: IRBuilder, args: Values) -> None:
    """For each of the nodes, which rows fail its test, at the node's place.

    Arguments: the nodes and their number, the ranks of the rows, where the answers go. A node has
    sixteen bits for the slot it looks at, for its rank, and for its place.
    """
    nodes, count, ranks, fails = args

    def step(k: Value, _: Values) -> Values:
        place = builder.zext(_field(builder, nodes, k, _ROWS), _WORD)
        failed = _failed(builder, ranks, nodes, k)
        _store(builder, fails, place, builder.bitcast(failed, _WORD))
        return ()

    _loop(builder, count, (), step)


def _splitting(index: ir.IntType, *, tested: bool) -> Callable[[IRBuilder, Values], None]:
    """Send rows down one tree, and write which leaf each of them reaches.

    Arguments: the tree's inner nodes, in the order of their depth, and their number; the ranks of
    the rows (or, where those are known, which rows fail each node); room for the rows at each node;
    where the numbers of the leaves go. The k-th node leaves its rows at 2k + 1 and 2k + 2. A node
    has sixteen bits for the slot it looks at, for its rank, for where its rows are, and for how
    many leaves are on its left, which those that fail leave behind.
    """
    leaves = ir.VectorType(index, ROWS)

    def write(builder: IRBuilder, args: Values) -> None:
        nodes, count, given, masks, out = args
        _store(builder, masks, _WORD(0), ir.Constant(_WORD, -1))

        def step(k: Value, before: Values) -> Values:
            place = _field(builder, nodes, k, _ROWS)
            here = _load(builder, masks, builder.zext(place, _WORD), _WORD, constant=False)
            here = builder.bitcast(here, ir.VectorType(_BIT, ROWS))
            if tested:
                known = _load(builder, given, k, _WORD, constant=False)
                failed = builder.bitcast(known, here.type)
            else:
                failed = _failed(builder, given, nodes, k)
            right = builder.and_(here, failed)
            left = builder.xor(here, right)
            place = builder.shl(k, _WORD(1))
            _store(builder, masks, builder.add(place, _WORD(1)), builder.bitcast(left, _WORD))
            _store(builder, masks, builder.add(place, _WORD(2)), builder.bitcast(right, _WORD))
            passed = _field(builder, nodes, k, _PASSED, index)
            (number,) = before
            return (builder.select(right, builder.add(number, _all(builder, passed)), number),)

        (number,) = _loop(builder, count, (ir.Constant(leaves, [0] * ROWS),), step)
        builder.store(number, _pointer(builder, out, leaves), align=1)

    return write


def _failed(builder: IRBuilder, ranks: Value, nodes: Value, k: Value) -> Value:
    """The rows whose rank is above the node's."""
    slot = builder.zext(_field(builder, nodes, k, _SLOT), _WORD)
    where = _pointer(builder, builder.add(ranks, builder.mul(slot, _WORD(ROWS))), _RANKS)
    here = builder.load(where, typ=_RANKS, align=1)
    if machine.has("avx512bw"):
        limit = _field(builder, nodes, k, _RANK, _BYTE)
        return builder.icmp_unsigned(">", here, _all(builder, limit))
    limit = _field(builder, builder.add(nodes, _WORD(1)), k, _RANK, _BYTE)
    return builder.icmp_signed("<=", _all(builder, limit), here)


def _rank(builder: IRBuilder, args: Values) -> None:
    """How many thresholds each of 64 values exceeds, in ranks of one byte.

    Arguments: the values; the thresholds, ascending, padded to one fewer than a power of two with
    what nothing exceeds; which power (at least four); where the ranks go, and how many times.

    In front of the thresholds stand sixteen pivots: every power's sixteenth of them, which two
    registers hold. Eight searches side by side, none with a branch. The n-th ranks count the
    thresholds behind the first 254 n, up to 254. NaN has rank 255, and beside each 64 ranks stand
    the same with 0 for NaN.
    """
    *given, rows = args
    for_so_many(builder, rows, (FEW_ROWS, ROWS), lambda lanes: _rank_rows(builder, given, lanes))


def _rank_rows(builder: IRBuilder, args: Values, lanes: int) -> None:
    """The same of so many rows."""
    values, thresholds, power, out, times = args
    known = [_chunk(builder, values, chunk, _EIGHT) for chunk in range(lanes // _GATHERED)]
    pivots = [_chunk(builder, builder.sub(thresholds, _WORD(128)), k, _EIGHT) for k in (0, 1)]
    rest = builder.sub(power, _WORD(4))
    far = _all(builder, rest, _GATHERED)
    start = [builder.shl(_among(builder, pivots, value), far) for value in known]

    def step(k: Value, before: Values) -> Values:
        half = builder.shl(_WORD(1), builder.sub(builder.sub(rest, _WORD(1)), k))
        far, last = _all(builder, half, _GATHERED), builder.sub(half, _WORD(1))
        base = builder.add(thresholds, builder.shl(last, _WORD(3)))
        found = []
        for value, place in zip(known, before, strict=True):
            limit = _gather(builder, base, place, _DOUBLE)
            above = builder.fcmp_unordered(">", value, limit)
            found.append(builder.select(above, builder.add(place, far), place))
        return found

    found = [
        builder.select(builder.fcmp_unordered("uno", value, value), _same(_PLACES, 0xFFFF), place)
        for value, place in zip(known, _loop(builder, rest, start, step), strict=True)
    ]
    _spread(builder, _joined(builder, found), out, times)


def for_so_many(
    builder: IRBuilder, rows: Value, sizes: Sequence[int], write: Callable[[int], None]
) -> None:
    """Write code for the first of the sizes that is no less than the number of rows."""
    size, *more = sizes
    if not more:
        write(size)
        return
    with builder.if_else(builder.icmp_signed("<=", rows, _WORD(size))) as (here, other):
        with here:
            write(size)
        with other:
            for_so_many(builder, rows, more, write)


def _spread(builder: IRBuilder, found: Value, out: Value, times: Value) -> None:
    """Ranks of two bytes (the last is NaN's) as so many of one."""
    kind = ir.VectorType(_BYTE, found.type.count)

    def step(k: Value, _: Values) -> Values:
        first = builder.trunc(builder.mul(k, _WORD(_MOST_RANKS)), _SHORT)
        base = _all(builder, first, kind.count)
        above = builder.icmp_unsigned(">", found, base)
        over = builder.select(above, builder.sub(found, base), _same(found.type, 0))
        least = builder.icmp_unsigned("<", over, _same(found.type, _MOST_RANKS))
        missing = builder.icmp_unsigned("==", found, _same(found.type, 0xFFFF))
        ranks = builder.trunc(builder.select(least, over, _same(found.type, _MOST_RANKS)), kind)
        where = builder.add(out, builder.mul(k, _WORD(2 * ROWS)))
        for nan in (255, 0):
            made = _signed(builder, builder.select(missing, _same(kind, nan), ranks))
            builder.store(made, _pointer(builder, where, kind), align=1)
            where = builder.add(where, _WORD(ROWS))
        return ()

    _loop(builder, times, (), step)


def _signed(builder: IRBuilder, ranks: Value) -> Value:
    """Ranks as comparisons with a sign order them, where no others are of one instruction."""
    if machine.has("avx512bw"):
        return ranks
    return builder.xor(ranks, _same(ranks.type, 128))


def _joined(builder: IRBuilder, found: Values) -> Value:
    """Vectors of whole numbers, one behind the other, as two bytes each."""
    narrow = ir.VectorType(_SHORT, found[0].type.count)
    parts = [builder.trunc(part, narrow) for part in found]
    while len(parts) > 1:
        count = 2 * parts[0].type.count
        order = ir.Constant(ir.VectorType(_INT, count), list(range(count)))
        pairs = zip(parts[::2], parts[1::2], strict=True)
        parts = [builder.shuffle_vector(low, high, order) for low, high in pairs]
    return parts[0]


def _same(kind: ir.VectorType, number: int) -> Value:
    """A constant vector of one number."""
    return ir.Constant(kind, [number] * kind.count)


def _among(builder: IRBuilder, pivots: Values, value: Value) -> Value:
    """How many of the sixteen pivots (the last is none) each value exceeds."""
    place = _same(_PLACES, 0)
    for half in (8, 4, 2, 1):
        limit = _chosen(builder, pivots, builder.add(place, _same(_PLACES, half - 1)))
        above = builder.fcmp_unordered(">", value, limit)
        place = builder.select(above, builder.add(place, _same(_PLACES, half)), place)
    return place


def _chosen(builder: IRBuilder, pivots: Values, place: Value) -> Value:
    """The pivots at these places."""
    kind = pivots[0].type
    if machine.has("avx512f"):
        name = "llvm.x86.avx512.vpermi2var.pd.512"
        function = _declared(builder, name, [kind, place.type, kind], kind)
        return builder.call(function, [pivots[0], place, pivots[1]])
    made = ir.Constant(kind, ir.Undefined)
    for lane in range(_GATHERED):
        at = builder.extract_element(place, _INT(lane))
        low = builder.extract_element(pivots[0], builder.and_(at, _WORD(7)))
        high = builder.extract_element(pivots[1], builder.and_(at, _WORD(7)))
        is_low = builder.icmp_signed("<", at, _WORD(8))
        made = builder.insert_element(made, builder.select(is_low, low, high), _INT(lane))
    return made


def _adding(index: ir.IntType, value: ir.Type) -> Callable[[IRBuilder, Values], None]:
    """Add the value of its leaf to each row's sum.

    Arguments: the numbers of the leaves, where the value of the first leaf is, how many values
    there are from leaf to leaf, the sums.
    """
    size = 4 if isinstance(value, ir.FloatType) else 8
    count = _GATHERED * 8 // size
    numbers, narrow = ir.VectorType(value, count), ir.VectorType(index, count)

    def write(builder: IRBuilder, args: Values) -> None:
        leaves, values, stride, sums, _ = args
        far = _all(builder, builder.trunc(stride, _INT), count)
        for chunk in range(ROWS // count):
            number = _chunk(builder, leaves, chunk, narrow)
            place = builder.mul(builder.zext(number, ir.VectorType(_INT, count)), far)
            held = _gather(builder, values, place, value)
            where = _pointer(builder, builder.add(sums, _WORD(chunk * 64)), numbers)
            total = builder.fadd(builder.load(where, typ=numbers, align=size), held)
            builder.store(total, where, align=size)

    return write


def _folding(index: ir.IntType, value: ir.Type) -> Callable[[IRBuilder, Values], None]:
    """Add the values of their leaves in some trees to each row's sum, tree after tree.

    Arguments: the numbers of the leaves, 64 for each tree, and the number of trees; where each
    tree's leaves start among the values; the values, the sums, the number of rows.
    """
    size = 4 if isinstance(value, ir.FloatType) else 8
    count = _GATHERED * 8 // size
    together = ROWS // 2 // count
    numbers, narrow = ir.VectorType(value, count), ir.VectorType(index, count)

    def write(builder: IRBuilder, args: Values) -> None:
        leaves, trees, starts, values, sums, rows = args

        def half(c: Value, _: Values) -> Values:
            first = builder.mul(c, _WORD(ROWS // 2))
            mine = builder.add(sums, builder.mul(first, _WORD(size)))
            base = builder.add(leaves, builder.mul(first, _WORD(index.width // 8)))

            def tree(t: Value, before: Values) -> Values:
                here = builder.add(base, builder.mul(t, _WORD(ROWS * index.width // 8)))
                start = builder.mul(_load(builder, starts, t, _WORD), _WORD(size))
                where = builder.add(values, start)
                after = []
                for k, total in enumerate(before):
                    number = _chunk(builder, here, k, narrow)
                    place = builder.zext(number, ir.VectorType(_INT, count))
                    after.append(builder.fadd(total, _gather(builder, where, place, value)))
                return after

            start = [_chunk(builder, mine, k, numbers) for k in range(together)]
            for k, total in enumerate(_loop(builder, trees, start, tree)):
                where = builder.add(mine, _WORD(k * 64))
                builder.store(total, _pointer(builder, where, numbers), align=size)
            return ()

        halves = builder.udiv(builder.add(rows, _WORD(ROWS // 2 - 1)), _WORD(ROWS // 2))
        _loop(builder, halves, (), half)

    return write


def _member64(builder: IRBuilder, args: Values) -> Value:
    """Which of 64 codes (bytes below 64, at an address) are among the members."""
    codes, members = args
    kind = ir.VectorType(_BYTE, ROWS)
    found = builder.load(_pointer(builder, codes, kind), typ=kind, align=1)
    if machine.has("avx512bitalg"):
        function = _declared(builder, "llvm.x86.avx512.vpshufbitqmb.512", [kind, kind], _BIT)
        wide = builder.bitcast(_all(builder, members, ROWS // 8), kind)
        return builder.bitcast(builder.call(function, [wide, found]), _WORD)
    # What stands behind the rows that there are may be any number.
    found = builder.and_(found, _same(kind, 63))
    if machine.has("ssse3"):
        return _member_of_bytes(builder, members, found)
    wide = builder.zext(found, ir.VectorType(_WORD, ROWS))
    shifted = builder.lshr(_all(builder, members), wide)
    return builder.bitcast(builder.trunc(shifted, ir.VectorType(_BIT, ROWS)), _WORD)


def _member_of_bytes(builder: IRBuilder, members: Value, codes: Value) -> Value:
    """The same by two look-ups: the byte that a code's bit is in, and the bit in its byte."""
    count = 32 if machine.has("avx2") else 16
    kind, word = ir.VectorType(_BYTE, count), ir.VectorType(_WORD, count // 8)
    name = f"llvm.x86.{'avx2.pshuf.b' if count == 32 else 'ssse3.pshuf.b.128'}"
    look = _declared(builder, name, [kind, kind], kind)
    table = builder.bitcast(_all(builder, members, word.count), kind)
    bits = ir.Constant(kind, [1 << k % 8 for k in range(count)])
    made = _WORD(0)
    for first in range(0, ROWS, count):
        order = ir.Constant(ir.VectorType(_INT, count), list(range(first, first + count)))
        code = builder.shuffle_vector(codes, ir.Constant(codes.type, ir.Undefined), order)
        byte = builder.call(look, [table, builder.lshr(code, _same(kind, 3))])
        bit = builder.call(look, [bits, builder.and_(code, _same(kind, 7))])
        found = builder.icmp_unsigned("!=", builder.and_(byte, bit), _same(kind, 0))
        some = builder.zext(builder.bitcast(found, ir.IntType(count)), _WORD)
        made = builder.or_(made, builder.shl(some, _WORD(first)))
    return made


def _bytes64(builder: IRBuilder, args: Values) -> None:
    """A byte for each of 64 rows, at an address: 1 for those that are among the bits."""
    bits = builder.bitcast(args[0], ir.VectorType(_BIT, ROWS))
    ranks = _signed(builder, builder.zext(bits, _RANKS))
    builder.store(ranks, _pointer(builder, args[1], _RANKS), align=1)


# --- one row -------------------------------------------------------------------------------------


def _rank_alone(builder: IRBuilder, args: Values) -> Value:
    """How many thresholds, as in rank64, one value exceeds; any number for NaN.

    It is compared with all pivots, then with all thresholds up to the next pivot: no branch to
    predict, and nothing that waits for more than one comparison.
    """
    value, thresholds, power = args

    def exceeded(address: Value) -> Value:
        limits = _chunk(builder, address, 0, ir.VectorType(_DOUBLE, 16))
        bits = builder.bitcast(builder.fcmp_ordered(">", many, limits), _SHORT)
        return builder.zext(builder.ctpop(builder.zext(bits, _INT)), _WORD)

    def step(k: Value, before: Values) -> Values:
        here = builder.add(second, builder.shl(k, _WORD(7)))
        return (builder.add(before[0], exceeded(here)),)

    many, rest = _all(builder, value, 16), builder.sub(power, _WORD(4))
    place = builder.shl(exceeded(builder.sub(thresholds, _WORD(128))), rest)
    # All in front of the last pivot are exceeded, so some of them may be compared once more.
    last = builder.sub(builder.shl(_WORD(1), power), _WORD(_LAST))
    place = builder.select(builder.icmp_signed("<", place, last), place, last)
    start = builder.add(thresholds, builder.shl(place, _WORD(3)))
    second = builder.add(start, _WORD(128))
    more = builder.lshr(builder.sub(builder.shl(_WORD(1), rest), _WORD(1)), _WORD(4))
    return _loop(builder, more, (builder.add(place, exceeded(start)),), step)[0]


def _leaf(width: int) -> Any:
    """The leaf at which one row leaves a tree of so many nodes.

    Arguments: the slots of the nodes, and behind them their ranks; for each node the leaves that
    are possible if it fails; the ranks of the row; which nodes fail besides.
    """
    whole = UINT32 if width == 32 else UINT64

    def write(builder: IRBuilder, args: Values) -> Any:
        return _reached(builder, args, width)

    return Typed((INT64, INT64, INT64, whole), INT64, write)


def _reached(builder: IRBuilder, args: Values, width: int) -> Value:
    nodes, masks, ranks, more = args
    whole = ir.IntType(width)
    given = ir.VectorType(_BYTE, width)
    slots, limits = (_chunk(builder, nodes, k, given) for k in (0, 1))
    known = _looked_up(builder, ranks, slots)
    above = builder.icmp_unsigned(">", known, limits)
    failed = builder.or_(builder.bitcast(above, whole), more)
    flags = builder.bitcast(failed, ir.VectorType(_BIT, width))
    count = 512 // width
    possible = ir.VectorType(whole, count)
    every = ir.Constant(possible, [-1] * count)
    left = every
    for k in range(width // count):
        order = ir.Constant(ir.VectorType(_INT, count), list(range(k * count, (k + 1) * count)))
        mine = builder.shuffle_vector(flags, ir.Constant(flags.type, ir.Undefined), order)
        mask = _chunk(builder, masks, k, possible)
        left = builder.and_(left, builder.select(mine, mask, every))
    name = f"llvm.vector.reduce.and.v{count}i{width}"
    found = builder.call(_declared(builder, name, [possible], whole), [left])
    leaf = builder.cttz(found, ir.Constant(_BIT, 1))
    return builder.zext(leaf, _WORD) if width < 64 else leaf


def _looked_up(builder: IRBuilder, table: Value, places: Value) -> Value:
    """The bytes at these places of a table of 128."""
    if not machine.has("avx512vbmi"):
        return places  # nobody calls it here: see permutes128
    count = places.type.count
    order = ir.Constant(ir.VectorType(_INT, ROWS), [k % count for k in range(ROWS)])
    wide = builder.shuffle_vector(places, ir.Constant(places.type, ir.Undefined), order)
    low, high = (_chunk(builder, table, k, _RANKS) for k in (0, 1))
    function = _declared(builder, "llvm.x86.avx512.vpermi2var.qi.512", [_RANKS] * 3, _RANKS)
    found = builder.call(function, [low, wide, high])
    order = ir.Constant(ir.VectorType(_INT, count), list(range(count)))
    return builder.shuffle_vector(found, ir.Constant(_RANKS, ir.Undefined), order)


# --- pieces --------------------------------------------------------------------------------------


def _loop(
    builder: IRBuilder,
    count: Value,
    start: Values,
    step: Callable[[Value, Values], Values],
) -> Values:
    """`for k in range(count)`, handing values from turn to turn; what they are in the end."""
    before = builder.block
    look, body, end = (builder.append_basic_block(name) for name in ("look", "body", "end"))
    builder.branch(look)
    builder.position_at_end(look)
    k = builder.phi(_WORD)
    known = [builder.phi(value.type) for value in start]
    builder.cbranch(builder.icmp_signed("<", k, count), body, end)
    builder.position_at_end(body)
    after = [builder.add(k, _WORD(1)), *step(k, known)]
    last = builder.block
    builder.branch(look)
    for phi, first, then in zip([k, *known], [_WORD(0), *start], after, strict=True):
        phi.add_incoming(first, before)
        phi.add_incoming(then, last)
    builder.position_at_end(end)
    return known


def _field(builder: IRBuilder, nodes: Value, k: Value, field: int, kind: ir.Type = _SHORT) -> Value:
    """Sixteen bits of the k-th node, or the lower eight of them."""
    # From memory, a vector is filled with it in one step.
    address = builder.add(nodes, builder.add(builder.shl(k, _WORD(3)), _WORD(2 * field)))
    value = builder.load(_pointer(builder, address, kind), typ=kind, align=1)
    value.set_metadata("invariant.load", builder.module.add_metadata([]))
    return value


def _pointer(builder: IRBuilder, address: Value, kind: ir.Type) -> Value:
    return builder.inttoptr(address, kind.as_pointer())


def _load(
    builder: IRBuilder, base: Value, index: Value, kind: ir.Type, *, constant: bool = True
) -> Value:
    """An element; what is constant nobody writes during the call."""
    where = builder.gep(_pointer(builder, base, kind), [index], source_etype=kind)
    value = builder.load(where, typ=kind)
    if constant:
        value.set_metadata("invariant.load", builder.module.add_metadata([]))
    return value


def _store(builder: IRBuilder, base: Value, index: Value, value: Value) -> None:
    where = builder.gep(_pointer(builder, base, value.type), [index], source_etype=value.type)
    builder.store(value, where)


def _chunk(builder: IRBuilder, base: Value, chunk: int, kind: ir.VectorType) -> Value:
    """The vector of this number in a row of them."""
    size = kind.count * (
        8
        if kind.element == _DOUBLE
        else 4
        if kind.element == _FLOATS["float32"]
        else kind.element.width // 8
    )
    where = _pointer(builder, builder.add(base, _WORD(chunk * size)), kind)
    return builder.load(where, typ=kind, align=1)


def _all(builder: IRBuilder, value: Value, count: int = ROWS) -> Value:
    """One number in every lane."""
    kind = ir.VectorType(value.type, count)
    one = builder.insert_element(ir.Constant(kind, ir.Undefined), value, _INT(0))
    order = ir.Constant(ir.VectorType(_INT, count), [0] * count)
    return builder.shuffle_vector(one, ir.Constant(kind, ir.Undefined), order)


def _gather(builder: IRBuilder, base: Value, place: Value, kind: ir.Type) -> Value:
    """The elements at these places, lane by lane."""
    count = place.type.count
    pointers = ir.VectorType(ir.PointerType(), count)
    where = builder.gep(_pointer(builder, base, kind), [place], source_etype=kind)
    where.type = pointers  # as many pointers as there are places, which the builder does not know
    result, flags = ir.VectorType(kind, count), ir.VectorType(_BIT, count)
    item, size = ("f64", 8) if isinstance(kind, ir.DoubleType) else ("f32", 4)
    name = f"llvm.masked.gather.v{count}{item}.v{count}p0"
    function = _declared(builder, name, [pointers, _INT, flags, result], result)
    every = ir.Constant(flags, [1] * count)
    return builder.call(function, [where, _INT(size), every, ir.Constant(result, ir.Undefined)])


def _declared(
    builder: IRBuilder, name: str, given: Sequence[ir.Type], result: ir.Type
) -> ir.Function:
    """A function of the compiler itself."""
    known = builder.module.globals.get(name)
    if known is not None:
        return known
    answer = ir.VectorType(_BIT, ROWS) if result == _BIT else result
    return ir.Function(builder.module, ir.FunctionType(answer, given), name)
