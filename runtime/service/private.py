"""Private columns: what must not be seen of their values, and errors without values.

    runtime.register("fraud", plan, notes={"private": ("ssn",)})

Errors quote what they found, often shortened, so a value cannot be searched for in their texts. The
sentence of an error is about the program: `what`, `where` and `hint` of an endpoint with private
columns are kept, but for names that are not the program's; of `found`, which may quote data, what
tells a type, a size or a known name is kept.
"""

from __future__ import annotations

import builtins
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Any, Protocol

import numpy as np

from flour.core.errors import FlourError, InputError
from flour.core.hidden import read_columns
from flour.core.node import Node
from flour.core.source import Source
from flour.core.types import Record, Type, Vector
from flour.language.flow import Flow
from objectstore import Explained
from runtime import errors
from scheduler import SchedulerError

Hide = Callable[[object], object]

_NOTE = "private"
_HINT = "values are not shown, as this endpoint has private columns"
#: Errors that speak of names and of the server, never of data.
_OF_NAMES = (
    *(errors.UnknownEndpoint, errors.AlreadyTaken, errors.InService),
    *(errors.BadRegistration, errors.LostPlan, errors.RuntimeClosed),
)
_TYPES = frozenset({
    *(name for name, each in vars(builtins).items() if isinstance(each, type)),
    *(each.__name__ for each in np.sctypeDict.values()),
    *("ndarray", "NoneType", "NAType", "NaTType", "Decimal", "Fraction", "date", "datetime"),
    *("time", "Timestamp", "Timedelta", "Series", "DataFrame", "Table", "array", "null", "nan"),
})  # fmt: skip
_RAISED = {name for name in _TYPES if name.endswith(("Error", "Exception", "Iteration"))}
#: Words of what tells a type, a place or a size, and the names of fields of requests.
_WORDS = """
    a among an as at block byte bytes cast column columns different dimension dimensions dtype
    element elements encoder expected first found got has have in inf infinity is it lengths list
    lists missing no none None nothing number numbers of one outputs place row rows several shape
    single sparse splines text texts the their than two value values NaN
"""
_NAMES = "$ id input inputs instances outputs data shape name datatype parameters timeout explain"
_SAYABLE, _FIELDS = _TYPES.union(_WORDS.split()), _TYPES.union(_NAMES.split())
_SIZES = re.compile(
    r"\d[\d,]* (?:rows?|values|columns|cells|fields|bytes|elements|digits|dimensions|times|"
    r"characters|inputs)\b(?: of \d+)?|shape [\[(][\d, ]*[\])]|\b(?:byte|has|got|rows of) \d+|"
    r": \d+\b|(?<=\w)\[\d+\]|\b(?:row|column) \d+|dtype [<>|=]?\w+(?:\[\w+\])?"
)
#: What msgspec and the standard library say of broken JSON, which quotes nothing but its signs.
_JSON = re.compile(
    r"(?:JSON is malformed: [a-z ,'\]}:\"]*|Input data was truncated|Expecting [a-z ,':]*|"
    r"Extra data|Unterminated string starting at|Invalid (?:control character|\\escape)[a-z ]*)"
    r"(?:: )?(?: ?\(byte \d+\)|line \d+ column \d+ \(char \d+\))?"
)
_NUMBER = re.compile(r"[-+]?(?:\d[\d_.]*(?:e[-+]?\d+)?|nan|inf)")
_WORD = re.compile(r"\w[\w.]*")
#: The names of a place in JSON, and what stands in quotation marks; a string may be cut short.
_PATH = re.compile(r"\.[^.\[\]]+")
_LINE = re.compile(r":\d+(?: to \d+)?$")
_QUOTED = re.compile(
    r"^.+(?= is (?:not a category|beyond)\b)|"
    r"(?<!\w)b?(?:'(?:\\.|[^'\\])*(?:'|$)|\"(?:\\.|[^\"\\])*(?:\"|$)|`[^`]*(?:`|$))",
    re.DOTALL,
)
#: Places in a request of the protocol that have nothing of a row.
_PROTOCOL = re.compile(r"\$\.(?:outputs|parameters|inputs\[\d+\]\.(?:datatype|shape|parameters))\b")


class Guarded(Protocol):
    """A version, as far as privacy goes."""

    inputs: dict[str, Type]
    private: frozenset[str]


