"""Flow: the immutable handle that users chain, and the program it stands for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from numpy.typing import ArrayLike

from flour.core.errors import FlourError, ParameterError, TypeMismatch
from flour.core.extension_points import extension
from flour.core.node import Node, node, rebuild, topological
from flour.core.op import REGISTRY, Op
from flour.core.provenance import Origin, here
from flour.core.reference import evaluate, public
from flour.core.source import Source
from flour.core.types import Record, Scalar, Type, Vector
from flour.data.coerce import coerce, native_types
from flour.language.shorthands import Shorthands
from objectstore.digest import combine


class Flow(Shorthands):
    """A typed dataflow program with named outputs; most have one, and can be chained further.

    Nothing runs until `reference(data)` (numpy, the definition) or `plan()` (native code).
    """

    __slots__ = ("__weakref__", "_retyped", "made_from", "notes", "origin", "outputs")

    outputs: Mapping[str, Node]

    def __init__(
        self,
        outputs: Mapping[str, Node],
        origin: Origin | None = None,
        made_from: tuple[Flow, ...] = (),
    ) -> None:
        if not outputs:
            raise ParameterError(
                "a program needs at least one output", where=str(here()), hint="outputs(label=...)"
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
        raise TypeMismatch(
            "this program has several outputs",
            where=str(here()),
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
                raise TypeMismatch(
                    f"two inputs are called {item.op.label!r}",
                    where=str(here()),
                    found=f"{found[item.op.label]} and {item.type}",
                    hint="give each input of a program a name of its own",
                )
        return found

    def origins(self) -> dict[Node, tuple[Origin, ...]]:
        """Where each node was made, in the user's world."""
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

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Flow) and dict(self.outputs) == dict(other.outputs)

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        return "Flow(" + ", ".join(f"{k}: {v.type}" for k, v in self.outputs.items()) + ")"

    # --- picking and naming ------------------------------------------------------------------

    def __getitem__(self, name: str) -> Flow:
        """A named output of the program, or a named column of a record."""
        record = len(self.outputs) == 1 and self._is_record()
        if record and (name not in self.outputs or name in getattr(self.type, "names", ())):
            return self.field(name)
        if name in self.outputs:
            return Flow({name: self.outputs[name]}, self.origin, (self,))
        raise TypeMismatch(
            f"there is no output {name!r}",
            where=str(here()),
            found=", ".join(self.outputs),
            hint="outputs, and columns of a record, are picked by their name",
        )

    def _is_record(self) -> bool:
        return isinstance(self.node.type, Record)

    def __contains__(self, name: str) -> bool:
        return name in self.outputs

    def __iter__(self) -> Iterator[str]:
        return iter(self.outputs)

    def named(self, name: str) -> Flow:
        """The same program with its one output called `name`."""
        return Flow({name: self.node}, self.origin, (self,))

    # --- arithmetic --------------------------------------------------------------------------

    #: numpy arrays leave `array + flow` to us instead of making an array of flows.
    __array_ufunc__ = None

    def __add__(self, other: Flow | ArrayLike) -> Flow:
        return self.plus(other) if isinstance(other, Flow) else self.add(other)

    def __radd__(self, other: ArrayLike) -> Flow:
        return self.add(other)

    def __sub__(self, other: Flow | ArrayLike) -> Flow:
        return self.minus(other) if isinstance(other, Flow) else self.subtract(other)

    def __rsub__(self, other: ArrayLike) -> Flow:
        return self.negate().add(other)

    def __mul__(self, other: Flow | ArrayLike) -> Flow:
        return self.times(other) if isinstance(other, Flow) else self.multiply(other)

    def __rmul__(self, other: ArrayLike) -> Flow:
        return self.multiply(other)

    def __truediv__(self, other: Flow | ArrayLike) -> Flow:
        return self.over(other) if isinstance(other, Flow) else self.divide(other)

    def __rtruediv__(self, other: ArrayLike) -> Flow:
        return self.quotient(other)

    def __neg__(self) -> Flow:
        return self.negate()

    # --- shorthands --------------------------------------------------------------------------

    def input(self, number: int) -> Flow:
        """The program of one of the values that this program's operator reads."""
        return Flow({"output": self.node.inputs[number]}, None, (self,))

    def field(self, label: str) -> Flow:
        """One named column of a record."""
        column = extension("column")
        with _AtTheCall(REGISTRY["Field"]):
            made: Flow = column(self, label)
        return made

    def columns(self, labels: Sequence[str]) -> Flow:
        """Several columns of a record, all numbers or all strings, as one vector."""
        made: Flow = extension("columns")(self, labels)
        return made

    def take(self, table: object) -> Flow:
        """The entry of a table (numbers or strings) for each index."""
        take = extension("take")
        with _AtTheCall(REGISTRY["Take"]):
            op = take(table)
        return apply(op, self)

    def _apply(self, name: str, others: Sequence[Any], **fields: object) -> Flow:
        extension("operators")()
        return build(name, fields, self, *others)

    # --- running -----------------------------------------------------------------------------

    def reference(self, data: object) -> dict[str, Any]:
        """Every output for this data, computed by the numpy definitions."""
        # The input's own float width and sparsity are kept where the program allows it, because
        # the training library would compute in them too.
        kinds = native_types(self.inputs(), data)
        typed = self.retype(**kinds) if kinds != self.inputs() else self
        columns, _ = coerce(typed.inputs(), data)
        values = evaluate(typed.outputs.values(), columns, typed.origins())
        return {name: public(values[item], item.type) for name, item in typed.outputs.items()}

    def plan(self, *, exact: bool = False) -> Any:
        """Bake the program into native code: an `oven.Plan`.

        The language does not know the compiler, so type checkers know the plan where it has a
        name: `plan: oven.Plan = flow.plan()`, or `oven.bake(flow)`.
        """
        return extension("native_plan")(self, exact=exact)

    def to_onnx(self) -> bytes:
        """The program as a serialised ONNX model; an operator without ONNX form is refused."""
        data: bytes = extension("onnx_model")(self)
        return data

    def retype(self, **kinds: Type) -> Flow:
        """The same program over inputs of other types (another float width, sparse...)."""
        key = tuple(kinds.get(name, kind) for name, kind in self.inputs().items())
        if key not in self._retyped:
            self._retyped[key] = self._retype(kinds)
        return self._retyped[key]

    def _retype(self, kinds: Mapping[str, Type]) -> Flow:
        def change(old: Node, inputs: tuple[Node, ...]) -> Node:
            op = old.op
            if isinstance(op, Source) and op.label in kinds:
                op = Source(op.label, kinds[op.label])
            return node(op, inputs)

        return self.rebuilt(change)

    def rebuilt(self, change: Callable[[Node, tuple[Node, ...]], Node]) -> Flow:
        """The program with every node passed through `change(node, its rebuilt inputs)`."""
        moved: dict[Node, Node] = {}
        origins = self.origins()

        def noted(old: Node, inputs: tuple[Node, ...]) -> Node:
            try:
                moved[old] = change(old, inputs)
            except FlourError as problem:
                problem.where = problem.where or " and ".join(map(str, origins.get(old, ())))
                raise
            return moved[old]

        made = rebuild(self.outputs.values(), noted)
        return with_origins(
            dict(zip(self.outputs, made, strict=True)),
            {moved[old]: places for old, places in origins.items() if old in moved},
        )

    def show(self, form: str = "text") -> str:
        """The program as "text", "mermaid" or a self-contained "html" page."""
        from flour.language.show import show

        return show(self, form)


