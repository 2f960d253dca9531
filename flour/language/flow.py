"""Flow: the immutable handle that users chain, and the program it stands for."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from flour.core.errors import FlourError, ParameterError, TypeMismatch, nearest
from flour.core.node import Node, node, rebuilt, topological
from flour.core.op import Op, appliers, ours
from flour.core.provenance import Origin, here
from flour.core.reference import evaluate, public
from flour.core.source import Source
from flour.core.types import FLOATS, Later, Record, Text, Type, Vector
from flour.data.coerce import coerce, native_types
from flour.language.shorthands import is_listed, rows_of
from flour.language.signs import Operand, Signs
from objectstore import combine

#: A pick from a flow: a name, a column's number, a slice, a list of either; after `:` or alone.
Key: TypeAlias = str | int | slice | Sequence[Any] | NDArray[Any] | tuple[Any, ...]


#: Operators that read some columns of a record, which they name.
_PICKS = frozenset({"Field", "Pick", "Narrow"})


class Flow(Signs):
    """A typed dataflow program with named outputs; most have one, and can be chained further.

    Nothing runs until `reference(data)` (numpy, the definition) or `oven.bake(flow)` (native code).
    """

    __slots__ = ("__weakref__", "_retyped", "made_from", "notes", "origin", "outputs")

    outputs: Mapping[str, Node]

    def __new__(cls, *given: Any, **named: Any) -> Flow:
        """A flow: a LateFlow where its type is known only when a graph is linked."""
        if cls is Flow:
            outputs: Mapping[str, Node] = given[0] if given else named["outputs"]
            if Later in [type(item.type) for item in outputs.values()]:
                late: Any = LateFlow
                return object.__new__(late)  # type: ignore[no-any-return]  # a flow, too
        return object.__new__(cls)

    def __init__(
        self,
        outputs: Mapping[str, Node],
        origin: Origin | None = None,
        made_from: tuple[Flow, ...] = (),
    ) -> None:
        if not outputs:
            raise ParameterError.here(
                "a program needs at least one output", hint="outputs(label=...)"
            )
        self.outputs = dict(outputs)
        self.origin = origin
        self.made_from = made_from
        #: Where nodes were made that no chaining of flows made.
        self.notes: Mapping[Node, Iterable[Origin]] = {}
        self._retyped: dict[tuple[Type, ...], Flow] = {}

    # --- the program -------------------------------------------------------------------------

    @property
    def node(self) -> Node:
        """The node of a program with one output."""
        if len(self.outputs) == 1:
            return next(iter(self.outputs.values()))
        raise TypeMismatch.here(
            "this program has several outputs",
            found=", ".join(self.outputs),
            hint="pick one: flow['" + next(iter(self.outputs)) + "']",
        )

    @property
    def type(self) -> Type:
        """The type of a program with one output."""
        return self.node.type

    @property
    def types(self) -> dict[str, Type]:
        """The type of every output."""
        return {name: item.type for name, item in self.outputs.items()}

    @property
    def digest(self) -> str:
        """Equal programs have equal digests, wherever and whenever they were made."""
        return combine(*(f"{name}={item.digest}" for name, item in self.outputs.items()))

    def nodes(self) -> list[Node]:
        """Every node, inputs before readers."""
        return topological(self.outputs.values())

    def inputs(self) -> dict[str, Type]:
        """The program's named inputs."""
        found: dict[str, Type] = {}
        for item in self.nodes():
            if not isinstance(item.op, Source):
                continue
            if found.setdefault(item.op.label, item.type) != item.type:
                raise TypeMismatch.here(
                    f"two inputs are called {item.op.label!r}",
                    found=f"{found[item.op.label]} and {item.type}",
                    hint="give each input of a program a name of its own",
                )
        return found

    def origins(self) -> dict[Node, tuple[Origin, ...]]:
        """The origin of each node in the user's world."""
        found: dict[Node, dict[Origin, None]] = {}
        seen: set[int] = set()
        stack: list[Flow] = [self]
        while stack:
            flow = stack.pop()
            if id(flow) in seen:
                continue
            seen.add(id(flow))
            stack.extend(flow.made_from)
            for item, places in flow.notes.items():
                found.setdefault(item, {}).update(dict.fromkeys(places))
            if flow.origin is not None:
                for item in flow.outputs.values():
                    found.setdefault(item, {})[flow.origin] = None
        return {item: tuple(sorted(places)) for item, places in found.items()}

    def __repr__(self) -> str:
        return "Flow(" + ", ".join(f"{k}: {v.type}" for k, v in self.outputs.items()) + ")"

    # --- picking and naming ------------------------------------------------------------------

    def __getitem__(self, key: Key) -> Flow:
        """A named output, a named column of a record, or columns of a vector by number.

        A flow is the value of one row, so `x[2]`, `x[0:3]` and `x[[0, 2]]` pick columns, and so do
        `x[:, 2]` and `x[:, 0:3]`, as they are written for arrays.
        """
        if isinstance(key, tuple) and len(key) == 2 and _is_all(key[0]):
            key = key[1]
        elif isinstance(key, tuple) and key and all(isinstance(name, str) for name in key):
            key = list(key)
        if isinstance(key, str):
            return self._named(key)
        if len(self.outputs) > 1 and isinstance(key, list):
            return outputs(**{name: self[name] for name in key})
        return pick(self, key)

    def _named(self, name: str) -> Flow:
        record = len(self.outputs) == 1 and isinstance(self.node.type, Record)
        if record and (name not in self.outputs or name in getattr(self.type, "names", ())):
            return self.field(name)
        if name in self.outputs:
            return Flow({name: self.outputs[name]}, self.origin, (self,))
        labels = (flow.outputs["label"].op for flow in self.made_from if "label" in flow.outputs)
        tables = (op.table for op in labels if op.name == "TakeText")  # type: ignore[attr-defined]  # its field
        known = next((list(map(str, table.to_list())) for table in tables), [])
        width = getattr(self.node.type, "width", 0) if len(self.outputs) == 1 else 0
        classes = known if len(known) == width else []
        if name in classes:
            return self[classes.index(name)]
        raise TypeMismatch.here(
            f"there is no output {name!r}",
            found=", ".join(classes or self.outputs)[:200],
            hint=nearest(name, classes or self.outputs)
            or "outputs, and columns of a record, are picked by their name",
        )

    def named(self, name: str) -> Flow:
        """This program with its one output called `name`."""
        return Flow({name: self.node}, self.origin, (self,))

    # --- shorthands --------------------------------------------------------------------------

    def input(self, number: int) -> Flow:
        """The program of one of the values that this program's operator reads."""
        return Flow({"output": self.node.inputs[number]}, None, (self,))

    def field(self, label: str) -> Flow:
        """One named column of a record."""
        return column(self, label)

    def columns(self, labels: Sequence[str]) -> Flow:
        """Several columns of a record, all numbers or all strings, as one vector."""
        return columns(self, labels)

    def take(self, table: object) -> Flow:
        """The entry of a table (numbers or strings) for each index."""
        values = np.asarray(table)
        if values.dtype.kind in "OU":
            return self._apply("TakeText", (), values.tolist())
        return self._apply("Take", (), values)

    def _apply(self, name: str, others: Sequence[Any], *values: object, **fields: object) -> Flow:
        return _applied(ours(name), (self, *others), *values, **fields)

    def rounded(self, decimals: int) -> Flow:
        """This program with its floats rounded to `decimals` decimals, as numpy rounds them."""
        if decimals not in range(16):
            raise ParameterError.here(
                "decimals are a whole number from 0 to 15", found=repr(decimals)[:40]
            )

        def shorter(flow: Flow) -> Flow:
            kind = flow.type
            if getattr(kind, "dtype", "") not in FLOATS or getattr(kind, "sparse", False):
                return flow
            return flow.multiply(10.0**decimals).rint().divide(10.0**decimals)

        return outputs(**{name: shorter(self[name]) for name in self.outputs})

    # --- linear models -----------------------------------------------------------------------

    def linear_regressor(self, weights: ArrayLike, bias: ArrayLike = 0.0) -> Flow:
        """A program that answers `value`: weights times x plus bias, one number or several."""
        rows, offsets = rows_of(weights, bias)
        found = self.linear(rows, offsets)
        return (found.element(0) if len(rows) == 1 else found).named("value")

    def linear_classifier(
        self, weights: ArrayLike, bias: ArrayLike = 0.0, *, classes: Sequence[object]
    ) -> Flow:
        """A program that answers `label` and `scores`.

        Two classes need one row of weights: above zero is the second class. More need a row for
        each class, and the largest score wins.
        """
        label, scores = self._decided(weights, bias, classes)
        return outputs(label=label, scores=scores)

    def logistic_classifier(
        self, weights: ArrayLike, bias: ArrayLike = 0.0, *, classes: Sequence[object]
    ) -> Flow:
        """A linear classifier that also answers `probabilities`: a sigmoid, or a softmax."""
        label, scores = self._decided(weights, bias, classes)
        if len(classes) > 2:
            probabilities = scores.softmax()
        else:
            second = scores.sigmoid()
            probabilities = second.one_minus().concat(second)
        return outputs(label=label, probabilities=probabilities, scores=scores)

    def _decided(
        self, weights: ArrayLike, bias: ArrayLike, classes: Sequence[object]
    ) -> tuple[Flow, Flow]:
        """The label and the scores of a linear classifier."""
        if not is_listed(classes):
            raise ParameterError.here(
                "the classes are a list of labels",
                found=repr(classes)[:60],
                hint="classes=['no', 'yes']",
            )
        rows, offsets = rows_of(weights, bias)
        if len(classes) < 2 or len(rows) != (1 if len(classes) == 2 else len(classes)):
            raise ParameterError.here(
                "two classes need one row of weights, more need one for each class",
                found=f"{len(rows)} rows for {len(classes)} classes",
                hint="weights of shape (1, columns), or (classes, columns)",
            )
        scores = self.linear(rows, offsets)
        if len(classes) > 2:
            return scores.arg_max().take(classes), scores
        single = scores.element(0)
        return single.greater([0.0]).cast("int64").take(classes), single

    # --- running -----------------------------------------------------------------------------

    def reference(self, data: object) -> dict[str, Any]:
        """Every output for this data, computed by the numpy definitions."""
        # The input's own float width and sparsity are kept where the program allows it, because
        # the training library would compute in them too.
        program = without_unread(self)
        kinds = native_types(program.inputs(), data)
        typed = program.taking(kinds) if kinds != program.inputs() else program
        columns, _ = coerce(typed.inputs(), data)
        values = evaluate(typed.outputs.values(), columns, typed.origins())
        return {name: public(values[item], item.type) for name, item in typed.outputs.items()}

    def retype(self, **kinds: Type) -> Flow:
        """This program over inputs of other types (another float width, sparse...)."""
        key = tuple(kinds.get(name, kind) for name, kind in self.inputs().items())
        if key not in self._retyped:
            inputs = {name: node(Source(name, kind), ()) for name, kind in kinds.items()}
            self._retyped[key] = self._reading(inputs)
        return self._retyped[key]

    def taking(self, kinds: Mapping[str, Type]) -> Flow:
        """This program over the types of rows that have come, which are to blame if it cannot."""
        try:
            return self.retype(**kinds)
        except TypeMismatch as problem:
            raise TypeMismatch(
                "this model does not take rows of this type",
                where="$",
                found=f"{', '.join(map(str, kinds.values()))}: {problem.what}"[:200],
                hint="give the types of the training, such as rows.astype(float)",
            ) from problem

    def on(self, x: Flow | None = None, **flows: Flow) -> Flow:
        """This program, reading flows in place of its inputs: the only one, or by name."""
        names = list(self.inputs())
        given = flows if x is None else {**dict.fromkeys(names, x), **flows}
        wrong = [name for name in given if name not in names]
        if wrong or not given or (x is not None and len(names) > 1):
            raise ParameterError.here(
                "a program is put on a flow for its only input, or on one for each name",
                found=f"inputs {', '.join(names)}; given {', '.join(given) or 'nothing'}",
                hint=nearest(wrong[0], names) if wrong else f"program.on({names[0]}=flow)",
            )
        made = self._reading({name: flow.node for name, flow in given.items()})
        made.made_from = tuple(given.values())
        return made

    def _reading(self, inputs: Mapping[str, Node]) -> Flow:
        """This program with these nodes for its inputs."""

        def change(old: Node, read: tuple[Node, ...]) -> Node:
            named = isinstance(old.op, Source) and old.op.label in inputs
            return inputs[old.op.label] if named else node(old.op, read, old)  # type: ignore[attr-defined]  # it is a source

        return self.rebuilt(change, keep=set(inputs.values()))

    def rebuilt(
        self, change: Callable[[Node, tuple[Node, ...]], Node], keep: Container[Node] = ()
    ) -> Flow:
        """The program with every node passed through `change(node, its rebuilt inputs)`.

        A new node gets the origins of the one that it replaces, unless it is to keep its own.
        """
        origins = self.origins()
        moved = rebuilt(self.outputs.values(), change, origins)
        return with_origins(
            {name: moved[item] for name, item in self.outputs.items()},
            {
                moved[old]: places
                for old, places in origins.items()
                if old in moved and (moved[old] not in keep or isinstance(moved[old].op, Source))
            },
        )


