"""The entry: a plan as one function that Python calls directly, in machine code.

`entry(self, argument)` is what Python's C interface calls a METH_O function. `self` is an int64
array, the entry's table; the argument is a row or a block of rows. Arrays, lists and floats are
read where CPython and numpy keep them (oven.entry.array_entry checks that they do so before it
opens an entry), outputs are made and filled, and all stages run, without one step of interpreted
code. Whatever is not exactly what the plan was made for goes to a Python function in the table.

Making an object may run the garbage collector, and that may run anybody's code, this entry
included. So all containers are made first, and scratch memory, which all entries share, is used
only after that: from there to the end no other Python code can run. A big block gets scratch memory
of its own, and runs without the interpreter's lock.
"""

from __future__ import annotations

from collections.abc import Sequence

# The table's words, in order.
WORDS = (
    # What the argument may be.
    "ARRAY_TYPE",
    "LIST_TYPE",
    "TUPLE_TYPE",
    "FLOAT_TYPE",
    "INT_TYPE",
    "NONE",
    "DTYPE",
    "ITEM_BYTES",
    "WIDTH",
    # What runs.
    "RUN",
    "PROGRAM",
    "RELEASE_ROWS",
    "FALLBACK",
    # Memory: io table, cells of one row's scalars, a row that came as a list, the stages' own.
    "SCRATCH",
    "SCRATCH_BYTES",
    "CELLS",
    "ROW",
    "STAGES",
    # Functions of C, Python and numpy.
    "TUPLE_NEW",
    "TUPLE_SET",
    "FLOAT_NEW",
    "INT_NEW",
    "UNSIGNED_NEW",
    "BOOL_NEW",
    "INT_AS_FLOAT",
    "ERROR_SET",
    "ERROR_CLEAR",
    "NO_MEMORY",
    "INCREASE",
    "DECREASE",
    "CALL",
    "SAVE_THREAD",
    "RESTORE_THREAD",
    "MALLOC",
    "FREE",
    "NEW_ARRAY",
    # Outputs; then for each of them the words below.
    "OUTPUTS",
    "TEXTS",
    "FIRST",
)
#: What the table of an entry that reads texts says besides of memory and work: how long a text it
#: takes, how much there is at hand, what a row costs, and rooms.
MEMORY_WORDS = (
    *("LONGEST", "SHARED_BYTES", "ROW_WORK", "BYTE_WORK", "RELEASE_WORK"),
    *("ROOM_COLUMN", "ROOMS", "ROOM_COUNT"),
)
OUTPUT_WORDS = ("KIND", "COLUMN", "OUT_DTYPE", "OUT_WIDTH", "OUT_BYTES", "NAMES", "LAST", "SHELF")
#: An output of one value per row has this width.
SCALAR = -1
#: The answer for one row, up to this width, is kept and answered with again once nobody has it.
SHELVED = 64
#: The flags of an array that numpy has just made, if it has one row: contiguous in both orders, its
#: own memory, aligned, writeable.
_UNTOUCHED = 0x507
#: Kinds of output: numpy's type of a scalar, or a number that stands for one of some strings.
KINDS = (
    "float64",
    "float32",
    "int64",
    "int32",
    "int16",
    "int8",
    "uint64",
    "uint32",
    "uint16",
    "uint8",
    "bool",
    "string",
)
#: How much memory the rooms take, whose sizes depend on the longest text.
ROOMS = """\
    rooms, most, sum_up = ldc_int64(table, ROOMS), 0, 0
    for place in range(ldc_int64(table, ROOM_COUNT)):
        room = rooms + 32 * place
        takes = longest * ldc_int64(room, 0) + ldc_int64(room, 1)
        sum_up += (min(takes, ldc_int64(room, 2)) + 63) & -64
        most = max(most, sum_up)
        if ldc_int64(room, 3) != 0:
            sum_up = 0
"""
#: Look at the argument: how many dimensions and rows it has, and where they are.
_LOOK = """\
def entry(self, argument):
    table = ld_int64(self, 2)
    width = ldc_int64(table, WIDTH)
    kind = ld_int64(argument, 1)
    dimensions, rows, data, stride, items = 1, 1, 0, 0, 0
    known = False
    if kind == ldc_int64(table, ARRAY_TYPE):
        dimensions = int64(ld_int32(argument, 6))
        theirs, own = ld_int64(argument, 7), ldc_int64(table, DTYPE)
        right = theirs == own
        if not right:  # arrays that were pickled have a copy of it
            right = ld_int64(theirs, 3) & SAME_DTYPE == ld_int64(own, 3) & SAME_DTYPE
        aligned = ld_int32(argument, 16) & 256 != 0
        if right and aligned and (dimensions == 1 or dimensions == 2):
            shape, strides = ld_int64(argument, 4), ld_int64(argument, 5)
            side = ld_int64(strides, dimensions - 1) == ldc_int64(table, ITEM_BYTES)
            known = ld_int64(shape, dimensions - 1) == width and (side or width < 2)
            data, stride = ld_int64(argument, 2), ld_int64(strides, 0)
            if dimensions == 2:
                rows = ld_int64(shape, 0)
    elif kind == ldc_int64(table, LIST_TYPE):
        known, items = ld_int64(argument, 2) == width, ld_int64(argument, 3)
    elif kind == ldc_int64(table, TUPLE_TYPE):
        known, items = ld_int64(argument, 2) == width, argument + 24
    if not known:
        return c_call_2(ldc_int64(table, CALL), ldc_int64(table, FALLBACK), argument)
"""
#: Make the outputs. Making an array takes longer than most rows do. So that of one row stays on a
#: shelf, and where nobody else has it, as it was made, it is answered with again. Nothing is lost
#: with an array that is changed or held in any way: the next takes its place.
MAKE = """\
    count = ldc_int64(table, OUTPUTS)
    first = table + 8 * FIRST
    made = c_call_1(ldc_int64(table, TUPLE_NEW), count)
    if made == 0:
        return 0
    sizes = stack_words(2)
    for place in range(count):
        output = first + 8 * OUTPUT_SIZE * place
        across = ldc_int64(output, OUT_WIDTH)
        if dimensions == 2 or across != SCALAR:
            st_int64(sizes, 0, rows if dimensions == 2 else across)
            st_int64(sizes, 1, across)
            dtype, shelf, item = ldc_int64(output, OUT_DTYPE), ldc_int64(output, SHELF), 0
            many = dimensions - (1 if across == SCALAR else 0)
            small = rows == 1 and across <= SHELVED
            if small:
                item = ld_int64(shelf, 0)
                same = ld_int64(item, 1) == ldc_int64(table, ARRAY_TYPE)
                if same:
                    same = ld_int64(item, 0) == 1 and ld_int64(item, 7) == dtype
                    same = same and int64(ld_int32(item, 16)) == UNTOUCHED
                    same = same and ld_int64(item, 6) | ld_int64(item, 9) | ld_int64(item, 10) == 0
                if same:
                    shape = ld_int64(item, 4)
                    same = int64(ld_int32(item, 6)) == many
                    same = same and ld_int64(shape, 0) == ld_int64(sizes, 0)
                    if same and many == 2:
                        same = ld_int64(shape, 1) == across
                if same and ldc_int64(output, KIND) == KIND_STRING:
                    held = ld_int64(ld_int64(item, 2), 0)
                    same = held != 0
                    if same:
                        name = ldc_int64(ldc_int64(output, NAMES), 0)
                        same = ld_int64(held, 1) == ld_int64(name, 1)
                if same:
                    c_call_1(ldc_int64(table, INCREASE), item)
                else:
                    item = 0
            if item == 0:
                c_call_1(ldc_int64(table, INCREASE), dtype)
                item = c_call_4(ldc_int64(table, NEW_ARRAY), many, sizes, dtype, 0)
                if item == 0:
                    c_call_1(ldc_int64(table, DECREASE), made)
                    return 0
                if small:
                    before = ld_int64(shelf, 0)
                    c_call_1(ldc_int64(table, INCREASE), item)
                    st_int64(shelf, 0, item)
                    c_call_1(ldc_int64(table, DECREASE), before)
            c_call_3(ldc_int64(table, TUPLE_SET), made, place, item)
"""
#: Find memory to work in, and read a row that came as a list.
_READ = """\
    scratch = ldc_int64(table, SCRATCH)
    release = rows >= ldc_int64(table, RELEASE_ROWS)
    texts = ldc_int64(table, TEXTS) if dimensions == 2 else 0
    owned = 0
    if release or texts != 0:
        size = ldc_int64(table, SCRATCH_BYTES) + 8 * rows * texts
        owned = c_call_1(ldc_int64(table, MALLOC), size + 64)
        if owned == 0:
            c_call_1(ldc_int64(table, DECREASE), made)
            return c_call_0(ldc_int64(table, NO_MEMORY))
        scratch = (owned + 63) & -64
    text = scratch + ldc_int64(table, SCRATCH_BYTES)
    if items != 0:
        data = scratch + ldc_int64(table, ROW)
        double = ldc_int64(table, ITEM_BYTES) == 8
        # Making the outputs may have run anybody's code, and that may have changed a list.
        fits = ld_int64(argument, 2) == width
        if ld_int64(argument, 1) == ldc_int64(table, LIST_TYPE):
            items = ld_int64(argument, 3)
        for j in range(width):
            if not fits:
                break
            item = ld_int64(items, j)
            kind = ld_int64(item, 1)
            value = math.nan
            if kind == ldc_int64(table, FLOAT_TYPE):
                value = ld_float64(item, 2)
            elif kind == ldc_int64(table, INT_TYPE):
                value = c_call_to_float(ldc_int64(table, INT_AS_FLOAT), item)
                if value == -1.0 and c_call_0(ldc_int64(table, ERROR_SET)) != 0:
                    c_call_0(ldc_int64(table, ERROR_CLEAR))
                    fits = False
            elif item != ldc_int64(table, NONE):
                fits = False
            if not fits:
                continue
            if double:
                st_float64(data, j, value)
            else:
                st_float32(data, j, float32(value))
        if not fits:
            if owned != 0:
                c_call_1(ldc_int64(table, FREE), owned)
            c_call_1(ldc_int64(table, DECREASE), made)
            return c_call_2(ldc_int64(table, CALL), ldc_int64(table, FALLBACK), argument)
"""
#: Run all stages, and turn what they left into the outputs.
RUN = """\
    st_int64(scratch, 0, data)
    st_int64(scratch, 1, stride)
    for place in range(count):
        output = first + 8 * OUTPUT_SIZE * place
        across, step = ldc_int64(output, OUT_WIDTH), ldc_int64(output, OUT_BYTES)
        where = scratch + ldc_int64(table, CELLS) + 8 * place
        if dimensions == 2 and ldc_int64(output, KIND) == KIND_STRING:
            where = text
            text += 8 * rows
        elif dimensions == 2 or across != SCALAR:
            where = ld_int64(ld_int64(made, 3 + place), 2)
        column = ldc_int64(output, COLUMN)
        st_int64(scratch, 2 * column, where)
        st_int64(scratch, 2 * column + 1, step)
    thread = 0
    if release:
        thread = c_call_0(ldc_int64(table, SAVE_THREAD))
    run, program = ldc_int64(table, RUN), ldc_int64(table, PROGRAM)
    refused = call_stage(run, program, scratch, rows, scratch + ldc_int64(table, STAGES)) != 0
    if release:
        c_call_1(ldc_int64(table, RESTORE_THREAD), thread)
    if refused:
        if owned != 0:
            c_call_1(ldc_int64(table, FREE), owned)
        c_call_1(ldc_int64(table, DECREASE), made)
        return c_call_2(ldc_int64(table, CALL), ldc_int64(table, FALLBACK), argument)

    for place in range(count):
        output = first + 8 * OUTPUT_SIZE * place
        kind, where = ldc_int64(output, KIND), ld_int64(scratch, 2 * ldc_int64(output, COLUMN))
        names, last = ldc_int64(output, NAMES), ldc_int64(output, LAST)
        if dimensions == 2:
            if kind == KIND_STRING:
                cells = ld_int64(ld_int64(made, 3 + place), 2)
                for i in range(rows):
                    name = ldc_int64(names, min(max(ld_int64(where, i), 0), last))
                    c_call_1(ldc_int64(table, INCREASE), name)
                    before = ld_int64(cells, i)
                    st_int64(cells, i, name)
                    c_call_1(ldc_int64(table, DECREASE), before)
        elif ldc_int64(output, OUT_WIDTH) == SCALAR:
            item = 0
SCALARS
            else:
                item = ldc_int64(names, min(max(ld_int64(where, 0), 0), last))
                c_call_1(ldc_int64(table, INCREASE), item)
            if item == 0:
                c_call_1(ldc_int64(table, DECREASE), made)
                made = 0
                break
            c_call_3(ldc_int64(table, TUPLE_SET), made, place, item)
    if owned != 0:
        c_call_1(ldc_int64(table, FREE), owned)
    return made
"""
NAME = "entry"
#: Which bits of a dtype's fourth word are its kind, its letter, its byte order and its number in
#: numpy's table; the others are flags. The structure is public.
SAME_DTYPE = ~0xFF000000