def drop(_value: object) -> None:
    """Put nothing in a value's place."""


def column_names(inputs: Mapping[str, Type]) -> set[str]:
    """The columns and the inputs of a program."""
    records = ((*kind.names, *kind.unread) for kind in inputs.values() if isinstance(kind, Record))
    return {*inputs, *(str(name) for names in records for name in names)}


def private_columns(
    notes: Mapping[str, object], inputs: Mapping[str, Type], owner: str
) -> frozenset[str]:
    """The private columns that the notes of a registration name."""
    for name in notes:
        if name != _NOTE and str(name).lower().startswith(_NOTE[:4]):
            raise errors.BadRegistration(
                "a note that is spelt so hides nothing",
                where=owner,
                found=repr(name)[:80],
                hint='notes={"private": ("ssn",)}',
            )
    given = notes.get(_NOTE, ())
    valid = isinstance(given, Iterable) and not isinstance(given, str)
    names = frozenset(map(str, given)) if valid and isinstance(given, Iterable) else frozenset()
    if not valid or not names <= column_names(inputs):
        unknown = sorted(names - column_names(inputs))
        raise errors.BadRegistration(
            "private columns are columns of the program",
            where=owner,
            found=", ".join(unknown)[:200] if valid else repr(given)[:80],
            hint='notes={"private": ("ssn",)}',
        )
    return names


def spelt(columns: Collection[str], inputs: Mapping[str, Type]) -> frozenset[str]:
    """Private columns, and those of private inputs, by the names that they have elsewhere, too."""
    found = set(columns)
    for label, kind in inputs.items():
        if isinstance(kind, Record):
            names = map(str, (*kind.names, *kind.unread))
            inner = {each for each in names if label in columns or each in columns}
            found |= inner.union(f"{label}.{each}" for each in inner if len(inputs) > 1)
        elif isinstance(kind, Vector) and label in columns:
            places = range(kind.width)
            found |= {*map(str, places), *(f"{label}[{place}]" for place in places)}
    return frozenset(found)


def in_tables(columns: Collection[str], inputs: Mapping[str, Type]) -> frozenset[str]:
    """Columns of tables that hold private values: an input may stand there as a whole."""
    found = spelt(columns, inputs)
    records = ((label, kind) for label, kind in inputs.items() if isinstance(kind, Record))
    return found.union(label for label, kind in records if not found.isdisjoint(kind.names))


def passed_on(
    graph: Flow, inputs: Mapping[str, Type], private_of: Callable[[str], frozenset[str]]
) -> frozenset[str]:
    """The columns of a graph with these inputs that are private columns of the models in it.

    Where a model's columns are not found by their names, all that it is given is private.
    """
    found: set[str] = set()
    for item in graph.nodes():
        op: Any = item.op
        if op.name != "ModelCall" or not op.address or not (hidden := private_of(op.address)):
            continue
        given = [*zip(op.given, item.inputs, strict=False)]
        named = {name for name, _ in given if name}
        names = named.union(*(_kept_names(flow) for name, flow in given if not name))
        for name, flow in given:
            if not name and hidden <= names:
                found |= hidden & _kept_names(flow)
            elif name in hidden or not hidden <= names:
                found |= read_columns(flow)
    whole = {name for name, kind in inputs.items() if isinstance(kind, Record)}
    return frozenset(found & (column_names(inputs) - whole))


def _kept_names(item: Node) -> frozenset[str]:
    """The columns of a record that is passed on as it came, or of which some are picked."""
    source, kind = item.inputs[0] if item.op.name == "Narrow" else item, item.type
    if isinstance(source.op, Source) and isinstance(kind, Record):
        return frozenset(map(str, kind.names))
    return frozenset()