def apply(op: Op, *inputs: Flow) -> Flow:
    """A program that applies the operator to the outputs of these programs."""
    origin = here()
    for item in inputs:
        if not isinstance(item, Flow):
            raise TypeMismatch(
                f"{op.name} applies to flows, not to {type(item).__name__}",
                where=str(origin),
                hint="for numbers run the program: flow.reference(data)",
            )
    with _AtTheCall(type(op)):
        made = node(op, [item.node for item in inputs])
    return Flow({"output": made}, origin, inputs)


def build(name: str, fields: Mapping[str, object], *inputs: Flow) -> Flow:
    """A program that applies the operator of this name and parameters (the fluent methods)."""
    kind = REGISTRY[name]
    with _AtTheCall(kind):
        op = kind(**fields)
    return apply(op, *inputs)


class _AtTheCall:
    """Mistakes made inside are the caller's; what the operator does is the last of hints."""

    def __init__(self, kind: type[Op]) -> None:
        self._kind = kind

    def __enter__(self) -> None:
        """Nothing to do yet."""

    def __exit__(self, kind: object, problem: object, trace: object) -> None:
        if isinstance(problem, FlourError):
            problem.where = problem.where or str(here())
            problem.hint = problem.hint or self._kind.summary()


def outputs(**flows: Flow) -> Flow:
    """One program with several named outputs; what they share is computed once."""
    for name, flow in flows.items():
        if not isinstance(flow, Flow):
            raise TypeMismatch(
                f"output {name!r} is no flow",
                where=str(here()),
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
    with _AtTheCall(Source):
        op = Source(name, kind)
    return apply(op)


def is_numeric(flow: Flow) -> bool:
    """Whether the flow's one output is a number or a vector of numbers."""
    kind = flow.type
    return isinstance(kind, Vector | Scalar) and kind.dtype != "string"
