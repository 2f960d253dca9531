"""Single rows through a graph: Python's values by node, and plans by their entries.

A block of one row costs some 100 us at each plan, for arrays that are made and taken apart; a dict
at a plan's entry costs less than one. What this way cannot take goes the way of blocks.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from flour.core.node import Node
from flour.core.source import Source
from flour.core.types import FLOATS, INTS, Record, Scalar, Type, Vector
from oven import Plan
from oven.entry.builtin import learn_release
from runtime.graph.cutting import GraphCut, Step, roots_of
from runtime.graph.threads import SLOW_SECONDS, Threads

Known = dict[Node, Any]
Run = Callable[[Known, dict[Node, int]], None]


#: One call of a row in so many is timed.
_UNTIMED = 16 - 1


class NotARow(Exception):
    """A row that has to go the way of blocks."""


class RowGraph:
    """A graph for single rows."""

    def __init__(
        self,
        graph: GraphCut,
        plans: Mapping[int, Plan],
        inputs: Mapping[str, Type],
        threads: Threads,
    ) -> None:
        self._graph, self._inputs, self._threads = graph, inputs, threads
        #: What steps leave; what is worked out again by every reader is no value of a row.
        self._made = frozenset(n for step in graph.steps for n in step.gives)
        sources = {n for step in graph.steps for n in _sources(step)}
        sources |= {n for item in graph.outputs.values() for n in roots_of(item)}
        self._sources = {str(n.op.fields()["label"]): n for n in sources}
        self.steps = {step.number: self._step(step, plans.get(step.number)) for step in graph.steps}
        self._outputs = {name: self._reader(item) for name, item in graph.outputs.items()}
        self._reads: list[Any] = list(self._outputs.values())
        self._runs: list[Any] = [(step, self.steps[step.number]) for step in graph.steps]
        #: The steps that do not need one another, where there are such.
        self._waves = [[(step, self.steps[step.number]) for step in wave] for wave in graph.waves]
        self._wide = [wave for wave in graph.waves if len(wave) > 1]
        fetches = {step.nodes[0]: step for step in graph.steps if step.kind == "fetch"}
        self._fetches = {item: self._readers(step) for item, step in fetches.items()}
        self._converters = {item: _converter(item.type) for item in fetches}
        read = [*graph.outputs.values()]
        read += [n for step in graph.steps if step.form is None for n in step.nodes[0].inputs]
        self._inputs_read = [
            made for n in read if roots_of(n) and (made := self._reader(n)) is not None
        ]

    @property
    def possible(self) -> bool:
        """True if every step and output can be had for a row alone."""
        readers = [*self.steps.values(), *self._outputs.values()]
        return all(reader is not None for reader in readers)

    # --- a row -------------------------------------------------------------------------------

    def known(self, data: object) -> Known:
        """The values of a row's inputs."""
        if len(self._inputs) == 1:
            ((name, kind),) = self._inputs.items()
            if isinstance(kind, Record) is not isinstance(data, dict):
                raise NotARow
            return {self._sources[name]: data} if name in self._sources else {}
        if not isinstance(data, dict):
            raise NotARow
        return {item: data[name] for name, item in self._sources.items()}

    def checked(self, data: object) -> Known:
        """The values of a row's inputs, all of which can be used as they are; or NotARow."""
        known = self.known(data)
        for read in self._inputs_read:
            read(known)
        return known

    def run(self, data: object) -> tuple[Any, ...]:
        """Every output of a graph that never waits."""
        known, chosen = self.known(data), dict[Node, int]()
        if self._wide and any(sum(step.is_slow() for step in wave) > 1 for wave in self._wide):
            self._run_side_by_side(known, chosen)
        else:
            for step, run in self._runs:
                if not step.path or taken(step, known, chosen):
                    run(known, chosen)
        return tuple([read(known) for read in self._reads])

    def _run_side_by_side(self, known: Known, chosen: dict[Node, int]) -> None:
        """Every step; those that take long and need nothing of each other, at the same time."""
        for wave in self._waves:
            here = [pair for pair in wave if taken(pair[0], known, chosen)]
            slow = [partial(run, known, chosen) for step, run in here if run and step.is_slow()]
            if len(slow) > 1:
                self._threads.side_by_side(slow)
                here = [pair for pair in here if not pair[0].is_slow()]
            for _, run in here:
                assert run is not None, "rows are taken where they can be"
                run(known, chosen)

    def answers(self, known: Known, outputs: tuple[str, ...]) -> dict[str, Any]:
        """These outputs, once their steps are done."""
        return {name: self._outputs[name](known) for name in outputs}  # type: ignore[misc]  # see possible

    def step(self, step: Step) -> Run:
        """The function that takes a row through a step."""
        run = self.steps[step.number]
        assert run is not None, "it was looked at before"
        return run

    def read(self, item: Node, known: Known) -> list[Any]:
        """The values that a fetch reads."""
        return [read(known) for read in self._fetches[item]]

    def answer(self, item: Node, value: object) -> Any:
        """A fetch's answer as a value of the type that it promised."""
        convert = self._converters[item]
        try:
            return value if convert is None else convert(value)
        except NotARow:
            op: Any = item.op
            made = op.column([value])[0]
            return made.item() if isinstance(made, np.generic) else made

    # --- steps -------------------------------------------------------------------------------

    def _step(self, step: Step, plan: Plan | None) -> Run | None:
        if step.kind == "choice":
            values = step.nodes[0].inputs[len(step.nodes[0].inputs) // 2 :]
            return _choice(step, [self._reader(value) for value in values])
        if plan is None:
            fine = all(self._readers(step)) and _converter(step.nodes[0].type)
            return _nothing if fine else None
        return self._entry(step, plan) if step.form is not None and step.form.is_row else None

    def _entry(self, step: Step, plan: Plan) -> Run | None:
        """A plan's step: its entry on a dict, or on the one value that it reads."""
        form = step.form
        assert form is not None, "a plan has one"
        if form.only is None:
            return RowEntry(step, plan, _record(form.columns))
        read = self._reader(form.only)
        return None if read is None else RowEntry(step, plan, read)

    def _readers(self, step: Step) -> list[Any]:
        """Readers of the values that a fetch reads; None for a value to be computed first."""
        known = {*step.reads}
        return [
            self._reader(n) if n in known or roots_of(n) else None for n in step.nodes[0].inputs
        ]

    def _reader(self, item: Node) -> Callable[[Known], Any] | None:
        """The reader of a row's value: left by a step, an input, or a column of one."""
        if item in self._made:
            return lambda known: known[item]
        op: Any = item.op
        convert = _converter(item.type)
        if op.name == "Field" and isinstance(item.inputs[0].op, Source):
            record, label = item.inputs[0], op.label
            return convert and (lambda known: convert(known[record][label]))
        if isinstance(item.op, Source):
            return convert and (lambda known: convert(known[item]))
        return None


def _nothing(_known: Known, _chosen: dict[Node, int]) -> None:
    """A fetch is the router's."""


def taken(step: Step, known: Known, chosen: dict[Node, int]) -> bool:
    """True if a row goes through a step."""
    for choice, branch in step.path:
        if choice not in chosen:
            chosen[choice] = _branch(choice, known)
        if chosen[choice] != branch:
            return False
    return True


def _branch(choice: Node, known: Known) -> int:
    count = len(choice.inputs) // 2
    return next((n for n in range(count) if known[choice.inputs[n]]), count)


def _choice(step: Step, readers: Sequence[Callable[[Known], Any] | None]) -> Run | None:
    (item,) = step.nodes
    if not all(readers):
        return None
    convert: Callable[[Any], Any] = _same
    if isinstance(item.type, Scalar):
        number = item.type.dtype
        convert = float if number in FLOATS else int if number in INTS else _same
        if number == "float32":
            convert = _single
    elif any(value.type != item.type for value in item.inputs[len(item.inputs) // 2 :]):
        return None

    def run(known: Known, chosen: dict[Node, int]) -> None:
        if item not in chosen:
            chosen[item] = _branch(item, known)
        known[item] = convert(readers[chosen[item]](known))  # type: ignore[misc]  # all are there

    return run


def _same(value: object) -> Any:
    return value


def _single(value: Any) -> float:
    return float(np.float32(value))


class RowEntry:
    """A plan's step for rows: its entry, on a dict or on the one value that it reads."""

    def __init__(self, step: Step, plan: Plan, given: Callable[[Known], Any]) -> None:
        self._step, self._plan, self._given = step, plan, given
        self._gives = step.gives
        self._function: Callable[[Any], Any] | None = None

    def __call__(self, known: Known, _: object) -> None:
        """One row."""
        function = self._function or self._open()
        step = self._step
        step.calls += 1
        step.rows += 1
        if step.calls & _UNTIMED:
            known.update(zip(self._gives, function(self._given(known)), strict=True))
            return
        start = time.perf_counter()
        known.update(zip(self._gives, function(self._given(known)), strict=True))
        step.took(time.perf_counter() - start)
        learn_release(function, 1, long=step.alone >= SLOW_SECONDS)

    def _open(self) -> Callable[[Any], Any]:
        self._function = self._plan.entry()
        return self._function

    def together(self, block: Sequence[Known]) -> None:
        """Several rows, as one block."""
        rows = [self._given(known) for known in block]
        first: Any = rows[0]
        data: Any = rows
        if isinstance(first, dict):
            data = {name: [row[name] for row in rows] for name in first}
        elif isinstance(first, np.ndarray):
            data = np.stack(rows)
        made = (self._function or self._open())(data)
        self._step.calls += 1
        self._step.rows += len(rows)
        for item, column in zip(self._gives, made, strict=True):
            flat = isinstance(column, np.ndarray) and column.ndim == 1
            for known, value in zip(block, column.tolist() if flat else column, strict=True):
                known[item] = value


def _record(columns: tuple[tuple[str, Node, str | int | None], ...]) -> Callable[[Known], Any]:
    """The record that a plan reads, of the values that are known."""
    whole = [(name, item) for name, item, at in columns if at is None]
    parts = [(name, item, at) for name, item, at in columns if at is not None]

    def made(known: Known) -> dict[str, Any]:
        row = {name: known[item] for name, item in whole}
        for name, item, at in parts:
            value = known[item][at]
            row[name] = value.item() if isinstance(value, np.generic) else value
        return row

    return made


def _converter(kind: Type) -> Callable[[Any], Any] | None:
    """A value as the caller has it, as one of this type."""
    if isinstance(kind, Vector) and kind.dtype in FLOATS and not kind.sparse:
        return lambda value: _vector(value, kind)
    dtype = getattr(kind, "dtype", "string")
    if isinstance(kind, Record | Vector) or dtype not in ("float64", "int64", "string", "bool"):
        return None
    wanted = {"float64": float, "int64": int, "bool": bool, "string": str}[dtype]

    def convert(value: Any) -> Any:
        if type(value) is wanted:
            return value
        if wanted is float and type(value) in (int, np.float64, np.float32, np.int64):
            return float(value)
        raise NotARow

    return convert


def _vector(value: object, kind: Vector) -> Any:
    made = np.asarray(value)
    if made.shape != (kind.width,) or made.dtype.kind not in "if":
        raise NotARow
    return made.astype(kind.dtype, copy=False)


def _sources(step: Step) -> list[Node]:
    return [n for item in (*step.reads, *step.nodes[0].inputs) for n in roots_of(item)]
