"""The generator of entries: functions of machine code that Python calls.

An entry is a function over words (oven.compiler.words), as all native code is, with names for what
is known only once the interpreter was measured. The generator makes numbers of them:

    item.LIST_ITEMS          a load of the object's field, from where it was measured
    output.COLUMN            a load from a row of one of the tables in ROWS
    call.ROWS                a variable of the call that its parts share, and may set
    table.WIDTH              a load from the function's own table; its words come in the order in
                             which the function first needs them
    c.PyDict_New()           a call of the function whose address is in the table
    c.Py_None, c.PyList_Type an object whose address is in the table
    c.ALIGNED                a number that was measured
    ld_address(items, 0)      a load of an address; Pointer(word) is a word that is one

What comes out is source without a single name in capitals, so `oven.compiler.source_check` reads it
like an operator's code, and the numbers are part of the key of its machine code.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Mapping
from enum import IntEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from objectstore import combine
from oven.codegen.string_cells import NAN
from oven.compiler import cache as code_cache
from oven.compiler import written
from oven.compiler.words import word
from oven.entry.interpreter import Layout, object_layout

# --- as functions are written ---------------------------------------------------------------------


class Pointer(int):
    """The address of an object, or of a row of a table: its attributes are loads."""

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Pointer: ...
        def __setattr__(self, name: str, value: int) -> None: ...
        def __add__(self, other: int) -> Pointer: ...
        def __eq__(self, other: object) -> bool: ...
        def __hash__(self) -> int: ...


class _CPython:
    """The interpreter by its names in C."""

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> _CName: ...


class _CName(Pointer):
    def __call__(self, *arguments: float) -> Pointer:
        """Stands for the call of a function."""
        return Pointer(word(*arguments))


c = _CPython()
NULL = Pointer(0)


def ld_address(base: int, index: int) -> Pointer:
    """Stands for a load of an address."""
    return Pointer(word(base, index))


#: One that nobody changes while the code runs.
ldc_address = ld_address
_LOADS = {"ld_address": "ld_int64", "ldc_address": "ldc_int64"}

# --- numbers --------------------------------------------------------------------------------------

#: The words of a row of each table that an entry's table points to. Of an output: a Kind, which
#: column of the io table it is, the dtype and width of its array, the bytes of a row, the strings
#: that it numbers with the last one's number, and where its shelf is. Of a field: a Read,
#: where in the row it goes, whether it has to be there, the bytes of a value and the bounds of
#: whole numbers; of arrays also how many values a row has, their dtype, and bit n if they may have
#: n dimensions. Of a conversion: source and destination, with their types. Of a room, which is
#: memory whose size depends on the longest text: see oven.run.native_run.
ROWS = {
    "output": ("KIND", "COLUMN", "DTYPE", "ACROSS", "BYTES", "NAMES", "LAST", "SHELF"),
    "field": ("READ", "OFFSET", "NEEDED", "BYTES", "LOW", "HIGH", "ACROSS", "DTYPE", "RANKS"),
    "conversion": ("FROM", "KIND", "TO", "WANTED"),
    "room": ("EACH", "FIXED", "MOST", "END"),
}
#: The variables that the parts of an entry share, on its stack until they are put into registers:
#: the argument, what the answers are to be, and the tuple of them; the memory of the call, which is
#: the block that it owns, or that of all; the bytes of the argument's texts. And of `predict` the
#: arguments, where they are and as they were read, and who answers.
CALL = (
    *("ARGUMENT", "ROWS", "DIMENSIONS", "ANSWERS", "SCRATCH", "OWNED", "OWNED_BYTES"),
    *("TOTAL", "LONGEST", "ARGUMENTS", "COUNT", "NAMES", "NAME", "DATA", "OUTPUTS", "TUPLE"),
    *("BARE", "VERSION", "ENTRY", "PART", "FUNCTION", "MIRROR", "TICKET"),
)
CALL_WORDS = len(CALL)
#: Kinds of output: numpy's type of a scalar, or a number that stands for one of some strings.
Kind = IntEnum(
    "Kind", "FLOAT64 FLOAT32 INT64 INT32 INT16 INT8 UINT64 UINT32 UINT16 UINT8 BOOL STRING", start=0
)
#: How a field is read: not at all, as an array's numbers, as one number, as text, as whole number.
Read = IntEnum("Read", "SKIP NUMBER FLOAT64 FLOAT32 STRING TEXT WHOLE", start=0)
#: What a record's argument can be.
Form = IntEnum("Form", "NOTHING ROW_BY_NAME COLUMNS ROWS_BY_NAME LISTED LISTS", start=0)
#: An output of one value per row has this width.
SCALAR = -1
#: An answer of up to so many values is used again once its caller has dropped it.
SHELVED = 64
#: Columns of numbers are copied in turns of so many rows, and so many columns together.
TILE, MOST_WAITING = 32, 64
#: The memory of a call, up to this size, is left for the next one.
MOST_SPARE = 16 << 20
#: The bytes of a row of each table.
OUTPUT_ROW, FIELD_ROW, CONVERSION_ROW, ROOM_ROW = (8 * len(fields) for fields in ROWS.values())
#: The bits of a dtype's word that are its kind, letter, byte order and number, not its flags.
SAME_DTYPE = ~0xFF000000
#: Whole numbers up to here are floats, too.
EXACT = 2**53
NO_NUMBER = NAN
#: Addresses beyond all that there are say where numpy's letters are, and whether all are ASCII.
ASCII, LETTERS = 2**62, -(2**63)
#: The first word of every table: what takes the rest, so that it can be replaced by place.
FALLBACK = "FALLBACK"

#: Words of the vocabulary that call C functions of floats; others take and return addresses.
_CALLS = {"PyFloat_FromDouble": "c_call_float", "PyLong_AsDouble": "c_call_to_float"}
#: C functions that return an int: the upper half of the register may hold anything.
_INTS = {
    *("PyDict_Next", "PyUnicode_Compare", "PyDict_SetItem", "PyTuple_SetItem"),
    *("PyList_SetItem", "PyList_Append"),
}
_WIDENED = {"int32": "int64", "uint8": "int64", "float32": "float64"}


class Generated(NamedTuple):
    """The text of an entry, and which words its table has, in order."""

    text: str
    words: tuple[str, ...]


#: An entry as it is written: `self` and what it is called with, and an object or NULL.
Entry = Callable[..., Pointer]


class EntryCode(NamedTuple):
    """An entry for this interpreter: its words, and the key of its code.

    The text is made when it is looked at, which is where the code has to be compiled.
    """

    name: str
    words: tuple[str, ...]
    key: str
    make: Callable[[], Generated]

    @property
    def text(self) -> str:
        """The text."""
        return self.make().text


_codes: dict[Entry, EntryCode | None] = {}
_SOURCE = combine(Path(__file__).read_bytes())


def entry_code(entry: Entry) -> EntryCode | None:
    """The code of this entry; None where there can be no entries."""
    if entry not in _codes:
        layout = object_layout()
        _codes[entry] = None if layout is None else code_for(entry, layout)
    return _codes[entry]


def code_for(entry: Entry, layout: Layout) -> EntryCode:
    """An entry's code without its text, from the code cache or a pack."""

    def content() -> bytes:
        made = generated(entry, layout)
        return json.dumps([code_cache.key(made.text), *made.words]).encode()

    inputs = (entry.__name__, repr(layout), _SOURCE, written.inputs(entry))
    key, *words = json.loads(code_cache.data(code_cache.made_of(*inputs), content))
    return EntryCode(entry.__name__, tuple(words), key, partial(generated, entry, layout))


