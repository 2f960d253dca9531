"""Cut a program into stages, and write each one's code.

A stage is one compute-bound operator over a block of rows (`kernel`), all the memory-bound
operators that can run in one pass over each row (`fused`), or one operator without native code
(`python`). Stages run in order and pass values on as columns.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import accumulate
from sys import intern

from flour.core.emission import (
    Column,
    PairsValue,
    Push,
    Room,
    ScalarValue,
    TokensValue,
    VectorValue,
)
from flour.core.emission import Value as Emitted
from flour.core.node import Node, readers, topological
from flour.core.op import Parameter
from flour.core.source import Source
from flour.core.types import FLOATS, Later, Pairs, Record, Text, Tokens, Type, Vector, Whole
from flour.ops.linear import Linear
from flour.ops.require import RequireFinite
from flour.ops.structure import Concat, TakeText
from objectstore import Blob
from oven.codegen.emitter import BYTES, Body, ParameterSlot, Scope
from oven.codegen.ports import Port, View, arrives

FUSED, KERNEL, PYTHON, LABELS = "fused", "kernel", "python", "labels"
#: Sparse vectors up to this width are passed between stages dense.
NARROW = 64
#: Stages with more lines are cut: compile time grows with the square of a stage's size.
MOST_LINES = 400
#: Unless the cut would store a sparse vector: that takes longer than all that is read of it.
MOST_SPARSE_LINES = 1600
_NEVER = 1 << 40
_SPARSE = 1 << 10
#: A cut is made only if both sides are smaller than this share of the whole.
_WORTH = 0.85
Value = Node | Port
Views = Mapping[Node, View]
NewBody = Callable[..., Body]


@dataclass(frozen=True)
class Stage:
    """Operators that run together: their inputs, their outputs and their code."""

    kind: str
    nodes: tuple[Node, ...]
    inputs: tuple[Value, ...]
    outputs: tuple[Node, ...]
    name: str = ""
    source: str = ""
    slots: tuple[ParameterSlot, ...] = ()
    #: Memory for one row whose size depends on the data.
    rooms: tuple[Room, ...] = ()
    #: For each output passed on as stored numbers: the bound of stored numbers in a row.
    most: Mapping[Node, Room] = field(default_factory=dict)

    @property
    def native(self) -> bool:
        """True if no row runs Python: machine code, or numpy's look-up of labels that are text."""
        return self.kind != PYTHON

    @property
    def lines(self) -> int:
        """The lines of its code."""
        return self.source.count("\n")

    def stores(self, value: Value) -> bool:
        """True if its code reads or writes only the stored numbers of a column: see `is_wide`."""
        return self.kind == FUSED and is_wide(value.type)

    @property
    def title(self) -> str:
        """The stage in a line: its kind and its operators."""
        names = [item.op.name for item in self.nodes]
        more = f" and {len(names) - 8} more" if len(names) > 8 else ""
        return f"{self.kind} stage of {', '.join(names[:8])}{more}"

    def parameters(self) -> Iterator[Parameter]:
        """Every array and table its code reads, derived ones included."""
        return (slot.parameter for slot in self.slots if slot.parameter is not None)


def kind_of(item: Node) -> str:
    """The kind of stage for this node, judged by the node alone."""
    if isinstance(item.op, TakeText):
        return LABELS
    types = [item.type, *(source.type for source in item.inputs)]
    if any(isinstance(kind, Record | Whole) for kind in types) or isinstance(item.op, Source):
        return PYTHON
    strings = _dtype(item.type) == "string" and isinstance(item.type, Vector)
    if strings and not item.op.makes_strings:
        return PYTHON
    inputs = [source.type for source in item.inputs]
    if item.op.wants_kernel(*inputs):
        return KERNEL
    return FUSED if item.op.has_emit() and item.op.runs_native() else PYTHON


def place(
    wanted: Sequence[Node], roots: Collection[Node]
) -> tuple[dict[Node, str], dict[Node, int]]:
    """The kind of stage each node belongs in, and its level: the number of stages before it.

    Documents and words never leave a native stage: an operator that makes them is native only if
    all its readers are in the same native stage.
    """
    kinds = {item: kind_of(item) for item in wanted}
    reading: dict[Node, list[Node]] = {}
    for item in wanted:
        for source in item.inputs:
            reading.setdefault(source, []).append(item)
    while True:
        levels: dict[Node, int] = {}
        for item in wanted:
            # The first level at which it can read all its inputs.
            together = {s: kinds[s] == kinds[item] == FUSED for s in item.inputs if s in kinds}
            levels[item] = max((levels[s] + (not one) for s, one in together.items()), default=0)
        leaving = [
            item
            for item in wanted
            if is_text(item.type) and kinds[item] == FUSED
            if item in roots
            or any(kinds[r] != FUSED or levels[r] != levels[item] for r in reading[item])
        ]
        if not leaving:
            return kinds, levels
        kinds |= dict.fromkeys(leaving, PYTHON)


