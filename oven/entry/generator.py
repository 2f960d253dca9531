"""The generator of entries: functions of machine code that Python calls, put together from parts.

An entry is written in the vocabulary of native code (oven.compiler.native), as stages are, and with
names for what is known only once the interpreter was measured. The generator makes numbers of them:

    $answers                 the part of this name (oven.entry.parts), as far indented
    item.LIST_ITEMS          a load of the object's field, from where it was measured
    output.COLUMN            a load from a row of one of the tables in ROWS
    table.WIDTH              a load from the function's own table; its words come in the order in
                             which the text first says them
    PyDict_New()             a call of the function whose address is in the table
    Py_None, PyList_Type     an object whose address is in the table
    ALIGNED                  a number

What comes out is one function without a single name in capitals, so `oven.compiler.source_check`
reads it like an operator's code, and the numbers are part of the key of its machine code.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

from oven.codegen.string_cells import NAN
from oven.compiler import cache as code_cache
from oven.entry.interpreter import Layout, object_layout

#: What the rows of tables say that an entry's table points to. Of an output: one of KINDS, which
#: column of the io table it is, the dtype and width of its array, the bytes of a row, the strings
#: that it numbers with the last one's number, and where its shelf is. Of a field: one of READS,
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
#: Kinds of output: numpy's type of a scalar, or a number that stands for one of some strings.
KINDS = (
    *("float64", "float32", "int64", "int32", "int16", "int8"),
    *("uint64", "uint32", "uint16", "uint8", "bool", "string"),
)
#: How a field is read: not at all, as an array's numbers, as one number, as text, as whole number.
READS = ("SKIP", "NUMBER", "FLOAT64", "FLOAT32", "STRING", "TEXT", "WHOLE")
#: What a record's argument can be.
_FORMS = ("NOTHING", "ROW_BY_NAME", "COLUMNS", "ROWS_BY_NAME", "LISTED", "LISTS")
#: An output of one value per row has this width.
SCALAR = -1
#: An answer of up to so many values is used again once its caller has dropped it.
SHELVED = 64
#: Columns of numbers are copied in turns of so many rows, and so many columns together.
_TILE, _TOGETHER = 32, 64
#: The memory of a call, up to this size, is left for the next one.
_MOST_SPARE = 16 << 20

_NUMBERS = {
    **{name: number for names in (READS, _FORMS) for number, name in enumerate(names)},
    **{f"{name.upper()}_ROW": 8 * len(fields) for name, fields in ROWS.items()},
    **{f"KIND_{name.upper()}": number for number, name in enumerate(KINDS)},
    "SCALAR": SCALAR,
    "SHELVED": SHELVED,
    "MOST_SPARE": _MOST_SPARE,
    "TILE": _TILE,
    "MOST_WAITING": _TOGETHER,
    "QUEUE_WORDS": 4 * _TOGETHER,
    # Which bits of a dtype's word are its kind, letter, byte order and number, not its flags.
    "SAME_DTYPE": ~0xFF000000,
    "LOW_HALF": 0xFFFFFFFF,
    "EXACT": 2**53,
    "NO_NUMBER": NAN,
    # Addresses beyond all that there are say where numpy's letters are, and whether all are ASCII.
    "ASCII": 2**62,
    "LETTERS": -(2**63),
}
#: The first word of every table: what takes the rest, so that it can be replaced by place.
FALLBACK = "FALLBACK"

_PART = re.compile(r"^( *)\$(\w+)(?:\((.*)\))?\n", re.MULTILINE)
_NAME = re.compile(r"\b(?:(\w+)\.)?(Py_?[A-Z]\w*|memcpy|[A-Z][A-Z0-9_]+)\b(\()?")
_BREAK = re.compile(r"[(),]")
#: Words of the vocabulary that call C functions of floats; others take and return addresses.
_CALLS = {"PyFloat_FromDouble": "c_call_float", "PyLong_AsDouble": "c_call_to_float"}
#: C functions that return an int: the upper half of the register may hold anything.
_INTS = {
    *("PyDict_Next", "PyUnicode_Compare", "PyDict_SetItem", "PyTuple_SetItem"),
    *("PyList_SetItem", "PyList_Append"),
}
_WIDENED = {"int32": "int64({})", "uint8": "int64({})", "float32": "float64({})"}


class Template(NamedTuple):
    """An entry to generate: its function's name, its text, and the parts that it names."""

    name: str
    text: str
    parts: Mapping[str, str]


