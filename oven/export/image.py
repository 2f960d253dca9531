"""The image of a plan that is exported: what every form of artefact is written from.

It has the stages' source, their parameters, and the source of `run`, which takes the caller's
columns tile by tile through all stages. `run(io, table, rows, scratch, longest)` has the addresses
of the caller's arrays in `io`, inputs before outputs, and of the stages' parameter tables in
`table`; it returns OK or the reason why rows are refused.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import count
from typing import NamedTuple

from flour.core.node import Node, topological
from flour.core.types import Pairs, Tokens, Type, Vector, width_of
from flour.language.flow import Flow
from flour.language.flow import outputs as several
from flour.ops.python import Python
from flour.ops.structure import TakeText
from objectstore import Blob, combine
from oven.codegen.emitter import BYTES
from oven.codegen.ports import Port, dtype_of, find_ports
from oven.codegen.stages import LABELS, PYTHON, Stage, Value, cut, is_text, kind_of, row_bytes
from oven.compiler import portable
from oven.compiler.machine import Compiler
from oven.errors import NotExportable
from oven.export import small
from oven.optimise.rewrite import optimise
from oven.plans.plan import Plan
from oven.plans.skeleton import one_run
from oven.run.run_signature import WORD, TableLayout, aligned

#: Results of `run`: all is well; a row is refused; a text is longer than was said, or not UTF-8.
OK, REFUSED, TOO_LONG, NOT_UTF8 = range(4)
#: Bytes behind a text that native code may read.
_BEHIND = 64
#: No text has more bytes: memory for more is nowhere.
_LONGEST = 1 << 40
#: Outputs that are asked for by name only.
_UNASKED = {"leaves"}


class CallerArray(NamedTuple):
    """An array of the caller: `width` values of one dtype for each row."""

    name: str
    #: Its name in the program: of an output, an input, or a column of an input.
    label: str
    dtype: str
    width: int
    #: The input that the column is of; empty for an input itself, and for outputs.
    record: str = ""
    #: Of an output: the labels that the numbers stand for.
    labels: tuple[str, ...] = ()

    @property
    def row_bytes(self) -> int:
        """Bytes of a row; of texts, their cells."""
        return BYTES[self.dtype] * self.width


class Image(NamedTuple):
    """A plan as it is exported."""

    name: str
    version: str
    #: The plan with the bits that the artefact has.
    plan: Plan
    inputs: tuple[CallerArray, ...]
    outputs: tuple[CallerArray, ...]
    #: The functions of the artefact by name, each after those that it calls; `run` is the last.
    functions: dict[str, str]
    #: The stages' parameter tables: numbers, and parameters in the place of their addresses.
    table: tuple[int | Blob, ...]
    #: True if its floats have 32 bits, and rows are taken one by one.
    single: bool = False

    @property
    def texts(self) -> bool:
        """True if it takes texts."""
        return any(each.dtype == "string" for each in self.inputs)

    @property
    def parameters(self) -> tuple[Blob, ...]:
        """Every parameter once."""
        return tuple(dict.fromkeys(word for word in self.table if isinstance(word, Blob)))

    @property
    def digest(self) -> str:
        """The digest of all that the artefact is made of."""
        words = (word.digest if isinstance(word, Blob) else str(word) for word in self.table)
        width = ["float32"] * self.single
        return combine(self.name, self.version, *self.functions.values(), *words, *width)

    @property
    def about(self) -> str:
        """Name, version and digests in one line."""
        width = ", float32" * self.single
        return f"{self.name} {self.version}, plan {self.plan.digest}, image {self.digest}{width}"


def image_of(
    plan: Plan,
    name: str,
    version: str,
    wanted: Sequence[str] = (),
    *,
    blocks: bool = False,
    float32: bool = False,
) -> Image:
    """The image of a plan for these outputs; NotExportable tells what cannot be exported."""
    made = portable_plan(plan, wanted, blocks=blocks, float32=float32)
    version = re.sub(r"[^\w.+-]", "_", version, flags=re.ASCII)
    stages, roots = made.program.stages, list(made.leaves.values())
    if float32:
        stages = tuple(map(small.one_row, stages))
    layout = one_run(stages, roots, tile=int(float32))
    if layout is None or layout.form.stored:
        wide = [n for s in stages for n in s.outputs if s.stores(n)]
        stored = "stored numbers of wide sparse vectors are not passed on in exports"
        raise NotExportable(
            stored if wide else "its native code is not one run from inputs to outputs",
            where=", ".join(map(repr, (wide or roots)[:4])),
            hint="ask for outputs behind this step with outputs=...",
        )
    names = {leaf: name for name, leaf in made.leaves.items()}
    writer = _RunWriter(layout, names, single=float32)
    inputs, outputs = writer.inputs(), writer.outputs()
    functions = {"copy_text": _COPY_TEXT} if writer.texts else {}
    functions |= {f"stage_{k}": stage.source for k, stage in enumerate(layout.stages)}
    functions |= {"scratch_size": writer.scratch_size(), "run": writer.run()}
    return Image(name, version, made, inputs, outputs, functions, writer.table, float32)


def portable_plan(
    plan: Plan, wanted: Sequence[str] = (), *, blocks: bool = False, float32: bool = False
) -> Plan:
    """The plan of these outputs whose answers have the same bits on every processor.

    With `blocks` it has code and tables for many rows at once, too; `float32` refuses what has no
    form in such numbers.
    """
    unknown = [name for name in wanted if name not in plan.outputs]
    if unknown:
        raise NotExportable(
            "there is no such output", found=", ".join(unknown), hint=", ".join(plan.outputs)
        )
    names = list(wanted) or [name for name in plan.outputs if name not in _UNASKED]
    flow = several(**{name: plan.flow[name] for name in names or plan.outputs})
    runs = optimise(flow, exact=plan.exact)

    def check(stages: Sequence[Stage]) -> None:
        _check(stages, runs)
        for item in (each for stage in stages if float32 for each in stage.nodes):
            if item.op.name not in small.OPERATORS:
                raise _refused("it has no form in float32", item, runs)

    way: Compiler = "portable_blocks" if blocks else "portable"
    return Plan(flow, runs, exact=plan.exact, background=False, check=check, compiler=way)


def _check(stages: Sequence[Stage], flow: Flow) -> None:
    """Refuse stages that have no portable code, with the node that is why."""
    labels = {item for stage in stages if stage.kind == LABELS for item in stage.nodes}
    inside = [item for stage in stages if stage.kind == PYTHON for item in stage.nodes]
    # Others would be native, but for a reader that is not.
    inside.sort(key=lambda item: kind_of(item) != PYTHON)
    for item in inside:
        why = "it calls Python" if isinstance(item.op, Python) else "there is no native code of it"
        if _is_labels(item.type):
            why = "labels of several targets can be whole numbers, and not texts"
        raise _refused(why, item, flow)
    for stage in stages:
        for item in stage.nodes:
            if not labels.isdisjoint(item.inputs):
                raise _refused("it reads labels as texts", item, flow)
        word = portable.missing(stage.source, portable.vocabulary())
        if word:
            # A node comes behind its inputs, so the first one whose program has the word is it.
            item = next((each for each in stage.nodes if _uses(each, word)), stage.nodes[-1])
            raise _refused(f"`{word}` is not computed with the same bits everywhere", item, flow)


def _is_labels(kind: Type) -> bool:
    return isinstance(kind, Vector) and is_text(kind)


def _uses(item: Node, word: str) -> bool:
    """True if the code of the program up to this node has the word."""
    try:
        stages = cut([item], find_ports([item]), lean="rows")
    except AssertionError:  # documents and words do not leave a stage
        return False
    return any(f"{word}(" in stage.source for stage in stages)


def _refused(why: str, item: Node, flow: Flow) -> NotExportable:
    needing = {name for name, made in flow.outputs.items() if item in topological([made])}
    others = ", ".join(sorted({*flow.outputs} - needing))
    places = flow.origins().get(item, ())
    what = f"output {min(needing)!r}" if _is_labels(item.type) else item.op.name
    what = next((f"step {place.step!r}" for place in places if place.step), what)
    return NotExportable(
        f"{what} cannot be exported: {why}",
        where=", ".join(map(str, places)) or f"output {', '.join(sorted(needing))}",
        found=f"the operator {item.op.name}",
        hint=f"export outputs that do not need it: {others}" if others else "serve the model",
    )


def identifier(text: str, taken: Collection[str] = ()) -> str:
    """The text as a name in C, unlike those that are taken."""
    plain = re.sub(r"\W", "_", text, flags=re.ASCII).strip("_") or "column"
    plain = f"_{plain}"[plain[0].isalpha() :]
    plain = f"{plain}_" if plain in KEYWORDS else plain
    return next(name for k in count() if (name := f"{plain}_{k}" if k else plain) not in taken)


#: Words of C, C++ and JavaScript, and macros of their headers and compilers.
KEYWORDS = frozenset(
    """
    INFINITY NAN NULL alignas alignof and and_eq asm auto bitand bitor bool break case catch char
    class compl const const_cast constexpr continue decltype default delete do double dynamic_cast
    else enum explicit export extern false float for friend function goto if import in inline int
    linux long mutable namespace new noexcept not not_eq nullptr operator or or_eq private
    protected public register reinterpret_cast restrict return short signed sizeof static
    static_assert static_cast struct switch template this thread_local throw true try typedef
    typeid typename typeof union unix unsigned using var virtual void volatile while with xor xor_eq
    """.split()  # noqa: SIM905 (a list would be a page)
)


class _RunWriter:
    """Writes `run` and `scratch_size`, and lists the caller's arrays in their order."""

    def __init__(
        self, layout: TableLayout, names: Mapping[Node, str], *, single: bool = False
    ) -> None:
        self.form, self.draft, self.single = layout.form, layout.draft(), single
        self.stages = layout.stages
        self.ports = [value for value, _ in self.form.read]
        self.names = names
        #: Where the caller has the array of each column that is written.
        self.places: dict[Node, int] = {}
        self.texts = sum(width_of(value.type) for value in self.ports if is_text(value.type))
        #: Rows that are taken through all stages before the next.
        self.tile = 1 if self.texts else self.form.tile
        #: Where the columns of a port are put side by side in scratch memory.
        self.packed: dict[Value, int] = {}
        end = aligned(self.form.scratch_bytes)
        for value in self.ports:
            if is_text(value.type) or len(_fields(value)) > 1:
                self.packed[value] = end
                end += aligned(self.tile * self._bytes(value))
        self.end = end
        first = next(place for place, _, _ in self.draft.codes) + 1
        #: Where the first parameter table begins among the words.
        self.begin = self.draft.words[first] // WORD
        words: list[int | Blob] = list(self.draft.words)
        for place, blob in self.draft.parameters:
            words[place] = blob
        self.table = tuple(words[self.begin :])

    def inputs(self) -> tuple[CallerArray, ...]:
        """The caller's arrays that are read."""
        made: list[CallerArray] = []
        for value in self.ports:
            assert isinstance(value, Port), "one run reads nothing but the plan's inputs"
            sparse = isinstance(value.type, Vector) and value.type.sparse
            if sparse or isinstance(value.type, Tokens | Pairs):
                raise NotExportable(
                    "an export takes numbers and texts",
                    where=f"input {value.label}",
                    found=str(value.type),
                    hint="import the model with a sample of dense rows",
                )
            dtype = "string" if is_text(value.type) else self._dtype(value.type)
            record, width = (value.label, 1) if value.fields else ("", width_of(value.type))
            for label in value.fields or (value.label,):
                name = identifier(label, {"longest", *(each.name for each in made)})
                made.append(CallerArray(name, label, dtype, width, record))
        return tuple(made)

    def outputs(self) -> tuple[CallerArray, ...]:
        """The caller's arrays that are written, in the order of the plan's outputs."""
        made: list[CallerArray] = []
        for leaf, name in self.names.items():
            labels: tuple[str, ...] = ()
            column = leaf
            if isinstance(leaf.op, TakeText):
                column, labels = leaf.inputs[0], tuple(leaf.op.table.to_list())
            kind = column.type
            if column not in self.form.outputs or column in self.places or is_text(kind):
                raise NotExportable(
                    f"output {name!r} is not a column of its own",
                    found="another output" if column in self.places else str(kind),
                    hint="leave it out: name the others with outputs=...",
                )
            self.places[column] = len(made)
            word = identifier(name, {each.name for each in made})
            made.append(CallerArray(word, name, self._dtype(kind), width_of(kind), "", labels))
        return tuple(made)

    def scratch_size(self) -> str:
        """The function that tells how much memory `run` needs for texts of this length."""
        lines = [*self._longest(), f"size = {self.end + 64}", "most = 0"]
        if self.texts:
            lines.append(f"size += {self.texts} * ((longest + {_BEHIND + 63}) & -64)")
        for rooms in self.form.rooms:
            if rooms:
                sizes = [
                    f"((min(longest * {r.each} + {r.fixed}, {r.most}) + 63) & -64)" for r in rooms
                ]
                lines.append(f"most = max(most, {' + '.join(sizes)})")
        return _function("scratch_size(longest)", [*lines, "return size + most"])

    def _longest(self) -> list[str]:
        """Texts are no longer than this, so that sizes stay numbers."""
        line = f"longest = longest if 0 <= longest <= {_LONGEST} else {_LONGEST}"
        return [line] if self.texts or any(self.form.rooms) else []

    def run(self) -> str:
        """The function that takes rows through all stages."""
        lines = [*self._longest(), "scratch = (scratch + 63) & -64", "done = 0"]
        if self.texts:
            lines.append(f"step = (longest + {_BEHIND + 63}) & -64")
        if any(self.form.rooms):
            behind = f" + {self.texts} * step" if self.texts else ""
            lines.append(f"rooms = scratch + {self.end}{behind}")
        count = "1" if self.single else f"min({self.tile}, rows - done)"
        lines += ["while done < rows:", f"    count = {count}"]
        lines += [f"    {line}" for line in (*self._columns(), *self._calls())]
        lines += ["    done += count", f"return {OK}"]
        return _function("run(io, table, rows, scratch, longest)", lines)

    def _columns(self) -> Iterator[str]:
        """Where each column of the stages is for these rows."""
        place = cell = 0
        for k, value in enumerate(self.ports):
            size, fields = self._bytes(value), _fields(value)
            if value not in self.packed:
                yield f"e{k} = ld_int64(io, {place}) + done * {size}"
            else:
                yield f"e{k} = scratch + {self.packed[value]}"
                if is_text(value.type):
                    yield from self._texts(k, value, place, cell)
                    cell += width_of(value.type)
                else:
                    yield from self._side_by_side(k, value, place)
            place += len(fields)
        for k, item in enumerate(self.form.outputs):
            size = self._bytes(item)
            where = f"ld_int64(io, {place + self.places[item]})"
            yield f"e{len(self.ports) + k} = {where} + done * {size}"

    def _side_by_side(self, k: int, value: Value, place: int) -> Iterator[str]:
        dtype, fields = dtype_of(value.type), _fields(value)
        yield "for i in range(count):"
        for j in range(len(fields)):
            where, read = f"e{k}, i * {len(fields)} + {j}", f"ld_int64(io, {place + j}), done + i"
            yield f"    st_{dtype}({where}, ld_{dtype}({read}))"

    def _texts(self, k: int, value: Value, place: int, cell: int) -> Iterator[str]:
        """Copies of texts, as native code may read beyond their ends."""
        for j in range(width_of(value.type)):
            fields = len(_fields(value))
            base = f"ld_int64(io, {place + (j if fields > 1 else 0)})"
            index = "done" if fields > 1 else f"done * {width_of(value.type)} + {j}"
            yield f"cell = {base} + 16 * ({index})"
            yield "size = max(ld_int64(cell, 1), -2)"
            yield "if size > longest:"
            yield f"    return {TOO_LONG}"
            yield f"copy = scratch + {self.end} + {cell + j} * step"
            yield "if copy_text(ld_pointer(cell), max(size, 0), copy) != 0:"
            yield f"    return {NOT_UTF8}"
            yield f"st_int64(e{k}, {2 * j}, copy)"
            yield f"st_int64(e{k}, {2 * j + 1}, size)"

    def _calls(self) -> Iterator[str]:
        """The calls of all stages, each after its table of columns."""
        words = self.draft.words
        for number, (index, _, _) in enumerate(self.draft.codes):
            parameters, columns = words[index + 1] - WORD * self.begin, words[index + 2]
            for c in range(columns):
                mode, where, stride = words[index + 3 + 3 * c : index + 6 + 3 * c]
                place, step = f"scratch + {where}", str(stride)
                if mode == 0:
                    place, step = f"e{where}", str(self._stride(where))
                elif mode == 2:
                    place, step = "rooms", "longest"
                yield f"st_int64(scratch, {2 * c}, {place})"
                yield f"st_int64(scratch, {2 * c + 1}, {step})"
            yield f"if stage_{number}(table + {parameters}, scratch, count, scratch) != 0:"
            yield f"    return {REFUSED}"

    def _stride(self, entry: int) -> int:
        return self._bytes((*self.ports, *self.form.outputs)[entry])

    def _dtype(self, kind: Type) -> str:
        dtype = dtype_of(kind)
        return "float32" if self.single and dtype == "float64" else dtype

    def _bytes(self, value: Value) -> int:
        """The bytes of a row."""
        narrow = not is_text(value.type) and self._dtype(value.type) != dtype_of(value.type)
        return row_bytes(value.type) // (1 + narrow)


