"""The machine code that the usual calls of a plan go through, besides that of its stages.

It is the same for all plans with inputs of a kind. A plan is ready once it has it, so that no call
has to wait for a compiler: a row, a block, rows by name, arrays by name, and chunks of a block.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from flour.core.types import FLOATS, Record, Text, Type, Vector
from oven.entry.array_call import array_call
from oven.entry.array_forms import columns_entry, packed_entry
from oven.entry.forms import documents_entry, named_entry, records_entry, vectors_entry
from oven.entry.generator import Entry, EntryCode, entry_code


def usual_code(inputs: Collection[Type], *, alone: bool) -> tuple[EntryCode, ...]:
    """The entries for inputs of these types; none where this interpreter can have none.

    Unless native code `alone` makes the answers, Python does, and calls what it needs.
    """
    wanted = {each.__name__: each for each in (_entries(inputs) if alone else (array_call,))}
    found = _codes.get(names := tuple(wanted))
    if found is None:
        found = tuple(code for each in wanted.values() if (code := entry_code(each)) is not None)
        _codes[names] = found
    return found


#: By the names of the entries: there are five answers, and thousands of plans.
_codes: dict[tuple[str, ...], tuple[EntryCode, ...]] = {}


def _entries(inputs: Collection[Type]) -> Iterator[Entry]:
    yield from (columns_entry, array_call)
    match [*inputs]:
        case [Vector(_, dtype)] if dtype in FLOATS:
            yield from (vectors_entry, named_entry)
            return
        case [Text()]:
            yield documents_entry
        case [Record() as kind]:
            yield records_entry
            if len(kind.fields) - len(kind.unread) == 1:
                yield documents_entry
            if all(getattr(each, "dtype", "") == "float64" for _, each in kind.fields):
                yield vectors_entry
        case [_, _, *_]:
            yield records_entry
    yield packed_entry