def redacted(
    error: BaseException,
    inputs: Mapping[str, Type],
    names: Iterable[str] = (),
    *,
    data: bool = False,
) -> BaseException:
    """The error without values, and without the errors it came from; another for foreign ones.

    What it quotes of the columns of these inputs and of other `names` stays; nothing that was
    found does where that may be `data`, such as a line of a file.
    """
    error.__cause__ = error.__context__ = None
    if isinstance(error, SchedulerError | MemoryError) or not isinstance(error, Exception):
        return error  # these say nothing of the data
    columns = column_names(inputs)
    if not isinstance(error, Explained):
        named = sorted(name for name in columns if repr(name) in str(error))
        where = "columns " + ", ".join(map(repr, named)) if named else None
        kind = InputError if isinstance(error, ValueError) else FlourError
        return kind("a call failed", where=where, found=type(error).__name__, hint=_HINT)
    protocol = getattr(error, "status", 0) and _PROTOCOL.match(error.where or "")
    if isinstance(error, _OF_NAMES) or protocol or getattr(error, "status", 400) != 400:
        return error
    nodes = str(error.where).split(".") if isinstance(error, errors.NodeFailed) else ()
    known = frozenset({*columns, *names, *nodes})
    before = error.what, error.where, error.found, error.hint
    error.what = _masked(error.what, known)
    error.where = error.where and _place(_masked(error.where, known), known)
    error.found = plain(error.found, known) if error.found and not data else None
    hint = str(error.hint or "")
    if hint.startswith("did you mean") and _masked(hint, known) != hint:
        error.hint = None
    if before != (error.what, error.where, error.found, error.hint):
        error.hint = f"{error.hint}; {_HINT}" if error.hint else _HINT
    error.args = (error.what,)
    return error


def plain(found: str, known: Collection[str]) -> str | None:
    """The value's description if it has types, sizes and known names only, else its type."""
    if _JSON.fullmatch(found):
        return found
    kind = re.match(r"(?:an? )?(\w+)", found)
    if kind and kind[1] in _RAISED:
        return kind[1]  # a function may say anything
    names, of = {each for each in known if each[:1].isalpha()}, "outputs: "
    parts = found.removeprefix(of).split(", ")
    if not names.isdisjoint(parts):
        told = ", ".join(each if each in names else "…" for each in parts)
        return of * found.startswith(of) + told
    rest = _SIZES.sub(" ", found)
    for name in sorted(names, key=len, reverse=True):
        rest = re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", " ", rest)
    words = _WORD.findall(rest)
    if not any(each in found for each in "'\"`") and all(map(_SAYABLE.__contains__, words)):
        return found
    if kind and kind[1] in _TYPES:
        return kind[1]
    return "a number" if _NUMBER.fullmatch(found) else "a text" if found[0] in "'\"" else None


def _masked(text: str, known: Collection[str]) -> str:
    """A sentence about a program: what it quotes may be of the data, unless that is a name."""
    return _QUOTED.sub(partial(_kept, known), text)


def _kept(known: Collection[str], match: re.Match[str]) -> str:
    name = match[0].removeprefix("b").strip("'\"`.")
    if match.string[: match.start()].endswith("output "):
        return match[0]  # whoever asks for an output has named it, see docs/reference/provenance.md
    if not _WORD.search(name) or {*known, *_FIELDS}.issuperset(name.split(" | ")):
        return match[0]
    return {".": ".…"}.get(match[0][0], "'…'")


def _place(where: str, known: Collection[str]) -> str:
    """A place in JSON or in a file, whose names are those of the program, or left out."""
    if where.startswith("$"):
        return _PATH.sub(partial(_kept, known), where)
    line, comma, inside = where.partition(", ")
    return line + comma + (plain(inside, known) or "…") if _LINE.search(line) and comma else where


def without(data: object, version: Guarded, hide: Hide = drop) -> Any:
    """Rows with `hide(value)` for private values, and without columns that are not the program's.

    None where nothing has names: values by their places are not told apart.
    """
    if isinstance(data, Mapping):
        known = column_names(version.inputs)
        named = ((name, part) for name, part in data.items() if name in known)
        return {name: _part(name, part, version, hide) for name, part in named}
    if isinstance(data, list | tuple) and all(isinstance(row, Mapping) for row in data):
        return [without(row, version, hide) for row in data]
    return None


def _part(name: object, part: object, version: Guarded, hide: Hide) -> Any:
    if name in version.private:
        return _hidden(part, hide)
    rows = part if isinstance(part, list | tuple) else (part,)
    if any(isinstance(row, Mapping | list | tuple) for row in rows) or getattr(part, "ndim", 1) > 1:
        return without(part, version, hide)
    return part


def _hidden(part: object, hide: Hide) -> Any:
    if isinstance(part, list | tuple):
        return [_hidden(each, hide) for each in part]
    listed = getattr(part, "tolist", None)
    return _hidden(listed(), hide) if listed and getattr(part, "ndim", 0) else hide(part)