def is_wide(kind: Type) -> bool:
    """True if it is a sparse vector that native code passes on as stored numbers only.

    Such a column has two entries in a stage's table: the address and the size of its row pointers,
    and the addresses of its column numbers and of its values.
    """
    return isinstance(kind, Vector) and kind.sparse and kind.width > NARROW


def is_text(kind: Type) -> bool:
    """True if the value is bytes in native code, not numbers."""
    return isinstance(kind, Text | Tokens | Pairs) or _dtype(kind) == "string"


def _dtype(kind: Type) -> str:
    """The dtype of a column in native code."""
    if isinstance(kind, Record | Whole | Later):
        return ""
    return "string" if isinstance(kind, Text | Tokens | Pairs) else kind.dtype


def cut(roots: Sequence[Node], views: Views, *, exact: bool = False, lean: str = "") -> list[Stage]:
    """The stages of a program, in an order in which they can run."""
    needed, kept = set(roots), list[Node]()
    for item in reversed(topological(roots)):
        if item in needed and not arrives(item, views):
            kept.append(item)
            needed.update(item.inputs)
    wanted = [item for item in kept[::-1] if not isinstance(item.op, Source)]
    kinds, levels = place(wanted, set(roots))
    grouped: dict[tuple[int, int, int], list[Node]] = {}
    for number, item in enumerate(wanted):
        # All fused operators of a level form one pass over the row; each other one is a stage.
        rank = (FUSED, KERNEL, PYTHON, LABELS).index(kinds[item])
        alone = number if rank else -1
        grouped.setdefault((levels[item], rank, alone), []).append(item)
    reading = readers(roots)
    maker = _Maker(set(roots), reading, views, partial(Body, exact=exact, lean=lean))
    # Kernels read whole blocks: if one reads some columns of a block, a stage copies those first.
    copied = dict.fromkeys(
        source
        for item in wanted
        if kinds[item] == KERNEL
        for source in item.inputs
        if source in views and views[source].columns is not None
    )
    groups = [grouped[key] for key in sorted(grouped)]
    # Checks of inputs before a kernel go into its stage, as a stage takes a call.
    alone = len(groups) > 1 and all(is_block_check(item, views) for item in groups[0])
    if alone and kinds[groups[1][0]] == KERNEL:
        groups[:2] = [groups[0] + groups[1]]
    return [maker.copying(source) for source in copied] + [
        stage for group in groups for stage in maker.stages(group, kinds[group[-1]])
    ]


def is_block_check(item: Node, views: Views) -> bool:
    """True if the node is a check of a whole block of the input, made ahead of the rows."""
    if not isinstance(item.op, RequireFinite) or item not in views:
        return False
    dense = isinstance(item.type, Vector) and not item.type.sparse and item.type.dtype in FLOATS
    return dense and views[item].columns is None


