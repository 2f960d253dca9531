"""The short way for a session's one map: laid out as a row of numbers, by the names that count.

A map's names are a few; making texts for native code of them, to be looked up there, takes longer
than looking them up in a dict. The plan for that reads the row instead of the map.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

import oven
from flour.core.errors import FlourError
from flour.core.node import Node, node, rebuild
from flour.core.source import Source
from flour.core.types import Pairs, Vector
from flour.language.flow import Flow
from flour.ops.pairs import NamedValues
from oven.entry.columns_entry import COLUMN

Entry = Callable[[Mapping[str, Any]], "Sequence[Any] | None"]
#: A longer row of zeros takes longer than the general way.
_WIDEST = 4096
#: Numbers that no float32 holds are left to the general way, and so is NaN.
_MOST = 3e38
_NUMBERS = frozenset((float, int, bool))


def entry_of_maps(flow: Flow) -> Entry | None:
    """An entry for a feed of one map of Python's own numbers; None if the program reads another."""
    found = _reader(flow)
    if found is None:
        return None
    reader, name, keys = found
    op: Any = reader.op
    row = node(Source(name, Vector(len(op.vocabulary), op.dtype)), ())
    try:
        made = rebuild(flow.outputs.values(), partial(_replaced, reader, row))
    except FlourError:  # something takes sparse rows only
        return None
    if [item.type for item in made] != list(flow.types.values()):
        return None
    plan = oven.bake(Flow(dict(zip(flow.outputs, made, strict=True)), None, (flow,)))
    run = plan.code.column_entry({name: COLUMN}, lambda _: None)
    texts = op.vocabulary.to_list()
    places = {(text if keys == "string" else int(text)): k for k, text in enumerate(texts)}
    return _entry(run, name, places, np.dtype(op.dtype)) if run is not None else None


def _reader(flow: Flow) -> tuple[Node, str, str] | None:
    """The node that looks up a program's only input and is alone to read it; its name and keys."""
    if [type(kind) for kind in flow.inputs().values()] != [Pairs]:
        return None
    above = [item for item in flow.nodes() if any(_is_source(each) for each in item.inputs)]
    ((name, kind),) = flow.inputs().items()
    if len(above) != 1 or not isinstance(above[0].op, NamedValues):
        return None
    fits = isinstance(kind, Pairs) and kind.keys and above[0].type.width <= _WIDEST  # type: ignore[union-attr]  # a vector
    return (above[0], name, kind.keys) if fits else None  # type: ignore[union-attr]  # pairs


def _is_source(item: Node) -> bool:
    return isinstance(item.op, Source)


def _replaced(reader: Node, row: Node, old: Node, below: tuple[Node, ...]) -> Node:
    if old is reader:
        return row
    return old if _is_source(old) else node(old.op, below)


def _entry(run: Entry, name: str, places: Mapping[Any, int], dtype: Any) -> Entry:
    kinds = frozenset(map(type, places))
    width = len(places)
    at = places.get

    def entry(feed: Mapping[str, Any]) -> Sequence[Any] | None:
        given = feed.get(name)
        if type(given) is not dict:
            return None
        row = np.zeros((1, width), dtype)
        flat = row[0]
        for key, value in given.items():
            if type(key) not in kinds or type(value) not in _NUMBERS:
                return None
            place = at(key)
            if place is not None:
                if not -_MOST < value < _MOST:
                    return None
                flat[place] = value
        return run({name: row})

    return entry
