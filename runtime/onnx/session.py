"""A session over an ONNX model, with the methods people serve models by from onnxruntime's.

    session = InferenceSession("model.onnx")
    label, probabilities = session.run(None, {"X": rows})

The model runs as a plan: native code, and onnxruntime for the parts that have none. Answers have
ONNX's names, shapes and dtypes; a ZipMap's are lists of dicts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import BuiltinFunctionType
from typing import Any, NamedTuple, SupportsIndex
from weakref import ref

import oven
from flour.core.errors import FlourError, OpaqueFailed
from flour.core.modules import paused_collector
from flour.core.node import Node, node, rebuild
from flour.core.source import Source
from flour.core.types import Record, Text, Vector
from flour.language.flow import Flow
from flour.onnx import OnnxProgram, import_model
from flour.onnx.initializers import with_initializers
from flour.onnx.reading import opened, raw
from flour.onnx.signature import ValueInfo, overridable, signature
from flour.onnx.whole import WholeProgram, is_better_whole, whole_model
from flour.ops.opaque import Opaque
from flour.ops.structure import Element
from flour.sessions.proving import proving
from oven.entry.columns_entry import COLUMN, FLAT
from oven.plans.plan import restore
from runtime.onnx.answers import is_block, is_direct, labelled, shape_of
from runtime.onnx.errors import InvalidArgument, NoSuchFile, error, translated
from runtime.onnx.feeds import check_of, plain_map
from runtime.onnx.native_session_run import Order, open_gate
from runtime.onnx.session_image import (
    RestoredSession,
    SessionFacts,
    SessionImage,
    StoredModel,
    is_plain,
    order_of,
)
from runtime.onnx.zipmap_input import entry_of_maps

Feed = Mapping[str, Any]
#: Ways of onnxruntime's session to run a model that ours does not have.
_BESIDES = dict.fromkeys(
    ("io_binding", "run_async", "run_with_iobinding", "run_with_ort_values"),
    "pass numpy arrays to run()",
) | dict.fromkeys(
    ("end_profiling", "get_profiling_start_time_ns"),
    "plans write no profile: oven.explain.explain(session.plan) says what runs",
)


class ModelMeta(NamedTuple):
    """A model's own metadata."""

    producer_name: str
    graph_name: str
    domain: str
    description: str
    version: int
    custom_metadata_map: dict[str, str]
    graph_description: str = ""