class _Maker:
    """Makes the stages of a program."""

    def __init__(
        self,
        roots: Collection[Node],
        reading: Mapping[Node, list[Node]],
        views: Views,
        body: NewBody,
    ) -> None:
        self.roots, self.reading, self.views, self.body = roots, reading, views, body

    def stages(self, nodes: Sequence[Node], kind: str) -> Iterator[Stage]:
        """One stage, or several in sequence if one would take too long to compile."""
        stage = self._stage(nodes, kind)
        lines = stage.lines if kind == FUSED else 0
        boundary = self._cut_index(nodes, lines) if lines > MOST_LINES else None
        if boundary is None:
            yield stage
            return
        halves = (nodes[:boundary], nodes[boundary:])
        if max(self._stage(half, kind).lines for half in halves) > lines * _WORTH:
            yield stage  # one operator is most of it, or passing columns is
            return
        for half in halves:
            yield from self.stages(half, kind)

    def copying(self, source: Node) -> Stage:
        """The stage that copies some columns of a block of the input."""
        return self._with_code(Stage(FUSED, (source,), (self.views[source].port,), (source,)))

    def _cut_index(self, nodes: Sequence[Node], lines: int) -> int | None:
        """The index to cut a large stage at: near the middle, with few columns across."""
        # For each index between two nodes, the cost of the columns that cross it.
        number = {item: index for index, item in enumerate(nodes)}
        steps = [0] * (len(nodes) + 1)
        for item, index in number.items():
            last = max((number[r] for r in self.reading[item] if r in number), default=index)
            steps[index + 1] += _passing_cost(item)
            steps[last + 1] -= _passing_cost(item)
        costs = dict(enumerate(list(accumulate(steps))[1 : len(nodes)], 1))
        third = len(nodes) // 3
        inner = range(max(third, 1), max(len(nodes) - third, 2))
        best = min(inner, key=lambda index: costs.get(index, _NEVER), default=0)
        if costs.get(best, _NEVER) >= _NEVER:
            best = min(costs, key=costs.__getitem__, default=0)
        most = _NEVER if lines > MOST_SPARSE_LINES else _SPARSE * NARROW
        return best if costs.get(best, _NEVER) < most else None

    def _stage(self, nodes: Sequence[Node], kind: str) -> Stage:
        inside = set(nodes)
        outputs = tuple(
            n
            for n in nodes
            if n not in self.views
            and (n in self.roots or any(r not in inside for r in self.reading[n]))
        )
        inputs: dict[Value, None] = {}
        for item in nodes:
            for source in item.inputs:
                if source not in inside:
                    view = self.views.get(source)
                    copied = kind == KERNEL and view is not None and view.columns is not None
                    inputs[source if view is None or copied else view.port] = None
        stage = Stage(kind, tuple(nodes), tuple(inputs), outputs)
        return stage if kind in (PYTHON, LABELS) else self._with_code(stage)

    def _with_code(self, stage: Stage) -> Stage:
        """The stage with its code."""
        writer = _StageWriter(stage, self.views, self.body)
        body = writer.write()
        fused = stage.kind == FUSED
        name = "fused_rows" if fused else "kernel_" + stage.nodes[-1].op.name.lower()
        return replace(
            stage,
            name=name,
            # Interned: thousands of plans of one structure share one text.
            source=intern(body.text(name)),
            slots=tuple(body.slots),
            rooms=tuple(body.rooms),
            most=writer.most,
        )


def _passing_cost(item: Node) -> int:
    """The cost of passing a value to a later stage: its number of columns.

    More than all others for a document, which cannot be passed, and for a sparse vector, as its
    reader would run apart, or add up in another order.
    """
    if is_text(item.type):
        return _NEVER
    if not isinstance(item.type, Vector):
        return 1
    return _SPARSE * max(item.type.width, NARROW) if item.type.sparse else item.type.width