def _function(head: str, lines: Sequence[str]) -> str:
    return "\n    ".join([f"def {head}:", *lines]) + "\n"


def _fields(value: Value) -> tuple[str, ...]:
    return (value.fields if isinstance(value, Port) else ()) or ("",)


#: Copies a text with zeros behind it; it tells whether its bytes are no UTF-8.
_COPY_TEXT = f"""\
def copy_text(source, size, made):
    place = 0
    while place < size:
        while place + 8 <= size and (peek_int64(source + place, 0) & -9187201950435737472) == 0:
            poke_int64(made + place, 0, peek_int64(source + place, 0))
            place += 8
        if place < size:
            lead = int64(ld_uint8(source, place))
            count = 1
            if lead >= 128:
                count = 2 + (lead >= 224) + (lead >= 240)
                if lead < 194 or lead > 244 or place + count > size:
                    return 1
                second = int64(ld_uint8(source, place + 1))
                if (lead == 224 and second < 160) or (lead == 240 and second < 144):
                    return 1
                if (lead == 237 and second > 159) or (lead == 244 and second > 143):
                    return 1
            st_uint8(made, place, lead)
            for k in range(1, count):
                byte = int64(ld_uint8(source, place + k))
                if (byte & 192) != 128:
                    return 1
                st_uint8(made, place + k, byte)
            place += count
    for k in range({_BEHIND}):
        st_uint8(made, size + k, 0)
    return 0
"""