class InferenceSession:
    """A model ready to run, from any number of threads."""

    def __init__(  # noqa: PLR0913 (onnxruntime's, and our own)
        self,
        path_or_bytes: object,
        sess_options: object = None,
        providers: Sequence[object] | None = None,
        provider_options: Sequence[object] | None = None,
        *,
        native_only: bool = False,
        rows: bool | None = None,
        compiled: bool = True,
        prove: bool = False,
        **others: object,
    ) -> None:
        """Import and compile the model of a path, its bytes or a ModelProto.

        `native_only` refuses models that need onnxruntime for a part; `rows` is `from_onnx`'s;
        without `compiled` the operators' definitions answer, in numpy; with `prove`, what
        onnxruntime has to run is first run in a process of its own.
        Of onnxruntime's options, initializers are put into the model; those of how it runs, and
        providers, mean nothing: plans run on the CPU, one thread a call.
        """
        self._options = sess_options
        path = path_or_bytes if isinstance(path_or_bytes, str | Path) else None
        if path is not None and not Path(path).is_file():
            raise error(NoSuchFile, "there is no such model", where=str(path))
        try:
            path_or_bytes = with_initializers(path_or_bytes, sess_options)
            given = raw(path_or_bytes)
            image = SessionImage.of(given, (native_only, rows)) if compiled else None
            kept = None if image is None else image.restored()
            if kept is not None:
                self._restore(kept)
                return
            with proving(on=prove):
                self._import(given or path_or_bytes, native_only, rows, compiled, image)
        except FlourError as problem:
            raise translated(problem) from problem

    def _import(
        self,
        given: object,
        native_only: bool,  # noqa: FBT001 (the constructor's own)
        rows: bool | None,  # noqa: FBT001 (as above)
        compiled: bool,  # noqa: FBT001 (as above)
        image: SessionImage | None,
    ) -> None:
        """Import the model, bake its plan, and find the shortest way to it."""
        model = opened(given)
        program = import_model(model, native_only=native_only, rows=rows)
        if compiled and is_better_whole(program):
            program = whole_model(model) or program
        self._inputs, self._outputs = signature(model, program)
        self._overridable = overridable(model, program)
        # The model's own constants and nodes are not needed any more.
        self._program: OnnxProgram | StoredModel = program.without_model()
        self._plan = _baked(_of_documents(program.flow), image) if compiled else None
        self._names = tuple(item.name for item in self._outputs)
        checks = {item.name: check_of(item) for item in self._inputs}
        self._checks: Mapping[str, Callable[[Any], Any]] = checks
        #: Of each output: how the plan's column becomes ONNX's value; None where it is that.
        self._shapes = {item.port.name: shape_of(item) for item in program.outputs}
        self._shapers: Mapping[str, Callable[[Any], Any] | None] = {
            name: shape and shape.maker() for name, shape in self._shapes.items()
        }
        #: Of each output: where it is in what the shortest way answers.
        self._places: Mapping[str, int] = {name: k for k, name in enumerate(self._names)}
        #: How the plan's own entry is to read arrays, where it is the shortest way.
        self._ranks: Mapping[str, int] | None = None
        self._order: Order | None = None
        self._short: Callable[[Feed], Sequence[Any] | None] | None = None
        self._count = len(self._inputs)
        #: The plan whose native code is being compiled; None once the shortest way is open.
        self._compiling = self._plan
        if self._plan is None:
            return
        self._plan.code.when_ready(partial(_open, ref(self)))
        if image is not None:
            self._plan.code.when_ready(partial(_keep, ref(self), image))

    @property
    def ready(self) -> bool:
        """True if the next run compiles nothing; until then definitions answer."""
        return self._compiling is None

    def _open_when_compiled(self) -> None:
        """Answer by way of the plan's entry from now on, if its native code is there."""
        plan = self._compiling
        if plan is None or not plan.ready:
            return
        short = self._shortest(plan)
        order = order_of(self._places, self._shapers)
        #: All outputs in the model's order; None where that is how they are answered.
        self._order = None if is_plain(order) else order
        self._short = short  # the last: other threads may be in `run`
        if isinstance(short, BuiltinFunctionType):
            self._open_native_run(short, order)
        self._compiling = None

    def _facts(self) -> SessionFacts | None:
        """Facts that sessions over models of the same structure share."""
        if self._ranks is None or not isinstance(self._short, BuiltinFunctionType):
            return None
        values = self._inputs, self._outputs, self._overridable
        return SessionFacts.of(values, self._places, self._shapes, self._ranks)

    def _restore(self, kept: RestoredSession) -> None:
        """Be the session of a model that was loaded before."""
        facts, restored, model = kept

        def programs() -> tuple[Flow, Flow]:
            made = _of_documents(model.program().flow)
            return made, oven.rewritten(made, exact=False)

        plan = restore(restored, programs)
        self._program, self._plan = model, plan
        self._inputs, self._outputs = facts.inputs, facts.outputs
        self._overridable = facts.overridable
        self._names, self._count = tuple(facts.places), len(facts.inputs)
        self._checks, self._shapers, self._places = facts.checks, facts.shapers, facts.places
        self._order, self._ranks, self._compiling = facts.order, facts.ranks, None
        self._short = plan.code.column_entry(facts.ranks, _one_listed(plan, self._inputs[0].name))
        if isinstance(self._short, BuiltinFunctionType):
            self._open_native_run(self._short, facts.gate)

    @property
    def program(self) -> OnnxProgram:
        """The model as a program: its flow, and what its inputs and outputs are for a row."""
        found = self._program
        return found.program() if isinstance(found, StoredModel) else found

    @property
    def plan(self) -> oven.Plan:
        """The plan, which can be looked at, saved, and registered with a runtime."""
        if self._plan is None:
            self._plan = oven.bake(self.program.flow)
        return self._plan

    # --- running -----------------------------------------------------------------------------

    def run(
        self, output_names: Sequence[str] | None, input_feed: Feed, run_options: object = None
    ) -> list[Any]:
        """The outputs of these names, or all in the model's order, for arrays by input name."""
        if output_names is not None and not len(output_names):
            output_names = None  # no names are all names, as there
        short = self._short
        if short is not None and type(input_feed) is dict and len(input_feed) == self._count:
            try:
                answers = short(input_feed)
            except FlourError as problem:
                # What is no text becomes one on the long way.
                if not any(item.type == "tensor(string)" for item in self._inputs):
                    raise translated(problem) from problem
                answers = None
            if answers is not None:
                if output_names is not None:
                    places, shapers = self._places, self._shapers
                    return [
                        labelled(shapers.get(n), answers[places[n]])
                        for n in self._wanted(output_names)
                    ]
                # All outputs in the model's order, from those of the plan.
                order = self._order
                if order is None:
                    return list(answers)
                return [labelled(shape, answers[index]) for index, shape in order]
        names = self._names if output_names is None else self._wanted(output_names)
        feed = self._checked(input_feed)
        run = self.program.flow.reference if self._plan is None else self._plan.run
        try:
            values = self.program.run(run, feed)
        except FlourError as problem:
            raise translated(problem) from problem
        return [labelled(self._shapers.get(name), values[name]) for name in names]

    def _open_native_run(self, entry: BuiltinFunctionType, order: Order) -> None:
        """Let machine code stand in for `run`, unless a subclass has its own."""
        if type(self).run is not InferenceSession.run:
            return
        # The general way is that of a twin without machine code, so that nothing refers to itself.
        twin = object.__new__(type(self))
        vars(twin).update(vars(self))
        native = open_gate(entry, twin.run, order, self._names)
        if native is not None:
            vars(self)["run"] = native

    def _shortest(self, plan: oven.Plan) -> Callable[[Feed], Sequence[Any] | None] | None:
        """Straight through the plan's entry, where its rows are the model's; or to onnxruntime."""
        if isinstance(self.program, WholeProgram):
            (op,) = (
                item.op for item in plan.program.optimised.nodes() if isinstance(item.op, Opaque)
            )
            wanted = list(self._names)

            def run(feed: Feed) -> list[Any] | None:
                try:
                    return op.held().answers(wanted, feed)
                except OpaqueFailed:
                    return None

            return run
        entries, places = self.program.inputs, {name: k for k, name in enumerate(plan.outputs)}
        maps = [entry.port.name for entry in entries if entry.port.kind == "map"]
        fits = all(map(is_block, entries)) or (len(maps) == len(entries) == 1)
        direct = fits and all(map(is_direct, self.program.outputs))
        (first, *others) = plan.inputs.values()
        same = {entry.port.name for entry in entries} == (
            set(first.names) if isinstance(first, Record) and not others else set(plan.inputs)
        )
        if not direct or not same or set(self._names) != set(places):
            return None
        self._places = {name: places[name] for name in self._names}
        if maps:
            return _of_maps(plan, self.program.flow, *maps)
        ranks = {entry.port.name: COLUMN if entry.tensor.rank == 2 else FLAT for entry in entries}
        self._ranks = ranks
        return plan.code.column_entry(ranks, _one_listed(plan, entries[0].port.name))

    def _wanted(self, names: Sequence[str]) -> Sequence[str]:
        if isinstance(names, str | bytes):
            raise TypeError(f"output_names is a list of names, as [{names!r:.60}], and no text")
        for name in names:
            if name not in self._names:
                raise error(
                    InvalidArgument,
                    f"the model has no output {name!r}",
                    where="output_names",
                    found=", ".join(self._names),
                )
        return names

    def _checked(self, feed: Feed) -> Feed:
        """The feed, if it has every input, as the model declares it, and nothing else."""
        if not isinstance(feed, Mapping):
            raise error(
                InvalidArgument,
                "the feed is no dict of arrays by input name",
                where="input_feed",
                found=type(feed).__name__,
                hint="the inputs are " + ", ".join(self._checks),
            )
        extra = [name for name in feed if name not in self._checks]
        missing = [name for name in self._checks if name not in feed]
        if extra or missing:
            what = f"no input {extra[0]!r}" if extra else f"an input {missing[0]!r} that is missing"
            raise error(
                InvalidArgument,
                f"the model has {what}",
                where="input_feed",
                found=", ".join(map(str, feed)) or "nothing",
                hint="the inputs are " + ", ".join(self._checks),
            )
        return {name: self._checks[name](value) for name, value in feed.items()}

    # --- looking -----------------------------------------------------------------------------

    def get_inputs(self) -> list[ValueInfo]:
        """Name, type and shape of every input."""
        return list(self._inputs)

    def get_outputs(self) -> list[ValueInfo]:
        """Name, type and shape of every output."""
        return list(self._outputs)

    def get_overridable_initializers(self) -> list[ValueInfo]:
        """The constants that a feed may replace in onnxruntime; here, options replace them."""
        return list(self._overridable)

    def get_providers(self) -> list[str]:
        """The providers that plans run on."""
        return ["CPUExecutionProvider"]

    def set_providers(
        self, providers: Sequence[object] | None = None, provider_options: object = None
    ) -> None:
        """Mean nothing, as what the session was made with."""

    def disable_fallback(self) -> None:
        """Mean nothing: there is no other way to run a plan."""

    def enable_fallback(self) -> None:
        """Mean nothing, likewise."""

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        """The options of where plans run: there are none."""
        return {name: {} for name in self.get_providers()}

    def get_modelmeta(self) -> ModelMeta:
        """The model's own metadata."""
        model = self.program.model
        return ModelMeta(
            model.producer,
            model.graph.name,
            model.domain,
            model.description,
            model.version,
            dict(model.metadata),
        )

    def get_session_options(self) -> object:
        """The options it was made with."""
        return self._options

    # --- what it is not ----------------------------------------------------------------------

    def __getattr__(self, name: str) -> Any:
        """Say of what onnxruntime's session has besides that it is not here."""
        hint = f"; {_BESIDES[name]}" if name in _BESIDES else ""
        raise AttributeError(f"an InferenceSession has no {name!r}{hint}", name=name, obj=self)

    def __copy__(self) -> InferenceSession:
        return self  # nothing about it changes

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        raise TypeError(
            "a session cannot be pickled: keep the model's bytes, or save its plan as a file"
        )

    def __repr__(self) -> str:
        return f"InferenceSession({self._plan or self.program.flow!r})"