class _StageWriter:
    """Writes one native stage."""

    def __init__(self, stage: Stage, views: Views, body: NewBody) -> None:
        self.stage, self.views = stage, views
        self.body = body(ordered=any(stage.stores(item) for item in stage.outputs))
        self.columns: dict[Value, Column] = {}
        self.stored: dict[Value, tuple[str, str]] = {}
        for stem, values in (("x", stage.inputs), ("y", stage.outputs)):
            for value in values:
                base, stride = self.body.column(stem, "t")
                if self.stage.stores(value):
                    self.stored[value] = self.body.column("c", "v")
                kind = value.type
                width = kind.width if isinstance(kind, Vector) else 1
                self.columns[value] = Column(base, stride, kind, Scope(self.body).width(width))
        self.most: dict[Node, Room] = {}
        self.values: dict[Node, Emitted] = {}
        #: Checks of whole blocks, and the columns that they look at.
        self.checked = {
            item: self.columns[views[item].port]
            for item in stage.nodes
            if item not in self.columns and is_block_check(item, views)
        }
        #: Sums that prove checks: those that are finite have finite terms only.
        self.sums: dict[Node, list[Node]] = {}
        for item in stage.nodes if stage.kind == FUSED else ():
            known = {check for checks in self.sums.values() for check in checks}
            if checks := [each for each in self._proven(item) if each not in known]:
                self.sums[item] = checks
        self.proven = {check for checks in self.sums.values() for check in checks}

    def _proven(self, item: Node) -> list[Node]:
        """The checks that a sum makes, overflow apart: of what it adds up, or of parts of that."""
        if not isinstance(item.op, Linear):
            return []
        (source,) = item.inputs
        joined = isinstance(source.op, Concat) and source in self.stage.nodes
        if joined and source not in self.columns:
            return [each for each in source.inputs if self._is_proven(each, item, source)]
        return [source] if self._is_proven(source, item, item) else []

    def _is_proven(self, check: Node, item: Node, reader: Node) -> bool:
        """True if this is a check of what the reader alone reads, on the way to this sum."""
        dtype = _dtype(check.type)
        if not isinstance(check.op, RequireFinite) or dtype != _dtype(item.type):
            return False
        readers = {each for each in self.stage.nodes if check in each.inputs}
        inside = check in self.stage.nodes and check not in self.columns and readers == {reader}
        looked = check in self.checked or (inside and not is_wide(check.type))
        return looked and check.op.is_about_finite(dtype)

    def write(self) -> Body:
        """The whole stage."""
        for item in self.checked:
            if item not in self.proven:
                self._check(item)
        if self.stage.kind == KERNEL:
            item = self.stage.nodes[-1]
            read = [s if s in self.columns else self.views[s].port for s in item.inputs]
            inputs = tuple(self.columns[value] for value in read)
            item.op.kernel(Scope(self.body), inputs, self.columns[item])
            return self.body
        if self._is_one_function():
            # Rows without gaps are one row: loops over few columns are not vectorised.
            columns = self.columns.values()
            gapless = (f"{c.stride} == {BYTES[_dtype(c.type)]} * {c.size}" for c in columns)
            with self.body.block(f"if {' and '.join(gapless)}:"):
                for column in columns:
                    self.body.line(f"{column.size} = {column.size} * n")
                self.body.line("n = 1")
        # Zero times a sum is zero, or NaN for a sum that is not finite.
        found = {item: Scope(self.body).var("0.0") for item in self.sums}
        with self.body.block("for i in range(n):"):
            self._rows(found)
        for item, name in found.items():
            with self.body.block(f"if {name} != 0:"):
                if self.checked.keys() >= set(self.sums[item]):
                    for check in self.sums[item]:
                        self._check(check)
                else:
                    self.body.line("return 1")  # the definition looks, and knows an answer if not
        return self.body

    def _check(self, item: Node) -> None:
        """Check a whole block of the input: one value that is refused ends the call."""
        assert isinstance(item.op, RequireFinite), "only checks look at whole blocks"
        item.op.check_block(Scope(self.body), self.checked[item])

    def _is_one_function(self) -> bool:
        """True if the stage applies one function to every number of one vector."""
        nodes = self.stage.nodes
        views = [self.views.get(source) for item in nodes for source in item.inputs]
        dense = [kind for kind in (v.type for v in self.columns) if isinstance(kind, Vector)]
        return (
            len(self.stage.inputs) == 1
            and all(getattr(item.op, "alike", False) for item in nodes)
            and all(view is None or view.columns is None for view in views)
            and len(dense) == len(self.columns)
            and all(kind.width > 1 and not kind.sparse for kind in dense)
            # A value with several readers is kept in memory of one row, so it must be an output.
            and all(item in self.columns for item in nodes)
        )

    def _rows(self, found: Mapping[Node, str]) -> None:
        inside = {item: Scope(self.body) for item in self.stage.nodes}
        uses = dict.fromkeys(self.stage.nodes, 0)
        for item in self.stage.nodes:
            for source in item.inputs:
                if source in uses:
                    uses[source] += 1
        rows: dict[Value, str] = {}
        for read, column in self.columns.items():
            rows[read] = self.body.fresh("r")
            self.body.line(f"{rows[read]} = {column.base} + i * {column.stride}")
        for item, scope in inside.items():
            value = self._computed(item, scope, rows)
            if item in found:
                assert isinstance(value, VectorValue), "a product has a vector of sums"
                value.each(partial(self._add_nothing, found[item]))
            self.values[item] = self._stored_or_kept(item, value, scope, uses[item], rows)

    def _computed(self, item: Node, scope: Scope, rows: Mapping[Value, str]) -> Emitted:
        """The operator's result for its inputs; a node that is a view is copied."""
        if item in self.views and (item in self.columns or item in self.checked):
            return self._input(item, scope, rows)
        inputs = [self._input(source, scope, rows) for source in item.inputs]
        if item in self.proven:
            return inputs[0]
        op = item.op  # one that needs no zeros reads sparse vectors as they are
        if not (op.takes_sparse or op.keeps_zero or getattr(op, "skips_zeros", False)):
            inputs = [
                scope.hold(value) if isinstance(value, VectorValue) and not value.dense else value
                for value in inputs
            ]
        return item.op.emit(scope, *inputs)

    def _add_nothing(self, name: str, _: str, value: str) -> None:
        """Add zero times a value."""
        self.body.line(f"{name} = {name} + {value} * 0.0")

    def _stored_or_kept(
        self, item: Node, value: Emitted, scope: Scope, uses: int, rows: Mapping[Value, str]
    ) -> Emitted:
        """Write an output to its column; keep a value with several readers, to compute it once."""
        if item in self.columns:
            assert isinstance(value, ScalarValue | VectorValue), "documents and words stay inside"
            if item in self.stored:
                # Append the stored numbers of a sparse row to those of the row before.
                row = rows[item]
                assert isinstance(value, VectorValue), "scalars are not sparse"
                if uses or any(part.at is None and part.most is None for part in value.parts):
                    value = scope.keep(value)
                loose = any(part.at is not None for part in value.parts)
                rooms = [part.most for part in value.parts if part.most is not None]
                fixed = sum(room.fixed for room in rooms) + (value.width if loose else 0)
                self.most[item] = Room(sum(room.each for room in rooms), fixed, value.width)
                scope.write_stored(value, row, *self.stored[item])
                return value
            scope.write(value, rows[item])
            if uses and isinstance(value, VectorValue):
                return self._stored(item, scope, rows[item], constant=False)
        elif uses > 1 and isinstance(value, VectorValue):
            stored = len(value.parts) == 1 and value.parts[0].stored
            return value if stored else scope.keep(value)
        return value

    def _input(self, source: Node, scope: Scope, rows: Mapping[Value, str]) -> Emitted:
        if source in self.values:
            return self.values[source]
        view = self.views.get(source)
        if view is None:
            return self._stored(source, scope, rows[source], constant=True)
        whole = self._stored(view.port, scope, rows[view.port], constant=True)
        if view.columns is None:
            return whole
        assert isinstance(whole, VectorValue)
        at = scope.indexable(whole)
        if not isinstance(source.type, Vector):
            return scope.let(at(scope.size(view.columns[0])), whole.dtype)
        picked = Blob.of(list(view.columns), "int64")
        return scope.dense(whole.dtype, len(picked), lambda j: at(scope.at(picked, j)), stored=True)

    def _stored(self, value: Value, scope: Scope, row: str, *, constant: bool) -> Emitted:
        """A column's value in the current row, read from memory."""
        column, dtype = self.columns[value], _dtype(value.type)
        if isinstance(value.type, Tokens):
            base, slices, count = (scope.let(f"ldc_int64({row}, {k})", "int64").expr for k in "012")
            return TokensValue(base, slices, count, Room(1, 0), Room(1, 0))
        if isinstance(value.type, Pairs):
            base, slices, count, values = (
                scope.let(f"ldc_int64({row}, {k})", "int64").expr for k in "0123"
            )
            return PairsValue(base, slices, count, values, Room(1, 0))
        if value in self.stored:
            return _read_stored(scope, column, row, *self.stored[value])
        if not isinstance(column.type, Vector):
            return scope.let(scope.load(row, "0", dtype, constant=constant), dtype)

        def at(j: str) -> str:
            return scope.load(row, j, dtype, constant=constant)

        return scope.dense(dtype, column.type.width, at, size=column.size, stored=True)


def _read_stored(scope: Scope, column: Column, row: str, columns: str, values: str) -> VectorValue:
    """A row of a column that is passed as stored numbers only."""
    assert isinstance(column.type, Vector)
    dtype, width = column.type.dtype, column.type.width
    start, end = (scope.let(f"ldc_int64({row}, {k})", "int64").expr for k in "01")

    def each(push: Push) -> None:
        with scope.loop(end, start) as k:
            j = scope.let(scope.load(columns, k, "int64", constant=True), "int64").expr
            push(j, scope.let(scope.load(values, k, dtype, constant=True), dtype).expr)

    return scope.sparse(dtype, width, each, size=column.size, most=Room(1, 0, width))


def row_bytes(kind: Type) -> int:
    """The bytes of one row of a column."""
    if isinstance(kind, Tokens):
        return 3 * BYTES["int64"]
    if isinstance(kind, Pairs):
        return 4 * BYTES["int64"]
    width = kind.width if isinstance(kind, Vector) else 1
    return width * BYTES[_dtype(kind)]