def _scalars() -> str:
    """One branch for each kind of number: from memory to a Python object."""
    lines = []
    for number, kind in enumerate(KINDS[:-1]):
        word = "if" if number == 0 else "elif"
        lines.append(f"            {word} kind == {number}:")
        call, maker = "c_call_1", "UNSIGNED_NEW" if kind == "uint64" else "INT_NEW"
        value = f"int64(ld_{kind}(where, 0))"
        if kind.startswith("float"):
            call, maker, value = "c_call_float", "FLOAT_NEW", f"float64(ld_{kind}(where, 0))"
        if kind == "bool":
            maker = "BOOL_NEW"
        lines.append(f"                item = {call}(ldc_int64(table, {maker}), {value})")
    return "\n".join(lines)


def source(*parts: str, words: Sequence[str] = WORDS) -> str:
    """An entry's whole text: its words as numbers, then the parts of its body."""
    numbers = {name: place for place, name in enumerate(words)}
    numbers |= {name: place for place, name in enumerate(OUTPUT_WORDS)}
    numbers |= {"FIRST": len(words) - 1, "OUTPUT_SIZE": len(OUTPUT_WORDS)}
    numbers |= {"SHELVED": SHELVED, "UNTOUCHED": _UNTOUCHED}
    numbers |= {"SCALAR": SCALAR, "KIND_STRING": KINDS.index("string"), "SAME_DTYPE": SAME_DTYPE}
    head = "".join(f"{name} = {number}\n" for name, number in numbers.items())
    return head + "\n".join(parts).replace("SCALARS\n", _scalars() + "\n", 1)


SOURCE = source(_LOOK, MAKE, _READ, RUN)