class LateFlow(Flow):
    """A program that names models; it runs when a runtime has put them in: see `link`.

    flour.language.late, which the operators of graphs import, writes its methods.
    """

    __slots__ = ()


def apply(op: Op, *inputs: Flow) -> Flow:
    """A program that applies the operator to the outputs of these programs."""
    for item in inputs:
        if not isinstance(item, Flow):
            raise TypeMismatch.here(
                f"{op.name} applies to flows, not to {type(item).__name__}",
                hint="for numbers run the program: flow.reference(data)",
            )
    try:
        made = node(op, [item.node for item in inputs])
    except FlourError as problem:
        _at_the_call(problem, type(op))
        raise
    return Flow({"output": made}, here(), inputs)


appliers.append(apply)


def _applied(kind: type[Op], inputs: Sequence[Flow], *values: object, **fields: object) -> Flow:
    """A program that applies an operator made of these values."""
    try:
        op = kind(*values, **fields)
    except FlourError as problem:
        _at_the_call(problem, kind)
        raise
    return apply(op, *inputs)


def _at_the_call(problem: FlourError, kind: type[Op]) -> None:
    """Make a mistake the caller's; what the operator does is the last of hints."""
    problem.where = problem.where or str(here())
    problem.hint = problem.hint or kind.summary()


