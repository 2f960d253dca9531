"""Graphs of models: models by name, choices, ensembles, values that are waited for.

risk = flour.model("risk")                          # a registered model: followed, or "risk@3"
score = risk(row["age", "city"])["probabilities"][1]
final = flour.first_match([(score > 0.9, score)], flour.model("doubt")(row))
runtime.register("decide", flour.outputs(score=final))
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial, reduce, wraps
from typing import Any, ParamSpec, Protocol, TypeVar

import numpy as np

from flour.core.callables import Function, called, function
from flour.core.check import is_string
from flour.core.errors import ParameterError, TypeMismatch
from flour.core.modules import load_operator
from flour.core.node import node
from flour.core.op import REGISTRY
from flour.core.provenance import here
from flour.language.flow import Flow, outputs
from flour.language.late import deferred, has_later, output_nodes
from flour.language.signs import Operand
from flour.language.sources import made_here, type_of

P = ParamSpec("P")
R = TypeVar("R")

#: Seconds that a coroutine has for an answer, unless it is told otherwise.
FETCH_SECONDS = 30.0
#: Rounds of a loop: a graph has each of them as nodes of its own.
MOST_TIMES = 64
#: The output that stands for the opinion of a model with several, the first that it has.
_OPINIONS = ("probabilities", "value", "output", "scores")
#: Words of the language that are functions, by name; all others are methods of a flow.
FUNCTIONS: dict[str, Callable[..., Flow]] = {}


def deferrable(function: Callable[P, R]) -> Callable[P, R]:
    """A function of the language that waits where one of its flows has no type yet."""
    word = f"flour.{function.__name__}"

    @wraps(function)
    def call(*given: P.args, **named: P.kwargs) -> R:
        late = any(has_later(flow) for flow in _flows([*given, *named.values()]))
        made: Any = deferred(word, *given, named) if late else function(*given, **named)
        result: R = made
        return result

    FUNCTIONS[word] = function  # type: ignore[assignment]  # R is Flow, where P is known
    return call


def _flows(value: object) -> Iterator[Flow]:
    match value:
        case Flow():
            yield value
        case list() | tuple():
            for item in value:
                yield from _flows(item)
        case Mapping():
            yield from _flows(list(value.values()))


class GraphModel:
    """A model as a part of graphs: call it on the flows that it reads, in order or by name."""

    def __init__(self, address: str, program: Flow | None = None) -> None:
        """A model of the runtime by its address, or a program that is part of the graph."""
        self.address, self._program = address, program

    def __call__(self, *flows: Flow, **named: Flow) -> Flow:
        """Its outputs for these flows; `["label"]` is one of them."""
        given = [*flows, *named.values()]
        for flow in given:
            if not isinstance(flow, Flow):
                raise TypeMismatch.here(
                    "a model is called on flows",
                    found=type(flow).__name__,
                    hint='flour.model("risk")(row["age", "city"], income=flow)',
                )
        load_operator("")
        names, program = ("",) * len(flows) + tuple(named), self._program
        kept = () if program is None else tuple(program.outputs)
        inside = () if program is None else output_nodes(program)
        op = made_here(REGISTRY["ModelCall"], self.address if program is None else "", names, kept)
        made = node(op, [*(flow.node for flow in given), *inside])
        return Flow({"output": made}, here(), tuple(given))

    def __repr__(self) -> str:
        return f"Model({self.address!r})"


def model(address: str) -> GraphModel:
    """A model of the runtime that a graph is registered in: "risk", or a version, "risk@3".

    The graph follows "risk" when it switches to another version; "risk@3" stays what it is.
    """
    if not str(address).strip():
        raise ParameterError.here("a model has a name", hint='"risk", "risk@3"')
    return GraphModel(address)


class Planned(Protocol):
    """A plan: `program.optimised` is its program after all rewrites."""

    @property
    def program(self) -> Any:
        """The program, as it was written and as it runs."""


def plan(source: Flow | Planned) -> GraphModel:
    """A program or a plan as a part of graphs, which hold it themselves."""
    program: Flow | None = source if isinstance(source, Flow) else None
    if program is None:
        program = getattr(getattr(source, "program", None), "optimised", None)
    if program is None:
        raise ParameterError.here(
            "a program or a plan can be part of a graph",
            found=repr(source)[:80],
            hint="the file of a plan is opened first: flour.plan(oven.load(path))",
        )
    return GraphModel("plan", program)


# --- choices -------------------------------------------------------------------------------------


def switch(value: Flow, branches: Mapping[Any, Flow], otherwise: Operand) -> Flow:
    """The branch whose key the value equals, else `otherwise`.

    A branch that takes a model is computed only for the rows that go there.
    """
    pairs = [(value == key, branch) for key, branch in dict(branches).items()]
    return first_match(pairs, otherwise)


@deferrable
def first_match(branches: Sequence[tuple[Flow, Operand]], otherwise: Operand) -> Flow:
    """The value of the first condition that holds, else `otherwise`.

    Of models with several outputs, those that all branches have.
    """
    pairs = [(condition, value) for condition, value in branches]
    values = [*(value for _, value in pairs), otherwise]
    if not pairs:
        raise ParameterError.here("a choice needs at least one branch")
    several = [value for value in values if isinstance(value, Flow) and len(value.outputs) > 1]
    if not several:
        return _choice([condition for condition, _ in pairs], values)
    names = [
        name
        for name in several[0].outputs
        if all(isinstance(value, Flow) and name in value.outputs for value in values)
    ]
    if not names:
        raise TypeMismatch.here("the branches of a choice have no output in common")
    conditions = [condition for condition, _ in pairs]
    made = {name: _choice(conditions, [v[name] for v in values]) for name in names}  # type: ignore[index]  # they are flows
    return outputs(**made)


def _choice(conditions: Sequence[Flow], values: Sequence[Any]) -> Flow:
    """One output of a choice."""
    first = next((value for value in values if isinstance(value, Flow)), conditions[0])
    flows = [_constant(first, conditions[0], value) for value in values]
    texts = getattr(flows[0].type, "dtype", "") == "string"
    load_operator("")
    op = REGISTRY["ChooseText" if texts else "Choose"]()
    made: Flow = op(*conditions, *flows)
    return made


def _constant(like: Flow, condition: Flow, value: object) -> Flow:
    """A value of a choice as a flow, which reads no branch."""
    if isinstance(value, Flow):
        return value
    if isinstance(value, str):
        return condition.cast("int64").take([value, value])
    array = like._array(value)  # noqa: SLF001 (a method of all flows)
    return condition.fill(array.reshape(-1), scalar=array.ndim == 0)


def repeat(
    step: Callable[[Flow], Flow],
    start: Flow,
    *,
    times: int,
    until: Callable[[Flow], Flow] | None = None,
) -> Flow:
    """`step` of the value, again and again: so many times, or for each row until that holds.

    A step that takes a model is computed only for the rows that still go on.
    """
    if times < 1 or times > MOST_TIMES:
        raise ParameterError.here(
            "a loop is bounded by a count", found=f"times={times}", hint=f"from 1 to {MOST_TIMES}"
        )
    value = start
    for _ in range(times):
        following = unchanged(value, step(value))
        value = following if until is None else first_match([(until(value), value)], following)
    return value


@deferrable
def unchanged(before: Flow, after: Flow) -> Flow:
    """`after`, which a loop goes on with: a value of the kind that it began with."""
    kinds = [
        (type(f.type), getattr(f.type, "width", 1), is_string(f.type)) for f in (before, after)
    ]
    if kinds[0] != kinds[1]:
        raise TypeMismatch.here(
            "a loop changes the type of its value",
            found=f"from {before.type} to {after.type}",
            hint="repeat(step, start): step gives what it is given, such as a vector of one width",
        )
    return after


# --- ensembles -----------------------------------------------------------------------------------


class Ensemble:
    """Several answers to one question: the outputs of models, or flows of them."""

    def __init__(self, members: Sequence[Flow]) -> None:
        """The members, in an order that sums keep."""
        self._members = list(members)
        if not self._members or not all(isinstance(flow, Flow) for flow in self._members):
            raise ParameterError.here(
                "an ensemble is a list of flows",
                found=repr(members)[:80],
                hint="call the models first: ensemble([one(row), another(row)])",
            )

    def mean(self) -> Flow:
        """The mean of what the members say."""
        return weighted(self._members, [1.0] * len(self._members))

    def weighted(self, weights: Sequence[float]) -> Flow:
        """The mean, in which each member has its weight."""
        return weighted(self._members, [float(weight) for weight in weights])

    def model(self) -> Flow:
        """The members as one model: mean probabilities and their label, or the mean value."""
        shared = set[str].intersection(*(set(flow.outputs) for flow in self._members))
        if {"label", "probabilities"} <= shared:
            shares, classes = self.mean(), _table(self._members[0]["label"])
            return outputs(label=shares.arg_max().take(classes), probabilities=shares)
        if "value" in shared:
            return outputs(value=ensemble([flow["value"] for flow in self._members]).mean())
        raise TypeMismatch.here(
            "only models with probabilities, or with a value, make one model",
            found=f"in common: {', '.join(sorted(shared)) or 'nothing'}",
        )

    def vote(self) -> Flow:
        """The label that most members give; of several, the first in the order of the classes."""
        return vote(self._members)


def ensemble(members: Sequence[Flow]) -> Ensemble:
    """Several answers to be made one: `.mean()`, `.weighted([2, 1])`, `.vote()`."""
    return Ensemble(members)


@deferrable
def weighted(members: Sequence[Flow], weights: Sequence[float]) -> Flow:
    """The weighted mean of flows, added up in their order."""
    if len(weights) != len(members) or not sum(weights):
        raise ParameterError.here(
            "an ensemble has a weight for each member, and they do not add up to zero",
            found=f"{len(members)} members, weights {list(weights)}"[:120],
        )
    models = [flow for flow in members if {"label", "probabilities"} <= {*flow.outputs}]
    _check_classes([flow["label"] for flow in models])
    parts = [_opinion(flow).as_float() for flow in members]
    if any(weight != weights[0] for weight in weights):
        parts = [part * weight for part, weight in zip(parts, weights, strict=True)]
    total = sum(weights) if any(weight != weights[0] for weight in weights) else len(parts)
    return reduce(lambda left, right: left + right, parts) / float(total)


def _check_classes(labels: Sequence[Flow]) -> None:
    """Refuse models of different classes, whose columns of probabilities mean other things."""
    known = [sorted(_table(label)) for label in labels]
    for table in known:
        if table != known[0]:
            raise TypeMismatch.here(
                "the models of an ensemble have the same classes",
                found=f"{known[0]} and {table}"[:160],
                hint="vote() goes by labels; or add up the columns that belong together",
            )


def _opinion(flow: Flow, *wanted: str) -> Flow:
    """The output of a model that says what it thinks."""
    names = wanted or _OPINIONS
    found = next((name for name in names if name in flow.outputs), None)
    return flow if len(flow.outputs) == 1 or found is None else flow[found]


@deferrable
def vote(members: Sequence[Flow]) -> Flow:
    """The label that most flows of labels have."""
    labels = [_opinion(flow, "label") for flow in members]
    tables = [_table(flow) for flow in labels]
    classes = sorted({value for table in tables for value in table})
    places = {value: place for place, value in enumerate(classes)}
    numbers = [
        flow.input(0).take(np.array([places[value] for value in table])).as_vector()
        for flow, table in zip(labels, tables, strict=True)
    ]
    together = numbers[0].concat(*numbers[1:]) if len(numbers) > 1 else numbers[0]
    ones = np.ones(len(numbers))
    return together.tally(ones, 0 * ones, len(classes)).arg_max().take(classes)


def _table(label: Flow) -> list[Any]:
    """The classes that a label is one of."""
    op = label.node.op
    if op.name == "TakeText":
        return list(op.table.to_list())  # type: ignore[attr-defined]  # the operator's field
    if op.name == "Take":
        return list(op.table.array.tolist())  # type: ignore[attr-defined]  # the operator's field
    raise TypeMismatch.here(
        "only classifiers vote",
        found=f"{label.type} from {op.name}",
        hint="for numbers: ensemble([...]).mean()",
    )


# --- what is waited for --------------------------------------------------------------------------


def fetch(  # noqa: PLR0913 (each has a default)
    coroutine: Callable[..., Any] | Sequence[Callable[..., Any] | Function],
    *reads: Flow,
    gives: object,
    timeout: float | None = FETCH_SECONDS,
    deadline: float | None = None,
    otherwise: object = None,
    retries: int = 0,
    backoff: float = 0.05,
    limit: int | None = None,
    per: Flow | None = None,
    keep: float = 0.0,
    together: bool = False,
    within: tuple[Any, Any] | None = None,
    name: str | None = None,
) -> Flow:
    """The answer of a coroutine for each row: features of a store, an answer of another server.

    It is called with the values of `reads`, once a row, or once a request if `together`. Of several
    coroutines, all are called, and the first good answer counts. It has `timeout` seconds (with
    None, no limit), and `retries` more tries, `backoff` seconds apart at first and twice as long
    each time, all of that within `deadline` seconds. Where it has no answer in the end, the row is
    an error that names this node, or goes on with `otherwise`: a value, or a flow. At most `limit`
    calls are under way at a time, for each value of `per` if that is given; answers are kept for
    `keep` seconds by what was read. Numbers that are not `within` (least, largest) are no answers.
    """
    asked = list(coroutine) if isinstance(coroutine, Sequence) else [coroutine]
    for each in asked:
        _check_coroutine(each.call if isinstance(each, Function) else each, len(reads))
    functions = tuple(map(function, asked))
    kind = type_of(gives)
    spare = isinstance(otherwise, Flow)
    if isinstance(otherwise, np.ndarray | np.generic):
        otherwise = otherwise.tolist()
    plain = () if otherwise is None or spare else (otherwise,)
    load_operator("")
    op: Any = made_here(
        REGISTRY["Fetch"],
        name or "_or_".join(getattr(each, "__name__", "fetch") for each in asked),
        *(functions[0] if len(functions) == 1 else functions, kind),
        *(timeout or 0.0, retries, backoff, plain, spare, limit or 0, keep, together),
        *(deadline or 0.0, per is not None),
        () if within is None else np.stack(np.broadcast_arrays(*within)).reshape(2, -1),
    )
    made: Flow = op(*reads, *([] if per is None else [per]), *([otherwise] if spare else []))
    return made


def _check_coroutine(call: Any, count: int) -> None:
    """Refuse a function that is not written with `async def`: it would block the event loop.

    Also one that does not take as many values as it is to be called with. Code that is not Python's
    does not tell what it answers, so a builtin that can be awaited is marked as such, or wrapped.
    """
    inside = inspect.unwrap(call)
    while isinstance(inside, partial):
        inside = inspect.unwrap(inside.func)
    tells = [inside, vars(type(inside)).get("__call__")]
    # `_is_coroutine` is how Cython marks coroutine functions.
    marked = any(getattr(f, "_is_coroutine", False) for f in tells)
    if not marked and not any(map(inspect.iscoroutinefunction, tells)):
        raise ParameterError.here(
            "a fetch calls a coroutine function",
            found=f"{called(call)}, which is not written with async def",
            hint="async def load(x): return await asyncio.to_thread(read, x)",
        )
    try:
        signature = inspect.signature(call)
    except (TypeError, ValueError):  # it does not say
        return
    try:
        signature.bind(*range(count))
    except TypeError as problem:
        raise ParameterError.here(
            "a fetch calls its coroutine with what it reads",
            found=f"{called(call)}{signature} and {count} values: {problem}"[:200],
            hint="flour.fetch(load, row['a'], row['b'], ...) calls load(a, b)",
        ) from None