class Generated(NamedTuple):
    """The text of an entry, and which words its table has, in order."""

    text: str
    words: tuple[str, ...]


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


_codes: dict[int, tuple[Template, EntryCode | None]] = {}
_SOURCE = Path(__file__).read_bytes()


def entry_code(template: Template) -> EntryCode | None:
    """The code of this entry; None where there can be no entries."""
    known = _codes.get(id(template))
    if known is None:
        layout = object_layout()
        made = None if layout is None else _entry_code(template, layout)
        known = _codes.setdefault(id(template), (template, made))
    return known[1]


def _entry_code(template: Template, layout: Layout) -> EntryCode:
    """An entry's code without its text, from the code cache or a pack."""

    def content() -> bytes:
        made = generated(template, layout)
        return json.dumps([code_cache.key(made.text), *made.words]).encode()

    inputs = (template.name, template.text, repr(layout), repr(_NUMBERS), _SOURCE)
    parts = (text for part in sorted(template.parts.items()) for text in part)
    key, *words = json.loads(code_cache.data(code_cache.made_of(*inputs, *parts), content))
    return EntryCode(template.name, tuple(words), key, partial(generated, template, layout))


def generated(template: Template, layout: Layout) -> Generated:
    """The text of an entry for objects that are laid out like this."""
    names = _Names(layout)
    return Generated(names.resolved(_expanded(template.text, template.parts)), tuple(names.words))


def _expanded(text: str, parts: Mapping[str, str]) -> str:
    """The text with every part in its place, and the parts' own parts."""

    def part(match: re.Match[str]) -> str:
        indent, name, given = match.groups()
        found = parts[name]
        for place, argument in enumerate(given.split(", ") if given else ()):
            found = found.replace(f"{{{place}}}", argument)
        lines = _expanded(found, parts).splitlines(keepends=True)
        return "".join(indent + line if line.strip() else line for line in lines)

    return _PART.sub(part, text)


class _Names:
    """The names of a text as numbers and loads; collects the words of the table."""

    def __init__(self, layout: Layout) -> None:
        self.words: dict[str, int] = {FALLBACK: 0}
        self._offsets = layout.offsets
        self._numbers = {**_NUMBERS, **layout.numbers}

    def resolved(self, text: str) -> str:
        """The text without names, from its start."""
        made, at = [], 0
        while (match := _NAME.search(text, at)) is not None:
            base, name, called = match.groups()
            made.append(text[at : match.start()])
            if called and base is None:
                at, arguments = _arguments(text, match.end())
                made.append(self._call(name, [self.resolved(each) for each in arguments]))
            else:
                made.append(self._value(base, name) + (called or ""))
                at = match.end()
        return "".join([*made, text[at:]])

    def _value(self, base: str | None, name: str) -> str:
        if base == "table" or name.startswith("Py"):
            return f"ldc_int64(table, {self.words.setdefault(name, len(self.words))})"
        if base in ROWS:
            return f"ldc_int64({base}, {ROWS[base].index(name)})"
        if base is not None:
            dtype, place = self._offsets[name]
            return _WIDENED.get(dtype, "{}").format(f"ld_{dtype}({base}, {place})")
        return str(self._numbers[name] if name in self._numbers else self._offsets[name].place)

    def _call(self, name: str, arguments: list[str]) -> str:
        function = self._value("table", name)
        word = _CALLS.get(name, f"c_call_{len(arguments)}")
        call = f"{word}({', '.join([function, *arguments])})"
        return f"({call} & {_NUMBERS['LOW_HALF']})" if name in _INTS else call


def _arguments(text: str, start: int) -> tuple[int, list[str]]:
    """The arguments of a call whose opening bracket ends at `start`, and where it ends."""
    depth, arguments, begin = 1, list[str](), start
    for match in _BREAK.finditer(text, start):
        depth += {"(": 1, ")": -1, ",": 0}[match[0]]
        if depth == 0 or (match[0] == "," and depth == 1):
            arguments.append(text[begin : match.start()].strip())
            begin = match.end()
        if depth == 0:
            break
    return begin, [each for each in arguments if each]


def numbers_of(values: Mapping[str, int], row: str) -> list[int]:
    """A row of one of the tables in ROWS; what is not said is zero."""
    return [values.get(name, 0) for name in ROWS[row]]