def generated(entry: Entry, layout: Layout) -> Generated:
    """The text of an entry for objects that are laid out like this."""
    made = _EntryTranscript(layout)
    return Generated(made.text(entry), tuple(made.words))


class _EntryTranscript(written.Transcript):
    """Writes the names of entries as numbers and loads; collects the words of the table."""

    def __init__(self, layout: Layout) -> None:
        super().__init__()
        self.words: dict[str, int] = {FALLBACK: 0}
        self._layout = layout

    def visit_Name(self, node: ast.Name) -> ast.AST:  # noqa: N802 (ast's name)
        """A load of an address as the vocabulary has it, and whatever else has a name."""
        return ast.Name(_LOADS[node.id]) if node.id in _LOADS else super().visit_Name(node)

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:  # noqa: N802 (ast's name)
        """A field, a word of a table, or a name of C."""
        made, name = super().visit_Attribute(node), node.attr
        if made is not node or not (name.isupper() or name.startswith("Py") or name == "memcpy"):
            return made
        base = node.value.id if isinstance(node.value, ast.Name) else ""
        if base == "table" or name.startswith(("Py", "mem")):
            return _load(
                "ldc_int64", ast.Name("table"), self.words.setdefault(name, len(self.words))
            )
        if base == "call":
            return _load("ld_int64", node.value, CALL.index(name))
        if base in ROWS:
            return _load("ldc_int64", node.value, ROWS[base].index(name))
        if base == "c":
            numbers = self._layout.numbers
            return ast.Constant(numbers.get(name) or self._layout.offsets[name].place)
        dtype, place = self._layout.offsets[name]
        loaded = _load(f"ld_{dtype}", self.visit(node.value), place)
        return _call(_WIDENED[dtype], loaded) if dtype in _WIDENED else loaded

    def visit_Assign(self, node: ast.Assign) -> ast.AST | list[ast.stmt]:  # noqa: N802 (ast's name)
        """Values for variables of the call, of which all are there before the first is written."""
        (target,) = node.targets
        targets = target.elts if isinstance(target, ast.Tuple) else [target]
        fields = [each for each in targets if isinstance(each, ast.Attribute)]
        if len(fields) < len(targets):
            return self.generic_visit(node)
        names: list[ast.expr] = [ast.Name(f"value_{each.attr}".lower()) for each in fields]
        places = (ast.Constant(CALL.index(each.attr)) for each in fields)
        parts = zip((each.value for each in fields), places, names, strict=True)
        given = ast.Tuple(names) if len(names) > 1 else names[0]
        first = ast.Assign([given], self.visit(node.value))
        return [first, *(ast.Expr(_call("st_int64", *each)) for each in parts)]

    def visit_Call(self, node: ast.Call) -> ast.AST:  # noqa: N802 (ast's name)
        """A call of a function of C by its address, and of what else there is."""
        if not isinstance(node.func, ast.Attribute):
            is_address = isinstance(node.func, ast.Name) and self.known(node.func.id) is Pointer
            return self.visit(node.args[0]) if is_address else super().visit_Call(node)
        name, arguments = node.func.attr, node.args
        given = [self.visit(node.func), *map(self.visit, arguments)]
        made = _call(_CALLS.get(name, f"c_call_{len(arguments)}"), *given)
        return ast.BinOp(made, ast.BitAnd(), ast.Constant(0xFFFFFFFF)) if name in _INTS else made


def _call(name: str, *arguments: ast.expr) -> ast.Call:
    return ast.Call(ast.Name(name), [*arguments], [])


def _load(name: str, base: ast.expr, place: int) -> ast.Call:
    return _call(name, base, ast.Constant(place))


def numbers_of(values: Mapping[str, int], row: str) -> list[int]:
    """A row of one of the tables in ROWS; what is not said is zero."""
    return [values.get(name, 0) for name in ROWS[row]]