def _one_listed(plan: oven.Plan, name: str) -> Callable[[object], Sequence[Any] | None]:
    """Answer inputs that the entry does not take; one document in lists is short, too."""
    if list(map(type, plan.inputs.values())) != [Text]:
        return lambda _: None

    def run(feed: object) -> Sequence[Any] | None:
        rows = feed.get(name) if type(feed) is dict else None
        if type(rows) is not list or len(rows) != 1 or type(rows[0]) is not list:
            return None
        one = len(rows[0]) == 1 and type(rows[0][0]) is str
        return [*plan.run(rows[0]).values()] if one else None

    return run


def _of_maps(plan: oven.Plan, flow: Flow, name: str) -> Callable[[Feed], Sequence[Any] | None]:
    """Straight to the plan for a map alone, if possible to one that reads it as a row."""
    entry = entry_of_maps(flow)

    def run(feed: Feed) -> Sequence[Any] | None:
        answers = None if entry is None else entry(feed)
        if answers is not None:
            return answers
        row = feed.get(name)
        return [*plan.run([plain_map(row)]).values()] if type(row) is dict else None

    return run


def _baked(flow: Flow, image: SessionImage | None) -> oven.Plan:
    """The plan of a session's program; that of one with an image needs no image of its own."""
    if image is None:
        return oven.bake(flow)
    with paused_collector():
        return oven.Plan(flow, oven.rewritten(flow, exact=False))