def outputs(**flows: Flow) -> Flow:
    """One program with several named outputs; what they share is computed once."""
    for name, flow in flows.items():
        if not isinstance(flow, Flow):
            raise TypeMismatch.here(
                f"output {name!r} is no flow",
                found=type(flow).__name__,
                hint="outputs(label=one_flow, scores=another)",
            )
    return Flow({name: flow.node for name, flow in flows.items()}, None, tuple(flows.values()))


def with_origins(outputs: Mapping[str, Node], origins: Mapping[Node, Iterable[Origin]]) -> Flow:
    """A program whose nodes were made elsewhere, with what is known of where."""
    made = Flow(outputs)
    made.notes = dict(origins)
    return made


def source(name: str, kind: Type) -> Flow:
    """A named input of a program."""
    return _applied(Source, (), name, kind)


def without_unread(program: Flow) -> Flow:
    """The program, whose input types list the named columns that it never reads."""
    whole = {item for item in program.outputs.values() if isinstance(item.op, Source)}
    read: dict[Node, set[str]] = {}
    for item in program.nodes():
        for value in item.inputs:
            if isinstance(value.op, Source):
                fields = item.op.fields()
                read.setdefault(value, set()).update(fields.get("labels") or [fields.get("label")])
                whole |= set() if item.op.name in _PICKS else {value}
    kinds: dict[str, Type] = {}
    for item in read.keys() - whole:
        kind, op = item.type, item.op
        if isinstance(kind, Record) and not kind.positional and isinstance(op, Source):
            unread = tuple(name for name in kind.names if name not in read[item])
            if unread != kind.unread:
                kinds[op.label] = Record(kind.fields, unread=unread)
    return program.retype(**kinds) if kinds else program


