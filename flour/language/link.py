"""Put the programs of models into a graph: what was written with names becomes one program.

Every word that waited for types is said again, at the line where it was written. A model's program
reads the flows that it was called on in place of its inputs: columns are found by name, or taken
in order; whole numbers become floats, as when data is passed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from flour.core.errors import FlourError, TypeMismatch
from flour.core.node import Node, node
from flour.core.op import ours
from flour.core.provenance import Origin, at, here
from flour.core.source import Source
from flour.core.types import FLOATS, Record, Scalar, Type, Vector
from flour.language.flow import Flow, column, columns, with_origins
from flour.language.graphs import FUNCTIONS
from flour.language.late import said
from flour.language.until_sure import until_sure  # noqa: F401 (a word that graphs in files say)

#: The program of a model, for flows of these types.
Find = Callable[[str], Flow]
_NOWHERE = Origin("graph", 0)


def link(graph: Flow, find: Find) -> Flow:
    """The program of a graph; `find` gives the program of each model that it names."""
    return _Linker(graph, find).program()


class _Linker:
    """One graph on its way to a program."""

    def __init__(self, graph: Flow, find: Find) -> None:
        self._graph, self._find = graph, find
        self._origins = graph.origins()
        self._made: dict[Node, Flow] = {}
        self._notes: dict[Node, dict[Origin, None]] = {}

    def program(self) -> Flow:
        """All outputs; one that is a model stands for the outputs of that model."""
        outputs: dict[str, Node] = {}
        for name, item in self._graph.outputs.items():
            made = self._value(item)
            several = len(made.outputs) > 1
            alone = several and len(self._graph.outputs) == 1
            for inner, found in made.outputs.items():
                outputs[inner if alone else f"{name}_{inner}" if several else name] = found
        return with_origins(outputs, self._notes)

    def _value(self, root: Node) -> Flow:
        stack = [root]
        while stack:
            item = stack[-1]
            waiting = [each for each in _reads(item) if each not in self._made]
            if waiting and item not in self._made:
                stack.extend(waiting)
                continue
            stack.pop()
            if item not in self._made:
                self._made[item] = self._one(item)
        return self._made[root]

    def _one(self, item: Node) -> Flow:
        origins = self._origins.get(item, ())
        place = origins[0] if origins else _NOWHERE
        with at(place):
            try:
                made = self._said(item, [self._made[each] for each in _reads(item)])
            except FlourError as problem:
                problem.where = problem.where or str(place)
                raise
        for flow in (made, *made.made_from):
            for each, places in flow.origins().items():
                self._notes.setdefault(each, {}).update(dict.fromkeys(places))
        for each in made.outputs.values():
            self._notes.setdefault(each, {}).update(dict.fromkeys(origins))
        return made

    def _said(self, item: Node, flows: list[Flow]) -> Flow:
        op: Any = item.op
        if op.name == "ModelCall":
            return self._model(item, flows)
        if op.name == "Deferred":
            return said(op.word, op.arguments, op.arrays, flows, FUNCTIONS)
        return Flow({"output": node(op, [flow.node for flow in flows])})

    def _model(self, item: Node, flows: list[Flow]) -> Flow:
        op: Any = item.op
        label = op.address or "plan"
        inside = item.inputs[len(op.given) :]
        program = Flow(dict(zip(op.outputs, inside, strict=True))) if inside else self._find(label)
        made = put(program, label, list(zip(op.given, flows, strict=True)))
        known = {each for flow in flows for each in flow.nodes()}
        origin, notes = here()._replace(step=label), made.origins()
        for each in made.nodes():
            if each not in known and not isinstance(each.op, Source):
                inner = [
                    place._replace(step=f"{label}.{place.step}") if place.step else place
                    for place in notes.get(each, ())
                ]
                notes[each] = (origin, *inner)
        return with_origins(made.outputs, notes)


def _reads(item: Node) -> Sequence[Node]:
    """Nodes to link before a node; the program of a plan in the graph is a world apart."""
    return item.inputs[: len(item.op.given)] if item.op.name == "ModelCall" else item.inputs  # type: ignore[attr-defined]  # the operator's field


# --- a program on flows --------------------------------------------------------------------------


def put(program: Flow, label: str, given: Sequence[tuple[str, Flow]]) -> Flow:
    """The program with these flows, some of them named, in place of its inputs."""
    sources = _Arguments(program.inputs(), label, given).sources()

    def change(old: Node, read: tuple[Node, ...]) -> Node:
        if isinstance(old.op, Source):
            return sources[old.op.label]
        if read and isinstance(read[0].type, Record) and not isinstance(read[0].op, Source):
            op: Any = old.op
            if op.name == "Field":
                return column(Flow({"record": read[0]}), op.label).node
            if op.name == "Pick":
                return _picked(read[0], op.labels)
        return node(old.op, read)

    return program.rebuilt(change, keep=set(sources.values()))


def _picked(record: Node, labels: Sequence[str]) -> Node:
    """Columns of a record that was put together: of an input that has them all, at once."""
    op: Any = record.op
    if op.name == "Bundle" and len(op.labels) == len(record.inputs):
        parts = dict(zip(op.labels, record.inputs, strict=True))
        picked = [parts[label] for label in labels]
        origins = {part.inputs[0] for part in picked if part.op.name == "Field"}
        if all(part.op.name == "Field" for part in picked) and len(origins) == 1:
            (origin,) = origins
            if isinstance(origin.op, Source):
                fields: list[Any] = [part.op for part in picked]
                return node(ours("Pick")(tuple(field.label for field in fields)), [origin])
    return columns(Flow({"record": record}), labels).node


class _Arguments:
    """The flows that a model is called on, on their way to its inputs."""

    def __init__(
        self, inputs: Mapping[str, Type], label: str, given: Sequence[tuple[str, Flow]]
    ) -> None:
        self._inputs, self._label = inputs, label
        self._named = {name: flow for name, flow in given if name}
        self._rest = [flow for name, flow in given if not name]

    def sources(self) -> dict[str, Node]:
        """A node for each input."""
        if len(self._inputs) == 1:
            ((name, kind),) = self._inputs.items()
            made = {name: self._only(name, kind)}
        else:
            made = {name: self._one(name, kind) for name, kind in self._inputs.items()}
        if self._named or self._rest:
            more = list(self._named) or [str(flow.type) for flow in self._rest]
            raise self._wrong(f"has no input for {', '.join(more)[:80]}")
        return {name: flow.node for name, flow in made.items()}

    def _one(self, name: str, kind: Type) -> Flow:
        """One input of several: by its name, as a column of a record, or the next in order."""
        if name in self._named:
            return self._fit(self._named.pop(name), kind, name)
        columns = [flow for flow in self._rest if name in _names(flow)]
        if columns:
            return self._fit(columns[0][name], kind, name)
        if not self._rest:
            raise self._wrong(f"needs {name!r}")
        return self._fit(self._rest.pop(0), kind, name)

    def _only(self, name: str, kind: Type) -> Flow:
        """The only input, which may be put together of several flows."""
        if name in self._named:
            return self._fit(self._named.pop(name), kind, name)
        if isinstance(kind, Record):
            return self._record(kind)
        if isinstance(kind, Vector):
            return self._vector(kind)
        if not self._rest:
            raise self._wrong(f"needs {name!r}")
        return self._fit(self._rest.pop(0), kind, name)

    def _record(self, kind: Record) -> Flow:
        if len(self._rest) == 1 and not self._named and self._rest[0].type == kind:
            return self._rest.pop()
        columns, loose = dict(self._named), list[Flow]()
        for flow in self._rest:
            if names := _names(flow):
                columns.update({name: flow[name] for name in names})
            else:
                loose += _cells(flow)
        self._named, self._rest = {}, []
        named = f" and {', '.join(columns)[:80]}" if columns else ""
        missing = [name for name in kind.names if name not in columns]
        columns.update(zip(missing, loose, strict=False))
        if len(loose) > len(missing) or any(
            name not in columns and name not in kind.unread for name in kind.names
        ):
            wanted = ", ".join(missing)[:80] or "no more columns"
            given = f"{len(loose)} columns without names{named}"
            raise self._wrong(f"needs {wanted}, and was given {given}")
        known = [name for name in kind.names if name in columns]
        flows = [self._fit(columns[name], kind[name], name) for name in known]
        return ours("Bundle")(tuple(known))(*flows)

    def _vector(self, kind: Vector) -> Flow:
        flows = [*self._rest, *self._named.values()]
        parts = [
            columns(flow, flow.type.names) if isinstance(flow.type, Record) else flow
            for flow in flows
        ]
        if not parts:
            raise self._wrong("needs columns")
        together = parts[0] if len(parts) == 1 else parts[0].concat(*parts[1:])
        width = getattr(together.type, "width", 1)
        if width != kind.width:
            raise self._wrong(f"reads {kind.width} columns, and was given {width}")
        self._rest, self._named = [], {}
        if not isinstance(together.type, Vector):
            together = together.as_vector()
        return self._fit(together, kind, "")

    def _fit(self, flow: Flow, kind: Type, name: str) -> Flow:
        """The flow as this input's type: whole numbers as floats, records by their columns."""
        own = flow.type
        if own == kind or not isinstance(own, Scalar | Vector) or own.dtype == "string":
            texts = _is_text(own) and _is_text(kind)
            if texts or type(own) is type(kind):
                return flow
            raise self._wrong(f"reads {kind}{_as(name)}, and was given {own}")
        wanted = getattr(kind, "dtype", "")
        if type(own) is not type(kind) or wanted == "string":
            raise self._wrong(f"reads {kind}{_as(name)}, and was given {own}")
        if wanted in FLOATS and own.dtype not in FLOATS:
            return flow.cast(wanted)
        return flow

    def _wrong(self, said: str) -> TypeMismatch:
        wanted = ", ".join(f"{name}: {kind}" for name, kind in self._inputs.items())
        return TypeMismatch.here(
            f"model {self._label!r} {said}",
            found=f"its inputs are {wanted}"[:200],
            hint="a model is called on flows for its inputs, in their order or by name",
        )


def _as(name: str) -> str:
    return f" as {name!r}" if name else ""


def _is_text(kind: Type) -> bool:
    return not isinstance(kind, Vector) and (
        getattr(kind, "dtype", "") == "string" or type(kind).__name__ == "Text"
    )


def _names(flow: Flow) -> tuple[str, ...]:
    """The names of a flow's columns, or of its outputs, where it has several."""
    if len(flow.outputs) > 1:
        return tuple(flow.outputs)
    return flow.type.names if isinstance(flow.type, Record) else ()


def _cells(flow: Flow) -> Iterator[Flow]:
    """Each column of a flow without names."""
    if isinstance(flow.type, Vector):
        yield from (flow[i] for i in range(flow.type.width))
    else:
        yield flow