def _keep(known: ref[InferenceSession], image: SessionImage) -> None:
    """The code of a session's plan is there: keep what came of importing its model."""
    session = known()
    if session is not None and session._plan is not None:  # noqa: SLF001 (a part of the class)
        with suppress(FlourError):  # calls raise it
            if session._plan.ready:  # noqa: SLF001 (as above)
                image.write(session._plan, session._facts())  # noqa: SLF001 (as above)


def _open(known: ref[InferenceSession]) -> None:
    """The code of a session's plan is there: have its shortest way opened, on this thread."""
    session = known()
    if session is not None:
        with suppress(FlourError):  # calls raise it
            session._open_when_compiled()  # noqa: SLF001 (a part of the class)


def _of_documents(flow: Flow) -> Flow:
    """The program over documents, where it reads one string a row: see oven.entry.forms."""
    inputs = flow.inputs()
    if list(inputs.values()) != [Vector(1, "string")]:
        return flow
    (name,) = inputs
    above = [item for item in flow.nodes() if any(isinstance(s.op, Source) for s in item.inputs)]
    if not all(isinstance(item.op, Element) for item in above):
        return flow
    texts = node(Source(name, Text()), ())

    def change(old: Node, below: tuple[Node, ...]) -> Node:
        return texts if old in above or isinstance(old.op, Source) else node(old.op, below)

    try:
        roots = rebuild(flow.outputs.values(), change)
    except FlourError:  # something reads a string that is no document
        return flow
    same = [item.type for item in roots] == list(flow.types.values())
    return Flow(dict(zip(flow.outputs, roots, strict=True)), None, (flow,)) if same else flow