def _is_all(key: object) -> bool:
    return isinstance(key, slice) and key == slice(None)


def pick(flow: Flow, key: Any) -> Flow:
    """The columns of a vector or a record that a number, a slice or a list of these picks."""
    kind = flow.type
    try:
        if isinstance(kind, Record):
            names = np.array([*kind.names, None], object)[:-1]
            named = isinstance(key, list) and all(isinstance(name, str) for name in key)
            picked = key if named else names[key]
            return flow.field(picked) if isinstance(picked, str) else flow.narrow(list(picked))
        if isinstance(kind, Vector):
            columns = np.arange(kind.width)[key]
            return flow.select(columns) if np.ndim(columns) else flow.element(int(columns))
    except (IndexError, TypeError, ValueError) as problem:
        raise TypeMismatch.here(
            f"there are no such columns in {kind}",
            found=f"{key!r}: {problem}"[:160],
            hint="columns count from 0: x[2], x[:, 2:5], x[:, [0, 3]]",
        ) from None
    raise TypeMismatch.here(
        f"only a vector or a record has columns to pick, got {kind}",
        found=repr(key)[:80],
        hint="a flow is the value of one row: rows are not picked in a program",
    )


# --- columns of a record, straight from their own source -----------------------------------------


def column(record: Flow, label: str) -> Flow:
    """One column of a record."""
    item = record.node
    if label in getattr(item.type, "names", ()):
        if item.op.name == "Narrow":
            return column(record.input(0), label)
        if item.op.name == "Bundle":
            number, j = _spots(record)[label]
            part = record.input(number)
            return part.element(j) if isinstance(part.type, Vector) else part
        kind = item.type[label] if isinstance(item.type, Record) else item.type
        if item.op.name == "ParseCsv" and (
            isinstance(kind, Text) or getattr(kind, "dtype", "") == "string"
        ):
            return _applied(ours("CsvField"), (record.input(0),), **item.op.fields(), column=label)
    return _applied(ours("Field"), (record,), label)


def columns(record: Flow, labels: Sequence[str]) -> Flow:
    """Several columns of a record as one vector."""
    labels = tuple(labels)
    item = record.node
    if set(labels) <= set(getattr(item.type, "names", ())) and labels:
        if item.op.name == "Narrow":
            return columns(record.input(0), labels)
        if item.op.name == "Bundle":
            spots = _spots(record)
            parts = []
            for number, group in groupby((spots[label] for label in labels), lambda spot: spot[0]):
                part, picked = record.input(number), [j for _, j in group]
                if not isinstance(part.type, Vector):
                    parts += [part.as_vector()] * len(picked)
                elif picked == list(range(part.type.width)):
                    parts.append(part)
                else:
                    parts.append(part.select(picked))
            return parts[0].concat(*parts[1:]) if len(parts) > 1 else parts[0]
    return _applied(ours("Pick"), (record,), labels)


def _spots(bundle: Flow) -> dict[str, tuple[int, int]]:
    """For each name of a bundle: the number of its input, and the column of that input."""
    widths = [getattr(item.type, "width", 1) for item in bundle.node.inputs]
    spots = [(number, j) for number, width in enumerate(widths) for j in range(width)]
    record = bundle.type
    assert isinstance(record, Record)
    return dict(zip(record.names, spots, strict=True))


def where(condition: Flow, yes: Operand, no: Operand) -> Flow:
    """`yes` where the condition is true, else `no`: flows, numbers, or two strings."""
    return condition.where(yes, no)
